"""Text of others on a screen: a model's, a file's, a person's.

Lives here: `printable`.
"""

from __future__ import annotations

from unicodedata import category


def printable(text: str) -> str:
    """The text with everything escaped that could move the cursor, hide a part of it, or reorder it."""
    if text.isprintable():
        return text
    return "".join(
        [c if c.isprintable() or c in "\n\t" or category(c) == "Zs" else _escaped(c) for c in text]
    )


def _escaped(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 0x100 else f"\\u{ord(c):04x}"
