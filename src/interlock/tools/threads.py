"""Sync code off the event loop, in daemon threads of ours.

Lives here: `in_thread` and `run_in_thread`. The loop's default executor is not used: a body that never returns would hold the exit of
the process there, since executors join their threads. A worker of ours is a daemon, so an abandoned one never does.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from interlock.errors import said_error

T = TypeVar("T")

_MAX_IDLE = 8  # workers kept for the next call; more than this end when their work is done
_idle: list[_Worker] = []
_lock = threading.Lock()


class _Worker:
    __slots__ = ("_jobs",)

    def __init__(self) -> None:
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        threading.Thread(target=self._work, name="interlock-tool", daemon=True).start()

    def submit(self, job: Callable[[], None]) -> None:
        self._jobs.put(job)

    def _work(self) -> None:
        while True:
            self._jobs.get()()
            with _lock:
                if len(_idle) >= _MAX_IDLE:
                    return
                _idle.append(self)


def in_thread(fn: Callable[..., T], /, *args: Any) -> asyncio.Future[T]:
    """Start `fn(*args)` in a thread; the future of its result. Context variables are copied.

    Cancelling the future changes nothing for the thread: nothing can stop a thread but its own code.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():  # the waiter has gone
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]  # no error: the result is fn's

    def job() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(fn, *args)
        except (StopIteration, GeneratorExit, KeyboardInterrupt) as raised:
            # A future cannot carry the first; the others would end the waiter or its loop, as if they were meant.
            error = RuntimeError(f"{type(raised).__name__}: {said_error(raised)}")
        except BaseException as raised:  # noqa: BLE001  # handed to the waiter, whatever it is
            error = raised
        try:
            loop.call_soon_threadsafe(deliver, result, error)
        except RuntimeError:  # the loop was closed: nobody waits any more
            pass

    with _lock:
        worker = _idle.pop() if _idle else None
    (worker or _Worker()).submit(job)
    return future


async def run_in_thread(fn: Callable[..., T], /, *args: Any) -> T:
    """Run `fn(*args)` in a thread and wait for it. A cancel stops the waiting, not the thread."""
    return await in_thread(fn, *args)
