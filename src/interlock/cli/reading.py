"""Sessions as they are kept, for looking at them: nothing here writes a line.

Lives here: `stored`, the store that is meant, `every_session` of it, and `find` and
`last_in`, from what a person means to a session's id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from interlock.cli.filters import folder_of
from interlock.cli.place import place
from interlock.errors import UnknownSession, UsageError
from interlock.log.session import Session
from interlock.log.stores.memory.store import MemoryStore
from interlock.log.stores.query import Where
from interlock.log.stores.store import SessionInfo, Store

LAST = "last"
_PAGE = 1_000  # sessions listed at once
_SEARCHED = 100_000  # sessions among which a part of an id is looked for, newest first


@asynccontextmanager
async def stored() -> AsyncIterator[Store]:
    """The store that is meant; an empty one where nothing is kept yet, since looking makes no file, and no tables."""
    address = place()
    async with address.store() if await address.there() else MemoryStore() as store:
        yield store


async def every_session(store: Store) -> AsyncIterator[SessionInfo]:
    """All that are kept, the last used first; one that is written to meanwhile may be missed."""
    before: int | None = None
    while page := await store.list(limit=_PAGE, before=before):
        for info in page:
            yield info
        before = page[-1].updated


async def find(store: Store, typed: str) -> str:
    """The id of the one session that is meant: a whole id, its beginning, its end, or `last`.

    Raises:
        UnknownSession: there is none. UsageError: there are several.
    """
    found = [info.id for info in await store.list(limit=_SEARCHED) if _means(typed, info)]
    if typed in found:
        return typed
    if typed == LAST:
        found = found[:1]
    if not found:
        raise UnknownSession(typed)
    if len(found) > 1:
        some = ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
        raise UsageError(f"{typed!r} could be any of {len(found)} sessions: {some}. Type more of the id.")
    return found[0]


async def last_in(store: Store, folder: str) -> str:
    """The id of the session that was used last in this folder.

    Raises:
        UsageError: there is none.
    """
    cwd = folder_of(folder)
    found = await store.list(limit=1, where=Where(cwd=cwd))
    if not found:
        raise UsageError(
            f"No session has worked in {cwd}: leave out --continue, or name one with --resume (`interlock sessions`)."
        )
    return found[0].id


def _means(typed: str, info: SessionInfo) -> bool:
    if not typed:  # such as a variable of a script that is not set: every id begins with it
        return False
    return typed == LAST or info.id.startswith(typed) or info.id.endswith(typed)


async def open_log(store: Store, session_id: str) -> Session:
    """The log of a session, as it is: no law is checked, so that a broken one can be looked at."""
    return Session(session_id, await store.open(session_id, readonly=True), readonly=True)
