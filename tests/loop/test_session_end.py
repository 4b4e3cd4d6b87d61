"""agent/session-end: awaited before the log is closed, and it can still write."""

from __future__ import annotations

import asyncio

from interlock import Agent, Harness, MemoryStore, SessionEnd
from interlock.log.facts import HookProblem, ObserverFailed
from interlock.log.session import open_session
from interlock.testing import ScriptedModel, assert_laws, hangs, says


async def test_it_is_awaited_when_nothing_runs_any_more_and_its_lines_are_kept() -> None:
    store = MemoryStore()
    heard: list[object] = []

    async def bye(end: SessionEnd) -> None:
        await asyncio.sleep(0)
        heard.append(end.agent.session.open)
        end.agent.session.append(HookProblem("-", "said at the end"))

    async with Agent(ScriptedModel(hangs("…")), store=store) as agent:
        agent.on.session_end(bye)
        agent.followup("go")
        await asyncio.sleep(0)
    assert heard == [False]
    session = await open_session(agent.session.id, store=store, readonly=True)
    assert [fact.what for fact in session.facts(HookProblem)] == ["said at the end"]
    assert_laws(session)


async def test_it_is_heard_once_and_outer_scopes_first() -> None:
    order: list[str] = []
    async with Harness() as harness:
        harness.on.session_end(lambda end: order.append("harness"))
        agent = harness.agent(ScriptedModel(says("x")))
        agent.on.session_end(lambda end: order.append("agent"))
        await agent.open()
        await agent.aclose()
        await agent.aclose()
    assert order == ["harness", "agent"]


async def test_one_that_fails_or_is_too_slow_is_contained_and_the_agent_is_closed() -> None:
    def fail(end: SessionEnd) -> None:
        raise ValueError("a bug")

    async def slow(end: SessionEnd) -> None:
        await asyncio.Event().wait()

    async with Agent(ScriptedModel(says("x"))) as agent:
        agent.on.session_end(fail)
        agent.on.session_end(slow, timeout=0.01)
    assert agent.session.closed
    assert [fact.point for fact in agent.session.facts(ObserverFailed)] == ["agent/session-end"] * 2


async def test_it_is_not_heard_of_an_agent_that_was_never_opened() -> None:
    heard: list[object] = []
    agent = Agent(ScriptedModel(says("x")))
    agent.on.session_end(heard.append)
    await agent.aclose()
    assert heard == []
