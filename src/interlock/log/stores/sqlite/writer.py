"""Writing to a SQLite file: each round of the thread is one transaction.

Lives here: `SQLiteWriter`. When somebody waits for the disk, the transaction is synced, and with it all before it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from interlock.errors import StoreFailed
from interlock.log.checkpoint import Kept
from interlock.log.stores.buffered import BufferedJournal
from interlock.log.stores.leasing import FIRST, Lease, LeasingWriter
from interlock.log.stores.rows import packed
from interlock.log.stores.sqlite import mail as sqlite_mail
from interlock.log.stores.sqlite.checkpoint import keep_checkpoint
from interlock.log.stores.sqlite.database import FORMAT, prepare
from interlock.log.stores.sqlite.index import catch_up
from interlock.log.stores.sqlite.lease import SQLiteLeases
from interlock.log.stores.writer import Barrier, Lines, NewSession, Outcome

T = TypeVar("T")

_MAX_ROWS = 50  # in one statement, each with ten parameters: below the smallest limit of SQLite builds (999)


class SQLiteWriter(LeasingWriter):
    """Owns the writing connection of one file."""

    def __init__(self, path: Path, report: Callable[[Outcome[int]], None], *, term: float) -> None:
        super().__init__(report, term=term)
        self._path = path
        self._full: bool | None = None  # what `synchronous` is set to; not known at first
        self._unsynced: dict[BufferedJournal[int], None] = {}  # they have lines that are perhaps not on disk

    def _open(self) -> None:
        self._connection = prepare(self._path)
        try:
            self._file = os.stat(self._path)
            self._leases = SQLiteLeases(self._connection, term=self._term)
        except BaseException:
            self._connection.close()
            raise

    def _close(self) -> None:
        self._abandoned()
        self._connection.close()

    def _named(self, problem: str) -> str:
        path = str(self._path)
        return problem if path in problem else f"{problem} ({path})"

    def _write(
        self,
        new: Sequence[NewSession[int]],
        lines: list[Lines[int]],
        barriers: Sequence[Barrier[int]],
        outcome: Outcome[int],
    ) -> list[int | None]:
        sync = bool(barriers)
        try:
            keys = self._transact(new, lines, sync=sync)
            outcome.written = lines
        except sqlite3.IntegrityError:
            # Somebody else has taken over or written to one of the sessions. Only that one fails.
            keys = self._transact(new, [], sync=sync)
            for one in lines:
                try:
                    self._transact([], [one], sync=sync)
                    outcome.written.append(one)
                except sqlite3.IntegrityError:
                    lost = self._leases.lost(one.target)
                    failure = lost or StoreFailed("another process has written to this session")
                    outcome.failed.append((one.journal, failure))
        self._unsynced.update(dict.fromkeys([one.journal for one in outcome.written]))
        if sync:
            self._check_file()
            outcome.synced = [*self._unsynced]
            self._unsynced.clear()
        return keys

    def _transact(
        self, new: Sequence[NewSession[int]], lines: list[Lines[int]], *, sync: bool
    ) -> list[int | None]:
        connection = self._connection
        if sync != self._full:  # it cannot be changed within a transaction
            connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
            self._full = sync
        statements = list(_statements(lines))
        if sync and not statements:
            # A transaction that changes nothing syncs nothing, and earlier ones may still need it.
            statements.append((f"PRAGMA user_version = {FORMAT}", ()))
        alone = len(statements) <= 1 and not new  # one statement is a transaction by itself
        with nullcontext() if alone else _transaction(connection):
            keys = [self._make_session(one.id) for one in new]
            for statement, values in statements:
                connection.execute(statement, values)
        return keys

    def _make_session(self, session_id: str) -> int | None:
        made = self._connection.execute(
            "INSERT OR IGNORE INTO session (id, fence) VALUES (?, ?)", (session_id, FIRST)
        )
        if not made.rowcount:
            return None
        key = made.lastrowid
        assert key is not None
        self._leases.hold(key, FIRST)
        return key

    # Leases

    def take(self, session_id: str) -> Lease:
        # No disk is waited for: a line that comes after it in the file is never kept without it.
        return self._by_itself(lambda: self._leases.take(session_id), sync=False)

    def give_back(self, lease: Lease) -> None:
        with suppress(StoreFailed):
            self._by_itself(lambda: self._leases.give_back(lease), sync=False)

    def _renew(self) -> list[tuple[int, StoreFailed]]:
        return self._by_itself(self._leases.renew, sync=False)

    def _abandoned(self) -> None:
        with suppress(StoreFailed):
            self._by_itself(self._leases.give_all_back, sync=False)
        self._leases.holder.ends()

    def _given_up(self) -> None:
        self._leases.holder.ends()

    def _need_not_sync(self) -> None:
        if self._full is not False:
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._full = False

    def keep(self, target: int, kept: Kept) -> None:
        with suppress(sqlite3.Error):
            self._need_not_sync()  # its lines are synced, and what is lost with the power can be made anew
            keep_checkpoint(self._connection, target, kept)

    def index(self, session: int | None = None) -> bool:
        """Index some of what has been written since, of this session or of all; whether there may be more.

        Raises:
            sqlite3.Error: it cannot be done now; nothing that was written is touched by that.
        """
        self._need_not_sync()  # nobody waits for it: what is lost with the power is indexed again
        return catch_up(self._connection, session=session)

    def post(self, session_id: str, data: bytes, time: int) -> tuple[int, int]:
        """See `sqlite_mail.post`; on disk. It runs in the thread, as a `Call`.

        Raises:
            UnknownSession, MailboxFull, StoreFailed: nothing was changed.
        """
        made = self._by_itself(lambda: sqlite_mail.post(self._connection, session_id, data, time), sync=True)
        try:
            self._check_file()
        except OSError as error:
            raise StoreFailed(self._named(str(error))) from error
        return made

    def forget_letters(self, session: int, last: int) -> None:
        """See `sqlite_mail.forget`. It runs in the thread, as a `Call`.

        Raises:
            StoreFailed: nothing was changed.
        """
        self._by_itself(lambda: sqlite_mail.forget(self._connection, session, last), sync=False)

    def alter(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do this in a transaction of its own, on disk, and leave nothing of what it deletes. It runs as a `Call`.

        Raises:
            StoreFailed: nothing was changed.
        """
        (secure,) = self._connection.execute("PRAGMA secure_delete").fetchone()
        self._connection.execute("PRAGMA secure_delete = ON")
        try:
            return self._by_itself(lambda: work(self._connection), sync=True)
        finally:
            self._connection.execute(f"PRAGMA secure_delete = {secure}")

    def _by_itself(self, act: Callable[[], T], *, sync: bool) -> T:
        """A transaction that touches no line. That it fails says nothing of the others."""
        try:
            if sync != self._full:
                self._connection.execute(f"PRAGMA synchronous = {'FULL' if sync else 'NORMAL'}")
                self._full = sync
            with _transaction(self._connection):
                return act()
        except sqlite3.Error as error:
            raise StoreFailed(self._named(str(error))) from error

    def _check_file(self) -> None:
        """The system lets us go on writing to a file that was deleted; nobody would find it again."""
        if not os.path.samestat(os.stat(self._path), self._file):
            raise FileNotFoundError("the file was replaced while it was open")


@contextmanager
def _transaction(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has rolled it back already
            connection.execute("ROLLBACK")
        raise


def _statements(lines: list[Lines[int]]) -> Iterator[tuple[str, Sequence[Any]]]:
    """What writes the lines, in few statements: the interpreter's lock is let go and fought for once in each."""
    artifacts: dict[str, bytes] = {}
    rows = [row for one in lines for row in packed(one.target, one.items, artifacts)]
    for artifact in artifacts.items():
        yield "INSERT OR IGNORE INTO artifact (digest, data) VALUES (?, ?)", artifact
    for start in range(0, len(rows), _MAX_ROWS):
        some = rows[start : start + _MAX_ROWS]
        yield _insert(len(some)), list(chain.from_iterable(some))
    for one in lines:
        if (about := one.about) is not None:
            yield (
                "UPDATE session SET format = ?, cwd = ?, agent = ?, title = ? WHERE key = ?",
                (about.format, about.cwd, about.agent, about.title, one.target),
            )


@cache
def _insert(rows: int) -> str:
    return "INSERT INTO event VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * rows)
