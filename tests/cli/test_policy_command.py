"""`interlock policy`: what would be decided, what is wrong with the rules, and which are in force."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.main import main

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs a command line in an empty home folder; its exit code, output and errors."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)

    def run(*arguments: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with pytest.raises(SystemExit) as caught:
            main(["policy", *arguments])
        out, err = capfdbinary.readouterr()
        return int(caught.value.code or 0), out.decode(), err.decode()

    return run


def rules(text: str) -> None:
    Path("interlock.toml").write_text(text)


RULES = '[permissions]\nallow = ["Bash(git log:*)", "Bash(git status)"]\ndeny = ["Bash(git push:*)"]\n'


def test_decide_names_each_part_and_the_rule_with_its_place(run: Run) -> None:
    rules(RULES)
    code, out, _ = run("decide", "Bash", "git status && git push")
    lines = out.splitlines()
    assert code == 0
    assert lines[0] == "deny  Bash  git status && git push"
    assert lines[1].split() == [
        "command",
        "git",
        "status",
        "allow",
        "Bash(git",
        "status)",
        "interlock.toml:2",
    ]
    assert lines[2].split() == ["command", "git", "push", "deny", "Bash(git", "push:*)", "interlock.toml:3"]
    assert lines[3].startswith("by rule Bash(git push:*)  interlock.toml:3: ")


@pytest.mark.parametrize(
    ("arguments", "verdict", "by"),
    [
        (("Bash", "git log -3"), "allow", "rule Bash(git log:*)"),
        (("bash", '{"command": "git log -3"}'), "allow", "rule Bash(git log:*)"),
        (("Bash", "{ git status; git push; }"), "deny", "rule Bash(git push:*)"),
        (("Bash", "make"), "ask", "preset ask"),
        (("Bash", "make", "--preset", "plan"), "deny", "preset plan"),
        (("Bash", "make", "--preset", "full"), "allow", "preset full"),
        (("Read", "a.txt"), "allow", "preset ask"),
        (("Edit", ".git/config", "--preset", "full"), "ask", "caution"),
        (("Bash", "git log '", "--preset", "full"), "ask", "caution"),
        (("mcp__x__y", "{}"), "ask", "preset ask"),
    ],
)
def test_decide_as_json(run: Run, arguments: tuple[str, ...], verdict: str, by: str) -> None:
    rules(RULES)
    code, out, _ = run("decide", *arguments, "--json")
    made = json.loads(out)
    assert (code, made["verdict"], made["by"]) == (0, verdict, by)
    assert set(made) == {"tool", "verdict", "by", "reason", "rule", "file", "line", "parts", "matched"}


def test_decide_answers_each_line_of_its_input(run: Run) -> None:
    rules(RULES)
    lines: list[dict[str, Any]] = [
        {"tool": "Bash", "input": "git push"},
        {"tool": "Bash", "input": {"command": "git status"}},
    ]
    code, out, _ = run("decide", stdin="\n".join(json.dumps(line) for line in lines) + "\n\n")
    assert code == 0
    assert [json.loads(line)["verdict"] for line in out.splitlines()] == ["deny", "allow"]


@pytest.mark.parametrize(
    "line", ["git push", '["Bash", "x"]', '{"tool": "Bash"}', '{"tool": 1, "input": "x"}']
)
def test_a_line_that_is_no_call_is_named(run: Run, line: str) -> None:
    code, _, err = run("decide", stdin=f'{{"tool": "Bash", "input": "ls"}}\n{line}\n')
    assert code == 2 and "line 2 of standard input" in err


def test_decide_under_the_rules_of_one_file_and_for_another_folder(run: Run, tmp_path: Path) -> None:
    rules(RULES)
    (tmp_path / "other.json").write_text('{"permissions": {"ask": ["Bash(git:*)"]}}')
    assert (
        json.loads(run("decide", "Bash", "git push", "--rules", "../other.json", "--json")[1])["verdict"]
        == "ask"
    )
    assert (
        json.loads(run("decide", "Bash", "git push", "--cwd", str(tmp_path), "--json")[1])["verdict"] == "ask"
    )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("decide", "Bash"), "What is the call about?"),
        (("decide", "Bash", "ls", "--preset", "yolo"), "no preset 'yolo'"),
        (("decide", "Bash", "ls", "--rules", "gone.toml"), "gone.toml: there is no such file"),
        (("decide", "Bash", "ls", "--cwd", "nowhere"), "nowhere is no folder"),
        (("show", "--cwd", "nowhere"), "nowhere is no folder"),
    ],
)
def test_what_cannot_be_answered_says_what_to_do(run: Run, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = run(*arguments)
    assert code == 2 and said in err


def test_a_broken_file_of_rules_stops_every_command(run: Run) -> None:
    rules('[permissions]\nallow = ["Bash(ls)", "Bash("]\n')
    for command in (("decide", "Bash", "ls"), ("lint",), ("show",)):
        code, out, err = run(*command)
        assert (code, out) == (2, "") and "interlock.toml:2: 'Bash(' is not a rule" in err


def test_lint_names_mistakes_with_their_place(run: Run) -> None:
    rules('[permissions]\nallow = ["Bash(git log:*)"]\ndeny = ["Bsh(rm:*)"]\n')
    code, out, _ = run("lint")
    assert code == 1
    assert "interlock.toml:3: warning: Bsh(rm:*)" in out
    code, out, _ = run("lint", "--json")
    assert {"file": "interlock.toml", "line": 3}.items() <= json.loads(out.splitlines()[0]).items()
    rules("")
    assert run("lint")[:2] == (0, "0 rules, 0 findings\n")


def test_show_prints_every_rule_with_its_origin(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules(RULES)
    assert run("show")[1].splitlines() == [
        "deny   Bash(git push:*)  (project: interlock.toml:3)",
        "allow  Bash(git log:*)  (project: interlock.toml:2)",
        "allow  Bash(git status)  (project: interlock.toml:2)",
    ]
    top = tmp_path / "top.toml"
    top.write_text('[permissions]\nask = ["Bash(git log:*)"]\n')
    monkeypatch.setenv("INTERLOCK_CEILING", str(top))
    out = run("show", "--effective")[1].splitlines()
    assert out[:3] == [
        "preset ask: tools that read run, for the rest a person is asked",
        "sandbox full: commands are not confined",
        f"ceiling {top}",
    ]
    assert f"ask    Bash(git log:*)  (ceiling: {top}:2)" in out
    shown = json.loads(run("show", "--effective", "--json")[1])
    assert [rule["origin"] for rule in shown["rules"]] == ["ceiling", "project", "project", "project"]
    assert run("decide", "Bash", "git log")[1].startswith("ask")


@pytest.mark.parametrize(
    ("problem", "said"),
    [(None, "is enforced"), ("install it", "cannot be enforced, and no command runs: install it")],
)
def test_show_says_whether_the_sandbox_can_be_had(
    run: Run, monkeypatch: pytest.MonkeyPatch, problem: str | None, said: str
) -> None:
    rules('preset = "accept-edits"\n')
    monkeypatch.setattr("interlock.process.sandbox.sandbox.found_problem", lambda bwrap: problem)
    assert f"sandbox workspace-write: {said}" in run("show", "--effective")[1].splitlines()


def test_show_says_that_there_are_none(run: Run) -> None:
    assert run("show")[1] == "There are no rules.\n"
