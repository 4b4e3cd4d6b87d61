"""How time is taken, and what a measurement says.

Lives here: `stopwatch`, `interleaved`, and `Figure`, one line of the report. Times are seconds until a figure is made
of them. CPU is that of this process, all threads; a figure is the median of its rounds.
"""

from __future__ import annotations

import asyncio
import gc
import math
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from statistics import median, quantiles
from typing import Literal, NamedTuple, TypeAlias

import msgspec

Clock: TypeAlias = Literal["cpu", "wall"]


class Spent(NamedTuple):
    """Seconds."""

    cpu: float
    wall: float

    def __sub__(self, other: Spent) -> Spent:
        return Spent(self.cpu - other.cpu, self.wall - other.wall)


Contestant: TypeAlias = Callable[[], Awaitable[Spent]]


class WrongWork(Exception):
    """What was measured did not do its work, so its time means nothing."""


def require(done: bool, what: str) -> None:
    """
    Raises:
        WrongWork: it was not done.
    """
    if not done:
        raise WrongWork(what)


class Watch:
    """What a `stopwatch` block took, once it is left."""

    spent: Spent


@contextmanager
def stopwatch() -> Iterator[Watch]:
    watch = Watch()
    cpu, wall = time.process_time(), time.perf_counter()
    yield watch
    watch.spent = Spent(time.process_time() - cpu, time.perf_counter() - wall)


def interleaved(rounds: int, contestants: Mapping[str, Contestant]) -> dict[str, list[Spent]]:
    """Measure every contestant once a round, in turn: what disturbs the machine disturbs all of them alike.

    Each one runs in an event loop of its own, after a collection of garbage. One more round goes before, to warm up.
    """
    samples: dict[str, list[Spent]] = {name: [] for name in contestants}
    for number in range(rounds + 1):
        for name, contestant in contestants.items():
            gc.collect()
            with asyncio.Runner() as runner:
                spent = runner.run(_awaited(contestant))
            if number:
                samples[name].append(spent)
    return samples


async def _awaited(contestant: Contestant) -> Spent:
    return await contestant()


def growth_exponent(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """The slope of costs over sizes, both logarithmic, by least squares: 0 is flat, 1 linear."""
    xs, ys = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    above = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True))
    return above / sum((x - mean_x) ** 2 for x in xs)


class Goal(msgspec.Struct, frozen=True):
    """What is to be reached: a bound of the figure itself, or of its ratio to the floor."""

    sign: Literal["<=", ">="]
    bound: float
    of: Literal["figure", "ratio"] = "figure"

    def met(self, figure: float, ratio: float | None) -> bool:
        value = figure if self.of == "figure" else ratio
        if value is None:
            return False
        return value <= self.bound if self.sign == "<=" else value >= self.bound

    def __str__(self) -> str:
        return f"{self.sign} {self.bound:,g}" + (" x floor" if self.of == "ratio" else "")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the report. `figure` and `floor` are in `unit`, by the clock that the goal speaks of."""

    bench: str
    what: str
    unit: str
    figure: float | None  # None: it cannot be measured here, and `note` says why
    floor: float | None = None
    ratio: float | None = None  # how many times the floor's cost
    goal: str | None = None
    met: bool | None = None
    clock: Clock | None = None
    cpu: float | None = None
    wall: float | None = None
    floor_cpu: float | None = None
    floor_wall: float | None = None
    spread: float | None = None  # the middle half of the rounds, as a share of the median
    rounds: int | None = None
    note: str = ""


def plain(
    bench: str,
    what: str,
    unit: str,
    figure: float,
    *,
    floor: float | None = None,
    goal: Goal | None = None,
    note: str = "",
) -> Figure:
    """A figure that is no time: a size or an exponent."""
    return Figure(
        bench=bench,
        what=what,
        unit=unit,
        figure=figure,
        floor=floor,
        goal=str(goal) if goal else None,
        met=goal.met(figure, None) if goal else None,
        note=note,
    )


def unmeasured(bench: str, what: str, unit: str, *, why: str, goal: Goal | None = None) -> Figure:
    """The place of a figure that cannot be had here."""
    return Figure(bench=bench, what=what, unit=unit, figure=None, goal=str(goal) if goal else None, note=why)


def cost(
    bench: str,
    what: str,
    unit: str,
    mine: Sequence[Spent],
    floor: Sequence[Spent] | None = None,
    *,
    scale: float,
    clock: Clock = "cpu",
    goal: Goal | None = None,
    note: str = "",
) -> Figure:
    """The median time in `unit`, of which a second has `scale`."""
    return _timed(
        bench, what, unit, mine, floor, lambda seconds: seconds * scale, clock=clock, goal=goal, note=note
    )


def rate(
    bench: str,
    what: str,
    unit: str,
    mine: Sequence[Spent],
    floor: Sequence[Spent] | None = None,
    *,
    count: int,
    clock: Clock = "wall",
    goal: Goal | None = None,
    note: str = "",
) -> Figure:
    """How many a second, when each round did `count`."""
    return _timed(
        bench, what, unit, mine, floor, lambda seconds: count / seconds, clock=clock, goal=goal, note=note
    )


def _timed(
    bench: str,
    what: str,
    unit: str,
    mine: Sequence[Spent],
    floor: Sequence[Spent] | None,
    shown: Callable[[float], float],
    *,
    clock: Clock,
    goal: Goal | None,
    note: str,
) -> Figure:
    cpu, wall = _medians(mine)
    floor_cpu, floor_wall = _medians(floor) if floor else (None, None)
    seconds, least = (cpu, floor_cpu) if clock == "cpu" else (wall, floor_wall)
    ratio = seconds / least if least else None
    return Figure(
        bench=bench,
        what=what,
        unit=unit,
        figure=shown(seconds),
        floor=shown(least) if least else None,
        ratio=ratio,
        goal=str(goal) if goal else None,
        met=goal.met(shown(seconds), ratio) if goal else None,
        clock=clock,
        cpu=shown(cpu),
        wall=shown(wall),
        floor_cpu=shown(floor_cpu) if floor_cpu else None,
        floor_wall=shown(floor_wall) if floor_wall else None,
        spread=_spread([getattr(spent, clock) for spent in mine]),
        rounds=len(mine),
        note=note,
    )


def _medians(samples: Sequence[Spent]) -> tuple[float, float]:
    return median([spent.cpu for spent in samples]), median([spent.wall for spent in samples])


def _spread(seconds: Sequence[float]) -> float | None:
    if len(seconds) < 2 or not median(seconds):
        return None
    low, _, high = quantiles(seconds, n=4, method="inclusive")
    return (high - low) / abs(median(seconds))
