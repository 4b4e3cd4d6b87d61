"""An agent that goes on with a session: what stays parked, what runs at once, and what a fork begins with."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import Agent, ConfigError, MemoryStore, Status, UnknownSession, UsageError
from interlock.log.facts import SessionOpened, TurnStart
from interlock.testing import ScriptedModel, assert_laws, outline, says

pytestmark = pytest.mark.virtual


async def left_with(store: MemoryStore, *pending: str) -> str:
    """A session of one turn, with messages that nobody has run."""
    async with Agent(ScriptedModel(says("one")), store=store) as agent:
        await agent.run("first")
        for message in pending:
            agent.send(message, to="turn", wake=False)
        return agent.session.id


async def test_what_was_pending_stays_parked_until_somebody_wakes_it() -> None:
    """IN-10, IN-11."""
    store = MemoryStore()
    session = await left_with(store, "x", "y")
    async with Agent(ScriptedModel(says("to x"), says("to y")), store=store, session=session) as agent:
        await agent.idle()
        assert [message.text for message in agent.inbox.next_turn] == ["x", "y"]
        assert len(agent.session.facts(TurnStart)) == 1
        agent.wake()
        await agent.idle()
        assert (len(agent.inbox), len(agent.session.facts(TurnStart))) == (0, 3)
        assert_laws(agent.session)


async def test_resume_pending_runs_it_at_once() -> None:
    """IN-11, the option."""
    store = MemoryStore()
    session = await left_with(store, "x", "y")
    model = ScriptedModel(says("to x"), says("to y"))
    async with Agent(model, store=store, session=session, resume_pending=True) as agent:
        assert agent.status is Status.RUNNING
        await agent.idle()
        assert agent.last_result is not None and agent.last_result.text == "to y"
        assert_laws(agent.session)


async def test_with_nothing_pending_the_option_changes_nothing() -> None:
    store = MemoryStore()
    session = await left_with(store)
    async with Agent(ScriptedModel(), store=store, session=session, resume_pending=True) as agent:
        assert agent.status is Status.IDLE
    async with Agent(ScriptedModel(), store=store, resume_pending=True) as agent:
        assert agent.status is Status.IDLE


async def test_a_fork_goes_on_with_the_next_turn_and_without_what_was_pending() -> None:
    """IN-10, TL-03."""
    store, heard = MemoryStore(), list[str]()
    session = await left_with(store, "x")
    agent = Agent(ScriptedModel(says("two")), store=store, session=session, fork="last", resume_pending=True)
    agent.on.session_start(lambda start: heard.append(start.how))
    async with agent:
        assert (agent.status, len(agent.inbox), heard) == (Status.IDLE, 0, ["fork"])
        result = await agent.run("second")
        assert (result.turn, agent.session.id != session) == (2, True)
        assert [opened.how for opened in agent.session.facts(SessionOpened)] == ["new", "fork"]
        assert outline(agent.session, "user/message", "assistant/message") == [
            "user/message first",
            "assistant/message one",
            "user/message second",
            "assistant/message two",
        ]
        assert_laws(agent.session)


async def test_a_fork_is_resumed_like_any_session() -> None:
    store = MemoryStore()
    session = await left_with(store)
    async with Agent(ScriptedModel(), store=store, session=session, fork=1) as agent:
        agent.inject("of the fork")
        fork = agent.session.id
    async with Agent(ScriptedModel(says("two")), store=store, session=fork) as agent:
        assert [message.text for message in agent.inbox.next_step] == ["of the fork"], "its own is kept"
        assert (await agent.run("second")).turn == 2
        assert_laws(agent.session)


@pytest.mark.parametrize("fork", [True, "first", 1.0])
async def test_a_fork_is_at_a_turn_or_the_last(fork: Any) -> None:
    with pytest.raises(ConfigError, match="number of a turn"):
        Agent(ScriptedModel(), session="s", fork=fork)


async def test_a_fork_needs_a_session_and_a_turn_of_it() -> None:
    with pytest.raises(ConfigError, match="needs session="):
        Agent(ScriptedModel(), fork=1)
    store = MemoryStore()
    session = await left_with(store)
    with pytest.raises(UsageError, match="closed turns are 1"):
        await Agent(ScriptedModel(), store=store, session=session, fork=2).open()
    with pytest.raises(UnknownSession):
        await Agent(ScriptedModel(), store=store, session="nobody", fork=1).open()
