"""Ctrl-C and SIGTERM, and what the screen says meanwhile."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import subprocess
import sys
import textwrap

import pytest

from interlock import Agent, Cause, ToolContext, tool
from interlock.cli.driving import show_all
from interlock.cli.live import LiveView, Running
from interlock.cli.screen import Screen
from interlock.cli.stopping import Stopping
from interlock.log.facts import CancelRequested, ToolAbandoned, ToolResulted
from interlock.log.reasons import Aborted
from interlock.models.scripted import Answer
from interlock.testing import ScriptedModel, assert_laws, call, calls, hangs, says


async def test_the_first_signal_stops_and_awaits_what_runs() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    running = Running(screen)

    @tool(effect="read")
    async def slow() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            released.append(True)
        return ""

    released: list[bool] = []
    agent = Agent(ScriptedModel(calls(call("slow"), call("slow"))), tools=[slow])
    async with agent:
        show_all(agent, [LiveView(screen, answers=True).event, running.event])
        async with running.counting():
            with Stopping(agent, screen) as stopping:
                result = await agent.run("Go")
        assert (stopping.received, stopping.exit_code) == (signal.SIGINT, 130)
        assert result.reason == Aborted(Cause("user"))
        assert released == [True]
        codes = [fact.error.code for fact in agent.session.facts(ToolResulted)]  # type: ignore[union-attr, attr-defined]
        assert codes == ["ABORTED", "ABORTED_BEFORE_DISPATCH"]
        assert_laws(agent.session)
    assert stream.getvalue().splitlines() == [
        "  → slow#c1",
        "stopping; once more, and what still runs is given up",
        "  ■ stop  by user",
        "stopping, waiting for slow (0 s)",
        stream.getvalue().splitlines()[4],
        "  ✗ slow#c2  never ran; the model reads: Error [aborted_before_dispatch]: tool call aborted before dispatch",
        "■ turn 1 ends  aborted (user), 1 step",
    ]


async def test_the_second_signal_gives_what_runs_a_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.cli.stopping.GRACE", 0.01)

    @tool
    async def stubborn() -> str:
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(2):
            try:
                await end.wait()
            except asyncio.CancelledError:  # a tool that does not let itself be stopped
                os.kill(os.getpid(), signal.SIGINT)
        return "at last"

    end = asyncio.Event()
    stream = io.StringIO()
    async with Agent(ScriptedModel(calls("stubborn")), tools=[stubborn]) as agent:
        with Stopping(agent, Screen(stream)) as stopping:
            result = await agent.run("Go")
        assert stopping.exit_code == 143  # the first one counts
        assert result.reason == Aborted(Cause("user"))
        graces = [fact.grace_ms for fact in agent.session.facts(CancelRequested)]  # type: ignore[attr-defined]
        assert graces == [None, 10]
        assert len(agent.session.facts(ToolAbandoned)) == 1
        end.set()
        assert_laws(agent.session)
    assert stream.getvalue().splitlines()[1] == "stopping, within 0.01 s; once more to leave at once"


def test_the_third_signal_leaves_at_once() -> None:
    program = textwrap.dedent(
        """
        import asyncio, os, signal, sys
        from interlock import Agent, tool
        from interlock.cli.screen import Screen
        from interlock.cli.stopping import Stopping
        from interlock.testing import ScriptedModel, calls

        @tool
        async def stubborn() -> str:
            while True:
                os.kill(os.getpid(), signal.SIGINT)
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    os.kill(os.getpid(), signal.SIGINT)
            return ""

        async def main():
            async with Agent(ScriptedModel(calls("stubborn")), tools=[stubborn]) as agent:
                with Stopping(agent, Screen(sys.stderr)):
                    await agent.run("Go")

        asyncio.run(main())
        """
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 130
    assert len(ended.stderr.splitlines()) == 2


async def test_the_handlers_are_gone_after_the_block() -> None:
    async with Agent(ScriptedModel(says("hi"))) as agent:
        before = signal.getsignal(signal.SIGTERM)
        with Stopping(agent, Screen(io.StringIO())) as stopping:
            await agent.run("Go")
        assert stopping.exit_code is None
        assert signal.getsignal(signal.SIGTERM) == before


async def test_a_stop_while_the_model_speaks_keeps_what_was_said() -> None:
    stream = io.StringIO()
    screen = Screen(stream)
    async with Agent(ScriptedModel(hangs("I was about to"))) as agent:
        show_all(agent, [LiveView(screen, answers=True).event, Running(screen).event])
        agent.on.observe()(lambda event: agent.cancel("user") if event.type == "assistant/chunk" else None)
        await agent.run("Go")
    assert stream.getvalue().splitlines() == [
        "  ■ stop  by user",
        "I ",
        "(interrupted)",
        "■ turn 1 ends  aborted (user), 1 step",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stops", [False, True])
async def test_a_terminal_counts_the_seconds_of_what_runs(
    stops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    now = 100.0

    @tool(effect="read")
    async def slow(ctx: ToolContext) -> str:
        nonlocal now
        ctx.progress("half way")
        if stops:
            agent.cancel("user")
        for _ in range(2):
            now += 3
            running.tick()
        return "done"

    stream = Terminal()
    screen = Screen(stream)
    running = Running(screen, clock=lambda: now)
    async with Agent(ScriptedModel(calls("slow"), says("well")), tools=[slow]) as agent:
        agent.on.progress(running.progress)
        show_all(agent, [running.event])
        await agent.run("Go")
    drawn = [line for line in stream.getvalue().replace("\r\x1b[2K", "\n").splitlines() if line]
    waiting = [
        "stopping, waiting for slow (0 s)",
        "stopping, waiting for slow (3 s)",
        "stopping, waiting for slow (6 s)",
    ]
    assert drawn[:3] == waiting if stops else drawn == ["slow (3 s): half way", "slow (6 s): half way"]


async def test_a_terminal_says_that_the_model_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    now = 100.0

    def thinks(request: object) -> Answer:
        nonlocal now
        for _ in range(3):
            running.tick()
            now += 1
        return says("well")

    stream = Terminal()
    running = Running(Screen(stream), clock=lambda: now)
    async with Agent(ScriptedModel(thinks)) as agent:
        show_all(agent, [running.event])
        await agent.run("Go")
    assert stream.getvalue() == ("waiting for the model (1 s)\r\x1b[2Kwaiting for the model (2 s)\r\x1b[2K")
