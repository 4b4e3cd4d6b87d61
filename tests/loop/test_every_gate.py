"""Whoever says no, and in whatever way it fails to say yes, the body does not run.

Generated: every place where somebody can stand in the way of a call, times every way to do so, for every tool in the
box, called by the model, by a tool, and by a tool that a tool called. The proof is what happened outside: the file
system where the tool leaves something there, and a count of its bodies in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import wraps
from inspect import iscoroutine, iscoroutinefunction, isfunction
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from interlock import (
    Accept,
    Advise,
    Agent,
    Allow,
    Approved,
    Ask,
    Deny,
    Harness,
    HookResult,
    Refuse,
    Reject,
    Rejected,
    Rewrite,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
    tool_error,
)
from interlock.intercept.point import Kind
from interlock.log.facts import SubcallEnd, ToolResulted
from interlock.loop.points import POINTS
from interlock.policy.rules.ruleset import RuleSet
from interlock.testing import ScriptedModel, assert_laws, call, calls, says
from interlock.toolkit import workspace
from interlock.tools.definition import Tool

# The tools in the box, each with a call that does something

CALLS: dict[str, dict[str, Any]] = {
    "read": {"path": "a.txt"},
    "write": {"path": "new.txt", "content": "new"},
    "edit": {"path": "a.txt", "old": "hello", "new": "bye"},
    "glob": {"pattern": "*.txt"},
    "grep": {"pattern": "hello"},
    "bash": {"command": "echo x > made.txt"},
}
LEAVES = {"write", "edit", "bash"}  # something in the folder


def test_the_box_has_no_other_tools() -> None:
    assert {made.name for made in workspace()} == set(CALLS)


class Bodies:
    """The tools in the box, with a count of the bodies that were invoked."""

    def __init__(self) -> None:
        self.invoked: list[str] = []

    def tools(self) -> list[Tool]:
        return [replace(made, fn=self._counted(made)) for made in workspace()]

    def _counted(self, made: Tool) -> Callable[..., Any]:
        fn = made.fn
        if iscoroutinefunction(fn):

            @wraps(fn)
            async def body(*arguments: Any, **more: Any) -> Any:
                self.invoked.append(made.name)
                return await fn(*arguments, **more)
        else:

            @wraps(fn)
            def body(*arguments: Any, **more: Any) -> Any:
                self.invoked.append(made.name)
                return fn(*arguments, **more)

        return body


@tool(effect="read")
async def hand_on(ctx: ToolContext, name: str, arguments: dict[str, Any]) -> str:
    """A composite: it calls another tool."""
    return (await ctx.call_tool(name, **arguments)).text


DEPTHS = (0, 1, 2)  # how many tools stand between the model and the tool in question


def asked_for(name: str, depth: int) -> Any:
    wanted = name, CALLS[name]
    for _ in range(depth):
        wanted = "hand_on", {"name": wanted[0], "arguments": wanted[1]}
    return call(wanted[0], **wanted[1])


# The ways to stand in the way of these tools


def of_them(answer: Any) -> Callable[..., Any]:
    """A listener that has something to say about these tools only: a value, or what a function makes of the call."""

    def listener(call: ToolCall, *following: Any) -> Any:
        if call.name not in CALLS:
            return following[0]() if following else None
        return answer(call) if isfunction(answer) else answer

    return listener


def raises(*_: object) -> Any:
    raise RuntimeError("broken")


async def never_answers(*_: object) -> Any:
    await asyncio.Event().wait()


async def cancels_itself(*_: object) -> Any:
    raise asyncio.CancelledError


Allows = type("Allow", (), {})  # a class of somebody's own that is called like the answer
NONSENSE: dict[str, Any] = {
    "a string": "allow",
    "true": True,
    "a class": Allow,
    "a look-alike": Allows(),
    "a dictionary": {"decision": "allow"},
    "a coroutine of one": lambda call: _later("allow"),
}


async def _later(value: Any) -> Any:
    return value


class Obstacle(NamedTuple):
    """One way of standing in the way of a call."""

    name: str
    code: str  # of the result that the model reads
    put: Callable[[Agent], object] = lambda agent: None
    given: Mapping[str, Any] = MappingProxyType({})  # what the agent is made with


def at(point: str, answer: Any, *, timeout: float | None = None) -> Callable[[Agent], object]:
    return lambda agent: getattr(agent.on, point)(of_them(answer), timeout=timeout)


def hook(answer: Any, *, timeout: float | None = None) -> Callable[[Agent], object]:
    said = of_them(answer)
    return lambda agent: agent.hooks.register(
        "PreToolUse", lambda context: said(context.call), timeout=timeout
    )


def asks(agent: Agent) -> object:
    return agent.on.pre_execute(of_them(Ask("sure?")))


def approver(answer: Any) -> dict[str, Any]:
    """Somebody who is asked, and does not say yes."""

    async def asked(request: Any) -> Any:
        said = answer(request) if isfunction(answer) else answer
        return await said if iscoroutine(said) else said

    return {"approver": asked}


class BrokenRules:
    """Rules that cannot decide about these tools."""

    def __init__(self) -> None:
        self.rules = self.sources = self.additional = (self,)

    def decide(self, action: Any) -> Any:
        if action.tool in CALLS:
            raise RuntimeError("broken")
        return RuleSet().decide(action)


def broken_rules(agent: Agent) -> None:
    agent.policy._below = BrokenRules()  # type: ignore[assignment]


def _obstacles() -> Iterator[Obstacle]:
    slow = 0.001  # seconds that somebody who never answers is given
    denied, failed, unsure = "DENIED", "HOOK_EXECUTION_ERROR", "PERMISSION_EVALUATION_ERROR"
    nobody, nonsensical = "APPROVAL_UNAVAILABLE", "HOOK_CONTRACT_ERROR"

    yield Obstacle("prepare refuses", denied, at("prepare", Refuse(ToolError("no"))))
    yield Obstacle("prepare advises no", denied, at("prepare", Advise(Deny("no"))))
    yield Obstacle("prepare rewrites wrongly", nonsensical, at("prepare", Rewrite({"nothing": 1})))
    yield Obstacle("prepare raises", failed, at("prepare", raises))
    yield Obstacle("prepare cancels itself", failed, at("prepare", cancels_itself))
    yield Obstacle("prepare is slow", failed, at("prepare", never_answers, timeout=slow))

    yield Obstacle("pre_execute denies", denied, at("pre_execute", Deny("no")))
    yield Obstacle("pre_execute raises", unsure, at("pre_execute", raises))
    yield Obstacle("pre_execute cancels itself", unsure, at("pre_execute", cancels_itself))
    yield Obstacle("pre_execute is slow", unsure, at("pre_execute", never_answers, timeout=slow))
    yield Obstacle("a rule denies", denied, given={"rules": {"deny": [*CALLS]}})
    yield Obstacle("a rule asks", nobody, given={"rules": {"ask": [*CALLS]}})
    yield Obstacle("the rules raise", unsure, broken_rules)

    yield Obstacle("a guard denies", "GUARD_DENIED", lambda agent: agent.guard(of_them(Deny("no"))))
    yield Obstacle("a guard raises", unsure, lambda agent: agent.guard(of_them(raises)))

    yield Obstacle("nobody is there to ask", nobody, asks)
    yield Obstacle("an approver says no", "APPROVAL_REJECTED", asks, approver(Rejected("no")))
    yield Obstacle("an approver raises", nobody, asks, approver(raises))
    yield Obstacle("an approver cancels itself", nobody, asks, approver(cancels_itself))

    yield Obstacle("execute answers itself", "CACHED", at("execute", _instead))
    yield Obstacle("execute raises", failed, at("execute", raises))
    yield Obstacle("execute is slow", failed, at("execute", never_answers, timeout=slow))

    blocks = HookResult(blocking_error=tool_error("hook_blocked", "no"))
    yield Obstacle("a hook blocks", "HOOK_BLOCKED", hook(blocks))
    yield Obstacle("a hook advises no", denied, hook(HookResult(permission_behavior="deny")))
    yield Obstacle("a hook has it asked", nobody, hook(HookResult(permission_behavior="ask")))
    yield Obstacle(
        "a hook answers for another event", nonsensical, hook(HookResult(prevent_continuation=True))
    )
    yield Obstacle("a hook raises", failed, hook(raises))
    yield Obstacle("a hook is slow", failed, hook(never_answers, timeout=slow))

    for what, nonsense in NONSENSE.items():
        for point in ("prepare", "pre_execute", "execute"):
            yield Obstacle(f"{point} answers {what}", nonsensical, at(point, nonsense))
        yield Obstacle(
            f"a guard answers {what}", nonsensical, lambda agent, x=nonsense: agent.guard(of_them(x))
        )
        yield Obstacle(f"a hook answers {what}", nonsensical, hook(nonsense))
        yield Obstacle(f"an approver answers {what}", nobody, asks, approver(nonsense))


def _instead(call: ToolCall) -> ToolResult:
    failed = tool_error("cached", "there was an answer already")
    return ToolResult(call=call, content=failed.content, error=failed.error)


OBSTACLES = list(_obstacles())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("hello\n")
    return tmp_path


def state(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def codes(agent: Agent) -> list[str]:
    """Of the calls and nested calls that failed, in the order of their ends."""
    return [fact.error.code for fact in agent.session.facts(SubcallEnd, ToolResulted) if fact.error]


def agent_for(names: Iterable[str], depth: int, folder: Path, bodies: Bodies, **more: Any) -> Agent:
    model = ScriptedModel(calls(*[asked_for(name, depth) for name in names]), says("So be it."))
    return Agent(model, tools=[*bodies.tools(), hand_on], cwd=folder, **more)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("name", CALLS)
async def test_each_call_does_something_when_nobody_is_in_the_way(
    name: str, depth: int, folder: Path
) -> None:
    """So that what follows cannot hold for want of an effect."""
    bodies, before = Bodies(), state(folder)
    async with agent_for([name], depth, folder, bodies) as agent:
        assert (await agent.run("go")).ok
        assert (bodies.invoked, codes(agent)) == ([name], [])
    assert (state(folder) != before) == (name in LEAVES)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("obstacle", OBSTACLES, ids=lambda obstacle: obstacle.name.replace(" ", "-"))
async def test_no_body_runs_past_whoever_stands_in_the_way(
    obstacle: Obstacle, depth: int, folder: Path
) -> None:
    bodies, before = Bodies(), state(folder)
    async with agent_for(CALLS, depth, folder, bodies, **obstacle.given) as agent:
        obstacle.put(agent)
        await agent.run("go")
        assert bodies.invoked == []
        assert codes(agent).count(obstacle.code) >= len(CALLS)
        assert_laws(agent.session)
    assert state(folder) == before


# Before there is a call at all

EARLY: dict[str, Callable[[Agent], object]] = {
    "pre_step rejects": lambda agent: agent.on.pre_step(lambda proposal: Reject("no")),
    **{
        f"{point} {how}": lambda agent, point=point, fn=fn: getattr(agent.on, point)(
            fn, timeout=0.001 if fn is never_answers else None
        )
        for point in ("pre_step", "request")
        for how, fn in (("raises", raises), ("is slow", never_answers), ("answers nonsense", lambda _: "yes"))
    },
    "model_stream raises": lambda agent: agent.on.model_stream(raises),
    "model_stream answers nonsense": lambda agent: agent.on.model_stream(lambda request, following: "yes"),
    "a prompt hook raises": lambda agent: agent.hooks.register("UserPromptSubmit", raises),
    "a prompt hook answers nonsense": lambda agent: agent.hooks.register("UserPromptSubmit", lambda c: "yes"),
}


@pytest.mark.parametrize("way", EARLY)
async def test_no_body_runs_in_a_step_that_was_not_to_be(way: str, folder: Path) -> None:
    bodies, before = Bodies(), state(folder)
    async with agent_for(CALLS, 0, folder, bodies) as agent:
        EARLY[way](agent)
        assert not (await agent.run("go")).ok
        assert (bodies.invoked, codes(agent)) == ([], [])
    assert state(folder) == before


# Guards, against everybody who says yes


def yes_of_everybody(agent: Agent) -> None:
    agent.hooks.register("PreToolUse", lambda context: HookResult(permission_behavior="allow"))
    agent.on.prepare(lambda call: Advise(Allow()))
    agent.on.pre_execute(lambda call: Allow())
    agent.on.execute(lambda call, following: following())
    agent.on.post_execute(lambda call, result: Accept())


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("where", ["harness", "preset", "agent", "while it was asked"])
async def test_no_tool_reaches_its_body_past_a_guard(where: str, depth: int, folder: Path) -> None:
    """Whoever else says yes, in whatever layer the guard is, and however late it comes."""
    bodies, before = Bodies(), state(folder)
    lock = of_them(Deny("locked"))

    async def asked(request: Any) -> Approved:
        if where == "while it was asked":
            request.call.agent.guard(lock)
        return Approved()

    model = ScriptedModel(calls(*[asked_for(name, depth) for name in CALLS]), says("So be it."))
    async with Harness(model=model, tools=[*bodies.tools(), hand_on]) as harness:
        layer = harness.preset("careful")
        async with layer.agent(cwd=folder, approver=asked, preset="full", rules={"allow": [*CALLS]}) as agent:
            yes_of_everybody(agent)
            if where == "while it was asked":
                agent.on.pre_execute(of_them(Ask("sure?")))
            else:
                {"harness": harness, "preset": layer, "agent": agent}[where].guard(lock)
            await agent.run("go")
            assert bodies.invoked == []
            assert codes(agent).count("GUARD_DENIED") >= len(CALLS)
            assert_laws(agent.session)
    assert state(folder) == before


GATES = {
    "agent/pre-step",
    "agent/request",
    "llm/stream",
    "tools/prepare",
    "tools/pre-execute",
    "guard",
    "tools/execute",
}
OTHERS = {point.attribute: point for point in POINTS if point.name not in GATES}


def test_every_point_is_tried_here() -> None:
    """A point is a gate, tried above, or it stands beside or behind the body, tried below."""
    assert {point.name for point in POINTS} == GATES | {point.name for point in OTHERS.values()}
    assert all(
        point.kind is Kind.OBSERVE or attribute in ("request_error", "post_execute", "turn_stopping")
        for attribute, point in OTHERS.items()
    )


@pytest.mark.parametrize("attribute", OTHERS)
async def test_whoever_is_no_gate_opens_none(attribute: str, folder: Path) -> None:
    """Observers and reviewers that say yes, or break, let nothing past that was denied."""
    bodies, before = Bodies(), state(folder)
    agent = agent_for(CALLS, 0, folder, bodies)
    for answer in (lambda *_: Allow(), raises):
        register = agent.on.observe() if attribute == "observe" else getattr(agent.on, attribute)
        register(answer)
    agent.guard(of_them(Deny("locked")))
    async with agent:
        await agent.run("go")
        assert bodies.invoked == []
        assert len(codes(agent)) == len(CALLS)
        assert_laws(agent.session)
    assert state(folder) == before
