"""What a step costs, counted: calls of our own functions, and bytes. Both are the same on every machine, unlike a time.

A ceiling is what it takes today and a little room. Lower it when it takes less. Raise it when something new is worth
its price on every step, and say so where the price is paid.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

import interlock
from bench import agents, batches, listeners, steps

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
    within(await calls_a_unit(steps.harness_steps, 20), 20, 270)


async def test_a_call_among_many_of_one_answer() -> None:
    within(await calls_a_unit(partial(batches.harness_batch, body=batches.nothing), 100), 100, 165)


@pytest.mark.parametrize(
    ("point", "ceiling"),
    [("pre-execute", 1.7), ("pre-execute, async", 4.8), ("execute, wrapping", 4.6)],
)
async def test_a_listener_that_says_nothing(point: str, ceiling: float) -> None:
    with_listeners = await calls_a_unit(partial(listeners.harness_calls, point=point), 50)
    without = await calls_a_unit(partial(listeners.harness_calls, point=None), 50)
    with_listeners.subtract(without)
    within(with_listeners, 50 * listeners.LISTENERS, ceiling)


async def test_the_memory_of_an_open_agent_after_a_turn() -> None:
    body = batches.waiting(0)
    gc.freeze()  # only what the agents hold need be looked at
    try:
        await agents.harness_agents(2, 5, body)
        bytes_held = await agents.held(50, 5, body)
    finally:
        gc.unfreeze()
    assert bytes_held <= 28_000, f"an agent holds {bytes_held:,.0f} bytes after a turn of five steps"
