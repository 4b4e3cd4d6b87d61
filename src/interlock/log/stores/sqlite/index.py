"""The index of a SQLite file: what was said, found by its words.

Lives here: `catch_up`, which indexes lines that have come since, `find_passages` and `drop_index`. The index is no
truth: it is made from the lines after they are on disk, never in the transaction that somebody waits for, it can be
dropped, and it is made anew for a file that has none. What it has of a session goes with it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from interlock.errors import UnknownFact, UnreadableLog
from interlock.log.event import Event
from interlock.log.facts import Fact, TurnEnd
from interlock.log.reasons import kind_of
from interlock.log.stores.passages import SAYING, passages
from interlock.log.stores.query import Place, Query, Where, indexable
from interlock.log.stores.rows import event_of

_SCHEMA = (
    """
    CREATE TABLE indexed (
        session INTEGER PRIMARY KEY,
        head INTEGER NOT NULL,              -- all lines up to this seq are in the index
        turn INTEGER NOT NULL               -- the one that was open there, or the last one
    )""",
    """
    CREATE TABLE passage (
        id INTEGER PRIMARY KEY AUTOINCREMENT, -- the row of its words, which nothing else ever is
        session INTEGER NOT NULL,
        seq INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        place TEXT NOT NULL,
        tool TEXT,
        time INTEGER NOT NULL               -- epoch ms
    )""",
    "CREATE UNIQUE INDEX passage_of_line ON passage (session, seq)",
    "CREATE INDEX passage_of_tool ON passage (session, tool) WHERE tool IS NOT NULL",
    """
    CREATE TABLE ended (
        session INTEGER NOT NULL,
        turn INTEGER NOT NULL,
        reason TEXT NOT NULL,               -- its kind
        PRIMARY KEY (session, turn)
    ) WITHOUT ROWID""",
    # Words are made ASCII's by `indexable`: whatever is beyond is a letter. The texts themselves are not kept again, and
    # so the words of one line cannot be taken out again: a line that has gone is found no more, since `passage` has it.
    "CREATE VIRTUAL TABLE words USING fts5(text, content = '', tokenize = 'ascii')",
    """
    CREATE TRIGGER index_goes_with_session AFTER DELETE ON session
    BEGIN
        DELETE FROM passage WHERE session = OLD.key;
        DELETE FROM ended WHERE session = OLD.key;
        DELETE FROM indexed WHERE session = OLD.key;
    END""",
)

_LOOKED_AT: tuple[type[Fact], ...] = (*SAYING, TurnEnd)
_OURS = """
SELECT type, name FROM sqlite_master
WHERE name IN ('index_goes_with_session', 'words', 'passage', 'ended', 'indexed') ORDER BY type DESC
"""
_TYPES = ", ".join([f"'{cls.type}'" for cls in _LOOKED_AT])
_BEHIND = """
SELECT key, session.head, ifnull(indexed.head, -1), ifnull(indexed.turn, 0)
FROM session LEFT JOIN indexed ON indexed.session = key
WHERE session.head > ifnull(indexed.head, -1) AND (:session IS NULL OR key = :session) LIMIT 100
"""
_LINES = f"""
SELECT first, data, artifacts, type, time, life, causes, ignorable FROM event
WHERE session = :session AND first > :after AND first <= :head AND type IN ({_TYPES}) AND lines IS NULL
ORDER BY first LIMIT :most
"""
_RANKED = 1000  # of the matches that were indexed last, the best are given


class Found(NamedTuple):
    """A line of the index that has the words."""

    session: str
    seq: int
    turn: int
    place: Place
    tool: str | None
    time: int  # epoch ms
    cwd: str | None
    rank: float


def catch_up(connection: sqlite3.Connection, *, session: int | None = None, most: int = 1000) -> bool:
    """Index about so many lines, of this session or of all that are behind; whether there may be more.

    Raises:
        sqlite3.Error: the file cannot be written, or this build of SQLite has no FTS5.
    """
    if not is_indexed(connection):
        _transact(connection, _make)
    behind = connection.execute(_BEHIND, {"session": session}).fetchall()
    if not behind:
        return False
    return _transact(connection, lambda connection: _index_all(connection, session, most))


def _index_all(connection: sqlite3.Connection, session: int | None, most: int) -> bool:
    # Looked up again, now that nobody else can be at it.
    for key, head, after, turn in connection.execute(_BEHIND, {"session": session}).fetchall():
        most -= _index(connection, key, head, after, turn, most)
        if most <= 0:
            break
    return True


def _index(connection: sqlite3.Connection, session: int, head: int, after: int, turn: int, most: int) -> int:
    """Index the next lines of a session; what that weighs."""
    bounds = {"session": session, "after": after, "head": head, "most": most}
    rows = connection.execute(_LINES, bounds).fetchall()
    calls = connection.execute(
        "SELECT seq, tool FROM passage WHERE session = ? AND turn = ? AND place = 'call'", (session, turn)
    )
    tools = dict(calls.fetchall())
    events = list(_events(connection, rows))
    for said in passages(events, turn=turn, tools=tools):
        made = connection.execute(
            "INSERT INTO passage (session, seq, turn, place, tool, time) VALUES (?, ?, ?, ?, ?, ?)",
            (session, said.seq, said.turn, said.place, said.tool, said.time),
        )
        connection.execute(
            "INSERT INTO words (rowid, text) VALUES (?, ?)", (made.lastrowid, indexable(said.text))
        )
    for event in events:
        fact = event.fact
        if isinstance(fact, TurnEnd):
            ended = (session, fact.turn, kind_of(fact.reason))
            connection.execute("INSERT OR REPLACE INTO ended VALUES (?, ?, ?)", ended)
        turn = getattr(fact, "turn", turn)
    if len(rows) >= most:
        head = rows[-1][0]
    connection.execute("INSERT OR REPLACE INTO indexed VALUES (?, ?, ?)", (session, head, turn))
    return len(rows) + 1


def _events(connection: sqlite3.Connection, rows: list[Any]) -> Iterator[Event]:
    def fetch(digest: str) -> bytes | None:
        found = connection.execute("SELECT data FROM artifact WHERE digest = ?", (digest,)).fetchone()
        return found[0] if found is not None else None

    for seq, data, paths, type_, time, life, causes, ignorable in rows:
        try:
            yield event_of(seq, data, paths, type_, time, life, causes, ignorable, fetch)
        except (UnknownFact, UnreadableLog):
            pass  # who reads the log is told; what can be read is found


def find_passages(connection: sqlite3.Connection, query: Query, where: Where, limit: int) -> list[Found]:
    """What the index has, the best first. It must have been made by `catch_up`."""
    conditions = ["words MATCH :words"]
    for value, condition in (
        (where.since, "passage.time >= :since"),
        (where.until, "passage.time < :until"),
        (where.cwd, "session.cwd = :cwd"),
        (where.tool, "passage.tool = :tool"),
        (where.reason, "(SELECT reason FROM ended WHERE session = key AND turn = passage.turn) = :reason"),
    ):
        if value is not None:
            conditions.append(condition)
    phrases = " ".join([f'"{" ".join(term)}" *' for term in query.terms])
    return [
        Found(*row)
        for row in connection.execute(
            f"""
            SELECT id, seq, turn, place, tool, time, cwd, rank FROM (
                SELECT session.id, seq, turn, place, tool, time, cwd, -bm25(words) AS rank
                FROM words JOIN passage ON passage.id = words.rowid JOIN session ON key = passage.session
                WHERE {" AND ".join(conditions)} ORDER BY words.rowid DESC LIMIT {_RANKED}
            ) ORDER BY rank DESC, time DESC LIMIT :limit
            """,
            {**msgspec.structs.asdict(where), "words": phrases, "limit": limit},
        )
    ]


def meant_by(where: Where) -> list[str]:
    """What has to hold of a row of `session`; after `catch_up`, if it is about a tool or a reason."""
    conditions = {
        "updated >= :since": where.since,
        "created < :until": where.until,
        "cwd = :cwd": where.cwd,
        "EXISTS (SELECT 1 FROM passage WHERE passage.session = key AND tool = :tool)": where.tool,
        "EXISTS (SELECT 1 FROM ended WHERE ended.session = key AND reason = :reason)": where.reason,
    }
    return [condition for condition, value in conditions.items() if value is not None]


def is_indexed(connection: sqlite3.Connection) -> bool:
    """Whether the file has an index."""
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'indexed'").fetchone()
    return found is not None


def drop_index(connection: sqlite3.Connection) -> None:
    """Take the whole index away, in the transaction that is open; the next search makes it anew from the lines.

    For whoever has deleted lines, or what they said: their words are in the index until then, though no search finds
    those of a session that has gone. The bytes are gone when the file is written anew (`VACUUM`).
    """
    for kind, name in connection.execute(_OURS).fetchall():
        connection.execute(f"DROP {kind} {name}")


def _make(connection: sqlite3.Connection) -> bool:
    if not is_indexed(connection):  # another process may have been first
        for statement in _SCHEMA:
            connection.execute(statement)
    return True


def _transact(connection: sqlite3.Connection, work: Any) -> bool:
    connection.execute("BEGIN IMMEDIATE")
    try:
        done: bool = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return done
