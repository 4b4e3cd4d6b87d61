"""Where logs are kept: the protocol that every store meets.

Lives here: `Store` (many sessions) and `Journal` (the lines of one). A journal orders and keeps; it knows no law and
folds nothing. One contract test-suite runs against every store.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from interlock.errors import StoreFailed
from interlock.log.event import Event
from interlock.log.stores.query import Match, Where


class SessionInfo(msgspec.Struct, frozen=True):
    """What a list of sessions shows, without reading their logs."""

    id: str
    created: int  # epoch ms
    updated: int  # epoch ms of the last line on disk
    events: int
    cwd: str | None = None
    agent: str | None = None
    title: str | None = None  # the first words of the first prompt
    bytes: int = 0


class Journal(Protocol):
    """The lines of one session."""

    @property
    def durable(self) -> bool:
        """Whether `barrier` means a disk. Where it does not, nobody needs to wait for it."""

    @property
    def head(self) -> int:
        """The seq of the last line written, -1 when there is none."""

    @property
    def failure(self) -> StoreFailed | None:
        """Set once writing has failed: from then on nothing is written."""

    def write(self, events: Sequence[Event]) -> None:
        """Take lines, in order and as one: they are readable here at once, on disk after the next barrier.

        Never waits. When it raises, nothing was taken.

        Raises:
            StoreFailed: the store is known to have failed.
            SessionClosed, ReadOnlySession: this journal does not write.
            ValueError: the seqs do not continue the journal, or a fact is not JSON.
        """

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        """Lines `first` to `last` (inclusive; None is the head at this moment), written or not yet on disk.

        Lines written meanwhile do not disturb the iterator. A closed journal can be read while its store is open.

        Raises:
            UnknownFact, UnreadableLog: a line that cannot be read here.
        """

    async def barrier(self) -> None:
        """Wait until all that was written so far is on disk.

        Raises:
            StoreFailed: it could not be written.
        """

    async def refresh(self) -> int:
        """Look whether another process has written; the head. Only of use on a read-only journal."""

    async def news(self, seconds: float) -> None:
        """Wait until another process may have written, for about so long. Only of use on a read-only journal.

        A store that is told of new lines returns sooner where there are some, and later where there are none.
        """

    async def close(self) -> None:
        """Barrier, then let go. Closing twice is harmless.

        Raises:
            StoreFailed: something that was written is not on disk.
        """


@runtime_checkable
class Store(Protocol):
    """Many sessions."""

    @property
    def durable(self) -> bool: ...

    async def create(self, session_id: str) -> Journal:
        """A new, empty journal.

        Raises:
            DuplicateSession: there is a session of this id.
        """

    async def open(self, session_id: str, *, readonly: bool = False) -> Journal:
        """The journal of an existing session.

        Raises:
            UnknownSession: there is none.
            SessionBusy: it is open for writing already.
        """

    async def list(
        self, *, limit: int = 50, before: int | None = None, where: Where | None = None
    ) -> list[SessionInfo]:
        """Sessions that have a line, of those that are meant, last updated first; `before` (epoch ms) pages on.

        Those updated in the same millisecond as the last of a page come with it, so that paging misses none.
        """

    async def search(self, text: str, *, where: Where | None = None, limit: int = 20) -> builtins.list[Match]:
        """Lines that have these words (see `Query`), in all sessions, the best first. No text is wrong."""

    async def approvals(self) -> builtins.list[tuple[str, int]]:
        """Which approvals are open, by what is on disk: the session's id, and the seq of its `approval/asked`.

        The oldest first within a session. It reads no log.
        """

    async def close(self) -> None:
        """Close every journal, then the store.

        Raises:
            StoreFailed: something that was written is not on disk.
        """
