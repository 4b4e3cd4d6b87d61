"""How everything that is open comes to its end.

Lives here: `closers`, one pure function that writes the missing ends after a cancel, a failure, a spent budget, a hook
that stopped the turn, and a crash alike; `Ending`, which says which of these it is; and the parts of it that a live
turn uses one by one. Same state and same ending give the same facts; on a closed state there are none. A step that
waits for a person stays open over a crash: `end_started` says what ends there all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

from interlock.log.event import encode_json
from interlock.log.facts import (
    ApprovalDecided,
    AssistantMessage,
    CallError,
    Fact,
    Failure,
    InboxDropped,
    InboxReturned,
    Pending,
    RequestFailed,
    StepEnd,
    SubcallEnd,
    ToolCalled,
    ToolResulted,
    ToolSettled,
    TurnEnd,
    UserMessage,
)
from interlock.log.messages import Message, Source, Text
from interlock.log.reasons import (
    ABORTED_BEFORE_DISPATCH,
    BUDGET_EXHAUSTED,
    HOOK_STOPPED_CONTINUATION,
    RESULT_WITHHELD,
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    Aborted,
    Cause,
    Completed,
    EndReason,
    Failed,
    Interrupted,
    OverBudget,
    StepReason,
    error_text,
)
from interlock.log.state import Approval, Call, State, Step

Redo: TypeAlias = Literal["read", "idempotent"]  # READ tools; those and IDEMPOTENT ones

MAX_RETURNS = 2  # the third error on a message drops it

_TEXTS = {
    ABORTED_BEFORE_DISPATCH: "tool call aborted before dispatch",
    TOOL_NOT_STARTED: "the tool was not started",
    TOOL_OUTCOME_UNKNOWN: "the tool was started, and its outcome is not known; check before doing it again",
    RESULT_WITHHELD: "the tool ran, but its result was not reviewed and is withheld",
    HOOK_STOPPED_CONTINUATION: "Skipped after PostToolUse stopped the turn",
    BUDGET_EXHAUSTED: "the budget for tool calls is used up; the tool was not started",
}


class Ending(msgspec.Struct, frozen=True):
    """Why everything open is ended, and with what.

    unstarted: the code of calls that have not started. inbox: what happens to reserved messages.
    """

    step: StepReason
    turn: EndReason
    unstarted: str
    inbox: Literal["error", "cancel", "crash", "drop"]

    @property
    def crashed(self) -> bool:
        return self.inbox == "crash"

    @property
    def approval(self) -> Literal["cancelled", "unavailable"]:
        return "unavailable" if self.crashed else "cancelled"


def cancelled(cause: Cause, *, keep_inbox: bool) -> Ending:
    return Ending("aborted", Aborted(cause), ABORTED_BEFORE_DISPATCH, "cancel" if keep_inbox else "drop")


def failed(reason: Failed) -> Ending:
    return Ending("error", reason, TOOL_NOT_STARTED, "error")


def over_budget(reason: OverBudget) -> Ending:
    return Ending("budget", reason, BUDGET_EXHAUSTED, "cancel")


def hook_stopped() -> Ending:
    return Ending("hook-stopped", Completed(by="hook"), HOOK_STOPPED_CONTINUATION, "cancel")


CRASHED = Ending("interrupted", Interrupted(), TOOL_NOT_STARTED, "crash")


def closers(
    state: State, ending: Ending, contexts: Mapping[int, tuple[Message, ...]] | None = None
) -> list[Fact]:
    """The facts that end everything open, in order; to be appended as they are.

    Args:
        contexts: what listeners had said about calls that have no result yet, by call: known only to a live turn.
    """
    if state.turn is None:
        return []
    facts: list[Fact] = []
    step = state.turn.step
    owed: list[Fact] = []
    if step is not None:
        facts += end_request(state, ending)
        for call in step.calls[step.next_result :]:
            said = (contexts or {}).get(call.seq, ())
            made = end_call(state, call, ending, next_seq=state.head + 1 + len(facts), contexts=said)
            facts += made
            result = made[-1]
            assert isinstance(result, ToolResulted)
            owed += [_context(message, result.call) for message in result.contexts]
    fates, returned = end_claim(state, ending)
    facts += fates
    facts += owed_contexts(state) + owed
    if step is not None:
        facts.append(StepEnd(state.turn.number, step.number, ending.step))
    facts.append(end_turn(state, ending.turn, returned))
    return facts


def end_request(state: State, ending: Ending) -> list[Fact]:
    """The end of a request that has neither message nor failure: its visible prefix, or none if nobody saw any."""
    step = state.step
    if step is None or step.request is None:
        return []
    request = step.request
    if ending.step == "error":
        reason = ending.turn
        assert isinstance(reason, Failed)
        return [RequestFailed(request.seq, Failure(reason.code, reason.message, reason.status))]
    visible = request.assembly.visible()
    if not visible:
        return []
    return [
        AssistantMessage(
            request.seq,
            visible,
            finish=request.assembly.finish,
            usage=request.assembly.usage,
            interrupted=True,
        )
    ]


def end_call(
    state: State, call: Call, ending: Ending, *, next_seq: int, contexts: tuple[Message, ...] = ()
) -> list[Fact]:
    """The end of one call of the open step; the last fact is its result.

    Args:
        next_seq: the seq that the first of these facts will have.
    """
    assert state.turn is not None and state.turn.step is not None
    step = state.turn.step
    facts: list[Fact] = []
    if not call.called:
        use = call.use
        facts.append(
            ToolCalled(
                state.turn.number, step.number, call.index, use.id, use.name, use.arguments, synthetic=True
            )
        )
        facts.append(_failed(next_seq, use.id, ending.unstarted, contexts))
        return facts
    facts += _end_nested(step, call, ending)
    facts += end_approval(call.approval, ending.approval)
    contexts = contexts or said_of(call)
    settled = call.settled
    if settled is not None and not (ending.crashed and _unseen(settled)):
        facts.append(
            ToolResulted(
                call.seq,
                call.use.id,
                settled.content,
                settled.error,
                conclude=settled.conclude,
                contexts=settled.contexts,
                started=call.started_ms,
            )
        )
        return facts
    if settled is not None:
        code = RESULT_WITHHELD
    elif call.runs:
        code = TOOL_OUTCOME_UNKNOWN
    else:
        code = ending.unstarted
    facts.append(_failed(call.seq, call.use.id, code, contexts, ran=call.runs > 0, started=call.started_ms))
    return facts


def end_started(state: State, redo: Redo | None = None) -> list[Fact]:
    """What a crash ends in a step that waits for a person: the calls that were running. All others stay open.

    Their outcome is not known. It is the result where the call is the next in order, and else on record until it is.

    Args:
        redo: Calls of such tools stay open as well, to run again, if they are as they were written.
    """
    step = state.step
    assert step is not None
    facts: list[Fact] = []
    following = step.next_result
    for call in step.calls[step.next_result :]:
        if (
            not call.runs
            or call.settled is not None
            or (redo is not None and _may_run_again(step, call, redo))
        ):
            continue
        facts += _end_nested(step, call, CRASHED)
        contexts = said_of(call)
        if call.index == following:
            following += 1
            facts.append(
                _failed(
                    call.seq, call.use.id, TOOL_OUTCOME_UNKNOWN, contexts, ran=True, started=call.started_ms
                )
            )
        else:
            error = CallError(TOOL_OUTCOME_UNKNOWN, "", True)
            facts.append(
                ToolSettled(call.seq, False, closing_content(TOOL_OUTCOME_UNKNOWN), error, contexts=contexts)
            )
    return facts


def _may_run_again(step: Step, call: Call, redo: Redo) -> bool:
    """Whether twice is as good as once, by what is on record of it.

    An answer is for one run; what a listener has made of the arguments is not in the state; and a call that it has
    made may be of another effect.
    """
    return (
        (call.effect == "read" or call.effect == redo)
        and call.approval is None
        and not call.prepared
        and not any(one.outer is call for one in step.by_seq.values())
    )


def _end_nested(step: Step, call: Call, ending: Ending) -> list[Fact]:
    """The ends of the calls that this one has made, the innermost first."""
    facts: list[Fact] = []
    for nested in reversed(step.subcalls.values()):
        if nested.within(call.seq):
            facts += end_approval(nested.approval, ending.approval)
            code = TOOL_OUTCOME_UNKNOWN if nested.runs else ending.unstarted
            facts.append(
                SubcallEnd(nested.seq, False, closing_content(code), CallError(code, "", nested.runs > 0))
            )
    return facts


def _unseen(settled: ToolSettled) -> bool:
    """Whether a review had yet to see what a body did. A denial has nothing to withhold."""
    return settled.review and (settled.error is None or settled.error.handler_executed)


def said_of(call: Call) -> tuple[Message, ...]:
    """What rides on the result of a call that a person was asked about, as far as it is on record.

    It is what listeners had said by then, and that a person has changed the arguments.
    """
    approval = call.approval
    if approval is None:
        return ()
    contexts = approval.asked.contexts
    if approval.edited is not None:
        contexts = (*contexts, edited_context(call.seq, call.use.name, approval.edited, len(contexts) + 1))
    return contexts


def edited_context(call: int, name: str, arguments: object, n: int) -> Message:
    """The n-th context of a call, from 1: what a person has put in the place of its arguments."""
    text = (
        f"A person changed the arguments of this call of {name} before they allowed it. "
        f"What counts is: {encode_json(arguments).decode()}"
    )
    return Message(
        role="system", content=(Text(text),), id=f"x{call}.{n}", source=Source("runtime", "approval")
    )


def end_claim(state: State, ending: Ending) -> tuple[list[Fact], Pending]:
    """The fate of reserved messages: back to their queues, or dropped; and how many of each went back."""
    claim = state.claim
    if claim is None:
        return [], Pending()
    if ending.inbox == "drop":
        return [InboxDropped(claim.turn, tuple(claim.undecided), "canceled", by="cancel")], Pending()
    worn = [
        message_id
        for message_id in claim.undecided
        if ending.inbox == "error" and state.queues.reserved[message_id].returned >= MAX_RETURNS
    ]
    facts: list[Fact] = []
    if worn:
        reason = ending.turn
        why = reason.message if isinstance(reason, Failed) else ""
        facts.append(InboxDropped(claim.turn, tuple(worn), "failed", why or None, by="retries"))
    next_step = tuple(i for i in claim.next_step if i in claim.undecided and i not in worn)
    next_turn = tuple(i for i in claim.next_turn if i in claim.undecided and i not in worn)
    if next_step or next_turn:
        times = 1 + max(state.queues.reserved[i].returned for i in next_step + next_turn)
        facts.append(InboxReturned(claim.turn, next_step, next_turn, ending.inbox, times))
    return facts, Pending(len(next_turn), len(next_step))


def owed_contexts(state: State) -> list[Fact]:
    """Contexts of committed results that no step has taken: they become history before the next end line."""
    if state.turn is None:
        return []
    return [_context(owed.message, owed.call) for owed in state.turn.owed]


def end_turn(state: State, reason: EndReason, returned: Pending | None = None) -> TurnEnd:
    """The end line of the open turn. `returned`: messages that go back in the same append."""
    assert state.turn is not None
    back = returned or Pending()
    return TurnEnd(
        state.turn.number,
        reason,
        state.turn.steps,
        tuple(state.turn.rejected),
        Pending(len(state.queues.next_turn) + back.next_turn, len(state.queues.next_step) + back.next_step),
    )


def _context(message: Message, call: int) -> UserMessage:
    role: Literal["user", "system"] = "system" if message.role == "system" else "user"
    return UserMessage(message.id, message.source, role, message.content, "context", call=call)


def end_approval(
    approval: Approval | None, outcome: Literal["cancelled", "unavailable"] = "cancelled"
) -> list[Fact]:
    """The end of a question that has no answer yet."""
    if approval is None or approval.outcome is not None:
        return []
    return [ApprovalDecided(approval.id, approval.call, approval.digest, outcome)]


def closing_content(code: str) -> tuple[Text, ...]:
    """What the model reads of a call that was ended without being run, or without its outcome being known."""
    return (Text(error_text(code, closing_text(code))),)


def closing_text(code: str) -> str:
    """The same in words, without the code."""
    return _TEXTS[code]


def _failed(
    seq: int,
    call_id: str,
    code: str,
    contexts: tuple[Message, ...],
    *,
    ran: bool = False,
    started: int | None = None,
) -> ToolResulted:
    return ToolResulted(
        seq, call_id, closing_content(code), CallError(code, "", ran), contexts=contexts, started=started
    )
