"""What outside hooks are told after the fact.

Lives here: `Aftermath`: StopFailure when a turn ended with an error, and the notifications that the agent has completed
its work, waits for input, or asks a person. Nobody waits for these hooks; the session does when it is left.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from interlock.bridges.hooks import event as happening
from interlock.bridges.hooks.event import ErrorType
from interlock.bridges.hooks.session import SessionHooks
from interlock.log.event import Event
from interlock.log.facts import ApprovalAsked, TurnEnd
from interlock.log.reasons import Completed, EndReason, Failed, MaxTokens
from interlock.loop.status import Status

IDLE = 60.0  # seconds without work until a person is reminded

_ERRORS: dict[str, ErrorType] = {
    "RATE_LIMIT": "rate_limit",
    "AUTH": "authentication_failed",
    "BAD_REQUEST": "invalid_request",
    "CONTEXT_LENGTH": "invalid_request",
    "NOT_FOUND": "model_not_found",
    "SERVER": "server_error",
}


class Aftermath:
    """Watches one session."""

    def __init__(self, hooks: SessionHooks) -> None:
        self._hooks = hooks
        self._reason: EndReason | None = None  # of the turn that ended last
        self._idle: asyncio.TimerHandle | None = None
        self._undo = ExitStack()
        agent = hooks.agent
        self._undo.callback(agent.session.observe(self._ended, TurnEnd, who="hooks:after"))
        self._undo.callback(agent.session.observe(self._asked, ApprovalAsked, who="hooks:after"))
        self._undo.callback(agent.on.status(self._status, name="hooks:after"))

    def _ended(self, event: Event) -> None:
        assert isinstance(event.fact, TurnEnd)
        self._reason = reason = event.fact.reason
        if isinstance(reason, Failed):
            error = _ERRORS.get(reason.code, "unknown")
            self._hooks.later(
                happening.StopFailure(error=error, details=reason.code, last_assistant_message=reason.message)
            )

    def _asked(self, event: Event) -> None:
        """A person is asked at once, unless PermissionRequest hooks are asked before."""
        assert isinstance(event.fact, ApprovalAsked)
        hooks = self._hooks
        if hooks.agent.approvals.available and not hooks.configures("PermissionRequest"):
            called = hooks.session.events[event.fact.call].fact
            hooks.ask_notice(getattr(called, "name", ""), event.fact.question)

    def _status(self, status: Status) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if status is not Status.IDLE:
            return
        if isinstance(self._reason, (Completed, MaxTokens)):
            self._notify("agent_completed", "The agent has completed its work")
        self._reason = None
        loop = asyncio.get_running_loop()
        self._idle = loop.call_later(IDLE, self._notify, "idle_prompt", "The agent waits for your input")

    def _notify(self, kind: str, message: str) -> None:
        self._hooks.later(happening.Notification(notification_type=kind, message=message))

    def close(self) -> None:
        self._undo.close()
        if self._idle is not None:
            self._idle.cancel()
