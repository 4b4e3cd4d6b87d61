"""Where the lines of an import go.

Lives here: `Nowhere`, for the pass that only looks, and `onwards`, which makes a session or goes on with one that an
earlier import of the same file had to leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from interlock.errors import DuplicateSession, StoreFailed
from interlock.log.event import Event

if TYPE_CHECKING:
    from interlock.log.checkpoint import Kept, Snapshot
    from interlock.log.stores.store import Journal, Letter, Store


class Nowhere:
    """A journal that counts."""

    durable = False
    failure: StoreFailed | None = None
    fence: int | None = None
    checkpoint: Kept | None = None

    def __init__(self) -> None:
        self.head = -1

    def write(self, events: Sequence[Event]) -> None:
        self.head += len(events)

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        return iter(())

    def on_failure(self, tell: Callable[[], None]) -> None:
        """It is found by whoever writes."""

    def keep(self, snapshot: Snapshot) -> None:
        """Whoever opens what was imported folds it first."""

    async def barrier(self) -> None:
        """There is no disk."""

    async def refresh(self) -> int:
        return self.head

    async def news(self, seconds: float) -> None:
        """Nobody else writes here."""

    async def letters(self, after: int) -> list[Letter]:
        return []

    def on_letter(self, tell: Callable[[], None] | None) -> None:
        """Nobody writes to it."""

    async def forget_letters(self, last: int) -> None:
        """There are none."""

    async def close(self) -> None:
        """There is nothing to let go of."""


class Onwards(Nowhere):
    """A journal whose first lines may be in the store already: then they must be the same ones."""

    def __init__(self, session_id: str, before: Iterator[Event], journals: Sequence[Journal]) -> None:
        super().__init__()
        self.written = 0  # lines that were not there
        self._session_id = session_id
        self._before = before
        self._journals = journals  # the last one takes lines

    def write(self, events: Sequence[Event]) -> None:
        for event in events:
            there = next(self._before, None)
            if there is None:
                self._journals[-1].write((event,))
                self.written += 1
            elif there != event:
                raise DuplicateSession(self._session_id)
            self.head += 1

    async def barrier(self) -> None:
        await self._journals[-1].barrier()

    async def close(self) -> None:
        for journal in self._journals:
            await journal.close()


async def onwards(store: Store, session_id: str, events: int) -> Onwards:
    """The journal of a session that will have so many lines.

    Raises:
        SessionBusy: it is being written by somebody else.
    """
    try:
        return Onwards(session_id, iter(()), [await store.create(session_id)])
    except DuplicateSession:
        there = await store.open(session_id, readonly=True)
    if there.head + 1 >= events:
        return Onwards(session_id, there.read(), [there])
    # Another import was broken off, by a full disk or a crash.
    return Onwards(session_id, there.read(), [there, await store.open(session_id)])
