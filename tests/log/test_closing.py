"""How everything that is open comes to its end: row by row, and at every line of a rich log."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fates import fates
from interlock import (
    Accept,
    Agent,
    ApprovalRequest,
    Approved,
    Ask,
    Budget,
    Continue,
    Mailbox,
    MemoryStore,
    Proposal,
    Reject,
    Rejected,
    RetryPolicy,
    Stopping,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
)
from interlock.log.closing import CRASHED, Ending, cancelled, closers, failed, hook_stopped, over_budget
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    CallError,
    Fact,
    Failure,
    InboxClaimed,
    InboxDropped,
    InboxReturned,
    Pending,
    RequestFailed,
    RequestSent,
    RetryScheduled,
    SessionOpened,
    SessionRepaired,
    StepEnd,
    StepStart,
    SubcallEnd,
    SubcallStart,
    ToolCalled,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
    known_facts,
)
from interlock.log.laws import check
from interlock.log.messages import PERSON, Message, Reasoning, Source, Text, ToolUse
from interlock.log.reasons import (
    Aborted,
    Cause,
    Completed,
    Failed,
    Interrupted,
    OverBudget,
)
from interlock.log.session import open_session
from interlock.log.state import State
from interlock.testing import (
    Gate,
    ScriptedModel,
    assert_laws,
    call,
    calls,
    fails,
    gated,
    hangs,
    max_tokens,
    says,
)

from .lawful_logs import (
    ANSWERED,
    BEGUN,
    CALLED,
    CLAIMED,
    DONE,
    HEADED,
    NESTED,
    SENT,
    STARTED,
    STEP,
    TURN,
    USES,
    WITH_CONTEXT,
    answer,
    ask,
    called,
    decided,
    message,
    put,
    result,
    state_of,
    written,
)

pytestmark = pytest.mark.virtual

CANCEL = cancelled(Cause("user"), keep_inbox=False)
KEEP = cancelled(Cause("user"), keep_inbox=True)
FAILED = failed(Failed("UNKNOWN", "it broke"))
BUDGET = over_budget(OverBudget("tool_calls", 2, 2))
HOOK = hook_stopped()
ENDINGS = {
    "cancel": CANCEL,
    "cancel, inbox kept": KEEP,
    "failure": FAILED,
    "budget": BUDGET,
    "hook": HOOK,
    "crash": CRASHED,
}
UNSTARTED = {
    "cancel": "ABORTED_BEFORE_DISPATCH",
    "cancel, inbox kept": "ABORTED_BEFORE_DISPATCH",
    "failure": "TOOL_NOT_STARTED",
    "budget": "BUDGET_EXHAUSTED",
    "hook": "HOOK_STOPPED_CONTINUATION",
    "crash": "TOOL_NOT_STARTED",
}
every_ending = pytest.mark.parametrize("name", ENDINGS)


def closed(before: tuple[Fact, ...], ending: Ending, contexts: Any = None) -> list[Fact]:
    """What ends this log; checked to be lawful, to leave nothing open, and to be the same each time."""
    state = state_of(before)
    facts = closers(state, ending, contexts)
    assert closers(state, ending, contexts) == facts
    after = (*before, *facts)
    assert check(written(after)) == []
    end = state_of(after)
    assert (end.turn, end.claim, end.approvals, end.queues.reserved) == (None, None, {}, {})
    assert closers(end, ending) == []
    return facts


def middle(before: tuple[Fact, ...], ending: Ending, contexts: Any = None) -> list[Fact]:
    """The same without the ends of step and turn."""
    return [fact for fact in closed(before, ending, contexts) if not isinstance(fact, (StepEnd, TurnEnd))]


def codes(facts: list[Fact]) -> list[str | None]:
    return [
        fact.error.code if fact.error is not None else None
        for fact in facts
        if isinstance(fact, ToolResulted)
    ]


def chunk(text: str, kind: Any = "text", block: int = 0) -> AssistantChunk:
    return AssistantChunk(7, kind, block, text)


# The table, row by row


@every_ending
def test_nothing_open_needs_no_end(name: str) -> None:
    assert closers(state_of(BEGUN), ENDINGS[name]) == []


@every_ending
def test_step_and_turn_end_with_the_reason(name: str) -> None:
    """The last row."""
    step, turn = {
        "cancel": ("aborted", Aborted(Cause("user"))),
        "cancel, inbox kept": ("aborted", Aborted(Cause("user"))),
        "failure": ("error", Failed("UNKNOWN", "it broke")),
        "budget": ("budget", OverBudget("tool_calls", 2, 2)),
        "hook": ("hook-stopped", Completed(by="hook")),
        "crash": ("interrupted", Interrupted()),
    }[name]
    assert closed(STEP, ENDINGS[name]) == [
        StepEnd(1, 1, step),  # type: ignore[arg-type]
        TurnEnd(1, turn, 1, pending=Pending(0, 2)),  # type: ignore[arg-type]
    ]


@every_ending
def test_a_turn_without_a_step_ends_alone(name: str) -> None:
    (end,) = closed(TURN, ENDINGS[name])
    assert isinstance(end, TurnEnd)
    assert (end.steps, end.pending) == (0, Pending(0, 2))


@every_ending
def test_a_wait_for_a_retry_has_no_end_of_its_own(name: str) -> None:
    waiting = (
        *SENT,
        RequestFailed(7, Failure("SERVER", "no")),
        RetryScheduled("r", 7, "p", "normal", "policy", 1, 500),
    )
    assert middle(waiting, ENDINGS[name]) == []


@pytest.mark.parametrize("name", ["cancel", "cancel, inbox kept", "budget", "crash"])
def test_a_request_that_was_cut_leaves_its_visible_prefix(name: str) -> None:
    streamed = (
        *SENT,
        chunk("hm", "reasoning", 0),
        chunk("so ", "text", 1),
        chunk("far", "text", 1),
        AssistantChunk(7, "call", 2, '{"a', {"id": "c1", "name": "look"}),
        AssistantChunk(7, "usage", value={"input": 3, "output": 1}),
    )
    (prefix,) = middle(streamed, ENDINGS[name])
    assert isinstance(prefix, AssistantMessage)
    assert (prefix.blocks, prefix.interrupted, prefix.sent) == ((Reasoning("hm"), Text("so far")), True, 7)
    assert prefix.usage is not None
    assert prefix.usage.input == 3


@pytest.mark.parametrize("name", ["cancel", "budget", "crash"])
@pytest.mark.parametrize(
    "chunks", [(), (chunk(" \n"),), (AssistantChunk(7, "call", 0, "{", {"id": "c", "name": "look"}),)]
)
def test_a_request_that_showed_nothing_leaves_nothing(name: str, chunks: tuple[Fact, ...]) -> None:
    """ST-03."""
    assert middle((*SENT, *chunks), ENDINGS[name]) == []


def test_a_request_inside_which_something_failed_is_a_failed_one() -> None:
    assert middle((*SENT, chunk("so far")), FAILED) == [RequestFailed(7, Failure("UNKNOWN", "it broke"))]


@every_ending
def test_a_question_is_withdrawn_or_unavailable_and_its_call_has_not_started(name: str) -> None:
    asked = (*CALLED, decided("ask"), ask(9))
    facts = middle(asked, ENDINGS[name])
    outcome: Any = "unavailable" if name == "crash" else "cancelled"
    assert facts[0] == ApprovalDecided("a", 9, "digest", outcome)
    assert codes(facts) == [UNSTARTED[name]] * 2


@every_ending
def test_calls_that_nobody_looked_at_get_their_pair_in_order(name: str) -> None:
    """Law 4, SC-09, D-16."""
    code = UNSTARTED[name]
    facts = middle(ANSWERED, ENDINGS[name])
    assert [type(fact) for fact in facts] == [ToolCalled, ToolResulted] * 2
    for i, use in enumerate(USES):
        pair, end = facts[2 * i], facts[2 * i + 1]
        assert pair == ToolCalled(1, 1, i, use.id, "look", "{}", synthetic=True)
        assert isinstance(end, ToolResulted)
        assert (end.call, end.call_id, end.error) == (9 + 2 * i, use.id, CallError(code))
        assert end.content[0].text.startswith(f"Error [{code.lower()}]: ")


@every_ending
def test_an_admitted_call_that_has_not_started_gets_only_its_result(name: str) -> None:
    facts = middle(CALLED, ENDINGS[name])
    assert [type(fact) for fact in facts] == [ToolResulted, ToolCalled, ToolResulted]
    assert codes(facts) == [UNSTARTED[name]] * 2


@every_ending
def test_a_call_that_was_allowed_and_not_started_has_not_run(name: str) -> None:
    allowed = (*CALLED, decided("ask"), ask(9), answer("allowed-once"))
    facts = middle(allowed, ENDINGS[name])
    assert codes(facts)[0] == UNSTARTED[name]
    assert not any(isinstance(fact, ApprovalDecided) for fact in facts)


@every_ending
def test_of_a_call_that_had_started_the_outcome_is_unknown(name: str) -> None:
    """D-23: it may have had effects, and the model is told so."""
    facts = middle(STARTED, ENDINGS[name])
    first = facts[0]
    assert isinstance(first, ToolResulted)
    assert first.error == CallError("TOOL_OUTCOME_UNKNOWN", "", True)
    assert first.started == 1010
    assert codes(facts)[1] == UNSTARTED[name]


@every_ending
@pytest.mark.parametrize("review", [False, True])
def test_a_known_outcome_is_the_result_unless_a_crash_cut_its_review(name: str, review: bool) -> None:
    """D-8b, D-25."""
    context = Message.context("note")
    settled = ToolSettled(9, True, (Text("secret"),), contexts=(context,), conclude=True, review=review)
    facts = middle((*STARTED, settled), ENDINGS[name])
    first = facts[0]
    assert isinstance(first, ToolResulted)
    if name == "crash" and review:
        assert first.error == CallError("RESULT_WITHHELD", "", True)
        assert "secret" not in first.content[0].text
    else:
        assert (first.error, first.content, first.conclude) == (None, (Text("secret"),), True)
        assert first.contexts == (context,)


def test_a_denial_that_was_settled_before_the_crash_comes_back_as_that() -> None:
    """Story 6."""
    settled = ToolSettled(9, False, (Text("Error [denied]: no"),), CallError("DENIED"))
    facts = middle((*CALLED, decided("deny"), settled), CRASHED)
    assert codes(facts) == ["DENIED", "TOOL_NOT_STARTED"]


def test_a_later_call_that_settled_first_keeps_its_outcome_and_its_place() -> None:
    """D-8b: without the line, a finished WRITE would be lost by a restart."""
    uses = (ToolUse("c1", "look", "{}"), ToolUse("c2", "look", "{}"))
    before = (
        *SENT,
        AssistantMessage(7, uses),
        called(0),
        called(1),
        ToolStarted(9, "d"),
        ToolStarted(10, "d"),
        ToolSettled(10, True, (Text("written"),)),
    )
    facts = middle(before, CRASHED)
    assert codes(facts) == ["TOOL_OUTCOME_UNKNOWN", None]


@every_ending
def test_contexts_of_committed_results_are_told_before_the_next_end(name: str) -> None:
    """D-1: before the end of the step, or of the turn when the step has ended."""
    note = Message.context("note", source=Source("tool", "look"))
    named = Message(role="system", content=note.content, id="x9.1", source=note.source)
    uncommitted = (*CALLED, result(9, "c1", contexts=(named,)))
    facts = closed(uncommitted, ENDINGS[name])
    assert [type(fact) for fact in facts[-3:]] == [UserMessage, StepEnd, TurnEnd]
    assert facts[-3] == UserMessage("x9.1", note.source, "system", note.content, "context", call=9)
    after_step = (*uncommitted, called(1), result(11, "c2"), StepEnd(1, 1, "tools"))
    facts = closed(after_step, ENDINGS[name])
    assert [type(fact) for fact in facts] == [UserMessage, TurnEnd]


def test_contexts_that_only_a_live_turn_knows_ride_on_the_results_it_writes() -> None:
    """D-25: what listeners had said of a call that has no result stays."""
    said = Message(role="system", content=(Text("said"),), id="x9.1", source=Source("plugin"))
    facts = closed(CALLED, CANCEL, {9: (said,)})
    assert [fact.contexts for fact in facts if isinstance(fact, ToolResulted)] == [(said,), ()]
    assert [fact.id for fact in facts if isinstance(fact, UserMessage)] == ["x9.1"]


@every_ending
def test_nested_calls_end_before_their_outer_call_and_the_innermost_first(name: str) -> None:
    """As its outer call: unknown if it ran, else unstarted; its question is withdrawn."""
    deep = (
        *NESTED,
        ToolStarted(11, "d"),
        SubcallStart(11, "c1:look:look", "look", {}),
        decided("ask", 13),
        ask(13),
    )
    facts = middle(deep, ENDINGS[name])
    outcome: Any = "unavailable" if name == "crash" else "cancelled"
    assert facts[0] == ApprovalDecided("a", 13, "digest", outcome)
    nested = [(fact.start, fact.error) for fact in facts if isinstance(fact, SubcallEnd)]
    assert nested == [
        (13, CallError(UNSTARTED[name])),
        (11, CallError("TOOL_OUTCOME_UNKNOWN", "", True)),
    ]
    assert codes(facts)[0] == "TOOL_OUTCOME_UNKNOWN"


@every_ending
def test_reserved_messages_have_their_one_fate(name: str) -> None:
    """D-3, CA-07: dropped only by a stop that does not keep the inbox."""
    facts = closed(CLAIMED, ENDINGS[name])
    if name == "cancel":
        assert facts[0] == InboxDropped(1, ("m", "n"), "canceled", by="cancel")
        pending = Pending()
    else:
        why: Any = {"failure": "error", "crash": "crash"}.get(name, "cancel")
        assert facts[0] == InboxReturned(1, ("m", "n"), (), why, 1)
        pending = Pending(0, 2)
        queue = state_of((*CLAIMED, *facts)).queues.next_step
        assert [waiting.id for waiting in queue] == ["m", "n"]
    end = facts[-1]
    assert isinstance(end, TurnEnd)
    assert end.pending == pending


def test_what_was_admitted_already_is_not_given_back() -> None:
    """A crash between the lines of one batch, on a store that could cut it."""
    entered = (*CLAIMED, StepStart(1, 1), UserMessage("m", PERSON, "user", (Text("m"),), claim=4))
    assert closed(entered, CRASHED)[0] == InboxReturned(1, ("n",), (), "crash", 1)


def test_returned_messages_go_before_what_came_later() -> None:
    both = (
        *BEGUN,
        put("s"),
        put("t", to="next-turn"),
        TurnStart(1),
        InboxClaimed(1, 1, ("s",), ("t",)),
        put("later"),
        put("later too", to="next-turn"),
    )
    facts = closed(both, FAILED)
    assert facts[0] == InboxReturned(1, ("s",), ("t",), "error", 1)
    state = state_of((*both, *facts))
    assert [waiting.id for waiting in state.queues.next_step] == ["s", "later"]
    assert [waiting.id for waiting in state.queues.next_turn] == ["t", "later too"]


def test_the_third_error_drops_what_returned_twice_and_returns_the_rest() -> None:
    """D-3."""
    facts: tuple[Fact, ...] = CLAIMED
    for turn in (1, 2):
        facts = (*facts, *closed(facts, FAILED), TurnStart(turn + 1))
        if turn == 2:
            facts = (*facts, put("fresh", at=2))
        waiting = [one.id for one in state_of(facts).queues.next_step]
        facts = (*facts, InboxClaimed(turn + 1, 1, tuple(waiting)))
    assert closed(facts, FAILED)[:2] == [
        InboxDropped(3, ("m", "n"), "failed", "it broke", "retries"),
        InboxReturned(3, ("fresh",), (), "error", 1),
    ]


def test_rejected_messages_are_named_at_the_end() -> None:
    before = (*CLAIMED, InboxDropped(1, ("m", "n"), "rejected", "no", "doorman", (message("m"),)))
    end = closed(before, CRASHED)[-1]
    assert isinstance(end, TurnEnd)
    assert end.rejected == ("m", "n")


@pytest.mark.parametrize(
    "before",
    [STEP, HEADED, SENT, ANSWERED, CALLED, STARTED, NESTED, DONE, WITH_CONTEXT, TURN, CLAIMED],
    ids=lambda before: f"{len(before)} lines, {before[-1].type}",
)
@every_ending
def test_every_beginning_has_a_lawful_end(before: tuple[Fact, ...], name: str) -> None:
    if ENDINGS[name] is HOOK and before is SENT:
        return  # a hook stops a batch of calls, when no request is open
    closed(before, ENDINGS[name])


# Every line of a rich log


def tools(record: list[str]) -> list[Any]:
    @tool(effect="read", concurrency="parallel")
    async def look(ms: int = 0) -> str:
        await asyncio.sleep(ms / 1000)
        return "seen"

    @tool
    async def write(what: str) -> str:
        record.append(what)
        return "written"

    @tool(effect="idempotent", concurrency="parallel")
    async def note(what: str, ctx: ToolContext) -> str:
        ctx.defer(what)
        return "noted"

    @tool
    async def compose(ctx: ToolContext) -> str:
        found = await ctx.call_tool("look")
        await ctx.call_tool("note", what="nested note")
        ctx.defer("own note")
        return f"{(await ctx.call_tool('inner')).value} {found.value}"

    @tool
    async def inner(ctx: ToolContext) -> str:
        return f"{(await ctx.call_tool('look')).value}"

    @tool(effect="read")
    async def fail() -> str:
        raise ToolError("no")

    @tool(effect="read", concurrency="parallel")
    async def hang() -> str:
        await asyncio.get_running_loop().create_future()
        return "never"

    @tool(effect="read")
    async def finish(ctx: ToolContext) -> str:
        ctx.conclude()
        return "finished"

    return [look, write, note, compose, inner, fail, hang, finish]


async def rich_log() -> list[Event]:
    """A session in which nearly everything happens."""
    gate = Gate()
    model = ScriptedModel(
        fails("SERVER", after="a false start"),
        gated(
            gate,
            calls(
                call("look", ms=30),
                call("note", what="n1"),
                call("write", what="w1"),
                call("compose"),
                call("fail"),
                saying="Let me see",
            ),
            after=1,
        ),
        says("first answer", usage=(10, 3)),
        says("second answer"),
        max_tokens("cut", call("look")),
        calls(call("write", what="w2"), call("write", what="w3"), call("unheard_of"), call("look", raw="{")),
        says("after the approvals"),
        calls(call("look", ms=5), call("hang"), call("write", what="never"), call("compose")),
        calls(call("look"), call("note", what="stops"), call("write", what="never")),
        calls(call("finish"), call("note", what="last")),
        calls(*[call("look")] * 5),
        hangs("an answer that is cut"),
    )
    answers = iter([Approved(), Rejected("rather not")])

    async def approver(request: ApprovalRequest) -> Any:
        await asyncio.sleep(0.5)
        return next(answers)

    async with Agent(model, tools=tools([]), approver=approver, retry=RetryPolicy(base=0.1)) as agent:
        once = {"raise", "continue"}

        @agent.on.pre_step
        def pre_step(proposal: Proposal) -> Reject | None:
            texts = [m.text for m in proposal.messages]
            if "rejected" in texts:
                return Reject("not this")
            if "raises" in texts and "raise" in once:
                once.remove("raise")
                raise RuntimeError("once")
            return None

        @agent.on.pre_execute
        def policy(call: ToolCall) -> Ask | None:
            return Ask("may it?") if call.arguments.get("what") in ("w2", "w3") else None

        @agent.on.turn_stopping
        def stopping(stopping: Stopping) -> Continue | None:
            if "continue" in once:
                once.remove("continue")
                return Continue("go on", contexts=("because",))
            return None

        @agent.on.post_execute
        async def post(call: ToolCall, result: ToolResult) -> Accept | None:
            await asyncio.sleep(0.01)
            return (
                Accept(stop=True, contexts=("stopping",)) if call.arguments.get("what") == "stops" else None
            )

        agent.followup("first")
        await gate.reached
        agent.steer("steered")
        agent.inject("injected")
        agent.followup("cut short")
        gate.open()
        await agent.idle()
        for prompt in ("rejected", "raises"):
            agent.followup(prompt)
            await agent.idle()
        agent.wake()
        await agent.idle()
        agent.followup("to be stopped")
        while not any(fact.call for fact in agent.session.facts(ToolSettled)[-1:] if agent.session.open):
            await agent.session.changed(agent.session.head)
        agent.inject("kept back")
        agent.cancel(keep_inbox=True)
        await agent.idle()
        await agent.run("to be stopped by a hook")
        await agent.run("to be concluded")
        await agent.run("too much", budget=Budget(tool_calls=3))
        await (await Mailbox(agent.session.id, store=agent._store).cancel()).taken()
        agent.followup("to be left")
        agent.followup("still queued")
        while not isinstance(agent.session.events[-1].fact, AssistantChunk):
            await agent.session.changed(agent.session.head)
        log = agent.session.events
    assert_laws(agent.session)
    return list(log)


async def cut(events: list[Event], at: int) -> MemoryStore:
    """A store that holds the first `at` lines of a session, as after a crash."""
    store = MemoryStore()
    journal = await store.create("s")
    journal.write(events[:at])
    await journal.close()
    return store


async def test_the_log_is_rich() -> None:
    """So that cutting it means something: nearly every kind of line is there."""
    kinds = {event.type for event in await rich_log()}
    missing = {
        "tool/abandoned",
        "tool/late",
        "session/repaired",
        "session/erased",
        "budget/warned",
        "history/replaced",
        "hook/invoked",
        "hook/result",
        "hook/problem",
        "tool/prepared",
        "policy/changed",
        "grant/revoked",
        "observer/failed",
        "approval/late",
        "import/kept",
    }
    core = {name for name in known_facts() if not name.startswith("test/")}
    assert core - kinds <= missing


@pytest.mark.slow
async def test_a_log_that_is_cut_at_any_line_is_repaired_and_goes_on() -> None:
    """Law 4, 5, ER-06, D-23, UW-02, UW-05: from every prefix, lawful, nothing lost, and the next turn runs."""
    events = await rich_log()
    for at in range(1, len(events) + 1):
        store = await cut(events, at)
        model = ScriptedModel(*[says("again")] * 9)
        ran: list[str] = []
        async with Agent(model, tools=tools(ran), store=store, session="s") as agent:
            session = agent.session
            where = f"cut before line {at}, after {events[at - 1].type}"
            assert_laws(session)
            assert list(session.events[:at]) == events[:at], where
            if state_at(events[:at]).waiting:
                assert session.open, where
                continue  # tests/loop/test_waiting.py has this
            assert not session.open, where
            repaired = session.facts(SessionRepaired)
            opened = next(e.seq for e in session.events[at:] if isinstance(e.fact, SessionOpened))
            assert opened == at, where
            was_open = check_open(events[:at])
            assert len(repaired) == was_open, where
            if was_open:
                assert session.events[-1].fact == repaired[0], where
                assert repaired[0].from_seq == at + 1, where
            assert all(len(ends) == 1 for ends in fates(session.events).values()), where
            agent.followup("next")
            await agent.idle()
            assert len(agent.inbox) == 0, where
            assert session.facts(TurnEnd)[-1].reason == Completed(), where
            assert all(len(ends) == 1 for ends in fates(session.events).values()), where
            assert ran == [], where  # nothing that may have had effects is done again
            assert_laws(session)


def state_at(events: list[Event]) -> State:
    state = State()
    for event in events:
        state.apply(event)
    return state


def check_open(events: list[Event]) -> bool:
    """Whether a turn is open after these lines."""
    started = sum(isinstance(event.fact, TurnStart) for event in events)
    ended = sum(isinstance(event.fact, TurnEnd) for event in events)
    return started > ended


async def test_repairing_is_the_same_each_time_and_once_is_enough() -> None:
    """ER-06: deterministic, and a repaired log needs no repair."""
    events = await rich_log()
    for at in range(1, len(events) + 1, 7):
        logs: list[list[Fact]] = []
        for _ in range(2):
            store = await cut(events, at)
            session = await open_session("s", store=store)
            logs.append(session.facts()[at + 1 :])
            await session.close()
            session = await open_session("s", store=store)
            assert isinstance(session.facts()[-1], SessionOpened)
            await session.close()
        assert logs[0] == logs[1]


async def test_a_crash_during_the_repair_is_repaired_in_turn() -> None:
    """Whatever was written of it: on a store that could cut an append."""
    events = await rich_log()
    ends = [
        i
        for i, event in enumerate(events)
        if isinstance(event.fact, (ToolStarted, RequestSent, InboxClaimed))
        and not state_at(events[: i + 1]).waiting
    ]
    for at in ends[::3]:
        session = await open_session("s", store=await cut(events, at + 1))
        mended = list(session.events)
        for again in range(at + 2, len(mended) + 1):
            store = await cut(mended, again)
            twice = await open_session("s", store=store)
            assert_laws(twice)
            assert not twice.open
            assert [m.text for m in twice.history.view()] == [m.text for m in session.history.view()]


async def test_the_visible_prefix_of_a_stream_that_a_crash_cut_is_kept() -> None:
    """The same as a stop would have kept, and the model is told it next time."""
    events = await rich_log()
    shown = []
    for at, event in enumerate(events, 1):
        if not isinstance(event.fact, AssistantChunk) or event.fact.kind == "finish":
            continue
        session = await open_session("s", store=await cut(events, at))
        prefixes = [fact for fact in session.facts()[at:] if isinstance(fact, AssistantMessage)]
        streamed = [
            line.fact.text
            for line in events[:at]
            if isinstance(line.fact, AssistantChunk)
            and line.fact.sent == event.fact.sent
            and line.fact.kind == "text"
        ]
        assert [fact.interrupted for fact in prefixes] == [True] * len(prefixes)
        assert len(prefixes) == bool(streamed)
        if streamed:
            shown.append("".join(streamed))
            assert session.history.view()[-1].text == shown[-1]
    assert {"a false ", "Let me see", "an answer that is "} <= set(shown)
