"""Real commands, real signals."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from interlock.intercept.signal import Signal
from interlock.log.reasons import Cause
from interlock.process.run import Finished, run

pytestmark = pytest.mark.slow  # it starts many processes

Heard = Callable[[], asyncio.Future[list[str]]]
IsRunning = Callable[[str | int], bool]

# A child that ignores SIGTERM, tells its pid, and keeps the pipe of the output open.
STUBBORN = "(trap '' TERM; echo $BASHPID > said; sleep 1000; true) & wait"


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> object:
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else None
    yield
    gc.collect()  # a transport that was not closed says so now, and warnings are errors
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before


async def test_output_of_both_streams_in_order_and_the_exit_code(tmp_path: Path) -> None:
    finished = await run("echo one; echo two >&2; echo three; exit 3", cwd=tmp_path, signal=Signal())
    assert finished == Finished(how="exited", code=3, output="one\ntwo\nthree\n", total=14)
    assert not finished.truncated


async def test_it_runs_in_its_folder_without_input_and_terminal_and_leads_its_session(tmp_path: Path) -> None:
    command = (
        "pwd -P; cat; tty; (exec 3</dev/tty) 2>/dev/null || echo no terminal; ps -o sid=,pgid= -p $$; echo $$"
    )
    lines = (await run(command, cwd=tmp_path, signal=Signal())).output.split("\n")
    assert Path(lines[0]).name == tmp_path.name
    assert lines[1:3] == ["not a tty", "no terminal"]
    assert lines[3].split() == [lines[4], lines[4]]


async def test_a_command_may_look_like_an_option(tmp_path: Path) -> None:
    finished = await run("-x", cwd=tmp_path, signal=Signal())
    assert finished.code == 127
    assert "-x: command not found" in finished.output


async def test_a_command_that_a_signal_killed(tmp_path: Path) -> None:
    finished = await run("echo going; kill -SEGV $$", cwd=tmp_path, signal=Signal())
    assert finished == Finished(how="exited", killed_by=signal.SIGSEGV, output="going\n", total=6)


async def test_bytes_that_are_not_utf8_are_replaced(tmp_path: Path) -> None:
    finished = await run(r"printf 'a\377b'", cwd=tmp_path, signal=Signal())
    assert (finished.output, finished.total) == ("a\ufffdb", 3)


async def test_fifty_megabytes_are_counted_and_not_kept(tmp_path: Path) -> None:
    command = "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo; echo last"
    tracemalloc.start()
    try:
        finished = await run(command, cwd=tmp_path, signal=Signal(), limit=10_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert finished.total == 50_000_012
    assert finished.omitted == finished.total - 10_000
    assert finished.truncated
    assert finished.output.startswith("first\nxxx")
    assert finished.output.endswith("xxx\nlast\n")
    assert len(finished.output) < 10_100
    assert peak < 4_000_000


async def test_time_is_up(tmp_path: Path) -> None:
    finished = await run("sleep 1000", cwd=tmp_path, signal=Signal(), timeout=0.1)
    assert finished == Finished(how="timed-out", killed_by=signal.SIGTERM, needed=signal.SIGTERM)


async def test_the_signal_stops_it(tmp_path: Path, heard: Heard, is_running: IsRunning) -> None:
    stop = Signal()
    running = asyncio.create_task(
        run("trap 'echo bye; exit 5' TERM; echo $$ > said; sleep 1000 & wait", cwd=tmp_path, signal=stop)
    )
    (pid,) = await heard()
    stop.set(Cause("user"))
    assert await running == Finished(
        how="stopped", code=5, needed=signal.SIGTERM, output="bye\n", total=4
    )  # it may say goodbye
    assert not is_running(pid)


async def test_a_grandchild_that_ignores_sigterm_and_holds_the_pipe_is_killed(
    tmp_path: Path, heard: Heard, is_running: IsRunning
) -> None:
    stop = Signal()
    running = asyncio.create_task(run(STUBBORN, cwd=tmp_path, signal=stop, grace=0.1))
    (pid,) = await heard()
    stop.set(Cause("user"))
    finished = await running
    assert (finished.how, finished.killed_by) == ("stopped", signal.SIGTERM)
    assert finished.needed is signal.SIGKILL
    assert not is_running(pid)


async def test_a_signal_that_is_set_before_starts_nothing(tmp_path: Path) -> None:
    stop = Signal()
    stop.set(Cause("user"))
    assert await run("touch made", cwd=tmp_path, signal=stop) == Finished(how="stopped")
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("cancels", [1, 2])
@pytest.mark.parametrize("signal_too", [False, True])
async def test_cancelling_the_waiter_ends_the_group_and_is_raised(
    tmp_path: Path, heard: Heard, is_running: IsRunning, cancels: int, signal_too: bool
) -> None:
    stop = Signal()
    running = asyncio.create_task(run(STUBBORN, cwd=tmp_path, signal=stop, grace=0.1))
    (pid,) = await heard()
    if signal_too:
        stop.set(Cause("user"))
    for _ in range(cancels):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert not is_running(pid)


async def test_cancelling_while_it_starts_leaves_nothing(tmp_path: Path, is_running: IsRunning) -> None:
    for turns_of_the_loop in range(4):
        running = asyncio.create_task(run("echo $$ >> pids; sleep 1000; true", cwd=tmp_path, signal=Signal()))
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    pids = tmp_path / "pids"
    assert not any(map(is_running, pids.read_text().split() if pids.exists() else []))


def test_closing_the_event_loop_kills_what_nobody_waited_for(tmp_path: Path, is_running: IsRunning) -> None:
    os.mkfifo(tmp_path / "said")
    pids: list[str] = []

    async def main() -> None:
        nobody_waits = asyncio.create_task(run(STUBBORN, cwd=tmp_path, signal=Signal(), grace=1000))
        pids.append(await asyncio.to_thread((tmp_path / "said").read_text))
        for _ in range(10):  # the child may speak before the event loop has taken note of its parent
            await asyncio.sleep(0)
        assert not nobody_waits.done()

    asyncio.run(main())
    assert not is_running(pids[0].strip())


async def test_what_is_left_running_in_the_background_is_ended(
    tmp_path: Path, heard: Heard, is_running: IsRunning
) -> None:
    running = asyncio.create_task(
        run("sleep 1000 & echo $! > said; echo done", cwd=tmp_path, signal=Signal())
    )
    (pid,) = await heard()
    assert await running == Finished(how="exited", code=0, needed=signal.SIGTERM, output="done\n", total=5)
    assert not is_running(pid)


async def test_what_ends_by_itself_right_after_the_shell_is_heard_to_the_end(tmp_path: Path) -> None:
    finished = await run("echo through a pipe > >(cat; sleep 0.05; echo end)", cwd=tmp_path, signal=Signal())
    assert finished == Finished(how="exited", code=0, output="through a pipe\nend\n", total=19)


async def test_a_pipe_that_a_daemon_holds_is_not_waited_for(tmp_path: Path, is_running: IsRunning) -> None:
    finished = await run("setsid sleep 1000 & echo $!", cwd=tmp_path, signal=Signal())
    pid = int(finished.output)
    try:
        assert finished.how == "exited"
        assert is_running(pid)  # a session of its own is out of reach: this is what a sandbox is for
    finally:
        os.kill(pid, signal.SIGKILL)


async def test_a_folder_that_vanished_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        await run("echo", cwd=tmp_path / "gone", signal=Signal())


async def test_a_command_that_the_system_refuses(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long"):
        await run("#" * 3_000_000, cwd=tmp_path, signal=Signal())
    with pytest.raises(ValueError, match="NUL"):
        await run("echo a\0; rm b", cwd=tmp_path, signal=Signal())
