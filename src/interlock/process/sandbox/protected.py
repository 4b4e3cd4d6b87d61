"""What stays as it is inside a folder that a command may write.

Lives here: `PROTECTED` and `Protection`, which holds those paths for the time of one command. They are files that make
programs outside of the sandbox run something: hooks, and settings of agents and of git.

What exists is mounted over itself, read-only. What does not exist is held by an empty folder or file, which is mounted
read-only and taken away afterwards, so that a command cannot create it. A folder on the way, such as `.git`, is mounted
over itself, too: what is a mount can be neither renamed nor replaced. Where no mount can hold a path (it is a link, or
its mere presence has a meaning), it is looked at when all processes of the command are gone, and put as it was.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from interlock.process.sandbox.view import View

#: Below the workspace and below other writable folders. With `/` at the end: a folder.
PROTECTED = (
    ".git/hooks/", ".git/config", ".git/config.worktree", ".git/commondir", ".claude/", ".codex/", ".gemini/",
    ".interlock/", ".mcp.json", "interlock.toml", "interlock.local.toml",
)  # fmt: skip

#: Their presence alone, even empty, changes what programs do.
_NEVER_EMPTY = (".git/commondir", ".mcp.json")
#: Of a placeholder: by these, and by being empty, the one of another command is known.
_FOLDER_MODE, _FILE_MODE = 0o555, 0o444


@dataclass(slots=True)
class _Held:
    """An empty file or folder in the place of something that does not exist."""

    path: Path
    descriptor: int


@dataclass(slots=True)
class Protection:
    """For one command. After `release` nothing of it is left in the folders."""

    _held: list[_Held] = field(default_factory=list)
    _links: list[tuple[Path, str]] = field(default_factory=list)
    _absent: list[Path] = field(default_factory=list)

    def cover(self, view: View, root: Path, others: Iterable[Path], names: Iterable[str]) -> None:
        """Protect these names below `root`, and what exists of them below `others`.

        Raises:
            OSError: a placeholder could not be made.
        """
        for name in names:
            self._cover(view, root, name, hold=True)
            for folder in others:
                self._cover(view, folder, name, hold=False)
                if folder.name == ".git" and name.startswith(".git/"):
                    self._cover(view, folder.parent, name, hold=False)

    def _cover(self, view: View, base: Path, name: str, *, hold: bool) -> None:
        *folders, last = name.rstrip("/").split("/")
        path = base
        for part in folders:
            path = path / part
            kind = _kind(path)
            if kind == "folder":
                view.put("writable", path)
            elif kind == "nothing":
                if hold:
                    self._hold(view, path, folder=True)
                return
            else:
                self._keep(view, base, path, kind)
                return
        path = path / last
        kind = _kind(path)
        if kind != "nothing":
            self._keep(view, base, path, kind)
        elif name in _NEVER_EMPTY:
            self._absent.append(path)
        elif hold:
            self._hold(view, path, folder=name.endswith("/"))

    def _keep(self, view: View, base: Path, path: Path, kind: str) -> None:
        if kind != "link":
            view.put("shown", path)
            return
        self._links.append((path, os.readlink(path)))
        target = Path(os.path.realpath(path))
        if target.is_relative_to(base) and target != base and target.exists():
            view.put("shown", target)

    def _hold(self, view: View, path: Path, *, folder: bool) -> None:
        """Several commands may hold one path; whoever comes last takes the placeholder away."""
        for _ in range(100):
            try:
                if folder:
                    path.mkdir(mode=_FOLDER_MODE)
                else:
                    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE))
            except FileExistsError:  # another command's
                pass
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                    return  # nor can the command
                raise
            try:
                descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:  # the last one was just taking it away
                continue
            with suppress(OSError):  # a file system without locks
                fcntl.flock(descriptor, fcntl.LOCK_SH)
            if _same(path, descriptor):
                self._held.append(_Held(path, descriptor))
                view.put("shown", path)
                return
            os.close(descriptor)
        raise OSError(f"{path} comes and goes: the sandbox cannot hold it")

    @property
    def placeholders(self) -> list[Path]:
        """Empty files that are there for the time of the command only."""
        return [held.path for held in self._held if not held.path.is_dir()]

    def release(self) -> tuple[str, ...]:
        """Take placeholders away, and undo what was done to paths that no mount could hold; the names of those.

        Call it when no process of the command is left.
        """
        for held in reversed(self._held):
            if _is_last(held.descriptor) and _same(held.path, held.descriptor):
                with suppress(OSError):  # no longer empty: it stays
                    _remove_empty(held.path)
            os.close(held.descriptor)
        self._held.clear()
        undone = [path for path in self._absent if os.path.lexists(path)]
        for path in undone:
            _remove(path)
        for path, target in self._links:
            if _kind(path) == "link" and os.readlink(path) == target:
                continue
            _remove(path)
            path.symlink_to(target)
            undone.append(path)
        return tuple(path.name for path in undone)


def _kind(path: Path) -> Literal["nothing", "link", "folder", "file"]:
    """A placeholder is nothing, too."""
    try:
        found = path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        return "link"
    if stat.S_ISDIR(found.st_mode):
        return "nothing" if mode == _FOLDER_MODE and not any(path.iterdir()) else "folder"
    return "nothing" if mode == _FILE_MODE and found.st_size == 0 else "file"


def _is_last(descriptor: int) -> bool:
    """Whether no other command holds it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _same(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_empty(path: Path) -> None:
    if path.is_dir():
        path.rmdir()
    elif path.stat().st_size == 0:
        path.unlink()


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if _kind(path) == "folder":
            shutil.rmtree(path)
        else:
            path.unlink()
