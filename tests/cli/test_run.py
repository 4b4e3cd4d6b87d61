"""`interlock run`: what goes where, who may, and how it ends."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from interlock import UsageError, check
from interlock.cli.run import _task
from interlock.models.scripted import calls, fails, max_tokens, says


def test_the_answer_is_all_of_standard_output(interlock: Any, script: Any, work: Path) -> None:
    script(calls("read", path="a.txt", saying="I look."), says("It says hello."))
    ended = interlock("run", "What does it say?", "--cwd", str(work))
    assert (ended.code, ended.out) == (0, "It says hello.\n")
    live = ended.err.splitlines()
    assert live[0] == "I look."
    assert live[1] == "  → read#c1  path=a.txt"
    assert live[2].startswith("  ✓ read#c1  done after ")
    assert live[3] == "─ turn 1 ends  completed, 2 steps"
    assert live[4].startswith("interlock log ")
    assert "\x1b" not in ended.err and "\r" not in ended.err


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("Say hi",), ""),
        (("-p", "Say hi"), ""),
        (("--prompt", "Say hi"), ""),
        (("-",), "Say hi"),
        ((), "Say hi"),
        (("-p", "-"), "Say hi"),
    ],
)
def test_the_task_is_an_argument_an_option_or_the_input(
    interlock: Any, script: Any, arguments: tuple[str, ...], stdin: str
) -> None:
    model = script(says("hi"))
    assert interlock("run", *arguments, stdin=stdin).code == 0
    assert model.requests[0].messages[0].text == "Say hi"


@pytest.mark.parametrize(
    ("arguments", "stdin", "problem"),
    [
        (("a", "-p", "b"), "", "given twice"),
        ((" ",), "", "is empty"),
        ((), "", "is empty"),
        (("-",), b"\xff", "not UTF-8"),
    ],
)
def test_a_task_that_is_none_is_refused(
    interlock: Any, script: Any, arguments: tuple[str, ...], stdin: Any, problem: str
) -> None:
    model = script(says("never"))
    ended = interlock("run", *arguments, stdin=stdin)
    assert (ended.code, ended.out, model.requests) == (2, "", [])
    assert problem in ended.err and "Traceback" not in ended.err


def test_nothing_is_read_from_a_terminal() -> None:
    class Terminal:
        def isatty(self) -> bool:
            return True

    with pytest.raises(UsageError, match="No task is given"):
        _task(None, None, Terminal())  # type: ignore[arg-type]  # all that is asked of it


def test_json_is_one_object_at_the_end(interlock: Any, script: Any, work: Path) -> None:
    script(says("It says hello.", usage=(12, 5)))
    ended = interlock("run", "Go", "--cwd", str(work), "--output-format", "json")
    session = interlock("sessions", "--json").out
    assert json.loads(ended.out) == {
        "session": json.loads(session)["id"],
        "ok": True,
        "reason": {"kind": "completed"},
        "text": "It says hello.",
        "usage": {"input": 12, "output": 5},
        "turn": 1,
        "steps": 1,
    }
    assert (ended.code, ended.err) == (0, "")


def test_stream_json_is_the_log_line_by_line(interlock: Any, script: Any, work: Path) -> None:
    script(calls("read", path="a.txt"), says("It says hello."))
    ended = interlock("run", "Go", "--cwd", str(work), "--output-format", "stream-json")
    assert (ended.code, ended.err) == (0, "")
    assert check(ended.events) == []
    assert ended.events[-1].type == "turn/end"
    assert ended.out == interlock("log", "last", "--json").out


@pytest.mark.parametrize(
    ("answers", "options", "code", "said"),
    [
        ((says("done"),), (), 0, "completed"),
        ((fails("AUTH", "the key is wrong"),), (), 1, "error AUTH: the key is wrong"),
        ((max_tokens("cut"),), (), 3, "max-tokens"),
        ((calls("read", path="a.txt"), says("no")), ("--budget", "steps=1"), 5, "budget (steps: 1 of 1)"),
    ],
)
@pytest.mark.parametrize("output", ["text", "json", "stream-json"])
def test_the_exit_code_says_how_the_turn_ended(
    interlock: Any, script: Any, work: Path, answers: Any, options: Any, code: int, said: str, output: str
) -> None:
    script(*answers)
    ended = interlock("run", "Go", "--cwd", str(work), "--output-format", output, *options)
    assert ended.code == code
    if code or output == "text":
        assert said in ended.err


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--model", "nonsense"), "write provider:name"),
        (("--model", "scrypt:x"), "Did you mean 'script'?"),
        (("--cwd", "/nowhere"), "'/nowhere' is no folder"),
        (("--budget", "step=3"), "Did you mean 'steps'?"),
        (("--preset", "yolo"), "--preset"),
        (("--output-format", "xml"), "--output-format"),
        (("--no-such-option",), "--no-such-option"),
    ],
)
def test_a_wrong_setting_is_told_before_anything_starts(
    interlock: Any, script: Any, home: Path, options: tuple[str, ...], problem: str
) -> None:
    model = script(says("never"))
    ended = interlock("run", "Go", *options)
    assert (ended.code, ended.out, model.requests) == (2, "", [])
    assert problem in ended.err and "Traceback" not in ended.err


def test_without_a_model_it_says_how_to_name_one(interlock: Any) -> None:
    ended = interlock("run", "Go")
    assert ended.code == 2
    assert "--model provider:name" in ended.err and "INTERLOCK_MODEL" in ended.err


@pytest.mark.parametrize(
    ("preset", "written", "code", "said"),
    [
        ("ask", False, "APPROVAL_UNAVAILABLE", "nobody is there to approve it"),
        ("plan", False, "DENIED", "preset plan: only tools that read may run"),
        ("full", True, None, "created b.txt"),
    ],
)
def test_what_a_preset_does_with_a_write_when_nobody_is_there(
    interlock: Any, script: Any, work: Path, preset: str, written: bool, code: str | None, said: str
) -> None:
    model = script(calls("write", path="b.txt", content="x"), says("well"))
    ended = interlock("run", "Go", "--cwd", str(work), "--preset", preset, "--output-format", "stream-json")
    assert ended.code == 0
    assert (work / "b.txt").exists() is written
    (result,) = [event.fact for event in ended.events if event.type == "tool/result"]
    assert (result.error.code if result.error else None) == code
    assert said in model.requests[1].messages[-1].text  # and the model reads why


def test_reads_run_without_anybody(interlock: Any, script: Any, work: Path) -> None:
    model = script(calls("read", path="a.txt"), says("well"))
    assert interlock("run", "Go", "--cwd", str(work)).code == 0
    assert "hello" in model.requests[1].messages[-1].text


def test_the_model_is_told_its_folder_and_its_tools(interlock: Any, script: Any, work: Path) -> None:
    model = script(says("well"))
    interlock("run", "Go", "--cwd", str(work))
    (request,) = model.requests
    assert [tool.name for tool in request.tools] == ["bash", "edit", "glob", "grep", "read", "write"]
    assert str(work) in request.messages[-1].text
    assert "reason" in request.system[0].text


def test_the_session_is_kept_for_this_user_only(interlock: Any, script: Any, home: Path) -> None:
    script(says("well"))
    interlock("run", "Go")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in home.iterdir()}
    assert modes == {"interlock.db": 0o600}
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


def test_trace_writes_the_four_events_and_the_permissions_in_order(
    interlock: Any, script: Any, work: Path
) -> None:
    script(calls("read", path="a.txt"), calls("write", path="b.txt", content="x"), says("well"))
    ended = interlock("run", "Go", "--cwd", str(work), "--trace")
    assert (ended.code, ended.out) == (0, "well\n")
    assert ended.err.splitlines() == [
        "[Hook] UserPromptSubmit",
        "[Hook] PreToolUse: read",
        "[Permission] read: allow (default) - preset ask",
        "[Hook] PostToolUse: read -> ok",
        "[Hook] PreToolUse: write",
        "[Permission] write: ask (default) - preset ask: write may change something",
        "[Permission] write: deny (approval) - nobody was there to answer",
        "[Hook] Stop",
    ]


def test_what_a_model_says_cannot_steer_the_terminal(interlock: Any, script: Any, work: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\u202egnp.exe"
    script(calls("read", path=evil, saying=evil), says(evil))
    ended = interlock("run", "Go", "--cwd", str(work))
    assert not set(ended.err) & {"\x1b", "\x07", "\u202e"}
    assert "\\x1b]0;owned\\x07" in ended.err
    assert ended.out == f"{evil}\n"  # a pipe gets what was said


def test_a_store_that_cannot_be_written_has_a_code_of_its_own(
    interlock: Any, script: Any, home: Path
) -> None:
    home.mkdir()
    (home / "interlock.db").write_text("this is no database, and long enough to be looked at" * 20)
    model = script(says("never"))
    ended = interlock("run", "Go")
    assert (ended.code, model.requests) == (6, [])
    assert ended.err.startswith("interlock: The store cannot write: file is not a database")
