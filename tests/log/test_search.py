"""Search: what was said is found, where it was said, and nothing else; the same in every store."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from interlock import Agent, MemoryStore, Message, SQLiteStore, UsageError, tool
from interlock.log.artifacts import LIMIT
from interlock.log.event import Event
from interlock.log.facts import (
    FORMAT,
    AssistantMessage,
    Fact,
    HistoryReplaced,
    SessionCreated,
    SessionOpened,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.messages import PERSON, Reasoning, Text
from interlock.log.reasons import Completed, Interrupted
from interlock.log.stores.query import Match, Query, Where
from interlock.log.stores.sqlite.index import drop_index
from interlock.log.stores.store import Store
from interlock.testing import ScriptedModel, calls, says

from .conftest import AnyStore
from .lawful_logs import written

DONE = Completed()
T0 = 1000  # the time of line 0; each later one is a millisecond later


def turn(number: int, *told: str, reason: Completed | Interrupted = DONE) -> tuple[Fact, ...]:
    prompts = [UserMessage(f"m{number}.{n}", PERSON, "user", (Text(text),)) for n, text in enumerate(told)]
    return (TurnStart(number), *prompts, TurnEnd(number, reason, 0))


async def keep(store: Store, session_id: str, *facts: Fact, cwd: str | None = None, at: int = 0) -> None:
    """A session of these facts; its first line is written at `T0 + at`."""
    lines = written((SessionCreated(FORMAT, session_id, cwd), SessionOpened(1, "new"), *facts))
    journal = await store.create(session_id)
    journal.write([Event(e.seq, e.time + at, e.life, e.fact, e.causes) for e in lines])
    await journal.close()


def places(matches: list[Match]) -> list[tuple[str, int]]:
    return sorted((match.session, match.seq) for match in matches)


# Where it is said


@tool(effect="read")
async def look(where: str) -> str:
    """Look at a file."""
    return f"seen in {where}: a green door"


async def test_a_match_says_where_when_and_shows_it(store: AnyStore) -> None:
    model = ScriptedModel(calls("look", where="src/app.py"), says("The door is green."), says("Yes."))
    async with store:
        async with Agent(model, tools=[look], store=store, instructions="Be green.", cwd="/tmp") as agent:
            await agent.run("Which colour?")
            await agent.run("Is it green?")
            events = {event.seq: event for event in agent.session.events}
            session = agent.session.id
        found = await store.search("green")
        assert {(m.turn, m.place, m.tool, m.excerpt) for m in found} == {
            (1, "result", "look", "seen in src/app.py: a green door"),
            (1, "answer", None, "The door is green."),
            (2, "prompt", None, "Is it green?"),
        }
        for match in found:
            assert (match.session, match.cwd) == (session, "/tmp")
            assert match.time == events[match.seq].time
            assert [match.excerpt[a:b] for a, b in match.marks] == ["green"]
        (called, answered) = sorted(await store.search("src/app.py"), key=lambda match: match.seq)
        assert (called.place, called.excerpt) == ("call", "look where: src/app.py")
        assert (answered.place, answered.tool) == ("result", "look")


async def test_what_was_not_said_is_not_found(store: AnyStore) -> None:
    """Neither the system prompt, nor what is pending, nor what a model thought."""
    async with store:
        thought = AssistantMessage(4, (Reasoning("secretly"), Text("openly")))
        async with Agent(ScriptedModel(says("fine")), store=store, instructions="whispered") as agent:
            await agent.run("hello")
            agent.inject("pending")
            for word in ("whispered", "pending"):
                assert await store.search(word) == []
        journal = await store.create("s")
        facts = (SessionCreated(FORMAT, "s"), SessionOpened(1, "new"), TurnStart(1), thought)
        journal.write([Event(seq, T0, 1, fact) for seq, fact in enumerate(facts)])
        await journal.close()
        assert await store.search("secretly") == []
        assert places(await store.search("openly")) == [("s", 3)]


async def test_what_stands_for_earlier_messages_is_found(store: AnyStore) -> None:
    replaced = HistoryReplaced(3, 3, (Message.user("In short: doors.", id="r"),), "compaction")
    async with store:
        await keep(store, "s", *turn(1, "long"), replaced)
        (match,) = await store.search("short")
        assert (match.place, match.seq) == ("summary", 5)


async def test_it_is_found_while_the_session_is_driven_and_in_a_long_text(tmp_path: Path) -> None:
    """D-22: what was appended is visible; also where it is kept apart."""
    long = "x " * LIMIT + "needle" + " y" * LIMIT
    async with (
        SQLiteStore(tmp_path / "log.db") as store,
        Agent(ScriptedModel(says("ok"), says("ok")), store=store) as agent,
    ):
        await agent.run(long)
        (match,) = await store.search("needle")
        assert "needle" in match.excerpt and len(match.excerpt) < 250
        await agent.run("another needle")
        assert {match.turn for match in await store.search("needle")} == {1, 2}


# What it means to have it


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("read_fi", "Read file"),
        ("src/app.py", "in src/app.py:12"),
        ("two one", "one, and then two"),
        ("CAFE", "un café"),
        ("café", "cafe\u0301s"),
        ("STRASSE", "Straße"),
        ("本語", "日本語です"),
        ("naïve", "NAIVE"),
        ("ﬁle", "a file"),
        ("ab", "ab\0cd"),
        ("green", "a \x1b[1;32mgreen\x1b[0m one"),
        ("  spaced\n out ", "out, spaced"),
    ],
)
async def test_has(query: str, text: str, store: AnyStore) -> None:
    async with store:
        await keep(store, "s", *turn(1, text))
        (match,) = await store.search(query)
        assert match.marks, match.excerpt


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("file read", "read the profile"),
        ("app/src", "src/app"),
        ("one two", "one"),
        ("ead", "read"),
        ("cafes", "café"),
        ("語日", "日本語"),
        ("32", "a \x1b[1;32mgreen\x1b[0m one"),
        ("", "anything"),
        ("?!*", "what?!*"),
    ],
)
async def test_has_not(query: str, text: str, store: AnyStore) -> None:
    async with store:
        await keep(store, "s", *turn(1, text))
        assert await store.search(query) == []


SPECIAL = [
    '"',
    "'",
    "NEAR(a b)",
    "a AND",
    "OR",
    "NOT x",
    "text:x",
    "-x",
    "^x",
    "x*",
    "{x}",
    "(",
    "\0",
    "a" * 40_000,
    "x " * 3000,
    "\ud800",
    "%_",
    ";--",
    "\\",
]


@pytest.mark.parametrize("query", SPECIAL, ids=lambda query: repr(query[:10]))
async def test_nothing_that_is_typed_is_wrong(query: str, store: AnyStore) -> None:
    async with store:
        await keep(store, "s", *turn(1, "anything"))
        assert await store.search(query) == []


words = st.sampled_from(
    [
        "a",
        "ab",
        "abc",
        "b",
        "É",
        "e",
        "ß",
        "ss",
        "日本",
        "x_y",
        "1",
        "½",
        "a\0b",
        "\x1b[1m",
        "\x1b[",
        "\x1b",
        "ﬁ",
        "I",
        "ı",
        "İ",
    ]
)
between = st.sampled_from([" ", "\n", "_", "-", "", "; ", "\u00a0", "…", "'"])
texts = st.lists(st.tuples(words, between), max_size=6).map(
    lambda parts: "".join(w + b for w, b in parts)
) | st.text(max_size=12)
queries = st.lists(words | st.text(max_size=3), min_size=1, max_size=3).map(" ".join) | texts


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(texts, min_size=1, max_size=8), st.lists(queries, min_size=1, max_size=12))
def test_the_index_finds_what_reading_everything_finds(said: list[str], asked: list[str]) -> None:
    """And that is each line that has the query, and no other."""
    asyncio.run(found_alike(said, asked))


async def found_alike(said: list[str], asked: list[str]) -> None:
    with TemporaryDirectory() as folder:
        async with MemoryStore() as memory, SQLiteStore(Path(folder) / "log.db") as sqlite:
            for store in (memory, sqlite):
                await keep(store, "s", *turn(1, *said))
            for text in asked:
                query = Query(text)
                have = [("s", 3 + n) for n, one in enumerate(said) if query.has(one)]
                for store in (memory, sqlite):
                    found = await store.search(text)
                    assert places(found) == have, (type(store).__name__, text)
                    for match in found:
                        assert match.marks
                        assert all(query.spans(match.excerpt[a:b]) for a, b in match.marks)


@given(st.lists(texts, min_size=1, max_size=4), st.data())
def test_what_was_said_is_found_by_any_words_of_it(said: list[str], data: st.DataObject) -> None:
    text = " ".join(said)
    parts = text.split()
    some = data.draw(st.lists(st.sampled_from(parts), min_size=1)) if parts else []
    query = Query(" ".join(some))
    assert query.has(text) == bool(query.terms)


def test_an_excerpt_is_a_part_of_the_text_around_the_match_in_one_line() -> None:
    text = "word " * 50 + "here\n\tit is " + "word " * 50
    shown, marks = Query("it here").excerpt(text)
    assert shown.startswith("…word") and shown.endswith("word…") and len(shown) < 230
    assert [shown[a:b] for a, b in marks] == ["here", "it"]
    assert Query("here").excerpt("here it is") == ("here it is", ((0, 4),))
    endless = "x" * 1000 + "/here/" + "y" * 1000
    shown, marks = Query("here").excerpt(endless)
    assert [shown[a:b] for a, b in marks] == ["here"] and len(shown) < 230


# In which order, and which


async def test_the_best_comes_first_and_no_more_than_wanted(store: AnyStore) -> None:
    async with store:
        await keep(store, "s", *turn(1, "door " + "and so on " * 40, "a door", "no", "door door door"))
        found = await store.search("door")
        assert [match.seq for match in found] == [6, 4, 3]
        assert [match.rank for match in found] == sorted([match.rank for match in found], reverse=True)
        assert [match.seq for match in await store.search("door", limit=1)] == [6]


async def three(store: Store) -> None:
    """Three sessions, each with a turn that completed and one that did not, in two folders."""
    for n, cwd in enumerate(("/a", "/a", "/b")):
        facts = (*turn(1, "door"), *turn(2, "door", reason=Interrupted() if n != 1 else Completed()))
        await keep(store, f"s{n}", *facts, cwd=cwd, at=100 * n)


async def test_filters_of_a_search(store: AnyStore) -> None:
    async with store:
        await three(store)

        async def sought(**where: object) -> list[tuple[str, int]]:
            return places(await store.search("door", where=Where(**where)))  # type: ignore[arg-type]

        everywhere = [(f"s{n}", seq) for n in range(3) for seq in (3, 6)]
        assert await sought() == everywhere
        assert await sought(cwd="/a") == everywhere[:4]
        assert await sought(reason="interrupted") == [("s0", 6), ("s2", 6)]
        assert await sought(since=T0 + 106) == everywhere[3:]
        assert await sought(until=T0 + 106) == everywhere[:3]
        assert await sought(since=T0 + 100, until=T0 + 200, reason="completed") == everywhere[2:4]
        assert await sought(tool="look") == []


async def test_filters_of_the_list(store: AnyStore) -> None:
    async with store:
        await three(store)
        async with Agent(
            ScriptedModel(calls("look", where="x"), says("ok")), tools=[look], store=store, cwd="/tmp"
        ) as agent:
            await agent.run("go")
            mine, now = agent.session.id, agent.session.now()

        async def listed(limit: int = 50, before: int | None = None, **where: object) -> list[str]:
            meant = Where(**where)  # type: ignore[arg-type]
            return [info.id for info in await store.list(limit=limit, before=before, where=meant)]

        assert await listed() == [mine, "s2", "s1", "s0"]
        assert await listed(cwd="/a") == ["s1", "s0"]
        assert await listed(cwd="/a", limit=1) == ["s1"]
        assert await listed(cwd="/a", before=T0 + 107) == ["s0"]
        assert await listed(tool="look") == [mine]
        assert await listed(tool="look", cwd="/a") == []
        assert await listed(reason="interrupted") == ["s2", "s0"]
        assert await listed(since=T0 + 100, until=T0 + 200) == ["s1"]
        assert await listed(since=T0 + 107, until=now + 1) == [mine, "s2", "s1"]


def test_a_reason_that_no_turn_ends_for_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match=re.escape("'failed': name one of completed, blocked")):
        Where(reason="failed")


# The index of a SQLite file


def rows(file: Path) -> Iterator[int]:
    with sqlite3.connect(file) as connection:
        for table in ("words", "passage", "ended"):
            yield connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


async def test_a_file_without_an_index_gets_one_and_what_comes_later_is_added(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    async with SQLiteStore(file) as store:
        await three(store)
    with sqlite3.connect(file) as connection:  # as an earlier version has left it
        drop_index(connection)
    async with SQLiteStore(file) as store:
        assert len(await store.search("door")) == 6
        await keep(store, "s9", *turn(1, "door"))
        assert len(await store.search("door")) == 7
    assert list(rows(file)) == [7, 7, 7]


async def test_a_session_that_is_closed_is_indexed_by_then(tmp_path: Path) -> None:
    async with SQLiteStore(tmp_path / "log.db") as store:
        await three(store)
    assert list(rows(tmp_path / "log.db")) == [6, 6, 6]


async def test_what_the_index_has_of_a_session_goes_with_it(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    async with SQLiteStore(file) as store:
        await three(store)
    with sqlite3.connect(file) as connection:
        connection.execute("DELETE FROM event WHERE session = (SELECT key FROM session WHERE id = 's2')")
        connection.execute("DELETE FROM session WHERE id = 's2'")
    async with SQLiteStore(file) as store:
        assert places(await store.search("door")) == [(f"s{n}", seq) for n in (0, 1) for seq in (3, 6)]
        await keep(store, "s9", *turn(1, "window"))  # it has the key of the one that has gone
        assert len(await store.search("door")) == 4
        assert places(await store.search("window")) == [("s9", 3)]


async def test_what_is_erased_is_in_no_byte_of_the_file_once_the_index_was_dropped(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    async with SQLiteStore(file) as store:
        await keep(store, "s", *turn(1, "canary"))
        await keep(store, "t", *turn(1, "other"))
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        assert b"canary" in file.read_bytes()
        connection.execute("BEGIN")
        connection.execute("UPDATE event SET data = CAST(replace(CAST(data AS TEXT), 'canary', '') AS BLOB)")
        connection.execute("UPDATE session SET title = NULL")
        drop_index(connection)
        drop_index(connection)
        connection.execute("COMMIT")
        connection.execute("VACUUM")
    assert b"canary" not in file.read_bytes()
    async with SQLiteStore(file) as store:
        assert await store.search("canary") == []
        assert places(await store.search("other")) == [("t", 3)]


async def test_two_processes_index_each_line_once(tmp_path: Path) -> None:
    file = tmp_path / "log.db"
    async with SQLiteStore(file) as one, SQLiteStore(file) as other:
        await three(one)
        await three_found(one)
        await three_found(other)
    assert list(rows(file)) == [6, 6, 6]


async def three_found(store: SQLiteStore) -> None:
    assert len(await store.search("door")) == 6
