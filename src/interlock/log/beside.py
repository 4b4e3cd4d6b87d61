"""What has words of sessions, and is kept outside of their store.

Lives here: `Beside`, which whoever keeps such a thing gives to those who delete and erase sessions: a store knows only
what is its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Protocol


class Beside(Protocol):
    """Something that is kept of sessions, by their ids. It is used in threads."""

    def of(self, session_ids: Iterable[str]) -> Sequence[str]:
        """Those of them of which something is kept."""

    def forget(self, session_id: str) -> str:
        """Delete what is kept of a session; where that was. It does no harm if there is nothing.

        Raises:
            OSError: some of it is left.
        """


async def forget_beside(
    beside: Iterable[Beside], session_ids: Iterable[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """Delete what is kept of these sessions; where it was, and why something is left, by the session."""
    ids = tuple(session_ids)
    return await asyncio.to_thread(_forget, tuple(beside), ids)


def _forget(
    beside: Sequence[Beside], session_ids: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    gone: dict[str, tuple[str, ...]] = {}
    left: dict[str, str] = {}
    for one in beside:
        for session_id in one.of(session_ids):
            try:
                gone[session_id] = (*gone.get(session_id, ()), one.forget(session_id))
            except OSError as error:
                left[session_id] = str(error)
    return gone, left
