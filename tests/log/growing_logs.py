"""Lawful logs of any shape, grown line by line: of the facts that might come next, those that no law forbids."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hypothesis import strategies as st

from interlock.log.causes import cited
from interlock.log.event import Event
from interlock.log.facts import (
    FORMAT,
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    CallError,
    CancelRequested,
    DecisionMade,
    Fact,
    Failure,
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
    Section,
    SessionCreated,
    SessionOpened,
    Stamp,
    StepEnd,
    StepStart,
    SubcallEnd,
    SubcallStart,
    ToolCalled,
    ToolDecided,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    TurnStart,
    Usage,
    UserMessage,
)
from interlock.log.laws import forbidden
from interlock.log.messages import PERSON, Block, Message, Reasoning, Source, Text, ToolUse
from interlock.log.reasons import Cause, Completed
from interlock.log.state import Call, State

HOOK = Source("hook", "lint")
RUNTIME = Source("runtime", "workspace")
SOURCES = (PERSON, Source("person"), HOOK, RUNTIME)


def _message(state: State) -> Message:
    n = state.head + 1
    return Message.user(f"message {n} \N{SNOWMAN}", id=f"m{n}", source=SOURCES[n % len(SOURCES)])


def _context(state: State) -> Message:
    return Message(role="system", content=(Text("note"),), id=f"x{state.head + 1}", source=Source("plugin"))


def _calls(state: State) -> Iterator[Call]:
    step = state.step
    if step is not None:
        yield from [call for call in step.by_seq.values() if call.result < 0]


def _possible(state: State) -> Iterator[Fact]:
    """What might come next; some of it is unlawful."""
    seq, turn, step, queues = state.head + 1, state.turn, state.step, state.queues
    number, steps = (turn.number, turn.steps) if turn is not None else (0, 0)
    yield SessionOpened(state.life + 1, "resume")
    yield PolicyChanged(("ask", "plan")[seq % 2], by="me")
    yield GrantRevoked(next(iter(state.grants), "none"))
    yield HookInvoked(f"h{seq}", "Stop", "hook", digest=("d1", "d2", None)[seq % 3])
    yield MailTaken(Stamp(state.mail + 1, 5), "cancel")
    for name in ("next-step", "next-turn"):
        at = len(queues.of(name))
        yield InboxSpliced(name, at, 0, (_message(state),), wake=seq % 2 == 0)
        if at:
            yield InboxSpliced(name, at - 1, 1, (), "canceled")
    yield CancelRequested(Cause("user"), number or None, keep_inbox=seq % 2 == 0)
    yield TurnStart(state.turns + 1)
    yield TurnEnd(number, Completed(), steps)
    yield InboxClaimed(
        number,
        steps + 1,
        tuple([one.id for one in queues.next_step]),
        tuple([one.id for one in queues.next_turn[:1]]),
    )
    if state.claim is not None:
        ids = tuple(state.claim.undecided)
        yield InboxReturned(
            number,
            tuple([i for i in ids if i in state.claim.next_step]),
            tuple([i for i in ids if i in state.claim.next_turn]),
            ("error", "cancel")[seq % 2],
        )
        yield InboxDropped(number, ids, ("rejected", "omitted")[seq % 2])
        told = queues.reserved[ids[0]].message
        yield UserMessage(told.id, told.source, "user", told.content, claim=state.claim.seq)
    yield StepStart(number, steps + 1)
    extra = _message(state)
    yield UserMessage(extra.id, extra.source, "user", extra.content)
    if turn is not None and turn.owed:
        owed = turn.owed[0]
        yield UserMessage(
            owed.message.id, owed.message.source, "system", owed.message.content, "context", None, owed.call
        )
        yield DecisionMade("agent/pre-step", turn.seq, "enter", dropped=(owed.message.id,))
    if len(state.history) > 2:
        seqs = state.history.parts()[1]
        yield HistoryReplaced(seqs[0], seqs[len(seqs) // 2], (_context(state),), "compaction")
    if step is not None:
        yield from _of_step(state, seq, number, step.number)


def _of_step(state: State, seq: int, turn: int, number: int) -> Iterator[Fact]:
    step = state.step
    assert step is not None
    yield RequestHeader("change", "p", "m", {"temperature": 0.5}, (Section("instructions", f"be {seq}"),))
    yield RequestSent(step.seq, 1, state.header_seq, state.history.last, len(state.history), "digest")
    if step.request is not None:
        sent = step.request.seq
        yield AssistantChunk(sent, "text", 0, "word ")
        yield RequestFailed(sent, Failure("SERVER", "it is down"))
        uses = [ToolUse(f"c{seq}.{i}", "look", "{}") for i in range(seq % 3)]
        said: tuple[Block, ...] = (Text("I look"), Reasoning("hm", "signed" if seq % 2 else None), *uses)
        finish = "calls" if uses else ("stop", "max-tokens")[seq % 2]
        yield AssistantMessage(sent, said, finish, Usage(10, 3))
    if step.next_call < len(step.calls):
        call = step.calls[step.next_call]
        yield ToolCalled(turn, number, call.index, call.use.id, "look", "{}", synthetic=seq % 5 == 0)
    for call in _calls(state):
        yield ToolDecided(call.seq, "policy", ("allow", "ask", "deny")[seq % 3], "rule")
        yield ApprovalAsked(f"a{seq}", call.seq, "may it?", {}, "digest", ("once", "session Bash(ls)"))
        yield ToolStarted(call.seq, "digest", call.runs + 1)
        yield ToolSettled(call.seq, True, (Text("done"),))
        yield SubcallStart(call.seq, f"s{seq}", "look", {})
        if call.outer is not None:
            yield SubcallEnd(call.seq, call.runs > 0)
            continue
        contexts = (_context(state),) if seq % 2 else ()
        error = None if call.runs else CallError("DENIED")
        yield ToolResulted(
            call.seq, call.use.id, (Text("result " * (seq % 4)),), error, None, seq % 7 == 0, contexts
        )
    for approval in state.approvals.values():
        yield ApprovalDecided(
            approval.id,
            approval.call,
            approval.digest,
            ("allowed-once", "rejected")[seq % 2],
            rule_written="Bash(ls)" if seq % 3 == 0 else None,
            scope="session" if seq % 3 == 0 else None,
        )
    yield StepEnd(turn, number, ("tools", "completed")[seq % 2])


def grown(choose: Callable[[Sequence[Fact]], Fact], lines: int) -> list[Event]:
    """A lawful log; `choose` says which of the facts that may come next does."""
    state, events = State(), list[Event]()

    def add(fact: Fact) -> None:
        life = fact.life if isinstance(fact, SessionOpened) else state.life or 1
        seq = state.head + 1
        event = Event(seq, 1000 + 7 * seq, life, fact, cited(state, fact), fact.ignorable)
        events.append(event)
        state.apply(event)

    add(SessionCreated(FORMAT, "s", "/work"))
    add(SessionOpened(1, "new"))
    while len(events) < lines:
        add(choose([fact for fact in _possible(state) if forbidden(state, fact) is None]))
    return events


# What brings a log on is chosen more often than what may come at any time.
_SELDOM = (SessionOpened, PolicyChanged, GrantRevoked, HookInvoked, MailTaken, CancelRequested, InboxSpliced)


@st.composite
def growing_logs(draw: Any, *, most: int = 60) -> list[Event]:
    """Lawful logs of some length."""
    random = draw(st.randoms(use_true_random=False))

    def choose(facts: Sequence[Fact]) -> Fact:
        often = [fact for fact in facts if not isinstance(fact, _SELDOM)]
        chosen: Fact = random.choice(often if often and random.random() < 0.7 else list(facts))
        return chosen

    return grown(choose, draw(st.integers(2, most)))
