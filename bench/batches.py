"""B2: many calls in one answer: what each costs, and how well the pool is used."""

from __future__ import annotations

import asyncio
from functools import partial

from bench import floor
from bench.measuring import Figure, Goal, Spent, cost, interleaved, require, stopwatch
from bench.prepared import PreparedModel, calls_at_once
from bench.scale import Scale
from interlock import Agent, Tool, tool

POOL = 10


@tool(effect="read", concurrency="parallel")
async def nothing() -> str:
    """Does nothing."""
    return "ok"


async def at_once() -> None:
    """Nothing to wait for."""


@tool(effect="read", concurrency="parallel")
async def something() -> str:
    """Does nothing, but could wait: its body has a task of its own."""
    await at_once()
    return "ok"


def waiting(seconds: float) -> Tool:
    @tool(effect="read", concurrency="parallel")
    async def wait() -> str:
        """Waits as for a server."""
        await asyncio.sleep(seconds)
        return "ok"

    return wait


async def harness_batch(calls: int, body: Tool) -> Spent:
    model = PreparedModel(calls_at_once(calls, body.name))
    async with Agent(model, tools=[body], pool=POOL) as agent:
        with stopwatch() as watch:
            result = await agent.run("Go.")
        require(result.ok and len(result.messages) == calls + 3, "calls")
    return watch.spent


async def floor_batch(calls: int, body: Tool, pool: int | None = None) -> Spent:
    model = PreparedModel(calls_at_once(calls, body.name))
    with stopwatch() as watch:
        messages = await floor.turn(model, {body.name: body.fn}, "Go.", pool=pool)
    require(len(messages) == calls + 3, "calls of the floor")
    return watch.spent


def run(scale: Scale) -> list[Figure]:
    noops = interleaved(
        scale.rounds,
        {
            "mine": partial(harness_batch, scale.calls, nothing),
            "floor": partial(floor_batch, scale.calls, nothing),
        },
    )
    pausing = interleaved(
        scale.rounds,
        {
            "mine": partial(harness_batch, scale.calls, something),
            "floor": partial(floor_batch, scale.calls, something),
        },
    )
    wait = waiting(scale.wait)
    waits = interleaved(
        scale.rounds,
        {
            "mine": partial(harness_batch, scale.waits, wait),
            "floor": partial(floor_batch, scale.waits, wait, POOL),
        },
    )
    return [
        cost(
            "B2",
            f"{scale.calls:,} no-op calls in one step",
            "us CPU a call",
            noops["mine"],
            noops["floor"],
            scale=1e6 / scale.calls,
            goal=Goal("<=", 35),
        ),
        cost(
            "B2",
            f"{scale.calls:,} no-op calls that could wait, in one step",
            "us CPU a call",
            pausing["mine"],
            pausing["floor"],
            scale=1e6 / scale.calls,
        ),
        cost(
            "B2",
            f"{scale.waits:,} calls of {scale.wait * 1000:g} ms, pool of {POOL}",
            "ms in all",
            waits["mine"],
            waits["floor"],
            scale=1e3,
            clock="wall",
            goal=Goal("<=", 1.05, "ratio"),
        ),
    ]
