"""Real programs that read or do not, end or do not."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.process.exchange import Exchanged, exchange

pytestmark = pytest.mark.slow  # it starts many processes

Heard = Callable[[], asyncio.Future[list[str]]]
IsRunning = Callable[[str | int], bool]

ENVIRONMENT = {"PATH": os.environ["PATH"]}


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> object:
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else None
    yield
    gc.collect()  # a transport that was not closed says so now, and warnings are errors
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before


async def sh(
    command: str, cwd: Path, given: bytes = b"", timeout: float = 60, limit: int = 1 << 20
) -> Exchanged:
    return await exchange(
        ["/bin/sh", "-c", command],
        given=given,
        cwd=cwd,
        environment=ENVIRONMENT,
        timeout=timeout,
        limit=limit,
    )


async def test_it_reads_what_it_is_given_and_its_outputs_come_apart(tmp_path: Path) -> None:
    done = await sh("cat; echo aside >&2; exit 3", tmp_path, given=b'{"a": 1}')
    assert done == Exchanged(how="exited", code=3, stdout='{"a": 1}', stderr="aside\n")


async def test_it_has_its_environment_and_no_other_no_terminal_and_a_session_of_its_own(
    tmp_path: Path,
) -> None:
    done = await exchange(
        ["/bin/sh", "-c", "echo $HOME-$ONE; (exec 3</dev/tty) 2>/dev/null || echo none; ps -o sid= -p $$; echo $$; basename $PWD"],
        given=b"", cwd=tmp_path, environment={**ENVIRONMENT, "ONE": "1"}, timeout=60,
    )  # fmt: skip
    first, terminal, sid, pid, folder = done.stdout.split("\n")[:5]
    assert (first, terminal, sid.strip(), folder) == ("-1", "none", pid, tmp_path.name)


@pytest.mark.parametrize("command", ["exit 0", "exec 0<&-; exit 0", "head -c 10; exit 0"])
async def test_five_megabytes_that_nobody_reads(tmp_path: Path, command: str) -> None:
    done = await sh(command, tmp_path, given=b"x" * 5_000_000)
    assert (done.how, done.code) == ("exited", 0)


async def test_five_megabytes_that_are_read(tmp_path: Path) -> None:
    assert (await sh("wc -c", tmp_path, given=b"x" * 5_000_000)).stdout.strip() == "5000000"


async def test_an_output_is_kept_within_bounds_and_the_rest_is_counted(tmp_path: Path) -> None:
    done = await sh("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2", tmp_path, limit=1000)
    assert done.omitted == 2 * (3_000_000 - 1000)
    assert len(done.stdout) < 1100
    assert len(done.stderr) < 1100


async def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    assert (await sh(r"printf 'a\377b'", tmp_path)).stdout == "a\ufffdb"


async def test_a_program_that_a_signal_killed(tmp_path: Path) -> None:
    done = await sh("echo going; kill -9 $$", tmp_path)
    assert done == Exchanged(how="exited", killed_by=signal.SIGKILL, stdout="going\n")


async def test_time_is_up(tmp_path: Path) -> None:
    done = await sh("echo begun; sleep 1000", tmp_path, timeout=0.2)
    assert done == Exchanged(
        how="timed-out", killed_by=signal.SIGTERM, needed=signal.SIGTERM, stdout="begun\n"
    )


async def test_a_program_that_ignores_sigterm_is_killed_with_its_children(
    tmp_path: Path, heard: Heard, is_running: IsRunning
) -> None:
    pids = heard()
    command = "trap '' TERM; sleep 1000 & echo $$ $! > said; while :; do sleep 1000; done"
    done = await sh(command, tmp_path, timeout=0.5)
    assert (done.how, done.needed) == ("timed-out", signal.SIGKILL)
    assert [is_running(pid) for pid in await pids] == [False, False]


async def test_a_grandchild_that_keeps_the_pipes_is_ended(
    tmp_path: Path, heard: Heard, is_running: IsRunning
) -> None:
    pids = heard()
    done = await sh("(trap '' TERM; sleep 1000) & echo $! > said; echo done", tmp_path)
    assert (done.how, done.code, done.stdout) == ("exited", 0, "done\n")
    assert done.needed is not None
    (pid,) = await pids
    assert not is_running(pid)


async def test_a_daemon_that_holds_the_pipes_holds_nobody(
    tmp_path: Path, heard: Heard, is_running: IsRunning
) -> None:
    pids = heard()
    daemon = "echo $$ > said; touch ready; exec sleep 1000"
    done = await sh(f"setsid sh -c '{daemon}' & until [ -e ready ]; do sleep 0.01; done; echo done", tmp_path)
    (pid,) = await pids
    assert (done.how, done.code, done.stdout) == ("exited", 0, "done\n")
    assert is_running(pid)  # it made a session of its own: only a sandbox reaches it
    os.kill(int(pid), signal.SIGKILL)


async def test_a_cancel_ends_it_first(tmp_path: Path, heard: Heard, is_running: IsRunning) -> None:
    pids = heard()
    task = asyncio.create_task(sh("echo $$ > said; sleep 1000", tmp_path))
    (pid,) = await pids
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not is_running(pid)


@pytest.mark.parametrize("argv", [["/no/such/program"], ["no-such-program"], ["/etc/passwd"]])
async def test_what_cannot_be_started_raises(tmp_path: Path, argv: list[str]) -> None:
    with pytest.raises(OSError):
        await exchange(argv, given=b"", cwd=tmp_path, environment=ENVIRONMENT, timeout=60)


async def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await sh("true", tmp_path / "gone")


async def test_a_nul_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="NUL"):
        await sh("echo a\0b", tmp_path)
    with pytest.raises(ValueError, match="NUL"):
        await exchange(["true"], given=b"", cwd=tmp_path, environment={"A": "\0"}, timeout=60)
