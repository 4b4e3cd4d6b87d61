"""What a Claude Code hook said.

Lives here: `decode`. The order is that of its documentation: the JSON on standard output is read whatever the exit
code; code 2 blocks whatever the JSON says; any other code counts only without JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from interlock.bridges.hooks.dialects.claude_honoured import BLOCKING, DISCARDED, SPECIFIC, TOP
from interlock.bridges.hooks.dialects.dialect import Printed
from interlock.bridges.hooks.dialects.printed import (
    NO_REASON,
    TEXT_FIRST,
    Broken,
    Object,
    Text,
    as_text,
    hides_an_answer,
    misplaced,
    misshapen,
    parse,
    shortened,
)
from interlock.bridges.hooks.dialects.tools import CLAUDE, Untranslatable, decode_input
from interlock.bridges.hooks.event import GATES, EventName, Occurrence, PermissionRequest, PreToolUse
from interlock.bridges.hooks.verdict import (
    NOTHING,
    Answer,
    InputChange,
    Permission,
    PermissionAnswer,
    Problem,
)

_TEXT_IS_CONTEXT: frozenset[EventName] = frozenset({"SessionStart", "UserPromptSubmit"})


def decode(occurrence: Occurrence, printed: Printed) -> Answer:
    event = occurrence.event
    if event in DISCARDED:
        return NOTHING
    parsed = parse(printed.stdout)
    if isinstance(parsed, Object) and (wrong := _wrong(event, parsed.value)) is not None:
        parsed = Broken(wrong, printed.stdout.strip())
    answer = _said(occurrence, parsed.value) if isinstance(parsed, Object) else NOTHING
    if printed.code == 2:
        return _blocked(event, answer, parsed, printed.stderr.strip())
    match parsed:
        case Object():
            return answer
        case Broken():
            problems = (_problem(event, parsed),)
            if printed.code == 0 and not parsed.is_json:  # text, then
                if event in _TEXT_IS_CONTEXT:
                    return Answer(contexts=(parsed.text,), problems=problems)
                if event not in GATES:
                    return Answer(problems=problems)
            return Answer(failure=_ended(printed) or f"its output is {parsed.problem}", problems=problems)
        case Text(text=text):
            if printed.code != 0:
                return Answer(failure=_ended(printed))
            if event in _TEXT_IS_CONTEXT and text:
                return Answer(contexts=(text,))
            if event in GATES and hides_an_answer(text):
                late = Broken(TEXT_FIRST, text)
                return Answer(failure=f"its output is {late.problem}", problems=(_problem(event, late),))
            return NOTHING


def _problem(event: EventName, broken: Broken) -> Problem:
    return Problem(f"The output of a {event} hook is {broken.problem}", detail=broken.detail)


def _ended(printed: Printed) -> str | None:
    """How a handler failed that did not exit with 0, with the first line of its stderr."""
    if printed.code == 0:
        return None
    first, _, _ = printed.stderr.strip().partition("\n")
    hint = {126: " (not executable)", 127: " (not found)"}.get(printed.code, "")
    return f"exit code {printed.code}{hint}" + (f": {shortened(first)}" if first else "")


def _wrong(event: EventName, value: Mapping[str, Any]) -> str | None:
    """Why an object is not an answer to this event; None if it is."""
    if (wrong := misshapen(value, TOP)) is not None:
        return wrong
    if event in GATES and (wrong := misplaced(value, TOP)) is not None:
        return wrong
    specific = value.get("hookSpecificOutput")
    if specific is None:
        return None
    named = specific.get("hookEventName")
    if named != event:
        return None if event not in GATES else _foreign(event, named)
    return misshapen(
        specific, {name: shape for name, (shape, _) in SPECIFIC[event].items()}, "hookSpecificOutput."
    )


def _foreign(event: EventName, named: Any) -> str:
    said = "without a hookEventName" if named is None else f"for the event {shortened(as_text(named))}"
    return f"hookSpecificOutput {said}: write hookEventName {event!r}"


def _said(occurrence: Occurrence, value: Mapping[str, Any]) -> Answer:
    """What a well-formed object says."""
    event = occurrence.event
    problems = [
        Problem(f"A {event} hook set {name!r}, which is no field of an answer")
        for name in value
        if name not in TOP
    ]
    specific = value.get("hookSpecificOutput") or {}
    if specific and specific.get("hookEventName") != event:
        problems.append(
            Problem(
                f"A {event} hook printed {_foreign(event, specific.get('hookEventName'))}; it was ignored"
            )
        )
        specific = {}
    problems += _unheard(event, specific)
    answer = Answer()
    if event != "PreCompact":
        message, stop = value.get("systemMessage"), value.get("stopReason") or ""
        answer = Answer(
            messages=(message,) if message else (),
            stop=stop if value.get("continue") is False else None,
        )
    context = specific.get("additionalContext") if "additionalContext" in SPECIFIC[event] else None
    if context and specific.get("permissionDecision") != "defer":
        answer = replace(answer, contexts=(context,))
    top = value.get("decision")
    if top is not None and event not in BLOCKING:
        problems.append(Problem(f"A {event} hook set decision {top!r}, which has no effect on this event"))
    match occurrence.what:
        case PreToolUse() as what:
            answer = _pre_tool_use(answer, occurrence, what, value, specific)
        case PermissionRequest() as what:
            answer = _permission_request(answer, occurrence, what, specific)
        case _ if top == "block" and event in BLOCKING:
            answer = _block(event, answer, value.get("reason") or NO_REASON)
    for name in ("updatedMCPToolOutput", "updatedToolOutput"):
        if name in SPECIFIC[event] and specific.get(name) is not None:
            answer = replace(answer, output=_shown(specific[name]))
    return replace(answer, problems=answer.problems + tuple(problems))


def _unheard(event: EventName, specific: Mapping[str, Any]) -> list[Problem]:
    problems = []
    for name in specific:
        if name == "hookEventName":
            continue
        known = SPECIFIC[event].get(name)
        if known is None:
            problems.append(Problem(f"A {event} hook set {name!r}, which this event does not have"))
        elif known[1].how == "not yet":
            problems.append(Problem(f"A {event} hook set {name!r}, which is not supported yet"))
    return problems


def _pre_tool_use(
    answer: Answer,
    occurrence: Occurrence,
    what: PreToolUse,
    value: Mapping[str, Any],
    specific: Mapping[str, Any],
) -> Answer:
    verdict, reason = specific.get("permissionDecision"), specific.get("permissionDecisionReason") or ""
    top = value.get("decision")
    if top is not None and (verdict is None or (top == "block" and verdict != "deny")):
        verdict, reason = ("deny" if top == "block" else "allow"), value.get("reason") or ""
    if verdict is not None:
        answer = replace(
            answer, permission=Permission(verdict, reason or (NO_REASON if verdict == "deny" else ""))
        )
    if (theirs := specific.get("updatedInput")) is not None:
        try:
            ours = decode_input(CLAUDE.get(what.tool), theirs, what.input, occurrence.cwd)
        except Untranslatable as error:
            denied = Permission("deny", f"A hook rewrote the arguments and they cannot be used: {error}.")
            return replace(answer, permission=denied, problems=(Problem(f"updatedInput: {error}"),))
        answer = replace(answer, input=InputChange(ours))
    return answer


def _permission_request(
    answer: Answer, occurrence: Occurrence, what: PermissionRequest, specific: Mapping[str, Any]
) -> Answer:
    said = specific.get("decision")
    if said is None:
        return answer
    message, interrupt = said.get("message") or "", said.get("interrupt") is True
    if said["behavior"] == "deny":
        return replace(answer, decision=PermissionAnswer("deny", message or NO_REASON, interrupt))
    change, problems = None, answer.problems
    if (theirs := said.get("updatedInput")) is not None:
        try:
            change = InputChange(decode_input(CLAUDE.get(what.tool), theirs, what.input, occurrence.cwd))
        except Untranslatable as error:
            denied = PermissionAnswer(
                "deny", f"A hook rewrote the arguments and they cannot be used: {error}."
            )
            return replace(answer, decision=denied, problems=(*problems, Problem(f"updatedInput: {error}")))
    updates = tuple(update for update in said.get("updatedPermissions") or () if isinstance(update, dict))
    return replace(answer, decision=PermissionAnswer("allow", message, input=change, updates=updates))


def _shown(value: Any) -> str:
    """A replaced result as text. The shapes of the shell and of reading are taken apart; others are shown as JSON."""
    match value:
        case {"stdout": str(out), **rest}:
            err = rest.get("stderr")
            return f"{out}\n{err}" if isinstance(err, str) and err else out
        case {"file": {"content": str(content)}} | {"content": str(content)}:
            return content
        case [*blocks] if blocks and all(
            isinstance(b, dict) and isinstance(b.get("text"), str) for b in blocks
        ):
            return "\n".join(block["text"] for block in blocks)
        case _:
            return as_text(value)


def _block(event: EventName, answer: Answer, reason: str) -> Answer:
    if event == "PostToolUseFailure":  # there is nothing to block: the model is told
        return replace(answer, contexts=(*answer.contexts, reason))
    return replace(answer, block=reason)


def _blocked(event: EventName, answer: Answer, parsed: Any, stderr: str) -> Answer:
    """Exit code 2. What else the JSON says still counts."""
    if isinstance(parsed, Broken):
        answer = replace(answer, problems=(*answer.problems, _problem(event, parsed)))
    reason = stderr or NO_REASON
    if event == "PreToolUse":
        if answer.permission is not None and answer.permission.verdict == "deny":
            return answer
        return replace(answer, permission=Permission("deny", reason))
    if event == "PermissionRequest":
        if answer.decision is not None and answer.decision.behavior == "deny":
            return answer
        failed = f"exit code 2, which does not answer a {event}: {shortened(reason)}"
        return replace(answer, decision=None, failure=failed)
    if event not in BLOCKING:
        return replace(answer, messages=(*answer.messages, stderr)) if stderr else answer
    if answer.block is not None:
        return answer
    return _block(event, answer, reason)
