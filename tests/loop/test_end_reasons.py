"""Why turns and steps end, and which reason wins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, get_args

import pytest

from interlock import (
    Accept,
    Agent,
    Budget,
    Cause,
    Continue,
    EndReason,
    Enter,
    Event,
    MemoryStore,
    Proposal,
    Reject,
    RetryPolicy,
    Stopping,
    ToolContext,
    ToolError,
    open_session,
    tool,
)
from interlock.log.facts import (
    AssistantChunk,
    RequestFailed,
    SessionCreated,
    SessionOpened,
    StepEnd,
    ToolStarted,
    TurnEnd,
    TurnStart,
)
from interlock.log.reasons import (
    TURN_PRECEDENCE,
    Aborted,
    Blocked,
    Completed,
    Failed,
    Interrupted,
    MaxTokens,
    OverBudget,
    describe,
    kind_of,
)
from interlock.log.session import Session
from interlock.testing import (
    ScriptedModel,
    assert_laws,
    call,
    calls,
    cuts_off,
    fails,
    hangs,
    max_tokens,
    reasons,
    says,
)

from .story import lines, story

pytestmark = pytest.mark.virtual

ONCE = RetryPolicy(retries=0)


@tool(effect="read")
async def look() -> str:
    return "seen"


@tool(effect="read")
async def fail() -> str:
    raise ToolError("it is broken", code="BROKEN")


@tool(effect="read")
async def finish(ctx: ToolContext) -> str:
    ctx.conclude()
    return "finished"


def step_reasons(session: Session) -> list[str]:
    return [fact.reason for fact in session.facts(StepEnd)]


def steers(agent: Agent, text: str) -> Callable[[Event], None]:
    """An observer that steers at the end of the first step."""

    def observer(event: Event) -> None:
        if isinstance(event.fact, StepEnd) and (event.fact.turn, event.fact.step) == (1, 1):
            agent.steer(text)

    return observer


async def ended(agent: Agent, prompt: str = "go") -> EndReason:
    """Run a prompt; the reason, which is the same in the result and in the log."""
    result = await agent.run(prompt)
    last = agent.session.facts(TurnEnd)[-1]
    assert last.reason == result.reason
    assert last.steps == result.steps
    assert result.ok == isinstance(result.reason, Completed)
    assert_laws(agent.session)
    return result.reason


# One run a kind


async def test_a_plain_answer_completes_the_turn() -> None:
    """ER-01."""
    async with Agent(ScriptedModel(says("hi"))) as agent:
        assert await ended(agent) == Completed()
        assert step_reasons(agent.session) == ["completed"]


async def test_a_rejected_prompt_blocks_the_turn() -> None:
    """ER-01."""
    async with Agent(ScriptedModel()) as agent:
        agent.on.pre_step(lambda p: Reject("no"), name="doorman")
        assert await ended(agent) == Blocked("no", "doorman")


async def test_a_cut_off_answer_is_max_tokens() -> None:
    """ER-01, ST-07: its calls do not run."""
    async with Agent(ScriptedModel(max_tokens("so", call("look"))), tools=[look]) as agent:
        assert await ended(agent) == MaxTokens()
        assert step_reasons(agent.session) == ["max-tokens"]
        assert agent.session.facts(ToolStarted) == []


async def test_a_stop_aborts_the_turn() -> None:
    """ER-01."""
    async with Agent(ScriptedModel(hangs())) as agent:
        agent.on.observe(AssistantChunk)(lambda event: agent.cancel())
        agent.on.request(lambda settings: agent.cancel(Cause("user", by="ann")))
        assert await ended(agent) == Aborted(Cause("user", by="ann"))
        assert step_reasons(agent.session) == ["aborted"]


async def test_a_model_that_fails_ends_the_turn_with_its_facts() -> None:
    """ER-01, ER-03, RE-03."""
    model = ScriptedModel(fails("RATE_LIMIT", "slow down", status=429, retry_after=90))
    async with Agent(model) as agent:
        assert await ended(agent) == Failed("RATE_LIMIT", "slow down", status=429, retry_after_ms=90_000)
        assert step_reasons(agent.session) == ["error"]


async def test_a_stream_without_a_finish_is_a_failure() -> None:
    """D-10, UW-15."""
    async with Agent(ScriptedModel(cuts_off("half")), retry=ONCE) as agent:
        reason = await ended(agent)
        assert isinstance(reason, Failed)
        assert reason.code == "STREAM_CLOSED"


async def test_a_spent_budget_ends_the_turn_with_what_was_used() -> None:
    """ER-01."""
    model = ScriptedModel(calls("look"), calls("look"), calls("look"))
    async with Agent(model, tools=[look], budget=Budget(steps=2)) as agent:
        assert await ended(agent) == OverBudget("steps", 2, 2)
        assert step_reasons(agent.session) == ["tools", "tools"]


async def test_a_crash_leaves_an_interrupted_turn_and_only_repair_says_so() -> None:
    """ER-01."""
    store = MemoryStore()
    session = Session("s", await store.create("s"))
    session.append(SessionCreated("1.0", "s"), SessionOpened(1, "new"), TurnStart(1))
    await session.close()
    again = await open_session("s", store=store)
    (end,) = again.facts(TurnEnd)
    assert end.reason == Interrupted()
    assert_laws(again)


async def test_a_hook_that_stops_completes_the_turn_and_says_by_whom() -> None:
    """ER-01, HK-14."""
    async with Agent(ScriptedModel(calls("look")), tools=[look]) as agent:
        agent.on.post_execute(lambda call, result: Accept(stop=True))
        assert await ended(agent) == Completed(by="hook")
        assert step_reasons(agent.session) == ["hook-stopped"]


def test_every_kind_has_a_name_and_a_place_in_the_order() -> None:
    """ER-01, ER-02."""
    assert set(TURN_PRECEDENCE) == set(get_args(EndReason))
    samples: list[EndReason] = [
        Interrupted(),
        Aborted(Cause("user", reason="lunch")),
        Failed("AUTH", "no key"),
        OverBudget("steps", 2, 2),
        Blocked("no", "doorman"),
        MaxTokens(),
        Completed(),
    ]
    assert [type(sample) for sample in samples] == list(TURN_PRECEDENCE)
    assert [kind_of(sample) for sample in samples] == [
        "interrupted",
        "aborted",
        "error",
        "budget",
        "blocked",
        "max-tokens",
        "completed",
    ]
    assert [describe(sample) for sample in [*samples, Completed(by="hook")]] == [
        "interrupted",
        "aborted (user: lunch)",
        "error AUTH: no key",
        "budget (steps: 2 of 2)",
        "blocked by doorman: no",
        "max-tokens",
        "completed",
        "completed (stopped by a hook)",
    ]


# Precedence


def stop(proposal: Proposal) -> None:
    proposal.agent.cancel()


def stop_and_reject(proposal: Proposal) -> Reject:
    proposal.agent.cancel()
    return Reject("no")


def stop_and_fail(proposal: Proposal) -> None:
    proposal.agent.cancel()
    raise RuntimeError("no")


def second(listener: Callable[[Proposal], Any]) -> Callable[[Proposal], Any]:
    return lambda proposal: listener(proposal) if proposal.step == 2 else None


def reject(proposal: Proposal) -> Reject:
    return Reject("no")


def broken(proposal: Proposal) -> None:
    raise RuntimeError("no")


@pytest.mark.parametrize(
    ("listener", "kind"),
    [
        (stop, Aborted),
        (stop_and_reject, Aborted),
        (stop_and_fail, Aborted),
        (broken, Failed),
        (reject, Blocked),
        (lambda proposal: Enter(()), MaxTokens),
    ],
    ids=["stop", "stop and reject", "stop and exception", "exception", "reject", "nothing to enter"],
)
async def test_what_ends_a_turn_beats_an_earlier_max_tokens(listener: Any, kind: type) -> None:
    """ER-02: a second step is proposed after one that was cut off."""
    async with Agent(ScriptedModel(max_tokens("so"), says("never"))) as agent:
        agent.on.pre_step(second(listener))
        agent.on.observe(StepEnd)(steers(agent, "more"))
        assert type(await ended(agent)) is kind


async def test_a_spent_budget_beats_max_tokens() -> None:
    """ER-02, BU-04."""
    async with Agent(ScriptedModel(max_tokens("so")), budget=Budget(steps=1)) as agent:
        agent.on.observe(StepEnd)(steers(agent, "more"))
        assert await ended(agent) == OverBudget("steps", 1, 1)


async def test_a_stop_beats_a_spent_budget() -> None:
    """ER-02."""
    model = ScriptedModel(calls("look"))
    async with Agent(model, tools=[look], budget=Budget(steps=1)) as agent:
        agent.on.observe(StepEnd)(lambda event: agent.cancel())
        assert await ended(agent) == Aborted(Cause("user"))


async def test_a_stop_beats_a_failing_model() -> None:
    """ER-02: it came while the failure was dealt with."""
    async with Agent(ScriptedModel(fails("AUTH"))) as agent:
        agent.on.observe(RequestFailed)(lambda event: agent.cancel())
        assert await ended(agent) == Aborted(Cause("user"))


async def test_max_tokens_sticks_for_the_turn_and_what_is_owed_is_still_done() -> None:
    """ST-08, ST-09, UW-01: outcome and work are two things."""
    model = ScriptedModel(max_tokens("cut"), calls("look"), says("done"), says("fresh"))
    async with Agent(model, tools=[look]) as agent:
        agent.on.observe(StepEnd)(steers(agent, "go on"))
        agent.followup("go")
        await agent.idle()
        assert story(agent.session) == lines("""
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go AM"cut" SE 1.1 max-tokens
            +S[go on] CL 1.2 S[go on] SS 1.2 UM go on AM[c1] TC c1 ST c1 TR c1 ok SE 1.2 tools
            SS 1.3 AM"done" SE 1.3 completed TE 1 max-tokens
        """)
        assert await ended(agent, "again") == Completed()
    assert len(model.requests) == 4


# Payload


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class HalfSpoken(Exception):
    def __str__(self) -> str:
        return "\ud83d"


async def reason_of_raising(error: Exception) -> Failed:
    async with Agent(ScriptedModel()) as agent:

        @agent.on.pre_step
        def fail(proposal: Proposal) -> None:
            raise error

        reason = await ended(agent)
    assert isinstance(reason, Failed)
    return reason


async def test_an_exception_is_told_with_its_causes() -> None:
    """ER-03."""
    inner, outer = KeyError("column"), RuntimeError("no table")
    outer.__cause__ = inner
    assert await reason_of_raising(outer) == Failed(
        "UNKNOWN", "RuntimeError: no table; caused by KeyError: 'column'"
    )


async def test_an_exception_with_a_code_of_its_own_is_still_unknown() -> None:
    """ER-03: only the model's failures keep their facts."""
    error = RuntimeError("teapot")
    error.code = 418  # type: ignore[attr-defined]  # as many libraries do
    assert await reason_of_raising(error) == Failed("UNKNOWN", "RuntimeError: teapot")


@pytest.mark.parametrize("error", [Unspeakable(), HalfSpoken(), ExceptionGroup("many", [ValueError("one")])])
async def test_an_exception_that_cannot_be_told_still_gives_a_reason(error: Exception) -> None:
    """ER-03."""
    reason = await reason_of_raising(error)
    assert (reason.code, reason.message.split(":")[0]) == ("UNKNOWN", type(error).__name__)


async def test_an_exception_that_is_its_own_cause_ends() -> None:
    """ER-03."""
    error = RuntimeError("round")
    error.__cause__ = RuntimeError("and round")
    error.__cause__.__cause__ = error
    reason = await reason_of_raising(error)
    assert reason.message.startswith("RuntimeError: round; caused by RuntimeError: and round")


# Steps


@pytest.mark.parametrize(
    ("name", "reasons_of_steps"),
    [
        ("look", ["tools", "completed"]),
        ("fail", ["tools", "completed"]),
        ("unheard_of", ["tools", "completed"]),
        ("finish", ["concluded"]),
    ],
)
async def test_a_step_says_why_it_ended(name: str, reasons_of_steps: list[str]) -> None:
    """ER-04, UW-18: a tool's failure ends no step and no turn."""
    async with Agent(ScriptedModel(calls(name), says("ok")), tools=[look, fail, finish]) as agent:
        assert await ended(agent) == Completed()
        assert step_reasons(agent.session) == reasons_of_steps


async def test_a_batch_over_budget_ends_its_step_and_turn_so() -> None:
    """ER-04, BU-03."""
    model = ScriptedModel(calls("look", "look", "look"))
    async with Agent(model, tools=[look], budget=Budget(tool_calls=2)) as agent:
        assert await ended(agent) == OverBudget("tool_calls", 2, 2)
        assert step_reasons(agent.session) == ["budget"]
        assert story(agent.session).endswith(
            "TC' c3 TR c3 ERR[BUDGET_EXHAUSTED] SE 1.1 budget TE 1 budget{tool_calls}"
        )


async def test_an_answer_of_nothing_but_reasoning_completes() -> None:
    """ER-01: it has no text, and that is no error."""
    async with Agent(ScriptedModel(reasons("hm"))) as agent:
        result = await agent.run("go")
        assert (result.reason, result.text) == (Completed(), "")


# What a result shows


async def test_the_text_is_the_last_answer_and_of_a_stopped_batch_the_result_that_stopped() -> None:
    """HK-14."""
    async with Agent(ScriptedModel(calls("look", saying="let me see"), says("done")), tools=[look]) as agent:
        assert (await agent.run("go")).text == "done"
    async with Agent(ScriptedModel(calls("look", "look", saying="let me see")), tools=[look]) as agent:
        agent.on.post_execute(lambda call, result: Accept(stop=True))
        assert (await agent.run("go")).text == "seen"


async def test_usage_and_steps_are_those_of_the_turn() -> None:
    async with Agent(
        ScriptedModel(calls("look", usage=(10, 2)), says("a", usage=(20, 3)), says("b", usage=(1, 1))),
        tools=[look],
    ) as agent:
        first, second_ = await agent.run("a"), await agent.run("b")
    assert [(r.usage.input, r.usage.output, r.steps, r.turn) for r in (first, second_)] == [
        (30, 5, 2, 1),
        (1, 1, 1, 2),
    ]


async def test_turn_stopping_after_max_tokens_sees_the_answer() -> None:
    """ER-02, TL-12: the turn stays max-tokens although it went on."""
    async with Agent(ScriptedModel(max_tokens("cut"), says("rest"))) as agent:

        @agent.on.turn_stopping
        def go_on(stopping: Stopping) -> Continue | None:
            return Continue("go on") if stopping.step == 1 else None

        assert await ended(agent) == MaxTokens()
        assert step_reasons(agent.session) == ["max-tokens", "completed"]


async def test_two_agents_do_not_share_an_end() -> None:
    """Each turn has its own reason, also when they run at once."""
    async with Agent(ScriptedModel(hangs())) as one, Agent(ScriptedModel(says("ok"))) as other:
        first = asyncio.ensure_future(one.run("a"))
        assert await ended(other) == Completed()
        one.cancel("parent")
        assert (await first).reason == Aborted(Cause("parent"))
