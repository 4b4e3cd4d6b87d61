"""Erasing what sessions hold: nothing of it is left in any file, and what is left is lawful. In every store."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import JSONLStore, Mailbox, SQLiteStore
from interlock.errors import (
    SessionBusy,
    SessionErased,
    SharedSessions,
    StoreFailed,
    UnknownSession,
    UsageError,
)
from interlock.log import erasing
from interlock.log import session as sessions
from interlock.log.artifacts import LIMIT
from interlock.log.erasing import BYTES, ErasureReceipt, erase_sessions, finish_erasing, plan_erasure
from interlock.log.event import Event, encode_event
from interlock.log.facts import (
    ApprovalDecided,
    AssistantChunk,
    CancelRequested,
    ContentErased,
    Erased,
    GrantRevoked,
    InboxSpliced,
    PolicyChanged,
    ToolResulted,
    TurnStart,
)
from interlock.log.forking import fork_session
from interlock.log.laws import check
from interlock.log.messages import Message, Source, Text
from interlock.log.participants import participants
from interlock.log.reasons import Cause
from interlock.log.session import open_session
from interlock.log.stores.gone import Standing
from interlock.log.stores.jsonl.mail import mail_path
from interlock.log.stores.memory.store import MemoryStore
from interlock.log.stores.postgres.store import PostgresStore
from interlock.log.stores.sqlite import erasing as sqlite_erasing
from interlock.log.stores.store import Store
from interlock.log.transfer import exported, import_export
from postgres_server import PostgresServer, new_schema

from .canaries import answered, places_of, sung, word
from .conftest import AnyStore
from .fact_strategies import json_of
from .growing_logs import growing_logs
from .store_lines import lines


@pytest.fixture
def server(request: pytest.FixtureRequest, store: AnyStore) -> PostgresServer | None:
    """The server of the store, if it has one."""
    return request.getfixturevalue("postgres") if isinstance(store, PostgresStore) else None


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint after few lines."""
    monkeypatch.setattr(sessions, "_LINES_BETWEEN", 20)


async def read(store: Store, session_id: str) -> list[Event]:
    journal = await store.open(session_id, readonly=True)
    try:
        return list(journal.read())
    finally:
        await journal.close()


async def erased(store: Store, *session_ids: str, **how: Any) -> ErasureReceipt:
    return await erase_sessions(session_ids, store=store, by="ops", **how)


# What is left, and what is not


@pytest.mark.usefixtures("often")
async def test_nothing_of_it_is_left_in_any_file(
    store: AnyStore, server: PostgresServer | None, tmp_path: Path
) -> None:
    """Prompts, answers, arguments, results, artifacts, reasons, title, folder, letters, checkpoint and index."""
    canary, other = word(), word()
    async with store:
        session_id = await sung(store, tmp_path / "a", canary, turns=3)
        stays = await sung(store, tmp_path / "b", other)
        before = await read(store, session_id)
        assert await store.search(f"{canary}-answer")
        size = await store.size()
        if store.durable:
            assert places_of(canary, store, server)
            assert (await store.open(session_id, readonly=True, checkpoint=True)).checkpoint is not None
        receipt = await erased(store, session_id, reason="a request")
        assert places_of(canary, store, server) == []
        if store.durable:
            assert places_of(other, store, server)
            assert await store.size() < size
        assert canary not in msgspec.json.encode(receipt).decode()

        after = await read(store, session_id)
        assert check(after) == []
        assert after[:-1] == [msgspec.structs.replace(one, fact=Erased(one.type)) for one in before]
        assert after[-1].fact == ContentErased(session_id, receipt.id, "ops", "a request")
        assert (after[-1].time, after[-1].life) == (receipt.time, before[-1].life)

        (gone,) = receipt.sessions
        assert (gone.session, gone.events, gone.letters) == (session_id, len(before), 1)
        assert gone.bytes > 0
        assert receipt.left == ()
        if store.durable:
            assert len(gone.artifacts) == 3
            assert gone.checkpoint
        if isinstance(store, SQLiteStore):
            assert gone.passages > 10

        assert await store.search(canary) == []
        infos = {info.id: info for info in await store.list()}
        info = infos[session_id]
        assert (info.cwd, info.agent, info.title, info.erased) == (None, None, None, receipt.time)
        assert infos[stays].erased is None
        assert len(await store.search(f"{other}-answer")) == 1
        assert check(await read(store, stays)) == []
    # and not because it was closed
    assert places_of(canary, store, server) == []


async def test_a_store_leaves_nothing_to_be_found_even_before_its_files_are_written_anew(
    store: AnyStore, tmp_path: Path
) -> None:
    canary = word()
    async with store:
        session_id = await sung(store, tmp_path / "a", canary)
        assert await store.search(canary)
        (gone,) = await store.erase([ContentErased(session_id, "er", "ops")], time=5)
        assert await store.collect() == []
        assert len(gone.artifacts) == store.durable
        if isinstance(store, JSONLStore):
            assert places_of(canary, store) == []
        if isinstance(store, SQLiteStore):
            with sqlite3.connect(store.path) as file:
                assert file.execute("SELECT text FROM words").fetchall() == []
        assert await store.search(canary) == []


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(growing_logs(most=40))
def test_any_log_keeps_all_but_its_content(log: list[Event]) -> None:
    async def try_it(store: AnyStore) -> None:
        async with store:
            journal = await store.create("s")
            journal.write(log)
            await journal.close()
            await erased(store, "s")
            after = await read(store, "s")
            assert after[:-1] == [msgspec.structs.replace(one, fact=Erased(one.type)) for one in log]
            assert check(after) == []
            assert (await store.list())[0].events == len(log) + 1

    asyncio.run(try_it(MemoryStore()))
    with TemporaryDirectory() as folder:
        asyncio.run(try_it(SQLiteStore(Path(folder) / "log.db")))
        asyncio.run(try_it(JSONLStore(Path(folder) / "sessions")))


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 900)), min_size=1, max_size=60))
def test_chunks_keep_their_times(chunks: list[tuple[str, int]]) -> None:
    """Also those that are packed, and those with half a character."""
    time, log = 1000, lines(TurnStart(1))
    for seq, (text, tick) in enumerate(chunks, 1):
        time += tick
        log.append(Event(seq, time, 1, AssistantChunk(0, "text", text=text + "\ud83d" * (tick % 7 == 0))))

    async def try_it(store: AnyStore) -> None:
        async with store:
            journal = await store.create("s")
            journal.write(log)
            await journal.close()
            await store.erase([ContentErased("s", "er", "ops")], time=5)
            left = (await read(store, "s"))[:-1]
            assert left == [msgspec.structs.replace(one, fact=Erased(one.type)) for one in log]

    asyncio.run(try_it(MemoryStore()))
    with TemporaryDirectory() as folder:
        asyncio.run(try_it(SQLiteStore(Path(folder) / "log.db")))
        asyncio.run(try_it(JSONLStore(Path(folder) / "sessions")))


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(json_of(st.just("canary7") | st.text(max_size=5), st.just("canary7") | st.text(max_size=3)))
def test_whatever_a_plugin_puts_into_a_line_goes(value: object) -> None:
    """There is no field that could be forgotten: nothing of the data stays."""
    log = lines(ToolResulted(0, "c", (Text("canary7" * 6000),), None, value))

    async def try_it(store: AnyStore) -> None:
        async with store:
            journal = await store.create("s")
            journal.write(log)
            await journal.close()
            await erased(store, "s")
            assert places_of("canary7", store) == []

    with TemporaryDirectory() as folder:
        asyncio.run(try_it(SQLiteStore(Path(folder) / "log.db")))
    with TemporaryDirectory() as folder:
        asyncio.run(try_it(JSONLStore(Path(folder) / "sessions")))


# What cannot be done with it


async def test_nobody_can_go_on_with_it(store: AnyStore, tmp_path: Path) -> None:
    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        receipt = await erased(store, session_id)
        for attempt in (
            lambda: open_session(session_id, store=store),
            lambda: fork_session(session_id, store=store),
            lambda: Mailbox(session_id, store=store).followup("hallo"),
            lambda: store.post(session_id, b"{}", time=5),
        ):
            with pytest.raises(SessionErased, match=f"by ops .receipt {receipt.id}.*gone") as caught:
                await attempt()
            assert (caught.value.session_id, caught.value.by, caught.value.receipt) == (
                session_id,
                "ops",
                receipt.id,
            )
            assert caught.value.time == receipt.time
        looking = await open_session(session_id, store=store, readonly=True)
        assert looking.erasure == looking.events[-1]
        assert (looking.head, looking.open, len(looking.history)) == (len(looking.events) - 1, False, 0)
        await looking.close()
        # Whoever was refused keeps nothing.
        journal = await store.open(session_id)
        assert await journal.letters(0) == []
        await journal.close()


async def test_a_session_that_is_driven_is_refused(store: AnyStore, tmp_path: Path) -> None:
    async with store:
        first = await sung(store, tmp_path / "a", word())
        second = await sung(store, tmp_path / "b", word())
        log = await read(store, first)
        driven = await store.open(second)
        with pytest.raises(SessionBusy, match=f"Session {second} is driven by this process"):
            await erased(store, first, second)
        assert await read(store, first) == log
        await driven.close()
        await erased(store, first, second)


async def test_who_follows_hears_of_it(store: AnyStore, tmp_path: Path) -> None:
    """The file of a JSONL session is another one then: it has gone for whoever had it open."""
    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        following = await open_session(session_id, store=store, readonly=True)
        head = following.head
        await erased(store, session_id)
        if isinstance(store, JSONLStore):
            with pytest.raises(UnknownSession):
                await following.changed(head, poll=0.01)
        else:
            await following.changed(head, poll=0.01)
            assert isinstance(following.events[-1].fact, ContentErased)
        await following.close()


async def test_it_can_be_exported_and_imported(store: AnyStore, tmp_path: Path) -> None:
    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        receipt = await erased(store, session_id)
        log = await read(store, session_id)
        file = b"".join(exported(log))
        await store.remove({session_id: len(log) - 1})
        await import_export(BytesIO(file), store=store, path=tmp_path / "x.jsonl")
        assert await read(store, session_id) == log
        assert b"".join(exported(log)) == file
        (info,) = await store.list()
        assert info.erased == receipt.time
        assert await store.approvals() == []
        with pytest.raises(SessionErased):
            await store.post(session_id, b"{}", time=5)


# Doing it again, and all of it


async def test_erasing_again_changes_no_line(store: AnyStore, tmp_path: Path) -> None:
    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        first = await erased(store, session_id)
        log = await read(store, session_id)
        again = await erased(store, session_id)
        assert await read(store, session_id) == log
        (gone,) = again.sessions
        assert (gone.before, gone.events, gone.bytes, gone.artifacts) == (first.id, 0, 0, ())


async def test_an_artifact_that_another_session_holds_stays(
    store: AnyStore, server: PostgresServer | None, tmp_path: Path
) -> None:
    shared = word()
    async with store:
        first = await sung(store, tmp_path / "a", word(), shared=shared)
        second = await sung(store, tmp_path / "b", word(), shared=shared)
        log = await read(store, second)
        receipt = await erased(store, first)
        assert await read(store, second) == log
        if store.durable:
            (gone,) = receipt.sessions
            assert (len(gone.artifacts), len(gone.kept)) == (1, 1)
            (left,) = receipt.left
            assert left.what == f"artifact {gone.kept[0]}"
            last = await erased(store, second)
            assert gone.kept[0] in last.sessions[0].artifacts
            assert last.left == ()
            assert places_of(shared, store, server) == []


async def test_forks_are_erased_with_it_and_parents_are_named(
    store: AnyStore, server: PostgresServer | None, tmp_path: Path
) -> None:
    canary = word()
    async with store:
        session_id = await sung(store, tmp_path / "a", canary, turns=2)
        forks = []
        for parent, name in ((session_id, "f1"), ("f1", "f2"), (session_id, "f3")):
            fork = await fork_session(parent, store=store, at=1, new_id=name)
            await fork.close()
            forks.append(name)
        plan = await plan_erasure(["f1"], store=store)
        assert ([one.id for one in plan.sessions], plan.forks) == (["f2", "f1"], ("f2",))
        receipt = await erased(store, "f1")
        assert [(one.session, one.fork_of) for one in receipt.sessions] == [("f2", "f1"), ("f1", session_id)]
        assert f"session {session_id}" in [left.what for left in receipt.left]
        receipt = await erased(store, session_id)
        assert {one.session for one in receipt.sessions} == {"f3", session_id}
        assert receipt.left == ()
        assert places_of(canary, store, server) == []
        with pytest.raises(SessionErased):
            await open_session("f2", store=store)


async def test_a_fork_of_a_fork_that_was_deleted_is_found(
    store: AnyStore, server: PostgresServer | None, tmp_path: Path
) -> None:
    """It has the lines of the first one, and the one between can be asked no more."""
    canary = word()
    async with store:
        session_id = await sung(store, tmp_path / "a", canary)
        for parent, name in ((session_id, "f1"), ("f1", "f2"), ("f2", "f3")):
            fork = await fork_session(parent, store=store, new_id=name)
            await fork.close()
            if name == "f2":
                await store.remove({"f1": (await read(store, "f1"))[-1].seq})
        receipt = await erased(store, "f3")
        assert {one.what for one in receipt.left if one.what.startswith("session")} == {
            f"session {session_id}",
            "session f2",
        }
        plan = await plan_erasure([session_id], store=store)
        assert ([one.id for one in plan.sessions], plan.forks) == (["f2", session_id], ("f2",))
        assert (await erased(store, session_id)).left == ()
        assert places_of(canary, store, server) == []


async def test_other_forks_of_what_it_was_a_fork_of_are_named(store: AnyStore, tmp_path: Path) -> None:
    """They have the same lines, also when that one is gone."""
    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        for name in ("f1", "f2", "f3"):
            await (await fork_session(session_id, store=store, new_id=name)).close()
        await erased(store, "f3")
        await sung(store, tmp_path / "b", word())
        journal = await store.open(session_id)
        await journal.forget_letters(1)  # or it would stay
        await journal.close()
        assert len(await store.remove({session_id: journal.head})) == 1
        named = {one.what: one.why for one in (await erased(store, "f1")).left}
        assert (
            named["session f2"]
            == f"it is a fork of {session_id} as f1 was, and holds lines that it began with"
        )
        assert [what for what in named if what.startswith("session")] == ["session f2"]


def test_forks_go_before_what_they_are_forks_of() -> None:
    """Whichever way they are found, also where lines say only whose fork they are themselves."""
    for above_c in (("b", "a"), ("b",)):
        for order in ("abc", "cba", "bca"):
            above = {"a": (), "b": ("a",), "c": above_c}
            standing = {id_: Standing(id_, 1, 1, 1, above=above[id_]) for id_ in order}
            assert erasing._with_forks(["a"], standing) == ["c", "b", "a"]
            assert erasing._with_forks(["b", "a"], standing) == ["c", "b", "a"]
            assert erasing._with_forks(["a", "b"], standing) == ["c", "b", "a"]


async def test_a_fork_that_is_being_made_does_not_slip_through(
    store: AnyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its parent is erased after its lines were read, and before it is there to be found."""
    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        create = store.create

        async def later(new: str) -> Any:
            await erased(store, session_id)
            return await create(new)

        monkeypatch.setattr(store, "create", later)
        with pytest.raises(SessionErased):
            await fork_session(session_id, store=store, new_id="f1")
        assert [info.id for info in await store.list()] == [session_id]


async def test_a_fork_that_was_made_meanwhile_is_erased_as_well(
    store: AnyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was whole before its parent was erased, and after that was planned."""
    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        erase = store.erase

        async def later(erasures: Sequence[ContentErased], *, time: int) -> Any:
            monkeypatch.undo()
            await (await fork_session(session_id, store=store, new_id="f1")).close()
            return await erase(erasures, time=time)

        monkeypatch.setattr(store, "erase", later)
        receipt = await erased(store, session_id)
        assert [one.session for one in receipt.sessions] == [session_id, "f1"]


async def test_artifacts_that_a_crash_has_left_go(store: AnyStore, tmp_path: Path) -> None:
    """And nothing that a line refers to."""
    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        log = await read(store, session_id)
        digest = "ab" * 32
        match store:
            case SQLiteStore():
                with sqlite3.connect(store.path) as file:
                    file.execute("INSERT INTO artifact (digest, data) VALUES (?, ?)", (digest, b"left"))
            case JSONLStore():
                (store.folder / "artifacts" / digest).write_bytes(b"left")
            case PostgresStore():
                await store._alter(
                    lambda erasing: erasing._run(
                        "INSERT INTO {s}.artifact VALUES (%s, %s)", [digest, b"left"]
                    )
                )
        assert await store.collect() == ([digest] if store.durable else [])
        assert await store.collect() == []
        assert await read(store, session_id) == log


async def test_a_writer_and_a_collector_do_not_meet(tmp_path: Path) -> None:
    """Of a text that is stored already, nothing is deleted before the line that needs it is there."""
    text = "x" * (LIMIT + 1)
    for make in (lambda: SQLiteStore(tmp_path / "log.db"), lambda: JSONLStore(tmp_path / "sessions")):
        async with make() as store, make() as other:
            for i in range(20):
                journal = await store.create(f"s{i}")
                journal.write(lines(ToolResulted(0, "c", (Text(text),))))
                collected = asyncio.create_task(other.collect())
                await journal.barrier()
                await collected
                assert [event.fact for event in await read(other, f"s{i}")] == [
                    ToolResulted(0, "c", (Text(text),))
                ]
                await journal.close()
                if i % 2:
                    await other.remove({f"s{i}": 0})


async def test_what_is_referred_to_while_it_is_collected_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the long look at all files and the deleting, a line is written that needs a text which nobody did."""
    from interlock.log.stores.jsonl import artifacts as jsonl_artifacts
    from interlock.log.stores.jsonl.writer import LineFile

    folder = tmp_path / "sessions"
    fact = ToolResulted(0, "c", (Text("x" * (LIMIT + 1)),))
    async with JSONLStore(folder) as store:
        for session_id in ("a", "b"):
            journal = await store.create(session_id)
            journal.write(lines(fact if session_id == "a" else TurnStart(1)))
            await journal.close()
        await store.open("a")
        (folder / "a.jsonl").unlink()
        look = jsonl_artifacts._References.look

        def then_written(self: Any, where: Path) -> set[str]:
            found = look(self, where)
            monkeypatch.undo()
            line = LineFile.open(folder / "b.jsonl")
            line.append([encode_event(*lines(fact, first=1))])
            line.close()
            return found

        monkeypatch.setattr(jsonl_artifacts._References, "look", then_written)
        assert await store.collect() == []
        assert [event.fact for event in await read(store, "b")] == [TurnStart(1), fact]


async def test_nobody_collects_between_a_text_and_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interlock.log.stores.jsonl import writer as jsonl_writer

    folder = tmp_path / "sessions"
    free: list[bool] = []
    keep = jsonl_writer.keep

    def kept(path: Path, text: bytes) -> None:
        keep(path, text)
        opened = os.open(folder / "artifacts", os.O_RDONLY)
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            free.append(True)
        except BlockingIOError:
            free.append(False)
        finally:
            os.close(opened)

    monkeypatch.setattr(jsonl_writer, "keep", kept)
    async with JSONLStore(folder) as store:
        journal = await store.create("a")
        journal.write(lines(ToolResulted(0, "c", (Text("x" * (LIMIT + 1)),))))
        await journal.close()
    assert free == [False]


# What is kept elsewhere


class Shelf:
    """Something that is kept of sessions."""

    def __init__(self, *kept: str, stuck: bool = False) -> None:
        self.kept = set(kept)
        self.stuck = stuck

    def of(self, session_ids: Iterable[str]) -> list[str]:
        return [session_id for session_id in session_ids if session_id in self.kept]

    def forget(self, session_id: str) -> str:
        if self.stuck:
            raise PermissionError("not yours")
        self.kept.remove(session_id)
        return f"shelf/{session_id}"


async def test_what_is_kept_outside_of_the_store_goes_as_well(store: AnyStore, tmp_path: Path) -> None:
    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        other = await sung(store, tmp_path / "b", word())
        shelf = Shelf(session_id, other, "of another store")
        driven = await store.open(session_id)
        with pytest.raises(SessionBusy):
            await erased(store, session_id, beside=[shelf])
        await driven.close()
        assert len(shelf.kept) == 3
        shelf.stuck = True
        (left,) = (await erased(store, session_id, beside=[shelf])).left
        assert (left.what, left.why, left.again) == (
            f"what is kept of {session_id} outside the store",
            "not yours",
            True,
        )
        shelf.stuck = False
        receipt = await erased(store, session_id, beside=[shelf])
        assert (receipt.sessions[0].beside, receipt.left) == ((f"shelf/{session_id}",), ())
        assert shelf.kept == {other, "of another store"}


async def test_whoever_erases_next_completes_what_a_crash_has_cut(store: AnyStore, tmp_path: Path) -> None:
    """After the lines went, and before anything else did."""
    async with store:
        first = await sung(store, tmp_path / "a", word())
        second = await sung(store, tmp_path / "b", word())
        shelf = Shelf(first, second)
        await store.erase([ContentErased(first, "er-cut", "ops")], time=5)
        receipt = await erased(store, second, beside=[shelf])
        assert {one.session: (one.before, one.beside) for one in receipt.sessions} == {
            second: (None, (f"shelf/{second}",)),
            first: ("er-cut", (f"shelf/{first}",)),
        }
        shelf = Shelf(first)
        assert await finish_erasing(store=store, beside=[shelf]) == ()
        assert shelf.kept == set()


async def test_letters_that_a_crash_has_left_go(tmp_path: Path) -> None:
    """Of an erased session as well, which nobody need name again."""
    canary = word()
    async with JSONLStore(tmp_path / "sessions") as store:
        session_id = await sung(store, tmp_path / "a", canary)
        stays = await sung(store, tmp_path / "b", other := word())
        mailbox = mail_path(tmp_path / "sessions" / f"{session_id}.jsonl")
        late = mailbox.read_bytes()
        await store.erase([ContentErased(session_id, "er", "ops")], time=5)
        mailbox.write_bytes(late)
        assert places_of(canary, store)
        assert await finish_erasing(store=store) == ()
        assert places_of(canary, store) == []
        assert any("mail" in place for place in places_of(f"{other}-letter", store)), stays


# Somebody


NAMES = {
    InboxSpliced("next-turn", 0, 0, (Message.user("hi", id="m"),), by="ann"): {"ann"},
    InboxSpliced("next-turn", 0, 0, (Message.user("hi", id="m", source=Source("person", "bea")),)): {"bea"},
    InboxSpliced("next-turn", 0, 0, (Message.user("hi", id="m", source=Source("hook", "lint")),)): set(),
    ApprovalDecided("a", 1, "d", "rejected", by="cyd", how="tty"): {"cyd"},
    ApprovalDecided("a", 1, "d", "allowed-once", by="lint", how="hook"): set(),
    ApprovalDecided("a", 1, "d", "cancelled", by="stop"): set(),
    CancelRequested(Cause("user", "dan")): {"dan"},
    CancelRequested(Cause("budget", "wall")): set(),
    GrantRevoked("Bash(ls)", "eve"): {"eve"},
    PolicyChanged("plan", by="fay"): {"fay"},
    PolicyChanged("plan", by="agent"): set(),
    TurnStart(1): set(),
}


@pytest.mark.parametrize(("fact", "who"), NAMES.items(), ids=lambda one: getattr(one, "type", None))
def test_who_took_part(fact: Any, who: set[str]) -> None:
    assert participants([fact]) == who


async def test_all_in_which_somebody_took_part(
    store: AnyStore, server: PostgresServer | None, tmp_path: Path
) -> None:
    canary, other = word(), word()
    async with store:
        mine = await answered(store, canary, "ada")
        also = await sung(store, tmp_path / "a", canary)  # a letter by canary-sender waits in it
        sender = f"{canary}-sender"
        theirs = await answered(store, other, "bob")
        plan = await plan_erasure(store=store, principal="ada")
        assert [one.id for one in plan.sessions] == [mine]
        assert [one.id for one in (await plan_erasure(store=store, principal=sender)).sessions] == [also]
        await Mailbox(theirs, store=store, by="ada").followup(f"{canary} says hallo")

        with pytest.raises(SharedSessions, match=f"{theirs}: bob.*--shared") as caught:
            await erased(store, principal="ada")
        assert caught.value.sessions == {theirs: ("bob",)}
        assert check(await read(store, mine)) == []
        assert (await store.list(limit=1))[0].erased is None

        receipt = await erased(store, principal="ada", shared=True)
        assert {one.session for one in receipt.sessions} == {mine, theirs}
        assert receipt.principal == "ada"
        await erased(store, principal=sender)
        assert places_of(canary, store, server) == []
        nobody = await erased(store, principal="ada", shared=True)
        assert nobody.sessions == ()


async def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """Whether somebody took part in it is not known. Named itself, it can be erased all the same."""
    path = tmp_path / "log.db"
    canary = word()
    async with SQLiteStore(path) as store:
        mine = await answered(store, canary, "ada")
        broken = await answered(store, canary, "ada")
    with sqlite3.connect(path) as file:
        file.execute(
            "UPDATE event SET data = ? WHERE type = 'turn/start' AND session = "
            "(SELECT key FROM session WHERE id = ?)",
            (b'{"turn": "one"}', broken),
        )
    async with SQLiteStore(path) as store:
        receipt = await erased(store, principal="ada")
        assert [one.session for one in receipt.sessions] == [mine]
        assert [(left.what, "cannot be read" in left.why) for left in receipt.left] == [
            (f"session {broken}", True)
        ]
        await erased(store, broken)
        assert check(await read(store, broken)) == []
        assert places_of(canary, store) == []


@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ({}, "Name the sessions"),
        ({"principal": " "}, "A principal has an id"),
        ({"session_ids": ["s"], "by": " "}, "Say who erases"),
        ({"session_ids": ["s"], "reason": "x" * 2000}, "at most 1,000 characters"),
    ],
)
async def test_what_is_not_said_is_refused(how: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        await erase_sessions(store=MemoryStore(), **{"by": "ops", **how})


async def test_what_is_not_there_is_refused(store: AnyStore) -> None:
    async with store:
        await (await store.create("empty")).close()
        for session_id in ("none", "empty"):
            with pytest.raises(UnknownSession):
                await erased(store, session_id)
            with pytest.raises(UnknownSession):
                await store.erase([ContentErased(session_id, "r", "ops")], time=5)


# Files


async def test_what_cannot_be_written_anew_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody is in the middle of reading, and goes on with what was there."""
    monkeypatch.setattr(
        sqlite_erasing, "connect", lambda path: sqlite3.connect(path, timeout=0, isolation_level=None)
    )
    path = tmp_path / "log.db"
    canary = word()
    async with SQLiteStore(path) as store:
        session_id = await sung(store, tmp_path / "a", canary)
        reader = sqlite3.connect(path, isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM event").fetchone()
        receipt = await erased(store, session_id)
        assert [left.what for left in receipt.left] == [BYTES]
        assert "Run it again" in receipt.left[0].why
        reader.close()
        receipt = await erased(store, session_id)
        assert receipt.left == ()
        assert places_of(canary, store) == []


def beside(store: SQLiteStore) -> int:
    """Bytes of what is not in the file yet."""
    return Path(f"{store.path}-wal").stat().st_size


async def test_a_large_file_is_not_written_anew_while_others_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_erasing, "_QUICK", 1000)
    async with SQLiteStore(tmp_path / "log.db") as store:
        session_id = await sung(store, tmp_path / "a", word())
        driven = await store.create("d")
        assert beside(store) > 0
        receipt = await erased(store, session_id)
        assert [left.what for left in receipt.left] == [BYTES]
        assert "driven" in receipt.left[0].why
        assert beside(store) == 0  # where the lines were before they were overwritten
        await driven.close()
        assert (await erased(store, session_id)).left == ()


async def test_what_is_read_late_leaves_no_index_of_an_erased_session(tmp_path: Path) -> None:
    """A list that began before may keep what it has found out: it is not of this file, and goes."""
    canary = word()
    async with JSONLStore(tmp_path / "sessions") as store:
        session_id = await sung(store, tmp_path / "a", canary)
        index = tmp_path / "sessions" / "index" / f"{session_id}.json"
        late = index.read_bytes()
        assert canary.encode() in late
        await erased(store, session_id)
        index.write_bytes(late)
        (tmp_path / "sessions" / "index" / ".x.json.99999999").write_bytes(late)
        assert (await store.list())[0].title is None
        await store.collect()
        assert places_of(canary, store) == []


async def test_a_key_is_not_given_to_another_session(tmp_path: Path) -> None:
    """Whoever still reads a session that was removed does not find itself in another one."""
    async with SQLiteStore(tmp_path / "log.db") as store:
        journal = await store.create("s")
        journal.write(lines(TurnStart(1)))
        await journal.close()
        follower = await store.open("s", readonly=True)
        await store.remove({"s": 0})
        journal = await store.create("t")
        journal.write(lines(TurnStart(1), TurnStart(2)))
        await journal.close()
        with pytest.raises(UnknownSession):
            await follower.refresh()


async def test_who_has_lost_a_session_takes_nothing_from_it(tmp_path: Path) -> None:
    """Another one has opened it since, and has not written yet."""
    path = tmp_path / "log.db"
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        journal.write(lines(TurnStart(1)))
        await journal.close()
        for attempt in (
            lambda held: sqlite_erasing.remove(held, {"s": 0}),
            lambda held: sqlite_erasing.erase(held, [ContentErased("s", "er", "ops")], 5),
        ):
            journal = await store.open("s")
            with sqlite3.connect(path) as file:
                file.execute("UPDATE session SET fence = fence + 1")
            with suppress(StoreFailed):
                assert await store._alter(attempt) == []
            assert await read(store, "s") == lines(TurnStart(1))
            with suppress(StoreFailed):
                await journal.close()


Making = Callable[[], AnyStore]


async def test_two_stores_of_one_place_do_not_erase_for_each_other(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """A session that another store has open is refused, whichever of them asks."""
    make: Making
    for make in (lambda: SQLiteStore(tmp_path / "log.db"), lambda: JSONLStore(tmp_path / "sessions")):
        async with make() as one, make() as other:
            journal = await one.create("s")
            journal.write(lines(TurnStart(1)))
            await journal.barrier()
            with pytest.raises(SessionBusy):
                await other.erase([ContentErased("s", "r", "ops")], time=5)
            assert await other.remove({"s": 0}) == []
            await journal.close()
            await other.erase([ContentErased("s", "r", "ops")], time=5)


@pytest.mark.slow
async def test_two_stores_of_one_database_do_not_erase_for_each_other(postgres: PostgresServer) -> None:
    schema = new_schema()
    async with (
        PostgresStore(postgres.url, schema=schema) as one,
        PostgresStore(postgres.url, schema=schema) as other,
    ):
        journal = await one.create("s")
        journal.write(lines(TurnStart(1)))
        await journal.barrier()
        with pytest.raises(SessionBusy):
            await other.erase([ContentErased("s", "r", "ops")], time=5)
        await journal.close()
        await other.erase([ContentErased("s", "r", "ops")], time=5)
        assert check(await read(one, "s"))[0].law == "created"
