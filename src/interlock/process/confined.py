"""Running one command in a sandbox to its end.

Lives here: `run_confined`. bubblewrap is a child of this process, and the first process of the sandbox a child of
bubblewrap; when either ends, the kernel kills whatever is left inside, sessions of their own included.
"""

from __future__ import annotations

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from signal import Signals
from typing import NamedTuple

from interlock.process import group
from interlock.process.command import Finished, How, Watch
from interlock.process.exported import EXPORTED
from interlock.process.output import BoundedOutput
from interlock.process.sandbox.limits import Limits, Usage
from interlock.process.sandbox.sandbox import Confined, Sandbox
from interlock.process.sandbox.supervisor import LINGER, Report

_LOOK = 0.1  # seconds between two looks at the memory that the sandbox uses
_LOOK_AS_ROOT = 0.02  # at the number of its processes, which the kernel limits for everybody but root
_LEAVE = 1.0  # seconds for the shell inside to leave
_CLEARED = 30.0  # seconds for the kernel to clear away what it has killed; thousands of processes take some


class SandboxFailed(OSError):
    """The sandbox could not be made; the command has not run."""


class _Ending(NamedTuple):
    how: How
    needed: Signals | None = None
    exceeded: str | None = None


async def run_confined(
    sandbox: Sandbox,
    argv: Sequence[str],
    cwd: Path,
    stop: asyncio.Future[None],
    timeout: float | None,
    limit: int,
    grace: float,
) -> Finished:
    """As `run` does it; `stop` is set when the command is to end.

    Raises:
        SandboxFailed: the sandbox could not be made.
        OSError: bubblewrap could not be started.
    """
    output, report = BoundedOutput(limit), Report()
    with sandbox.command(argv, cwd, grace=grace) as confined:
        transport, watch = await asyncio.get_running_loop().subprocess_exec(
            lambda: Watch(output.add, report.add),
            *confined.argv,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            cwd="/",
            env={**confined.env, **EXPORTED.get()},
            pass_fds=confined.pass_fds,
            start_new_session=True,
        )
        outer = transport.get_pid()
        try:
            ending = await _ending(watch, report, confined, outer, sandbox.limits, stop, timeout, grace)
            await _gone(watch, confined, outer)
            await asyncio.wait([watch.drained], timeout=_LEAVE)
        except BaseException:  # the event loop itself is being closed
            await _gone(watch, confined, outer)
            raise
        finally:
            transport.close()
            await watch.closed
    if not report.begun and ending.needed is None:
        raise SandboxFailed(f"the sandbox could not be made: {report.complaint}")
    returned = transport.get_returncode()
    assert returned is not None
    code, killed_by = report.status or _status(returned)
    text, omitted = output.text()
    return Finished(
        how=ending.how,
        code=code,
        killed_by=killed_by,
        needed=ending.needed or report.left,
        output=text,
        total=output.total,
        omitted=omitted,
        exceeded=ending.exceeded,
        undone=confined.undone,
    )


async def _ending(
    watch: Watch,
    report: Report,
    confined: Confined,
    outer: int,
    limits: Limits,
    stop: asyncio.Future[None],
    timeout: float | None,
    grace: float,
) -> _Ending:
    """Wait until it ends, or end it."""
    loop = asyncio.get_running_loop()
    deadline = None if timeout is None else loop.time() + timeout
    first: int | None = None
    pause = _LOOK_AS_ROOT if os.geteuid() == 0 else _LOOK
    look = loop.time() + _LOOK
    leaving = False  # the command has ended; what it left running is being ended by the shell inside
    while not watch.exited.done():
        now = loop.time()
        first = confined.first()
        # Before the shell inside has begun, the first process may still see the machine's own /proc.
        if first is not None and report.begun:
            exceeded = limits.exceeded(Usage(first), memory=now >= look)
            if exceeded is not None:
                return _Ending("exited", Signals.SIGKILL, exceeded)
            if now >= look:
                look = now + _LOOK
        if report.ended.done() and not leaving:
            leaving, deadline = True, now + LINGER + grace + _LEAVE
        if (deadline is not None and now >= deadline) or (stop.done() and not leaving):
            break
        left = pause if deadline is None else min(pause, deadline - now)
        awaited = [watch.exited] if leaving else [watch.exited, report.ended, stop]
        await asyncio.wait(awaited, timeout=left, return_when=asyncio.FIRST_COMPLETED)
    if watch.exited.done() or leaving:
        return _Ending("exited")
    how: How = "stopped" if stop.done() else "timed-out"
    if first is None:
        return _Ending(how, Signals.SIGKILL)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(first, Signals.SIGTERM)  # the first one itself ignores it, the shell inside takes note
    await asyncio.wait([watch.exited], timeout=grace)
    return _Ending(how, Signals.SIGTERM if watch.exited.done() else Signals.SIGKILL)


async def _gone(watch: Watch, confined: Confined, outer: int) -> None:
    """Nothing of it is left: bubblewrap is collected, and with the first process all others have ended."""
    first = confined.first()
    if not watch.exited.done():
        with suppress(ProcessLookupError):
            os.kill(outer, Signals.SIGKILL)
    await watch.exited
    if first is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(first, Signals.SIGKILL)
        await group.gone(first, within=_CLEARED)
        group.reap(first)


def _status(returned: int) -> tuple[int | None, int | None]:
    """How it ended when the shell inside was killed as well, by what is known of bubblewrap."""
    if returned < 0:
        return None, -returned
    return (None, returned - 128) if returned > 128 else (returned, None)
