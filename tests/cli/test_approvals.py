"""`interlock approvals`: the questions of all sessions, answered from outside, and what was remembered."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from interlock.log.facts import ApprovalDecided, GrantRevoked, ToolResulted
from interlock.models.scripted import call, calls, says
from interlock.policy.approvals.grants import Grant, Grants, workspace_of

WRITES = calls(call("write", path="b.txt", content="x\x1b[2J"))


@pytest.fixture
def waiting(interlock: Any, script: Any, work: Path) -> str:
    """The whole id of a question that waits."""
    script(WRITES, says("done"))
    ended = interlock("run", "Write it", "--cwd", str(work), "--approvals", "wait", "--output-format", "json")
    assert ended.code == 7
    (whole,) = json.loads(ended.out)["reason"]["approvals"]
    return str(whole)


def pending(interlock: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in interlock("approvals", "list", "--json").out.splitlines()]


def decided(interlock: Any) -> ApprovalDecided:
    events = interlock("log", "last", "--json").events
    (fact,) = [event.fact for event in events if isinstance(event.fact, ApprovalDecided)]
    return fact


def test_with_nothing_there_it_says_so_and_makes_no_file(interlock: Any, home: Path) -> None:
    assert interlock("approvals", "list").out == "Nothing waits for a person, and no rule is remembered.\n"
    assert interlock("approvals", "list", "--json").out == ""
    assert not home.exists()


def test_the_list_has_every_open_question(interlock: Any, waiting: str, work: Path) -> None:
    session, _, approval = waiting.partition("/")
    (line,) = pending(interlock)
    assert line == {
        "kind": "pending",
        "id": waiting,
        "session": session,
        "approval": approval,
        "tool": "write",
        "call": "c1",
        "arguments": {"path": "b.txt", "content": "x\x1b[2J"},
        "question": "write may change something",
        "by": "preset ask",
        "digest": line["digest"],
        "options": line["options"],
        "asked": line["asked"],
        "expires": None,
        "workspace": str(work),
        "nested": False,
    }
    assert line["options"][0] == "once"
    told = interlock("approvals", "list").out
    assert f"? {waiting}  write path=b.txt" in told and "\x1b" not in told


def test_one_is_shown_as_it_would_run(interlock: Any, waiting: str, work: Path) -> None:
    shown = interlock("approvals", "show", waiting.rpartition("/")[2])
    assert shown.code == 0 and "\x1b" not in shown.out
    assert "path: b.txt (new file)" in shown.out and "  +x\\x1b[2J" in shown.out
    (line,) = pending(interlock)
    assert f"digest {line['digest']}" in shown.out
    assert json.loads(interlock("approvals", "show", waiting, "--json").out) == line


@pytest.mark.parametrize(
    ("answer", "outcome", "message"),
    [(("yes",), "allowed-once", None), (("no", "--message", "use c.txt"), "rejected", "use c.txt")],
)
def test_an_answer_is_on_record_and_the_run_goes_on_with_it(
    interlock: Any, waiting: str, work: Path, answer: tuple[str, ...], outcome: str, message: str | None
) -> None:
    told = interlock("approvals", "answer", waiting, *answer)
    session = waiting.partition("/")[0]
    assert (told.code, told.out) == (
        0,
        f"{waiting}: {answer[0]}.\nGo on: interlock run --resume {session}\n",
    )
    assert pending(interlock) == []
    fact = decided(interlock)
    assert (fact.outcome, fact.message, fact.how, fact.channel) == (outcome, message, "api", "command line")
    assert fact.by
    assert interlock("run", "--resume", session).code == 0
    assert (work / "b.txt").exists() is (outcome == "allowed-once")


def test_edited_arguments_run_instead(interlock: Any, waiting: str, work: Path) -> None:
    edited = '{"path": "c.txt", "content": "y"}'
    assert interlock("approvals", "answer", waiting, "yes", "--arguments", edited).code == 0
    assert decided(interlock).edited == {"path": "c.txt", "content": "y"}
    assert interlock("run", "--resume", "last").code == 0
    assert (work / "c.txt").read_text() == "y" and not (work / "b.txt").exists()


def test_edited_arguments_that_do_not_fit_never_run(interlock: Any, waiting: str, work: Path) -> None:
    """The tool is not known to this command; whoever goes on checks them as it checks a model's."""
    assert interlock("approvals", "answer", waiting, "yes", "--arguments", '{"nonsense": 1}').code == 0
    assert interlock("run", "--resume", "last").code == 0
    events = interlock("log", "last", "--json").events
    (result,) = [event.fact for event in events if isinstance(event.fact, ToolResulted)]
    assert result.error is not None and result.error.code == "INVALID_ARGS"
    assert not (work / "b.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("yes", "--digest", "another"), "Look at it again"),
        (("yes", "--message", "well"), "--message goes with `no`"),
        (("no", "--arguments", "{}"), "--arguments goes with `yes`"),
        (("yes", "--arguments", "[1]"), "is a JSON object"),
        (("yes", "--arguments", "{"), "is not JSON"),
        (("maybe",), "maybe"),
    ],
)
def test_an_answer_that_is_refused_changes_nothing(
    interlock: Any, waiting: str, arguments: tuple[str, ...], problem: str
) -> None:
    before = interlock("log", "last", "--json").out
    ended = interlock("approvals", "answer", waiting, *arguments)
    assert ended.code == 2 and problem in ended.err and "Traceback" not in ended.err
    assert interlock("log", "last", "--json").out == before


def test_no_id_at_all_means_no_question(interlock: Any, waiting: str) -> None:
    """Such as a variable of a script that is not set: an answer to whatever is asked would be given."""
    ended = interlock("approvals", "answer", "", "yes")
    assert ended.code == 2 and "no such question" in ended.err
    assert [line["id"] for line in pending(interlock)] == [waiting]


def test_a_late_answer_is_told_who_was_first(interlock: Any, waiting: str) -> None:
    assert interlock("approvals", "answer", waiting, "yes").code == 0
    late = interlock("approvals", "answer", waiting, "no")
    assert late.code == 2 and "it was decided at" in late.err and "allowed-once by" in late.err
    unknown = interlock("approvals", "answer", "a999", "no")
    assert unknown.code == 2 and "no such question. None is open." in unknown.err


def test_a_part_of_an_id_that_means_two_is_refused(interlock: Any, script: Any, work: Path) -> None:
    both = calls(call("write", path="b.txt", content="x"), call("write", path="c.txt", content="x"))
    script(both, says("done"))
    assert interlock("run", "Go", "--cwd", str(work), "--approvals", "wait").code == 7
    first, second = [line["id"] for line in pending(interlock)]
    session = first.partition("/")[0]
    ended = interlock("approvals", "answer", session, "yes")
    assert ended.code == 2 and "could be any of 2 questions" in ended.err
    told = interlock("approvals", "answer", second, "no")  # in any order
    assert "1 more of this session waits" in told.out
    assert interlock("approvals", "answer", first, "yes").code == 0
    assert interlock("run", "--resume", "last").code == 0
    assert (work / "b.txt").exists() and not (work / "c.txt").exists()


DRIVES = """
import asyncio, sys
from interlock import SQLiteStore

async def main():
    async with SQLiteStore() as store:
        await store.open(sys.argv[1])
        print("drives", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_session_that_a_live_process_drives_is_not_gone_on_with(interlock: Any, waiting: str) -> None:
    session = waiting.partition("/")[0]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVES, session], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "drives\n"
        ended = interlock("run", "--resume", session)
        driver.kill()
    assert ended.code == 6 and f"is driven by process {driver.pid}" in ended.err
    assert len(ended.err.splitlines()) == 1, "before anything else is done or said"
    assert ended.out == ""
    assert interlock("approvals", "answer", waiting, "yes").code == 0, "it has gone meanwhile"


@pytest.mark.slow
def test_with_a_session_that_is_driven_nothing_seems_to_be_missing(
    interlock: Any, script: Any, work: Path
) -> None:
    """What does not wait there for us is what its driver is doing."""
    script(says("done"))
    assert interlock("run", "Go", "--cwd", str(work)).code == 0
    (session,) = [one["id"] for one in map(json.loads, interlock("sessions", "--json").out.splitlines())]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVES, session], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == "drives\n"
        ended = interlock("run", "--resume", session)
        driver.kill()
    assert ended.code == 6 and f"is driven by process {driver.pid}" in ended.err
    assert interlock("run", "--resume", session).code == 2


# What is remembered


def test_a_rule_that_was_not_offered_is_not_written(interlock: Any, script: Any, work: Path) -> None:
    script(calls(call("bash", command="echo $(cat x)")), says("done"))
    assert interlock("run", "Go", "--cwd", str(work), "--approvals", "wait").code == 7
    (line,) = pending(interlock)
    assert line["options"] == ["once"]
    ended = interlock("approvals", "answer", line["id"], "always")
    assert ended.code == 2 and "was not offered; answer yes or no" in ended.err
    assert Grants().load() == ()


def test_a_remembered_rule_is_listed_and_taken_back(interlock: Any, work: Path, home: Path) -> None:
    Grants().add(Grant(workspace_of(work), "Bash(make test)", "ada", "tty", "terminal", 1_700_000_000_000))
    Grants().add(Grant(workspace_of(home), "Edit(/a.py)"))
    (first, _) = pending(interlock)
    assert first == {
        "kind": "grant",
        "scope": "always",
        "number": 1,
        "rule": "Bash(make test)",
        "workspace": str(work),
        "by": "ada",
        "how": "tty",
        "channel": "terminal",
        "time": 1_700_000_000_000,
        "session": None,
        "file": str(home / "grants.toml"),
        "line": first["line"],
    }
    assert f"always in {work}: Bash(make test)" in interlock("approvals", "list").out
    assert interlock("approvals", "revoke", "2").out == f"Edit(/a.py) is asked again in {home}.\n"
    unknown = interlock("approvals", "revoke", "Bash(make)")
    assert unknown.code == 2 and "`interlock approvals list`" in unknown.err
    assert interlock("approvals", "revoke", "Bash(make test)").code == 0
    assert Grants().load() == ()


def test_a_rule_of_two_folders_is_taken_back_by_its_number(interlock: Any, work: Path, home: Path) -> None:
    for folder in (work, home):
        Grants().add(Grant(workspace_of(folder), "Bash(ls)"))
    ended = interlock("approvals", "revoke", "Bash(ls)")
    assert ended.code == 2 and "in several folders" in ended.err
    assert interlock("approvals", "revoke", "1").code == 0
    assert [grant.workspace for grant in Grants().load()] == [str(home)]


def test_a_rule_of_a_session_is_listed_and_taken_back(interlock: Any, script: Any, work: Path) -> None:
    script(WRITES, says("done"))
    assert interlock("run", "Go", "--cwd", str(work), "--approvals", "wait").code == 7
    (line,) = pending(interlock)
    rule = next(o.partition(" ")[2] for o in line["options"] if o.startswith("session "))
    assert interlock("approvals", "answer", line["id"], "session").code == 0
    listed = [
        json.loads(one)
        for one in interlock("approvals", "list", "--session", "last", "--json").out.splitlines()
    ]
    assert [(one["scope"], one["rule"]) for one in listed] == [("session", rule)]
    assert interlock("approvals", "revoke", "nothing", "--session", "last").code == 2
    assert interlock("approvals", "revoke", rule, "--session", "last").code == 0
    assert interlock("approvals", "list", "--session", "last", "--json").out == ""
    events = interlock("log", "last", "--json").events
    (fact,) = [event.fact for event in events if isinstance(event.fact, GrantRevoked)]
    assert fact.rule == rule and fact.by
