"""Logs in a PostgreSQL database, for agents on several machines.

Lives here: `PostgresStore` and its journals. What a reader is going to need is fetched when a session is opened or
refreshed, without blocking the event loop; only who reads far back in a long session waits for the server.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from interlock.errors import ConfigError, StoreClosed, UnknownSession, UnreadableLog, UsageError
from interlock.log.event import Event
from interlock.log.stores.buffered import BufferedJournal
from interlock.log.stores.holder import TERM
from interlock.log.stores.holding import held
from interlock.log.stores.leasing import FIRST, LeasingJournal, LeasingStore, named
from interlock.log.stores.listing import About
from interlock.log.stores.query import Match, Where
from interlock.log.stores.rows import StoredRow, events_of, item_of
from interlock.log.stores.scanning import list_by_scan, search_by_scan
from interlock.log.stores.store import Letter, SessionInfo

if TYPE_CHECKING:
    from interlock.log.checkpoint import Kept
    from interlock.log.facts import ContentErased
    from interlock.log.stores.gone import Gone, Standing
    from interlock.log.stores.postgres.erasing import Erasing
    from interlock.log.stores.postgres.listening import Listening
    from interlock.log.stores.postgres.reading import Reading
    from interlock.log.stores.postgres.writer import PostgresWriter

T = TypeVar("T")

PATIENCE = 10.0  # seconds in which a lost connection has to be made again

_RECENT = 64  # lines that stay in memory when they are stored: who follows close behind finds them there

_SELECT_SESSION = "SELECT key, head, format, cwd, agent, title FROM {s}.session WHERE id = %(id)s"
_SELECT_SESSIONS = """
SELECT id, created, updated, head + 1, cwd, agent, title, bytes, erased FROM {s}.session
WHERE head >= 0 AND updated < %(before)s AND updated >= coalesce(
    (SELECT updated FROM {s}.session WHERE head >= 0 AND updated < %(before)s
        ORDER BY updated DESC LIMIT 1 OFFSET %(limit)s - 1),
    0)
ORDER BY updated DESC, key DESC
"""
_SELECT_HEAD = "SELECT head FROM {s}.session WHERE key = %(key)s"
_SELECT_APPROVALS = """
SELECT session.id, asked FROM {s}.open_approval JOIN {s}.session ON session.key = open_approval.session
ORDER BY open_approval.session, asked
"""
_END_OF_TIME = 2**62


class PostgresJournal(LeasingJournal):
    """The lines of one session in a database."""

    def __init__(
        self,
        store: PostgresStore,
        session_id: str,
        key: int,
        head: int,
        about: About,
        *,
        fence: int | None,
    ) -> None:
        super().__init__(store, session_id, key, head, about, readonly=fence is None, fence=fence)
        self._store = store
        #: Kept until the next barrier or refresh: who opens or follows reads it before.
        self._fetched: Sequence[StoredRow] = ()
        self._recent: list[Event] = []  # the last stored lines of those that were written here

    def _item(self, event: Event) -> tuple[object, int]:
        if "\0" in event.type:
            raise ValueError(f"line {event.seq}: PostgreSQL keeps no NUL in a type, as in {event.type!r}")
        return item_of(self._target, event)

    def _committed(self, last: int) -> None:
        stored = self._tail[: last - self._tail[0].seq + 1]
        self._recent = [*self._recent, *stored][-_RECENT:]
        super()._committed(last)

    def _stored(self, first: int, last: int) -> Iterator[Event]:
        reading = self._store._reading_now()
        while first <= last:
            if (recent := self._recent) and recent[0].seq <= first:
                at = first - recent[0].seq
                yield from recent[at : at + last + 1 - first]
                return
            missing = first
            rows = self._prefetched(first)
            if not rows:
                rows = reading.page(self._target, first, last)
            for event in events_of(rows, first, last, reading.artifact):
                yield event
                first = event.seq + 1
            if first == missing:
                raise UnreadableLog(missing, f"it is missing in {self._store.place}")

    def _prefetched(self, first: int) -> Sequence[StoredRow]:
        """The fetched rows from the one with this line on, if it is among them."""
        rows, low, high = self._fetched, 0, len(self._fetched)
        while low < high:
            middle = (low + high) // 2
            if rows[middle][0] <= first:
                low = middle + 1
            else:
                high = middle
        if low == 0 or first >= rows[low - 1][0] + (rows[low - 1][1] or 1):
            return ()
        return rows[low - 1 :]

    async def _prepare(self, *, checkpoint: bool) -> None:
        await super()._prepare(checkpoint=checkpoint)
        kept = self.checkpoint
        first = kept.seq if kept is not None and kept.sound(self._session_id, self._head) else 0
        self._fetched = await self._store._reading_now().rows(self._target, first, self._head)

    async def _stored_checkpoint(self) -> Kept | None:
        from interlock.log.stores.postgres.checkpoint import stored_checkpoint

        return await stored_checkpoint(self._store._reading_now(), self._target)

    async def barrier(self) -> None:
        await super().barrier()
        if not self._readonly:
            self._fetched = ()

    async def _look(self) -> int:
        reading = self._store._reading_now()
        found = await reading.ask(_SELECT_HEAD, {"key": self._target})
        if not found:
            raise UnknownSession(self._session_id)
        head: int = found[0][0]
        if head > self._head:
            self._fetched = await reading.rows(self._target, self._head + 1, head)
        return head

    async def letters(self, after: int) -> list[Letter]:
        from interlock.log.stores.postgres.mail import LETTERS

        values = {"key": self._target, "after": after}
        return [Letter(*row) for row in await self._store._reading_now().ask(LETTERS, values)]

    def on_letter(self, tell: Callable[[], None] | None) -> None:
        self._store._listen(self._target, tell)

    async def forget_letters(self, last: int) -> None:
        await self._store._forget_letters(self._target, last)

    async def news(self, seconds: float) -> None:
        await self._store._listening_now().wait(self._target, self._head, seconds)


class PostgresStore(LeasingStore):
    """Sessions in one schema of a PostgreSQL database. It belongs to the event loop in which it is first used.

    Args:
        conninfo: The address, as psycopg and libpq read it: `postgresql://user@host/database`, or `host=… dbname=…`.
        schema: Made when it is missing, with its tables.
        patience: Seconds in which a lost connection has to be made again, before the store has failed.
        term: Seconds for which a session that is open for writing stays closed to others without a sign of life, by
            the clock of the server.

    Raises:
        ConfigError: psycopg is not installed, or the address cannot be used.
    """

    def __init__(
        self, conninfo: str, *, schema: str = "interlock", patience: float = PATIENCE, term: float = TERM
    ) -> None:
        super().__init__(term=term)
        try:
            from interlock.log.stores.postgres.database import Database
        except ImportError:
            raise ConfigError(
                "psycopg is not installed. Install it: pip install 'interlock[postgres]'."
            ) from None
        self._database = Database(conninfo, schema)
        self._patience = patience
        self._reading: Reading | None = None
        self._listening: Listening | None = None

    @property
    def place(self) -> str:
        """Where the sessions are, for a person; without a password."""
        return self._database.place

    async def create(self, session_id: str) -> BufferedJournal[int]:
        if not _can_be_kept(session_id):
            raise UsageError(
                f"PostgreSQL keeps no session named {session_id[:50]!r}: its id has to be text without NUL."
            )
        return await super().create(session_id)

    async def list(
        self, *, limit: int = 50, before: int | None = None, where: Where | None = None
    ) -> builtins.list[SessionInfo]:
        if where is not None:
            return await list_by_scan(self, limit=limit, before=before, where=where)
        await self._opened()
        bounds = {"limit": limit, "before": _END_OF_TIME if before is None else before}
        return [SessionInfo(*row) for row in await self._reading_now().ask(_SELECT_SESSIONS, bounds)]

    async def search(self, text: str, *, where: Where | None = None, limit: int = 20) -> builtins.list[Match]:
        return await search_by_scan(self, text, where=where or Where(), limit=limit)

    async def _holder(self, session_id: str) -> str | None:
        from interlock.log.stores.postgres.lease import HELD

        if not _can_be_kept(session_id):
            raise UnknownSession(session_id)
        return named(session_id, await self._reading_now().ask(HELD, {"id": session_id}))

    async def approvals(self) -> builtins.list[tuple[str, int]]:
        await self._opened()
        found: builtins.list[Any] = await self._reading_now().ask(_SELECT_APPROVALS, {})
        return [(session, asked) for session, asked in found]

    async def post(self, session_id: str, data: bytes, *, time: int) -> int:
        if not _can_be_kept(session_id):
            raise UnknownSession(session_id)
        return await self._in_thread(lambda: self._postgres.post(session_id, data, time))

    async def standings(self) -> builtins.list[Standing]:
        from interlock.log.stores.postgres.erasing import standings

        await self._opened()
        return await standings(self._reading_now())

    async def erase(self, erasures: Sequence[ContentErased], *, time: int) -> builtins.list[Gone]:
        async with held(self, [one.session_id for one in erasures]):
            return await self._alter(lambda erasing: erasing.erase(erasures, time))

    async def remove(self, heads: Mapping[str, int]) -> builtins.list[Gone]:
        async with held(self, heads, busy=True) as found:
            going = {session_id: heads[session_id] for session_id in found}
            return await self._alter(lambda erasing: erasing.remove(going))

    async def collect(self) -> builtins.list[str]:
        return await self._alter(lambda erasing: erasing.collect())

    async def compact(self) -> str | None:
        from interlock.log.stores.postgres.erasing import compact

        await self._opened()
        return await compact(self._reading_now(), self._database)

    async def size(self) -> int:
        from interlock.log.stores.postgres.erasing import size

        await self._opened()
        return await size(self._reading_now(), self._database)

    async def _alter(self, work: Callable[[Erasing], T]) -> T:
        await self._opened()
        self._check_failure()
        return await self._in_thread(lambda: self._postgres.alter(work))

    async def _forget_letters(self, session: int, last: int) -> None:
        await self._in_thread(lambda: self._postgres.forget_letters(session, last))

    def _listen(self, session: int, tell: Callable[[], None] | None) -> None:
        if self._listening is not None:  # else the store is closed, and nobody is told of anything
            self._listening.on_letter(session, tell)

    @property
    def _postgres(self) -> PostgresWriter:
        writer: Any = self._writer
        made: PostgresWriter = writer
        return made

    def _new_writer(self) -> PostgresWriter:
        from interlock.log.stores.postgres.writer import PostgresWriter

        return PostgresWriter(self._database, self._settled, patience=self._patience, term=self._term)

    async def _start_reading(self) -> None:
        from interlock.log.stores.postgres.listening import Listening
        from interlock.log.stores.postgres.reading import Reading

        self._reading = Reading(self._database, patience=self._patience)
        self._listening = Listening(self._database)

    async def _stop_reading(self) -> None:
        if self._listening is not None and self._reading is not None:
            await self._listening.close()
            await self._reading.close()

    def _reading_now(self) -> Reading:
        if self._reading is None:
            raise StoreClosed
        return self._reading

    def _listening_now(self) -> Listening:
        if self._listening is None or self._closed:
            raise StoreClosed
        return self._listening

    def _made(self, session_id: str, target: int) -> PostgresJournal:
        return PostgresJournal(self, session_id, target, -1, About(), fence=FIRST)

    async def _find(self, session_id: str, *, readonly: bool) -> PostgresJournal:
        if not _can_be_kept(session_id):
            raise UnknownSession(session_id)
        if readonly:
            return await self._found(session_id, None)
        async with self._taken(session_id) as lease:  # from here on nobody else writes
            return await self._found(session_id, lease.fence)

    async def _found(self, session_id: str, fence: int | None) -> PostgresJournal:
        reading = self._reading_now()
        found = await reading.ask(_SELECT_SESSION, {"id": session_id})
        if not found:
            raise UnknownSession(session_id)
        key, head, *about = found[0]
        return PostgresJournal(self, session_id, key, head, About(*about), fence=fence)


def _can_be_kept(session_id: str) -> bool:
    try:
        return b"\0" not in session_id.encode()
    except UnicodeEncodeError:
        return False
