"""Reading words as bash would: quotes, expansions, patterns, and the commands nested in them.

Lives here: `WordReader`, which knows words and leaves commands to its subclass, and `Pieces`, a word while it is read.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

from interlock.policy.shell.analysis import Piece, Word
from interlock.policy.shell.braces import expanded
from interlock.policy.shell.syntax import Sequence, Token, Unreadable

DEPTH = 40  # of nesting; bash has no bound, people have

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+^=\-\u0080-\U0010ffff]+")
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9]|[@*#?$!-]")
_BRACED = re.compile(r"[!#]?(?:[A-Za-z_][A-Za-z0-9_]*|[0-9]+|[@*#?$!-])")
META = " \t\n;&|<>()"
ENDS_WORD = frozenset(META)
_ANSI = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))


class Pieces:
    """A word while it is read."""

    def __init__(self) -> None:
        self.pieces: list[Piece] = []
        self.inside: list[Sequence] = []
        self.variables: list[str] = []
        self.quoted = False
        self.braces = False

    def add(self, text: str, *, glob: bool = False) -> None:
        if text:
            self.pieces.append(Piece(text, glob=glob))

    def unknown(self, source: str, *, splits: bool) -> None:
        self.pieces.append(Piece(source, known=False, splits=splits))

    def token(self, source: str, start: int, end: int) -> Token:
        pieces = tuple(_merged(_bracketed(self.pieces)))
        text = "".join(piece.text for piece in pieces)
        word = Word(text, source[start:end], (start, end), pieces, self.quoted)
        return Token(word, tuple(self.inside), tuple(self.variables))


def _bracketed(pieces: list[Piece]) -> list[Piece]:
    """A bracket without the other one is no pattern."""
    marks = [piece.text for piece in pieces if piece.glob]
    if "[" in marks and "]" in marks[marks.index("[") :]:
        return pieces
    return [Piece(piece.text) if piece.glob and piece.text in "[]" else piece for piece in pieces]


def _merged(pieces: list[Piece]) -> Iterator[Piece]:
    text = ""
    for piece in pieces:
        if piece.known and not piece.glob:
            text += piece.text
            continue
        if text:
            yield Piece(text)
            text = ""
        yield piece
    if text:
        yield Piece(text)


class WordReader(ABC):
    """A position in a source, and how words go on from there."""

    def __init__(self, source: str, at: int = 0, end: int | None = None, depth: int = 0) -> None:
        self.source = source
        self.at = at
        self.end = len(source) if end is None else end
        self.depth = depth
        self.waiting: list[tuple[str, bool, bool, Callable[[Token], None]]] = []  # here-documents

    @abstractmethod
    def commands(self, start: int, end: int) -> tuple[Sequence, int]:
        """The commands in a stretch of the source, up to its end or a closing parenthesis, and where they end."""

    def peek(self, text: str) -> bool:
        return self.source.startswith(text, self.at, self.end)

    @property
    def char(self) -> str:
        return self.source[self.at] if self.at < self.end else ""

    def refuse(self, reason: str) -> Unreadable:
        return Unreadable(reason, self.at)

    def expect(self, text: str) -> None:
        if not self.peek(text):
            raise self.refuse(f"{text!r} is missing")
        self.at += len(text)

    def deeper(self) -> int:
        if self.depth >= DEPTH:
            raise self.refuse("it is nested too deeply")
        return self.depth + 1

    # Words

    def substitutes(self) -> bool:
        return self.peek("<(") or self.peek(">(")

    def words(self) -> list[Token]:
        """One word, or what a brace expansion makes of it."""
        token = self.token()
        return expanded(token, self.source) if "{" in token.word.source else [token]

    def token(self, *, test: bool = False, value: bool = False) -> Token:
        start = self.at
        pieces = Pieces()
        if self.char == "~":
            self.tilde(pieces)
        if self.substitutes():
            self.process(pieces)
        while self.at < self.end:
            char = self.source[self.at]
            if char in ENDS_WORD:
                if test and char in "()|<>" and self.at > start and not self.peek("||"):
                    pieces.add(char)
                    self.at += 1
                    continue
                if self.substitutes() or (char == "(" and self.at > start and not value):
                    if char == "(" and not test:
                        break
                    raise self.refuse("a form inside a word is not followed")
                break
            self.step(pieces, value=value)
        if self.at == start:
            raise self.refuse("a word is missing")
        if self.char in "<>" and self.char and self.source[start] == "{" and self.source[self.at - 1] == "}":
            raise self.refuse("a descriptor in a variable is not followed")
        return pieces.token(self.source, start, self.at)

    def step(self, pieces: Pieces, *, value: bool = False) -> None:
        """One stretch of a word, outside double quotes."""
        if plain := _PLAIN.match(self.source, self.at, self.end):
            pieces.add(plain[0])
            self.at = plain.end()
            if value and self.char == "~" and self.source[self.at - 1] == ":":
                self.tilde(pieces)
            return
        char = self.source[self.at]
        match char:
            case "\\":
                self.escape(pieces)
            case "'":
                close = self.source.find("'", self.at + 1, self.end)
                if close < 0:
                    raise self.refuse("a quote is not closed")
                pieces.quoted = True
                pieces.add(self.source[self.at + 1 : close])
                self.at = close + 1
            case '"':
                self.double(pieces)
            case "$":
                self.dollar(pieces, quoted=False)
            case "`":
                self.backticks(pieces, quoted=False)
            case "*" | "?" | "[" | "]":
                pieces.add(char, glob=not value)
                self.at += 1
            case _:
                pieces.add(char)
                self.at += 1

    def escape(self, pieces: Pieces) -> None:
        following = self.source[self.at + 1 : self.at + 2]
        if not following or self.at + 1 >= self.end:
            raise self.refuse("it ends in a backslash")
        if following == "\n":
            after = self.source[self.at + 2 : self.at + 3]
            if after and after not in META:
                raise self.refuse("a line is broken inside a word")
            self.at += 2
            return
        pieces.quoted = True
        pieces.add(following)
        self.at += 2

    def tilde(self, pieces: Pieces) -> None:
        """`~` and `~/` stay as they are; another user's home is not known."""
        end = self.at + 1
        while end < self.end and self.source[end] not in ENDS_WORD and self.source[end] not in "/:":
            end += 1
        prefix = self.source[self.at : end]
        if prefix == "~":
            pieces.add("~")
        elif re.fullmatch(r"~[A-Za-z0-9_.+-]+", prefix):
            pieces.unknown(prefix, splits=False)
        else:
            raise self.refuse("a tilde is not followed")
        self.at = end

    def double(self, pieces: Pieces) -> None:
        self.at += 1
        pieces.quoted = True
        while True:
            char = self.char
            if not char:
                raise self.refuse("a quote is not closed")
            if char == '"':
                self.at += 1
                return
            self.inner(pieces, escapes='$`"\\')

    def quoted_text(self, *, heredoc: bool) -> Token:
        """The body of a here-document: as in double quotes, but these mean nothing in it."""
        start = self.at
        pieces = Pieces()
        pieces.quoted = True
        while self.at < self.end:
            self.inner(pieces, escapes="$`\\", heredoc=heredoc)
        return pieces.token(self.source, start, self.end)

    def inner(self, pieces: Pieces, *, escapes: str, heredoc: bool = False) -> None:
        """One stretch inside double quotes."""
        char = self.char
        if char == "\\":
            following = self.source[self.at + 1 : self.at + 2]
            if following == "\n":
                self.at += 2
            elif following and following in escapes:
                pieces.add(following)
                self.at += 2
            else:
                pieces.add("\\")
                self.at += 1
        elif char == "$":
            self.dollar(pieces, quoted=True, heredoc=heredoc)
        elif char == "`":
            self.backticks(pieces, quoted=True)
        else:
            end = self.at + 1
            while end < self.end and self.source[end] not in '\\$`"':
                end += 1
            pieces.add(self.source[self.at : end])
            self.at = end

    # Expansions

    def dollar(self, pieces: Pieces, *, quoted: bool, heredoc: bool = False) -> None:
        start = self.at
        following = self.source[self.at + 1 : self.at + 2] if self.at + 1 < self.end else ""
        if following == "(":
            if self.peek("$(("):
                self.at += 3
                pieces.inside.extend(self.arithmetic("))"))
            else:
                self.at += 2
                pieces.inside.append(self.nested())
        elif following == "{":
            self.at += 2
            self.parameter(pieces, quoted=quoted)
        elif following == "[":
            raise self.refuse("`$[` is not followed")
        elif following == "'" and not quoted:
            self.ansi(pieces)
            return
        elif following == '"' and not quoted:
            self.at += 1
            self.double(pieces)
            return
        elif found := _PARAMETER.match(self.source, self.at + 1, self.end):
            pieces.variables.append(found[0])
            self.at = found.end()
            if self.char == "[" and not quoted:
                raise self.refuse("a bracket after a variable is not followed")
        else:
            pieces.add("$")
            self.at += 1
            return
        pieces.unknown(
            self.source[start : self.at], splits=not quoted or self.source[start : start + 2] == "$@"
        )

    def nested(self) -> Sequence:
        """The commands up to `)`; the opening is read already."""
        found, at = self.commands(self.at, self.end)
        if self.waiting and "\n" in self.source[self.at : at]:
            raise self.refuse("a here-document begins before a line ends inside a word")
        self.at = at
        self.expect(")")
        return found

    def process(self, pieces: Pieces) -> None:
        start = self.at
        self.at += 2
        pieces.inside.append(self.nested())
        pieces.unknown(self.source[start : self.at], splits=False)

    def backticks(self, pieces: Pieces, *, quoted: bool) -> None:
        close = self.source.find("`", self.at + 1, self.end)
        if close < 0:
            raise self.refuse("a backtick is not closed")
        start = self.at
        if "\\" in self.source[start:close]:
            raise self.refuse("an escape inside backticks is not followed")
        found, at = self.commands(start + 1, close)
        if at < close:
            raise Unreadable(f"{self.source[at]!r} is not expected here", at)
        pieces.inside.append(found)
        self.at = close + 1
        pieces.unknown(self.source[start : self.at], splits=not quoted)

    def parameter(self, pieces: Pieces, *, quoted: bool) -> None:
        """After `${`, past `}`."""
        name = _BRACED.match(self.source, self.at, self.end)
        if not name:
            raise self.refuse("an expansion is not followed")
        pieces.variables.append(name[0].lstrip("!#") or name[0])
        self.at = name.end()
        if self.char not in "}:-=?+#%/^,@[*" or not self.char:
            raise self.refuse("an expansion is not followed")
        if self.char == "@" and self.source[self.at + 1 : self.at + 2] not in "QUuLEAKak*":
            raise self.refuse("an expansion that expands its value again is not followed")
        scratch = Pieces()
        depth, self.depth = self.depth, self.deeper()
        while self.char != "}":
            char = self.char
            if not char:
                raise self.refuse("an expansion is not closed")
            if char == "$":
                self.dollar(scratch, quoted=quoted)
            elif char == "`":
                self.backticks(scratch, quoted=quoted)
            elif char == '"' and not quoted:
                self.double(scratch)
            elif char == "'" and not quoted:
                self.step(scratch)
            elif char in "'\"{<>" or (char == "\\" and self.source[self.at + 1 : self.at + 2] == "\n"):
                raise self.refuse("quotes in an expansion are not followed")
            elif char == "\\":
                self.at += 2
            else:
                self.at += 1
        self.depth = depth
        self.at += 1
        pieces.inside.extend(scratch.inside)
        pieces.variables.extend(scratch.variables)

    def arithmetic(self, close: str) -> tuple[Sequence, ...]:
        """What is nested in an arithmetic expression; past `))`."""
        pieces = Pieces()
        parens = 0
        while True:
            char = self.char
            if not char:
                raise self.refuse("an arithmetic expression is not closed")
            if char == ")" and parens == 0:
                self.expect(close)
                return tuple(pieces.inside)
            if char == "$":
                self.dollar(pieces, quoted=True)
                continue
            if char == "`":
                self.backticks(pieces, quoted=True)
                continue
            if char in "'\"\\{}":
                raise self.refuse("quotes in an arithmetic expression are not followed")
            parens += (char == "(") - (char == ")")
            self.at += 1

    def ansi(self, pieces: Pieces) -> None:
        r"""`$'…'`, its escapes resolved."""
        self.at += 2
        pieces.quoted = True
        text = bytearray()
        while True:
            char = self.char
            if not char:
                raise self.refuse("a quote is not closed")
            self.at += 1
            if char == "'":
                break
            if char != "\\":
                text += char.encode("utf-8", "surrogatepass")
                continue
            escape = self.char
            if escape in _ANSI and escape:
                self.at += 1
                text += _ANSI[escape].encode()
            elif escape and escape in "\\'\"?":
                self.at += 1
                text += escape.encode()
            elif found := re.compile(r"([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|[uU]([0-9A-Fa-f]{1,4})").match(
                self.source, self.at, self.end
            ):
                long = self.source[self.at] == "U"
                if long:
                    found = re.compile(r"()()U([0-9A-Fa-f]{1,8})").match(self.source, self.at, self.end)
                    assert found is not None
                self.at = found.end()
                code = int(found[1], 8) & 0xFF if found[1] else int(found[2] or found[3], 16)
                if code == 0 or code > 0x10FFFF:
                    raise self.refuse("a character that ends a string")
                text += bytes([code]) if not found[3] else chr(code).encode("utf-8", "surrogatepass")
            else:
                raise self.refuse("an escape is not followed")
        try:
            pieces.add(text.decode())
        except UnicodeDecodeError:
            raise self.refuse("an escape makes no text") from None
