"""What of Claude Code's format is honoured, event by event.

Lives here: `SPECIFIC` and `TOP`, the fields of an answer with their types, and `HONOURED`, how far each one counts.
Answers are read by these tables, the tests are held to them, and the parity table is made from them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interlock.bridges.hooks.dialects.dialect import Status
from interlock.bridges.hooks.dialects.printed import Shape, anything, array, flag, mapping, text, word
from interlock.bridges.hooks.event import EVENTS, EventName

TOP: Mapping[str, Shape] = {
    "continue": flag,
    "stopReason": text,
    "systemMessage": text,
    "suppressOutput": flag,
    "terminalSequence": text,
    "decision": word("approve", "block"),
    "reason": text,
    "hookSpecificOutput": mapping,
}

YES = Status("honoured")
NOT_YET = Status("not yet")
_IGNORED = Status("ignored")
_NO_EFFECT = Status("ignored", "it cannot block")

_PERMISSION_REQUEST = {
    "behavior": word("allow", "deny"),
    "message": text,
    "interrupt": flag,
    "updatedInput": mapping,
    "updatedPermissions": array,
}


def decision(value: Any) -> str | None:
    """The `decision` of a PermissionRequest."""
    if not isinstance(value, dict) or value.get("behavior") is None:
        return "an object with a behavior"
    for name, shape in _PERMISSION_REQUEST.items():
        if (given := value.get(name)) is not None and (expected := shape(given)) is not None:
            return f"an object whose {name} is {expected}"
    return None


SPECIFIC: Mapping[EventName, Mapping[str, tuple[Shape, Status]]] = {
    "SessionStart": {
        "additionalContext": (text, YES),
        "initialUserMessage": (text, NOT_YET),
        "sessionTitle": (text, NOT_YET),
        "watchPaths": (array, NOT_YET),
        "reloadSkills": (flag, NOT_YET),
    },
    "UserPromptSubmit": {
        "additionalContext": (text, YES),
        "sessionTitle": (text, NOT_YET),
        "suppressOriginalPrompt": (flag, NOT_YET),
    },
    "PreToolUse": {
        "permissionDecision": (word("allow", "deny", "ask", "defer"), YES),
        "permissionDecisionReason": (text, YES),
        "updatedInput": (
            mapping,
            Status("differs", "several: the last in declared order wins; a field that the tool lacks denies"),
        ),
        "additionalContext": (text, YES),
    },
    "PermissionRequest": {"decision": (decision, YES)},
    "PostToolUse": {
        "additionalContext": (text, YES),
        "updatedToolOutput": (
            anything,
            Status("differs", "any shape is taken; several: the last in declared order"),
        ),
        "updatedMCPToolOutput": (anything, Status("differs", "the same as updatedToolOutput")),
        "classifierContext": (text, NOT_YET),
    },
    "PostToolUseFailure": {"additionalContext": (text, YES)},
    "PostToolBatch": {"additionalContext": (text, YES)},
    "Stop": {"additionalContext": (text, YES)},
    "StopFailure": {},
    "SessionEnd": {},
    "Notification": {},
    "PreCompact": {},
    "SubagentStart": {"additionalContext": (text, YES)},
    "SubagentStop": {"additionalContext": (text, YES)},
}

# Answers to these are not looked at.
DISCARDED: frozenset[EventName] = frozenset({"StopFailure", "SessionEnd", "Notification"})
# Where `decision: "block"` and exit code 2 do something.
BLOCKING: frozenset[EventName] = frozenset(
    {
        "UserPromptSubmit",
        "PreToolUse",
        "PostToolUse",
        "PostToolUseFailure",
        "PostToolBatch",
        "Stop",
        "SubagentStop",
        "PreCompact",
    }
)

_INPUT: Mapping[EventName, tuple[str, ...]] = {
    "SessionStart": ("source", "model", "agent_type", "session_title"),
    "UserPromptSubmit": ("prompt", "source"),
    "PreToolUse": ("tool_name", "tool_input", "tool_use_id"),
    "PermissionRequest": ("tool_name", "tool_input", "permission_suggestions"),
    "PostToolUse": ("tool_name", "tool_input", "tool_use_id", "tool_response", "duration_ms"),
    "PostToolUseFailure": (
        "tool_name",
        "tool_input",
        "tool_use_id",
        "error",
        "is_interrupt",
        "duration_ms",
    ),
    "PostToolBatch": ("tool_calls",),
    "Stop": ("stop_hook_active", "last_assistant_message"),
    "StopFailure": ("error", "error_details", "last_assistant_message"),
    "SessionEnd": ("reason",),
    "Notification": ("message", "title", "notification_type"),
    "PreCompact": ("trigger", "custom_instructions"),
    "SubagentStart": ("agent_id", "agent_type"),
    "SubagentStop": ("stop_hook_active", "agent_transcript_path", "last_assistant_message"),
}
_COMMON_INPUT = ("session_id", "transcript_path", "cwd", "hook_event_name", "permission_mode", "prompt_id")
_NO_MODE: frozenset[EventName] = frozenset(
    {"SessionStart", "SessionEnd", "Notification", "PreCompact", "SubagentStart"}
)


def _blocking(event: EventName) -> Status:
    if event in BLOCKING:
        return YES
    return Status("ignored", "an answer is `decision` inside") if event == "PermissionRequest" else _NO_EFFECT


def _exit_2(event: EventName) -> Status:
    if event in BLOCKING:
        return YES
    if event == "PermissionRequest":
        return Status("differs", "a failure: it denies, unless onFailure is continue")
    return _IGNORED if event in DISCARDED else Status("honoured", "stderr is shown to the person")


def _of(event: EventName) -> Mapping[str, Status]:
    heard = _IGNORED if event in DISCARDED else YES
    fields = {
        "exit code 2": _exit_2(event),
        "plain text": Status("honoured", "context")
        if event in ("SessionStart", "UserPromptSubmit")
        else _IGNORED,
        "continue": _IGNORED if event == "PreCompact" else heard,
        "stopReason": _IGNORED if event == "PreCompact" else heard,
        "systemMessage": _IGNORED if event == "PreCompact" else heard,
        "suppressOutput": _IGNORED,
        "terminalSequence": NOT_YET,
        "decision": _blocking(event),
        "reason": _blocking(event),
    }
    fields |= {f"hookSpecificOutput.{name}": status for name, (_, status) in SPECIFIC[event].items()}
    given = [name for name in _COMMON_INPUT if name != "permission_mode" or event not in _NO_MODE]
    return fields | {f"input:{name}": YES for name in (*given, *_INPUT[event])}


HONOURED: Mapping[EventName, Mapping[str, Status]] = {event: _of(event) for event in EVENTS}
