"""B1: what a step costs, and whether it costs more the longer the session is."""

from __future__ import annotations

from functools import partial
from statistics import median

from bench import floor
from bench.measuring import (
    Contestant,
    Figure,
    Goal,
    Spent,
    cost,
    growth_exponent,
    interleaved,
    plain,
    require,
    stopwatch,
)
from bench.prepared import PreparedModel, one_call_a_step
from bench.scale import Scale
from interlock import Agent, Tool, tool


@tool
async def count(n: int) -> int:
    """The next number."""
    return n + 1


@tool("count")
async def count_later(n: int) -> int:
    """The next number, from a body that could wait: it has a task of its own."""
    return await count.fn(n)  # type: ignore[no-any-return]


async def harness_steps(steps: int, body: Tool = count) -> Spent:
    model = PreparedModel(one_call_a_step(steps, body.name))
    async with Agent(model, tools=[body]) as agent:
        with stopwatch() as watch:
            result = await agent.run("Count.")
        require(result.ok and result.steps == steps + 1 and len(result.messages) == 2 * steps + 2, "steps")
    return watch.spent


async def floor_steps(steps: int, body: Tool = count) -> Spent:
    model = PreparedModel(one_call_a_step(steps, body.name))
    with stopwatch() as watch:
        messages = await floor.turn(model, {body.name: body.fn}, "Count.")
    require(len(messages) == 2 * steps + 2, "steps of the floor")
    return watch.spent


def run(scale: Scale) -> list[Figure]:
    return [*_one_size(scale), *_growth(scale)]


def _one_size(scale: Scale) -> list[Figure]:
    steps = scale.steps
    samples = interleaved(
        scale.rounds,
        {
            "mine": partial(harness_steps, steps),
            "floor": partial(floor_steps, steps),
            "mine, later": partial(harness_steps, steps, count_later),
            "floor, later": partial(floor_steps, steps, count_later),
        },
    )

    def figure(what: str, which: str = "", goal: Goal | None = None) -> Figure:
        mine, beside = samples[f"mine{which}"], samples[f"floor{which}"]
        return cost("B1", what, "us CPU a step", mine, beside, scale=1e6 / steps, goal=goal)

    return [
        figure(f"one trivial tool a step, {steps:,} steps, log in memory", goal=Goal("<=", 60)),
        figure(f"one trivial tool that could wait a step, {steps:,} steps", ", later"),
    ]


def _growth(scale: Scale) -> list[Figure]:
    contestants: dict[str, Contestant] = {}
    for steps in scale.growth:
        contestants[f"mine {steps}"] = partial(harness_steps, steps)
        contestants[f"floor {steps}"] = partial(floor_steps, steps)
    samples = interleaved(max(scale.rounds // 2, 1), contestants)

    def exponent(whose: str) -> float:
        costs = [
            median([spent.cpu for spent in samples[f"{whose} {steps}"]]) / steps for steps in scale.growth
        ]
        return growth_exponent(scale.growth, costs)

    sizes = [
        cost(
            "B1",
            f"the same, {steps:,} steps",
            "us CPU a step",
            samples[f"mine {steps}"],
            samples[f"floor {steps}"],
            scale=1e6 / steps,
        )
        for steps in scale.growth
    ]
    first, last = scale.growth[0], scale.growth[-1]
    return [
        *sizes,
        plain(
            "B1",
            f"growth of the cost of a step, {first:,} to {last:,} steps",
            "exponent",
            exponent("mine"),
            floor=exponent("floor"),
            goal=Goal("<=", 0.05),
        ),
    ]
