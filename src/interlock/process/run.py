"""Running one shell command to its end, and everything it started with it.

Lives here: `run`. The command is the first process of a session of its own, without a terminal, with nothing to read;
what it prints on both streams comes in order of arrival. When `run` returns or raises, the command is collected, its
group is gone and its pipe is closed. In a sandbox nothing at all is left of it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from pathlib import Path
from typing import TYPE_CHECKING

from interlock.intercept.signal import Signal
from interlock.intercept.uncut import uncut
from interlock.process.command import Finished, Watch, ended, status_of, tell
from interlock.process.exported import EXPORTED
from interlock.process.output import BoundedOutput

if TYPE_CHECKING:
    from interlock.process.sandbox import Sandbox

__all__ = ["GRACE", "LIMIT", "Finished", "run"]

GRACE = 2.0  # seconds between SIGTERM and SIGKILL
LIMIT = 30_000  # bytes of output that are kept
_LINGER = 0.5  # seconds for what ends by itself right after its shell, such as `> >(tee log)`
_DRAIN = 0.5  # seconds for the pipe when somebody outside the group still holds it


async def run(
    command: str,
    *,
    cwd: Path,
    signal: Signal,
    timeout: float | None = None,
    limit: int = LIMIT,
    grace: float = GRACE,
    sandbox: Sandbox | None = None,
) -> Finished:
    """Run `command` with bash (or sh, where there is none) in the folder `cwd`.

    When the signal is set, the time is up or the awaiting task is cancelled, its process group gets SIGTERM, and
    SIGKILL after `grace`. So does what a command leaves behind when it exits.

    Args:
        timeout, grace: Seconds.
        limit: Bytes of output that are kept: one half from the beginning, one from the end.
        sandbox: What confines it; without one, or in its mode `full`, nothing does.

    Raises:
        OSError: it could not be started: no such folder, too long, too many processes, no sandbox.
        ValueError: a NUL in the command.
        asyncio.CancelledError: the awaiting task was cancelled; the group is gone by then.
    """
    if "\0" in command:  # some event loops would run what stands before it
        raise ValueError("a command cannot hold a NUL character")
    if signal.is_set():
        return Finished(how="stopped")
    stop: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    argv = (shutil.which("bash") or "/bin/sh", "-c", "--", command)
    if sandbox is not None and sandbox.mode != "full":
        from interlock.process.confined import run_confined

        work = asyncio.create_task(run_confined(sandbox, argv, cwd, stop, timeout, limit, grace))
    else:
        work = asyncio.create_task(_run(argv, cwd, stop, timeout, limit, grace))
    forget = signal.on_set(lambda cause: tell(stop))
    try:
        return await uncut(work, on_cancel=lambda: tell(stop))
    finally:
        forget()


async def _run(
    argv: tuple[str, ...],
    cwd: Path,
    stop: asyncio.Future[None],
    timeout: float | None,
    limit: int,
    grace: float,
) -> Finished:
    output, exported = BoundedOutput(limit), EXPORTED.get()
    transport, watch = await asyncio.get_running_loop().subprocess_exec(
        lambda: Watch(output.add),
        *argv,
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=STDOUT,
        cwd=cwd,
        env={**os.environ, **exported} if exported else None,
        start_new_session=True,
    )
    how, needed = await ended(
        transport, watch, stop, timeout=timeout, grace=grace, linger=_LINGER, drain=_DRAIN
    )
    code, killed_by = status_of(transport)
    text, omitted = output.text()
    return Finished(
        how=how,
        code=code,
        killed_by=killed_by,
        needed=needed,
        output=text,
        total=output.total,
        omitted=omitted,
    )
