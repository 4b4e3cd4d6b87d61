"""How much a sandboxed command may use.

Lives here: `Limits`, what of them each process inherits (`ulimits`), and `Usage`, what all processes of one sandbox
use together. The kernel holds each process to its own limits; sums over processes it knows only for control groups,
which an ordinary user seldom may make. So sums are looked at while the command runs, and it is ended when one is
exceeded.
"""

from __future__ import annotations

import os
import platform
import re
import resource
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from interlock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """None: no limit.

    memory: bytes of all processes together, and so of each one. processes: how many at once. open_files: of each
    process. file_size: bytes of a file that is written. cpu: seconds of each process. temporary: bytes in `/tmp`, and
    as many in the home folder and in `/dev/shm`; they are kept in memory.

    Raises:
        ConfigError: a limit that is no positive number.
    """

    memory: int | None = 4 << 30
    processes: int | None = 512
    open_files: int | None = 4096
    file_size: int | None = 2 << 30
    cpu: int | None = None
    temporary: int = 1 << 30

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None and name != "temporary":
                continue
            if type(value) is not int or value <= 0:
                raise ConfigError(f"the limit {name} is a positive number, not {value!r}")

    def ulimits(self) -> list[str]:
        """The limits of each process, as `ulimit` commands of a POSIX shell: units of 512 bytes and of 1 KiB."""
        made = ["ulimit -c 0"]  # no memory of a crashed process on the disk
        for option, kind, value, unit in (
            # What a process asks for but never writes is not counted: several languages reserve much address space.
            ("d", resource.RLIMIT_DATA, self.memory, 1024),
            ("n", resource.RLIMIT_NOFILE, self.open_files, 1),
            ("f", resource.RLIMIT_FSIZE, self.file_size, 512),
            ("t", resource.RLIMIT_CPU, self.cpu, 1),
        ):
            if value is not None:
                made.append(f"ulimit -{option} {max(_within_hard(kind, value) // unit, 1)}")
        if self.processes is not None and _counts_by_namespace():
            count = _within_hard(resource.RLIMIT_NPROC, self.processes)
            made.append(
                f"ulimit -u {count} 2>/dev/null || ulimit -p {count}"
            )  # bash has one name, dash the other
        return made

    def exceeded(self, usage: Usage, *, memory: bool = True) -> str | None:
        """Which of the sums is too large, in words. memory: look at that, too, which takes longer."""
        if self.processes is not None and usage.processes > self.processes:
            return f"more than {self.processes} processes"
        if (
            memory
            and self.memory is not None
            and usage.resident() > self.memory
            and usage.proportional() > self.memory
        ):
            return f"more than {self.memory >> 20:,} MiB of memory"
        return None


def _within_hard(kind: int, value: int) -> int:
    """A limit cannot be above the one that this process has."""
    hard = resource.getrlimit(kind)[1]
    return value if hard == resource.RLIM_INFINITY else min(value, hard)


def _counts_by_namespace() -> bool:
    """Whether RLIMIT_NPROC counts the processes of one sandbox (Linux 5.14), and not all of the user's."""
    numbers = re.match(r"(\d+)\.(\d+)", platform.release())
    return numbers is not None and tuple(map(int, numbers.groups())) >= (5, 14)


class Usage:
    """What the processes of one sandbox use at this moment. `first`: its first process, as this process numbers it."""

    __slots__ = ("_pids", "_proc")

    def __init__(self, first: int) -> None:
        self._proc = Path(f"/proc/{first}/root/proc")  # the sandbox's own: it has no other processes
        self._pids: list[str] = []
        with suppress(OSError):  # it has ended
            self._pids = [name for name in os.listdir(self._proc) if name.isdigit()]

    @property
    def processes(self) -> int:
        """The two that keep the sandbox are not counted."""
        return max(len(self._pids) - 2, 0)

    def resident(self) -> int:
        """Bytes; what processes share is counted for each of them."""
        pages = 0
        for pid in self._pids:
            with suppress(OSError, ValueError, IndexError):
                pages += int((self._proc / pid / "statm").read_bytes().split()[1])
        return pages * resource.getpagesize()

    def proportional(self) -> int:
        """Bytes; what processes share is divided among them. It takes longer to find out."""
        total = 0
        for pid in self._pids:
            with suppress(OSError):
                found = re.search(rb"^Pss:\s+(\d+)", (self._proc / pid / "smaps_rollup").read_bytes(), re.M)
                total += int(found[1]) * 1024 if found is not None else 0
        return total
