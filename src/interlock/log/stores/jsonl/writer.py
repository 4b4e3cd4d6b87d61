"""Writing to a folder of sessions: each has a file, which grows at its end and is synced when somebody waits.

Lives here: `LineFile`, a session's file while it is written, and `JSONLWriter`, the thread that writes to all of
them. A file fails alone: what went wrong with one does not stop the others.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

import msgspec

from interlock.errors import StoreFailed
from interlock.log.artifacts import LIMIT, take_out
from interlock.log.checkpoint import Kept
from interlock.log.stores.jsonl.artifacts import keep, keeping, sync_folder
from interlock.log.stores.jsonl.checkpoint import keep_checkpoint
from interlock.log.stores.jsonl.file import (
    SUFFIX,
    Known,
    artifact_path,
    decode_line,
    encode_line,
    file_name,
    indexed,
    save_index,
)
from interlock.log.stores.writer import Barrier, Lines, NewSession, Outcome, Writer

if TYPE_CHECKING:
    from interlock.log.facts import ContentErased
    from interlock.log.stores.gone import Gone

_INDEX_EVERY = 1 << 20  # bytes of lines that a reader without a newer index has to look through, at most


_AT_ONCE = 8  # files that are synced at the same time

#: The files of this process that are open, and which ones they are.
_locking: WeakKeyDictionary[LineFile, tuple[int, int]] = WeakKeyDictionary()


class Locked(Exception):
    """Another process writes to the file, or another store of this one."""


class LineFile:
    """The file of one session, open for writing and locked. It is used in the writer's thread, or by one that it waits for.

    known: what is in the file; the event loop reads of it what the writer has told of.
    failure: set once writing has failed; then nothing more is written.
    """

    def __init__(self, path: Path, file: int, known: Known) -> None:
        self.path = path
        self.known = known
        self.failure: StoreFailed | None = None
        self._file = file
        self._found = False  # whether it is on disk that the folder has it
        self._indexed = known.size

    @classmethod
    def create(cls, path: Path) -> LineFile | None:
        """A new file; None when there is one."""
        try:
            file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        except FileExistsError:
            return None
        if not _locked(file):  # somebody has opened it already
            os.close(file)
            return None
        return cls(path, file, Known())._kept_from_children()

    @classmethod
    def open(cls, path: Path) -> LineFile:
        """An existing file; what a crash has left of a line at its end is cut off.

        Raises:
            FileNotFoundError: there is none.
            Locked: somebody else writes to it.
            UnreadableLog: a line in it is broken.
            OSError: it cannot be written.
        """
        while True:
            file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
            try:
                if not _locked(file):
                    raise Locked
                if os.path.samestat(os.stat(path), os.fstat(file)):
                    break
            except BaseException:
                os.close(file)
                raise
            os.close(file)  # another one has taken its place meanwhile
        try:
            known = indexed(file, path)
            made = cls(path, file, known)
            known.learn_rest(file, path)
            if os.fstat(file).st_size > known.size:
                os.ftruncate(file, known.size)
                os.fsync(file)
        except BaseException:
            os.close(file)
            raise
        return made._kept_from_children()

    def _kept_from_children(self) -> Self:
        _locking[self] = _identity(self._file)
        return self

    def append(self, lines: Sequence[bytes]) -> None:
        """Write lines at the end, as one.

        Raises:
            OSError: some of it is not written.
        """
        if os.fstat(self._file).st_size != self.known.size:
            raise OSError("somebody else has written to the file")
        artifacts: dict[str, bytes] = {}
        small = [_without_big_texts(line, artifacts) if len(line) > LIMIT else line for line in lines]
        # What was kept of a big text is not collected before the line that refers to it is there.
        with keeping(self.path.parent) if artifacts else nullcontext():
            for digest, text in artifacts.items():
                keep(artifact_path(self.path.parent, digest), text)
            left = memoryview(b"\n".join([*small, b""]))
            while left:
                left = left[os.write(self._file, left) :]
        for line in small:
            self.known.learn(line, self.path)
        if self.known.size - self._indexed > _INDEX_EVERY:
            self._save_index()

    def sync(self) -> None:
        """Wait until all that was written is on disk.

        Raises:
            OSError: it is not; or it is, and nobody would find it.
        """
        os.fsync(self._file)
        if not self._found:
            sync_folder(self.path.parent)
            self._found = True
        if not os.path.samestat(os.stat(self.path), os.fstat(self._file)):
            raise FileNotFoundError("the file was replaced while it was open")

    def _save_index(self) -> None:
        save_index(self.known, self.path)
        self._indexed = self.known.size

    def attempt(self, act: Callable[[], None]) -> StoreFailed | None:
        """Append or sync, unless that has failed before; what went wrong, which is the end of all writing."""
        if self.failure is None:
            try:
                act()
            except Exception as error:  # noqa: BLE001  # whatever it was, nothing may be written after it
                problem = getattr(error, "strerror", None) or str(error)
                self.failure = StoreFailed(f"{problem} ({self.path})")
                self.failure.__cause__ = error
        return self.failure

    @property
    def descriptor(self) -> int:
        return self._file

    def abandon(self) -> None:
        """Let go of a file that is no session's any more."""
        self._let_go()

    def close(self) -> None:
        """Let go of the file."""
        try:
            if self.failure is None and self.known.size > self._indexed:
                self._save_index()
        finally:
            self._let_go()

    def _let_go(self) -> None:
        _locking.pop(self, None)
        fcntl.flock(self._file, fcntl.LOCK_UN)  # a process that is being started may have it open, too
        os.close(self._file)


def _forked() -> None:
    """A process that was forked from this one holds no lock: it would outlive those who write."""
    for file, identity in _locking.items():
        with suppress(OSError):
            if _identity(file.descriptor) == identity:  # else it is the number of something else by now
                os.close(file.descriptor)
    _locking.clear()


def _identity(file: int) -> tuple[int, int]:
    stat = os.fstat(file)
    return stat.st_dev, stat.st_ino


os.register_at_fork(after_in_child=_forked)


def _without_big_texts(line: bytes, artifacts: dict[str, bytes]) -> bytes:
    """The line with references to its big texts, which are put into `artifacts`."""
    try:
        stored = decode_line(line)
    except msgspec.MsgspecError:  # a chunk with half a character
        return line
    taken = take_out(bytes(stored.data))
    if taken is None:
        return line
    artifacts.update(taken.artifacts)
    return encode_line(msgspec.structs.replace(stored, data=msgspec.Raw(taken.data), artifacts=taken.paths))


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class JSONLWriter(Writer[Path]):
    """Writes to all files of one folder."""

    def __init__(self, folder: Path, report: Callable[[Outcome[Path]], None]) -> None:
        super().__init__(report)
        self._folder = folder
        self._files: dict[Path, LineFile] = {}
        self._syncing: ThreadPoolExecutor | None = None

    def known(self, path: Path) -> Known:
        """What is known of a file that is open here. It goes on growing; what was told as written is in it."""
        return self._files[path].known

    def open(self, path: Path) -> Path:
        """See `LineFile.open`. It runs in the thread, as a `Call`."""
        self._files[path] = LineFile.open(path)
        return path

    def release(self, path: Path) -> None:
        """Let go of a file. It runs in the thread, as a `Call`."""
        if (file := self._files.pop(path, None)) is not None:  # else the session was removed
            file.close()

    def erase(self, path: Path, erasure: ContentErased, now: int) -> Gone:
        """See `jsonl_erasing.erase`. It runs in the thread, as a `Call`."""
        from interlock.log.stores.jsonl.erasing import erase

        self._files[path], gone = erase(self._files[path], erasure, now)
        return gone

    def remove(self, path: Path, session_id: str, head: int) -> Gone | None:
        """See `jsonl_erasing.remove`. It runs in the thread, as a `Call`."""
        from interlock.log.stores.jsonl.erasing import remove

        gone = remove(self._files[path], session_id, head)
        if gone is not None:
            self._files.pop(path).abandon()
        return gone

    def keep(self, target: Path, kept: Kept) -> None:
        if target in self._files:  # else another one may write to it by now
            keep_checkpoint(target, kept)

    def _open(self) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def _close(self) -> None:
        if self._syncing is not None:
            self._syncing.shutdown()
        for file in self._files.values():
            file.close()

    def _named(self, problem: str) -> str:
        folder = str(self._folder)
        return problem if folder in problem else f"{problem} ({folder})"

    def _write(
        self,
        new: Sequence[NewSession[Path]],
        lines: list[Lines[Path]],
        barriers: Sequence[Barrier[Path]],
        outcome: Outcome[Path],
    ) -> list[Path | None]:
        made = [self._create(one.id) for one in new]
        for one in lines:
            file = self._files[one.target]
            if (failure := file.attempt(partial(file.append, one.items))) is None:
                outcome.written.append(one)
            else:
                outcome.failed.append((one.journal, failure))
        waiting = {barrier.journal: self._files[barrier.target] for barrier in barriers}
        for journal, failure in zip(waiting, self._sync_all([*waiting.values()]), strict=True):
            if failure is None:
                outcome.synced.append(journal)
            else:
                outcome.failed.append((journal, failure))
        return made

    def _sync_all(self, files: Sequence[LineFile]) -> list[StoreFailed | None]:
        """Several at a time: the file system puts what comes together on the disk in one go."""
        if len(files) <= 1:
            return [file.attempt(file.sync) for file in files]
        if self._syncing is None:
            self._syncing = ThreadPoolExecutor(_AT_ONCE, "interlock-sync")
        return [*self._syncing.map(lambda file: file.attempt(file.sync), files)]

    def _create(self, session_id: str) -> Path | None:
        path = self._folder / f"{file_name(session_id)}{SUFFIX}"
        file = LineFile.create(path)
        if file is None:
            return None
        self._files[path] = file
        return path
