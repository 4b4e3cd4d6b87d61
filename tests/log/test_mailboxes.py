"""The mailbox of a session in every store: letters are numbered without a gap, on disk, and lost by nobody's end."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import MailboxFull, SessionErased, StoreClosed, StoreFailed, UnknownSession
from interlock.log.facts import ContentErased, InboxSpliced, MailTaken, SessionCreated, SessionOpened, Stamp
from interlock.log.messages import Message
from interlock.log.stores.jsonl import mail as jsonl_mail
from interlock.log.stores.jsonl.mail import mail_path
from interlock.log.stores.jsonl.store import JSONLStore
from interlock.log.stores.memory.store import MemoryStore
from interlock.log.stores.postgres.store import PostgresStore
from interlock.log.stores.sqlite.mail import WAITING
from interlock.log.stores.sqlite.store import SQLiteStore
from interlock.log.stores.store import Journal, Letter
from interlock.log.transfer import exported, import_export
from interlock.loop.mailbox import Mailbox

from .conftest import AnyStore
from .store_lines import T0, lines, steps

SCRIPT = Path(__file__).with_name("posting_process.py")


async def made(store: AnyStore, session_id: str = "s") -> Journal:
    journal: Journal = await store.create(session_id)
    journal.write(steps(1))
    await journal.barrier()
    return journal


async def take(journal: Journal, last: int) -> None:
    """What whoever drives does: the log says what became of the letters up to this one, and they are forgotten."""
    journal.write(lines(MailTaken(Stamp(last, T0), "cancel"), first=journal.head + 1))
    await journal.barrier()
    await journal.forget_letters(last)


async def told(journal: Journal) -> asyncio.Event:
    """Set whenever there may be letters."""
    event = asyncio.Event()
    journal.on_letter(event.set)
    return event


# What all stores promise


async def test_letters_are_numbered_from_1_and_kept_until_they_are_forgotten(store: AnyStore) -> None:
    async with store:
        journal = await made(store)
        assert await journal.letters(0) == []
        assert [await store.post("s", bytes([n]), time=T0 + n) for n in range(3)] == [1, 2, 3]
        assert await journal.letters(0) == [Letter(n + 1, T0 + n, bytes([n])) for n in range(3)]
        assert [letter.number for letter in await journal.letters(2)] == [3]
        for _ in range(2):
            await take(journal, 2)
            assert [letter.number for letter in await journal.letters(0)] == [3]
        await journal.close()
        # As others see it, and whoever opens it next.
        for readonly in (True, False):
            again = await store.open("s", readonly=readonly)
            assert [letter.number for letter in await again.letters(0)] == [3]
        assert await store.post("s", b"", time=T0) == 4


async def test_a_mailbox_is_its_sessions_own(store: AnyStore) -> None:
    async with store:
        first, second = await made(store), await made(store, "t")
        assert await store.post("s", b"for s", time=T0) == 1
        assert await store.post("t", b"for t", time=T0) == 1
        assert [letter.data for letter in await first.letters(0)] == [b"for s"]
        await take(first, 1)
        assert [letter.data for letter in await second.letters(0)] == [b"for t"]


async def test_nobody_can_post_to_a_session_that_is_not_there(store: AnyStore) -> None:
    async with store:
        await made(store)
        for nobody in ("nobody", "no\0body", "no\ud800body", "x" * 300):
            with pytest.raises(UnknownSession) as caught:
                await store.post(nobody, b"", time=T0)
            assert caught.value.session_id == nobody
    with pytest.raises(StoreClosed):
        await store.post("s", b"", time=T0)


async def test_a_mailbox_is_bounded(store: AnyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("memory.store", "sqlite.mail", "jsonl.mail", "postgres.mail"):
        monkeypatch.setattr(f"interlock.log.stores.{module}.MAX_LETTERS", 3)
    async with store:
        journal = await made(store)
        assert [await store.post("s", b"x", time=T0) for _ in range(3)] == [1, 2, 3]
        for _ in range(2):
            with pytest.raises(MailboxFull) as caught:
                await store.post("s", b"x", time=T0)
            assert (caught.value.session_id, caught.value.limit) == ("s", 3)
        await take(journal, 1)
        assert await store.post("s", b"x", time=T0) == 4, "what was refused has no number"


async def test_no_number_is_given_again_that_the_log_has(store: AnyStore) -> None:
    """Of a session that came from another store, this one has not counted the letters."""
    async with store:
        journal = await store.create("s")
        await journal.forget_letters(7)
        journal.write(
            lines(
                SessionCreated("1.2", "s"), SessionOpened(1, "new"), MailTaken(Stamp(7, T0), "cancel", "ada")
            )
        )
        await journal.close()
        assert await store.post("s", b"", time=T0) == 8
        assert [letter.number for letter in await (await store.open("s")).letters(7)] == [8]


async def test_letters_that_wait_are_not_exported_and_an_import_goes_on_counting(
    store: AnyStore, tmp_path: Path
) -> None:
    source = MemoryStore()
    journal = await source.create("s")
    journal.write(
        lines(
            SessionCreated("1.2", "s"),
            SessionOpened(1, "new"),
            MailTaken(Stamp(6, T0), "cancel", "ada"),
            InboxSpliced("next-step", 0, 0, (Message.user("x", id="m"),), letter=Stamp(7, T0)),
        )
    )
    await source.post("s", b"waits", time=T0)
    file = io.BytesIO(b"".join(exported(journal.read())))
    async with store:
        await import_export(file, store=store, path=tmp_path / "s.jsonl")
        assert await store.post("s", b"more", time=T0) == 8
        assert await (await store.open("s")).letters(0) == [Letter(8, T0, b"more")]


async def test_whoever_drives_is_told_of_letters(store: AnyStore) -> None:
    async with store:
        journal = await made(store)
        await store.post("s", b"before", time=T0)
        event = await told(journal)
        async with asyncio.timeout(60):
            await event.wait()  # of what was there before
            await take(journal, 1)
            for number in range(2, 6):
                event.clear()
                assert await store.post("s", b"more", time=T0) == number
                await event.wait()
                assert [letter.number for letter in await journal.letters(number - 1)] == [number]
                await take(journal, number)
        journal.on_letter(None)
        event.clear()
        await store.post("s", b"nobody hears", time=T0)
        await journal.close()
        assert not event.is_set()


async def test_whoever_has_not_forgotten_is_told_again(store: AnyStore) -> None:
    if not store.durable or isinstance(store, PostgresStore):
        pytest.skip("it cannot be that nobody has heard")
    async with store:
        journal = await made(store)
        event = await told(journal)
        await store.post("s", b"x", time=T0)
        async with asyncio.timeout(60):
            for _ in range(3):
                await event.wait()
                event.clear()


async def test_whoever_waits_for_a_letter_hears_that_the_session_was_erased(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store:
        journal = await made(store)
        await journal.close()
        posted = await Mailbox("s", store=store).inject("it goes as well")
        reading, open_ = asyncio.Event(), store.open

        async def opened(*arguments: Any, **more: Any) -> Any:
            journal = await open_(*arguments, **more)
            reading.set()
            return journal

        monkeypatch.setattr(store, "open", opened)
        taken = asyncio.create_task(posted.taken())
        await reading.wait()
        await store.erase([ContentErased("s", "er-1", "ada")], time=T0)
        with pytest.raises(SessionErased, match="by ada"):
            async with asyncio.timeout(60):
                await taken


async def test_another_store_tells_whoever_drives(
    make_store: Callable[[Path], AnyStore], tmp_path: Path
) -> None:
    driving = make_store(tmp_path)
    if not driving.durable:
        pytest.skip("nobody else can reach it")
    sending = same(driving)
    async with driving, sending:
        journal = await made(driving)
        event = await told(journal)
        assert await sending.post("s", b"hello", time=T0) == 1
        async with asyncio.timeout(60):
            await event.wait()
        assert await journal.letters(0) == [Letter(1, T0, b"hello")]
        await take(journal, 1)
        assert await driving.post("s", b"own", time=T0) == 2
        assert await sending.post("s", b"again", time=T0) == 3


def same(store: AnyStore) -> AnyStore:
    """Another store of the same sessions."""
    if isinstance(store, SQLiteStore):
        return SQLiteStore(store.path)
    if isinstance(store, JSONLStore):
        return JSONLStore(store.folder)
    assert isinstance(store, PostgresStore)
    database: Any = store._database
    made = PostgresStore("dbname=x", schema=database.schema)
    made._database = database
    return made


actions = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.binary(max_size=20)),
        st.tuples(
            st.just("post"), st.sampled_from([b'{"a":[1, 2]}', b"1\n", b" 1", b'"\xc3\xa4"', b"1e999"])
        ),
        st.tuples(st.just("forget"), st.integers(0, 3)),
        st.tuples(st.just("reopen"), st.just(0)),
    ),
    max_size=14,
)


@pytest.mark.slow
@settings(deadline=None, max_examples=25)
@given(actions)
def test_any_course_of_posting_and_forgetting(
    make_store: Callable[[Path], AnyStore], tmp_path_factory: pytest.TempPathFactory, course: list[Any]
) -> None:
    async def main() -> None:
        folder = tmp_path_factory.mktemp("mail")
        store = make_store(folder)
        posted, forgotten = 0, 0
        waiting: dict[int, bytes] = {}
        async with store:
            journal = await made(store)
            for what, value in course:
                if what == "post":
                    posted += 1
                    assert await store.post("s", value, time=T0) == posted
                    waiting[posted] = value
                elif what == "forget":
                    # Only what the log has is forgotten, and only by whoever writes it.
                    forgotten = min(forgotten + value, posted)
                    await take(journal, forgotten)
                    waiting = {number: data for number, data in waiting.items() if number > forgotten}
                else:
                    await journal.close()
                    journal = await store.open("s")
                assert {letter.number: letter.data for letter in await journal.letters(0)} == waiting

    asyncio.run(main())


# Several processes


def address(store: AnyStore) -> list[str]:
    if isinstance(store, SQLiteStore):
        return ["sqlite", str(store.path)]
    if isinstance(store, JSONLStore):
        return ["jsonl", str(store.folder)]
    assert isinstance(store, PostgresStore)
    database: Any = store._database
    return ["postgres", database._options["host"], database.schema]


def posting(store: AnyStore, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, str(SCRIPT), *address(store), *arguments]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
async def test_several_processes_post_at_once(make_store: Callable[[Path], AnyStore], tmp_path: Path) -> None:
    """The numbers have no gap, none is given twice, and each letter is there under its own."""
    store = make_store(tmp_path)
    if not store.durable:
        pytest.skip("nobody else can reach it")
    async with store:
        journal = await made(store)
        running = [posting(store, name, "40") for name in ("a", "b", "c", "d")]
        said: dict[int, str] = {}
        for process in running:
            output, _ = await asyncio.to_thread(process.communicate, "go\n")
            assert process.returncode == 0
            for line in output.splitlines():
                number, text = line.split()
                said[int(number)] = text
        assert sorted(said) == list(range(1, 161))
        assert {letter.number: letter.data.decode() for letter in await journal.letters(0)} == said


@pytest.mark.slow
async def test_a_sender_that_is_killed_after_its_acknowledgement_has_lost_nothing(
    make_store: Callable[[Path], AnyStore], tmp_path: Path
) -> None:
    store = make_store(tmp_path)
    if not store.durable:
        pytest.skip("nobody else can reach it")
    async with store:
        journal = await made(store)
        await journal.close()
    for n in range(5):
        process = posting(store, f"try{n}", "1000")
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("go\n")
        process.stdin.flush()
        acknowledged = [process.stdout.readline().split() for _ in range(3)]
        process.kill()
        rest = process.communicate()[0].splitlines()
        acknowledged += [line.split() for line in rest if len(line.split()) == 2]
        async with same(store) as looking:
            journal = await looking.open("s")
            found = {letter.number: letter.data.decode() for letter in await journal.letters(0)}
            assert {int(number): text for number, text in acknowledged}.items() <= found.items()
            assert sorted(found) == list(range(min(found), max(found) + 1))
            last = max(found)
            await take(journal, last)
            await journal.close()


# JSONL


async def test_half_a_letter_is_cut_off_and_a_broken_one_is_shown(tmp_path: Path) -> None:
    async with JSONLStore(tmp_path) as store:
        journal = await made(store)
        assert await store.post("s", b"whole", time=T0) == 1
        path = mail_path(tmp_path / "s.jsonl")
        with path.open("ab") as file:
            file.write(b'{"number":2,"time":')  # a sender was killed; it was acknowledged to nobody
        assert [letter.number for letter in await journal.letters(0)] == [1]
        assert await store.post("s", b"next", time=T0) == 2
        with path.open("ab") as file:
            file.write(b"what is this\n")
        assert await store.post("s", b"last", time=T0) == 4
        assert [(letter.number, letter.data) for letter in await journal.letters(0)] == [
            (1, b"whole"),
            (2, b"next"),
            (3, b"what is this"),
            (4, b"last"),
        ]


async def test_a_file_of_letters_is_there_only_while_they_wait(tmp_path: Path) -> None:
    """And is only its owner's."""
    async with JSONLStore(tmp_path) as store:
        journal = await store.create("a/b")
        journal.write(lines(SessionCreated("1.2", "a/b"), SessionOpened(1, "new")))
        await journal.barrier()
        await store.post("a/b", b"x", time=T0)
        (path,) = (tmp_path / "mail").iterdir()
        assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
        await take(journal, 1)
        assert list(path.parent.iterdir()) == []
        assert await store.post("a/b", b"y", time=T0) == 2, "the log says how far it was"
        assert [info.id for info in await store.list()] == ["a/b"]


def numbered(*numbers: int) -> list[bytes]:
    return [b'{"number":%d,"time":1,"data":{}}' % number for number in numbers]


@given(
    st.lists(st.one_of(st.integers(-1, 9).map(lambda n: numbered(n)[0]), st.just(b"?"))), st.integers(0, 9)
)
def test_whatever_stands_in_a_file_of_letters_is_read_in_order(file: list[bytes], after: int) -> None:
    numbers = [letter.number for letter in jsonl_mail._letters_in(file, after)]
    assert numbers == sorted(set(numbers)) and all(number > after for number in numbers)


@given(st.lists(st.integers(0, 2), min_size=9, max_size=9), st.integers(0, 9))
def test_what_stands_between_letters_hides_none(odd: list[int], after: int) -> None:
    posted = numbered(*range(1, 9))
    file = [line for count, one in zip(odd, posted, strict=False) for line in (*[b"?"] * count, one)]
    found = jsonl_mail._letters_in(file + [b"?"] * odd[8], after)
    assert [letter.number for letter in found if letter.time == 1] == [*range(after + 1, 9)]
    assert len([letter for letter in found if letter.time == 0]) == odd[8], (
        "the last may be one that was spoilt"
    )


async def test_a_line_that_is_no_letter_takes_no_number_that_was_given(tmp_path: Path) -> None:
    async with JSONLStore(tmp_path) as store:
        journal = await made(store)
        for number in (1, 2, 3):
            await store.post("s", b"%d" % number, time=T0)
        path = mail_path(tmp_path / "s.jsonl")
        first, *rest = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([first, b"what is this\n", *rest]))
        assert [letter.data for letter in await journal.letters(0)] == [b"1", b"2", b"3"]
        # Of a file that does not say how far it was, the log does.
        await take(journal, 3)
        path.write_bytes(b"what is this\n")
        assert [(letter.number, letter.data) for letter in await journal.letters(3)] == [(4, b"what is this")]
        assert await store.post("s", b"5", time=T0) == 5
        await take(journal, 4)
        assert [(letter.number, letter.data) for letter in await journal.letters(4)] == [(5, b"5")]


async def test_a_letter_is_not_seen_before_it_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be taken though its sender hears that it was not sent, and its number be given again."""

    def fails(file: int) -> None:
        if os.fstat(file).st_size and stat.S_ISREG(os.fstat(file).st_mode):
            with pytest.raises(TimeoutError):
                jsonl_mail.letters(tmp_path / "s.jsonl", 0)
            seen.append(True)
            raise OSError(errno.EIO, "no disk")

    seen: list[bool] = []
    async with JSONLStore(tmp_path) as store:
        journal = await made(store)
        monkeypatch.setattr(jsonl_mail, "_PATIENCE", -1.0)
        monkeypatch.setattr(jsonl_mail, "os", Fake(fsync=fails))
        with pytest.raises(StoreFailed, match="no disk"):
            await store.post("s", b"x", time=T0)
        monkeypatch.undo()
        assert seen and await journal.letters(0) == []
        assert await store.post("s", b"y", time=T0) == 1


class Fake:
    """`os`, but for this."""

    def __init__(self, **instead: Any) -> None:
        self.__dict__.update(instead)

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


async def test_a_fork_in_a_folder_counts_its_own_letters(tmp_path: Path) -> None:
    async with JSONLStore(tmp_path) as store:
        journal = await store.create("s")
        journal.write(
            lines(
                SessionCreated("1.2", "s"),
                SessionOpened(1, "new"),
                MailTaken(Stamp(5, T0), "cancel"),
                SessionOpened(2, "fork"),
            )
        )
        await journal.close()
        assert await store.post("s", b"", time=T0) == 1


# Rows that somebody has put there by hand


@pytest.mark.parametrize("row", [("x", T0, b""), (1.5, T0, b""), (1, "x", b""), (1, 1.5, b""), (1, T0, 5)])
async def test_no_row_can_be_put_there_that_the_log_could_not_take(tmp_path: Path, row: Any) -> None:
    async with SQLiteStore(tmp_path / "log.db") as store:
        await made(store)
        with (
            closing(sqlite3.connect(store.path)) as connection,
            pytest.raises(sqlite3.IntegrityError, match="CHECK"),
        ):
            connection.execute("INSERT INTO letter SELECT key, ?, ?, ? FROM session", row)


async def test_a_letter_comes_after_all_that_are_there(store: AnyStore) -> None:
    """Else it would be forgotten with one that has a higher number, though nobody has taken it."""
    if isinstance(store, SQLiteStore):

        def put() -> None:
            with closing(sqlite3.connect(store.path)) as connection:
                connection.execute("INSERT INTO letter SELECT key, 9, 1, x'3f' FROM session")
                connection.commit()
    elif isinstance(store, PostgresStore):

        def put() -> None:
            database = store._database
            with database.connect() as connection:
                connection.execute(
                    database.sql("INSERT INTO {s}.letter SELECT key, 9, 1, '\\x3f'::bytea FROM {s}.session")
                )
    else:
        pytest.skip("it has no rows")
    async with store:
        journal = await made(store)
        assert await store.post("s", b"", time=T0) == 1
        await asyncio.to_thread(put)
        assert await store.post("s", b"", time=T0) == 10
        assert [letter.number for letter in await journal.letters(0)] == [1, 9, 10]


# One look for all


@given(counts=st.lists(st.integers(0, 3), max_size=6))
def test_the_look_finds_each_session_that_has_letters_once(counts: list[int]) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.execute(
            "CREATE TABLE letter (session, number, PRIMARY KEY (session, number)) WITHOUT ROWID"
        )
        for session, count in enumerate(counts):
            connection.executemany("INSERT INTO letter VALUES (?, ?)", [(session, n) for n in range(count)])
        found = [session for (session,) in connection.execute(WAITING)]
        assert found == [session for session, count in enumerate(counts) if count]


async def test_all_open_sessions_are_looked_at_as_one(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "log.db") as store:
        journals = [await made(store, f"s{n}") for n in range(12)]
        looks = 0
        look: Any = store._mail._look

        def counted() -> Any:
            nonlocal looks
            looks += 1
            return look()

        store._mail._look = counted
        heard = [await told(journal) for journal in journals]
        async with same(store) as sending:
            await sending.post("s7", b"x", time=T0)
        async with asyncio.timeout(60):
            await heard[7].wait()
        assert not any(event.is_set() for n, event in enumerate(heard) if n != 7)
        assert 0 < looks < 20
        for journal in journals:
            journal.on_letter(None)
        assert store._mail._timer is None, "nobody listens: nobody looks"
