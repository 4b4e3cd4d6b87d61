"""Logs in one SQLite file: the default store."""
