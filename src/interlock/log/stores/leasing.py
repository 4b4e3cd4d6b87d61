"""Stores in which a session is leased: whoever opens it for writing holds it until it is closed, or the lease expires.

Lives here: `LeasingStore` and `LeasingWriter`. The writer's thread takes, renews and gives back; the event loop is told
when somebody else has taken what was ours. How a lease is kept, and how a line of one who has lost it is refused, is
said by each store.
"""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from interlock.errors import StoreClosed, StoreFailed, UnknownSession, UsageError
from interlock.log.stores.buffered import BufferedJournal, BufferedStore
from interlock.log.stores.holder import decode_holder
from interlock.log.stores.writer import Call, Outcome, Writer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Lease(NamedTuple):
    """What was taken."""

    key: int
    fence: int  # how often the session was opened for writing


FIRST = 1  # the fence of whoever makes a session
SHORTEST = 0.1  # seconds: a shorter term is over before it can be renewed


_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def named(session_id: str, found: Sequence[tuple[bool | None, bytes | None]]) -> str | None:
    """Whom the lease of a session names; None where nobody can be left.

    found: its row: whether it has not expired by the clock of the store, and its holder.

    Raises:
        UnknownSession: no row was found.
    """
    if not found:
        raise UnknownSession(session_id)
    ((current, data),) = found
    if data is None or not (holder := decode_holder(data)).may_write(current=bool(current)):
        return None
    return str(holder)


class LeasingJournal(BufferedJournal[int]):
    """The lines of one session that is leased."""

    async def barrier(self) -> None:
        if self._synced == self._head:
            return
        assert isinstance(self._buffers, LeasingStore)
        asked = _elapsed()
        await super().barrier()
        if _elapsed() - asked > self._buffers._term / 2 and not self._closed:
            # We slept, perhaps for longer than the lease lasts. The lines were written when it was ours: whether it
            # still is has to be known before anything is done on the strength of them.
            await self._buffers._confirm()
            if self.failure is not None:
                raise self.failure.again() from self.failure

    def _freed(self) -> asyncio.Future[Any] | None:
        assert isinstance(self._buffers, LeasingStore)
        assert self.fence is not None  # it writes
        return self._buffers._give_back(Lease(self._target, self.fence))


class LeasingStore(BufferedStore[int]):
    """Sessions that are leased.

    term: seconds after which a lease expires, unless it is renewed.

    Raises:
        UsageError: the term is too short to be kept.
    """

    def __init__(self, *, term: float) -> None:
        super().__init__()
        if not term >= SHORTEST:
            raise UsageError(f"The term of a lease is at least {SHORTEST} seconds, unlike {term!r}.")
        self._term = term

    @asynccontextmanager
    async def _taken(self, session_id: str) -> AsyncIterator[Lease]:
        """The lease of a session; given back when the block raises.

        Raises:
            UnknownSession, SessionBusy, StoreFailed: it cannot be had.
        """
        assert self._loop is not None
        call = Call(partial(self._leases.take, session_id), self._loop.create_future())
        self._leases.put(call)
        lease: Lease = await self._answer(call.done, self._give_back)
        try:
            yield lease
        except Exception:
            with suppress(StoreClosed):  # then all was given back
                await asyncio.shield(self._give_back(lease))
            raise
        except BaseException:  # nobody waits any more
            self._give_back(lease)
            raise

    def _give_back(self, lease: Lease) -> asyncio.Future[Any]:
        assert self._loop is not None
        call = Call(partial(self._leases.give_back, lease), self._loop.create_future())
        self._leases.put(call)
        return call.done

    async def _confirm(self) -> None:
        """Renew all leases; journals whose leases are others' have failed when this returns.

        Raises:
            StoreFailed: they cannot be renewed now.
        """
        assert self._loop is not None
        call = Call(self._leases.confirm, self._loop.create_future())
        self._leases.put(call)
        await call.done

    def _unmade(self, target: int | None) -> None:
        if target is not None:
            self._give_back(Lease(target, FIRST))

    @property
    def _leases(self) -> LeasingWriter:
        assert isinstance(self._writer, LeasingWriter)
        return self._writer


class LeasingWriter(Writer[int]):
    """Writes, and holds leases.

    term: seconds after which a lease expires; it is renewed three times in that time.
    """

    def __init__(self, report: Callable[[Outcome[int]], None], *, term: float) -> None:
        super().__init__(report)
        self._term = term
        self._due = monotonic() + term / 3

    # What a store's own writer says. All of it runs in the thread, the first two as a `Call`.

    @abstractmethod
    def take(self, session_id: str) -> Lease:
        """Take the lease of a session.

        Raises:
            UnknownSession: there is none. SessionBusy: somebody else holds it. StoreFailed: it cannot be written.
        """

    @abstractmethod
    def give_back(self, lease: Lease) -> None:
        """Let others in, unless somebody else holds it by now. Where that fails, it expires."""

    @abstractmethod
    def _renew(self) -> list[tuple[int, StoreFailed]]:
        """Keep what is ours; what somebody else has taken, by its key.

        Raises:
            StoreFailed: it cannot be done now.
        """

    # When it is due

    def _until_due(self) -> float | None:
        return max(self._due - monotonic(), 0) if self._failure is None else None

    def _do_due(self) -> None:
        if self._failure is not None or monotonic() < self._due:
            return
        if not self._end_with_loop():
            with suppress(StoreFailed):  # there is a next time
                self.confirm()

    def confirm(self) -> None:
        """Renew now, and tell what is lost. It runs in the thread, also as a `Call`.

        Raises:
            StoreFailed: it cannot be done now.
        """
        self._due = monotonic() + self._term / 3
        if lost := self._renew():
            self._tell(self._settle, Outcome(lost=lost), ())


def _elapsed() -> float:
    """Seconds; those in which the machine slept count where the system knows of them."""
    return monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)
