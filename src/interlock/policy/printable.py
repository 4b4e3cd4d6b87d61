"""Text of others on a screen: a model's, a file's, a person's.

Lives here: `printable`, and `one_line` for what stands in a line beside words of ours.
"""

from __future__ import annotations

from unicodedata import category

from interlock.policy.paths.characters import INVISIBLE


def printable(text: str) -> str:
    """The text with everything escaped that could move the cursor, hide a part of it, or reorder it."""
    if text.isprintable() and (text.isascii() or INVISIBLE.isdisjoint(text)):
        return text
    return "".join([c if _shows(c) else _escaped(c) for c in text])


def one_line(text: str) -> str:
    """The same, on one line: nobody can add a line that looks like one of ours."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def _shows(c: str) -> bool:
    return (c.isprintable() or c in "\n\t" or category(c) == "Zs") and c not in INVISIBLE


def _escaped(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 0x100 else f"\\u{ord(c):04x}"
