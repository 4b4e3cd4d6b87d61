"""On which line each value of a JSON or TOML document stands.

Lives here: `json_lines` and `toml_lines`, for documents that have been parsed already: they find places, they do not
judge. A value is named by the keys and indexes that lead to it; a key of a table counts where it is written first.
"""

from __future__ import annotations

import json
import re
import tomllib
from bisect import bisect_right
from collections.abc import Mapping
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_JSON_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)


class _Lines:
    """Positions in a text, as lines from 1."""

    def __init__(self, text: str) -> None:
        self._ends = [found.start() for found in re.finditer("\n", text)]

    def at(self, position: int) -> int:
        return bisect_right(self._ends, position - 1) + 1


def json_lines(text: str) -> Mapping[Path, int]:
    """The line of every value of a valid JSON document; those of an object's members are the lines of their keys."""
    lines = _Lines(text)
    found: dict[Path, int] = {}
    path: list[str | int] = []  # of the value that comes next
    open_: list[bool] = []  # whether each container around is an object
    key_next = False
    for token in _JSON_TOKEN.finditer(text):
        piece = token.group()
        if piece in "]}":
            open_.pop()
            path.pop()
        elif piece == ",":
            if open_[-1]:
                key_next = True
            else:
                last = path[-1]
                assert type(last) is int
                path[-1] = last + 1
        elif piece == ":":
            key_next = False
        elif key_next:
            path[-1] = json.loads(piece)
            found.setdefault(tuple(path), lines.at(token.start()))
        else:
            found.setdefault(tuple(path), lines.at(token.start()))
            if piece in "[{":
                open_.append(piece == "{")
                path.append("" if piece == "{" else 0)
        if piece in "{[,":
            key_next = bool(open_) and open_[-1]
        elif piece in "]}":
            key_next = False
    return found


def toml_lines(text: str) -> Mapping[Path, int]:
    """The line of every key, table and array element of a valid TOML document."""
    return _Toml(text).read()


_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BLANK = re.compile(r"[ \t]*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"{1,2}(?!"))*"{3,5}'
    r"|'''(?:[^']|'{1,2}(?!'))*'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


class _Toml:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = _Lines(text)
        self._at = 0
        self._found: dict[Path, int] = {}
        self._arrays: dict[Path, int] = {}  # how many tables each array of tables has so far

    def read(self) -> Mapping[Path, int]:
        table: Path = ()
        while True:
            self._skip(_SPACE)
            if self._at >= len(self._text):
                return self._found
            if self._text.startswith("[[", self._at):
                self._at += 2
                table = self._header("]]", of_array=True)
            elif self._text[self._at] == "[":
                self._at += 1
                table = self._header("]", of_array=False)
            else:
                self._pair(table)

    def _header(self, end: str, *, of_array: bool) -> Path:
        start = self._at
        keys = self._keys()
        self._at = self._text.index(end, self._at) + len(end)
        path: Path = ()
        for position, key in enumerate(keys):
            path = (*path, key)
            self._note(path, start)
            if of_array and position == len(keys) - 1:
                self._arrays[path] = self._arrays.get(path, 0) + 1
            if path in self._arrays:
                path = (*path, self._arrays[path] - 1)
                self._note(path, start)
        return path

    def _pair(self, table: Path) -> None:
        path = table
        start = self._at
        for key in self._keys():
            path = (*path, key)
            self._note(path, start)
        self._at = self._text.index("=", self._at) + 1
        self._skip(_BLANK)
        self._value(path)

    def _keys(self) -> list[str]:
        keys = []
        while True:
            self._skip(_BLANK)
            string = _STRING.match(self._text, self._at)
            if string is not None:
                keys.append(tomllib.loads(f"k = {string.group()}")["k"])
                self._at = string.end()
            else:
                bare = _BARE.match(self._text, self._at)
                assert bare is not None
                keys.append(bare.group())
                self._at = bare.end()
            self._skip(_BLANK)
            if self._text[self._at : self._at + 1] != ".":
                return keys
            self._at += 1

    def _value(self, path: Path) -> None:
        self._note(path, self._at)
        first = self._text[self._at]
        if first == "[":
            self._items(path)
        elif first == "{":
            self._inline(path)
        else:
            found = _STRING.match(self._text, self._at) or _SCALAR.match(self._text, self._at)
            assert found is not None
            self._at = found.end()

    def _items(self, path: Path) -> None:
        self._at += 1
        index = 0
        while True:
            self._skip(_SPACE)
            c = self._text[self._at]
            if c == "]":
                self._at += 1
                return
            if c == ",":
                self._at += 1
            else:
                self._value((*path, index))
                index += 1

    def _inline(self, path: Path) -> None:
        self._at += 1
        while True:
            self._skip(_SPACE)
            c = self._text[self._at]
            if c == "}":
                self._at += 1
                return
            if c == ",":
                self._at += 1
            else:
                self._pair(path)

    def _skip(self, what: re.Pattern[str]) -> None:
        found = what.match(self._text, self._at)
        assert found is not None
        self._at = found.end()

    def _note(self, path: Path, position: int) -> None:
        self._found.setdefault(path, self._lines.at(position))
