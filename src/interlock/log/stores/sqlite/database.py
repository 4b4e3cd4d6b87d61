"""The SQLite file: where it lies, its tables, and how it is opened.

Lives here: `default_path`, `prepare` and `connect`. The tables keep their own order: a row that does not continue its
session is refused by the database, whoever writes it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from interlock.errors import NewerFormat

_WAL_PAGES = 200  # after which what is in the log beside the file is taken over: a sync where a file grows takes longer
PATIENCE = 10.0  # seconds to wait for another process that is writing to the same file

_FIRST = (
    """
    CREATE TABLE session (
        key INTEGER PRIMARY KEY AUTOINCREMENT, -- which no later session is ever given again
        id TEXT NOT NULL UNIQUE,
        created INTEGER NOT NULL DEFAULT 0, -- epoch ms
        updated INTEGER NOT NULL DEFAULT 0, -- epoch ms, of the last line
        head INTEGER NOT NULL DEFAULT -1,   -- seq of the last line
        bytes INTEGER NOT NULL DEFAULT 0,   -- of data
        format TEXT,
        cwd TEXT,
        agent TEXT,
        title TEXT
    )""",
    """
    CREATE TABLE event (
        session INTEGER NOT NULL,
        first INTEGER NOT NULL,             -- its seq; of a run, the seq of the first line
        lines INTEGER,                      -- in a packed run; NULL for a line by itself
        type TEXT NOT NULL,
        time INTEGER NOT NULL,              -- epoch ms; of a run, the time of the last line
        life INTEGER NOT NULL,
        causes BLOB,                        -- JSON
        ignorable INTEGER NOT NULL,
        data BLOB NOT NULL,                 -- JSON of the fact, or a packed run
        artifacts BLOB,                     -- JSON: the paths in data where a reference stands for a text
        PRIMARY KEY (session, first)
    ) WITHOUT ROWID""",
    """
    CREATE TABLE artifact (
        key INTEGER PRIMARY KEY,
        digest TEXT NOT NULL UNIQUE,        -- SHA-256, hexadecimal
        data BLOB NOT NULL                  -- UTF-8
    )""",
    """
    CREATE TRIGGER lines_are_contiguous BEFORE INSERT ON event
    WHEN NEW.first IS NOT (SELECT head + 1 FROM session WHERE key = NEW.session)
    BEGIN
        SELECT RAISE(ABORT, 'not the next line of its session');
    END""",
    """
    CREATE TRIGGER sessions_keep_count AFTER INSERT ON event
    BEGIN
        UPDATE session SET
            head = NEW.first + ifnull(NEW.lines, 1) - 1,
            created = iif(NEW.first = 0, NEW.time, created),
            updated = NEW.time,
            bytes = bytes + length(NEW.data)
        WHERE key = NEW.session;
    END""",
)

_SECOND = (
    # Which questions are open, so that listing them reads no log. The file keeps it by itself, whoever writes.
    """
    CREATE TABLE IF NOT EXISTS open_approval (
        session INTEGER NOT NULL,
        id TEXT NOT NULL,
        asked INTEGER NOT NULL,             -- the seq of its approval/asked
        PRIMARY KEY (session, id)
    ) WITHOUT ROWID""",
    """
    CREATE TRIGGER IF NOT EXISTS approvals_open AFTER INSERT ON event
    WHEN NEW.type = 'approval/asked' AND length(NEW.data) > 0 -- else it is a tombstone
    BEGIN
        INSERT OR REPLACE INTO open_approval
        VALUES (NEW.session, json_extract(CAST(NEW.data AS TEXT), '$.approval_id'), NEW.first);
    END""",
    """
    CREATE TRIGGER IF NOT EXISTS approvals_close AFTER INSERT ON event
    WHEN NEW.type = 'approval/decided' AND length(NEW.data) > 0
    BEGIN
        DELETE FROM open_approval
        WHERE session = NEW.session AND id = json_extract(CAST(NEW.data AS TEXT), '$.approval_id');
    END""",
    """
    INSERT OR REPLACE INTO open_approval
    SELECT session, json_extract(CAST(data AS TEXT), '$.approval_id') AS id, max(first) FROM event AS asked
    WHERE type = 'approval/asked' AND NOT EXISTS (
        SELECT 1 FROM event WHERE session = asked.session AND first > asked.first AND type = 'approval/decided'
        AND json_extract(CAST(data AS TEXT), '$.approval_id')
            = json_extract(CAST(asked.data AS TEXT), '$.approval_id'))
    GROUP BY session, id""",
    # Who may write: the number counts how often a session was opened for writing, and never goes back.
    "ALTER TABLE session ADD COLUMN fence INTEGER NOT NULL DEFAULT 0",
    """
    CREATE TABLE lease (
        session INTEGER PRIMARY KEY,
        fence INTEGER NOT NULL,             -- of the session, when it was taken
        expires INTEGER NOT NULL,           -- epoch ms
        holder BLOB NOT NULL                -- JSON: the process
    )""",
    # What was sent by others than its driver, and is not in the log yet.
    "ALTER TABLE session ADD COLUMN posted INTEGER NOT NULL DEFAULT 0",  # the number of the last letter
    """
    CREATE TABLE letter (
        session INTEGER NOT NULL,
        number INTEGER NOT NULL,            -- from 1, in the order in which they were posted
        time INTEGER NOT NULL,              -- epoch ms
        data BLOB NOT NULL,                 -- JSON
        PRIMARY KEY (session, number),
        CHECK (typeof(number) = 'integer' AND typeof(time) = 'integer' AND typeof(data) = 'blob')
    ) WITHOUT ROWID""",
    # The folds of a session at one of its lines: never truth, and dropped freely.
    """
    CREATE TABLE checkpoint (
        session INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        form TEXT NOT NULL,                 -- a reader drops what has another form
        digest BLOB NOT NULL,               -- of the session's id, form, seq and data with its big texts
        data BLOB NOT NULL,                 -- JSON
        artifacts BLOB                      -- as of events
    )""",
    # When the content of a session was erased, epoch ms. A line of it without data is a tombstone.
    "ALTER TABLE session ADD COLUMN erased INTEGER",
    """
    CREATE TRIGGER erasure_is_noted AFTER INSERT ON event WHEN NEW.type = 'session/erased'
    BEGIN
        UPDATE session SET erased = NEW.time WHERE key = NEW.session;
    END""",
    # So that finding out which artifacts are needed reads no other lines.
    "CREATE INDEX lines_with_artifacts ON event (session) WHERE artifacts IS NOT NULL",
)
_MIGRATIONS = (_FIRST, _SECOND)
#: The file's `user_version`: raised when an older version would misread or miswrite it.
FORMAT = len(_MIGRATIONS)


def default_path(environ: Mapping[str, str] = os.environ) -> Path:
    """`$INTERLOCK_HOME/interlock.db`, else the file in the user's state folder (XDG Base Directory Specification)."""
    home = environ.get("INTERLOCK_HOME")
    if home:
        return Path(home) / "interlock.db"
    state = environ.get("XDG_STATE_HOME", "")
    # The specification: a relative path there is invalid and ignored.
    folder = Path(state) if os.path.isabs(state) else Path.home() / ".local" / "state"
    return folder / "interlock" / "interlock.db"


def prepare(path: Path) -> sqlite3.Connection:
    """The writing connection: makes the folder, the file and the tables where they are missing.

    Raises:
        OSError, sqlite3.Error: what the system said.
        NewerFormat: a later version has written the file; it was not touched.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        # SQLite gives the files beside it (-wal, -shm) the mode of this one.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        pass
    connection = connect(path)
    try:
        connection.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
        if _format(connection) < FORMAT:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE")
            for version in range(_format(connection), FORMAT):  # another process may have been first
                for statement in _MIGRATIONS[version]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        if (found := _format(connection)) > FORMAT:
            raise NewerFormat(str(path), found, FORMAT)
    except BaseException:
        connection.close()
        raise
    return connection


def connect(path: Path) -> sqlite3.Connection:
    """A connection whose transactions are written out. It belongs to the calling thread.

    Raises:
        sqlite3.OperationalError: it cannot be opened; or this process was forked while another one had it open.
    """
    if os.path.realpath(path) in _before_fork:
        raise sqlite3.OperationalError(
            "this process was forked from one that had the file open, and what it wrote could be lost; "
            "start it in another way (spawn), or fork before the store is first used"
        )
    return sqlite3.connect(
        path, timeout=PATIENCE, isolation_level=None, cached_statements=256, factory=_Connection
    )


class _Connection(sqlite3.Connection):
    """One that is known as long as it is open."""

    def __init__(self, path: Path, *args: Any, **options: Any) -> None:
        super().__init__(path, *args, **options)
        _open[self] = os.path.realpath(path)

    def close(self) -> None:
        _open.pop(self, None)
        super().close()


_open: WeakKeyDictionary[_Connection, str] = WeakKeyDictionary()
_before_fork: set[str] = set()


def _forked() -> None:
    """SQLite takes the locks of the parent, of which it knows, for those of this process, which has none.

    When the parent closes the file as if nobody else had it, the lines of the child go with the write-ahead log.
    """
    _before_fork.update(_open.values())


os.register_at_fork(after_in_child=_forked)


def _format(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
