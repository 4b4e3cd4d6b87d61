"""A command in a sandbox ends as one without: same codes and signals, same words, same stops; and nothing is left."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from interlock.intercept.signal import Signal
from interlock.log.reasons import Cause
from interlock.process.confined import SandboxFailed
from interlock.process.run import Finished, run
from interlock.process.sandbox import Sandbox

from .boxing import require_bubblewrap

Heard = Callable[[], asyncio.Future[list[str]]]


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    require_bubblewrap()


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    before = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()  # a transport that was not closed says so now, and warnings are errors
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox("workspace-write", root=tmp_path)


#: How long what is left running would sleep: a number of this process's own, since others run tests beside it.
NAP = f"1000.{os.getpid():07d}1"


def processes_with(text: str) -> list[str]:
    listed = subprocess.run(["ps", "-eo", "stat=,args="], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if text in line and not line.startswith("Z")]


@pytest.mark.parametrize(
    ("command", "code", "killed_by"),
    [
        ("true", 0, None),
        ("exit 3", 3, None),
        ("exit 129", 129, None),  # as git does
        ("exit 139", 139, None),  # not what a signal looks like to a shell
        ("kill -SEGV $$", None, signal.SIGSEGV),
        ("kill -TERM $$", None, signal.SIGTERM),
        ("kill -HUP $$", None, signal.SIGHUP),
        ("kill -INT $$", None, signal.SIGINT),
        ("kill -PIPE $$", None, signal.SIGPIPE),
        ("kill -KILL $$", None, signal.SIGKILL),
        ("sh -c 'kill -SEGV $$'; exit 5", 5, None),
        ("no-such-program 2>/dev/null", 127, None),
    ],
)
async def test_how_it_ended_is_told_as_without_a_sandbox(
    tmp_path: Path, sandbox: Sandbox, command: str, code: int | None, killed_by: int | None
) -> None:
    confined = await run(command, cwd=tmp_path, signal=Signal(), sandbox=sandbox)
    free = await run(command, cwd=tmp_path, signal=Signal())
    assert (confined.how, confined.code, confined.killed_by) == ("exited", code, killed_by)
    assert (free.how, free.code, free.killed_by) == ("exited", code, killed_by)


async def test_output_of_both_streams_in_order(tmp_path: Path, sandbox: Sandbox) -> None:
    finished = await run(
        "echo one; echo two >&2; echo three; exit 3", cwd=tmp_path, signal=Signal(), sandbox=sandbox
    )
    assert finished == Finished(how="exited", code=3, output="one\ntwo\nthree\n", total=14)


async def test_a_command_may_look_like_an_option_or_a_report(tmp_path: Path, sandbox: Sandbox) -> None:
    assert (await run("-x", cwd=tmp_path, signal=Signal(), sandbox=sandbox)).code == 127
    finished = await run("echo 'ended 7' >&2; exit 2", cwd=tmp_path, signal=Signal(), sandbox=sandbox)
    assert (finished.code, finished.output) == (2, "ended 7\n")


async def test_time_is_up(tmp_path: Path, sandbox: Sandbox) -> None:
    finished = await run("sleep 1000", cwd=tmp_path, signal=Signal(), timeout=0.3, sandbox=sandbox)
    assert finished == Finished(how="timed-out", killed_by=signal.SIGTERM, needed=signal.SIGTERM)


async def test_the_signal_stops_it_and_it_may_say_goodbye(
    tmp_path: Path, heard: Heard, sandbox: Sandbox
) -> None:
    stop = Signal()
    command = f"trap 'echo bye; exit 5' TERM; echo on > said; sleep {NAP} & wait"
    running = asyncio.create_task(run(command, cwd=tmp_path, signal=stop, sandbox=sandbox))
    await heard()
    stop.set(Cause("user"))
    assert await running == Finished(how="stopped", code=5, needed=signal.SIGTERM, output="bye\n", total=4)
    assert processes_with(f"sleep {NAP}") == []


async def test_what_ignores_sigterm_is_killed(tmp_path: Path, heard: Heard, sandbox: Sandbox) -> None:
    stop = Signal()
    command = f"(trap '' TERM; echo on > said; sleep {NAP}; true) & wait"
    running = asyncio.create_task(run(command, cwd=tmp_path, signal=stop, grace=0.1, sandbox=sandbox))
    await heard()
    stop.set(Cause("user"))
    finished = await running
    assert (finished.how, finished.needed) == ("stopped", signal.SIGKILL)
    assert processes_with(f"sleep {NAP}") == []


@pytest.mark.parametrize("cancels", [1, 2])
async def test_cancelling_the_waiter_leaves_nothing(
    tmp_path: Path, heard: Heard, sandbox: Sandbox, cancels: int
) -> None:
    command = f"setsid sleep {NAP} & (trap '' TERM; echo on > said; sleep {NAP}; true) & wait"
    running = asyncio.create_task(run(command, cwd=tmp_path, signal=Signal(), grace=0.1, sandbox=sandbox))
    await heard()
    for _ in range(cancels):
        running.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert processes_with(f"sleep {NAP}") == []


async def test_cancelling_while_it_starts_leaves_nothing(tmp_path: Path, sandbox: Sandbox) -> None:
    for turns_of_the_loop in range(6):
        running = asyncio.create_task(
            run(f"sleep {NAP}", cwd=tmp_path, signal=Signal(), grace=0.1, sandbox=sandbox)
        )
        for _ in range(turns_of_the_loop):
            await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    assert processes_with(f"sleep {NAP}") == []
    assert os.listdir(tmp_path) == []


def test_closing_the_event_loop_leaves_nothing(tmp_path: Path, sandbox: Sandbox) -> None:
    os.mkfifo(tmp_path / "said")

    async def main() -> None:
        command = f"(trap '' TERM; echo on > said; sleep {NAP}; true) & wait"
        nobody_waits = asyncio.create_task(
            run(command, cwd=tmp_path, signal=Signal(), grace=1000, sandbox=sandbox)
        )
        await asyncio.to_thread((tmp_path / "said").read_text)
        for _ in range(10):  # the child may speak before the event loop has taken note of its parent
            await asyncio.sleep(0)
        assert not nobody_waits.done()

    asyncio.run(main())
    assert processes_with(f"sleep {NAP}") == []


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("sleep NAP & echo up", signal.SIGTERM),
        ("setsid sleep NAP & echo up", signal.SIGTERM),
        ("(trap '' TERM; exec setsid sleep NAP) & sleep 0.1; echo up", signal.SIGKILL),
    ],
)
async def test_what_it_leaves_running_is_ended_even_in_a_session_of_its_own(
    tmp_path: Path, sandbox: Sandbox, command: str, needed: signal.Signals
) -> None:
    finished = await run(
        command.replace("NAP", NAP), cwd=tmp_path, signal=Signal(), grace=0.2, sandbox=sandbox
    )
    assert finished == Finished(how="exited", code=0, needed=needed, output="up\n", total=3)
    assert processes_with(f"sleep {NAP}") == []


async def test_what_ends_by_itself_right_after_the_shell_is_heard_to_the_end(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    command = "echo through a pipe > >(cat; sleep 0.05; echo end)"
    finished = await run(command, cwd=tmp_path, signal=Signal(), sandbox=sandbox)
    assert finished == Finished(how="exited", code=0, output="through a pipe\nend\n", total=19)


async def test_a_command_that_kills_the_shell_that_keeps_it_ends_with_it(
    tmp_path: Path, sandbox: Sandbox
) -> None:
    finished = await run(
        f"setsid sleep {NAP} & kill -9 $PPID; sleep {NAP}", cwd=tmp_path, signal=Signal(), sandbox=sandbox
    )
    assert (finished.how, finished.killed_by) == ("exited", signal.SIGKILL)
    assert processes_with(f"sleep {NAP}") == []


PROGRAM = """
import asyncio, os, sys
from pathlib import Path
from interlock.intercept.signal import Signal
from interlock.process.run import run
from interlock.process.sandbox import Sandbox
root = Path(sys.argv[1])
asyncio.run(run("setsid sleep " + sys.argv[2] + " & echo on > said; wait", cwd=root, signal=Signal(),
                sandbox=Sandbox("workspace-write", root=root)))
"""


def test_nothing_outlives_a_program_that_is_killed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "said")
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, str(tmp_path), NAP])
    (tmp_path / "said").read_text()
    program.kill()
    program.wait()
    for _ in range(1000):  # nobody tells when the kernel has cleared away what it has killed
        if not processes_with(f"sleep {NAP}"):
            break
    assert processes_with(f"sleep {NAP}") == []


async def test_a_sandbox_that_cannot_be_made_is_an_error_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    work = tmp_path / "work"
    work.mkdir()
    sandbox = Sandbox("workspace-write", root=work)
    hidden = tmp_path / "gone"  # below the temporary folder, which is the command's own
    with pytest.raises(SandboxFailed, match=r"could not be made: .*gone"):
        await run("touch made", cwd=hidden, signal=Signal(), sandbox=sandbox)
    assert os.listdir(work) == []
    with pytest.raises(FileNotFoundError):
        await run("true", cwd=tmp_path / "never", signal=Signal(), sandbox=sandbox)
    shutil.rmtree(work)
    with pytest.raises(FileNotFoundError):
        await run("true", cwd=work, signal=Signal(), sandbox=sandbox)
    with pytest.raises(OSError, match="too long"):
        work.mkdir()
        await run("#" * 3_000_000, cwd=work, signal=Signal(), sandbox=sandbox)
    assert os.listdir(work) == []
