from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

import pytest

from interlock.errors import ToolError
from interlock.intercept.signal import Signal
from interlock.log.reasons import Cause
from interlock.process.run import Finished
from interlock.toolkit import bash
from interlock.toolkit.shell import describe
from interlock.tools.arguments import InvalidArguments

Use = Callable[..., str]


def test_a_command_runs_in_the_workspace_and_its_output_is_the_result(use: Use, root: Path) -> None:
    (root / "a.txt").touch()
    assert use(bash, command="ls; echo to stderr >&2") == "a.txt\nto stderr"


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("true", "[no output]"),
        ("exit 3", "[exit code 3]"),
        ("echo failed; exit 1", "failed\n[exit code 1]"),
        ("printf 'no line end'; exit 1", "no line end\n[exit code 1]"),
        ("kill -SEGV $$", "[killed by SIGSEGV]"),
        ("sleep 1000 & echo up", "up\n[processes left in the background were ended with SIGTERM]"),
    ],
)
def test_how_it_ended_is_said(use: Use, command: str, text: str) -> None:
    assert use(bash, command=command) == text


@pytest.mark.parametrize(
    ("finished", "text"),
    [
        (Finished(how="timed-out", needed=SIGKILL, killed_by=9, output="a\n"), "a\n[timed out after 2 s, ended with SIGKILL]"),
        (Finished(how="stopped", needed=SIGTERM, code=0), "[stopped, ended with SIGTERM]"),
        (Finished(how="stopped"), "[stopped]"),
        (Finished(how="exited", killed_by=35), "[killed by signal 35]"),
        (Finished(how="exited", code=2, needed=SIGTERM), "[exit code 2]\n[processes left in the background were ended with SIGTERM]"),
    ],
)  # fmt: skip
def test_every_end_has_its_words(finished: Finished, text: str) -> None:
    assert describe(finished, 2.0) == text


def test_time_is_up(use: Use) -> None:
    assert use(bash, command="sleep 1000", timeout=0.1) == "[timed out after 0.1 s, ended with SIGTERM]"


def test_a_long_output_is_cut_in_the_middle(use: Use) -> None:
    text = use(bash, command="seq 1 100000")
    assert len(text) < 31_000
    assert text.startswith("1\n2\n")
    assert "bytes left out" in text
    assert text.endswith("\n100000")


async def test_the_signal_stops_it(root: Path, start: Callable[..., Any]) -> None:
    os.mkfifo(root / "said")
    stop = Signal()
    running = asyncio.ensure_future(start(bash, root, stop, command="echo on > said; echo begun; sleep 1000"))
    await asyncio.to_thread((root / "said").read_text)
    stop.set(Cause("user"))
    text = await running
    assert text.endswith("[stopped, ended with SIGTERM]")


def test_what_cannot_be_started_is_told(use: Use) -> None:
    with pytest.raises(ToolError, match="could not be started: Argument list too long"):
        use(bash, command="#" * 3_000_000)
    with pytest.raises(ToolError, match="could not be started: a command cannot hold a NUL"):
        use(bash, command="echo \0")


@pytest.mark.parametrize("timeout", [0, -1, 3601])
def test_a_timeout_has_bounds(use: Use, timeout: float) -> None:
    with pytest.raises(InvalidArguments, match="timeout"):
        use(bash, command="true", timeout=timeout)
