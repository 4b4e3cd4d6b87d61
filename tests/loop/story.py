"""A whole log in the dense notation of worked examples: one token a line, named by what was said.

    +T[go]  ~+S[bg]  xT[go]     queued for a turn (with `~` it wakes nobody), taken out of the queue
    CL 1.1 S[bg] T[go]          reserved by step 1.1; RET given back, DROP dropped
    TS 1  SS 1.1  SE 1.1 tools  TE 1 completed
    UM go  UM note^c1           a prompt, a context that rode on the result of c1
    AM"hi"  AM!"par"  AM[c1]    an answer, an interrupted one, one with calls
    TC c1  TC' c1  ST c1  SD c1 ok  TR c1 ok(+note)  TR c1 ERR[DENIED]
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interlock.log.facts import (
    AssistantChunk,
    AssistantMessage,
    CancelRequested,
    DecisionMade,
    InboxClaimed,
    InboxDropped,
    InboxReturned,
    InboxSpliced,
    ObserverFailed,
    RequestFailed,
    RequestHeader,
    RequestSent,
    RetryScheduled,
    RetryStarted,
    SessionCreated,
    SessionOpened,
    SessionRepaired,
    StepEnd,
    StepStart,
    ToolAbandoned,
    ToolCalled,
    ToolLate,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.messages import Message, Text, ToolUse
from interlock.log.reasons import Aborted, Failed, OverBudget, kind_of
from interlock.log.state import State

_REQUEST = (RequestHeader, RequestSent, AssistantChunk)


def story(session: Any, *, after: int = 1, request: bool = False) -> str:
    """The log from the line after `after` (the first two say only that the session began).

    Args:
        request: show header, request and chunks as well; a run of chunks is one `CH*`.
    """
    state = State()
    names: dict[str, str] = {}
    told: list[str] = []
    for event in session.events:
        fact: Any = event.fact
        if isinstance(fact, InboxSpliced):
            names.update({message.id: message.text for message in fact.inserted})
        shown = event.seq > after and (request or not isinstance(fact, _REQUEST))
        token = _token(fact, state, names) if shown else ""
        if token and not (token == "CH*" and told and told[-1] == token):
            told.append(token)
        state.apply(event)
    return " ".join(told)


def expected(text: str) -> str:
    """A story that is written over several lines."""
    return " ".join(text.split())


def _token(fact: Any, state: State, names: dict[str, str]) -> str:
    def said(ids: Iterable[str]) -> str:
        return ",".join([names.get(i, i) for i in ids])

    def lists(next_step: tuple[str, ...], next_turn: tuple[str, ...]) -> str:
        parts = [f"S[{said(next_step)}]" if next_step else "", f"T[{said(next_turn)}]" if next_turn else ""]
        return " ".join([part for part in parts if part])

    def called(seq: int) -> str:
        call = state.call(seq)
        return call.use.id if call is not None else f"@{seq}"

    match fact:
        case SessionCreated() | SessionOpened():
            return f"SO {fact.life} {fact.how}" if isinstance(fact, SessionOpened) else "SC"
        case SessionRepaired():
            return "SR"
        case InboxSpliced(list=name, start=start, removed=removed, inserted=inserted):
            short = "T" if name == "next-turn" else "S"
            gone = [waiting.id for waiting in state.queues.of(name)[start : start + removed]]
            out = f"x{short}[{said(gone)}]" if gone else ""
            put = f"{'' if fact.wake else '~'}+{short}[{_texts(inserted)}]" if inserted else ""
            return out + put
        case InboxClaimed():
            return f"CL {fact.turn}.{fact.step} {lists(fact.next_step, fact.next_turn)}"
        case InboxReturned():
            return f"RET {fact.turn} {lists(fact.next_step, fact.next_turn)} {fact.why} {fact.times}"
        case InboxDropped():
            return f"DROP[{said(fact.ids)}] {fact.outcome}"
        case TurnStart():
            return f"TS {fact.turn}"
        case TurnEnd():
            return f"TE {fact.turn} {_reason(fact.reason)}"
        case CancelRequested():
            return f"CR {fact.cause.kind}"
        case StepStart():
            return f"SS {fact.turn}.{fact.step}"
        case StepEnd():
            return f"SE {fact.turn}.{fact.step} {fact.reason}"
        case UserMessage():
            words = " ".join([block.text for block in fact.content if isinstance(block, Text)])
            if fact.call is None:
                return f"UM {words}"
            step = state.step
            rides = step.by_seq[fact.call].use.id if step is not None and fact.call in step.by_seq else ""
            return f"UM {words}^{rides}"
        case DecisionMade():
            return f"DM {fact.point} {fact.answer}"
        case ObserverFailed():
            return f"OF {fact.point}"
        case RequestHeader():
            return f"RH {fact.why}"
        case RequestSent():
            return f"RQ {fact.attempt}"
        case AssistantChunk():
            return "CH*"
        case AssistantMessage():
            ids = ",".join([block.id for block in fact.blocks if isinstance(block, ToolUse)])
            words = "".join([block.text for block in fact.blocks if isinstance(block, Text)])
            mark = "!" if fact.interrupted else ""
            return f"AM{mark}" + (f'"{words}"' if words or not ids else "") + (f"[{ids}]" if ids else "")
        case RequestFailed():
            return f"RF {fact.failure.code}"
        case RetryScheduled():
            return f"RT {fact.n}"
        case RetryStarted():
            return "RTs"
        case ToolCalled():
            return f"TC{chr(39) if fact.synthetic else ''} {fact.call_id}"
        case ToolStarted():
            return f"ST {called(fact.call)}"
        case ToolSettled():
            return f"SD {called(fact.call)} {_outcome(fact)}"
        case ToolResulted():
            return f"TR {fact.call_id} {_outcome(fact)}"
        case ToolAbandoned():
            return f"TA {called(fact.call)}"
        case ToolLate():
            return f"TL {'ok' if fact.ok else 'failed'}"
        case _:
            return str(fact.type)


def _texts(messages: Iterable[Message]) -> str:
    return ",".join([message.text for message in messages])


def _outcome(fact: ToolSettled | ToolResulted) -> str:
    outcome = "ok" if fact.error is None else f"ERR[{fact.error.code}]"
    return outcome + (f"(+{_texts(fact.contexts)})" if fact.contexts else "")


def _reason(reason: Any) -> str:
    match reason:
        case Aborted(cause=cause):
            return f"aborted{{{cause.kind}}}"
        case Failed(code=code):
            return f"error{{{code}}}"
        case OverBudget(budget=budget):
            return f"budget{{{budget}}}"
        case _:
            return kind_of(reason)
