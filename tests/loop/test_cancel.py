"""Stopping: from anywhere, at any moment, with everything that was open closed and nothing confused."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import (
    Agent,
    ApprovalRequest,
    Approved,
    Ask,
    Cause,
    Continue,
    InputDropped,
    Message,
    Proposal,
    Reject,
    RetryPolicy,
    SessionClosed,
    Status,
    Stopping,
    StoreFailed,
    ToolCall,
    ToolContext,
    ToolResult,
    UsageError,
    tool,
)
from interlock.intercept.signal import Signal
from interlock.log.facts import (
    AssistantChunk,
    CancelRequested,
    Fact,
    InboxClaimed,
    ObserverFailed,
    RequestSent,
    RetryScheduled,
    StepStart,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    TurnStart,
)
from interlock.log.reasons import Aborted, Failed
from interlock.models.protocol import Chunk, Finish, ModelRequest, TextDelta
from interlock.testing import (
    Gate,
    ScriptedModel,
    assert_laws,
    call,
    calls,
    fails,
    gated,
    hangs,
    says,
)

from .story import lines, person, story

pytestmark = pytest.mark.virtual


def words(messages: Any) -> list[str]:
    return [message.text for message in messages]


async def seen(agent: Agent, kind: type[Fact], n: int = 1) -> None:
    """Wait until the log holds `n` facts of this kind."""
    while len(agent.session.facts(kind)) < n:
        await agent.session.changed(agent.session.head)


@tool(effect="read", concurrency="parallel")
async def hang() -> str:
    """Wait until it is cut."""
    await asyncio.get_running_loop().create_future()
    return "never"


@tool(effect="read")
async def look() -> str:
    return "seen"


class Stubborn:
    """A body that does not listen: it ends when the test says so."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.end = asyncio.Event()
        self.told = 0

    def tool(self) -> Any:
        @tool(effect="write", concurrency="parallel")
        async def stubborn() -> str:
            """Go on whatever happens."""
            self.began.set()
            while not self.end.is_set():
                try:
                    await self.end.wait()
                except asyncio.CancelledError:
                    self.told += 1
            return "done after all"

        return stubborn


# What a stop does to the queues


async def test_an_idle_agent_with_nothing_pending_writes_no_line() -> None:
    """CA-11b."""
    async with Agent(ScriptedModel()) as agent:
        before = agent.session.head
        agent.cancel()
        agent.cancel(keep_inbox=True)
        assert agent.session.head == before


async def test_an_idle_stop_discards_what_is_pending_and_arms_nothing() -> None:
    """CA-01: next-step before next-turn, in one append, and what comes later runs."""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.send("t", to="turn", wake=False)
        agent.inject("s")
        heads: list[int] = []
        agent.on.observe(CancelRequested)(lambda event: heads.append(agent.session.head - event.seq))
        agent.cancel()
        assert heads == [2]
        assert (await agent.run("go")).ok
        assert story(agent.session) == lines("""
            ~+T[t] ~+S[s] CR user xS[s] xT[t]
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go AM"ok" SE 1.1 completed TE 1 completed
        """)


async def test_keeping_the_inbox_parks_what_came_before_until_a_later_wake() -> None:
    """CA-04: also what was sent to wake."""
    async with Agent(ScriptedModel(hangs("par"), says("b"), says("c"))) as agent:
        agent.followup("a")
        await seen(agent, AssistantChunk)
        agent.followup("b")
        agent.steer("s")
        agent.cancel(keep_inbox=True)
        await agent.idle()
        assert words(agent.inbox.next_turn) == ["b"]
        assert words(agent.inbox.next_step) == ["s"]
        agent.followup("c")
        await agent.idle()
        assert story(agent.session) == lines("""
            +T[a] TS 1 CL 1.1 T[a] SS 1.1 UM a +T[b] +S[s] CR user AM!"par" SE 1.1 aborted TE 1 aborted{user}
            +T[c] TS 2 CL 2.1 S[s] T[b] SS 2.1 UM s UM b AM"b" SE 2.1 completed TE 2 completed
            TS 3 CL 3.1 T[c] SS 3.1 UM c AM"c" SE 3.1 completed TE 3 completed
        """)
        assert_laws(agent.session)


async def test_a_wake_after_the_stop_opens_a_turn_when_the_stopped_one_has_closed() -> None:
    """CA-05, A-P29: a steer is routed to next-turn; what wakes nobody stays in next-step."""
    async with Agent(ScriptedModel(hangs("par"), says("ok"))) as agent:
        agent.followup("a")
        await seen(agent, AssistantChunk)
        agent.cancel()
        agent.steer("s")
        agent.inject("i")
        await agent.idle()
        assert story(agent.session) == lines("""
            +T[a] TS 1 CL 1.1 T[a] SS 1.1 UM a CR user +T[s] ~+S[i] AM!"par" SE 1.1 aborted TE 1 aborted{user}
            TS 2 CL 2.1 S[i] T[s] SS 2.1 UM i UM s AM"ok" SE 2.1 completed TE 2 completed
        """)


async def test_a_plain_wake_after_the_stop_takes_up_the_parked_queue() -> None:
    """CA-05: a person who says "go on" while it is stopping is not forgotten."""
    async with Agent(ScriptedModel(hangs("par"), says("ok"))) as agent:
        agent.followup("a")
        agent.followup("b")
        await seen(agent, AssistantChunk)
        agent.cancel(keep_inbox=True)
        agent.wake()
        await agent.idle()
        assert story(agent.session).endswith('UM b AM"ok" SE 2.1 completed TE 2 completed')


async def test_a_latched_wake_is_cleared_by_a_later_stop_that_clears() -> None:
    """CA-06."""
    async with Agent(ScriptedModel(hangs("par"))) as agent:
        agent.followup("a")
        await seen(agent, AssistantChunk)
        agent.cancel(keep_inbox=True)
        agent.steer("s")
        agent.cancel()
        await agent.idle()
        assert len(agent.session.facts(TurnEnd)) == 1
        assert len(agent.inbox) == 0


async def test_a_latched_wake_goes_with_its_message() -> None:
    """CA-06: an edited one stays."""
    for edited in (False, True):
        async with Agent(ScriptedModel(hangs("par"), says("ok"))) as agent:
            agent.followup("a")
            await seen(agent, AssistantChunk)
            agent.cancel(keep_inbox=True)
            agent.steer(person("s"))
            if edited:
                agent.inbox.replace("s", "t")
            else:
                agent.inbox.remove("s")
            await agent.idle()
            assert len(agent.session.facts(TurnStart)) == (2 if edited else 1)


async def test_a_second_stop_that_clears_also_drops_what_is_reserved() -> None:
    """CA-14: the first keeps the queue, the second gesture clears it."""
    async with Agent(ScriptedModel()) as agent:
        asked = asyncio.Event()

        @agent.on.pre_step
        async def think(proposal: Proposal) -> None:
            asked.set()
            await asyncio.get_running_loop().create_future()

        agent.followup("a")
        agent.followup("b")
        await asked.wait()
        agent.cancel(keep_inbox=True)
        agent.cancel()
        await agent.idle()
        assert story(agent.session).endswith(
            "CL 1.1 T[a] CR user CR user xT[b] DROP[a] canceled TE 1 aborted{user}"
        )
        assert len(agent.inbox) == 0


# Causes


@pytest.mark.parametrize("cause", ["user", "parent", Cause("hook", by="linter", reason="too many errors")])
async def test_the_cause_is_on_the_turn(cause: Any) -> None:
    """CA-02."""
    async with Agent(ScriptedModel(hangs())) as agent:
        agent.followup("a")
        await seen(agent, RequestSent)
        agent.cancel(cause)
        await agent.idle()
        (end,) = agent.session.facts(TurnEnd)
        assert end.reason == Aborted(Cause(cause) if isinstance(cause, str) else cause)


async def test_the_first_cause_wins() -> None:
    """CA-02."""
    async with Agent(ScriptedModel(hangs())) as agent:
        agent.followup("a")
        await seen(agent, RequestSent)
        agent.cancel("parent")
        agent.cancel("user")
        await agent.idle()
        assert story(agent.session).endswith("CR parent CR user SE 1.1 aborted TE 1 aborted{parent}")


async def test_a_stop_beats_an_exception_and_a_reject_that_come_meanwhile() -> None:
    """CA-02, ER-02."""

    def fail(proposal: Proposal) -> None:
        proposal.agent.cancel()
        raise RuntimeError("meanwhile")

    def reject(proposal: Proposal) -> Reject:
        proposal.agent.cancel()
        return Reject("meanwhile")

    for listener in (fail, reject):
        async with Agent(ScriptedModel()) as agent:
            agent.on.pre_step(listener)
            agent.followup("a")
            await agent.idle()
            assert story(agent.session).endswith("CR user DROP[a] canceled TE 1 aborted{user}")
            assert agent.session.facts(ObserverFailed) == []


@pytest.mark.parametrize(
    "bad",
    ["boss", None, 5, Cause("ghost"), Cause("user", by=5), Cause("user", reason="\ud800")],  # type: ignore[arg-type]
)
async def test_a_cause_that_the_log_could_not_hold_is_refused(bad: Any) -> None:
    async with Agent(ScriptedModel()) as agent:
        agent.inject("kept")
        before = agent.session.head
        with pytest.raises(UsageError, match="no cause"):
            agent.cancel(bad)
        assert (agent.session.head, words(agent.inbox.next_step)) == (before, ["kept"])


@pytest.mark.parametrize("grace", [-1, float("nan"), float("inf"), "5"])
async def test_a_grace_is_a_number_of_seconds(grace: Any) -> None:
    async with Agent(ScriptedModel()) as agent:
        with pytest.raises(UsageError, match="grace"):
            agent.cancel(grace=grace)


# One signal


async def test_one_signal_is_seen_everywhere_in_a_turn_and_the_next_has_another() -> None:
    """CA-03."""
    signals: list[list[Signal]] = [[], []]

    class Watched(ScriptedModel):
        def stream(self, request: ModelRequest, signal: Signal) -> Any:
            signals[turn].append(signal)
            return super().stream(request, signal)

    turn = 0
    model = Watched(fails("SERVER"), calls("look"), says("1"), says("2"))
    async with Agent(model, tools=[look], retry=RetryPolicy(base=0)) as agent:

        def note(signal: Signal) -> None:
            signals[turn].append(signal)

        agent.on.pre_step(lambda p: note(p.signal))
        agent.on.request_error(lambda failure, attempt: note(attempt.signal))
        agent.on.prepare(lambda call: note(call.signal))
        agent.on.pre_execute(lambda call: note(call.signal))
        agent.on.post_execute(lambda call, result: note(call.signal))
        agent.on.turn_stopping(lambda stopping: note(stopping.signal))
        await agent.run("a")
        turn = 1
        await agent.run("b")
    assert [len(seen_) for seen_ in signals] == [10, 3]
    assert [len({id(signal) for signal in seen_}) for seen_ in signals] == [1, 1]
    assert signals[0][0] is not signals[1][0]


async def test_after_a_stop_no_further_listener_is_asked() -> None:
    """CA-03: neither a sync nor an async one; what reviews results is, for they stand (D-19b)."""
    heard: list[str] = []

    async def later(*_: Any) -> None:
        heard.append("later")

    for point in ("pre_step", "prepare", "pre_execute", "turn_stopping"):
        answer = says("1") if point == "turn_stopping" else calls("look")
        async with Agent(ScriptedModel(answer), tools=[look]) as agent:
            register = getattr(agent.on, point)
            register(lambda *_: agent.cancel())
            register(later)
            register(lambda *_: heard.append("sync"))
            assert (await agent.run("go")).reason == Aborted(Cause("user"))
            assert_laws(agent.session)
    assert heard == []
    async with Agent(ScriptedModel(calls("look")), tools=[look]) as agent:
        agent.on.post_execute(lambda *_: agent.cancel())
        agent.on.post_execute(later)
        await agent.run("go")
        assert story(agent.session).endswith("TR c1 ok SE 1.1 aborted TE 1 aborted{user}")
    assert heard == ["later"]


async def blocks(*_: Any) -> None:
    await asyncio.get_running_loop().create_future()


STAGES: dict[str, Callable[[Agent], Any]] = {
    "pre-step": lambda agent: agent.on.pre_step(blocks),
    "request": lambda agent: agent.on.request(blocks),
    "request-error": lambda agent: agent.on.request_error(blocks),
    "prepare": lambda agent: agent.on.prepare(blocks),
    "pre-execute": lambda agent: agent.on.pre_execute(blocks),
    "post-execute": lambda agent: agent.on.post_execute(blocks),
    "turn-stopping": lambda agent: agent.on.turn_stopping(blocks),
}


@pytest.mark.parametrize("stage", STAGES)
async def test_every_stage_that_waits_is_cut_at_once(stage: str) -> None:
    """CA-03, CA-13, D-19: a listener is foreign code that is awaited inline, and cut."""
    answer = fails("AUTH") if stage == "request-error" else says("1") if stage == "turn-stopping" else None
    model = ScriptedModel(answer or calls("look"), says("never"))
    async with Agent(model, tools=[look]) as agent:
        STAGES[stage](agent)
        running = asyncio.ensure_future(agent.run("a"))
        for _ in range(20):  # whatever is ready runs; then only the listener is left
            await asyncio.sleep(0)
        agent.cancel()
        result = await running
        assert result.reason == Aborted(Cause("user"))
        assert asyncio.get_running_loop().time() == 0
        assert_laws(agent.session)


async def test_a_listener_that_will_not_be_cut_is_awaited_and_its_answer_is_not_used() -> None:
    """CA-09, CA-13: one cancel, in the manner of `asyncio.timeout`; and the drive is none the worse."""
    cuts: list[int] = []

    async def deaf(proposal: Proposal) -> Reject:
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            assert task is not None
            cuts.append(task.cancelling())
            await asyncio.sleep(5)
        return Reject("too late to matter")

    async with Agent(ScriptedModel(says("ok"))) as agent:
        dispose = agent.on.pre_step(deaf)
        running = asyncio.ensure_future(agent.run("a"))
        await asyncio.sleep(1)
        agent.cancel()
        agent.cancel()
        assert (await running).reason == Aborted(Cause("user"))
        assert (cuts, asyncio.get_running_loop().time()) == ([1], 6)
        dispose()
        assert (await agent.run("b")).ok


async def test_a_question_to_a_person_is_withdrawn_in_the_same_append() -> None:
    """CA-03, CA-11b, D-19: and an answer that comes later starts nothing."""
    asked = asyncio.Event()

    async def approver(request: ApprovalRequest) -> Approved:
        asked.set()
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            return Approved()  # too late, and against the rules
        return Approved()

    async with Agent(ScriptedModel(calls("look")), tools=[look], approver=approver) as agent:
        agent.on.pre_execute(lambda call: Ask("may it?"))
        running = asyncio.ensure_future(agent.run("go"))
        await asked.wait()
        assert agent.status is Status.WAITING
        agent.steer("s")
        agent.cancel()
        await running
        assert story(agent.session).split("AA c1 ")[1] == lines("""
            +S[s] CR user xS[s] AD c1 cancelled AL a12 TR c1 ERR[ABORTED_BEFORE_DISPATCH]
            SE 1.1 aborted TE 1 aborted{user}
        """)
        assert_laws(agent.session)


# Windows


async def test_a_stop_before_the_turn_begins_leaves_no_turn() -> None:
    """CA-08: in the tick of the wake."""
    async with Agent(ScriptedModel()) as agent:
        receipt = agent.followup("a")
        agent.cancel()
        await agent.idle()
        assert story(agent.session) == "+T[a] CR user xT[a]"
        with pytest.raises(InputDropped):
            await receipt.turn()


async def test_a_stop_before_the_turn_begins_that_keeps_the_inbox_parks_the_message() -> None:
    """CA-07 as D-3 has it: not claimed, not lost."""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.followup("a")
        agent.cancel(keep_inbox=True)
        await agent.idle()
        assert story(agent.session) == "+T[a] CR user"
        assert (words(agent.inbox.next_turn), agent.status) == (["a"], Status.IDLE)
        agent.wake()
        await agent.idle()
        assert len(agent.inbox) == 0


async def test_what_is_sent_after_a_stop_in_the_same_tick_runs() -> None:
    """CA-05: the stop was for what came before it."""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.followup("a")
        agent.cancel()
        agent.followup("b")
        await agent.idle()
        assert story(agent.session) == lines("""
            +T[a] CR user xT[a] +T[b] TS 1 CL 1.1 T[b] SS 1.1 UM b AM"ok" SE 1.1 completed TE 1 completed
        """)


async def test_a_stop_at_the_start_of_a_turn_enters_no_step() -> None:
    """CA-08: the claim has not been made; the message is discarded where it is."""
    async with Agent(ScriptedModel()) as agent:
        agent.on.observe(TurnStart)(lambda event: agent.cancel())
        agent.followup("a")
        await agent.idle()
        assert story(agent.session) == "+T[a] TS 1 CR user xT[a] TE 1 aborted{user}"
        assert_laws(agent.session)


@pytest.mark.parametrize("keep", [False, True])
async def test_a_stop_at_the_claim_gives_the_message_its_one_fate(keep: bool) -> None:
    """CA-07, CA-08, D-3: dropped as canceled, or returned to the head of its queue."""
    async with Agent(ScriptedModel()) as agent:
        agent.on.observe(InboxClaimed)(lambda event: agent.cancel(keep_inbox=keep))
        receipt = agent.followup("a")
        agent.followup("b")
        await agent.idle()
        if keep:
            assert story(agent.session).endswith(
                "CL 1.1 T[a] CR user RET 1 T[a] cancel times 1 TE 1 aborted{user}"
            )
            assert words(agent.inbox.next_turn) == ["a", "b"]
        else:
            assert story(agent.session).endswith(
                "CL 1.1 T[a] CR user xT[b] DROP[a] canceled TE 1 aborted{user}"
            )
            with pytest.raises(InputDropped) as caught:
                await receipt.turn()
            assert caught.value.outcome == "canceled"
        assert_laws(agent.session)


async def test_a_returned_message_that_was_stopped_often_is_not_worn_out() -> None:
    """D-3: only exceptions count towards dropping it."""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        dispose = agent.on.observe(InboxClaimed)(lambda event: agent.cancel(keep_inbox=True))
        receipt = agent.followup("a")
        for _ in range(4):
            await agent.idle()
            agent.wake()
        await agent.idle()
        dispose()
        agent.wake()
        assert (await receipt.turn()).ok


async def test_a_stop_between_the_steps_enters_no_further_one() -> None:
    """CA-08: nothing of a step that nobody will see."""

    async with Agent(ScriptedModel(calls("look")), tools=[look]) as agent:

        @agent.on.pre_step
        def cancel(proposal: Proposal) -> None:
            if proposal.step == 2:
                agent.cancel()

        await agent.run("go")
        assert story(agent.session).endswith("TR c1 ok SE 1.1 tools CR user TE 1 aborted{user}")


async def test_a_stop_while_the_model_streams_keeps_what_was_shown() -> None:
    """CA-08, ST-03, A-P8."""
    async with Agent(ScriptedModel(hangs("so far")), tools=[look]) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await seen(agent, AssistantChunk, 2)
        agent.cancel()
        result = await running
        assert story(agent.session).endswith('UM go CR user AM!"so far" SE 1.1 aborted TE 1 aborted{user}')
        assert result.text == "so far"


async def test_a_stop_during_stopping_enters_no_further_step() -> None:
    """CA-08."""
    async with Agent(ScriptedModel(says("1"))) as agent:

        @agent.on.turn_stopping
        def both(stopping: Stopping) -> Continue:
            agent.cancel()
            return Continue("more")

        await agent.run("go")
        assert story(agent.session).endswith("SE 1.1 completed CR user TE 1 aborted{user}")
        assert len(agent.inbox) == 0


async def test_a_stop_during_the_wait_for_a_retry_leaves_no_answer() -> None:
    """CA-08, RE-07."""
    async with Agent(ScriptedModel(fails("SERVER", after="half"), says("never"))) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await seen(agent, RetryScheduled)
        agent.cancel()
        await running
        assert story(agent.session).endswith("RF SERVER RT 1 CR user SE 1.1 aborted TE 1 aborted{user}")
        assert_laws(agent.session)


# Tools


async def test_started_calls_are_awaited_and_the_rest_get_their_pair() -> None:
    """SC-09, CA-09, story 4."""
    body = Stubborn()
    model = ScriptedModel(calls("stubborn", "hang", "look", "look"))
    async with Agent(model, tools=[body.tool(), hang, look]) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await body.began.wait()
        await seen(agent, ToolStarted, 2)
        await asyncio.sleep(0)
        agent.cancel()
        await asyncio.sleep(60)
        assert agent.status is Status.RUNNING
        body.end.set()
        await running
        assert story(agent.session).split("ST c2 ")[1] == lines("""
            CR user SD c2 ERR[ABORTED] SD c1 ERR[ABORTED] TR c1 ERR[ABORTED] TR c2 ERR[ABORTED]
            TC' c3 TR c3 ERR[ABORTED_BEFORE_DISPATCH] TC' c4 TR c4 ERR[ABORTED_BEFORE_DISPATCH]
            SE 1.1 aborted TE 1 aborted{user}
        """)
        assert body.told == 1
        assert_laws(agent.session)


async def test_a_cooperative_body_is_told_in_the_same_tick_and_once() -> None:
    """D-19: one CancelledError for an async body, and its signal."""
    causes: list[Any] = []
    told: list[str] = []

    @tool(effect="read")
    async def body(ctx: ToolContext) -> str:
        ctx.signal.on_set(causes.append)
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            told.append("cancelled")
            await asyncio.sleep(5)  # it may clean up, and is awaited
            told.append("cleaned")
            raise
        return "never"

    async with Agent(ScriptedModel(calls("body")), tools=[body]) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await seen(agent, ToolStarted)
        await asyncio.sleep(1)
        agent.cancel("parent")
        assert causes == [Cause("parent")]
        await running
        assert told == ["cancelled", "cleaned"]
        assert asyncio.get_running_loop().time() == 6
        (result,) = agent.session.facts(ToolResulted)
        assert result.error is not None
        assert (result.error.code, result.error.handler_executed) == ("ABORTED", True)


def test_a_sync_body_gets_the_signal_and_is_awaited() -> None:
    """D-19: a thread cannot be cut; it looks at its signal. In a real loop, since it needs a thread."""

    async def main() -> None:
        loop, began = asyncio.get_running_loop(), asyncio.Event()

        @tool(effect="read")
        def wait(ctx: ToolContext) -> str:
            told = threading.Event()
            ctx.signal.on_set(lambda cause: told.set())
            loop.call_soon_threadsafe(began.set)
            return "told" if told.wait(10) else "never told"

        async with Agent(ScriptedModel(calls("wait")), tools=[wait]) as agent:
            running = asyncio.ensure_future(agent.run("go"))
            await began.wait()
            agent.cancel()
            await running
            assert story(agent.session).endswith(
                "SD c1 ERR[ABORTED] TR c1 ERR[ABORTED] SE 1.1 aborted TE 1 aborted{user}"
            )
            assert agent.session.facts(ToolSettled)[0].content[0].text == "told"

    asyncio.run(main())


async def test_a_result_that_came_before_the_stop_stays_a_success() -> None:
    """D-19b: the outcome is fixed when the body returns."""
    async with Agent(ScriptedModel(calls("look")), tools=[look]) as agent:
        agent.on.result(lambda call, result: agent.cancel())
        await agent.run("go")
        assert story(agent.session).endswith("ST c1 TR c1 ok CR user SE 1.1 aborted TE 1 aborted{user}")


async def test_a_grace_gives_up_on_what_still_runs_and_says_so() -> None:
    """CA-12, D-19: idle within the grace, the late end is on record."""
    body = Stubborn()
    async with Agent(ScriptedModel(calls("stubborn"), says("ok")), tools=[body.tool()]) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await body.began.wait()
        agent.cancel(grace=0.05)
        await running
        assert asyncio.get_running_loop().time() == 0.05
        assert story(agent.session).endswith(
            "ST c1 CR user TA c1 TR c1 ERR[TOOL_OUTCOME_UNKNOWN] SE 1.1 aborted TE 1 aborted{user}"
        )
        assert (await agent.run("next")).ok
        body.end.set()
        await seen(agent, TurnEnd, 2)
        await asyncio.sleep(0)
        assert story(agent.session).endswith("TE 2 completed TL c1")
        assert_laws(agent.session)


async def test_an_agent_can_be_left_while_what_was_given_up_still_runs() -> None:
    """CA-12: leaving waits for it no more, and its late end finds the log closed."""
    body = Stubborn()
    async with Agent(ScriptedModel(calls("stubborn")), tools=[body.tool()]) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await body.began.wait()
        agent.cancel(grace=1)
        await running
    assert (agent.status, asyncio.get_running_loop().time()) == (Status.CLOSED, 1)
    head = agent.session.head
    body.end.set()
    await asyncio.sleep(1)
    assert agent.session.head == head


async def test_a_grace_that_is_not_needed_changes_nothing() -> None:
    """CA-12: and its timer does not reach into a later turn that was stopped without one."""
    body = Stubborn()
    async with Agent(ScriptedModel(hangs(), calls("stubborn")), tools=[body.tool()]) as agent:
        first = asyncio.ensure_future(agent.run("a"))
        await seen(agent, RequestSent)
        agent.cancel(grace=10)
        await first
        second = asyncio.ensure_future(agent.run("b"))
        await body.began.wait()
        agent.cancel()
        await asyncio.sleep(20)
        assert agent.status is Status.RUNNING
        body.end.set()
        await second
        assert "TA" not in story(agent.session)


async def test_a_second_stop_can_set_the_grace() -> None:
    """CA-12: first gently, then no longer."""
    body = Stubborn()
    async with Agent(ScriptedModel(calls("stubborn")), tools=[body.tool()]) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await body.began.wait()
        agent.cancel(keep_inbox=True)
        await asyncio.sleep(5)
        agent.cancel(keep_inbox=True, grace=1)
        await running
        assert asyncio.get_running_loop().time() == 6
        body.end.set()
        await asyncio.sleep(0)


# From callbacks


async def test_an_observer_stops_on_the_first_chunk_with_a_message_pending() -> None:
    """CA-11, UW-04, A-P12."""
    async with Agent(ScriptedModel(says("one two three"))) as agent:
        agent.on.observe(AssistantChunk)(lambda event: agent.cancel())
        agent.followup("a")
        agent.followup("b")
        await agent.idle()
        assert story(agent.session) == lines("""
            +T[a] +T[b] TS 1 CL 1.1 T[a] SS 1.1 UM a CR user xT[b] AM!"one " SE 1.1 aborted TE 1 aborted{user}
        """)
        assert agent.session.facts(ObserverFailed) == []


async def test_what_observers_send_is_not_lost() -> None:
    """UW-04: from inside an append it commits at once, in its place."""
    async with Agent(ScriptedModel(says("1"), says("2"), says("3"))) as agent:

        def send(event: Any) -> None:
            if (event.fact.turn, event.fact.step) == (1, 1):
                agent.followup("f")
                agent.steer("s")
                agent.inject("i")

        agent.on.observe(StepStart)(send)
        agent.followup("a")
        await agent.idle()
        assert story(agent.session) == lines("""
            +T[a] TS 1 CL 1.1 T[a] SS 1.1 UM a +T[f] +S[s] ~+S[i] AM"1" SE 1.1 completed
            CL 1.2 S[s,i] SS 1.2 UM s UM i AM"2" SE 1.2 completed TE 1 completed
            TS 2 CL 2.1 T[f] SS 2.1 UM f AM"3" SE 2.1 completed TE 2 completed
        """)
        assert_laws(agent.session)


async def test_a_stop_between_turns_stops_the_drive() -> None:
    """CA-11, UW-06, A-P14: from an observer of the end of a turn; the queue is parked."""
    async with Agent(ScriptedModel(says("1"))) as agent:
        agent.on.observe(TurnEnd)(lambda event: agent.cancel(keep_inbox=True))
        agent.followup("a")
        agent.followup("b")
        await agent.idle()
        assert story(agent.session).endswith("TE 1 completed CR user")
        assert (words(agent.inbox.next_turn), agent.status) == (["b"], Status.IDLE)


async def test_a_stop_between_turns_clears_the_queue() -> None:
    """CA-11."""
    async with Agent(ScriptedModel(says("1"))) as agent:
        agent.on.observe(TurnEnd)(lambda event: agent.cancel())
        agent.followup("a")
        agent.followup("b")
        await agent.idle()
        assert story(agent.session).endswith("TE 1 completed CR user xT[b]")


async def test_a_message_after_a_stop_between_turns_runs() -> None:
    """CA-05, CA-11."""
    async with Agent(ScriptedModel(says("1"), says("2"), says("3"))) as agent:

        def stop_and_send(event: Any) -> None:
            if event.fact.turn == 1:
                agent.cancel(keep_inbox=True)
                agent.steer("c")

        agent.on.observe(TurnEnd)(stop_and_send)
        agent.followup("a")
        agent.followup("b")
        await agent.idle()
        assert story(agent.session).split("TE 1 ")[1] == lines("""
            completed CR user +S[c] TS 2 CL 2.1 S[c] T[b] SS 2.1 UM c UM b AM"2" SE 2.1 completed TE 2 completed
        """)


async def test_a_stop_from_a_status_observer_works() -> None:
    """CA-11."""
    async with Agent(ScriptedModel()) as agent:
        agent.on.status(lambda status: agent.cancel() if status is Status.RUNNING else None)
        agent.followup("a")
        await agent.idle()
        assert story(agent.session) == "+T[a] CR user xT[a]"


async def test_a_stop_from_a_tool_and_from_a_listener_of_its_result_works() -> None:
    """CA-11."""

    @tool(effect="read")
    async def stop(ctx: ToolContext) -> str:
        ctx.agent.cancel()
        return "stopped myself"

    async with Agent(ScriptedModel(calls(call("stop"), call("look"))), tools=[stop, look]) as agent:
        result = await agent.run("go")
        assert result.reason == Aborted(Cause("user"))
        assert_laws(agent.session)

    async with Agent(ScriptedModel(calls(call("look"), call("look"))), tools=[look]) as agent:

        @agent.on.post_execute
        def cancel(call: ToolCall, result: ToolResult) -> None:
            agent.cancel()

        await agent.run("go")
        assert story(agent.session).split("ST c1 ")[1] == lines("""
            CR user TR c1 ok TC' c2 TR c2 ERR[ABORTED_BEFORE_DISPATCH] SE 1.1 aborted TE 1 aborted{user}
        """)


# Waiting and being cancelled


async def test_cancelling_who_awaits_run_stops_its_turn_and_waits_for_the_end() -> None:
    """CA-13: cause caller; other messages stay."""
    body = Stubborn()
    async with Agent(ScriptedModel(calls("stubborn")), tools=[body.tool()]) as agent:
        running = asyncio.ensure_future(agent.run("a"))
        await body.began.wait()
        agent.followup("b")
        running.cancel()
        await asyncio.sleep(1)
        assert not running.done()
        running.cancel()  # asking again does not make it leave the effect behind
        await asyncio.sleep(1)
        assert not running.done()
        body.end.set()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert story(agent.session).endswith("SE 1.1 aborted TE 1 aborted{caller}")
        assert words(agent.inbox.next_turn) == ["b"]


async def test_cancelling_who_awaits_run_takes_a_queued_message_back() -> None:
    """CA-13: the turn of somebody else goes on."""
    gate = Gate()
    async with Agent(ScriptedModel(gated(gate, says("1")))) as agent:
        first = asyncio.ensure_future(agent.run("a"))
        await gate.reached
        second = asyncio.ensure_future(agent.run("b"))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        gate.open()
        assert (await first).ok
        assert story(agent.session) == lines("""
            +T[a] TS 1 CL 1.1 T[a] SS 1.1 UM a +T[b] xT[b] AM"1" SE 1.1 completed TE 1 completed
        """)


async def test_cancelling_who_awaits_run_drops_its_reserved_message() -> None:
    """CA-13: dropped as canceled, not returned to the queue for somebody else."""
    async with Agent(ScriptedModel()) as agent:
        agent.on.pre_step(blocks)
        running = asyncio.ensure_future(agent.run("a"))
        await seen(agent, InboxClaimed)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert story(agent.session).endswith(
            "CL 1.1 T[a] CR caller RET 1 T[a] cancel times 1 TE 1 aborted{caller} xT[a]"
        )
        assert len(agent.inbox) == 0


async def test_cancelling_a_deadline_around_run_is_a_timeout() -> None:
    """CA-13: it is an ordinary cancellation, so `asyncio.timeout` works."""
    async with Agent(ScriptedModel(hangs("par"), says("ok"))) as agent:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(3):
                await agent.run("a")
        assert asyncio.get_running_loop().time() == 3
        assert story(agent.session).endswith("TE 1 aborted{caller}")
        assert (await agent.run("b")).ok


async def test_cancelling_who_awaits_idle_stops_only_the_waiting() -> None:
    """CA-13."""
    gate = Gate()
    async with Agent(ScriptedModel(gated(gate, says("ok")))) as agent:
        receipt = agent.followup("a")
        await gate.reached
        waiter = asyncio.ensure_future(agent.idle())
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter
        gate.open()
        assert (await receipt.turn()).ok


async def test_run_ends_with_the_turn_that_claimed_its_message() -> None:
    """CA-13, story 5: not admitted, so it is taken back, and the result says why."""
    async with Agent(ScriptedModel()) as agent:

        @agent.on.pre_step
        def fail(proposal: Proposal) -> None:
            raise RuntimeError("no")

        result = await agent.run("a")
        assert isinstance(result.reason, Failed)
        assert story(agent.session).endswith("RET 1 T[a] error times 1 TE 1 error{UNKNOWN} xT[a]")


async def test_run_does_not_wait_for_a_message_that_is_parked() -> None:
    """CA-13: the turn before it failed: the message is taken back with that reason."""
    gate = Gate()
    async with Agent(ScriptedModel(gated(gate, fails("AUTH")))) as agent:
        first = asyncio.ensure_future(agent.run("a"))
        await gate.reached
        second = asyncio.ensure_future(agent.run("b"))
        await asyncio.sleep(0)
        gate.open()
        for running in (first, second):
            result = await running
            assert isinstance(result.reason, Failed)
            assert result.reason.code == "AUTH"
        assert len(agent.inbox) == 0


@pytest.mark.parametrize("earlier", [False, True])
async def test_run_whose_message_no_turn_took_raises_instead_of_showing_another_result(earlier: bool) -> None:
    """CA-13: a stop that keeps the inbox, before any turn of this drive."""
    async with Agent(ScriptedModel(says("before"))) as agent:
        if earlier:
            await agent.run("earlier")
        running = asyncio.ensure_future(agent.run("a"))
        agent.on.status(lambda status: agent.cancel(keep_inbox=True) if status is Status.RUNNING else None)
        with pytest.raises(InputDropped):
            await running
        assert len(agent.inbox) == 0


async def test_a_message_of_run_that_came_back_is_not_taken_by_the_next_turn() -> None:
    """CA-13: taken back before a turn that was woken meanwhile can claim it."""
    async with Agent(ScriptedModel(says("s"))) as agent:
        slow = True

        @agent.on.pre_step
        async def think(proposal: Proposal) -> None:
            if slow:
                await asyncio.get_running_loop().create_future()

        running = asyncio.ensure_future(agent.run("a"))
        await seen(agent, InboxClaimed)
        agent.cancel(keep_inbox=True)
        slow = False
        agent.steer("s")
        assert (await running).reason == Aborted(Cause("user"))
        await agent.idle()
        assert story(agent.session).split("TE 1 ")[1] == lines("""
            aborted{user} xT[a] TS 2 CL 2.1 T[s] SS 2.1 UM s AM"s" SE 2.1 completed TE 2 completed
        """)


# Disposal


async def test_leaving_stops_what_runs_and_keeps_the_queue() -> None:
    """CA-10: cause disposed; the queued tail never starts, and is there after a restart."""
    store = BrittleStore()
    async with Agent(ScriptedModel(hangs("par")), store=store) as agent:
        agent.followup("a")
        agent.followup("b")
        await seen(agent, AssistantChunk)
        session_id = agent.session.id
    assert story(agent.session).endswith('AM!"par" SE 1.1 aborted TE 1 aborted{disposed}')
    assert agent.status is Status.CLOSED
    async with Agent(ScriptedModel(says("b")), store=store, session=session_id) as agent:
        assert words(agent.inbox.next_turn) == ["b"]
        agent.wake()
        await agent.idle()
        assert_laws(agent.session)


async def test_an_earlier_cause_is_kept_by_leaving() -> None:
    """CA-10."""
    async with Agent(ScriptedModel(hangs())) as agent:
        agent.followup("a")
        await seen(agent, RequestSent)
        agent.cancel("user")
    assert story(agent.session).endswith("TE 1 aborted{user}")


async def test_what_is_sent_while_leaving_stays_parked() -> None:
    """CA-10, CA-06: nothing is latched under disposal."""
    async with Agent(ScriptedModel(hangs())) as agent:
        agent.on.observe(CancelRequested)(lambda event: agent.followup("too late"))
        agent.followup("a")
        await seen(agent, RequestSent)
    assert story(agent.session).endswith("TE 1 aborted{disposed}")
    assert [waiting.message.text for waiting in agent.session.state.queues.next_turn] == ["too late"]


async def test_a_closed_agent_cannot_be_stopped() -> None:
    async with Agent(ScriptedModel()) as agent:
        pass
    with pytest.raises(SessionClosed):
        agent.cancel()


async def test_a_stop_reaches_what_runs_even_when_it_cannot_be_put_on_record() -> None:
    """CA-11, D-22: the store has failed while a body runs; the body is told all the same."""
    store = BrittleStore()
    agent = Agent(ScriptedModel(calls("hang")), tools=[hang], store=store)
    await agent.open()
    running = asyncio.ensure_future(agent.run("go"))
    await seen(agent, ToolStarted)
    store.break_now()
    with pytest.raises(StoreFailed):
        agent.cancel()
    with pytest.raises(StoreFailed):
        await running
    assert agent.status is Status.FAILED
    with pytest.raises(StoreFailed):
        await agent.aclose()


async def test_leaving_after_the_store_has_failed_under_a_body_ends_the_body() -> None:
    """CA-10, D-22."""
    store = BrittleStore()
    agent = Agent(ScriptedModel(calls("hang")), tools=[hang], store=store)
    await agent.open()
    agent.followup("go")
    await seen(agent, ToolStarted)
    store.break_now()
    with pytest.raises(StoreFailed):
        await agent.aclose()
    assert agent.status is Status.CLOSED


class SlowToStop:
    """An adapter that takes its time to close its stream."""

    provider = "slow"
    name = "slow"
    retry = None

    async def stream(self, request: ModelRequest, signal: Signal) -> Any:
        try:
            yield TextDelta("par")
            await asyncio.get_running_loop().create_future()
        finally:
            await asyncio.sleep(2)

    async def aclose(self) -> None: ...


async def test_a_stream_that_closes_slowly_is_awaited() -> None:
    """CA-09: nothing outlives its turn."""
    async with Agent(SlowToStop()) as agent:
        running = asyncio.ensure_future(agent.run("a"))
        await seen(agent, AssistantChunk)
        agent.cancel()
        await running
        assert asyncio.get_running_loop().time() == 2


async def test_chunks_after_the_stop_are_not_logged() -> None:
    """ST-11: the signal is checked before each chunk."""

    class Deaf(SlowToStop):
        async def stream(self, request: ModelRequest, signal: Signal) -> Any:
            chunks: list[Chunk] = [TextDelta("a"), TextDelta("b"), Finish()]
            for chunk in chunks:
                yield chunk

    async with Agent(Deaf()) as agent:
        agent.on.observe(AssistantChunk)(lambda event: agent.cancel())
        await agent.run(Message.user("go"))
        assert len(agent.session.facts(AssistantChunk)) == 1
