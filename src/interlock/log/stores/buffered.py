"""What the stores with a disk have in common: lines wait in memory until a thread has written them.

Lives here: `BufferedStore` and `BufferedJournal`. Lines wait for a barrier, or for a moment, and are then given to the
store's writer. What is not known to be stored is read from memory, the rest from the store, with neither a gap nor a
duplicate between them.
"""

from __future__ import annotations

import asyncio
import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from interlock.errors import (
    DuplicateSession,
    ReadOnlySession,
    SessionBusy,
    SessionClosed,
    StoreClosed,
    StoreFailed,
    UsageError,
)
from interlock.log.event import Event
from interlock.log.stores.listing import About
from interlock.log.stores.query import Match, Where
from interlock.log.stores.scanning import search_by_scan
from interlock.log.stores.store import SessionInfo
from interlock.log.stores.writer import Barrier, Lines, NewSession, Outcome, Target, Work, Writer

T = TypeVar("T")

FLUSH_SECONDS = 0.05  # how long lines wait in memory when nobody waits for the disk
FLUSH_BYTES = 256 * 1024  # or until about so much has come together


class BufferedJournal(ABC, Generic[Target]):
    """The lines of one session in a store with a disk."""

    durable = True

    def __init__(
        self,
        store: BufferedStore[Target],
        session_id: str,
        target: Target,
        head: int,
        about: About,
        *,
        readonly: bool,
    ) -> None:
        self._buffers = store
        self._session_id = session_id
        self._target = target
        self._head = head
        self._about = about
        self._readonly = readonly
        self._closed = False
        self._failure: StoreFailed | None = None
        self._writable = not readonly
        self._synced = head  # the last line that is known to be on disk
        self._tail: list[Event] = []  # lines up to the head that are not known to be stored
        self._unsent: list[Any] = []  # what the writer has not got of them
        self._news = False  # in `_about`

    @property
    def head(self) -> int:
        return self._head

    @property
    def failure(self) -> StoreFailed | None:
        return self._failure

    # What a store's own journal says.

    @abstractmethod
    def _item(self, event: Event) -> tuple[object, int]:
        """What is kept of a line until it is written, and about how many bytes that is.

        Raises:
            ValueError: the fact is not JSON.
        """

    @abstractmethod
    def _stored(self, first: int, last: int) -> Iterator[Event]:
        """Lines `first` to `last` (inclusive), which are stored."""

    @abstractmethod
    async def _look(self) -> int:
        """The seq of the last stored line."""

    # Writing and reading

    def write(self, events: Sequence[Event]) -> None:
        if not self._writable:
            raise self._refusal()
        store, head, size = self._buffers, self._head, 0
        unsent, item_of = self._unsent, self._item
        already = len(unsent)
        try:
            for event in events:
                head += 1
                if event.seq != head:
                    raise ValueError(f"session {self._session_id} goes on with line {head}, not {event.seq}")
                item, weight = item_of(event)
                unsent.append(item)
                size += weight
        except BaseException:
            del unsent[already:]
            raise
        if not already and unsent:
            store._waiting.append(self)
        self._tail += events
        self._head = head
        if self._about.title is None:
            self._learn(events)
        store._bytes += size
        if store._timer is None or store._bytes > FLUSH_BYTES:
            store._schedule()

    def _learn(self, events: Sequence[Event]) -> None:
        known = self._about
        for event in events:
            self._about = self._about.learn(event.fact)
        self._news = self._news or self._about is not known

    def _refusal(self) -> Exception:
        if self._readonly:
            return ReadOnlySession(self._session_id)
        if self._closed:
            return SessionClosed(self._session_id)
        assert self._failure is not None
        return StoreFailed(self._failure.problem)

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        first = max(first, 0)
        last = self._head if last is None else min(last, self._head)
        if first > last:
            return iter(())
        # The border between store and memory is drawn here, once: what is written meanwhile does not move it.
        border = self._head + 1 - len(self._tail)
        tail = self._tail[max(first - border, 0) : max(last + 1 - border, 0)]
        if first >= border:
            return iter(tail)
        return self._read(first, min(last, border - 1), tail)

    def _read(self, first: int, last: int, tail: list[Event]) -> Iterator[Event]:
        yield from self._stored(first, last)
        yield from tail

    async def barrier(self) -> None:
        if self._synced < self._head:
            await self._buffers._sync(self)
            if self._failure is not None:
                raise StoreFailed(self._failure.problem) from self._failure

    async def refresh(self) -> int:
        if self._readonly:
            self._head = self._synced = await self._look()
        return self._head

    async def news(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._writable = False
        try:
            await self.barrier()
        finally:
            self._let_go()

    # For the store: what became of the lines.

    def _hand_over(self) -> Lines[Target]:
        lines = Lines(self, self._target, self._unsent, self._head, self._about if self._news else None)
        self._unsent, self._news = [], False
        return lines

    def _committed(self, last: int) -> None:
        del self._tail[: last - self._tail[0].seq + 1]
        self._let_go()

    def _on_disk(self) -> None:
        self._synced = self._head - len(self._tail)

    def _failed(self, failure: StoreFailed) -> None:
        if self._failure is None:
            self._failure = failure
            self._writable = False
            self._let_go()

    def _let_go(self) -> None:
        """Free the session for another journal, once closed and with nothing left that could be written."""
        done = self._closed and (not self._tail or self._failure is not None)
        if done and self._buffers._writing.get(self._session_id) is self:
            del self._buffers._writing[self._session_id]
            self._freed()

    def _freed(self) -> None:
        """Nothing is written any more by this journal."""


class BufferedStore(ABC, Generic[Target]):
    """Sessions in a store with a disk. It belongs to the event loop in which it is first used."""

    durable = True

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._writer: Writer[Target] | None = None
        self._failure: StoreFailed | None = None
        self._closed = False
        self._writing: dict[str, BufferedJournal[Target]] = {}  # by the session's id
        self._waiting: list[BufferedJournal[Target]] = []  # they have lines that the writer has not got
        self._bytes = 0  # about, of what waits
        self._timer: asyncio.TimerHandle | None = None

    # What a store says of itself.

    @abstractmethod
    def _new_writer(self) -> Writer[Target]: ...

    @abstractmethod
    async def _start_reading(self) -> None:
        """Called once, after the writer has started."""

    @abstractmethod
    async def _stop_reading(self) -> None:
        """Called once, before the writer stops."""

    @abstractmethod
    def _made(self, session_id: str, target: Target) -> BufferedJournal[Target]:
        """The writing journal of a session that was just made."""

    @abstractmethod
    async def _find(self, session_id: str, *, readonly: bool) -> BufferedJournal[Target]:
        """A journal of an existing session.

        Raises:
            UnknownSession: there is none.
        """

    @abstractmethod
    async def list(
        self, *, limit: int = 50, before: int | None = None, where: Where | None = None
    ) -> builtins.list[SessionInfo]: ...

    @abstractmethod
    async def approvals(self) -> builtins.list[tuple[str, int]]: ...

    async def search(self, text: str, *, where: Where | None = None, limit: int = 20) -> builtins.list[Match]:
        return await search_by_scan(self, text, where=where or Where(), limit=limit)

    # Opening and closing

    async def create(self, session_id: str) -> BufferedJournal[Target]:
        writer = await self._opened()
        self._check_failure()
        new: NewSession[Target] = NewSession(session_id, asyncio.get_running_loop().create_future())
        writer.put(new)
        target = await self._answer(new.done, self._unmade)
        self._check_failure()
        if target is None:
            raise DuplicateSession(session_id)
        journal = self._writing[session_id] = self._made(session_id, target)
        return journal

    async def open(self, session_id: str, *, readonly: bool = False) -> BufferedJournal[Target]:
        await self._opened()
        if readonly:
            writing = self._writing.get(session_id)
            if writing is not None:  # what was written here can be read here; else, what is on disk
                with suppress(StoreFailed):
                    await writing.barrier()
            return await self._find(session_id, readonly=True)
        self._check_failure()
        if session_id in self._writing:
            raise SessionBusy(session_id, "this process")
        journal = await self._find(session_id, readonly=False)
        if session_id in self._writing:  # somebody was faster
            raise SessionBusy(session_id, "this process")
        self._writing[session_id] = journal
        return journal

    async def close(self) -> None:
        self._check_loop()
        if self._closed:
            return
        self._closed = True
        failure: StoreFailed | None = None
        try:
            for journal in [*self._writing.values()]:
                try:
                    await journal.close()
                except StoreFailed as failed:
                    failure = failed
        finally:
            if self._timer is not None:
                self._timer.cancel()
            async with self._opening:
                if self._writer is not None:
                    await self._stop_reading()
                    await self._writer.stop()
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _answer(self, asked: asyncio.Future[T], undo: Callable[[T], None]) -> T:
        """What the writer's thread answers; undone, if nobody waits for it any more."""

        def nobody_wants(answered: asyncio.Future[T]) -> None:
            if not answered.cancelled() and answered.exception() is None:
                undo(answered.result())

        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(nobody_wants)
            raise

    def _unmade(self, target: Target | None) -> None:
        """Nobody waits any more for the session that was made there."""

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UsageError("This store belongs to another event loop. Make one store for each.")

    async def _opened(self) -> Writer[Target]:
        self._check_loop()
        async with self._opening:
            if self._closed:
                raise StoreClosed
            if self._writer is None:
                writer = self._new_writer()
                await writer.start()
                try:
                    await self._start_reading()
                except BaseException:
                    await writer.stop()
                    raise
                self._writer = writer
            return self._writer

    def _check_failure(self) -> None:
        if self._failure is not None:
            raise StoreFailed(self._failure.problem) from self._failure

    # Writing

    def _schedule(self) -> None:
        """See to it that what waits is flushed: now, if it is much, else soon."""
        assert self._loop is not None
        if self._bytes > FLUSH_BYTES:
            self._flush()
        elif self._timer is None:
            self._timer = self._loop.call_later(FLUSH_SECONDS, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._waiting:
            self._flush()

    def _flush(self, *more: Work[Target]) -> None:
        """Give the writer all that waits."""
        assert self._writer is not None
        self._writer.put(*[journal._hand_over() for journal in self._waiting], *more)
        self._waiting.clear()
        self._bytes = 0

    async def _sync(self, journal: BufferedJournal[Target]) -> None:
        """Wait until the fate of all that was written to a session is known."""
        barrier = Barrier(journal, journal._target, asyncio.get_running_loop().create_future())
        self._flush(barrier)
        await barrier.done

    def _settled(self, outcome: Outcome[Target]) -> None:
        for lines in outcome.written:
            lines.journal._committed(lines.last)
        for journal in outcome.synced:
            journal._on_disk()
        for journal, failure in outcome.failed:
            journal._failed(failure)
        if outcome.failure is not None and self._failure is None:
            self._failure = outcome.failure
            for journal in [*self._writing.values()]:
                journal._failed(outcome.failure)
