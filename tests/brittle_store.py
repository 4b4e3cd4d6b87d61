"""A store in memory whose disk can be broken by a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from interlock.errors import StoreFailed
from interlock.log.checkpoint import Kept, Snapshot
from interlock.log.event import Event
from interlock.log.facts import Fact
from interlock.log.stores.memory.store import MemoryJournal, MemoryStore
from interlock.log.stores.store import Letter


class BrittleStore(MemoryStore):
    """Claims to be durable. It fails once and for all, at a write or a barrier that the test names.

    writes, barriers: how many there were. on_barrier: called at each barrier, before it is passed.
    """

    durable = True

    def __init__(self) -> None:
        super().__init__()
        self.failure: StoreFailed | None = None
        self.writes = 0
        self.barriers = 0
        self.on_barrier: Callable[[], None] = lambda: None
        self._bad_write: int | type[Fact] | None = None
        self._bad_barrier: int | None = None

    def break_at_write(self, which: int | type[Fact]) -> None:
        """Fail at the write with this number, from 1, or at the first that holds such a fact."""
        self._bad_write = which

    def break_at_barrier(self, number: int) -> None:
        self._bad_barrier = number

    def break_now(self) -> None:
        self.failure = StoreFailed("the disk is full")

    def mend(self) -> None:
        self.failure = self._bad_write = self._bad_barrier = None

    def writing(self, events: Sequence[Event]) -> None:
        self.writes += 1
        bad = self._bad_write
        if self.writes == bad or (isinstance(bad, type) and any(isinstance(e.fact, bad) for e in events)):
            self.break_now()
        self.check()

    def passing(self) -> None:
        self.barriers += 1
        if self.barriers == self._bad_barrier:
            self.break_now()
        self.on_barrier()
        self.check()

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    async def create(self, session_id: str) -> BrittleJournal:  # type: ignore[override]  # as good as the original
        return BrittleJournal(self, await super().create(session_id))

    async def open(  # type: ignore[override]
        self, session_id: str, *, readonly: bool = False, checkpoint: bool = False
    ) -> BrittleJournal:
        return BrittleJournal(self, await super().open(session_id, readonly=readonly))


class BrittleJournal:
    durable = True
    checkpoint: Kept | None = None
    fence = None

    def __init__(self, store: BrittleStore, inner: MemoryJournal) -> None:
        self._store = store
        self._inner = inner

    @property
    def head(self) -> int:
        return self._inner.head

    @property
    def failure(self) -> StoreFailed | None:
        return self._store.failure

    def write(self, events: Sequence[Event]) -> None:
        self._store.writing(events)
        self._inner.write(events)

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        return self._inner.read(first, last)

    def on_failure(self, tell: Callable[[], None]) -> None:
        """It is found by whoever writes."""

    def keep(self, snapshot: Snapshot) -> None:
        """Nothing is kept beside the lines."""

    async def barrier(self) -> None:
        self._store.passing()

    async def refresh(self) -> int:
        return await self._inner.refresh()

    async def news(self, seconds: float) -> None:
        await self._inner.news(seconds)

    async def letters(self, after: int) -> list[Letter]:
        return await self._inner.letters(after)

    def on_letter(self, tell: Callable[[], None] | None) -> None:
        self._inner.on_letter(tell)

    async def forget_letters(self, last: int) -> None:
        await self._inner.forget_letters(last)

    async def close(self) -> None:
        await self._inner.close()
        self._store.check()
