"""What became of a call, as far as the text of its result says.

Lives here: `Outcome`, and the words by which Claude Code and Codex tell a model that a call was refused, stopped or
wrong. Those programs write no codes; whatever is not one of their phrases is the ordinary end of a body that ran.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from interlock.log.reasons import (
    ABORTED,
    ABORTED_BEFORE_DISPATCH,
    APPROVAL_REJECTED,
    DENIED,
    HOOK_BLOCKED,
    INVALID_ARGS,
    TOOL_FAILED,
    TOOL_NOT_STARTED,
    UNKNOWN_TOOL,
)

Fate = Literal[
    "ran",
    "stopped",  # its body ran, and was stopped
    "rejected",  # by a person
    "denied",  # by a rule, a mode or a classifier
    "blocked",  # by a hook
    "invalid",  # no such tool, or no such arguments
    "skipped",  # the turn was over before it could start
]


@dataclass(frozen=True, slots=True)
class Outcome:
    """code: of a failure, None for a success. reason: what was said with a no."""

    fate: Fate = "ran"
    code: str | None = None
    reason: str | None = None

    @property
    def started(self) -> bool:
        return self.fate in ("ran", "stopped")


RAN = Outcome()
FAILED = Outcome("ran", TOOL_FAILED)

# Claude Code

INTERRUPTIONS = ("[Request interrupted by user]", "[Request interrupted by user for tool use]")
_REJECTED = re.compile(r"The user doesn't want to proceed with this tool use\.|User rejected tool use$")
_SAID = re.compile(r"the user said:\s*(.+?)(?:\n\nNote: The user's next message|\Z)", re.S)
_SKIPPED = re.compile(
    r"The user doesn't want to take this action right now\.|<tool_use_error>(?:Sibling tool call errored|Cancelled: )"
)
_UNGRANTED = re.compile(
    r"Permission to use .* has been denied|Permission for this action (?:has been|was) denied"
    r"|Claude requested permissions? to .* but you haven't granted it yet|This command requires approval"
    r"|File is in a directory that is denied by your permission settings",
    re.S,
)
_HOOKED = re.compile(
    r"(?:PreToolUse:\S+ hook|Hook PreToolUse:\S+|Execution stopped by (?:a )?PreToolUse hook)"
)
_CANCELLED_KINDS = ("cancelled", "canceled", "sibling-error")


def of_claude(text: str, *, failed: bool, denial: str | None = None, interrupted: bool = False) -> Outcome:
    """The outcome of a `tool_result`.

    Args:
        failed: its `is_error`. denial: the line's `toolDenialKind`, where the version writes one.
        interrupted: its `toolUseResult` says so.
    """
    if denial is not None:
        return _claude_denial(denial, text)
    if interrupted:
        return Outcome("stopped", ABORTED)
    if not failed:
        return RAN
    if _REJECTED.match(text):
        return Outcome("rejected", APPROVAL_REJECTED, _person_said(text))
    if _SKIPPED.match(text):
        return Outcome("skipped", ABORTED_BEFORE_DISPATCH)
    if text.startswith(INTERRUPTIONS):
        return Outcome("stopped", ABORTED)
    if _HOOKED.match(text):
        return Outcome("blocked", HOOK_BLOCKED, text)
    if _UNGRANTED.match(text):
        return Outcome("denied", DENIED, text)
    inside = text.removeprefix("<tool_use_error>")
    if inside.startswith("Error: No such tool available"):
        return Outcome("invalid", UNKNOWN_TOOL)
    if inside.startswith("InputValidationError"):
        return Outcome("invalid", INVALID_ARGS)
    return FAILED


def _claude_denial(kind: str, text: str) -> Outcome:
    if kind == "user-rejected":
        return Outcome("rejected", APPROVAL_REJECTED, _person_said(text))
    if kind == "interrupted":  # it may have run, so it is not said that it did not
        return Outcome("stopped", ABORTED)
    if kind in _CANCELLED_KINDS:
        return Outcome("skipped", ABORTED_BEFORE_DISPATCH)
    if "hook" in kind:
        return Outcome("blocked", HOOK_BLOCKED, text)
    return Outcome("denied", DENIED, text)


def _person_said(text: str) -> str | None:
    said = _SAID.search(text)
    return said[1].strip() if said is not None else None


# Codex

_CODEX: tuple[tuple[re.Pattern[str], Outcome], ...] = tuple(
    (re.compile(pattern), outcome)
    for pattern, outcome in (
        (r"(?:exec command |patch |user )?rejected(?: MCP tool call| by user)", Outcome("rejected", APPROVAL_REJECTED)),
        (r"(?:Wall time: [\d.]+ seconds\s+)?aborted(?: by user)?(?: after [\d.]+s?)?\s*$", Outcome("stopped", ABORTED)),
        (r"unsupported (?:custom tool )?call:|unknown tool", Outcome("invalid", UNKNOWN_TOOL)),
        (r"failed to parse function arguments", Outcome("invalid", INVALID_ARGS)),
        (r"tool call was not executed|not started", Outcome("skipped", TOOL_NOT_STARTED)),
        (r"(?:apply_patch verification failed|execution error|exec_command failed|failed in sandbox)", FAILED),
    )
)  # fmt: skip
_POLICY = re.compile(
    r"(?:Rejected\(|.{0,80}(?:rejected|blocked|forbidden) by (?:policy|the sandbox policy))", re.S
)


def of_codex(text: str, *, success: bool | None = None) -> Outcome:
    """The outcome of an output item. A command that ran is a success, whatever its exit code, as in our own shell."""
    head = text[:2000].lstrip()
    for pattern, outcome in _CODEX:
        if pattern.match(head):
            return outcome
    if _POLICY.match(head):
        return Outcome("denied", DENIED, text)
    return FAILED if success is False else RAN
