"""Taking what sessions hold out of a PostgreSQL database, or the sessions themselves.

Lives here: `Erasing`, whose methods are a transaction each, on the connection of whoever writes; `standings`, by which
it is decided; and `compact`, which has the server write the tables anew. What the server keeps elsewhere, its write-ahead
log and the backups that somebody makes of it, is not reached from here. It imports psycopg, so it is imported when it is
used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import psycopg

from interlock.errors import UnknownSession
from interlock.log.event import Event
from interlock.log.facts import ContentErased
from interlock.log.packing import Run, erased
from interlock.log.stores.gone import Gone, Standing, above_in
from interlock.log.stores.postgres.database import Database
from interlock.log.stores.rows import needed_by, row_of

if TYPE_CHECKING:
    from interlock.log.stores.postgres.reading import Reading

TABLES = ("event", "artifact", "session", "checkpoint", "letter", "open_approval", "lease")

_QUICK = 256 << 20  # bytes of tables that are written anew in a few seconds, for which others can wait

_STANDINGS = """
SELECT key, id, head, updated, bytes, erased IS NOT NULL,
    coalesce((SELECT type FROM {s}.event WHERE session = session.key AND type IN ('turn/start', 'turn/end')
        ORDER BY first DESC LIMIT 1), '') = 'turn/start',
    (SELECT count(*) FROM {s}.open_approval WHERE session = session.key),
    (SELECT count(*) FROM {s}.letter WHERE session = session.key),
    (SELECT data FROM {s}.event WHERE session = session.key AND first = 0)
FROM {s}.session WHERE head >= 0
"""
_REFERRING = """
SELECT session, data, artifacts FROM {s}.event WHERE artifacts IS NOT NULL
UNION ALL SELECT session, data, artifacts FROM {s}.checkpoint WHERE artifacts IS NOT NULL
"""
_SIZES = "SELECT digest, length(data) FROM {s}.artifact"
_FIND = "SELECT key, head, bytes, erased FROM {s}.session WHERE id = %s FOR UPDATE"
# Those who store a text hold a lock on the table until the line that refers to it is there as well.
_NOBODY_ADDS = "LOCK TABLE {s}.artifact IN SHARE ROW EXCLUSIVE MODE"
_HELD = """
SELECT coalesce(sum(coalesce(lines, 1)), 0), coalesce(sum(length(data)), 0) FROM {s}.event
WHERE session = %s AND length(data) > 0
"""
_RUNS = "SELECT first, lines, time, life, data FROM {s}.event WHERE session = %s AND lines IS NOT NULL"
_SET_RUN = "UPDATE {s}.event SET data = %b WHERE session = %s AND first = %s"
_BLANK = "UPDATE {s}.event SET data = ''::bytea, artifacts = NULL WHERE session = %s AND lines IS NULL"
_BLANK_LIST = """
UPDATE {s}.session SET format = NULL, cwd = NULL, agent = NULL, title = NULL, erased = %s,
    bytes = (SELECT sum(length(data)) FROM {s}.event WHERE session = key)
WHERE key = %s
"""
_LIFE = "SELECT life FROM {s}.event WHERE session = %s ORDER BY first DESC LIMIT 1"
_ADD = "INSERT INTO {s}.event VALUES (%s, %s, %s, %s, %s, %s, %b, %s, %b, %b)"
_NOTIFY = "SELECT pg_notify(%s, %s)"
_ALL = "SELECT digest FROM {s}.artifact ORDER BY digest"
_DELETE = "DELETE FROM {s}.artifact WHERE digest = ANY(%s)"
_SIZE = """
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0) FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %(schema)s AND relkind = 'r'
"""
_LEASES = "SELECT count(*) FROM {s}.lease WHERE expires > clock_timestamp()"


class Erasing:
    """check: at the end of a transaction, raises unless these sessions, by their keys, are ours to write to."""

    def __init__(
        self,
        database: Database,
        connection: psycopg.Connection[Any],
        check: Callable[[Iterable[int]], None],
    ) -> None:
        self._database = database
        self._connection = connection
        self._check = check

    def erase(self, erasures: Sequence[ContentErased], now: int) -> list[Gone]:
        """
        Raises:
            UnknownSession: one has no line. psycopg.Error: what the server said. Nothing was changed.
        """
        with self._connection.transaction():
            self._begin()
            keys, found = [], []
            rows = [self._find(one.session_id) for one in erasures]
            big = self._artifacts_of([key for key, *_ in rows])
            for (key, head, _, before), erasure in zip(rows, erasures, strict=True):
                gone = self._beside(key, erasure.session_id)
                if before is None:
                    gone = self._blank(key, head, gone, erasure, now)
                keys.append(key)
                found.append(gone)
            found = self._without_artifacts(found, big)
            self._check(keys)
        return found

    def remove(self, heads: Mapping[str, int]) -> list[Gone]:
        """
        Raises:
            psycopg.Error: what the server said. Nothing was changed.
        """
        with self._connection.transaction():
            self._begin()
            keys, found = [], []
            for session_id, expected in heads.items():
                key, head, size, _ = self._find(session_id)
                ((letters,),) = self._run("SELECT count(*) FROM {s}.letter WHERE session = %s", [key])
                if head == expected and not letters:
                    keys.append(key)
                    found.append(Gone(session_id, events=head + 1, bytes=size))
            self._check(keys)
            big = self._artifacts_of(keys)
            removed = []
            for key, gone in zip(keys, found, strict=True):
                beside = self._beside(key, gone.session)
                removed.append(msgspec.structs.replace(beside, events=gone.events, bytes=gone.bytes))
                for table, column in (("event", "session"), ("lease", "session"), ("session", "key")):
                    self._run(f"DELETE FROM {{s}}.{table} WHERE {column} = %s", [key])
            return self._without_artifacts(removed, big)

    def collect(self) -> list[str]:
        """Delete the artifacts that nothing refers to; their digests."""
        with self._connection.transaction():
            self._begin()
            needed = self._needed()
            unneeded = [digest for (digest,) in self._run(_ALL) if digest not in needed]
            self._run(_DELETE, [unneeded])
        return unneeded

    def _begin(self) -> None:
        self._run("SET LOCAL synchronous_commit = on")
        self._run(_NOBODY_ADDS)

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        done = self._connection.execute(self._database.sql(statement), values or None, binary=True)
        return done.fetchall() if done.description else []

    def _find(self, session_id: str) -> tuple[int, int, int, int | None]:
        rows = self._run(_FIND, [session_id])
        if not rows or rows[0][1] < 0:
            raise UnknownSession(session_id)
        found: tuple[int, int, int, int | None] = rows[0]
        return found

    def _beside(self, key: int, session_id: str) -> Gone:
        """Delete what there is of a session beside its lines."""
        deleted = {}
        for table in ("open_approval", "letter", "checkpoint"):
            done = self._connection.execute(
                self._database.sql(f"DELETE FROM {{s}}.{table} WHERE session = %s"), [key]
            )
            deleted[table] = done.rowcount
        return Gone(
            session_id,
            letters=deleted["letter"],
            questions=deleted["open_approval"],
            checkpoint=deleted["checkpoint"] > 0,
        )

    def _blank(self, key: int, head: int, gone: Gone, erasure: ContentErased, now: int) -> Gone:
        """Empty the lines and what a list shows of them, and append the line that says so."""
        ((events, size),) = self._run(_HELD, [key])
        for first, lines, time, life, data in self._run(_RUNS, [key]):
            left = erased(Run(first, lines, time, life, data)).data
            self._run(_SET_RUN, [left, key, first])
        self._run(_BLANK, [key])
        ((life,),) = self._run(_LIFE, [key])
        self._run(_BLANK_LIST, [now, key])
        self._run(_ADD, row_of(key, Event(head + 1, now, life, erasure)))
        self._run(_NOTIFY, [self._database.channel, f"{key} {head + 1}"])
        return msgspec.structs.replace(gone, events=int(events), bytes=int(size))

    def _references(self) -> dict[int, set[str]]:
        return _references(self._run(_REFERRING))

    def _needed(self) -> set[str]:
        return {digest for digests in self._references().values() for digest in digests}

    def _artifacts_of(self, keys: Iterable[int]) -> list[set[str]]:
        found = self._references()
        return [found.get(key, set()) for key in keys]

    def _without_artifacts(self, found: Sequence[Gone], big: Sequence[set[str]]) -> list[Gone]:
        """Delete those artifacts that nobody else needs."""
        needed = self._needed()
        self._run(_DELETE, [sorted(set().union(*big) - needed)])
        return [
            msgspec.structs.replace(
                gone, artifacts=tuple(sorted(digests - needed)), kept=tuple(sorted(digests & needed))
            )
            for gone, digests in zip(found, big, strict=True)
        ]


def _references(rows: Iterable[Any]) -> dict[int, set[str]]:
    """The artifacts that each session refers to, by its key."""
    found: dict[int, set[str]] = {}
    for key, data, paths in rows:
        found.setdefault(key, set()).update(needed_by(data, paths))
    return found


async def standings(reading: Reading) -> list[Standing]:
    sizes = dict(await reading.ask(_SIZES, {}))
    big = {
        session: sum(sizes.get(digest, 0) for digest in digests)
        for session, digests in _references(await reading.ask(_REFERRING, {})).items()
    }
    return [
        Standing(
            id_,
            head,
            updated,
            size + big.get(key, 0),
            open_,
            asks,
            letters,
            above_in(first or b""),
            gone,
        )
        for key, id_, head, updated, size, gone, open_, asks, letters, first in await reading.ask(
            _STANDINGS, {}
        )
    ]


async def size(reading: Reading, database: Database) -> int:
    """What the tables measure, with their indexes."""
    ((found,),) = await reading.ask(_SIZE, {"schema": database.schema})
    return int(found)


async def compact(reading: Reading, database: Database) -> str | None:
    """Have the tables written anew; why that was not done, if it was not."""
    ((leases,),) = await reading.ask(_LEASES, {})
    if leases and await size(reading, database) > _QUICK:
        return (
            f"{database.place} is large, and sessions in it are driven, which would have to wait for longer than they "
            f"can: its tables were not written anew. Run it again when none is"
        )
    try:
        connection = await database.connect_async()
        async with connection:
            await connection.execute("SET statement_timeout = 0")
            for table in TABLES:
                await connection.execute(database.sql(f"VACUUM (FULL) {{s}}.{table}"))
    except psycopg.Error as error:
        return f"the tables of {database.place} could not be written anew: {' '.join(str(error).split())}"
    return None
