"""Replacing a text that is meant to be unique.

Lives here: `replace_text`, pure. The errors are for the model: how often the text occurs, and where.
"""

from __future__ import annotations

import re

from interlock.errors import ToolError

_COUNTED = 1_000  # occurrences
_NAMED = 10  # lines told of in an error


def replace_text(text: str, old: str, new: str, *, replace_all: bool, name: str) -> tuple[str, int]:
    """The text with `old` replaced, and how many times that was.

    A line break in `old` matches LF and CRLF; those in `new` become what stood there, or what the text begins with.

    Raises:
        ToolError: `old` does not occur, occurs more than once without `replace_all`, or nothing would change.
    """
    # A lone "\n" must not match inside "\r\n", or one place would count as two.
    pattern = re.compile(r"(?:\r\n|(?<!\r)\n)".join(map(re.escape, re.split(r"\r?\n", old))))
    starts = _starts(pattern, text)
    if not starts:
        raise ToolError(f"old does not occur in {name}{_nearest(text, old)}")
    if len(starts) > 1 and not replace_all:
        often = f"{len(starts)} times" if len(starts) < _COUNTED else f"{_COUNTED:,} times or more"
        lines = [text.count("\n", 0, start) + 1 for start in starts[: _NAMED + 1]]
        raise ToolError(
            f"old occurs {often} in {name}, at {_at(lines)}: "
            "add lines around it until it is unique, or set replace_all"
        )
    first_break = re.search(r"\r?\n", text)

    def replacement(found: re.Match[str]) -> str:
        there = re.search(r"\r?\n", found[0]) or first_break
        return re.sub(r"\r?\n", there[0] if there else "\n", new)

    changed, count = pattern.subn(replacement, text)
    if changed == text:
        raise ToolError(f"nothing would change in {name}: old and new are the same")
    return changed, count


def _starts(pattern: re.Pattern[str], text: str) -> list[int]:
    """Where it matches, overlaps included: "aa" is not unique in "aaa"."""
    starts: list[int] = []
    found = pattern.search(text)
    while found and len(starts) < _COUNTED:
        starts.append(found.start())
        found = pattern.search(text, found.start() + 1)
    return starts


def _at(lines: list[int]) -> str:
    shown = ", ".join(map(str, lines[:_NAMED]))
    return f"line{'s' if len(lines) > 1 else ''} {shown}{', ...' if len(lines) > _NAMED else ''}"


def _nearest(text: str, old: str) -> str:
    """Where its first line occurs, white space aside: mostly it is the indentation that differs."""
    first = next((line.strip() for line in old.splitlines() if line.strip()), None)
    lines = [n for n, line in enumerate(text.split("\n"), 1) if first is not None and line.strip() == first]
    return f"; its first line is at {_at(lines)}: compare white space and what follows" if lines else ""
