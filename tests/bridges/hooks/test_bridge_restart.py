"""Hooks over a restart: a question that waits is asked of them again, a batch that was cut in two is told whole."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import Agent, ApprovalRequest, Approved, Ask, Status, ToolCall, tool
from interlock.bridges.hooks.verdict import Answer, PermissionAnswer
from interlock.log.facts import HookInvoked, SessionOpened
from interlock.testing import ScriptedModel, assert_laws, call, calls, says

from .scripted_hooks import Recorder, handler, hooked, unanswered

pytestmark = pytest.mark.virtual


@tool(concurrency="parallel")
async def write(name: str) -> str:
    return f"wrote {name}"


def sure(call: ToolCall) -> Ask | None:
    return Ask("sure?") if call.arguments["name"] == "ask" else None


async def nobody_yet(request: ApprovalRequest) -> Approved:
    await asyncio.Event().wait()
    return Approved()


async def left_waiting(store: BrittleStore, *handlers: Any, **events: Any) -> str:
    """A session whose turn waits for a person; its id."""
    wanted = calls(call("write", name="a"), call("write", name="ask"))
    agent = Agent(ScriptedModel(wanted), tools=[write], store=store, approver=nobody_yet)
    agent.on.pre_execute(sure)
    hooked(agent, *handlers, **events)
    seen = asyncio.Event()
    agent.on.status(lambda status: seen.set() if status is Status.WAITING else None)
    async with agent:
        agent.followup("go")
        await seen.wait()
    return agent.session.id


async def test_a_batch_over_a_restart_is_told_whole_and_the_question_is_put_to_hooks_again() -> None:
    store, before, batch = BrittleStore(), Recorder(), Recorder()
    session = await left_waiting(store, PermissionRequest=[before], PostToolBatch=[batch])
    assert (len(before.seen), batch.seen) == (1, [])

    yes = Recorder(lambda occurrence: Answer(decision=PermissionAnswer("allow")))
    agent = Agent(ScriptedModel(says("done")), tools=[write], store=store, session=session)
    agent.on.pre_execute(sure)
    hooked(agent, PermissionRequest=[yes], PostToolBatch=[batch])
    async with agent:
        await agent.idle()
        assert len(yes.seen) == 1
        [what] = batch.seen
        assert [one.response for one in what.calls] == ["wrote a", "wrote ask"]
        assert unanswered(agent) == []
        assert_laws(agent.session)


async def test_a_hook_that_runs_once_has_run_whatever_life_it_was() -> None:
    store, hook = BrittleStore(), Recorder()
    once = (handler("Stop", "once", once=True), hook)
    agent = Agent(ScriptedModel(says("a")), store=store)
    hooked(agent, once)
    async with agent:
        await agent.run("go")
    again = Agent(ScriptedModel(says("b")), store=store, session=agent.session.id)
    hooked(again, once)
    async with again:
        await again.run("go")
        assert len(hook.seen) == 1
        assert len(again.session.facts(SessionOpened)) == 2
        assert len(again.session.facts(HookInvoked)) == 1
