"""A named place where others may speak, and how one of them is heard.

Lives here: `Point`, `Listener` and `hear`. A point says its kind and which classes are answers; a listener that gives
anything else has broken the contract, loudly. Listeners are sync or async; one that suspends is awaited inline, in a
region that the turn's signal cuts, without a task of its own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from types import CoroutineType
from typing import Any, Generic, TypeVar

from interlock.errors import HookContractError
from interlock.intercept.signal import Begun, Signal, Stopped, cut_late
from interlock.intercept.uncut import cancelled_from_outside
from interlock.log.messages import Source

A = TypeVar("A")


class Kind(Enum):
    OBSERVE = "observe"  # told after the fact; contained
    DECIDE = "decide"  # every listener runs; answers are folded under the point's merge law
    AROUND = "around"  # wraps with next()


@dataclass(frozen=True, eq=False)
class Point(Generic[A]):
    """One place. `answers` are the only classes that a listener may return, None apart."""

    name: str  # as in the log: tools/pre-execute
    attribute: str  # as in code: on.pre_execute
    kind: Kind
    answers: tuple[type, ...]
    merge: str  # the merge law, in words, for the documentation
    listener: str = ""  # its signature, for the documentation
    awaited: bool = True  # its listeners may be async, and take a timeout

    def __repr__(self) -> str:
        return f"<Point {self.name}>"


@dataclass(frozen=True, slots=True, eq=False)
class Listener:
    """One registration."""

    point: Point[Any]
    fn: Callable[..., Any]
    who: str  # shown wherever a decision is explained
    timeout: float | None = None  # seconds; a gate that exceeds it denies
    source: Source = field(init=False)  # of what it says

    def __post_init__(self) -> None:
        object.__setattr__(self, "source", Source("plugin", self.who))


#: Whose code runs, if it is a listener's or a tool's: what it sends is never taken for a person's words.
SPEAKER: ContextVar[Source | None] = ContextVar("interlock_speaker", default=None)


@contextmanager
def speaking(source: Source) -> Iterator[None]:
    """A region in which what is sent is sent by this source."""
    token = SPEAKER.set(source)
    try:
        yield
    finally:
        SPEAKER.reset(token)


class ListenerTimeout(Exception):
    """A listener took longer than its `timeout`."""

    def __init__(self, who: str, timeout: float) -> None:
        super().__init__(f"{who} took longer than its {timeout:g} s")


class ListenerCancelled(Exception):
    """A listener ended in a `CancelledError` that nobody had asked for."""

    def __init__(self, who: str) -> None:
        super().__init__(f"{who} was cancelled from within: something it awaited was")


def name_of(fn: Callable[..., Any]) -> str:
    """How a listener is called when it was given no name: its module and qualified name."""
    qualified = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    module = getattr(fn, "__module__", None)
    return f"{module}.{qualified}" if module and module != "__main__" else str(qualified)


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


async def hear(listener: Listener, signal: Signal | None, *arguments: Any) -> Any:
    """The listener's answer: None, or an instance of one of the point's answer classes.

    Raises:
        HookContractError: it answered something else.
        ListenerTimeout: it exceeded its timeout. ListenerCancelled: it cancelled itself.
        Stopped: the signal is set, so it is not asked, or was set while it was awaited.
        Exception: whatever it raised.
    """
    if signal is not None and signal.cause is not None:
        raise Stopped(signal.cause)
    token = SPEAKER.set(listener.source)
    try:
        answer = listener.fn(*arguments)
        if answer is None:
            return None
        if type(answer) is CoroutineType and listener.timeout is None:  # the usual one, at the least cost
            if signal is None:
                answer = await answer
            else:
                try:
                    waits_for = answer.send(None)
                except StopIteration as ended:  # most answer at once: there is nothing to cut
                    answer = ended.value
                else:
                    answer = await cut_late(signal, Begun(answer, waits_for))
        elif type(answer) not in listener.point.answers and inspect.isawaitable(answer):
            answer = await _awaited(listener, signal, answer)
    except asyncio.CancelledError:
        if cancelled_from_outside():
            raise
        raise ListenerCancelled(listener.who) from None
    finally:
        SPEAKER.reset(token)
    if answer is None or type(answer) in listener.point.answers:
        return answer
    raise HookContractError(_illegal(listener.point, answer), who=listener.who, point=listener.point.name)


def tell(listener: Listener, *arguments: Any) -> None:
    """Call an observer, which returns nothing and does not suspend. Whoever calls contains what this raises.

    Raises:
        TypeError: it answered something, or it is async.
        Exception: whatever it raised.
    """
    token = SPEAKER.set(listener.source)
    try:
        answer = listener.fn(*arguments)
    finally:
        SPEAKER.reset(token)
    if answer is not None:
        if inspect.iscoroutine(answer):
            answer.close()
        raise TypeError(f"an observer returns nothing and is not async; it gave {type(answer).__name__}")


async def _awaited(listener: Listener, signal: Signal | None, answer: Awaitable[Any]) -> Any:
    if listener.timeout is None:
        if signal is None:
            return await answer
        with signal.cutting():
            return await answer
    limit = asyncio.timeout(listener.timeout)
    answered: Any = None
    try:
        async with limit:
            with signal.cutting() if signal is not None else nullcontext():
                answered = await answer
    except TimeoutError:
        if not limit.expired():
            raise
    if limit.expired():  # whatever it answered after swallowing the cut
        raise ListenerTimeout(listener.who, listener.timeout)
    return answered


def _illegal(point: Point[Any], answer: object) -> str:
    names = ", ".join(cls.__name__ for cls in point.answers)
    if not names:
        return f"answered {type(answer).__name__}, but this point takes no answers"
    if isinstance(answer, type) and answer in point.answers:
        return f"answered the class {answer.__name__} instead of an instance: write {answer.__name__}(...)"
    look_alike = any(cls.__name__ == type(answer).__name__ for cls in point.answers)
    hint = "; it has the same name as an answer class, but is another class" if look_alike else ""
    or_none = " or None" if point.kind is Kind.DECIDE else ""
    return f"answered {type(answer).__name__}{_shown(answer)}, not one of {names}{or_none}{hint}"


def _shown(answer: object) -> str:
    try:
        return " " + repr(answer)[:80].encode(errors="backslashreplace").decode()
    except Exception:  # noqa: BLE001  # a foreign __repr__
        return ""
