"""Where logs are kept: the protocol that every store meets.

Lives here: `Store` (many sessions) and `Journal` (the lines of one). A journal orders and keeps; it knows no law and
folds nothing. One contract test-suite runs against every store.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import msgspec

from interlock.errors import StoreFailed
from interlock.log.event import Event

if TYPE_CHECKING:
    from types import TracebackType

    from interlock.log.checkpoint import Kept, Snapshot
    from interlock.log.facts import ContentErased
    from interlock.log.stores.gone import Gone, Standing
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
    erased: int | None = None  # epoch ms: when what it held was erased


MAX_LETTERS = 256  # that wait in the mailbox of one session


class Letter(msgspec.Struct, frozen=True):
    """What somebody has put into the mailbox of a session. What it says is no business of a store."""

    number: int  # from 1, in the order in which they were posted, without a gap
    time: int  # epoch ms, by the clock of whoever posted it
    data: bytes


class Journal(Protocol):
    """The lines of one session."""

    @property
    def durable(self) -> bool:
        """Whether `barrier` means a disk. Where it does not, nobody needs to wait for it."""

    #: What the store had kept of the session's folds when this was opened, if that was asked for. Never truth: whoever
    #: uses it has to see whether it is sound.
    checkpoint: Kept | None

    @property
    def head(self) -> int:
        """The seq of the last line written, -1 when there is none."""

    @property
    def failure(self) -> StoreFailed | None:
        """Set once writing has failed: from then on nothing is written. `LeaseLost`: somebody else drives the session."""

    def on_failure(self, tell: Callable[[], None]) -> None:
        """Call this on the event loop when `failure` is set, also while nobody writes. One can listen."""

    @property
    def fence(self) -> int | None:
        """How often the session was opened for writing, up to this opening; None where the store does not count.

        A line is taken only from the opening with the highest number.
        """

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

    def keep(self, snapshot: Snapshot) -> None:
        """Keep the folds of the lines that were written, in the place of those that were kept before.

        Never waits. It is on disk some time after these lines, or not at all: nothing tells, and nothing depends on it.
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

    async def letters(self, after: int) -> list[Letter]:
        """The letters in the session's mailbox whose number is above `after`, in order.

        Raises:
            SessionError: the store cannot be read now.
        """

    def on_letter(self, tell: Callable[[], None] | None) -> None:
        """Call this on the event loop when there may be letters, now or later, until another one or None is given.

        It is called again and again while letters wait that were not forgotten. Only of use on a journal that writes.
        """

    async def forget_letters(self, last: int) -> None:
        """Drop the letters up to this number: lines that are on disk say what became of them.

        No letter will get a number up to this one any more, whatever the store has known of the session before.

        Raises:
            StoreFailed: it cannot be done now. The lines of the session are not touched by that.
        """

    async def close(self) -> None:
        """Barrier, then let go: when it returns, the session can be opened elsewhere. Closing twice is harmless.

        Raises:
            StoreFailed: something that was written is not on disk.
        """


@runtime_checkable
class Store(Protocol):
    """Many sessions. An async context manager: leaving it closes it."""

    @property
    def durable(self) -> bool: ...

    async def create(self, session_id: str) -> Journal:
        """A new, empty journal, which writes.

        Raises:
            DuplicateSession: there is a session of this id.
        """

    async def open(self, session_id: str, *, readonly: bool = False, checkpoint: bool = False) -> Journal:
        """The journal of an existing session.

        One that writes keeps all others from it, in any process, until it is closed, or its process has ended or
        shows no sign of life. Reading keeps nobody from anything.

        Args:
            checkpoint: for one who goes on from `Journal.checkpoint`, and needs no lines before it.

        Raises:
            UnknownSession: there is none.
            SessionBusy: it is open for writing already, and by whom.
        """

    async def holder(self, session_id: str) -> str | None:
        """Who has the session open for writing at this moment, for a person; None: nobody.

        It takes nothing, so somebody may be there when this returns.

        Raises:
            UnknownSession: there is none.
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

    async def post(self, session_id: str, data: bytes, *, time: int) -> int:
        """Put a letter into the mailbox of a session, whoever drives it; its number. It is on disk when this returns.

        Args:
            time: epoch ms.

        Raises:
            UnknownSession: there is none. SessionErased: nobody will ever open it.
            MailboxFull: `MAX_LETTERS` wait already.
            StoreFailed: it could not be written. If the connection to a server was lost meanwhile, it may be there.
        """

    async def standings(self) -> builtins.list[Standing]:
        """Where each session that has a line stands. It reads no log."""

    async def erase(self, erasures: Sequence[ContentErased], *, time: int) -> builtins.list[Gone]:
        """Take out all that the lines of these sessions hold, and append to each the line that says so.

        A session is erased as a whole or not at all, whatever happens meanwhile. What lay beside its lines goes as well:
        its part of the search index, its letters, open questions and checkpoint, and the artifacts that no other session
        refers to. Of one that was erased before, only what is left beside its lines. `compact` makes the files forget.

        Args:
            time: epoch ms, of the last lines.

        Raises:
            UnknownSession: there is none. SessionBusy: somebody drives one. Nothing was changed.
            SessionError: it could not be done; erase again.
        """

    async def remove(self, heads: Mapping[str, int]) -> builtins.list[Gone]:
        """Delete sessions, with what lies beside their lines, as of `erase`.

        Args:
            heads: the last line that each is known to have. One that ends with another line by now, that somebody
                drives, or that has letters, stays.
        """

    async def collect(self) -> builtins.list[str]:
        """Delete the artifacts that no session refers to, and what a crash has left; the digests of the artifacts."""

    async def compact(self) -> str | None:
        """Write the files anew, so that nothing of what was deleted is in them; why they were not, if they were not.

        Others wait meanwhile. Where it would keep those who drive a session for too long, it is not done.
        """

    async def size(self) -> int:
        """Bytes that the files of the store measure; 0 where there are none."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def close(self) -> None:
        """Close every journal, then the store.

        Raises:
            StoreFailed: something that was written is not on disk.
        """
