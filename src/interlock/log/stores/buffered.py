"""What the stores with a disk have in common: lines wait in memory until a thread has written them.

Lives here: `BufferedStore` and `BufferedJournal`. Lines wait for a barrier, or for a moment, and are then given to the
store's writer. What is not known to be stored is read from memory, the rest from the store, with neither a gap nor a
duplicate between them.
"""

from __future__ import annotations

import asyncio
import builtins
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

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
from interlock.log.stores.keeping import Keeping
from interlock.log.stores.listing import About
from interlock.log.stores.query import Match, Where
from interlock.log.stores.scanning import search_by_scan
from interlock.log.stores.store import Letter, SessionInfo
from interlock.log.stores.writer import Barrier, Call, Lines, NewSession, Outcome, Target, Work, Writer

if TYPE_CHECKING:
    from interlock.log.checkpoint import Kept, Snapshot
    from interlock.log.facts import ContentErased
    from interlock.log.stores.gone import Gone, Standing

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
        fence: int | None = None,
    ) -> None:
        self.fence = fence
        self._buffers = store
        self._session_id = session_id
        self._target = target
        self._head = head
        self._about = about
        self._readonly = readonly
        self._closed = False
        self.failure: StoreFailed | None = None
        self._writable = not readonly
        self._synced = head  # the last line that is known to be on disk
        self._tail: list[Event] = []  # lines up to the head that are not known to be stored
        self._unsent: list[Any] = []  # what the writer has not got of them
        self._news = False  # in `_about`
        self.checkpoint: Kept | None = None
        self._keeping: Keeping | None = None
        self._freeing: asyncio.Future[Any] | None = None  # others are being let in
        self._on_failure: Callable[[], None] | None = None

    @property
    def head(self) -> int:
        return self._head

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

    @abstractmethod
    async def _stored_checkpoint(self) -> Kept | None:
        """What is kept of the session's folds, with its big texts."""

    @abstractmethod
    async def letters(self, after: int) -> list[Letter]: ...

    @abstractmethod
    def on_letter(self, tell: Callable[[], None] | None) -> None: ...

    @abstractmethod
    async def forget_letters(self, last: int) -> None: ...

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
        assert self.failure is not None
        return self.failure.again()

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
        stored = self._stored(first, min(last, border - 1))
        return chain(stored, tail) if tail else stored

    async def _prepare(self, *, checkpoint: bool) -> None:
        """Have at hand what whoever has opened the session reads first."""
        if checkpoint:
            kept = self.checkpoint = await self._stored_checkpoint()
            if kept is not None and kept.seq > self._head:  # its lines may have come since we looked
                await self.refresh()

    def keep(self, snapshot: Snapshot) -> None:
        if self._writable:
            if self._keeping is None:
                self._keeping = Keeping(self._put_checkpoint)
            self._keeping.take(snapshot)

    def _put_checkpoint(self, kept: Kept) -> None:
        writer, loop = self._buffers._writer, self._buffers._loop
        if writer is not None and loop is not None and self.failure is None:
            writer.put(Call(partial(writer.keep, self._target, kept), loop.create_future()))

    async def barrier(self) -> None:
        if self._synced < self._head:
            await self._buffers._sync(self)
            if self.failure is not None:
                raise self.failure.again() from self.failure

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
            if self._keeping is not None:
                await self._keeping.done()
        finally:
            if self._keeping is not None:
                self._keeping.drop()
                self._keeping = None
            self._let_go()
            if self._freeing is not None:  # whoever is told of the end may open it elsewhere
                with suppress(StoreClosed):  # then others were let in at the end of the store
                    await asyncio.shield(self._freeing)

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
        if self._keeping is not None:
            self._keeping.on_disk(self._synced)

    def _failed(self, failure: StoreFailed) -> None:
        if self.failure is None:
            self.failure = failure
            self._writable = False
            self._let_go()
            if self._on_failure is not None:
                self._on_failure()

    def on_failure(self, tell: Callable[[], None]) -> None:
        self._on_failure = tell

    def _let_go(self) -> None:
        """Free the session for another journal, once closed and with nothing left that could be written."""
        done = self._closed and (not self._tail or self.failure is not None)
        if self._keeping is not None and self._keeping.busy:
            return  # a checkpoint goes before; who closes comes back
        if done and self._buffers._writing.get(self._session_id) is self:
            del self._buffers._writing[self._session_id]
            self._freeing = self._freed()

    def _freed(self) -> asyncio.Future[Any] | None:
        """Nothing is written any more by this journal: let others in; what tells that they are."""


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
        self._taking: set[str] = set()  # sessions that are being opened for writing
        self._making: set[str] = set()  # sessions that are being made
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
            SessionBusy: somebody else writes to it.
        """

    @abstractmethod
    async def list(
        self, *, limit: int = 50, before: int | None = None, where: Where | None = None
    ) -> builtins.list[SessionInfo]: ...

    @abstractmethod
    async def approvals(self) -> builtins.list[tuple[str, int]]: ...

    @abstractmethod
    async def standings(self) -> builtins.list[Standing]: ...

    @abstractmethod
    async def erase(self, erasures: Sequence[ContentErased], *, time: int) -> builtins.list[Gone]: ...

    @abstractmethod
    async def remove(self, heads: Mapping[str, int]) -> builtins.list[Gone]: ...

    @abstractmethod
    async def collect(self) -> builtins.list[str]: ...

    @abstractmethod
    async def compact(self) -> str | None: ...

    @abstractmethod
    async def size(self) -> int: ...

    @abstractmethod
    async def post(self, session_id: str, data: bytes, *, time: int) -> int: ...

    async def holder(self, session_id: str) -> str | None:
        await self._opened()
        return "this process" if session_id in self._writing else await self._holder(session_id)

    @abstractmethod
    async def _holder(self, session_id: str) -> str | None:
        """Who else writes to a session.

        Raises:
            UnknownSession: there is none.
        """

    async def search(self, text: str, *, where: Where | None = None, limit: int = 20) -> builtins.list[Match]:
        return await search_by_scan(self, text, where=where or Where(), limit=limit)

    # Opening and closing

    async def create(self, session_id: str) -> BufferedJournal[Target]:
        writer = await self._opened()
        self._check_failure()
        if session_id in self._making or session_id in self._taking:
            # Whoever opens it would have what is made here, too: the writer makes first, and takes then.
            raise DuplicateSession(session_id)
        new: NewSession[Target] = NewSession(session_id, asyncio.get_running_loop().create_future())
        self._making.add(session_id)
        try:
            writer.put(new)
            target = await self._answer(new.done, self._unmade)
        finally:
            self._making.discard(session_id)
        self._check_failure()
        if target is None:
            raise DuplicateSession(session_id)
        if self._closed:  # meanwhile: nothing would be written any more
            self._unmade(target)
            raise StoreClosed
        journal = self._writing[session_id] = self._made(session_id, target)
        return journal

    async def open(
        self, session_id: str, *, readonly: bool = False, checkpoint: bool = False
    ) -> BufferedJournal[Target]:
        await self._opened()
        if readonly:
            writing = self._writing.get(session_id)
            if writing is not None:  # what was written here can be read here; else, what is on disk
                with suppress(StoreFailed):
                    await writing.barrier()
            journal = await self._find(session_id, readonly=True)
            await journal._prepare(checkpoint=checkpoint)
            return journal
        self._check_failure()
        if session_id in self._writing or session_id in self._taking or session_id in self._making:
            raise SessionBusy(session_id, "this process")
        self._taking.add(session_id)
        try:
            journal = self._writing[session_id] = await self._find(session_id, readonly=False)
            try:
                await journal._prepare(checkpoint=checkpoint)
                # Nothing would be written, if either has come meanwhile.
                self._check_failure()
                if self._closed:
                    raise StoreClosed
            except BaseException:
                await journal.close()
                raise
        finally:
            self._taking.discard(session_id)
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
                    self._flush()  # what is left when closing a journal was broken off
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

    async def _answer(self, asked: asyncio.Future[T], undo: Callable[[T], object]) -> T:
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

    async def _in_thread(self, fn: Callable[[], T]) -> T:
        """What this gives, called in the writer's thread after all that was handed over before."""
        writer = await self._opened()
        call = Call(fn, asyncio.get_running_loop().create_future())
        writer.put(call)
        done: T = await call.done
        return done

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
            raise self._failure.again() from self._failure

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
        for target, failure in outcome.lost:
            for journal in [*self._writing.values()]:
                if journal._target == target:
                    journal._failed(failure)
        if outcome.failure is not None:
            self._failure = self._failure or outcome.failure
            for journal in [*self._writing.values()]:
                journal._failed(outcome.failure)
