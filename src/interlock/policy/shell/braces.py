"""Brace expansion: `{a,b}` is two words.

Lives here: `expanded`. Plain lists are taken apart; whatever else bash would expand is not known.
"""

from __future__ import annotations

import re
from itertools import product

from interlock.policy.shell.analysis import Piece, Word
from interlock.policy.shell.syntax import Token

BRACES = 64  # words that one brace expansion may become

_FLAT = re.compile(r"\{([^{}]*)\}")


def expanded(token: Token, source: str) -> list[Token]:
    """Brace expansion, where it is a plain list; any other that bash would expand is not known."""
    word = token.word
    unquoted = _unquoted(word.source)
    between = unquoted[unquoted.find("{") : unquoted.rfind("}") + 1]
    if "," not in between and ".." not in between:
        return [token]
    flat = word.source == unquoted and not token.inside and all(p.known and not p.glob for p in word.pieces)
    parts = re.split(_FLAT, word.source) if flat else []
    choices = [part.split(",") if index % 2 else [part] for index, part in enumerate(parts)]
    simple = (
        len(choices) > 1
        and not any(c in part for part in parts[::2] for c in "{}")
        and all("," in part for part in parts[1::2])
    )
    count = 1
    for choice in choices:
        count *= len(choice)
    if not simple or count > BRACES or word.source.startswith("~"):
        piece = Piece(word.source, known=False, splits=True)
        unknown = Word(word.source, word.source, word.span, (piece,), word.quoted)
        return [Token(unknown, token.inside, token.variables)]
    made: list[Token] = []
    for combination in product(*choices):
        text = "".join(combination)
        if not text:
            continue  # an empty unquoted word is none
        if text.startswith("~"):
            piece = Piece(word.source, known=False, splits=True)
            return [Token(Word(word.source, word.source, word.span, (piece,), False))]
        made.append(Token(Word(text, word.source, word.span, (Piece(text),), False)))
    return made


def _unquoted(source: str) -> str:
    """The source with each quoted or escaped stretch, and each expansion, put as a blank."""
    return re.sub(
        r"\\.|\$'(?:\\.|[^'\\])*'|'[^']*'|\"(?:\\.|[^\"\\])*\"|\$\{[^}]*\}|\$\([^)]*\)",
        " ",
        source,
        flags=re.DOTALL,
    )
