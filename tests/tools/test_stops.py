"""A stop in the middle of a batch: every call has its result, and nothing is started any more."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock import Accept, Advise, Agent, Allow, Deny, ToolCall, ToolResult
from interlock.log.facts import AssistantMessage
from interlock.testing import assert_laws, call

from .calling import Trace, calling, codes, log, ran, texts, wait

pytestmark = pytest.mark.virtual


async def test_a_stop_before_the_batch_gives_every_call_its_pair() -> None:
    """SC-09, SC-10, UW-12, D-25: no policy, no body, no review, no finaliser; observers are told."""
    trace, seen = Trace(), list[tuple[bool, bool]]()
    agent = calling(
        call("wait", name="a"), call("nobody"), tools=[wait.with_(finalise=trace.finaliser("FINAL"))]
    )
    trace.everywhere(agent)
    agent.on.result(lambda call, result: seen.append((result.ran, result.ok)))
    agent.on.observe(AssistantMessage)(lambda event: agent.cancel())
    async with agent:
        await agent.run("go")
        assert log(agent) == [
            "TC' c1", "TR c1 ERR[ABORTED_BEFORE_DISPATCH]",
            "TC' c2", "TR c2 ERR[ABORTED_BEFORE_DISPATCH]", "SE 1.1 aborted",
        ]  # fmt: skip
        assert texts(agent)[0] == "Error [aborted_before_dispatch]: tool call aborted before dispatch"
        assert (trace.seen, seen) == (["result:-"] * 2, [(False, False)] * 2)
        assert_laws(agent.session)


@pytest.mark.parametrize("point", ["prepare", "pre_execute"])
async def test_a_stop_inside_policy_aborts_that_call_before_dispatch_and_skips_the_rest(point: str) -> None:
    """SC-09, TP-09, D-25: contexts of earlier points stay, there is no review."""
    trace = Trace()
    agent = calling(
        call("wait", name="a"), call("wait", name="b"), tools=[wait.with_(finalise=trace.finaliser("FINAL"))]
    )
    agent.on.prepare(lambda call: Advise(contexts=["prepared"]))

    async def stops(call: ToolCall) -> Any:
        agent.cancel()
        await asyncio.sleep(9)

    getattr(agent.on, point)(stops)
    agent.on.post_execute(trace.at("post"))
    async with agent:
        await agent.run("go")
        assert log(agent)[-4:] == [
            "TR c1 ERR[ABORTED_BEFORE_DISPATCH]" + ("(+prepared)" if point == "pre_execute" else ""),
            "TC' c2", "TR c2 ERR[ABORTED_BEFORE_DISPATCH]", "SE 1.1 aborted",
        ]  # fmt: skip
        assert (ran, trace.seen) == ([], [])
        assert asyncio.get_running_loop().time() == 0, "it was cut at once"
        assert_laws(agent.session)


async def test_a_denial_given_with_the_stop_keeps_its_identity_and_an_allow_does_not_run() -> None:
    """TP-09."""
    for answer, code in ((Deny("no"), "DENIED"), (Allow(), "ABORTED_BEFORE_DISPATCH")):
        agent = calling("wait", name="a")

        def stops(call: ToolCall, agent: Agent = agent, answer: Any = answer) -> Any:
            agent.cancel()
            return answer

        agent.on.pre_execute(stops)
        async with agent:
            await agent.run("go")
            assert (codes(agent), ran) == ([code], [])
            assert_laws(agent.session)


@pytest.mark.parametrize("moment", [1, 2])
async def test_a_guard_or_a_classifier_that_stops_the_turn_starts_nothing(moment: int) -> None:
    """Foreign code may stop at any moment, the last one included."""
    passes: list[str] = []
    agent = calling(call("wait", name="a"), call("wait", name="b"))

    def guard(call: ToolCall) -> None:
        passes.append(call.id)
        if len(passes) == moment:
            agent.cancel()

    agent.guard(guard)
    async with agent:
        await agent.run("go")
        assert ran == []
        assert codes(agent) == ["ABORTED_BEFORE_DISPATCH"] * 2
        assert_laws(agent.session)


async def test_a_hook_that_stops_the_turn_lets_what_runs_end_and_gives_the_rest_their_results() -> None:
    """D-16, SC-09: heard before the next start if it does not suspend."""
    trace = Trace()
    agent = calling(
        *[call("wait", name=name, seconds=s) for name, s in (("a", 1), ("b", 2), ("c", 1))], pool=2
    )
    agent.on.post_execute(
        trace.at("post", lambda call: Accept(stop=True) if call.id == "c1" else None), name="w"
    )
    async with agent:
        result = await agent.run("go")
        assert log(agent)[-4:] == [
            "TR c1 ok stop", "TR c2 ok", "TR c3 ERR[HOOK_STOPPED_CONTINUATION]", "SE 1.1 hook-stopped",
        ]  # fmt: skip
        assert (trace.of("c2"), trace.of("c3")) == (["post"], [])
        assert texts(agent)[2] == (
            "Error [hook_stopped_continuation]: Skipped after PostToolUse stopped the turn"
        )
        assert (result.text, ran) == ("a", ["a", "b"])
        assert_laws(agent.session)


async def test_a_hook_that_suspends_before_it_stops_may_see_one_more_start() -> None:
    """D-16: that call runs and is committed."""
    agent = calling(
        *[call("wait", name=name, seconds=s) for name, s in (("a", 1), ("b", 2), ("c", 1))], pool=2
    )

    async def stops(call: ToolCall, result: ToolResult) -> Accept | None:
        await asyncio.sleep(0.5)
        return Accept(stop=True) if call.id == "c1" else None

    agent.on.post_execute(stops)
    async with agent:
        await agent.run("go")
        assert codes(agent) == ["ok", "ok", "ok"]
        assert ran == ["a", "b", "c"]
        assert_laws(agent.session)
