"""Writing to a PostgreSQL database: each round of the thread is one transaction.

Lives here: `PostgresWriter`. Lines are kept until the server has said that they are on its disk. When a connection is
lost in between, what became of them is found out on the next one: what is there is compared, the rest is sent again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any, TypeVar

import psycopg

from interlock.errors import StoreFailed
from interlock.log.checkpoint import Kept
from interlock.log.event import decode_json
from interlock.log.facts import ApprovalAsked, ApprovalDecided, ContentErased
from interlock.log.stores.buffered import BufferedJournal
from interlock.log.stores.leasing import FIRST, Lease, LeasingWriter
from interlock.log.stores.listing import About
from interlock.log.stores.postgres import mail as postgres_mail
from interlock.log.stores.postgres.checkpoint import keep_checkpoint
from interlock.log.stores.postgres.database import NOT_NEXT, Database, is_lost
from interlock.log.stores.postgres.erasing import Erasing
from interlock.log.stores.postgres.lease import TAKEN, PostgresLeases
from interlock.log.stores.rows import Row, packed
from interlock.log.stores.writer import Barrier, Lines, NewSession, Outcome

T = TypeVar("T")

_MOST = 8 << 20  # bytes that may wait for a sync: more is synced though nobody waits
_ROUNDS = 3  # how often another process may be in the way of one transaction

_MAKE_SESSION = """
WITH made AS (
    INSERT INTO {s}.session (id, made, fence) VALUES (%(id)s, %(token)s, %(fence)s)
    ON CONFLICT (id) DO NOTHING RETURNING key
)
SELECT key FROM made UNION ALL SELECT key FROM {s}.session WHERE id = %(id)s AND made = %(token)s
"""
_ADD_ARTIFACTS = """
INSERT INTO {s}.artifact SELECT * FROM unnest(%s::text[], %s::bytea[]) ON CONFLICT (digest) DO NOTHING
"""
_ADD_ROWS = """
INSERT INTO {s}.event SELECT * FROM unnest(
    %b::bigint[], %b::bigint[], %b::integer[], %b::text[], %b::bigint[], %b::bigint[], %b::bytea[], %b::boolean[],
    %b::bytea[], %b::bytea[])
"""
_SET_ABOUT = "UPDATE {s}.session SET format = %s, cwd = %s, agent = %s, title = %s WHERE key = %s"
_ASKED = """
INSERT INTO {s}.open_approval VALUES (%(session)s, %(id)s, %(seq)s)
ON CONFLICT (session, id) DO UPDATE SET asked = %(seq)s
"""
_DECIDED = "DELETE FROM {s}.open_approval WHERE session = %(session)s AND id = %(id)s"
_ERASED = "UPDATE {s}.session SET erased = %(time)s WHERE key = %(session)s"
_TOUCH = "UPDATE {s}.session SET head = head WHERE key = ANY(%s) RETURNING key, head"
_LOCK = "SELECT key, head FROM {s}.session WHERE key = ANY(%s) ORDER BY key FOR UPDATE"
_STORED = "SELECT * FROM {s}.event WHERE session = %s AND first BETWEEN %s AND %s ORDER BY first"
_NOTIFY = (
    "SELECT pg_notify(%s, key || ' ' || head) FROM unnest(%s::bigint[], %s::bigint[]) AS news (key, head)"
)


class _NotThere(Exception):
    """What had been stored without a sync is gone: the server has crashed since."""


@dataclass(slots=True, eq=False)
class _Unsynced:
    """What of a session is not known to be on the server's disk."""

    journal: BufferedJournal[int]
    rows: list[Row] = field(default_factory=list)
    stored: int = 0  # so many of the rows are in the database, as far as is known
    about: About | None = None

    @property
    def last(self) -> int:
        return self.rows[-1].last


class PostgresWriter(LeasingWriter):
    """Owns the writing connection to one schema.

    patience: seconds in which a lost connection has to be made again.
    """

    def __init__(
        self, database: Database, report: Callable[[Outcome[int]], None], *, patience: float, term: float
    ) -> None:
        super().__init__(report, term=term)
        self._database = database
        self._patience = patience
        self._unsynced: dict[int, _Unsynced] = {}  # by the session's key
        self._artifacts: dict[str, bytes] = {}  # of unsynced rows, by digest
        self._unsent: dict[str, bytes] = {}  # those of them that are not known to be in the database
        self._weight = 0  # bytes of unsynced data
        self._heads: dict[int, int] = {}  # what followers are to be told
        self._answers = True  # False: the server was waited for in vain, and has not been heard of since

    def _open(self) -> None:
        self._connection = self._database.connect()
        try:
            self._database.migrate(self._connection)
            self._leases = PostgresLeases(self._database, term=self._term)
        except BaseException:
            self._connection.close()
            raise

    def _close(self) -> None:
        self._abandoned()
        self._connection.close()

    def _named(self, problem: str) -> str:
        return f"{' '.join(problem.split())} ({self._database.place})"

    def _write(
        self,
        new: Sequence[NewSession[int]],
        lines: list[Lines[int]],
        barriers: Sequence[Barrier[int]],
        outcome: Outcome[int],
    ) -> list[int | None]:
        for one in lines:
            self._take(one)
        # What was made is acknowledged when it was made.
        sync = bool(barriers or new) or self._weight > _MOST
        names = [(one.id, token_hex(16)) for one in new]
        keys = self._store(names, outcome, sync=sync)
        self._leases.made(keys)
        if sync:
            for key, unsynced in self._unsynced.items():
                outcome.written.append(Lines(unsynced.journal, key, [], unsynced.last))
                outcome.synced.append(unsynced.journal)
            self._unsynced.clear()
            self._artifacts.clear()
            self._weight = 0
        return keys

    def _take(self, lines: Lines[int]) -> None:
        unsynced = self._unsynced.get(lines.target)
        if unsynced is None:
            unsynced = self._unsynced[lines.target] = _Unsynced(lines.journal)
        artifacts: dict[str, bytes] = {}
        for row in packed(lines.target, lines.items, artifacts):
            unsynced.rows.append(row)
            self._weight += len(row.data)
        unsynced.about = lines.about or unsynced.about
        self._artifacts.update(artifacts)
        self._unsent.update(artifacts)
        self._weight += sum(map(len, artifacts.values()))

    def _store(
        self, names: Sequence[tuple[str, str]], outcome: Outcome[int], *, sync: bool
    ) -> list[int | None]:
        """Bring everything into the database, over lost connections and other writers; the keys of new sessions."""
        deadline: float | None = None
        known, rounds = True, 0
        while True:
            try:
                if not known:
                    self._compare(outcome)
                    known = True
                return self._transact(names, sync=sync)
            except _NotThere:
                known = False
            except psycopg.Error as error:
                if is_lost(self._connection, error):
                    deadline = deadline or time.monotonic() + self._patience
                    self._connect_again(deadline)
                elif rounds < _ROUNDS and (
                    error.sqlstate in (NOT_NEXT, TAKEN) or isinstance(error, psycopg.errors.UniqueViolation)
                ):
                    rounds += 1
                else:
                    raise
                known = False

    def _connect_again(self, deadline: float) -> None:
        self._connection.close()
        pause = 0.02
        while True:
            try:
                self._connection = self._database.connect()
                return
            except psycopg.OperationalError:
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)  # in the writer's own thread
                pause = min(2 * pause, 0.5)

    def _transact(self, names: Sequence[tuple[str, str]], *, sync: bool) -> list[int | None]:
        database, connection = self._database, self._connection
        rows = [row for one in self._unsynced.values() for row in one.rows[one.stored :]]
        quiet = [key for key, one in self._unsynced.items() if one.stored == len(one.rows)] if sync else []
        if not (rows or quiet or names):
            return []
        touched: psycopg.Cursor[Any] | None = None
        with connection.pipeline(), connection.transaction():
            connection.execute(f"SET LOCAL synchronous_commit = {'on' if sync else 'off'}".encode())
            made = [
                connection.execute(database.sql(_MAKE_SESSION), {"id": id_, "token": token, "fence": FIRST})
                for id_, token in names
            ]
            self._leases.hold_new(connection, names)
            if self._unsent:
                digests = sorted(self._unsent)  # in one order, lest two writers wait for each other
                texts = [self._unsent[digest] for digest in digests]
                connection.execute(database.sql(_ADD_ARTIFACTS), [digests, texts])
            if rows:
                columns = [list(column) for column in zip(*rows, strict=True)]
                connection.execute(database.sql(_ADD_ROWS), columns)
            for key, one in self._unsynced.items():
                if (about := one.about) is not None:
                    fields = [_text(field) for field in (about.format, about.cwd, about.agent, about.title)]
                    connection.execute(database.sql(_SET_ABOUT), [*fields, key])
            for statement, values in _approvals(rows):
                connection.execute(database.sql(statement), values)
            if quiet:
                # What was stored without a sync is synced by a commit that changes something. That it is still
                # there is not certain: the server may have crashed without anybody noticing.
                touched = connection.execute(database.sql(_TOUCH), [quiet])
            if self._unsynced:
                # Last, when what was changed of the sessions is locked.
                self._leases.check(connection, self._unsynced)
        if touched is not None and dict(touched.fetchall()) != {
            key: self._unsynced[key].last for key in quiet
        }:
            raise _NotThere
        for key, one in self._unsynced.items():
            if one.stored < len(one.rows):
                self._heads[key] = one.last
            one.stored = len(one.rows)
            one.about = None
        self._unsent.clear()
        return [row[0] if (row := cursor.fetchone()) is not None else None for cursor in made]

    def post(self, session_id: str, data: bytes, time: int) -> int:
        """See `postgres_mail.post`. It runs in the thread, as a `Call`.

        Raises:
            UnknownSession, MailboxFull: nothing was changed.
            StoreFailed: it was not posted; or that is not known, since the connection was lost meanwhile.
        """
        return self._by_itself(
            lambda: postgres_mail.post(self._database, self._connection, session_id, data, time)
        )

    def forget_letters(self, session: int, last: int) -> None:
        """See `postgres_mail.forget`. It runs in the thread, as a `Call`.

        Raises:
            StoreFailed: it is not known whether anything was changed.
        """
        self._by_itself(lambda: postgres_mail.forget(self._database, self._connection, session, last))

    def alter(self, work: Callable[[Erasing], T]) -> T:
        """Do this in a transaction that is on disk when it returns. It runs in the thread, as a `Call`.

        Raises:
            StoreFailed: nothing was changed.
        """

        def act() -> T:
            connection = self._connection  # another one, if this is lost
            return work(
                Erasing(self._database, connection, lambda keys: self._leases.check(connection, keys))
            )

        return self._by_itself(act)

    def take(self, session_id: str) -> Lease:
        return self._by_itself(lambda: self._leases.take(self._connection, session_id))

    def give_back(self, lease: Lease) -> None:
        if self._failure is None and self._answers:
            with suppress(StoreFailed):
                self._by_itself(lambda: self._leases.give_back(self._connection, [lease]))
        else:  # the server was waited for long enough
            with suppress(psycopg.Error):
                self._leases.give_back(self._connection, [lease])

    def _renew(self) -> list[tuple[int, StoreFailed]]:
        return self._by_itself(lambda: self._leases.renew(self._connection))

    def _abandoned(self) -> None:
        with suppress(psycopg.Error):
            self._leases.give_all_back(self._connection)
        self._leases.holder.ends()

    def _given_up(self) -> None:
        self._leases.holder.ends()

    def _by_itself(self, act: Callable[[], T]) -> T:
        """Something that touches no line, again on a new connection if this one is lost. Its failure says nothing of
        the others."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                done = act()
                self._answers = True
                return done
            except postgres_mail.Uncertain as error:
                raise StoreFailed(
                    self._named(f"the connection was lost; the letter may have been posted: {error}")
                ) from error
            except psycopg.Error as error:
                if not is_lost(self._connection, error):
                    raise StoreFailed(self._named(str(error))) from error
            try:
                self._connect_again(deadline)
            except psycopg.Error as error:
                self._answers = False
                raise StoreFailed(self._named(str(error))) from error

    def _compare(self, outcome: Outcome[int]) -> None:
        """Find out what of the unsynced rows is in the database. Sessions that others have written to fail alone."""
        database, connection = self._database, self._connection
        with connection.transaction():
            # A transaction of ours that the server has not ended yet holds these locks.
            found = connection.execute(database.sql(_LOCK), [[*self._unsynced]])
            heads: dict[int, int] = dict(found.fetchall())
            lost = self._leases.lost(connection, self._unsynced)
            for key, one in [*self._unsynced.items()]:
                head, before = heads.get(key), one.rows[0].first - 1
                failure = lost.get(key)
                if failure is not None:
                    problem = failure.problem
                elif head is None:
                    problem = "the session is no longer in the database"
                elif head < before:
                    problem = f"the database has lost lines {head + 1} to {before} of the session, which it had synced"
                elif (stored := self._agreeing(key, one, head)) is None:
                    problem = "another process has written to this session"
                else:
                    one.stored = stored
                    continue
                outcome.failed.append((one.journal, failure or StoreFailed(problem)))
                del self._unsynced[key]
        self._unsent = dict(self._artifacts)

    def _agreeing(self, key: int, one: _Unsynced, head: int) -> int | None:
        """How many of the rows are those at the end of the stored session; None when other ones are."""
        count = sum(row.last <= head for row in one.rows)
        if count == 0:
            return 0 if head == one.rows[0].first - 1 else None
        if one.rows[count - 1].last != head:
            return None
        bounds = [key, one.rows[0].first, head]
        stored = self._connection.execute(self._database.sql(_STORED), bounds, binary=True).fetchall()
        return count if stored == [tuple(row) for row in one.rows[:count]] else None

    def keep(self, target: int, kept: Kept) -> None:
        fence = self._leases.fence_of(target)
        if fence is not None:  # else another one writes to it
            with suppress(psycopg.Error):
                keep_checkpoint(self._connection, self._database, target, fence, kept)

    def _told(self) -> None:
        """Tell followers. It is a transaction of its own: one that notifies keeps all others waiting at its end."""
        if self._heads and self._failure is None:
            heads, self._heads = self._heads, {}
            values = [self._database.channel, [*heads], [*heads.values()]]
            try:
                self._connection.execute(_NOTIFY.encode(), values)
            except psycopg.Error:
                pass  # they look by themselves, too; if the connection is lost, the next round notices


def _text(value: str | None) -> str | None:
    """As PostgreSQL can keep it."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if value is not None else None


def _approvals(rows: Sequence[Row]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What changes in the lists of open questions and of erased sessions. Tombstones change nothing."""
    for row in rows:
        if row.type == ContentErased.type:
            yield _ERASED, {"session": row.session, "time": row.time}
        elif row.data and row.type in (ApprovalAsked.type, ApprovalDecided.type):
            approval_id = decode_json(row.data)["approval_id"].encode()
            statement = _ASKED if row.type == ApprovalAsked.type else _DECIDED
            values: dict[str, Any] = {"session": row.session, "id": approval_id}
            yield statement, {**values, "seq": row.first} if statement is _ASKED else values
