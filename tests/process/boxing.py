"""A machine to escape into, and commands in a sandbox on it, as root and as an ordinary user."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest

from interlock.intercept.signal import Signal
from interlock.process import confined  # noqa: F401  # a user who cannot read this checkout finds it loaded
from interlock.process.run import Finished, run
from interlock.process.sandbox import Sandbox
from interlock.process.sandbox.problem import found_problem

T = TypeVar("T")

NOBODY = 65534
SECRET = "a-secret-of-the-host"
_PATIENCE = 20.0  # seconds for one command


def require_bubblewrap() -> None:
    """Skip where there can be no sandbox; where everything must run, fail."""
    problem = found_problem(shutil.which("bwrap")) if sys.platform == "linux" else "the sandbox needs Linux"
    if problem is not None:
        if os.environ.get("CI"):
            pytest.fail(f"the sandbox cannot be tested, and here it must be: {problem}")
        pytest.skip(problem)


def whoever() -> list[Any]:
    """Parameters: root, where the tests run as root, and an ordinary user."""
    root = os.geteuid() == 0
    marks = () if root else pytest.mark.skip(reason="the tests do not run as root")
    return [
        pytest.param(0, id="root", marks=marks),
        pytest.param(NOBODY if root else os.geteuid(), id="user"),
    ]


def as_user(uid: int, act: Callable[[], T]) -> T:
    """What `act` returns or raises in a process of this user."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        # Tests that run side by side have a thread that waits for orders; the child does not need it.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        os.close(read)
        try:
            if uid != os.geteuid():
                os.setgroups([])
                os.setresgid(uid, uid, uid)
                os.setresuid(uid, uid, uid)
            made: tuple[bool, Any] = True, act()
        except BaseException:  # noqa: BLE001  # told in the other process
            made = False, traceback.format_exc()
        with os.fdopen(write, "wb") as pipe:
            pickle.dump(made, pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    fine, result = pickle.loads(told)
    assert fine, result
    return result  # type: ignore[no-any-return]


@dataclass
class Machine:
    """What belongs to somebody else, and must stay so. All names in capitals are variables of the commands."""

    uid: int
    base: Path
    work: Path
    home: Path
    outside: Path  # seen by commands, and not theirs to write
    other_home: Path
    marker: str
    process: subprocess.Popen[bytes]
    listener: socket.socket
    datagrams: socket.socket
    abstract: socket.socket
    at_path: socket.socket
    descriptor: int
    _before: dict[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> dict[str, str]:
        return {
            "OUTSIDE": str(self.outside),
            "REAL_HOME": str(self.home),
            "OTHER_HOME": str(self.other_home),
            "HOST_TEMPORARY": str(self.base / "left-in-tmp"),
            "HOST_PID": str(self.process.pid),
            "HOST_PORT": str(self.listener.getsockname()[1]),
            "HOST_UDP": str(self.datagrams.getsockname()[1]),
            "HOST_ABSTRACT": self.marker,
            "HOST_DESCRIPTOR": str(self.descriptor),
            "MARKER": self.marker,
        }

    def run(self, command: str, sandbox: Sandbox | None = None, **options: Any) -> Finished:
        """The command, in the workspace, as this machine's user; without a sandbox its names are exported to it."""
        if sandbox is not None:
            sandbox.environment.update(self.names)
        else:
            exports = "".join(f"export {name}={value};" for name, value in self.names.items())
            command = exports + command
        options = {"timeout": _PATIENCE, **options}

        def act() -> Finished:
            os.environ |= {"HOME": str(self.home), "LC_ALL": "C.UTF-8"}
            os.environ |= {"AWS_SECRET_ACCESS_KEY": SECRET, "GITHUB_TOKEN": SECRET}
            return asyncio.run(run(command, cwd=self.work, signal=Signal(), sandbox=sandbox, **options))

        return as_user(self.uid, act)

    def remember(self) -> None:
        self._before = self._state()

    @property
    def changed(self) -> list[str]:
        """What somebody has changed that was not theirs."""
        after = self._state()
        return [name for name in {**self._before, **after} if self._before.get(name) != after.get(name)]

    def _state(self) -> dict[str, Any]:
        protected = (".git/hooks", ".git/config", ".git/commondir", ".claude", "interlock.toml")
        found: dict[str, Any] = {"host process runs": self.process.poll() is None}
        for folder in (self.outside, self.home, *[self.work / name for name in protected]):
            for path in (folder, *sorted(folder.rglob("*"))):
                if path.is_symlink():
                    found[str(path)] = os.readlink(path)
                elif path.exists():
                    found[str(path)] = (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        found["leftovers"] = bool(self.leftovers())
        with suppress(BlockingIOError):
            found["datagram"] = self.datagrams.recv(100)
        return found

    def leftovers(self) -> list[int]:
        """Processes that a command has left: they have the marker in their command line."""
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError, ValueError):
                if f"1000.{self.marker[-6:]}".encode() in (entry / "cmdline").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


def machine(uid: int) -> Iterator[Machine]:
    root = os.geteuid() == 0
    base = Path(tempfile.mkdtemp(prefix="interlock-"))
    number = f"{os.getpid() % 1000:03}{base.stat().st_ino % 1000:03}"
    marker = f"interlock-{number}"
    outside = Path(f"/opt/{marker}") if root else base / "outside"
    other = Path(f"/home/{marker}") if root else base / "other"
    work, home = base / "work", base / "home"
    process = None
    opened: list[socket.socket] = []
    try:
        base.chmod(0o755)
        for folder in (outside, other, work, home, home / ".ssh"):
            folder.mkdir()
        (outside / "file").write_text(SECRET)
        (home / ".ssh" / "id_ed25519").write_text(SECRET)
        (home / ".gitconfig").write_text("[user]\n\tname = Ada\n\temail = ada@example.org\n")
        (other / "diary").write_text(SECRET)
        (base / "left-in-tmp").write_text(SECRET)
        subprocess.run(["git", "init", "-q", str(work)], check=True)
        kinds = (
            (socket.AF_INET, socket.SOCK_STREAM),
            (socket.AF_INET, socket.SOCK_DGRAM),
            (socket.AF_UNIX, socket.SOCK_STREAM),
        )
        opened = [socket.socket(*kind) for kind in (*kinds, kinds[2])]
        for one, address in zip(
            opened, (("127.0.0.1", 0), ("127.0.0.1", 0), f"\0{marker}", str(work / "socket")), strict=True
        ):
            one.bind(address)
            if one is not opened[1]:
                one.listen()
            one.setblocking(False)
        if root:
            for path in (base, *base.rglob("*"), outside, *outside.rglob("*")):
                os.chown(path, uid, uid)
            for path in (outside, work / "socket"):
                path.chmod(0o777)
        process = subprocess.Popen(
            ["sleep", "1000"], env={"HOST_SECRET": SECRET}, **({"user": uid, "group": uid} if root else {})
        )
        descriptor = os.open(base / "left-in-tmp", os.O_RDONLY)
        os.set_inheritable(descriptor, True)
        made = Machine(uid, base, work, home, outside, other, marker, process, *opened, descriptor)
        made.remember()
        try:
            yield made
        finally:
            os.close(descriptor)
            for pid in made.leftovers():
                os.kill(pid, signal.SIGKILL)
    finally:
        for one in opened:
            one.close()
        if process is not None:
            process.kill()
            process.wait()
        for folder in (base, outside, other):
            shutil.rmtree(folder, ignore_errors=True)
