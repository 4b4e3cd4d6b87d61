"""How a checkpoint gets to a disk: after the lines that it folds, and in nobody's way.

Lives here: `Keeping`, the checkpoints of a journal that are on their way. One is encoded in a thread while the event
loop goes on, and given to the store's writer once a barrier has told that its lines are on disk. Nobody waits for it but
who closes the journal; if it is lost, the log is replayed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interlock.log.checkpoint import Kept, Snapshot


_TO_BEGIN = 1.0  # seconds in which a thread has to be free for it, once somebody waits


class Keeping:
    """put: gives a checkpoint to the writer."""

    def __init__(self, put: Callable[[Kept], None]) -> None:
        self._put = put
        self._encoding: asyncio.Future[Kept] | None = None
        self._ready: Kept | None = None  # its lines are not known to be on disk
        self._next: Snapshot | None = None  # the newest that came meanwhile
        self._synced = -1
        self._begun = False  # a thread encodes it
        self._dropped = False

    @property
    def busy(self) -> bool:
        """Whether anything is on its way."""
        return self._encoding is not None or self._ready is not None or self._next is not None

    def take(self, snapshot: Snapshot) -> None:
        """Keep these folds, after those that are on their way."""
        if self._encoding is not None or self._ready is not None:
            self._next = snapshot
            return
        self._begun = False
        self._encoding = asyncio.get_running_loop().run_in_executor(None, self._encode, snapshot)
        self._encoding.add_done_callback(self._encoded)

    def _encode(self, snapshot: Snapshot) -> Kept:
        self._begun = True
        return snapshot.kept()

    def _encoded(self, encoded: asyncio.Future[Kept]) -> None:
        self._encoding = None
        if not (encoded.cancelled() or self._dropped):
            self._ready = encoded.result()
            self.on_disk(self._synced)

    def on_disk(self, last: int) -> None:
        """The lines up to this seq are on disk."""
        self._synced = last
        if self._ready is not None and self._ready.seq <= last:
            ready, self._ready = self._ready, None
            self._put(ready)
            if self._next is not None:
                following, self._next = self._next, None
                self.take(following)

    async def done(self) -> None:
        """Wait until nothing is encoded any more; not for long, if others keep all the threads."""
        while (encoding := self._encoding) is not None:
            await asyncio.wait([encoding], timeout=_TO_BEGIN)
            if self._encoding is encoding and not self._begun:
                return

    def drop(self) -> None:
        """Keep nothing of what is on its way: somebody else may write to the session from now on, or erase it."""
        self._dropped = True
        self._ready = self._next = None
        if self._encoding is not None:
            self._encoding.cancel()
