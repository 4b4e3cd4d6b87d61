"""Approvals between processes: a program that answers by lines of JSON, a question that outlives its process, and a
person at a terminal who is shown a difference."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from interlock.log.facts import ApprovalAsked, ApprovalDecided, ToolStarted

from .test_processes import LIMIT, facts, model, on_terminal

pytestmark = pytest.mark.slow

STDIO = ("--approvals", "stdio", "--output-format", "stream-json")


def piped(served: Any, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*served.command, *arguments],
        cwd=served.work,
        env=served.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def next_of(running: subprocess.Popen[str], type_: str) -> dict[str, Any]:
    """Read on to the next line of this type."""
    assert running.stdout is not None
    for line in running.stdout:
        value: dict[str, Any] = json.loads(line)
        if value["type"] == type_:
            return value
    raise AssertionError(f"no {type_}")


def say(running: subprocess.Popen[str], **answer: Any) -> None:
    assert running.stdin is not None
    running.stdin.write(json.dumps({"type": "approval/answer", **answer}) + "\n")
    running.stdin.flush()


@pytest.mark.parametrize(
    ("answer", "written", "outcome"),
    [({"outcome": "allow"}, True, "allowed-once"), ({"outcome": "reject"}, False, "rejected")],
)
def test_a_program_answers_by_lines_of_json(
    served: Any, work: Path, answer: dict[str, str], written: bool, outcome: str
) -> None:
    with piped(served, "run", "Write it", *model("writer"), *STDIO) as running:
        asked = next_of(running, "approval/ask")
        assert (asked["tool"], asked["arguments"]["path"]) == ("write", "b.txt")
        say(running, id=asked["id"], digest="another", **answer)
        assert next_of(running, "approval/error")["code"] == "mismatch"
        say(running, id=asked["id"], digest=asked["digest"], principal="ada", **answer)
        assert next_of(running, "approval/decided")["data"]["outcome"] == outcome
        _, error = running.communicate(timeout=LIMIT)
        assert (running.returncode, error) == (0, "")
    assert (work / "b.txt").exists() is written
    (decided,) = facts(served, ApprovalDecided)
    assert (decided.outcome, decided.by, decided.how, decided.channel) == (outcome, "ada", "api", "stdio")


def test_the_end_of_the_input_is_nobody(served: Any, work: Path) -> None:
    with piped(served, "run", "Write it", *model("writer"), *STDIO) as running:
        next_of(running, "approval/ask")
        running.communicate(timeout=LIMIT)  # closes its input
        assert running.returncode == 0
    (decided,) = facts(served, ApprovalDecided)
    assert (decided.outcome, (work / "b.txt").exists()) == ("unavailable", False)


def test_a_stop_withdraws_the_question(served: Any) -> None:
    with piped(served, "run", "Write it", *model("writer"), *STDIO) as running:
        asked = next_of(running, "approval/ask")
        running.send_signal(signal.SIGINT)
        assert next_of(running, "approval/withdrawn")["id"] == asked["id"]
        running.communicate(timeout=LIMIT)
        assert running.returncode == 130


def test_a_question_outlives_its_process_and_is_answered_by_another(served: Any, work: Path) -> None:
    waits = served.run("run", "Write it", *model("writer"), "--approvals", "wait")
    assert waits.code == 7
    (line,) = served.run("approvals", "list", "--json").out.splitlines()
    waiting = json.loads(line)
    assert served.run("approvals", "answer", waiting["id"], "yes", "--digest", waiting["digest"]).code == 0
    served.work = work.parent  # from anywhere: it works in the folder of the session
    ended = served.run("run", "--resume", waiting["session"], *model("writer"))
    assert (ended.code, ended.out) == (0, "Done, or not.\n")
    assert (work / "b.txt").read_text() == "x"
    assert (len(facts(served, ApprovalAsked)), len(facts(served, ToolStarted))) == (1, 1)


def test_a_question_at_a_terminal_that_was_killed_is_asked_again(served: Any, work: Path) -> None:
    with on_terminal(served, "run", "Write it", *model("writer")) as running:
        running.expect("say what to do instead] ")
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait(LIMIT)
    session = facts(served, ApprovalAsked)
    assert len(session) == 1 and facts(served, ApprovalDecided) == []
    with on_terminal(served, "run", "--resume", "last", *model("writer")) as running:
        running.expect("say what to do instead] ")
        running.type("y\n")
        assert running.end() == 0
    assert (work / "b.txt").read_text() == "x"
    assert len(facts(served, ApprovalAsked)) == 1, "it is not asked twice on record"


def test_a_person_is_shown_what_would_change_and_it_can_be_remembered(served: Any, work: Path) -> None:
    (work / "b.txt").write_text("y\x1b[2J")
    with on_terminal(served, "run", "Write it", *model("writer")) as running:
        running.expect("say what to do instead] ")
        assert "-y\\x1b[2J" in running.seen and "+x" in running.seen
        assert "s = yes, and not asked again in this session: Edit(/b.txt)" in running.seen
        running.type("a\n")
        assert running.end() == 0
    assert "yes, always: Edit(/b.txt)" in running.seen
    (grant,) = [json.loads(line) for line in served.run("approvals", "list", "--json").out.splitlines()]
    assert (grant["rule"], grant["workspace"], grant["how"]) == ("Edit(/b.txt)", str(work), "tty")
