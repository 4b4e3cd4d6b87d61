"""The SQLite file: where it lies, its tables, and how it is opened.

Lives here: `default_path`, `prepare` and `connect`. The tables keep their own order: a row that does not continue its
session is refused by the database, whoever writes it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path

from interlock.errors import NewerFormat

PATIENCE = 10.0  # seconds to wait for another process that is writing to the same file

_FIRST = (
    """
    CREATE TABLE session (
        key INTEGER PRIMARY KEY,
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
    CREATE TRIGGER IF NOT EXISTS approvals_open AFTER INSERT ON event WHEN NEW.type = 'approval/asked'
    BEGIN
        INSERT OR REPLACE INTO open_approval
        VALUES (NEW.session, json_extract(CAST(NEW.data AS TEXT), '$.approval_id'), NEW.first);
    END""",
    """
    CREATE TRIGGER IF NOT EXISTS approvals_close AFTER INSERT ON event WHEN NEW.type = 'approval/decided'
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
        PRIMARY KEY (session, number)
    ) WITHOUT ROWID""",
    # The folds of a session at one of its lines: never truth, and dropped freely.
    """
    CREATE TABLE checkpoint (
        session INTEGER PRIMARY KEY,
        seq INTEGER NOT NULL,
        form TEXT NOT NULL,                 -- a reader drops what has another form
        data BLOB NOT NULL,                 -- JSON
        artifacts BLOB                      -- as of events
    )""",
    # When the content of a session was erased, epoch ms. A line of it without data is a tombstone.
    "ALTER TABLE session ADD COLUMN erased INTEGER",
)
_MIGRATIONS = (_FIRST, _SECOND)
FORMAT = len(_MIGRATIONS)  # the file's `user_version`: raised when an older version would misread or miswrite it


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
    """A connection whose transactions are written out. It belongs to the calling thread."""
    return sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, cached_statements=256)


def _format(connection: sqlite3.Connection) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)
