"""What only the store of files can show: what is in the folder, and what happens to it."""

# ruff: noqa: ASYNC110, ASYNC221, ASYNC240  # a test may block its loop: nothing else runs there

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import (
    SessionBusy,
    SessionError,
    StoreClosed,
    StoreFailed,
    UnknownSession,
    UnreadableLog,
    UsageError,
)
from interlock.log.artifacts import LIMIT
from interlock.log.event import Event, encode_event
from interlock.log.facts import AssistantChunk, RequestHeader, ToolResulted, TurnStart
from interlock.log.messages import Text
from interlock.log.stores.jsonl.file import MARK
from interlock.log.stores.jsonl.store import JSONLStore

from .fact_strategies import logs
from .store_lines import disk_of, lines, steps


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


async def written(folder: Path, *events: Event) -> Path:
    """A session of these lines, closed; its file."""
    async with JSONLStore(folder) as store:
        (await store.create("s")).write(events)
    return folder / "s.jsonl"


# The folder


async def test_a_line_is_what_the_log_command_prints(folder: Path) -> None:
    log = [
        *steps(3),
        *lines(AssistantChunk(1, "text", text="Größe"), AssistantChunk(1, "text", text="."), first=3),
    ]
    path = await written(folder, *log)
    assert path.read_bytes() == b"".join([encode_event(event) + b"\n" for event in log])


@settings(deadline=None, max_examples=40)
@given(logs())
def test_any_line_is_what_the_log_command_prints(log: list[Event]) -> None:
    with TemporaryDirectory() as folder:
        path = asyncio.run(written(Path(folder), *log))
        assert path.read_bytes() == b"".join([encode_event(event) + b"\n" for event in log])


async def test_nobody_else_may_read_it(folder: Path) -> None:
    umask = os.umask(0)
    try:
        await written(folder, *steps(1), *lines(ToolResulted(0, "c", (Text("x" * (LIMIT + 1)),)), first=1))
    finally:
        os.umask(umask)
    modes = {
        path.relative_to(folder): stat.S_IMODE(path.stat().st_mode) for path in [folder, *folder.rglob("*")]
    }
    (artifact,) = (folder / "artifacts").iterdir()
    assert modes == {
        Path("."): 0o700,
        Path("s.jsonl"): 0o600,
        Path("artifacts"): 0o700,
        artifact.relative_to(folder): 0o600,
        Path("index"): 0o700,
        Path("index/s.json"): 0o600,
    }


async def test_making_a_store_touches_nothing_until_it_is_used(folder: Path) -> None:
    await JSONLStore(folder).close()
    assert not folder.exists()


async def test_other_files_in_the_folder_are_left_alone(folder: Path) -> None:
    await written(folder, *steps(1))
    for name in ("notes.txt", "no%zz.jsonl", ".jsonl", ".swp.jsonl"):
        (folder / name).write_text("mine")
    async with JSONLStore(folder) as store:
        assert [info.id for info in await store.list()] == ["s"]
        assert await store.approvals() == []


async def test_an_id_that_makes_no_file_name_is_refused(folder: Path) -> None:
    async with JSONLStore(folder) as store:
        for session_id in ("", "x" * 300, "\ud800"):
            with pytest.raises(UsageError, match="no file for a session"):
                await store.create(session_id)
            with pytest.raises(UnknownSession):
                await store.open(session_id)


# Durability


def counting_syncs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of what is synced from now on: `file` or `folder`."""
    synced: list[str] = []
    fsync = os.fsync

    def counted(file: int) -> None:
        synced.append("folder" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        fsync(file)

    monkeypatch.setattr(os, "fsync", counted)
    return synced


async def test_a_barrier_is_one_sync_and_the_first_one_syncs_the_folder(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with JSONLStore(folder) as store:
        journal = await store.create("s")
        synced = counting_syncs(monkeypatch)
        for _ in range(3):
            journal.write(steps(5, first=journal.head + 1))
            await asyncio.gather(*[journal.barrier() for _ in range(4)])
        assert synced == ["file", "folder", "file", "file"]
        await journal.barrier()
        assert len(synced) == 4


async def test_one_sessions_barrier_does_not_wait_for_anothers_lines(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with JSONLStore(folder) as store:
        one, other = await store.create("one"), await store.create("other")
        for journal in (one, other):
            journal.write(steps(1))
            await journal.barrier()
        synced = counting_syncs(monkeypatch)
        one.write(steps(1, first=1))
        other.write(steps(1, first=1))
        await one.barrier()
        assert synced == ["file"]
        await other.barrier()
        assert synced == ["file", "file"]


async def test_a_big_text_is_on_disk_before_the_line_that_names_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with JSONLStore(folder) as store:
        journal = await store.create("s")
        synced = counting_syncs(monkeypatch)
        journal.write(lines(ToolResulted(0, "c", (Text("x" * (LIMIT + 1)),))))
        await journal.barrier()
        assert synced == ["file", "folder", "file", "folder"]  # the artifact and its folder, then the session


def test_big_texts_are_kept_once_under_their_digest(folder: Path) -> None:
    import hashlib

    text = "x" * (LIMIT + 1)
    result = [ToolResulted(0, f"c{i}", (Text(text),)) for i in range(3)]
    path = asyncio.run(written(folder, *lines(*result)))
    (artifact,) = (folder / "artifacts").iterdir()
    assert artifact.name == hashlib.sha256(text.encode()).hexdigest()
    assert artifact.read_text() == text
    assert path.stat().st_size < 3 * 1000


PRELUDE = """
    import asyncio, os, sys, signal
    from interlock.errors import *
    from interlock.log.event import Event
    from interlock.log.facts import *
    from interlock.log.stores.jsonl.store import JSONLStore

    def step(seq):
        return Event(seq, 1_700_000_000_000 + seq, 1, StepStart(1, seq))

    async def main():
"""


def python(code: str, *arguments: object, **options: Any) -> subprocess.Popen[str]:
    """Another process that runs the body of an `async def main()`."""
    body = textwrap.indent(textwrap.dedent(code), "    ")
    program = f"{textwrap.dedent(PRELUDE)}{body}\nasyncio.run(main())\n"
    return subprocess.Popen(
        [sys.executable, "-c", program, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stdin=subprocess.PIPE,
        text=True,
        **options,
    )


KILLED = """
    store = JSONLStore(sys.argv[1])
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
async def test_a_killed_process_loses_nothing_that_was_acknowledged(folder: Path, rounds: int) -> None:
    process = python(KILLED, folder, rounds)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    async with JSONLStore(folder) as store:
        journal = await store.open("s")
        assert list(journal.read())[: int(output)] == steps(int(output))
        journal.write(steps(1, first=journal.head + 1))
        await journal.barrier()


# What a crash leaves


@settings(deadline=None, max_examples=40)
@given(logs(), st.data())
def test_a_file_that_was_cut_anywhere_has_its_whole_lines(log: list[Event], data: st.DataObject) -> None:
    """Read-only it is left as it is; the next writer goes on after the last whole line."""

    async def play(folder: Path) -> None:
        path = await written(folder, *log)
        content = path.read_bytes()
        cut = content[: data.draw(st.integers(0, len(content)))]
        path.write_bytes(cut)
        left = log[: cut.count(b"\n")]
        for _ in range(2):
            async with JSONLStore(folder) as store:
                assert list((await store.open("s", readonly=True)).read()) == left
                assert [info.events for info in await store.list()] == ([len(left)] if left else [])
            assert path.read_bytes() == cut
            shutil.rmtree(folder / "index", ignore_errors=True)
        async with JSONLStore(folder) as store:
            journal = await store.open("s")
            assert list(journal.read()) == left
            journal.write(steps(1, first=len(left)))
            await journal.close()
            assert list(journal.read())[:-1] == left
        assert path.read_bytes().startswith(cut[: cut.rfind(b"\n") + 1])

    with TemporaryDirectory() as name:
        asyncio.run(play(Path(name)))


@pytest.mark.parametrize(
    ("broken", "problem"),
    [
        (b'{"seq":2,"type":"step/start","time":1,"life":1,"data":', "truncated"),
        (b"", "truncated"),
        (b'{"seq":1,"type":"turn/start","time":1,"life":1,"data":{"turn":1}}', "numbered 1"),
        (b'{"seq":2,"type":"turn/start","time":1,"life":1,"data":{"turn":1},"mine":1}', "mine"),
    ],
    ids=["cut", "empty", "another number", "another field"],
)
@pytest.mark.parametrize("readonly", [True, False])
async def test_a_broken_line_is_named_with_its_file(
    folder: Path, broken: bytes, problem: str, readonly: bool
) -> None:
    path = await written(folder, *steps(5))
    content = path.read_bytes().splitlines()
    content[2] = broken
    path.write_bytes(b"\n".join([*content, b""]))
    shutil.rmtree(folder / "index")
    async with JSONLStore(folder) as store:
        with pytest.raises(UnreadableLog, match=rf"Event 2 .*{problem}.*line 3 of .*s\.jsonl") as caught:
            await store.open("s", readonly=readonly)
        assert caught.value.seq == 2
        # The list shows what comes before it, and the file is as it was.
        assert [info.events for info in await store.list()] == [2]
    assert path.read_bytes() == b"\n".join([*content, b""])


async def test_a_line_that_was_broken_after_it_was_indexed_is_named_when_it_is_read(folder: Path) -> None:
    path = await written(folder, *steps(5))
    content = path.read_bytes()
    path.write_bytes(content.replace(b'"step":1', b'"step":"', 1))
    async with JSONLStore(folder) as store:
        reader = await store.open("s", readonly=True)
        with pytest.raises(UnreadableLog, match=r"Event 1 .*line 2 of .*s\.jsonl"):
            list(reader.read())
        assert list(reader.read(2)) == steps(3, first=2)


async def test_an_artifact_that_is_missing_is_named_with_its_line(folder: Path) -> None:
    await written(folder, *steps(1), *lines(ToolResulted(0, "c", (Text("x" * (LIMIT + 1)),)), first=1))
    (artifact,) = (folder / "artifacts").iterdir()
    artifact.unlink()
    async with JSONLStore(folder) as store:
        reader = await store.open("s", readonly=True)
        with pytest.raises(UnreadableLog, match=rf"Event 1 .*artifact {artifact.name} is missing.*line 2 of"):
            list(reader.read())


# The index


def damage(index: Path, how: str) -> None:
    known = msgspec.json.decode(index.read_bytes())
    match how:
        case "gone":
            index.unlink()
        case "empty":
            index.write_bytes(b"")
        case "another file's":
            index.write_bytes(msgspec.json.encode({**known, "size": known["size"] - 9}))
        case "longer than the file":
            index.write_bytes(msgspec.json.encode({**known, "size": known["size"] + 9}))
        case "short of marks":
            index.write_bytes(msgspec.json.encode({**known, "marks": known["marks"][:-1]}))
        case "no numbers":
            index.write_bytes(b'{"size":"many"}')


@pytest.mark.parametrize(
    "how", ["gone", "empty", "another file's", "longer than the file", "short of marks", "no numbers"]
)
async def test_an_index_that_does_not_fit_is_not_used(folder: Path, how: str) -> None:
    log = steps(3 * MARK + 5)
    await written(folder, *log)
    damage(folder / "index" / "s.json", how)
    async with JSONLStore(folder) as store:
        assert [info.events for info in await store.list()] == [len(log)]
        journal = await store.open("s")
        for first in (0, MARK - 1, MARK, 2 * MARK + 3, len(log) - 1):
            assert list(journal.read(first, first + 2)) == log[first : first + 3]


async def test_a_list_reads_what_the_index_does_not_know(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await written(folder, *steps(20_000))
    read = 0
    pread = os.pread

    def counted(file: int, size: int, at: int) -> bytes:
        nonlocal read
        read += len(found := pread(file, size, at))
        return found

    monkeypatch.setattr(os, "pread", counted)
    async with JSONLStore(folder) as store:
        assert [info.events for info in await store.list()] == [20_000]
        assert read < 500
        before = read
        await store.list()
        assert read == before  # nothing has changed since


async def test_a_long_list_is_indexed_by_who_had_to_read_it(folder: Path) -> None:
    await written(folder, *steps(20_000))
    shutil.rmtree(folder / "index")
    async with JSONLStore(folder) as store:
        await store.list()
    assert (folder / "index" / "s.json").exists()


async def test_a_session_that_grows_long_is_indexed_while_it_is_written(folder: Path) -> None:
    async with JSONLStore(folder) as store:
        journal = await store.create("s")
        journal.write(steps(20_000))
        await journal.barrier()
        assert (folder / "index" / "s.json").exists()


async def test_a_long_chunk_with_half_a_character_stays_in_its_line(folder: Path) -> None:
    log = lines(AssistantChunk(0, "text", text="x" * (LIMIT + 1) + "\ud83d"))
    await written(folder, *log)
    assert not (folder / "artifacts").exists()
    async with JSONLStore(folder) as store:
        assert list((await store.open("s")).read()) == log


# When the disk says no


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a quarter of a megabyte."""
    with disk_of("256k", tmp_path / "disk") as folder:
        yield folder


async def test_a_full_disk_is_reported_and_what_was_acknowledged_is_safe(small_disk: Path) -> None:
    """D-22: an I/O failure surfaces at the barrier, and nothing further is taken."""
    store = JSONLStore(small_disk / "sessions")
    journal = await store.create("s")
    acknowledged, log = 0, list[Event]()
    with pytest.raises(StoreFailed, match=r"No space left on device \(.*s\.jsonl\)"):
        while len(log) < 1000:
            batch = lines(RequestHeader("change", "p", "m", {"padding": "x" * 5_000}), first=len(log))
            journal.write(batch)
            log += batch
            await journal.barrier()
            acknowledged = len(log)
    assert 0 < acknowledged < len(log)
    assert journal.failure is not None
    with pytest.raises(StoreFailed, match="No space"):
        journal.write(steps(1, first=len(log)))
    assert list(journal.read()) == log  # nothing that was in memory is gone
    with pytest.raises(StoreFailed, match="No space"):
        await journal.close()
    subprocess.run(["mount", "-o", "remount,size=4m", str(small_disk)], check=True)
    # With room again, the session goes on from what was acknowledged, even in the same store.
    journal = await store.open("s")
    assert list(journal.read()) == log[: journal.head + 1]
    assert journal.head + 1 >= acknowledged
    journal.write(steps(1, first=journal.head + 1))
    await store.close()


async def test_a_big_text_that_has_no_room_is_the_end_of_writing(small_disk: Path) -> None:
    """Its line is not written either, and nothing half written stays."""
    store = JSONLStore(small_disk / "sessions")
    journal = await store.create("s")
    journal.write(steps(1))
    await journal.barrier()
    journal.write(lines(ToolResulted(0, "c", (Text("x" * 500_000),)), first=1))
    with pytest.raises(StoreFailed, match="No space left"):
        await journal.barrier()
    with pytest.raises(StoreFailed):
        await store.close()
    assert list((small_disk / "sessions" / "artifacts").iterdir()) == []
    async with JSONLStore(small_disk / "sessions") as store:
        assert list((await store.open("s")).read()) == steps(1)


LIMITED = """
    store = JSONLStore(sys.argv[1])
    journal = await store.create("s")
    try:
        for seq in range(10_000):
            journal.write([step(seq)])
            await journal.barrier()
            print(seq + 1, flush=True)
    except StoreFailed as failure:
        assert "File too large" in failure.problem
        assert [event.seq for event in journal.read()] == list(range(seq + 1))
    else:
        raise AssertionError("the limit was never reached")
"""


async def test_a_file_that_may_not_grow_is_reported_and_its_torn_line_cut(folder: Path) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    process = python(LIMITED, folder, preexec_fn=limit)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    acknowledged = int(output.split()[-1])
    path = folder / "s.jsonl"
    assert not path.read_bytes().endswith(b"\n")
    async with JSONLStore(folder) as store:
        journal = await store.open("s")
        assert list(journal.read()) == steps(acknowledged)
    assert path.read_bytes().endswith(b"\n")


READONLY = """
    for _ in range(2):  # all that is needed is loaded before the rights are given up
        reader = await JSONLStore(sys.argv[1]).open("s", readonly=True)
        await reader.close()
    if os.geteuid() == 0:
        os.seteuid(65534)  # root may write anything
    store = JSONLStore(sys.argv[1])
    reader = await store.open("s", readonly=True)
    assert [event.seq for event in reader.read()] == [0, 1, 2]
    try:
        await store.open("s")
    except StoreFailed as failure:
        print(failure.problem)
"""


async def test_a_file_that_may_only_be_read_can_be_read_and_is_not_opened_for_writing() -> None:
    with TemporaryDirectory() as name:  # not below a folder that others may not enter
        Path(name).chmod(0o755)
        folder = Path(name) / "sessions"
        path = await written(folder, *steps(3))
        path.chmod(0o444)
        for inside in (folder, folder / "index"):
            inside.chmod(0o555)
        process = python(READONLY, folder)
        output, _ = process.communicate(timeout=60)
        assert "Permission denied" in output
        assert str(path) in output


async def test_a_deleted_folder_is_noticed_before_anything_is_acknowledged(folder: Path) -> None:
    """The system lets a process go on writing to a file that nobody will find again."""
    store = JSONLStore(folder)
    journal = await store.create("s")
    journal.write(steps(2))
    await journal.barrier()
    reader = await store.open("s", readonly=True)
    shutil.rmtree(folder)
    journal.write(steps(2, first=2))
    with pytest.raises(StoreFailed, match=r"No such file.*s\.jsonl"):
        await journal.barrier()
    assert list(journal.read()) == steps(4)
    with pytest.raises(UnknownSession):
        await reader.refresh()
    with pytest.raises(SessionError, match="cannot be read"):
        await store.list()
    with pytest.raises(StoreFailed, match="No such file"):
        await store.create("t")
    with pytest.raises(StoreFailed):
        await store.close()


async def test_a_replaced_file_is_noticed_too_and_other_sessions_go_on(folder: Path) -> None:
    store = JSONLStore(folder)
    journal, bystander = await store.create("s"), await store.create("bystander")
    (folder / "s.jsonl").unlink()
    (folder / "s.jsonl").touch()
    for one in (journal, bystander):
        one.write(steps(1))
    with pytest.raises(StoreFailed, match="replaced"):
        await journal.barrier()
    await bystander.barrier()
    with pytest.raises(StoreFailed, match="replaced"):
        await store.close()


async def test_a_file_that_somebody_else_wrote_to_is_left_alone(folder: Path) -> None:
    """Who does not ask for the lock is noticed by the size of the file."""
    store = JSONLStore(folder)
    journal = await store.create("s")
    journal.write(steps(1))
    await journal.barrier()
    path = folder / "s.jsonl"
    before = path.read_bytes() + encode_event(lines(TurnStart(7), first=1)[0]) + b"\n"
    path.write_bytes(before)
    journal.write(steps(1, first=1))
    with pytest.raises(StoreFailed, match="somebody else has written"):
        await journal.barrier()
    with pytest.raises(StoreFailed):
        await store.close()
    assert path.read_bytes() == before


# Several at a time


async def test_a_session_that_another_process_writes_can_only_be_read(folder: Path) -> None:
    code = """
        store = JSONLStore(sys.argv[1])
        journal = await store.create("s")
        journal.write([step(0), step(1)])
        await journal.barrier()
        print("ready", flush=True)
        sys.stdin.read()
        os.kill(os.getpid(), signal.SIGKILL)
    """
    with python(code, folder) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        async with JSONLStore(folder) as store:
            with pytest.raises(SessionBusy, match=f"driven by process {process.pid} on "):
                await store.open("s")
            assert list((await store.open("s", readonly=True)).read()) == steps(2)
            process.communicate(timeout=60)
            assert (await store.open("s")).head == 1  # the system lets go of what a dead process held


async def test_two_stores_of_one_process_do_not_write_to_one_session(folder: Path) -> None:
    async with JSONLStore(folder) as one, JSONLStore(folder) as other:
        journal = await one.create("s")
        journal.write(steps(1))
        with pytest.raises(SessionBusy, match="driven by this process"):
            await other.open("s")
        await journal.close()
        await (await other.open("s")).close()
        opened = await asyncio.gather(one.open("s"), one.open("s"), return_exceptions=True)
        assert [str(one) for one in opened if isinstance(one, SessionBusy)] == [
            "Session s is driven by this process. Send to it through its mailbox (`interlock send`), "
            "follow it, or wait until it is released."
        ]


async def test_who_stops_waiting_for_a_session_does_not_keep_it(folder: Path) -> None:
    await written(folder, *steps(1))
    async with JSONLStore(folder) as store:
        await store.list()
        for waiting in (store.open("s"), store.create("t")):
            task = asyncio.create_task(waiting)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        async def head(session_id: str) -> int:
            async with asyncio.timeout(30):
                while True:
                    try:
                        return (await store.open(session_id)).head
                    except SessionBusy:
                        await asyncio.sleep(0)

        assert (await head("s"), await head("t")) == (0, -1)


async def test_a_follower_in_another_process_sees_whole_lines_in_order(folder: Path) -> None:
    code = """
        async with JSONLStore(sys.argv[1]) as store:
            journal = await store.create("s")
            for seq in range(0, 3000, 3):
                journal.write([step(seq), step(seq + 1), step(seq + 2)])
                if seq % 10 == 0:
                    await journal.barrier()
    """
    async with JSONLStore(folder) as store:
        await store.list()
        with python(code, folder) as process:
            async with asyncio.timeout(60):
                while not await store.list():
                    await asyncio.sleep(0.01)
                reader = await store.open("s", readonly=True)
                while reader.head < 2999:
                    assert process.poll() in (None, 0)
                    head = await reader.refresh()
                    first = max(0, head - 5)
                    assert list(reader.read(first)) == steps(head + 1 - first, first=first)
                    await asyncio.sleep(0)
            assert list(reader.read()) == steps(3000)
        assert process.returncode == 0


async def test_a_journal_is_not_read_after_its_store_was_closed(folder: Path) -> None:
    async with JSONLStore(folder) as store:
        journal = await store.create("s")
        journal.write(steps(600))
        await journal.barrier()
        begun = journal.read()
        next(begun)
    for reading in (begun, journal.read()):
        with pytest.raises(StoreClosed):
            list(reading)


async def test_closing_a_journal_does_not_disturb_who_reads_it(folder: Path) -> None:
    async with JSONLStore(folder) as store:
        journal = await store.create("s")
        journal.write(steps(20_000))
        await journal.barrier()
        begun = journal.read()
        seen = [next(begun)]
        await journal.close()
        assert seen + list(begun) == steps(20_000)
