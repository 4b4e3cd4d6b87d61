"""The thread that writes for a store, with group commit over all its sessions.

Lives here: `Writer` and the work it takes. All that waits when the thread comes round is done in one round; when
somebody waits for the disk, the round syncs. What came of it is told on the event loop. How lines get to a disk is said
by each store's own writer.
"""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from interlock.errors import SessionError, StoreClosed, StoreFailed
from interlock.log.stores.listing import About

if TYPE_CHECKING:
    from interlock.log.checkpoint import Kept
    from interlock.log.stores.buffered import BufferedJournal

Target = TypeVar("Target")  # where a store's writer puts the lines of a session: the key of its row, a file


@dataclass(slots=True, eq=False)
class Lines(Generic[Target]):
    """Lines of one session to be written, in order, in the form that its journal gave them."""

    journal: BufferedJournal[Target]  # whose they are; only handed back, never used in the thread
    target: Target
    items: list[Any]
    last: int  # seq of the last of them
    about: About | None = None  # when there is something new to be listed


@dataclass(slots=True, eq=False)
class NewSession(Generic[Target]):
    """A session to be made. `done` gets where its lines go, or None when there is one of that id."""

    id: str
    done: asyncio.Future[Target | None]


@dataclass(slots=True, eq=False)
class Barrier(Generic[Target]):
    """Somebody waits until all of a session is on disk. `done` says only that its fate is known."""

    journal: BufferedJournal[Target]
    target: Target
    done: asyncio.Future[None]


@dataclass(slots=True, eq=False)
class Call:
    """Something else to be done in the thread, after all that was put before."""

    fn: Callable[[], Any]
    done: asyncio.Future[Any]


class _Stop:
    """The last piece of work."""


_LOOK = 10.0  # seconds from one look to the next whether the event loop has ended without closing the store

Work: TypeAlias = Lines[Target] | NewSession[Target] | Barrier[Target] | Call | _Stop


@dataclass(slots=True)
class Outcome(Generic[Target]):
    """What came of the work of one round."""

    written: list[Lines[Target]] = field(default_factory=list)
    synced: list[BufferedJournal[Target]] = field(default_factory=list)  # all that was ever written of them
    failed: list[tuple[BufferedJournal[Target], StoreFailed]] = field(default_factory=list)  # these alone
    lost: list[tuple[Target, StoreFailed]] = field(default_factory=list)  # others may write there now
    failure: StoreFailed | None = None  # nothing is written any more


class Writer(ABC, Generic[Target]):
    """Owns what a store writes to, in a thread of its own."""

    def __init__(self, report: Callable[[Outcome[Target]], None]) -> None:
        self._report = report  # called on the event loop, before the futures of the same work are resolved
        self._queue: SimpleQueue[Sequence[Work[Target]]] = SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[None] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="interlock-store", daemon=True)
        self._failure: StoreFailed | None = None
        self._over = False  # the thread takes no more work

    async def start(self) -> None:
        """Open what is written to.

        Raises:
            StoreFailed, NewerFormat: it cannot be used, and the thread has ended.
        """
        self._thread.start()
        try:
            await self._ready
        except BaseException:
            self.put(_Stop())
            raise

    def put(self, *work: Work[Target]) -> None:
        """Take work, in order and as one. Once the thread has ended, whoever waits for it hears that at once."""
        self._queue.put(work)
        if self._over:
            self._refuse_rest()

    async def stop(self) -> None:
        """Do what was put before, let go and end the thread."""
        self.put(_Stop())
        await self._ended
        self._thread.join()

    # What a store's own writer says. All of it runs in the thread.

    @abstractmethod
    def _open(self) -> None:
        """Open what is written to; nothing is left open when it raises."""

    @abstractmethod
    def _write(
        self,
        new: Sequence[NewSession[Target]],
        lines: list[Lines[Target]],
        barriers: Sequence[Barrier[Target]],
        outcome: Outcome[Target],
    ) -> list[Target | None]:
        """Do the work of a round and note in `outcome` what became of the lines; the targets of the new sessions.

        What it raises is the end of all writing.
        """

    def _told(self) -> None:
        """Called after each round, when those who waited know."""

    def _until_due(self) -> float | None:
        """Seconds until something is due though nobody asks for it; None: nothing ever is."""
        return _LOOK

    def _do_due(self) -> None:
        """Do what is due. Called after each round, and when it is time."""
        self._end_with_loop()

    def _end_with_loop(self) -> bool:
        """Let go of all, if the store was not closed and nobody can close it any more; whether that is so."""
        if self._loop.is_closed():
            self._queue.put((_Stop(),))
            return True
        return False

    def _given_up(self) -> None:
        """Called when writing has failed for good, before anybody is told."""

    @abstractmethod
    def keep(self, target: Target, kept: Kept) -> None:
        """Keep a checkpoint in the place of an earlier one. That it cannot be kept does no harm. Put as a `Call`."""

    @abstractmethod
    def _named(self, problem: str) -> str:
        """The problem with the place where it is, for a person."""

    @abstractmethod
    def _close(self) -> None:
        """Let go of what is written to."""

    # The thread.

    def _run(self) -> None:
        try:
            self._open()
        except Exception as error:  # noqa: BLE001  # whatever it was, the one who waits must hear of it
            failure = error if isinstance(error, SessionError) else self._failed(error)
            self._tell(_reject, self._ready, failure)
            return
        self._tell(_resolve, self._ready, None)
        try:
            while self._round():
                pass
        finally:
            try:
                self._close()
            finally:
                self._over = True
                self._refuse_rest()
                self._tell(_resolve, self._ended, None)

    def _refuse_rest(self) -> None:
        """Answer those whose work nobody does. Whoever puts work after the end looks at it too, so none is missed."""
        failure = self._failure or StoreFailed(self._named("its thread has ended"))
        while True:
            try:
                work = self._queue.get_nowait()
            except Empty:
                return
            for one in work:
                match one:
                    case Lines() | Barrier():
                        outcome = Outcome(failed=[(one.journal, failure)])
                        done = [(one.done, None)] if isinstance(one, Barrier) else []
                        self._tell(self._settle, outcome, done)
                    case Call() | NewSession():
                        self._tell(_refuse, one.done)
                    case _Stop():
                        pass

    def _tell(self, callback: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    def _failed(self, error: Exception) -> StoreFailed:
        failure = StoreFailed(self._named(str(error) or type(error).__name__))
        failure.__cause__ = error
        return failure

    def _round(self) -> bool:
        """Do all that waits; whether there may be more."""
        try:
            work = [*self._queue.get(timeout=self._until_due())]
        except Empty:
            self._do_due()
            return True
        while not self._queue.empty():
            work += self._queue.get_nowait()
        new: list[NewSession[Target]] = []
        lines: list[Lines[Target]] = []
        barriers: list[Barrier[Target]] = []
        calls: list[Call] = []
        goes_on = True
        for one in work:
            match one:
                case Lines():
                    lines.append(one)
                case Barrier():
                    barriers.append(one)
                case Call():
                    calls.append(one)
                case NewSession():
                    new.append(one)
                case _Stop():
                    goes_on = False
        outcome: Outcome[Target] = Outcome()
        targets: list[Target | None] = [None] * len(new)
        if self._failure is None and (new or lines or barriers):
            try:
                targets = self._write(new, lines, barriers, outcome)
            except Exception as error:  # noqa: BLE001  # whatever it was, those who wait must hear of it
                self._failure = error if isinstance(error, StoreFailed) else self._failed(error)
                self._given_up()
        outcome.failure = self._failure
        done: list[tuple[asyncio.Future[Any], Any]]
        done = [(one.done, target) for one, target in zip(new, targets, strict=True)]
        done += [(one.done, None) for one in barriers]
        self._tell(self._settle, outcome, done)
        self._told()
        for call in calls:
            try:
                self._tell(_resolve, call.done, call.fn())
            except Exception as error:  # noqa: BLE001  # it belongs to whoever asked
                self._tell(_reject, call.done, error)
        self._do_due()
        return goes_on

    # On the event loop again.

    def _settle(self, outcome: Outcome[Target], done: Iterable[tuple[asyncio.Future[Any], Any]]) -> None:
        self._report(outcome)
        for future, result in done:
            _resolve(future, result)


def _resolve(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():  # else the waiter has gone
        future.set_result(result)


def _reject(future: asyncio.Future[Any], error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _refuse(future: asyncio.Future[Any]) -> None:
    if not future.done():
        future.set_exception(StoreClosed())
        future.exception()  # seen: of what was only handed over, nobody need hear
