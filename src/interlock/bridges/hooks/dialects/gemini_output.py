"""What a Gemini CLI hook said.

Lives here: `decode`, the `EVENTS` of that program, and `HONOURED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interlock.bridges.hooks.dialects.dialect import Printed, Status
from interlock.bridges.hooks.dialects.printed import (
    NO_REASON,
    TEXT_FIRST,
    Shape,
    flag,
    hides_an_answer,
    load,
    mapping,
    misplaced,
    misshapen,
    said,
    shortened,
    text,
    word,
)
from interlock.bridges.hooks.dialects.tools import GEMINI, Untranslatable, decode_input
from interlock.bridges.hooks.event import GATES, EventName, Occurrence, PreToolUse
from interlock.bridges.hooks.verdict import NOTHING, Answer, InputChange, Permission, Problem

EVENTS: Mapping[str, tuple[EventName, ...]] = {
    "SessionStart": ("SessionStart",),
    "SessionEnd": ("SessionEnd",),
    "BeforeAgent": ("UserPromptSubmit",),
    "AfterAgent": ("Stop",),
    "BeforeTool": ("PreToolUse",),
    "AfterTool": ("PostToolUse", "PostToolUseFailure"),
    "PreCompress": ("PreCompact",),
    "Notification": ("Notification",),
}
_NAMES: Mapping[EventName, str] = {event: name for name, events in EVENTS.items() for event in events}

_TOP: Mapping[str, Shape] = {
    "continue": flag,
    "stopReason": text,
    "systemMessage": text,
    "suppressOutput": flag,
    "decision": word("allow", "approve", "deny", "block", "ask"),
    "reason": text,
    "hookSpecificOutput": mapping,
}
_YES, _NOT_YET, _IGNORED = Status("honoured"), Status("not yet"), Status("ignored")
_SPECIFIC: Mapping[EventName, Mapping[str, tuple[Shape, Status]]] = {
    "SessionStart": {"additionalContext": (text, _YES)},
    "SessionEnd": {},
    "UserPromptSubmit": {"additionalContext": (text, _YES)},
    "Stop": {"clearContext": (flag, _NOT_YET)},
    "PreToolUse": {
        "tool_input": (mapping, Status("differs", "a field that the tool lacks denies")),
        "additionalContext": (text, _YES),
    },
    "PostToolUse": {"additionalContext": (text, _YES), "tailToolCallRequest": (mapping, _NOT_YET)},
    "PostToolUseFailure": {"additionalContext": (text, _YES), "tailToolCallRequest": (mapping, _NOT_YET)},
    "PreCompact": {},
    "Notification": {},
}
_DECIDING: frozenset[EventName] = frozenset(
    {"UserPromptSubmit", "Stop", "PreToolUse", "PostToolUse", "PostToolUseFailure"}
)
_ADVISORY: frozenset[EventName] = frozenset({"SessionStart", "SessionEnd", "PreCompact", "Notification"})


def decode(occurrence: Occurrence, printed: Printed) -> Answer:
    event = occurrence.event
    if event not in _SPECIFIC:
        return NOTHING
    output = printed.stdout.strip() or printed.stderr.strip()
    value, broken, detail = _object(output)
    if value is not None and (wrong := _wrong(event, value)) is not None:
        value, broken = None, wrong
    if value is not None:
        answer = _said(occurrence, value)
        return _refused(event, answer, printed.stderr.strip()) if printed.code >= 2 else answer
    problems = (
        (Problem(f"The output of a {_NAMES[event]} hook is {broken}", detail=detail),) if broken else ()
    )
    if printed.code >= 2:
        return replace(_refused(event, NOTHING, printed.stderr.strip() or output), problems=problems)
    if printed.code == 1 or (broken and event in GATES):
        first, _, _ = printed.stderr.strip().partition("\n")
        failure = broken or "exit code 1" + (f": {shortened(first)}" if first else "")
        return Answer(failure=failure, problems=problems)
    return Answer(messages=(output,) if output else (), problems=problems)


def _object(output: str) -> tuple[Mapping[str, Any] | None, str, str]:
    """The object, also one that is encoded twice; and what is wrong with what looks like one, and where."""
    if not output.startswith(("{", '"')):
        return None, TEXT_FIRST if hides_an_answer(output) else "", ""
    try:
        value = load(output)
        if isinstance(value, str):
            value = load(value)
    except (ValueError, RecursionError) as error:
        if output.startswith('"'):
            return None, "", ""
        return None, "not valid JSON", f"{said(error)}: {shortened(output)}"
    return (value, "", "") if isinstance(value, dict) else (None, "", "")


def _wrong(event: EventName, value: Mapping[str, Any]) -> str | None:
    shapes = {name: shape for name, (shape, _) in _SPECIFIC[event].items()}
    if event in GATES and (wrong := misplaced(value, _TOP)) is not None:
        return wrong
    return misshapen(value, _TOP) or misshapen(
        value.get("hookSpecificOutput") or {}, shapes, "hookSpecificOutput."
    )


def _said(occurrence: Occurrence, value: Mapping[str, Any]) -> Answer:
    event, what = occurrence.event, occurrence.what
    specific = value.get("hookSpecificOutput") or {}
    answer = Answer(
        messages=(value["systemMessage"],) if value.get("systemMessage") else (),
        contexts=(specific["additionalContext"],)
        if specific.get("additionalContext") and "additionalContext" in _SPECIFIC[event]
        else (),
        problems=_unheard(event, value, specific),
    )
    if event in _ADVISORY:
        return answer
    if value.get("continue") is False:
        answer = replace(answer, stop=value.get("stopReason") or value.get("reason") or "")
    decision, reason = value.get("decision"), value.get("reason") or ""
    if decision in ("deny", "block"):
        answer = _refused(event, answer, reason)
    elif isinstance(what, PreToolUse) and decision is not None:
        answer = replace(answer, permission=Permission("ask" if decision == "ask" else "allow", reason))
    if isinstance(what, PreToolUse) and (theirs := specific.get("tool_input")) is not None:
        try:
            fields = decode_input(GEMINI.get(what.tool), theirs, what.input, occurrence.cwd)
        except Untranslatable as error:
            denied = Permission("deny", f"A hook rewrote the arguments and they cannot be used: {error}.")
            return replace(
                answer, permission=denied, problems=(*answer.problems, Problem(f"tool_input: {error}"))
            )
        answer = replace(answer, input=InputChange(fields, merge=True))
    return answer


def _unheard(event: EventName, value: Mapping[str, Any], specific: Mapping[str, Any]) -> tuple[Problem, ...]:
    name = _NAMES[event]
    problems = [
        Problem(f"A {name} hook set {key!r}, which is no field of an answer")
        for key in value
        if key not in _TOP
    ]
    for key, given in specific.items():
        if key == "hookEventName":
            if given != name:
                problems.append(Problem(f"A {name} hook answered for hookEventName {given!r}"))
        elif key not in _SPECIFIC[event]:
            problems.append(Problem(f"A {name} hook set {key!r}, which this event does not have"))
        elif _SPECIFIC[event][key][1].how == "not yet":
            problems.append(Problem(f"A {name} hook set {key!r}, which is not supported yet"))
    return tuple(problems)


def _refused(event: EventName, answer: Answer, reason: str) -> Answer:
    reason = reason or NO_REASON
    match event:
        case "PreToolUse":
            if answer.permission is not None and answer.permission.verdict == "deny":
                return answer
            return replace(answer, permission=Permission("deny", reason))
        case "PostToolUse" | "PostToolUseFailure":  # its reason stands in place of the result
            return answer if answer.output is not None else replace(answer, output=reason)
        case "UserPromptSubmit" | "Stop":
            return answer if answer.block is not None else replace(answer, block=reason)
        case _:
            return replace(answer, messages=(*answer.messages, reason))


_INPUT: Mapping[EventName, tuple[str, ...]] = {
    "SessionStart": ("source",),
    "SessionEnd": ("reason",),
    "UserPromptSubmit": ("prompt",),
    "Stop": ("prompt", "prompt_response", "stop_hook_active"),
    "PreToolUse": ("tool_name", "tool_input"),
    "PostToolUse": ("tool_name", "tool_input", "tool_response"),
    "PostToolUseFailure": ("tool_name", "tool_input", "tool_response"),
    "PreCompact": ("trigger",),
    "Notification": ("notification_type", "message", "details"),
}
_COMMON_INPUT = ("session_id", "transcript_path", "cwd", "hook_event_name", "timestamp")


def _of(event: EventName) -> Mapping[str, Status]:
    decides = _YES if event in _DECIDING else _IGNORED
    stops = _IGNORED if event in _ADVISORY else _YES
    fields = {
        "exit code 2": Status("differs", "it refuses, also beside JSON that does not")
        if event in _DECIDING
        else Status("honoured", "shown to the person"),
        "exit code 1": Status("differs", "a failure: on a gate it refuses, unless onFailure is continue"),
        "plain text": Status("honoured", "shown to the person"),
        "continue": stops,
        "stopReason": stops,
        "systemMessage": _YES,
        "suppressOutput": _IGNORED,
        "decision": decides,
        "reason": decides,
    }
    fields |= {f"hookSpecificOutput.{name}": status for name, (_, status) in _SPECIFIC[event].items()}
    return fields | {f"input:{name}": _YES for name in (*_COMMON_INPUT, *_INPUT[event])}


HONOURED: Mapping[EventName, Mapping[str, Status]] = {event: _of(event) for event in _SPECIFIC}
