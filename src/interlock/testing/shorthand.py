"""A log in the dense notation of worked examples: one token a line of the log.

Lives here: `shorthand`. `SC` session/created, `SO` opened, `SR` repaired, `+T[m]` `+S[m]` spliced in (`~` before it: no
wake), `xT[m]` `xS[m]` spliced out, `TS` turn/start, `CL t.s S[..] T[..]` claimed, `RET` returned, `DROP` dropped, `SS`
step/start, `UM` user/message (`id^call`: a context that cites the call), `RH` request/header, `RQ` request/sent, `CH`
chunk, `AM` assistant/message, `TC` tool/call (`TC'` synthetic), `TP` prepared, `TD` decided, `AA` `AD` approval asked
and decided, `ST` started, `SD` settled, `TR` result, `SB` `SX` nested call start and end, `HI` `HR` hook invoked and
result, `DM` decision/made, `CR` cancel/requested, `SE` `TE` step/end and turn/end, `RF` request/failed, `RT` `RTs`
retry scheduled and started, `PC` policy/changed, `GR` grant/revoked, `OF` observer/failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalLate,
    AssistantChunk,
    AssistantMessage,
    CancelRequested,
    DecisionMade,
    GrantRevoked,
    HookInvoked,
    HookResulted,
    InboxClaimed,
    InboxDropped,
    InboxReturned,
    InboxSpliced,
    ObserverFailed,
    PolicyChanged,
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
    SubcallEnd,
    SubcallStart,
    ToolAbandoned,
    ToolCalled,
    ToolDecided,
    ToolLate,
    ToolPrepared,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.messages import Text, ToolUse
from interlock.log.reasons import Aborted, Completed, Failed, OverBudget, kind_of
from interlock.log.state import State


def shorthand(session: Any, names: Mapping[str, str] | None = None) -> list[str]:
    """One token for each line of the log.

    Args:
        session: a `Session`, or any iterable of events from seq 0.
        names: message ids to the names to show for them.
    """
    events: Iterable[Event] = getattr(session, "events", session)
    writer = _Writer(names or {})
    return [writer.token(event) for event in events]


class _Writer:
    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names
        self._calls: dict[int, str] = {}
        self._state = State()

    def _m(self, message_id: str) -> str:
        return self._names.get(message_id, message_id)

    def _ms(self, ids: Iterable[str]) -> str:
        return ",".join(self._m(i) for i in ids)

    def _c(self, call: int | None) -> str:
        return self._calls.get(call, "?") if call is not None else "?"

    def token(self, event: Event) -> str:
        fact = event.fact
        removed: tuple[str, ...] = ()
        if isinstance(fact, InboxSpliced) and fact.removed:
            queue = self._state.queues.of(fact.list)
            removed = tuple(w.message.id for w in queue[fact.start : fact.start + fact.removed])
        if isinstance(fact, ToolCalled):
            self._calls[event.seq] = fact.call_id
        if isinstance(fact, SubcallStart):
            self._calls[event.seq] = fact.id
        self._state.apply(event)
        return self._token(fact, removed)

    def _token(self, fact: Any, removed: tuple[str, ...]) -> str:
        match fact:
            case SessionCreated():
                return "SC"
            case SessionOpened(life=life, how=how):
                return f"SO {life} {how}"
            case SessionRepaired(closed=closed):
                return f"SR[{','.join(self._c(c) for c in closed)}]"
            case PolicyChanged(preset=preset):
                return f"PC {preset}"
            case GrantRevoked(rule=rule):
                return f"GR {rule}"
            case ObserverFailed(point=point):
                return f"OF {point}"
            case InboxSpliced(list=name, inserted=inserted, wake=wake):
                letter = "T" if name == "next-turn" else "S"
                gone = f"x{letter}[{self._ms(removed)}]" if removed else ""
                came = (
                    f"{'' if wake else '~'}+{letter}[{self._ms(m.id for m in inserted)}]" if inserted else ""
                )
                return gone + came
            case TurnStart(turn=turn):
                return f"TS {turn}"
            case InboxClaimed(turn=turn, step=step, next_step=next_step, next_turn=next_turn):
                return f"CL {turn}.{step}{self._lists(next_step, next_turn)}"
            case InboxReturned(turn=turn, next_step=next_step, next_turn=next_turn, why=why, times=times):
                return f"RET {turn}{self._lists(next_step, next_turn)} {why} times {times}"
            case InboxDropped(ids=ids, outcome=outcome):
                return f"DROP[{self._ms(ids)}] {outcome}"
            case StepStart(turn=turn, step=step):
                return f"SS {turn}.{step}"
            case UserMessage(id=message_id, call=call, source=source):
                if call is not None:
                    return f"UM {self._m(message_id)}^{self._c(call)}"
                return f"UM {self._m(message_id)}" if source.kind != "runtime" else "UM runtime"
            case RequestHeader(why=why):
                return f"RH {why}"
            case RequestSent(attempt=attempt):
                return f"RQ {attempt}"
            case AssistantChunk():
                return "CH"
            case AssistantMessage(blocks=blocks, interrupted=interrupted):
                calls = ",".join(block.id for block in blocks if isinstance(block, ToolUse))
                text = "".join(block.text for block in blocks if isinstance(block, Text))
                return f"AM{'!' if interrupted else ''}" + (f"[{calls}]" if calls else f'"{text}"')
            case RequestFailed(failure=failure):
                return f"RF {failure.code}"
            case RetryScheduled(n=n):
                return f"RT {n}"
            case RetryStarted():
                return "RTs"
            case ToolCalled(call_id=call_id, synthetic=synthetic):
                return f"TC{chr(39) if synthetic else ''} {call_id}"
            case ToolPrepared(call=call):
                return f"TP {self._c(call)}"
            case ToolDecided(call=call, verdict=verdict, stage=stage):
                return f"TD {self._c(call)} {verdict} {stage}"
            case ApprovalAsked(call=call):
                return f"AA {self._c(call)}"
            case ApprovalDecided(call=call, outcome=outcome, edited=edited):
                return f"AD {self._c(call)} {outcome}{'(edited)' if edited is not None else ''}"
            case ApprovalLate(approval_id=approval_id):
                return f"AL {approval_id}"
            case ToolStarted(call=call, run=run):
                return f"ST {self._c(call)}{f' run {run}' if run > 1 else ''}"
            case ToolSettled(call=call, error=error):
                return f"SD {self._c(call)} {'ok' if error is None else f'ERR[{error.code}]'}"
            case ToolResulted(call=call, error=error, contexts=contexts, stop=stop):
                end = "ok" if error is None else f"ERR[{error.code}]"
                riding = f"(+{self._ms(m.id for m in contexts)})" if contexts else ""
                return f"TR {self._c(call)} {end}{riding}{' stop' if stop else ''}"
            case ToolAbandoned(call=call):
                return f"TA {self._c(call)}"
            case ToolLate(call=call):
                return f"TL {self._c(call)}"
            case SubcallStart(id=call_id):
                return f"SB {call_id}"
            case SubcallEnd(start=start, error=error):
                return f"SX {self._c(start)} {'ok' if error is None else f'ERR[{error.code}]'}"
            case HookInvoked():
                return "HI"
            case HookResulted(unused=unused):
                return f"HR{' unused' if unused else ''}"
            case DecisionMade(point=point, answer=answer):
                return f"DM {point.removeprefix('agent/')} {answer}"
            case CancelRequested(cause=cause):
                return f"CR {cause.kind}"
            case StepEnd(turn=turn, step=step, reason=reason):
                return f"SE {turn}.{step} {reason}"
            case TurnEnd(turn=turn, reason=reason):
                return f"TE {turn} {self._reason(reason)}"
            case _:
                return str(fact.type)

    def _lists(self, next_step: tuple[str, ...], next_turn: tuple[str, ...]) -> str:
        first = f" S[{self._ms(next_step)}]" if next_step else ""
        return first + (f" T[{self._ms(next_turn)}]" if next_turn else "")

    def _reason(self, reason: Any) -> str:
        match reason:
            case Aborted(cause=cause):
                return f"aborted{{{cause.kind}}}"
            case Failed(code=code):
                return f"error{{{code}}}"
            case OverBudget(budget=budget):
                return f"budget{{{budget}}}"
            case Completed(by=by) if by is not None:
                return f"completed{{by {by}}}"
            case _:
                return kind_of(reason)
