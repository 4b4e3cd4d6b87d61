"""Waiting that a cancel does not cut short.

Lives here: `uncut`, for work that has to reach its own end (a process to be collected, a file half written) before
whoever waits for it may leave.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


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
