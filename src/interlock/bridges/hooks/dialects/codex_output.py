"""What a Codex hook said.

Lives here: `decode`, and `HONOURED`. Unknown keys, fields that its documentation reserves and an exit code 2 without a
reason are failures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interlock.bridges.hooks.dialects.codex_patch import as_patch, unpatched
from interlock.bridges.hooks.dialects.dialect import Printed, Status
from interlock.bridges.hooks.dialects.printed import (
    NO_REASON,
    TEXT_FIRST,
    Shape,
    anything,
    as_text,
    flag,
    hides_an_answer,
    load,
    mapping,
    misshapen,
    said,
    shortened,
    text,
    word,
)
from interlock.bridges.hooks.dialects.tools import CODEX, Untranslatable, decode_input
from interlock.bridges.hooks.event import GATES, EventName, Occurrence, PermissionRequest, PreToolUse
from interlock.bridges.hooks.verdict import (
    NOTHING,
    Answer,
    InputChange,
    Permission,
    PermissionAnswer,
    Problem,
)

_UNIVERSAL: Mapping[str, Shape] = {
    "continue": flag,
    "stopReason": text,
    "suppressOutput": flag,
    "systemMessage": text,
}
_BLOCK: Mapping[str, Shape] = {"decision": word("block"), "reason": text}
_CONTEXT: Mapping[str, Shape] = {"additionalContext": text}

# By event: what may stand at the top, and inside `hookSpecificOutput`; None where that may not stand at all.
_SHAPES: Mapping[EventName, tuple[Mapping[str, Shape], Mapping[str, Shape] | None]] = {
    "SessionStart": (_UNIVERSAL, _CONTEXT),
    "SubagentStart": (_UNIVERSAL, _CONTEXT),
    "UserPromptSubmit": ({**_UNIVERSAL, **_BLOCK}, _CONTEXT),
    "PreToolUse": (
        {**_UNIVERSAL, "decision": word("approve", "block"), "reason": text},
        {
            **_CONTEXT,
            "permissionDecision": word("allow", "deny", "ask"),
            "permissionDecisionReason": text,
            "updatedInput": mapping,
        },
    ),
    "PermissionRequest": (_UNIVERSAL, {"decision": mapping}),
    "PostToolUse": (
        {**_UNIVERSAL, **_BLOCK},
        {**_CONTEXT, "updatedMCPToolOutput": anything, "updatedToolOutput": anything},
    ),
    "PreCompact": (_UNIVERSAL, None),
    "Stop": ({**_UNIVERSAL, **_BLOCK}, None),
    "SubagentStop": ({**_UNIVERSAL, **_BLOCK}, None),
}
_DECISION: Mapping[str, Shape] = {
    "behavior": word("allow", "deny"),
    "message": text,
    "interrupt": flag,
    "updatedInput": anything,
    "updatedPermissions": anything,
}
_TEXT_IS_CONTEXT: frozenset[EventName] = frozenset({"SessionStart", "UserPromptSubmit", "SubagentStart"})
_TEXT_IS_WRONG: frozenset[EventName] = frozenset({"Stop", "SubagentStop"})
_BLOCKED_BY_2: frozenset[EventName] = frozenset(
    {"PreToolUse", "PermissionRequest", "PostToolUse", "UserPromptSubmit", "Stop", "SubagentStop"}
)


class _Invalid(Exception):
    """All of the answer is invalid. `detail` is what differs from time to time."""

    def __init__(self, problem: str, detail: str = "") -> None:
        self.problem, self.detail = problem, detail
        super().__init__(f"{problem}: {detail}" if detail else problem)


def decode(occurrence: Occurrence, printed: Printed) -> Answer:
    event = occurrence.event
    if event not in _SHAPES:
        return NOTHING
    try:
        if printed.code == 2 and event in _BLOCKED_BY_2:
            reason = printed.stderr.strip()
            if not reason:
                raise _Invalid("exit code 2 without a reason on stderr")
            return _block(event, NOTHING, reason)
        if printed.code != 0:
            first, _, _ = printed.stderr.strip().partition("\n")
            raise _Invalid(f"exit code {printed.code}", shortened(first))
        return _said(occurrence, printed.stdout.strip())
    except _Invalid as invalid:
        problem = Problem(f"A {event} hook failed: {invalid.problem}", detail=invalid.detail)
        return Answer(failure=str(invalid), problems=(problem,))


def _said(occurrence: Occurrence, output: str) -> Answer:
    event = occurrence.event
    if not output.startswith(("{", "[")):
        if output and event in _TEXT_IS_WRONG:
            raise _Invalid("text on standard output, where JSON is expected", shortened(output))
        if event in GATES and event not in _TEXT_IS_CONTEXT and hides_an_answer(output):
            raise _Invalid(TEXT_FIRST, shortened(output))
        return Answer(contexts=(output,)) if output and event in _TEXT_IS_CONTEXT else NOTHING
    try:
        value = load(output)
    except (ValueError, RecursionError) as error:
        raise _Invalid("not valid JSON", f"{said(error)}: {shortened(output)}") from None
    if not isinstance(value, dict):
        raise _Invalid("not an object", shortened(output))
    top, inside = _SHAPES[event]
    _check(value, top if inside is None else {**top, "hookSpecificOutput": mapping})
    specific = value.get("hookSpecificOutput") or {}
    if inside is not None and value.get("hookSpecificOutput") is not None:
        _check(specific, {**inside, "hookEventName": text}, "hookSpecificOutput.")
        if (named := specific.get("hookEventName")) != event:
            raise _Invalid(f"hookSpecificOutput is for {as_text(named)}: write hookEventName {event!r}")
    answer = Answer(messages=(value["systemMessage"],) if value.get("systemMessage") else ())
    if specific.get("additionalContext"):
        answer = replace(answer, contexts=(specific["additionalContext"],))
    what = occurrence.what
    if isinstance(what, PreToolUse):
        return _pre_tool_use(answer, occurrence, what, value, specific)
    if isinstance(what, PermissionRequest):
        return _permission_request(answer, value, specific)
    if value.get("continue") is False:  # beats a block
        reason = value.get("stopReason") or ""
        return _block(event, answer, reason) if event == "PreCompact" else replace(answer, stop=reason)
    if value.get("decision") == "block":
        if not value.get("reason"):
            raise _Invalid("decision 'block' without a reason")
        answer = _block(event, answer, value["reason"])
    for name in ("updatedMCPToolOutput", "updatedToolOutput"):
        if specific.get(name) is not None:
            answer = replace(answer, output=as_text(specific[name]))
    return answer


def _check(value: Mapping[str, Any], shapes: Mapping[str, Shape], at: str = "") -> None:
    unknown = [f"{at}{name}" for name in value if name not in shapes]
    if unknown:
        raise _Invalid(f"unknown key {', '.join(unknown)}")
    if (wrong := misshapen(value, shapes, at)) is not None:
        raise _Invalid(wrong)


def _unsupported(value: Mapping[str, Any]) -> None:
    if value.get("continue") is False:
        raise _Invalid("'continue': false is not supported on this event")
    for name in ("stopReason", "suppressOutput"):
        if value.get(name):
            raise _Invalid(f"{name!r} is not supported on this event")


def _pre_tool_use(
    answer: Answer,
    occurrence: Occurrence,
    what: PreToolUse,
    value: Mapping[str, Any],
    specific: Mapping[str, Any],
) -> Answer:
    _unsupported(value)
    verdict, reason = specific.get("permissionDecision"), specific.get("permissionDecisionReason") or ""
    theirs = specific.get("updatedInput")
    if value.get("decision") == "block" and verdict is None:
        verdict, reason = "deny", value.get("reason") or ""
    if verdict == "deny":
        if not reason.strip():
            raise _Invalid("a deny without a reason")
        return replace(answer, permission=Permission("deny", reason))
    if verdict == "ask":
        return replace(answer, permission=Permission("ask", reason))
    if theirs is not None:
        if verdict != "allow":
            raise _Invalid("updatedInput without permissionDecision 'allow'")
        try:
            change = InputChange(_decoded(occurrence, what, theirs))
        except Untranslatable as error:
            denied = Permission("deny", f"A hook rewrote the arguments and they cannot be used: {error}.")
            return replace(answer, permission=denied, problems=(Problem(f"updatedInput: {error}"),))
        return replace(answer, permission=Permission("allow", reason), input=change)
    if verdict == "allow" or value.get("decision") == "approve":
        said_ = "permissionDecision 'allow' without updatedInput" if verdict else "decision 'approve'"
        return replace(answer, problems=(Problem(f"A PreToolUse hook said {said_}, which decides nothing"),))
    return answer


def _decoded(occurrence: Occurrence, what: PreToolUse, theirs: Mapping[str, Any]) -> Mapping[str, Any]:
    patch = as_patch(what.tool, what.input, occurrence.cwd)
    if patch is not None:
        return unpatched(theirs, patch, what.input)
    return decode_input(CODEX.get(what.tool), theirs, what.input, occurrence.cwd)


def _permission_request(answer: Answer, value: Mapping[str, Any], specific: Mapping[str, Any]) -> Answer:
    _unsupported(value)
    decision = specific.get("decision")
    if decision is None:
        return answer
    _check(decision, _DECISION, "decision.")
    reserved = [
        name
        for name in ("updatedInput", "updatedPermissions", "interrupt")
        if decision.get(name) is not None and decision[name] is not False
    ]
    if reserved:
        message = f"A PermissionRequest hook set {', '.join(reserved)}, which is reserved."
        return replace(answer, decision=PermissionAnswer("deny", message))
    if decision.get("behavior") is None:
        raise _Invalid("a decision without a behavior")
    message = decision.get("message") or ""
    if decision["behavior"] == "deny":
        return replace(answer, decision=PermissionAnswer("deny", message or NO_REASON))
    return replace(answer, decision=PermissionAnswer("allow", message))


def _block(event: EventName, answer: Answer, reason: str) -> Answer:
    if event == "PreToolUse":
        return replace(answer, permission=Permission("deny", reason))
    if event == "PermissionRequest":
        return replace(answer, decision=PermissionAnswer("deny", reason))
    return replace(answer, block=reason)


_YES = Status("honoured")
_CLOSED = Status(
    "differs", "makes the answer invalid as there; on a gate that denies, unless onFailure is continue"
)
_LATEST = Status("differs", "several: the last in declared order wins")
_COMMON_INPUT = ("session_id", "transcript_path", "cwd", "hook_event_name", "model")
_INPUT: Mapping[EventName, tuple[str, ...]] = {
    "SessionStart": ("source", "permission_mode"),
    "SubagentStart": ("turn_id", "permission_mode", "agent_id", "agent_type"),
    "UserPromptSubmit": ("turn_id", "permission_mode", "prompt"),
    "PreToolUse": ("turn_id", "permission_mode", "tool_name", "tool_input", "tool_use_id"),
    "PermissionRequest": ("turn_id", "permission_mode", "tool_name", "tool_input"),
    "PostToolUse": (
        "turn_id",
        "permission_mode",
        "tool_name",
        "tool_input",
        "tool_use_id",
        "tool_response",
    ),
    "PreCompact": ("turn_id", "trigger"),
    "Stop": ("turn_id", "permission_mode", "stop_hook_active", "last_assistant_message"),
    "SubagentStop": (
        "turn_id",
        "permission_mode",
        "agent_id",
        "agent_type",
        "agent_transcript_path",
        "stop_hook_active",
        "last_assistant_message",
    ),
}
_SPECIAL: Mapping[tuple[EventName, str], Status] = {
    ("PreToolUse", "continue"): _CLOSED,
    ("PreToolUse", "stopReason"): _CLOSED,
    ("PreToolUse", "suppressOutput"): _CLOSED,
    ("PermissionRequest", "continue"): _CLOSED,
    ("PermissionRequest", "stopReason"): _CLOSED,
    ("PermissionRequest", "suppressOutput"): _CLOSED,
    ("PreToolUse", "hookSpecificOutput.permissionDecision"): Status(
        "differs", "ask asks; there it is invalid"
    ),
    ("PreToolUse", "hookSpecificOutput.updatedInput"): Status(
        "differs", "several: the last in declared order wins; a changed patch is invalid"
    ),
    ("PostToolUse", "hookSpecificOutput.updatedMCPToolOutput"): _LATEST,
    ("PostToolUse", "hookSpecificOutput.updatedToolOutput"): _LATEST,
}


def _of(event: EventName) -> Mapping[str, Status]:
    top, inside = _SHAPES[event]
    names = [*top, *(f"hookSpecificOutput.{name}" for name in inside or ())]
    fields = {"exit code 2": _YES if event in _BLOCKED_BY_2 else _CLOSED}
    fields["plain text"] = (
        Status("honoured", "context")
        if event in _TEXT_IS_CONTEXT
        else _CLOSED
        if event in _TEXT_IS_WRONG
        else Status("ignored")
    )
    fields |= {
        name: _SPECIAL.get((event, name), Status("ignored") if name == "suppressOutput" else _YES)
        for name in names
    }
    return fields | {f"input:{name}": _YES for name in (*_COMMON_INPUT, *_INPUT[event])}


HONOURED: Mapping[EventName, Mapping[str, Status]] = {event: _of(event) for event in _SHAPES}
