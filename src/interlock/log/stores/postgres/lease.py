"""Who may write to a session of a PostgreSQL database: its lease, by the clock of the server.

Lives here: `PostgresLeases`. Each taking raises the session's fence by one, and waits for whoever is writing lines of
it at that moment. Lines are followed, in their transaction, by a look whether the fence is still that of their writer:
by then the transaction has the session's row locked, so nobody can take it over in between.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from interlock.errors import LeaseLost, SessionBusy, StoreFailed, UnknownSession
from interlock.log.stores.holder import Holder, decode_holder, encode_holder
from interlock.log.stores.leasing import FIRST, Lease
from interlock.log.stores.postgres.database import Database

TAKEN = "IL002"  # the SQLSTATE of lines whose writer has lost a lease

_FIND = "SELECT key FROM {s}.session WHERE id = %s FOR UPDATE"
HELD = """
SELECT expires > clock_timestamp(), holder
FROM {s}.session LEFT JOIN {s}.lease ON lease.session = key WHERE id = %(id)s
"""
_HELD = "SELECT holder FROM {s}.lease WHERE session = %s AND expires > clock_timestamp() FOR UPDATE"
_RAISE = "UPDATE {s}.session SET fence = fence + 1 WHERE key = %s RETURNING fence"
_HOLD = """
INSERT INTO {s}.lease VALUES (%(key)s, %(fence)s, clock_timestamp() + make_interval(secs => %(term)s), %(holder)s)
ON CONFLICT (session) DO UPDATE SET fence = excluded.fence, expires = excluded.expires, holder = excluded.holder
"""
_HOLD_NEW = """
INSERT INTO {s}.lease
SELECT key, fence, clock_timestamp() + make_interval(secs => %(term)s), %(holder)s
FROM {s}.session WHERE id = %(id)s AND made = %(token)s
ON CONFLICT (session) DO NOTHING
"""
_GIVE_BACK = """
DELETE FROM {s}.lease USING unnest(%s::bigint[], %s::bigint[]) AS held (key, fence)
WHERE lease.session = held.key AND lease.fence = held.fence
"""
_CHECK = "SELECT {s}.check_fences(%s::bigint[], %s::bigint[])"
_RENEW = """
UPDATE {s}.lease SET expires = clock_timestamp() + make_interval(secs => %s)
FROM unnest(%s::bigint[], %s::bigint[]) AS held (key, fence)
WHERE lease.session = held.key AND lease.fence = held.fence
"""
_LOST = """
SELECT held.key, id, holder FROM unnest(%s::bigint[], %s::bigint[]) AS held (key, fence)
LEFT JOIN {s}.session ON session.key = held.key LEFT JOIN {s}.lease ON lease.session = held.key
WHERE session.fence IS DISTINCT FROM held.fence
"""
_WHOSE = "SELECT holder FROM {s}.lease JOIN {s}.session ON session.key = lease.session WHERE id = %s"

Connection = psycopg.Connection[Any]


class PostgresLeases:
    """What one writer holds. It is used in the writer's thread, on whatever connection that has at the moment.

    term: seconds after which a lease expires.
    """

    def __init__(self, database: Database, *, term: float) -> None:
        self._database = database
        self._term = term
        self._held: dict[int, int] = {}  # fences, by the key of the session
        self.holder = Holder.here()

    def take(self, connection: Connection, session_id: str) -> Lease:
        """Raise the fence of the session, which is ours from then on.

        Raises:
            UnknownSession: there is none.
            SessionBusy: somebody else holds it, whose lease has not expired and who may be alive.
            psycopg.Error: what the server said.
        """
        sql = self._database.sql
        try:
            with connection.transaction():
                # A server that crashes must not forget that somebody has been replaced.
                connection.execute("SET LOCAL synchronous_commit = on")
                found = connection.execute(sql(_FIND), [session_id]).fetchone()
                if found is None:
                    raise UnknownSession(session_id)
                (key,) = found
                held = connection.execute(sql(_HELD), [key]).fetchone()
                if held is not None:
                    holder = decode_holder(held[0])
                    if holder.store != self.holder.store and not holder.gone:
                        raise SessionBusy(session_id, str(holder))
                ((fence,),) = connection.execute(sql(_RAISE), [key]).fetchall()
                connection.execute(sql(_HOLD), {"key": key, "fence": fence, **self._mine()})
        except psycopg.errors.LockNotAvailable:  # somebody is in the middle of writing to it, and stays there
            whose = connection.execute(sql(_WHOSE), [session_id]).fetchone()
            raise SessionBusy(session_id, _named(whose[0] if whose is not None else None)) from None
        self._held[key] = fence
        return Lease(key, fence)

    def hold_new(self, connection: Connection, names: Iterable[tuple[str, str]]) -> None:
        """Within the transaction that makes sessions: they are ours."""
        for id_, token in names:
            values = {"id": id_, "token": token, **self._mine()}
            connection.execute(self._database.sql(_HOLD_NEW), values)

    def made(self, keys: Iterable[int | None]) -> None:
        """They were made, and are ours."""
        self._held.update([(key, FIRST) for key in keys if key is not None])

    def _mine(self) -> dict[str, Any]:
        return {"term": self._term, "holder": encode_holder(self.holder)}

    def fence_of(self, key: int) -> int | None:
        """The number with which we hold a session; None: we do not, as far as is known."""
        return self._held.get(key)

    def check(self, connection: Connection, keys: Iterable[int]) -> None:
        """At the end of a transaction that has written to these sessions: see that all of them are ours.

        Raises:
            psycopg.Error: with the SQLSTATE `TAKEN`: they are not.
        """
        fences = {key: self._held.get(key, -1) for key in keys}
        connection.execute(self._database.sql(_CHECK), [[*fences], [*fences.values()]])

    def lost(self, connection: Connection, keys: Iterable[int]) -> dict[int, StoreFailed]:
        """Those of the sessions that somebody else has taken, with who has them; they are ours no longer."""
        fences = {key: self._held.get(key, -1) for key in keys}
        found = connection.execute(self._database.sql(_LOST), [[*fences], [*fences.values()]]).fetchall()
        for key, *_ in found:
            self._held.pop(key, None)
        return {key: LeaseLost(id_, _named(holder)) for key, id_, holder in found if id_ is not None}

    def renew(self, connection: Connection) -> list[tuple[int, StoreFailed]]:
        """Keep what is ours, also what has expired and nobody took; what was taken, by the key, with who has it."""
        if not self._held:
            return []
        held = [[*self._held], [*self._held.values()]]
        connection.execute(self._database.sql(_RENEW), [self._term, *held])
        return [*self.lost(connection, [*self._held]).items()]

    def give_back(self, connection: Connection, leases: Iterable[Lease]) -> None:
        """Let others in. What somebody else has taken meanwhile is left alone."""
        keys, fences = [], []
        for key, fence in leases:
            keys.append(key)
            fences.append(fence)
            if self._held.get(key) == fence:
                del self._held[key]
        connection.execute(self._database.sql(_GIVE_BACK), [keys, fences])

    def give_all_back(self, connection: Connection) -> None:
        if self._held:
            self.give_back(connection, [Lease(*one) for one in self._held.items()])


def _named(holder: bytes | None) -> str:
    return "another process" if holder is None else str(decode_holder(holder))
