"""Logs in memory, for as long as the process lives."""
