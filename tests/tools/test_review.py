"""After the outcome: what post listeners make of a result, and the contexts that ride on it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock import (
    Accept,
    Advise,
    Agent,
    Allow,
    Ask,
    Block,
    Deny,
    Message,
    Replace,
    Source,
    Text,
    ToolCall,
    ToolContext,
    ToolOutput,
    ToolResult,
    tool,
)
from interlock.log.facts import ToolResulted, ToolSettled, UserMessage
from interlock.testing import assert_laws, call

from .calling import Trace, calling, codes, contexts, log, raise_value_error, ran, texts, told, wait

pytestmark = pytest.mark.virtual


@pytest.mark.parametrize(
    ("wanted", "prepare", "expected"),
    [
        (call("wait", name="a"), None, ["ok"]),
        (call("fail"), None, ["BROKEN"]),
        (call("nobody"), None, ["UNKNOWN_TOOL"]),
        (call("wait", raw="x"), None, ["INVALID_ARGS"]),
        (call("wait", name="a"), "deny", ["DENIED"]),
        (call("wait", name="a"), "ask", ["APPROVAL_UNAVAILABLE"]),
        (call("wait", name="a"), "guard", ["GUARD_DENIED"]),
    ],
)
async def test_every_settled_call_is_reviewed(wanted: Any, prepare: str | None, expected: list[str]) -> None:
    """TP-19."""
    seen: list[tuple[bool, bool]] = []
    agent = calling(wanted)
    if prepare == "guard":
        agent.guard(lambda call: Deny("no"))
    elif prepare is not None:
        agent.on.pre_execute(lambda call: Deny("no") if prepare == "deny" else Ask("?"))
    agent.on.post_execute(lambda call, result: seen.append((result.ok, result.ran)))
    await told(agent)
    assert codes(agent) == expected
    assert seen == [(expected == ["ok"], expected in (["ok"], ["BROKEN"]))]


async def test_a_content_replaces_what_the_model_reads() -> None:
    """TP-20."""
    agent = calling(call("wait", name="a"), call("fail"))
    agent.on.post_execute(lambda call, result: Replace(f"<{result.text}>"), name="editor")
    assert await told(agent) == ["<a>", "<Error [broken]: it does not work>"]
    assert codes(agent) == ["ok", "BROKEN"], "a failure stays one"
    assert [[(edit.who, edit.what) for edit in fact.edits] for fact in agent.session.facts(ToolResulted)] == [
        [("editor", "replaced")]
    ] * 2


async def test_a_replacement_may_be_a_failure() -> None:
    """TP-20: a success becomes one with its own code."""
    agent = calling("wait", name="a")
    agent.on.post_execute(lambda call, result: Replace("too old to be of use", error="stale"))
    (text,) = await told(agent)
    assert codes(agent) == ["STALE"]
    assert "too old to be of use" in text


async def test_a_value_is_validated_and_rendered_again() -> None:
    """TP-20."""
    agent = calling("wait", name="a", tools=[wait.with_(render=lambda value: f"name: {value}")])
    agent.on.post_execute(lambda call, result: Replace(value=result.value.upper()))
    assert await told(agent) == ["name: A"]


@pytest.mark.parametrize(
    ("wanted", "answer", "said"),
    [
        (call("wait", name="a"), Replace(value=5), "the value does not fit what wait returns"),
        (call("fail"), Replace(value="x"), "replaced the value of a failed call; give content instead"),
    ],
)
async def test_a_value_that_cannot_stand_breaks_the_contract(wanted: Any, answer: Any, said: str) -> None:
    """TP-20."""
    agent = calling(wanted)
    agent.on.post_execute(lambda call, result: answer, name="editor")
    (text,) = await told(agent)
    assert text.startswith("Error [hook_contract_error]: editor: ") and said in text


async def test_listeners_see_what_the_earlier_ones_made_of_the_result() -> None:
    """D-7: the last has the last word on content."""
    agent = calling("wait", name="a")
    agent.on.post_execute(lambda call, result: Replace(f"{result.text}1"))
    agent.on.post_execute(lambda call, result: Replace(f"{result.text}2"))
    assert await told(agent) == ["a12"]


@pytest.mark.parametrize(
    ("feedback", "text"), [("not that one", "not that one"), ("", "the result was withheld by a review")]
)
async def test_a_blocked_result_is_a_failure_that_says_why(feedback: str, text: str) -> None:
    """TP-20, TP-22: what the tool did is not undone."""
    trace = Trace()
    agent = calling("write", name="a")
    agent.on.post_execute(lambda call, result: Block(feedback))
    agent.on.post_execute(trace.at("later", Replace("prettier")))
    assert await told(agent) == [f"Error [blocked]: {text}"]
    assert (codes(agent), ran, trace.of("c1")) == (["BLOCKED"], ["a"], ["later"])
    (result,) = agent.session.facts(ToolResulted)
    assert result.error is not None and result.error.handler_executed


async def test_the_first_block_is_the_one_that_is_read() -> None:
    agent = calling("write", name="a")
    agent.on.post_execute(lambda call, result: Block("first"))
    agent.on.post_execute(lambda call, result: Block("second"))
    assert await told(agent) == ["Error [blocked]: first"]


async def test_a_result_that_could_not_be_reviewed_is_withheld_and_kept_for_people() -> None:
    """D-25: the model reads the failure; the log has what the body gave."""
    agent = calling("write", name="secret")
    agent.on.post_execute(raise_value_error, name="scanner")
    (text,) = await told(agent)
    assert "secret" not in text
    (settled,) = agent.session.facts(ToolSettled)
    assert settled.content == (Text("wrote secret"),)
    assert log(agent) == ["TC c1", "ST c1", "SD c1 ok", "TR c1 ERR[HOOK_EXECUTION_ERROR]", "SE 1.1 tools"]


async def test_a_review_that_is_cut_by_a_stop_withholds_the_result() -> None:
    """D-19, D-25: nobody knows what it would have said."""

    async def scans(call: ToolCall, result: ToolResult) -> None:
        await asyncio.sleep(9)

    agent = calling("write", name="secret")
    agent.on.post_execute(scans, name="scanner")
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert asyncio.get_running_loop().time() == 1
        assert codes(agent) == ["RESULT_WITHHELD"]
        (settled,) = agent.session.facts(ToolSettled)
        assert settled.content == (Text("wrote secret"),)
        assert_laws(agent.session)


async def test_on_a_turn_that_is_stopped_already_a_review_runs_to_its_end() -> None:
    """D-19b: post-execute still runs on what was started."""

    async def scans(call: ToolCall, result: ToolResult) -> Replace:
        await asyncio.sleep(2)
        return Replace(f"reviewed: {result.text}")

    agent = calling("wait", name="a", seconds=9)
    agent.on.post_execute(scans)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert texts(agent) == ["reviewed: Error [aborted]: tool call aborted"]
        assert_laws(agent.session)


# Contexts


@tool
async def talk(ctx: ToolContext) -> ToolOutput:
    ctx.defer("deferred 1")
    ctx.defer(Message.context("deferred 2"))
    return ToolOutput("done", contexts=["returned"])


async def adds(call: ToolCall, following: Any) -> ToolResult:
    result = await following()
    return ToolResult(
        call=call,
        content=(),
        value=result.value,
        contexts=(*result.contexts, *Allow(contexts=["wrapped"]).contexts),
    )


def talking() -> Agent:
    agent = calling("talk", tools=[talk])
    agent.on.prepare(lambda call: Advise(contexts=["prepared"]))
    agent.on.pre_execute(lambda call: Allow(contexts=["allowed"]))
    agent.on.execute(adds)
    return agent


async def test_contexts_ride_on_the_result_in_the_order_of_the_stages() -> None:
    """D-1b, TP-21: prepare, pre-execute, deferred by the body, wrapper, post."""
    agent = talking()
    agent.on.post_execute(lambda call, result: Accept(contexts=["posted 1"]))
    agent.on.post_execute(lambda call, result: Replace("x", contexts=["posted 2"]))
    await told(agent)
    expected = [
        "prepared",
        "allowed",
        "deferred 1",
        "deferred 2",
        "returned",
        "wrapped",
        "posted 1",
        "posted 2",
    ]
    assert contexts(agent) == expected
    said = [fact for fact in agent.session.facts(UserMessage) if fact.place == "context"]
    assert [fact.content[0].text for fact in said] == expected  # type: ignore[union-attr]
    assert all(fact.source.kind != "person" for fact in said)


async def test_a_block_keeps_only_its_own_contexts_and_those_from_before_the_body() -> None:
    """D-1b, TP-21."""
    agent = talking()
    agent.on.post_execute(lambda call, result: Accept(contexts=["accepted"]))
    agent.on.post_execute(lambda call, result: Block("no", contexts=["blocked 1"]))
    agent.on.post_execute(lambda call, result: Block("no", contexts=["blocked 2"]))
    await told(agent)
    assert contexts(agent) == ["prepared", "allowed", "blocked 1", "blocked 2"]


async def test_contexts_survive_a_denial() -> None:
    """D-1b, TP-05."""
    agent = talking()
    agent.on.pre_execute(lambda call: Deny("no", contexts=["denied"]))
    await told(agent)
    assert contexts(agent) == ["prepared", "allowed", "denied"]


@pytest.mark.parametrize("first", [True, False])
async def test_a_guard_has_contexts_too(first: bool) -> None:
    passes: list[str] = []

    def guard(call: ToolCall) -> Deny | None:
        passes.append(call.id)
        return Deny("no", contexts=["guarded"]) if first or len(passes) == 2 else None

    agent = talking()
    agent.guard(guard)
    await told(agent)
    assert contexts(agent) == ["prepared", "allowed", "guarded"]


async def test_a_failed_body_keeps_what_it_had_deferred() -> None:
    """TP-21, UW-10."""
    agent = calling("fail")
    await told(agent)
    assert contexts(agent) == ["said before it failed"]


async def test_a_failed_review_keeps_what_the_body_had_deferred() -> None:
    """TP-21, UW-10, A-P22."""
    agent = talking()
    agent.on.post_execute(raise_value_error)
    await told(agent)
    assert contexts(agent) == ["prepared", "allowed", "deferred 1", "deferred 2", "returned", "wrapped"]


async def test_one_message_may_be_deferred_twice() -> None:
    """UW-03: every context has an id of its own."""

    @tool
    async def repeats(ctx: ToolContext) -> str:
        message = Message.context("again", source=Source("tool", "repeats"))
        ctx.defer(message)
        ctx.defer(message)
        return "x"

    agent = calling("repeats", tools=[repeats])
    await told(agent)
    (result,) = agent.session.facts(ToolResulted)
    assert len({message.id for message in result.contexts}) == len(result.contexts) == 2


async def test_contexts_of_several_calls_are_in_the_order_of_the_model() -> None:
    """SC-08, D-1: not in the order in which they ended."""
    agent = calling(*[call("wait", name=name, seconds=s) for name, s in (("a", 3), ("b", 1), ("c", 2))])
    agent.on.post_execute(lambda call, result: Accept(contexts=[f"about {call.arguments['name']}"]))
    await told(agent)
    said = [fact for fact in agent.session.facts(UserMessage) if fact.place == "context"]
    assert [fact.content[0].text for fact in said] == ["about a", "about b", "about c"]  # type: ignore[union-attr]
