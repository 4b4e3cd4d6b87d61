"""Stores that are closed, broken or left behind in the middle of something: nobody waits for ever, nothing is
acknowledged that is not there, and what was held is let go."""

# ruff: noqa: ASYNC110  # what is waited for is in another thread

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event as Gate
from typing import Any, TypeAlias

import psycopg
import pytest

from interlock.errors import (
    DuplicateSession,
    LeaseLost,
    SessionBusy,
    StoreClosed,
    StoreFailed,
    UnknownSession,
    UnreadableLog,
)
from interlock.log.session import create_session
from interlock.log.stores import leasing, writer
from interlock.log.stores.jsonl.store import JSONLStore
from interlock.log.stores.postgres.store import PostgresStore
from interlock.log.stores.sqlite import lease as sqlite_lease
from interlock.log.stores.sqlite.store import SQLiteStore
from interlock.log.stores.writer import Call
from postgres_server import PostgresServer, new_schema

from .leased import Place, renew, sqlite_place
from .store_lines import steps

DiskStore: TypeAlias = SQLiteStore | JSONLStore | PostgresStore
DISKS = ["sqlite", "jsonl", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(params=DISKS)
def store_of(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], DiskStore]:
    """Makes stores of the same sessions."""
    match request.param:
        case "sqlite":
            return lambda: SQLiteStore(tmp_path / "log.db")
        case "jsonl":
            return lambda: JSONLStore(tmp_path / "sessions")
        case _:
            server: PostgresServer = request.getfixturevalue("postgres")
            schema = new_schema()
            return lambda: PostgresStore(server.url, schema=schema)


async def with_sessions(store: DiskStore, *ids: str) -> None:
    for session_id in ids:
        journal = await store.create(session_id)
        journal.write(steps(2))
        await journal.close()


async def head_of(store: DiskStore, session_id: str) -> int:
    async with store:
        return (await store.open(session_id, readonly=True)).head


# Two at once


async def test_a_session_that_is_being_made_is_not_opened_by_another(
    store_of: Callable[[], DiskStore],
) -> None:
    """Both would write to it: a lease is the store's, and the store has it."""
    async with store_of() as store:
        opening = asyncio.create_task(store.open("s"))
        await asyncio.sleep(0)
        with pytest.raises(DuplicateSession):
            await store.create("s")
        with pytest.raises(UnknownSession):
            await opening
        for how in ("open", "create"):
            making = asyncio.create_task(store.create(how))
            other = asyncio.create_task(store.open(how) if how == "open" else store.create(how))
            with pytest.raises(SessionBusy if how == "open" else DuplicateSession):
                await other
            journal = await making
            journal.write(steps(2))
            await journal.barrier()


# Closed in the middle


@pytest.mark.parametrize("how", ["create", "open"])
async def test_who_opens_a_session_while_the_store_is_closed_is_told(
    store_of: Callable[[], DiskStore], how: str
) -> None:
    store = store_of()
    await with_sessions(store, "s")
    opening = asyncio.create_task(store.open("s", checkpoint=True) if how == "open" else store.create("t"))
    await asyncio.sleep(0)
    async with asyncio.timeout(30):
        await store.close()
        with pytest.raises(StoreClosed):
            await opening
    async with store_of() as other:
        assert (await other.open("s")).head == 1, "nothing is held by the one that was closed"


async def test_what_is_asked_of_a_writer_that_has_ended_is_refused(store_of: Callable[[], DiskStore]) -> None:
    store = store_of()
    journal = await store.create("s")
    ended = store._writer
    assert ended is not None
    await ended.stop()
    journal.write(steps(2))
    async with asyncio.timeout(30):
        with pytest.raises(StoreFailed, match="its thread has ended"):
            await journal.barrier()
        call = Call(lambda: None, asyncio.get_running_loop().create_future())
        ended.put(call)
        with pytest.raises(StoreClosed):
            await call.done
        with pytest.raises(StoreFailed):
            await store.close()


async def test_lines_of_all_sessions_are_written_though_closing_was_broken_off(
    store_of: Callable[[], DiskStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of()
    first, second = await store.create("a"), await store.create("b")
    first.write(steps(2))
    second.write(steps(2))

    async def never() -> None:
        second.write(steps(1, first=2))
        await asyncio.Event().wait()

    monkeypatch.setattr(first, "close", never)
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert await head_of(store_of(), "b") == 2


# Broken in the middle


def break_down(store: DiskStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("it is broken")

    monkeypatch.setattr(store._writer, "_write", broken)


@pytest.mark.parametrize("how", ["create", "open"])
async def test_a_session_that_is_opened_while_the_store_breaks_takes_no_lines(
    store_of: Callable[[], DiskStore], monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Once it has failed nothing is written: a barrier that says otherwise would lose what it acknowledges."""
    store = store_of()
    await with_sessions(store, "a", "b")
    journal = await store.open("a")
    with monkeypatch.context() as patched:
        break_down(store, patched)
        journal.write(steps(1, first=2))
        breaking = asyncio.create_task(journal.barrier())
        await asyncio.sleep(0)
        opening = asyncio.create_task(store.open("b") if how == "open" else store.create("c"))
        with pytest.raises(StoreFailed, match="it is broken"):
            await breaking
        with pytest.raises(StoreFailed, match="it is broken"):
            await opening
    with pytest.raises(StoreFailed):
        await store.close()


async def test_a_journal_that_missed_the_failure_of_its_store_is_told_at_its_barrier(
    store_of: Callable[[], DiskStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_of()
    await with_sessions(store, "a", "b")
    journal, other = await store.open("a"), await store.open("b")
    break_down(store, monkeypatch)
    journal.write(steps(1, first=2))
    with pytest.raises(StoreFailed):
        await journal.barrier()
    other.failure, other._writable = None, True
    other.write(steps(1, first=2))
    with pytest.raises(StoreFailed):
        await other.barrier()
    with pytest.raises(StoreFailed):
        await store.close()


@pytest.mark.slow
async def test_closing_many_sessions_waits_once_for_a_server_that_is_gone(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(postgres.url, schema=new_schema(), patience=0.2)
    for i in range(5):
        await with_sessions(store, f"s{i}")
        await store.open(f"s{i}")
    again = 0
    inner = store._postgres._connect_again

    def counted(deadline: float) -> None:
        nonlocal again
        again += 1
        inner(deadline)

    monkeypatch.setattr(store._postgres, "_connect_again", counted)

    def gone() -> Any:
        raise psycopg.OperationalError("gone")

    monkeypatch.setattr(store._database, "connect", gone)
    store._postgres._connection.close()
    await store.close()
    assert again == 1


# Left behind


@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_store_whose_event_loop_has_ended_lets_go(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`asyncio.run` twice, and the first time nobody has closed it."""
    monkeypatch.setattr(writer, "_LOOK", 0.01)
    left: list[DiskStore] = []

    def store_of() -> DiskStore:
        return SQLiteStore(tmp_path / "log.db", term=0.1) if kind == "sqlite" else JSONLStore(tmp_path / "f")

    async def leave() -> None:
        store = store_of()
        left.append(store)
        await with_sessions(store, "s")
        await store.open("s")

    async def again() -> None:
        async with store_of() as store, asyncio.timeout(60):
            while True:
                with suppress(SessionBusy):
                    journal = await store.open("s")
                    break
                await asyncio.sleep(0.01)
            journal.write(steps(1, first=2))
            await journal.barrier()

    asyncio.run(leave())
    asyncio.run(again())
    (store,) = left
    assert store._writer is not None
    store._writer._thread.join(60)
    assert not store._writer._thread.is_alive(), "its thread does not stay"


FORKED = """
import asyncio, os, sys
from pathlib import Path
from interlock.errors import StoreFailed
from interlock.log.stores.jsonl.store import JSONLStore
from interlock.log.stores.sqlite.store import SQLiteStore
from log.store_lines import steps

def store():
    folder = Path(sys.argv[2])
    return JSONLStore(folder / "f") if sys.argv[1] == "jsonl" else SQLiteStore(folder / "log.db")

async def child():
    async with store() as made:
        journal = await made.create("child")
        journal.write(steps(2))

async def parent():
    asleep, wake = os.pipe()
    first = store()
    journal = await first.create("s")
    journal.write(steps(2))
    await journal.barrier()
    if os.fork() == 0:
        os.close(wake)
        os.read(asleep, 1)  # as long as the parent runs
        os._exit(0)
    if sys.argv[1] == "sqlite" and os.fork() == 0:
        asyncio.set_event_loop(None)
        asyncio._set_running_loop(None)
        try:
            asyncio.run(child())
        except StoreFailed as failed:
            print(failed, flush=True)
        else:
            print("written", flush=True)
        os._exit(0)
    if sys.argv[1] == "sqlite":
        os.waitpid(-1, 0)
    await journal.close()
    await first.close()
    async with store() as second:
        print("opened", (await second.open("s")).head, flush=True)
    if os.fork() == 0:  # nothing is open: whoever is forked now may use it
        asyncio._set_running_loop(None)
        asyncio.run(child())
        print("written", flush=True)
        os._exit(0)
    os.waitpid(-1, 0)

asyncio.run(parent())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "jsonl"])
def test_a_forked_process_neither_holds_what_its_parent_has_open_nor_writes_to_it(
    kind: str, tmp_path: Path
) -> None:
    """SQLite believes that the child has the parent's locks. The lock of a file would be the child's as well."""
    ended = subprocess.run(
        [sys.executable, "-c", FORKED, kind, str(tmp_path)],
        env={"PYTHONPATH": f"{Path(__file__).parent.parent}:{':'.join(sys.path[1:])}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = ended.stdout.splitlines()
    if kind == "sqlite":
        assert "this process was forked from one that had the file open" in said.pop(0)
    assert said == ["opened 1", "written"], ended.stderr


HELD_BY_A_CHILD = """
import asyncio, os, sys
from interlock.log.stores.jsonl.store import JSONLStore
from log.store_lines import steps

async def parent():
    journal = await JSONLStore(sys.argv[1]).create("s")
    journal.write(steps(2))
    await journal.barrier()
    told, tell = os.pipe()
    if os.fork() == 0:
        os.write(tell, b"x")
        sys.stdin.read()  # until the test closes it
        os._exit(0)
    os.read(told, 1)
    print("forked", flush=True)
    await asyncio.Event().wait()

asyncio.run(parent())
"""


@pytest.mark.slow
def test_a_child_does_not_hold_the_sessions_of_a_killed_parent(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HELD_BY_A_CHILD, str(tmp_path)],
        env={"PYTHONPATH": f"{Path(__file__).parent.parent}:{':'.join(sys.path[1:])}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        assert process.stdout.readline() == b"forked\n"
        process.kill()
        process.wait()
        assert asyncio.run(opened_at(tmp_path)) == 1


async def test_a_file_that_could_not_be_opened_costs_a_child_nothing(tmp_path: Path) -> None:
    """The number of its descriptor is that of something else by then."""
    async with JSONLStore(tmp_path) as store:
        await with_sessions(store, "s")
        (tmp_path / "s.jsonl").write_bytes(b"no line\n")
        with pytest.raises(UnreadableLog) as kept:  # and with its traceback, all that was made on the way
            await store.open("s")
        assert kept.value.seq == 0
        assert still_there_in_a_child(*os.pipe())


def still_there_in_a_child(*files: int) -> bool:
    child = os.fork()
    if child == 0:
        with suppress(OSError):
            for file in files:
                os.fstat(file)
            os._exit(0)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    for file in files:
        os.close(file)
    return os.waitstatus_to_exitcode(status) == 0


async def opened_at(folder: Path) -> int:
    async with JSONLStore(folder) as store:
        return (await store.open("s")).head


# Leases


async def test_what_could_not_be_opened_is_let_go_before_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteStore(tmp_path / "log.db") as store:
        await with_sessions(store, "s")
        gate, inner, back = Gate(), store._leases.give_back, []

        def slowly(lease: Any) -> None:
            gate.wait(60)
            inner(lease)
            back.append(lease)

        def broken(*_: object) -> None:
            asyncio.get_running_loop().call_soon(gate.set)
            raise RuntimeError("it cannot be read")

        with monkeypatch.context() as patched:
            patched.setattr(store._leases, "give_back", slowly)
            patched.setattr(store, "_found", broken)
            with pytest.raises(RuntimeError):
                await store.open("s")
        assert back


HOUR = 3_600_000


@pytest.mark.parametrize("jump", [-5 * HOUR, 5 * HOUR])
async def test_a_clock_that_is_set_changes_nothing_on_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: int
) -> None:
    place = sqlite_place(tmp_path)
    async with place.store() as one, place.store() as other:
        await with_sessions(one, "s")
        journal = await one.open("s")
        real = sqlite_lease.now
        monkeypatch.setattr(sqlite_lease, "now", lambda: real() + jump)
        monkeypatch.setattr("interlock.log.stores.sqlite.store.now", sqlite_lease.now)
        with pytest.raises(SessionBusy):
            await other.open("s")
        assert await other.holder("s") == "this process"
        past = "CAST(json_set(CAST(holder AS TEXT), '$.until', 1.0) AS BLOB)"
        place.raw(f"UPDATE lease SET holder = {past}")
        assert await other.holder("s") is None
        assert (await other.open("s")).fence == 3
        journal.write(steps(1, first=2))
        with pytest.raises(LeaseLost):
            await journal.barrier()
        with pytest.raises(LeaseLost):
            await journal.close()


async def test_who_slept_at_a_barrier_asks_whether_the_session_is_still_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lines were written in time. What is to be done on the strength of them is not."""
    place = sqlite_place(tmp_path)
    async with place.store() as one, place.store() as other:
        await with_sessions(one, "s")
        journal = await one.open("s")
        slept = 0.0
        monkeypatch.setattr(leasing, "_elapsed", lambda: slept)
        inner = one._sync

        async def sleeping(asking: Any) -> None:
            nonlocal slept
            await inner(asking)
            slept += 2 * one._term

        monkeypatch.setattr(one, "_sync", sleeping)
        journal.write(steps(1, first=2))
        await journal.barrier()  # nobody has come meanwhile

        async def replaced(asking: Any) -> None:
            await sleeping(asking)
            place.expire("s")
            await (await other.open("s")).close()

        monkeypatch.setattr(one, "_sync", replaced)
        journal.write(steps(1, first=3))
        with pytest.raises(LeaseLost):
            await journal.barrier()
        await journal.close()


async def test_followers_are_told_of_a_lease_that_is_found_lost(tmp_path: Path) -> None:
    place: Place = sqlite_place(tmp_path)
    async with place.store() as one, place.store() as other:
        session = await create_session(one, "s")
        await session.barrier()
        heard: set[int] = set()

        async def follow() -> None:
            async for event in session.follow():
                heard.add(event.seq)

        following = asyncio.create_task(follow())
        while len(heard) < 2:
            await asyncio.sleep(0)
        place.expire("s")
        await other.open("s")
        await renew(one)
        with pytest.raises(LeaseLost):
            async with asyncio.timeout(30):
                await following
        await session.close()
