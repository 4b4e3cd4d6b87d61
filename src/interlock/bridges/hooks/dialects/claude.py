"""Claude Code's dialect.

Lives here: `CLAUDE_CODE`. What its documentation leaves open to chance is decided towards safety: an answer on a gate
that cannot be understood is a failure, and a failure on a gate means no.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from interlock.bridges.hooks.dialects import claude_output as output
from interlock.bridges.hooks.dialects.claude_honoured import HONOURED
from interlock.bridges.hooks.dialects.dialect import Printed, Status
from interlock.bridges.hooks.dialects.tools import CLAUDE, absolute, encode_input
from interlock.bridges.hooks.event import (
    EVENTS,
    EventName,
    Notification,
    Occurrence,
    PermissionRequest,
    PostToolBatch,
    PostToolUse,
    PostToolUseFailure,
    PreCompact,
    PreToolUse,
    SessionEnd,
    SessionStart,
    Stop,
    StopFailure,
    SubagentStart,
    SubagentStop,
    UserPromptSubmit,
)
from interlock.bridges.hooks.matching import Style
from interlock.bridges.hooks.verdict import Answer

# Events of that program for which there is no place here. A handler for one is accepted and never fires.
KNOWN = frozenset(
    {
        "Setup",
        "InstructionsLoaded",
        "UserPromptExpansion",
        "MessageDisplay",
        "PermissionDenied",
        "PreSkillShellCommand",
        "TaskCreated",
        "TaskCompleted",
        "TeammateIdle",
        "PreModelSwitch",
        "PostModelSwitch",
        "ConfigChange",
        "CwdChanged",
        "DirectoryAdded",
        "FileChanged",
        "WorktreeCreate",
        "WorktreeRemove",
        "PostCompact",
        "Elicitation",
        "ElicitationResult",
    }
)
_WITHOUT_MODE: frozenset[EventName] = frozenset(
    {"SessionStart", "SessionEnd", "Notification", "PreCompact", "SubagentStart"}
)


@dataclass(frozen=True, slots=True)
class ClaudeCode:
    name: Literal["claude"] = "claude"

    @property
    def events(self) -> Mapping[str, tuple[EventName, ...]]:
        return {name: (name,) for name in EVENTS}

    @property
    def known(self) -> frozenset[str]:
        return KNOWN

    @property
    def honoured(self) -> Mapping[EventName, Mapping[str, Status]]:
        return HONOURED

    def style(self, event: EventName) -> Style:
        return "narrow" if event == "StopFailure" else "claude"

    def tool_names(self, tool: str) -> tuple[str, ...]:
        form = CLAUDE.get(tool)
        return (tool,) if form is None else (form.name, *form.also, tool)

    def encode(self, occurrence: Occurrence) -> dict[str, Any]:
        payload = common(occurrence)
        if occurrence.event not in _WITHOUT_MODE:
            payload["permission_mode"] = occurrence.permission_mode
        return payload | _facts(occurrence)

    def decode(self, occurrence: Occurrence, printed: Printed) -> Answer:
        return output.decode(occurrence, printed)

    def environment(self, occurrence: Occurrence) -> Mapping[str, str]:
        return {"CLAUDE_PROJECT_DIR": str(occurrence.project)}


def common(occurrence: Occurrence) -> dict[str, Any]:
    payload: dict[str, Any] = {
        "session_id": occurrence.session_id,
        "transcript_path": occurrence.transcript_path or "",
        "cwd": str(occurrence.cwd),
        "hook_event_name": occurrence.event,
    }
    for name in ("prompt_id", "agent_id", "agent_type"):
        if (value := getattr(occurrence, name)) is not None:
            payload[name] = value
    return payload


def _call(what: Any, occurrence: Occurrence, *, with_id: bool = True) -> dict[str, Any]:
    form = CLAUDE.get(what.tool)
    call: dict[str, Any] = {
        "tool_name": what.tool if form is None else form.name,
        "tool_input": encode_input(form, what.input, occurrence.cwd),
    }
    return call | {"tool_use_id": what.tool_use_id} if with_id else call


def _facts(occurrence: Occurrence) -> dict[str, Any]:
    what = occurrence.what
    match what:
        case SessionStart():
            facts: dict[str, Any] = {
                "source": what.source,
                "model": occurrence.model or None,
                "agent_type": what.agent_type,
                "session_title": what.session_title,
            }
        case UserPromptSubmit():
            facts = {"prompt": what.prompt, "source": what.source}
        case PreToolUse():
            facts = _call(what, occurrence)
        case PermissionRequest():
            suggestions = [_suggestion(rule) for rule in what.suggestions]
            facts = _call(what, occurrence, with_id=False) | {"permission_suggestions": suggestions or None}
        case PostToolUse():
            facts = _call(what, occurrence) | {
                "tool_response": _response(what, occurrence),
                "duration_ms": what.duration_ms,
            }
        case PostToolUseFailure():
            facts = _call(what, occurrence) | {
                "error": what.error,
                "is_interrupt": what.interrupted,
                "duration_ms": what.duration_ms,
            }
        case PostToolBatch():
            facts = {
                "tool_calls": [
                    _call(call, occurrence) | {"tool_response": call.response} for call in what.calls
                ]
            }
        case Stop():
            facts = {
                "stop_hook_active": what.stop_hook_active,
                "last_assistant_message": what.last_assistant_message,
            }
        case StopFailure():
            facts = {
                "error": what.error,
                "error_details": what.details,
                "last_assistant_message": what.last_assistant_message,
            }
        case SessionEnd():
            facts = {"reason": what.reason}
        case Notification():
            facts = {
                "message": what.message,
                "title": what.title,
                "notification_type": what.notification_type,
            }
        case PreCompact():
            facts = {"trigger": what.trigger, "custom_instructions": what.custom_instructions}
        case SubagentStart():
            facts = {}
        case SubagentStop():
            facts = {
                "stop_hook_active": what.stop_hook_active,
                "agent_transcript_path": what.agent_transcript_path,
                "last_assistant_message": what.last_assistant_message,
            }
        case _:
            assert_never(what)
    return {name: value for name, value in facts.items() if value is not None}


def _suggestion(rule: str) -> dict[str, Any]:
    tool, bracket, content = rule.partition("(")
    named: dict[str, Any] = {"toolName": tool}
    if bracket:
        named["ruleContent"] = content.removesuffix(")")
    return {"type": "addRules", "rules": [named], "behavior": "allow", "destination": "localSettings"}


def _response(what: PostToolUse, occurrence: Occurrence) -> dict[str, Any]:
    """The result in the shape that scripts expect of that tool."""
    path = absolute(str(what.input.get("path", "")), occurrence.cwd)
    match what.tool:
        case "bash":
            return {"stdout": what.response, "stderr": "", "interrupted": False, "isImage": False}
        case "read":
            return {"type": "text", "file": {"filePath": path, "content": what.response}}
        case "write":
            return {"filePath": path, "content": what.input.get("content"), "success": True}
        case "edit":
            return {
                "filePath": path,
                "oldString": what.input.get("old"),
                "newString": what.input.get("new"),
                "replaceAll": what.input.get("replace_all", False),
                "success": True,
            }
        case _:
            return {"content": what.response}


CLAUDE_CODE = ClaudeCode()
