"""Being told by the database that a session has grown, instead of asking again and again.

Lives here: `Listening`. A notice may be lost with its connection, so whoever waits looks now and then all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

import psycopg
from psycopg import sql

from interlock.log.stores.postgres.database import Database

_QUIET = 2.0  # seconds after which a follower looks though nothing was heard
_AGAIN = 1.0  # seconds between two tries to listen


class Listening:
    """One connection, made when somebody first waits, that hears of new lines and letters of all sessions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._task: asyncio.Task[None] | None = None
        self._hears = False
        self._heads: dict[int, int] = {}  # of sessions that somebody waits for, as far as was heard
        self._waiting: dict[int, set[asyncio.Future[None]]] = {}
        self._letters: dict[int, Callable[[], None]] = {}  # who is told that a session may have some

    async def wait(self, session: int, head: int, seconds: float) -> None:
        """Return when the session has perhaps a line after `head`; at the latest after a while."""
        self._start()
        if self._heads.setdefault(session, head) > head:
            return
        news: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(session, set())
        waiting.add(news)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(seconds, _QUIET) if self._hears else seconds):
                    await news
        finally:
            waiting.discard(news)

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._listen(), name="interlock-listen")

    async def _listen(self) -> None:
        while True:
            try:
                connection = await self._database.connect_async()
                async with connection:
                    await connection.execute(
                        sql.SQL("LISTEN {}").format(sql.Identifier(self._database.channel))
                    )
                    self._hears = True
                    for session in [*self._waiting]:
                        self._wake(session)  # what came before has to be looked for
                    for tell in [*self._letters.values()]:
                        tell()
                    async for notice in connection.notifies():
                        self._heard(notice.payload)
            except (psycopg.Error, ValueError):
                pass  # those who wait look by themselves until it is back
            self._hears = False
            await asyncio.sleep(_AGAIN)

    def _heard(self, payload: str) -> None:
        key, what = payload.split()
        session = int(key)
        if what == "letter":
            if (tell := self._letters.get(session)) is not None:
                tell()
        elif session in self._heads:
            self._heads[session] = max(self._heads[session], int(what))
            self._wake(session)

    def on_letter(self, session: int, tell: Callable[[], None] | None) -> None:
        """Call this when the session may have a letter, now or later, until another one or None is given."""
        if tell is None:
            self._letters.pop(session, None)
            return
        self._letters[session] = tell
        self._start()
        if self._hears:
            tell()

    def _wake(self, session: int) -> None:
        for news in self._waiting.get(session, ()):
            if not news.done():
                news.set_result(None)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
