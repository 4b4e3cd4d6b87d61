"""An agent whose session somebody else has taken over: nothing starts past it."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from pathlib import Path

import pytest

from interlock import Agent, LeaseLost, SQLiteStore, Status, ToolCall, ToolResult, tool
from interlock.log.facts import SessionOpened, ToolCalled, ToolStarted, TurnEnd
from interlock.log.laws import check
from interlock.log.reasons import Interrupted
from interlock.log.session import Session, open_session
from interlock.log.stores.store import Journal
from interlock.testing import ScriptedModel, calls, says


class Place:
    """A file of sessions, and a rival who takes one over as if its driver had shown no sign of life for too long."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store, self.rivals = SQLiteStore(path), SQLiteStore(path)
        self.taken: Journal | None = None

    async def take_over(self, session_id: str) -> None:
        """Without a line: what its driver would write next still fits."""
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute(
                "UPDATE lease SET expires = 0, holder = CAST(json_set(CAST(holder AS TEXT), '$.until', 0) AS BLOB)"
            )
        self.taken = await self.rivals.open(session_id)

    async def resume(self, session_id: str) -> Session:
        """As the rival goes on with it: what is found open, is closed."""
        assert self.taken is not None
        await self.taken.close()
        return await open_session(session_id, store=self.rivals)

    async def close(self) -> None:
        await self.rivals.close()
        await self.store.close()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "log.db")


@pytest.mark.parametrize("point", ["prepare", "pre_execute"])
async def test_no_tool_starts_past_it(place: Place, point: str) -> None:
    ran: list[str] = []

    @tool
    def delete(name: str) -> str:
        ran.append(name)
        return "deleted"

    async def lose(call: ToolCall) -> None:
        await agent.session.barrier()  # the rival finds all that there is
        await place.take_over(agent.session.id)

    agent = Agent(ScriptedModel(calls("delete", name="a")), tools=[delete], store=place.store)
    getattr(agent.on, point)(lose)
    await agent.open()
    with pytest.raises(LeaseLost, match="taken over by this process") as caught:
        await agent.run("Delete a")
    assert caught.value.session_id == agent.session.id
    assert ran == []
    assert agent.status is Status.FAILED
    with pytest.raises(LeaseLost):
        agent.followup("and b")
    with pytest.raises(LeaseLost):
        await agent.aclose()
    rival = await place.resume(agent.session.id)
    assert [fact.lease for fact in rival.facts(SessionOpened)] == [1, 3]
    assert len(rival.facts(ToolCalled)) == 1
    assert rival.facts(ToolStarted) == []
    assert isinstance(rival.facts(TurnEnd)[-1].reason, Interrupted)
    assert list(check(rival.events)) == []
    await place.close()


async def test_no_tool_starts_when_a_wrapper_has_waited_for_too_long(place: Place) -> None:
    """Its start is on disk by then; what is found meanwhile holds it back all the same."""
    ran: list[str] = []

    @tool
    def delete(name: str) -> str:
        ran.append(name)
        return "deleted"

    agent = Agent(ScriptedModel(calls("delete", name="a")), tools=[delete], store=place.store)

    @agent.on.execute
    async def wait(call: ToolCall, following: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        assert agent.session.facts(ToolStarted)
        await place.take_over(agent.session.id)
        await place.store._confirm()
        return await following()

    await agent.open()
    with pytest.raises(LeaseLost):
        await agent.run("Delete a")
    assert ran == []
    assert agent.status is Status.FAILED
    with suppress(LeaseLost):
        await agent.aclose()
    await place.close()


async def test_no_turn_starts_past_it(place: Place) -> None:
    model = ScriptedModel(says("one"), says("two"))
    agent = Agent(model, store=place.store)
    await agent.open()
    await agent.run("first")
    await place.take_over(agent.session.id)
    with pytest.raises(LeaseLost):
        await agent.run("second")
    assert len(model.requests) == 1, "no request leaves before its input is on disk"
    with pytest.raises(LeaseLost):
        await agent.aclose()
    rival = await place.resume(agent.session.id)
    await rival.close()
    async with Agent(ScriptedModel(says("three")), store=place.rivals, session=rival.id) as other:
        assert (await other.run("third")).text == "three"
        assert [fact.lease for fact in other.session.facts(SessionOpened)] == [1, 3, 4]
    await place.close()
