"""Stopping: a signal is set once, and a region that it cuts leaves no trace on the task.

The property test plays any nesting of cut regions and timeouts, with signals that are set from outside, from inside and
beforehand, and with a cancel of the task itself, against a small model of what should happen.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TypeAlias

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from interlock import Cause, Signal
from interlock.intercept.signal import Stopped
from interlock.testing import run_virtual

USER, PARENT = Cause("user"), Cause("parent")


# A signal


def test_the_first_cause_wins() -> None:
    """CA-02."""
    signal = Signal()
    assert (signal.is_set(), signal.cause) == (False, None)
    assert signal.set(PARENT)
    assert not signal.set(USER)
    assert (signal.is_set(), signal.cause) == (True, PARENT)


def test_it_can_be_checked_by_raising() -> None:
    signal = Signal()
    signal.raise_if_set()
    signal.set(Cause("hook", reason="enough"))
    with pytest.raises(Stopped, match=r"stopped: hook \(enough\)") as stopped:
        signal.raise_if_set()
    assert stopped.value.cause == Cause("hook", reason="enough")


def test_callbacks_run_once_in_order_with_the_cause() -> None:
    signal, told = Signal(), list[tuple[str, Cause]]()
    signal.on_set(lambda cause: told.append(("first", cause)))
    dispose = signal.on_set(lambda cause: told.append(("never", cause)))
    signal.on_set(lambda cause: told.append(("second", cause)))
    dispose()
    dispose()
    signal.set(USER)
    signal.set(PARENT)
    assert told == [("first", USER), ("second", USER)]


def test_a_callback_of_a_signal_that_is_set_runs_at_once() -> None:
    signal, told = Signal(), list[Cause]()
    signal.set(USER)
    signal.on_set(told.append)()
    assert told == [USER]


def test_a_callback_that_fails_keeps_no_other_from_being_told() -> None:
    """A tool may register one: it must not make a stop ineffective."""
    told: list[Cause] = []
    problems: list[object] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda loop, context: problems.append(context["exception"])
        )
        signal = Signal()
        child = Signal(signal)
        child.on_set(lambda cause: 1 / 0)
        child.on_set(told.append)
        signal.on_set(told.append)
        assert signal.set(USER)

    run_virtual(main())
    assert told == [USER, USER]
    assert [type(problem) for problem in problems] == [ZeroDivisionError]


def test_a_child_follows_its_parent_and_can_be_set_alone() -> None:
    parent = Signal()
    first, second = Signal(parent), Signal(parent)
    first.set(PARENT)
    assert (parent.cause, first.cause, second.cause) == (None, PARENT, None)
    parent.set(USER)
    assert (first.cause, second.cause) == (PARENT, USER)
    assert Signal(parent).cause == USER


def test_a_released_child_is_told_nothing_more() -> None:
    parent = Signal()
    child = Signal(parent)
    child.release()
    child.release()
    parent.set(USER)
    assert child.cause is None


async def test_it_can_be_waited_for() -> None:
    signal = Signal()
    waiting = [asyncio.create_task(signal.wait()) for _ in range(2)]
    gone = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    signal.set(USER)
    assert await asyncio.gather(*waiting) == [USER, USER]
    assert await signal.wait() == USER


async def test_a_waiter_that_is_cancelled_as_it_is_set_harms_nobody() -> None:
    signal = Signal()
    waiting = asyncio.create_task(signal.wait())
    await asyncio.sleep(0)
    waiting.cancel()
    signal.set(USER)
    with pytest.raises(asyncio.CancelledError):
        await waiting


# A region that is cut


def cancelling() -> int:
    task = asyncio.current_task()
    assert task is not None
    return task.cancelling()


@pytest.mark.virtual
async def test_a_region_is_cut_when_the_signal_is_set() -> None:
    """CA-13: one cancel, one uncancel, no task of its own."""
    signal, loop = Signal(), asyncio.get_running_loop()
    loop.call_later(2, signal.set, USER)
    with pytest.raises(Stopped) as stopped, signal.cutting():
        await asyncio.sleep(9)
    assert stopped.value.cause == USER
    assert (loop.time(), cancelling()) == (2, 0)
    await asyncio.sleep(1)


@pytest.mark.virtual
async def test_a_region_that_ends_in_time_is_not_cut() -> None:
    signal = Signal()
    with signal.cutting():
        await asyncio.sleep(1)
    signal.set(USER)
    await asyncio.sleep(1)
    assert cancelling() == 0


@pytest.mark.virtual
async def test_a_region_of_a_signal_that_is_set_is_not_entered() -> None:
    signal = Signal()
    signal.set(USER)
    with pytest.raises(Stopped), signal.cutting():
        pytest.fail("it was entered")


@pytest.mark.virtual
async def test_set_from_inside_it_ends_where_it_next_suspends() -> None:
    signal, reached = Signal(), list[str]()
    with pytest.raises(Stopped), signal.cutting():
        signal.set(USER)
        reached.append("still here")
        await asyncio.sleep(0)
        reached.append("never")
    assert reached == ["still here"]
    assert cancelling() == 0


@pytest.mark.virtual
async def test_set_from_inside_and_left_without_suspending_it_has_ended() -> None:
    signal = Signal()
    with signal.cutting():
        signal.set(USER)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert cancelling() == 0


@pytest.mark.virtual
async def test_code_that_swallows_the_cancel_goes_on_and_takes_no_stray_cancel_with_it() -> None:
    signal = Signal()
    asyncio.get_running_loop().call_later(1, signal.set, USER)
    with signal.cutting():
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            await asyncio.sleep(3)
    await asyncio.sleep(1)
    assert (asyncio.get_running_loop().time(), cancelling()) == (5, 0)


@pytest.mark.virtual
async def test_what_the_code_raises_instead_passes() -> None:
    signal = Signal()
    asyncio.get_running_loop().call_later(1, signal.set, USER)
    with pytest.raises(ValueError, match="mine"), signal.cutting():
        try:
            await asyncio.sleep(9)
        finally:
            raise ValueError("mine")
    await asyncio.sleep(1)
    assert cancelling() == 0


@pytest.mark.virtual
async def test_a_cancel_from_elsewhere_passes_even_if_the_signal_is_set_too() -> None:
    signal, loop = Signal(), asyncio.get_running_loop()
    raised: list[BaseException] = []

    async def work() -> None:
        try:
            with signal.cutting():
                await asyncio.sleep(9)
        except BaseException as error:
            raised.append(error)
            raise

    for order in ((signal.set, USER), None):
        task = asyncio.create_task(work())
        await asyncio.sleep(1)
        if order is None:
            task.cancel()
        else:
            loop.call_soon(signal.set, USER)
            loop.call_soon(task.cancel)
        with pytest.raises(asyncio.CancelledError):
            await task
        signal = Signal()
    assert [type(error) for error in raised] == [asyncio.CancelledError] * 2


@pytest.mark.virtual
async def test_a_cancel_from_elsewhere_that_comes_as_the_region_ends_is_not_taken_for_its_own() -> None:
    signal = Signal()
    passed: list[str] = []

    async def work() -> None:
        task = asyncio.current_task()
        assert task is not None
        with signal.cutting():
            signal.set(USER)
            task.cancel()
        passed.append("the region")
        await asyncio.sleep(0)
        passed.append("the cancel")

    task = asyncio.create_task(work())
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (passed, task.cancelling()) == (["the region"], 1)


@pytest.mark.virtual
async def test_a_region_that_is_paused_is_cut_when_it_goes_on() -> None:
    """Also if two have paused it, and if it was to be cut right then."""
    signal, reached = Signal(), list[float]()
    loop = asyncio.get_running_loop()
    loop.call_later(1, signal.set, USER)
    with pytest.raises(Stopped), signal.cutting() as cut:
        cut.pause()
        cut.pause()
        await asyncio.sleep(3)
        cut.go_on()
        await asyncio.sleep(3)
        cut.go_on()
        reached.append(loop.time())
        await asyncio.sleep(9)
    assert (reached, loop.time(), cancelling()) == ([6], 6, 0)

    signal = Signal()
    with signal.cutting() as cut:
        cut.pause()
        signal.set(USER)
        await asyncio.sleep(1)
        cut.go_on()
    await asyncio.sleep(1)
    assert cancelling() == 0


@pytest.mark.virtual
async def test_a_region_needs_a_task() -> None:
    refused: list[str] = []

    def callback() -> None:
        try:
            Signal().cutting().__enter__()
        except RuntimeError as error:
            refused.append(str(error))

    asyncio.get_running_loop().call_soon(callback)
    await asyncio.sleep(0)
    assert refused == ["a region can only be cut inside a task"]


# Any nesting


@dataclass(frozen=True)
class Sleep:
    seconds: int


@dataclass(frozen=True)
class Set:
    """Set a signal from inside."""

    signal: int


@dataclass(frozen=True)
class Region:
    """`signal`: what cuts it; None for a timeout of so many seconds. What it raises is caught around it."""

    signal: int | None
    seconds: int
    inside: tuple[Part, ...]


Part: TypeAlias = Sleep | Set | Region
PARENTS = (None, None, 0)  # signal 2 is a child of signal 0


@dataclass(frozen=True)
class Events:
    """What happens from outside, all at one time: signals that are set, and whether the task is cancelled."""

    signals: tuple[int, ...]
    cancel: bool


# All times have parts of a second that never meet: 1/2, 1/4 ... for events, still smaller ones for timeouts.
def time_of_event(n: int, second: int) -> float:
    return second + 0.5 ** (n + 1)


def timeout_of(region: Region, depth: int) -> float:
    """No two things happen at one instant: sums of the odd parts of inner ones never make that of an outer one."""
    return region.seconds + 0.5 ** (44 - 4 * depth)


signals = st.integers(0, 2)
leaves: st.SearchStrategy[Part] = st.builds(Sleep, st.integers(0, 3)) | st.builds(Set, signals)
parts: st.SearchStrategy[Part] = st.recursive(
    leaves,
    lambda inner: st.builds(
        Region, st.none() | signals | signals, st.integers(0, 3), st.lists(inner, max_size=4).map(tuple)
    ),
    max_leaves=10,
)
programs = st.lists(parts, max_size=5).map(tuple)
schedules = st.lists(
    st.tuples(st.integers(0, 6), st.builds(Events, st.lists(signals, max_size=2).map(tuple), st.booleans())),
    max_size=3,
)


class Cancelled(Exception):
    """The model's cancel from outside."""


class Unwound(Exception):
    """The model's cut: of this frame."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame


@dataclass(eq=False)
class Frame:
    region: Region
    deadline: float | None


@dataclass
class Model:
    """What should happen."""

    schedule: list[tuple[float, Events]]
    now: float = 0.0
    set: list[bool] = field(default_factory=lambda: [False, False, False])
    frames: list[Frame] = field(default_factory=list)
    due: list[Frame] = field(default_factory=list)  # to be cut where the code next suspends
    trace: list[tuple[float, str]] = field(default_factory=list)

    def play(self, program: tuple[Part, ...]) -> None:
        for part in program:
            match part:
                case Sleep(seconds):
                    self.sleep(seconds)
                    self.trace.append((self.now, "slept"))
                case Set(signal):
                    self.due += self.set_signal(signal)
                case Region():
                    self.region(part)

    def set_signal(self, signal: int) -> list[Frame]:
        """Set it and its children; the frames that this cuts."""
        newly = [i for i in range(3) if not self.set[i] and signal in (i, PARENTS[i])]
        for i in newly:
            self.set[i] = True
        return [frame for frame in self.frames if frame.region.signal in newly]

    def sleep(self, seconds: int) -> None:
        self.cut(self.due)
        until = self.now + seconds
        while True:
            deadlines = [frame.deadline for frame in self.frames if frame.deadline is not None]
            times = [time for time, _ in self.schedule] + deadlines
            first = min(times, default=until)
            if first >= until:
                self.now = until
                return
            self.now = first
            expired = [
                frame for frame in self.frames if frame.deadline is not None and frame.deadline <= first
            ]
            happening = [events for time, events in self.schedule if time <= first]
            self.schedule = [(time, events) for time, events in self.schedule if time > first]
            for events in happening:
                for signal in events.signals:
                    expired += self.set_signal(signal)
                if events.cancel:
                    raise Cancelled
            self.cut(expired)

    def cut(self, frames: list[Frame]) -> None:
        """The outermost of them is unwound: the inner ones pass the cancel on."""
        inside = [frame for frame in self.frames if frame in frames]
        self.due = []
        if inside:
            raise Unwound(inside[0])

    def region(self, region: Region) -> None:
        if region.signal is not None and self.set[region.signal]:
            self.trace.append((self.now, "stopped"))
            return
        deadline = self.now + timeout_of(region, len(self.frames)) if region.signal is None else None
        frame = Frame(region, deadline)
        self.frames.append(frame)
        outcome = "done"
        try:
            self.play(region.inside)
        except Unwound as unwound:
            if unwound.frame is not frame:
                raise
            outcome = "stopped" if region.signal is not None else "timeout"
        finally:
            self.frames.remove(frame)
            self.due = [one for one in self.due if one is not frame]
        self.trace.append((self.now, outcome))


@dataclass
class Real:
    """What does happen."""

    signals: list[Signal]
    depth: int = 0
    trace: list[tuple[float, str]] = field(default_factory=list)

    def saw(self, what: str) -> None:
        self.trace.append((asyncio.get_running_loop().time(), what))

    async def play(self, program: tuple[Part, ...]) -> None:
        for part in program:
            match part:
                case Sleep(seconds):
                    await asyncio.sleep(seconds)
                    self.saw("slept")
                case Set(signal):
                    self.signals[signal].set(USER)
                case Region():
                    await self.region(part)

    async def region(self, region: Region) -> None:
        outcome = "done"
        self.depth += 1
        try:
            if region.signal is None:
                async with asyncio.timeout(timeout_of(region, self.depth - 1)):
                    await self.play(region.inside)
            else:
                with self.signals[region.signal].cutting():
                    await self.play(region.inside)
        except Stopped:
            outcome = "stopped"
        except TimeoutError:
            outcome = "timeout"
        finally:
            self.depth -= 1
        self.saw(outcome)


async def really(program: tuple[Part, ...], schedule: list[tuple[float, Events]]) -> tuple[Real, bool]:
    first, second = Signal(), Signal()
    real = Real([first, second, Signal(first)])
    loop = asyncio.get_running_loop()
    after: list[int] = []

    async def work() -> None:
        await real.play(program)
        after.append(cancelling())
        await asyncio.sleep(0)  # a stray cancel would be raised here
        await asyncio.sleep(0)
        after.append(cancelling())

    task = asyncio.create_task(work())

    def happen(events: Events) -> None:
        for signal in events.signals:
            real.signals[signal].set(USER)
        if events.cancel:
            task.cancel()

    for time, events in schedule:
        loop.call_at(time, happen, events)
    await asyncio.wait([task])
    if not task.cancelled():
        task.result()
        assert after == [0, 0]
    return real, task.cancelled()


@given(programs, schedules)
@example((Region(0, 0, (Region(0, 0, (Sleep(2),)), Sleep(1))),), [(1, Events((0,), False))])
@example((Region(2, 0, (Set(0), Region(1, 0, (Sleep(1),)))),), [])
@example((Region(None, 1, (Region(0, 0, (Sleep(3),)),)), Sleep(1)), [(0, Events((0,), True))])
@example((Region(None, 1, (Region(None, 0, (Sleep(1),)), Region(None, 0, (Sleep(1),)), Sleep(1))),), [])
@settings(deadline=None, max_examples=examples(600))
def test_any_nesting_ends_as_the_model_says_and_leaves_no_stray_cancel(
    program: tuple[Part, ...], schedule: list[tuple[int, Events]]
) -> None:
    """CA-13: a signal set from inside, from outside or before; nested timeouts; a cancel from elsewhere passes."""
    timed = [(time_of_event(n, second), events) for n, (second, events) in enumerate(schedule)]
    model = Model(sorted(timed, key=lambda one: one[0]))
    cancelled = False
    try:
        model.play(program)
    except Cancelled:
        cancelled = True
    real, was_cancelled = run_virtual(really(program, timed), limit=100_000)
    assert real.trace == model.trace
    assert was_cancelled == cancelled
