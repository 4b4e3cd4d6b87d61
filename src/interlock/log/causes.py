"""What cites what: the earlier lines that a new line rests on.

Lives here: `cited`. It is read from the state, so a writer of facts need not know it, and cannot get it wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from interlock.log.facts import (
    ApprovalDecided,
    AssistantMessage,
    Fact,
    InboxClaimed,
    InboxDropped,
    InboxReturned,
    SessionRepaired,
    Span,
    SubcallEnd,
    SubcallStart,
    ToolCalled,
    ToolResulted,
    ToolStarted,
    UserMessage,
)
from interlock.log.state import State

Spans = tuple[Span, ...]


def cited(state: State, fact: Fact) -> Spans:
    """The causes of a fact that is about to be appended."""
    rule = _RULES.get(type(fact))
    return rule(state, fact) if rule is not None else ()


def citing(cls: type[Fact]) -> Callable[[State, Any], Spans] | None:
    """How the causes of facts of this class are found; None: they have none."""
    return _RULES.get(cls)


def _claimed(state: State, fact: InboxClaimed) -> Spans:
    queues = state.queues
    taken = queues.next_step[: len(fact.next_step)] + queues.next_turn[: len(fact.next_turn)]
    return tuple(sorted({waiting.seq for waiting in taken}))


def _fate(state: State, fact: InboxReturned | InboxDropped) -> Spans:
    return (state.claim.seq,) if state.claim is not None else ()


def _told(state: State, fact: UserMessage) -> Spans:
    if fact.claim is not None:
        return (fact.claim,)
    if fact.call is not None and state.turn is not None and fact.call in state.turn.results:
        return (state.turn.results[fact.call],)
    return ()


def _answered(state: State, fact: AssistantMessage) -> Spans:
    step = state.step
    return step.request.cited() if step is not None and step.request is not None else ()


def _called(state: State, fact: ToolCalled) -> Spans:
    return (state.step.message,) if state.step is not None and state.step.message >= 0 else ()


def _started(state: State, fact: ToolStarted) -> Spans:
    call = state.call(fact.call)
    return (call.decided,) if call is not None and call.decided >= 0 else ()


def _resulted(state: State, fact: ToolResulted) -> Spans:
    call = state.call(fact.call)
    if call is not None and call.settled_seq >= 0:
        return (fact.call, call.settled_seq)
    return (fact.call,)


def _approval_decided(state: State, fact: ApprovalDecided) -> Spans:
    approval = state.approvals.get(fact.approval_id)
    return (approval.seq,) if approval is not None else ()


_RULES: dict[type[Fact], Callable[[State, Any], Spans]] = {
    SessionRepaired: lambda state, fact: fact.closed,
    InboxClaimed: _claimed,
    InboxReturned: _fate,
    InboxDropped: _fate,
    UserMessage: _told,
    AssistantMessage: _answered,
    ToolCalled: _called,
    ToolStarted: _started,
    ToolResulted: _resulted,
    ApprovalDecided: _approval_decided,
    SubcallStart: lambda state, fact: (fact.outer,),
    SubcallEnd: lambda state, fact: (fact.start,),
}
