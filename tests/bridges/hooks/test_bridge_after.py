"""What hooks are told after the fact, and that leaving the session waits for them."""

from __future__ import annotations

import asyncio

import pytest

from interlock import Agent, RetryPolicy
from interlock.bridges.hooks import event as happening
from interlock.bridges.hooks.after import IDLE
from interlock.bridges.hooks.event import Occurrence
from interlock.bridges.hooks.session import LAST
from interlock.log.facts import ObserverFailed
from interlock.testing import ScriptedModel, assert_laws, fails, hangs, says

from .scripted_hooks import Recorder, hooked, told, unanswered

pytestmark = pytest.mark.virtual


async def test_a_turn_that_ends_with_an_error_is_told_with_its_kind() -> None:
    hook = Recorder()
    agent = Agent(ScriptedModel(fails("RATE_LIMIT", "slow down")), retry=RetryPolicy(retries=0))
    hooked(agent, StopFailure=[hook])
    async with agent:
        await agent.run("go")
    assert hook.seen == [
        happening.StopFailure(error="rate_limit", details="RATE_LIMIT", last_assistant_message="slow down")
    ]


async def test_the_end_of_work_and_a_minute_of_waiting_are_notified() -> None:
    notice = Recorder()
    agent = Agent(ScriptedModel(says("a"), says("b")))
    hooked(agent, Notification=[notice])
    async with agent:
        await agent.run("go")
        await asyncio.sleep(IDLE - 1)
        await agent.run("again")
        await asyncio.sleep(IDLE + 1)
        assert_laws(agent.session)
    kinds = [what.notification_type for what in notice.seen]
    assert kinds == ["agent_completed", "agent_completed", "idle_prompt"]


async def test_a_stopped_turn_has_completed_nothing() -> None:
    notice = Recorder()
    agent = Agent(ScriptedModel(hangs("…")))
    hooked(agent, Notification=[notice])
    async with agent:
        agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await agent.idle()
    assert notice.seen == []


async def test_leaving_waits_for_what_was_begun_and_tells_the_end() -> None:
    done: list[str] = []

    async def slow(occurrence: Occurrence) -> None:
        await asyncio.sleep(3)
        done.append(occurrence.event)

    end = Recorder()
    agent = Agent(ScriptedModel(says("a")))
    hooked(agent, Notification=[slow], SessionEnd=[end])
    async with agent:
        await agent.run("go")
    assert done == ["Notification"]
    assert end.seen == [happening.SessionEnd(reason="other")]
    assert unanswered(agent) == []
    assert_laws(agent.session)


async def test_what_takes_too_long_is_ended_and_the_session_is_left() -> None:
    async def endless(occurrence: Occurrence) -> None:
        await asyncio.Event().wait()

    agent = Agent(ScriptedModel(says("a")))
    hooked(agent, Notification=[endless])
    async with agent:
        await agent.run("go")
    assert asyncio.get_running_loop().time() <= LAST + 1
    assert (told(agent), unanswered(agent)) == (["! Notification-1 {}"], [])


async def test_one_that_fails_is_on_record_and_harms_nobody() -> None:
    def fail(occurrence: Occurrence) -> None:
        raise OSError("it is gone")

    agent = Agent(ScriptedModel(says("a")))
    hooked(agent, Notification=[fail], SessionEnd=[fail])
    async with agent:
        assert (await agent.run("go")).ok
    assert sorted(told(agent)) == ["! Notification-1 {}", "! SessionEnd-1 {}"]
    assert agent.session.facts(ObserverFailed) == []


async def test_two_agents_of_one_harness_have_hooks_of_their_own() -> None:
    from interlock import Harness

    start = Recorder()
    async with Harness() as harness:
        hooked(harness, SessionStart=[start])
        async with harness.agent(ScriptedModel(says("a"))), harness.agent(ScriptedModel(says("b"))):
            pass
    assert len(start.seen) == 2
