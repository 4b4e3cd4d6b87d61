"""Calls of one answer: which of them overlap, in which order they are spoken about, and what waits for what."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from interlock import Claims, Deny, Rewrite, ToolCall, ToolResult
from interlock.log.facts import ToolResulted, ToolSettled, ToolStarted
from interlock.testing import call

from .calling import Trace, calling, log, ran, told, wait

pytestmark = pytest.mark.virtual


def answers(mode: Any) -> Callable[[ToolCall], Any]:
    def classify(call: ToolCall) -> Any:
        if isinstance(mode, Exception):
            raise mode
        return mode

    return classify


@pytest.mark.parametrize(
    ("mode", "overlap"),
    [
        ("parallel", True),
        (Claims(), True),
        (Claims(reads=["a"]), True),
        (Claims(writes=["a"]), False),
        ("exclusive", False),
        ("yes", False),
        ("PARALLEL", False),
        (True, False),
        (1, False),
        (None, False),
        (["parallel"], False),
        (RuntimeError("a bug"), False),
    ],
)
async def test_calls_overlap_only_if_their_classifier_clearly_says_so(mode: Any, overlap: bool) -> None:
    """SC-02, D-17: anything else, or a failure, means alone."""
    agent = calling(
        call("wait", name="a", seconds=1),
        call("wait", name="b", seconds=2),
        tools=[wait.with_(concurrency=answers(mode))],
    )
    await told(agent)
    apart = ["TC c1", "ST c1", "TR c1 ok", "TC c2", "ST c2", "TR c2 ok"]
    together = ["TC c1", "ST c1", "TC c2", "ST c2", "TR c1 ok", "TR c2 ok"]
    assert log(agent)[:-1] == (together if overlap else apart)


async def test_a_classifier_sees_frozen_arguments_and_changes_nothing_that_runs() -> None:
    """UW-19."""

    def spoils(call: ToolCall) -> str:
        call.arguments["name"] = "spoilt"
        return "parallel"

    agent = calling("wait", name="a", tools=[wait.with_(concurrency=spoils)])
    assert await told(agent) == ["a"]


async def test_claims_are_of_the_arguments_and_on_record() -> None:
    """D-17, UW-21: writes to different files run side by side, to the same one they do not."""

    def path(call: ToolCall) -> Claims:
        return Claims(writes=[call.arguments["name"]])

    agent = calling(
        call("wait", name="a", seconds=2),
        call("wait", name="b", seconds=1),
        call("wait", name="a", seconds=1),
        tools=[wait.with_(concurrency=path)],
    )
    await told(agent)
    assert [token for token in log(agent) if token[:2] in ("ST", "SD", "TR")] == [
        "ST c1", "ST c2", "SD c2 ok", "TR c1 ok", "TR c2 ok", "ST c3", "TR c3 ok",
    ]  # fmt: skip
    assert [started.claims.writes for started in agent.session.facts(ToolStarted) if started.claims] == [
        ("a",), ("b",), ("a",),
    ]  # fmt: skip


async def test_a_call_that_is_reclassified_after_an_earlier_result_waits_for_the_pool_and_runs_alone() -> (
    None
):
    """SC-07, D-17: the classifier of c3 answers otherwise after c1's result."""
    results: list[str] = []

    def classify(call: ToolCall) -> str:
        return "exclusive" if call.arguments["name"] == "c" and results else "parallel"

    agent = calling(
        call("wait", name="a", seconds=1),
        call("wait", name="b", seconds=3),
        call("wait", name="c", seconds=1),
        call("wait", name="d", seconds=1),
        tools=[wait.with_(concurrency=classify)],
        pool=2,
    )
    agent.on.result(lambda call, result: results.append(result.text))
    await told(agent)
    assert [token for token in log(agent) if token[:2] in ("ST", "TR")] == [
        "ST c1", "ST c2", "TR c1 ok", "TR c2 ok", "ST c3", "TR c3 ok", "ST c4", "TR c4 ok",
    ]  # fmt: skip


async def test_a_rewrite_may_make_a_call_conflict_with_an_earlier_one() -> None:
    """D-17: classified again on the effective arguments, at sealing."""

    def path(call: ToolCall) -> Claims:
        return Claims(writes=[call.arguments["name"]])

    agent = calling(
        call("wait", name="a", seconds=2),
        call("wait", name="b", seconds=1),
        tools=[wait.with_(concurrency=path)],
    )
    agent.on.prepare(lambda call: Rewrite({"name": "a"}) if call.arguments["name"] == "b" else None)
    await told(agent)
    assert log(agent) == [
        "TC c1", "ST c1", "TC c2", "TP c2", "TR c1 ok", "ST c2", "TR c2 ok", "SE 1.1 tools",
    ]  # fmt: skip


async def test_the_definition_found_at_admission_is_the_one_that_runs() -> None:
    """D-17, TP-23: it survives its unregistration, and its finaliser with it."""
    trace = Trace()
    agent = calling(call("wait", name="a"), tools=())
    dispose = agent.add_tool(wait.with_(finalise=trace.finaliser("FINAL")))

    def swap(call: ToolCall) -> None:
        dispose()
        agent.add_tool(wait.with_(render=lambda value: "another tool"))

    agent.on.pre_execute(swap)
    assert await told(agent) == ["FINAL"]
    assert ran == ["a"]


async def test_what_is_spoken_about_calls_is_in_the_order_of_the_model() -> None:
    """SC-05: pre-execute and post-execute in order, each call's line right before it is looked at."""
    trace = Trace()
    agent = calling(*[call("wait", name=str(n), seconds=3 - n) for n in range(3)])
    trace.everywhere(agent)
    await told(agent)
    assert [line for line in trace.seen if line.startswith(("pre:", "post:", "result:"))] == [
        "pre:c1", "pre:c2", "pre:c3",
        "post:c1", "result:c1", "post:c2", "result:c2", "post:c3", "result:c3",
    ]  # fmt: skip


async def test_a_settled_outcome_is_logged_at_once_and_cited_by_its_result() -> None:
    """D-8b, SC-06."""
    agent = calling(call("wait", name="a", seconds=2), call("wait", name="b", seconds=1))
    await told(agent)
    assert log(agent) == [
        "TC c1", "ST c1", "TC c2", "ST c2", "SD c2 ok", "TR c1 ok", "TR c2 ok", "SE 1.1 tools",
    ]  # fmt: skip
    events = list(agent.session.events)
    (settled,) = [event for event in events if isinstance(event.fact, ToolSettled)]
    result = [event for event in events if isinstance(event.fact, ToolResulted)][1]
    assert settled.seq in result.causes
    assert (settled.fact.ok, settled.fact.review, settled.fact.ms) == (True, False, 1000)  # type: ignore[attr-defined]


async def test_a_denied_sibling_takes_its_turn() -> None:
    """SC-06, D-8b."""
    agent = calling(call("wait", name="a", seconds=2), call("wait", name="b"))
    agent.on.pre_execute(lambda call: Deny("no") if call.id == "c2" else None)
    await told(agent)
    assert log(agent) == [
        "TC c1", "ST c1", "TC c2", "TD c2 deny policy", "SD c2 ERR[DENIED]",
        "TR c1 ok", "TR c2 ERR[DENIED]", "SE 1.1 tools",
    ]  # fmt: skip


async def test_a_slow_rule_delays_no_earlier_result_and_a_slow_review_no_later_start() -> None:
    """SC-14, UW-08."""
    times: dict[str, float] = {}
    agent = calling(*[call("wait", name=name) for name in "abc"], pool=1)

    async def slow_rule(call: ToolCall) -> None:
        if call.id == "c2":
            await asyncio.sleep(60)

    async def slow_review(call: ToolCall, result: ToolResult) -> None:
        if call.id == "c2":
            await asyncio.sleep(60)

    def note(event: Any) -> None:
        times.setdefault(f"{event.type} {len(times)}", asyncio.get_running_loop().time())

    agent.on.pre_execute(slow_rule)
    agent.on.post_execute(slow_review)
    agent.on.observe(ToolStarted, ToolResulted)(note)
    await told(agent)
    assert list(times.items()) == [
        ("tool/started 0", 0), ("tool/result 1", 0),
        ("tool/started 2", 60), ("tool/started 3", 60),
        ("tool/result 4", 120), ("tool/result 5", 120),
    ]  # fmt: skip
