"""Writing to a SQLite file: each round of the thread is one transaction.

Lives here: `SQLiteWriter`. When somebody waits for the disk, the transaction is synced, and with it all before it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

from interlock.errors import StoreFailed
from interlock.log.stores.buffered import BufferedJournal
from interlock.log.stores.database import FORMAT, prepare
from interlock.log.stores.rows import packed
from interlock.log.stores.sqlite_index import catch_up
from interlock.log.stores.writer import Barrier, Lines, NewSession, Outcome, Writer

_MAX_ROWS = 50  # in one statement, each with ten parameters: below the smallest limit of SQLite builds (999)


class SQLiteWriter(Writer[int]):
    """Owns the writing connection of one file."""

    def __init__(self, path: Path, report: Callable[[Outcome[int]], None]) -> None:
        super().__init__(report)
        self._path = path
        self._full: bool | None = None  # what `synchronous` is set to; not known at first
        self._unsynced: dict[BufferedJournal[int], None] = {}  # they have lines that are perhaps not on disk

    def _open(self) -> None:
        self._connection = prepare(self._path)
        try:
            self._file = os.stat(self._path)
        except BaseException:
            self._connection.close()
            raise

    def _close(self) -> None:
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
            # Another process has written to one of the sessions. Only that one fails.
            keys = self._transact(new, [], sync=sync)
            for one in lines:
                try:
                    self._transact([], [one], sync=sync)
                    outcome.written.append(one)
                except sqlite3.IntegrityError:
                    failure = StoreFailed("another process has written to this session")
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
            keys = [_make_session(connection, one.id) for one in new]
            for statement, values in statements:
                connection.execute(statement, values)
        return keys

    def index(self, session: int | None = None) -> bool:
        """Index some of what has been written since, of this session or of all; whether there may be more.

        Raises:
            sqlite3.Error: it cannot be done now; nothing that was written is touched by that.
        """
        if self._full is not False:  # nobody waits for it: what is lost with the power is indexed again
            self._connection.execute("PRAGMA synchronous = NORMAL")
            self._full = False
        return catch_up(self._connection, session=session)

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


def _make_session(connection: sqlite3.Connection, session_id: str) -> int | None:
    made = connection.execute("INSERT OR IGNORE INTO session (id) VALUES (?)", (session_id,))
    return made.lastrowid if made.rowcount else None


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
