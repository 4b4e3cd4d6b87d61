"""File work off the event loop.

Lives here: `in_thread`. Whoever is cancelled waits for the thread: what a call claims must not be let go while a
thread of it still writes, and nothing may outlive its call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from interlock.intercept.uncut import uncut
from interlock.tools import threads

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread, to its end. A cancel is raised then; a long `work` looks at its signal."""
    return await uncut(threads.in_thread(work), on_cancel=lambda: None)
