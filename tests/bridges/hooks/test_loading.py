"""Hooks as they are found for a folder: whose may run, from where, and what a session of them is."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from interlock import Agent, ConfigError, Harness
from interlock.bridges.hooks import event as happening
from interlock.bridges.hooks.batch import LastBatch
from interlock.bridges.hooks.bridge import NOT_FIRED, OutsideHooks
from interlock.bridges.hooks.condition import met
from interlock.bridges.hooks.event import EVENTS, Occurrence
from interlock.bridges.hooks.kept import folder_of
from interlock.bridges.hooks.loading import load, trust_store
from interlock.bridges.hooks.session import SessionHooks
from interlock.log.facts import HookInvoked
from interlock.log.reasons import Blocked, Failed
from interlock.policy.ceiling import Ceiling
from interlock.testing import ScriptedModel, calls, says
from interlock.toolkit import workspace

from .real_hooks import Project, on

DENY = "echo no >&2; exit 2"


def invoked(agent: Agent) -> list[str]:
    return [fact.event for fact in agent.session.facts(HookInvoked)]


async def test_without_a_trust_store_all_that_are_found_run(project: Project) -> None:
    project.claude({"SessionStart": "true"})
    async with project.agent(says("ok")) as agent:
        assert invoked(agent) == ["SessionStart"]


async def test_a_repository_s_hooks_wait_for_trust_and_a_person_s_own_do_not(project: Project) -> None:
    project.claude({"SessionStart": "true"})
    own = project.home / ".claude" / "settings.json"
    own.parent.mkdir()
    own.write_text(
        json.dumps({"hooks": {"SessionStart": [{"hooks": [{"type": "command", "command": "exit 0"}]}]}})
    )
    files = []
    for trusted in (False, True):
        if trusted:
            trust_store().trust(project.root)
        agent = Agent(ScriptedModel(says("ok")), cwd=project.root)
        load(project.root, home=project.home, trust=trust_store()).attach(agent)
        async with agent:
            files.append([fact.file for fact in agent.session.facts(HookInvoked)])
    assert [len(one) for one in files] == [1, 2]
    assert (files[0][0] or "").startswith(str(project.home))


async def test_a_ceiling_says_from_where_hooks_may_come(project: Project) -> None:
    project.claude({"SessionStart": "true", "PreToolUse": [on("Bash", DENY)]})
    async with Harness(ceiling=Ceiling(hooks=("user",))) as harness:
        load(project.root, home=project.home).attach(harness)
        model = ScriptedModel(calls("bash", command="echo hi"), says("done"))
        async with harness.agent(model, tools=workspace(), cwd=project.root) as agent:
            await agent.run("go")
            assert invoked(agent) == []


async def test_hooks_that_are_taken_back_are_not_heard(project: Project) -> None:
    project.claude({"UserPromptSubmit": DENY})
    agent = Agent(ScriptedModel(says("ok")), cwd=project.root)
    dispose = load(project.root, home=project.home).attach(agent)
    dispose()
    async with agent:
        assert (await agent.run("go")).ok


async def test_an_agent_that_is_open_already_is_joined_where_it_stands(project: Project) -> None:
    project.claude({"SessionStart": "true", "UserPromptSubmit": DENY, "SessionEnd": "true"})
    async with Agent(ScriptedModel(says("ok")), cwd=project.root) as agent:
        load(project.root, home=project.home).attach(agent)
        assert isinstance((await agent.run("go")).reason, Blocked)
    assert invoked(agent) == ["UserPromptSubmit", "SessionEnd"]


async def test_hooks_that_cannot_be_made_ready_close_the_points_that_want_them(project: Project) -> None:
    def make(agent: Agent) -> SessionHooks:
        raise OSError("no room")

    agent = Agent(
        ScriptedModel(calls("bash", command="touch made"), says("ok")), tools=workspace(), cwd=project.root
    )
    OutsideHooks(make).attach(agent)
    async with agent:
        assert isinstance((await agent.run("go")).reason, Failed)
        assert agent.model.requests == []  # type: ignore[union-attr]
    assert not (project.root / "made").exists()


async def test_the_transcript_is_its_owner_s_alone_and_made_only_when_hooks_run(project: Project) -> None:
    async with project.agent(says("ok")) as agent:
        await agent.run("go")
    assert not folder_of(agent.session.id).exists()
    project.claude({"Stop": "true"})
    async with project.agent(says("ok")) as agent:
        await agent.run("go")
    file = folder_of(agent.session.id) / "transcript.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["uuid"] for line in lines][:-1] == [line["parentUuid"] for line in lines][1:]
    assert lines[0]["message"] == {"role": "user", "content": "go"}


async def test_every_event_that_is_not_excepted_is_fired_by_a_run(project: Project) -> None:
    """`NOT_FIRED` is what the documentation says."""
    from interlock import Ask, ToolError, tool
    from interlock.testing import call, fails

    @tool
    async def broken() -> str:
        raise ToolError("no")

    async def yes(request: object) -> object:
        from interlock import Approved

        return Approved()

    project.claude(dict.fromkeys(EVENTS, "true"))
    agent = project.agent(
        calls(call("bash", command="true"), call("broken")),
        says("done"),
        fails("BAD_REQUEST"),
        approver=yes,
    )
    agent.add_tool(broken)
    agent.on.pre_execute(lambda call: Ask("sure?") if call.name == "bash" else None)
    async with agent:
        await agent.run("go")
        await agent.run("again")
    assert set(EVENTS) - set(invoked(agent)) == NOT_FIRED


# `if`


@pytest.mark.parametrize(
    ("rule", "tool", "arguments", "expected"),
    [
        ("Bash(git push *)", "bash", {"command": "git push origin"}, True),
        ("Bash(git push *)", "bash", {"command": "git pull"}, False),
        ("Bash(git push *)", "bash", {"command": "cd x && CI=1 git push origin"}, True),
        ("Bash(git push *)", "bash", {"command": "echo $(git push origin)"}, True),
        ("Bash(git push *)", "read", {"path": "a"}, False),
        ("Edit(*.ts)", "edit", {"path": "src/a.ts", "old": "a", "new": "b"}, True),
        ("Edit(*.ts)", "write", {"path": "a.py", "content": ""}, False),
        ("Edit(*.ts)", "write", {"path": ".git/config", "content": ""}, False),
        ("Read", "read", {"path": "a"}, True),
    ],
)
def test_an_if_is_one_permission_rule(
    tmp_path: Path, rule: str, tool: str, arguments: dict[str, str], expected: bool
) -> None:
    what = happening.PreToolUse(tool=tool, tool_use_id="c1", input=arguments)
    occurrence = Occurrence(what=what, session_id="s", cwd=tmp_path, project=tmp_path)
    assert met(rule, occurrence) is expected


def test_an_if_that_is_no_rule_is_an_error_that_the_runner_takes_as_met(tmp_path: Path) -> None:
    what = happening.PreToolUse(tool="bash", tool_use_id="c1", input={"command": "ls"})
    occurrence = Occurrence(what=what, session_id="s", cwd=tmp_path, project=tmp_path)
    with pytest.raises(ConfigError):
        met("Bash(", occurrence)


async def test_an_if_on_an_event_without_a_tool_is_never_met(tmp_path: Path) -> None:
    what = happening.Stop(stop_hook_active=False)
    assert not met("Bash", Occurrence(what=what, session_id="s", cwd=tmp_path, project=tmp_path))


async def test_the_last_batch_is_told_once(project: Project) -> None:
    agent = Agent(
        ScriptedModel(calls("bash", command="echo a"), says("done")), tools=workspace(), cwd=project.root
    )
    async with agent:
        batch = LastBatch(agent.session)
        seen = []
        agent.on.pre_step(lambda proposal: seen.append(batch.take()))
        await agent.run("go")
        assert [[one.response for one in taken] for taken in seen] == [[], ["a"]]
        assert batch.take() == ()
        batch.close()
