"""Why something ended: causes of a stop, end reasons of turns, steps and calls.

Lives here: `Cause`, the `EndReason` union (one frozen class a kind), the step reasons and the error codes of calls,
each with its place in the order of precedence. Imports nothing of this package.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import msgspec

CauseKind: TypeAlias = Literal["user", "parent", "hook", "caller", "budget", "disposed"]


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Why a turn was stopped. The first cause wins."""

    kind: CauseKind
    by: str | None = None
    reason: str | None = None


class Completed(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="completed",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    by: Literal["hook"] | None = None  # "hook": a post hook ended the turn after its batch


class Blocked(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="blocked",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    reason: str
    by: str


class MaxTokens(msgspec.Struct, frozen=True, tag_field="kind", tag="max-tokens", forbid_unknown_fields=True):
    """The model's output ceiling was reached in some step of the turn."""


class Aborted(msgspec.Struct, frozen=True, tag_field="kind", tag="aborted", forbid_unknown_fields=True):
    cause: Cause


class Failed(
    msgspec.Struct, frozen=True, tag_field="kind", tag="error", forbid_unknown_fields=True, omit_defaults=True
):
    code: str
    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    request_id: str | None = None


class OverBudget(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="budget",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    budget: str  # steps, requests, tool_calls, tool_calls:NAME, tokens, wall, forced, attempts
    limit: float
    used: float


class Interrupted(
    msgspec.Struct, frozen=True, tag_field="kind", tag="interrupted", forbid_unknown_fields=True
):
    """Written only by repair, after a crash."""


EndReason: TypeAlias = Completed | Blocked | MaxTokens | Aborted | Failed | OverBudget | Interrupted

#: End reasons of a turn, strongest first.
TURN_PRECEDENCE: Final = (Interrupted, Aborted, Failed, OverBudget, Blocked, MaxTokens, Completed)

StepReason: TypeAlias = Literal[
    "aborted",
    "error",
    "budget",
    "max-tokens",
    "hook-stopped",
    "concluded",
    "tools",
    "completed",
    "interrupted",
]


def kind_of(reason: EndReason) -> str:
    """The stored kind: `completed`, `blocked`, `max-tokens`, `aborted`, `error`, `budget` or `interrupted`."""
    return str(reason.__struct_config__.tag)


def describe(reason: EndReason) -> str:
    """One line for people."""
    match reason:
        case Aborted(cause=cause):
            return f"aborted ({cause.kind}{f': {cause.reason}' if cause.reason else ''})"
        case Failed(code=code, message=message):
            return f"error {code}: {message}"
        case OverBudget(budget=budget, limit=limit, used=used):
            return f"budget ({budget}: {used:g} of {limit:g})"
        case Blocked(reason=why, by=by):
            return f"blocked by {by}: {why}"
        case Completed(by="hook"):
            return "completed (stopped by a hook)"
        case _:
            return kind_of(reason)


# Codes of calls that did not succeed. Stored in upper case; a model reads `Error [lower_case]: message`.
DENIED: Final = "DENIED"
GUARD_DENIED: Final = "GUARD_DENIED"
SANDBOX_UNAVAILABLE: Final = "SANDBOX_UNAVAILABLE"  # the call is to be confined, and that cannot be had here
APPROVAL_REJECTED: Final = "APPROVAL_REJECTED"
APPROVAL_CANCELLED: Final = "APPROVAL_CANCELLED"
APPROVAL_UNAVAILABLE: Final = "APPROVAL_UNAVAILABLE"
HOOK_BLOCKED: Final = "HOOK_BLOCKED"
BLOCKED: Final = "BLOCKED"  # by a review
HOOK_STOPPED_CONTINUATION: Final = "HOOK_STOPPED_CONTINUATION"
HOOK_EXECUTION_ERROR: Final = "HOOK_EXECUTION_ERROR"
HOOK_CONTRACT_ERROR: Final = "HOOK_CONTRACT_ERROR"
PERMISSION_EVALUATION_ERROR: Final = "PERMISSION_EVALUATION_ERROR"
BUDGET_EXHAUSTED: Final = "BUDGET_EXHAUSTED"
ABORTED_BEFORE_DISPATCH: Final = "ABORTED_BEFORE_DISPATCH"
ABORTED: Final = "ABORTED"
UNKNOWN_TOOL: Final = "UNKNOWN_TOOL"
INVALID_ARGS: Final = "INVALID_ARGS"
SECRET_REDACTED: Final = "SECRET_REDACTED"  # a secret was taken out of the arguments
INVALID_TOOL_OUTPUT: Final = "INVALID_TOOL_OUTPUT"
TOOL_FAILED: Final = "TOOL_FAILED"
TOOL_TIMEOUT: Final = "TOOL_TIMEOUT"
TOOL_NOT_STARTED: Final = "TOOL_NOT_STARTED"
TOOL_OUTCOME_UNKNOWN: Final = "TOOL_OUTCOME_UNKNOWN"
RESULT_WITHHELD: Final = "RESULT_WITHHELD"


def error_text(code: str, message: str) -> str:
    """What the model reads of a failure: the code in lower case, in brackets, everywhere."""
    return f"Error [{code.lower()}]: {message}"
