"""A session that is exported and imported is the same session, in any store."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import given

from brittle_store import BrittleStore
from interlock import Agent, tool
from interlock.errors import DuplicateSession, SessionError, StoreFailed, UnknownFact, UnreadableLog
from interlock.log.artifacts import LIMIT
from interlock.log.event import Event, decode_event
from interlock.log.facts import AssistantChunk
from interlock.log.laws import check
from interlock.log.session import open_session
from interlock.log.stores.jsonl.store import JSONLStore
from interlock.log.stores.memory.store import MemoryStore
from interlock.log.transfer import exported, import_export, is_export
from interlock.testing import ScriptedModel, calls, says

from .conftest import AnyStore
from .fact_strategies import logs
from .lawful_logs import ENDED, written

PATH = Path("/there/export.jsonl")


@tool(effect="read")
async def dump() -> str:
    "All of it."
    return "Größe \x00 \u2028 " * LIMIT


async def recorded(store: AnyStore) -> str:
    """A session with a big text, and with chunks that were streamed."""
    model = ScriptedModel(calls("dump"), says("That is long. " * 50))
    async with Agent(model, tools=[dump], store=store) as agent:
        await agent.run("Show me all")
        return agent.session.id


async def export_of(store: AnyStore, session_id: str) -> bytes:
    journal = await store.open(session_id, readonly=True)
    try:
        return b"".join(exported(journal.read()))
    finally:
        await journal.close()


async def taken(export: bytes, store: AnyStore, path: Path = PATH) -> tuple[str, int]:
    made = await import_export(io.BytesIO(export), store=store, path=path)
    return made.session_id, made.events


async def test_a_session_comes_back_from_any_store_byte_for_byte(store: AnyStore) -> None:
    origin = MemoryStore()
    session_id = await recorded(origin)
    export = await export_of(origin, session_id)
    async with store:
        assert await taken(export, store) == (session_id, export.count(b"\n"))
        assert await export_of(store, session_id) == export
        session = await open_session(session_id, store=store)  # and can be gone on with
        assert check(session.events) == []
        await session.close()


async def test_a_session_of_any_store_is_exported_byte_for_byte(store: AnyStore) -> None:
    async with store:
        session_id = await recorded(store)
        export = await export_of(store, session_id)
    assert is_export(io.BytesIO(export))
    target = MemoryStore()
    assert (await taken(export, target))[0] == session_id
    assert await export_of(target, session_id) == export


@given(logs())
def test_any_line_is_exported_as_it_is_read_back(log: list[Event]) -> None:
    lines = list(exported(log))
    assert [decode_event(line) for line in lines] == log
    assert list(exported([decode_event(line) for line in lines])) == lines


def test_half_a_character_is_exported_too() -> None:
    halves = [
        Event(i, 0, 1, AssistantChunk(0, "text", text=text)) for i, text in enumerate(("\ud83d", "\ude00 "))
    ]
    assert [decode_event(line) for line in exported(halves)] == halves


async def test_a_file_of_the_jsonl_store_can_be_imported_with_what_lies_beside_it(tmp_path: Path) -> None:
    async with JSONLStore(tmp_path) as store:
        session_id = await recorded(store)
        export = await export_of(store, session_id)
    path = tmp_path / f"{session_id}.jsonl"
    content = path.read_bytes()  # nothing else runs here
    assert len(content) < len(export)
    target = MemoryStore()
    await taken(content, target, path)
    assert await export_of(target, session_id) == export
    with pytest.raises(UnreadableLog, match=r"its artifact .* is missing.*line \d+ of /there/export.jsonl"):
        await taken(content, MemoryStore())


LINES = list(exported(written(ENDED)))


@pytest.mark.parametrize(
    ("lines", "error", "where"),
    [
        ([], SessionError, "no line in /there/export.jsonl"),
        (LINES[1:], UnreadableLog, r"numbered 1 \(line 1 of"),
        ([*LINES[:5], *LINES[6:]], UnreadableLog, r"numbered 6 \(line 6 of"),
        ([*LINES[:5], LINES[4], *LINES[5:]], UnreadableLog, r"numbered 4 \(line 6 of"),
        ([*LINES[:5], LINES[5][:-9]], UnreadableLog, r"line 6 of"),
        ([*LINES[:5], b"\n", *LINES[5:]], UnreadableLog, r"line 6 of"),
        ([LINES[0].replace(b'"format":"1.', b'"format":"2.'), *LINES[1:]], SessionError, "format 2."),
        ([*LINES[:3], LINES[3].replace(b"turn/start", b"turn/unheard")], UnknownFact, "turn/unheard"),
        (
            [*LINES[:3], LINES[3].replace(b'"turn":1', b'"turn":7')],
            SessionError,
            r"Line 4 of /there/export.jsonl breaks the law",
        ),
    ],
    ids=["empty", "headless", "gap", "twice", "cut", "blank", "format", "unknown", "unlawful"],
)
async def test_a_broken_log_is_refused_with_the_place(
    lines: list[bytes], error: type[SessionError], where: str
) -> None:
    store = MemoryStore()
    with pytest.raises(error, match=where):
        await taken(b"".join(lines), store)
    assert await store.list() == []


async def test_the_last_line_need_not_end(store: AnyStore) -> None:
    async with store:
        session_id, events = await taken(b"".join(LINES).removesuffix(b"\n"), store)
        assert events == len(LINES)
        assert await export_of(store, session_id) == b"".join(LINES)


async def test_a_session_is_imported_once(store: AnyStore) -> None:
    async with store:
        session_id, _ = await taken(b"".join(LINES), store)
        with pytest.raises(DuplicateSession):
            await taken(b"".join(LINES), store)
        assert await export_of(store, session_id) == b"".join(LINES)
        session = await open_session(session_id, store=store)  # it was let go of
        await session.close()


async def test_a_session_that_was_made_and_not_written_takes_the_lines(store: AnyStore) -> None:
    """What an import leaves that was killed before its lines were on disk."""
    async with store:
        journal = await store.create("s")
        await journal.close()
        await taken(b"".join(LINES), store)
        assert await export_of(store, "s") == b"".join(LINES)


async def test_a_store_that_fails_is_said() -> None:
    store = BrittleStore()
    store.break_now()
    with pytest.raises(StoreFailed, match="the disk is full"):
        await taken(b"".join(LINES), store)


@pytest.mark.parametrize(
    ("content", "ours"),
    [
        (LINES[0], True),
        (LINES[1], False),
        (b"", False),
        (b"{}\n", False),
        (b'{"type":"user","sessionId":"x"}\n', False),
        (b"\xff\xfe\n", False),
    ],
)
def test_a_file_of_ours_is_known_by_its_first_line(content: bytes, ours: bool) -> None:
    file = io.BytesIO(b"xx" + content)
    file.read(2)
    assert is_export(file) is ours
    assert file.tell() == 2
