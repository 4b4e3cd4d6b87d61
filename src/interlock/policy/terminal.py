"""Asking at the terminal: a plain question, a plain answer.

Lives here: `TerminalApprover`, the `question` it prints, and `printable`, which makes foreign text safe to print. It
shows the call as it would run, and takes only a clear yes for a yes, typed after the question was on the screen.
"""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from collections.abc import Callable
from typing import TextIO
from unicodedata import category

import msgspec

from interlock.policy.approval import ApprovalRequest, Approved, Rejected

_SHOWN = 2_000  # characters of one argument


class TerminalApprover:
    """Asks on a terminal, one question at a time. An end of the input is a no."""

    how = "tty"
    channel = "terminal"

    def __init__(
        self,
        *,
        reading: TextIO | None = None,
        writing: TextIO | None = None,
        around: Callable[[bool], None] | None = None,
    ) -> None:
        """
        Args:
            reading, writing: streams; the process's own by default, the question on stderr.
            around: called with True before a question is shown and with False after the answer, so that a live
                display can step aside.
        """
        self._writing = writing or sys.stderr
        self._lines = _Lines(reading or sys.stdin)
        self._around = around
        self._turn = asyncio.Lock()

    async def __call__(self, request: ApprovalRequest, /) -> Approved | Rejected:
        async with self._turn:
            if self._around is not None:
                self._around(True)
            line = ""
            try:
                self._lines.forget()
                print(question(request), end="", file=self._writing, flush=True)
                line = await self._lines.next()
            finally:
                if not line.endswith("\n"):  # nobody pressed Enter
                    print(file=self._writing, flush=True)
                if self._around is not None:
                    self._around(False)
        if line == "":
            return Rejected("nobody answered at the terminal")
        said = line.strip()
        if said.lower() in ("y", "yes"):
            return Approved()
        if said.lower() in ("n", "no", ""):
            return Rejected()
        return Rejected(said)


def question(request: ApprovalRequest) -> str:
    """The question as it is printed, the effective arguments included."""
    lines = [f"\n{request.call.name} wants to run: {printable(request.question)}"]
    for name, value in request.arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) > _SHOWN:
            text = f"{text[:_SHOWN]}… ({len(text):,} characters)"
        shown = text.replace("\n", "\n      ")
        lines.append(f"  {name}: {printable(shown)}")
    lines.append("Allow it once? [y/N, or say what to do instead] ")
    return "\n".join(lines)


def printable(text: str) -> str:
    """The text with everything escaped that could move the cursor, hide a part of it, or reorder it."""
    if text.isprintable():
        return text
    return "".join(
        [c if c.isprintable() or c in "\n\t" or category(c) == "Zs" else _escaped(c) for c in text]
    )


def _escaped(c: str) -> str:
    return f"\\x{ord(c):02x}" if ord(c) < 0x100 else f"\\u{ord(c):04x}"


class _Lines:
    """Lines of a stream, awaited without a thread that would go on reading after a cancel."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._buffered = b""

    def forget(self) -> None:
        """On a terminal, drop what was typed before: it was no answer to what is asked now."""
        if self._stream.isatty():
            termios.tcflush(self._stream.fileno(), termios.TCIFLUSH)
            self._buffered = b""

    async def next(self) -> str:
        """The next line, with its ending; empty at the end of the input."""
        loop = asyncio.get_running_loop()
        while b"\n" not in self._buffered:
            ready: asyncio.Future[None] = loop.create_future()
            try:
                descriptor = self._stream.fileno()
                loop.add_reader(descriptor, _set, ready)
            except (OSError, ValueError):  # a regular file, or no file at all: reading it does not wait
                return self._stream.readline()
            try:
                await ready
            finally:
                loop.remove_reader(descriptor)
            data = os.read(descriptor, 4096)
            if not data:
                break
            self._buffered += data
        line, ending, self._buffered = self._buffered.partition(b"\n")
        return (line + ending).decode(errors="replace")


def _set(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
