"""Checkpoints in a PostgreSQL database: one row a session.

Lives here: `keep_checkpoint` and `stored_checkpoint`. The row goes with its session, and with what the session held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg

from interlock.log.checkpoint import Kept
from interlock.log.stores.postgres.database import Database

if TYPE_CHECKING:
    from interlock.log.stores.postgres.reading import Reading

_SELECT = "SELECT seq, form, digest, data, artifacts FROM {s}.checkpoint WHERE session = %(session)s"
_KEEP = """
INSERT INTO {s}.checkpoint (session, seq, form, digest, data, artifacts)
SELECT key, %(seq)s, %(form)s, %(digest)s, %(data)s, %(artifacts)s FROM {s}.session
WHERE key = %(session)s AND fence = %(fence)s AND head >= %(seq)s AND erased IS NULL
FOR SHARE
ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, form = excluded.form, digest = excluded.digest,
    data = excluded.data, artifacts = excluded.artifacts
"""


def keep_checkpoint(
    connection: psycopg.Connection[Any], database: Database, session: int, fence: int, kept: Kept
) -> None:
    """Keep it, if its lines are there and nobody has taken the session over since it was opened with this number.

    Raises:
        psycopg.Error: it is not kept; the earlier one is, if there was one.
    """
    row = {"seq": kept.seq, "form": kept.form, "digest": kept.digest, "data": kept.data}
    where = {"session": session, "fence": fence}
    with connection.transaction():
        connection.execute("SET LOCAL synchronous_commit = off")
        connection.execute(database.sql(_KEEP), {**row, "artifacts": kept.artifacts, **where})


async def stored_checkpoint(reading: Reading, session: int) -> Kept | None:
    """What is kept of a session, with its big texts.

    Raises:
        SessionError: the database cannot be read.
    """
    found = await reading.ask(_SELECT, {"session": session})
    if not found:
        return None
    kept = Kept(*found[0])
    artifacts = await reading.artifacts(kept.references())
    return kept.whole(artifacts.get)
