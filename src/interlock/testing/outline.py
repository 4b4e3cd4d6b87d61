"""A log as lines of text, to compare a whole session in one look.

Lives here: `outline`: what happened, in words.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalLate,
    AssistantMessage,
    GrantRevoked,
    InboxDropped,
    InboxReturned,
    InboxSpliced,
    RequestFailed,
    StepEnd,
    ToolCalled,
    ToolDecided,
    ToolResulted,
    TurnEnd,
    UserMessage,
)
from interlock.log.messages import Text, ToolUse
from interlock.log.reasons import describe

_SHOWN = ("user/message", "assistant/message", "tool/call", "tool/result", "turn/end")


def outline(session: Any, *types: str) -> list[str]:
    """One line for each event of these types, by default those that say what happened.

    Args:
        session: a `Session`, or any iterable of events.
        types: stored type names, such as `step/end`.
    """
    events: Iterable[Event] = getattr(session, "events", session)
    shown = types or _SHOWN
    ids: dict[int, str] = {}
    names: dict[int, str] = {}
    lines = []
    for event in events:
        fact = event.fact
        if isinstance(fact, ToolCalled):
            ids[event.seq], names[event.seq] = fact.call_id, fact.name
        if event.type in shown:
            lines.append(f"{event.type} {_line(fact, ids)}".rstrip())
    return lines


def _line(fact: Any, ids: dict[int, str]) -> str:
    match fact:
        case UserMessage(content=content):
            return _text(content)
        case AssistantMessage(blocks=blocks, interrupted=interrupted):
            calls = " ".join(f"-> {block.name}#{block.id}" for block in blocks if isinstance(block, ToolUse))
            parts = [_text(blocks), calls, "(interrupted)" if interrupted else ""]
            return " ".join(part for part in parts if part)
        case ToolCalled(name=name, call_id=call_id):
            return f"{name}#{call_id}"
        case ToolDecided(call=call, verdict=verdict, by=by, reason=reason):
            return f"#{ids.get(call, call)} {verdict} by {by}{f': {reason}' if reason else ''}"
        case ApprovalAsked(call=call, question=question):
            return f"#{ids.get(call, call)} {question}"
        case ApprovalDecided(call=call, outcome=outcome, by=by, rule_written=rule, scope=scope):
            whose = f" by {by}" if by else ""
            return f"#{ids.get(call, call)} {outcome}{whose}{f', {scope} {rule}' if rule else ''}"
        case ApprovalLate(answer=answer, by=by):
            return f"{answer}{f' by {by}' if by else ''}"
        case GrantRevoked(rule=rule, by=by):
            return f"{rule}{f' by {by}' if by else ''}"
        case ToolResulted(call_id=call_id, error=error, content=content):
            text = _text(content)
            if error is None:
                return f"#{call_id} {text}"
            return f"#{call_id} error {error.code} {text.removeprefix(f'Error [{error.code.lower()}]: ')}"
        case StepEnd(reason=reason):
            return reason
        case TurnEnd(reason=reason):
            return describe(reason)
        case InboxSpliced(list=name, inserted=inserted, removed=removed):
            return f"{name} +{len(inserted)} -{removed}"
        case InboxDropped(ids=dropped, outcome=outcome):
            return f"{outcome} {' '.join(dropped)}"
        case InboxReturned(next_step=step, next_turn=turn):
            return " ".join((*step, *turn))
        case RequestFailed(failure=failure):
            return f"{failure.code} {failure.message}"
        case _:
            return ""


def _text(blocks: Iterable[Any]) -> str:
    return " ".join(block.text for block in blocks if isinstance(block, Text))
