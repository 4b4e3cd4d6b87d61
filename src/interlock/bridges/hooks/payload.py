"""What happened, read back from a payload: for trying hooks without an agent.

Lives here: `happening_of`. It takes a payload in the words of a dialect, or a short form with ours:
`{"tool": "bash", "input": {"command": "git push"}}`. What is left out has a plain default.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from interlock.bridges.hooks import event as happening
from interlock.bridges.hooks.dialects import DIALECTS
from interlock.bridges.hooks.dialects.tools import CLAUDE, GEMINI, Form, Untranslatable, decode_input
from interlock.bridges.hooks.event import EVENTS, BatchedCall, EventName, Happening
from interlock.bridges.hooks.handler import DialectName
from interlock.errors import UsageError

_FORMS: Mapping[DialectName, Mapping[str, Form]] = {"claude": CLAUDE, "codex": CLAUDE, "gemini": GEMINI}


def event_named(name: str, dialect: DialectName) -> EventName:
    """The event that a dialect, or Claude Code, calls so.

    Raises:
        UsageError: there is none.
    """
    if name in EVENTS:
        return name
    meant = DIALECTS[dialect].events.get(name, ())
    if not meant:
        raise UsageError(f"No event {name!r} is told to hooks here: choose one of {', '.join(EVENTS)}.")
    return meant[0]


def happening_of(event: EventName, given: Mapping[str, Any], dialect: DialectName, cwd: Path) -> Happening:
    """
    Raises:
        UsageError: something that the event needs is missing, or of another kind.
    """
    return _READERS[event](_Payload(event, given, dialect, cwd))


class _Payload:
    """A payload, and how its fields are asked for: what stands there must be of the kind that is wanted."""

    def __init__(self, event: EventName, given: Mapping[str, Any], dialect: DialectName, cwd: Path) -> None:
        self.event, self.given, self.dialect, self.cwd = event, given, dialect, cwd

    def text(self, *names: str, default: str | None = None) -> str:
        value = self.first(names, default)
        if not isinstance(value, str):
            raise UsageError(f"{self.event}: {names[0]} is text, not {value!r}.")
        return value

    def flag(self, name: str) -> bool:
        value = self.given.get(name, False)
        if not isinstance(value, bool):
            raise UsageError(f"{self.event}: {name} is true or false, not {value!r}.")
        return value

    def first(self, names: tuple[str, ...], default: Any = None) -> Any:
        for name in names:
            if self.given.get(name) is not None:
                return self.given[name]
        if default is None:
            raise UsageError(f"{self.event}: the input has no {' or '.join(names)}.")
        return default

    def call(self) -> dict[str, Any]:
        """Tool, id and arguments, in our words."""
        named = self.text("tool", "tool_name")
        arguments = self.first(("tool_input", "input"), {})
        if not isinstance(arguments, Mapping):
            raise UsageError(f"{self.event}: the arguments are an object, not {arguments!r}.")
        tool, form = self._tool(named)
        if form is not None:
            try:
                arguments = decode_input(form, arguments, {}, self.cwd)
            except Untranslatable as error:
                raise UsageError(f"{self.event}: {error}.") from None
        return {"tool": tool, "tool_use_id": self.text("tool_use_id", default="test"), "input": arguments}

    def _tool(self, named: str) -> tuple[str, Form | None]:
        forms = _FORMS[self.dialect]
        if named in forms and "tool" in self.given:
            return named, None
        if named == "apply_patch":
            raise UsageError(
                f'{self.event}: give a patch in the short form, {{"tool": "edit", "input": {{"path": …}}}}.'
            )
        for ours, form in forms.items():
            if named == form.name or named in form.also:
                return ours, form
        return named, None

    def response(self) -> str:
        value = self.first(("tool_response", "response"), "")
        if isinstance(value, Mapping):
            value = next((value[k] for k in ("stdout", "content", "llmContent") if k in value), value)
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _batch(given: _Payload) -> happening.PostToolBatch:
    made = []
    for one in given.first(("tool_calls", "calls")):
        part = _Payload(given.event, one, given.dialect, given.cwd)
        made.append(BatchedCall(**part.call(), response=part.response()))
    return happening.PostToolBatch(calls=tuple(made))


_READERS: Mapping[EventName, Callable[[_Payload], Happening]] = {
    "SessionStart": lambda p: happening.SessionStart(source=p.text("source", default="startup")),  # type: ignore[arg-type]
    "UserPromptSubmit": lambda p: happening.UserPromptSubmit(prompt=p.text("prompt")),
    "PreToolUse": lambda p: happening.PreToolUse(**p.call()),
    "PermissionRequest": lambda p: happening.PermissionRequest(**p.call()),
    "PostToolUse": lambda p: happening.PostToolUse(**p.call(), response=p.response()),
    "PostToolUseFailure": lambda p: happening.PostToolUseFailure(
        **p.call(), error=p.text("error", default="it failed")
    ),
    "PostToolBatch": _batch,
    "Stop": lambda p: happening.Stop(
        stop_hook_active=p.flag("stop_hook_active"),
        last_assistant_message=p.text("last_assistant_message", "prompt_response", default="done"),
    ),
    "StopFailure": lambda p: happening.StopFailure(error=p.text("error", default="unknown")),  # type: ignore[arg-type]
    "SessionEnd": lambda p: happening.SessionEnd(reason=p.text("reason", default="other")),  # type: ignore[arg-type]
    "Notification": lambda p: happening.Notification(
        notification_type=p.text("notification_type", default="idle_prompt"),
        message=p.text("message", default="The agent waits for your input"),
    ),
    "PreCompact": lambda p: happening.PreCompact(trigger=p.text("trigger", default="manual")),  # type: ignore[arg-type]
    "SubagentStart": lambda p: happening.SubagentStart(),
    "SubagentStop": lambda p: happening.SubagentStop(stop_hook_active=p.flag("stop_hook_active")),
}
