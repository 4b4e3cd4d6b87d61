from __future__ import annotations

import asyncio
import threading

import pytest

from interlock.toolkit.threads import in_thread


async def test_a_cancel_waits_for_the_thread_so_that_no_claim_is_let_go_too_early() -> None:
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()
    may_end = threading.Event()
    ended: list[str] = []

    def work() -> None:
        loop.call_soon_threadsafe(begun.set)
        may_end.wait()
        ended.append("written")

    waiter = asyncio.create_task(in_thread(work))
    await begun.wait()
    waiter.cancel()
    await asyncio.sleep(0)
    assert not waiter.done()
    may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert ended == ["written"]
