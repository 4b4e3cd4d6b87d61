"""Hooks that are functions of the test, in the place of programs: `hooked(agent, Stop=[fn])`.

Everything but the process is real: selection, the lines of the log, the folding, and what the run makes of it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from interlock.bridges.hooks.bridge import OutsideHooks
from interlock.bridges.hooks.event import Occurrence
from interlock.bridges.hooks.files import Loaded
from interlock.bridges.hooks.fold import settled
from interlock.bridges.hooks.handler import Command, Handler, Place
from interlock.bridges.hooks.matching import compile_matcher
from interlock.bridges.hooks.run import Ran, Runner
from interlock.bridges.hooks.session import SessionHooks
from interlock.bridges.hooks.verdict import NOTHING, Answer
from interlock.log.facts import HookInvoked, HookResulted
from interlock.loop.harness import Layer

Function = Callable[[Occurrence], Any]


class Scripted(Runner):
    """Runs functions. One that raises has failed; one that returns a float takes so many seconds first."""

    def __init__(self, functions: dict[str, Function]) -> None:
        super().__init__(Path("/nowhere"))
        self._functions = functions

    async def run(self, handlers: Sequence[Handler], occurrence: Occurrence) -> tuple[Ran, ...]:
        self._once.update(handler.digest for handler in handlers if handler.once)
        return tuple(await asyncio.gather(*[self._called(handler, occurrence) for handler in handlers]))

    async def _called(self, handler: Handler, occurrence: Occurrence) -> Ran:
        try:
            answer = self._functions[handler.digest](occurrence)
            if inspect.isawaitable(answer):
                answer = await answer
        except Exception as error:  # noqa: BLE001  # as of a program
            answer = Answer(failure=str(error))
        answer = settled(handler.event, handler.on_failure, answer or NOTHING)
        return Ran(handler=handler, answer=answer, ms=0, exit=0)


class Fixed:
    """What is configured, once and for all."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded

    def current(self) -> Loaded:
        return self.loaded


def handler(event: Any, name: str, **more: Any) -> Handler:
    """A handler of the Claude dialect that is known to people by its name."""
    return Handler(
        dialect="claude",
        event=event,
        matcher=more.pop("matcher", compile_matcher(None, "claude")),
        action=Command(name),
        place=Place(Path(f"/hooks/{name}"), None, "given"),
        timeout=60,
        name=name,
        **more,
    )


def hooked(layer: Layer, *handlers: tuple[Handler, Function], problems: Any = (), **events: Any) -> None:
    """Attach functions as hooks: `PreToolUse=[first, second]`, or handlers with the function of each."""
    pairs = list(handlers)
    for event, functions in events.items():
        pairs += [(handler(event, f"{event}-{i}"), fn) for i, fn in enumerate(functions, 1)]
    loaded = Loaded(handlers=tuple([one for one, _ in pairs]), problems=tuple(problems))
    functions = {one.digest: fn for one, fn in pairs}
    hooks = OutsideHooks(lambda agent: SessionHooks(agent, Fixed(loaded), Scripted(functions)))
    hooks.attach(layer)


def said(**fields: Any) -> Function:
    """A hook that always answers this."""
    return lambda occurrence: Answer(**fields)


class Recorder:
    """A hook that remembers what it was told, and answers as `then` does."""

    def __init__(self, then: Function = lambda occurrence: NOTHING) -> None:
        self.seen: list[Any] = []
        self._then = then

    def __call__(self, occurrence: Occurrence) -> Any:
        self.seen.append(occurrence.what)
        return self._then(occurrence)


def told(agent: Any, event: str | None = None) -> list[str]:
    """One line for each hook that was run: event, name, what it said; `+` won, `!` failed, `~` had no effect."""
    lines, names = [], {}
    for fact in agent.session.facts(HookInvoked, HookResulted):
        if isinstance(fact, HookInvoked):
            names[fact.hook_id] = fact
        elif event is None or names[fact.hook_id].event == event:
            invoked = names.pop(fact.hook_id)
            mark = "+" if fact.won else "!" if fact.error else "~" if fact.unused else "-"
            lines.append(f"{mark} {Path(invoked.file or '').name} {dict(fact.said or {})}")
    return lines


def unanswered(agent: Any) -> list[str]:
    """Hooks that were invoked and have no result."""
    invoked = {fact.hook_id: fact.event for fact in agent.session.facts(HookInvoked)}
    for fact in agent.session.facts(HookResulted):
        del invoked[fact.hook_id]
    return list(invoked.values())
