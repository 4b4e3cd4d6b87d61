"""Work that nobody waits for, with an owner.

Lives here: `Background`: it starts coroutines, keeps what they return until it is asked for, and ends them when it is
closed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_MOST = 64  # at a time; what comes on top waits


class Background(Generic[T]):
    def __init__(self, done: Callable[[], object] = lambda: None) -> None:
        """
        Args:
            done: called each time something has been returned.
        """
        self._tell = done
        self._tasks: set[asyncio.Task[None]] = set()
        self._places = asyncio.Semaphore(_MOST)
        self._done: list[T] = []

    def start(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        task = asyncio.create_task(self._keep(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _keep(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        async with self._places:
            result = await work()
        self._done.append(result)  # into the list of this moment: `take` begins a new one
        self._tell()

    def take(self) -> tuple[T, ...]:
        """What has been returned since the last time, in that order."""
        done, self._done = self._done, []
        return tuple(done)

    async def aclose(self) -> None:
        """Cancel what still runs, and wait for it."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
