"""Outside hooks in the log.

Lives here: what is written of a handler before it starts and after it has answered, and what a person is told of it.
"""

from __future__ import annotations

from typing import Any

from interlock.bridges.hooks.event import EventName
from interlock.bridges.hooks.handler import Handler
from interlock.bridges.hooks.run import Ran
from interlock.bridges.hooks.verdict import Answer
from interlock.log.facts import HookInvoked, HookResulted
from interlock.log.strictjson import freeze

_KEPT = 4_000  # characters of one text; a transcript of what hooks say in full is not the log's business


def invoked(hook_id: str, event: EventName, handler: Handler, call: int | None) -> HookInvoked:
    """The line before it starts."""
    return HookInvoked(hook_id, event, handler.who, call, handler.dialect, str(handler.place), handler.digest)


def resulted(hook_id: str, ran: Ran, *, won: bool, unused: str | None) -> HookResulted:
    """The line after it. `won`: its word is in what was decided; `unused`: why what it said has no effect."""
    return HookResulted(
        hook_id,
        ran.ms,
        freeze(said(ran.answer)) or None,
        ran.exit,
        _short(ran.answer.failure) if ran.answer.failure is not None else None,
        won,
        unused,
    )


def said(answer: Answer) -> dict[str, Any]:
    """Only what it set."""
    made: dict[str, Any] = {}
    if answer.permission is not None:
        made["permission"] = answer.permission.verdict
        if answer.permission.reason:
            made["reason"] = _short(answer.permission.reason)
    if answer.decision is not None:
        decision = answer.decision
        made["decision"] = decision.behavior
        if decision.message:
            made["message"] = _short(decision.message)
        if decision.interrupt:
            made["interrupt"] = True
        if decision.input is not None:
            made["updated_input"] = decision.input.arguments
        if decision.updates:
            made["updated_permissions"] = decision.updates
    if answer.block is not None:
        made["block"] = _short(answer.block)
    if answer.input is not None:
        made["updated_input"] = answer.input.arguments
    if answer.output is not None:
        made["updated_output"] = _short(answer.output)
    if answer.contexts:
        made["contexts"] = [_short(text) for text in answer.contexts]
    if answer.messages:
        made["messages"] = [_short(text) for text in answer.messages]
    if answer.stop is not None:
        made["stop"] = _short(answer.stop)
    return made


def _short(text: str) -> str:
    return text if len(text) <= _KEPT else f"{text[:_KEPT]}…"
