"""What a log can never say: each law, broken by hand, is found by an append and by a check of the whole log."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from interlock.errors import IllegalFact
from interlock.log import laws
from interlock.log.event import Event
from interlock.log.facts import (
    FORMAT,
    AssistantChunk,
    AssistantMessage,
    BudgetWarned,
    CancelRequested,
    ContentErased,
    DecisionMade,
    Erased,
    Fact,
    Failure,
    HistoryReplaced,
    HookInvoked,
    InboxClaimed,
    InboxDropped,
    InboxReturned,
    InboxSpliced,
    MailTaken,
    ObserverFailed,
    ParentSession,
    PolicyChanged,
    RequestFailed,
    RequestHeader,
    RequestSent,
    RetryScheduled,
    RetryStarted,
    SessionCreated,
    SessionOpened,
    Span,
    Stamp,
    StepEnd,
    StepStart,
    SubcallEnd,
    SubcallStart,
    ToolAbandoned,
    ToolCalled,
    ToolLate,
    ToolPrepared,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.laws import Breach, check, forbidden
from interlock.log.messages import Message
from interlock.log.reasons import Cause, Completed
from interlock.log.session import Session
from interlock.log.state import State
from interlock.log.stores.memory.store import MemoryStore

from .lawful_logs import (
    ANSWERED,
    BEGUN,
    CALLED,
    CLAIMED,
    DONE,
    END,
    ENDED,
    HEADED,
    NESTED,
    NOTE,
    QUEUED,
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
    put,
    result,
    state_of,
    told,
    written,
)

pytestmark = pytest.mark.virtual


INHERITED: tuple[Fact, ...] = (
    SessionCreated(FORMAT, "f", parent=ParentSession("s", 2)),
    SessionOpened(1, "new"),
    put("m"),
)
OPENED_AS_FORK = SessionOpened(2, "fork")

LETTER = Stamp(3, 0)
STOPS = CancelRequested(Cause("user"), letter=LETTER)
MAILED: tuple[Fact, ...] = (*BEGUN, msgspec.structs.replace(put("m"), letter=LETTER))
ASKED = (*CALLED, ask(9))

BROKEN: list[tuple[str, str, tuple[Fact, ...], Fact]] = [
    ("a second creation", "created", BEGUN, SessionCreated(FORMAT, "s")),
    ("a beginning without creation", "created", (), SessionOpened(1, "new")),
    ("a life that was", "lives", BEGUN, SessionOpened(1, "resume")),
    ("a life too far", "lives", BEGUN, SessionOpened(3, "resume")),
    ("a fork of nothing", "fork", BEGUN, SessionOpened(2, "fork")),
    ("a fork that is opened twice", "fork", (*INHERITED, OPENED_AS_FORK), SessionOpened(3, "fork")),
    ("a fork within a turn", "fork", (INHERITED[0], INHERITED[1], TurnStart(1)), OPENED_AS_FORK),
    ("a tombstone", "erased", TURN, Erased("turn/end")),
    ("an erasure of what is there", "erased", TURN, ContentErased("s", "er-1", "ops")),
    # Letters
    ("a letter that was taken", "mail", MAILED, MailTaken(LETTER, "cancel")),
    (
        "a letter before the last one",
        "mail",
        (*BEGUN, MailTaken(LETTER, "send")),
        MailTaken(Stamp(2, 9), "send"),
    ),
    ("a letter that stops twice", "mail", (*BEGUN, STOPS), STOPS),
    ("a letter that sends again", "mail", MAILED, msgspec.structs.replace(put("n"), letter=LETTER)),
    (
        "a letter that answers again",
        "mail",
        (*ASKED, STOPS),
        msgspec.structs.replace(answer("rejected"), letter=LETTER),
    ),
    # Inbox
    ("a splice of nothing", "splice", BEGUN, InboxSpliced("next-turn", 0)),
    ("a splice behind the end", "splice", QUEUED, put("x", at=3)),
    ("a splice before the start", "splice", QUEUED, put("x", at=-1)),
    ("a removal of too much", "splice", QUEUED, put(at=1, removed=2)),
    ("a removal of less than nothing", "splice", QUEUED, put("x", removed=-1)),
    ("a message without an id", "message id", BEGUN, put("")),
    ("an id that is pending", "one pending", QUEUED, put("m")),
    ("an id that is pending in the other queue", "one pending", QUEUED, put("m", to="next-turn")),
    ("an id twice in one splice", "one pending", BEGUN, put("x", "x")),
    ("an id that is reserved", "one pending", CLAIMED, put("m")),
    ("a claim outside a turn", "turn", QUEUED, InboxClaimed(1, 1, ("m",))),
    ("a claim within a step", "claim", STEP, InboxClaimed(1, 2, ("m",))),
    ("a claim for another step", "claim", TURN, InboxClaimed(1, 2, ("m",))),
    ("a claim for another turn", "claim", TURN, InboxClaimed(2, 1, ("m",))),
    ("a claim of nothing", "claim", TURN, InboxClaimed(1, 1)),
    ("a claim that is not the head", "claim", TURN, InboxClaimed(1, 1, ("n",))),
    ("a claim from the wrong queue", "claim", TURN, InboxClaimed(1, 1, (), ("m",))),
    ("a claim upon a claim", "one fate", CLAIMED, InboxClaimed(1, 1, ("m",))),
    ("a return of what is not reserved", "one fate", CLAIMED, InboxReturned(1, ("x",))),
    ("a return without a claim", "one fate", TURN, InboxReturned(1, ("m",))),
    ("a drop of what is not reserved", "one fate", CLAIMED, InboxDropped(1, ("x",), "canceled")),
    (
        "a second fate",
        "one fate",
        (*CLAIMED, InboxDropped(1, ("m",), "canceled")),
        InboxReturned(1, ("m",)),
    ),
    ("an admission of what is not reserved", "one fate", CLAIMED, told("x", claim=4)),
    ("an admission without a claim", "one fate", STEP, told("m", claim=4)),
    ("an admission that names another claim", "one fate", CLAIMED, told("m", claim=3)),
    # Turn and step
    ("a second turn", "one turn", TURN, TurnStart(2)),
    ("a turn number that was left out", "turn number", QUEUED, TurnStart(2)),
    ("the end of a turn that is not open", "turn", QUEUED, END),
    ("the end of another turn", "turn number", TURN, TurnEnd(2, Completed(), 0)),
    ("the end of a turn with an open step", "step closed", STEP, END),
    ("the end of a turn with a message reserved", "one fate", CLAIMED, END),
    ("the end of a turn that owes a context", "contexts", WITH_CONTEXT, END),
    ("a step outside a turn", "turn", QUEUED, StepStart(1, 1)),
    ("a second step", "one step", STEP, StepStart(1, 2)),
    ("a step number that was left out", "step number", TURN, StepStart(1, 2)),
    ("a step of another turn", "step number", TURN, StepStart(2, 1)),
    ("the end of a step that is not open", "step", TURN, StepEnd(1, 1, "completed")),
    ("the end of another step", "step number", STEP, StepEnd(1, 2, "completed")),
    ("the end of a step of another turn", "step number", STEP, StepEnd(2, 1, "completed")),
    ("the end of a step with a call unanswered", "one result", CALLED, StepEnd(1, 1, "tools")),
    ("the end of a step with a call unheard", "one result", ANSWERED, StepEnd(1, 1, "tools")),
    ("the ordinary end of a step whose request is open", "request", SENT, StepEnd(1, 1, "completed")),
    ("a message outside a turn", "turn", QUEUED, told("x")),
    ("a message between a call and its result", "adjacent", CALLED, told("x")),
    ("a message between an answer and its calls", "adjacent", ANSWERED, told("x")),
    ("a context of a call without one", "cites", ENDED, told("x", call=9)),
    ("a decision outside a turn", "turn", QUEUED, DecisionMade("agent/pre-step", 0, "enter")),
    ("a warning outside a turn", "turn", QUEUED, BudgetWarned("turn", "steps", 8, 10)),
    # Request
    ("a header outside a step", "step", TURN, RequestHeader("initial", "p", "m", {})),
    ("a request outside a step", "step", TURN, RequestSent(3, 1, 0, 0, 0, "")),
    ("a request without a header", "request", STEP, RequestSent(4, 1, 4, 5, 1, "")),
    ("a request with an old header", "request", HEADED, RequestSent(4, 1, 3, 5, 1, "")),
    ("a second request", "request", SENT, RequestSent(4, 2, 6, 5, 1, "")),
    ("a request after the answer", "request", ANSWERED, RequestSent(4, 2, 6, 8, 2, "")),
    (
        "a request while a message is reserved",
        "one fate",
        (*CLAIMED, StepStart(1, 1), RequestHeader("initial", "p", "m", {})),
        RequestSent(5, 1, 6, -1, 0, ""),
    ),
    ("a chunk of no request", "request", HEADED, AssistantChunk(7, "text", text="a")),
    ("a chunk of another request", "request", SENT, AssistantChunk(6, "text", text="a")),
    ("a chunk after the answer", "request", ANSWERED, AssistantChunk(7, "text", text="a")),
    ("an answer to no request", "request", HEADED, AssistantMessage(7, ())),
    ("a second answer", "request", ANSWERED, AssistantMessage(7, ())),
    ("a failure of no request", "request", TURN, RequestFailed(7, Failure("AUTH", "no"))),
    ("an answer with one id for two calls", "call id", SENT, AssistantMessage(7, (USES[0], USES[0]))),
    ("a retry outside a step", "step", TURN, RetryScheduled("r", 7, "p", "normal", "policy", 1, 500)),
    ("the start of a retry outside a turn", "turn", QUEUED, RetryStarted("r")),
    ("a replacement of nothing", "replaced", STEP, HistoryReplaced(0, 4, (), "pruning")),
    (
        "a replacement between a call and its result",
        "adjacent",
        CALLED,
        HistoryReplaced(5, 5, (), "pruning"),
    ),
    # Calls
    ("a call outside a step", "step", ENDED, called(0)),
    ("a call that the answer does not have", "call", DONE, called(2)),
    ("a call before the answer", "call", SENT, called(0)),
    ("a call out of order", "call order", ANSWERED, called(1)),
    ("a call with another id", "call order", ANSWERED, called(0, "c9")),
    ("a call of another step", "call order", ANSWERED, ToolCalled(1, 2, 0, "c1", "look", "{}")),
    ("a call of another tool", "call order", ANSWERED, ToolCalled(1, 1, 0, "c1", "write", "{}")),
    ("a preparation of no call", "call", CALLED, ToolPrepared(8, {}, {})),
    ("a preparation of what runs", "sealed", STARTED, ToolPrepared(9, {}, {})),
    ("a preparation outside a step", "step", ENDED, ToolPrepared(9, {}, {})),
    ("a decision about no call", "call", CALLED, decided("allow", 8)),
    ("a decision about a call with a result", "one result", DONE, decided("allow")),
    ("a question about no call", "call", CALLED, ask(8)),
    ("a question that is open", "one approval", (*CALLED, ask(9)), ask(9)),
    ("an answer to no question", "one answer", CALLED, answer("rejected")),
    ("an answer outside a turn", "turn", BEGUN, answer("rejected")),
    ("an answer for another call", "one answer", (*CALLED, ask(9)), answer("rejected", call=8)),
    ("an answer for other arguments", "one answer", (*CALLED, ask(9)), answer("rejected", digest="other")),
    (
        "a second answer to a question",
        "one answer",
        (*CALLED, ask(9), answer("rejected")),
        answer("allowed-once"),
    ),
    ("a result whose question is open", "one answer", (*CALLED, ask(9)), result(9, "c1")),
    ("a start of no call", "call", CALLED, ToolStarted(8, "")),
    ("a start after a denial", "denied", (*CALLED, decided("deny")), ToolStarted(9, "")),
    (
        "a start after a later denial",
        "denied",
        (*CALLED, decided("allow"), decided("deny")),
        ToolStarted(9, ""),
    ),
    ("a start that was to be asked", "approved", (*CALLED, decided("ask")), ToolStarted(9, "")),
    (
        "a start while it is asked",
        "approved",
        (*CALLED, decided("ask"), ask(9)),
        ToolStarted(9, ""),
    ),
    (
        "a start after a no",
        "approved",
        (*CALLED, decided("ask"), ask(9), answer("rejected")),
        ToolStarted(9, ""),
    ),
    (
        "a start after a yes that was asked again",
        "approved",
        (*CALLED, ask(9), answer("allowed-once"), decided("ask")),
        ToolStarted(9, ""),
    ),
    (
        "a start after a denial that followed the yes",
        "denied",
        (*CALLED, ask(9), answer("allowed-once"), decided("deny")),
        ToolStarted(9, ""),
    ),
    ("a start after the outcome", "settled", (*CALLED, ToolSettled(9, False)), ToolStarted(9, "")),
    ("a second first start", "runs", STARTED, ToolStarted(9, "")),
    ("a start that leaves one out", "runs", CALLED, ToolStarted(9, "", run=2)),
    ("a second outcome", "settled", (*CALLED, ToolSettled(9, False)), ToolSettled(9, True)),
    ("an outcome of no call", "call", CALLED, ToolSettled(8, True)),
    ("a second result", "one result", (*CALLED, result(9, "c1")), result(9, "c1")),
    ("a result of no call", "call", CALLED, result(8, "c1")),
    ("a result out of order", "result order", (*CALLED, called(1)), result(10, "c2")),
    ("a result with the id of another call", "call id", CALLED, result(9, "c2")),
    ("a success that never started", "started", CALLED, result(9, "c1", None)),
    ("a result outside a step", "step", ENDED, result(9, "c1")),
    ("a result before the nested one", "nested", NESTED, result(9, "c1")),
    ("an abandonment of what never ran", "started", CALLED, ToolAbandoned(9, 50, "cooperative")),
    ("a nested call of what never ran", "nested", CALLED, SubcallStart(9, "n", "look", {})),
    ("the end of no nested call", "nested", STARTED, SubcallEnd(9, True)),
    ("a second end of a nested call", "nested", (*NESTED, SubcallEnd(11, False)), SubcallEnd(11, False)),
    (
        "the end of a nested call before its own",
        "nested",
        (*NESTED, ToolStarted(11, ""), SubcallStart(11, "c1:look:look", "look", {})),
        SubcallEnd(11, False),
    ),
    (
        "the end of a nested call whose question is open",
        "one answer",
        (*NESTED, ask(11)),
        SubcallEnd(11, False),
    ),
    ("a nested success that never started", "started", NESTED, SubcallEnd(11, True)),
    (
        "a start of a nested call after a denial",
        "denied",
        (*NESTED, decided("deny", 11)),
        ToolStarted(11, ""),
    ),
]
IDS = [name for name, *_ in BROKEN]


async def session_of(facts: tuple[Fact, ...]) -> Session:
    session = Session("s", await MemoryStore().create("s"))
    for fact in facts:
        session.append(fact)
    return session


@pytest.mark.parametrize(("name", "law", "before", "bad"), BROKEN, ids=IDS)
async def test_it_cannot_be_appended(name: str, law: str, before: tuple[Fact, ...], bad: Fact) -> None:
    """The line is refused with the law's name, and nothing is changed."""
    session = await session_of(before)
    with pytest.raises(IllegalFact) as caught:
        session.append(bad)
    assert (caught.value.law, caught.value.seq) == (law, len(before))
    assert (session.head, session.facts()) == (len(before) - 1, list(before))


@pytest.mark.parametrize(("name", "law", "before", "bad"), BROKEN, ids=IDS)
def test_it_is_found_in_a_log(name: str, law: str, before: tuple[Fact, ...], bad: Fact) -> None:
    """A log that says so anyway is found out, at that line, and the lines before it are lawful."""
    events = written(before)
    assert check(events) == []
    (breach,) = check([*events, Event(len(before), 2000, 1, bad)])
    assert (breach.seq, breach.law) == (len(before), law)
    assert str(breach).startswith(f"{len(before)}: [{law}] ")


def test_every_law_that_is_written_is_broken_here() -> None:
    source = Path(laws.__file__).read_text()
    named = set(re.findall(r'(?:Broken\(|Breach\([^"]*)\s*"([^"]+)"', source))
    tested = {law for _, law, _, _ in BROKEN} | {"contiguous", "causes", "cites", "lives"}
    assert named == tested


# What only a whole log can break


@pytest.mark.parametrize("bad", [SessionOpened(2, "resume"), TurnStart(1)], ids=lambda fact: fact.type)
def test_a_fork_that_goes_on_without_being_opened_as_one_is_found(bad: Fact) -> None:
    assert check(written((*INHERITED, OPENED_AS_FORK))) == []
    events = written(INHERITED)
    (breach,) = check([*events, Event(len(events), 2000, 2, bad)])
    assert (breach.seq, breach.law) == (3, "fork")


def test_what_was_pending_in_the_lines_of_the_parent_is_not_pending_in_a_fork() -> None:
    """IN-10: the queues are folded from after the boundary."""
    assert len(state_of(INHERITED).queues) == 1
    assert len(state_of((*INHERITED, OPENED_AS_FORK)).queues) == 0


def test_a_gap_in_the_log_is_found() -> None:
    events = written(TURN)
    assert [breach.law for breach in check([*events[:2], *events[3:]])] == ["contiguous"]
    assert [breach.law for breach in check([events[0], events[0]])] == ["contiguous"]
    assert [breach.law for breach in check(events[1:])] == ["contiguous"]


def test_a_log_that_does_not_begin_with_its_creation_is_found() -> None:
    assert [breach.law for breach in check([Event(0, 0, 1, TurnStart(1))])] == ["created"]


@pytest.mark.parametrize("causes", [(2,), (-1,), ((1, 0),), ((0, 2),), (0, 5)])
def test_a_line_that_rests_on_a_later_one_is_found(causes: tuple[Span, ...]) -> None:
    events = [*written(BEGUN), Event(2, 0, 1, TurnStart(1), causes)]
    assert [(breach.seq, breach.law) for breach in check(events)] == [(2, "causes")]


def test_a_surface_line_that_does_not_cite_what_it_rests_on_is_found() -> None:
    """EVENTS, what cites what; and the lines after it are still looked at."""
    events = written((*CLAIMED, StepStart(1, 1), told("m", claim=4), told("n", claim=4)))
    assert events[6].causes == (4,)
    events[6] = Event(6, 0, 1, events[6].fact)
    assert [(breach.seq, breach.law) for breach in check(events)] == [(6, "cites")]


def test_a_line_of_another_life_is_found() -> None:
    events = [*written(BEGUN), Event(2, 0, 2, TurnStart(1))]
    assert [(breach.seq, breach.law) for breach in check(events)] == [(2, "lives")]


# What is lawful


@pytest.mark.parametrize(
    "more",
    [
        (PolicyChanged("plan"),),
        (ObserverFailed("session", "x", "no", 1),),
        (HookInvoked("h", "Stop", "x"),),
        (ToolLate(9, True, "done after all", 5),),
        (put("x"),),
        (SessionOpened(2, "resume"),),
    ],
)
def test_some_lines_may_stand_outside_a_turn(more: tuple[Fact, ...]) -> None:
    events = written((*BEGUN, *more))
    assert [breach for breach in check(events) if breach.law != "lives"] == []


def test_a_history_may_be_replaced_outside_a_turn() -> None:
    facts = (*ENDED, END, HistoryReplaced(5, 8, (Message.user("summary"),), "compaction"))
    assert check(written(facts)) == []


def test_a_call_that_was_allowed_once_may_start_and_run_again() -> None:
    facts = (
        *CALLED,
        decided("ask"),
        ask(9),
        answer("allowed-once"),
        ToolStarted(9, "digest"),
        ToolStarted(9, "digest", run=2),
        ToolSettled(9, True),
        result(9, "c1", None),
        called(1),
        result(16 + 1, "c2"),
    )
    assert check(written(facts)) == []


def test_a_request_may_be_cut_by_the_end_of_its_step_but_only_by_a_stop() -> None:
    """EVENTS: a prefix that nobody saw leaves no message."""
    for reason in ("aborted", "budget", "interrupted"):
        assert check(written((*SENT, StepEnd(1, 1, reason)))) == []
    for reason in ("completed", "tools", "error", "max-tokens", "concluded", "hook-stopped"):
        assert check(written((*SENT, StepEnd(1, 1, reason)))) != []  # type: ignore[arg-type]


def test_a_law_is_asked_without_changing_anything() -> None:
    state = State()
    for event in written(BEGUN):
        state.apply(event)
    assert forbidden(state, TurnStart(1)) is None
    assert forbidden(state, TurnStart(2)) == Breach(2, "turn number", "turn 2 follows turn 0")
    assert (state.head, state.turn) == (1, None)


def test_a_context_that_rode_on_a_result_is_owed_until_it_is_told() -> None:
    rode = UserMessage(NOTE.id, NOTE.source, "system", NOTE.content, "context", call=9)
    assert [breach.law for breach in check(written((*WITH_CONTEXT, END)))] == ["contexts"]
    assert check(written((*WITH_CONTEXT, rode, END))) == []
