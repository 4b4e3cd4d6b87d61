"""Files as bounded lines of text.

Lives here: `open_file`, which opens only regular files, `is_binary`, `text_lines`, and `Report`, a result that cannot
grow beyond its bound.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from interlock.errors import ToolError
from interlock.toolkit.place import folder, shown

RESULT = 64 * 1024  # characters of one result, its closing note left out
_CHUNK = 64 * 1024


class Line(NamedTuple):
    text: str  # without its ending; bytes that are not UTF-8 are U+FFFD
    cut: bool  # the line is longer than that


def open_file(root: Path, parts: Sequence[str]) -> BufferedReader:
    """The regular file that `parts` lead to from `root`, for reading. It ends up outside in no case.

    Raises:
        ToolError: a pipe, a socket or a device.
        OSError: what the system said; for a folder IsADirectoryError.
    """
    if not parts:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    with folder(root, parts[:-1]) as parent:
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(parts[-1], flags, dir_fd=parent)
    try:
        require_regular(os.fstat(descriptor), shown(parts))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def require_regular(status: os.stat_result, name: str) -> None:
    """
    Raises:
        ToolError: a pipe, a socket or a device.
        IsADirectoryError: a folder.
    """
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise ToolError(f"{name} is not a regular file but a pipe, a socket or a device")


def is_binary(beginning: bytes) -> bool:
    """Whether the first block of a file has a NUL, as git asks; so has text in UTF-16."""
    return b"\0" in beginning


def text_lines(file: BufferedReader, longest: int) -> Iterator[Line]:
    """The lines of a file, each cut at `longest` bytes: no line, however long, is held as a whole."""
    while raw := file.readline(longest + 2):  # room for the ending
        body = raw.removesuffix(b"\n").removesuffix(b"\r")
        if len(body) <= longest:
            yield Line(body.decode(errors="replace"), False)
            continue
        while raw and not raw.endswith(b"\n"):
            raw = file.readline(_CHUNK)
        yield Line(decode_cut(body[:longest]), True)


def decode_cut(data: bytes) -> str:
    """Text that was cut after `data`: a character that the cut split is left out."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(data)


class Report:
    """The lines of a result, as many as fit."""

    __slots__ = ("_left", "lines")

    def __init__(self, bound: int = RESULT) -> None:
        self.lines: list[str] = []
        self._left = bound

    def add(self, line: str) -> bool:
        """False when it does not fit any more; then nothing is added."""
        if len(line) + 1 > self._left:
            return False
        self._left -= len(line) + 1
        self.lines.append(line)
        return True

    def text(self, note: str | None = None) -> str:
        """The lines, and a note in brackets, which says what they leave out."""
        return "\n".join([*self.lines, f"[{note}]"] if note else self.lines)
