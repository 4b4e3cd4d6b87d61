"""What is known of a command that was started, and of one that has ended.

Lives here: `Finished`, and `Watch`, which hears of a process from the event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from signal import Signals
from typing import Literal

How = Literal["exited", "timed-out", "stopped"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a command ended, and what it printed.

    how: it exited, its time was up, or it was stopped (by the signal; before it started, if nothing else is set).
    """

    how: How
    code: int | None = None  # exit code; None when a signal killed it, or it never started
    killed_by: int | None = None  # the number of the signal that killed the shell
    needed: Signals | None = (
        None  # the last signal sent to end the group; after an exit: what it left running
    )
    output: str = ""
    total: int = 0  # bytes printed
    omitted: int = 0  # bytes of them that `output` leaves out, in the middle
    exceeded: str | None = None  # the limit of its sandbox for which it was ended
    undone: tuple[str, ...] = ()  # protected paths that it had changed, and that are as before

    @property
    def truncated(self) -> bool:
        return self.omitted > 0


class Watch(asyncio.SubprocessProtocol):
    """Collects what a process writes; tells the end of the process, of its pipes and of the transport, which come apart."""

    def __init__(self, *pipes: Callable[[bytes], None]) -> None:
        """pipes: what is given the bytes of standard output, and those of standard error if that is apart."""
        loop = asyncio.get_running_loop()
        self._pipes = dict(enumerate(pipes, 1))
        self._open = set(self._pipes)
        self.exited: asyncio.Future[None] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._pipes[fd](data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            tell(self.drained)

    def process_exited(self) -> None:
        tell(self.exited)

    def connection_lost(self, exc: Exception | None) -> None:
        tell(self.closed)


def tell(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
