"""Characters that hide or reorder what a person reads.

Lives here: `hidden_character`. Look-alike letters are simply other letters; they are none of these.
"""

from __future__ import annotations

from unicodedata import category, name

# Control, format (zero width, bidirectional), surrogates (bytes that are no text), line and paragraph separators,
# private use: nothing that a name needs. Blanks other than the space look like it.
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp", "Zs"})
#: Letters and marks that show nothing.
INVISIBLE = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")


def hidden_character(text: str) -> str | None:
    """What is wrong with the first control, invisible or bidirectional character of a text; None if there is none."""
    if text.isascii() and text.isprintable():
        return None
    for c in text:
        if c == " ":
            continue
        if category(c) in _CATEGORIES or c in INVISIBLE or _selects_variation(c):
            return (
                f"it contains U+{ord(c):04X} ({name(c, 'a control character').lower()}), which cannot be seen"
            )
    return None


def _selects_variation(c: str) -> bool:
    return "\ufe00" <= c <= "\ufe0f" or "\U000e0100" <= c <= "\U000e01ef"
