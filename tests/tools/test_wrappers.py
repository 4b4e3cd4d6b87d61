"""Around the body: what a wrapper at tools/execute may do, and what is made of what it answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock import (
    Cause,
    Effect,
    Message,
    Signal,
    Source,
    Text,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
    tool_error,
    tool_success,
)
from interlock.log.facts import CallError, ToolResulted, ToolSettled
from interlock.testing import assert_laws, call

from .calling import Trace, calling, codes, contexts, log, ran, told, write

pytestmark = pytest.mark.virtual


async def test_wrappers_are_an_onion_outer_scopes_outside() -> None:
    """TP-11."""
    trace = Trace()
    agent = calling("wait", name="a")
    agent.on.execute(trace.around("inner"))
    agent.harness.on.execute(trace.around("outer"))
    assert await told(agent) == ["a"]
    assert trace.of("c1") == ["outer in", "inner in", "inner out", "outer out"]


async def test_a_wrapper_sees_failures_as_results() -> None:
    """TP-11: a raising body included."""
    seen: list[tuple[str, bool, bool]] = []

    async def around(call: ToolCall, following: Any) -> Any:
        result = await following()
        seen.append((result.text, result.ok, result.ran))
        return result

    agent = calling("fail")
    agent.on.execute(around)
    await told(agent)
    assert seen == [("Error [broken]: it does not work", False, True)]


async def test_a_wrapper_that_does_not_go_on_keeps_the_body_from_running() -> None:
    """TP-11, TP-12: what it authors is held to the contract of the tool, and rendered as the tool renders."""
    agent = calling("write", name="a", tools=[write.with_(render=str.upper)])

    async def cached(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=call, content=(Text("ignored"),), value="cached", conclude=True, ran=True)

    agent.on.execute(cached)
    assert await told(agent) == ["CACHED"]
    assert ran == []
    (result,) = agent.session.facts(ToolResulted)
    assert not result.conclude, "a wrapper cannot forge it"


async def test_an_authored_value_that_does_not_fit_is_an_invalid_output() -> None:
    """TP-12: a cached result of another tool."""

    async def cached(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=None, content=(), value=5, contexts=(Message.context("kept"),))

    agent = calling("write", name="a")
    agent.on.execute(cached)
    assert await told(agent) == ["Error [invalid_tool_output]: declared to return str, got int"]
    assert contexts(agent) == ["kept"]


async def test_an_authored_failure_keeps_its_error_content_and_contexts() -> None:
    """TP-12, D-6."""

    async def around(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(
            call=None,
            content=(Text("nothing there"),),
            error=CallError("cache_miss", "KeyError", handler_executed=True),
            contexts=(Message.context("kept"),),
            conclude=True,
        )

    agent = calling("write", name="a")
    agent.on.execute(around)
    assert await told(agent) == ["nothing there"]
    (result,) = agent.session.facts(ToolResulted)
    assert result.error == CallError("CACHE_MISS", "KeyError", handler_executed=False), "the body did not run"
    assert (contexts(agent), result.conclude) == (["kept"], False)


@pytest.mark.parametrize("make", [tool_success, lambda text: tool_error("odd", text)])
async def test_results_for_hooks_can_be_given_by_a_wrapper(make: Any) -> None:
    async def around(call: ToolCall, following: Any) -> Any:
        return make("here")

    agent = calling("write", name="a")
    agent.on.execute(around)
    assert await told(agent) in (["here"], ["Error [odd]: here"])


MALFORMED: list[dict[str, Any]] = [
    {"content": "text", "error": CallError("X")},
    {"content": ("text",), "error": CallError("X")},
    {"content": (Text("\ud800"),), "error": CallError("X")},
    {"content": (), "error": "boom"},
    {"content": (), "error": CallError("\ud800")},
    {"content": (), "error": CallError(5)},  # type: ignore[arg-type]  # that is the point
    {"content": (), "value": "v", "contexts": (5,)},
    {"content": (), "value": "v", "contexts": 5},
]


@pytest.mark.parametrize("fields", MALFORMED)
async def test_a_result_that_cannot_be_put_on_record_breaks_the_contract(fields: dict[str, Any]) -> None:
    """TP-12."""

    async def around(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=call, **fields)

    agent = calling("write", name="a")
    agent.on.execute(around, name="careless")
    await told(agent)
    assert codes(agent) == ["HOOK_CONTRACT_ERROR"]


async def test_contexts_of_an_authored_result_may_be_strings() -> None:
    async def around(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=call, content=(), value="v", contexts=("by the way",))  # type: ignore[arg-type]

    agent = calling("write", name="a")
    agent.on.execute(around, name="adds")
    await told(agent)
    (result,) = agent.session.facts(ToolResulted)
    assert [(m.text, m.source) for m in result.contexts] == [("by the way", Source("plugin", "adds"))]


async def test_a_value_that_fails_while_it_is_read_is_the_wrappers_failure() -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no items")

    async def around(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=call, content=(), value=Hostile(a=1))

    @tool
    async def loose() -> Any:
        return None

    agent = calling("loose", tools=[loose])
    agent.on.execute(around)
    await told(agent)
    assert codes(agent)[0] in ("HOOK_EXECUTION_ERROR", "INVALID_TOOL_OUTPUT")


async def test_a_wrapper_that_answers_none_breaks_the_contract() -> None:
    agent = calling("write", name="a")

    async def forgets(call: ToolCall, following: Any) -> None:
        await following()

    agent.on.execute(forgets, name="forgets")
    (text,) = await told(agent)
    assert text == "Error [hook_contract_error]: forgets: answered None, not a ToolResult"
    assert ran == ["a"], "what it did stands"


async def test_a_wrapper_that_raises_keeps_what_the_body_had_to_say() -> None:
    """TP-13, UW-10: no review, no outer wrapper's view, the deferred contexts stay."""
    trace = Trace()

    @tool
    async def talk(ctx: ToolContext) -> str:
        ctx.defer("deferred")
        return "done"

    async def around(call: ToolCall, following: Any) -> ToolResult:
        await following()
        raise ValueError("a bug")

    agent = calling("talk", tools=[talk])
    agent.on.execute(trace.around("outer"))
    agent.on.execute(around)
    agent.on.post_execute(trace.at("post"))
    await told(agent)
    (result,) = agent.session.facts(ToolResulted)
    assert result.error == CallError("HOOK_EXECUTION_ERROR", "ValueError", handler_executed=True)
    assert (contexts(agent), trace.seen) == (["deferred"], ["outer in:c1"])


async def twice(call: ToolCall, following: Any) -> Any:
    await following()
    return await following()


async def at_once(call: ToolCall, following: Any) -> Any:
    return (await asyncio.gather(following(), following()))[0]


@pytest.mark.parametrize("wrapper", [twice, at_once])
async def test_only_what_may_be_repeated_runs_again(wrapper: Any) -> None:
    """D-18: each run of a READ body has its own line; a WRITE body runs once, also if it is asked for at once."""
    agent = calling("wait", name="a")
    agent.on.execute(wrapper)
    assert await told(agent) == ["a"]
    assert ran == ["a", "a"]
    assert log(agent) == ["TC c1", "ST c1", "ST c1 run 2", "TR c1 ok", "SE 1.1 tools"]

    ran.clear()
    agent = calling("write", name="a")
    agent.on.execute(wrapper)
    (text,) = await told(agent)
    assert text.endswith("next() was called a second time for a tool whose effect is WRITE")
    assert ran == ["a"]


async def test_next_is_over_when_the_wrapper_has_answered() -> None:
    """Nothing outlives its owner."""
    kept: list[Any] = []

    async def around(call: ToolCall, following: Any) -> ToolResult:
        kept.append(following)
        return ToolResult(call=call, content=(), value="early")

    agent = calling("write", name="a")
    agent.on.execute(around)
    assert await told(agent) == ["early"]
    with pytest.raises(Exception, match="after the wrapper had answered"):
        await kept[0]()
    assert ran == []


async def test_a_timeout_is_none_of_a_wrapper_s_business() -> None:
    """It wraps, and may time and retry what it wraps itself."""
    attempts: list[str] = []

    @tool(effect="read")
    async def flaky() -> str:
        attempts.append("x")
        if len(attempts) < 3:
            raise ToolError("not yet")
        return "at last"

    async def retries(call: ToolCall, following: Any) -> Any:
        while not (result := await following()).ok:
            assert call.effect is Effect.READ
        return result

    agent = calling("flaky", tools=[flaky])
    agent.on.execute(retries)
    assert await told(agent) == ["at last"]
    assert log(agent) == ["TC c1", "ST c1", "ST c1 run 2", "ST c1 run 3", "TR c1 ok", "SE 1.1 tools"]


# A stop


async def test_a_wrapper_that_waits_does_not_hold_a_turn_that_is_stopped() -> None:
    """CA-13, D-19: a listener awaited at a point is cut at once; there is no body to be awaited."""

    async def waits(call: ToolCall, following: Any) -> Any:
        await asyncio.sleep(9)
        return await following()

    agent = calling("write", name="a")
    agent.on.execute(waits)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert asyncio.get_running_loop().time() == 1
        assert ran == []
        assert_laws(agent.session)


async def test_a_wrapper_that_waits_after_the_body_is_cut_and_what_the_body_did_stands() -> None:
    """D-19b: the chain had not returned before the stop, so the success is kept for people only."""
    trace = Trace()

    async def waits(call: ToolCall, following: Any) -> Any:
        result = await following()
        await asyncio.sleep(9)
        return result

    agent = calling(call("write", name="a"), call("fail"))
    agent.on.execute(waits)
    agent.on.post_execute(trace.at("post"))
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert asyncio.get_running_loop().time() == 1
        assert (codes(agent)[0], ran, trace.seen) == ("ABORTED", ["a"], ["post:c1"])
        (settled,) = agent.session.facts(ToolSettled)
        assert settled.content == (Text("wrote a"),)
        assert_laws(agent.session)


async def test_a_wrapper_is_not_cut_while_the_body_runs_which_is_told_once() -> None:
    """D-19, CA-09: and then it is, where it next waits."""
    seen: list[str] = []

    @tool
    async def slow() -> str:
        for _ in range(2):
            try:
                await asyncio.sleep(3)
            except asyncio.CancelledError:
                seen.append("body cut")
        return "ended"

    async def around(call: ToolCall, following: Any) -> Any:
        result = await following()
        seen.append(f"body {result.text}")
        try:
            await asyncio.sleep(9)
        finally:
            seen.append("wrapper cut")

    agent = calling("slow", tools=[slow])
    agent.on.execute(around)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert seen == ["body cut", "body ended", "wrapper cut"]
        assert (asyncio.get_running_loop().time(), codes(agent)) == (4, ["ABORTED"])
        assert_laws(agent.session)


async def test_a_body_that_a_wrapper_gave_up_was_invoked_all_the_same() -> None:
    """Whoever reads the result must know that it may have had effects."""

    async def impatient(call: ToolCall, following: Any) -> Any:
        running = asyncio.create_task(following())
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait([running])
        await asyncio.sleep(9)

    agent = calling("wait", name="a", seconds=9)
    agent.on.execute(impatient)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(2)
        agent.cancel()
        await receipt.turn()
        (result,) = agent.session.facts(ToolResulted)
        assert result.error == CallError("ABORTED", "", handler_executed=True)
        assert asyncio.get_running_loop().time() == 2
        assert_laws(agent.session)


async def test_a_wrapper_may_look_at_the_signal_itself() -> None:
    """What it raises then is no failure of its own; for another signal it is."""
    other = Signal()
    other.set(Cause("hook"))

    async def checks(call: ToolCall, following: Any) -> Any:
        await following()
        call.signal.raise_if_set()

    async def checks_another(call: ToolCall, following: Any) -> Any:
        other.raise_if_set()

    agent = calling("wait", name="a", seconds=9)
    agent.on.execute(checks)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert codes(agent) == ["ABORTED"]

    agent = calling("write", name="a")
    agent.on.execute(checks_another)
    await told(agent)
    assert codes(agent) == ["HOOK_EXECUTION_ERROR"]
