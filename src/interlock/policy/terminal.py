"""Asking at the terminal: a plain question, a plain answer.

Lives here: `TerminalApprover`. It shows the call as it would run, and takes only a clear yes for a yes.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from typing import TextIO

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
        self._reading = reading or sys.stdin
        self._writing = writing or sys.stderr
        self._around = around
        self._turn = asyncio.Lock()

    async def __call__(self, request: ApprovalRequest, /) -> Approved | Rejected:
        async with self._turn:
            if self._around is not None:
                self._around(True)
            try:
                print(question(request), end="", file=self._writing, flush=True)
                line = await _line(self._reading)
            finally:
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
    lines = [f"\n{request.call.name} wants to run: {request.question}"]
    for name, value in request.arguments.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) > _SHOWN:
            text = f"{text[:_SHOWN]}… ({len(text):,} characters)"
        shown = text.replace("\n", "\n      ")
        lines.append(f"  {name}: {_printable(shown)}")
    lines.append("Allow it once? [y/N, or say what to do instead] ")
    return "\n".join(lines)


def _printable(text: str) -> str:
    # What is shown is what runs: an argument must not move the cursor or hide a part of itself.
    return "".join(c if c.isprintable() or c == "\n" else f"\\x{ord(c):02x}" for c in text)


async def _line(stream: TextIO) -> str:
    """One line, without a thread that would go on reading after a cancel; empty at the end of the input."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    try:
        loop.add_reader(stream.fileno(), lambda: None if ready.done() else ready.set_result(None))
    except (OSError, ValueError):  # a regular file, or no file at all: it does not block
        return stream.readline()
    try:
        await ready
        return stream.readline()
    finally:
        loop.remove_reader(stream.fileno())
