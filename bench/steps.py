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
from interlock import Agent, tool


@tool
async def count(n: int) -> int:
    """The next number."""
    return n + 1


async def harness_steps(steps: int) -> Spent:
    model = PreparedModel(one_call_a_step(steps, "count"))
    async with Agent(model, tools=[count]) as agent:
        with stopwatch() as watch:
            result = await agent.run("Count.")
        require(result.ok and result.steps == steps + 1 and len(result.messages) == 2 * steps + 2, "steps")
    return watch.spent


async def floor_steps(steps: int) -> Spent:
    model = PreparedModel(one_call_a_step(steps, "count"))
    with stopwatch() as watch:
        messages = await floor.turn(model, {"count": count.fn}, "Count.")
    require(len(messages) == 2 * steps + 2, "steps of the floor")
    return watch.spent


def run(scale: Scale) -> list[Figure]:
    return [_one_size(scale), *_growth(scale)]


def _one_size(scale: Scale) -> Figure:
    steps = scale.steps
    samples = interleaved(
        scale.rounds, {"mine": partial(harness_steps, steps), "floor": partial(floor_steps, steps)}
    )
    return cost(
        "B1",
        f"one trivial tool a step, {steps:,} steps, log in memory",
        "us CPU a step",
        samples["mine"],
        samples["floor"],
        scale=1e6 / steps,
        goal=Goal("<=", 60),
    )


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
