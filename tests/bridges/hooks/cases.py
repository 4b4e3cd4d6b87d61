"""What hooks print, and what it means: the table that the dialects are held to.

Each case is a dialect, an event, what a handler put out, and the answer. Tests read them one by one; the parity table
of the documentation counts by them which fields are proven.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.bridges.hooks.dialects.dialect import Printed
from interlock.bridges.hooks.event import (
    BatchedCall,
    EventName,
    Happening,
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
from interlock.bridges.hooks.handler import DialectName
from interlock.bridges.hooks.verdict import Answer, InputChange, Permission, PermissionAnswer

PROJECT = Path("/work space/project")
INPUT = {"command": "npm test", "timeout": 60}
NO_REASON = "A hook blocked this and gave no reason."

HAPPENINGS: Mapping[EventName, Happening] = {
    "SessionStart": SessionStart(source="startup"),
    "UserPromptSubmit": UserPromptSubmit(prompt="Fix it"),
    "PreToolUse": PreToolUse(tool="bash", tool_use_id="c1", input=INPUT),
    "PermissionRequest": PermissionRequest(
        tool="bash", tool_use_id="c1", input=INPUT, suggestions=("Bash(npm test)",)
    ),
    "PostToolUse": PostToolUse(
        tool="bash", tool_use_id="c1", input=INPUT, response="3 passed", duration_ms=12
    ),
    "PostToolUseFailure": PostToolUseFailure(
        tool="bash", tool_use_id="c1", input=INPUT, error="exit code 1", duration_ms=12
    ),
    "PostToolBatch": PostToolBatch(
        calls=(BatchedCall(tool="bash", tool_use_id="c1", input=INPUT, response="3 passed"),)
    ),
    "Stop": Stop(stop_hook_active=False, last_assistant_message="Done.", prompt="Fix it"),
    "StopFailure": StopFailure(error="rate_limit", details="429", last_assistant_message="Too many requests"),
    "SessionEnd": SessionEnd(reason="other"),
    "Notification": Notification(
        notification_type="permission_prompt", message="May bash run?", title="Asked"
    ),
    "PreCompact": PreCompact(trigger="auto"),
    "SubagentStart": SubagentStart(),
    "SubagentStop": SubagentStop(
        stop_hook_active=True, agent_transcript_path="/t/sub.jsonl", last_assistant_message="Found it."
    ),
}


def occurrence(what: Happening, **changes: Any) -> Occurrence:
    given: dict[str, Any] = {
        "session_id": "s1",
        "cwd": PROJECT,
        "project": PROJECT,
        "transcript_path": "/t/s1.jsonl",
        "model": "openai:gpt",
        "turn_id": "1",
        "time": 1_700_000_000_000,
    }
    if isinstance(what, (SubagentStart, SubagentStop)):
        given |= {"agent_id": "a7", "agent_type": "Explore"}
    return Occurrence(what=what, **(given | changes))


@dataclass(frozen=True, slots=True)
class Case:
    """`fields`: what of the format it proves, as the tables of the dialects call it. `problems`: parts of each."""

    dialect: DialectName
    event: EventName
    printed: Printed
    answer: Answer
    fields: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    def __str__(self) -> str:
        out = self.printed.stdout or "nothing"
        return f"{self.dialect} {self.event} exit {self.printed.code} {out[:60]}"


def claude(
    event: EventName,
    said: object,
    answer: Answer,
    *fields: str,
    code: int = 0,
    stderr: str = "",
    problems: tuple[str, ...] = (),
    dialect: DialectName = "claude",
) -> Case:
    text = said if isinstance(said, str) else json.dumps(said)
    return Case(dialect, event, Printed(code, text, stderr), answer, fields, problems)


def codex(event: EventName, said: object, answer: Answer, *fields: str, **more: Any) -> Case:
    return claude(event, said, answer, *fields, dialect="codex", **more)


def gemini(event: EventName, said: object, answer: Answer, *fields: str, **more: Any) -> Case:
    return claude(event, said, answer, *fields, dialect="gemini", **more)


def inside(event: str, **fields: Any) -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, **fields}}


def deny(reason: str) -> Answer:
    return Answer(permission=Permission("deny", reason))


def block(reason: str) -> Answer:
    return Answer(block=reason)


NOTHING = Answer()
DECISION, REASON = "hookSpecificOutput.permissionDecision", "hookSpecificOutput.permissionDecisionReason"
CONTEXT, UPDATED = "hookSpecificOutput.additionalContext", "hookSpecificOutput.updatedInput"
CODE, PLAIN = "exit code 2", "plain text"

_PRE = [
    claude("PreToolUse", "", NOTHING),
    claude("PreToolUse", "looks fine", NOTHING, PLAIN),
    claude("PreToolUse", "", NOTHING, stderr="a warning nobody is shown"),
    claude("PreToolUse", "", deny("not here"), CODE, code=2, stderr="not here\n"),
    claude("PreToolUse", "", deny(NO_REASON), CODE, code=2),
    claude("PreToolUse", inside("PreToolUse", permissionDecision="deny", permissionDecisionReason="no"), deny("no"), DECISION, REASON),
    claude("PreToolUse", "\n  " + json.dumps(inside("PreToolUse", permissionDecision="deny")), deny(NO_REASON), DECISION),
    claude(
        "PreToolUse",
        inside("PreToolUse", permissionDecision="allow", permissionDecisionReason="safe"),
        Answer(permission=Permission("allow", "safe")),
        DECISION,
    ),
    claude("PreToolUse", inside("PreToolUse", permissionDecision="ask"), Answer(permission=Permission("ask")), DECISION),
    claude("PreToolUse", inside("PreToolUse", permissionDecision="defer", additionalContext="lost"), Answer(permission=Permission("defer")), DECISION),
    claude("PreToolUse", {"decision": "block", "reason": "old way"}, deny("old way"), "decision", "reason"),
    claude("PreToolUse", {"decision": "approve"}, Answer(permission=Permission("allow")), "decision"),
    claude("PreToolUse", {"decision": "block", "reason": "no", "hookSpecificOutput": {"hookEventName": "PreToolUse",
           "permissionDecision": "allow"}}, deny("no")),
    # JSON counts whatever the exit code, but 2 blocks whatever the JSON says
    claude("PreToolUse", inside("PreToolUse", permissionDecision="ask"), Answer(permission=Permission("ask")), code=1),
    claude("PreToolUse", inside("PreToolUse", permissionDecision="allow"), deny("stop"), CODE, code=2, stderr="stop"),
    claude("PreToolUse", inside("PreToolUse", permissionDecision="deny", permissionDecisionReason="mine"), deny("mine"), CODE, code=2, stderr="theirs"),
    claude(
        "PreToolUse",
        inside("PreToolUse", additionalContext="read this") | {"systemMessage": "hm", "continue": False},
        Answer(permission=Permission("deny", "no"), contexts=("read this",), messages=("hm",), stop=""),
        CONTEXT, "continue", "systemMessage",
        code=2, stderr="no",
    ),
    claude("PreToolUse", inside("PreToolUse", permissionDecision="denied"), deny("no"), CODE, code=2, stderr="no", problems=("permissionDecision",)),
    claude("PreToolUse", {"continue": False, "stopReason": "enough"}, Answer(stop="enough"), "continue", "stopReason"),
    claude("PreToolUse", {"suppressOutput": True, "terminalSequence": "\u0007"}, NOTHING, "suppressOutput", "terminalSequence"),
    claude("PreToolUse", {"metrics": {"n": 1}}, NOTHING, problems=("'metrics'",)),
    # rewriting: the whole object, in their words
    claude(
        "PreToolUse",
        inside("PreToolUse", permissionDecision="allow", updatedInput={"command": "npm run test"}),
        Answer(permission=Permission("allow"), input=InputChange({"command": "npm run test"})),
        UPDATED,
    ),
    claude(
        "PreToolUse",
        inside("PreToolUse", updatedInput={"command": "ls", "timeout": 5_000, "description": "List"}),
        Answer(input=InputChange({"command": "ls", "timeout": 5.0})),
        UPDATED,
    ),
    claude("PreToolUse", inside("PreToolUse", updatedInput={"command": "npm test", "timeout": 60_000}), Answer(input=InputChange(INPUT)), UPDATED),
    claude(
        "PreToolUse",
        inside("PreToolUse", permissionDecision="allow", updatedInput={"cmd": "ls"}),
        deny("A hook rewrote the arguments and they cannot be used: Bash has no 'cmd' here; it has command, timeout."),
        UPDATED,
        problems=("'cmd'",),
    ),
    # what a gate says must be understood
    claude("PreToolUse", '{"permissionDecision": deny}', Answer(failure="its output is not valid JSON"), problems=("not valid JSON",)),
    claude(
        "PreToolUse",
        inside("PreToolUse", permissionDecision="Deny"),
        Answer(failure='its output is hookSpecificOutput.permissionDecision is one of allow, deny, ask, defer, not "Deny"'),
        problems=("permissionDecision is one of allow, deny, ask, defer",),
    ),
    claude(
        "PreToolUse",
        inside("PostToolUse", permissionDecision="deny"),
        Answer(failure="its output is hookSpecificOutput for the event PostToolUse: write hookEventName 'PreToolUse'"),
        problems=("write hookEventName 'PreToolUse'",),
    ),
    claude(
        "PreToolUse",
        {"hookSpecificOutput": {"permissionDecision": "deny"}},
        Answer(failure="its output is hookSpecificOutput without a hookEventName: write hookEventName 'PreToolUse'"),
        problems=("without a hookEventName",),
    ),
    claude("PreToolUse", "", Answer(failure="exit code 1: Traceback"), code=1, stderr="Traceback\nboom"),
    claude("PreToolUse", "text", Answer(failure="exit code 127 (not found): sh: nope: not found"), code=127, stderr="sh: nope: not found"),
    claude("PreToolUse", "", Answer(failure="exit code 137"), code=137),
    claude("PreToolUse", "[1, 2]", NOTHING, PLAIN),
    claude("PreToolUse", '"deny"', NOTHING, PLAIN),
]  # fmt: skip

_PERMISSION = [
    claude("PermissionRequest", inside("PermissionRequest", decision={"behavior": "allow"}), Answer(decision=PermissionAnswer("allow")), "hookSpecificOutput.decision"),
    claude(
        "PermissionRequest",
        inside("PermissionRequest", decision={"behavior": "deny", "message": "never", "interrupt": True}),
        Answer(decision=PermissionAnswer("deny", "never", True)),
        "hookSpecificOutput.decision",
    ),
    claude(
        "PermissionRequest",
        inside("PermissionRequest", decision={"behavior": "allow", "updatedInput": {"command": "ls"}, "updatedPermissions": [{"type": "setMode"}]}),
        Answer(decision=PermissionAnswer("allow", input=InputChange({"command": "ls"}), updates=({"type": "setMode"},))),
        "hookSpecificOutput.decision",
    ),
    claude(
        "PermissionRequest",
        inside("PermissionRequest", decision={"behavior": "yes"}),
        Answer(failure="its output is hookSpecificOutput.decision is an object whose behavior is one of allow, deny, not {\"behavior\": \"yes\"}"),
        problems=("behavior",),
    ),
    claude("PermissionRequest", "", Answer(failure="exit code 2, which does not answer a PermissionRequest: no"), CODE, code=2, stderr="no"),
    claude(
        "PermissionRequest",
        inside("PermissionRequest", decision={"behavior": "allow"}),
        Answer(failure="exit code 2, which does not answer a PermissionRequest: no"),
        CODE, code=2, stderr="no",
    ),
    claude("PermissionRequest", {"decision": "approve"}, NOTHING, "decision", problems=("no effect",)),
    claude("PermissionRequest", {"decision": "block", "reason": "x"}, NOTHING, "decision", "reason", problems=("no effect",)),
    claude("PermissionRequest", "text", NOTHING, PLAIN),
    claude("PermissionRequest", {"continue": False, "stopReason": "s", "systemMessage": "m"}, Answer(stop="s", messages=("m",)), "continue", "stopReason", "systemMessage"),
]  # fmt: skip

_PRE += [
    claude("PreToolUse", {"continue": "no"}, Answer(failure='its output is continue is true or false, not "no"'), problems=("continue is true or false",)),
    claude("PreToolUse", {"decision": "deny"}, Answer(failure='its output is decision is one of approve, block, not "deny"'), problems=("decision is one of",)),
    claude("PreToolUse", {"systemMessage": None, "continue": True, "hookSpecificOutput": None}, NOTHING),
]  # fmt: skip
_PERMISSION += [
    claude(
        "PermissionRequest",
        inside("PermissionRequest", decision={"behavior": "allow", "updatedInput": {"cmd": "ls"}}),
        Answer(decision=PermissionAnswer("deny", "A hook rewrote the arguments and they cannot be used: Bash has no 'cmd' here; it has command, timeout.")),
        problems=("'cmd'",),
    ),
    claude("PermissionRequest", inside("PermissionRequest", decision={"behavior": "deny", "message": "mine"}), Answer(decision=PermissionAnswer("deny", "mine")), code=2, stderr="theirs"),
    claude("PermissionRequest", inside("PermissionRequest", decision={"behavior": "allow", "interrupt": "x"}), Answer(failure='its output is hookSpecificOutput.decision is an object whose interrupt is true or false, not {"behavior": "allow", "interrupt": "x"}'), problems=("interrupt",)),
    claude("PermissionRequest", inside("PermissionRequest", decision="allow"), Answer(failure='its output is hookSpecificOutput.decision is an object with a behavior, not "allow"'), problems=("behavior",)),
    claude("PermissionRequest", inside("PermissionRequest"), NOTHING),
]  # fmt: skip

_CONTEXTUAL: tuple[EventName, ...] = (
    "SessionStart",
    "UserPromptSubmit",
    "PostToolUse",
    "PostToolUseFailure",
    "PostToolBatch",
    "Stop",
    "SubagentStart",
    "SubagentStop",
)
_BLOCKED: tuple[EventName, ...] = (
    "UserPromptSubmit",
    "PostToolUse",
    "PostToolBatch",
    "Stop",
    "SubagentStop",
    "PreCompact",
)
_DISCARDED: tuple[EventName, ...] = ("StopFailure", "SessionEnd", "Notification")

_OTHERS = [
    *[claude(event, inside(event, additionalContext="know this"), Answer(contexts=("know this",)), CONTEXT) for event in _CONTEXTUAL],
    *[claude(event, {"decision": "block", "reason": "no"}, block("no"), "decision", "reason") for event in _BLOCKED],
    *[claude(event, {"decision": "block"}, block(NO_REASON), "decision") for event in _BLOCKED],
    *[claude(event, "", block("no"), CODE, code=2, stderr="no") for event in _BLOCKED],
    *[
        claude(event, {"continue": False, "stopReason": "s", "systemMessage": "m", "suppressOutput": True},
               Answer(stop="s", messages=("m",)), "continue", "stopReason", "systemMessage", "suppressOutput")
        for event in _CONTEXTUAL
    ],
    *[
        claude(event, inside("PreToolUse", additionalContext="lost"), NOTHING, problems=(f"write hookEventName '{event}'",))
        for event in _CONTEXTUAL if event != "UserPromptSubmit"
    ],
    *[claude(event, "", Answer(failure="exit code 1: oops"), code=1, stderr="oops") for event in (*_CONTEXTUAL, "PreCompact")],
    *[
        claude(event, {"continue": False, "decision": "block", "reason": "x", "systemMessage": "m"}, NOTHING,
               "continue", "decision", "reason", "systemMessage", "stopReason", "suppressOutput", CODE, PLAIN, "terminalSequence", code=2, stderr="x")
        for event in _DISCARDED
    ],
    claude("SessionStart", "branch: main", Answer(contexts=("branch: main",)), PLAIN),
    claude("UserPromptSubmit", "today is Monday\n", Answer(contexts=("today is Monday",)), PLAIN),
    claude("UserPromptSubmit", "{not json}", Answer(contexts=("{not json}",)), PLAIN, problems=("not valid JSON",)),
    claude("SessionStart", "", Answer(messages=("cannot",)), CODE, code=2, stderr="cannot"),
    claude("SubagentStart", "", Answer(messages=("cannot",)), CODE, code=2, stderr="cannot"),
    claude("SessionStart", {"decision": "block", "reason": "x"}, NOTHING, "decision", "reason", problems=("no effect",)),
    claude("SubagentStart", {"decision": "block", "reason": "x"}, NOTHING, "decision", "reason", problems=("no effect",)),
    *[
        claude(event, inside(event, **{name: value}), NOTHING, f"hookSpecificOutput.{name}", problems=("not supported yet",))
        for event, name, value in (
            ("SessionStart", "initialUserMessage", "hi"), ("SessionStart", "sessionTitle", "t"),
            ("SessionStart", "watchPaths", ["a"]), ("SessionStart", "reloadSkills", True),
            ("UserPromptSubmit", "sessionTitle", "t"), ("UserPromptSubmit", "suppressOriginalPrompt", True),
            ("PostToolUse", "classifierContext", "c"),
        )
    ],
    claude("PostToolUseFailure", "", Answer(contexts=("see the log",)), CODE, code=2, stderr="see the log"),
    claude("PostToolUseFailure", {"decision": "block", "reason": "see"}, Answer(contexts=("see",)), "decision", "reason"),
    claude("PostToolUse", inside("PostToolUse", updatedToolOutput={"stdout": "[key]", "stderr": "", "interrupted": False}), Answer(output="[key]"), "hookSpecificOutput.updatedToolOutput"),
    claude("PostToolUse", inside("PostToolUse", updatedToolOutput="short"), Answer(output="short"), "hookSpecificOutput.updatedToolOutput"),
    claude("PostToolUse", inside("PostToolUse", updatedToolOutput={"n": 1}), Answer(output='{"n": 1}'), "hookSpecificOutput.updatedToolOutput"),
    claude("PostToolUse", inside("PostToolUse", updatedMCPToolOutput=[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), Answer(output="a\nb"), "hookSpecificOutput.updatedMCPToolOutput"),
    claude("PostToolUse", inside("PostToolUse", updatedToolOutput={"stdout": "a", "stderr": "b"}), Answer(output="a\nb")),
    claude("PostToolUse", inside("PostToolUse", updatedToolOutput={"type": "text", "file": {"filePath": "/a", "content": "c"}}), Answer(output="c")),
    claude("PostToolUse", {"decision": "block", "reason": "mine"}, block("mine"), code=2, stderr="theirs"),
    claude("PostToolUse", "fine", NOTHING, PLAIN),
    claude("PostToolUse", inside("PostToolUse", permissionDecision="deny"), NOTHING, problems=("does not have",)),
    claude("Stop", {"continue": False, "decision": "block", "reason": "go on"}, Answer(stop="", block="go on"), "continue"),
    claude("PreCompact", {"continue": False, "systemMessage": "m", "stopReason": "s"}, NOTHING, "continue", "systemMessage", "stopReason"),
    *[claude(event, "text", NOTHING, PLAIN) for event in ("PostToolUseFailure", "PostToolBatch", "Stop", "SubagentStop", "SubagentStart", "PreCompact")],
    *[claude(event, {"terminalSequence": "x", "suppressOutput": True}, NOTHING, "terminalSequence", "suppressOutput") for event in (*_CONTEXTUAL, "PermissionRequest", "PreCompact")],
]  # fmt: skip

_CODEX = [
    codex("PreToolUse", "", NOTHING),
    codex("PreToolUse", "text", NOTHING, PLAIN),
    codex("PreToolUse", "", deny("no"), CODE, code=2, stderr="no"),
    codex("PreToolUse", "", Answer(failure="exit code 2 without a reason on stderr"), CODE, code=2, problems=("without a reason",)),
    codex("PreToolUse", inside("PreToolUse", permissionDecision="deny"), Answer(failure="exit code 1: boom"), code=1, stderr="boom", problems=("exit code 1",)),
    codex("PreToolUse", inside("PreToolUse", permissionDecision="deny", permissionDecisionReason="no"), deny("no"), DECISION, REASON),
    codex("PreToolUse", inside("PreToolUse", permissionDecision="deny"), Answer(failure="a deny without a reason"), DECISION, problems=("without a reason",)),
    codex("PreToolUse", {"decision": "block", "reason": "no"}, deny("no"), "decision", "reason"),
    codex("PreToolUse", {"decision": "approve"}, NOTHING, "decision", problems=("decides nothing",)),
    codex("PreToolUse", inside("PreToolUse", permissionDecision="allow"), NOTHING, DECISION, problems=("decides nothing",)),
    codex("PreToolUse", inside("PreToolUse", permissionDecision="ask"), Answer(permission=Permission("ask")), DECISION),
    codex(
        "PreToolUse",
        inside("PreToolUse", permissionDecision="allow", updatedInput={"command": "ls"}),
        Answer(permission=Permission("allow"), input=InputChange({"command": "ls"})),
        UPDATED,
    ),
    codex("PreToolUse", inside("PreToolUse", updatedInput={"command": "ls"}), Answer(failure="updatedInput without permissionDecision 'allow'"), UPDATED, problems=("updatedInput",)),
    codex("PreToolUse", inside("PreToolUse", additionalContext="know") | {"systemMessage": "m"}, Answer(contexts=("know",), messages=("m",)), CONTEXT, "systemMessage"),
    codex("PreToolUse", {"metrics": 1}, Answer(failure="unknown key metrics"), problems=("unknown key",)),
    codex("PreToolUse", inside("PreToolUse", foo=1), Answer(failure="unknown key hookSpecificOutput.foo"), problems=("unknown key",)),
    codex("PreToolUse", inside("Stop", permissionDecision="deny", permissionDecisionReason="x"), Answer(failure="hookSpecificOutput is for Stop: write hookEventName 'PreToolUse'"), problems=("hookEventName",)),
    codex("PreToolUse", {"continue": False}, Answer(failure="'continue': false is not supported on this event"), "continue", problems=("not supported",)),
    codex("PreToolUse", {"stopReason": "x"}, Answer(failure="'stopReason' is not supported on this event"), "stopReason", problems=("not supported",)),
    codex("PreToolUse", {"suppressOutput": True}, Answer(failure="'suppressOutput' is not supported on this event"), "suppressOutput", problems=("not supported",)),
    codex("PreToolUse", {"continue": 1}, Answer(failure="continue is true or false, not 1"), problems=("continue",)),
    codex("PreToolUse", "{broken", Answer(failure="not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1): {broken"), problems=("not valid JSON",)),
    codex(
        "PreToolUse",
        inside("PreToolUse", permissionDecision="allow", updatedInput={"cmd": "ls"}),
        deny("A hook rewrote the arguments and they cannot be used: Bash has no 'cmd' here; it has command, timeout."),
        UPDATED,
        problems=("'cmd'",),
    ),
    codex("PermissionRequest", inside("PermissionRequest", decision={"message": "x"}), Answer(failure="a decision without a behavior"), problems=("behavior",)),
    codex("PermissionRequest", inside("PermissionRequest"), NOTHING),
    codex("PreToolUse", "[1]", Answer(failure="not an object: [1]"), problems=("not an object",)),
    codex("PermissionRequest", inside("PermissionRequest", decision={"behavior": "allow"}), Answer(decision=PermissionAnswer("allow")), "hookSpecificOutput.decision"),
    codex("PermissionRequest", inside("PermissionRequest", decision={"behavior": "deny", "message": "no"}), Answer(decision=PermissionAnswer("deny", "no")), "hookSpecificOutput.decision"),
    codex(
        "PermissionRequest",
        inside("PermissionRequest", decision={"behavior": "allow", "updatedInput": {"command": "ls"}}),
        Answer(decision=PermissionAnswer("deny", "A PermissionRequest hook set updatedInput, which is reserved.")),
        "hookSpecificOutput.decision",
    ),
    codex("PermissionRequest", "", Answer(decision=PermissionAnswer("deny", "no")), CODE, code=2, stderr="no"),
    codex("PermissionRequest", "text", NOTHING, PLAIN),
    codex("PermissionRequest", {"continue": False}, Answer(failure="'continue': false is not supported on this event"), "continue", problems=("not supported",)),
    codex("PermissionRequest", {"stopReason": "x"}, Answer(failure="'stopReason' is not supported on this event"), "stopReason", problems=("not supported",)),
    codex("PermissionRequest", {"suppressOutput": True}, Answer(failure="'suppressOutput' is not supported on this event"), "suppressOutput", problems=("not supported",)),
    codex("PermissionRequest", {"systemMessage": "m"}, Answer(messages=("m",)), "systemMessage"),
    *[
        codex(event, {"decision": "block", "reason": "no"}, block("no"), "decision", "reason")
        for event in ("UserPromptSubmit", "PostToolUse", "Stop", "SubagentStop")
    ],
    *[codex(event, "", block("no"), CODE, code=2, stderr="no") for event in ("UserPromptSubmit", "PostToolUse", "Stop", "SubagentStop")],
    *[codex(event, {"decision": "block"}, Answer(failure="decision 'block' without a reason"), problems=("without a reason",)) for event in ("Stop", "PostToolUse")],
    *[
        codex(event, {"continue": False, "stopReason": "s", "systemMessage": "m", "suppressOutput": True}, Answer(stop="s", messages=("m",)), "continue", "stopReason", "systemMessage", "suppressOutput")
        for event in ("SessionStart", "SubagentStart", "UserPromptSubmit", "PostToolUse", "Stop", "SubagentStop")
    ],
    codex("Stop", {"continue": False, "decision": "block", "reason": "go on"}, Answer(stop=""), "continue"),
    *[codex(event, "text", Answer(failure="text on standard output, where JSON is expected: text"), PLAIN, problems=("JSON is expected",)) for event in ("Stop", "SubagentStop")],
    *[codex(event, "text", Answer(contexts=("text",)), PLAIN) for event in ("SessionStart", "SubagentStart", "UserPromptSubmit")],
    *[codex(event, inside(event, additionalContext="know"), Answer(contexts=("know",)), CONTEXT) for event in ("SessionStart", "SubagentStart", "UserPromptSubmit", "PostToolUse")],
    codex("PostToolUse", inside("PostToolUse", updatedMCPToolOutput="x"), Answer(output="x"), "hookSpecificOutput.updatedMCPToolOutput"),
    codex("PostToolUse", inside("PostToolUse", updatedToolOutput="x"), Answer(output="x"), "hookSpecificOutput.updatedToolOutput"),
    *[codex(event, "text", NOTHING, PLAIN) for event in ("PostToolUse", "PreCompact")],
    codex("PreCompact", {"continue": False, "stopReason": "later", "systemMessage": "m", "suppressOutput": True}, Answer(block="later", messages=("m",)), "continue", "stopReason", "systemMessage", "suppressOutput"),
    *[codex(event, "", Answer(failure="exit code 2: x"), CODE, code=2, stderr="x", problems=("exit code 2",)) for event in ("SessionStart", "SubagentStart", "PreCompact")],
]  # fmt: skip

_GEMINI_DECIDING: tuple[tuple[EventName, Answer], ...] = (
    ("PreToolUse", deny("no")),
    ("UserPromptSubmit", block("no")),
    ("Stop", block("no")),
    ("PostToolUse", Answer(output="no")),
    ("PostToolUseFailure", Answer(output="no")),
)
_GEMINI_ADVISORY: tuple[EventName, ...] = ("SessionStart", "SessionEnd", "PreCompact", "Notification")
_GEMINI = [
    gemini("PreToolUse", "", NOTHING),
    gemini("PreToolUse", {"decision": "allow"}, Answer(permission=Permission("allow")), "decision"),
    gemini("PreToolUse", {"decision": "ask", "reason": "sure?"}, Answer(permission=Permission("ask", "sure?")), "decision", "reason"),
    *[gemini(event, {"decision": "deny", "reason": "no"}, answer, "decision", "reason") for event, answer in _GEMINI_DECIDING],
    *[gemini(event, {"decision": "block", "reason": "no"}, answer, "decision", "reason") for event, answer in _GEMINI_DECIDING],
    *[gemini(event, "", answer, CODE, code=2, stderr="no") for event, answer in _GEMINI_DECIDING],
    *[gemini(event, "no", answer, CODE, code=2) for event, answer in _GEMINI_DECIDING],
    *[gemini(event, "", answer, code=127, stderr="no") for event, answer in _GEMINI_DECIDING],
    *[gemini(event, "hello", Answer(messages=("hello",)), PLAIN) for event, _ in _GEMINI_DECIDING],
    *[gemini(event, "", Answer(failure="exit code 1: oops"), "exit code 1", code=1, stderr="oops") for event, _ in _GEMINI_DECIDING],
    *[gemini(event, {"continue": False, "stopReason": "s", "systemMessage": "m", "suppressOutput": True}, Answer(stop="s", messages=("m",)), "continue", "stopReason", "systemMessage", "suppressOutput") for event, _ in _GEMINI_DECIDING],
    # stderr where stdout is empty, JSON twice encoded
    gemini("PreToolUse", "", deny("no"), stderr=json.dumps({"decision": "deny", "reason": "no"})),
    gemini("PreToolUse", json.dumps(json.dumps({"decision": "deny", "reason": "no"})), deny("no")),
    gemini("PreToolUse", {"decision": "allow"}, deny("no"), CODE, code=2, stderr="no"),
    gemini("PreToolUse", {"decision": "deny", "reason": "mine"}, deny("mine"), CODE, code=2, stderr="theirs"),
    gemini(
        "PreToolUse",
        {"hookSpecificOutput": {"tool_input": {"command": "ls"}}},
        Answer(input=InputChange({"command": "ls"}, merge=True)),
        "hookSpecificOutput.tool_input",
    ),
    gemini(
        "PreToolUse",
        {"hookSpecificOutput": {"tool_input": {"cmd": "ls"}}},
        deny("A hook rewrote the arguments and they cannot be used: run_shell_command has no 'cmd' here; it has command, timeout."),
        "hookSpecificOutput.tool_input",
        problems=("'cmd'",),
    ),
    gemini("PreToolUse", '"just text', Answer(messages=('"just text',))),
    gemini("PreToolUse", {"hookSpecificOutput": {"hookEventName": "AfterTool", "foo": 1}}, NOTHING, problems=("'AfterTool'", "'foo'")),
    gemini("PreToolUse", "{broken", Answer(failure="not valid JSON"), problems=("not valid JSON",)),
    gemini("PreToolUse", {"decision": "denied"}, Answer(failure='decision is one of allow, approve, deny, block, ask, not "denied"'), problems=("decision",)),
    gemini("PreToolUse", {"foo": 1}, NOTHING, problems=("'foo'",)),
    *[
        gemini(event, {"hookSpecificOutput": {"hookEventName": name, "additionalContext": "know"}}, Answer(contexts=("know",)), CONTEXT)
        for event, name in (("PreToolUse", "BeforeTool"), ("PostToolUse", "AfterTool"), ("PostToolUseFailure", "AfterTool"), ("UserPromptSubmit", "BeforeAgent"), ("SessionStart", "SessionStart"))
    ],
    *[gemini(event, {"hookSpecificOutput": {"tailToolCallRequest": {"name": "x"}}}, NOTHING, "hookSpecificOutput.tailToolCallRequest", problems=("not supported yet",)) for event in ("PostToolUse", "PostToolUseFailure")],
    gemini("Stop", {"hookSpecificOutput": {"clearContext": True}}, NOTHING, "hookSpecificOutput.clearContext", problems=("not supported yet",)),
    *[
        gemini(event, {"decision": "deny", "reason": "x", "continue": False, "stopReason": "s", "systemMessage": "m", "suppressOutput": True}, Answer(messages=("m",)),
               "decision", "reason", "continue", "stopReason", "systemMessage", "suppressOutput")
        for event in _GEMINI_ADVISORY
    ],
    *[gemini(event, "hello", Answer(messages=("hello",)), PLAIN) for event in _GEMINI_ADVISORY],
    *[gemini(event, "", Answer(messages=("x",)), CODE, code=2, stderr="x") for event in _GEMINI_ADVISORY],
    *[gemini(event, "", Answer(failure="exit code 1: x"), "exit code 1", code=1, stderr="x") for event in _GEMINI_ADVISORY],
]  # fmt: skip

CASES: tuple[Case, ...] = (*_PRE, *_PERMISSION, *_OTHERS, *_CODEX, *_GEMINI)
