"""The least that the same work can cost: an agent loop as one would write it by hand, for one purpose.

Lives here: `turn` and `streamed`. Messages are dicts in a list, tools are gathered, and awaited directly where there is
only one. Nothing is checked, ordered, recorded or stoppable: what a harness costs beyond this is the price of that.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from bench.prepared import PreparedModel
from interlock.models.protocol import CallDelta, TextDelta

ToolBody: TypeAlias = Callable[..., Awaitable[Any]]
Record: TypeAlias = dict[str, Any]


async def turn(
    model: PreparedModel,
    tools: Mapping[str, ToolBody],
    prompt: str,
    *,
    pool: int | None = None,
    heard: Sequence[Callable[[Record], object]] = (),
    awaited: Sequence[Callable[[Record], Awaitable[object]]] = (),
    rows: Rows | None = None,
) -> list[Record]:
    """Ask, run what was asked for, and ask again, until there is an answer without calls; the messages.

    Args:
        pool: how many tools run at once; None does not limit them.
        heard, awaited: called with each tool call before it runs.
        rows: keeps all of it, and on a disk what has to be there before a request leaves, before a body starts, and
            at the end.
    """
    places = asyncio.Semaphore(pool) if pool is not None else None

    async def run(call: Record) -> Any:
        for listener in heard:
            listener(call)
        for suspending in awaited:
            await suspending(call)
        if rows is not None:
            rows.add("started", call)
            await rows.barrier()
        body, arguments = tools[call["name"]], json.loads(call["arguments"])
        if places is None:
            return await body(**arguments)
        async with places:
            return await body(**arguments)

    messages: list[Record] = [{"role": "user", "content": prompt}]
    kept = 0
    while True:
        if rows is not None:
            for message in messages[kept:]:
                rows.add("message", message)
            kept = len(messages)
            await rows.barrier()
        said: list[str] = []
        calls: list[Record] = []
        async for chunk in model.stream(messages, None):
            if type(chunk) is TextDelta:
                said.append(chunk.text)
            elif type(chunk) is CallDelta:
                calls.append({"id": chunk.id, "name": chunk.name, "arguments": chunk.arguments})
        messages.append({"role": "assistant", "content": "".join(said), "tool_calls": calls})
        if not calls:
            if rows is not None:
                rows.add("message", messages[-1])
                await rows.barrier()
            return messages
        if len(calls) == 1:
            results = [await run(calls[0])]
        else:
            results = await asyncio.gather(*[run(call) for call in calls])
        for call, result in zip(calls, results, strict=True):
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})


class Rows:
    """Records in a SQLite file, as one would write them by hand.

    threads: the disk is waited for in a thread, as everywhere in asyncio where others are to go on meanwhile; without
    it, all that the event loop has to do stands still.
    """

    def __init__(self, file: Path, *, threads: bool) -> None:
        self.barriers = 0
        self._seq = 0
        self._waiting: list[tuple[int, str, str]] = []
        self._threads = threads
        self._connection = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = FULL")
        self._connection.execute("CREATE TABLE event (seq INTEGER PRIMARY KEY, type TEXT, data TEXT)")

    def add(self, kind: str, record: Record) -> None:
        self._waiting.append((self._seq, kind, json.dumps(record)))
        self._seq += 1

    async def barrier(self) -> None:
        """What was added is on disk when this returns."""
        if self._threads:
            await asyncio.to_thread(self._write)
        else:
            self._write()
        self.barriers += 1

    def _write(self) -> None:
        self._connection.execute("BEGIN")
        self._connection.executemany("INSERT INTO event VALUES (?, ?, ?)", self._waiting)
        self._connection.execute("COMMIT")
        self._waiting.clear()

    def close(self) -> None:
        self._connection.close()


async def streamed(model: PreparedModel, prompt: str, consume: Callable[[Record], object]) -> None:
    """Show a consumer every chunk of one answer: a task writes the log, the consumer follows it."""
    log: list[Record] = []
    more = asyncio.Event()

    async def drive() -> None:
        async for chunk in model.stream([{"role": "user", "content": prompt}], None):
            text = chunk.text if type(chunk) is TextDelta else None
            log.append({"seq": len(log), "type": "chunk" if text is not None else "finish", "text": text})
            more.set()

    driving = asyncio.create_task(drive())
    at = 0
    while True:
        while at < len(log):
            record = log[at]
            at += 1
            consume(record)
            if record["type"] == "finish":
                await driving
                return
        more.clear()
        await more.wait()
