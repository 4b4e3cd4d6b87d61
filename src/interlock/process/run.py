"""Running one shell command to its end, and everything it started with it.

Lives here: `run` and `Finished`. The command is the first process of a session of its own, without a terminal, with
nothing to read; what it prints on both streams comes in order of arrival. When `run` returns or raises, the command
is collected, its group is gone and its pipe is closed.
"""

from __future__ import annotations

import asyncio
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Literal

from interlock.intercept.signal import Signal
from interlock.intercept.uncut import uncut
from interlock.process import group
from interlock.process.output import BoundedOutput

GRACE = 2.0  # seconds between SIGTERM and SIGKILL
LIMIT = 30_000  # bytes of output that are kept
_LINGER = 0.5  # seconds for what ends by itself right after its shell, such as `> >(tee log)`
_DRAIN = 0.5  # seconds for the pipe when somebody outside the group still holds it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """How a command ended, and what it printed.

    how: it exited, its time was up, or it was stopped (by the signal; before it started, if nothing else is set).
    """

    how: Literal["exited", "timed-out", "stopped"]
    code: int | None = None  # exit code; None when a signal killed it, or it never started
    killed_by: int | None = None  # the number of the signal that killed the shell
    needed: Signals | None = (
        None  # the last signal sent to end the group; after an exit: what it left running
    )
    output: str = ""
    total: int = 0  # bytes printed
    omitted: int = 0  # bytes of them that `output` leaves out, in the middle

    @property
    def truncated(self) -> bool:
        return self.omitted > 0


class _Watch(asyncio.SubprocessProtocol):
    """Collects the output; tells the end of the process, of its pipe and of the transport, which come apart."""

    def __init__(self, output: BoundedOutput) -> None:
        loop = asyncio.get_running_loop()
        self.output = output
        self.exited: asyncio.Future[None] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.output.add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        _tell(self.drained)

    def process_exited(self) -> None:
        _tell(self.exited)

    def connection_lost(self, exc: Exception | None) -> None:
        _tell(self.closed)


def _tell(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def run(
    command: str,
    *,
    cwd: Path,
    signal: Signal,
    timeout: float | None = None,
    limit: int = LIMIT,
    grace: float = GRACE,
) -> Finished:
    """Run `command` with bash (or sh, where there is none) in the folder `cwd`.

    When the signal is set, the time is up or the awaiting task is cancelled, its process group gets SIGTERM, and
    SIGKILL after `grace`. So does what a command leaves behind when it exits.

    Args:
        timeout, grace: Seconds.
        limit: Bytes of output that are kept: one half from the beginning, one from the end.

    Raises:
        OSError: it could not be started: no such folder, too long, too many processes.
        ValueError: a NUL in the command.
        asyncio.CancelledError: the awaiting task was cancelled; the group is gone by then.
    """
    if "\0" in command:  # some event loops would run what stands before it
        raise ValueError("a command cannot hold a NUL character")
    if signal.is_set():
        return Finished(how="stopped")
    stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(_run(command, cwd, stop, timeout, limit, grace))
    forget = signal.on_set(lambda cause: _tell(stop))
    try:
        return await uncut(work, on_cancel=lambda: _tell(stop))
    finally:
        forget()


async def _run(
    command: str, cwd: Path, stop: asyncio.Future[None], timeout: float | None, limit: int, grace: float
) -> Finished:
    shell = shutil.which("bash") or "/bin/sh"
    output = BoundedOutput(limit)
    transport, watch = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Watch(output),
        *(shell, "-c", "--", command),
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=cwd,
        start_new_session=True,
    )
    leader = transport.get_pid()  # the first process of a session leads its group
    how: Literal["exited", "timed-out", "stopped"]
    try:
        await asyncio.wait([watch.exited, stop], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if watch.exited.done():
            how = "exited"
            await group.gone(leader, within=_LINGER)
        else:
            how = "stopped" if stop.done() else "timed-out"
        needed = await group.end(leader, grace=grace)
        await watch.exited
        group.reap(leader)
        await asyncio.wait([watch.drained], timeout=_DRAIN)
    except BaseException:  # the event loop itself is being closed: no time for grace
        await group.end(leader, grace=0)
        await watch.exited
        raise
    finally:
        transport.close()
        await watch.closed
    status = transport.get_returncode()
    text, omitted = output.text()
    assert status is not None
    return Finished(
        how=how,
        code=status if status >= 0 else None,
        killed_by=-status if status < 0 else None,
        needed=needed,
        output=text,
        total=output.total,
        omitted=omitted,
    )
