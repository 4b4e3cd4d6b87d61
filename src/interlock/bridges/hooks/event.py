"""What happened, as outside hooks are told: neutral of any program's format.

Lives here: one frozen class per event, `Happening`, their union, and `Occurrence`, which adds where it happened.
Tool names and arguments are ours; a dialect translates them. Events have the names that Claude Code gave them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import time_ns
from typing import Any, Literal, TypeAlias, get_args

PermissionMode: TypeAlias = Literal["default", "plan", "acceptEdits", "auto", "dontAsk", "bypassPermissions"]
ErrorType: TypeAlias = Literal[
    "rate_limit",
    "overloaded",
    "authentication_failed",
    "oauth_org_not_allowed",
    "billing_error",
    "invalid_request",
    "model_not_found",
    "server_error",
    "max_output_tokens",
    "unknown",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStart:
    """A session was opened. What hooks say is told to the model before the first prompt."""

    source: Literal["startup", "resume", "clear", "compact", "fork"]
    agent_type: str | None = None
    session_title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPromptSubmit:
    """A person's message is about to be admitted."""

    prompt: str
    source: Literal["user", "sdk", "system"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreToolUse:
    """A valid call, before permission."""

    tool: str
    tool_use_id: str
    input: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """A call is about to ask a person."""

    tool: str
    tool_use_id: str
    input: Mapping[str, Any]
    suggestions: tuple[str, ...] = ()  # rules that a yes could write: `Bash(npm test)`


@dataclass(frozen=True, slots=True, kw_only=True)
class PostToolUse:
    """A body ran and did not fail."""

    tool: str
    tool_use_id: str
    input: Mapping[str, Any]
    response: str  # what the model would read
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PostToolUseFailure:
    """A body ran and failed. Not fired for unknown tools, bad arguments, denials and calls that were never started."""

    tool: str
    tool_use_id: str
    input: Mapping[str, Any]
    error: str
    interrupted: bool = False
    duration_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchedCall:
    """One call of a batch, with what the model reads of it."""

    tool: str
    tool_use_id: str
    input: Mapping[str, Any]
    response: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PostToolBatch:
    """All calls of one answer are over, and the model has not been asked again."""

    calls: tuple[BatchedCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """The model answered without calls. `stop_hook_active`: a hook has continued this turn before."""

    stop_hook_active: bool
    last_assistant_message: str | None = None
    prompt: str = ""  # what the turn began with


@dataclass(frozen=True, slots=True, kw_only=True)
class StopFailure:
    """The turn ended with an error of the model's service."""

    error: ErrorType
    details: str | None = None
    last_assistant_message: str | None = None  # the text of the error


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnd:
    """The session is being left."""

    reason: Literal["clear", "resume", "logout", "prompt_input_exit", "other"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A person is told something: a permission is needed, the agent is idle."""

    notification_type: str  # permission_prompt, idle_prompt, agent_needs_input, agent_completed, ...
    message: str
    title: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PreCompact:
    """The history is about to be summarised."""

    trigger: Literal["manual", "auto"]
    custom_instructions: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentStart:
    """An agent was started by another. Its id and type are those of the occurrence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubagentStop:
    """An agent that another started is about to end."""

    stop_hook_active: bool
    agent_transcript_path: str | None = None
    last_assistant_message: str | None = None


Happening: TypeAlias = (
    SessionStart
    | UserPromptSubmit
    | PreToolUse
    | PermissionRequest
    | PostToolUse
    | PostToolUseFailure
    | PostToolBatch
    | Stop
    | StopFailure
    | SessionEnd
    | Notification
    | PreCompact
    | SubagentStart
    | SubagentStop
)
EventName: TypeAlias = Literal[
    "SessionStart",
    "UserPromptSubmit",
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Stop",
    "StopFailure",
    "SessionEnd",
    "Notification",
    "PreCompact",
    "SubagentStart",
    "SubagentStop",
]
EVENTS: tuple[EventName, ...] = get_args(EventName)

# Where a hook stands between a wish and its effect: one that fails means no, unless its configuration says otherwise.
GATES: frozenset[EventName] = frozenset({"UserPromptSubmit", "PreToolUse", "PermissionRequest", "PreCompact"})
TOOL_EVENTS: frozenset[EventName] = frozenset(
    {"PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """What happened, and where."""

    what: Happening
    session_id: str
    cwd: Path  # absolute: the session's folder at this moment
    project: Path  # absolute: the folder in which the session began
    transcript_path: str | None = None
    permission_mode: PermissionMode = "default"
    model: str = ""
    turn_id: str | None = None  # None outside a turn
    prompt_id: str | None = None  # of the message that the turn works on
    agent_id: str | None = None  # inside a subagent only
    agent_type: str | None = None
    time: int = field(default_factory=lambda: time_ns() // 1_000_000)  # epoch ms

    @property
    def event(self) -> EventName:
        name: EventName = type(self.what).__name__  # type: ignore[assignment]  # a test holds the two together
        return name
