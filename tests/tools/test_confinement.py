"""A call that is to be confined does not run where that cannot be had, and nobody is asked about it."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import Accept, Agent, ApprovalRequest, Approved, ToolContext, tool
from interlock.log.facts import SubcallEnd
from interlock.testing import ScriptedModel, assert_laws, call, calls, outline, says
from interlock.tools.confinement import SandboxMode

from .calling import codes, log, ran, texts

MISSING = "bubblewrap is not installed: apt install bubblewrap"


class Confining:
    """A confinement with this problem; `None` at the end of the list stays."""

    def __init__(self, *problems: str | None, mode: SandboxMode = "read-only") -> None:
        self.mode = mode
        self.problems = list(problems)

    def problem(self) -> str | None:
        return self.problems.pop(0) if len(self.problems) > 1 else self.problems[0]


class Broken(Confining):
    def problem(self) -> str | None:
        raise ValueError("a bug")


@tool(sandbox=True)
async def shell(ctx: ToolContext, command: str) -> str:
    ran.append(command)
    return f"{command} in {ctx.confinement.mode if ctx.confinement else 'nothing'}"


@tool
async def write(ctx: ToolContext, name: str) -> str:
    ran.append(name)
    return f"{name} in {ctx.confinement}"


@tool
async def outer(ctx: ToolContext) -> Any:
    return (await ctx.call_tool("shell", command="inner")).value


def agent_in(confinement: Confining | None, *wanted: Any, **options: Any) -> Agent:
    agent = Agent(ScriptedModel(calls(*wanted), says("done")), tools=[shell, write, outer], **options)
    agent.confinement = confinement
    return agent


async def run(agent: Agent) -> None:
    async with agent:
        assert (await agent.run("go")).ok
        assert_laws(agent.session)


async def test_a_call_that_cannot_be_confined_is_denied_with_what_to_install_and_does_not_run() -> None:
    agent = agent_in(Confining(MISSING), call("shell", command="ls"))
    await run(agent)
    assert ran == []
    assert outline(agent.session, "tool/decided", "tool/started", "tool/result") == [
        f"tool/decided #c1 deny by sandbox: {MISSING}",
        f"tool/result #c1 error SANDBOX_UNAVAILABLE {MISSING}",
    ]
    assert texts(agent) == [f"Error [sandbox_unavailable]: {MISSING}"]


async def test_nobody_is_asked_about_it() -> None:
    asked: list[ApprovalRequest] = []

    async def ada(request: ApprovalRequest) -> Approved:
        asked.append(request)
        return Approved()

    agent = agent_in(Confining(MISSING), call("shell", command="ls"), approver=ada, preset="ask")
    agent.confinement = Confining(MISSING)
    await run(agent)
    assert (asked, ran) == ([], [])
    assert codes(agent) == ["SANDBOX_UNAVAILABLE"]
    assert not [line for line in log(agent) if line.startswith(("AA", "ST"))]


async def test_it_is_looked_at_again_right_before_the_body() -> None:
    """It may be gone by the time a person has said yes."""
    confinement = Confining(None, MISSING)

    async def ada(request: ApprovalRequest) -> Approved:
        return Approved()

    agent = agent_in(confinement, call("shell", command="ls"), approver=ada, preset="ask")
    agent.confinement = confinement
    await run(agent)
    assert ran == []
    assert codes(agent) == ["SANDBOX_UNAVAILABLE"]


async def test_a_nested_call_is_held_to_it_too() -> None:
    agent = agent_in(Confining(MISSING), call("outer"))
    await run(agent)
    assert ran == []
    assert codes(agent) == ["SANDBOX_UNAVAILABLE"]
    [end] = agent.session.facts(SubcallEnd)
    assert end.error is not None
    assert end.error.code == "SANDBOX_UNAVAILABLE"


async def test_other_tools_run_and_do_not_see_the_confinement() -> None:
    agent = agent_in(Confining(MISSING), call("write", name="a"))
    await run(agent)
    assert texts(agent) == ["a in None"]


@pytest.mark.parametrize("confinement", [Confining(None), Confining(None, mode="full"), None])
async def test_where_it_can_be_had_the_body_is_told_how(confinement: Confining | None) -> None:
    agent = agent_in(confinement, call("shell", command="ls"))
    await run(agent)
    assert texts(agent) == [f"ls in {confinement.mode if confinement else 'nothing'}"]


async def test_a_confinement_that_fails_in_saying_so_means_no_and_nobody_reviews() -> None:
    agent = agent_in(Broken(None), call("shell", command="ls"))
    seen: list[object] = []
    agent.on.post_execute(lambda call, result: seen.append(result) or Accept())
    await run(agent)
    assert (ran, seen) == ([], [])
    assert texts(agent) == ["Error [permission_evaluation_error]: sandbox: a bug"]


async def test_a_denial_of_it_is_reviewed_as_any_denial() -> None:
    agent = agent_in(Confining(MISSING), call("shell", command="ls"))
    seen: list[object] = []
    agent.on.post_execute(lambda call, result: seen.append(result.error.code) or Accept())
    await run(agent)
    assert seen == ["SANDBOX_UNAVAILABLE"]
