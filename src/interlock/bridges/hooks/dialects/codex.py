"""Codex's dialect.

Lives here: `CODEX_CLI`. Its answers are strict: an unknown key makes all of it invalid. There that lets the call
pass; here it is a failure, and on a gate a failure means no.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, assert_never

from interlock.bridges.hooks.dialects import codex_output as output
from interlock.bridges.hooks.dialects.codex_patch import as_patch
from interlock.bridges.hooks.dialects.dialect import Printed, Status
from interlock.bridges.hooks.dialects.tools import CODEX, encode_input
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


@dataclass(frozen=True, slots=True)
class CodexCLI:
    name: Literal["codex"] = "codex"

    @property
    def events(self) -> Mapping[str, tuple[EventName, ...]]:
        return {event: (event,) for event in output.HONOURED}

    @property
    def known(self) -> frozenset[str]:
        return frozenset({"PostCompact", "Interrupt", "SessionEnd", "StopFailure"})

    @property
    def honoured(self) -> Mapping[EventName, Mapping[str, Status]]:
        return output.HONOURED

    def style(self, event: EventName) -> Style:
        return "codex"

    def tool_names(self, tool: str) -> tuple[str, ...]:
        form = CODEX.get(tool)
        return (tool,) if form is None else (form.name, *form.also, tool)

    def encode(self, occurrence: Occurrence) -> dict[str, Any]:
        payload: dict[str, Any] = {
            "session_id": occurrence.session_id,
            "transcript_path": occurrence.transcript_path,
            "cwd": str(occurrence.cwd),
            "hook_event_name": occurrence.event,
            "model": occurrence.model,
        }
        if occurrence.event != "SessionStart":
            payload["turn_id"] = occurrence.turn_id or ""
        if occurrence.event != "PreCompact":
            mode = occurrence.permission_mode
            payload["permission_mode"] = "default" if mode == "auto" else mode
        return payload | _facts(occurrence)

    def decode(self, occurrence: Occurrence, printed: Printed) -> Answer:
        return output.decode(occurrence, printed)

    def environment(self, occurrence: Occurrence) -> Mapping[str, str]:
        return {}


def call_input(tool: str, arguments: Mapping[str, Any], occurrence: Occurrence) -> dict[str, Any]:
    """The arguments as that program has them: edits are patches."""
    patch = as_patch(tool, arguments, occurrence.cwd)
    return encode_input(CODEX.get(tool), arguments, occurrence.cwd) if patch is None else {"command": patch}


def _call(what: PreToolUse | PermissionRequest | PostToolUse, occurrence: Occurrence) -> dict[str, Any]:
    form = CODEX.get(what.tool)
    return {
        "tool_name": what.tool if form is None else form.name,
        "tool_input": call_input(what.tool, what.input, occurrence),
    }


def _facts(occurrence: Occurrence) -> dict[str, Any]:
    what = occurrence.what
    agent = {"agent_id": occurrence.agent_id or "", "agent_type": occurrence.agent_type or ""}
    match what:
        case SessionStart():
            return {"source": "resume" if what.source == "fork" else what.source}
        case UserPromptSubmit():
            return {"prompt": what.prompt}
        case PreToolUse():
            return _call(what, occurrence) | {"tool_use_id": what.tool_use_id}
        case PermissionRequest():
            return _call(what, occurrence)
        case PostToolUse():
            return _call(what, occurrence) | {
                "tool_use_id": what.tool_use_id,
                "tool_response": what.response,
            }
        case Stop():
            return {
                "stop_hook_active": what.stop_hook_active,
                "last_assistant_message": what.last_assistant_message,
            }
        case PreCompact():
            return {"trigger": what.trigger}
        case SubagentStart():
            return agent
        case SubagentStop():
            return agent | {
                "stop_hook_active": what.stop_hook_active,
                "agent_transcript_path": what.agent_transcript_path,
                "last_assistant_message": what.last_assistant_message,
            }
        case PostToolUseFailure() | PostToolBatch() | StopFailure() | SessionEnd() | Notification():
            raise KeyError(occurrence.event)
        case _:
            assert_never(what)


CODEX_CLI = CodexCLI()
