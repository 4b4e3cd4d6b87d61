"""What a log can never say: the laws, checked on every append and on any stored log.

Lives here: `forbidden`, the check of one fact against the state before it, constant work each, and `check`, the same
over a whole log. A law that fails on append is a bug or a foolish caller: nothing is appended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from interlock.log.causes import Spans, cited
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    BudgetWarned,
    CancelRequested,
    ContentErased,
    DecisionMade,
    Erased,
    Fact,
    HistoryReplaced,
    InboxClaimed,
    InboxDropped,
    InboxReturned,
    InboxSpliced,
    MailTaken,
    RequestFailed,
    RequestHeader,
    RequestSent,
    RetryScheduled,
    RetryStarted,
    SessionCreated,
    SessionOpened,
    Stamp,
    StepEnd,
    StepStart,
    SubcallEnd,
    SubcallStart,
    ToolAbandoned,
    ToolCalled,
    ToolDecided,
    ToolPrepared,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.messages import ToolUse
from interlock.log.state import Call, State, Step, Turn
from interlock.log.tombstones import Shape


class Breach(msgspec.Struct, frozen=True):
    """A law that a log breaks: which, at which seq, and how."""

    seq: int
    law: str
    problem: str

    def __str__(self) -> str:
        return f"{self.seq}: [{self.law}] {self.problem}"


class Broken(Exception):
    """A law forbids a fact as the next line."""

    def __init__(self, law: str, problem: str) -> None:
        self.law, self.problem = law, problem
        super().__init__(f"[{law}] {problem}")


def law_of(cls: type[Fact]) -> Callable[[State, Any], None] | None:
    """The law for facts of this class: it raises `Broken`. None: such a fact is always lawful."""
    return _RULES.get(cls)


def forbidden(state: State, fact: Fact) -> Breach | None:
    """The law that forbids this fact as the next line, or None. Constant work."""
    law = _RULES.get(type(fact))
    try:
        if law is not None:
            law(state, fact)
    except Broken as broken:
        return Breach(state.head + 1, broken.law, broken.problem)
    return None


def miscited(state: State, fact: Fact, causes: Spans) -> Breach | None:
    """What is wrong with these causes of this fact as the next line, or None."""
    seq = state.head + 1
    for span in causes:
        first, last = span if isinstance(span, tuple) else (span, span)
        if not 0 <= first <= last < seq:
            return Breach(seq, "causes", f"cites {span}, which is not earlier")
    needed = cited(state, fact)
    if fact.surface and not set(needed) <= set(causes):
        return Breach(seq, "cites", f"{fact.type} rests on {needed}, and cites {causes}")
    return None


def unforked(state: State, fact: Fact) -> Breach | None:
    """Whether this fact is where a fork, whose inherited lines are at their end, has to be opened as one; or None."""
    parent = state.created.parent if state.created is not None else None
    if parent is None or state.head != parent.seq or (type(fact) is SessionOpened and fact.how == "fork"):
        return None
    return Breach(state.head + 1, "fork", f"what was inherited ends before it, and {fact.type} opens no fork")


def check(events: Iterable[Event]) -> list[Breach]:
    """Every law on any log: where it is broken, empty if nowhere. Of an erased one, what its tombstones can break.

    Checking stops at the first breach that leaves the state of the log undefined.
    """
    state = State()
    breaches: list[Breach] = []
    shape: Shape | None = None
    expected = 0
    for event in events:
        if event.seq != expected:
            breaches.append(Breach(event.seq, "contiguous", f"expected seq {expected}"))
            return breaches
        expected += 1
        if event.seq == 0 and type(event.fact) is Erased:
            shape = Shape()
        if shape is not None:
            amiss = shape.take(event)
            if amiss is not None:
                return [Breach(event.seq, *amiss)]
            continue
        if event.seq == 0 and not isinstance(event.fact, SessionCreated):
            breaches.append(Breach(0, "created", f"a log starts with session/created, not {event.type}"))
            return breaches
        breach = forbidden(state, event.fact) or unforked(state, event.fact)
        if breach is not None:
            breaches.append(breach)
            return breaches
        breach = miscited(state, event.fact, event.causes)
        if breach is not None:
            breaches.append(breach)
        state.apply(event)
        if event.life != (state.life or 1):
            breaches.append(Breach(event.seq, "lives", f"written by life {event.life} in life {state.life}"))
    if shape is not None and shape.unsaid is not None:
        breaches.append(Breach(expected, *shape.unsaid))
    return breaches


def _erased(state: State, fact: Erased | ContentErased) -> None:
    raise Broken("erased", "one line of a log cannot be erased: a store erases all of them")


def _turn(state: State) -> Turn:
    if state.turn is None:
        raise Broken("turn", "no turn is open")
    return state.turn


def _step(state: State) -> Step:
    step = state.step
    if step is None:
        _turn(state)
        raise Broken("step", "no step is open")
    return step


def _call(state: State, seq: int) -> Call:
    step = state.step
    call = step.by_seq.get(seq) if step is not None else None
    if call is None:
        _step(state)  # if none is open, that is what is wrong
        raise Broken("call", f"{seq} is no call of the open step")
    if call.result >= 0:
        raise Broken("one result", f"call {seq} has its result already")
    return call


def _created(state: State, fact: SessionCreated) -> None:
    if state.head >= 0:
        raise Broken("created", "a session is created once, on line 0")


def _opened(state: State, fact: SessionOpened) -> None:
    if fact.life != state.life + 1:
        raise Broken("lives", f"life {fact.life} follows life {state.life}")
    if fact.how == "fork":
        parent = state.created.parent if state.created is not None else None
        if parent is None or state.head > parent.seq:
            raise Broken("fork", "a fork is opened once, after the lines of its parent")
        if state.turn is not None:
            raise Broken("fork", f"turn {state.turn.number} is open")


def _spliced(state: State, fact: InboxSpliced) -> None:
    queue = state.queues.of(fact.list)
    if not fact.removed and not fact.inserted:
        raise Broken("splice", "nothing removed and nothing inserted")
    if not 0 <= fact.start <= len(queue) or not 0 <= fact.removed <= len(queue) - fact.start:
        raise Broken(
            "splice", f"{fact.start}+{fact.removed} is outside the {len(queue)} messages of {fact.list}"
        )
    removed = {waiting.message.id for waiting in queue[fact.start : fact.start + fact.removed]}
    seen: set[str] = set()
    for message in fact.inserted:
        if not message.id:
            raise Broken("message id", "a message in the inbox needs an id")
        if message.id in seen or (message.id not in removed and state.queues.holds(message.id)):
            raise Broken("one pending", f"{message.id!r} is pending already")
        seen.add(message.id)
    if fact.letter is not None:
        _numbered(state, fact.letter)


def _numbered(state: State, letter: Stamp) -> None:
    if letter.number <= state.mail:
        raise Broken("mail", f"letter {letter.number} comes after letter {state.mail}")


def _mail_taken(state: State, fact: MailTaken) -> None:
    _numbered(state, fact.letter)


def _cancelled(state: State, fact: CancelRequested) -> None:
    if fact.letter is not None:
        _numbered(state, fact.letter)


def _claimed(state: State, fact: InboxClaimed) -> None:
    turn = _turn(state)
    if turn.step is not None:
        raise Broken("claim", "a claim comes between steps")
    if state.claim is not None:
        raise Broken("one fate", "the last claim is not settled")
    if fact.turn != turn.number or fact.step != turn.steps + 1:
        raise Broken("claim", f"for step {fact.turn}.{fact.step}, next is {turn.number}.{turn.steps + 1}")
    if not fact.next_step and not fact.next_turn:
        raise Broken("claim", "names no message")
    for name, ids in (("next-step", fact.next_step), ("next-turn", fact.next_turn)):
        head = tuple(waiting.message.id for waiting in state.queues.of(name)[: len(ids)])
        if head != ids:
            raise Broken("claim", f"the head of {name} is {head}, not {ids}")


def _fates(state: State, ids: tuple[str, ...]) -> None:
    for message_id in ids:
        if state.claim is None or message_id not in state.claim.undecided:
            raise Broken("one fate", f"{message_id!r} is not reserved")


def _returned(state: State, fact: InboxReturned) -> None:
    _fates(state, fact.next_step + fact.next_turn)


def _dropped(state: State, fact: InboxDropped) -> None:
    _fates(state, fact.ids)


def _turn_started(state: State, fact: TurnStart) -> None:
    if state.turn is not None:
        raise Broken("one turn", f"turn {state.turn.number} is open")
    if fact.turn != state.turns + 1:
        raise Broken("turn number", f"turn {fact.turn} follows turn {state.turns}")


def _turn_ended(state: State, fact: TurnEnd) -> None:
    turn = _turn(state)
    if turn.number != fact.turn:
        raise Broken("turn number", f"turn {turn.number} is open, not {fact.turn}")
    if turn.step is not None:
        raise Broken("step closed", f"step {turn.number}.{turn.step.number} is open")
    if state.claim is not None:
        raise Broken("one fate", f"{list(state.claim.undecided)} have no fate")
    if turn.owed:
        raise Broken("contexts", f"{len(turn.owed)} contexts of results are not in the history")


def _step_started(state: State, fact: StepStart) -> None:
    turn = _turn(state)
    if turn.step is not None:
        raise Broken("one step", f"step {turn.number}.{turn.step.number} is open")
    if fact.turn != turn.number or fact.step != turn.steps + 1:
        raise Broken("step number", f"step {fact.turn}.{fact.step}, next is {turn.number}.{turn.steps + 1}")


def _step_ended(state: State, fact: StepEnd) -> None:
    step = _step(state)
    if fact.step != step.number or fact.turn != state.turns:
        raise Broken("step number", f"step {state.turns}.{step.number} is open, not {fact.turn}.{fact.step}")
    if step.next_result < len(step.calls):
        missing = [call.use.id for call in step.calls[step.next_result :]]
        raise Broken("one result", f"the calls {missing} have no result")
    if step.request is not None and fact.reason not in ("aborted", "budget", "interrupted"):
        raise Broken("request", f"request {step.request.seq} has neither message nor failure")


def _told(state: State, fact: UserMessage) -> None:
    turn = _turn(state)
    step = turn.step
    if step is not None and step.next_result < len(step.calls):
        raise Broken("adjacent", "a message would come between a call and its result")
    if fact.claim is not None:
        _fates(state, (fact.id,))
        if state.claim is not None and fact.claim != state.claim.seq:
            raise Broken("one fate", f"{fact.id!r} was reserved by line {state.claim.seq}, not {fact.claim}")
    if fact.call is not None and fact.call not in turn.results:
        raise Broken("cites", f"call {fact.call} has no result that carries a context")


def _headed(state: State, fact: RequestHeader) -> None:
    _step(state)


def _sent(state: State, fact: RequestSent) -> None:
    step = _step(state)
    if step.request is not None:
        raise Broken("request", f"request {step.request.seq} is open")
    if step.message >= 0:
        raise Broken("request", "the step has its answer")
    if fact.header != state.header_seq:
        raise Broken("request", f"the header is line {state.header_seq}, not {fact.header}")
    if state.claim is not None:
        raise Broken("one fate", f"{list(state.claim.undecided)} have no fate")


def _of_request(state: State, fact: AssistantChunk | AssistantMessage | RequestFailed) -> None:
    step = state.step
    if step is None or step.request is None or step.request.seq != fact.sent:
        raise Broken("request", f"request {fact.sent} is not open")


def _message(state: State, fact: AssistantMessage) -> None:
    _of_request(state, fact)
    if len(fact.blocks) < 2:
        return
    ids = [block.id for block in fact.blocks if type(block) is ToolUse]
    if len(set(ids)) < len(ids):
        raise Broken("call id", f"two calls of one answer have one id: {ids}")


def _retry(state: State, fact: RetryScheduled | RetryStarted) -> None:
    _step(state)


def _within_turn(state: State, fact: DecisionMade | BudgetWarned) -> None:
    _turn(state)


def _replaced(state: State, fact: HistoryReplaced) -> None:
    step = state.step
    if step is not None and step.next_result < len(step.calls):
        raise Broken("adjacent", "the history cannot be replaced while calls have no result")
    if not state.history.covers(fact.first, fact.last):
        raise Broken("replaced", f"no line of the history lies in {fact.first}..{fact.last}")


def _called(state: State, fact: ToolCalled) -> None:
    step = _step(state)
    if step.next_call >= len(step.calls):
        raise Broken("call", "the answer has no further call")
    expected = step.calls[step.next_call]
    if fact.index != expected.index or fact.call_id != expected.use.id:
        raise Broken(
            "call order", f"{fact.call_id!r} at {fact.index}, next is {expected.use.id!r} at {expected.index}"
        )
    if fact.name != expected.use.name or fact.step != step.number or fact.turn != state.turns:
        problem = f"{fact.name} in step {fact.turn}.{fact.step}"
        raise Broken("call order", f"{problem}, next is {expected.use.name} in {state.turns}.{step.number}")


def _prepared(state: State, fact: ToolPrepared) -> None:
    if _call(state, fact.call).runs:
        raise Broken("sealed", f"call {fact.call} has started")


def _tool_decided(state: State, fact: ToolDecided) -> None:
    _call(state, fact.call)


def _asked(state: State, fact: ApprovalAsked) -> None:
    call = _call(state, fact.call)
    if fact.approval_id in state.approvals:
        raise Broken("one approval", f"{fact.approval_id!r} is open")
    if call.approval is not None:
        raise Broken("one approval", f"call {fact.call} was asked about already, as {call.approval.id!r}")
    if call.runs or call.settled is not None:
        raise Broken("one approval", f"call {fact.call} has started or is settled")


def _approval_decided(state: State, fact: ApprovalDecided) -> None:
    _turn(state)
    approval = state.approvals.get(fact.approval_id)
    if approval is None:
        raise Broken("one answer", f"{fact.approval_id!r} is not open")
    if approval.call != fact.call or approval.digest != fact.digest:
        raise Broken("one answer", f"{fact.approval_id!r} was asked for another call or other arguments")
    if fact.letter is not None:
        _numbered(state, fact.letter)


def _tool_started(state: State, fact: ToolStarted) -> None:
    call = _call(state, fact.call)
    if fact.run != call.runs + 1:
        raise Broken("runs", f"run {fact.run} follows run {call.runs}")
    if call.settled is not None:
        raise Broken("settled", f"call {fact.call} is settled")
    if call.verdict == "deny":
        raise Broken("denied", f"call {fact.call} was denied")
    approval = call.approval
    if approval is not None:
        if not call.approved:
            raise Broken("approved", f"call {fact.call} was asked and not allowed")
        if fact.digest != approval.digest and approval.edited is None:
            raise Broken(
                "sealed", f"call {fact.call} would run with other arguments than those that were shown"
            )
    elif call.verdict == "ask":
        raise Broken("approved", f"call {fact.call} was to be asked and was not")


def _settled(state: State, fact: ToolSettled) -> None:
    if _call(state, fact.call).settled is not None:
        raise Broken("settled", f"call {fact.call} is settled")


def _resulted(state: State, fact: ToolResulted) -> None:
    step = _step(state)
    call = _call(state, fact.call)
    if step.calls[step.next_result] is not call:
        raise Broken("result order", f"{call.use.id!r} at {call.index}, next is {step.next_result}")
    if fact.error is None and not call.runs:
        raise Broken("started", f"call {fact.call} succeeded without having started")
    if fact.call_id != call.use.id:
        raise Broken("call id", f"the result of {call.use.id!r} names {fact.call_id!r}")
    _answered(call)
    if step.subcalls and any(nested.within(call.seq) for nested in step.subcalls.values()):
        raise Broken("nested", f"call {fact.call} has open nested calls")


def _answered(call: Call) -> None:
    if call.approval is not None and call.approval.outcome is None:
        raise Broken("one answer", f"the question about call {call.seq} is open")


def _abandoned(state: State, fact: ToolAbandoned) -> None:
    if not _call(state, fact.call).runs:
        raise Broken("started", f"call {fact.call} has not started")


def _subcall_started(state: State, fact: SubcallStart) -> None:
    outer = _call(state, fact.outer)
    if not outer.runs:
        raise Broken("nested", f"call {fact.outer} has not started")


def _subcall_ended(state: State, fact: SubcallEnd) -> None:
    nested = _step(state).subcalls.get(fact.start)
    if nested is None:
        raise Broken("nested", f"{fact.start} is no open nested call")
    _answered(nested)
    if fact.ok and not nested.runs:
        raise Broken("started", f"call {fact.start} succeeded without having started")
    if any(other.within(fact.start) for other in _step(state).subcalls.values()):
        raise Broken("nested", f"call {fact.start} has open nested calls")


_RULES: dict[type[Fact], Callable[[State, Any], None]] = {
    SessionCreated: _created,
    SessionOpened: _opened,
    Erased: _erased,
    ContentErased: _erased,
    InboxSpliced: _spliced,
    InboxClaimed: _claimed,
    InboxReturned: _returned,
    InboxDropped: _dropped,
    MailTaken: _mail_taken,
    CancelRequested: _cancelled,
    TurnStart: _turn_started,
    TurnEnd: _turn_ended,
    StepStart: _step_started,
    StepEnd: _step_ended,
    UserMessage: _told,
    DecisionMade: _within_turn,
    BudgetWarned: _within_turn,
    RequestHeader: _headed,
    RequestSent: _sent,
    AssistantChunk: _of_request,
    AssistantMessage: _message,
    RequestFailed: _of_request,
    RetryScheduled: _retry,
    RetryStarted: _retry,
    HistoryReplaced: _replaced,
    ToolCalled: _called,
    ToolPrepared: _prepared,
    ToolDecided: _tool_decided,
    ApprovalAsked: _asked,
    ApprovalDecided: _approval_decided,
    ToolStarted: _tool_started,
    ToolSettled: _settled,
    ToolResulted: _resulted,
    ToolAbandoned: _abandoned,
    SubcallStart: _subcall_started,
    SubcallEnd: _subcall_ended,
}
