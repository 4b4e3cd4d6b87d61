"""B3: many agents at once: what a step of one costs among a thousand, and how much memory each one holds."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from contextlib import AsyncExitStack
from functools import partial
from statistics import median

from bench import floor
from bench.batches import waiting
from bench.measuring import Figure, Goal, Spent, cost, interleaved, plain, require, stopwatch
from bench.prepared import PreparedModel, calls_in_turn
from bench.scale import Scale
from interlock import Agent, Harness, Tool

MEMORY_ROUNDS = 3  # it hardly differs from one to the next


async def harness_agents(agents: int, steps: int, body: Tool) -> Spent:
    return (await _run_agents(agents, steps, body))[0]


async def floor_agents(agents: int, steps: int, body: Tool) -> Spent:
    models = [PreparedModel(calls_in_turn(steps, body.name)) for _ in range(agents)]
    with stopwatch() as watch:
        turns = await asyncio.gather(*[floor.turn(model, {body.name: body.fn}, "Go.") for model in models])
    require(all(len(messages) == 2 * steps + 2 for messages in turns), "agents of the floor")
    return watch.spent


async def held(agents: int, steps: int, body: Tool) -> float:
    """Bytes that an open agent holds after its turn: itself, its session and the log in memory."""
    tracemalloc.start()
    try:
        return (await _run_agents(agents, steps, body))[1] / agents
    finally:
        tracemalloc.stop()


async def _run_agents(agents: int, steps: int, body: Tool) -> tuple[Spent, int]:
    """What the turns of all agents took, and, while memory is traced, how many bytes are held after them."""
    models = [PreparedModel(calls_in_turn(steps, body.name)) for _ in range(agents)]
    before = _traced()
    async with Harness(tools=[body]) as harness, AsyncExitStack() as stack:
        opened = [await stack.enter_async_context(Agent(model, harness=harness)) for model in models]
        with stopwatch() as watch:
            results = await asyncio.gather(*[agent.run("Go.") for agent in opened])
        require(
            all(result.ok and result.steps == steps + 1 for result in results)
            and all(len(result.messages) == 2 * steps + 2 for result in results),
            "agents",
        )
        del results
        return watch.spent, _traced() - before


def _traced() -> int:
    if not tracemalloc.is_tracing():
        return 0
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def run(scale: Scale) -> list[Figure]:
    agents, steps, body = scale.agents, scale.agent_steps, waiting(scale.agent_wait)
    what = f"{agents:,} agents, {steps} steps each, tool of {scale.agent_wait * 1000:g} ms"
    samples = interleaved(
        scale.rounds,
        {
            "mine": partial(harness_agents, agents, steps, body),
            "floor": partial(floor_agents, agents, steps, body),
        },
    )
    sizes = [asyncio.run(held(agents, steps, body)) for _ in range(MEMORY_ROUNDS)]
    return [
        cost(
            "B3",
            what,
            "us CPU a step",
            samples["mine"],
            samples["floor"],
            scale=1e6 / (agents * steps),
            goal=Goal("<=", 100),
        ),
        plain("B3", f"{what}: held after the turn", "KB an agent", median(sizes) / 1000, goal=Goal("<=", 25)),
    ]
