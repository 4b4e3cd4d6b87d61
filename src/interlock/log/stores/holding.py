"""Holding sessions while something is done to them as a whole, so that nobody drives them meanwhile.

Lives here: `held`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from interlock.errors import SessionBusy, UnknownSession

if TYPE_CHECKING:
    from interlock.log.stores.store import Journal, Store


@asynccontextmanager
async def held(
    store: Store, session_ids: Iterable[str], *, busy: bool = False
) -> AsyncIterator[dict[str, Journal]]:
    """The journals of these sessions, open for writing as long as the block runs.

    Args:
        busy: leave out those that somebody drives, and those that are gone, instead of raising.

    Raises:
        UnknownSession, SessionBusy: one cannot be had; none is held.
    """
    async with AsyncExitStack() as stack:
        found: dict[str, Journal] = {}
        for session_id in session_ids:
            try:
                journal = await store.open(session_id)
            except (SessionBusy, UnknownSession):
                if not busy:
                    raise
                continue
            stack.push_async_callback(journal.close)
            found[session_id] = journal
        yield found
