"""Big texts beside the files of sessions: one file each, named after its SHA-256.

Lives here: `keep`, which sees to it that one is on disk, `keeping`, for whoever is about to refer to it, and `collect`,
which deletes those that nothing refers to. The folder itself is the lock: shared by those who refer, and taken alone
only for a last look and the deleting.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from interlock.log.event import encode_json
from interlock.log.stores.jsonl.file import SUFFIX, artifact_path, decode_line, private
from interlock.log.stores.rows import needed_by

_BLOCK = 1 << 18  # bytes read at once
_MARKED = b'"artifacts":'
_DIGEST = re.compile(rb"[0-9a-f]{64}")


@contextmanager
def keeping(folder: Path) -> Iterator[None]:
    """Nothing is collected while this runs. It waits for who is collecting."""
    with _locked(folder, fcntl.LOCK_SH):
        yield


def keep(path: Path, text: bytes) -> None:
    """See to it that an artifact is on disk."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    if not path.exists():  # else it is whole: it got its name when it was
        made = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with open(made, "wb", opener=private) as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            os.replace(made, path)
        except BaseException:
            made.unlink(missing_ok=True)
            raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def artifacts_of(path: Path) -> set[str]:
    """The artifacts that the lines of a session's file refer to."""
    return _References().read(path)


def collect(folder: Path, only: set[str] | None = None) -> list[str]:
    """Delete the artifacts of the folder that no session refers to; their digests.

    Args:
        only: leave the others alone.

    Raises:
        OSError: a file cannot be read, or an artifact not deleted.
    """
    there = _there(folder) if only is None else only & _there(folder)
    if not there:
        return []
    found = _References()
    unneeded = there - found.look(folder)  # with all the time that it takes: others write meanwhile
    if not unneeded:
        return []
    with _locked(folder, fcntl.LOCK_EX):
        unneeded -= found.look(folder)  # and what they have written
        for digest in unneeded:
            artifact_path(folder, digest).unlink(missing_ok=True)
        sync_folder(folder / "artifacts")
    return sorted(unneeded)


def _there(folder: Path) -> set[str]:
    try:
        return {name for name in os.listdir(folder / "artifacts") if _DIGEST.fullmatch(name.encode())}
    except FileNotFoundError:
        return set()


class _References:
    """What the files of a folder refer to; each part of them is read once."""

    def __init__(self) -> None:
        self._files: dict[tuple[int, int], tuple[int, set[str]]] = {}  # so far, and what was found

    def look(self, folder: Path) -> set[str]:
        """All that is referred to now."""
        found: set[str] = set()
        for name in os.listdir(folder):
            if name.endswith(SUFFIX) and not name.startswith("."):
                with suppress(FileNotFoundError):
                    found |= self.read(folder / name)
        return found

    def read(self, path: Path) -> set[str]:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            stat = os.fstat(file)
            key = (stat.st_dev, stat.st_ino)
            at, found = self._files.get(key, (0, set()))
            rest = b""
            while block := os.pread(file, _BLOCK, at + len(rest)):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    at += len(line) + 1
                    if _MARKED in line:
                        found.update(_needed(line))
            self._files[key] = (at, found)
            return found
        finally:
            os.close(file)


def _needed(line: bytes) -> list[str]:
    try:
        stored = decode_line(line)
    except msgspec.MsgspecError:  # whatever it is, nothing that it may need is deleted
        return [found.decode() for found in _DIGEST.findall(line)]
    return needed_by(bytes(stored.data), encode_json(stored.artifacts)) if stored.artifacts else []


@contextmanager
def _locked(folder: Path, how: int) -> Iterator[None]:
    artifacts = folder / "artifacts"
    artifacts.mkdir(mode=0o700, exist_ok=True)
    opened = os.open(artifacts, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(opened, how)
        yield
    finally:
        os.close(opened)
