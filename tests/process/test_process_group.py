from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest

from interlock.process import group

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc, or needs a subreaper")


@linux_only
def test_a_group_of_zombies_is_not_alive() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended and is not collected
    try:
        os.killpg(process.pid, 0)  # the system still counts it
        assert not group.is_alive(process.pid)
    finally:
        process.wait()


def test_a_group_that_is_gone_needs_no_signal() -> None:
    process = subprocess.Popen(["true"], start_new_session=True)
    process.wait()
    assert asyncio.run(group.end(process.pid, grace=1)) is None


def test_waiting_for_a_group_that_stays_gives_up() -> None:
    process = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    try:
        assert not asyncio.run(group.gone(process.pid, within=0.01))
        assert group.is_alive(process.pid)
    finally:
        process.kill()
        process.wait()


SUBREAPER = """
import asyncio, ctypes, os
from pathlib import Path
from interlock.intercept.signal import Signal
from interlock.process.run import run

PR_SET_CHILD_SUBREAPER = 36
assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
print(asyncio.run(run("(sleep 1000 & sleep 1000 &)", cwd=Path("/"), signal=Signal())).needed)
try:
    print(os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("no children")
"""


@pytest.mark.slow
@linux_only
def test_orphans_are_collected_where_this_process_inherits_them() -> None:
    """As it does where it is PID 1 of a container."""
    done = subprocess.run([sys.executable, "-c", SUBREAPER], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["15", "no children"]
