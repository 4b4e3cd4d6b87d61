"""Looking for letters that other processes have posted, where no server tells of them.

Lives here: `MailWatch`, one timer for all open sessions of a store. It runs while somebody listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

Key = TypeVar("Key")

PERIOD = 0.2  # seconds from one look to the next


class MailWatch(Generic[Key]):
    """Tells the drivers of sessions that letters may wait for them.

    look: the sessions that have letters; cheap, since it is called on the event loop, five times a second.
    """

    def __init__(self, look: Callable[[], Iterable[Key]]) -> None:
        self._look = look
        self._listening: dict[Key, Callable[[], None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def listen(self, key: Key, tell: Callable[[], None] | None) -> None:
        if tell is None:
            self._listening.pop(key, None)
            if not self._listening:
                self.stop()
            return
        self._listening[key] = tell
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(0, self._on_time)

    def posted(self, key: Key) -> None:
        """A letter was posted here: nobody has to look for it."""
        tell = self._listening.get(key)
        if tell is not None:
            tell()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_time(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(PERIOD, self._on_time)
        for key in self._look():
            self.posted(key)
