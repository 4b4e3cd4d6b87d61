from __future__ import annotations

import asyncio
import gc

import pytest

from interlock.intercept.uncut import uncut


async def test_the_outcome_is_that_of_the_work() -> None:
    async def fails() -> int:
        raise LookupError("gone")

    async def works() -> int:
        return 7

    assert await uncut(asyncio.ensure_future(works()), on_cancel=lambda: None) == 7
    with pytest.raises(LookupError, match="gone"):
        await uncut(asyncio.ensure_future(fails()), on_cancel=lambda: None)


async def test_a_cancel_is_raised_when_the_work_is_over_and_not_before() -> None:
    work: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    cancels: list[str] = []
    waiter = asyncio.create_task(uncut(work, on_cancel=lambda: cancels.append("told")))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.sleep(0)
    waiter.cancel("again")
    await asyncio.sleep(0)
    assert cancels == ["told", "told"]
    assert not waiter.done()

    work.set_result(7)
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert waiter.cancelling() == 2  # nobody else's cancel was taken back


@pytest.mark.parametrize("end", ["fails", "is cancelled"])
def test_a_cancel_beats_what_the_work_came_to_which_counts_as_seen(end: str) -> None:
    reported: list[dict[str, object]] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: reported.append(context))
        work: asyncio.Future[int] = loop.create_future()

        def end_it() -> None:
            if end == "fails":
                work.set_exception(LookupError("gone"))
            else:
                work.cancel()

        waiter = asyncio.create_task(uncut(work, on_cancel=end_it))
        await asyncio.sleep(0)
        waiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiter

    asyncio.run(main())
    gc.collect()
    assert reported == []
