"""Calls that a tool makes: the whole pipeline again, inside the outer call."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock import (
    Accept,
    Agent,
    Ask,
    Deny,
    Rewrite,
    ToolCall,
    ToolContext,
    ToolError,
    ToolOutput,
    UnknownTool,
    tool,
)
from interlock.log.facts import SubcallEnd, SubcallStart
from interlock.testing import ScriptedModel, assert_laws, calls

from .calling import Trace, calling, codes, contexts, log, raise_value_error, ran, told, wait

pytestmark = pytest.mark.virtual


@tool
async def outer(names: list[str], ctx: ToolContext) -> str:
    """Call `wait` for each name, one after the other."""
    return ",".join([(await ctx.call_tool("wait", name=name)).text or "" for name in names])


async def test_a_nested_call_goes_through_the_whole_pipeline() -> None:
    """TP-25."""
    trace, seen = Trace(), list[ToolCall]()
    agent = calling("outer", names=["a"], tools=[wait, outer])
    trace.everywhere(agent)
    agent.on.pre_execute(lambda call: seen.append(call))
    assert await told(agent) == ["a"]
    assert trace.of("c1:wait") == [
        "prepare", "pre", "guard", "guard", "around in", "around out", "post", "result",
    ]  # fmt: skip
    assert log(agent) == [
        "TC c1",
        "ST c1",
        "SB c1:wait",
        "ST c1:wait",
        "SX c1:wait ok",
        "TR c1 ok",
        "SE 1.1 tools",
    ]
    assert seen[1].parent is not None and (seen[1].parent.id, seen[1].parent.key) == ("c1", seen[0].key)
    (started,) = agent.session.facts(SubcallStart)
    assert (started.outer, started.name, started.arguments, started.effect) == (
        seen[0].key, "wait", {"name": "a"}, "read",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "prepare", "code"),
    [
        ({"name": "a"}, "deny", "DENIED"),
        ({"name": "a"}, "guard", "GUARD_DENIED"),
        ({"name": "a"}, "ask", "APPROVAL_UNAVAILABLE"),
        ({"name": "a"}, "raise", "PERMISSION_EVALUATION_ERROR"),
        ({"name": 1}, None, "INVALID_ARGS"),
    ],
)
async def test_a_nested_call_that_fails_is_raised_to_the_outer_body(
    arguments: dict[str, Any], prepare: str | None, code: str
) -> None:
    """TP-25."""
    caught: list[ToolError] = []

    @tool
    async def tries(ctx: ToolContext) -> str:
        try:
            await ctx.call_tool("wait", **arguments)
        except ToolError as error:
            caught.append(error)
        return "went on"

    agent = calling("tries", tools=[wait, tries])
    answers = {"deny": Deny("no"), "ask": Ask("?")}
    if prepare == "guard":
        agent.guard(lambda call: Deny("no") if call.name == "wait" else None)
    elif prepare == "raise":
        agent.on.pre_execute(lambda call: raise_value_error() if call.name == "wait" else None)
    elif prepare is not None:
        agent.on.pre_execute(lambda call: answers[prepare] if call.name == "wait" else None)
    assert await told(agent) == ["went on"]
    assert [error.code for error in caught] == [code]
    (ended,) = agent.session.facts(SubcallEnd)
    assert ended.error is not None and ended.error.code == code


async def test_a_nested_call_of_an_unknown_tool_or_with_what_is_no_json_is_raised() -> None:
    """TP-03."""
    caught: list[str] = []

    @tool
    async def tries(ctx: ToolContext) -> str:
        for name, value in (("nobody", 1), ("wait", object())):
            try:
                await ctx.call_tool(name, name=value)
            except (UnknownTool, ValueError) as error:
                caught.append(type(error).__name__)
        return "went on"

    agent = calling("tries", tools=[wait, tries])
    assert await told(agent) == ["went on"]
    assert caught == ["UnknownTool", "NotJSON"]


async def test_an_outer_body_that_does_not_catch_fails_with_the_code_of_its_nested_call() -> None:
    agent = calling("outer", names=["a"], tools=[wait, outer])
    agent.on.pre_execute(lambda call: Deny("no") if call.name == "wait" else None)
    (text,) = await told(agent)
    assert codes(agent) == ["DENIED"] and "no" in text


async def test_contexts_and_a_conclusion_of_nested_calls_ride_on_the_outer_result_in_order() -> None:
    """TP-25, TP-21: never before the outer result; D-1b."""

    @tool
    async def inner(name: str, ctx: ToolContext) -> str:
        ctx.defer(f"deferred {name}")
        ctx.conclude()
        return name

    @tool
    async def composite(ctx: ToolContext) -> ToolOutput:
        await ctx.call_tool("inner", name="a")
        await ctx.call_tool("inner", name="b")
        ctx.defer("its own")
        return ToolOutput("done", contexts=["returned"])

    agent = Agent(ScriptedModel(calls("composite")), tools=[inner, composite])
    agent.on.post_execute(lambda call, result: Accept(contexts=[f"about {call.name}"]))
    async with agent:
        assert (await agent.run("go")).ok
        assert contexts(agent) == [
            "deferred a", "about inner", "deferred b", "about inner", "its own", "returned", "about composite",
        ]  # fmt: skip
        assert log(agent)[-1] == "SE 1.1 concluded"
        assert_laws(agent.session)


async def test_nested_calls_are_ordered_among_themselves_and_never_conflict_with_an_ancestor() -> None:
    """D-17, TP-25: the outer call is exclusive, and so are two of the nested ones."""

    @tool
    async def alone(name: str) -> str:
        ran.append(f"{name} begins")
        await asyncio.sleep(1)
        ran.append(f"{name} ends")
        return name

    @tool
    async def composite(ctx: ToolContext) -> str:
        done = await asyncio.gather(*[ctx.call_tool("alone", name=name) for name in "ab"])
        return "".join([one.text or "" for one in done])

    agent = calling("composite", tools=[alone, composite])
    assert await told(agent) == ["ab"]
    assert ran == ["a begins", "a ends", "b begins", "b ends"]


async def test_a_nested_call_may_have_nested_calls() -> None:
    @tool
    async def outermost(ctx: ToolContext) -> str:
        return (await ctx.call_tool("outer", names=["a", "b"])).text or ""

    agent = calling("outermost", tools=[wait, outer, outermost])
    assert await told(agent) == ["a,b"]
    assert [token for token in log(agent) if token[:2] in ("SB", "SX")] == [
        "SB c1:outer", "SB c1:outer:wait", "SX c1:outer:wait ok", "SB c1:outer:wait", "SX c1:outer:wait ok",
        "SX c1:outer ok",
    ]  # fmt: skip


async def test_nested_calls_have_a_pool_of_their_own() -> None:
    """TP-25: the same cap, and an outer call that waits for them holds none of their places."""

    @tool
    async def composite(ctx: ToolContext) -> str:
        await asyncio.gather(*[ctx.call_tool("wait", name=str(n), seconds=1) for n in range(4)])
        return f"{asyncio.get_running_loop().time():g} s"

    assert await told(calling("composite", tools=[wait, composite], pool=2)) == ["2 s"]


async def test_what_an_outer_body_leaves_running_is_told_awaited_and_on_record() -> None:
    """TP-25: the end of the run ends what is in flight, and drops what has not started."""
    left: list[asyncio.Task[Any]] = []

    @tool
    async def leaves(ctx: ToolContext) -> str:
        nested = [ctx.call_tool("wait", name=str(n), seconds=9) for n in range(3)]
        left.extend(map(asyncio.create_task, nested))
        await asyncio.sleep(1)
        return "done"

    agent = calling("leaves", tools=[wait, leaves], pool=1)
    assert await told(agent) == ["done"]
    assert asyncio.get_running_loop().time() == 1
    assert ran == ["0"]
    assert [type(error).__name__ for error in await asyncio.gather(*left, return_exceptions=True)] == [
        "ToolError"
    ] * 3
    assert [token for token in log(agent) if token.startswith("SX")] == [
        "SX c1:wait ERR[ABORTED]",
        "SX c1:wait ERR[ABORTED_BEFORE_DISPATCH]",
        "SX c1:wait ERR[ABORTED_BEFORE_DISPATCH]",
    ]


async def test_a_stop_reaches_nested_calls() -> None:
    agent = calling("outer", names=["a", "b"], tools=[wait.with_(timeout=None), outer])
    agent.on.prepare(lambda call: Rewrite({"name": "a", "seconds": 9}) if call.name == "wait" else None)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert asyncio.get_running_loop().time() == 1
        assert log(agent)[-3:] == ["SX c1:wait ERR[ABORTED]", "TR c1 ERR[ABORTED]", "SE 1.1 aborted"]
        assert_laws(agent.session)


async def test_a_nested_call_that_waits_for_a_rule_is_cut_with_its_outer_call() -> None:
    """The outer call's time is over: nothing of it goes on."""

    async def slow(call: ToolCall) -> None:
        if call.name == "wait":
            await asyncio.sleep(9)

    agent = calling("outer", names=["a"], tools=[wait, outer.with_(timeout=1)])
    agent.on.pre_execute(slow)
    await told(agent)
    assert codes(agent) == ["TOOL_TIMEOUT"]
    assert asyncio.get_running_loop().time() == 1
