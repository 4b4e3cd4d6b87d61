"""Layers: what harness, preset and agent share, who is heard first, and how all of it is unwound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from interlock import (
    Agent,
    Allow,
    ApprovalRequest,
    Approved,
    Ask,
    ConfigError,
    Deny,
    DuplicateTool,
    Event,
    Harness,
    MemoryStore,
    SQLiteStore,
    Status,
    ToolCall,
    UsageError,
    open_session,
    tool,
)
from interlock.log.facts import PolicyChanged, ToolResulted, TurnEnd
from interlock.log.reasons import Aborted, Completed
from interlock.models.registry import register_provider
from interlock.testing import Gate, ScriptedModel, assert_laws, call, calls, gated, outline, says


@tool(effect="read")
async def look() -> str:
    return "seen"


@tool(effect="write")
async def act() -> str:
    return "acted"


def asks(name: str = "act") -> ScriptedModel:
    return ScriptedModel(calls(name), says("ok"))


def result(agent: Agent) -> str:
    (line,) = outline(agent.session, "tool/result")
    return line


# Who is heard first


async def test_outer_scopes_are_heard_first_whenever_they_were_registered() -> None:
    """D-7: harness, preset, agent; each in order of registration."""
    heard: list[str] = []

    def listener(name: str) -> Callable[[ToolCall], None]:
        return lambda asked: heard.append(name)

    async with Harness(tools=[act]) as harness:
        preset = harness.preset("builder")
        async with preset.agent(asks()) as agent:
            agent.on.pre_execute(listener("agent 1"))
            preset.on.pre_execute(listener("preset 1"))
            harness.on.pre_execute(listener("harness 1"))
            agent.on.pre_execute(listener("agent 2"))
            preset.on.pre_execute(listener("preset 2"))
            harness.on.pre_execute(listener("harness 2"))
            await agent.run("go")

    assert heard == ["harness 1", "harness 2", "preset 1", "preset 2", "agent 1", "agent 2"]


async def test_the_first_guard_from_outside_gives_the_reason() -> None:
    """TP-08"""
    async with Harness(tools=[act]) as harness:
        preset = harness.preset("builder")
        async with preset.agent(asks()) as agent:
            agent.guard(lambda asked: Deny("the agent says no"))
            preset.guard(lambda asked: Deny("the preset says no"))
            harness.guard(lambda asked: Deny("the house says no"))
            await agent.run("go")

            assert result(agent) == "tool/result #c1 error GUARD_DENIED the house says no"
            assert_laws(agent.session)


@pytest.mark.parametrize("denying", ["harness", "preset", "agent"])
async def test_no_layer_can_loosen_what_another_one_denies(denying: str) -> None:
    """Law 7: in whichever layer the denial is, everybody else allows."""
    async with Harness(tools=[act]) as harness:
        preset = harness.preset("builder")
        async with preset.agent(asks(), preset="full") as agent:
            layers: dict[str, Any] = {"harness": harness, "preset": preset, "agent": agent}
            for name, layer in layers.items():
                layer.on.pre_execute(lambda asked, no=name == denying: Deny("no") if no else Allow())
            await agent.run("go")

            assert result(agent) == "tool/result #c1 error DENIED no"
            assert_laws(agent.session)


async def test_a_layer_holds_for_its_own_agents_only() -> None:
    """Scopes"""
    async with Harness(tools=[act]) as harness:
        careful = harness.preset("careful")
        careful.on.pre_execute(lambda asked: Deny("careful"))
        async with careful.agent(asks()) as inside, harness.agent(asks()) as outside:
            inside.on.pre_execute(lambda asked: Deny("only here"))
            await inside.run("go")
            await outside.run("go")

            assert result(inside) == "tool/result #c1 error DENIED careful"
            assert result(outside) == "tool/result #c1 acted"


async def test_an_observer_of_the_harness_hears_every_agent() -> None:
    """Scopes"""
    seen: list[tuple[str, Event]] = []
    async with Harness() as harness:
        harness.on.observe(TurnEnd)(lambda event: seen.append(("harness", event)))
        async with (
            harness.agent(ScriptedModel(says("a"))) as first,
            harness.agent(ScriptedModel(says("b"))) as second,
        ):
            await first.run("one")
            await second.run("two")
            assert [event for _, event in seen] == [
                event
                for agent in (first, second)
                for event in agent.session.events
                if event.type == "turn/end"
            ]
        late = harness.on.observe(TurnEnd)(lambda event: seen.append(("late", event)))
        async with harness.agent(ScriptedModel(says("c"), says("d"))) as third:
            await third.run("three")
            late()
            await third.run("four")

    assert [who for who, _ in seen] == ["harness", "harness", "harness", "late", "harness"]


# Tools


async def test_an_inner_tool_hides_an_outer_one_of_the_same_name_until_it_is_taken_back() -> None:
    """Scopes"""

    @tool(effect="read")
    async def fancy() -> str:
        return "the agent's"

    model = ScriptedModel(calls("look"), says("a"), calls("look"), says("b"))
    async with Harness(tools=[look]) as harness, harness.agent(model) as agent:
        dispose = agent.add_tool(fancy.with_(name="look"))
        await agent.run("one")
        dispose()
        await agent.run("two")

        assert outline(agent.session, "tool/result") == [
            "tool/result #c1 the agent's",
            "tool/result #c2 seen",
        ]
        assert_laws(agent.session)


async def test_two_tools_of_one_name_in_one_layer_are_refused() -> None:
    async with Harness(tools=[look]) as harness:
        with pytest.raises(DuplicateTool):
            harness.add_tool(look)
        with pytest.raises(DuplicateTool):
            harness.agent(ScriptedModel(), tools=[act, act])


async def test_tools_that_are_added_further_out_are_there_in_the_next_step() -> None:
    """TL-04"""
    gate = Gate()
    model = ScriptedModel(gated(gate, calls("look")), calls("act"), says("ok"))
    async with Harness(tools=[look]) as harness:
        preset = harness.preset("builder")
        async with preset.agent(model) as agent:
            running = asyncio.create_task(agent.run("go"))
            await gate.reached
            preset.add_tool(act)
            gate.open()
            await running

            assert [[spec.name for spec in request.tools] for request in model.requests] == [
                ["look"],
                ["act", "look"],
                ["act", "look"],
            ]


async def test_a_plain_function_can_be_a_tool() -> None:
    def add(a: int, b: int) -> int:
        """The sum of two numbers."""
        return a + b

    model = ScriptedModel(calls(call("add", a=1, b=2)), says("ok"))
    async with Harness(tools=[add]) as harness, harness.agent(model) as agent:
        await agent.run("go")
        assert result(agent) == "tool/result #c1 3"


# What is shared


async def test_an_agent_starts_from_the_settings_of_its_harness() -> None:
    store = MemoryStore()
    asked: list[str] = []

    async def approve(request: ApprovalRequest) -> Approved:
        asked.append(request.question)
        return Approved()

    async with Harness(model=asks(), tools=[act], store=store, approver=approve, pool=3) as harness:
        async with harness.agent() as agent:
            agent.on.pre_execute(lambda call: Ask("sure?"))
            assert agent.pool == 3
            assert (await agent.run("go")).ok
            name = agent.session.id
        assert asked == ["sure?"]
        reopened = await open_session(name, store=store, readonly=True)
        assert len(reopened.facts(TurnEnd)) == 1
        await reopened.close()
    await store.close()


async def test_an_agents_own_settings_beat_those_of_its_harness() -> None:
    own = MemoryStore()

    async def no(request: ApprovalRequest) -> Any:
        raise AssertionError("the harness's approver is not asked")

    async def yes(request: ApprovalRequest) -> Approved:
        return Approved()

    harness = Harness(model=ScriptedModel(says("never")), tools=[act], approver=no, pool=3)
    async with harness, harness.agent(asks(), store=own, approver=yes, pool=1) as agent:
        agent.on.pre_execute(lambda call: Ask("sure?"))
        assert agent.pool == 1
        assert (await agent.run("go")).text == "ok"
        assert await own.open(agent.session.id, readonly=True)


async def test_a_store_that_was_handed_in_stays_open_and_one_that_was_made_is_closed() -> None:
    """Law 9: who opens closes."""
    store = MemoryStore()
    async with Harness(store=store) as harness, harness.agent(ScriptedModel(says("ok"))) as agent:
        await agent.run("go")
        name = agent.session.id
    session = await open_session(name, store=store, readonly=True)
    assert session.facts(TurnEnd)
    await session.close()
    await store.close()


@pytest.mark.parametrize("pool", [0, -1, 1.5, "3", True, None])
def test_a_pool_is_a_whole_number_from_1(pool: Any) -> None:
    """SC-04: refused when it is configured."""
    with pytest.raises(ValueError, match="pool is a whole number from 1"):
        Harness(pool=pool)
    if pool is not None:  # of an agent, None means the harness's
        with pytest.raises(ValueError, match="pool is a whole number from 1"):
            Agent(ScriptedModel(), pool=pool)


# Presets of verdicts


@pytest.mark.parametrize(
    ("preset", "code"), [(None, None), ("full", None), ("plan", "DENIED"), ("ask", "APPROVAL_UNAVAILABLE")]
)
async def test_a_preset_is_what_happens_to_calls_that_nobody_spoke_about(
    preset: str | None, code: str | None
) -> None:
    """D-7b"""
    model = ScriptedModel(calls(call("look"), call("act")), says("ok"))
    async with Agent(model, tools=[look, act], preset=preset) as agent:
        await agent.run("go")

        read, written = agent.session.facts(ToolResulted)
        assert read.error is None  # what only reads runs under every preset
        assert (written.error.code if written.error else None) == code
        assert len(agent.session.facts(PolicyChanged)) == (preset is not None)
        assert outline(agent.session, "tool/decided") == []  # a default alone is no decision
        assert_laws(agent.session)


async def test_a_rule_that_allows_beats_the_preset() -> None:
    """D-7b"""
    async with Agent(asks(), tools=[act], preset="plan") as agent:
        agent.on.pre_execute(lambda asked: Allow())
        await agent.run("go")
        assert result(agent) == "tool/result #c1 acted"
        assert_laws(agent.session)


async def test_a_preset_is_on_record_when_it_is_chosen_and_when_it_changes() -> None:
    """D-7b"""
    store = MemoryStore()
    names: list[str] = []
    session: str | None = None
    for preset in ("ask", "ask", "full"):
        async with Agent(ScriptedModel(), store=store, session=session, preset=preset) as agent:
            session = agent.session.id
            names = [fact.preset for fact in agent.session.facts(PolicyChanged)]
    assert names == ["ask", "full"]


def test_a_preset_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="choose one of plan, ask, accept-edits, full"):
        Agent(ScriptedModel(), preset="yolo")


# Unwinding


async def test_leaving_a_layer_takes_back_what_was_registered_in_it() -> None:
    """Law 9"""
    async with Harness(tools=[act]) as harness:
        with harness.preset("temporary") as preset:
            preset.on.pre_execute(lambda asked: Deny("temporary"))
            preset.guard(lambda asked: Deny("temporary"))
            preset.hooks.register("PreToolUse", lambda context: None)
            preset.add_tool(look)
        assert preset.registry.get("look") is None
        for register in (
            lambda: preset.on.pre_execute(lambda asked: None),
            lambda: preset.guard(lambda asked: None),
            lambda: preset.hooks.register("Stop", lambda context: None),
            lambda: preset.on.observe()(lambda event: None),
            lambda: preset.add_tool(look),
        ):
            with pytest.raises(UsageError, match="the scope 'temporary' is closed"):
                register()
        assert all(preset.scope.listeners(point) == () for point in preset.scope._listeners)
        async with harness.agent(asks()) as agent:
            await agent.run("go")
            assert result(agent) == "tool/result #c1 acted"


async def test_everything_is_taken_back_newest_first_inner_layers_before_outer_ones() -> None:
    """Law 9"""
    undone: list[str] = []

    def undo(name: str) -> Callable[[], None]:
        return lambda: undone.append(name)

    async with Harness() as harness:
        first, second = harness.preset("first"), harness.preset("second")
        harness.scope.owns(undo("harness 1"))
        first.scope.owns(undo("first 1"))
        second.scope.owns(undo("second 1"))
        gone = first.scope.owns(undo("first 2"))
        first.scope.owns(undo("first 3"))
        harness.scope.owns(undo("harness 2"))
        gone()
        gone()
        assert undone == ["first 2"]

    assert undone == ["first 2", "second 1", "first 3", "first 1", "harness 2", "harness 1"]


async def test_an_undoing_that_fails_keeps_none_of_the_others() -> None:
    """Law 9: and it is raised in the end."""
    undone: list[str] = []

    def breaks() -> None:
        raise LookupError("cannot be undone")

    harness = Harness()
    agent = harness.agent(ScriptedModel(says("ok")))
    await agent.open()
    await agent.run("go")
    agent.scope.owns(lambda: undone.append("agent, oldest"))
    agent.scope.owns(breaks)
    agent.scope.owns(lambda: undone.append("agent, newest"))
    harness.scope.owns(lambda: undone.append("harness"))
    session = agent.session

    with pytest.raises(LookupError, match="cannot be undone"):
        await harness.aclose()
    assert undone == ["agent, newest", "agent, oldest", "harness"]
    assert (agent.status, session.closed, harness.agents) == (Status.CLOSED, True, ())


async def test_leaving_the_harness_stops_its_agents_and_waits_for_them() -> None:
    """CA-10, law 9: newest first."""
    ended: list[str] = []
    thinking, working = Gate(), asyncio.Event()

    @tool(effect="write")
    async def work() -> str:
        working.set()
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(0)
            ended.append("the body")
        return "never"

    async with Harness(tools=[work]) as harness:
        older = harness.agent(ScriptedModel(gated(thinking, says("never"))), name="older")
        newer = harness.agent(ScriptedModel(calls("work")), name="newer")
        for agent in (older, newer):
            await agent.open()
            agent.on.observe(TurnEnd)(lambda event, name=agent.name: ended.append(f"{name}'s turn"))
            agent.followup("go")
        await thinking.reached
        await working.wait()
        assert harness.agents == (older, newer)

    assert ended == ["the body", "newer's turn", "older's turn"]
    for agent in (older, newer):
        assert agent.status is Status.CLOSED
        (end,) = agent.session.facts(TurnEnd)
        assert isinstance(end.reason, Aborted)
        assert end.reason.cause.kind == "disposed"


async def test_an_agent_does_not_outlive_the_layer_whose_guards_hold_for_it() -> None:
    """Law 9: leaving the layer closes it, or is refused; it never goes on unguarded."""
    async with Harness(tools=[act]) as harness:
        preset = harness.preset("guarded")
        preset.guard(lambda asked: Deny("guarded"))
        agent = preset.agent(asks())
        await agent.open()

        with pytest.raises(UsageError, match="open agent"):
            preset.close()
        await agent.run("go")
        assert result(agent) == "tool/result #c1 error GUARD_DENIED guarded"

        async with preset:
            pass
        assert agent.status is Status.CLOSED
        assert harness.agents == ()
        preset.close()  # twice is harmless


async def test_an_agent_whose_layer_was_left_before_it_was_opened_does_not_open() -> None:
    """Law 9"""
    async with Harness(tools=[act]) as harness:
        with harness.preset("guarded") as preset:
            preset.guard(lambda asked: Deny("guarded"))
            agent = preset.agent(asks())
        with pytest.raises(UsageError, match="the layer of this agent was left"):
            await agent.open()


async def test_an_agent_that_is_closed_leaves_nothing_behind_in_its_harness() -> None:
    """Law 9"""
    async with Harness() as harness:
        for _ in range(3):
            async with harness.agent(ScriptedModel(says("ok"))) as agent:
                agent.on.pre_step(lambda proposal: None)
                await agent.run("go")
        assert harness.agents == ()
        assert not harness.scope._children


async def test_closing_twice_is_harmless() -> None:
    harness = Harness()
    agent = harness.agent(ScriptedModel(says("ok")))
    async with agent:
        assert (await agent.run("go")).reason == Completed()
    await agent.aclose()
    await harness.aclose()
    await harness.aclose()
    assert agent.status is Status.CLOSED


async def test_all_that_an_agent_holds_is_let_go_of_although_its_model_will_not_close(tmp_path: Any) -> None:
    """Law 9"""

    class WillNotClose(ScriptedModel):
        async def aclose(self) -> None:
            raise ConnectionError("still busy")

    dispose = register_provider("busy", lambda name, *, base_url: WillNotClose(says("ok")))
    store = SQLiteStore(tmp_path / "sessions.db")
    try:
        agent = Agent("busy:x", store=store)
        with pytest.raises(ConnectionError):
            async with agent:
                assert (await agent.run("go")).ok
    finally:
        dispose()
    assert (agent.status, agent.session.closed) == (Status.CLOSED, True)
    async with Agent(ScriptedModel(says("again")), store=store, session=agent.session.id) as again:
        assert (await again.run("go on")).ok
    await store.close()
