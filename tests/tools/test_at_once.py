"""Bodies that cannot suspend run where they are started, and nobody can tell but by the clock.

Each body is run in two forms: as it is, and after it has awaited something that is there already, which gives it a task
of its own. What the model reads, the outcome and the log are the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from interlock import Agent, SQLiteStore, Tool, ToolContext, ToolError, ToolOutput, tool
from interlock.log.facts import ToolResulted, ToolStarted, UserMessage
from interlock.testing import ScriptedModel, assert_laws, calls, says, shorthand

KEPT: ContextVar[str] = ContextVar("kept", default="nothing")


async def there() -> None:
    """What is there already."""


# Which those are


async def plain(n: int) -> int:
    return n + 1


async def awaiting(n: int) -> int:
    await there()
    return n


async def iterating(items: str) -> int:
    async for _ in stream():
        return 1
    return 0


async def entering(n: int) -> int:
    async with contextlib.AsyncExitStack():
        return n


async def comprehending(n: int) -> int:
    return len([one async for one in stream()])


async def with_an_inner_one(n: int) -> int:
    async def inner() -> None:
        await there()

    inner().close()
    return n


async def stream() -> AsyncIterator[int]:
    yield 1


def sync(n: int) -> int:
    return n


class Called:
    async def __call__(self, n: int) -> int:
        return n


@pytest.mark.parametrize(
    ("fn", "awaits"),
    [
        (plain, False),
        (with_an_inner_one, False),
        (awaiting, True),
        (iterating, True),
        (entering, True),
        (comprehending, True),
        (sync, True),  # it runs in a thread, which is awaited
        (functools.partial(plain, 3), True),  # not looked into
        (Called(), True),
    ],
)
def test_it_is_known_whether_a_body_may_suspend(fn: Callable[..., Any], awaits: bool) -> None:
    assert Tool(name="one", fn=fn).awaits is awaits


def test_a_body_that_is_said_not_to_suspend_does_not() -> None:
    """The proof of the proof: sent on once, it has ended."""
    for body in (plain(1), with_an_inner_one(1)):
        with pytest.raises(StopIteration):
            body.send(None)


# The same outcome, the same log


def returns(context: ToolContext) -> Any:
    return "a value"


def says_more(context: ToolContext) -> Any:
    context.defer("mind the gap")
    context.progress("half of it")
    return ToolOutput({"rows": 3}, "three rows", contexts=["and the step"])


def concludes(context: ToolContext) -> Any:
    context.conclude()
    return None


def fails(context: ToolContext) -> Any:
    raise ToolError("no such row", code="missing")


def breaks(context: ToolContext) -> Any:
    context.defer("said before")
    raise ValueError("broken")


def exits(context: ToolContext) -> Any:
    raise SystemExit(3)


def cancels_itself(context: ToolContext) -> Any:
    raise asyncio.CancelledError


def stops_iterating(context: ToolContext) -> Any:
    raise StopIteration


def is_not_json(context: ToolContext) -> Any:
    return object()


def stops_the_turn(context: ToolContext) -> Any:
    context.agent.cancel()
    return "done all the same"


def stops_the_turn_and_fails(context: ToolContext) -> Any:
    context.agent.cancel()
    raise ToolError("too late")


def sends(context: ToolContext) -> Any:
    context.agent.inject("from within")
    return context.signal.is_set()


BODIES = [
    returns, says_more, concludes, fails, breaks, exits, cancels_itself, stops_iterating, is_not_json,
    stops_the_turn, stops_the_turn_and_fails, sends,
]  # fmt: skip


def both(body: Callable[[ToolContext], Any], **declared: Any) -> tuple[Tool, Tool]:
    async def at_once(context: ToolContext) -> Any:
        return body(context)

    async def in_a_task(context: ToolContext) -> Any:
        await there()
        return body(context)

    made = tool("body", **declared)(at_once), tool("body", **declared)(in_a_task)
    assert [one.awaits for one in made] == [False, True]
    return made


async def lived(body: Tool, **settings: Any) -> list[Any]:
    """What one call of it leaves: the log in short, the results, what was said and when."""
    async with Agent(ScriptedModel(calls("body"), says("done")), tools=[body], **settings) as agent:
        await agent.run("go")
        assert_laws(agent.session)
        results = agent.session.facts(ToolResulted)
        spoken = [(fact.source, fact.content) for fact in agent.session.facts(UserMessage)]
        return [shorthand(agent.session), [(one.content, one.error, one.contexts) for one in results], spoken]


@pytest.mark.virtual
@pytest.mark.parametrize("declared", [{}, {"concurrency": "parallel", "effect": "read"}, {"timeout": 1}])
@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
async def test_a_body_at_once_leaves_what_it_would_leave_in_a_task(
    body: Callable[[ToolContext], Any], declared: dict[str, Any]
) -> None:
    at_once, in_a_task = both(body, **declared)
    assert await lived(at_once) == await lived(in_a_task)


@pytest.mark.virtual
async def test_what_it_sets_in_its_context_is_its_own() -> None:
    @tool
    async def keep() -> str:
        """Sets a variable, as a library may do, and never takes it back."""
        before = KEPT.get()
        KEPT.set("something")
        return before

    async with Agent(ScriptedModel(calls("keep"), calls("keep"), says("done")), tools=[keep]) as agent:
        await agent.run("go")
        assert [fact.content[0].text for fact in agent.session.facts(ToolResulted)] == ["nothing", "nothing"]
    assert KEPT.get() == "nothing"


@pytest.mark.virtual
async def test_each_result_is_on_record_before_the_next_body_starts() -> None:
    """Whoever hears of a result may stop the batch: nothing has been started meanwhile."""
    done: list[int] = []

    @tool(concurrency="parallel", effect="read")
    async def work() -> str:
        done.append(1)
        return "ok"

    async with Agent(ScriptedModel(calls("work", "work", "work")), tools=[work]) as agent:
        agent.on.result(lambda call, result: agent.cancel())
        await agent.run("go")
        assert_laws(agent.session)
        codes = [fact.error.code if fact.error else "ok" for fact in agent.session.facts(ToolResulted)]
    assert (len(done), codes) == (1, ["ok", "ABORTED_BEFORE_DISPATCH", "ABORTED_BEFORE_DISPATCH"])


@pytest.mark.virtual
async def test_many_of_them_do_not_keep_others_from_running() -> None:
    turns = 0
    seen: list[int] = []

    async def tick() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    @tool(concurrency="parallel", effect="read")
    async def work() -> str:
        seen.append(turns)
        return "ok"

    async with Agent(ScriptedModel(calls(*["work"] * 300), says("done")), tools=[work]) as agent:
        ticking = asyncio.ensure_future(tick())
        assert (await agent.run("go")).ok
        ticking.cancel()
    assert len(seen) == 300
    assert seen[-1] - seen[0] >= 5


async def test_one_that_has_an_effect_waits_for_the_disk(tmp_path: Path) -> None:
    """TP-13: its start is on record, and on disk, before it runs; so it has a task, which can wait."""
    barriers: list[int] = []
    waited_for: list[int] = []

    @tool
    async def work() -> str:
        waited_for.extend(barriers)
        return "ok"

    async with (
        SQLiteStore(tmp_path / "log.db") as store,
        Agent(ScriptedModel(calls("work"), says("done")), tools=[work], store=store) as agent,
    ):
        barrier = agent.session.barrier

        async def counted() -> None:
            await barrier()
            barriers.append(agent.session.head)

        agent.session.barrier = counted  # type: ignore[method-assign]
        assert (await agent.run("go")).ok
        (started,) = [event.seq for event in agent.session.events if type(event.fact) is ToolStarted]
    assert started in waited_for
