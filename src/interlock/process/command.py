"""What is known of a command that was started, and of one that has ended.

Lives here: `Finished`, `Watch`, which hears of a process from the event loop, and `ended`, which waits for the end of
one that leads a group of its own, or brings it about.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from signal import Signals
from typing import Literal

from interlock.process import group

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


async def ended(
    transport: asyncio.SubprocessTransport,
    watch: Watch,
    stop: asyncio.Future[None],
    *,
    timeout: float | None,
    grace: float,
    linger: float,
    drain: float,
) -> tuple[How, Signals | None]:
    """Wait until it exits, until `stop` is set or its time is up, and end what is left of its group: how it ended, and
    the last signal that was needed. Then it is collected, and its pipes and the transport are closed.

    Args:
        timeout, grace: Seconds, the second between SIGTERM and SIGKILL.
        linger: Seconds for what ends by itself right after it.
        drain: Seconds for pipes that somebody outside the group still holds.
    """
    leader = transport.get_pid()  # the first process of a session leads its group
    how: How
    try:
        await asyncio.wait([watch.exited, stop], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if watch.exited.done():
            how = "exited"
            await group.gone(leader, within=linger)
        else:
            how = "stopped" if stop.done() else "timed-out"
        needed = await group.end(leader, grace=grace)
        await watch.exited
        group.reap(leader)
        await asyncio.wait([watch.drained], timeout=drain)
    except BaseException:  # the event loop itself is being closed: no time for grace
        await group.end(leader, grace=0)
        await watch.exited
        raise
    finally:
        transport.close()
        await watch.closed
    return how, needed


def status_of(transport: asyncio.SubprocessTransport) -> tuple[int | None, int | None]:
    """Of a process that was collected: its exit code, or the number of the signal that killed it."""
    status = transport.get_returncode()
    assert status is not None
    return (status, None) if status >= 0 else (None, -status)


def tell(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
