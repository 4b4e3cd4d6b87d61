"""A wrapper around a body has a deadline of its own, and the body does not end in time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from threading import Event

import pytest

from interlock import Agent, ToolCall, ToolResult, tool
from interlock.log.facts import ToolAbandoned
from interlock.testing import ScriptedModel, assert_laws, calls, says

Following = Callable[[], Awaitable[ToolResult]]


async def own_deadline(call: ToolCall, following: Following) -> ToolResult:
    async with asyncio.timeout(0.01):
        return await following()


async def no_deadline(call: ToolCall, following: Following) -> ToolResult:
    return await following()


@pytest.mark.parametrize(("wrapper", "timeout"), [(own_deadline, None), (no_deadline, 0.01)])
async def test_a_wrapper_that_gives_up_leaves_no_started_body_behind(
    wrapper: Callable[..., object], timeout: float | None
) -> None:
    """TP-15: a started body is awaited; if it is given up all the same, that is on record."""
    may_end, ended = Event(), Event()

    @tool
    def write() -> str:
        may_end.wait(10)
        ended.set()
        return "written"

    async with Agent(ScriptedModel(calls("write"), says("Well.")), tools=[write]) as agent:
        try:
            agent.on.execute(wrapper, timeout=timeout)
            asyncio.get_running_loop().call_later(0.2, may_end.set)
            await agent.run("Write it")
            assert ended.is_set() or agent.session.facts(ToolAbandoned)
            assert_laws(agent.session)
        finally:
            may_end.set()
