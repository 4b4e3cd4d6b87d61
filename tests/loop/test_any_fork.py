"""A fork of any log, at any closed turn: it is the session as it was at that moment, and goes on by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from interlock import Agent, Budget, MemoryStore, RetryPolicy, check
from interlock.log.event import Event
from interlock.log.facts import SessionCreated, SessionOpened, TurnEnd
from interlock.log.forking import fork_session
from interlock.log.session import Session
from interlock.log.state import State
from interlock.testing import ScriptedModel, assert_laws, run_virtual, says

from .test_any_program import (
    TOOLS,
    Driver,
    Listeners,
    Timed,
    approver,
    assert_balanced,
    assert_paired,
    listeners,
    people,
    programs,
    scripts,
    settle,
)


def state_of(events: Sequence[Event]) -> State:
    state = State()
    for event in events:
        state.apply(event)
    return state


def assert_is_what_it_was(fork: Session, parent: Sequence[Event], end: Event) -> None:
    """All of its parent but what was pending, and the one line that is its own."""
    assert_laws(fork)
    events = list(fork.events)
    created, opened = events[0].fact, events[end.seq + 1].fact
    assert isinstance(created, SessionCreated) and created.parent is not None
    assert created.parent.seq == end.seq
    assert events[1 : end.seq + 1] == list(parent[1 : end.seq + 1])
    assert isinstance(opened, SessionOpened) and opened.how == "fork"
    then, now = state_of(parent[: end.seq + 1]), fork.state
    assert now.turn is None
    assert (len(now.queues), now.queues.reserved) == (0, {})
    assert now.history.view() == then.history.view()
    assert now.history.digest == then.history.digest
    for name in ("turns", "header", "header_seq", "preset", "grants", "runtime", "approvals"):
        assert getattr(now, name) == getattr(then, name), name
    for name in ("steps", "requests", "tokens", "wall_ms"):
        assert getattr(now.tally, name) == getattr(then.tally, name), name


async def assert_goes_on(store: MemoryStore, session: str, at: int) -> str:
    """The next turn of a fork of a session at this turn; the id of the fork."""
    model = ScriptedModel(says("again"))
    async with Agent(model, tools=TOOLS, store=store, session=session, fork=at) as agent:
        result = await agent.run("and now?")
        assert (result.ok, result.turn, result.text) == (True, at + 1, "again")
        assert_paired(model.requests[0].messages)
        assert_laws(agent.session)
        assert_balanced(list(agent.session.events))
        return agent.session.id


async def forked_everywhere(
    program: list[tuple[Any, ...]],
    script: list[Any],
    said: tuple[list[str], list[str], list[str], list[str]],
    persons: list[str],
) -> None:
    store, model = MemoryStore(), Timed(script, 0.1)
    agent = Agent(
        model,
        tools=TOOLS,
        store=store,
        approver=approver(persons),
        retry=RetryPolicy(retries=1, base=0.5),
        budget=Budget(steps=12, forced=3),
        preset="full",
    )
    async with agent:
        Listeners(*said).register(agent)
        driver = Driver(agent)
        await driver.play(program)
        # Forked while it is driven: what is open, or pending, is not the fork's.
        if agent.session.facts(TurnEnd):
            await (await fork_session(agent.session.id, store=store)).close()
        await settle(agent)
        events, parent = list(agent.session.events), agent.session.id
    await driver.all_done()
    ends = [event for event in events if isinstance(event.fact, TurnEnd)]
    for end in ends:
        assert isinstance(end.fact, TurnEnd)
        fork = await fork_session(parent, store=store, at=end.fact.turn)
        assert_is_what_it_was(fork, events, end)
        await fork.close()
        grown = await assert_goes_on(store, fork.id, end.fact.turn)
        # A fork of the fork, at the turn that it has added and at the first one.
        again = await fork_session(grown, store=store)
        assert again.state.turns == end.fact.turn + 1
        assert_laws(again)
        await again.close()
        await assert_goes_on(store, again.id, 1)
    journal = await store.open(parent, readonly=True)
    assert list(journal.read())[: len(events)] == events, "a fork only reads its parent"
    assert check(journal.read()) == []


any_program = given(st.tuples(programs, scripts, listeners, people))
common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@settings(common, max_examples=examples(60))
@any_program
def test_a_fork_at_every_closed_turn_is_what_the_session_was_and_goes_on(drawn: Any) -> None:
    run_virtual(forked_everywhere(*drawn))


@pytest.mark.slow
@settings(common, max_examples=400)
@any_program
def test_the_same_of_many_more_programs(drawn: Any) -> None:
    run_virtual(forked_everywhere(*drawn))
