"""Recovery: who may send a failed request again, how often, after how long, and what the log says of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest

from interlock import (
    Agent,
    Attempt,
    GiveUp,
    Harness,
    ModelFailure,
    Retry,
    RetryPolicy,
    Settings,
    Signal,
    tool,
)
from interlock.log.facts import (
    AssistantMessage,
    DecisionMade,
    RequestFailed,
    RequestHeader,
    RequestSent,
    RetryScheduled,
    RetryStarted,
    Said,
    StepEnd,
    StepStart,
    TurnEnd,
)
from interlock.log.reasons import Aborted, Failed, OverBudget
from interlock.models import Chunk, ModelRequest
from interlock.models.registry import register_provider
from interlock.testing import Gate, ScriptedModel, assert_laws, calls, fails, gated, outline, says

AT_ONCE = RetryPolicy(base=0)


class Named(ScriptedModel):
    """A scripted model of some provider, with a policy of its own."""

    def __init__(self, provider: str, *answers: Any, retry: RetryPolicy | None = None) -> None:
        super().__init__(*answers, name=f"{provider}-1")
        self.provider = provider
        self.retry = retry
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


def delays(agent: Agent) -> list[int]:
    return [retry.delay_ms for retry in agent.session.facts(RetryScheduled)]


# The same step


async def test_a_retry_stays_in_its_step_and_every_attempt_has_its_own_line() -> None:
    """RE-02, D-11, A-P11"""
    model = ScriptedModel(fails("SERVER", after="x"), fails("SERVER"), says("ok"))
    async with Agent(model, retry=AT_ONCE) as agent:
        result = await agent.run("go")

        assert result.text == "ok"
        assert outline(
            agent.session, "step/start", "request/sent", "request/failed", "assistant/message", "step/end"
        ) == [
            "step/start",
            "request/sent",
            "request/failed SERVER the script fails here",
            "request/sent",
            "request/failed SERVER the script fails here",
            "request/sent",
            "assistant/message ok",
            "step/end completed",
        ]
        sent = agent.session.facts(RequestSent)
        assert [fact.attempt for fact in sent] == [1, 2, 3]
        assert len({fact.digest for fact in sent}) == 1  # the very same request
        assert len(agent.session.facts(RequestHeader)) == 1
        assert [list(request.messages) for request in model.requests] == [
            list(model.requests[0].messages)
        ] * 3
        assert_laws(agent.session)


async def test_settings_are_asked_again_for_each_attempt_and_a_change_is_a_new_header() -> None:
    """RE-02"""
    model = ScriptedModel(fails("SERVER"), says("ok"))
    async with Agent(model, retry=AT_ONCE) as agent:
        agent.on.request(lambda asked: Settings(temperature=0.5) if asked.attempt > 1 else None)
        await agent.run("go")

        assert [dict(request.settings) for request in model.requests] == [{}, {"temperature": 0.5}]
        assert [header.why for header in agent.session.facts(RequestHeader)] == ["initial", "change"]
        first, second = agent.session.facts(RequestSent)
        assert first.header != second.header
        assert first.digest != second.digest
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_what_is_steered_during_the_wait_belongs_to_the_next_step() -> None:
    """IN-12, RE-02"""
    model = ScriptedModel(fails("SERVER"), says("ok"), says("seen"))
    async with Agent(model) as agent:
        running = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(0.1)
        agent.steer("meanwhile")
        result = await running

        assert [request.messages[-1].text for request in model.requests] == ["go", "go", "meanwhile"]
        assert result.steps == 2
        assert_laws(agent.session)


async def test_an_unrecovered_failure_ends_the_turn_with_the_providers_facts() -> None:
    """RE-03, ER-03, A-P36: what is queued stays, and is parked."""
    gate = Gate()
    model = ScriptedModel(
        gated(gate, fails("RATE_LIMIT", "slow down", status=429, retry_after=60)), says("later")
    )
    async with Agent(model, retry=RetryPolicy(retries=0)) as agent:
        running = asyncio.create_task(agent.run("go"))
        await gate.reached
        agent.followup("next")
        gate.open()
        result = await running
        await agent.idle()

        assert result.reason == Failed("RATE_LIMIT", "slow down", status=429, retry_after_ms=60_000)
        assert [message.text for message in agent.inbox.next_turn] == ["next"]
        assert outline(agent.session, "step/end", "turn/end") == [
            "step/end error",
            "turn/end error RATE_LIMIT: slow down",
        ]
        assert_laws(agent.session)


async def test_an_adapter_that_says_aborted_without_our_stop_has_failed() -> None:
    """RE-03"""
    async with Agent(ScriptedModel(fails("ABORTED", "the server hung up"))) as agent:
        result = await agent.run("go")

        assert result.reason == Failed("ABORTED", "the server hung up")
        assert_laws(agent.session)


# Listeners


async def test_a_listener_hears_the_failure_and_which_attempt_it_was() -> None:
    """RE-02"""
    heard: list[tuple[Any, ...]] = []
    model = ScriptedModel(fails("BAD_REQUEST", "no", status=400, retry_after=1.5), fails("AUTH"))
    async with Agent(model) as agent:

        @agent.on.request_error
        async def note(failure: ModelFailure, attempt: Attempt) -> Retry | None:
            signal: Signal = attempt.signal
            where = (attempt.turn, attempt.step, attempt.number, attempt.provider)
            heard.append((failure.code, failure.status, failure.retry_after, where, signal.is_set()))
            return Retry() if failure.code == "BAD_REQUEST" else None

        await agent.run("go")

        assert heard == [
            ("BAD_REQUEST", 400, 1.5, (1, 1, 1, "scripted"), False),
            ("AUTH", None, None, (1, 1, 2, "scripted"), False),
        ]
        assert_laws(agent.session)


async def test_the_first_listener_that_answers_owns_the_recovery() -> None:
    """D-7, RE-02: later ones are not asked, and the decision is on record."""
    asked: list[str] = []

    def listener(name: str, answer: Any) -> Any:
        def listen(failure: ModelFailure, attempt: Attempt) -> Any:
            asked.append(name)
            return answer

        return listen

    async with Agent(ScriptedModel(fails("AUTH"), says("ok"))) as agent:
        agent.on.request_error(listener("abstains", None), name="abstains")
        agent.on.request_error(listener("retries", Retry()), name="retries")
        agent.on.request_error(listener("gives up", GiveUp()), name="gives up")
        await agent.run("go")

        assert asked == ["abstains", "retries"]
        (decided,) = agent.session.facts(DecisionMade)
        assert (decided.point, decided.answer, decided.by) == ("agent/request-error", "retry", "retries")
        assert decided.said == (Said("retries", "retry", "AUTH"),)
        assert agent.session.events[decided.subject].type == "request/sent"
        assert_laws(agent.session)


async def test_giving_up_beats_the_policy() -> None:
    """D-7"""
    async with Agent(ScriptedModel(fails("SERVER"), says("never")), retry=AT_ONCE) as agent:
        agent.on.request_error(lambda failure, attempt: GiveUp())
        result = await agent.run("go")

        assert result.reason == Failed("SERVER", "the script fails here")
        assert not agent.session.facts(RetryScheduled)
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_listener_says_how_long_to_wait() -> None:
    """RE-02, RE-07"""
    async with Agent(ScriptedModel(fails("AUTH"), fails("AUTH"), says("ok"))) as agent:
        agent.on.request_error(lambda failure, attempt: Retry(after=attempt.number * 2.5))
        began = asyncio.get_running_loop().time()
        await agent.run("go")

        assert asyncio.get_running_loop().time() - began == 7.5
        assert [(r.mode, r.n, r.delay_ms, r.max) for r in agent.session.facts(RetryScheduled)] == [
            ("listener", 1, 2500, None),
            ("listener", 2, 5000, None),
        ]
        assert_laws(agent.session)


async def test_a_stop_beats_a_retry() -> None:
    """RE-04"""
    model = ScriptedModel(fails("SERVER"), says("never"))
    async with Agent(model) as agent:

        @agent.on.request_error
        def stops_and_retries(failure: ModelFailure, attempt: Attempt) -> Retry:
            agent.cancel("hook")
            return Retry()

        result = await agent.run("go")

        assert isinstance(result.reason, Aborted)
        assert result.reason.cause.kind == "hook"
        assert len(model.requests) == 1
        assert not agent.session.facts(RetryScheduled)
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_stop_cuts_a_listener_that_waits() -> None:
    """RE-04, CA-13"""
    async with Agent(ScriptedModel(fails("SERVER"))) as agent:

        @agent.on.request_error
        async def waits(failure: ModelFailure, attempt: Attempt) -> Retry:
            await asyncio.sleep(3600)
            return Retry()

        running = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(1)
        agent.cancel()
        result = await running

        assert isinstance(result.reason, Aborted)
        assert asyncio.get_running_loop().time() == 1
        assert_laws(agent.session)


async def test_a_listener_that_raises_ends_the_turn_and_the_failure_stays_on_record() -> None:
    """RE-04, D-14"""
    async with Agent(ScriptedModel(fails("SERVER"), says("never")), retry=AT_ONCE) as agent:

        @agent.on.request_error
        def breaks(failure: ModelFailure, attempt: Attempt) -> None:
            raise LookupError("no plan")

        result = await agent.run("go")

        assert result.reason == Failed("UNKNOWN", "LookupError: no plan")
        assert [fact.failure.code for fact in agent.session.facts(RequestFailed)] == ["SERVER"]
        assert_laws(agent.session)


# The policy


@pytest.mark.virtual
async def test_the_default_policy_repeats_what_is_transient_five_times_and_doubles_its_wait() -> None:
    """RE-05"""
    model = ScriptedModel(*[fails("SERVER") for _ in range(6)], says("never"))
    async with Agent(model, rng=Random(1)) as agent:
        result = await agent.run("go")

        assert result.reason == Failed("SERVER", "the script fails here")
        assert [(r.mode, r.policy_key, r.n, r.max) for r in agent.session.facts(RetryScheduled)] == [
            ("normal", "policy", n, 5) for n in range(1, 6)
        ]
        for planned, waited in zip((500, 1000, 2000, 4000, 8000), delays(agent), strict=True):
            assert 0.9 * planned <= waited <= 1.1 * planned
        assert delays(agent) != [500, 1000, 2000, 4000, 8000]  # it jitters
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_the_wait_is_capped_jitter_included() -> None:
    """RE-05"""
    policy = RetryPolicy(retries=4, base=4, cap=10)
    async with Agent(ScriptedModel(*[fails("TIMEOUT")] * 5), retry=policy, rng=Random(2)) as agent:
        await agent.run("go")

        assert max(delays(agent)) <= 10_000
        assert_laws(agent.session)


@pytest.mark.parametrize(
    "code", ["EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT", "STREAM_CLOSED"]
)
async def test_transient_failures_are_repeated(code: str) -> None:
    """RE-05, D-10"""
    async with Agent(ScriptedModel(fails(code), says("ok")), retry=AT_ONCE) as agent:
        assert (await agent.run("go")).ok
        assert_laws(agent.session)


@pytest.mark.parametrize(
    "code", ["AUTH", "BAD_REQUEST", "NOT_FOUND", "CONTEXT_LENGTH", "MALFORMED", "UNKNOWN"]
)
async def test_other_failures_are_not(code: str) -> None:
    """RE-05"""
    async with Agent(ScriptedModel(fails(code), says("never")), retry=AT_ONCE) as agent:
        result = await agent.run("go")

        assert result.reason == Failed(code, "the script fails here")
        assert_laws(agent.session)


async def test_when_the_retries_are_used_up_the_last_failure_is_the_reason() -> None:
    """RE-05: three failures, a budget of two."""
    model = ScriptedModel(fails("SERVER", "one"), fails("SERVER", "two"), fails("SERVER", "three"))
    async with Agent(model, retry=RetryPolicy(retries=2, base=0)) as agent:
        result = await agent.run("go")

        assert [r.n for r in agent.session.facts(RetryScheduled)] == [1, 2]
        assert result.reason == Failed("SERVER", "three")
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_wait_that_the_provider_asks_for_is_kept_to_the_letter() -> None:
    """RE-05"""
    async with Agent(ScriptedModel(fails("RATE_LIMIT", retry_after=7.25), says("ok"))) as agent:
        await agent.run("go")

        assert delays(agent) == [7250]
        assert asyncio.get_running_loop().time() == 7.25
        assert_laws(agent.session)


async def test_a_wait_beyond_the_cap_is_not_waited_for() -> None:
    """RE-05"""
    async with Agent(ScriptedModel(fails("RATE_LIMIT", retry_after=3600), says("never"))) as agent:
        result = await agent.run("go")

        assert result.reason == Failed("RATE_LIMIT", "the script fails here", retry_after_ms=3_600_000)
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_an_endless_policy_repeats_anything_and_falls_back_to_its_own_wait() -> None:
    """RE-06"""
    policy = RetryPolicy(retries=None, codes="all", base=1, cap=3, jitter=0)
    model = ScriptedModel(*[fails("AUTH", retry_after=3600)] * 4, says("ok"))
    async with Agent(model, retry=policy) as agent:
        result = await agent.run("go")

        assert result.ok
        assert [(r.mode, r.delay_ms, r.max) for r in agent.session.facts(RetryScheduled)] == [
            ("always", 1000, None),
            ("always", 2000, None),
            ("always", 3000, None),
            ("always", 3000, None),
        ]
        assert_laws(agent.session)


async def test_listeners_are_asked_before_an_endless_policy() -> None:
    """RE-06"""
    policy = RetryPolicy(retries=None, codes="all", base=0)
    async with Agent(ScriptedModel(fails("AUTH"), fails("AUTH"), says("never")), retry=policy) as agent:
        agent.on.request_error(lambda failure, attempt: GiveUp() if attempt.number == 2 else None)
        result = await agent.run("go")

        assert result.reason == Failed("AUTH", "the script fails here")
        assert [r.mode for r in agent.session.facts(RetryScheduled)] == ["always"]
        assert_laws(agent.session)


# The records


@pytest.mark.virtual
async def test_a_wait_is_on_record_before_it_begins_and_when_it_is_over() -> None:
    """RE-07"""
    seen: list[tuple[str, float]] = []
    async with Agent(
        ScriptedModel(fails("SERVER"), says("ok")), retry=RetryPolicy(base=2, jitter=0)
    ) as agent:
        agent.on.observe(RetryScheduled, RetryStarted)(
            lambda event: seen.append((event.type, asyncio.get_running_loop().time()))
        )
        await agent.run("go")

        assert seen == [("retry/scheduled", 0), ("retry/started", 2)]
        scheduled, started = agent.session.facts(RetryScheduled, RetryStarted)
        assert scheduled.retry_id == started.retry_id
        assert agent.session.events[scheduled.sent].type == "request/sent"
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_wait_that_is_stopped_never_started() -> None:
    """RE-07, CA-08"""
    async with Agent(ScriptedModel(fails("SERVER"), says("never")), retry=RetryPolicy(base=5)) as agent:
        running = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(1)
        agent.cancel()
        result = await running

        assert isinstance(result.reason, Aborted)
        assert outline(agent.session, "retry/scheduled", "retry/started", "step/end") == [
            "retry/scheduled",
            "step/end aborted",
        ]
        assert_laws(agent.session)


async def test_retries_are_counted_for_each_provider_under_its_own_policy() -> None:
    """RE-07, RE-08: after a switch the count starts anew, and the other adapter's policy holds."""
    other = Named(
        "other", fails("SERVER"), fails("SERVER"), retry=RetryPolicy(retries=1, base=0.002, jitter=0)
    )
    own = Named("own", *[fails("SERVER")] * 2, retry=RetryPolicy(retries=3, base=0.001, jitter=0))
    dispose = register_provider("other", lambda name, *, base_url: other)
    try:
        async with Agent(own) as agent:
            agent.on.request(
                lambda asked: Settings(provider="other", model="big") if asked.attempt > 2 else None
            )
            result = await agent.run("go")

            assert [(r.provider, r.n, r.max, r.delay_ms) for r in agent.session.facts(RetryScheduled)] == [
                ("own", 1, 3, 1),
                ("own", 2, 3, 2),
                ("other", 1, 1, 2),
            ]
            assert result.reason == Failed("SERVER", "the script fails here")
            assert [(h.provider, h.model) for h in agent.session.facts(RequestHeader)] == [
                ("own", "own-1"),
                ("other", "big"),
            ]
            assert_laws(agent.session)
    finally:
        dispose()


async def test_an_adapters_own_policy_beats_that_of_agent_and_harness() -> None:
    """RE-08"""
    model = Named("own", fails("AUTH"), says("ok"), retry=RetryPolicy(codes="all", base=0))
    never = RetryPolicy(retries=0)
    harness = Harness(retry=never)
    async with harness, harness.agent(model, retry=never) as agent:
        assert (await agent.run("go")).ok
        assert_laws(agent.session)


async def test_the_harness_policy_holds_where_the_agent_has_none() -> None:
    """RE-08"""
    harness = Harness(retry=RetryPolicy(codes="all", base=0))
    async with harness, harness.agent(ScriptedModel(fails("AUTH"), says("ok"))) as agent:
        assert (await agent.run("go")).ok
        assert_laws(agent.session)


async def test_an_adapter_that_cannot_be_made_ready_is_recovered_from() -> None:
    """RE-09, UW-07, A-P40"""
    made: list[str] = []

    def factory(name: str, *, base_url: str | None) -> Any:
        made.append(name)
        if len(made) == 1:
            raise ModelFailure("cannot reach the gateway", code="TRANSPORT")
        return Named("gateway", says("ok"))

    heard: list[str] = []
    dispose = register_provider("gateway", factory)
    try:
        async with Agent(retry=AT_ONCE) as agent:
            agent.on.request(lambda asked: Settings(provider="gateway", model="m"))
            agent.on.request_error(lambda failure, attempt: heard.append(failure.code))
            result = await agent.run("go")

            assert (result.text, heard, made) == ("ok", ["TRANSPORT"], ["m", "m"])
            assert [fact.failure.code for fact in agent.session.facts(RequestFailed)] == ["TRANSPORT"]
            assert_laws(agent.session)
    finally:
        dispose()


@pytest.mark.parametrize("idle", [0, -3])
def test_a_silence_that_is_no_time_is_refused_at_once(idle: float) -> None:
    """BU-05"""
    with pytest.raises(ValueError, match="idle must be above 0"):
        RetryPolicy(idle=idle)


# The bound


async def test_one_bound_holds_for_all_who_may_ask_for_a_retry() -> None:
    """RE-10, BU-02"""
    policy = RetryPolicy(retries=None, codes="all", base=0, attempts_per_step=3)
    model = ScriptedModel(*[fails("AUTH")] * 4)
    async with Agent(model, retry=policy) as agent:
        agent.on.request_error(lambda failure, attempt: Retry() if attempt.number == 1 else None)
        result = await agent.run("go")

        assert result.reason == OverBudget("attempts", 3, 3)
        assert len(model.requests) == 3
        assert outline(agent.session, "step/end", "turn/end") == [
            "step/end budget",
            "turn/end budget (attempts: 3 of 3)",
        ]
        assert_laws(agent.session)


async def test_the_bound_is_no_reason_where_nobody_wanted_to_go_on() -> None:
    """RE-10: the last attempt that is allowed fails in a way that nobody repeats."""
    policy = RetryPolicy(base=0, attempts_per_step=2)
    async with Agent(ScriptedModel(fails("SERVER"), fails("AUTH", "no key")), retry=policy) as agent:
        result = await agent.run("go")

        assert result.reason == Failed("AUTH", "no key")
        assert_laws(agent.session)


async def test_the_bound_starts_anew_with_each_step() -> None:
    """RE-10"""

    @tool(effect="read")
    async def look() -> str:
        return "seen"

    policy = RetryPolicy(retries=None, codes="all", base=0, attempts_per_step=2)
    model = ScriptedModel(fails("AUTH"), calls("look"), fails("AUTH"), says("ok"))
    async with Agent(model, tools=[look], retry=policy) as agent:
        result = await agent.run("go")

        assert (result.text, result.steps) == ("ok", 2)
        assert len(agent.session.facts(StepStart)) == len(agent.session.facts(StepEnd)) == 2
        assert_laws(agent.session)


async def test_a_failure_that_a_listener_raises_before_the_request_is_not_recovered_from() -> None:
    """RE-01, TL-17"""
    heard: list[str] = []
    model = ScriptedModel(says("never"))
    async with Agent(model, retry=AT_ONCE) as agent:
        agent.on.request_error(lambda failure, attempt: heard.append(failure.code))

        @agent.on.request
        def breaks(asked: Any) -> None:
            raise ModelFailure("raised by a listener", code="SERVER")

        result = await agent.run("go")

        assert result.reason == Failed("SERVER", "raised by a listener")
        assert (heard, model.requests, agent.session.facts(RequestSent)) == ([], [], [])
        assert [type(fact) for fact in agent.session.facts(AssistantMessage, TurnEnd)] == [TurnEnd]
        assert_laws(agent.session)


class _Endless:
    """An adapter that fails for ever, without a script."""

    provider = name = "endless"
    retry = None

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: ModelRequest, signal: Signal) -> AsyncIterator[Chunk]:
        self.asked += 1
        raise ModelFailure("down", code="SERVER")
        yield  # it is a generator

    async def aclose(self) -> None:
        pass


async def test_a_listener_that_always_retries_meets_the_default_bound() -> None:
    """RE-10, UW-09"""
    model = _Endless()
    async with Agent(model) as agent:
        agent.on.request_error(lambda failure, attempt: Retry())
        result = await agent.run("go")

        assert result.reason == OverBudget("attempts", 20, 20)
        assert model.asked == 20
        assert_laws(agent.session)
