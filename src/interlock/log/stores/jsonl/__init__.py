"""Logs in a folder, one readable file a session."""
