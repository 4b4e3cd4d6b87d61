"""Gemini CLI's dialect.

Lives here: `GEMINI_CLI`. It follows what that program does where its documents say otherwise: output is read from
stderr when stdout is empty, JSON may be encoded twice, every exit code from 2 refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, assert_never

from interlock.bridges.hooks.dialects import gemini_output as output
from interlock.bridges.hooks.dialects.dialect import Printed, Status
from interlock.bridges.hooks.dialects.tools import GEMINI, encode_input
from interlock.bridges.hooks.event import (
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

_SOURCES = {"startup": "startup", "resume": "resume", "clear": "clear", "compact": "resume", "fork": "resume"}
_NAMES: Mapping[EventName, str] = {event: name for name, events in output.EVENTS.items() for event in events}


@dataclass(frozen=True, slots=True)
class GeminiCLI:
    name: Literal["gemini"] = "gemini"

    @property
    def events(self) -> Mapping[str, tuple[EventName, ...]]:
        return output.EVENTS

    @property
    def known(self) -> frozenset[str]:
        return frozenset({"BeforeModel", "AfterModel", "BeforeToolSelection"})

    @property
    def honoured(self) -> Mapping[EventName, Mapping[str, Status]]:
        return output.HONOURED

    def style(self, event: EventName) -> Style:
        return "gemini" if event in ("PreToolUse", "PostToolUse", "PostToolUseFailure") else "literal"

    def tool_names(self, tool: str) -> tuple[str, ...]:
        form = GEMINI.get(tool)
        return (tool,) if form is None else (form.name, *form.also, tool)

    def encode(self, occurrence: Occurrence) -> dict[str, Any]:
        stamp = datetime.fromtimestamp(occurrence.time / 1000, UTC)
        return {
            "session_id": occurrence.session_id,
            "transcript_path": occurrence.transcript_path or "",
            "cwd": str(occurrence.cwd),
            "hook_event_name": _NAMES[occurrence.event],
            "timestamp": stamp.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        } | _facts(occurrence)

    def decode(self, occurrence: Occurrence, printed: Printed) -> Answer:
        return output.decode(occurrence, printed)

    def environment(self, occurrence: Occurrence) -> Mapping[str, str]:
        return {
            "GEMINI_PROJECT_DIR": str(occurrence.project),
            "GEMINI_SESSION_ID": occurrence.session_id,
            "GEMINI_CWD": str(occurrence.cwd),
            "CLAUDE_PROJECT_DIR": str(occurrence.project),
        }


def _call(what: PreToolUse | PostToolUse | PostToolUseFailure, occurrence: Occurrence) -> dict[str, Any]:
    form = GEMINI.get(what.tool)
    return {
        "tool_name": what.tool if form is None else form.name,
        "tool_input": encode_input(form, what.input, occurrence.cwd),
    }


def _facts(occurrence: Occurrence) -> dict[str, Any]:
    what = occurrence.what
    match what:
        case SessionStart():
            return {"source": _SOURCES[what.source]}
        case SessionEnd():
            return {"reason": "other" if what.reason == "resume" else what.reason}
        case UserPromptSubmit():
            return {"prompt": what.prompt}
        case Stop():
            return {
                "prompt": what.prompt,
                "prompt_response": what.last_assistant_message or "",
                "stop_hook_active": what.stop_hook_active,
            }
        case PreToolUse():
            return _call(what, occurrence)
        case PostToolUse():
            response = {"llmContent": what.response, "returnDisplay": what.response}
            return _call(what, occurrence) | {"tool_response": response}
        case PostToolUseFailure():
            failed = {
                "llmContent": what.error,
                "returnDisplay": what.error,
                "error": {"message": what.error},
            }
            return _call(what, occurrence) | {"tool_response": failed}
        case PreCompact():
            return {"trigger": what.trigger}
        case Notification():
            permission = what.notification_type == "permission_prompt"
            kind = "ToolPermission" if permission else what.notification_type
            return {"notification_type": kind, "message": what.message, "details": {}}
        case PermissionRequest() | PostToolBatch() | StopFailure() | SubagentStart() | SubagentStop():
            raise KeyError(occurrence.event)
        case _:
            assert_never(what)


GEMINI_CLI = GeminiCLI()
