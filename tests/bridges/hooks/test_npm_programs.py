"""`block-no-verify` and `tdd-guard`, unmodified from npm, as hooks of a real run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from interlock.log.reasons import Blocked
from interlock.testing import assert_laws, call, calls, outline, says
from servers import aimock_server

from .real_hooks import Project, hook_results, on

BIN = Path(__file__).parent / "programs" / "node_modules" / ".bin"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        shutil.which("node") is None or not BIN.is_dir(),
        reason="the hook programs are not installed: run `npm ci` in tests/bridges/hooks/programs, with Node 20 or newer",
    ),
]

BLOCK_NO_VERIFY = str(BIN / "block-no-verify")
TDD_GUARD = str(BIN / "tdd-guard")

TEST_FILE = "test('adds', () => {\n  expect(add(1, 2)).toBe(3)\n})\n"


async def test_block_no_verify_lets_commits_through_but_not_past_their_hooks(project: Project) -> None:
    project.claude({"PreToolUse": [on("Bash", BLOCK_NO_VERIFY)]})
    commands = ["git commit --no-verify -m x", "git -c core.hooksPath=/dev/null commit -m x", "echo fine"]
    agent = project.agent(calls(*[call("bash", command=one) for one in commands]), says("done"))
    async with agent:
        assert (await agent.run("go")).ok
        first, second, third = outline(agent.session, "tool/result")
        assert "error DENIED BLOCKED: --no-verify flag is not allowed with git commit" in first
        assert "error DENIED BLOCKED:" in second
        assert third == "tool/result #c3 fine"
        assert [(one.exit, one.won) for one in hook_results(agent, "PreToolUse")] == [
            (2, True),
            (2, True),
            (0, False),
        ]
        assert_laws(agent.session)


async def test_block_no_verify_also_speaks_as_a_codex_hook(project: Project) -> None:
    project.codex({"PreToolUse": [on("Bash", BLOCK_NO_VERIFY)]})
    agent = project.agent(calls("bash", command="git commit -n -m x"), says("done"))
    async with agent:
        await agent.run("go")
        assert "error DENIED BLOCKED: --no-verify" in outline(agent.session, "tool/result")[0]


def tdd_guard(project: Project) -> None:
    """As its documentation says to configure it."""
    project.claude(
        {
            "PreToolUse": [on("Write|Edit|MultiEdit|TodoWrite", TDD_GUARD)],
            "UserPromptSubmit": TDD_GUARD,
            "SessionStart": [on("startup|resume|clear", TDD_GUARD)],
        }
    )


def guard_data(project: Project, name: str, value: Any) -> None:
    project.write(f".claude/tdd-guard/data/{name}.json", json.dumps(value))


def green_tests_with_lint_problems(project: Project) -> None:
    passed = {"name": "adds", "fullName": "adds", "state": "passed"}
    guard_data(project, "test", {"testModules": [{"moduleId": "a.test.js", "tests": [passed]}]})
    issue = {"file": "a.js", "line": 1, "column": 1, "severity": "error", "message": "no-var"}
    guard_data(
        project,
        "lint",
        {
            "timestamp": "2026-01-01",
            "files": ["a.js"],
            "issues": [issue],
            "errorCount": 1,
            "warningCount": 0,
            "hasNotifiedAboutLintIssues": False,
        },
    )


async def test_tdd_guard_passes_one_new_test_and_blocks_while_lint_is_broken(project: Project) -> None:
    tdd_guard(project)
    agent = project.agent(calls("write", path="add.test.js", content=TEST_FILE), says("a test"))
    async with agent:
        await agent.run("write a test")
        assert outline(agent.session, "tool/result")[0].startswith("tool/result #c1 ")
        assert (project.root / "add.test.js").read_text() == TEST_FILE
        assert {one.exit for one in hook_results(agent, "PreToolUse")} == {0}
        assert_laws(agent.session)

    agent = project.agent(calls("write", path="add.js", content="var a\n"), says("stopped"))
    async with agent:
        green_tests_with_lint_problems(project)  # it forgets both when a session starts
        await agent.run("write the code")
        assert "error DENIED Code quality issues detected" in outline(agent.session, "tool/result")[0]
        assert not (project.root / "add.js").exists()


async def test_tdd_guard_is_toggled_by_a_prompt_that_the_model_never_sees(project: Project) -> None:
    tdd_guard(project)
    agent = project.agent(
        calls("write", path="add.js", content="var a\n"),
        says("written"),
        calls("write", path="b.js", content="var b\n"),
        says("not written"),
    )
    async with agent:
        green_tests_with_lint_problems(project)
        assert (await agent.run("tdd-guard off")).reason == Blocked(
            "TDD Guard disabled", "hooks:UserPromptSubmit"
        )
        await agent.run("write the code")
        assert (project.root / "add.js").exists()
        assert isinstance((await agent.run("tdd-guard on")).reason, Blocked)
        await agent.run("write more code")
        assert "Code quality issues detected" in outline(agent.session, "tool/result")[1]
        assert not (project.root / "b.js").exists()
        assert [line for line in outline(agent.session, "user/message") if "tdd-guard" in line] == []
        assert_laws(agent.session)


@pytest.mark.parametrize("decision", ["block", None])
async def test_tdd_guard_asks_a_model_of_its_own(
    project: Project, monkeypatch: pytest.MonkeyPatch, decision: str | None
) -> None:
    verdict = json.dumps({"decision": decision, "reason": "write a failing test first"})
    with aimock_server([{"match": {}, "response": {"content": verdict}}]) as server:
        monkeypatch.setenv("VALIDATION_CLIENT", "api")
        monkeypatch.setenv("TDD_GUARD_ANTHROPIC_API_KEY", "test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        tdd_guard(project)
        agent = project.agent(calls("write", path="add.js", content="let a\n"), says("done"))
        async with agent:
            await agent.run("write the code")
            [result] = outline(agent.session, "tool/result")
            assert ("error DENIED write a failing test first" in result) == (decision == "block")
            assert (project.root / "add.js").exists() == (decision is None)
