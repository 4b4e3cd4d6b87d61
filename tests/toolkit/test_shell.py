from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from signal import SIGKILL, SIGTERM
from typing import Any

import pytest

from interlock import Agent
from interlock.errors import ToolError
from interlock.intercept.signal import Signal
from interlock.log.facts import ToolResulted
from interlock.log.reasons import Cause
from interlock.process.run import Finished
from interlock.process.sandbox import Sandbox
from interlock.testing import ScriptedModel, calls, says
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
        (Finished(how="exited", killed_by=9, needed=SIGKILL, exceeded="more than 5 processes"), "[ended by the sandbox: more than 5 processes]"),
        (Finished(how="exited", code=0, undone=(".mcp.json",)), "[the sandbox protects .mcp.json: what the command did there was undone]"),
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


async def confined(place: Path, confinement: Any, command: str) -> str:
    """What the model reads of a command in this confinement."""
    agent = Agent(ScriptedModel(calls("bash", command=command), says("done")), tools=[bash], cwd=place)
    agent.confinement = confinement
    async with agent:
        await agent.run("go")
        [result] = agent.session.facts(ToolResulted)
    return "".join(block.text for block in result.content)


@pytest.mark.skipif(sys.platform != "linux", reason="the sandbox needs Linux")
async def test_in_a_sandbox_it_is_confined_and_a_failure_says_so(root: Path) -> None:
    sandbox = Sandbox("read-only", root=root)
    problem = sandbox.problem()
    if problem is not None and not os.environ.get("CI"):
        pytest.skip(problem)
    assert problem is None
    text = await confined(root, sandbox, "touch made")
    assert "Read-only file system" in text
    assert text.endswith("[exit code 1]\n[the sandbox: read-only, no network]")
    assert os.listdir(root) == []
    assert await confined(root, sandbox, "echo fine") == "fine"
    assert await confined(root, Sandbox("full", root=root), "touch made; exit 1") == "[exit code 1]"
    assert os.listdir(root) == ["made"]


async def test_in_a_confinement_of_an_unknown_kind_it_does_not_run(root: Path) -> None:
    class Other:
        mode = "read-only"

        def problem(self) -> None:
            return None

    text = await confined(root, Other(), "touch made")
    assert text == "Error [sandbox_unavailable]: bash cannot run in a confinement of the kind Other"
    assert os.listdir(root) == []
