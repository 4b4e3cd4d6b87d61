"""What is searched for, and what it means that a text has it: the same in every store.

Lives here: `Where` and `Match`, what a search is asked and what it answers, and `Query`, the words of one. A text has
a query if it has each of its terms. A term is what stands between blanks: its words, next to each other, and the last
one may go on: `read_fi` is found in "Read file". Case and accents do not count; everything that is neither letter nor
digit only separates words, so nothing in a query can be wrong. A character of a script without blanks is a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

import msgspec

from interlock.errors import UsageError
from interlock.log.reasons import EndReason

Place: TypeAlias = Literal["prompt", "context", "answer", "call", "result", "summary"]

REASONS: tuple[str, ...] = tuple([str(one.__struct_config__.tag) for one in get_args(EndReason)])

_BEFORE, _WIDTH = 60, 180  # characters of an excerpt: before the first match, and in all
_IDEOGRAPHS = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_COLOURS = r"\x1b\[[0-?]*[@-~]"  # and whatever else a program tells a terminal: it is no word
_WORD = re.compile(rf"{_COLOURS}|[{_IDEOGRAPHS}]|(?:(?![{_IDEOGRAPHS}])[^\W_]|[\u0300-\u036f])+")
_ACCENTS = re.compile(r"[\u0300-\u036f]+")
_BLANKS = re.compile(r"\s+")


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions are listed, or which lines are searched; None: any.

    Of a session, its life has to touch the time, and some call or turn of it the tool or reason. Of a line, it is the
    line itself that was written then, is a call of the tool or its result, and stands in a turn that ended so.

    Raises:
        UsageError: no turn ends for that reason.
    """

    since: int | None = None  # epoch ms
    until: int | None = None  # epoch ms, not included
    cwd: str | None = None  # the folder that the session works in, exactly
    tool: str | None = None
    reason: str | None = None  # the kind of an end reason: completed, error, aborted, …

    def __post_init__(self) -> None:
        if self.reason is not None and self.reason not in REASONS:
            raise UsageError(
                f"No turn ends for the reason {self.reason!r}: name one of {', '.join(REASONS)}."
            )

    def touches(self, created: int, updated: int, cwd: str | None) -> bool:
        """Whether a session with these dates and this folder can be meant, whatever is in its log."""
        return (
            (self.since is None or updated >= self.since)
            and (self.until is None or created < self.until)
            and (self.cwd is None or cwd == self.cwd)
        )


class Match(msgspec.Struct, frozen=True):
    """A line that has what was searched for."""

    session: str
    seq: int
    turn: int
    place: Place
    time: int  # epoch ms
    excerpt: str  # a part of the text that has the first match in it, in one line
    marks: tuple[tuple[int, int], ...]  # from where to where in the excerpt it matches
    rank: float  # how well: higher is better, to be compared within one answer
    tool: str | None = None  # of a call or a result
    cwd: str | None = None  # where the session works


class Query:
    """The terms of a search, each a sequence of words. Without any, it is found nowhere."""

    def __init__(self, text: str) -> None:
        terms = [tuple([word for word, _, _ in _words(part)]) for part in text.split()]
        self.terms: tuple[tuple[str, ...], ...] = tuple(dict.fromkeys(term for term in terms if term))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """From where to where some term matches, in order; a text has the query if `has` says so."""
        words = list(_words(text))
        return sorted({span for term in self.terms for span in _found(term, words)})

    def has(self, text: str) -> bool:
        words = list(_words(text))
        return bool(self.terms) and all(any(_found(term, words)) for term in self.terms)

    def excerpt(self, text: str) -> tuple[str, tuple[tuple[int, int], ...]]:
        """A part of a text that has the query, in one line, and where in it some term matches."""
        start, end = next(iter(self.spans(text)), (0, 0))
        first, last = _cut_before(text, start - _BEFORE), max(start - _BEFORE + _WIDTH, end)
        last = _cut_after(text, last)
        shown = _BLANKS.sub(" ", text[first:last]).strip()
        shown = f"{'…' if first > 0 else ''}{shown}{'…' if last < len(text) else ''}"
        return shown, tuple(self.spans(shown))


def indexable(text: str) -> str:
    """The same words, for an index that knows ASCII only: what is beyond counts as letters, blanks separate."""
    return text if text.isascii() and "\x1b" not in text else " ".join([word for word, _, _ in _words(text)])


def _words(text: str) -> Iterator[tuple[str, int, int]]:
    for found in _WORD.finditer(text):
        word = _folded(found[0])
        if word and word[0] != "\x1b":
            yield word, *found.span()


def _folded(word: str) -> str:
    return word.lower() if word.isascii() else _folded_beyond_ascii(word)


@lru_cache(maxsize=8192)
def _folded_beyond_ascii(word: str) -> str:
    plain = _ACCENTS.sub("", unicodedata.normalize("NFKD", word.casefold()))
    folded = unicodedata.normalize("NFKC", plain).casefold()
    return "".join([one for one in folded if one.isalnum()])


def _found(term: tuple[str, ...], words: Sequence[tuple[str, int, int]]) -> Iterator[tuple[int, int]]:
    whole, beginning, length = term[:-1], term[-1], len(term)
    for i in range(len(words) - length + 1):
        last = words[i + length - 1]
        if last[0].startswith(beginning) and all(words[i + n][0] == word for n, word in enumerate(whole)):
            yield words[i][1], last[2]


def _cut_before(text: str, at: int) -> int:
    """Where the word begins that is cut here, unless that is far."""
    if at <= 0:
        return 0
    blank = _BLANKS.search(text, at, at + 20)
    return blank.end() if blank is not None else at


def _cut_after(text: str, at: int) -> int:
    blank = _BLANKS.search(text, at, at + 20)
    return blank.start() if blank is not None else min(at, len(text))
