"""The thread that writes: one for each SQLite file, with group commit over all its sessions.

Lives here: `Writer` and the work it takes. All that waits when the thread comes round goes into one transaction; when
somebody waits for the disk, that transaction is synced. What came of it is told on the event loop.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from interlock.errors import SessionError, StoreFailed
from interlock.log.artifacts import LIMIT, take_out
from interlock.log.event import Event, encode_fact, encode_json
from interlock.log.facts import AssistantChunk
from interlock.log.packing import Run, runs
from interlock.log.stores.database import FORMAT, prepare
from interlock.log.stores.listing import About

if TYPE_CHECKING:
    from interlock.log.stores.sqlite import SQLiteJournal


class Row(NamedTuple):
    """A row of the table of events."""

    session: int
    first: int
    lines: int | None
    type: str
    time: int
    life: int
    causes: bytes | None
    ignorable: bool
    data: bytes
    artifacts: bytes | None


_MAX_ROWS = 50  # in one statement, each with ten parameters: below the smallest limit of SQLite builds (999)


def row_of(session: int, event: Event) -> Row:
    """The row of a line by itself.

    Raises:
        ValueError: the fact is not JSON.
    """
    try:
        data = encode_fact(event.fact)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"line {event.seq}, {event.type}: {error}") from error
    causes = encode_json(event.causes) if event.causes else None
    return Row(
        session, event.seq, None, event.type, event.time, event.life, causes, event.ignorable, data, None
    )


@dataclass(slots=True, eq=False)
class Lines:
    """Lines of one session to be written, in order: rows, and chunks that are still to be packed."""

    journal: SQLiteJournal  # whose they are; only handed back, never used in the thread
    session: int  # its key
    items: list[Row | Event]
    last: int  # seq of the last of them
    about: About | None = None  # when there is something new to be listed


@dataclass(slots=True, eq=False)
class NewSession:
    """A session to be made. `done` gets its key, or None when there is one of that id."""

    id: str
    done: asyncio.Future[int | None]


@dataclass(slots=True, eq=False)
class Barrier:
    """Somebody waits until all that was put before is on disk. `done` says only that its fate is known."""

    done: asyncio.Future[None]


class _Stop:
    """The last piece of work."""


Work: TypeAlias = Lines | NewSession | Barrier | _Stop


@dataclass(slots=True)
class Outcome:
    """What came of the work of one round."""

    written: list[Lines] = field(default_factory=list)
    refused: list[Lines] = field(default_factory=list)  # they do not continue their sessions
    synced: bool = False  # all that was ever written is on disk
    failure: StoreFailed | None = None  # nothing is written any more


class Writer:
    """Owns the writing connection of one file, in a thread of its own."""

    def __init__(self, path: Path, report: Callable[[Outcome], None]) -> None:
        self._path = path
        self._report = report  # called on the event loop, before the futures of the same work are resolved
        self._queue: SimpleQueue[Sequence[Work]] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="interlock-store", daemon=True)
        self._failure: StoreFailed | None = None
        self._full: bool | None = None  # what `synchronous` is set to; not known at first

    async def start(self) -> None:
        """Open the file.

        Raises:
            StoreFailed, NewerFormat: it cannot be used, and the thread has ended.
        """
        self._thread.start()
        try:
            await self._ready
        except BaseException:
            self.put(_Stop())
            raise

    def put(self, *work: Work) -> None:
        """Take work, in order and as one."""
        self._queue.put(work)

    async def stop(self) -> None:
        """Do what was put before, close the file and end the thread."""
        self.put(_Stop())
        await self._ended
        self._thread.join()

    # All below runs in the thread.

    def _run(self) -> None:
        try:
            connection = prepare(self._path)
            self._file = os.stat(self._path)
        except Exception as error:  # noqa: BLE001  # whatever it was, the one who waits must hear of it
            failure = error if isinstance(error, SessionError) else self._failed(error)
            self._tell(_reject, self._ready, failure)
            return
        self._tell(_resolve, self._ready, None)
        try:
            with closing(connection):
                while self._round(connection):
                    pass
        finally:
            self._tell(_resolve, self._ended, None)

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    def _failed(self, error: Exception) -> StoreFailed:
        problem, path = str(error), str(self._path)
        failure = StoreFailed(problem if path in problem else f"{problem} ({path})")
        failure.__cause__ = error
        return failure

    def _round(self, connection: sqlite3.Connection) -> bool:
        """Do all that waits in one transaction; whether there may be more."""
        work = [*self._queue.get()]
        while not self._queue.empty():
            work += self._queue.get_nowait()
        new = [one for one in work if isinstance(one, NewSession)]
        lines = [one for one in work if isinstance(one, Lines)]
        sync = any(isinstance(one, Barrier) for one in work)
        outcome = Outcome()
        keys: list[int | None] = [None] * len(new)
        if self._failure is None:
            try:
                keys = self._write(connection, new, lines, outcome, sync=sync)
            except Exception as error:  # noqa: BLE001  # whatever it was, those who wait must hear of it
                self._failure = self._failed(error)
        outcome.failure = self._failure
        done: list[tuple[asyncio.Future[Any], int | None]]
        done = [(one.done, key) for one, key in zip(new, keys, strict=True)]
        done += [(one.done, None) for one in work if isinstance(one, Barrier)]
        self._tell(self._settle, outcome, done)
        return not any(isinstance(one, _Stop) for one in work)

    def _write(
        self,
        connection: sqlite3.Connection,
        new: Sequence[NewSession],
        lines: list[Lines],
        outcome: Outcome,
        *,
        sync: bool,
    ) -> list[int | None]:
        """Write all of it and note in `outcome` what became of the lines; the keys of the new sessions."""
        try:
            keys = self._transact(connection, new, lines, sync=sync)
            outcome.written = lines
        except sqlite3.IntegrityError:
            # Another process has written to one of the sessions. Only that one fails.
            keys = self._transact(connection, new, [], sync=sync)
            for one in lines:
                try:
                    self._transact(connection, [], [one], sync=sync)
                    outcome.written.append(one)
                except sqlite3.IntegrityError:
                    outcome.refused.append(one)
        if sync:
            self._check_file()
        outcome.synced = sync
        return keys

    def _transact(
        self, connection: sqlite3.Connection, new: Sequence[NewSession], lines: list[Lines], *, sync: bool
    ) -> list[int | None]:
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

    def _check_file(self) -> None:
        """The system lets us go on writing to a file that was deleted; nobody would find it again."""
        if not os.path.samestat(os.stat(self._path), self._file):
            raise FileNotFoundError("the file was replaced while it was open")

    # On the event loop again.

    def _settle(self, outcome: Outcome, done: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
        self._report(outcome)
        for future, result in done:
            _resolve(future, result)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():  # else the waiter has gone
        future.set_result(result)


def _reject(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


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


def _statements(lines: list[Lines]) -> Iterator[tuple[str, Sequence[Any]]]:
    """What writes the lines, in few statements: the interpreter's lock is let go and fought for once in each."""
    artifacts: dict[str, bytes] = {}
    rows = [row for one in lines for row in _rows(one, artifacts)]
    for artifact in artifacts.items():
        yield "INSERT OR IGNORE INTO artifact (digest, data) VALUES (?, ?)", artifact
    for start in range(0, len(rows), _MAX_ROWS):
        some = rows[start : start + _MAX_ROWS]
        yield _insert(len(some)), list(chain.from_iterable(some))
    for one in lines:
        if (about := one.about) is not None:
            yield (
                "UPDATE session SET format = ?, cwd = ?, agent = ?, title = ? WHERE key = ?",
                (about.format, about.cwd, about.agent, about.title, one.session),
            )


@cache
def _insert(rows: int) -> str:
    return "INSERT INTO event VALUES " + ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * rows)


def _rows(lines: Lines, artifacts: dict[str, bytes]) -> Iterator[Row]:
    for kind, items in groupby(lines.items, type):
        if kind is Event:
            for run in runs(cast("list[Event]", list(items))):
                yield _row_of_run(lines.session, run)
            continue
        for row in cast("Iterator[Row]", items):
            taken = take_out(row.data) if len(row.data) > LIMIT else None
            if taken is None:
                yield row
            else:
                artifacts.update(taken.artifacts)
                yield row._replace(data=taken.data, artifacts=encode_json(taken.paths))


def _row_of_run(session: int, run: Run) -> Row:
    return Row(
        session, run.seq, run.count, AssistantChunk.type, run.time, run.life, None, False, run.data, None
    )
