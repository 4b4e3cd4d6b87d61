"""B6: what it costs that others may speak: five listeners that say nothing, on each call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from bench import floor
from bench.batches import something
from bench.measuring import Contestant, Figure, Goal, Spent, cost, interleaved, require, stopwatch
from bench.prepared import PreparedModel, calls_at_once
from bench.scale import Scale
from interlock import Agent

LISTENERS = 5


def abstain(*_: object) -> None:
    return None


async def abstain_later(*_: object) -> None:
    return None


async def wrap(call: object, following: Callable[[], Awaitable[Any]]) -> Any:
    return await following()


#: By the name in the report: the agent's attribute, and the listener.
POINTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "pre-execute": ("pre_execute", abstain),
    "pre-execute, async": ("pre_execute", abstain_later),
    "prepare": ("prepare", abstain),
    "guard": ("guard", abstain),
    "execute, wrapping": ("execute", wrap),
    "post-execute": ("post_execute", abstain),
    "result": ("result", abstain),
}


async def harness_calls(calls: int, point: str | None) -> Spent:
    model = PreparedModel(calls_at_once(calls, something.name))
    async with Agent(model, tools=[something]) as agent:
        if point is not None:
            attribute, listener = POINTS[point]
            register = agent.guard if attribute == "guard" else getattr(agent.on, attribute)
            for number in range(LISTENERS):
                register(listener, name=f"listener {number}")
        with stopwatch() as watch:
            result = await agent.run("Go.")
        require(result.ok and len(result.messages) == calls + 3, "calls")
    return watch.spent


async def floor_calls(
    calls: int,
    heard: tuple[Callable[..., object], ...] = (),
    awaited: tuple[Callable[..., Awaitable[object]], ...] = (),
) -> Spent:
    model = PreparedModel(calls_at_once(calls, something.name))
    with stopwatch() as watch:
        messages = await floor.turn(
            model, {something.name: something.fn}, "Go.", heard=heard, awaited=awaited
        )
    require(len(messages) == calls + 3, "calls of the floor")
    return watch.spent


def run(scale: Scale) -> list[Figure]:
    calls = scale.calls
    contestants: dict[str, Contestant] = {"none": partial(harness_calls, calls, None)}
    contestants |= {point: partial(harness_calls, calls, point) for point in POINTS}
    contestants |= {
        "floor": partial(floor_calls, calls),
        "floor, plain": partial(floor_calls, calls, heard=(abstain,) * LISTENERS),
        "floor, async": partial(floor_calls, calls, awaited=(abstain_later,) * LISTENERS),
    }
    samples = interleaved(2 * scale.rounds, contestants)  # a small difference of large numbers

    def over(with_listeners: str, without: str) -> list[Spent]:
        pairs = zip(samples[with_listeners], samples[without], strict=True)
        return [with_ - plain for with_, plain in pairs]

    return [
        cost(
            "B6",
            f"{LISTENERS} no-op listeners on each call: {point}",
            "us CPU a listener and call",
            over(point, "none"),
            None
            if listener is wrap
            else over("floor, async" if listener is abstain_later else "floor, plain", "floor"),
            scale=1e6 / (LISTENERS * calls),
            goal=Goal("<=", 2),
        )
        for point, (_, listener) in POINTS.items()
    ]
