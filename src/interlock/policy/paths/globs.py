r"""Patterns for one name, and whether two patterns for paths have a path in common.

Lives here: `Segment`, the pattern of one name between slashes, and `may_meet`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

_CLASSES = {
    "alpha": "a-zA-Z", "digit": "0-9", "alnum": "a-zA-Z0-9", "upper": "A-Z", "lower": "a-z", "space": r"\s",
    "blank": r" \t", "punct": r"!-/:-@\[-`{-~", "xdigit": "0-9a-fA-F", "cntrl": r"\x00-\x1f\x7f",
    "print": r"\x20-\x7e", "graph": r"\x21-\x7e",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Token:
    """One character of a pattern: itself, one of several, or (`star`) any number of any, or of `only` these."""

    literal: str | None = None
    regex: str = "[^/]"
    star: bool = False
    only: str | None = None


_STAR = Token(star=True)
_ONE = Token()
_TRAIL = Token(regex="[. ]*", star=True, only=". ")


@dataclass(frozen=True, slots=True)
class Segment:
    """The pattern of one name. `any_folders` stands for any number of names instead: `**`."""

    tokens: tuple[Token, ...]
    any_folders: bool = False

    ANY: ClassVar[Segment]

    @classmethod
    def of(cls, text: str) -> Segment:
        """
        Raises:
            ValueError: a `[` without an end, or an escape of nothing.
        """
        return cls(tuple(_tokens(text)))

    @classmethod
    def literal(cls, name: str) -> Segment:
        return cls(tuple([Token(c) for c in name]))

    def trailed(self) -> Segment:
        """The same, with any dots and blanks behind it."""
        return self if self.any_folders else Segment((*self.tokens, _TRAIL))

    def regex(self) -> str:
        """For one whole name. Every run between two stars is looked for from the left, and kept: that never misses."""
        runs: list[list[str]] = [[]]
        for token in self.tokens:
            if not token.star or token.only is not None:
                runs[-1].append(re.escape(token.literal) if token.literal is not None else token.regex)
            elif len(runs) == 1 or runs[-1]:
                runs.append([])
        first, *others = ["".join(run) for run in runs]
        if not others:
            return first
        return first + "".join([f"(?>[^/]*?{run})" for run in others[:-1]]) + f"[^/]*{others[-1]}"


Segment.ANY = Segment((), any_folders=True)


def segments_of(path: str) -> tuple[Segment, ...]:
    """The segments of a shell pattern; what is no pattern is taken as it stands."""
    made = []
    for name in path.split("/"):
        if name == "**":
            made.append(Segment.ANY)
        elif name:
            try:
                made.append(Segment.of(name))
            except ValueError:
                made.append(Segment.literal(name))
    return tuple(made)


def _tokens(text: str) -> list[Token]:
    made = []
    at = 0
    while at < len(text):
        c = text[at]
        at += 1
        if c == "*":
            made.append(_STAR)
        elif c == "?":
            made.append(_ONE)
        elif c == "[":
            regex, at = _class(text, at)
            made.append(Token(regex=regex))
        elif c == "\\":
            if at == len(text):
                raise ValueError("it ends with a backslash")
            made.append(Token(text[at]))
            at += 1
        else:
            made.append(Token(c))
    return made


def _class(text: str, at: int) -> tuple[str, int]:
    """The regex of a class whose `[` is right before `at`, and where it ends."""
    negated = text[at : at + 1] in ("!", "^")
    at += negated
    inside: list[str] = []
    first = True
    while True:
        c = text[at : at + 1]
        if not c:
            raise ValueError("a `[` has no `]`")
        if c == "]" and not first:
            break
        first = False
        if c == "[" and text[at + 1 : at + 2] == ":" and (end := text.find(":]", at + 2)) > 0:
            name = text[at + 2 : end]
            if name not in _CLASSES:
                raise ValueError(f"there is no class [:{name}:]")
            inside.append(_CLASSES[name])
            at = end + 2
            continue
        low, at = _member(text, at)
        if text[at : at + 1] == "-" and text[at + 1 : at + 2] not in ("", "]"):
            high, at = _member(text, at + 1)
            if low <= high:  # a range that runs backwards has nobody in it
                inside.append(f"{re.escape(low)}-{re.escape(high)}")
        else:
            inside.append(re.escape(low))
    if not inside:
        return ("[^/]" if negated else "(?!)"), at + 1
    return f"(?!/)[{'^' if negated else ''}{''.join(inside)}]", at + 1


def _member(text: str, at: int) -> tuple[str, int]:
    if text[at] == "\\" and at + 1 < len(text):
        at += 1
    return text[at], at + 1


def may_meet(one: tuple[Segment, ...], other: tuple[Segment, ...]) -> bool:
    """Whether some path fits `one`, and itself or a folder above it fits `other`; True where that is not certain.

    A star of `one` does not stand for a name that begins with a dot, as in the shell.
    """

    @cache
    def meet(i: int, j: int) -> bool:
        if j == len(other):
            return True
        if other[j].any_folders:
            return meet(i, j + 1) or (i < len(one) and meet(i + 1, j))
        if i == len(one):
            return False
        if one[i].any_folders:
            return meet(i + 1, j) or meet(i, j + 1)
        return _names_meet(one[i], other[j]) and meet(i + 1, j + 1)

    return meet(0, 0)


def _names_meet(one: Segment, other: Segment) -> bool:
    a, b = one.tokens, other.tokens
    if a and b and a[0].literal is None and b[0].literal == ".":
        return False

    @cache
    def meet(i: int, j: int) -> bool:
        if i < len(a) and a[i].star:
            return meet(i + 1, j) or (j < len(b) and _takes(a[i], b[j]) and meet(i, j + 1))
        if j < len(b) and b[j].star:
            return meet(i, j + 1) or (i < len(a) and _takes(b[j], a[i]) and meet(i + 1, j))
        if i == len(a) or j == len(b):
            return i == len(a) and j == len(b)
        x, y = a[i].literal, b[j].literal
        return (x is None or y is None or x == y) and meet(i + 1, j + 1)

    return meet(0, 0)


def _takes(star: Token, other: Token) -> bool:
    return star.only is None or other.literal is None or other.literal in star.only
