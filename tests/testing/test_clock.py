"""The virtual clock: simulated time is exact and free, and what cannot be simulated or cannot end is said."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from interlock import testing
from interlock.errors import UsageError
from interlock.testing import Deadlock, Endless, LeftoverTasks, NotSimulated, VirtualClock, run_virtual
from interlock.testing.clock import REFUSED

DAY = 86_400.0


def clock() -> VirtualClock:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualClock)
    return loop


async def now_after(delay: float) -> float:
    await asyncio.sleep(delay)
    return clock().time()


# Time


def test_time_starts_at_zero_moves_only_by_timers_and_lands_exactly_on_them() -> None:
    async def main() -> list[float]:
        seen = [clock().time()]
        for _ in range(1000):
            await asyncio.sleep(0)
        seen.append(clock().time())
        seen.append(await now_after(0.1))
        seen.append(await now_after(400 * DAY))
        return seen

    assert run_virtual(main()) == [0.0, 0.0, 0.1, 0.1 + 400 * DAY]


@given(st.lists(st.floats(min_value=-1.0, max_value=1e9), max_size=30))
@example([3.0, 1.0, 3.0, 1.0])
@example([5e-324, 0.0, -1.0])
def test_sleeps_end_in_the_order_of_due_time_then_of_start_each_exactly_when_it_is_due(
    delays: list[float],
) -> None:
    ended: list[tuple[int, float]] = []

    async def sleeper(number: int) -> None:
        ended.append((number, await now_after(delays[number])))

    async def main() -> float:
        async with asyncio.TaskGroup() as group:
            for number in range(len(delays)):
                group.create_task(sleeper(number))
        return clock().time()

    end = run_virtual(main())

    due = [max(0.0, delay) for delay in delays]
    # A sleep that is not positive only lets the others go first: it has no timer, and ends before any that has.
    assert ended == [(number, due[number]) for number in sorted(range(len(due)), key=due.__getitem__)]
    assert end == max(due, default=0.0)


@given(st.lists(st.sampled_from([1.0, 2.0, 3.0]), max_size=40), st.sets(st.integers(0, 39)))
def test_timers_of_the_same_time_run_in_the_order_in_which_they_were_made(
    times: list[float], cancelled: set[int]
) -> None:
    ran: list[int] = []

    async def main() -> None:
        handles = [clock().call_at(when, ran.append, number) for number, when in enumerate(times)]
        for number, handle in enumerate(handles):
            if number in cancelled:
                handle.cancel()
        await asyncio.sleep(3.0)

    run_virtual(main())

    kept = [number for number in range(len(times)) if number not in cancelled]
    assert ran == sorted(kept, key=times.__getitem__)  # a stable sort: ties stay in order of number


def test_a_timer_waits_for_what_is_ready_already() -> None:
    ran: list[str] = []

    async def main() -> None:
        loop = clock()
        loop.call_later(0, ran.append, "due at once")
        loop.call_at(-5.0, ran.append, "overdue")
        loop.call_soon(ran.append, "ready")
        await asyncio.sleep(1)
        assert loop.time() == 1.0  # the overdue one did not turn time back

    run_virtual(main())
    assert ran == ["ready", "overdue", "due at once"]


def test_a_cancelled_timer_does_not_move_time() -> None:
    async def main() -> float:
        async with asyncio.timeout(100):
            await asyncio.sleep(1)
        await asyncio.sleep(1)
        return clock().time()

    assert run_virtual(main()) == 2.0


def test_start_is_the_first_time_and_the_wall_clock_goes_with_it() -> None:
    async def main() -> tuple[float, int, int]:
        start, before = clock().time(), clock().wall_ms()
        await asyncio.sleep(1.2346)
        return start, before, clock().wall_ms() - before

    origin = 1_767_225_600_000  # 2026-01-01T00:00:00Z
    assert run_virtual(main()) == (0.0, origin, 1235)
    assert run_virtual(main(), start=60.0) == (60.0, origin + 60_000, 1235)


@pytest.mark.virtual
async def test_a_marked_test_runs_on_the_virtual_clock() -> None:
    assert await now_after(DAY) == DAY


# What asyncio builds on timers


def test_a_timeout_ends_what_takes_longer_exactly_when_it_is_due() -> None:
    async def main() -> list[float]:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(6)
        first = clock().time()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.25)
        return [first, clock().time()]

    assert run_virtual(main()) == [5.0, 5.25]


def test_wait_for_returns_what_comes_in_time() -> None:
    async def main() -> tuple[float, float]:
        return await asyncio.wait_for(now_after(1), 2), clock().time()

    assert run_virtual(main()) == (1.0, 1.0)


def test_gathered_work_takes_as_long_as_the_longest() -> None:
    async def main() -> tuple[list[float], float]:
        return await asyncio.gather(now_after(3), now_after(1), now_after(2)), clock().time()

    assert run_virtual(main()) == ([3.0, 1.0, 2.0], 3.0)


def test_a_task_group_cancels_the_rest_when_one_fails() -> None:
    cancelled_at: list[float] = []

    async def patient() -> None:
        try:
            await asyncio.sleep(DAY)
        except asyncio.CancelledError:
            cancelled_at.append(clock().time())
            raise

    async def fails() -> None:
        await asyncio.sleep(2)
        raise LookupError("nothing there")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(patient())
            group.create_task(fails())

    with pytest.raises(ExceptionGroup) as caught:
        run_virtual(main())
    assert [repr(error) for error in caught.value.exceptions] == ["LookupError('nothing there')"]
    assert cancelled_at == [2.0]


# How a run ends


def test_the_result_is_returned_and_the_loop_is_closed() -> None:
    async def main() -> VirtualClock:
        return clock()

    loop = run_virtual(main())
    assert loop.is_closed()
    with pytest.raises(RuntimeError, match="closed"):
        loop.call_later(1, print)


def test_an_exception_of_the_main_coroutine_propagates_and_its_tasks_are_cancelled() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    async def main() -> None:
        task = asyncio.create_task(waits())
        await asyncio.sleep(1)
        raise LookupError(f"{task.get_name()} was not awaited")

    with pytest.raises(LookupError):
        run_virtual(main())
    assert ended == ["waits"]


def test_a_task_that_outlives_the_main_coroutine_is_an_error_with_its_name_and_place() -> None:
    ended: list[str] = []

    async def pump() -> None:
        try:
            await asyncio.sleep(DAY)
        finally:
            ended.append("pump")

    async def main() -> None:
        asyncio.create_task(pump(), name="the pump")  # noqa: RUF006 -- nobody keeps it: the mistake to be found
        asyncio.create_task(asyncio.sleep(DAY), name="a nap")  # noqa: RUF006
        await asyncio.sleep(1)

    with pytest.raises(LeftoverTasks) as caught:
        run_virtual(main())

    nap, pumping = caught.value.tasks
    assert nap.startswith("a nap sleep: ")
    assert pumping.startswith(f"the pump {pump.__qualname__}: {__file__}:")
    assert pumping.endswith(" in pump: await asyncio.sleep(DAY)")
    assert nap in str(caught.value)
    assert pumping in str(caught.value)
    assert ended == ["pump"]  # it was cancelled and awaited


def test_an_abandoned_async_generator_is_closed_and_is_no_leftover() -> None:
    ended: list[str] = []

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.append("numbers")

    async def main() -> int:
        async for number in numbers():
            return number
        raise AssertionError

    assert run_virtual(main()) == 1
    assert ended == ["numbers"]


def test_it_refuses_to_run_inside_a_running_loop() -> None:
    async def inner() -> None: ...

    async def main() -> None:
        coro = inner()
        with contextlib.closing(coro), pytest.raises(RuntimeError, match="running event loop"):
            run_virtual(coro)

    asyncio.run(main())


# Keyboard interrupts


def interrupts_by_raising() -> None:
    raise KeyboardInterrupt


def interrupts_by_signal() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("interrupt", [interrupts_by_raising, interrupts_by_signal])
def test_a_keyboard_interrupt_ends_the_run_cleanly(interrupt: Callable[[], None]) -> None:
    ended: list[str] = []
    handler = signal.getsignal(signal.SIGINT)

    async def main() -> None:
        clock().call_later(1, interrupt)
        try:
            await asyncio.sleep(DAY)
        finally:
            await asyncio.sleep(1)  # cleaning up may take (simulated) time
            ended.append("main")

    with pytest.raises(KeyboardInterrupt):
        run_virtual(main())

    assert ended == ["main"]
    assert signal.getsignal(signal.SIGINT) is handler
    assert run_virtual(now_after(1)) == 1.0  # the next run is not affected


# What never ends


def test_a_deadlock_says_at_once_where_each_task_waits() -> None:
    queue: asyncio.Queue[int] = asyncio.Queue()

    async def consume() -> None:
        await queue.get()

    async def main() -> None:
        await asyncio.sleep(3)
        async with asyncio.TaskGroup() as group:
            group.create_task(consume(), name="consumer")
            group.create_task(asyncio.sleep(float("inf")), name="sleeper")

    with pytest.raises(Deadlock) as caught:
        run_virtual(main())

    sleeper, consumer = (line for line in caught.value.waiting if not line.startswith("Task-"))
    (main_task,) = (line for line in caught.value.waiting if line.startswith("Task-"))
    assert caught.value.time == 3.0
    assert consumer.startswith(f"consumer {consume.__qualname__}: {__file__}:")
    assert consumer.endswith(" in consume: await queue.get()")  # not the line inside of asyncio.Queue
    assert sleeper.startswith("sleeper sleep: ")
    assert main_task.endswith(" in main: async with asyncio.TaskGroup() as group:")
    assert str(caught.value).splitlines()[1:] == [f"  {line}" for line in caught.value.waiting]


def test_a_deadlock_inside_an_async_generator_points_at_the_loop_over_it() -> None:
    async def never() -> AsyncIterator[int]:
        await asyncio.Event().wait()
        yield 1

    async def main() -> None:
        async for _ in never():
            pass

    with pytest.raises(Deadlock) as caught:
        run_virtual(main())
    (line,) = caught.value.waiting
    assert line.endswith(" in main: async for _ in never():")


async def polls(interval: float) -> None:
    while True:  # noqa: ASYNC110 -- the mistake that the bound is for
        await asyncio.sleep(interval)


@pytest.mark.parametrize(("interval", "time"), [(0, 0.0), (1, 1000.0)])
def test_polling_for_ever_is_bounded_whether_time_stands_or_moves(interval: float, time: float) -> None:
    with pytest.raises(Endless) as caught:
        run_virtual(polls(interval), limit=2000)  # a sleep of a second is two callbacks

    assert (caught.value.time, caught.value.limit) == (time, 2000)
    (line,) = caught.value.tasks
    assert line.endswith(" in polls: await asyncio.sleep(interval)")


def test_callbacks_that_call_themselves_for_ever_are_bounded() -> None:
    def again() -> None:
        asyncio.get_running_loop().call_soon(again)

    async def main() -> None:
        again()
        await asyncio.Event().wait()

    with pytest.raises(Endless, match="1,000 callbacks"):
        run_virtual(main(), limit=1000)


def test_a_task_that_will_not_be_cancelled_is_bounded_too() -> None:
    async def stubborn() -> None:
        while True:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    loops: list[VirtualClock] = []

    async def main() -> None:
        loops.append(clock())
        clock().set_exception_handler(lambda loop, context: None)  # it reports the task that is destroyed
        await stubborn()

    with pytest.raises(Deadlock) as caught:
        run_virtual(main())
    assert isinstance(
        caught.value.__context__, Deadlock
    )  # the first is what went wrong, the second the clean-up
    assert loops[0].is_closed()


# What is not simulated


async def resolve() -> None:
    await asyncio.get_running_loop().getaddrinfo("localhost", 80)


async def watch() -> None:
    asyncio.get_running_loop().add_reader(0, print)


async def handle_signals() -> None:
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)


async def serve() -> None:
    await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)


@pytest.mark.parametrize(
    ("method", "what", "ask"),
    [
        ("run_in_executor", "threads", lambda: asyncio.to_thread(print)),
        ("subprocess_exec", "subprocesses", lambda: asyncio.create_subprocess_exec(sys.executable)),
        ("subprocess_shell", "subprocesses", lambda: asyncio.create_subprocess_shell("true")),
        ("create_connection", "sockets", lambda: asyncio.open_connection("127.0.0.1", 1)),
        ("create_server", "servers", serve),
        ("getaddrinfo", "name resolution", resolve),
        ("add_reader", "file descriptors", watch),
        ("add_signal_handler", "signal handlers", handle_signals),
    ],
)
def test_what_needs_the_world_outside_is_refused_by_name(
    method: str, what: str, ask: Callable[[], Awaitable[object]]
) -> None:
    async def main() -> None:
        await ask()

    with pytest.raises(NotSimulated) as caught:
        run_virtual(main())
    assert (caught.value.method, caught.value.what) == (method, what)
    assert str(caught.value).startswith(
        f"loop.{method}: a virtual clock simulates timers and tasks, not {what}."
    )


def test_a_refusal_is_what_code_with_a_way_round_expects_of_a_loop_without_the_feature() -> None:
    async def main() -> None:
        with pytest.raises(NotImplementedError) as caught:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, print)
        assert isinstance(caught.value, UsageError)

    run_virtual(main())


def test_each_method_of_an_event_loop_is_either_refused_or_known_to_be_simulated() -> None:
    simulated = {
        "call_at",
        "call_exception_handler",
        "call_later",
        "call_soon",
        "call_soon_threadsafe",
        "close",
        "create_future",
        "create_task",
        "default_exception_handler",
        "get_debug",
        "get_exception_handler",
        "get_task_factory",
        "is_closed",
        "is_running",
        "run_forever",
        "run_until_complete",
        "set_debug",
        "set_exception_handler",
        "set_task_factory",
        "shutdown_asyncgens",
        "shutdown_default_executor",
        "stop",
        "time",
    }
    refused = {method for methods in REFUSED.values() for method in methods}
    assert {
        name for name in dir(asyncio.AbstractEventLoop) if not name.startswith("_")
    } == simulated | refused
    assert not simulated & refused


def test_another_thread_is_refused_and_the_own_one_is_served() -> None:
    refusals: list[NotSimulated] = []

    async def main() -> str:
        loop, reached = clock(), asyncio.Event()

        def from_another_thread() -> None:
            try:
                loop.call_soon_threadsafe(reached.set)
            except NotSimulated as refusal:
                refusals.append(refusal)

        thread = threading.Thread(target=from_another_thread)
        thread.start()
        thread.join()
        assert not reached.is_set()
        loop.call_soon_threadsafe(reached.set)
        await reached.wait()
        return "served"

    assert run_virtual(main()) == "served"
    assert [(refusal.method, refusal.what) for refusal in refusals] == [
        ("call_soon_threadsafe", "other threads")
    ]


def test_a_stopped_loop_runs_one_more_round_and_keeps_its_time() -> None:
    ran: list[str] = []
    loop = VirtualClock()
    with contextlib.closing(loop):
        loop.call_soon(ran.append, "ready")
        loop.call_later(1, ran.append, "later")
        loop.stop()
        loop.run_forever()
        assert (ran, loop.time()) == (["ready"], 0.0)


# The names


def test_the_names_of_the_package_are_loaded_on_first_use() -> None:
    for name in testing.__all__:
        assert callable(getattr(testing, name))
    assert set(testing.__all__) <= set(dir(testing))
    unknown = "run_virtually"
    with pytest.raises(AttributeError, match=unknown):
        getattr(testing, unknown)
