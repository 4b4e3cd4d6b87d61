"""What takes secrets out of text.

Lives here: `Redactor`, for whole texts and values, and `Stream`, for text that comes in pieces. Both are one algorithm,
so cutting a text in pieces changes nothing of what is found: where a known start or a declared value begins, the text
is compared; in a stream, what may still become a secret is held back until more has come, and nothing else is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from interlock.errors import ConfigError
from interlock.log.redaction.shapes import KEEPS, SHAPES, Patterns, Shape, patterns_of
from interlock.log.redaction.spelling import SHORTEST, spellings
from interlock.log.redaction.strings import with_strings

T = TypeVar("T")

_KIND = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_OPENS = "[redacted:"
_HEAD = SHORTEST  # characters of a value or a start that are searched for
_BEFORE = 6  # characters before a start that say whether a word begins there
_SECRET_NAME = re.compile(
    r"(?:_|^)(?:API_?KEY|KEY|TOKEN|SECRET|CREDENTIALS?)$|PASSWORD|PASSWD|PASSPHRASE", re.I
)
_NO_SECRET_NAME = re.compile(
    r"(?:_DIR|_FILE|_PATH|_PROMPT|_URL|_HOST)$|^(?:SSH_AUTH_SOCK|SSH_ASKPASS)$", re.I
)
_SHORTEST_OF_ENVIRONMENT = 8


class Redactor:
    """Puts `[redacted:KIND]` in the place of secrets.

    Args:
        secrets: Values that are secret, by kind (one value or several), or without one. They are found as they are, in
            JSON, in URLs and in base64.
        shapes: What keys look like; `SHAPES` are the known ones.

    Raises:
        ConfigError: A value is too short to be told from ordinary text, or a kind is no name.
    """

    def __init__(
        self,
        secrets: Mapping[str, str | Iterable[str]] | Iterable[str] = (),
        *,
        shapes: Sequence[Shape] = SHAPES,
    ) -> None:
        if isinstance(secrets, str):
            raise ConfigError("secrets are a mapping by kind, or several values; put a single one in a list")
        self._shapes = tuple(shapes)
        self._patterns = patterns_of(self._shapes)
        self._marks: dict[str, str] = {}  # by what is replaced
        self._known: _Known | None = None
        by_kind = secrets if isinstance(secrets, Mapping) else {"secret": secrets}
        for kind in dict.fromkeys(shape.kind for shape in self._shapes):
            self._declare(kind)
        for kind, values in by_kind.items():
            for value in (values,) if isinstance(values, str) else values:
                self.add(kind, value)

    @classmethod
    def of_environment(cls, environ: Mapping[str, str], *, shapes: Sequence[Shape] = SHAPES) -> Redactor:
        """The known shapes, and the values of variables whose names say that they are secret: `*_KEY`, `*_TOKEN`,
        `*_SECRET`, `*PASSWORD*`. The name is the kind. Values under 8 characters are left out."""
        return cls(
            {
                name: value
                for name, value in environ.items()
                if _SECRET_NAME.search(name)
                and not _NO_SECRET_NAME.search(name)
                and len(value.strip()) >= _SHORTEST_OF_ENVIRONMENT
                and _KIND.fullmatch(name)
                and _OPENS not in value
            },
            shapes=shapes,
        )

    def add(self, kind: str, value: str) -> None:
        """Declare one more secret, from now on; what is in a log already stays.

        Raises:
            ConfigError: it has fewer than 6 characters, or the kind is no name.
        """
        self._declare(kind)
        value = _without_opening(value.strip())
        if len(value) < SHORTEST or _OPENS in value:
            raise ConfigError(
                f"the secret of kind {kind!r} cannot be told from ordinary text: it needs {SHORTEST} characters "
                f"or more, and no {_OPENS!r} in it"
            )
        for spelled in spellings(value):
            spelled = _without_opening(spelled)
            if len(spelled) >= SHORTEST:
                self._marks.setdefault(spelled, f"{_OPENS}{kind}]")
        self._known = None

    def _declare(self, kind: str) -> None:
        if not _KIND.fullmatch(kind):
            raise ConfigError(f"the kind of a secret is a name of letters, digits, _ . and -, not {kind!r}")
        mark = f"{_OPENS}{kind}]"
        self._marks[mark] = mark  # what was taken out already is left as it is
        self._known = None

    def text(self, text: str) -> str:
        """The text without its secrets."""
        if len(text) < SHORTEST:  # no shape and no value is that short
            return text
        known = self._known or self.known()
        made, _ = known.scan(text, 0, 0, ends=True)
        return made

    def value(self, value: T) -> T:
        """The value, a fact or any other, without the secrets in its strings; the same object if it has none."""
        return with_strings(value, self.text)

    def stream(self) -> Stream:
        """For text that comes in pieces."""
        return Stream(self)

    def marked(self, value: object) -> str | None:
        """A mark that stands somewhere in the value, in the place of a secret."""
        marks = [mark for spelled, mark in self._marks.items() if spelled == mark]
        found: list[str] = []

        def look(text: str) -> str:
            if _OPENS in text:
                found.extend(mark for mark in marks if mark in text)
            return text

        with_strings(value, look)
        return found[0] if found else None

    def known(self) -> _Known:
        """What is looked for by now."""
        if self._known is None:
            self._known = _Known.of(self._patterns, self._marks)
        return self._known


class Stream:
    """One text, as it comes: what `feed` and `end` give is, put together, what `Redactor.text` makes of the whole."""

    __slots__ = ("_at", "_floor", "_redactor", "_text")

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._text = ""  # a few characters that were given on, and what is held back
        self._at = 0  # where the latter begins
        self._floor = 0  # what stands before here counts for nothing: the text begins, or a secret has ended

    @property
    def holds(self) -> bool:
        return self._at < len(self._text)

    def feed(self, text: str) -> str:
        """One more piece; what can be given on by now."""
        return self._scan(self._text + text, ends=False)

    def end(self) -> str:
        """What was held back, now that nothing more comes."""
        return self._scan(self._text, ends=True)

    def _scan(self, text: str, *, ends: bool) -> str:
        known = self._redactor.known()
        made, (at, floor) = known.scan(text, self._at, self._floor, ends=ends)
        cut = max(0, at - _BEFORE)
        if len(text) - at > known.longest:  # a key of a shape, without an end: its middle says nothing
            text = f"{text[: at + KEEPS]}A{text[-64:]}"
        self._text, self._at = text[cut:], at - cut
        self._floor = floor - cut if floor >= cut else -1
        return made


@dataclass(frozen=True, slots=True)
class _Known:
    """All that is looked for, made ready."""

    patterns: Patterns
    marks: Mapping[str, str]
    heads: Mapping[str, Sequence[str]]  # values by their first characters, the longest first
    begun: frozenset[str]  # what a head or a start begins with
    starts: re.Pattern[str]
    longest: int  # characters that are ever held back, but for a few

    @classmethod
    def of(cls, patterns: Patterns, marks: Mapping[str, str]) -> _Known:
        heads: dict[str, list[str]] = {}
        for value in sorted(marks, key=len, reverse=True):
            heads.setdefault(value[:_HEAD], []).append(value)
        starts = {*heads, *(start[:_HEAD] for start in patterns.starts)}
        begun = frozenset(start[:n] for start in starts for n in range(1, len(start)))
        longest = 2 * KEEPS + max(map(len, marks), default=0)
        return cls(patterns, marks, heads, begun, re.compile(_trie(starts) if starts else r"(?!)"), longest)

    def scan(self, text: str, at: int, floor: int, *, ends: bool) -> tuple[str, tuple[int, int]]:
        """Go over the text from `at` on.

        Args:
            floor: Where the text begins that says whether a word starts.
            ends: Nothing more comes; else what may become a secret is left.

        Returns:
            What was made of it, and how far: the new `at` and `floor`.
        """
        search, size = self.starts.search, len(text)
        pieces: list[str] = []
        look = at
        stop = size
        while True:
            found = search(text, look)
            if found is None:
                break
            start = found.start()
            end, piece, open_end = self._secret(text, start, start == floor)
            if not ends and ((open_end and end == size) or self._grows(text, start, start == floor)):
                stop = start
                break
            if piece is None:
                look = start + 1
                continue
            pieces += (text[at:start], piece)
            look = at = floor = end
        if not ends and stop == size:
            for start in range(max(look, size - _HEAD + 1), size):  # the beginning of a beginning
                if text[start:] in self.begun and self._grows(text, start, start == floor):
                    stop = start
                    break
        if not pieces and at == 0 and stop == size:
            return text, (stop, floor)
        pieces.append(text[at:stop])
        return "".join(pieces), (stop, floor)

    def _secret(self, text: str, start: int, bare: bool) -> tuple[int, str | None, bool]:
        """Where the secret that begins here ends, what is put in its place, and whether more text could make it
        longer. None in its place: none begins here."""
        for value in self.heads.get(text[start : start + _HEAD], ()):
            if text.startswith(value, start):
                return start + len(value), self.marks[value], False
        pattern = self.patterns.bare if bare else self.patterns.whole
        match = pattern.match(text, start)
        if match is None:
            return start, None, False
        name = match.lastgroup
        assert name is not None
        secret, after = match.span(name)
        mark = f"{_OPENS}{self.patterns.kinds[name]}]"
        return match.end(), f"{text[start:secret]}{mark}{text[after : match.end()]}", True

    def _grows(self, text: str, start: int, bare: bool) -> bool:
        """Whether the text ends within what may become a secret, or a longer one."""
        rest = text[start : start + _HEAD]
        if len(rest) < _HEAD:
            if any(head.startswith(rest) for head in self.heads):
                return True
        elif any(
            len(value) > len(text) - start and value.startswith(text[start:])
            for value in self.heads.get(rest, ())
        ):
            return True
        pattern = self.patterns.bare_begun if bare else self.patterns.begun
        return pattern.match(text, start) is not None


def _trie(texts: Iterable[str]) -> str:
    """A pattern of these texts by their beginnings, so that a search leaves most places after one character."""
    tree: dict[str, list[str]] = {}
    for text in texts:
        tree.setdefault(text[0], []).append(text[1:])
    branches = [
        re.escape(first) + ("" if "" in rests else _trie(rests)) for first, rests in sorted(tree.items())
    ]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})"


def _without_opening(value: str) -> str:
    """Without the beginning of a mark at its end, which the mark of another secret could complete."""
    for n in range(len(_OPENS) - 1, 0, -1):
        if value.endswith(_OPENS[:n]):
            return value[:-n]
    return value
