"""Layers of registrations, unwound as one: harness, preset, agent.

Lives here: `Scope`. What is registered in a scope is in force for everything inside it, outer scopes first; leaving the
scope takes it away, newest first. A disposer does the same for one registration, and may be called twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from interlock.errors import UsageError
from interlock.intercept.point import Listener, Point, is_async, name_of

Dispose = Callable[[], None]


class Scope:
    """One layer. `parent` is the next outer one."""

    def __init__(self, name: str, parent: Scope | None = None) -> None:
        self.name = name
        self.parent = parent
        self.closed = False
        self._listeners: dict[Point[Any], list[Listener]] = {}
        self._undo: list[Dispose] = []
        self._children: dict[Scope, None] = {}  # a set that keeps the order
        self._effective: dict[Point[Any], tuple[Listener, ...]] = {}
        self._watchers: dict[Point[Any], list[Callable[[], None]]] = {}
        if parent is not None:
            parent._children[self] = None

    # Registering

    def listen(
        self,
        point: Point[Any],
        fn: Callable[..., Any],
        *,
        timeout: float | None = None,
        name: str | None = None,
    ) -> Dispose:
        """Register a listener at a point; returns the way to undo it.

        Raises:
            UsageError: `fn` cannot be called, or is async where nobody awaits it; the timeout is not above 0, or
                nobody keeps it; the scope is closed.
        """
        listener = self.listener(point, fn, timeout=timeout, name=name)

        def dispose() -> None:
            listeners = self._listeners.get(point, [])
            if listener in listeners:
                listeners.remove(listener)
                self._changed(point)

        undo = self.owns(dispose)
        self._listeners.setdefault(point, []).append(listener)
        self._changed(point)
        return undo

    def listener(
        self, point: Point[Any], fn: Callable[..., Any], *, timeout: float | None, name: str | None
    ) -> Listener:
        """A listener as `listen` registers it, checked. Raises as `listen`."""
        if not callable(fn):
            raise UsageError(f"{point.name}: a listener is a function, not {type(fn).__name__}")
        given: object = timeout
        if given is not None and not (isinstance(given, (int, float)) and given > 0):
            raise UsageError(f"{point.name}: timeout is a number of seconds above 0, not {timeout!r}")
        if not point.awaited and (given is not None or is_async(fn)):
            what = "is async" if is_async(fn) else "has a timeout"
            raise UsageError(f"{point.name} does not await its listeners, and {name_of(fn)} {what}")
        return Listener(point, fn, name or f"{self.name}:{name_of(fn)}", timeout)

    def owns(self, undo: Dispose) -> Dispose:
        """Call `undo` when the scope is left, newest first, unless it was called before.

        Raises:
            UsageError: the scope is closed; `undo` was called at once.
        """
        if self.closed:
            undo()
            raise UsageError(f"the scope {self.name!r} is closed; register before it is left")

        def once() -> None:
            if once in self._undo:
                self._undo.remove(once)
                undo()

        self._undo.append(once)
        return once

    def listeners(self, point: Point[Any]) -> tuple[Listener, ...]:
        """All listeners in force here, outer scopes first, each in order of registration."""
        found = self._effective.get(point)
        if found is None:
            outer = self.parent.listeners(point) if self.parent is not None else ()
            found = self._effective[point] = outer + tuple(self._listeners.get(point, ()))
        return found

    def watch(self, point: Point[Any], fn: Callable[[], None]) -> None:
        """Call `fn` whenever the listeners in force here change, for as long as the scope lives."""
        self._watchers.setdefault(point, []).append(fn)

    def _changed(self, point: Point[Any]) -> None:
        self._effective.pop(point, None)
        for fn in self._watchers.get(point, ()):
            fn()
        for child in self._children:
            child._changed(point)

    # Leaving

    def close(self) -> None:
        """Take back everything that was registered here, inner scopes first, newest first. Twice is harmless.

        What one of them raises keeps none of the others; it is raised at the end.
        """
        if self.closed:
            return
        self.closed = True
        with ExitStack() as stack:
            if self.parent is not None:
                stack.callback(self.parent._children.pop, self, None)
            for undo in self._undo:
                stack.callback(undo)
            for child in self._children:
                stack.callback(child.close)

    def __enter__(self) -> Scope:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Scope:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
