"""Paths as rules see them: what a text stands for, whether a pattern covers it, what is protected."""
