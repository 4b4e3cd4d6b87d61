"""B7: what the disk costs: steps that wait for it, the reload of a session, and the room that it takes."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median

import msgspec

from bench import floor
from bench.measuring import Contestant, Figure, Goal, Spent, cost, interleaved, plain, require, stopwatch
from bench.prepared import PreparedModel, one_call_a_step
from bench.scale import Scale
from bench.steps import count
from interlock import Agent, SQLiteStore
from interlock.log.session import open_session

BARRIERS = 2  # a step: its input before the request leaves, its intent before a body with effects starts
RELOADED = 1_000  # events


async def harness_durably(steps: int, file: Path) -> Spent:
    async with (
        SQLiteStore(file) as store,
        Agent(PreparedModel(one_call_a_step(steps, "count")), tools=[count], store=store) as agent,
    ):
        with stopwatch() as watch:
            result = await agent.run("Count.")
        require(result.ok and result.steps == steps + 1 and len(result.messages) == 2 * steps + 2, "steps")
    return watch.spent


async def floor_durably(steps: int, file: Path, *, threads: bool) -> Spent:
    model = PreparedModel(one_call_a_step(steps, "count"))
    with closing(floor.Rows(file, threads=threads)) as rows:
        with stopwatch() as watch:
            messages = await floor.turn(model, {"count": count.fn}, "Count.", rows=rows)
        require(len(messages) == 2 * steps + 2, "steps of the floor")
        require(rows.barriers == BARRIERS * steps + 2, "barriers of the floor")
    return watch.spent


async def reload(file: Path, session_id: str, events: int) -> Spent:
    """A session is opened, and all that is known of it found by replaying it."""
    async with SQLiteStore(file) as store:
        await store.list(limit=1)  # it is open
        with stopwatch() as watch:
            session = await open_session(session_id, store=store, readonly=True)
        require(session.head == events - 1 and len(session.history) > events / 10, "a session")
        await session.close()
    return watch.spent


async def floor_reload(file: Path, events: int) -> Spent:
    """The same rows, and their JSON as plain objects."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("SELECT 1 FROM session").fetchone()
        with stopwatch() as watch:
            rows = connection.execute("SELECT first, lines, type, data FROM event ORDER BY session, first")
            read = [
                (seq, type_, msgspec.json.decode(data) if lines is None else msgspec.msgpack.decode(data))
                for seq, lines, type_, data in rows
            ]
        require(read[-1][0] == events - 1, "rows of the floor")
    return watch.spent


def run(scale: Scale) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        return [*_steps(scale, folder), *_reload(scale, folder)]


def _steps(scale: Scale, folder: Path) -> list[Figure]:
    steps = scale.durable_steps
    sizes: dict[str, float] = {}

    def into_a_new_file(whose: str, work: Callable[[int, Path], Awaitable[Spent]]) -> Contestant:
        async def measured() -> Spent:
            file = folder / f"{whose}.db"
            spent = await work(steps, file)
            sizes[whose] = _bytes_an_event(file)
            return spent

        return measured

    samples = interleaved(
        scale.rounds,
        {
            "mine": into_a_new_file("mine", harness_durably),
            "floor": into_a_new_file("floor", partial(floor_durably, threads=True)),
            "blocking": into_a_new_file("blocking", partial(floor_durably, threads=False)),
        },
    )
    what = f"{steps:,} steps on SQLite, {BARRIERS} barriers each"
    blocking = median([spent.wall for spent in samples["blocking"]]) * 1e6 / steps
    return [
        cost(
            "B7",
            what,
            "us a step",
            samples["mine"],
            samples["floor"],
            scale=1e6 / steps,
            clock="wall",
            goal=Goal("<=", 1.5, "ratio"),
            note=f"a loop that stands still while it waits for the disk takes {blocking:,.0f} us",
        ),
        plain(
            "B7",
            f"{what}: the file",
            "bytes an event",
            sizes["mine"],
            floor=sizes["floor"],
            goal=Goal("<=", 300),
        ),
    ]


def _bytes_an_event(file: Path) -> float:
    """Of a file with one session, which is deleted."""
    with closing(sqlite3.connect(file)) as connection:
        columns = [row[1] for row in connection.execute("PRAGMA table_info(event)")]
        count = "max(first + ifnull(lines, 1))" if "lines" in columns else "count(*)"
        events: int = connection.execute(f"SELECT {count} FROM event").fetchone()[0]
    size = file.stat().st_size
    for one in file.parent.glob(f"{file.name}*"):
        one.unlink()
    return size / events


def _reload(scale: Scale, folder: Path) -> list[Figure]:
    file = folder / "reloaded.db"
    session_id, events = asyncio.run(_written(file))
    samples = interleaved(
        scale.rounds,
        {"mine": partial(reload, file, session_id, events), "floor": partial(floor_reload, file, events)},
    )
    return [
        cost(
            "B7",
            f"reload of {events:,} events",
            "ms",
            samples["mine"],
            samples["floor"],
            scale=1e3,
            clock="wall",
            goal=Goal("<=", 5),
        )
    ]


async def _written(file: Path) -> tuple[str, int]:
    """A session of about so many events, without a checkpoint."""
    steps = (RELOADED - 20) // 9
    async with (
        SQLiteStore(file) as store,
        Agent(PreparedModel(one_call_a_step(steps, "count")), tools=[count], store=store) as agent,
    ):
        await agent.run("Count.")
        session = agent.session
        while session.head + 1 < RELOADED:
            agent.inject("More.")
        require(session._kept < 0, "a session without a checkpoint")
        return session.id, session.head + 1
