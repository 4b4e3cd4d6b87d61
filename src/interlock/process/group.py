"""Process groups: whether one still runs, and how it is ended.

Lives here: `is_alive`, `gone`, `end` and `reap`. A command leads a group of its own, so that whatever it started is
reached through one number. What makes a session of its own (a daemon) leaves the group and is out of reach here; only
a sandbox holds it.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

_KILL_PATIENCE = (
    1.0  # seconds; SIGKILL is at once, but the kernel may be busy or the process in the middle of I/O
)


def is_alive(group: int) -> bool:
    """Whether a process of the group still runs. A zombie does not: its parent may never collect it."""
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's process; on macOS also a group that is all zombies
        if sys.platform != "linux":
            return False
    return sys.platform != "linux" or _has_running_member(group)


def _has_running_member(group: int) -> bool:
    wanted = str(group).encode()
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                line = (process / "stat").read_bytes()
            except OSError:  # it ended meanwhile
                continue
            # pid (command) state parent group ...; the command may hold spaces and parentheses
            state, _, its_group = line.rpartition(b")")[2].split()[:3]
            if its_group == wanted and state not in (b"Z", b"X"):
                return True
    return False


async def gone(group: int, *, within: float) -> bool:
    """Wait until nothing of the group runs, at most `within` seconds. True when that came to pass."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    pause = 0.001
    while is_alive(group):  # nobody tells of the end of a process that is not a child: it has to be asked
        left = deadline - loop.time()
        if left <= 0:
            return False
        await asyncio.sleep(min(pause, left))
        pause = min(2 * pause, 0.05)
    return True


async def end(group: int, *, grace: float) -> signal.Signals | None:
    """End what runs: SIGTERM, and SIGKILL after `grace` seconds. The last signal that was needed."""
    needed = None
    for number, patience in ((signal.SIGTERM, grace), (signal.SIGKILL, _KILL_PATIENCE)):
        if not is_alive(group):
            break
        with suppress(ProcessLookupError, PermissionError):  # ended meanwhile; another user's
            os.killpg(group, number)
        needed = number
        await gone(group, within=patience)
    return needed


def reap(group: int) -> None:
    """Collect orphans of the group that became children of this process, as they do where it is PID 1.

    Call it only when the leader has been collected, which is the event loop's to do.
    """
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
