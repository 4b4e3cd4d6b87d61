"""Logs in one SQLite file: the default store.

Lives here: `SQLiteStore` and its journals. Writing happens in the writer's thread, reading here, on a connection of
its own.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import msgspec

from interlock.errors import SessionError, StoreClosed, StoreFailed, UnknownSession, UnreadableLog
from interlock.log.event import Event
from interlock.log.stores.buffered import BufferedJournal, BufferedStore
from interlock.log.stores.database import connect, default_path
from interlock.log.stores.listing import About
from interlock.log.stores.passages import passages
from interlock.log.stores.query import Match, Query, Where
from interlock.log.stores.rows import events_of, item_of
from interlock.log.stores.sqlite_index import Found, find_passages, meant_by
from interlock.log.stores.sqlite_writer import SQLiteWriter
from interlock.log.stores.store import SessionInfo
from interlock.log.stores.writer import Call

_PAGE = 500  # rows read at once

_SELECT_ROWS = f"""
SELECT first, lines, data, artifacts, type, time, life, causes, ignorable FROM event
WHERE session = :session AND first <= :last
AND first >= (SELECT max(first) FROM event WHERE session = :session AND first <= :first)
ORDER BY first LIMIT {_PAGE}
"""
_SELECT_SESSIONS = """
WITH wanted AS NOT MATERIALIZED (SELECT * FROM session WHERE head >= 0 AND updated < :before{and_meant})
SELECT id, created, updated, head + 1, cwd, agent, title, bytes FROM wanted
WHERE updated >= ifnull((SELECT updated FROM wanted ORDER BY updated DESC LIMIT 1 OFFSET :limit - 1), 0)
ORDER BY updated DESC, key DESC
"""
_SELECT_APPROVALS = """
SELECT session.id, asked FROM open_approval JOIN session ON session.key = open_approval.session
ORDER BY open_approval.session, asked
"""
_END_OF_TIME = 2**62


class SQLiteJournal(BufferedJournal[int]):
    """The lines of one session in a SQLite file."""

    def __init__(
        self, store: SQLiteStore, session_id: str, key: int, head: int, about: About, *, readonly: bool
    ) -> None:
        super().__init__(store, session_id, key, head, about, readonly=readonly)
        self._store = store

    def _item(self, event: Event) -> tuple[object, int]:
        return item_of(self._target, event)

    def _stored(self, first: int, last: int) -> Iterator[Event]:
        while first <= last:
            missing = first
            bounds = {"session": self._target, "first": first, "last": last}
            rows = self._store._query(_SELECT_ROWS, bounds)
            for event in events_of(rows, first, last, self._artifact):
                yield event
                first = event.seq + 1
            if first == missing:
                raise UnreadableLog(missing, f"it is missing in {self._store.path}")

    def _artifact(self, digest: str) -> bytes | None:
        rows = self._store._query("SELECT data FROM artifact WHERE digest = :digest", {"digest": digest})
        return rows[0][0] if rows else None

    def _freed(self) -> None:
        self._store._index_later(self._target)

    async def _look(self) -> int:
        rows = self._store._query("SELECT head FROM session WHERE key = :key", {"key": self._target})
        if not rows:
            raise UnknownSession(self._session_id)
        head: int = rows[0][0]
        return head


class SQLiteStore(BufferedStore[int]):
    """Sessions in one SQLite file. It belongs to the event loop in which it is first used.

    Args:
        path: The file; made with its folder when it is missing, for this user only. By default `interlock.db` in
            `$INTERLOCK_HOME`, else in the user's state folder.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__()
        self.path = (default_path() if path is None else Path(path).expanduser()).absolute()
        self._reader: sqlite3.Connection | None = None

    async def list(
        self, *, limit: int = 50, before: int | None = None, where: Where | None = None
    ) -> builtins.list[SessionInfo]:
        await self._opened()
        bounds = {"limit": limit, "before": _END_OF_TIME if before is None else before}
        meant = where or Where()
        if meant.tool is not None or meant.reason is not None:
            await self._index()
        statement = _SELECT_SESSIONS.format(and_meant="".join([f" AND {one}" for one in meant_by(meant)]))
        return [
            SessionInfo(*row) for row in self._query(statement, {**bounds, **msgspec.structs.asdict(meant)})
        ]

    async def search(self, text: str, *, where: Where | None = None, limit: int = 20) -> builtins.list[Match]:
        query = Query(text)
        if not query.terms:
            return []
        await self._index()
        try:
            found = await asyncio.to_thread(self._find_passages, query, where or Where(), limit)
        except sqlite3.Error as error:
            raise SessionError(f"The store cannot be searched: {error} ({self.path})") from error
        matches = [await self._match(one, query) for one in found]
        return [match for match in matches if match is not None]

    def _find_passages(self, query: Query, where: Where, limit: int) -> builtins.list[Found]:
        with closing(connect(self.path)) as connection:  # in a thread of its own: it can take a while
            return find_passages(connection, query, where, limit)

    async def _match(self, found: Found, query: Query) -> Match | None:
        """What is shown of a line; None: it has gone meanwhile."""
        try:
            journal = await self._find(found.session, readonly=True)
            said = next(passages(journal.read(found.seq, found.seq)), None)
        except UnknownSession:
            return None
        if said is None or not query.has(said.text):
            return None
        excerpt, marks = query.excerpt(said.text)
        return Match(
            session=found.session,
            seq=found.seq,
            turn=found.turn,
            place=found.place,
            time=found.time,
            excerpt=excerpt,
            marks=marks,
            rank=found.rank,
            tool=found.tool,
            cwd=found.cwd,
        )

    async def _index(self) -> None:
        """Bring the index up to what was appended so far."""
        writer = await self._opened()
        assert isinstance(writer, SQLiteWriter)
        self._check_failure()
        self._flush()
        try:
            more = True
            while more:  # in pieces, so that a barrier need not wait for all of it
                call = Call(writer.index, asyncio.get_running_loop().create_future())
                writer.put(call)
                more = await call.done
        except sqlite3.Error as error:
            raise SessionError(f"The store cannot be indexed: {error} ({self.path})") from error

    def _index_later(self, session: int) -> None:
        """Index a session that is not written any more; what is left of a long one waits for the next search."""
        writer = self._writer
        assert isinstance(writer, SQLiteWriter)

        def index() -> None:
            with suppress(sqlite3.Error):  # the next search tries again, and says so
                writer.index(session)

        assert self._loop is not None
        writer.put(Call(index, self._loop.create_future()))

    async def approvals(self) -> builtins.list[tuple[str, int]]:
        await self._opened()
        return [(session, asked) for session, asked in self._query(_SELECT_APPROVALS, {})]

    def _new_writer(self) -> SQLiteWriter:
        return SQLiteWriter(self.path, self._settled)

    async def _start_reading(self) -> None:
        try:
            self._reader = connect(self.path)
            # It opens its files now, to read on even when their folder is deleted.
            self._reader.execute("SELECT 1 FROM session LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise StoreFailed(f"{error} ({self.path})") from error

    async def _stop_reading(self) -> None:
        if self._reader is not None:
            self._reader.close()  # before the writer: the last to leave tidies the file
            self._reader = None

    def _made(self, session_id: str, target: int) -> SQLiteJournal:
        return SQLiteJournal(self, session_id, target, -1, About(), readonly=False)

    async def _find(self, session_id: str, *, readonly: bool) -> SQLiteJournal:
        rows = self._query(
            "SELECT key, head, format, cwd, agent, title FROM session WHERE id = :id", {"id": session_id}
        )
        if not rows:
            raise UnknownSession(session_id)
        key, head, *about = rows[0]
        return SQLiteJournal(self, session_id, key, head, About(*about), readonly=readonly)

    def _query(self, statement: str, values: dict[str, Any]) -> builtins.list[Any]:
        if self._reader is None:
            raise StoreClosed
        try:
            return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise SessionError(f"The store cannot be read: {error} ({self.path})") from error
