"""What hooks print means what the table says; and every field that a dialect declares is proven by a case."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.hooks.cases import CASES, HAPPENINGS, Case, occurrence
from interlock.bridges.hooks.dialects import DIALECTS
from interlock.bridges.hooks.dialects.dialect import Printed
from interlock.bridges.hooks.event import EVENTS, GATES, EventName
from interlock.bridges.hooks.fold import settled
from interlock.bridges.hooks.handler import DialectName
from interlock.bridges.hooks.verdict import Answer, InputChange, Permission, PermissionAnswer


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_output_means(case: Case) -> None:
    answer = DIALECTS[case.dialect].decode(occurrence(HAPPENINGS[case.event]), case.printed)
    assert replace(answer, problems=()) == case.answer
    assert len(answer.problems) == len(case.problems)
    for problem, part in zip(answer.problems, case.problems, strict=True):
        assert part in problem.what


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_field_of_an_answer_that_is_declared_is_proven(dialect: DialectName) -> None:
    declared = {
        (event, name)
        for event, fields in DIALECTS[dialect].honoured.items()
        for name in fields
        if not name.startswith("input:")
    }
    proven = {(case.event, name) for case in CASES if case.dialect == dialect for name in case.fields}
    assert declared == proven


@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_field_of_a_payload_that_is_declared_is_sent_and_no_other(dialect: DialectName) -> None:
    for event, fields in DIALECTS[dialect].honoured.items():
        declared = {name.removeprefix("input:") for name in fields if name.startswith("input:")}
        what = occurrence(
            HAPPENINGS[event],
            prompt_id="p",
            agent_type="Explore" if event.startswith(("Sub", "SessionS")) else None,
        )
        if event == "SessionStart":
            what = replace(what, what=replace(what.what, agent_type="Explore", session_title="t"))  # type: ignore[type-var]
        if event == "UserPromptSubmit":
            what = replace(what, what=replace(what.what, source="user"))  # type: ignore[type-var]
        sent = set(DIALECTS[dialect].encode(what))
        assert declared | {"agent_id", "agent_type"} >= sent, event
        assert sent >= declared, event


def test_the_events_of_a_dialect_are_those_that_it_has_a_table_for() -> None:
    for dialect in DIALECTS.values():
        assert {event for events in dialect.events.values() for event in events} == set(dialect.honoured)
        assert not dialect.known & set(dialect.events)
        for event in set(EVENTS) - set(dialect.honoured):
            with pytest.raises(KeyError):
                dialect.encode(occurrence(HAPPENINGS[event]))


@pytest.mark.parametrize("event", EVENTS)
def test_an_event_has_the_name_of_its_class(event: EventName) -> None:
    assert occurrence(HAPPENINGS[event]).event == event


texts = st.one_of(
    st.text(max_size=30),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["hookSpecificOutput", "hookEventName", "decision", "continue", "reason", "PreToolUse",
                 "permissionDecision", "updatedInput", "additionalContext", "behavior", "systemMessage", "tool_input"]
            ),
            inner,
            max_size=4,
        ),
        max_leaves=8,
    ).map(lambda value: __import__("json").dumps(value)),
)  # fmt: skip


@given(
    st.sampled_from(sorted(DIALECTS)),
    st.sampled_from(EVENTS),
    st.integers(0, 255),
    texts,
    st.text(max_size=10),
)
def test_decoding_never_raises(dialect: DialectName, event: EventName, code: int, out: str, err: str) -> None:
    answer = DIALECTS[dialect].decode(occurrence(HAPPENINGS[event]), Printed(code, out, err))
    assert isinstance(answer, Answer)


@given(
    st.sampled_from(sorted(DIALECTS)),
    st.sampled_from(sorted(GATES)),
    st.integers(1, 255),
    st.text(max_size=20),
)
def test_a_gate_that_ends_with_anything_but_0_and_no_json_lets_nothing_pass(
    dialect: DialectName, event: EventName, code: int, err: str
) -> None:
    if event not in DIALECTS[dialect].honoured or (dialect == "gemini" and event == "PreCompact"):
        return
    answer = DIALECTS[dialect].decode(occurrence(HAPPENINGS[event]), Printed(code, "", err))
    assert refuses(settled(event, None, answer))


def refuses(answer: Answer) -> bool:
    return (
        answer.block is not None
        or (answer.permission is not None and answer.permission.verdict == "deny")
        or (answer.decision is not None and answer.decision.behavior == "deny")
    )


FAILED = Answer(failure="exit code 1")
WHY = "failed, and what it guards is refused: exit code 1"


@pytest.mark.parametrize(
    ("event", "on_failure", "expected"),
    [
        ("PreToolUse", None, Answer(permission=Permission("deny", f"A PreToolUse hook {WHY}"), failure="exit code 1")),
        ("PreToolUse", "continue", FAILED),
        ("PermissionRequest", None, Answer(decision=PermissionAnswer("deny", f"A PermissionRequest hook {WHY}"), failure="exit code 1")),
        ("UserPromptSubmit", None, Answer(block=f"A UserPromptSubmit hook {WHY}", failure="exit code 1")),
        ("PreCompact", None, Answer(block=f"A PreCompact hook {WHY}", failure="exit code 1")),
        ("PostToolUse", None, FAILED),
        ("PostToolUse", "block", Answer(block=f"A PostToolUse hook {WHY}", failure="exit code 1")),
        ("PostToolBatch", "block", Answer(block=f"A PostToolBatch hook {WHY}", failure="exit code 1")),
        ("PostToolUseFailure", "block", Answer(contexts=(f"A PostToolUseFailure hook {WHY}",), failure="exit code 1")),
        ("Stop", "block", FAILED),
        ("SubagentStop", "block", FAILED),
        ("SessionStart", "block", FAILED),
        ("Notification", None, FAILED),
    ],
)  # fmt: skip
def test_what_a_failure_means(event: EventName, on_failure: object, expected: Answer) -> None:
    assert settled(event, on_failure, FAILED) == expected  # type: ignore[arg-type]


def test_a_gate_that_failed_rewrites_nothing() -> None:
    failed = Answer(failure="timed out", input=InputChange({"command": "x"}))
    assert settled("PreToolUse", None, failed).input is None


DENY = '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny"}}'


@pytest.mark.parametrize(
    ("stdout", "problem"),
    [
        (f"checking\n{DENY}\n", "text before the JSON"),
        (f"checking\n{DENY}\ndone\n", "text before the JSON"),
        ('a\n{\n "decision":\n "block"}', "text before the JSON"),
        ('{"permissionDecision": "deny"}', "inside hookSpecificOutput"),
        ('{"hook_specific_output": {"permission_decision": "deny"}}', "write hookSpecificOutput"),
        ('{"Decision": "block"}', "write decision"),
        ('{"decision": "block", "decision": "approve"}', "not valid JSON"),
    ],
)
def test_a_no_that_is_written_in_the_wrong_way_lets_nothing_pass(stdout: str, problem: str) -> None:
    answer = DIALECTS["claude"].decode(occurrence(HAPPENINGS["PreToolUse"]), Printed(0, stdout, ""))
    assert answer.failure and problem in answer.failure
    assert [problem in one.what for one in answer.problems] == [True]
    for dialect in DIALECTS.values():
        answer = dialect.decode(occurrence(HAPPENINGS["PreToolUse"]), Printed(0, stdout, ""))
        assert refuses(settled("PreToolUse", None, answer)), dialect


@pytest.mark.parametrize(
    "stdout", ["all is well", "{}", 'a\n{"level": "info"}', "a\n{b", "[1]", '{"metrics": {}}']
)
def test_text_that_holds_no_answer_lets_a_call_pass(stdout: str) -> None:
    answer = DIALECTS["claude"].decode(occurrence(HAPPENINGS["PreToolUse"]), Printed(0, stdout, ""))
    assert not refuses(settled("PreToolUse", None, answer))
