"""Measurements of Interlock against the least that the same work can cost. See README.md beside this file."""
