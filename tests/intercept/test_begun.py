"""A coroutine that was begun by hand ends as one that was awaited from the start, whatever it does and whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Literal, TypeAlias

from hypothesis import example, given, settings
from hypothesis import strategies as st

from effort import examples
from interlock import Cause, Signal
from interlock.intercept.signal import Begun, Cut, Stopped, cut_late
from interlock.testing import run_virtual

USER = Cause("user")

#: What a listener does, one after the other: seconds to sleep; `stubborn` sleeps on when it is cut; `limit` is cut by
#: its own timeout; `deep` sleeps in a coroutine of its own.
Act: TypeAlias = float | Literal["set", "raise", "stubborn", "limit", "deep", "cancel"]

Way: TypeAlias = Callable[[Signal, Coroutine[Any, Any, str]], Awaitable[str]]


async def awaited(signal: Signal, coroutine: Coroutine[Any, Any, str]) -> str:
    with Cut(signal):
        return await coroutine


async def by_hand(signal: Signal, coroutine: Coroutine[Any, Any, str]) -> str:
    try:
        waits_for = coroutine.send(None)
    except StopIteration as ended:
        return str(ended.value)
    return str(await cut_late(signal, Begun(coroutine, waits_for)))


class Listener:
    def __init__(self, signal: Signal, acts: Sequence[Act]) -> None:
        self.signal = signal
        self.acts = acts
        self.trace: list[tuple[float, str]] = []

    def saw(self, what: str) -> None:
        self.trace.append((asyncio.get_running_loop().time(), what))

    async def __call__(self) -> str:
        try:
            for act in self.acts:
                self.saw(f"does {act}")
                await self._does(act)
        except BaseException as error:
            self.saw(type(error).__name__)
            raise
        return "answered"

    async def _does(self, act: Act) -> None:
        match act:
            case "set":
                self.signal.set(USER)
            case "raise":
                raise ValueError
            case "stubborn":
                try:
                    await asyncio.sleep(2)
                except asyncio.CancelledError:
                    self.saw("swallows it")
                    await asyncio.sleep(1)
            case "limit":
                try:
                    async with asyncio.timeout(1):
                        await asyncio.sleep(3)
                except TimeoutError:
                    self.saw("out of time")
            case "deep":
                await asyncio.ensure_future(asyncio.sleep(1))
            case "cancel":
                raise asyncio.CancelledError
            case float():
                await asyncio.sleep(act)


def lived(way: Way, acts: Sequence[Act], stop: float | None, cancel: float | None) -> list[object]:
    """What became of a listener that is heard in this way."""

    async def main() -> list[object]:
        signal = Signal()
        listener = Listener(signal, acts)
        left: list[int] = []

        async def driver() -> str:
            try:
                return await way(signal, listener())
            except Stopped:
                return "stopped"
            except ValueError:
                return "failed"
            finally:
                task = asyncio.current_task()
                assert task is not None
                left.append(task.cancelling())
                listener.saw("over")

        task = asyncio.ensure_future(driver())
        loop = asyncio.get_running_loop()
        if stop is not None:
            loop.call_later(stop, signal.set, USER)
        if cancel is not None:
            loop.call_later(cancel, task.cancel)
        await asyncio.wait([task])
        outcome = "cancelled" if task.cancelled() else task.result()
        return [outcome, listener.trace, left]

    return run_virtual(main(), limit=1_000)


moments = st.none() | st.sampled_from([0.0, 0.5, 1.0, 1.5, 2.5])
acts: st.SearchStrategy[Act] = st.sampled_from(
    [0.0, 1.0, "set", "raise", "stubborn", "limit", "deep", "cancel"]
)


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(acts, max_size=5), moments, moments)
@example([], None, None)
@example(["set", 1.0], None, None)
@example([1.0, "set", "stubborn"], None, None)
@example(["stubborn", 1.0], 0.5, 0.5)
@example(["limit", 1.0], 0.5, None)
def test_begun_by_hand_it_lives_as_if_it_had_been_awaited(
    acts: list[Act], stop: float | None, cancel: float | None
) -> None:
    assert lived(by_hand, acts, stop, cancel) == lived(awaited, acts, stop, cancel)
