"""Patterns in which a star is any characters.

Lives here: `starred`, which makes a regular expression of one.
"""

from __future__ import annotations

import re


def starred(text: str) -> str:
    """For the whole of a text. A last ` *` is a word boundary: it may be missing, and what follows a blank may be anything.

    Each run between two stars is looked for from the left, and kept: that never misses, and takes no longer than
    reading on. (Plain `.*` for each star would try every combination.)
    """
    boundary = text.endswith(" *") and text.rstrip("* ") != ""
    runs = [re.escape(run) for run in (text[:-2].rstrip() if boundary else text).split("*")]
    made = _joined(runs)
    return f"{made}|{_joined([*runs[:-1], runs[-1] + chr(92) + 's', ''])}" if boundary else made


def _joined(runs: list[str]) -> str:
    first, *others = runs
    if not others:
        return first
    return first + "".join(f"(?>.*?{run})" for run in others[:-1] if run) + f".*{others[-1]}"
