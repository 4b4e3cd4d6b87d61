"""Taking what sessions hold out of a SQLite file, or the sessions themselves, so that the file has forgotten it.

Lives here: `erase`, `remove` and `collect`, each within a transaction of whoever writes; `standings`, by which it is
decided; and `compact`, which writes the file anew. Until that is done, bytes of what was deleted may still lie where
nothing is, and words of it in what is left of the index.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from time import time

import msgspec

from interlock.errors import UnknownSession
from interlock.log.event import Event
from interlock.log.facts import ContentErased
from interlock.log.packing import Run, erased
from interlock.log.stores.gone import Gone, Standing, above_in
from interlock.log.stores.rows import needed_by, row_of
from interlock.log.stores.sqlite.database import connect
from interlock.log.stores.sqlite.index import drop_index, is_indexed

_QUICK = 256 << 20  # bytes of a file that is written anew in a few seconds, for which others can wait
_MOMENT = 1000  # ms for which they can in any case

_STANDINGS = """
SELECT key, id, head, updated, bytes, erased IS NOT NULL,
    ifnull((SELECT type FROM event WHERE session = session.key AND type IN ('turn/start', 'turn/end')
        ORDER BY first DESC LIMIT 1), '') = 'turn/start',
    (SELECT count(*) FROM open_approval WHERE session = session.key),
    (SELECT count(*) FROM letter WHERE session = session.key),
    (SELECT data FROM event WHERE session = session.key AND first = 0)
FROM session WHERE head >= 0
"""
# All rows that refer to artifacts; the index that has only those makes it quick.
_REFERRING = """
SELECT session, data, artifacts FROM event WHERE artifacts IS NOT NULL
UNION ALL SELECT session, data, artifacts FROM checkpoint WHERE artifacts IS NOT NULL
"""
_BESIDE = ("open_approval", "letter", "checkpoint")


def standings(connection: sqlite3.Connection) -> list[Standing]:
    sizes = dict(connection.execute("SELECT digest, length(data) FROM artifact").fetchall())
    big = {
        session: sum(sizes.get(digest, 0) for digest in digests)
        for session, digests in _references(connection).items()
    }
    return [
        Standing(
            id_,
            head,
            updated,
            size + big.get(key, 0),
            bool(open_),
            asks,
            letters,
            above_in(first or b""),
            bool(gone),
        )
        for key, id_, head, updated, size, gone, open_, asks, letters, first in connection.execute(_STANDINGS)
    ]


def erase(connection: sqlite3.Connection, erasures: Sequence[ContentErased], now: int) -> list[Gone]:
    """Within a transaction, whose connection may write to all of them. What was erased before is only tidied.

    Raises:
        UnknownSession: one has no line; nothing was changed.
    """
    keys = [_key(connection, one.session_id) for one in erasures]
    big = _artifacts_of(connection, keys)
    found = []
    for key, erasure in zip(keys, erasures, strict=True):
        gone = _beside(connection, key, erasure.session_id)
        (before,) = connection.execute("SELECT erased FROM session WHERE key = ?", (key,)).fetchone()
        if before is None:
            gone = _blank(connection, key, gone)
            _say(connection, key, erasure, now)
        found.append(gone)
    return _forgotten(connection, keys, found, big)


def remove(connection: sqlite3.Connection, heads: Mapping[str, int]) -> list[Gone]:
    """Within a transaction: delete the sessions that still end with that line, and that nobody has written to since."""
    keys, found = [], []
    for session_id, head in heads.items():
        row = connection.execute(
            "SELECT key, bytes FROM session WHERE id = ? AND head = ? "
            "AND NOT EXISTS (SELECT 1 FROM letter WHERE session = key) "
            "AND fence = (SELECT fence FROM temp.held WHERE session = key)",  # nobody has taken it over
            (session_id, head),
        ).fetchone()
        if row is not None:
            keys.append(row[0])
            found.append(Gone(session_id, events=head + 1, bytes=row[1]))
    big = _artifacts_of(connection, keys)
    removed = []
    for key, gone in zip(keys, found, strict=True):
        beside = _beside(connection, key, gone.session)
        removed.append(msgspec.structs.replace(beside, events=gone.events, bytes=gone.bytes))
        connection.execute("DELETE FROM event WHERE session = ?", (key,))
        connection.execute("DELETE FROM lease WHERE session = ?", (key,))
        connection.execute("DELETE FROM session WHERE key = ?", (key,))
    return _forgotten(connection, keys, removed, big)


def collect(connection: sqlite3.Connection) -> list[str]:
    """Within a transaction: delete the artifacts that nothing refers to; their digests."""
    needed = {digest for digests in _references(connection).values() for digest in digests}
    there = [digest for (digest,) in connection.execute("SELECT digest FROM artifact ORDER BY digest")]
    return _delete(connection, [digest for digest in there if digest not in needed])


def compact(path: Path) -> str | None:
    """Write the file anew, without what was deleted; why that was not done, if it was not.

    Raises:
        sqlite3.Error: it cannot be done now.
    """
    with closing(connect(path)) as connection:
        (leases,) = connection.execute(
            "SELECT count(*) FROM lease WHERE expires > ?", (int(time() * 1000),)
        ).fetchone()
        if leases and path.stat().st_size > _QUICK:
            # What was deleted is overwritten in what lies beside the file: at least that gets into it, if nobody reads.
            connection.execute(f"PRAGMA busy_timeout = {_MOMENT}")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            return (
                f"{path} is large, and sessions in it are driven, which would have to wait for longer than they can: "
                f"it was not written anew. Run it again when none is"
            )
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("BEGIN IMMEDIATE")
        drop_index(connection)  # its words cannot be taken out one by one
        connection.execute("COMMIT")
        connection.execute("VACUUM")
        busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return (
        f"somebody reads {path}: what is in {path}-wal could not be cut off. Run it again" if busy else None
    )


def size(path: Path) -> int:
    """What the file and what is not in it yet measure."""
    found = 0
    for name in (str(path), f"{path}-wal"):
        try:
            found += Path(name).stat().st_size
        except FileNotFoundError:
            pass
    return found


def _key(connection: sqlite3.Connection, session_id: str) -> int:
    row = connection.execute("SELECT key FROM session WHERE id = ? AND head >= 0", (session_id,)).fetchone()
    if row is None:
        raise UnknownSession(session_id)
    return int(row[0])


def _beside(connection: sqlite3.Connection, key: int, session_id: str) -> Gone:
    """Delete what there is of a session beside its lines."""
    deleted = {
        table: connection.execute(f"DELETE FROM {table} WHERE session = ?", (key,)).rowcount
        for table in _BESIDE
    }
    passages = 0
    if is_indexed(connection):
        (passages,) = connection.execute("SELECT count(*) FROM passage WHERE session = ?", (key,)).fetchone()
    return Gone(
        session_id,
        passages=passages,
        letters=deleted["letter"],
        questions=deleted["open_approval"],
        checkpoint=deleted["checkpoint"] > 0,
    )


def _blank(connection: sqlite3.Connection, key: int, gone: Gone) -> Gone:
    """Empty the lines, and what a list shows of them."""
    events, size = connection.execute(
        "SELECT ifnull(sum(ifnull(lines, 1)), 0), ifnull(sum(length(data)), 0) FROM event "
        "WHERE session = ? AND length(data) > 0",
        (key,),
    ).fetchone()
    runs = connection.execute(
        "SELECT first, lines, time, life, data FROM event WHERE session = ? AND lines IS NOT NULL", (key,)
    ).fetchall()
    for first, lines, time_, life, data in runs:
        left = erased(Run(first, lines, time_, life, data)).data
        connection.execute("UPDATE event SET data = ? WHERE session = ? AND first = ?", (left, key, first))
    connection.execute(
        "UPDATE event SET data = x'', artifacts = NULL WHERE session = ? AND lines IS NULL", (key,)
    )
    connection.execute(
        "UPDATE session SET format = NULL, cwd = NULL, agent = NULL, title = NULL, bytes = "
        "(SELECT sum(length(data)) FROM event WHERE session = key) WHERE key = ?",
        (key,),
    )
    return msgspec.structs.replace(gone, events=events, bytes=size)


def _say(connection: sqlite3.Connection, key: int, erasure: ContentErased, now: int) -> None:
    """Append the line that says who erased it; a trigger notes it in the list."""
    head, life = connection.execute(
        "SELECT head, (SELECT life FROM event WHERE session = key ORDER BY first DESC LIMIT 1) "
        "FROM session WHERE key = ?",
        (key,),
    ).fetchone()
    row = row_of(key, Event(head + 1, now, life, erasure))
    connection.execute("INSERT INTO event VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _references(connection: sqlite3.Connection) -> dict[int, set[str]]:
    """The artifacts that each session refers to, by its key."""
    found: dict[int, set[str]] = {}
    for key, data, paths in connection.execute(_REFERRING):
        found.setdefault(key, set()).update(needed_by(data, paths))
    return found


def _artifacts_of(connection: sqlite3.Connection, keys: Iterable[int]) -> list[set[str]]:
    found = _references(connection)
    return [found.get(key, set()) for key in keys]


def _forgotten(
    connection: sqlite3.Connection, keys: Sequence[int], found: Sequence[Gone], big: Sequence[set[str]]
) -> list[Gone]:
    """Delete the index, whose words cannot be taken out one by one, and those artifacts that nobody else needs."""
    if not keys:
        return []
    drop_index(connection)
    needed = {digest for digests in _references(connection).values() for digest in digests}
    _delete(connection, sorted(set().union(*big) - needed))
    return [
        msgspec.structs.replace(
            gone, artifacts=tuple(sorted(digests - needed)), kept=tuple(sorted(digests & needed))
        )
        for gone, digests in zip(found, big, strict=True)
    ]


def _delete(connection: sqlite3.Connection, digests: Sequence[str]) -> list[str]:
    connection.executemany("DELETE FROM artifact WHERE digest = ?", [(digest,) for digest in digests])
    return list(digests)
