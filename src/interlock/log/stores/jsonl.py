"""Logs in a folder, one readable file a session.

Lives here: `JSONLStore` and its journals. A line is what `interlock log --json` prints. The file of a session that is
open for writing is locked, so that others can only read it.
"""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import NamedTuple
from weakref import WeakSet

from interlock.errors import (
    SessionBusy,
    SessionError,
    StoreClosed,
    StoreFailed,
    UnknownSession,
    UnreadableLog,
    UsageError,
)
from interlock.log.event import Event, encode_event
from interlock.log.stores.buffered import BufferedJournal, BufferedStore
from interlock.log.stores.jsonl_file import (
    SUFFIX,
    Known,
    event_in,
    file_name,
    indexed,
    read_lines,
    save_index,
    session_of,
)
from interlock.log.stores.jsonl_writer import JSONLWriter, Locked
from interlock.log.stores.query import Match, Where
from interlock.log.stores.scanning import list_by_scan, search_by_scan
from interlock.log.stores.store import SessionInfo
from interlock.log.stores.writer import Call

_WORTH_AN_INDEX = 1 << 18  # bytes that a list had to look through, since no index told of them


class JSONLJournal(BufferedJournal[Path]):
    """The lines of one session in a file of its own."""

    def __init__(
        self, store: JSONLStore, session_id: str, path: Path, file: int, known: Known, *, readonly: bool
    ) -> None:
        super().__init__(store, session_id, path, known.lines - 1, known.about, readonly=readonly)
        self._store = store
        self._file: int | None = file  # for reading, also when the folder is deleted meanwhile
        self._known = known
        self._learning = Lock()
        store._journals.add(self)

    def _item(self, event: Event) -> tuple[object, int]:
        try:
            line = encode_event(event)
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"line {event.seq}, {event.type}: {error}") from error
        return line, len(line)

    def _stored(self, first: int, last: int) -> Iterator[Event]:
        if self._store._closed:
            raise StoreClosed
        path = self._target
        try:
            # Closing the journal does not disturb those who read it.
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if self._file is None else os.dup(self._file)
            try:
                for seq, line in enumerate(read_lines(file, self._known, first, last, path), first):
                    if self._store._closed:
                        raise StoreClosed
                    yield event_in(line, seq, path)
            finally:
                os.close(file)
        except OSError as error:
            raise SessionError(f"The session cannot be read: {error.strerror} ({path})") from error

    async def _look(self) -> int:
        if self._file is not None:
            stat = os.fstat(self._file)
            if stat.st_nlink == 0:
                raise UnknownSession(self._session_id)
            if stat.st_size > self._known.size:
                await asyncio.to_thread(self._learn_rest, os.dup(self._file))
        return self._known.lines - 1

    def _learn_rest(self, file: int) -> None:
        try:
            with self._learning:
                self._known.learn_rest(file, self._target)
        finally:
            os.close(file)

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _freed(self) -> None:
        self._store._unmade(self._target)


class _Listed(NamedTuple):
    """What a list shows of a session, and what its file was like then."""

    seen: tuple[int, int, int]
    info: SessionInfo
    asked: tuple[int, ...]


class JSONLStore(BufferedStore[Path]):
    """Sessions in one folder, a readable file for each. It belongs to the event loop in which it is first used.

    Args:
        folder: Made when it is missing, for this user only. Files are named after their sessions, `ID.jsonl`; texts of
            more than 32 KiB are in `artifacts`, named after their SHA-256; `index` can be deleted at any time.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        super().__init__()
        self.folder = Path(folder).expanduser().absolute()
        self._lists: dict[str, _Listed] = {}
        self._journals: WeakSet[JSONLJournal] = WeakSet()

    async def create(self, session_id: str) -> BufferedJournal[Path]:
        if file_name(session_id) is None:
            raise UsageError(
                f"There can be no file for a session named {session_id[:50]!r}. Use a shorter id."
            )
        return await super().create(session_id)

    async def list(
        self, *, limit: int = 50, before: int | None = None, where: Where | None = None
    ) -> builtins.list[SessionInfo]:
        if where is not None:
            return await list_by_scan(self, limit=limit, before=before, where=where)
        await self._opened()
        infos = [one.info for one in await self._look_at_all() if one.info.events]
        infos = [info for info in infos if before is None or info.updated < before]
        infos.sort(key=attrgetter("updated", "id"), reverse=True)
        page = infos[:limit]
        return page + [info for info in infos[limit:] if info.updated == page[-1].updated]

    async def search(self, text: str, *, where: Where | None = None, limit: int = 20) -> builtins.list[Match]:
        return await search_by_scan(self, text, where=where or Where(), limit=limit)

    async def approvals(self) -> builtins.list[tuple[str, int]]:
        await self._opened()
        return [(one.info.id, asked) for one in await self._look_at_all() for asked in one.asked]

    async def _look_at_all(self) -> builtins.list[_Listed]:
        try:
            return await asyncio.to_thread(self._lists_of_all)
        except OSError as error:
            raise SessionError(f"The store cannot be read: {error.strerror} ({self.folder})") from error

    def _lists_of_all(self) -> builtins.list[_Listed]:
        found: dict[str, _Listed] = {}
        with os.scandir(self.folder) as entries:
            for entry in entries:
                session_id = session_of(entry.name)
                if session_id is not None:
                    with suppress(FileNotFoundError):
                        stat = entry.stat()
                        seen = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
                        known = self._lists.get(session_id)
                        if known is None or known.seen != seen:
                            known = _listed(session_id, self.folder / entry.name, seen)
                        found[session_id] = known
        self._lists = found
        return [found[session_id] for session_id in sorted(found)]

    def _path(self, session_id: str) -> Path:
        name = file_name(session_id)
        if name is None:
            raise UnknownSession(session_id)
        return self.folder / f"{name}{SUFFIX}"

    def _new_writer(self) -> JSONLWriter:
        return JSONLWriter(self.folder, self._settled)

    async def _start_reading(self) -> None:
        """There is nothing to be opened."""

    async def _stop_reading(self) -> None:
        for journal in self._journals:
            journal._close_file()

    def _made(self, session_id: str, target: Path) -> JSONLJournal:
        return self._journal(session_id, target)

    def _journal(self, session_id: str, path: Path) -> JSONLJournal:
        assert isinstance(self._writer, JSONLWriter)
        known = self._writer.known(path)
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self._unmade(path)
            raise StoreFailed(f"{error.strerror} ({path})") from error
        return JSONLJournal(self, session_id, path, file, known, readonly=False)

    def _unmade(self, target: Path | None) -> None:
        if target is not None and self._writer is not None and self._loop is not None:
            assert isinstance(self._writer, JSONLWriter)
            self._writer.put(Call(partial(self._writer.release, target), self._loop.create_future()))

    async def _find(self, session_id: str, *, readonly: bool) -> JSONLJournal:
        path = self._path(session_id)
        try:
            if not readonly:
                return self._journal(session_id, await self._open_to_write(path))
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                known = await asyncio.to_thread(_all_known, os.dup(file), path)
            except BaseException:
                os.close(file)
                raise
        except FileNotFoundError:
            raise UnknownSession(session_id) from None
        except Locked:
            assert isinstance(self._writer, JSONLWriter)
            holder = "this process" if self._writer.holds(path) else "another process"
            raise SessionBusy(session_id, holder) from None
        except OSError as error:
            message = f"{error.strerror} ({path})"
            raise SessionError(message) if readonly else StoreFailed(message) from error
        return JSONLJournal(self, session_id, path, file, known, readonly=True)

    async def _open_to_write(self, path: Path) -> Path:
        assert isinstance(self._writer, JSONLWriter)
        call = Call(partial(self._writer.open, path), asyncio.get_running_loop().create_future())
        self._writer.put(call)
        opened: Path = await self._answer(call.done, self._unmade)
        return opened


def _all_known(file: int, path: Path) -> Known:
    """What is in an open file, which is closed."""
    try:
        known = indexed(file, path)
        known.learn_rest(file, path)
    finally:
        os.close(file)
    return known


def _listed(session_id: str, path: Path, seen: tuple[int, int, int]) -> _Listed:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        known = indexed(file, path)
        before = known.size
        with suppress(UnreadableLog):  # what comes before the broken line can be shown
            known.learn_rest(file, path)
    finally:
        os.close(file)
    if known.size - before > _WORTH_AN_INDEX:
        save_index(known, path)
    about = known.about
    info = SessionInfo(
        session_id, known.created, known.updated, known.lines, about.cwd, about.agent, about.title, known.size
    )
    return _Listed(seen, info, tuple(sorted(known.asked.values())))
