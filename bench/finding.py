"""B9: finding sessions, and what was said in them, among many in one file."""

from __future__ import annotations

import asyncio
import sqlite3
import tempfile
from collections.abc import Awaitable, Callable, Sized
from contextlib import closing
from pathlib import Path

from bench.measuring import Contestant, Figure, Goal, Spent, cost, interleaved, plain, require, stopwatch
from bench.scale import Scale
from interlock import SQLiteStore
from interlock.log.event import Event
from interlock.log.facts import (
    FORMAT,
    AssistantMessage,
    Fact,
    SessionCreated,
    SessionOpened,
    StepEnd,
    StepStart,
    ToolCalled,
    ToolResulted,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.messages import PERSON, Text
from interlock.log.reasons import Completed, Failed
from interlock.log.stores.query import Where
from interlock.log.stores.sqlite.index import drop_index

GOAL = Goal("<=", 50)
FOLDERS, MODULES = 50, 997  # that the sessions work in, and speak of
_CODE = "def answer() -> int:\n    return 42\n" * 8
_BATCH = 200  # sessions that are written before the disk is waited for


def run(scale: Scale) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "interlock.db"
        # They change the file: there is one round of them, and nothing to warm up.
        written = asyncio.run(_write(file, scale.sessions))
        indexed = asyncio.run(_index(file))
        size = file.stat().st_size
        asked = {what: _asking(file, ask) for what, ask in QUESTIONS.items()}
        samples = interleaved(scale.rounds, asked)
    note = (
        f"{scale.sessions:,} sessions written in {written.wall:.1f} s; a file without an index has one after "
        f"{indexed.wall:.1f} s"
    )
    figures = [
        cost("B9", what, "ms", samples[what], scale=1e3, clock="wall", goal=GOAL) for what in QUESTIONS
    ]
    return [
        *figures,
        plain("B9", "a session in the file, index included", "KB", size / scale.sessions / 1e3, note=note),
    ]


async def _list(store: SQLiteStore) -> Sized:
    return await store.list()


async def _in_a_folder(store: SQLiteStore) -> Sized:
    return await store.list(where=Where(cwd="/work/project-7"))


async def _with_a_tool(store: SQLiteStore) -> Sized:
    return await store.list(where=Where(tool="bash"))


async def _with_an_error(store: SQLiteStore) -> Sized:
    return await store.list(where=Where(reason="error"))


async def _rare(store: SQLiteStore) -> Sized:
    return await store.search("module_7.py")


async def _common(store: SQLiteStore) -> Sized:
    return await store.search("the")


async def _common_and_rare(store: SQLiteStore) -> Sized:
    return await store.search("the", where=Where(reason="error", cwd="/work/project-0"))


#: First pages. Each has to find something.
QUESTIONS: dict[str, Callable[[SQLiteStore], Awaitable[Sized]]] = {
    "list": _list,
    "list, of one folder": _in_a_folder,
    "list, that used a tool": _with_a_tool,
    "list, that ended with an error": _with_an_error,
    "search for a rare word": _rare,
    "search for a word of every session": _common,
    "search for it in a folder, where a turn failed": _common_and_rare,
}


def _asking(file: Path, ask: Callable[[SQLiteStore], Awaitable[Sized]]) -> Contestant:
    async def asked() -> Spent:
        async with SQLiteStore(file) as store:
            await store.list(limit=1)  # it is open
            with stopwatch() as watch:
                found = await ask(store)
        require(len(found) > 0, "an answer")
        return watch.spent

    return asked


async def _write(file: Path, sessions: int) -> Spent:
    with stopwatch() as watch:
        async with SQLiteStore(file) as store:
            for first in range(0, sessions, _BATCH):
                journals = []
                for n in range(first, min(first + _BATCH, sessions)):
                    journal = await store.create(f"s{n}")
                    facts = _session(n)
                    time = 1_700_000_000_000 + n * 60_000
                    journal.write([Event(seq, time + seq, 1, fact) for seq, fact in enumerate(facts)])
                    journals.append(journal)
                for journal in journals:
                    await journal.barrier()
    return watch.spent


async def _index(file: Path) -> Spent:
    """What a search does first in a file that an earlier version has written."""
    _without_index(file)
    async with SQLiteStore(file) as store:
        await store.list(limit=1)
        with stopwatch() as watch:
            require(len(await store.search("module_7.py")) > 0, "an index")
    return watch.spent


def _without_index(file: Path) -> None:
    """As a version without an index has left it."""
    with closing(sqlite3.connect(file)) as connection:
        drop_index(connection)
        connection.commit()


def _session(n: int) -> list[Fact]:
    facts: list[Fact] = [
        SessionCreated(FORMAT, f"s{n}", f"/work/project-{n % FOLDERS}"),
        SessionOpened(1, "new"),
    ]
    for turn in (1, 2, 3):
        facts += [
            TurnStart(turn),
            StepStart(turn, 1),
            UserMessage(f"m{turn}", PERSON, "user", (Text(f"Please mend the test of module {n % MODULES}"),)),
            AssistantMessage(4, (Text("I look at the file and its tests, and then I mend it."),)),
            ToolCalled(
                turn, 1, 0, "c1", "bash" if n % 3 else "read", f'{{"path": "src/module_{n % MODULES}.py"}}'
            ),
            ToolResulted(6, "c1", (Text(_CODE),)),
            StepEnd(turn, 1, "completed"),
            TurnEnd(turn, Failed("SERVER", "it is down") if n % 100 == 0 else Completed(), 1),
        ]
    return facts
