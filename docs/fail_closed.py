"""What happens when a participant fails: a table that is made by letting each of them fail.

Lives here: `fail_closed`. Each cell is one agent in simulated time. The model asks for one call, one participant
misbehaves, and the cell says what the log says of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from interlock import Agent, Ask, UsageError, tool
from interlock.log.facts import InboxReturned, ObserverFailed, ToolResulted, TurnEnd
from interlock.log.reasons import Failed, kind_of
from interlock.testing import ScriptedModel, assert_laws, calls, fails, run_virtual, says

LONG = 100.0  # seconds that a slow participant takes; it is given one
NOBODY = "nobody is there"


def raises(*_: object) -> object:
    raise RuntimeError("broken")


async def is_slow(*_: object) -> None:
    await asyncio.sleep(LONG)


def answers_nonsense(*_: object) -> object:
    return "yes"


async def raises_after_the_body(call: object, following: Callable[[], Any]) -> object:
    await following()
    raise RuntimeError("broken")


async def is_slow_after_the_body(call: object, following: Callable[[], Any]) -> object:
    await following()
    await asyncio.sleep(LONG)
    raise AssertionError("it was given one second")


async def answers_nonsense_after_the_body(call: object, following: Callable[[], Any]) -> object:
    await following()
    return "yes"


_MISHAPS: dict[str, Callable[..., Any] | None] = {
    "raises": raises,
    "exceeds its timeout": is_slow,
    "answers something else": answers_nonsense,
    NOBODY: None,
}
_AFTER_THE_BODY = {
    raises: raises_after_the_body,
    is_slow: is_slow_after_the_body,
    answers_nonsense: answers_nonsense_after_the_body,
}


def _at(point: str) -> Callable[[Agent, Any], None]:
    return lambda agent, fn: getattr(agent.on, point)(fn, timeout=_limit(fn))


def _hook(event: Any) -> Callable[[Agent, Any], None]:
    return lambda agent, fn: agent.hooks.register(event, fn, timeout=_limit(fn))  # type: ignore[return-value]


def _limit(fn: Any) -> float | None:
    return 1.0 if fn is is_slow else None  # only some points take one


def _after_the_body(agent: Agent, fn: Any) -> None:
    agent.on.execute(_AFTER_THE_BODY[fn], timeout=_limit(fn))


def _guard(agent: Agent, fn: Any) -> None:
    agent.guard(fn)


def _observer(agent: Agent, fn: Any) -> None:
    agent.on.observe(ToolResulted)(fn)


_PLACES: dict[str, Callable[[Agent, Any], None] | None] = {
    "`on.pre_step`": _at("pre_step"),
    "`on.request`": _at("request"),
    "`on.model_stream`": _at("model_stream"),
    "`on.request_error`": _at("request_error"),
    "`on.prepare`": _at("prepare"),
    "`on.pre_execute`": _at("pre_execute"),
    "guard": _guard,
    "approver": None,  # an argument of the agent
    "`on.execute`, before `next()`": _at("execute"),
    "`on.execute`, after `next()`": _after_the_body,
    "`on.post_execute`": _at("post_execute"),
    "`on.turn_stopping`": _at("turn_stopping"),
    "`on.result`": _at("result"),
    "`on.observe`": _observer,
    "hook `UserPromptSubmit`": _hook("UserPromptSubmit"),
    "hook `PreToolUse`": _hook("PreToolUse"),
    "hook `PostToolUse`": _hook("PostToolUse"),
    "hook `Stop`": _hook("Stop"),
}
_DOES_NOT_APPLY = {
    ("approver", is_slow): "is waited for",
    ("`on.observe`", is_slow): "must be sync",
    ("`on.observe`", answers_nonsense): "ignored",
}


async def _cell(place: str, register: Callable[[Agent, Any], None] | None, fn: Any) -> str:
    @tool
    async def act() -> str:
        return "done"

    answers = [calls("act"), says("Done.")]
    if place == "`on.request_error`":
        answers.insert(0, fails("SERVER"))
    approver = fn if place == "approver" else None
    async with Agent(ScriptedModel(*answers), tools=[act], approver=approver) as agent:
        if place == "approver":
            agent.on.pre_execute(lambda call: Ask("may it?"))
        elif register is not None and fn is not None:
            try:
                register(agent, fn)
            except UsageError:
                return "refused when registered"
        began = asyncio.get_running_loop().time()
        await agent.run("Go on")
        waited = asyncio.get_running_loop().time() - began >= LONG
        assert_laws(agent.session)
        facts = agent.session.facts(ToolResulted, TurnEnd, InboxReturned, ObserverFailed)
    return _said(facts, waited)


def _said(facts: list[Any], waited: bool) -> str:
    results = [fact for fact in facts if isinstance(fact, ToolResulted)]
    end = next(fact.reason for fact in facts if isinstance(fact, TurnEnd))
    words = []
    if waited:
        words.append("is waited for")
    for result in results:
        if result.error is not None:
            ran = "it has run" if result.error.handler_executed else "it does not run"
            words.append(f"the call: `{result.error.code}`, {ran}")
    if isinstance(end, Failed):
        words.append(f"the turn: `error` `{end.code}`")
    elif kind_of(end) != "completed":
        words.append(f"the turn: `{kind_of(end)}`")
    if any(isinstance(fact, InboxReturned) for fact in facts):
        words.append("the message goes back to its queue")
    if not words and any(isinstance(fact, ObserverFailed) for fact in facts):
        words.append("contained, `observer/failed`")
    return "; ".join(words) or "nothing changes"


def fail_closed() -> str:
    """The table, in Markdown."""
    lines = [f"| participant | {' | '.join(_MISHAPS)} |\n", "|---" * (len(_MISHAPS) + 1) + "|\n"]
    for place, register in _PLACES.items():
        cells = [
            _DOES_NOT_APPLY.get((place, fn)) or run_virtual(_cell(place, register, fn))  # type: ignore[arg-type]
            for fn in _MISHAPS.values()
        ]
        lines.append(f"| {place} | {' | '.join(cells)} |\n")
    return "".join(lines)
