"""One question to a program: something to read, and its two outputs, apart.

Lives here: `exchange` and `Exchanged`. The program leads a session of its own, without a terminal. Whether it reads
what it is given is its own affair. When `exchange` returns or raises, it is collected and its group is gone.
"""

from __future__ import annotations

import asyncio
from asyncio.subprocess import PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Literal, cast

from interlock.intercept.uncut import uncut
from interlock.process import group
from interlock.process.output import BoundedOutput

LIMIT = 1 << 20  # bytes of each output that are kept
GRACE = 0.5  # seconds between SIGTERM and SIGKILL
_LINGER = 0.2  # seconds for what ends by itself right after the program
_DRAIN = 0.2  # seconds for pipes that somebody outside the group still holds


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchanged:
    """How the program ended, and what it put out. Bytes that are not UTF-8 are U+FFFD.

    how: it exited by itself, or its time was up.
    """

    how: Literal["exited", "timed-out"]
    code: int | None = None  # exit code; None when a signal killed it
    killed_by: int | None = None  # the number of that signal
    needed: Signals | None = None  # the last signal sent to end the group
    stdout: str = ""
    stderr: str = ""
    omitted: int = 0  # bytes of both outputs that were not kept


class _Conversation(asyncio.SubprocessProtocol):
    """Gives the input, collects the outputs; tells the end of the process, of its outputs and of the transport."""

    def __init__(self, limit: int) -> None:
        loop = asyncio.get_running_loop()
        self.outputs = {1: BoundedOutput(limit), 2: BoundedOutput(limit)}
        self._open = set(self.outputs)
        self.exited: asyncio.Future[None] = loop.create_future()
        self.drained: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.outputs[fd].add(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)  # of the input: it was read, or nobody wants it
        if not self._open:
            _tell(self.drained)

    def process_exited(self) -> None:
        _tell(self.exited)

    def connection_lost(self, exc: Exception | None) -> None:
        _tell(self.closed)


def _tell(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def exchange(
    argv: Sequence[str],
    *,
    given: bytes,
    cwd: Path,
    environment: Mapping[str, str],
    timeout: float,
    limit: int = LIMIT,
    grace: float = GRACE,
) -> Exchanged:
    """Run a program, with `given` on its standard input.

    When its time is up or the awaiting task is cancelled, its process group gets SIGTERM, and SIGKILL after `grace`.
    So does what it leaves running when it exits.

    Args:
        argv: The program and its arguments.
        environment: All of it: nothing is inherited.
        timeout, grace: Seconds.
        limit: Bytes of each output that are kept: one half from the beginning, one from the end.

    Raises:
        OSError: it could not be started: no such program or folder, not executable, too long.
        ValueError: a NUL in an argument or a variable.
        asyncio.CancelledError: the awaiting task was cancelled; the group is gone by then.
    """
    for text in (*argv, *environment, *environment.values()):
        if "\0" in text:
            raise ValueError("an argument or a variable cannot hold a NUL character")
    stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    work = asyncio.create_task(_exchange(argv, given, cwd, environment, stop, timeout, limit, grace))
    return await uncut(work, on_cancel=lambda: _tell(stop))


async def _exchange(
    argv: Sequence[str],
    given: bytes,
    cwd: Path,
    environment: Mapping[str, str],
    stop: asyncio.Future[None],
    timeout: float,
    limit: int,
    grace: float,
) -> Exchanged:
    transport, talk = await asyncio.get_running_loop().subprocess_exec(
        lambda: _Conversation(limit),
        *argv,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=cwd,
        env=environment,
        start_new_session=True,
    )
    leader = transport.get_pid()  # the first process of a session leads its group
    try:
        reader = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
        reader.write(given)  # what the pipe does not hold waits in the transport
        reader.close()  # once that is written
        await asyncio.wait([talk.exited, stop], timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        timely = talk.exited.done()
        if timely:
            await group.gone(leader, within=_LINGER)
        needed = await group.end(leader, grace=grace)
        await talk.exited
        group.reap(leader)
        await asyncio.wait([talk.drained], timeout=_DRAIN)
    except BaseException:  # the event loop itself is being closed: no time for grace
        await group.end(leader, grace=0)
        await talk.exited
        raise
    finally:
        transport.close()
        await talk.closed
    status = transport.get_returncode()
    assert status is not None
    (out, left_out), (err, left_err) = talk.outputs[1].text(), talk.outputs[2].text()
    return Exchanged(
        how="exited" if timely else "timed-out",
        code=status if status >= 0 else None,
        killed_by=-status if status < 0 else None,
        needed=needed,
        stdout=out,
        stderr=err,
        omitted=left_out + left_err,
    )
