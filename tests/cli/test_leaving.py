"""`interlock run --approvals wait`: the command ends where only a person can go on, and `--resume` goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interlock import check
from interlock.log.event import decode_event
from interlock.log.facts import ApprovalAsked, ApprovalDecided, ToolStarted
from interlock.models.scripted import call, calls, says

WRITES = calls(call("write", path="b.txt", content="x"))


def facts(interlock: Any, cls: type) -> list[Any]:
    events = interlock("log", "last", "--json").events
    assert check(events) == []
    return [event.fact for event in events if isinstance(event.fact, cls)]


def leave(interlock: Any, work: Path, *options: str) -> str:
    """Run until it waits; the whole id of the question."""
    ended = interlock("run", "Write it", "--cwd", str(work), "--approvals", "wait", *options)
    assert ended.code == 7
    (line,) = [line for line in ended.err.splitlines() if line.startswith("waiting for a person")]
    return str(line.split(" answer ")[1].split()[0])


def test_it_says_how_to_answer_and_leaves_the_step_open(interlock: Any, script: Any, work: Path) -> None:
    script(WRITES)
    whole = leave(interlock, work)
    session, _, approval = whole.partition("/")
    events = [decode_event(line) for line in interlock("log", "last", "--json").out.splitlines()]
    assert events[-1].type == "approval/asked", "a clean exit writes nothing"
    assert isinstance(events[-1].fact, ApprovalAsked) and events[-1].fact.approval_id == approval
    again = interlock("run", "--resume", session, "--approvals", "wait")
    assert again.code == 7 and f"interlock run --resume {session}" in again.err
    assert len(facts(interlock, ApprovalAsked)) == 1, "it is not asked a second time"
    assert not (work / "b.txt").exists()


@pytest.mark.parametrize(("answer", "written"), [("yes", True), ("no", False)])
def test_it_goes_on_with_the_answer(
    interlock: Any, script: Any, work: Path, answer: str, written: bool
) -> None:
    model = script(WRITES, says("done"))
    whole = leave(interlock, work)
    assert interlock("approvals", "answer", whole, answer).code == 0
    ended = interlock("run", "--resume", "last")
    assert (ended.code, ended.out) == (0, "done\n"), "in the folder of the session"
    assert (work / "b.txt").exists() is written
    assert len(facts(interlock, ToolStarted)) == int(written)
    assert len(model.requests) == 2


def test_a_further_task_comes_after_what_waited(interlock: Any, script: Any, work: Path) -> None:
    script(WRITES, says("first"), says("second"))
    assert interlock("approvals", "answer", leave(interlock, work), "yes").code == 0
    ended = interlock("run", "And then?", "--resume", "last", "--cwd", str(work))
    assert (ended.code, ended.out) == (0, "second\n")


def test_as_json_it_names_the_questions(interlock: Any, script: Any, work: Path) -> None:
    script(WRITES)
    ended = interlock("run", "Write it", "--cwd", str(work), "--approvals", "wait", "--output-format", "json")
    assert ended.code == 7
    told = json.loads(ended.out)
    assert told == {
        "session": told["session"],
        "ok": False,
        "reason": {"kind": "waiting", "approvals": [f"{told['session']}/a14"]},
        "turn": 1,
    }


def test_without_a_question_it_is_as_ever(interlock: Any, script: Any, work: Path) -> None:
    script(says("hello"))
    ended = interlock("run", "Hi", "--cwd", str(work), "--approvals", "wait")
    assert (ended.code, ended.out) == (0, "hello\n")
    assert facts(interlock, ApprovalDecided) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--resume", "nobody"), "No session 'nobody'"),
        (("--resume", "last"), "Nothing waits in session"),
        (("Go", "--approvals", "stdio"), "give --output-format stream-json"),
        (("--approvals", "stdio", "--output-format", "stream-json"), "give the task as an argument"),
        (("-", "--approvals", "stdio", "--output-format", "stream-json"), "give the task as an argument"),
        (("Go", "--approvals", "mail"), "--approvals"),
    ],
)
def test_what_cannot_work_is_told_before_anything_starts(
    interlock: Any, script: Any, arguments: tuple[str, ...], problem: str
) -> None:
    model = script(says("hello"))
    interlock("run", "Hi")
    ended = interlock("run", *arguments)
    assert ended.code == 2 and problem in ended.err
    assert len(model.requests) == 1
