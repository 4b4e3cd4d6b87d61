"""Reading from a PostgreSQL database, beside the thread that writes.

Lives here: `Reading`. What can be waited for is read without blocking the event loop; `now` is for those who cannot
wait. Nothing that is read changes anything, so a lost connection is made again and the question asked again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

import psycopg

from interlock.errors import SessionError, StoreClosed
from interlock.log.artifacts import put_back
from interlock.log.stores.postgres.database import Database, is_lost
from interlock.log.stores.rows import StoredRow, decode_paths, digests_in

_PAGE = 500  # rows read at once
_AT_ONCE = 32 << 20  # bytes of data that are fetched in advance, about

_PAGE_OF_ROWS = f"""
SELECT first, lines, data, artifacts, type, time, life, causes, ignorable FROM {{s}}.event
WHERE session = %(session)s AND first <= %(last)s
AND first >= (SELECT max(first) FROM {{s}}.event WHERE session = %(session)s AND first <= %(first)s)
ORDER BY first LIMIT {_PAGE}
"""
_ARTIFACTS = "SELECT digest, data FROM {s}.artifact WHERE digest = ANY(%(digests)s)"

Values = Mapping[str, Any]


class Reading:
    """Connections that read: one for what is awaited, one for what is not, each made when it is first needed.

    patience: seconds in which a lost connection has to be made again.
    """

    def __init__(self, database: Database, *, patience: float) -> None:
        self._database = database
        self._patience = patience
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self._turn = asyncio.Lock()  # of those who use it
        self._blocking: psycopg.Connection[Any] | None = None
        self._closed = False

    async def ask(self, statement: str, values: Values) -> list[Any]:
        """The rows of an answer.

        Raises:
            SessionError: the database cannot be read.
        """
        deadline = time.monotonic() + self._patience
        pause = 0.02
        while True:
            async with self._turn:
                if self._closed:
                    raise StoreClosed
                try:
                    if self._connection is None:
                        self._connection = await self._database.connect_async()
                    cursor = await self._connection.execute(
                        self._database.sql(statement), values, binary=True
                    )
                    return await cursor.fetchall()
                except psycopg.Error as error:
                    lost = self._connection is None or is_lost(self._connection, error)
                    if lost and self._connection is not None:
                        await self._connection.close()
                        self._connection = None
                    if not lost or time.monotonic() + pause > deadline:
                        raise self._unreadable(error) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.5)

    def now(self, statement: str, values: Values) -> list[Any]:
        """The rows of an answer, for which the event loop waits.

        Raises:
            SessionError: the database cannot be read.
        """
        if self._closed:
            raise StoreClosed
        for last_try in (False, True):
            try:
                if self._blocking is None:
                    self._blocking = self._database.connect()
                return self._blocking.execute(self._database.sql(statement), values, binary=True).fetchall()
            except psycopg.Error as error:
                lost = self._blocking is None or is_lost(self._blocking, error)
                if lost and self._blocking is not None:
                    self._blocking.close()
                    self._blocking = None
                if not lost or last_try:
                    raise self._unreadable(error) from error
        raise AssertionError  # one of the two has answered

    def _unreadable(self, error: psycopg.Error) -> SessionError:
        return SessionError(
            f"The store cannot be read: {' '.join(str(error).split())} ({self._database.place})"
        )

    async def rows(self, session: int, first: int, last: int) -> list[StoredRow]:
        """Rows from the one with line `first` on, their big texts put back; not all, when they are very many."""
        found: list[StoredRow] = []
        size = 0
        while first <= last and size < _AT_ONCE:
            page = await self.ask(_PAGE_OF_ROWS, {"session": session, "first": first, "last": last})
            if not page:
                break
            digests = [digest for row in page if row[3] is not None for digest in digests_in(row[2], row[3])]
            artifacts = await self.artifacts(digests)
            for row in page:
                whole = _whole(row, artifacts)
                size += len(whole[2])
                found.append(whole)
            first = found[-1][0] + (found[-1][1] or 1)
        return found

    async def artifacts(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Those of these artifacts that are there."""
        return dict(await self.ask(_ARTIFACTS, {"digests": digests})) if digests else {}

    def page(self, session: int, first: int, last: int) -> Sequence[StoredRow]:
        """Some rows from the one with line `first` on, for which the event loop waits."""
        return self.now(_PAGE_OF_ROWS, {"session": session, "first": first, "last": last})

    def artifact(self, digest: str) -> bytes | None:
        rows = self.now(_ARTIFACTS, {"digests": [digest]})
        return rows[0][1] if rows else None

    async def close(self) -> None:
        async with self._turn:
            self._closed = True
            if self._connection is not None:
                await self._connection.close()
            if self._blocking is not None:
                self._blocking.close()


def _whole(row: StoredRow, artifacts: Mapping[str, bytes]) -> StoredRow:
    """The row with its big texts; as it is, when one of them is missing: whoever reads that line hears of it."""
    first, lines, data, paths, type_, written, life, causes, ignorable = row
    if paths is None or not artifacts.keys() >= set(digests_in(data, paths)):
        return row
    whole = put_back(data, decode_paths(paths), artifacts.__getitem__)
    return first, lines, whole, None, type_, written, life, causes, ignorable
