"""Calls that a crash has cut in a step which waits for a person, and that are to run again: READ and IDEMPOTENT ones."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock import Agent, Ask, ConfigError, Deny, ToolCall, tool
from interlock.log.event import Event
from interlock.log.facts import SubcallStart, ToolCalled, ToolDecided, ToolResulted, ToolStarted
from interlock.log.session import open_session
from interlock.loop.pending import answer_pending
from interlock.testing import ScriptedModel, assert_laws, call, calls, run_virtual, says
from interlock.tools.approval import Answered

from .test_any_lives import (
    YES,
    People,
    Wanted,
    batches,
    cuts,
    live,
    people,
    rule,
    state_of,
    store_of,
    tools,
)
from .test_any_program import assert_answered

# Any batch, cut anywhere


async def again(events: Sequence[Event], redo: Any) -> tuple[list[Event], list[str]]:
    """The last life from this log on, in which everybody says yes; and whose bodies were invoked."""
    ran: list[str] = []
    model, store = ScriptedModel(*[says("done")] * 9), await store_of(events)
    agent = Agent(model, tools=tools(ran), store=store, session="s", redo=redo, pool=2)
    agent.approvals = People(*YES)  # type: ignore[assignment]  # as good as the original
    agent.on.pre_execute(rule)
    async with agent:
        await agent.idle()
        assert_laws(agent.session)
        return list(agent.session.events), ran


def cut_short(events: Sequence[Event], redo: str) -> dict[int, str]:
    """The calls, by seq, that may run again, with their names."""
    state = state_of(events)
    if not state.waiting or state.step is None:
        return {}
    return {
        one.seq: f"n{one.index}"
        for one in state.step.calls
        if one.running
        and one.approval is None
        and (one.effect == "read" or one.effect == redo)
        and not any(isinstance(e.fact, SubcallStart) and e.fact.outer == one.seq for e in events)
    }


async def at_every_line(batch: list[Wanted], who: tuple[list[str], list[int]], redo: str) -> None:
    events = await live(None, batch, People(*who), reviewed=False)
    for at in cuts(events, 2):
        before = events[:at]
        expected = cut_short(before, redo)
        after, ran = await again(before, redo)
        assert state_of(after).turn is None
        assert_answered(after)
        runs = Counter(e.fact.call for e in after if isinstance(e.fact, ToolStarted))
        assert {seq for seq, n in runs.items() if n > 1} == set(expected)
        assert set(expected.values()) <= set(ran)
        results = {e.fact.call: e.fact for e in after if isinstance(e.fact, ToolResulted)}
        assert all(results[seq].error is None for seq in expected)


@pytest.mark.slow
@settings(deadline=None, max_examples=10, suppress_health_check=[HealthCheck.too_slow])
@given(st.tuples(batches, people, st.sampled_from(["read", "idempotent"])))
def test_what_only_reads_runs_again_and_nothing_else_does(drawn: Any) -> None:
    run_virtual(at_every_line(*drawn))


# One step that waits, with a call that was cut


def pair(ran: list[str], effect: Any = "read") -> list[Any]:
    @tool(effect=effect, concurrency="parallel")
    async def slow(name: str = "slow") -> str:
        ran.append(name)
        await asyncio.sleep(60 if len(ran) == 1 else 0)
        return f"did {name}"

    @tool(effect="write", concurrency="parallel")
    async def risky() -> str:
        return "done"

    return [slow, risky]


def asks(call: ToolCall) -> Ask | None:
    return Ask("may it?") if call.name == "risky" else None


async def cut(effect: Any = "read") -> tuple[list[Event], list[str]]:
    """A log that ends while `slow` runs and `risky` waits for a person."""
    ran: list[str] = []
    model = ScriptedModel(calls(call("slow"), call("risky")))
    agent = Agent(model, tools=pair(ran, effect))
    agent.approvals = People(["never"], [0])  # type: ignore[assignment]
    agent.on.pre_execute(asks)
    async with agent:
        agent.followup("go")
        await asyncio.sleep(1)
        return list(agent.session.events), ran


async def resumed(
    events: list[Event], ran: list[str], redo: Any, effect: Any = "read", **more: Any
) -> list[Event]:
    store = await store_of(events)
    agent = Agent(
        ScriptedModel(says("done")), tools=pair(ran, effect), store=store, session="s", redo=redo, **more
    )
    agent.approvals = People(*YES)  # type: ignore[assignment]
    agent.on.pre_execute(asks)
    async with agent:
        await agent.idle()
        assert_laws(agent.session)
        return list(agent.session.events)


def result(events: Sequence[Event], name: str = "slow") -> ToolResulted:
    (seq,) = [e.seq for e in events if isinstance(e.fact, ToolCalled) and e.fact.name == name]
    (found,) = [e.fact for e in events if isinstance(e.fact, ToolResulted) and e.fact.call == seq]
    return found


def starts(events: Sequence[Event], name: str = "slow") -> list[int]:
    (seq,) = [e.seq for e in events if isinstance(e.fact, ToolCalled) and e.fact.name == name]
    return [e.fact.run for e in events if isinstance(e.fact, ToolStarted) and e.fact.call == seq]


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("effect", "redo", "runs"),
    [
        ("read", None, [1]),
        ("read", "read", [1, 2]),
        ("read", "idempotent", [1, 2]),
        ("idempotent", None, [1]),
        ("idempotent", "read", [1]),
        ("idempotent", "idempotent", [1, 2]),
        ("write", "idempotent", [1]),
    ],
)
async def test_only_as_configured_and_never_what_writes(effect: Any, redo: Any, runs: list[int]) -> None:
    events, ran = await cut(effect)
    after = await resumed(events, ran, redo, effect)
    assert (starts(after), len(ran)) == (runs, len(runs))
    error = result(after).error
    assert error is None if len(runs) > 1 else error is not None and error.code == "TOOL_OUTCOME_UNKNOWN"
    assert result(after, "risky").error is None


@pytest.mark.virtual
async def test_rules_and_guards_of_this_life_are_heard_and_a_no_is_not_told_as_a_denial() -> None:
    """Three outcomes are never confused: it has run, so that it was not denied; what it did is not known."""
    events, ran = await cut()
    for by in ("rule", "guard"):
        store = await store_of(events)
        agent = Agent(ScriptedModel(says("done")), tools=pair(ran), store=store, session="s", redo="read")
        agent.approvals = People(*YES)  # type: ignore[assignment]
        no = lambda call: Deny("not any more") if call.name == "slow" else None  # noqa: E731
        if by == "rule":
            agent.on.pre_execute(no)
        else:
            agent.guard(no)
        async with agent:
            await agent.idle()
            assert_laws(agent.session)
            after = list(agent.session.events)
        error = result(after).error
        assert error is not None
        assert (error.code, error.handler_executed) == ("TOOL_OUTCOME_UNKNOWN", True)
        assert (starts(after), len(ran)) == ([1], 1)
        assert "not any more" in [e.fact.reason for e in after if isinstance(e.fact, ToolDecided)]


@pytest.mark.virtual
async def test_a_tool_that_has_another_effect_by_now_does_not_run_again() -> None:
    events, ran = await cut("read")
    after = await resumed(events, ran, "idempotent", "write")
    error = result(after).error
    assert error is not None and error.code == "TOOL_OUTCOME_UNKNOWN"
    assert len(ran) == 1


@pytest.mark.virtual
async def test_an_answer_from_outside_leaves_it_to_the_next_life() -> None:
    events, ran = await cut()
    store = await store_of(events)
    (approval,) = state_of(events).approvals.values()
    await answer_pending("s", approval.id, Answered("allowed-once", by="ada", how="api"), store=store)
    answered = list((await open_session("s", store=store, readonly=True)).events)
    assert starts(await resumed(answered, ran, "read")) == [1, 2]
    assert starts(await resumed(answered, ran, None)) == [1]


def test_nothing_else_can_be_configured() -> None:
    with pytest.raises(ConfigError, match="'read' or 'idempotent'"):
        Agent(ScriptedModel(), redo="write")  # type: ignore[arg-type]
