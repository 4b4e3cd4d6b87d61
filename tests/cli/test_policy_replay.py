"""`interlock policy test`: recorded calls, decided about again by other rules."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.models.scripted import call, calls, says


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    file = tmp_path / "other.toml"
    file.write_text('[permissions]\ndeny = [\n  "Read(a.txt)",\n]\nallow = ["Edit(b)"]\n')
    return file


@pytest.fixture
def ran(interlock: Any, script: Any, work: Path) -> str:
    """The id of a session with a read that ran and a write that was not approved."""
    script(calls(call("read", path="a.txt"), call("write", path="b", content="x")), says("So it is."))
    interlock("run", "Do it.", "--cwd", str(work))
    session_id: str = json.loads(interlock("sessions", "--json").out)["id"]
    return session_id


def test_what_would_change_is_printed_with_the_rules_and_their_lines(
    interlock: Any, ran: str, rules: Path
) -> None:
    ended = interlock("policy", "test", str(rules), "--on", ran)
    assert (ended.code, ended.err) == (1, "")
    lines = ended.out.splitlines()
    assert lines[0] == f"{ran} read#c1 (1.1.1): allow → deny  path=a.txt"
    assert lines[1] == "  was       allow  by preset ask"
    assert lines[2].startswith(f"  would be  deny   by rule Read(a.txt) in {rules}:3: ")
    assert lines[3] == f"{ran} write#c2 (1.1.2): ask → allow  path=b content=x"
    assert lines[-1] == "2 calls of 1 session: 2 would be decided otherwise"


def test_the_exit_code_is_0_when_nothing_would_change(interlock: Any, ran: str, rules: Path) -> None:
    rules.write_text('[permissions]\nallow = ["Read"]\n')
    ended = interlock("policy", "test", str(rules), "--on", "last")
    assert (ended.code, ended.out) == (0, "2 calls of 1 session: 0 would be decided otherwise\n")


def test_as_json_it_is_one_object_a_change(interlock: Any, ran: str, rules: Path) -> None:
    ended = interlock("policy", "test", str(rules), "--on", "last", "--json")
    read, write = [json.loads(line) for line in ended.out.splitlines()]
    assert ended.code == 1
    assert {**read, "call": 0, "reason": ""} == {
        "session": ran,
        "call": 0,
        "id": "c1",
        "place": "1.1.1",
        "tool": "read",
        "arguments": {"path": "a.txt"},
        "was": {"verdict": "allow", "by": "preset ask", "rule": None, "file": None, "line": None},
        "would": {
            "verdict": "deny",
            "by": "rule Read(a.txt)",
            "rule": "Read(a.txt)",
            "file": str(rules),
            "line": 3,
        },
        "reason": "",
    }
    assert (write["was"]["verdict"], write["would"]["verdict"]) == ("ask", "allow")


def test_several_sessions_or_all_of_a_workspace(
    interlock: Any, script: Any, rules: Path, work: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    script(*[answer for _ in range(3) for answer in (calls("read", path="a.txt"), says("Done."))])
    for folder in (work, work, elsewhere):
        interlock("run", "Do it.", "--cwd", str(folder))
    ids = [json.loads(line)["id"] for line in interlock("sessions", "--json").out.splitlines()]

    def summary(*arguments: str) -> str:
        return str(interlock("policy", "test", str(rules), *arguments).out.splitlines()[-1])

    assert summary("--on", *ids) == "3 calls of 3 sessions: 3 would be decided otherwise"
    assert summary("--on", ids[0], "--on", ids[0]) == "1 call of 1 session: 1 would be decided otherwise"
    assert summary("--all", "--cwd", str(work)) == "2 calls of 2 sessions: 2 would be decided otherwise"
    assert summary("--all", "--cwd", str(tmp_path)) == "0 calls of 0 sessions: 0 would be decided otherwise"


def test_another_preset_can_be_tried(interlock: Any, ran: str, rules: Path) -> None:
    rules.write_text("[permissions]\n")
    ended = interlock("policy", "test", str(rules), "--on", "last", "--preset", "plan")
    assert ended.code == 1
    assert "write#c2 (1.1.2): ask → deny" in ended.out
    assert interlock("policy", "test", str(rules), "--on", "last", "--preset", "none").code == 2


@pytest.mark.parametrize(
    ("text", "arguments", "said"),
    [
        ("", ("--all", "--on", "last"), "On which sessions?"),
        ("", (), "On which sessions?"),
        ("[permissions]\ndeny = ['Bash(']\n", ("--on", "last"), "other.toml:2: "),
        ("", ("--on", "nothing"), "No session 'nothing'"),
    ],
)
def test_what_cannot_be_done_is_an_error_and_changes_nothing(
    interlock: Any, rules: Path, text: str, arguments: tuple[str, ...], said: str
) -> None:
    rules.write_text(text)
    ended = interlock("policy", "test", str(rules), *arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
