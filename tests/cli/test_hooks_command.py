"""`interlock hooks`, and what `interlock run` does about hooks that a folder brings."""

from __future__ import annotations

import json
import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.cli import consent
from interlock.models.scripted import calls, says

from .conftest import Ended

NO_PUSH = "grep -q push && { echo 'nothing is pushed' >&2; exit 2; }; exit 0"


@pytest.fixture
def gate(work: Path) -> Path:
    """A repository whose own settings refuse pushes."""
    group = {"matcher": "Bash", "hooks": [{"type": "command", "command": NO_PUSH}]}
    (work / ".claude").mkdir()
    (work / ".claude" / "settings.json").write_text(
        json.dumps({"hooks": {"PreToolUse": [group], "PreTool": []}}, indent=2)
    )
    return work


def asked(command: str, tool: str = "bash") -> str:
    return json.dumps({"tool": tool, "input": {"command": command}})


# list


def test_the_list_says_what_would_run_where_it_stands_and_what_is_wrong(interlock: Any, gate: Path) -> None:
    ended = interlock("hooks", "list", "--cwd", str(gate))
    first, problem, total = ended.out.splitlines()
    assert first.startswith(f"held PreToolUse Bash  {NO_PUSH}  (claude, {gate}/.claude/settings.json:")
    assert "'PreTool' is no event: did you mean 'PreToolUse'?" in problem
    assert total == "1 hook, 1 held back until `interlock hooks trust`"
    assert ended.code == 1


def test_the_list_as_json(interlock: Any, gate: Path) -> None:
    listed = json.loads(interlock("hooks", "list", "--cwd", str(gate), "--json").out)
    [one] = listed["hooks"]
    assert (one["event"], one["matcher"], one["origin"], one["held"]) == (
        "PreToolUse",
        "Bash",
        "project",
        True,
    )
    assert len(listed["problems"]) == 1


def test_an_empty_folder_has_none(interlock: Any, work: Path) -> None:
    assert interlock("hooks", "list", "--cwd", str(work)) == Ended(0, "0 hooks\n", "")


# test


@pytest.mark.parametrize(
    ("given", "dialect", "event"),
    [
        (asked("git push"), "claude", "PreToolUse"),
        (json.dumps({"tool_name": "Bash", "tool_input": {"command": "git push"}}), "claude", "PreToolUse"),
        (
            json.dumps({"tool_name": "run_shell_command", "tool_input": {"command": "git push"}}),
            "gemini",
            "BeforeTool",
        ),
    ],
    ids=["short", "Claude Code", "Gemini"],
)
def test_an_event_is_tried_in_the_words_of_a_program_or_in_ours(
    interlock: Any, gate: Path, given: str, dialect: str, event: str
) -> None:
    ended = interlock(
        "hooks", "test", event, "--input", "-", "--dialect", dialect, "--cwd", str(gate), stdin=given
    )
    assert ended.out.splitlines()[-1] == "outcome: deny: nothing is pushed"
    assert "(exit 2, " in ended.out
    assert ended.code == 4


def test_what_is_not_refused_ends_with_0_and_says_so(interlock: Any, gate: Path, tmp_path: Path) -> None:
    file = tmp_path / "payload.json"
    file.write_text(asked("git pull"))
    ended = interlock("hooks", "test", "PreToolUse", "--input", str(file), "--cwd", str(gate))
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "outcome: nothing is refused")


def test_hooks_that_are_not_meant_are_not_run(interlock: Any, gate: Path) -> None:
    given = json.dumps({"tool": "read", "input": {"path": "push"}})
    ended = interlock("hooks", "test", "PreToolUse", "--input", "-", "--cwd", str(gate), stdin=given)
    assert (ended.code, ended.out) == (0, "outcome: no hook is meant by this\n")


def test_the_outcome_as_json(interlock: Any, gate: Path) -> None:
    ended = interlock(
        "hooks", "test", "PreToolUse", "--input", "-", "--cwd", str(gate), "--json", stdin=asked("git push")
    )
    made = json.loads(ended.out)
    assert made["refused"] is True
    assert made["outcome"] == {"permission": "deny", "reason": "nothing is pushed"}
    assert [(one["exit"], one["won"]) for one in made["hooks"]] == [(2, True)]


@pytest.mark.parametrize(
    ("event", "stdin", "problem"),
    [
        ("PreTool", "{}", "No event 'PreTool' is told to hooks here"),
        ("PreToolUse", "[]", "is no JSON object"),
        ("PreToolUse", "{", "cannot be read"),
        ("PreToolUse", "{}", "PreToolUse: the input has no tool or tool_name."),
        ("UserPromptSubmit", '{"prompt": 3}', "prompt is text, not 3"),
        ("PreToolUse", '{"tool_name": "Bash", "tool_input": {"cmd": "x"}}', "Bash has no 'cmd' here"),
    ],
)
def test_an_input_that_says_nothing_is_refused_by_what_is_missing(
    interlock: Any, work: Path, event: str, stdin: str, problem: str
) -> None:
    ended = interlock("hooks", "test", event, "--input", "-", "--cwd", str(work), stdin=stdin)
    assert ended.code == 2
    assert problem in ended.err


# trust


def test_trust_lets_a_folder_s_hooks_run_and_untrust_holds_them_back(interlock: Any, gate: Path) -> None:
    assert "1 hook more will run" in interlock("hooks", "trust", str(gate)).out
    assert "held" not in interlock("hooks", "list", "--cwd", str(gate)).out
    assert interlock("hooks", "untrust", str(gate)).code == 0
    assert "held PreToolUse" in interlock("hooks", "list", "--cwd", str(gate)).out
    assert interlock("hooks", "untrust", str(gate)).code == 2


# run


def test_a_run_without_a_person_runs_the_folder_s_hooks(interlock: Any, script: Any, gate: Path) -> None:
    script(calls("bash", command="git push"), says("It was refused."))
    ended = interlock("run", "Push it", "--cwd", str(gate), "--preset", "full", "--trace")
    assert ended.out == "It was refused.\n"
    assert "[Hook] PreToolUse claude .claude/settings.json:" in ended.err
    assert "nothing is pushed" in ended.err
    assert "'PreTool' is no event" in ended.err


def test_no_hooks_leaves_them_out(interlock: Any, script: Any, gate: Path) -> None:
    script(calls("bash", command="echo push"), says("ok"))
    ended = interlock("run", "Push it", "--cwd", str(gate), "--preset", "full", "--trace", "--no-hooks")
    assert "claude .claude" not in ended.err
    assert "PostToolUse: bash -> ok" in ended.err


@pytest.mark.parametrize(("answer", "trusted"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_is_asked_once_before_a_repository_s_hooks_run(
    home: Path,
    gate: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    trusted: bool,
) -> None:
    ours, theirs = pty.openpty()
    with open(theirs) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        os.write(ours, answer.encode())
        consent.ask_for_trust(str(gate))
        asked = capsys.readouterr().err
        assert "brings what nobody has trusted:\n  hook " in asked
        assert NO_PUSH in asked
        os.write(ours, b"n\n")
        consent.ask_for_trust(str(gate))
        assert ("brings" in capsys.readouterr().err) is not trusted
    os.close(ours)


def test_what_a_hook_says_to_the_person_is_on_the_screen(interlock: Any, script: Any, work: Path) -> None:
    (work / ".claude").mkdir()
    hook = {"type": "command", "command": """echo '{"systemMessage": "the build is red"}'"""}
    (work / ".claude" / "settings.json").write_text(json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}}))
    script(says("done"))
    ended = interlock("run", "Look", "--cwd", str(work))
    assert "the build is red" in ended.err
    assert ended.out == "done\n"


def test_a_file_that_is_broken_stops_the_start(interlock: Any, script: Any, work: Path) -> None:
    (work / ".codex").mkdir()
    (work / ".codex" / "hooks.json").write_text('{"hooks": ')
    script(says("never"))
    ended = interlock("run", "Look", "--cwd", str(work))
    assert ended.code == 2
    assert "hooks.json:1: the file is not valid JSON" in ended.err
    assert interlock("run", "Look", "--cwd", str(work), "--no-hooks").code == 0
