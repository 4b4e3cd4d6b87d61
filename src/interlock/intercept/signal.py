"""Stopping: one signal a turn, seen by everything that may take long.

Lives here: `Signal`, which is set once with a cause, and `Signal.cutting`, a region in which the awaiting task is cut
when the signal is set, in the manner of `asyncio.timeout`: one cancel, one `uncancel`, no task of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any

from interlock.log.reasons import Cause


class Stopped(Exception):
    """The signal was set: raised by `raise_if_set` and out of a region that was cut."""

    def __init__(self, cause: Cause) -> None:
        self.cause = cause
        super().__init__(f"stopped: {cause.kind}{f' ({cause.reason})' if cause.reason else ''}")


class Signal:
    """Set at most once; the first cause wins. A child follows its parent and may be set alone."""

    __slots__ = ("_callbacks", "_parent", "cause")

    def __init__(self, parent: Signal | None = None) -> None:
        self.cause: Cause | None = None
        self._callbacks: dict[object, Callable[[Cause], object]] = {}
        self._parent: Signal | None = None
        if parent is not None:
            if parent.cause is not None:
                self.cause = parent.cause
            else:
                self._parent = parent
                parent._callbacks[self] = self.set

    def is_set(self) -> bool:
        return self.cause is not None

    def raise_if_set(self) -> None:
        """
        Raises:
            Stopped: the signal is set.
        """
        if self.cause is not None:
            raise Stopped(self.cause)

    def set(self, cause: Cause) -> bool:
        """Set it and run the callbacks, in order of registration. False when it was set before.

        A callback that fails is reported to the event loop: a tool may register one, and cannot make a stop ineffective.
        """
        if self.cause is not None:
            return False
        self.cause = cause
        self.release()
        callbacks, self._callbacks = self._callbacks, {}
        for callback in callbacks.values():
            try:
                callback(cause)
            except Exception as error:  # noqa: BLE001  # foreign code
                context = {"message": "a callback of a signal failed", "exception": error}
                asyncio.get_running_loop().call_exception_handler(context)
        return True

    def on_set(self, callback: Callable[[Cause], object]) -> Callable[[], None]:
        """Call back when it is set (at once, if it is). Returns the way to undo it."""
        if self.cause is not None:
            callback(self.cause)
            return _nothing
        key = object()
        self._callbacks[key] = callback

        def dispose() -> None:
            self._callbacks.pop(key, None)

        return dispose

    def release(self) -> None:
        """Let go of the parent: a child whose work is over need not be told any more."""
        if self._parent is not None:
            self._parent._callbacks.pop(self, None)
            self._parent = None

    async def wait(self) -> Cause:
        """Wait until it is set; the cause."""
        if self.cause is not None:
            return self.cause
        future: asyncio.Future[Cause] = asyncio.get_running_loop().create_future()

        def wake(cause: Cause) -> None:
            if not future.done():
                future.set_result(cause)

        dispose = self.on_set(wake)
        try:
            return await future
        finally:
            dispose()

    def cutting(self) -> Cut:
        """A region whose awaiting is cut when the signal is set: `with signal.cutting(): await foreign()`.

        Raises:
            Stopped: on leaving, if the region was cut. A cancel from elsewhere passes as `CancelledError`.
        """
        return Cut(self)


class Cut:
    """Made by `Signal.cutting`. While it is paused it does not cut: what is awaited then hears of the stop in its own way."""

    __slots__ = ("_cancelling", "_fired", "_open", "_paused", "_signal", "_task")

    def __init__(self, signal: Signal) -> None:
        self._signal = signal
        self._open = False
        self._fired = False  # it has cancelled the task
        self._paused = 0

    def __enter__(self) -> Cut:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a region can only be cut inside a task")
        signal = self._signal
        if signal.cause is not None and not self._paused:
            raise Stopped(signal.cause)
        self._task = task
        self._cancelling = task.cancelling()
        self._open = True
        signal._callbacks[self] = self._fire  # as `on_set`, which makes a closure: one for each call
        return self

    def _fire(self, cause: Cause) -> None:
        if self._task is not asyncio.current_task():
            self._cancel()
        else:  # set from inside the region: it ends where it next suspends, if it does
            self._task.get_loop().call_soon(self._cancel)

    def _cancel(self) -> None:
        if self._open and not self._fired and not self._paused:
            self._fired = True
            self._task.cancel()

    def pause(self) -> None:
        self._paused += 1

    def go_on(self) -> None:
        """End one `pause`. If the signal was set meanwhile, the region ends where it next suspends."""
        self._paused -= 1
        if self._signal.cause is not None:
            self._fire(self._signal.cause)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._signal._callbacks.pop(self, None)
        if not self._fired:
            return
        left = self._task.uncancel()
        if kind is not None and issubclass(kind, asyncio.CancelledError) and left <= self._cancelling:
            assert self._signal.cause is not None
            raise Stopped(self._signal.cause) from None


class Begun:
    """A coroutine that was sent on once, in the task that awaits it now, and has suspended."""

    __slots__ = ("_coroutine", "_waits_for")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], waits_for: object) -> None:
        self._coroutine = coroutine
        self._waits_for = waits_for

    def __await__(self) -> Generator[Any, Any, Any]:
        waits_for = self._waits_for
        while True:
            try:
                try:
                    sent = yield waits_for
                except BaseException as error:  # noqa: BLE001  # a cancel, as a rule: for the coroutine to deal with
                    waits_for = self._coroutine.throw(error)
                else:
                    waits_for = self._coroutine.send(sent)
            except StopIteration as ended:
                return ended.value


async def cut_late(signal: Signal, begun: Begun) -> Any:
    """What a coroutine answers that has begun outside of a region, and is cut in one from here on.

    Raises:
        Stopped: it was cut, by a signal that was set now or while it began.
    """
    region = Cut(signal)
    region.pause()
    with region:
        region.go_on()
        return await begun


def _nothing() -> None:
    return None
