"""The mailbox of sessions in a PostgreSQL database: a row for each letter that waits.

Lives here: what is done with these rows. The row of the session is locked while a letter gets its number, so numbers
are in the order of the commits; whoever drives the session is told by the commit itself. It imports psycopg, so it is
imported when it is used.
"""

from __future__ import annotations

from typing import Any

import psycopg

from interlock.errors import MailboxFull, UnknownSession
from interlock.log.event import Event, decode_fact
from interlock.log.facts import ContentErased
from interlock.log.stores.postgres.database import Database
from interlock.log.stores.store import MAX_LETTERS
from interlock.log.tombstones import refusal

LETTERS = """
SELECT number, time, data FROM {s}.letter WHERE session = %(key)s AND number > %(after)s ORDER BY number
"""
# Also where somebody has put rows here by hand, no number comes before one that was there.
_NUMBER = """
UPDATE {s}.session SET posted = 1 + greatest(
    posted, (SELECT max(number) FROM {s}.letter WHERE letter.session = key)
) WHERE id = %s RETURNING key, posted, erased
"""
_LAST = "SELECT first, time, life, data FROM {s}.event WHERE session = %s ORDER BY first DESC LIMIT 1"
_WAITING = "SELECT count(*) FROM {s}.letter WHERE session = %s"
_ADD = "INSERT INTO {s}.letter VALUES (%s, %s, %s, %s)"
_FORGET = "DELETE FROM {s}.letter WHERE session = %s AND number <= %s"
_RAISE = "UPDATE {s}.session SET posted = %s WHERE key = %s AND posted < %s"
_TELL = "SELECT pg_notify(%s, %s)"


class Uncertain(Exception):
    """The connection was lost while the server committed: whether the letter is there is not known."""


def post(
    database: Database, connection: psycopg.Connection[Any], session_id: str, data: bytes, time: int
) -> int:
    """The number of the letter.

    Raises:
        UnknownSession, SessionErased, MailboxFull: nothing was changed.
        Uncertain: it may have been posted. psycopg.Error: it was not.
    """
    sql = database.sql
    connection.execute("BEGIN")
    try:
        connection.execute("SET LOCAL synchronous_commit = on")
        found = connection.execute(sql(_NUMBER), [session_id]).fetchone()
        if found is None:
            raise UnknownSession(session_id)
        key, number, erased = found
        if erased is not None:
            ((seq, time_, life, text),) = connection.execute(sql(_LAST), [key], binary=True).fetchall()
            raise refusal(session_id, Event(seq, time_, life, decode_fact(ContentErased.type, text, seq=seq)))
        waiting = connection.execute(sql(_WAITING), [key]).fetchone()
        if waiting is None or waiting[0] >= MAX_LETTERS:
            raise MailboxFull(session_id, MAX_LETTERS)
        connection.execute(sql(_ADD), [key, number, time, data])
        connection.execute(_TELL.encode(), [database.channel, f"{key} letter"])
    except BaseException:
        if not connection.closed:
            connection.execute("ROLLBACK")
        raise
    try:
        connection.execute("COMMIT")
    except psycopg.Error as error:
        raise Uncertain(str(error)) from error
    return int(number)


def forget(database: Database, connection: psycopg.Connection[Any], key: int, last: int) -> None:
    with connection.transaction():
        connection.execute(database.sql(_FORGET), [key, last])
        connection.execute(database.sql(_RAISE), [last, key, last])
