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
from interlock.process.command import Watch, ended, status_of, tell
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
    return await uncut(work, on_cancel=lambda: tell(stop))


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
    out, err = BoundedOutput(limit), BoundedOutput(limit)
    transport, watch = await asyncio.get_running_loop().subprocess_exec(
        lambda: Watch(out.add, err.add),
        *argv,
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd=cwd,
        env=environment,
        start_new_session=True,
    )
    reader = cast("asyncio.WriteTransport", transport.get_pipe_transport(0))
    reader.write(given)  # what the pipe does not hold waits in the transport
    reader.close()  # once that is written
    how, needed = await ended(
        transport, watch, stop, timeout=timeout, grace=grace, linger=_LINGER, drain=_DRAIN
    )
    code, killed_by = status_of(transport)
    (stdout, left_out), (stderr, left_err) = out.text(), err.text()
    return Exchanged(
        how="exited" if how == "exited" else "timed-out",
        code=code,
        killed_by=killed_by,
        needed=needed,
        stdout=stdout,
        stderr=stderr,
        omitted=left_out + left_err,
    )
