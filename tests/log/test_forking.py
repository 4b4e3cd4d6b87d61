"""A fork: which lines it has, what it does not inherit, and that it needs nobody to be read."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from interlock import Agent, SQLiteStore, check, open_session, tool
from interlock.errors import DuplicateSession, SessionError, UnknownSession, UsageError
from interlock.log.artifacts import LIMIT
from interlock.log.event import Event
from interlock.log.facts import (
    FORMAT,
    ApprovalDecided,
    Fact,
    GrantRevoked,
    ParentSession,
    PolicyChanged,
    SessionCreated,
    SessionOpened,
    StepEnd,
    TurnEnd,
    TurnStart,
)
from interlock.log.forking import fork_session
from interlock.log.session import create_session
from interlock.testing import Gate, ScriptedModel, assert_laws, calls, gated, says

from .conftest import AnyStore
from .lawful_logs import ANSWERED, BEGUN, END, ENDED, ask, called, decided, result, written


async def kept(store: AnyStore, facts: tuple[Fact, ...]) -> None:
    """A session `s` of these facts."""
    journal = await store.create("s")
    journal.write(written(facts))
    await journal.close()


async def grown(store: AnyStore, *answers: str) -> str:
    """A session with a turn for each answer."""
    async with Agent(ScriptedModel(*[says(one) for one in answers]), store=store, cwd="/tmp") as agent:
        for number, _ in enumerate(answers, 1):
            await agent.run(f"prompt {number}")
        return agent.session.id


async def test_line_0_names_the_parent_and_the_others_are_its_lines(store: AnyStore) -> None:
    async with store:
        parent = await grown(store, "one", "two", "three")
        fork = await fork_session(parent, store=store, at=2, new_id="f")
        theirs = await open_session(parent, store=store, readonly=True)
        (end,) = [
            event.seq for event in theirs.events if isinstance(event.fact, TurnEnd) and event.fact.turn == 2
        ]
        created = fork.events[0].fact
        assert isinstance(created, SessionCreated)
        assert (created.session_id, created.parent) == ("f", ParentSession(parent, end))
        assert created.cwd == "/tmp", "it works where its parent works"
        assert fork.events[1 : end + 1] == theirs.events[1 : end + 1]
        (opened,) = fork.events[end + 1 :]
        assert isinstance(opened.fact, SessionOpened)
        assert (opened.fact.how, opened.fact.life, opened.life) == ("fork", 2, 2)
        assert_laws(fork)
        assert {info.id for info in await store.list()} == {parent, "f"}
        await fork.close()
        await theirs.close()


async def test_it_begins_at_the_last_closed_turn_while_the_parent_is_in_another(
    store: AnyStore,
) -> None:
    async with store:
        streaming = Gate()
        model = ScriptedModel(says("one"), gated(streaming, says("two"), after=1))
        async with Agent(model, store=store) as agent:
            await agent.run("first")
            agent.followup("second")
            agent.followup("third")
            await streaming.reached
            fork = await fork_session(agent.session.id, store=store)
            assert (fork.state.turns, fork.open, len(fork.state.queues)) == (1, False, 0)
            assert [message.text for message in fork.history.view()] == ["first", "one"]
            await fork.close()
            streaming.open()


async def test_it_outlives_its_parent(tmp_path: Path) -> None:
    """Law 1: one log says all of it. Big values are kept once for both."""

    @tool(effect="read")
    async def look() -> str:
        return "x" * (2 * LIMIT)

    file = tmp_path / "log.db"
    async with SQLiteStore(file) as store:
        async with Agent(ScriptedModel(calls("look"), says("big")), tools=[look], store=store) as agent:
            await agent.run("look")
            parent = agent.session.id
        fork = await fork_session(parent, store=store, new_id="f")
        await fork.close()
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT count(*) FROM artifact").fetchone() == (1,)
        connection.execute(
            "DELETE FROM event WHERE session = (SELECT key FROM session WHERE id = ?)", [parent]
        )
        connection.execute("DELETE FROM session WHERE id = ?", [parent])
    async with (
        SQLiteStore(file) as store,
        Agent(ScriptedModel(says("go on")), store=store, session="f") as agent,
    ):
        assert (await agent.run("and?")).turn == 2
        assert "x" * (2 * LIMIT) in agent.session.history.view()[2].text
        assert check(agent.session.events) == []


async def test_what_a_person_has_taken_back_since_is_not_given_back(
    store: AnyStore,
) -> None:
    async with store:
        log: tuple[Fact, ...] = ANSWERED
        for n, rule in enumerate(("Bash(ls)", "Bash(make)")):
            call = len(log)
            granted = ApprovalDecided(
                f"a{n}", call, "digest", "allowed-once", rule_written=rule, scope="session", how="api"
            )
            log = (
                *log,
                called(n),
                decided("ask", call),
                ask(call, f"a{n}"),
                granted,
                result(call, f"c{n + 1}"),
            )
        log = (*log, StepEnd(1, 1, "tools"), END, TurnStart(2), GrantRevoked("Bash(ls)"))
        await kept(store, (*log, TurnEnd(2, END.reason, 0)))
        fork = await fork_session("s", store=store, at=1)
        assert list(fork.state.grants) == ["Bash(make)"]
        assert check(fork.events) == []
        await fork.close()
        # What was revoked before the boundary needs no second line.
        fork = await fork_session("s", store=store, at=2)
        assert (list(fork.state.grants), len(fork.facts(GrantRevoked))) == (["Bash(make)"], 1)
        await fork.close()


async def test_a_preset_that_was_chosen_right_after_the_turn_holds_and_a_later_one_does_not(
    store: AnyStore,
) -> None:
    async with store:
        later = (TurnStart(2), TurnEnd(2, END.reason, 0), PolicyChanged("full"))
        await kept(
            store,
            (
                *BEGUN,
                PolicyChanged("ask"),
                TurnStart(1),
                TurnEnd(1, END.reason, 0),
                PolicyChanged("plan"),
                *later,
            ),
        )
        for at, preset in ((1, "plan"), (2, "full")):
            fork = await fork_session("s", store=store, at=at)
            assert fork.state.preset == PolicyChanged(preset)
            await fork.close()


@pytest.mark.parametrize(
    ("facts", "at", "said"),
    [
        (BEGUN, None, "no turn of it has ended"),
        ((*BEGUN, TurnStart(1)), None, "no turn of it has ended"),
        ((*ENDED, END), 2, "closed turns are 1"),
        ((*ENDED, END, TurnStart(2)), 2, "closed turns are 1"),
        ((*ENDED, END), 0, "closed turns are 1"),
    ],
    ids=["no turn", "an open turn", "a turn that never was", "the open one", "turn 0"],
)
async def test_only_at_a_closed_turn(
    store: AnyStore, facts: tuple[Fact, ...], at: int | None, said: str
) -> None:
    async with store:
        await kept(store, facts)
        with pytest.raises(UsageError, match=said):
            await fork_session("s", store=store, at=at, new_id="f")
        assert [info.id for info in await store.list()] == ["s"], "nothing was made"


async def test_there_must_be_a_parent_and_no_other_of_the_new_id(store: AnyStore) -> None:
    async with store:
        with pytest.raises(UnknownSession):
            await fork_session("s", store=store)
        await kept(store, (*ENDED, END))
        with pytest.raises(DuplicateSession):
            await fork_session("s", store=store, new_id="s")


async def test_a_fork_that_was_never_finished_is_refused_and_says_what_to_do(
    store: AnyStore,
) -> None:
    async with store:
        journal = await store.create("f")
        journal.write(
            [Event(0, 1, 1, SessionCreated(FORMAT, "f", parent=ParentSession("s", 9))), *written(BEGUN)[1:]]
        )
        await journal.close()
        with pytest.raises(SessionError, match="Fork s again"):
            await open_session("f", store=store)


async def test_a_new_session_is_no_fork(store: AnyStore) -> None:
    async with store:
        session = await create_session(store)
        assert session.facts(SessionCreated)[0].parent is None
        await session.close()
