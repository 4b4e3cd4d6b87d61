"""Who may write to a session of a SQLite file: its lease, and the number by which the file tells a holder of before.

Lives here: `SQLiteLeases`. Each taking raises the session's fence by one. The connection that writes keeps the fences
that it holds in a table of its own, and a trigger of its own refuses each line of a session whose fence is another one
by now: so the check is in the transaction of the line, and costs two look-ups.
"""

from __future__ import annotations

import sqlite3
from time import time

from interlock.errors import LeaseLost, SessionBusy, StoreFailed, UnknownSession
from interlock.log.stores.holder import Holder, decode_holder, encode_holder
from interlock.log.stores.leasing import Lease

_SET_UP = (
    "PRAGMA temp_store = MEMORY",
    "CREATE TEMP TABLE held (session INTEGER PRIMARY KEY, fence INTEGER NOT NULL)",
    """
    CREATE TEMP TRIGGER lines_are_the_holders BEFORE INSERT ON main.event
    WHEN (SELECT fence FROM main.session WHERE key = NEW.session)
        IS NOT (SELECT fence FROM temp.held WHERE session = NEW.session)
    BEGIN
        SELECT RAISE(ABORT, 'the session is held by another writer');
    END""",
)
_FIND = """
SELECT key, session.fence, expires, holder FROM session LEFT JOIN lease ON lease.session = key WHERE id = ?
"""
HELD = """
SELECT expires > :now, holder FROM session LEFT JOIN lease ON lease.session = key WHERE id = :id
"""
_LOST = """
SELECT held.session, id, holder FROM temp.held
LEFT JOIN main.session ON key = held.session LEFT JOIN main.lease ON lease.session = held.session
WHERE main.session.fence IS NOT held.fence
"""
_RENEW = """
UPDATE lease SET expires = ?, holder = ?
WHERE EXISTS (SELECT 1 FROM temp.held WHERE held.session = lease.session AND held.fence = lease.fence)
"""


class SQLiteLeases:
    """What one writing connection holds. It is used in the writer's thread, in a transaction that the writer opens.

    term: seconds after which a lease expires.
    """

    def __init__(self, connection: sqlite3.Connection, *, term: float) -> None:
        self._connection = connection
        self._term = term
        for statement in _SET_UP:
            connection.execute(statement)
        self.holder = Holder.here()

    def take(self, session_id: str) -> Lease:
        """Raise the fence of the session, which is ours from then on.

        Raises:
            UnknownSession: there is none.
            SessionBusy: somebody else holds it, whose lease has not expired and who may be alive.
        """
        found = self._connection.execute(_FIND, (session_id,)).fetchone()
        if found is None:
            raise UnknownSession(session_id)
        key, fence, expires, data = found
        if data is not None:
            holder = decode_holder(data)
            if holder.store != self.holder.store and holder.may_write(current=expires > now()):
                raise SessionBusy(session_id, str(holder))
        self._connection.execute("UPDATE session SET fence = ? WHERE key = ?", (fence + 1, key))
        self.hold(key, fence + 1)
        return Lease(key, fence + 1)

    def hold(self, key: int, fence: int) -> None:
        """Note that a session is ours, with the fence that it has now."""
        row = (key, fence, *self._for_now())
        self._connection.execute("INSERT OR REPLACE INTO lease VALUES (?, ?, ?, ?)", row)
        self._connection.execute("INSERT OR REPLACE INTO temp.held VALUES (?, ?)", row[:2])

    def _for_now(self) -> tuple[int, bytes]:
        """When it expires, and who holds it until then."""
        return now() + int(self._term * 1000), encode_holder(self.holder.for_now(self._term))

    def give_back(self, lease: Lease) -> None:
        """Let others in. What somebody else has taken meanwhile is left alone."""
        for table in ("main.lease", "temp.held"):
            self._connection.execute(f"DELETE FROM {table} WHERE session = ? AND fence = ?", lease)

    def give_all_back(self) -> None:
        for held in self._connection.execute("SELECT session, fence FROM temp.held").fetchall():
            self.give_back(Lease(*held))

    def renew(self) -> list[tuple[int, StoreFailed]]:
        """Keep what is ours, also what has expired and nobody took; what was taken, by the key, with who has it."""
        if not self._connection.execute("SELECT 1 FROM temp.held LIMIT 1").fetchone():
            return []
        self._connection.execute(_RENEW, self._for_now())
        return [(key, self._loss(key, *rest)) for key, *rest in self._connection.execute(_LOST).fetchall()]

    def lost(self, key: int) -> StoreFailed | None:
        """Why a line of this session was refused, if it was because somebody has taken it over."""
        for found, *rest in self._connection.execute(_LOST).fetchall():
            if found == key:
                return self._loss(key, *rest)
        return None

    def _loss(self, key: int, session_id: str | None, data: bytes | None) -> StoreFailed:
        if session_id is None:
            return StoreFailed("the session is no longer in the file")
        return LeaseLost(session_id, "another process" if data is None else str(decode_holder(data)))


def now() -> int:
    """By which leases expire for other machines: epoch milliseconds."""
    return int(time() * 1000)
