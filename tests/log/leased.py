"""Places whose sessions are leased, and what a test may do to a lease behind the back of its holder."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from interlock.log.stores.postgres.store import PostgresStore
from interlock.log.stores.sqlite.store import SQLiteStore
from postgres_server import PostgresServer, new_schema

LeasedStore: TypeAlias = SQLiteStore | PostgresStore

LONG = 3600.0  # seconds: no lease expires, and none is renewed, unless a test sees to it


@dataclass(frozen=True, slots=True)
class Place:
    """Where any number of stores keep the same sessions. address: for `crash.places.store_at`."""

    kind: str
    address: str
    raw: Callable[[str], list[Any]]  # `{s}` stands for what comes before the name of a table
    make: Callable[[float], LeasedStore]

    def store(self, term: float = LONG) -> LeasedStore:
        return self.make(term)

    def expire(self, session: str = "s") -> None:
        """As if its holder had not shown a sign of life for too long."""
        past = (
            "0, holder = CAST(json_set(CAST(holder AS TEXT), '$.until', 0) AS BLOB)"
            if self.kind == "sqlite"
            else "'epoch'"
        )
        key = f"SELECT key FROM {{s}}session WHERE id = '{session}'"
        self.raw(f"UPDATE {{s}}lease SET expires = {past} WHERE session = ({key})")

    def expires(self) -> list[Any]:
        return [expires for (expires,) in self.raw("SELECT expires FROM {s}lease ORDER BY session")]

    def fences(self) -> dict[str, int]:
        return dict(self.raw("SELECT id, fence FROM {s}session"))

    def leases(self) -> dict[str, int]:
        """The sessions that are held, with the fences of their holders."""
        joined = "{s}lease JOIN {s}session ON session.key = lease.session"
        return dict(self.raw(f"SELECT id, lease.fence FROM {joined}"))


def sqlite_place(folder: Path) -> Place:
    path = folder / "log.db"

    def raw(statement: str) -> list[Any]:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return connection.execute(statement.replace("{s}", "")).fetchall()

    return Place("sqlite", f"sqlite {path}", raw, lambda term: SQLiteStore(path, term=term))


def postgres_place(server: PostgresServer) -> Place:
    schema = new_schema()
    return Place(
        "postgres",
        f"postgres {server.url} {schema}",
        lambda statement: server.query(statement.replace("{s}", f"{schema}.")),
        lambda term: PostgresStore(server.url, schema=schema, term=term),
    )


async def renew(store: LeasedStore) -> None:
    """Do now what the writer does three times in a term."""
    await store._opened()
    writer = store._leases
    writer._due = 0
    await store._in_thread(writer._do_due)
