"""Logs in one SQLite file: the default store.

Lives here: `SQLiteStore` and its journals. Lines wait in memory for a barrier, or for a moment, and go to disk in the
writer's thread. Reading happens here, on a connection of its own: what is committed from the file, the rest from
memory, with neither a gap nor a duplicate between them.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from interlock.errors import (
    DuplicateSession,
    ReadOnlySession,
    SessionBusy,
    SessionClosed,
    SessionError,
    StoreClosed,
    StoreFailed,
    UnknownSession,
    UnreadableLog,
    UsageError,
)
from interlock.log.artifacts import DataPath, put_back
from interlock.log.event import Event, decode_fact
from interlock.log.facts import AssistantChunk, Span
from interlock.log.packing import packable, unpack
from interlock.log.stores.database import connect, default_path
from interlock.log.stores.listing import About
from interlock.log.stores.store import SessionInfo
from interlock.log.stores.writer import Barrier, Lines, NewSession, Outcome, Row, Work, Writer, row_of

FLUSH_SECONDS = 0.05  # how long lines wait in memory when nobody waits for the disk
FLUSH_BYTES = 256 * 1024  # or until about so much has come together

_PAGE = 500  # rows read at once
_ENVELOPE = 64  # bytes, about, that a line weighs beside its data

_SELECT_ROWS = f"""
SELECT first, lines, data, artifacts, type, time, life, causes, ignorable FROM event
WHERE session = :session AND first <= :last
AND first >= (SELECT max(first) FROM event WHERE session = :session AND first <= :first)
ORDER BY first LIMIT {_PAGE}
"""
_SELECT_SESSIONS = """
SELECT id, created, updated, head + 1, cwd, agent, title, bytes FROM session
WHERE head >= 0 AND updated < :before AND updated >= ifnull(
    (SELECT updated FROM session WHERE head >= 0 AND updated < :before ORDER BY updated DESC LIMIT 1 OFFSET :limit - 1),
    0)
ORDER BY updated DESC, key DESC
"""
_END_OF_TIME = 2**62

_decode_causes = msgspec.json.Decoder(tuple[Span, ...]).decode
_decode_paths = msgspec.json.Decoder(tuple[DataPath, ...]).decode


class SQLiteJournal:
    """The lines of one session in a SQLite file."""

    durable = True

    def __init__(
        self, store: SQLiteStore, session_id: str, key: int, head: int, about: About, *, readonly: bool
    ) -> None:
        self._store = store
        self._session_id = session_id
        self._key = key
        self._head = head
        self._about = about
        self._readonly = readonly
        self._closed = False
        self._failure: StoreFailed | None = None
        self._writable = not readonly
        self._synced = head  # the last line that is known to be on disk
        self._tail: list[Event] = []  # lines up to the head that are not known to be committed
        self._unsent: list[Row | Event] = []  # what the writer has not got of them
        self._news = False  # in `_about`

    @property
    def head(self) -> int:
        return self._head

    @property
    def failure(self) -> StoreFailed | None:
        return self._failure

    def write(self, events: Sequence[Event]) -> None:
        if not self._writable:
            raise self._refusal()
        store, head, size = self._store, self._head, 0
        unsent = self._unsent
        already = len(unsent)
        try:
            for event in events:
                head += 1
                if event.seq != head:
                    raise ValueError(f"session {self._session_id} goes on with line {head}, not {event.seq}")
                fact = event.fact
                if type(fact) is AssistantChunk and packable(event):
                    if fact.value is not None:
                        row_of(self._key, event)  # it is packed later, when it is too late to refuse it
                    unsent.append(event)
                    size += len(fact.text) + _ENVELOPE
                else:
                    row = row_of(self._key, event)
                    unsent.append(row)
                    size += len(row.data) + _ENVELOPE
        except BaseException:
            del unsent[already:]
            raise
        if not already and unsent:
            store._waiting.append(self)
        self._tail += events
        self._head = head
        if self._about.title is None:
            self._learn(events)
        store._bytes += size
        if store._timer is None or store._bytes > FLUSH_BYTES:
            store._schedule()

    def _learn(self, events: Sequence[Event]) -> None:
        known = self._about
        for event in events:
            self._about = self._about.learn(event.fact)
        self._news = self._news or self._about is not known

    def _refusal(self) -> Exception:
        if self._readonly:
            return ReadOnlySession(self._session_id)
        if self._closed:
            return SessionClosed(self._session_id)
        assert self._failure is not None
        return StoreFailed(self._failure.problem)

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        first = max(first, 0)
        last = self._head if last is None else min(last, self._head)
        if first > last:
            return iter(())
        # The border between file and memory is drawn here, once: what the writer commits meanwhile does not move it.
        border = self._head + 1 - len(self._tail)
        tail = self._tail[max(first - border, 0) : max(last + 1 - border, 0)]
        if first >= border:
            return iter(tail)
        return self._read(first, min(last, border - 1), tail)

    def _read(self, first: int, last: int, tail: list[Event]) -> Iterator[Event]:
        while first <= last:
            missing = first
            for row in self._store._query(_SELECT_ROWS, {"session": self._key, "first": first, "last": last}):
                seq, lines, data = row[:3]
                end = seq + (lines or 1)
                if not seq <= first < end:
                    break
                if lines is None:
                    yield self._event(*row)
                else:
                    yield from unpack(seq, data)[first - seq : last + 1 - seq]
                first = end
            if first == missing:
                raise UnreadableLog(missing, f"it is missing in {self._store.path}")
        yield from tail

    def _event(
        self,
        seq: int,
        lines: None,
        data: bytes,
        paths: bytes | None,
        type_: str,
        time: int,
        life: int,
        causes: bytes | None,
        ignorable: int,
    ) -> Event:
        try:
            if paths is not None:
                data = self._with_artifacts(seq, data, paths)
            spans = _decode_causes(causes) if causes is not None else ()
        except msgspec.MsgspecError as error:
            raise UnreadableLog(seq, f"{type_}: {error}") from None
        fact = decode_fact(type_, data, seq=seq, ignorable=bool(ignorable))
        return Event(seq, time, life, fact, spans, bool(ignorable))

    def _with_artifacts(self, seq: int, data: bytes, paths: bytes) -> bytes:
        def fetch(digest: str) -> bytes:
            rows = self._store._query("SELECT data FROM artifact WHERE digest = :digest", {"digest": digest})
            if not rows:
                raise UnreadableLog(seq, f"its artifact {digest} is missing in {self._store.path}")
            found: bytes = rows[0][0]
            return found

        return put_back(data, _decode_paths(paths), fetch)

    async def barrier(self) -> None:
        if self._synced < self._head:
            await self._store._sync()
            if self._failure is not None:
                raise StoreFailed(self._failure.problem) from self._failure

    async def refresh(self) -> int:
        if self._readonly:
            rows = self._store._query("SELECT head FROM session WHERE key = :key", {"key": self._key})
            if not rows:
                raise UnknownSession(self._session_id)
            self._head = self._synced = rows[0][0]
        return self._head

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._writable = False
        try:
            await self.barrier()
        finally:
            self._let_go()

    # For the store: what became of the lines.

    def _hand_over(self) -> Lines:
        lines = Lines(self, self._key, self._unsent, self._head, self._about if self._news else None)
        self._unsent, self._news = [], False
        return lines

    def _committed(self, last: int) -> None:
        del self._tail[: last - self._tail[0].seq + 1]
        self._let_go()

    def _on_disk(self) -> None:
        self._synced = self._head - len(self._tail)

    def _failed(self, failure: StoreFailed) -> None:
        self._failure = failure
        self._writable = False
        self._let_go()

    def _let_go(self) -> None:
        """Free the session for another journal, once closed and with nothing left that could be written."""
        done = self._closed and (not self._tail or self._failure is not None)
        if done and self._store._writing.get(self._key) is self:
            del self._store._writing[self._key]


class SQLiteStore:
    """Sessions in one SQLite file. It belongs to the event loop in which it is first used.

    Args:
        path: The file; made with its folder when it is missing, for this user only. By default `interlock.db` in
            `$INTERLOCK_HOME`, else in the user's state folder.
    """

    durable = True

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = (default_path() if path is None else Path(path).expanduser()).absolute()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._writer: Writer | None = None
        self._reader: sqlite3.Connection | None = None
        self._failure: StoreFailed | None = None
        self._closed = False
        self._writing: dict[int, SQLiteJournal] = {}  # by key
        self._waiting: list[SQLiteJournal] = []  # they have lines that the writer has not got
        self._unsynced: set[SQLiteJournal] = (
            set()
        )  # they have lines that are committed, but perhaps not on disk
        self._bytes = 0  # about, of what waits
        self._timer: asyncio.TimerHandle | None = None

    async def create(self, session_id: str) -> SQLiteJournal:
        writer = await self._opened()
        self._check_failure()
        new = NewSession(session_id, asyncio.get_running_loop().create_future())
        writer.put(new)
        key = await new.done
        self._check_failure()
        if key is None:
            raise DuplicateSession(session_id)
        return self._journal(session_id, key, -1, About(), readonly=False)

    async def open(self, session_id: str, *, readonly: bool = False) -> SQLiteJournal:
        await self._opened()
        if not readonly:
            self._check_failure()
        rows = self._query(
            "SELECT key, head, format, cwd, agent, title FROM session WHERE id = :id", {"id": session_id}
        )
        if not rows:
            raise UnknownSession(session_id)
        key, head, *about = rows[0]
        if not readonly and key in self._writing:
            raise SessionBusy(session_id, "this process")
        return self._journal(session_id, key, head, About(*about), readonly=readonly)

    def _journal(
        self, session_id: str, key: int, head: int, about: About, *, readonly: bool
    ) -> SQLiteJournal:
        journal = SQLiteJournal(self, session_id, key, head, about, readonly=readonly)
        if not readonly:
            self._writing[key] = journal
        return journal

    async def list(self, *, limit: int = 50, before: int | None = None) -> builtins.list[SessionInfo]:
        await self._opened()
        bounds = {"limit": limit, "before": _END_OF_TIME if before is None else before}
        return [SessionInfo(*row) for row in self._query(_SELECT_SESSIONS, bounds)]

    async def close(self) -> None:
        self._check_loop()
        if self._closed:
            return
        self._closed = True
        failure: StoreFailed | None = None
        try:
            for journal in [*self._writing.values()]:
                try:
                    await journal.close()
                except StoreFailed as failed:
                    failure = failed
        finally:
            if self._timer is not None:
                self._timer.cancel()
            async with self._opening:
                if self._writer is not None and self._reader is not None:
                    self._reader.close()  # before the writer: the last to leave tidies the file
                    self._reader = None
                    await self._writer.stop()
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UsageError(
                "This store belongs to another event loop. Make one store for each, of the same file."
            )

    async def _opened(self) -> Writer:
        self._check_loop()
        async with self._opening:
            if self._closed:
                raise StoreClosed
            if self._writer is None:
                writer = Writer(self.path, self._settled)
                await writer.start()
                try:
                    self._reader = connect(self.path)
                    # It opens its files now, to read on even when their folder is deleted.
                    self._reader.execute("SELECT 1 FROM session LIMIT 1").fetchall()
                except sqlite3.Error as error:
                    await writer.stop()
                    raise StoreFailed(f"{error} ({self.path})") from error
                self._writer = writer
            return self._writer

    def _query(self, statement: str, values: dict[str, Any]) -> builtins.list[Any]:
        if self._reader is None:
            raise StoreClosed
        try:
            return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise SessionError(f"The store cannot be read: {error} ({self.path})") from error

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure.problem) from self._failure

    # Writing

    def _schedule(self) -> None:
        """See to it that what waits is flushed: now, if it is much, else soon."""
        assert self._loop is not None
        if self._bytes > FLUSH_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(FLUSH_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiting:
            self._flush()

    def _flush(self, *more: Work) -> None:
        """Give the writer all that waits."""
        assert self._writer is not None
        self._writer.put(*[journal._hand_over() for journal in self._waiting], *more)
        self._waiting.clear()
        self._bytes = 0

    async def _sync(self) -> None:
        """Wait until the fate of all that was written is known."""
        barrier = Barrier(asyncio.get_running_loop().create_future())
        self._flush(barrier)
        await barrier.done

    def _settled(self, outcome: Outcome) -> None:
        for lines in outcome.written:
            lines.journal._committed(lines.last)
            self._unsynced.add(lines.journal)
        if outcome.synced:
            for journal in self._unsynced:
                journal._on_disk()
            self._unsynced.clear()
        for lines in outcome.refused:
            lines.journal._failed(StoreFailed("another process has written to this session"))
        if outcome.failure is not None and self._failure is None:
            self._failure = outcome.failure
            for journal in [*self._writing.values()]:
                journal._failed(outcome.failure)
