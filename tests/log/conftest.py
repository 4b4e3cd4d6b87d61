"""Every kind of store, for the tests of what all of them promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from interlock.log.stores.jsonl.store import JSONLStore
from interlock.log.stores.memory.store import MemoryStore
from interlock.log.stores.postgres.store import PostgresStore
from interlock.log.stores.sqlite.store import SQLiteStore
from postgres_server import PostgresServer, new_schema, postgres_server

AnyStore: TypeAlias = MemoryStore | SQLiteStore | JSONLStore | PostgresStore
KINDS = ["memory", "sqlite", "jsonl", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session", params=KINDS)
def make_store(request: pytest.FixtureRequest) -> Callable[[Path], AnyStore]:
    """Makes an empty store of one kind, in a folder if it needs one."""
    match request.param:
        case "memory":
            return lambda folder: MemoryStore()
        case "sqlite":
            return lambda folder: SQLiteStore(folder / "log.db")
        case "jsonl":
            return lambda folder: JSONLStore(folder / "sessions")
        case _:
            server: PostgresServer = request.getfixturevalue("postgres")
            return lambda folder: PostgresStore(server.url, schema=new_schema())


@pytest.fixture
def store(make_store: Callable[[Path], AnyStore], tmp_path: Path) -> AnyStore:
    return make_store(tmp_path)
