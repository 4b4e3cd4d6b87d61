"""Where the sessions are that are cut off: a store of each kind, named by one word that a process can be given."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from interlock import JSONLStore, PostgresStore, SQLiteStore
from postgres_server import new_schema, postgres_server

AnyStore: TypeAlias = SQLiteStore | JSONLStore | PostgresStore
KINDS = ("sqlite", "jsonl", "postgres")


def store_at(address: str, **options: Any) -> AnyStore:
    """The store at an address: its kind, a blank, and where it is. options: as its class takes them."""
    kind, _, place = address.partition(" ")
    match kind:
        case "sqlite":
            return SQLiteStore(place, **options)
        case "jsonl":
            return JSONLStore(place, **options)
        case "postgres":
            url, _, schema = place.partition(" ")
            return PostgresStore(url, schema=schema, **options)
        case _:
            raise ValueError(f"no store is of the kind {kind!r}: there are {', '.join(KINDS)}")


@contextmanager
def address_of(kind: str, folder: Path) -> Iterator[str]:
    """The address of a new store of this kind; of PostgreSQL, a server is started for it."""
    match kind:
        case "sqlite":
            yield f"sqlite {folder / 'log.db'}"
        case "jsonl":
            yield f"jsonl {folder / 'sessions'}"
        case _:
            with postgres_server() as server:
                yield f"postgres {server.url} {new_schema()}"
