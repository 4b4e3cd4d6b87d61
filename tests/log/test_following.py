"""Reading a session that somebody else writes."""

from __future__ import annotations

from pathlib import Path

from interlock import Agent, SQLiteStore, open_session
from interlock.testing import ScriptedModel, says


async def test_the_folds_of_a_follower_move_along_with_the_writer(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    async with (
        SQLiteStore(path) as mine,
        SQLiteStore(path) as theirs,
        Agent(ScriptedModel(says("one"), says("two")), store=theirs) as agent,
    ):
        await agent.run("first")
        following = await open_session(agent.session.id, store=mine, readonly=True)
        seen = following.head
        await agent.run("second")
        await following.changed(seen)
        assert following.head > seen
        assert [m.text for m in following.history.view()][:3] == ["first", "one", "second"]
        while following.head < agent.session.head:
            await following.changed(following.head)
        assert list(following.history.view()) == list(agent.session.history.view())
        await following.close()
