"""Logs in one SQLite file: the default store.

Lives here: `SQLiteStore` and its journals. Writing happens in the writer's thread, reading here, on a connection of
its own.
"""

from __future__ import annotations

import asyncio
import builtins
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from interlock.errors import SessionError, StoreClosed, StoreFailed, UnknownSession, UnreadableLog
from interlock.log.checkpoint import Kept
from interlock.log.event import Event
from interlock.log.stores.holder import TERM
from interlock.log.stores.holding import held
from interlock.log.stores.leasing import FIRST, LeasingJournal, LeasingStore, named
from interlock.log.stores.listing import About
from interlock.log.stores.mail_watch import MailWatch
from interlock.log.stores.passages import passages
from interlock.log.stores.query import Match, Query, Where
from interlock.log.stores.rows import events_of, item_of
from interlock.log.stores.sqlite.checkpoint import SELECT_CHECKPOINT
from interlock.log.stores.sqlite.database import connect, default_path
from interlock.log.stores.sqlite.index import Found, find_passages, meant_by
from interlock.log.stores.sqlite.lease import HELD, now
from interlock.log.stores.sqlite.mail import WAITING, letters
from interlock.log.stores.sqlite.writer import SQLiteWriter
from interlock.log.stores.store import Letter, SessionInfo
from interlock.log.stores.writer import Call

if TYPE_CHECKING:
    from interlock.log.facts import ContentErased
    from interlock.log.stores.gone import Gone, Standing

T = TypeVar("T")

_PAGE = 500  # rows read at once

_SELECT_ROWS = f"""
SELECT first, lines, data, artifacts, type, time, life, causes, ignorable FROM event
WHERE session = :session AND first <= :last
AND first >= (SELECT max(first) FROM event WHERE session = :session AND first <= :first)
ORDER BY first LIMIT {_PAGE}
"""
_SELECT_SESSIONS = """
WITH wanted AS NOT MATERIALIZED (SELECT * FROM session WHERE head >= 0 AND updated < :before{and_meant})
SELECT id, created, updated, head + 1, cwd, agent, title, bytes, erased FROM wanted
WHERE updated >= ifnull((SELECT updated FROM wanted ORDER BY updated DESC LIMIT 1 OFFSET :limit - 1), 0)
ORDER BY updated DESC, key DESC
"""
_SELECT_APPROVALS = """
SELECT session.id, asked FROM open_approval JOIN session ON session.key = open_approval.session
ORDER BY open_approval.session, asked
"""
_END_OF_TIME = 2**62


class SQLiteJournal(LeasingJournal):
    """The lines of one session in a SQLite file."""

    def __init__(
        self, store: SQLiteStore, session_id: str, key: int, head: int, about: About, *, fence: int | None
    ) -> None:
        super().__init__(store, session_id, key, head, about, readonly=fence is None, fence=fence)
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

    async def _stored_checkpoint(self) -> Kept | None:
        rows = self._store._query(SELECT_CHECKPOINT, {"session": self._target})
        return Kept(*rows[0]).whole(self._artifact) if rows else None

    def _freed(self) -> asyncio.Future[Any] | None:
        freed = super()._freed()
        self._store._index_later(self._target)
        return freed

    async def letters(self, after: int) -> list[Letter]:
        return letters(self._store._query, self._target, after)

    def on_letter(self, tell: Callable[[], None] | None) -> None:
        self._store._mail.listen(self._target, tell)

    async def forget_letters(self, last: int) -> None:
        await self._store._forget_letters(self._target, last)

    async def _look(self) -> int:
        rows = self._store._query("SELECT head FROM session WHERE key = :key", {"key": self._target})
        if not rows:
            raise UnknownSession(self._session_id)
        head: int = rows[0][0]
        return head


class SQLiteStore(LeasingStore):
    """Sessions in one SQLite file. It belongs to the event loop in which it is first used.

    Args:
        path: The file; made with its folder when it is missing, for this user only. By default `interlock.db` in
            `$INTERLOCK_HOME`, else in the user's state folder.
        term: Seconds for which a session that is open for writing stays closed to others without a sign of life.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, term: float = TERM) -> None:
        super().__init__(term=term)
        self.path = (default_path() if path is None else Path(path).expanduser()).absolute()
        self._reader: sqlite3.Connection | None = None
        self._mail = MailWatch(self._with_letters)

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

    async def _holder(self, session_id: str) -> str | None:
        return named(session_id, self._query(HELD, {"id": session_id, "now": now()}))

    async def approvals(self) -> builtins.list[tuple[str, int]]:
        await self._opened()
        return [(session, asked) for session, asked in self._query(_SELECT_APPROVALS, {})]

    async def post(self, session_id: str, data: bytes, *, time: int) -> int:
        key, number = await self._in_thread(lambda: self._sqlite.post(session_id, data, time))
        self._mail.posted(key)
        return number

    async def _forget_letters(self, session: int, last: int) -> None:
        await self._in_thread(lambda: self._sqlite.forget_letters(session, last))

    @property
    def _sqlite(self) -> SQLiteWriter:
        assert isinstance(self._writer, SQLiteWriter)
        return self._writer

    def _with_letters(self) -> builtins.list[int]:
        """The sessions that have some, those of other processes' among them."""
        with suppress(SessionError):  # it looks again soon
            return [key for (key,) in self._query(WAITING, {})]
        return []

    async def standings(self) -> builtins.list[Standing]:
        from interlock.log.stores.sqlite import erasing as sqlite_erasing

        await self._opened()
        return await self._beside(sqlite_erasing.standings)

    async def erase(self, erasures: Sequence[ContentErased], *, time: int) -> builtins.list[Gone]:
        from interlock.log.stores.sqlite import erasing as sqlite_erasing

        async with held(self, [one.session_id for one in erasures]):
            return await self._alter(partial(sqlite_erasing.erase, erasures=erasures, now=time))

    async def remove(self, heads: Mapping[str, int]) -> builtins.list[Gone]:
        from interlock.log.stores.sqlite import erasing as sqlite_erasing

        async with held(self, heads, busy=True) as found:
            going = {session_id: heads[session_id] for session_id in found}
            return await self._alter(partial(sqlite_erasing.remove, heads=going))

    async def collect(self) -> builtins.list[str]:
        from interlock.log.stores.sqlite import erasing as sqlite_erasing

        return await self._alter(sqlite_erasing.collect)

    async def compact(self) -> str | None:
        from interlock.log.stores.sqlite import erasing as sqlite_erasing

        await self._opened()
        try:
            return await asyncio.to_thread(sqlite_erasing.compact, self.path)
        except sqlite3.Error as error:
            return f"{self.path} could not be written anew: {error}"

    async def size(self) -> int:
        from interlock.log.stores.sqlite import erasing as sqlite_erasing

        return await asyncio.to_thread(sqlite_erasing.size, self.path)

    async def _alter(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do this in a transaction of the writer's; it is on disk when this returns."""
        self._check_failure()
        return await self._in_thread(lambda: self._sqlite.alter(work))

    async def _beside(self, look: Callable[[sqlite3.Connection], T]) -> T:
        """What is found on a connection of its own, in a thread: it can take a while."""

        def looked() -> T:
            with closing(connect(self.path)) as connection:
                return look(connection)

        try:
            return await asyncio.to_thread(looked)
        except sqlite3.Error as error:
            raise SessionError(f"The store cannot be read: {error} ({self.path})") from error

    def _new_writer(self) -> SQLiteWriter:
        return SQLiteWriter(self.path, self._settled, term=self._term)

    async def _start_reading(self) -> None:
        try:
            self._reader = connect(self.path)
            # It opens its files now, to read on even when their folder is deleted.
            self._reader.execute("SELECT 1 FROM session LIMIT 1").fetchall()
        except sqlite3.Error as error:
            raise StoreFailed(f"{error} ({self.path})") from error

    async def _stop_reading(self) -> None:
        self._mail.stop()
        if self._reader is not None:
            self._reader.close()  # before the writer: the last to leave tidies the file
            self._reader = None

    def _made(self, session_id: str, target: int) -> SQLiteJournal:
        return SQLiteJournal(self, session_id, target, -1, About(), fence=FIRST)

    async def _find(self, session_id: str, *, readonly: bool) -> SQLiteJournal:
        if readonly:
            return self._found(session_id, None)
        async with self._taken(session_id) as lease:  # from here on nobody else writes
            return self._found(session_id, lease.fence)

    def _found(self, session_id: str, fence: int | None) -> SQLiteJournal:
        rows = self._query(
            "SELECT key, head, format, cwd, agent, title FROM session WHERE id = :id", {"id": session_id}
        )
        if not rows:
            raise UnknownSession(session_id)
        key, head, *about = rows[0]
        return SQLiteJournal(self, session_id, key, head, About(*about), fence=fence)

    def _query(self, statement: str, values: dict[str, Any]) -> builtins.list[Any]:
        if self._reader is None:
            raise StoreClosed
        try:
            return self._reader.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise SessionError(f"The store cannot be read: {error} ({self.path})") from error
