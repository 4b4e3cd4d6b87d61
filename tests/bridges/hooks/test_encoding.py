"""What hooks are told, in the words of each program."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import codex_hookkit.schemas as schemas
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.hooks.cases import HAPPENINGS, occurrence
from interlock.bridges.hooks.dialects import DIALECTS
from interlock.bridges.hooks.dialects.dialect import Printed
from interlock.bridges.hooks.dialects.tools import (
    CLAUDE,
    GEMINI,
    Form,
    Untranslatable,
    absolute,
    decode_input,
    encode_input,
)
from interlock.bridges.hooks.event import EventName, Occurrence, PostToolUse, PreToolUse, SessionStart
from interlock.bridges.hooks.verdict import Answer, InputChange
from interlock.policy.names import CLAUDE as NAMES

COMMON = {"session_id": "s1", "transcript_path": "/t/s1.jsonl", "cwd": "/work space/project"}
MODE = {"permission_mode": "default"}
CALL = {"tool_name": "Bash", "tool_input": {"command": "npm test", "timeout": 60_000}}
ID = {"tool_use_id": "c1"}
CWD = Path("/ws")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("SessionStart", {"source": "startup", "model": "openai:gpt"}),
        ("UserPromptSubmit", MODE | {"prompt": "Fix it"}),
        ("PreToolUse", MODE | CALL | ID),
        (
            "PermissionRequest",
            MODE | CALL | {
                "permission_suggestions": [
                    {
                        "type": "addRules",
                        "rules": [{"toolName": "Bash", "ruleContent": "npm test"}],
                        "behavior": "allow",
                        "destination": "localSettings",
                    }
                ]
            },
        ),
        (
            "PostToolUse",
            MODE | CALL | ID | {
                "tool_response": {"stdout": "3 passed", "stderr": "", "interrupted": False, "isImage": False},
                "duration_ms": 12,
            },
        ),
        ("PostToolUseFailure", MODE | CALL | ID | {"error": "exit code 1", "is_interrupt": False, "duration_ms": 12}),
        ("PostToolBatch", MODE | {"tool_calls": [CALL | ID | {"tool_response": "3 passed"}]}),
        ("Stop", MODE | {"stop_hook_active": False, "last_assistant_message": "Done."}),
        ("StopFailure", MODE | {"error": "rate_limit", "error_details": "429", "last_assistant_message": "Too many requests"}),
        ("SessionEnd", {"reason": "other"}),
        ("Notification", {"message": "May bash run?", "title": "Asked", "notification_type": "permission_prompt"}),
        ("PreCompact", {"trigger": "auto", "custom_instructions": ""}),
        ("SubagentStart", {"agent_id": "a7", "agent_type": "Explore"}),
        (
            "SubagentStop",
            MODE | {
                "agent_id": "a7", "agent_type": "Explore", "stop_hook_active": True,
                "agent_transcript_path": "/t/sub.jsonl", "last_assistant_message": "Found it.",
            },
        ),
    ],
)  # fmt: skip
def test_claude_s_payloads(event: EventName, expected: dict[str, Any]) -> None:
    payload = DIALECTS["claude"].encode(occurrence(HAPPENINGS[event]))
    assert payload == COMMON | {"hook_event_name": event} | expected


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        ("PreToolUse", {"hook_event_name": "BeforeTool", "tool_name": "run_shell_command"}),
        ("PostToolUse", {"hook_event_name": "AfterTool", "tool_response": {"llmContent": "3 passed", "returnDisplay": "3 passed"}}),
        ("PostToolUseFailure", {"hook_event_name": "AfterTool", "tool_response": {"llmContent": "exit code 1", "returnDisplay": "exit code 1", "error": {"message": "exit code 1"}}}),
        ("UserPromptSubmit", {"hook_event_name": "BeforeAgent", "prompt": "Fix it"}),
        ("Stop", {"hook_event_name": "AfterAgent", "prompt": "Fix it", "prompt_response": "Done.", "stop_hook_active": False}),
        ("Notification", {"notification_type": "ToolPermission", "message": "May bash run?", "details": {}}),
        ("PreCompact", {"hook_event_name": "PreCompress", "trigger": "auto"}),
    ],
)  # fmt: skip
def test_gemini_s_payloads(event: EventName, expected: dict[str, Any]) -> None:
    payload = DIALECTS["gemini"].encode(occurrence(HAPPENINGS[event]))
    assert {name: payload[name] for name in expected} == expected
    assert payload["timestamp"] == "2023-11-14T22:13:20.000Z"


arguments = st.dictionaries(
    st.sampled_from(["path", "command", "old", "new", "content", "timeout", "x"]),
    st.none() | st.integers() | st.text(max_size=20),
    max_size=4,
)


@st.composite
def codex_occurrences(draw: st.DrawFn) -> Occurrence:
    event = draw(st.sampled_from(sorted(DIALECTS["codex"].honoured)))
    what = HAPPENINGS[event]
    if event in ("PreToolUse", "PermissionRequest", "PostToolUse"):
        tool = draw(st.sampled_from(["bash", "read", "write", "edit", "glob", "grep", "deploy", "mcp__a__b"]))
        what = replace(what, tool=tool, input=draw(arguments))  # type: ignore[call-arg]
    if isinstance(what, SessionStart):
        what = SessionStart(source=draw(st.sampled_from(["startup", "resume", "clear", "compact", "fork"])))
    return occurrence(
        what,
        transcript_path=draw(st.none() | st.just("/t")),
        turn_id=draw(st.none() | st.just("3")),
        agent_id=draw(st.none() | st.just("a")),
        permission_mode=draw(
            st.sampled_from(["default", "plan", "acceptEdits", "auto", "dontAsk", "bypassPermissions"])
        ),
    )


@given(codex_occurrences())
def test_codex_s_payloads_are_valid(at: Occurrence) -> None:
    name = "".join(f"-{c.lower()}" if c.isupper() else c for c in at.event).strip("-")
    payload = json.loads(json.dumps(DIALECTS["codex"].encode(at)))
    assert list(schemas.iter_validation_errors(payload, name)) == []


def test_codex_sees_edits_as_patches() -> None:
    edit = PreToolUse(
        tool="edit", tool_use_id="c1", input={"path": "a.py", "old": "x = 1\n", "new": "x = 2\ny = 3\n"}
    )
    payload = DIALECTS["codex"].encode(occurrence(edit))
    assert payload["tool_name"] == "apply_patch"
    assert payload["tool_input"] == {
        "command": "*** Begin Patch\n*** Update File: /work space/project/a.py\n@@\n-x = 1\n+x = 2\n+y = 3\n*** End Patch"
    }
    write = PreToolUse(tool="write", tool_use_id="c1", input={"path": "a.py", "content": "x = 1\n"})
    assert DIALECTS["codex"].encode(occurrence(write))["tool_input"] == {
        "command": "*** Begin Patch\n*** Add File: /work space/project/a.py\n+x = 1\n*** End Patch"
    }


def test_a_changed_patch_denies_and_one_that_is_sent_back_does_not() -> None:
    given_arguments = {"path": "a.py", "content": "x = 1\n"}
    at = occurrence(PreToolUse(tool="write", tool_use_id="c1", input=given_arguments))
    sent = DIALECTS["codex"].encode(at)["tool_input"]["command"]

    def answered(command: str) -> Answer:
        said = {
            "hookEventName": "PreToolUse",
            "permissionDecision": "allow",
            "updatedInput": {"command": command},
        }
        return DIALECTS["codex"].decode(at, Printed(0, json.dumps({"hookSpecificOutput": said})))

    assert answered(sent).input == InputChange(given_arguments)
    refused = answered(f"{sent} ")
    assert refused.permission is not None and refused.permission.verdict == "deny"
    assert refused.input is None


@pytest.mark.parametrize(
    ("tool", "given_arguments", "expected"),
    [
        ("read", {"path": "a.py", "offset": 3}, ("Read", {"file_path": "/ws/a.py", "offset": 3})),
        ("write", {"path": "/b", "content": "x"}, ("Write", {"file_path": "/b", "content": "x"})),
        ("edit", {"path": "a", "old": "x", "new": "y", "replace_all": True},
         ("Edit", {"file_path": "/ws/a", "old_string": "x", "new_string": "y", "replace_all": True})),
        ("glob", {"pattern": "*.py"}, ("Glob", {"pattern": "*.py"})),
        ("grep", {"pattern": "x", "path": ".", "ignore_case": True, "context": 2},
         ("Grep", {"pattern": "x", "path": "/ws", "-i": True, "-C": 2})),
        ("deploy", {"path": "a", "force": True}, ("deploy", {"path": "a", "force": True})),
    ],
)  # fmt: skip
def test_the_tools_in_the_box_have_their_words(
    tool: str, given_arguments: dict[str, Any], expected: tuple[str, dict[str, Any]]
) -> None:
    at = occurrence(PreToolUse(tool=tool, tool_use_id="c1", input=given_arguments), cwd=CWD)
    payload = DIALECTS["claude"].encode(at)
    assert (payload["tool_name"], payload["tool_input"]) == expected


@pytest.mark.parametrize(
    ("tool", "expected"),
    [
        ("read", {"type": "text", "file": {"filePath": "/ws/a", "content": "said"}}),
        ("write", {"filePath": "/ws/a", "content": "c", "success": True}),
        (
            "edit",
            {"filePath": "/ws/a", "oldString": "o", "newString": "n", "replaceAll": False, "success": True},
        ),
        ("glob", {"content": "said"}),
        ("deploy", {"content": "said"}),
    ],
)
def test_results_are_objects(tool: str, expected: dict[str, Any]) -> None:
    given_arguments = {"path": "a", "content": "c", "old": "o", "new": "n"}
    what = PostToolUse(tool=tool, tool_use_id="c1", input=given_arguments, response="said")
    assert DIALECTS["claude"].encode(occurrence(what, cwd=CWD))["tool_response"] == expected


def test_names_of_tools_are_those_of_the_rules() -> None:
    assert {ours: form.name for ours, form in CLAUDE.items()} == dict(NAMES)


# There and back

FORMS = [form for forms in (CLAUDE, GEMINI) for form in forms.values()]


@st.composite
def calls(draw: st.DrawFn) -> tuple[Form, dict[str, Any]]:
    form = draw(st.sampled_from(FORMS))
    values: dict[str, st.SearchStrategy[Any]] = {
        "same": st.text(max_size=8) | st.booleans() | st.integers(0, 9),
        "path": st.text(max_size=8),
        "milliseconds": st.integers(1, 3600),
        "from zero": st.integers(1, 9),
    }
    fields = draw(st.lists(st.sampled_from(form.fields), unique=True))
    return form, {field.ours: draw(values[field.how]) for field in fields}


@given(calls())
def test_what_is_only_sent_back_is_what_was_there(call: tuple[Form, dict[str, Any]]) -> None:
    form, ours = call
    assert decode_input(form, encode_input(form, ours, CWD), ours, CWD) == ours


@given(calls(), st.text(min_size=1, max_size=8))
def test_another_value_is_taken(call: tuple[Form, dict[str, Any]], text: str) -> None:
    form, ours = call
    field = next(field for field in form.fields if field.how in ("same", "path"))
    changed = decode_input(form, encode_input(form, ours, CWD) | {field.theirs: f"/{text}"}, ours, CWD)
    was = ours.get(field.ours)
    assert changed == ours | {
        field.ours: was
        if encode_input(form, {field.ours: was}, CWD)[field.theirs] == f"/{text}"
        else f"/{text}"
    }


@given(calls(), st.sampled_from(["file", "cmd", "run_in_background", "Command"]))
def test_an_argument_that_the_tool_does_not_have_is_refused(
    call: tuple[Form, dict[str, Any]], name: str
) -> None:
    form, ours = call
    with pytest.raises(Untranslatable, match=name):
        decode_input(form, {name: 1}, ours, CWD)


def test_a_tool_that_is_not_in_the_box_takes_what_it_is_given() -> None:
    assert decode_input(None, {"any": 1}, {}, CWD) == {"any": 1}


def test_a_link_is_followed_before_the_way_up(tmp_path: Path) -> None:
    (tmp_path / "far" / "away").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "far" / "away")
    assert absolute("link/../secret", tmp_path) == str(tmp_path.resolve() / "far" / "secret")
    assert absolute("link/a", tmp_path) == str(tmp_path / "link" / "a")
    assert absolute("./a//b", CWD) == "/ws/a/b"
    assert absolute("/etc/x", CWD) == "/etc/x"
