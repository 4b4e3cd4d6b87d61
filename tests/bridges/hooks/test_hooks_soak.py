"""Real programs that misbehave, in a real run: a no is never lost, a gate that fails is closed, nothing is left over."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import ToolContext, tool
from interlock.log.facts import HookProblem, ToolResulted
from interlock.log.reasons import Aborted, Blocked
from interlock.testing import assert_laws, call, calls, outline, says

from .real_hooks import Project, hook_results, on, said_to_model, until
from .scripted_hooks import unanswered

pytestmark = pytest.mark.slow

GATES: dict[str, Any] = {
    "cannot start": {"type": "command", "command": "/nowhere/gate", "args": []},
    "not found": {"type": "command", "command": "/nowhere/gate"},
    "crashes": {"type": "command", "command": "exit 1"},
    "is killed": {"type": "command", "command": "kill -9 $$"},
    "times out": {"type": "command", "command": "sleep 61.25", "timeout": 0.2},
    "nonsense": {"type": "command", "command": """echo '{"hookSpecificOutput": 3}'"""},
    "unknown value": {
        "type": "command",
        "command": """echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "no"}}'""",
    },
    "nobody listens": {"type": "http", "url": "http://127.0.0.1:9/gate"},
    "ignores its input and leaves a child": {
        "type": "command",
        "command": "(sleep 61.25 & ) ; exit 1",
    },
}


def running(marker: str) -> list[str]:
    """Processes whose command line has this in it."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if marker in line and state not in "ZX":
                found.append(line)
    return found


@pytest.mark.parametrize("how", GATES)
@pytest.mark.parametrize("on_failure", [None, "continue"])
async def test_a_gate_that_fails_is_closed_unless_it_may_fail(
    project: Project, how: str, on_failure: str | None
) -> None:
    gate = GATES[how] | ({"onFailure": on_failure} if on_failure else {})
    project.claude({"PreToolUse": [on("Write", gate)]})
    agent = project.agent(calls("write", path="a.txt", content="x"), says("done"))
    async with agent:
        assert (await agent.run("go")).ok
        [result] = agent.session.facts(ToolResulted)
        [heard] = hook_results(agent, "PreToolUse")
        assert heard.error
        if on_failure is None:
            assert result.error is not None and result.error.code == "HOOK_EXECUTION_ERROR"
        assert (project.root / "a.txt").exists() == (on_failure == "continue")
        assert_laws(agent.session)


NO: dict[str, tuple[str, str]] = {
    "exit 2": ("echo no >&2; exit 2", "denied"),
    "decision": (
        """echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "deny", """
        """"permissionDecisionReason": "no"}}'""",
        "denied",
    ),
    "legacy": ("""echo '{"decision": "block", "reason": "no"}'""", "denied"),
    "continue false": ("""echo '{"continue": false, "stopReason": "no"}'""", "hook_stopped_continuation"),
    "no and an allow": (
        """echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}'; """
        """echo no >&2; exit 2""",
        "denied",
    ),
}


@pytest.mark.parametrize("nested", [False, True], ids=["called by the model", "called by a tool"])
@pytest.mark.parametrize("no", NO)
async def test_a_no_before_a_call_is_never_lost(project: Project, no: str, nested: bool) -> None:
    command, code = NO[no]

    @tool
    async def composite(ctx: ToolContext) -> str:
        await ctx.call_tool("write", path="a.txt", content="x")
        return "written"

    allow = (
        """echo '{"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}'"""
    )
    project.claude({"PreToolUse": [on("Write", allow, command, allow)]})
    wanted = calls("composite") if nested else calls("write", path="a.txt", content="x")
    agent = project.agent(wanted, says("done"))
    agent.add_tool(composite)
    async with agent:
        await agent.run("go")
        assert not (project.root / "a.txt").exists()
        assert f"[{code}]" in agent.session.facts(ToolResulted)[0].content[0].text
        assert unanswered(agent) == []
        assert_laws(agent.session)


@pytest.mark.parametrize("event", ["UserPromptSubmit", "PostToolBatch"])
@pytest.mark.parametrize("no", ["echo no >&2; exit 2", """echo '{"decision": "block", "reason": "no"}'"""])
async def test_a_no_before_a_request_keeps_it_from_leaving(project: Project, event: str, no: str) -> None:
    project.claude({event: [no]})
    agent = project.agent(calls("bash", command="echo hi"), says("never"))
    async with agent:
        assert isinstance((await agent.run("go")).reason, Blocked)
        assert len(agent.model.requests) == (event == "PostToolBatch")  # type: ignore[union-attr]
        assert_laws(agent.session)


async def test_a_no_at_a_permission_request_is_never_lost(project: Project) -> None:
    deny = (
        """echo '{"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": """
        """{"behavior": "deny", "message": "no"}}}'"""
    )
    allow = deny.replace("deny", "allow").replace(', "message": "no"', "")
    project.claude({"PermissionRequest": [on("Write", allow, deny)]})
    agent = project.agent(calls("write", path="a.txt", content="x"), says("done"), preset="ask")
    async with agent:
        await agent.run("go")
        assert outline(agent.session, "tool/result") == ["tool/result #c1 error APPROVAL_REJECTED no"]
        assert not (project.root / "a.txt").exists()


async def test_two_rewriters_that_end_in_reverse_order_are_folded_as_declared(project: Project) -> None:
    def rewriter(text: str, seconds: float) -> str:
        said = json.dumps(
            {
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "updatedInput": {"command": f"echo {text}"},
                }
            }
        )
        return f"sleep {seconds}; echo '{said}'"

    project.claude({"PreToolUse": [on("Bash", rewriter("first", 0.5), rewriter("second", 0))]})
    agent = project.agent(calls("bash", command="echo x"), says("done"))
    async with agent:
        await agent.run("go")
        assert outline(agent.session, "tool/result") == ["tool/result #c1 second"]
        assert [one.won for one in hook_results(agent, "PreToolUse")] == [False, True]


@pytest.mark.parametrize("event", ["PreToolUse", "UserPromptSubmit", "PostToolUse", "Stop"])
async def test_a_cancel_ends_a_hook_and_all_it_started_within_two_seconds(
    project: Project, event: str
) -> None:
    marker = f"4{os.getpid()}.{event}".replace(".", "")
    digits = "".join(c for c in marker if c.isdigit()) + str(len(event))
    stubborn = f"trap '' TERM; sleep {digits} & touch started; wait; sleep {digits}"
    project.claude({event: [{"hooks": [{"type": "command", "command": stubborn}]}]})
    agent = project.agent(calls("bash", command="echo hi"), says("done"))
    async with agent:
        agent.followup("go")
        await until((project.root / "started").exists)
        began = time.monotonic()
        agent.cancel()
        await agent.idle()
        assert time.monotonic() - began < 2
        assert running(f"sleep {digits}") == []
        assert outline(agent.session)[-1].startswith("turn/end aborted")
        assert unanswered(agent) == []
        assert_laws(agent.session)


async def test_large_input_to_a_program_that_reads_nothing_is_no_failure(project: Project) -> None:
    project.claude({"PreToolUse": [on("Write", "exit 0")]})
    agent = project.agent(calls("write", path="a.txt", content="x" * 900_000), says("done"))
    async with agent:
        await agent.run("go")
        assert (project.root / "a.txt").exists()
        assert [one.error for one in hook_results(agent, "PreToolUse")] == [None]


async def test_a_wrong_event_name_is_reported_once_and_loudly(project: Project) -> None:
    wrong = """echo '{"hookSpecificOutput": {"hookEventName": "PreTool", "additionalContext": "x"}}'"""
    project.claude({"PostToolUse": [on("Bash", wrong)]})
    agent = project.agent(calls(call("bash", command="echo a"), call("bash", command="echo b")), says("done"))
    async with agent:
        await agent.run("go")
        [problem] = agent.session.facts(HookProblem)
        assert "PreTool" in problem.what and problem.file.endswith(".claude/settings.json")
        assert problem.line is not None


async def test_an_edited_file_counts_from_the_next_event_on(project: Project) -> None:
    project.claude({"PreToolUse": [on("Bash", "exit 0")]})
    agent = project.agent(
        calls("bash", command="echo a"), says("one"), calls("bash", command="echo b"), says("two")
    )
    async with agent:
        await agent.run("go")
        project.claude({"PreToolUse": [on("Bash", "echo 'not any more' >&2; exit 2")]})
        await agent.run("again")
        assert outline(agent.session, "tool/result") == [
            "tool/result #c1 a",
            "tool/result #c2 error DENIED not any more",
        ]


async def test_a_background_hook_is_not_waited_for_and_speaks_later(project: Project) -> None:
    later = {
        "type": "command",
        "command": "until [ -e go ]; do sleep 0.02; done; "
        """echo '{"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "it is built"}}'; """
        "touch built",
        "async": True,
    }
    project.claude({"PostToolUse": [on("Bash", later)]})
    agent = project.agent(calls("bash", command="echo a"), *[says("one")] * 1_000)
    async with agent:
        assert (await agent.run("go")).text == "one"
        project.write("go", "")
        await until((project.root / "built").exists)
        while "it is built" not in said_to_model(agent):
            await agent.run("again")
    assert unanswered(agent) == []


async def test_leaving_ends_what_runs_in_the_background(project: Project) -> None:
    digits = f"5{os.getpid()}"
    endless = {"type": "command", "command": f"touch started; sleep {digits}", "async": True}
    project.claude({"SessionStart": [{"hooks": [endless]}]})
    agent = project.agent(says("one"))
    async with agent:
        await until((project.root / "started").exists)
        await agent.run("go")
    assert running(f"sleep {digits}") == []
    assert unanswered(agent) == []


async def test_gemini_hooks_of_one_group_run_one_after_another_and_feed_each_other(project: Project) -> None:
    append = project.script(
        "append.py",
        "import json, sys\n"
        "given = json.load(sys.stdin)['tool_input']\n"
        "said = {'hookSpecificOutput': {'hookEventName': 'BeforeTool',"
        " 'tool_input': {'command': f\"{given['command']} {sys.argv[1]}\"}}}\n"
        "print(json.dumps(said))\n",
    )
    both = on("run_shell_command", f"{append} one", f"{append} two")
    project.gemini({"BeforeTool": [both | {"sequential": True}]})
    agent = project.agent(calls("bash", command="echo x"), says("done"))
    async with agent:
        await agent.run("go")
        assert outline(agent.session, "tool/result") == ["tool/result #c1 x one two"]


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    assert running("sleep 61.25") == []


async def test_a_stopped_turn_says_who_stopped_it(project: Project) -> None:
    deny = (
        """echo '{"hookSpecificOutput": {"hookEventName": "PermissionRequest", "decision": """
        """{"behavior": "deny", "message": "no", "interrupt": true}}}'"""
    )
    project.claude({"PermissionRequest": [on("Write", deny)]})
    agent = project.agent(calls("write", path="a.txt", content="x"), says("never"), preset="ask")
    async with agent:
        reason = (await agent.run("go")).reason
        assert isinstance(reason, Aborted)
        assert (reason.cause.kind, reason.cause.by) == ("hook", "hooks:PermissionRequest")


async def test_variables_of_a_session_start_hook_reach_later_commands(project: Project) -> None:
    project.claude({"SessionStart": """echo 'export GREETING="hello there"' >> "$CLAUDE_ENV_FILE" """})
    agent = project.agent(calls("bash", command="echo $GREETING"), says("done"))
    async with agent:
        await agent.run("go")
        assert outline(agent.session, "tool/result") == ["tool/result #c1 hello there"]
    assert "GREETING" not in os.environ


async def test_a_background_hook_can_wake_an_idle_session(project: Project) -> None:
    wakes = {"type": "command", "command": "echo 'the build broke' >&2; exit 2", "asyncRewake": True}
    project.claude({"PostToolUse": [on("Bash", wakes)]})
    agent = project.agent(calls("bash", command="echo a"), says("one"), says("I look."), says("two"))
    async with agent:
        await agent.run("go")
        await until(lambda: "the build broke" in said_to_model(agent))
        await agent.idle()
        assert_laws(agent.session)
    assert unanswered(agent) == []
