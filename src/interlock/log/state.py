"""What is open: the fold that says where a session stands.

Lives here: `State` and its parts. It is advanced inside `Session.append`, event by event, before anybody is told, and
replaying a log gives the same state as living through it. Everything that ends something (`closers`), checks something
(`laws`) or cites something (`causes`) reads it; nothing but `apply` writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from interlock.log.assembly import Assembly
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    CancelRequested,
    DecisionMade,
    Fact,
    GrantRevoked,
    HistoryReplaced,
    HookInvoked,
    InboxClaimed,
    InboxDropped,
    InboxReturned,
    InboxSpliced,
    MailTaken,
    PolicyChanged,
    RequestFailed,
    RequestHeader,
    RequestSent,
    SessionCreated,
    SessionOpened,
    Span,
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
from interlock.log.history import History
from interlock.log.messages import MODEL, Message, Source, ToolOutcome, ToolUse
from interlock.log.tally import Tally

_TOOL = Source("tool")


class Waiting:
    """A message in a queue, or reserved from it."""

    __slots__ = ("message", "returned", "seq", "wake")

    def __init__(self, message: Message, seq: int, wake: bool) -> None:
        self.message = message
        self.seq = seq  # of the splice that inserted it
        self.wake = wake
        self.returned = 0  # how often a claim gave it back after an error

    @property
    def id(self) -> str:
        return self.message.id


class Queues:
    """The inbox as a fold: two lists and what is reserved from them."""

    __slots__ = ("next_step", "next_turn", "reserved")

    def __init__(self) -> None:
        self.next_turn: list[Waiting] = []
        self.next_step: list[Waiting] = []
        self.reserved: dict[str, Waiting] = {}

    def __len__(self) -> int:
        return len(self.next_turn) + len(self.next_step)

    def of(self, name: str) -> list[Waiting]:
        return self.next_turn if name == "next-turn" else self.next_step

    def find(self, message_id: str) -> tuple[str, int] | None:
        """Where a pending message is: the list's name and the position."""
        for name, queue in (("next-step", self.next_step), ("next-turn", self.next_turn)):
            for i, waiting in enumerate(queue):
                if waiting.message.id == message_id:
                    return name, i
        return None

    def holds(self, message_id: str) -> bool:
        """Pending in either list, or reserved."""
        return message_id in self.reserved or self.find(message_id) is not None


class Claim:
    """A reservation whose ids do not all have their fate yet."""

    __slots__ = ("next_step", "next_turn", "seq", "step", "turn", "undecided")

    def __init__(self, seq: int, fact: InboxClaimed) -> None:
        self.seq = seq
        self.turn = fact.turn
        self.step = fact.step
        self.next_step = fact.next_step
        self.next_turn = fact.next_turn
        self.undecided = dict.fromkeys(fact.next_step + fact.next_turn)


class Owed:
    """A context that rides on a result and has not become history."""

    __slots__ = ("call", "message", "result")

    def __init__(self, message: Message, call: int, result: int) -> None:
        self.message = message
        self.call = call
        self.result = result  # the seq of the result: its place in the order of arrival


class Request(msgspec.Struct, eq=False):
    """An attempt that was sent and has neither message nor failure."""

    seq: int
    assembly: Assembly = msgspec.field(default_factory=Assembly)
    spans: list[list[int]] = msgspec.field(
        default_factory=list
    )  # [first, last] of its chunks, split by any other line

    def add(self, seq: int, chunk: AssistantChunk) -> None:
        spans = self.spans
        if spans and spans[-1][1] == seq - 1:
            spans[-1][1] = seq
        else:
            spans.append([seq, seq])
        self.assembly.add(chunk)

    def cited(self) -> tuple[Span, ...]:
        return tuple([first if first == last else (first, last) for first, last in self.spans])


class Call(msgspec.Struct, eq=False):
    """One call of the open step, or a nested one."""

    index: int
    use: ToolUse
    seq: int = -1  # of its tool/call
    called: bool = False
    effect: str | None = None
    prepared: bool = False  # somebody rewrote it or advised
    decided: int = -1  # seq of its last tool/decided
    verdict: str | None = None
    decision: ToolDecided | None = None  # the last one
    approval: Approval | None = None
    approved: bool = False
    runs: int = 0
    started_ms: int | None = None
    digest: str = ""
    settled: ToolSettled | None = None
    settled_seq: int = -1
    abandoned: bool = False
    result: int = -1  # seq of its result
    outer: Call | None = None
    nested: int = 0  # calls that it has made, and that have no end

    @property
    def running(self) -> bool:
        """Its body has started, and its outcome is not known."""
        return self.runs > 0 and self.settled is None and self.result < 0

    def within(self, seq: int) -> bool:
        """Whether it is nested, at any depth, in the call with this seq."""
        outer = self.outer
        while outer is not None:
            if outer.seq == seq:
                return True
            outer = outer.outer
        return False


class Approval:
    """A question to a person about one call, and its answer."""

    __slots__ = ("answer", "asked", "call", "digest", "id", "seq")

    def __init__(self, asked: ApprovalAsked, seq: int) -> None:
        self.id = asked.approval_id
        self.call = asked.call
        self.digest = asked.digest
        self.seq = seq
        self.asked = asked
        self.answer: ApprovalDecided | None = None

    @property
    def outcome(self) -> str | None:
        return self.answer.outcome if self.answer is not None else None

    @property
    def edited(self) -> Any:
        """The arguments that a person has put in the place of those that were shown; None: none."""
        return self.answer.edited if self.answer is not None else None


class Step(msgspec.Struct, eq=False):
    seq: int
    number: int
    request: Request | None = None
    message: int = -1  # seq of its assistant message
    calls: list[Call] = msgspec.field(default_factory=list)
    by_seq: dict[int, Call] = msgspec.field(default_factory=dict)  # calls and nested calls
    next_call: int = 0
    next_result: int = 0
    subcalls: dict[int, Call] = msgspec.field(default_factory=dict)  # nested calls without an end, by seq
    #: Calls of the answer that were asked about, and neither started nor settled.
    waiting: dict[int, Call] = msgspec.field(default_factory=dict)
    stopped: bool = False  # a committed result ends the turn after this batch
    concluded: bool = False  # a committed result lets the turn end after this batch


class Turn:
    __slots__ = (
        "asking",
        "before",
        "busy",
        "cancel",
        "forced",
        "hook_forced",
        "max_tokens",
        "number",
        "owed",
        "rejected",
        "results",
        "seq",
        "started",
        "step",
        "steps",
        "still_since",
        "stopping",
        "tally",
        "waited_ms",
    )

    def __init__(self, seq: int, number: int, time: int, before: int) -> None:
        self.seq = seq
        self.number = number
        self.started = time
        self.before = before  # messages of the history that are older
        self.steps = 0
        self.step: Step | None = None
        self.cancel: CancelRequested | None = None
        self.owed: list[Owed] = []
        self.results: dict[int, int] = {}  # call: the seq of its result, while contexts may cite it
        self.rejected: list[str] = []
        self.tally = Tally()
        self.hook_forced = False  # a hook's message has continued it
        self.forced = 0  # how often it was continued without a person, as far as the log tells
        self.stopping = (
            False  # its last step ended, and nothing was pending: a further one is somebody's wish
        )
        self.max_tokens = False  # some answer reached the output ceiling
        self.asking = 0  # open approvals
        self.busy = 0  # running bodies that do not wait for a call of their own
        self.still_since: int | None = None  # since when only a person can move it on
        self.waited_ms = 0  # before that, for people, and between lives

    def driven_ms(self, now: int) -> int:
        """How long it was driven until `now`, epoch ms."""
        still = now - self.still_since if self.still_since is not None else 0
        return now - self.started - self.waited_ms - still

    def look(self, now: int) -> None:
        """The clock stands still while somebody is asked and no body runs."""
        if self.asking and not self.busy:
            if self.still_since is None:
                self.still_since = now
        elif self.still_since is not None:
            self.waited_ms += now - self.still_since
            self.still_since = None


class State:
    """Where the session stands after the last event."""

    __slots__ = (
        "approvals",
        "claim",
        "created",
        "grants",
        "head",
        "header",
        "header_life",
        "header_seq",
        "history",
        "hooks",
        "life",
        "mail",
        "opened_seq",
        "preset",
        "preset_seq",
        "queues",
        "runtime",
        "step",
        "tally",
        "time",
        "turn",
        "turns",
    )

    def __init__(self) -> None:
        self.created: SessionCreated | None = None
        self.head = -1  # seq of the last event
        self.time = 0  # of the last event, epoch ms
        self.life = 0
        self.opened_seq = -1  # of its first line
        self.turns = 0  # the number of the last turn
        self.turn: Turn | None = None
        self.step: Step | None = None  # of the open turn
        self.queues = Queues()
        self.mail = 0  # the number of the last letter that was taken
        self.claim: Claim | None = None
        self.approvals: dict[str, Approval] = {}  # undecided ones
        self.history = History()
        self.header: RequestHeader | None = None
        self.header_seq = -1
        self.header_life = 0
        self.preset: PolicyChanged | None = None
        self.preset_seq = -1
        self.grants: dict[str, int] = {}  # rules that are allowed for this session: the line that says so
        self.runtime: dict[str, str] = {}  # the last runtime context by its source's name
        self.hooks: dict[str, int] = {}  # hooks that have run, by digest: the line that says so first
        self.tally = Tally()

    def apply(self, event: Event) -> None:
        """Advance by one event. It is assumed to be lawful."""
        self.head = event.seq
        change = _CHANGES.get(type(event.fact))
        if change is not None:
            change(self, event.seq, event.fact, event)
        self.time = event.time

    @property
    def waiting(self) -> bool:
        """Whether a person's answer, or what follows from one, keeps the step open over the end of a life.

        A call of the answer was asked about and has neither started nor settled, and nothing has stopped the turn.
        """
        step, turn = self.step, self.turn
        return (
            step is not None
            and bool(step.waiting)
            and not step.stopped
            and turn is not None
            and turn.cancel is None
        )

    def call(self, seq: int) -> Call | None:
        """The call or nested call of the open step with this seq."""
        step = self.step
        return step.by_seq.get(seq) if step is not None else None

    # One method a fact that changes what is open

    def _created(self, seq: int, fact: SessionCreated, event: Event) -> None:
        self.created = fact

    def _opened(self, seq: int, fact: SessionOpened, event: Event) -> None:
        self.life = fact.life
        self.opened_seq = seq
        if fact.how == "fork":
            self.queues = Queues()  # what its parent had pending is its parent's
            self.mail = 0  # and so is its mailbox
        turn = self.turn
        if turn is not None and turn.still_since is None:
            turn.waited_ms += event.time - self.time  # nobody drove it

    def _policy(self, seq: int, fact: PolicyChanged, event: Event) -> None:
        self.preset, self.preset_seq = fact, seq

    def _spliced(self, seq: int, fact: InboxSpliced, event: Event) -> None:
        queue = self.queues.of(fact.list)
        inserted = [Waiting(message, seq, fact.wake) for message in fact.inserted]
        queue[fact.start : fact.start + fact.removed] = inserted
        if fact.letter is not None:
            self.mail = fact.letter.number

    def _mail_taken(self, seq: int, fact: MailTaken, event: Event) -> None:
        self.mail = fact.letter.number

    def _claimed(self, seq: int, fact: InboxClaimed, event: Event) -> None:
        queues = self.queues
        for name, ids in (("next-step", fact.next_step), ("next-turn", fact.next_turn)):
            if ids:
                queue = queues.of(name)
                for waiting in queue[: len(ids)]:
                    queues.reserved[waiting.message.id] = waiting
                del queue[: len(ids)]
        self.claim = Claim(seq, fact)
        turn = self.turn
        if turn is not None and turn.stopping:
            turn.stopping = False
            reserved = queues.reserved
            turn.forced += not any(reserved[i].message.source.kind == "person" for i in fact.next_step)

    def _decide_fate(self, message_id: str) -> Waiting | None:
        claim = self.claim
        if claim is None or message_id not in claim.undecided:
            return None
        del claim.undecided[message_id]
        if not claim.undecided:
            self.claim = None
        return self.queues.reserved.pop(message_id, None)

    def _returned(self, seq: int, fact: InboxReturned, event: Event) -> None:
        for name, ids in (("next-step", fact.next_step), ("next-turn", fact.next_turn)):
            back = []
            for message_id in ids:
                waiting = self._decide_fate(message_id)
                if waiting is not None:
                    waiting.returned += fact.why == "error"
                    back.append(waiting)
            self.queues.of(name)[:0] = back

    def _dropped(self, seq: int, fact: InboxDropped, event: Event) -> None:
        for message_id in fact.ids:
            self._decide_fate(message_id)
        if fact.outcome == "rejected" and self.turn is not None:
            self.turn.rejected.extend(fact.ids)

    def _turn_started(self, seq: int, fact: TurnStart, event: Event) -> None:
        self.turns = fact.turn
        self.turn = Turn(seq, fact.turn, event.time, len(self.history))

    def _turn_ended(self, seq: int, fact: TurnEnd, event: Event) -> None:
        if self.turn is not None:
            self.tally.wall_ms += self.turn.driven_ms(event.time)
        self.turn = None

    def _cancelled(self, seq: int, fact: CancelRequested, event: Event) -> None:
        if fact.letter is not None:
            self.mail = fact.letter.number
        turn = self.turn
        if turn is None:
            return
        if turn.cancel is None:
            turn.cancel = fact
        elif not fact.keep_inbox:  # the first cause stays; what is pending goes with the first that says so
            turn.cancel = msgspec.structs.replace(turn.cancel, keep_inbox=False)

    def _step_started(self, seq: int, fact: StepStart, event: Event) -> None:
        turn = self.turn
        assert turn is not None
        turn.steps = fact.step
        turn.step = self.step = Step(seq, fact.step)
        turn.owed = []  # what was owed was proposed with this step: admitted now, or left out
        turn.tally.steps += 1
        self.tally.steps += 1

    def _step_ended(self, seq: int, fact: StepEnd, event: Event) -> None:
        turn = self.turn
        assert turn is not None
        turn.step = self.step = None
        turn.stopping = fact.reason != "tools" and not self.queues.next_step

    def _told(self, seq: int, fact: UserMessage, event: Event) -> None:
        self._decide_fate(fact.id)
        self.history.append(
            seq, Message(role=fact.role, content=fact.content, id=fact.id, source=fact.source)
        )
        if fact.source.kind == "runtime":
            self.runtime[fact.source.name] = self.history.view()[-1].text
        turn = self.turn
        if fact.source.kind == "hook" and fact.place == "prompt" and fact.role == "user" and turn is not None:
            turn.hook_forced = True
        if fact.call is not None and turn is not None and turn.owed:
            turn.owed = [owed for owed in turn.owed if owed.message.id != fact.id]

    def _left_out(self, seq: int, fact: DecisionMade, event: Event) -> None:
        turn = self.turn
        if fact.dropped and turn is not None:
            turn.owed = [owed for owed in turn.owed if owed.message.id not in fact.dropped]

    def _headed(self, seq: int, fact: RequestHeader, event: Event) -> None:
        self.header, self.header_seq, self.header_life = fact, seq, event.life

    def _sent(self, seq: int, fact: RequestSent, event: Event) -> None:
        turn = self.turn
        assert turn is not None and turn.step is not None
        turn.step.request = Request(seq)
        turn.tally.requests += 1
        self.tally.requests += 1

    def _chunk(self, seq: int, fact: AssistantChunk, event: Event) -> None:
        self.step.request.add(seq, fact)  # type: ignore[union-attr]  # the law has checked it

    def _answered(self, seq: int, fact: AssistantMessage, event: Event) -> None:
        turn = self.turn
        assert turn is not None and turn.step is not None
        step = turn.step
        step.request = None
        step.message = seq
        if fact.finish == "max-tokens":
            turn.max_tokens = True
        for block in fact.blocks:
            if type(block) is ToolUse:
                step.calls.append(Call(len(step.calls), block))
        if fact.blocks:
            self.history.append(seq, Message(role="assistant", content=fact.blocks, source=MODEL))
        if fact.usage is not None:
            turn.tally.used(fact.usage)
            self.tally.used(fact.usage)

    def _request_failed(self, seq: int, fact: RequestFailed, event: Event) -> None:
        assert self.turn is not None and self.turn.step is not None
        self.turn.step.request = None

    def _replaced(self, seq: int, fact: HistoryReplaced, event: Event) -> None:
        self.history.replace(fact.first, fact.last, fact.messages)

    def _called(self, seq: int, fact: ToolCalled, event: Event) -> None:
        turn = self.turn
        assert turn is not None and turn.step is not None
        step = turn.step
        call = step.calls[fact.index]
        call.seq, call.called, call.effect = seq, True, fact.effect
        step.by_seq[seq] = call
        step.next_call += 1
        if not fact.synthetic:
            turn.tally.called(fact.name)
            self.tally.called(fact.name)

    def _prepared(self, seq: int, fact: ToolPrepared, event: Event) -> None:
        call = self.call(fact.call)
        if call is not None:
            call.prepared = True

    def _tool_decided(self, seq: int, fact: ToolDecided, event: Event) -> None:
        call = self.call(fact.call)
        assert call is not None
        call.decided = seq
        if fact.verdict == "ask":
            call.approved = False
        call.verdict, call.decision = fact.verdict, fact

    def _asked(self, seq: int, fact: ApprovalAsked, event: Event) -> None:
        call, turn = self.call(fact.call), self.turn
        assert call is not None and turn is not None
        call.approval = self.approvals[fact.approval_id] = Approval(fact, seq)
        call.approved = False
        if call.outer is None and turn.step is not None:
            turn.step.waiting[fact.call] = call
        turn.asking += 1
        turn.look(event.time)

    def _approval_decided(self, seq: int, fact: ApprovalDecided, event: Event) -> None:
        approval = self.approvals.pop(fact.approval_id)
        approval.answer = fact
        if fact.letter is not None:
            self.mail = fact.letter.number
        if fact.rule_written is not None and fact.scope == "session":
            self.grants[fact.rule_written] = seq
        call, turn = self.call(fact.call), self.turn
        if call is not None:
            call.approved = fact.outcome == "allowed-once"
        if turn is not None:
            turn.asking -= 1
            turn.look(event.time)

    def _revoked(self, seq: int, fact: GrantRevoked, event: Event) -> None:
        self.grants.pop(fact.rule, None)

    def _tool_started(self, seq: int, fact: ToolStarted, event: Event) -> None:
        call = self.call(fact.call)
        assert call is not None
        if call.runs == 0:
            self._runs(event, 1)
        call.runs = fact.run
        call.digest = fact.digest
        if call.started_ms is None:
            call.started_ms = event.time
        if call.approval is not None and self.step is not None:
            self.step.waiting.pop(fact.call, None)

    def _runs(self, event: Event, more: int) -> None:
        """A body runs, or does so no more."""
        turn = self.turn
        if turn is not None:
            turn.busy += more
            if turn.asking:
                turn.look(event.time)

    def _settled(self, seq: int, fact: ToolSettled, event: Event) -> None:
        call = self.call(fact.call)
        assert call is not None
        if call.running and not call.nested:
            self._runs(event, -1)
        call.settled, call.settled_seq = fact, seq
        if call.approval is not None and self.step is not None:
            self.step.waiting.pop(fact.call, None)

    def _resulted(self, seq: int, fact: ToolResulted, event: Event) -> None:
        turn = self.turn
        assert turn is not None and turn.step is not None
        call = turn.step.by_seq[fact.call]
        if call.running:
            self._runs(event, -1)
        call.result = seq
        step = turn.step
        step.next_result += 1
        if call.approval is not None:
            step.waiting.pop(fact.call, None)
        if fact.stop is not None:
            step.stopped = True
        if fact.conclude:
            step.concluded = True
        if fact.contexts:
            turn.results[fact.call] = seq
            turn.owed.extend([Owed(message, fact.call, seq) for message in fact.contexts])
        error = fact.error.code if fact.error is not None else None
        self.history.append(
            seq,
            Message(role="tool", content=(ToolOutcome(fact.call_id, fact.content, error),), source=_TOOL),
        )

    def _abandoned(self, seq: int, fact: ToolAbandoned, event: Event) -> None:
        call = self.call(fact.call)
        if call is not None:
            call.abandoned = True

    def _subcall_started(self, seq: int, fact: SubcallStart, event: Event) -> None:
        turn = self.turn
        assert turn is not None and turn.step is not None
        call = Call(-1, ToolUse(fact.id, fact.name, ""))
        call.seq, call.called, call.effect = seq, True, fact.effect
        outer = call.outer = turn.step.by_seq[fact.outer]
        outer.nested += 1
        if outer.nested == 1 and outer.running:
            self._runs(event, -1)  # it waits for this one
        turn.step.by_seq[seq] = turn.step.subcalls[seq] = call
        turn.tally.called(fact.name)
        self.tally.called(fact.name)

    def _subcall_ended(self, seq: int, fact: SubcallEnd, event: Event) -> None:
        assert self.turn is not None and self.turn.step is not None
        call = self.turn.step.subcalls.pop(fact.start)
        if call.running:
            self._runs(event, -1)
        call.result = seq
        outer = call.outer
        assert outer is not None
        outer.nested -= 1
        if not outer.nested and outer.running:
            self._runs(event, 1)

    def _hooked(self, seq: int, fact: HookInvoked, event: Event) -> None:
        if fact.digest is not None:
            self.hooks.setdefault(fact.digest, seq)


Change: TypeAlias = Callable[[State, int, Any, Event], None]


def change_of(cls: type[Fact]) -> Change | None:
    """How facts of this class change the state; None: they do not."""
    return _CHANGES.get(cls)


_CHANGES: dict[type[Fact], Change] = {
    SessionCreated: State._created,
    SessionOpened: State._opened,
    PolicyChanged: State._policy,
    InboxSpliced: State._spliced,
    InboxClaimed: State._claimed,
    InboxReturned: State._returned,
    InboxDropped: State._dropped,
    MailTaken: State._mail_taken,
    TurnStart: State._turn_started,
    TurnEnd: State._turn_ended,
    CancelRequested: State._cancelled,
    StepStart: State._step_started,
    StepEnd: State._step_ended,
    UserMessage: State._told,
    DecisionMade: State._left_out,
    RequestHeader: State._headed,
    RequestSent: State._sent,
    AssistantChunk: State._chunk,
    AssistantMessage: State._answered,
    RequestFailed: State._request_failed,
    HistoryReplaced: State._replaced,
    ToolCalled: State._called,
    ToolPrepared: State._prepared,
    ToolDecided: State._tool_decided,
    ApprovalAsked: State._asked,
    ApprovalDecided: State._approval_decided,
    GrantRevoked: State._revoked,
    ToolStarted: State._tool_started,
    ToolSettled: State._settled,
    ToolResulted: State._resulted,
    ToolAbandoned: State._abandoned,
    SubcallStart: State._subcall_started,
    SubcallEnd: State._subcall_ended,
    HookInvoked: State._hooked,
}
