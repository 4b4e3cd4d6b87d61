"""Work that waits for a disk or a lock, without the loop waiting for it.

Lives here: `aside`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from interlock.intercept.uncut import uncut

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    """What `work` returns, from a thread. It is short, and is waited for also when the waiter is cancelled."""
    try:
        running = asyncio.get_running_loop().run_in_executor(None, work)
    except NotImplementedError:  # a simulated loop has no threads, and nobody whom it would keep waiting
        return work()
    return await uncut(running, lambda: None)
