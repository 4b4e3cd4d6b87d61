"""Lines that somebody types or a program sends, awaited without a thread that would go on reading after a cancel.

Lives here: `Lines`, over any stream that a process may have as its input.
"""

from __future__ import annotations

import asyncio
import os
import termios
from typing import TextIO

LONGEST = 4 << 20  # bytes of one line


class LineTooLong(ValueError):
    """A line has more than `LONGEST` bytes. It was skipped."""


class Lines:
    """The lines of a stream, one at a time."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._buffered = b""
        self._skipping = False

    def forget(self) -> None:
        """On a terminal, drop what was typed before: it was no answer to what is asked now."""
        if self._stream.isatty():
            termios.tcflush(self._stream.fileno(), termios.TCIFLUSH)
            self._buffered = b""

    async def next(self) -> bytes:
        """The next line, with its ending; empty at the end of the input.

        Raises:
            LineTooLong: it is, and the one after it comes next.
        """
        while True:
            line, ending, rest = self._buffered.partition(b"\n")
            if ending:
                self._buffered = rest
                if self._skipping:
                    self._skipping = False
                    raise LineTooLong
                return line + ending
            if len(line) > LONGEST:
                self._skipping, self._buffered = True, b""
            data = await self._read()
            if not data:
                self._buffered = b""
                return b"" if self._skipping else line
            self._buffered += data

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        ready: asyncio.Future[None] = loop.create_future()
        try:
            descriptor = self._stream.fileno()
            loop.add_reader(descriptor, _set, ready)
        except (OSError, ValueError):  # a regular file, or no file at all: reading it does not wait
            return self._stream.readline().encode(errors="surrogateescape")
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
        try:
            return os.read(descriptor, 65_536)
        except OSError:  # how a terminal says that the other side has gone
            return b""


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
