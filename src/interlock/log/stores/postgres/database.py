"""The PostgreSQL database: how it is reached, and its tables.

Lives here: `Database` and the numbered migrations. The tables keep their own order: rows that do not continue their
session are refused by the database, whoever writes them. It imports psycopg, so it is imported when it is used.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from interlock.errors import ConfigError, NewerFormat

NOT_NEXT = "IL001"  # the SQLSTATE of a row that does not continue its session

_LONGEST = 50  # bytes of a schema's name: with a prefix, a channel's name still fits into PostgreSQL's 63
_LOCKS = "10s"  # how long a transaction waits for another process that writes to the same session
_STATEMENTS = "60s"  # how long the server may work on one statement
_PAUSES = "5s"  # how long a transaction may wait for its process, which perhaps does not go on

_MIGRATION = """
CREATE TABLE {s}.migration (number integer PRIMARY KEY, made timestamptz NOT NULL DEFAULT now())
"""
_MIGRATIONS = (
    # 1
    """
    CREATE TABLE {s}.session (
        key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        id text NOT NULL UNIQUE,
        made text NOT NULL,                 -- a random token: tells who has made it when the answer was lost
        created bigint NOT NULL DEFAULT 0,  -- epoch ms
        updated bigint NOT NULL DEFAULT 0,  -- epoch ms, of the last line
        head bigint NOT NULL DEFAULT -1,    -- seq of the last line
        bytes bigint NOT NULL DEFAULT 0,    -- of data
        format text,
        cwd text,
        agent text,
        title text
    ) WITH (fillfactor = 50);

    CREATE TABLE {s}.event (
        session bigint NOT NULL,
        first bigint NOT NULL,              -- its seq; of a run, the seq of the first line
        lines integer,                      -- in a packed run; NULL for a line by itself
        type text NOT NULL,
        time bigint NOT NULL,               -- epoch ms; of a run, the time of the last line
        life bigint NOT NULL,
        causes bytea,                       -- JSON
        ignorable boolean NOT NULL,
        data bytea NOT NULL,                -- JSON of the fact, or a packed run
        artifacts bytea,                    -- JSON: the paths in data where a reference stands for a text
        PRIMARY KEY (session, first)
    );

    CREATE TABLE {s}.artifact (
        digest text PRIMARY KEY,            -- SHA-256, hexadecimal
        data bytea NOT NULL                 -- UTF-8
    );

    CREATE TABLE {s}.open_approval (
        session bigint NOT NULL,
        id bytea NOT NULL,                  -- UTF-8
        asked bigint NOT NULL,              -- the seq of its approval/asked
        PRIMARY KEY (session, id)
    );

    CREATE FUNCTION {s}.continue_sessions() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        run record;
    BEGIN
        FOR run IN
            SELECT session, min(first) AS first, max(next) - 1 AS last, sum(length(data)) AS bytes,
                (array_agg(time ORDER BY first))[1] AS began, (array_agg(time ORDER BY first DESC))[1] AS ended,
                bool_and(before IS NULL OR before = first) AS whole
            FROM (
                SELECT session, first, first + coalesce(lines, 1) AS next, time, data,
                    lag(first + coalesce(lines, 1)) OVER (PARTITION BY session ORDER BY first) AS before
                FROM added
            ) AS lines
            GROUP BY session ORDER BY session
        LOOP
            UPDATE {s}.session SET
                head = run.last,
                created = CASE WHEN run.first = 0 THEN run.began ELSE created END,
                updated = run.ended,
                bytes = bytes + run.bytes
            WHERE key = run.session AND head = run.first - 1 AND run.whole;
            IF NOT FOUND THEN
                RAISE EXCEPTION 'not the next line of its session' USING ERRCODE = 'IL001';
            END IF;
        END LOOP;
        RETURN NULL;
    END $$;

    CREATE TRIGGER lines_are_contiguous AFTER INSERT ON {s}.event REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION {s}.continue_sessions();
    """,
    # 2
    """
    ALTER TABLE {s}.session
        ADD COLUMN fence bigint NOT NULL DEFAULT 0,   -- how often it was opened for writing: it never goes back
        ADD COLUMN posted bigint NOT NULL DEFAULT 0,  -- the number of the last letter
        ADD COLUMN erased bigint;                     -- epoch ms; a line of it without data is a tombstone

    CREATE TABLE {s}.lease (
        session bigint PRIMARY KEY,
        fence bigint NOT NULL,              -- of the session, when it was taken
        expires timestamptz NOT NULL,       -- by the clock of the server
        holder bytea NOT NULL               -- JSON: the process
    );

    CREATE TABLE {s}.letter (
        session bigint NOT NULL,
        number bigint NOT NULL,             -- from 1, in the order in which they were posted
        time bigint NOT NULL,               -- epoch ms
        data bytea NOT NULL,                -- JSON
        PRIMARY KEY (session, number)
    );

    CREATE TABLE {s}.checkpoint (
        session bigint PRIMARY KEY,
        seq bigint NOT NULL,
        form text NOT NULL,                 -- a reader drops what has another form
        digest bytea NOT NULL,              -- of the session's id, form, seq and data with its big texts
        data bytea NOT NULL,                -- JSON
        artifacts bytea                     -- as of events
    );

    -- So that finding out which artifacts are needed reads no other lines.
    CREATE INDEX lines_with_artifacts ON {s}.event (session) WHERE artifacts IS NOT NULL;

    CREATE FUNCTION {s}.check_fences(keys bigint[], fences bigint[]) RETURNS void LANGUAGE plpgsql AS $$
    BEGIN
        PERFORM 1 FROM {s}.session JOIN unnest(keys, fences) AS held (key, fence) USING (key)
        WHERE session.fence <> held.fence;
        IF FOUND THEN
            RAISE EXCEPTION 'another process has taken over one of these sessions' USING ERRCODE = 'IL002';
        END IF;
    END $$;
    """,
)
FORMAT = len(_MIGRATIONS)


class Database:
    """Where the sessions are, and how statements name it: `{s}` in them stands for the schema.

    Raises:
        ConfigError: the address or the name of the schema cannot be used.
    """

    def __init__(self, conninfo: str, schema: str) -> None:
        try:
            given = conninfo_to_dict(conninfo)
        except psycopg.Error as error:
            # It quotes parts of the address, also of a password.
            said = re.sub('"[^"]*"', '"…"', str(error)).strip()
            raise ConfigError(f"This is no address of a PostgreSQL database: {said}") from None
        except UnicodeError:
            raise ConfigError("This is no address of a PostgreSQL database: it is not UTF-8.") from None
        if not 0 < len(schema.encode(errors="replace")) <= _LONGEST or set(schema) & {"\0", "%"}:
            raise ConfigError(
                f"The name of a schema has 1 to {_LONGEST} bytes and no '%', unlike {schema!r}."
            )
        self.schema = schema
        self.channel = f"interlock_{schema}"
        # The address may have a password: what is shown is made of its other parts.
        host, name = (
            given.get("host") or "localhost",
            given.get("dbname") or given.get("user") or "its database",
        )
        self.place = f"schema {schema} of {name} at {host}"
        # A server that has gone away is noticed in seconds, not when the system gives up.
        self._options: dict[str, Any] = {
            "application_name": "interlock",
            "connect_timeout": 10,
            "tcp_user_timeout": 10_000,
            "keepalives_idle": 10,
            "keepalives_interval": 3,
            "keepalives_count": 3,
            **given,
        }
        self._quoted = '"' + schema.replace('"', '""') + '"'
        self._made: dict[str, bytes] = {}

    def sql(self, statement: str) -> bytes:
        found = self._made.get(statement)
        if found is None:
            found = self._made[statement] = statement.replace("{s}", self._quoted).encode()
        return found

    def connect(self) -> psycopg.Connection[Any]:
        """A connection on which every statement is a transaction, unless it is in one."""
        connection = psycopg.connect(**self._options, autocommit=True)
        try:
            connection.execute(_settings())
        except BaseException:
            connection.close()
            raise
        return connection

    async def connect_async(self) -> psycopg.AsyncConnection[Any]:
        connection = await psycopg.AsyncConnection.connect(**self._options, autocommit=True)
        try:
            await connection.execute(_settings())
        except BaseException:
            await connection.close()
            raise
        return connection

    def made(self, connection: psycopg.Connection[Any]) -> bool:
        """Whether there are tables, of any version.

        Raises:
            psycopg.Error: what the server said.
        """
        return self._format(connection) > 0

    def migrate(self, connection: psycopg.Connection[Any]) -> None:
        """Make the tables where they are missing, and bring older ones up to date.

        Raises:
            psycopg.Error: what the server said.
            NewerFormat: a later version has made them; they were not touched.
        """
        if self._format(connection) == FORMAT:
            return
        # Of many that come at once, one does it, and the others find it done. The lock is not taken in the
        # transaction, which would go on with what it knew of the schema before it waited.
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", [self.channel])
        try:
            with connection.transaction():
                self._migrate(connection)
        finally:
            if not connection.closed:
                connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", [self.channel])

    def _migrate(self, connection: psycopg.Connection[Any]) -> None:
        found = self._format(connection)
        if found > FORMAT:
            raise NewerFormat(self.place, found, FORMAT)
        if found == 0:
            connection.execute(self.sql("CREATE SCHEMA IF NOT EXISTS {s}"))
            connection.execute(self.sql(_MIGRATION))
        for number in range(found + 1, FORMAT + 1):
            connection.execute(self.sql(_MIGRATIONS[number - 1]))
            connection.execute(self.sql("INSERT INTO {s}.migration (number) VALUES (%s)"), [number])

    def _format(self, connection: psycopg.Connection[Any]) -> int:
        (table,) = _one(connection.execute("SELECT to_regclass(%s)", [f"{self._quoted}.migration"]))
        if table is None:
            return 0
        (number,) = _one(connection.execute(self.sql("SELECT coalesce(max(number), 0) FROM {s}.migration")))
        return int(number)


def _one(cursor: psycopg.Cursor[Any]) -> Any:
    return cursor.fetchone()


def _settings() -> bytes:
    bounds = {
        "lock_timeout": _LOCKS,
        "statement_timeout": _STATEMENTS,
        "idle_in_transaction_session_timeout": _PAUSES,
    }
    return "; ".join([f"SET {name} = '{bound}'" for name, bound in bounds.items()]).encode()


def is_lost(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any], error: psycopg.Error) -> bool:
    """Whether it is the connection that failed, or the server has ended or not yet begun."""
    state = error.sqlstate
    return connection.closed or (
        isinstance(error, psycopg.OperationalError)
        and (state is None or state[:3] == "57P" or state[:2] == "08")
    )
