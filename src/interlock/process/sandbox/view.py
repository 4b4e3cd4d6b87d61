"""What of the machine a sandboxed command sees.

Lives here: `View`, which paths are hidden, shown, writable or empty and its own, and how bubblewrap is told.
`machine_view` starts one: the whole file system, read-only, without what is nobody else's business.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["hidden", "shown", "writable", "scratch"]

#: What programs need to run, where only some places are readable.
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu")
#: Sockets and secrets of services, what they write, and other people's mail and temporary files.
_SERVICES = (
    "/run", "/var/run", "/sys", "/boot", "/var/log", "/var/spool", "/var/mail", "/var/backups", "/var/crash",
    "/var/lib/docker", "/var/lib/containerd", "/var/lib/kubelet", "/var/lib/NetworkManager", "/var/lib/lxd",
)  # fmt: skip
#: Of those: what programs ask to count processors, and where NixOS keeps its programs.
_HARMLESS = ("/sys/devices/system/cpu", "/run/current-system")
#: Of the kernel's own files: what root can read without any privilege, and what is not about the sandbox.
_KERNEL = ("kpagecgroup", "kpagecount", "kpageflags", "sched_debug", "slabinfo", "timer_list", "vmallocinfo")
_TEMPORARY = ("/tmp", "/var/tmp")
_MIXED = ("/", "/var", "/var/lib", "/opt", "/srv", "/mnt", "/media")  # folders with something of everybody


class View:
    """Paths and what they are to the command; a path below another one is decided later, and wins."""

    def __init__(self, base: Sequence[str]) -> None:
        """base: what is shown of the machine; `/` is all of it."""
        self._base = tuple(base)
        self._places: dict[str, Kind] = {}

    def copy(self) -> View:
        made = View(self._base)
        made._places = self._places.copy()
        return made

    def put(self, kind: Kind, *paths: str | Path) -> None:
        """The last word on a path counts."""
        for path in paths:
            self._places[str(path)] = kind

    def shows(self, path: str) -> bool:
        """Whether the file of the machine at this path is there for the command."""
        kind = self._places.get(path) or self._around(path)
        if kind is not None:
            return kind in ("shown", "writable")
        return self._base == ("/",) or any(Path(path).is_relative_to(one) for one in self._base)

    def arguments(self, temporary: int) -> list[str]:
        """For bubblewrap, outermost first. temporary: bytes of each place that is the command's own."""
        size = str(temporary)
        made: list[str] = []
        for path in self._base:
            target = os.readlink(path) if os.path.islink(path) else None
            made += ["--symlink", target, path] if target is not None else ["--ro-bind-try", path, path]
        made += ["--dev", "/dev", "--size", size, "--tmpfs", "/dev/shm", "--remount-ro", "/dev"]
        made += ["--proc", "/proc"]
        for name in _KERNEL:
            if os.access(f"/proc/{name}", os.R_OK):
                made += _covered(f"/proc/{name}")
        for path, kind in sorted(self._places.items(), key=lambda place: (place[0].count("/"), place[0])):
            match kind:
                case "hidden":
                    if self._around(path) not in ("hidden", "scratch"):
                        made += _covered(path)
                case "scratch":
                    made += ["--size", size, "--tmpfs", path]
                case "shown":
                    made += ["--ro-bind", path, path]
                case "writable":
                    made += ["--bind", path, path]
        # What cannot be kept is refused, not lost. Of /proc this also covers settings of the whole machine, which
        # root could write without any privilege.
        if self._base != ("/",):
            made += ["--remount-ro", "/"]
        return [*made, "--remount-ro", "/proc"]

    def _around(self, path: str) -> Kind | None:
        """What the innermost place around this one is; None: the base."""
        return next((self._places[one] for one in map(str, Path(path).parents) if one in self._places), None)


def _covered(path: str) -> list[str]:
    """An empty folder that nobody may write, or a file that nobody may read."""
    if os.path.isdir(path):
        return ["--perms", "0555", "--size", "65536", "--tmpfs", path]
    return ["--ro-bind", "/dev/null", path]


def machine_view(
    home: str, homes: Iterable[str], tools: Iterable[str], readable: Sequence[str] | None
) -> View:
    """
    Args:
        home: The folder that is the command's home: its own and empty.
        homes: Folders of all people, hidden.
        tools: What of them is shown, for programs to run.
        readable: Only these and the system are shown; None: everything that is not hidden.
    """
    base = ("/",) if readable is None else tuple(path for path in SYSTEM if os.path.lexists(path))
    view = View(base)
    view.put("hidden", *[path for path in (*_SERVICES, *homes) if _is_place(path)])
    view.put("hidden", *closed_paths(os.geteuid() == 0))
    view.put("shown", *[path for path in _HARMLESS if os.path.exists(path)])
    view.put("scratch", *[path for path in (*_TEMPORARY, home) if _is_place(path)])
    view.put("shown", *(readable or ()), *tools)
    return view


def _is_place(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


@cache
def closed_paths(root: bool) -> tuple[str, ...]:
    """What the owner of the machine keeps from ordinary users: passwords, keys, settings of services.

    Only of what this process can read. root: elsewhere, too; there another user cannot read it anyway.
    """
    found: list[str] = []
    waiting = ["/etc"]
    while waiting:
        for entry in _entries(waiting.pop()):
            if _closed(entry):
                found.append(entry.path)
            elif entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
    if root:
        found += [entry.path for folder in _MIXED for entry in _entries(folder) if _closed(entry)]
    return tuple(found)


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:  # missing, or closed to us as well
        return []


def _closed(entry: os.DirEntry[str]) -> bool:
    if entry.is_symlink():
        return False
    try:
        found = entry.stat(follow_symlinks=False)
    except OSError:
        return False
    if not os.access(entry.path, os.R_OK) or found.st_size == 0:
        return False  # there is nothing to hide
    needed = stat.S_IROTH | stat.S_IXOTH if stat.S_ISDIR(found.st_mode) else stat.S_IROTH
    return found.st_mode & needed != needed


def sockets() -> list[str]:
    """Paths of the sockets that somebody listens at: a read-only file system does not keep anybody from connecting."""
    try:
        lines = Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines()[1:]
    except OSError:
        return []
    found = {fields[7] for line in lines if len(fields := line.split(None, 7)) == 8}
    return sorted(path for path in found if path.startswith("/") and _is_socket(path))


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path, follow_symlinks=False).st_mode)
    except (OSError, ValueError):
        return False
