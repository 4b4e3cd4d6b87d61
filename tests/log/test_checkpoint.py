"""ER-07: the folds that are kept beside a log are those of the log, and whatever is wrong with them changes nothing."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Agent, JSONLStore, SQLiteStore, ToolContext, tool
from interlock.errors import UnknownFact
from interlock.log import facts as vocabulary
from interlock.log import session as sessions
from interlock.log.assembly import Assembly
from interlock.log.checkpoint import Kept, Snapshot, can_be_kept, doubt, restored
from interlock.log.event import Event, decode_event, encode_event
from interlock.log.facts import (
    FORMAT,
    Fact,
    HistoryReplaced,
    SessionCreated,
    SessionOpened,
    TurnEnd,
    TurnStart,
    UserMessage,
    register_fact,
)
from interlock.log.forking import fork_session
from interlock.log.history import History
from interlock.log.messages import PERSON, Message, Text
from interlock.log.reasons import Completed
from interlock.log.session import create_session, open_session
from interlock.log.state import Approval, Call, Claim, Owed, Queues, Request, State, Step, Turn, Waiting
from interlock.log.stores.buffered import BufferedJournal
from interlock.log.stores.keeping import Keeping
from interlock.log.stores.postgres.store import PostgresStore
from interlock.log.stores.store import Store
from interlock.log.tally import Tally
from interlock.testing import ScriptedModel, assert_laws, call, calls, says

from .conftest import AnyStore
from .growing_logs import growing_logs
from .lawful_logs import ENDED, QUEUED, WITH_CONTEXT, told, written

_PARTS = (State, Turn, Step, Call, Claim, Approval, Request, Queues, Waiting, Owed, Tally)


def folds(value: Any) -> Any:
    """All that a state holds, as plain values that can be compared."""
    if isinstance(value, History):
        return value.parts()
    if isinstance(value, Assembly):
        return value.blocks(), value.finish, value.usage
    if isinstance(value, _PARTS):
        return {name: folds(getattr(value, name)) for name in value.__slots__}
    if isinstance(value, dict):
        return [(key, folds(one)) for key, one in value.items()]
    return [folds(one) for one in value] if isinstance(value, list) else value


def folded(events: Sequence[Event], state: State | None = None) -> State:
    state = state or State()
    for event in events:
        state.apply(event)
    return state


def kept_at(events: Sequence[Event], session_id: str = "s") -> Kept:
    return Snapshot(session_id, folded(events), events[-1]).kept(breath=0)


# The law


@given(growing_logs())
def test_going_on_from_a_checkpoint_is_replaying_everything(log: list[Event]) -> None:
    whole, state = folds(folded(log)), State()
    read = [decode_event(encode_event(event)) for event in log]  # equal, of other objects
    for n, event in enumerate(log):
        state.apply(event)
        if not can_be_kept(state):
            continue
        kept = Snapshot("s", state, event).kept(breath=0)
        found = restored(kept, "s", len(log) - 1)
        assert found is not None and found.fits(event)
        assert folds(found.state) == folds(state)
        again = Snapshot("s", found.state, event)
        assert again.kept(breath=0) == kept, "the same folds have other bytes"
        assert folds(folded(log[n + 1 :], found.state)) == whole
        assert doubt(kept, "s", read) is None, "lived through, they have other bytes than replayed"


@given(growing_logs(most=30), st.data())
def test_a_checkpoint_in_which_anything_is_changed_is_dropped(log: list[Event], data: st.DataObject) -> None:
    ends = [n for n in range(1, len(log) + 1) if can_be_kept(folded(log[:n]))]
    kept = kept_at(log[: data.draw(st.sampled_from(ends))])
    at = data.draw(st.integers(0, len(kept.data) - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    broken = kept.data[:at] + bytes([kept.data[at] ^ bit]) + kept.data[at + 1 :]
    others = [
        msgspec.structs.replace(kept, data=broken),
        msgspec.structs.replace(kept, data=kept.data[:at]),
        msgspec.structs.replace(kept, seq=kept.seq + 1),
        msgspec.structs.replace(kept, seq=-1),
        msgspec.structs.replace(kept, form=f"{kept.form} and later"),
        msgspec.structs.replace(kept, digest=bytes([kept.digest[0] ^ bit]) + kept.digest[1:]),
        msgspec.structs.replace(kept, digest=b""),
        msgspec.structs.replace(kept, artifacts=b"[]"),
    ]
    for other in others:
        assert restored(other, "s", len(log)) is None
    assert restored(kept, "t", len(log)) is None  # of another session
    assert restored(kept, "s", kept.seq - 1) is None  # beyond the head
    assert restored(kept, "s", kept.seq) is not None


def test_every_fold_is_in_a_checkpoint_or_says_that_there_can_be_none() -> None:
    """A fold that is added to the state has to be added there, and the number of the folds raised."""
    from interlock.log import checkpoint

    taken, state = set(checkpoint._Folds.__struct_fields__), set(State.__slots__)
    beside = {"queues", "history", "runtime"}  # kept in parts
    none = {"step", "claim", "approvals"}  # of what is open: see `can_be_kept`
    assert state - beside - none == taken - {"next_turn", "next_step"}
    assert set(Queues.__slots__) == {"next_turn", "next_step", "reserved"}
    assert set(Turn.__slots__) - {"step"} == set(checkpoint._Turn.__struct_fields__)
    assert set(Tally.__slots__) == set(checkpoint._Tally.__struct_fields__)
    assert set(Waiting.__slots__) == set(checkpoint._Waiting.__struct_fields__)
    assert set(Owed.__slots__) == set(checkpoint._Owed.__struct_fields__)


@pytest.mark.parametrize("facts", [QUEUED, ENDED, WITH_CONTEXT], ids=["queued", "between steps", "owed"])
def test_what_is_pending_and_owed_is_in_it(facts: tuple[Fact, ...]) -> None:
    log = written(facts)
    found = restored(kept_at(log), "s", len(log))
    assert found is not None
    assert folds(found.state) == folds(folded(log))


def test_big_texts_stand_elsewhere_as_they_do_in_lines() -> None:
    text = "word " * 10_000
    log = written(
        (
            SessionCreated(FORMAT, "s"),
            SessionOpened(1, "new"),
            TurnStart(1),
            UserMessage("m", PERSON, "user", (Text(text),)),
            UserMessage("n", PERSON, "user", (Text("short"), Text(text))),
            TurnEnd(1, Completed(), 0),
        )
    )
    kept = kept_at(log)
    assert len(kept.data) < 5_000
    assert set(kept.references()) == {(reference := kept.references())[0]} and len(reference) == 2
    assert restored(kept, "s", 5) is None  # without them
    assert restored(kept.whole(lambda _: None), "s", 5) is None
    assert restored(kept.whole(lambda _: b"other"), "s", 5) is None
    found = restored(kept.whole(lambda _: text.encode()), "s", 5)
    assert found is not None and folds(found.state) == folds(folded(log))


def test_a_checkpoint_of_a_log_with_unknown_facts_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Law 10: whoever opens the log has to be told of lines that cannot be read, also of those that are folded."""
    monkeypatch.setattr(vocabulary, "_registry", dict(vocabulary._registry))

    @register_fact
    class Noted(Fact, frozen=True):
        type = "plugin/noted"
        text: str

    log = written((SessionCreated(FORMAT, "s"), SessionOpened(1, "new"), Noted("x")))
    kept = kept_at(log)
    assert restored(kept, "s", 2) is not None
    del vocabulary._registry["plugin/noted"]
    assert restored(kept, "s", 2) is None

    class Other(Fact, frozen=True):
        type = "plugin/noted"
        text: int

    vocabulary._registry["plugin/noted"] = Other
    assert restored(kept, "s", 2) is None


def test_a_doubt_says_what_is_wrong() -> None:
    log = written(ENDED)
    other = written((*ENDED[:-1], msgspec.structs.replace(ENDED[-1], reason="completed")))  # type: ignore[type-var]
    state = folded(log)
    state.grants["Bash(rm:*)"] = 3  # what no line says
    forged = Snapshot("s", state, log[-1]).kept(breath=0)
    assert restored(forged, "s", len(log)) is not None
    assert doubt(forged, "s", log) == "replaying the log says something else"
    assert doubt(kept_at(other), "s", log) == "it was made of another log"
    assert doubt(kept_at(log, "t"), "s", log) == "it is damaged, or of another log"
    assert doubt(msgspec.structs.replace(forged, form="0 0"), "s", log) is None  # nobody reads it


# In stores


@tool(effect="read")
async def look(n: int, context: ToolContext) -> str:
    """Looks."""
    return f"seen {n} " * (9_000 if n == 3 else 1)


def steps(first: int, count: int, end: str) -> ScriptedModel:
    return ScriptedModel(*[calls(call("look", n=n)) for n in range(first, first + count)], says(end))


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after few lines."""
    monkeypatch.setattr(sessions, "_LINES_BETWEEN", 40)


async def long_session(store: Store, count: int = 12) -> str:
    """A session of two turns. The history was compacted between them, up to a big text that is still in it."""
    answers = [calls(call("look", n=n)) for n in range(count)]
    more = [calls(call("look", n=90 + n)) for n in range(5)]
    model = ScriptedModel(*answers, says("seen."), *more, says("seen again."))
    async with Agent(model, tools=[look], store=store) as agent:
        await agent.run("Look around")
        lines = agent.session.history.parts()[1]
        agent.session.append(HistoryReplaced(lines[0], lines[6], (Message.context("summary"),), "compaction"))
        await agent.run("And again")
        return agent.session.id


def of_lines(store: Any) -> Store:
    """The same store, in which nobody finds a checkpoint."""

    class Blind:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def open(self, session_id: str, *, readonly: bool = False, checkpoint: bool = False) -> Any:
            return await store.open(session_id, readonly=readonly)

    blind: Any = Blind()
    made: Store = blind
    return made


async def state_of(store: Store, session_id: str) -> tuple[Any, int]:
    """The folds of a session as it is opened, and how far they came from a checkpoint."""
    session = await open_session(session_id, store=store, readonly=True)
    try:
        return folds(session.state), session._kept
    finally:
        await session.close()


@pytest.mark.usefixtures("often")
async def test_a_session_is_opened_from_its_checkpoint(store: AnyStore) -> None:
    async with store:
        session_id = await long_session(store)
        opened, kept = await state_of(store, session_id)
        replayed, nothing = await state_of(of_lines(store), session_id)
        assert opened == replayed and nothing == -1
        assert (kept > 40) == store.durable
        session = await open_session(session_id, store=store)
        assert_laws(session)
        await session.close()


@pytest.mark.usefixtures("often")
async def test_no_line_before_it_is_read(store: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor fetched in advance, by a store that does so."""
    async with store:
        if not store.durable:
            pytest.skip("nothing is kept in memory")
        session_id = await long_session(store)
        _, kept = await state_of(store, session_id)
        read: list[int] = []
        inner = BufferedJournal.read

        def noted(journal: Any, first: int = 0, last: int | None = None) -> Any:
            read.append(first)
            return inner(journal, first, last)

        monkeypatch.setattr(BufferedJournal, "read", noted)
        session = await open_session(session_id, store=store)
        assert read and min(read) == kept
        await session.close()
        if isinstance(store, PostgresStore):
            for checkpoint, first in ((True, kept), (False, 0)):
                journal: Any = await store.open(session_id, readonly=True, checkpoint=checkpoint)
                assert journal._fetched[0][0] == first
                await journal.close()


@pytest.mark.usefixtures("often")
async def test_the_next_request_is_the_same(store: AnyStore) -> None:
    async with store:
        session_id = await long_session(store)
        requests = []
        for opened in (store, of_lines(store)):
            fork = await fork_session(session_id, store=store)  # two of the same, to go on with
            await fork.close()
            model = steps(90, 5, "seen again.")
            async with Agent(model, tools=[look], store=opened, session=fork.id) as agent:
                await agent.run("Once more")
                requests.append([request.messages for request in model.requests])
        assert requests[0] == requests[1] and len(requests[0]) == 6


@pytest.mark.usefixtures("often")
async def test_a_request_has_the_same_digest_from_a_checkpoint(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "log.db") as store:
        session_id = await long_session(store)
    copy = tmp_path / "copy.db"
    copy.write_bytes((tmp_path / "log.db").read_bytes())
    digests = []
    for path, blind in ((tmp_path / "log.db", False), (copy, True)):
        async with SQLiteStore(path) as store:
            opened = of_lines(store) if blind else store
            async with Agent(steps(9, 1, "yes."), tools=[look], store=opened, session=session_id) as agent:
                assert (agent.session._kept > 0) != blind
                await agent.run("Once more")
                digests.append([fact.digest for fact in agent.session.facts(vocabulary.RequestSent)])
    assert digests[0] == digests[1] and len(digests[0]) > 14


@pytest.mark.usefixtures("often")
async def test_a_fork_has_none_at_first(store: AnyStore) -> None:
    async with store:
        session_id = await long_session(store)
        fork = await fork_session(session_id, store=store)
        await fork.close()
        journal = await store.open(fork.id, readonly=True, checkpoint=True)
        assert journal.checkpoint is None
        opened, kept = await state_of(store, fork.id)
        assert kept == -1 and opened["life"] == 2


@pytest.mark.usefixtures("often")
async def test_a_checkpoint_comes_with_its_lines_and_at_the_end(store: AnyStore) -> None:
    """Whenever there is one, its lines are there as well; the one of the end is there once the session is closed."""
    async with store:
        if not store.durable:
            pytest.skip("nothing is kept in memory")
        session = await create_session(store, "s")
        seen: list[int] = []
        for turn in range(1, 60):
            session.append(TurnStart(turn), TurnEnd(turn, Completed(), 0))
            if turn % 7 == 0:
                await session.barrier()
            journal = await store.open("s", readonly=True, checkpoint=True)
            if journal.checkpoint is not None:
                seen.append(journal.checkpoint.seq)
                assert journal.checkpoint.sound("s", journal.head)
            await journal.close()
        await session.close()
        journal = await store.open("s", readonly=True, checkpoint=True)
        assert journal.checkpoint is not None
        assert seen == sorted(seen) and journal.checkpoint.seq >= 80
        await journal.close()


async def test_one_that_was_made_while_the_session_was_opened_is_used(store: AnyStore, often: None) -> None:
    """A reader looks at the lines first, then at the checkpoint, and a writer goes on in between."""
    async with store:
        if not store.durable:
            pytest.skip("nothing is kept in memory")
        session = await create_session(store, "s")
        find = store._find

        async def slowly(session_id: str, *, readonly: bool) -> Any:
            found = await find(session_id, readonly=readonly)
            for turn in range(1, 60):
                session.append(TurnStart(turn), TurnEnd(turn, Completed(), 0))
            await session.close()
            return found

        store._find = slowly  # type: ignore[method-assign,assignment]
        opened = await open_session("s", store=store, readonly=True)
        assert opened._kept >= 80 and opened.head == session.head
        await opened.close()


# On disks


@pytest.fixture
def session_file(tmp_path: Path, often: None) -> tuple[Path, str]:
    """A SQLite file with a session that has a checkpoint."""

    async def made() -> str:
        async with SQLiteStore(tmp_path / "log.db") as store:
            return await long_session(store)

    return tmp_path / "log.db", asyncio.run(made())


def change(file: Path, statement: str, *values: Any) -> None:
    with closing(sqlite3.connect(file)) as connection, connection:
        assert connection.execute(statement, values).rowcount == 1


async def opened_alike(file: Path, session_id: str, *, dropped: bool) -> None:
    async with SQLiteStore(file) as store:
        opened, kept = await state_of(store, session_id)
        replayed, _ = await state_of(of_lines(store), session_id)
    assert opened == replayed
    assert (kept == -1) == dropped


@pytest.mark.parametrize(
    "changes",
    [
        "data = CAST(replace(CAST(data AS TEXT), 'summary', 'sumnary') AS BLOB)",
        "data = x''",
        "data = CAST('{}' AS BLOB)",
        "seq = seq - 1",
        "seq = seq + 1000",
        "form = '1 0.0.1'",
        "artifacts = NULL",
        "artifacts = CAST('[[0]]' AS BLOB)",
        "digest = zeroblob(16)",
        "data = 'text', digest = 'text'",
    ],
)
async def test_a_damaged_row_is_dropped(session_file: tuple[Path, str], changes: str) -> None:
    file, session_id = session_file
    await opened_alike(file, session_id, dropped=False)
    change(file, f"UPDATE checkpoint SET {changes}")
    await opened_alike(file, session_id, dropped=True)


async def test_the_next_step_mends_a_damaged_row(session_file: tuple[Path, str]) -> None:
    file, session_id = session_file
    change(file, "UPDATE checkpoint SET seq = seq + 1000")
    async with (
        SQLiteStore(file) as store,
        Agent(steps(0, 1, "done."), tools=[look], store=store, session=session_id) as agent,
    ):
        await agent.run("Once more")
        kept = agent.session._kept
    async with SQLiteStore(file) as store:
        assert (await state_of(store, session_id))[1] == kept > 0


async def test_a_missing_artifact_drops_it(session_file: tuple[Path, str]) -> None:
    """The log says that something is missing; it is not hidden by a checkpoint, nor the other way round."""
    file, session_id = session_file
    async with SQLiteStore(file) as store:
        kept = (await store.open(session_id, readonly=True)).checkpoint
        assert kept is None  # nobody has asked for it
        kept = (await store.open(session_id, readonly=True, checkpoint=True)).checkpoint
        assert kept is not None and kept.sound(session_id, kept.seq)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE artifact SET data = CAST('gone' AS BLOB)")
    await opened_alike(file, session_id, dropped=b"seen 3" in kept.data)


async def test_a_checkpoint_of_lines_that_a_crash_has_taken_is_dropped(tmp_path: Path, often: None) -> None:
    """As when a folder comes back from a backup that was made while the session was written."""
    async with JSONLStore(tmp_path) as store:
        session_id = await long_session(store)
        _, kept = await state_of(store, session_id)
    file = tmp_path / f"{session_id}.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    assert (tmp_path / "index" / f"{session_id}.checkpoint").exists() and kept > 0
    for left in (kept, kept - 7):
        file.write_bytes(b"".join(lines[:left]))
        async with JSONLStore(tmp_path) as store:
            opened, found = await state_of(store, session_id)
            assert opened == (await state_of(of_lines(store), session_id))[0]
            assert found == -1
    # Other lines in the place of those.
    lines[kept] = lines[kept].replace(b'"time":', b'"time":1')
    file.write_bytes(b"".join(lines[: kept + 1]))
    async with JSONLStore(tmp_path) as store:
        opened, found = await state_of(store, session_id)
        assert opened == (await state_of(of_lines(store), session_id))[0]
        assert found == -1


async def test_a_line_that_cannot_be_read_is_told_by_its_name(tmp_path: Path, often: None) -> None:
    """Also when it is the one that the checkpoint stands on."""
    async with SQLiteStore(tmp_path / "log.db") as store:
        session_id = await long_session(store)
        _, kept = await state_of(store, session_id)
    change(tmp_path / "log.db", "UPDATE event SET type = 'plugin/gone' WHERE first = ?", kept)
    async with SQLiteStore(tmp_path / "log.db") as store:
        with pytest.raises(UnknownFact, match="plugin/gone"):
            await open_session(session_id, store=store)


async def test_nothing_is_kept_of_what_cannot_be_written(tmp_path: Path, often: None) -> None:
    """A checkpoint fails alone: the session goes on."""
    async with SQLiteStore(tmp_path / "log.db") as store:
        session = await create_session(store, "s")
        with closing(sqlite3.connect(tmp_path / "log.db")) as connection, connection:
            connection.execute("DROP TABLE checkpoint")
        for turn in range(1, 60):
            session.append(TurnStart(turn), TurnEnd(turn, Completed(), 0))
            await session.barrier()
        await session.close()
        assert session._kept > 0 and session.failure is None


KILLED = """
import asyncio, sys
from interlock import SQLiteStore, JSONLStore
from interlock.log import session as sessions
from interlock.log.facts import TurnEnd, TurnStart
from interlock.log.reasons import Completed

sessions._LINES_BETWEEN = 20

async def main():
    kind, place = sys.argv[1:]
    async with (SQLiteStore if kind == "sqlite" else JSONLStore)(place) as store:
        session = await sessions.create_session(store, "s")
        for turn in range(1, 100_000):
            session.append(TurnStart(turn), TurnEnd(turn, Completed(), 0))
            await session.barrier()
            print(session.head, flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
@pytest.mark.parametrize("after", [30, 57, 91, 140])
def test_a_process_that_is_killed_leaves_lines_and_a_checkpoint_of_them(
    tmp_path: Path, kind: str, after: int
) -> None:
    place = str(tmp_path / "log")
    with subprocess.Popen([sys.executable, "-c", KILLED, kind, place], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        told = -1
        for line in process.stdout:
            told = int(line)
            if told >= after:
                break
        os.kill(process.pid, signal.SIGKILL)
        told = max([told, *[int(line) for line in process.stdout.read().split(b"\n")[:-1] if line]])
    asyncio.run(_look_at_what_is_left(SQLiteStore(place) if kind == "sqlite" else JSONLStore(place), told))


async def _look_at_what_is_left(made: AnyStore, told: int) -> None:
    async with made as store:
        opened, kept = await state_of(store, "s")
        replayed, _ = await state_of(of_lines(store), "s")
        assert opened == replayed and opened["head"] >= told
        assert kept <= opened["head"]
        session = await open_session("s", store=store)
        assert_laws(session)
        await session.close()


# On the way of a step


async def test_it_waits_for_its_lines_and_nobody_for_it() -> None:
    put: list[Kept] = []
    keeping = Keeping(put.append)
    log = written(ENDED)
    first, second, third = [
        Snapshot("s", folded(log[: n + 1]), log[n]) for n in (3, len(log) - 2, len(log) - 1)
    ]
    keeping.take(first)
    keeping.take(second)  # one at a time, and of those that come meanwhile the newest
    keeping.take(third)
    await keeping.done()
    keeping.on_disk(2)
    assert put == []
    keeping.on_disk(3)
    await keeping.done()
    assert put == [first.kept()]
    keeping.on_disk(third.seq + 3)
    assert put == [first.kept(), third.kept()]
    keeping.take(second)  # its lines are on disk by now
    await keeping.done()
    assert put == [first.kept(), third.kept(), second.kept()]


async def test_checkpoints_are_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that each line pays a constant share of what is linear in the history."""
    taken: list[tuple[int, int]] = []

    class Counted(Snapshot):
        def __init__(self, session_id: str, state: State, line: Event) -> None:
            super().__init__(session_id, state, line)
            taken.append((line.seq, len(state.history)))

    monkeypatch.setattr("interlock.log.checkpoint.Snapshot", Counted)
    monkeypatch.setattr(sessions, "_LINES_BETWEEN", 100)
    async with SQLiteStore(tmp_path / "log.db") as store:
        session = await create_session(store)
        for turn in range(1, 1000):
            said = [UserMessage(f"m{turn}.{n}", PERSON, "user", (Text("x"),)) for n in range(3)]
            session.append(TurnStart(turn), *said, TurnEnd(turn, Completed(), 0))
        await session.close()
    assert taken and taken[0][0] >= 99
    for (seq, _), (later, messages) in pairwise(taken):
        assert later - seq >= max(100, min(2 * messages, seq))
    assert sum(messages for _, messages in taken) <= 2 * session.head


async def test_what_was_encoded_has_not_changed_meanwhile() -> None:
    """The folds go on while a thread writes those of before."""
    log = written(ENDED)
    state = folded(log)
    snapshot = Snapshot("s", state, log[-1])
    before = folds(state)
    for event in written((*ENDED, TurnEnd(1, Completed(), 1), TurnStart(2), told("later")))[len(log) :]:
        state.apply(event)
    state.grants["x"] = 1
    state.tally.called("other")
    found = restored(await asyncio.to_thread(snapshot.kept), "s", len(log))
    assert found is not None and folds(found.state) == before
