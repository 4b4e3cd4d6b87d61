"""Time that tests own: an event loop in which waiting costs nothing.

Lives here: `VirtualClock`, an asyncio event loop whose time moves only by timers; `run_virtual`, which is `asyncio.run`
on such a loop; and the errors with which they stop instead of hanging or guessing.

`asyncio.sleep`, `timeout`, `wait_for` and every other timer work as ever. `time.time` and `time.monotonic` still tell
the real time: code that is to be tested here takes its time from the loop.
"""

from __future__ import annotations

import asyncio
import linecache
import os
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextvars import Context
from functools import partial
from heapq import heappop, heappush
from inspect import iscoroutine
from math import inf
from types import FrameType
from typing import Any, Never, TypeVar, TypeVarTuple

from interlock.errors import UsageError

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

WALL_ORIGIN_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z, where simulated time is 0
LIMIT = 2_000_000  # callbacks: some seconds of real time

_ASYNCIO = os.path.dirname(asyncio.__file__)


class NotSimulated(UsageError, NotImplementedError):
    """The code asked for something outside the simulation.

    It is a NotImplementedError too, as from any loop that lacks a feature: code that has a way round takes it.
    `method` is the loop's method, `what` the thing that does not exist here.
    """

    def __init__(self, method: str, what: str) -> None:
        self.method, self.what = method, what
        super().__init__(
            f"loop.{method}: a virtual clock simulates timers and tasks, not {what}. "
            f"Run this in a real event loop, or replace that part by one that waits with asyncio.sleep."
        )


class Deadlock(UsageError):
    """Nothing is ready, no timer is set, and the main task is not done: nothing can ever happen again.

    `time` is the simulated time in seconds; `waiting` has a line for each task, saying where it waits.
    """

    def __init__(self, time: float, waiting: tuple[str, ...]) -> None:
        self.time, self.waiting = time, waiting
        super().__init__(
            f"At {time:g} s nothing is ready and no timer is set, so these wait for ever:{_lines(waiting)}"
        )


class Endless(UsageError):
    """More callbacks ran than the run may have: it polls for ever, in standing time or in moving time.

    `time` is the simulated time in seconds; `limit` counts callbacks; `tasks` has a line for each task.
    """

    def __init__(self, time: float, limit: int, tasks: tuple[str, ...]) -> None:
        self.time, self.limit, self.tasks = time, limit, tasks
        super().__init__(
            f"{limit:,} callbacks have run, the time is {time:g} s, and there is no end. "
            f"If the work is that long, raise `limit`. These tasks live:{_lines(tasks)}"
        )


class LeftoverTasks(UsageError):
    """The main coroutine returned, and left tasks behind that nobody waits for. `tasks` has a line for each."""

    def __init__(self, tasks: tuple[str, ...]) -> None:
        self.tasks = tasks
        super().__init__(
            "The main coroutine has returned, but these tasks still live. Whoever starts a task awaits it, "
            f"after a cancel too:{_lines(tasks)}"
        )


class VirtualClock(asyncio.BaseEventLoop):
    """An event loop that never waits: when nothing is ready, its time jumps to the next timer.

    Callbacks that become ready together run in the order in which they were scheduled, timers that are due at the same
    time too, so one program has one course of events. What would need the world outside (threads, sockets, pipes,
    subprocesses, signals) raises `NotSimulated`.

    Args:
        start: The first value of `time()`, in seconds.
        limit: Callbacks that may run before `Endless` is raised.
    """

    # The parts of BaseEventLoop that its own loop uses, the same from Python 3.11 to 3.14.
    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self, *, start: float = 0.0, limit: int = LIMIT) -> None:
        super().__init__()
        self._now = start
        self._limit = self._callbacks_left = limit
        self._thread = threading.get_ident()
        # A heap. The number, a timer's turn, settles who is first among timers of the same time.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timers_made = 0

    def time(self) -> float:
        """Seconds of simulated time."""
        return self._now

    def wall_ms(self) -> int:
        """The simulated time of day: Unix epoch, milliseconds."""
        return WALL_ORIGIN_MS + round(self._now * 1000)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        if self.is_closed():
            raise RuntimeError("Event loop is closed")
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if when < inf:  # `sleep(inf)` waits for ever: its timer would move the clock to the end of time
            self._timers_made += 1
            heappush(self._timers, (when, self._timers_made, timer))
        return timer

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        if threading.get_ident() != self._thread:
            raise NotSimulated("call_soon_threadsafe", "other threads")
        return self.call_soon(callback, *args, context=context)

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        """One round: what is ready now runs, what it makes ready has the next round."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2].cancelled():
            heappop(timers)
        if not ready and not self._stopping:
            if not timers:
                raise Deadlock(self._now, _whereabouts(asyncio.all_tasks(self)))
            self._now = max(self._now, timers[0][0])
        while timers and timers[0][0] <= self._now:
            ready.append(heappop(timers)[2])

        self._callbacks_left -= len(ready)
        if self._callbacks_left < 0:
            self._callbacks_left = self._limit  # cancelling the tasks needs callbacks again
            raise Endless(self._now, self._limit, _whereabouts(asyncio.all_tasks(self)))
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()


def run_virtual(coro: Coroutine[Any, Any, T], *, start: float = 0.0, limit: int = LIMIT) -> T:
    """Run `coro` to its end in simulated time; as `asyncio.run`, but strict about what it leaves behind.

    Args:
        start: The loop's time at the beginning, in seconds.
        limit: Callbacks that may run.

    Raises:
        LeftoverTasks: It returned while tasks that it started still lived. They are cancelled.
        Deadlock, Endless: It would never return.
        NotSimulated: It asked for a thread, a socket, a subprocess or the like, and did not catch this.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("run_virtual cannot be called from a running event loop")
    with asyncio.Runner(loop_factory=partial(VirtualClock, start=start, limit=limit)) as runner:
        result = runner.run(coro)
        # The loop itself closes abandoned async generators in tasks of its own; those hold no coroutine.
        left = [task for task in asyncio.all_tasks(runner.get_loop()) if iscoroutine(task.get_coro())]
        if left:
            raise LeftoverTasks(_whereabouts(left))
        return result


def _lines(entries: Iterable[str]) -> str:
    return "".join(f"\n  {entry}" for entry in entries)


def _whereabouts(tasks: Iterable[asyncio.Task[Any]]) -> tuple[str, ...]:
    """A line for each task: its name, its coroutine, and where that stands."""

    def by_name(task: asyncio.Task[Any]) -> tuple[int, str]:
        return len(task.get_name()), task.get_name()  # Task-2 before Task-10

    return tuple(
        f"{task.get_name()} {getattr(task.get_coro(), '__qualname__', task.get_coro())}: {_place(task)}"
        for task in sorted(tasks, key=by_name)
    )


def _place(task: asyncio.Task[Any]) -> str:
    """The innermost line that the task stands at, leaving out asyncio's own: "path:line in function: source"."""
    place: FrameType | None = None
    awaited: Any = task.get_coro()
    # A coroutine awaits the next one, down to a future or an async generator, which show no frame.
    while frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None):
        if place is None or os.path.dirname(frame.f_code.co_filename) != _ASYNCIO:
            place = frame
        awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)
    if place is None:
        return "unknown"
    path, line = place.f_code.co_filename, place.f_lineno
    return f"{path}:{line} in {place.f_code.co_name}: {linecache.getline(path, line).strip()}"


def _refuse(method: str, what: str) -> Callable[..., Never]:
    def refuse(*args: object, **kwargs: object) -> Never:
        raise NotSimulated(method, what)

    return refuse


REFUSED = {
    "threads": ("run_in_executor", "set_default_executor"),
    "name resolution": ("getaddrinfo", "getnameinfo"),
    "subprocesses": ("subprocess_exec", "subprocess_shell"),
    "servers": ("create_server", "create_unix_server"),
    "pipes": ("connect_read_pipe", "connect_write_pipe"),
    "file descriptors": ("add_reader", "remove_reader", "add_writer", "remove_writer"),
    "signal handlers": ("add_signal_handler", "remove_signal_handler"),
    "sockets": (
        "connect_accepted_socket",
        "create_connection",
        "create_datagram_endpoint",
        "create_unix_connection",
        "sendfile",
        "sock_accept",
        "sock_connect",
        "sock_recv",
        "sock_recv_into",
        "sock_recvfrom",
        "sock_recvfrom_into",
        "sock_sendall",
        "sock_sendfile",
        "sock_sendto",
        "start_tls",
    ),
}
for _what, _methods in REFUSED.items():
    for _method in _methods:
        setattr(VirtualClock, _method, _refuse(_method, _what))
