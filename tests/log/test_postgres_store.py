"""What only the store on a server can show: what is safe when, and what happens when the server goes away."""

# ruff: noqa: ASYNC110, ASYNC221  # a test may block its loop: nothing else runs there

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from interlock.errors import (
    ConfigError,
    DuplicateSession,
    LeaseLost,
    NewerFormat,
    SessionBusy,
    SessionError,
    StoreClosed,
    StoreFailed,
    UnknownSession,
    UnreadableLog,
    UsageError,
)
from interlock.log.artifacts import LIMIT
from interlock.log.event import Event
from interlock.log.facts import (
    AssistantChunk,
    RequestHeader,
    SessionCreated,
    StepStart,
    ToolResulted,
    TurnStart,
)
from interlock.log.messages import Text
from interlock.log.stores.postgres.database import FORMAT, Database
from interlock.log.stores.postgres.store import PostgresStore
from postgres_server import PostgresServer, new_schema

from .store_lines import T0, lines, steps

pytestmark = pytest.mark.slow


@pytest.fixture
def schema() -> str:
    return new_schema()


def stream(n: int, first: int) -> list[Event]:
    return lines(*[AssistantChunk(0, "text", text=f"{i} ") for i in range(n)], first=first)


async def stored(store: PostgresStore, server: PostgresServer, schema: str, head: int) -> None:
    """Wait until the lines up to this one are in the database, synced or not."""
    async with asyncio.timeout(60):
        while server.query(f"SELECT max(head) FROM {schema}.session") != [(head,)]:
            await asyncio.sleep(0.01)


# The schema


async def test_many_that_come_at_once_make_the_tables_once(postgres: PostgresServer, schema: str) -> None:
    stores = [PostgresStore(postgres.url, schema=schema) for _ in range(8)]
    assert await asyncio.gather(*[store.list() for store in stores]) == [[]] * 8
    for store in stores:
        await store.close()
    numbers = postgres.query(f"SELECT number FROM {schema}.migration ORDER BY number")
    assert numbers == [(number,) for number in range(1, FORMAT + 1)]


async def test_a_schema_of_a_newer_version_is_refused_untouched(
    postgres: PostgresServer, schema: str
) -> None:
    async with PostgresStore(postgres.url, schema=schema) as store:
        (await store.create("s")).write(steps(1))
    postgres.query(f"INSERT INTO {schema}.migration VALUES ({FORMAT + 1})")
    store = PostgresStore(postgres.url, schema=schema)
    for use in (store.create("t"), store.open("s"), store.open("s", readonly=True), store.list()):
        with pytest.raises(NewerFormat, match=f"format {FORMAT + 1}") as caught:
            await use
        assert (caught.value.found, caught.value.known) == (FORMAT + 1, FORMAT)
    await store.close()
    assert postgres.query(f"SELECT id FROM {schema}.session") == [("s",)]


async def test_a_schema_may_have_any_name(postgres: PostgresServer) -> None:
    schema = 'Größe "1" {s}'
    async with PostgresStore(postgres.url, schema=schema) as store:
        (await store.create("s")).write(steps(2))
    async with PostgresStore(postgres.url, schema=schema) as store:
        assert (await store.open("s")).head == 1


@pytest.mark.parametrize("schema", ["", "x" * 51, "a\0b", "a%s"])
def test_a_name_that_cannot_be_one_is_a_mistake_in_the_settings(schema: str) -> None:
    with pytest.raises(ConfigError, match="name of a schema"):
        PostgresStore("postgresql:///db", schema=schema)


def test_an_address_that_cannot_be_read_is_a_mistake_in_the_settings() -> None:
    with pytest.raises(ConfigError, match="no address"):
        PostgresStore("postgresql://host:port:port/?nonsense=1")


async def test_a_server_that_is_not_there_is_said_without_the_password(tmp_path: Path) -> None:
    store = PostgresStore(f"postgresql://ada:hunter2@/agents?host={tmp_path}", patience=0)
    with pytest.raises(StoreFailed, match=f"schema interlock of agents at {tmp_path}") as caught:
        await store.list()
    assert "hunter2" not in str(caught.value)
    await store.close()


async def test_the_database_itself_refuses_a_gap(postgres: PostgresServer, schema: str) -> None:
    async with PostgresStore(postgres.url, schema=schema) as store:
        journal = await store.create("s")
        journal.write(steps(3))
        journal.write(stream(5, first=3))
        await journal.barrier()
        insert = (
            f"INSERT INTO {schema}.event VALUES (%s, %s, %s, 'turn/start', 1, 1, NULL, false, '{{}}', NULL)"
        )
        for session, seq in ((1, 9), (1, 7), (1, 4), (1, 0), (1, -1), (2, 0)):
            with pytest.raises(psycopg.Error) as caught:
                postgres.query(insert, session, seq, None)
            assert "not the next line" in str(caught.value) or isinstance(
                caught.value, psycopg.errors.UniqueViolation
            )
        overlapping = [(8, 3), (9, None), (12, None)]  # as many as there are places, and yet a gap
        values = ", ".join(
            [f"(1, {first}, {n or 'NULL'}, 'x', 1, 1, NULL, false, '', NULL)" for first, n in overlapping]
        )
        with pytest.raises(psycopg.Error, match="not the next line"):
            postgres.query(f"INSERT INTO {schema}.event VALUES {values}")
        postgres.query(insert, 1, 8, None)
        assert postgres.query(f"SELECT head FROM {schema}.session") == [(8,)]


async def test_what_postgresql_cannot_keep_is_refused_before_it_is_taken(
    postgres: PostgresServer, schema: str
) -> None:
    async with PostgresStore(postgres.url, schema=schema) as store:
        for session_id in ("a\0b", "\ud800"):
            with pytest.raises(UsageError, match="without NUL"):
                await store.create(session_id)
            with pytest.raises(UnknownSession):
                await store.open(session_id)
        journal = await store.create("s")
        journal.write(lines(SessionCreated("1.1", "s", cwd="/a\0b")))  # a text may have it
        await journal.barrier()
        assert list(journal.read()) == lines(SessionCreated("1.1", "s", cwd="/a\0b"))
        assert [info.cwd for info in await store.list()] == ["/a\N{REPLACEMENT CHARACTER}b"]


# Durability


async def test_all_that_waits_is_one_transaction(postgres: PostgresServer, schema: str) -> None:
    """Group commit, over sessions and over barriers."""
    async with PostgresStore(postgres.url, schema=schema) as store:
        journals = [await store.create(f"s{i}") for i in range(20)]
        for journal in journals:
            journal.write(steps(3))
        await asyncio.gather(*[journal.barrier() for journal in journals])
        assert [list(journal.read()) for journal in journals] == [steps(3)] * 20
    ((transactions,),) = postgres.query(f"SELECT count(DISTINCT xmin::text) FROM {schema}.event")
    assert transactions == 1


KILLED = """
    store = PostgresStore(sys.argv[1], schema=sys.argv[2])
    journal = await store.create("s")
    seq = 0
    for round in range(int(sys.argv[3])):
        for _ in range(7):
            journal.write([step(seq)])
            seq += 1
        await journal.barrier()
    journal.write([Event(seq + i, 1, 1, AssistantChunk(0, "text", text="token")) for i in range(1000)])
    print(seq, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""
PRELUDE = """
    import asyncio, os, sys, signal
    from interlock.errors import *
    from interlock.log.event import Event
    from interlock.log.facts import *
    from interlock.log.stores.postgres.store import PostgresStore

    def step(seq):
        return Event(seq, 1_700_000_000_000 + seq, 1, StepStart(1, seq))

    async def main():
"""


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    """Another process that runs the body of an `async def main()`."""
    body = textwrap.indent(textwrap.dedent(code), "    ")
    program = f"{textwrap.dedent(PRELUDE)}{body}\nasyncio.run(main())\n"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("rounds", [1, 12])
async def test_a_killed_process_loses_nothing_that_was_acknowledged(
    postgres: PostgresServer, schema: str, rounds: int
) -> None:
    process = python(KILLED, postgres.url, schema, rounds)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    async with PostgresStore(postgres.url, schema=schema) as store:
        journal = await store.open("s")
        assert list(journal.read())[: int(output)] == steps(int(output))
        journal.write(steps(1, first=journal.head + 1))
        await journal.barrier()


def crash(server: PostgresServer, how: str) -> None:
    if how == "immediate shutdown":
        server.stop("immediate")
    else:
        server.kill()


@pytest.mark.parametrize("how", ["immediate shutdown", "SIGKILL"])
async def test_a_killed_server_loses_nothing_that_was_acknowledged(
    postgres: PostgresServer, schema: str, how: str
) -> None:
    store = PostgresStore(postgres.url, schema=schema, patience=0)
    journal = await store.create("s")
    for seq in range(0, 70, 7):
        journal.write(steps(7, first=seq))
        await journal.barrier()
    journal.write(stream(100, first=70))  # nobody waits for these
    crash(postgres, how)
    with pytest.raises(StoreFailed):
        await journal.barrier()
    assert list(journal.read(70)) == stream(100, first=70)
    with pytest.raises(StoreFailed):
        journal.write(steps(1, first=170))
    with pytest.raises(StoreFailed):
        await store.close()
    postgres.start()
    async with PostgresStore(postgres.url, schema=schema) as store:
        journal = await store.open("s")
        assert list(journal.read(0, 69)) == steps(70)
        journal.write(steps(1, first=journal.head + 1))
        await journal.barrier()


@pytest.mark.parametrize("how", ["immediate shutdown", "SIGKILL"])
async def test_a_server_that_comes_back_in_time_is_written_to_as_if_nothing_had_been(
    postgres: PostgresServer, schema: str, how: str
) -> None:
    """Also what it had been given without a sync, and has lost."""
    async with PostgresStore(postgres.url, schema=schema, patience=60) as store:
        journal, quiet = await store.create("s"), await store.create("quiet")
        log = steps(3)
        journal.write(log)
        quiet.write(log)
        await journal.barrier()
        log += stream(500, first=3)
        quiet.write(log[3:])
        journal.write(log[3:])
        await stored(store, postgres, schema, 502)
        crash(postgres, how)
        restart = threading.Timer(0.3, postgres.start)
        restart.start()
        more = steps(1, first=503)
        journal.write(more)
        await asyncio.gather(journal.barrier(), quiet.barrier())
        restart.join()
        assert list(journal.read()) == log + more
        await journal.close()
        await quiet.close()
        assert list((await store.open("s")).read()) == log + more
        assert list((await store.open("quiet")).read()) == log
        assert {info.id: info.events for info in await store.list()} == {"s": 504, "quiet": 503}


async def test_the_journals_of_a_server_that_was_restarted_go_on(
    postgres: PostgresServer, schema: str
) -> None:
    async with PostgresStore(postgres.url, schema=schema) as store:
        journal = await store.create("s")
        journal.write(steps(300))
        await journal.barrier()
        follower = await store.open("s", readonly=True)
        list(journal.read())
        postgres.stop()
        postgres.start()
        assert list(journal.read()) == steps(300)  # without waiting
        assert await follower.refresh() == 299
        assert [info.events for info in await store.list()] == [300]
        journal.write(steps(1, first=300))
        await journal.barrier()
        assert await follower.refresh() == 300


class Line:
    """A connection in between that can be cut: before what is asked arrives, or before the answer does.

    cut: says of each request whether it is cut there. cuts: how many were.
    """

    def __init__(self, server: PostgresServer, folder: Path) -> None:
        self.url = f"postgresql://postgres@/postgres?host={folder}"
        self.cut: Callable[[bytes], str] = lambda asked: ""
        self.cuts = 0
        self._to = str(server.folder / ".s.PGSQL.5432")
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(str(folder / ".s.PGSQL.5432"))
        self._listening.listen()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    def _start(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                server = socket.socket(socket.AF_UNIX)
                server.connect(self._to)
                self._open += [client, server]
                self._start(self._serve, client, server)

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        muted = threading.Event()
        answering = self._start(self._answer, client, server, muted)
        with suppress(OSError):
            while asked := client.recv(1 << 20):
                cut = self.cut(asked)
                if cut == "after":
                    muted.set()
                if cut != "before":
                    server.sendall(asked)
                if cut:
                    self.cuts += 1
                    break
            server.shutdown(socket.SHUT_WR)  # it does what it was asked, and then ends
        answering.join()
        client.close()

    def _answer(self, client: socket.socket, server: socket.socket, muted: threading.Event) -> None:
        with suppress(OSError):
            while answer := server.recv(1 << 20):
                if not muted.is_set():
                    client.sendall(answer)

    def close(self) -> None:
        for end in (self._listening, *self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
        for thread in self._threads:
            thread.join(10)


@pytest.fixture
def line(postgres: PostgresServer, tmp_path: Path) -> Iterator[Line]:
    made = Line(postgres, tmp_path)
    try:
        yield made
    finally:
        made.close()


def once(when: str, word: bytes) -> Callable[[bytes], str]:
    """Cut at the first request that has this word."""
    pending = [when]
    return lambda asked: pending.pop() if pending and word in asked else ""


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_connection_lost_in_a_barrier_is_made_again_and_each_line_is_there_once(
    postgres: PostgresServer, schema: str, line: Line, when: str
) -> None:
    """Whether the server has got the transaction, and only its answer was lost, or has not got it."""
    async with PostgresStore(line.url, schema=schema) as store:
        journal, other = await store.create("s"), await store.create("other")
        for n in range(0, 24, 8):
            for one in (journal, other):
                one.write(steps(5, first=n))
                one.write(stream(3, first=n + 5))
            line.cut = once(when, b".event")
            await asyncio.gather(journal.barrier(), other.barrier())
        assert line.cuts == 3
        expected = [event for n in range(0, 24, 8) for event in (*steps(5, first=n), *stream(3, first=n + 5))]
        assert list(journal.read()) == list(other.read()) == expected
    assert postgres.query(f"SELECT id, head FROM {schema}.session ORDER BY id") == [("other", 23), ("s", 23)]


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_session_whose_making_was_not_answered_is_made_once(
    postgres: PostgresServer, schema: str, line: Line, when: str
) -> None:
    async with PostgresStore(line.url, schema=schema) as store:
        await store.list()
        line.cut = once(when, b".session")
        journal = await store.create("s")
        assert line.cuts == 1
        journal.write(steps(1))
        await journal.barrier()
        with pytest.raises(DuplicateSession):
            await store.create("s")


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("word", [b"FOR UPDATE", b"fence + 1", b"COMMIT"])
async def test_a_session_whose_taking_was_not_answered_is_taken_all_the_same(
    postgres: PostgresServer, schema: str, line: Line, when: str, word: bytes
) -> None:
    """And the lease outlives the connection on which it was taken."""
    async with (
        PostgresStore(postgres.url, schema=schema) as other,
        PostgresStore(line.url, schema=schema) as store,
    ):
        journal = await other.create("s")
        journal.write(steps(1))
        await journal.close()
        await store.list()
        line.cut = once(when, word)
        journal = await store.open("s")
        assert line.cuts == 1
        assert journal.fence in (2, 3)  # it may have been taken twice
        line.cut = once("after", b".event")
        journal.write(steps(1, first=1))
        await journal.barrier()
        assert line.cuts == 2
        with pytest.raises(SessionBusy, match="this process"):
            await other.open("s")
        line.cut = once(when, b"DELETE")
        await journal.close()
        assert line.cuts == 3
        assert list((await other.open("s")).read()) == steps(2)


async def test_lines_that_wait_while_their_session_is_taken_over_are_refused(
    postgres: PostgresServer, schema: str
) -> None:
    """The look at the fence comes when nobody can raise it any more, not before."""
    store = PostgresStore(postgres.url, schema=schema)
    journal = await store.create("s")
    with postgres.connect() as rival, rival.transaction():
        rival.execute(f"UPDATE {schema}.session SET fence = fence + 1".encode())
        journal.write(steps(1))
        barrier = asyncio.create_task(journal.barrier())
        async with asyncio.timeout(60):
            while not postgres.query("SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"):
                await asyncio.sleep(0.01)
    with pytest.raises(LeaseLost):
        await barrier
    assert postgres.query(f"SELECT head FROM {schema}.session") == [(-1,)]
    with pytest.raises(LeaseLost):
        await store.close()


async def test_a_session_that_somebody_has_locked_and_does_not_let_go_is_busy(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a process that was stopped in the middle of a transaction."""
    monkeypatch.setattr("interlock.log.stores.postgres.database._LOCKS", "50ms")
    async with PostgresStore(postgres.url, schema=schema) as store:
        await (await store.create("s")).close()
        with postgres.connect() as stuck, stuck.transaction():
            stuck.execute(f"SELECT FROM {schema}.session FOR UPDATE".encode())
            with pytest.raises(SessionBusy, match="driven by another process"):
                await store.open("s")
        assert (await store.open("s")).fence == 2


async def test_the_server_ends_a_transaction_that_does_not_go_on(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.log.stores.postgres.database._PAUSES", "50ms")
    with Database(postgres.url, schema).connect() as stuck:
        stuck.execute("BEGIN")
        pid = stuck.info.backend_pid
        async with asyncio.timeout(60):
            while postgres.query("SELECT pid FROM pg_stat_activity WHERE pid = %s", pid):
                await asyncio.sleep(0.01)
        with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout):
            stuck.execute("COMMIT")


async def test_a_connection_that_cannot_be_made_again_is_the_end_of_writing(
    postgres: PostgresServer, schema: str, line: Line
) -> None:
    """It is not known what was written: so nothing is said to be."""
    store = PostgresStore(line.url, schema=schema, patience=0.2)
    journal = await store.create("s")
    journal.write(steps(2))
    line.cut = lambda asked: "before"
    with pytest.raises(StoreFailed, match="schema"):
        await journal.barrier()
    assert list(journal.read()) == steps(2)
    with pytest.raises(StoreFailed):
        await store.close()


# When the server says no


async def test_a_database_that_may_only_be_read_is_read_and_not_opened_for_writing(
    postgres: PostgresServer, schema: str
) -> None:
    async with PostgresStore(postgres.url, schema=schema) as store:
        (await store.create("s")).write(steps(3))
    store = PostgresStore(f"{postgres.url}&options=-cdefault_transaction_read_only%3Don", schema=schema)
    reader = await store.open("s", readonly=True)
    assert list(reader.read()) == steps(3)
    with pytest.raises(StoreFailed, match=f"read-only transaction .*schema {schema} of postgres"):
        await store.open("s")
    assert [info.events for info in await store.list()] == [3]
    await store.close()


@pytest.fixture
def small_space(postgres: PostgresServer, tmp_path: Path) -> Iterator[str]:
    """A tablespace of two megabytes."""
    disk = postgres.folder / "small"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        disk.rmdir()
        pytest.skip("mounting a file system needs root")
    try:
        postgres.own(disk)
        postgres.query(f"CREATE TABLESPACE small LOCATION '{disk}'")
        yield "small"
        for (name,) in postgres.query("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'test%'"):
            postgres.query(f"DROP SCHEMA {name} CASCADE")
        postgres.query("DROP TABLESPACE small")
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)
        disk.rmdir()


async def test_a_full_disk_is_reported_and_what_was_acknowledged_is_safe(
    postgres: PostgresServer, schema: str, small_space: str
) -> None:
    """D-22: an I/O failure surfaces at the barrier, and nothing further is taken."""
    store = PostgresStore(f"{postgres.url}&options=-cdefault_tablespace%3D{small_space}", schema=schema)
    journal, bystander = await store.create("s"), await store.create("bystander")
    acknowledged, log = 0, list[Event]()
    with pytest.raises(StoreFailed, match="No space left on device"):
        while len(log) < 1000:
            padding = os.urandom(10_000).hex()  # it is kept compressed
            batch = lines(RequestHeader("change", "p", "m", {"padding": padding}), first=len(log))
            journal.write(batch)
            log += batch
            await journal.barrier()
            acknowledged = len(log)
    assert 0 < acknowledged < len(log)
    for one in (journal, bystander):
        with pytest.raises(StoreFailed, match="No space"):
            one.write(steps(1, first=one.head + 1))
    with pytest.raises(StoreFailed, match="No space"):
        await store.create("another")
    assert list(journal.read()) == log
    with pytest.raises(StoreFailed, match="No space"):
        await store.close()
    disk = postgres.folder / "small"
    subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
    async with PostgresStore(postgres.url, schema=schema) as store:
        journal = await store.open("s")
        assert list(journal.read()) == log[:acknowledged]
        journal.write(steps(1, first=journal.head + 1))
        await journal.barrier()


async def test_only_the_session_that_another_process_wrote_fails(
    postgres: PostgresServer, schema: str
) -> None:
    """Without asking for its lease, as other programs could."""
    store = PostgresStore(postgres.url, schema=schema)
    contested, mine = await store.create("contested"), await store.create("mine")
    contested.write(steps(1))
    await contested.barrier()
    insert = f"INSERT INTO {schema}.event VALUES (1, 1, NULL, 'turn/start', 1, 1, NULL, false, %s, NULL)"
    postgres.query(insert, b'{"turn":7}')
    contested.write(steps(2, first=1))
    mine.write(lines(SessionCreated("1.0", "mine", "/home"), StepStart(1, 1)))
    made = asyncio.create_task(store.create("new"))
    await asyncio.sleep(0)
    results = await asyncio.gather(contested.barrier(), mine.barrier(), return_exceptions=True)
    assert isinstance(results[0], StoreFailed)
    assert "another process" in results[0].problem
    assert results[1] is None
    assert list(contested.read()) == steps(3)  # what this process knows of it
    with pytest.raises(StoreFailed, match="another process"):
        await contested.close()
    mine.write(steps(2, first=2))
    await mine.barrier()
    assert {info.id: info.cwd for info in await store.list()} == {"contested": None, "mine": "/home"}
    assert (await made).head == -1
    again = await store.open("contested")
    assert [event.fact for event in again.read()] == [StepStart(1, 0), TurnStart(7)]
    await store.close()


async def test_a_session_that_was_deleted_fails_alone(postgres: PostgresServer, schema: str) -> None:
    store = PostgresStore(postgres.url, schema=schema)
    journal, other = await store.create("s"), await store.create("other")
    reader = await store.open("s", readonly=True)
    postgres.query(f"DELETE FROM {schema}.session WHERE id = 's'")
    for one in (journal, other):
        one.write(steps(1))
    await other.barrier()
    with pytest.raises(StoreFailed, match="no longer in the database"):
        await journal.barrier()
    with pytest.raises(UnknownSession):
        await reader.refresh()
    with pytest.raises(StoreFailed):
        await store.close()


async def test_a_database_that_was_set_back_is_noticed(postgres: PostgresServer, schema: str) -> None:
    """As after a failover to a server that had not got everything."""
    store = PostgresStore(postgres.url, schema=schema)
    journal = await store.create("s")
    journal.write(steps(5))
    await journal.barrier()
    postgres.query(f"DELETE FROM {schema}.event WHERE first >= 3")
    postgres.query(f"UPDATE {schema}.session SET head = 2")
    journal.write(steps(1, first=5))
    with pytest.raises(StoreFailed, match="has lost lines 3 to 4"):
        await journal.barrier()
    with pytest.raises(StoreFailed):
        await store.close()


# Reading


async def test_what_is_missing_is_said_by_its_line(postgres: PostgresServer, schema: str) -> None:
    async with PostgresStore(postgres.url, schema=schema) as store:
        journal = await store.create("s")
        log = [*steps(100), *lines(ToolResulted(0, "c1", (Text("x" * (LIMIT + 1)),)), first=100)]
        journal.write(log)
        await journal.close()
        postgres.query(f"DELETE FROM {schema}.artifact")
        reader = await store.open("s", readonly=True)
        with pytest.raises(UnreadableLog, match="Event 100 cannot be read: its artifact"):
            list(reader.read())
        postgres.query(f"DELETE FROM {schema}.event WHERE first = 7")
        with pytest.raises(UnreadableLog, match="Event 7 cannot be read: it is missing"):
            list((await store.open("s", readonly=True)).read())
        postgres.query(f"DROP TABLE {schema}.event")
        with pytest.raises(SessionError, match=r"cannot be read: .*does not exist.*schema"):
            list(journal.read(0, 3))


async def test_opening_and_following_ask_the_server_nothing_that_the_loop_waits_for(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Text("x" * (LIMIT + 1))
    log = [*steps(1200), *stream(600, first=1200), *lines(ToolResulted(0, "c1", (text,)), first=1800)]
    async with PostgresStore(postgres.url, schema=schema) as store:
        writer = await store.create("s")
        writer.write(log)
        await writer.close()
        monkeypatch.setattr("interlock.log.stores.postgres.reading.Reading.now", None)
        reader, writer = await store.open("s", readonly=True), await store.open("s")
        assert list(reader.read()) == list(writer.read()) == log
        for first in (0, 700, 1199, 1300, 1800):
            assert list(reader.read(first, first + 5)) == log[first : first + 6]
        for seq in range(1801, 1810):
            writer.write(steps(1, first=seq))
            await writer.barrier()
            assert list(writer.read(seq)) == steps(1, first=seq)
            assert await reader.refresh() == seq
            assert list(reader.read(seq)) == steps(1, first=seq)


async def test_a_follower_is_woken_by_the_database(
    postgres: PostgresServer, schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It need not look again and again: here it would never look."""
    monkeypatch.setattr("interlock.log.stores.postgres.listening._QUIET", 3600)
    here, there = (PostgresStore(postgres.url, schema=schema) for _ in range(2))
    async with here, there, asyncio.timeout(60):
        writer, other = await here.create("s"), await here.create("other")
        writer.write(steps(1))
        await writer.barrier()
        reader = await there.open("s", readonly=True)
        await reader.news(0)  # it begins to listen
        while not there._listening_now()._hears:
            await asyncio.sleep(0)
        for seq in range(1, 20):
            writer.write(steps(1, first=seq))
            other.write(steps(1, first=seq - 1))
            await writer.barrier()
            while await reader.refresh() < seq:
                await reader.news(3600)


async def test_a_follower_goes_on_when_the_server_was_restarted(
    postgres: PostgresServer, schema: str
) -> None:
    here, there = (PostgresStore(postgres.url, schema=schema) for _ in range(2))
    async with here, there, asyncio.timeout(60):
        writer = await here.create("s")
        reader = await there.open("s", readonly=True)
        await reader.news(0)
        postgres.stop()
        postgres.start()
        writer.write(steps(1))
        await writer.barrier()
        while await reader.refresh() < 0:
            await reader.news(0.05)
        assert list(reader.read()) == steps(1)


async def test_a_journal_is_not_read_after_its_store_was_closed(
    postgres: PostgresServer, schema: str
) -> None:
    async with PostgresStore(postgres.url, schema=schema) as store:
        journal = await store.create("s")
        journal.write(steps(600))
        await journal.barrier()
        begun = journal.read()
        next(begun)
    for reading in (begun, journal.read()):
        with pytest.raises(StoreClosed):
            list(reading)
    with pytest.raises(StoreClosed):
        await journal.news(0)


def test_without_psycopg_it_is_said_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from interlock.log.stores.postgres.store import PostgresStore\n"
        "PostgresStore('postgresql:///db')"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'interlock[postgres]'" in ran.stderr


async def test_an_ordinary_line_is_small(postgres: PostgresServer, schema: str) -> None:
    async with PostgresStore(postgres.url, schema=schema) as store:
        journal = await store.create("s")
        content = (Text("a line of some tool's output\n" * 4),)
        for seq in range(2_000):
            fact: Any = StepStart(1, seq)
            if seq % 2 == 0:
                fact = ToolResulted(seq, f"call_{seq}", content, meta={"code": 0})
            journal.write([Event(seq, T0 + seq, 1, fact, causes=(seq - 1,) if seq else ())])
            if seq % 5 == 0:
                await journal.barrier()
    tables = ("session", "event")
    sizes = [postgres.query(f"SELECT pg_total_relation_size('{schema}.{table}')")[0][0] for table in tables]
    assert sum(sizes) < 2_000 * 400
