"""Logs in memory: nothing survives the process, everything else is as in the other stores.

Lives here: `MemoryStore` and its journals. A session outlives its journals for as long as the store lives.
"""

from __future__ import annotations

import asyncio
import builtins
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from types import TracebackType
from typing import TYPE_CHECKING, Self

from interlock.errors import (
    DuplicateSession,
    MailboxFull,
    ReadOnlySession,
    SessionBusy,
    SessionClosed,
    StoreClosed,
    UnknownSession,
)
from interlock.log.event import Event
from interlock.log.facts import ApprovalAsked, ApprovalDecided, AssistantChunk, ContentErased
from interlock.log.packing import Run, runs, unpack
from interlock.log.stores.holding import held
from interlock.log.stores.listing import About
from interlock.log.stores.store import MAX_LETTERS, Letter, SessionInfo
from interlock.log.tombstones import refuse_erased

if TYPE_CHECKING:
    from interlock.log.checkpoint import Kept, Snapshot
    from interlock.log.stores.gone import Gone, Standing
    from interlock.log.stores.query import Match, Where

_seq = attrgetter("seq")

MIN_RUN = 16  # chunks; a shorter run takes less room as it is


class Lines:
    """The lines of one session. Chunks stay events until a line of another kind ends their run."""

    __slots__ = ("about", "chunks", "created", "head", "letters", "posted", "rows", "session_id", "writer")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.head = -1
        self.created = 0
        self.rows: list[Event | Run] = []
        self.chunks: list[Event] = []  # they come after the rows
        self.about = About()
        self.writer: MemoryJournal | None = None
        self.letters: tuple[Letter, ...] = ()
        self.posted = 0  # the number of the last letter


class MemoryJournal:
    """The lines of one session in memory."""

    __slots__ = ("_lines", "_readonly", "_tell")

    durable = False
    failure = None
    checkpoint: Kept | None = None  # whatever is here is replayed in no time
    fence = None

    def __init__(self, lines: Lines, *, readonly: bool) -> None:
        self._lines = lines
        self._readonly = readonly
        self._tell: Callable[[], None] | None = None

    @property
    def head(self) -> int:
        return self._lines.head

    def write(self, events: Sequence[Event]) -> None:
        lines = self._lines
        if lines.writer is not self:
            raise ReadOnlySession(lines.session_id) if self._readonly else SessionClosed(lines.session_id)
        head = lines.head
        for event in events:
            head += 1
            if event.seq != head:
                raise ValueError(f"session {lines.session_id} goes on with line {head}, not {event.seq}")
        for event in events:
            if type(event.fact) is AssistantChunk and not event.causes and not event.ignorable:
                lines.chunks.append(event)
                continue
            if lines.chunks:
                self._end_run(lines)
            lines.rows.append(event)
            if lines.about.title is None:
                if event.seq == 0:
                    lines.created = event.time
                lines.about = lines.about.learn(event.fact)
        lines.head = head

    @staticmethod
    def _end_run(lines: Lines) -> None:
        chunks = lines.chunks
        if chunks:
            lines.rows += runs(chunks) if len(chunks) >= MIN_RUN else chunks
            lines.chunks = []

    def read(self, first: int = 0, last: int | None = None) -> Iterator[Event]:
        lines = self._lines
        first = max(first, 0)
        last = lines.head if last is None else min(last, lines.head)
        if first > last:
            return iter(())
        # What is picked here is the reader's own: lines written meanwhile do not disturb it.
        packed = lines.head + 1 - len(lines.chunks)
        chunks = lines.chunks[max(first - packed, 0) : max(last + 1 - packed, 0)]
        if first >= packed:
            return iter(chunks)
        start = bisect_right(lines.rows, first, key=_seq) - 1
        stop = bisect_right(lines.rows, last, key=_seq)
        return _events(lines.rows[start:stop], chunks, first, last)

    def on_failure(self, tell: Callable[[], None]) -> None:
        """Memory does not fail."""

    def keep(self, snapshot: Snapshot) -> None:
        """Nothing is kept beside the lines."""

    async def barrier(self) -> None:
        """Returns at once: there is no disk to wait for."""

    async def refresh(self) -> int:
        return self._lines.head

    async def news(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def letters(self, after: int) -> list[Letter]:
        return [letter for letter in self._lines.letters if letter.number > after]

    def on_letter(self, tell: Callable[[], None] | None) -> None:
        self._tell = tell
        self.posted()

    def posted(self) -> None:
        """There may be a letter."""
        if self._tell is not None and self._lines.letters:
            self._tell()

    async def forget_letters(self, last: int) -> None:
        lines = self._lines
        lines.letters = tuple([letter for letter in lines.letters if letter.number > last])
        lines.posted = max(lines.posted, last)

    async def close(self) -> None:
        if self._lines.writer is self:
            self._lines.writer = None


def _events(rows: list[Event | Run], chunks: list[Event], first: int, last: int) -> Iterator[Event]:
    for row in rows:
        if isinstance(row, Event):
            yield row
        else:
            yield from unpack(row.seq, row.data)[max(first - row.seq, 0) : last + 1 - row.seq]
    yield from chunks


def _info(lines: Lines) -> SessionInfo:
    about = lines.about
    last = lines.chunks[-1] if lines.chunks else lines.rows[-1]
    return SessionInfo(
        id=lines.session_id,
        created=lines.created,
        updated=last.time,
        events=lines.head + 1,
        cwd=about.cwd,
        agent=about.agent,
        title=about.title,
        erased=last.time if isinstance(last, Event) and type(last.fact) is ContentErased else None,
    )


def _open(lines: Lines) -> list[int]:
    """The lines that ask what nothing has decided."""
    asked: dict[str, int] = {}
    for row in lines.rows:
        if isinstance(row, Event):
            if type(row.fact) is ApprovalAsked:
                asked[row.fact.approval_id] = row.seq
            elif type(row.fact) is ApprovalDecided:
                asked.pop(row.fact.approval_id, None)
    return list(asked.values())


class MemoryStore:
    """Sessions in memory. It belongs to no event loop, only to one thread at a time."""

    durable = False

    def __init__(self) -> None:
        self._sessions: dict[str, Lines] = {}
        self._closed = False

    async def create(self, session_id: str) -> MemoryJournal:
        self._check_open()
        if session_id in self._sessions:
            raise DuplicateSession(session_id)
        lines = self._sessions[session_id] = Lines(session_id)
        lines.writer = MemoryJournal(lines, readonly=False)
        return lines.writer

    async def open(
        self, session_id: str, *, readonly: bool = False, checkpoint: bool = False
    ) -> MemoryJournal:
        self._check_open()
        lines = self._sessions.get(session_id)
        if lines is None:
            raise UnknownSession(session_id)
        journal = MemoryJournal(lines, readonly=readonly)
        if not readonly:
            if lines.writer is not None:
                raise SessionBusy(session_id, "this process")
            lines.writer = journal
        return journal

    async def list(
        self, *, limit: int = 50, before: int | None = None, where: Where | None = None
    ) -> list[SessionInfo]:
        if where is not None:
            from interlock.log.stores.scanning import list_by_scan

            return await list_by_scan(self, limit=limit, before=before, where=where)
        self._check_open()
        written = [_info(lines) for lines in self._sessions.values() if lines.head >= 0]
        infos = [info for info in reversed(written) if before is None or info.updated < before]
        infos.sort(key=attrgetter("updated"), reverse=True)
        page = infos[:limit]
        return page + [info for info in infos[limit:] if info.updated == page[-1].updated]

    async def search(self, text: str, *, where: Where | None = None, limit: int = 20) -> builtins.list[Match]:
        from interlock.log.stores.query import Where
        from interlock.log.stores.scanning import search_by_scan

        return await search_by_scan(self, text, where=where or Where(), limit=limit)

    async def holder(self, session_id: str) -> str | None:
        self._check_open()
        lines = self._sessions.get(session_id)
        if lines is None:
            raise UnknownSession(session_id)
        return None if lines.writer is None else "this process"

    async def approvals(self) -> builtins.list[tuple[str, int]]:
        self._check_open()
        return [(lines.session_id, asked) for lines in self._sessions.values() for asked in _open(lines)]

    async def post(self, session_id: str, data: bytes, *, time: int) -> int:
        self._check_open()
        lines = self._sessions.get(session_id)
        if lines is None:
            raise UnknownSession(session_id)
        refuse_erased(session_id, MemoryJournal(lines, readonly=True))
        if len(lines.letters) >= MAX_LETTERS:
            raise MailboxFull(session_id, MAX_LETTERS)
        lines.posted += 1
        lines.letters += (Letter(lines.posted, time, data),)
        if lines.writer is not None:
            lines.writer.posted()
        return lines.posted

    async def standings(self) -> builtins.list[Standing]:
        from interlock.log.stores.memory.erasing import standing

        self._check_open()
        return [standing(one, len(_open(one))) for one in self._sessions.values() if one.head >= 0]

    async def erase(self, erasures: Sequence[ContentErased], *, time: int) -> builtins.list[Gone]:
        from interlock.log.stores.memory.erasing import blank, is_erased, what_goes

        async with held(self, [one.session_id for one in erasures]):
            sessions = [self._sessions[one.session_id] for one in erasures]
            for lines in sessions:
                if lines.head < 0:
                    raise UnknownSession(lines.session_id)
            gone = [what_goes(lines, len(_open(lines))) for lines in sessions]
            for lines, erasure in zip(sessions, erasures, strict=True):
                if not is_erased(lines):
                    blank(lines, erasure, time)
        return gone

    async def remove(self, heads: Mapping[str, int]) -> builtins.list[Gone]:
        from interlock.log.stores.memory.erasing import what_goes

        gone = []
        async with held(self, heads, busy=True) as found:
            for session_id in found:
                lines = self._sessions[session_id]
                if lines.head == heads[session_id] and not lines.letters:
                    gone.append(what_goes(lines, len(_open(lines))))
                    del self._sessions[session_id]
        return gone

    async def collect(self) -> builtins.list[str]:
        return []

    async def compact(self) -> str | None:
        return None

    async def size(self) -> int:
        return 0

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosed

    async def close(self) -> None:
        self._closed = True
        for lines in self._sessions.values():
            lines.writer = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()
