"""What only the store with a disk can show: what is safe when, and what happens when the disk says no."""

# ruff: noqa: ASYNC110, ASYNC221, ASYNC240  # a test may block its loop: nothing else runs there

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import sqlite3
import stat
import struct
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from interlock.errors import (
    NewerFormat,
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
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    RequestHeader,
    SessionCreated,
    StepStart,
    ToolResulted,
    TurnStart,
)
from interlock.log.messages import Text
from interlock.log.stores.buffered import FLUSH_BYTES
from interlock.log.stores.sqlite.database import FORMAT, default_path
from interlock.log.stores.sqlite.store import SQLiteJournal, SQLiteStore

from .store_lines import T0, disk_of, lines, steps


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log.db"


def suspends(waiting: Awaitable[Any]) -> bool:
    """Whether it has to wait for anything at all."""
    steps = waiting.__await__()
    try:
        next(steps)
    except StopIteration:
        return False
    steps.close()
    return True


def commits(path: Path) -> int:
    """Transactions in the write-ahead log since it was begun: its frames that end one.

    https://www.sqlite.org/fileformat2.html#the_write_ahead_log
    """
    log = path.with_name(path.name + "-wal").read_bytes()
    page_size, salt = struct.unpack(">I", log[8:12])[0], log[16:24]
    frames = range(32, len(log), 24 + page_size)
    return sum(log[at + 8 : at + 16] == salt and log[at + 4 : at + 8] != b"\0\0\0\0" for at in frames)


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():
            await asyncio.sleep(0.005)


def python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Another process that runs the body of an `async def main()`."""
    prelude = """
        import asyncio, os, sys, signal
        from interlock.errors import *
        from interlock.log.event import Event
        from interlock.log.facts import *
        from interlock.log.stores.sqlite.store import SQLiteStore

        def step(seq):
            return Event(seq, 1_700_000_000_000 + seq, 1, StepStart(1, seq))

        async def main():
    """
    program = (
        textwrap.dedent(prelude) + textwrap.indent(textwrap.dedent(code), "    ") + "\nasyncio.run(main())\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE, text=True, **options
    )


def finished(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return output.strip()


# The file


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"INTERLOCK_HOME": "/srv/interlock", "XDG_STATE_HOME": "/x"}, "/srv/interlock/interlock.db"),
        ({"XDG_STATE_HOME": "/x/state"}, "/x/state/interlock/interlock.db"),
        ({"XDG_STATE_HOME": "relative"}, "~/.local/state/interlock/interlock.db"),
        ({"INTERLOCK_HOME": ""}, "~/.local/state/interlock/interlock.db"),
        ({}, "~/.local/state/interlock/interlock.db"),
    ],
)
def test_the_default_file_is_in_the_users_state_folder(environ: dict[str, str], expected: str) -> None:
    assert default_path(environ) == Path(expected).expanduser()


async def test_the_file_is_found_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "home"))
    async with SQLiteStore() as store:
        await store.create("s")
    assert (tmp_path / "home" / "interlock.db").exists()


async def test_nobody_else_may_read_it(tmp_path: Path) -> None:
    umask = os.umask(0)
    try:
        async with SQLiteStore(tmp_path / "new" / "log.db") as store:
            (await store.create("s")).write(steps(1))
            assert _modes(tmp_path / "new") == {
                "new": 0o700,
                "log.db": 0o600,
                "log.db-wal": 0o600,
                "log.db-shm": 0o600,
            }
    finally:
        os.umask(umask)


def _modes(folder: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in (folder, *folder.iterdir())}


async def test_making_a_store_touches_nothing_until_it_is_used(path: Path) -> None:
    store = SQLiteStore(path)
    assert not path.exists()
    await store.close()
    assert not path.exists()


async def test_a_closed_store_leaves_one_file(path: Path) -> None:
    async with SQLiteStore(path) as store:
        (await store.create("s")).write(steps(3))
    assert [file.name for file in path.parent.iterdir()] == ["log.db"]


async def test_the_format_is_written_from_the_first_line_on(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.create("s")
        assert _raw(path, "PRAGMA user_version") == [(FORMAT,)]


async def test_a_database_of_a_newer_version_is_refused_untouched(path: Path) -> None:
    async with SQLiteStore(path) as store:
        (await store.create("s")).write(steps(1))
    _raw(path, f"PRAGMA user_version = {FORMAT + 1}")
    before = path.read_bytes()
    store = SQLiteStore(path)
    for use in (store.create("t"), store.open("s"), store.open("s", readonly=True), store.list()):
        with pytest.raises(NewerFormat, match=f"format {FORMAT + 1}") as caught:
            await use
        assert (caught.value.found, caught.value.known) == (FORMAT + 1, FORMAT)
        assert str(path) in str(caught.value)
    await store.close()
    assert path.read_bytes() == before


async def test_a_file_that_is_no_database_is_refused_untouched(path: Path) -> None:
    path.write_text("This is a letter, not a database.\n" * 100)
    store = SQLiteStore(path)
    with pytest.raises(StoreFailed, match=r"file is not a database.*log\.db"):
        await store.create("s")
    await store.close()
    assert path.read_text().startswith("This is a letter")


async def test_a_folder_that_cannot_be_made_is_said_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SQLiteStore(tmp_path / "file" / "log.db")
    with pytest.raises(StoreFailed, match=r"file/log\.db"):
        await store.list()
    # It can be mended and tried again.
    (tmp_path / "file").unlink()
    assert await store.list() == []
    await store.close()


def _raw(path: Path, statement: str, *values: object) -> list[Any]:
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return connection.execute(statement, values).fetchall()
    finally:
        connection.close()


async def test_the_database_itself_refuses_a_gap(path: Path) -> None:
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        journal.write(steps(3))
        journal.write([Event(3 + i, T0, 1, AssistantChunk(1, "text", text="x")) for i in range(5)])
        await journal.barrier()
        insert = "INSERT INTO event VALUES (?, ?, NULL, 'turn/start', 1, 1, NULL, 0, '{}', NULL)"
        for session, seq in ((1, 9), (1, 7), (1, 4), (1, 0), (1, -1), (2, 0)):
            with pytest.raises(sqlite3.IntegrityError, match="not the next line"):
                _raw(path, insert, session, seq)
        _raw(path, insert, 1, 8)
        assert _raw(path, "SELECT head FROM session") == [(8,)]


# Durability


async def test_a_barrier_waits_only_when_there_is_something_to_wait_for(path: Path) -> None:
    async with SQLiteStore(path) as store:
        one, other = await store.create("one"), await store.create("other")
        assert not suspends(one.barrier())
        one.write(steps(1))
        other.write(steps(1))
        await one.barrier()
        # The barrier of one session has put the lines of the other on disk too.
        assert not suspends(one.barrier())
        assert not suspends(other.barrier())
        other.write(steps(1, first=1))
        assert not suspends(one.barrier())
        assert suspends(other.barrier())


async def test_lines_go_to_disk_by_themselves_and_a_barrier_still_syncs_them(path: Path) -> None:
    async with SQLiteStore(path) as store, SQLiteStore(path) as elsewhere:
        journal = await store.create("s")
        journal.write(steps(2))
        reader = await elsewhere.open("s", readonly=True)

        async def arrived() -> bool:
            return await reader.refresh() == 1

        await eventually(arrived)
        before = commits(path)
        await journal.barrier()
        assert commits(path) == before + 1  # without it nothing would have been synced
        await journal.barrier()
        assert commits(path) == before + 1


async def test_much_at_once_does_not_wait_for_its_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.log.stores.buffered.FLUSH_SECONDS", 3600)
    async with SQLiteStore(path) as store, SQLiteStore(path) as elsewhere:
        journal = await store.create("s")
        reader = await elsewhere.open("s", readonly=True)
        text = "x" * 10_000
        for seq in range(FLUSH_BYTES // len(text) + 1):
            journal.write([Event(seq, T0, 1, AssistantChunk(1, "text", text=text))])

        async def arrived() -> bool:
            return await reader.refresh() >= 0

        await eventually(arrived)


async def test_all_that_waits_is_one_transaction(path: Path) -> None:
    """Group commit, over sessions and over barriers."""
    async with SQLiteStore(path) as store:
        journals = [await store.create(f"s{i}") for i in range(20)]
        before = commits(path)
        for journal in journals:
            journal.write(steps(3))
        await asyncio.gather(*[journal.barrier() for journal in journals])
        assert commits(path) == before + 1
        assert [list(journal.read()) for journal in journals] == [steps(3)] * 20


async def test_a_writer_never_waits_for_the_disk(path: Path) -> None:
    """While another process holds the file, lines are taken and read; only the barrier waits."""
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        holder = sqlite3.connect(path, isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        journal.write(steps(5))
        barrier = asyncio.create_task(journal.barrier())
        await asyncio.sleep(0)
        journal.write(steps(5, first=5))
        assert list(journal.read()) == steps(10)
        assert not barrier.done()
        holder.execute("ROLLBACK")
        holder.close()
        await barrier
        assert list(journal.read()) == steps(10)


async def test_cancelling_a_barrier_stops_only_the_waiting(path: Path) -> None:
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        await journal.barrier()
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")  # so that the store has to wait for its turn to write
            journal.write(steps(1))
            for waiting in (asyncio.create_task(journal.barrier()), asyncio.create_task(journal.close())):
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
            other.execute("ROLLBACK")

        async def free() -> bool:
            try:
                return (await store.open("s")).head == 0
            except SessionError:
                return False

        await eventually(free)


KILLED = """
    store = SQLiteStore(sys.argv[1])
    journal = await store.create("s")
    seq = 0
    for round in range(int(sys.argv[2])):
        for _ in range(7):
            journal.write([step(seq)])
            seq += 1
        await journal.barrier()
    journal.write([Event(seq + i, 1, 1, AssistantChunk(0, "text", text="token")) for i in range(1000)])
    print(seq, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("rounds", [1, 12])
async def test_a_killed_process_loses_nothing_that_was_acknowledged(path: Path, rounds: int) -> None:
    process = python(KILLED, path, rounds)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    acknowledged = int(output)
    async with SQLiteStore(path) as store:
        journal = await store.open("s")
        assert list(journal.read())[:acknowledged] == steps(acknowledged)
        journal.write(steps(1, first=journal.head + 1))
        await journal.barrier()


UNCLOSED = """
    store = SQLiteStore(sys.argv[1])
    journal = await store.create("s")
    journal.write([step(0)])
    await journal.barrier()
    journal.write([step(1)])
"""


async def test_a_store_that_nobody_closed_does_not_hold_the_exit(path: Path) -> None:
    finished(python(UNCLOSED, path))
    async with SQLiteStore(path) as store:
        assert [event.seq for event in (await store.open("s")).read()] in ([0], [0, 1])


# When the disk says no


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of half a megabyte."""
    with disk_of("512k", tmp_path / "disk") as folder:
        yield folder


async def write_until_it_fails(journal: SQLiteJournal) -> tuple[int, list[Event]]:
    """How many lines were acknowledged, and all that were written."""
    acknowledged = 0
    written: list[Event] = []
    with pytest.raises(StoreFailed):
        while len(written) < 10_000:
            fact = RequestHeader("change", "p", "m", {"padding": "x" * 5_000})
            batch = lines(fact, first=len(written))
            journal.write(batch)
            written += batch
            await journal.barrier()
            acknowledged = len(written)
    return acknowledged, written


async def test_a_full_disk_is_reported_and_what_was_acknowledged_is_safe(small_disk: Path) -> None:
    """D-22: an I/O failure surfaces at the barrier, and nothing further is taken."""
    path = small_disk / "log.db"
    store = SQLiteStore(path)
    journal = await store.create("s")
    bystander = await store.create("bystander")
    acknowledged, written = await write_until_it_fails(journal)
    assert 0 < acknowledged < len(written)
    assert journal.failure is not None
    assert "full" in journal.failure.problem
    assert str(path) in journal.failure.problem
    # Nothing more is taken, by any session of this file, and nothing that was in memory is gone.
    for other in (journal, bystander):
        with pytest.raises(StoreFailed, match="full"):
            other.write(steps(1, first=other.head + 1))
    with pytest.raises(StoreFailed, match="full"):
        await store.create("another")
    with pytest.raises(StoreFailed, match="full"):
        await store.open("s")
    assert list(journal.read()) == written
    with pytest.raises(StoreFailed, match="full"):
        await journal.close()
    assert list(journal.read()) == written
    await store.close()
    # With room again, the session goes on from what was acknowledged.
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    async with SQLiteStore(path) as store:
        journal = await store.open("s")
        assert list(journal.read()) == written[: journal.head + 1]
        assert journal.head + 1 >= acknowledged
        journal.write(steps(1, first=journal.head + 1))
        await journal.barrier()


LIMITED = """
    store = SQLiteStore(sys.argv[1])
    journal = await store.create("s")
    try:
        for seq in range(10_000):
            journal.write([step(seq)])
            await journal.barrier()
            print(seq + 1, flush=True)
    except StoreFailed as failure:
        assert journal.failure is not None
        assert journal.head == seq
        assert [event.seq for event in journal.read()] == list(range(seq + 1))
    else:
        raise AssertionError("the limit was never reached")
    try:
        await store.close()
    except StoreFailed:
        print("closed")
"""


async def test_a_file_that_may_not_grow_is_reported_too(path: Path) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, 300_000))

    *counts, closed = finished(python(LIMITED, path, preexec_fn=limit)).split()
    assert closed == "closed"
    acknowledged = int(counts[-1])
    async with SQLiteStore(path) as store:
        journal = await store.open("s")
        assert journal.head + 1 >= acknowledged
        assert list(journal.read()) == steps(journal.head + 1)


READONLY = """
    store = SQLiteStore(sys.argv[1])
    await store.list()
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may write anything
    store = SQLiteStore(sys.argv[1])
    reader = await store.open("s", readonly=True)
    assert [event.seq for event in reader.read()] == [0, 1, 2]
    try:
        await store.open("s")
    except StoreFailed as failure:
        print(failure.problem)
    assert [event.seq for event in reader.read()] == [0, 1, 2]
    os._exit(0)
"""


async def test_a_file_that_may_only_be_read_can_be_read_and_is_not_opened_for_writing() -> None:
    folder = Path(mkdtemp(prefix="interlock-"))  # not below a folder that others may not enter
    try:
        path = folder / "log.db"
        async with SQLiteStore(path) as store:
            (await store.create("s")).write(steps(3))
        folder.chmod(0o777)
        path.chmod(0o444)
        assert "readonly database" in finished(python(READONLY, path))
    finally:
        shutil.rmtree(folder)


async def test_a_deleted_folder_is_noticed_before_anything_is_acknowledged(tmp_path: Path) -> None:
    """The system lets a process go on writing to a file that nobody will find again."""
    path = tmp_path / "gone" / "log.db"
    store = SQLiteStore(path)
    journal = await store.create("s")
    journal.write(steps(2))
    await journal.barrier()
    shutil.rmtree(path.parent)
    journal.write(steps(2, first=2))
    with pytest.raises(StoreFailed, match=r"No such file.*log\.db"):
        await journal.barrier()
    assert list(journal.read()) == steps(4)
    with pytest.raises(StoreFailed):
        await store.close()


async def test_a_replaced_file_is_noticed_too(path: Path) -> None:
    store = SQLiteStore(path)
    journal = await store.create("s")
    path.unlink()
    path.touch()
    journal.write(steps(1))
    with pytest.raises(StoreFailed, match="replaced"):
        await journal.barrier()
    with pytest.raises(StoreFailed):
        await store.close()


async def test_only_the_session_that_another_process_wrote_fails(path: Path) -> None:
    """Without asking for its lease, as other programs could."""
    store = SQLiteStore(path)
    contested, mine = await store.create("contested"), await store.create("mine")
    contested.write(steps(1))
    await contested.barrier()
    insert = "INSERT INTO event VALUES (1, 1, NULL, 'turn/start', 1, 1, NULL, 0, ?, NULL)"
    _raw(path, insert, b'{"turn":7}')
    # Both sessions are in one transaction, and so is what the list shows of them.
    contested.write(steps(2, first=1))
    mine.write(lines(SessionCreated("1.0", "mine", "/home"), StepStart(1, 1)))
    made = asyncio.create_task(store.create("new"))
    await asyncio.sleep(0)
    results = await asyncio.gather(contested.barrier(), mine.barrier(), return_exceptions=True)
    assert isinstance(results[0], StoreFailed)
    assert "another process" in results[0].problem
    assert results[1] is None
    with pytest.raises(StoreFailed, match="another process"):
        contested.write(steps(1, first=3))
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


# Several at a time


async def test_a_store_belongs_to_one_event_loop(path: Path) -> None:
    async with SQLiteStore(path) as store:
        await store.list()

        def from_elsewhere() -> None:
            with pytest.raises(UsageError, match="another event loop"):
                asyncio.run(store.list())

        await asyncio.to_thread(from_elsewhere)


MAKES = """
    async with SQLiteStore(sys.argv[1]) as store:
        journal = await store.create(sys.argv[2])
        for seq in range(50):
            journal.write([step(seq)])
            await journal.barrier()
    print("done")
"""


@pytest.mark.slow
async def test_processes_that_make_the_file_at_once_share_it(path: Path) -> None:
    processes = [python(MAKES, path, f"s{i}") for i in range(4)]
    assert [finished(process) for process in processes] == ["done"] * 4
    async with SQLiteStore(path) as store:
        assert {info.id: info.events for info in await store.list()} == {f"s{i}": 50 for i in range(4)}


@pytest.mark.slow
async def test_a_reader_in_another_process_sees_whole_batches_in_order(path: Path) -> None:
    code = """
        async with SQLiteStore(sys.argv[1]) as store:
            journal = await store.create("s")
            for seq in range(0, 3000, 3):
                journal.write([step(seq), step(seq + 1), step(seq + 2)])
                if seq % 10 == 0:
                    await journal.barrier()
    """
    async with SQLiteStore(path) as store:
        await store.list()
        with python(code, path) as process:

            async def begun() -> bool:
                return bool(await store.list())

            await eventually(begun)
            reader = await store.open("s", readonly=True)
            while reader.head < 2999:
                assert process.poll() in (None, 0)
                head = await reader.refresh()
                assert (head + 1) % 3 == 0
                first = max(0, head - 5)
                assert list(reader.read(first)) == steps(head + 1 - first, first=first)
            assert list(reader.read()) == steps(3000)
        assert process.returncode == 0


async def test_a_reader_never_sees_a_gap_or_a_duplicate_while_lines_go_to_disk(path: Path) -> None:
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        written = 0
        barriers = set()
        for _ in range(300):
            journal.write(steps(3, first=written))
            written += 3
            barriers.add(asyncio.create_task(journal.barrier()))
            await asyncio.sleep(0)
            first = max(0, written - 20)
            assert [event.seq for event in journal.read(first)] == list(range(first, written))
        await asyncio.gather(*barriers)
        assert list(journal.read()) == steps(written)


# Big values


async def test_big_texts_are_kept_once_beside_the_log(path: Path) -> None:
    text = "".join(f"line {i}\n" for i in range(20_000))
    assert len(text) > LIMIT
    reference = {"artifact": "0" * 64, "bytes": 1, "media_type": "text/plain", "preview": ""}
    log = lines(
        StepStart(1, 1),
        ToolResulted(0, "c1", (Text(text), Text("short")), meta=reference),
        ToolResulted(0, "c2", (Text(text),), meta={"again": [text, reference]}),
        ToolResulted(0, "c3", (Text(text[:-1]),)),
    )
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        journal.write(log)
        assert list(journal.read()) == log  # from memory
        await journal.barrier()
        assert list(journal.read()) == log  # from disk
        assert list(journal.read(2, 2)) == log[2:3]
        assert (await store.list())[0].bytes < 5_000
    assert _raw(path, "SELECT count(*) FROM artifact") == [(2,)]
    assert _raw(path, "SELECT first FROM event WHERE artifacts IS NOT NULL") == [(1,), (2,), (3,)]


async def test_what_is_missing_is_said_by_its_line(path: Path) -> None:
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        journal.write(steps(3))
        journal.write(lines(ToolResulted(0, "c1", (Text("x" * (LIMIT + 1)),)), first=3))
        await journal.barrier()
        _raw(path, "DELETE FROM artifact")
        with pytest.raises(UnreadableLog, match="Event 3 cannot be read: its artifact") as caught:
            list(journal.read())
        assert caught.value.seq == 3
        _raw(path, "UPDATE event SET causes = '[x' WHERE first = 1")
        with pytest.raises(UnreadableLog, match="Event 1 cannot be read: step/start"):
            list(journal.read())
        _raw(path, "UPDATE event SET causes = NULL WHERE first = 1")
        _raw(path, "DELETE FROM event WHERE first >= 2")
        with pytest.raises(UnreadableLog, match="Event 2 cannot be read: it is missing"):
            list(journal.read())
        reader = await store.open("s", readonly=True)
        _raw(path, "DELETE FROM session")
        with pytest.raises(UnknownSession):
            await reader.refresh()
        _raw(path, "DROP TABLE event")
        with pytest.raises(SessionError, match=r"cannot be read: no such table: event \(.*log\.db\)"):
            list(journal.read())


async def test_a_journal_is_not_read_after_its_store_was_closed(path: Path) -> None:
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        journal.write(steps(600))
        await journal.barrier()
        begun = journal.read()
        next(begun)
    with pytest.raises(StoreClosed):
        list(begun)
    with pytest.raises(StoreClosed):
        list(journal.read())


async def test_an_ordinary_line_is_small(path: Path) -> None:
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        content = (Text("a line of some tool's output\n" * 4),)
        for seq in range(2_000):
            fact = (
                StepStart(1, seq) if seq % 2 else ToolResulted(seq, f"call_{seq}", content, meta={"code": 0})
            )
            journal.write([Event(seq, T0 + seq, 1, fact, causes=(seq - 1,) if seq else ())])
            if seq % 5 == 0:
                await journal.barrier()

    assert path.stat().st_size < 2_000 * 300


async def test_the_log_beside_the_file_stays_small(path: Path) -> None:
    """A sync takes longer where a file grows: what is in the log is taken over often, and the log written again."""
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        for event in steps(250):
            journal.write([event])
            await journal.barrier()
        size = path.with_name("log.db-wal").stat().st_size
        assert size < 1_200_000, "with two pages a barrier, it was not taken over"
        assert len(list(journal.read())) == 250


async def test_a_file_of_before_learns_which_approvals_are_open(tmp_path: Path) -> None:
    """What an earlier version has written is looked through once; from then on the file keeps it by itself."""
    path = tmp_path / "log.db"
    asked = [ApprovalAsked(id_, 0, "sure?", {}, "d") for id_ in ("a1", "a2", "a3")]
    async with SQLiteStore(path) as store:
        journal = await store.create("s")
        decided = ApprovalDecided("a1", 0, "d", "rejected")
        journal.write([Event(seq, 1, 1, fact) for seq, fact in enumerate([*asked, decided])])
    with closing(sqlite3.connect(path)) as before:
        for trigger in ("approvals_open", "approvals_close", "erasure_is_noted"):
            before.execute(f"DROP TRIGGER {trigger}")
        before.execute("DROP INDEX lines_with_artifacts")
        for table in ("open_approval", "lease", "letter", "checkpoint"):
            before.execute(f"DROP TABLE {table}")
        for column in ("fence", "posted", "erased"):
            before.execute(f"ALTER TABLE session DROP COLUMN {column}")
        before.execute("PRAGMA user_version = 1")
        before.commit()
    async with SQLiteStore(path) as store:
        assert await store.approvals() == [("s", 1), ("s", 2)]
        journal = await store.open("s")
        journal.write([Event(4, 1, 1, ApprovalDecided("a2", 0, "d", "cancelled"))])
        await journal.barrier()
        assert await store.approvals() == [("s", 2)]
