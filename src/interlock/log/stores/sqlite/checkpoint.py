"""Checkpoints in a SQLite file: one row a session.

Lives here: `keep_checkpoint` and `SELECT_CHECKPOINT`. The row goes with its session, and with what the session held.
"""

from __future__ import annotations

import sqlite3

from interlock.log.checkpoint import Kept

SELECT_CHECKPOINT = "SELECT seq, form, digest, data, artifacts FROM checkpoint WHERE session = :session"
_KEEP = """
INSERT OR REPLACE INTO checkpoint (session, seq, form, digest, data, artifacts)
SELECT key, :seq, :form, :digest, :data, :artifacts FROM session
WHERE key = :session AND head >= :seq AND erased IS NULL
AND fence = (SELECT fence FROM temp.held WHERE held.session = key)
"""


def keep_checkpoint(connection: sqlite3.Connection, session: int, kept: Kept) -> None:
    """Keep it, if its lines are there and nobody has taken the session over.

    Raises:
        sqlite3.Error: it is not kept; the earlier one is, if there was one.
    """
    row = {"seq": kept.seq, "form": kept.form, "digest": kept.digest, "data": kept.data}
    connection.execute(_KEEP, {**row, "artifacts": kept.artifacts, "session": session})
