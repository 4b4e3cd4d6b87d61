"""The trace: the four hook events and the permissions between them, as the log has them."""

from __future__ import annotations

import asyncio
from typing import Any

from interlock import (
    Agent,
    Allow,
    Approved,
    Ask,
    Continue,
    Deny,
    Enter,
    HookResult,
    Message,
    Rejected,
    ToolContext,
    tool,
    tool_error,
)
from interlock.cli.trace import Trace
from interlock.testing import ScriptedModel, assert_laws, call, calls, hangs, says


@tool(effect="read", concurrency="parallel")
async def look(path: str = "a") -> str:
    return path


@tool
async def change(path: str = "a") -> str:
    return path


@tool(effect="read")
async def outer(ctx: ToolContext) -> str:
    await ctx.call_tool("look")
    return "both"


@tool(effect="read")
async def broken() -> str:
    raise RuntimeError("boom")


async def trace(agent: Agent, task: str = "Go") -> list[str]:
    """The trace of one run, as it came."""
    lines: list[str] = []
    made = Trace()
    async with agent:
        for event in agent.session.events:
            lines += made.lines(event)
        agent.on.observe()(lambda event: lines.extend(made.lines(event)))
        await agent.run(task)
        assert_laws(agent.session)
        again = Trace()
        assert lines == [line for event in agent.session.events for line in again.lines(event)]
    return lines


async def test_a_read_an_answer_and_the_end() -> None:
    agent = Agent(ScriptedModel(calls("look"), says("done")), tools=[look])
    assert await trace(agent) == [
        "[Hook] UserPromptSubmit",
        "[Hook] PreToolUse: look",
        "[Permission] look: allow (default) - nobody objected",
        "[Hook] PostToolUse: look -> ok",
        "[Hook] Stop",
    ]


async def test_unknown_tools_and_invalid_arguments_meet_no_hook() -> None:
    model = ScriptedModel(calls(call("nope"), call("look", raw="not json"), call("look")), says("done"))
    assert await trace(Agent(model, tools=[look])) == [
        "[Hook] UserPromptSubmit",
        "[Hook] PreToolUse: look",
        "[Permission] look: allow (default) - nobody objected",
        "[Hook] PostToolUse: look -> ok",
        "[Hook] Stop",
    ]


async def test_a_tool_that_fails_has_run() -> None:
    agent = Agent(ScriptedModel(calls("broken"), says("done")), tools=[broken])
    assert "[Hook] PostToolUse: broken -> error [tool_failed]" in await trace(agent)


async def test_rules_hooks_guards_and_a_person_are_told_by_name() -> None:
    async def person(request: Any) -> Approved | Rejected:
        return Approved() if request.arguments["path"] == "b" else Rejected("use b")

    person.channel = "desk"  # type: ignore[attr-defined]  # an approver may say where it asks
    agent = Agent(
        ScriptedModel(
            calls(call("change", path="a"), call("change", path="b"), call("change", path="c"), call("look")),
            says("done"),
        ),
        tools=[look, change],
        approver=person,
        preset="ask",
    )
    agent.on.pre_execute(
        lambda call: Deny("not c") if call.arguments.get("path") == "c" else None, name="rules"
    )
    agent.on.pre_execute(lambda call: Allow() if call.name == "look" else None, name="reads")
    assert await trace(agent) == [
        "[Hook] UserPromptSubmit",
        "[Hook] PreToolUse: change",
        "[Permission] change: ask (default) - preset ask: change may change something",
        "[Permission] change: deny (approval) - a person (desk) says no: use b",
        "[Hook] PreToolUse: change",
        "[Permission] change: ask (default) - preset ask: change may change something",
        "[Permission] change: allow (approval) - a person (desk) says yes, once",
        "[Hook] PostToolUse: change -> ok",
        "[Hook] PreToolUse: change",
        "[Permission] change: deny (rules) - not c",
        "[Hook] PreToolUse: look",
        "[Permission] look: allow (reads)",
        "[Hook] PostToolUse: look -> ok",
        "[Hook] Stop",
    ]


async def test_a_guard_has_the_last_word() -> None:
    async def yes(request: Any) -> Approved:
        request.call.agent.guard(lambda call: Deny("analysis only"), name="limit")
        return Approved()

    agent = Agent(ScriptedModel(calls("change"), says("done")), tools=[change], approver=yes)
    agent.on.pre_execute(lambda call: Ask("sure?"), name="rules")
    assert await trace(agent) == [
        "[Hook] UserPromptSubmit",
        "[Hook] PreToolUse: change",
        "[Permission] change: ask (rules) - sure?",
        "[Permission] change: allow (approval) - a person (test_a_guard_has_the_last_word.<locals>.yes) says yes, once",
        "[Permission] change: deny (guard limit) - analysis only",
        "[Hook] Stop",
    ]


async def test_a_preset_denies_and_a_hook_blocks_without_a_line_of_its_own() -> None:
    agent = Agent(
        ScriptedModel(calls(call("change"), call("look")), says("done")), tools=[look, change], preset="plan"
    )
    agent.hooks.register(
        "PreToolUse",
        lambda context: (
            HookResult(blocking_error=tool_error("hook_blocked", "not now"))
            if context.call.name == "look"
            else None
        ),
    )
    assert await trace(agent) == [
        "[Hook] UserPromptSubmit",
        "[Hook] PreToolUse: change",
        "[Permission] change: deny (default) - preset plan: only tools that read may run; describe what you would do "
        "instead",
        "[Hook] PreToolUse: look",
        "[Hook] Stop",
    ]


async def test_a_nested_call_meets_the_same_hooks() -> None:
    agent = Agent(ScriptedModel(calls("outer"), says("done")), tools=[outer, look])
    assert await trace(agent) == [
        "[Hook] UserPromptSubmit",
        "[Hook] PreToolUse: outer",
        "[Permission] outer: allow (default) - nobody objected",
        "[Hook] PreToolUse: look",
        "[Permission] look: allow (default) - nobody objected",
        "[Hook] PostToolUse: look -> ok",
        "[Hook] PostToolUse: outer -> ok",
        "[Hook] Stop",
    ]


async def test_stop_is_told_whenever_the_model_has_answered_and_nothing_is_pending() -> None:
    agent = Agent(ScriptedModel(says("one"), says("two"), says("three")))
    agent.on.turn_stopping(lambda stopping: Continue("go on") if stopping.step == 1 else None)

    @agent.on.pre_step
    def steers(proposal: Any) -> Enter | None:
        if proposal.step == 2:
            agent.steer(Message.user("and this"))
        return None

    assert await trace(agent) == [
        "[Hook] UserPromptSubmit",
        "[Hook] Stop",  # continued by a listener, whose words are no prompt
        "[Hook] Stop",
    ]


async def test_a_stopped_turn_answers_calls_that_met_no_hook() -> None:
    @tool(effect="read")
    async def slow() -> str:
        agent.cancel("user")
        await asyncio.sleep(0)
        return "late"

    agent = Agent(ScriptedModel(calls(call("slow"), call("look"))), tools=[slow, look])
    assert await trace(agent) == [
        "[Hook] UserPromptSubmit",
        "[Hook] PreToolUse: slow",
        "[Permission] slow: allow (default) - nobody objected",
        "[Hook] PostToolUse: slow -> error [aborted]",
    ]


async def test_a_stream_that_is_stopped_meets_no_stop_hook() -> None:
    agent = Agent(ScriptedModel(hangs("I was about to")))
    agent.on.observe()(lambda event: agent.cancel("user") if event.type == "assistant/chunk" else None)
    assert await trace(agent) == ["[Hook] UserPromptSubmit"]
