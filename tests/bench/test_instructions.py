"""What a step costs, counted: calls of our own functions, and bytes. Both are the same on every machine, unlike a time.

A ceiling is what it takes today and a little room. Lower it when it takes less. Raise it when something new is worth
its price on every step, and say so where the price is paid.
"""

from __future__ import annotations

import gc
import sqlite3
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import closing
from functools import partial
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import interlock
from bench import agents, batches, durable, listeners, reopening, steps
from interlock import Agent, SQLiteStore

PACKAGE = str(Path(interlock.__file__).parent)


def counted(frame: FrameType) -> bool:
    """A function of ours. Comprehensions are left out: whether they are functions depends on the version of Python."""
    code = frame.f_code
    return code.co_filename.startswith(PACKAGE) and not code.co_name.startswith("<")


async def calls_during(work: Awaitable[object]) -> Counter[str]:
    """How often each function was called or went on, by its qualified name."""
    calls: Counter[str] = Counter()

    def seen(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and counted(frame):
            calls[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        await work
    finally:
        sys.setprofile(before)
    return calls


async def calls_a_unit(work: Callable[[int], Awaitable[object]], units: int) -> Counter[str]:
    """Calls in twice the work less those in the work: what each unit takes, in so many units."""
    await work(2 * units)  # what is made once is made now
    return await calls_during(work(2 * units)) - await calls_during(work(units))


def within(calls: Counter[str], units: int, ceiling: float) -> None:
    a_unit = calls.total() / units
    often = ", ".join(f"{name} {count / units:.1f}" for name, count in calls.most_common(25))
    assert a_unit <= ceiling, f"{a_unit:.1f} calls, more than {ceiling}: {often}"
    assert a_unit > 0.8 * ceiling, f"only {a_unit:.1f} calls now: lower the ceiling of {ceiling}"


async def test_a_step_with_one_tool() -> None:
    within(await calls_a_unit(steps.harness_steps, 20), 20, 205)


async def test_a_call_among_many_of_one_answer() -> None:
    within(await calls_a_unit(partial(batches.harness_batch, body=batches.nothing), 100), 100, 122)


async def test_a_step_and_a_call_whose_bodies_could_wait() -> None:
    """They have tasks of their own, and the lanes have to wait for them."""
    within(await calls_a_unit(partial(steps.harness_steps, body=steps.count_later), 20), 20, 245)
    within(await calls_a_unit(partial(batches.harness_batch, body=batches.something), 100), 100, 157)


@pytest.mark.parametrize(
    ("point", "ceiling"),
    [("pre-execute", 1.7), ("pre-execute, async", 1.7), ("execute, wrapping", 5.0)],
)
async def test_a_listener_that_says_nothing(point: str, ceiling: float) -> None:
    with_listeners = await calls_a_unit(partial(listeners.harness_calls, point=point), 50)
    without = await calls_a_unit(partial(listeners.harness_calls, point=None), 50)
    with_listeners.subtract(without)
    within(with_listeners, 50 * listeners.LISTENERS, ceiling)


# With a disk


async def rows_read_to_go_on(file: Path, session_id: str) -> tuple[int, int]:
    """How many rows of the table of lines are read until the next request leaves, and how many calls that takes."""
    rows = 0
    async with SQLiteStore(file) as store:
        await store.list(limit=1)  # it is open
        ask = store._query

        def counting(statement: str, values: dict[str, Any]) -> list[Any]:
            nonlocal rows
            found = ask(statement, values)
            rows += len(found) if "FROM event" in statement else 0
            return found

        store._query = counting  # type: ignore[method-assign]
        model = reopening.AskedModel()
        agent = Agent(model, store=store, session=session_id)

        async def go_on() -> None:
            await agent.open()
            agent.followup("Go on.")
            await model.asked.wait()

        calls = await calls_during(go_on())
        await agent.idle()
        await agent.aclose()
    return rows, calls.total()


@pytest.mark.slow
async def test_going_on_from_a_checkpoint_does_not_read_old_lines(tmp_path: Path) -> None:
    """B8, counted: what it takes depends on what came since the checkpoint, not on the length of the session."""
    file = tmp_path / "interlock.db"
    session_id = await reopening.write(file, 12_000)
    with closing(sqlite3.connect(file)) as connection:
        (kept,) = connection.execute("SELECT seq FROM checkpoint").fetchone()
        (since,) = connection.execute("SELECT count(*) FROM event WHERE first >= ?", (kept,)).fetchone()
    assert kept > 9_000
    await rows_read_to_go_on(file, session_id)  # what is made once is made now
    rows, calls = await rows_read_to_go_on(file, session_id)
    assert rows <= since + 100
    assert calls <= 20 * since


@pytest.mark.slow
async def test_what_a_disk_adds_to_a_step(tmp_path: Path) -> None:
    """On the event loop; what the writer's thread does comes beside it. Of checkpoints, a step pays for one look."""
    files = count()

    async def work(units: int) -> None:
        await durable.harness_durably(units, tmp_path / f"{next(files)}.db")

    calls = await calls_a_unit(work, 20)
    assert calls["Session._keep"] == 20
    assert not any("Snapshot" in name for name in calls)
    calls.subtract(await calls_a_unit(steps.harness_steps, 20))
    within(calls, 20, 135)


async def test_the_memory_of_an_open_agent_after_a_turn() -> None:
    body = batches.waiting(0)
    gc.freeze()  # only what the agents hold need be looked at
    try:
        await agents.harness_agents(2, 5, body)
        bytes_held = await agents.held(50, 5, body)
    finally:
        gc.unfreeze()
    assert bytes_held <= 28_000, f"an agent holds {bytes_held:,.0f} bytes after a turn of five steps"
