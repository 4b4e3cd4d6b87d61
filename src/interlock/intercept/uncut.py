"""Cancels, told apart and waited out.

Lives here: `cancelled_from_outside`, for foreign code that may raise CancelledError on its own; and `uncut`, for work
that has to reach its own end (a process to be collected, a file half written) before whoever waits for it may leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def cancelled_from_outside() -> bool:
    """Whether somebody cancelled the task that runs; else a CancelledError in it is its own code's failure."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def uncut(work: asyncio.Future[T], on_cancel: Callable[[], None]) -> T:
    """Wait for `work` to its end. A cancel of the waiter calls `on_cancel`, and is raised when the work is over.

    What `on_cancel` raises ends the waiting at once: for work that was given up.

    Raises:
        asyncio.CancelledError: the waiter was cancelled meanwhile. It beats the outcome of the work.
    """
    cancelled: asyncio.CancelledError | None = None
    while not work.done():
        try:
            await asyncio.wait([work])
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancel()
    if cancelled is not None:
        if not work.cancelled():
            work.exception()  # seen, so that asyncio does not report it as lost
        raise cancelled
    return work.result()
