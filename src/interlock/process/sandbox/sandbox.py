"""Confining a command with bubblewrap.

Lives here: `Sandbox`, what a command may see, write and use, and `Confined`, one command made ready. It is Linux
namespaces: a file system of its own, processes of its own, no network unless it is allowed, no capabilities, no way
to gain any. The mode `full` confines nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import get_args

from interlock.errors import ConfigError
from interlock.process.sandbox.limits import Limits
from interlock.process.sandbox.people import (
    environment,
    git_files,
    git_settings,
    home_folders,
    own_home,
    toolchains,
)
from interlock.process.sandbox.problem import found_problem
from interlock.process.sandbox.protected import PROTECTED, Protection
from interlock.process.sandbox.seccomp import program
from interlock.process.sandbox.settings import SandboxSettings
from interlock.process.sandbox.supervisor import supervised
from interlock.process.sandbox.view import View, machine_view, sockets
from interlock.tools.confinement import SandboxMode

#: Where programs of the system are looked for besides PATH.
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/run/current-system/sw/bin")


@dataclass(slots=True)
class Confined:
    """One command, ready to be started as `argv` with the variables `env` and the descriptors `pass_fds`.

    bubblewrap itself gets no variables: some of them would make it run something before it confines.
    """

    argv: tuple[str, ...]
    env: Mapping[str, str]
    pass_fds: tuple[int, ...] = ()
    undone: tuple[
        str, ...
    ] = ()  # protected paths that were put as they had been; known when the block is left
    _info: int = -1
    _first: int | None = field(default=None)

    def first(self) -> int | None:
        """The first process of the sandbox, once there is one: when it ends, all others are ended with it."""
        if self._first is None and self._info >= 0:
            with suppress(BlockingIOError, ValueError, KeyError):
                self._first = json.loads(os.read(self._info, 4096))["child-pid"]
        return self._first


class Sandbox:
    """How commands are confined.

    mode: `read-only` writes nowhere but in folders of its own that vanish with it; `workspace-write` also in the
    workspace and in `writable`; `full` confines nothing. Everything else of the machine is seen read-only, less the
    home folders, temporary folders, sockets and secrets.

    Args:
        root: The workspace.
        network: Whether it has the machine's network, the services on the machine itself among it.
        writable: More folders that are written in mode `workspace-write`.
        readable: Only these, the system's folders and the workspace are seen; None: everything that is not hidden.
        hidden: Files and folders that are not seen; they win over all others.
        protected: Paths below the workspace that stay as they are; with `/` at the end: a folder.
        environment: Variables that are set.
        passed: Names of variables that are passed on besides the harmless ones; `NAME*` stands for several.
        limits: How much a command may use.

    Raises:
        ConfigError: no such mode, or a folder that does not exist.
    """

    def __init__(
        self,
        mode: SandboxMode,
        *,
        root: str | Path,
        network: bool = False,
        writable: Sequence[str | Path] = (),
        readable: Sequence[str | Path] | None = None,
        hidden: Sequence[str | Path] = (),
        protected: Sequence[str] = PROTECTED,
        environment: Mapping[str, str] | None = None,
        passed: Sequence[str] = (),
        limits: Limits | None = None,
    ) -> None:
        if mode not in get_args(SandboxMode):
            raise ConfigError(f"a sandbox is one of {', '.join(get_args(SandboxMode))}, not {mode!r}")
        self._mode: SandboxMode = mode
        self.root = _resolved(root, Path(), "the workspace")
        self.network = network
        self.writable = tuple(_resolved(path, self.root, "writable") for path in writable)
        self.readable = (
            None if readable is None else tuple(_resolved(path, self.root, "readable") for path in readable)
        )
        for path in (self.root, *self.writable, *(self.readable or ())):
            _require_place(path)
        self.hidden = tuple(_absolute(path, self.root) for path in hidden)
        self.protected = tuple(protected)
        self.environment = dict(environment or {})
        self.passed = tuple(passed)
        self.limits = limits or Limits()

    @classmethod
    def for_workspace(
        cls, mode: SandboxMode, cwd: str | Path, settings: SandboxSettings | None = None
    ) -> Sandbox:
        """The sandbox of an agent that works in `cwd`, with what `[sandbox]` of a settings file says.

        Raises:
            ConfigError: a folder that does not exist.
        """
        given = settings or SandboxSettings()
        return cls(
            mode,
            root=cwd,
            network=given.network,
            writable=given.writable,
            readable=given.readable,
            hidden=given.hidden,
            environment=given.environment,
            passed=given.pass_env,
            limits=given.limits(),
        )

    def __repr__(self) -> str:
        return f"Sandbox({self.mode!r}, root={str(self.root)!r}: {self.summary})"

    @property
    def mode(self) -> SandboxMode:
        return self._mode

    @property
    def summary(self) -> str:
        """In a few words, for the model."""
        if self.mode == "full":
            return "full"
        return f"{self.mode}, {'network' if self.network else 'no network'}"

    # Whether it can be had

    def problem(self) -> str | None:
        """Why it cannot be enforced here, and what to do; None if it can.

        That it can is found out once, by running one. That it cannot is looked at again each time, so that an
        installation helps at once.
        """
        if self.mode == "full":
            return None
        if sys.platform != "linux":
            return f"the sandbox mode {self.mode} needs Linux; on {sys.platform} only the mode full runs"
        for folder in (self.root, *self._writable):
            if str(folder) in self._homes:
                return (
                    f"the sandbox cannot hide the home folder {folder} and let commands work in it: "
                    "work in a folder below it, or choose the sandbox mode full"
                )
        return found_problem(self._program("bwrap"))

    # One command

    @contextmanager
    def command(self, argv: Sequence[str], cwd: str | Path, *, grace: float = 2.0) -> Iterator[Confined]:
        """Make a command ready, for the time of the block; leave it when no process of the command is left.

        Args:
            argv: The program and its arguments.
            cwd: Where it starts; it is to be a folder that the command sees.
            grace: Seconds between SIGTERM and SIGKILL for what it leaves running.

        Raises:
            OSError: a folder is missing or is not where it was, or bubblewrap is.
        """
        if self.mode == "full":
            yield Confined(tuple(argv), os.environ)
            return
        bwrap = self._program("bwrap")
        if bwrap is None:
            raise FileNotFoundError(2, "bubblewrap is not installed")
        self._stay_in_place()
        os.stat(cwd)
        protection = Protection()
        with ExitStack() as stack:
            view = self._view.copy()
            for path in sockets():
                if view.shows(path):
                    view.put("hidden", path)
            if self.mode == "workspace-write":
                protection.cover(view, self.root, self.writable, self.protected)
            view.put("hidden", *[os.path.realpath(path) for path in self.hidden if os.path.exists(path)])
            options = [*_NAMESPACES, *(["--share-net"] if self.network else [])]
            options += view.arguments(self.limits.temporary)
            fds: list[int] = []
            ignored = [path.name for path in protection.placeholders]
            for name, content in git_files(self._git, self._home, ignored).items():
                fds.append(_memory(stack, content))
                options += ["--perms", "0644", "--file", str(fds[-1]), f"{self._home}/{name}"]
            filters = program()
            if filters is not None:
                fds.append(_memory(stack, filters))
                options += ["--seccomp", str(fds[-1])]
            told, tell = os.pipe()
            stack.callback(os.close, told)
            stack.callback(os.close, tell)
            os.set_blocking(told, False)
            fds.append(tell)
            options += ["--info-fd", str(tell), "--chdir", str(cwd)]
            for name, value in self._environment.items():
                options += ["--setenv", name, value]
            # Not on the command line, which everybody on the machine may read.
            fds.append(_memory(stack, b"".join(os.fsencode(option) + b"\0" for option in options)))
            inside = supervised(argv, self.limits.ulimits(), grace)
            confined = Confined((bwrap, "--args", str(fds[-1]), "--", *inside), {}, tuple(fds), _info=told)
            try:
                yield confined
            finally:
                confined.undone = protection.release()

    def _stay_in_place(self) -> None:
        """A command must not lead the next one elsewhere, by putting a link where a folder was."""
        for folder in (self.root, *self.writable):
            if os.path.realpath(folder) != str(folder):
                raise OSError(f"{folder} is not where it was: a link leads to {os.path.realpath(folder)}")
            if not folder.is_dir():
                raise FileNotFoundError(2, f"{folder} is no folder any more")

    # What does not change from command to command

    @property
    def _writable(self) -> tuple[Path, ...]:
        return self.writable if self.mode == "workspace-write" else ()

    @cached_property
    def _homes(self) -> tuple[str, ...]:
        return tuple(home_folders())

    @cached_property
    def _home(self) -> str:
        return own_home()

    @cached_property
    def _view(self) -> View:
        tools = toolchains(self._home, self._homes, os.environ.get("PATH", ""))
        readable = None if self.readable is None else [str(path) for path in self.readable]
        view = machine_view(self._home, self._homes, tools, readable)
        if self.network:
            names = os.path.realpath("/etc/resolv.conf")  # often a link into /run
            if os.path.exists(names):
                view.put("shown", names)
        view.put("shown", *self.writable)
        view.put("writable" if self.mode == "workspace-write" else "shown", *self._writable, self.root)
        return view

    @cached_property
    def _environment(self) -> dict[str, str]:
        return environment(os.environ, home=self._home, passed=self.passed, added=self.environment)

    @cached_property
    def _git(self) -> bytes:
        return git_settings(self._program("git"))

    def _program(self, name: str) -> str | None:
        """A program that runs outside of the sandbox: never one from a folder that a command may have written."""
        entries = (*os.environ.get("PATH", "").split(os.pathsep), *_SYSTEM_PATH)
        for entry in entries:
            folder = Path(os.path.realpath(entry)) if os.path.isabs(entry) else None
            if folder is None or any(folder.is_relative_to(own) for own in (self.root, *self.writable)):
                continue
            found = shutil.which(name, path=str(folder))
            if found is not None:
                return found
        return None


_NAMESPACES = (
    "--unshare-all", "--unshare-user", "--disable-userns", "--die-with-parent", "--new-session",
    "--cap-drop", "ALL", "--hostname", "sandbox",
)  # fmt: skip


def _resolved(path: str | Path, base: Path, what: str) -> Path:
    try:
        found = _absolute(path, base).resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise ConfigError(
            f"sandbox: {what} {str(path)!r}: {getattr(error, 'strerror', None) or error}"
        ) from None
    if what != "readable" and not found.is_dir():
        raise ConfigError(f"sandbox: {what} {str(path)!r} is not a folder")
    return found


def _require_place(path: Path) -> None:
    """What the sandbox has of its own would lie under it: it would be the machine's."""
    for own in ("/proc", "/dev", "/sys"):
        if path.is_relative_to(own) or Path(own).is_relative_to(path):
            raise ConfigError(
                f"sandbox: {path} cannot be shown: the sandbox has a {own} of its own. Name folders below the root, "
                "or choose the sandbox mode full"
            )


def _absolute(path: str | Path, base: Path) -> Path:
    return Path(os.path.abspath(base / Path(path).expanduser()))


def _memory(stack: ExitStack, content: bytes) -> int:
    """A descriptor from which `content` is read."""
    descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    stack.callback(os.close, descriptor)
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
