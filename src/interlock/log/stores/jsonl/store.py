"""Logs in a folder, one readable file a session.

Lives here: `JSONLStore` and its journals. A line is what `interlock log --json` prints. The file of a session that is
open for writing is locked, so that others can only read it.
"""

from __future__ import annotations

import asyncio
import builtins
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
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
from interlock.log.checkpoint import Kept
from interlock.log.event import Event, encode_event
from interlock.log.stores.buffered import BufferedJournal, BufferedStore
from interlock.log.stores.holding import held
from interlock.log.stores.jsonl.checkpoint import stored_checkpoint
from interlock.log.stores.jsonl.file import (
    SUFFIX,
    Known,
    event_in,
    file_name,
    indexed,
    read_lines,
    save_index,
    session_of,
)
from interlock.log.stores.jsonl.lease import holder_of, locked_by
from interlock.log.stores.jsonl.mail import forget, letters, mail_path, post, waiting
from interlock.log.stores.jsonl.writer import JSONLWriter, Locked
from interlock.log.stores.mail_watch import MailWatch
from interlock.log.stores.query import Match, Where
from interlock.log.stores.scanning import list_by_scan, search_by_scan
from interlock.log.stores.store import Letter, SessionInfo
from interlock.log.stores.writer import Call

if TYPE_CHECKING:
    from interlock.log.facts import ContentErased
    from interlock.log.stores.gone import Gone, Standing

T = TypeVar("T")

_TRIES = 3  # to lock a file of which nobody says who has it: perhaps it is free by now
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

    async def _stored_checkpoint(self) -> Kept | None:
        return await asyncio.to_thread(stored_checkpoint, self._target)

    async def letters(self, after: int) -> list[Letter]:
        try:
            return await asyncio.to_thread(letters, self._target, after)
        except OSError as error:
            raise SessionError(
                f"The mailbox cannot be read: {error.strerror or error} ({mail_path(self._target)})"
            ) from error

    def on_letter(self, tell: Callable[[], None] | None) -> None:
        self._store._mail.listen(self._target, tell)

    async def forget_letters(self, last: int) -> None:
        try:
            await asyncio.to_thread(forget, self._target, last)
        except OSError as error:
            raise StoreFailed(f"{error.strerror or error} ({mail_path(self._target)})") from error

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._close_file()

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _freed(self) -> asyncio.Future[Any] | None:
        return self._store._release(self._target)


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
        self._mail = MailWatch(partial(waiting, self.folder))

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

    async def _holder(self, session_id: str) -> str | None:
        try:
            return await asyncio.to_thread(locked_by, self._path(session_id))
        except FileNotFoundError:
            raise UnknownSession(session_id) from None
        except OSError as error:
            raise SessionError(f"The session cannot be read: {error.strerror} ({self.folder})") from error

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

    async def post(self, session_id: str, data: bytes, *, time: int) -> int:
        await self._opened()
        path = self._path(session_id)
        try:
            refuse = partial(_refuse_erased, session_id, path)
            number = await asyncio.to_thread(
                post, path, session_id, data, time, partial(_taken, path), refuse
            )
        except FileNotFoundError:
            raise UnknownSession(session_id) from None
        except OSError as error:
            raise StoreFailed(f"{error.strerror or error} ({mail_path(path)})") from error
        self._mail.posted(path)
        return number

    async def standings(self) -> builtins.list[Standing]:
        await self._opened()
        return await self._tidying(self._stand)

    def _stand(self) -> builtins.list[Standing]:
        from interlock.log.stores.jsonl.erasing import standing

        found = []
        for name in sorted(os.listdir(self.folder)):
            if (session_id := session_of(name)) is not None:
                with suppress(FileNotFoundError):
                    found.append(standing(session_id, self.folder / name))
        return [one for one in found if one is not None]

    async def erase(self, erasures: Sequence[ContentErased], *, time: int) -> builtins.list[Gone]:
        gone = []
        async with held(self, [one.session_id for one in erasures]):
            for one in erasures:
                path = self._path(one.session_id)
                gone.append(await self._changed(partial(self._jsonl.erase, path, one, time), path))
        return gone

    async def remove(self, heads: Mapping[str, int]) -> builtins.list[Gone]:
        gone = []
        async with held(self, heads, busy=True) as found:
            for session_id in found:
                path = self._path(session_id)
                work = partial(self._jsonl.remove, path, session_id, heads[session_id])
                if (one := await self._changed(work, path)) is not None:
                    gone.append(one)
        return gone

    async def collect(self) -> builtins.list[str]:
        from interlock.log.stores.jsonl.erasing import tidy

        await self._opened()
        return await self._tidying(partial(tidy, self.folder))

    async def compact(self) -> str | None:
        return None  # each file was written anew, or deleted

    async def size(self) -> int:
        from interlock.log.stores.jsonl.erasing import size

        await self._opened()
        return await self._tidying(partial(size, self.folder))

    async def _changed(self, work: Callable[[], T], path: Path) -> T:
        try:
            return await self._in_thread(work)
        except OSError as error:
            raise SessionError(f"{error.strerror or error} ({path}). Run it again.") from error

    async def _tidying(self, work: Callable[[], T]) -> T:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise SessionError(f"{error.strerror or error} ({error.filename or self.folder})") from error

    @property
    def _jsonl(self) -> JSONLWriter:
        assert isinstance(self._writer, JSONLWriter)
        return self._writer

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
        self._mail.stop()
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
        if target is not None:
            self._release(target)

    def _release(self, path: Path) -> asyncio.Future[Any]:
        assert isinstance(self._writer, JSONLWriter)
        assert self._loop is not None
        call = Call(partial(self._writer.release, path), self._loop.create_future())
        self._writer.put(call)
        return call.done

    async def _find(self, session_id: str, *, readonly: bool) -> JSONLJournal:
        path = self._path(session_id)
        try:
            if not readonly:
                return self._journal(session_id, await self._open_to_write(session_id, path))
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                known = await asyncio.to_thread(_all_known, os.dup(file), path)
            except BaseException:
                os.close(file)
                raise
        except FileNotFoundError:
            raise UnknownSession(session_id) from None
        except OSError as error:
            message = f"{error.strerror} ({path})"
            raise SessionError(message) if readonly else StoreFailed(message) from error
        return JSONLJournal(self, session_id, path, file, known, readonly=True)

    async def _open_to_write(self, session_id: str, path: Path) -> Path:
        assert isinstance(self._writer, JSONLWriter)
        for _ in range(_TRIES):
            call = Call(partial(self._writer.open, path), asyncio.get_running_loop().create_future())
            self._writer.put(call)
            try:
                opened: Path = await self._answer(call.done, self._unmade)
            except Locked:
                holder = await asyncio.to_thread(holder_of, path)
                if holder is not None:
                    raise SessionBusy(session_id, holder) from None
            else:
                return opened
        raise SessionBusy(session_id, "another process")


def _all_known(file: int, path: Path) -> Known:
    """What is in an open file, which is closed."""
    try:
        known = indexed(file, path)
        known.learn_rest(file, path)
    finally:
        os.close(file)
    return known


def _refuse_erased(session_id: str, path: Path) -> None:
    """
    Raises:
        FileNotFoundError: there is no such session. SessionErased: nobody will read what is sent to it.
    """
    from interlock.log.stores.jsonl.erasing import erased_as
    from interlock.log.tombstones import refusal

    if (said := erased_as(path)) is not None:
        raise refusal(session_id, said)


def _taken(path: Path) -> int:
    """The number of the last letter that the log of a session has taken."""
    return _all_known(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path).letter


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
        session_id,
        known.created,
        known.updated,
        known.lines,
        about.cwd,
        about.agent,
        about.title,
        known.size,
        known.erased,
    )
    return _Listed(seen, info, tuple(sorted(known.asked.values())))
