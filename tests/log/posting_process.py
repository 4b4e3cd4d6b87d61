"""A process that posts letters to the session `s`, run by tests: it says on stdout each number, once it is on disk.

Arguments: the kind of store, where it is, a name, and how many. It begins when something is written to its stdin.
"""

from __future__ import annotations

import asyncio
import sys

from interlock.log.stores.jsonl.store import JSONLStore
from interlock.log.stores.postgres.store import PostgresStore
from interlock.log.stores.sqlite.store import SQLiteStore


async def main(kind: str, place: str, *rest: str) -> None:
    store: SQLiteStore | JSONLStore | PostgresStore
    if kind == "sqlite":
        store = SQLiteStore(place)
    elif kind == "jsonl":
        store = JSONLStore(place)
    else:
        schema, *rest = rest  # type: ignore[assignment]  # of strings
        store = PostgresStore(f"postgresql://postgres@/postgres?host={place}", schema=schema)
    name, count = rest
    async with store:
        sys.stdin.readline()
        for n in range(int(count)):
            text = f"{name}.{n}"
            print(await store.post("s", text.encode(), time=n), text, flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
