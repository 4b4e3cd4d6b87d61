"""B4: how fast a stream reaches the one who watches it, every chunk on record before."""

from __future__ import annotations

from functools import partial

from bench import floor
from bench.measuring import Figure, Goal, Spent, interleaved, rate, require, stopwatch
from bench.prepared import PreparedModel, text
from bench.scale import Scale
from interlock import Agent
from interlock.log.facts import AssistantChunk

BURST = 20  # chunks in one read of a socket


async def harness_stream(chunks: int, burst: int | None) -> Spent:
    model = PreparedModel(text(chunks), burst=burst)
    seen = 0
    async with Agent(model) as agent:
        with stopwatch() as watch:
            async with agent.stream("Talk.") as events:
                async for event in events:
                    if type(event.fact) is AssistantChunk:
                        seen += 1
    require(seen == chunks + 1, "chunks")
    return watch.spent


async def floor_stream(chunks: int, burst: int | None) -> Spent:
    model = PreparedModel(text(chunks), burst=burst)
    seen = 0

    def consume(record: floor.Record) -> None:
        nonlocal seen
        if record["type"] == "chunk":
            seen += 1

    with stopwatch() as watch:
        await floor.streamed(model, "Talk.", consume)
    require(seen == chunks, "chunks of the floor")
    return watch.spent


def run(scale: Scale) -> list[Figure]:
    count = scale.chunks
    figures = []
    for burst, how, goal in (
        (None, "all at once", Goal(">=", 400_000)),
        (BURST, f"in bursts of {BURST}, each seen before the next", None),
    ):
        samples = interleaved(
            scale.rounds,
            {"mine": partial(harness_stream, count, burst), "floor": partial(floor_stream, count, burst)},
        )
        figures.append(
            rate(
                "B4",
                f"{count:,} chunks to a consumer, {how}",
                "chunks a second",
                samples["mine"],
                samples["floor"],
                count=count,
                goal=goal,
            )
        )
    return figures
