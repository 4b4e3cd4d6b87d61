"""When a step waits for a person, and what a crash ends in one that does: D-23."""

from __future__ import annotations

from typing import Any

import pytest

from interlock.log.closing import CRASHED, cancelled, closers, end_call, end_started
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalDecided,
    AssistantMessage,
    CallError,
    CancelRequested,
    Fact,
    InboxClaimed,
    SessionOpened,
    StepEnd,
    StepStart,
    SubcallEnd,
    SubcallStart,
    ToolResulted,
    ToolSettled,
    ToolStarted,
)
from interlock.log.laws import check
from interlock.log.messages import Message, Source, Text, ToolUse
from interlock.log.reasons import Cause
from interlock.log.state import State

from .lawful_logs import (
    NOTE,
    SENT,
    STEP,
    TURN,
    answer,
    ask,
    called,
    decided,
    put,
    result,
    state_of,
    told,
    written,
)

USES = tuple([ToolUse(f"c{n}", "look", "{}") for n in (1, 2, 3, 4)])
BATCH: tuple[Fact, ...] = (*SENT, AssistantMessage(7, USES))  # 8
# The seqs of the calls below: each is admitted before anything else of the batch.
C1, C2, C3, C4 = 9, 10, 11, 12
ADMITTED = (*BATCH, called(0), called(1), called(2), called(3))  # 12


def asking(call: int, **more: Any) -> tuple[Fact, ...]:
    return decided("ask", call), ask(call, f"a{call}")


def yes(call: int, outcome: Any = "allowed-once") -> ApprovalDecided:
    return answer(outcome, f"a{call}", call)


def started(call: int, digest: str = "digest") -> Fact:
    return ToolStarted(call, digest)


def ended(before: tuple[Fact, ...]) -> list[Fact]:
    """What a crash ends of this log; checked to be lawful, to leave the step waiting, and to be enough."""
    state = state_of(before)
    assert state.waiting
    facts = end_started(state)
    after = (*before, *facts)
    assert check(written(after)) == []
    left = state_of(after)
    assert left.waiting
    assert end_started(left) == []
    return facts


# When it waits


@pytest.mark.parametrize(
    ("more", "waits"),
    [
        ((), False),
        (asking(C1), True),
        ((*asking(C1), yes(C1)), True),
        ((*asking(C1), yes(C1, "rejected")), True),
        ((*asking(C1), yes(C1), started(C1)), False),
        ((*asking(C1), yes(C1, "rejected"), ToolSettled(C1, False)), False),
        ((*asking(C1), yes(C1, "rejected"), result(C1, "c1")), False),
        ((*asking(C1), yes(C1), started(C1), *asking(C2)), True),
        ((*asking(C2), result(C1, "c1")), True),
        ((started(C1), SubcallStart(C1, "n", "look", {}), *asking(14)), False),
        ((*asking(C1), CancelRequested(Cause("user"), 1)), False),
        ((*asking(C2), result(C1, "c1", stop="hook")), False),
    ],
    ids=[
        "nobody is asked",
        "asked",
        "allowed, and not acted on",
        "rejected, and not acted on",
        "allowed and started",
        "rejected and settled",
        "rejected and done",
        "one of two has started",
        "a later call waits",
        "only a nested call waits",
        "the turn was stopped",
        "a hook has stopped the turn",
    ],
)
def test_a_step_waits_while_a_call_of_the_answer_was_asked_about_and_has_gone_no_further(
    more: tuple[Fact, ...], waits: bool
) -> None:
    assert state_of((*ADMITTED, *more)).waiting is waits


def test_a_step_that_has_ended_waits_no_more() -> None:
    results = [result(call, f"c{n}") for n, call in enumerate((C1, C2, C3, C4), 1)]
    done = (*ADMITTED, *asking(C1), yes(C1, "rejected"), *results, StepEnd(1, 1, "tools"))
    assert check(written(done)) == []
    assert not state_of(done).waiting


# What a crash ends


def test_a_call_that_had_started_and_is_next_gets_its_result() -> None:
    """Story 6."""
    (end,) = ended((*ADMITTED, started(C1), *asking(C2)))
    assert isinstance(end, ToolResulted)
    assert (end.call, end.error) == (C1, CallError("TOOL_OUTCOME_UNKNOWN", "", True))
    assert end.started == 1013


def test_a_call_that_had_started_behind_one_that_waits_is_settled() -> None:
    """Story 6, the mirror case: it may not commit before the other."""
    (end,) = ended((*ADMITTED, *asking(C1), started(C2)))
    assert isinstance(end, ToolSettled)
    assert (end.call, end.ok, end.error) == (C2, False, CallError("TOOL_OUTCOME_UNKNOWN", "", True))
    assert not end.review


def test_results_follow_each_other_until_something_is_open() -> None:
    facts = ended((*ADMITTED, started(C1), started(C2), *asking(C3), started(C4)))
    assert [(type(fact), fact.call) for fact in facts if isinstance(fact, (ToolResulted, ToolSettled))] == [
        (ToolResulted, C1),
        (ToolResulted, C2),
        (ToolSettled, C4),
    ]


def test_nothing_else_is_touched() -> None:
    """Not what is settled, denied, admitted, or asked."""
    settled = ToolSettled(C1, True, (Text("done"),), review=True)
    assert ended((*ADMITTED, started(C1), settled, decided("deny", C2), *asking(C3))) == []


def test_nested_calls_end_with_the_body_that_made_them_the_innermost_first() -> None:
    """A nested call's wait ends with its outer body."""
    nested = (
        started(C1),  # 13
        SubcallStart(C1, "n", "look", {}),  # 14
        started(14),
        SubcallStart(14, "n:n", "look", {}),  # 16
        *asking(16),
        *asking(C2),
    )
    facts = ended((*ADMITTED, *nested))
    assert facts[0] == ApprovalDecided("a16", 16, "digest", "unavailable")
    assert [(fact.start, fact.error) for fact in facts if isinstance(fact, SubcallEnd)] == [
        (16, CallError("TOOL_NOT_STARTED")),
        (14, CallError("TOOL_OUTCOME_UNKNOWN", "", True)),
    ]
    assert [fact.call for fact in facts if isinstance(fact, ToolResulted)] == [C1]


def test_what_was_said_before_the_question_rides_on_the_result_of_a_crash() -> None:
    """D-25: contexts of prepare and pre-execute stay, and so does that a person had changed the arguments."""
    asked = ask(C1, f"a{C1}")
    asked = type(asked)(asked.approval_id, C1, "may it?", {}, "digest", contexts=(NOTE,))
    allowed = ApprovalDecided(f"a{C1}", C1, "digest", "allowed-once", edited={"name": "b"})
    facts = ended((*ADMITTED, asked, allowed, started(C1, "another"), *asking(C2)))
    (end,) = facts
    assert isinstance(end, ToolResulted)
    assert end.contexts[0] == NOTE
    assert end.contexts[1].source == Source("runtime", "approval")
    assert (end.contexts[1].id, end.contexts[1].role) == (f"x{C1}.2", "system")
    assert '{"name":"b"}' in end.contexts[1].text
    waiting = closers(state_of((*ADMITTED, asked, allowed)), cancelled(Cause("user"), keep_inbox=True))
    assert next(fact.contexts for fact in waiting if isinstance(fact, ToolResulted)) == end.contexts


@pytest.mark.parametrize(
    ("error", "withheld"),
    [
        (None, True),
        (CallError("TOOL_FAILED", "", True), True),
        (CallError("DENIED"), False),
        (CallError("APPROVAL_REJECTED"), False),
    ],
)
def test_only_what_a_body_did_is_withheld_for_want_of_a_review(
    error: CallError | None, withheld: bool
) -> None:
    """D-25, story 6: a denied sibling comes back as denied."""
    settled = ToolSettled(C2, error is None, (Text("as it was"),), error, review=True)
    before = (*ADMITTED, *(asking(C1)), *([started(C2)] if withheld else []), settled)
    state = state_of(before)
    call = state.call(C2)
    assert call is not None
    end = end_call(state, call, CRASHED, next_seq=state.head + 1)[-1]
    assert isinstance(end, ToolResulted)
    if withheld:
        assert end.error == CallError("RESULT_WITHHELD", "", True)
    else:
        assert (end.error, end.content) == (error, (Text("as it was"),))


# The laws


def broken(*more: Fact) -> list[str]:
    return [breach.law for breach in check(written((*ADMITTED, *more)))]


def test_a_call_is_asked_about_once() -> None:
    assert broken(*asking(C1), ask(C1, "again")) == ["one approval"]
    assert broken(*asking(C1), yes(C1), ask(C1, "again")) == ["one approval"]


def test_a_call_that_runs_or_is_settled_is_asked_about_no_more() -> None:
    assert broken(started(C1), ask(C1)) == ["one approval"]
    assert broken(ToolSettled(C1, False, (), CallError("DENIED")), ask(C1)) == ["one approval"]


def test_what_runs_is_what_was_shown_or_what_a_person_put_in_its_place() -> None:
    assert broken(*asking(C1), yes(C1), started(C1, "another")) == ["sealed"]
    edited = ApprovalDecided(f"a{C1}", C1, "digest", "allowed-once", edited={"name": "b"})
    assert broken(*asking(C1), edited, started(C1, "another")) == []


# Folds that the next life needs


def at(times: dict[int, int], facts: tuple[Fact, ...]) -> State:
    """Where these facts stand, written at these times: from seq `n` on at `times[n]`, ms."""
    state, now = State(), 0
    for seq, fact in enumerate(facts):
        now = times.get(seq, now)
        state.apply(Event(seq, now, 1, fact))
    return state


def test_the_clock_stands_still_while_a_person_is_asked_and_between_lives() -> None:
    """BU: `wall` is time of driving."""
    opened = SessionOpened(2, "resume")
    asked = (*ADMITTED, *asking(C1))  # 14
    state = at({3: 1000, 14: 3000, 15: 90_000}, (*asked, opened))
    assert state.turn is not None
    assert state.turn.driven_ms(95_000) == 2000
    allowed = at({3: 1000, 14: 3000, 15: 90_000, 16: 100_000}, (*asked, opened, yes(C1)))
    assert allowed.turn is not None
    assert allowed.turn.driven_ms(100_500) == 2500


def test_the_clock_runs_while_a_body_does_though_somebody_is_asked() -> None:
    both = (*ADMITTED, started(C2), *asking(C1), ToolSettled(C2, True), yes(C1))  # 17
    state = at({3: 1000, 15: 3000, 16: 5000, 17: 50_000}, both)
    assert state.turn is not None
    assert state.turn.driven_ms(50_000) == 4000
    late = at(
        {3: 1000, 14: 3000, 15: 5000, 16: 8000}, (*ADMITTED, *asking(C1), started(C2), ToolSettled(C2, True))
    )
    assert late.turn is not None
    assert late.turn.driven_ms(90_000) == 5000


def test_a_body_that_waits_for_a_question_about_its_own_call_does_not_run() -> None:
    nested = (started(C1), SubcallStart(C1, "n", "look", {}), *asking(14), yes(14), started(14))  # 18
    ends = (SubcallEnd(14, True), result(C1, "c1", None))  # 20
    state = at({3: 1000, 16: 3000, 17: 50_000, 18: 51_000, 20: 52_000}, (*ADMITTED, *nested, *ends))
    assert state.turn is not None
    assert state.turn.driven_ms(52_000) == 4000
    assert state.turn.busy == 0


def test_the_clock_stands_still_between_a_decision_and_the_next_life() -> None:
    before = (*ADMITTED, *asking(C1), yes(C1))  # 15
    state = at({3: 1000, 14: 3000, 15: 4000, 16: 90_000}, (*before, SessionOpened(2, "resume")))
    assert state.turn is not None
    assert state.turn.driven_ms(90_500) == 2500


def test_a_turn_knows_that_its_ceiling_was_reached_and_how_often_nobody_continued_it() -> None:
    cut: tuple[Fact, ...] = (*SENT, AssistantMessage(7, (), "max-tokens"), StepEnd(1, 1, "max-tokens"))
    hook = Message(role="user", content=(Text("go on"),), id="h", source=Source("hook", "stop"))
    steered = put("h")
    steered = type(steered)(steered.list, 2, 0, (hook,))
    state = state_of(cut)
    assert state.turn is not None
    assert (state.turn.max_tokens, state.turn.forced) == (True, 0)
    emptied = put(removed=2)
    forced = (*STEP[:3], emptied, *STEP[3:], StepEnd(1, 1, "completed"))
    forced = (*forced, type(steered)("next-step", 0, 0, (hook,)), InboxClaimed(1, 2, ("h",)), StepStart(1, 2))
    after = state_of(forced)
    assert after.turn is not None
    assert after.turn.forced == 1
    person = (*STEP[:3], emptied, *STEP[3:], StepEnd(1, 1, "completed"), put("p"), InboxClaimed(1, 2, ("p",)))
    spoken = state_of(person)
    assert spoken.turn is not None
    assert spoken.turn.forced == 0


def test_the_history_before_the_turn_is_known() -> None:
    state = state_of((*TURN, StepStart(1, 1), told("x")))
    assert state.turn is not None
    assert state.turn.before == 0
    assert len(state.history) == 1
