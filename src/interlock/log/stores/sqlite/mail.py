"""The mailbox of sessions in a SQLite file: a row for each letter that waits.

Lives here: what is done with these rows. It writes in the thread of the store's writer, each time in a transaction of
its own, so that a letter is numbered and on disk before its sender hears of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from interlock.errors import MailboxFull, UnknownSession
from interlock.log.event import Event, decode_fact
from interlock.log.facts import ContentErased
from interlock.log.stores.store import MAX_LETTERS, Letter
from interlock.log.tombstones import refusal

# From one session to the next, past the letters between them: it is asked five times a second.
WAITING = """
WITH RECURSIVE waiting (session) AS (
    SELECT min(session) FROM letter
    UNION ALL
    SELECT (SELECT min(session) FROM letter WHERE session > waiting.session) FROM waiting
    WHERE waiting.session IS NOT NULL
)
SELECT session FROM waiting WHERE session IS NOT NULL
"""
# Also where somebody has put rows here by hand, no number comes before one that was there.
_NUMBER = """
UPDATE session SET posted = 1 + max(
    posted, ifnull((SELECT max(number) FROM letter WHERE letter.session = session.key), 0)
) WHERE id = ? RETURNING key, posted, erased
"""
_LETTERS = "SELECT number, time, data FROM letter WHERE session = :key AND number > :after ORDER BY number"

_LAST = "SELECT first, time, life, data FROM event WHERE session = ? ORDER BY first DESC LIMIT 1"

Query = Callable[[str, dict[str, int]], list[tuple[int, int, bytes]]]


def letters(query: Query, key: int, after: int) -> list[Letter]:
    return [Letter(*row) for row in query(_LETTERS, {"key": key, "after": after})]


def post(connection: sqlite3.Connection, session_id: str, data: bytes, time: int) -> tuple[int, int]:
    """Within a transaction: the key of the session, and the number of the letter.

    Raises:
        UnknownSession, SessionErased, MailboxFull: nothing was changed.
    """
    try:
        found = connection.execute(_NUMBER, (session_id,)).fetchone()
    except UnicodeEncodeError:  # no id is like this
        raise UnknownSession(session_id) from None
    if found is None:
        raise UnknownSession(session_id)
    key, number, erased = found
    if erased is not None:
        seq, time_, life, data = connection.execute(_LAST, (key,)).fetchone()
        raise refusal(session_id, Event(seq, time_, life, decode_fact(ContentErased.type, data, seq=seq)))
    (waiting,) = connection.execute("SELECT count(*) FROM letter WHERE session = ?", (key,)).fetchone()
    if waiting >= MAX_LETTERS:
        raise MailboxFull(session_id, MAX_LETTERS)
    connection.execute("INSERT INTO letter VALUES (?, ?, ?, ?)", (key, number, time, data))
    return key, number


def forget(connection: sqlite3.Connection, key: int, last: int) -> None:
    """Within a transaction."""
    connection.execute("DELETE FROM letter WHERE session = ? AND number <= ?", (key, last))
    connection.execute("UPDATE session SET posted = ? WHERE key = ? AND posted < ?", (last, key, last))
