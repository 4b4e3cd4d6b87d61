"""What a person allowed for always, in one file for all workspaces of a user.

Lives here: `Grant` and `Grants`, the file `grants.toml` beside the store. It is written as a whole, by one process at a
time, and only a file that can be read in full is ever used. Everything here may wait for a disk or a lock: call it in a
thread.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from interlock.errors import ConfigError
from interlock.log.stores.sqlite.database import default_path

NAME = "grants.toml"
VERSION = 1
PATIENCE = 10.0  # seconds to wait for another process that is writing

_HEAD = """\
# What was allowed for always, by workspace. Written by interlock; `interlock approvals list` shows it, and
# `interlock approvals revoke` takes one back.
version = 1
"""


class Grant(msgspec.Struct, frozen=True):
    """One rule that is allowed in one workspace: who said so, where and when."""

    workspace: str  # the real path of the folder
    rule: str
    by: str | None = None
    how: str | None = None
    channel: str | None = None
    time: int = 0  # epoch ms
    session: str | None = None
    file: str | None = None  # where it was read
    line: int | None = None


class Grants:
    """The grants of a user. `path`: by default `grants.toml` in the folder of the default store."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path if path is not None else default_path().with_name(NAME)

    def load(self, workspace: str | Path | None = None) -> tuple[Grant, ...]:
        """Those of this workspace, or all, in the order in which they were given.

        Raises:
            ConfigError: the file cannot be read, or not in full.
        """
        key = workspace_of(workspace) if workspace is not None else None
        return tuple([grant for grant in self._read() if key is None or grant.workspace == key])

    def add(self, grant: Grant) -> None:
        """Keep this one. A rule that its workspace has already is left as it is.

        Raises:
            OSError: it cannot be written. ConfigError: the file that is there cannot be read.
        """

        def added(kept: Sequence[Grant]) -> Sequence[Grant]:
            there = any(one.workspace == grant.workspace and one.rule == grant.rule for one in kept)
            return kept if there else [*kept, grant]

        self._change(added)

    def revoke(self, workspace: str | Path, rule: str) -> bool:
        """Forget this rule of this workspace; whether it was there. Raises as `add`."""
        key, found = workspace_of(workspace), False

        def without(kept: Sequence[Grant]) -> Sequence[Grant]:
            nonlocal found
            left = [one for one in kept if not (one.workspace == key and one.rule == rule)]
            found = len(left) < len(kept)
            return left

        if self.path.exists():
            self._change(without)
        return found

    def _change(self, change: Callable[[Sequence[Grant]], Sequence[Grant]]) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._locked():
            before = self._read()
            after = change(before)
            if after is not before and list(after) != list(before):
                self._write(after)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Keep other processes from writing. The lock is a file of its own: the other one is replaced."""
        descriptor = os.open(self.path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        try:
            until = time.monotonic() + PATIENCE
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        raise TimeoutError(
                            f"another process has kept {self.path.with_suffix('.lock')} for {PATIENCE:g} s"
                        ) from None
                    time.sleep(0.01)
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> tuple[Grant, ...]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.path} cannot be read: {error}. Mend it, or move it away.") from error
        return _parsed(text, str(self.path))

    def _write(self, grants: Sequence[Grant]) -> None:
        """Replace the file as one: a reader sees the old one or the new one, also after a crash."""
        new = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}")
        descriptor = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(_written(grants).encode())
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self.path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise
        folder = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def workspace_of(folder: str | Path) -> str:
    """The key of a workspace: its real path."""
    return os.path.realpath(folder)


_TEXTS = ("workspace", "rule", "by", "how", "channel", "session")


def _parsed(text: str, file: str) -> tuple[Grant, ...]:
    """
    Raises:
        ConfigError: it is not such a file, or has something that is not known here.
    """
    import tomllib

    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: {error}. Mend it, or move it away.") from None
    if document.get("version") != VERSION:
        raise ConfigError(f"{file}: version is {document.get('version')!r}; this version reads {VERSION}.")
    tables = document.get("grant", [])
    unknown = document.keys() - {"version", "grant"}
    if unknown or not isinstance(tables, list):
        raise ConfigError(f"{file}: it has `version` and tables [[grant]], nothing else.")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if line.strip() == "[[grant]]"]
    if len(lines) != len(tables):  # written by hand in another way: then nobody can say where each one is
        lines = []
    return tuple([_grant(table, file, lines[i] if lines else None) for i, table in enumerate(tables)])


def _grant(table: Any, file: str, line: int | None) -> Grant:
    where = f"{file}:{line}" if line is not None else file
    if not isinstance(table, dict):
        raise ConfigError(f"{where}: a grant is a table [[grant]].")
    unknown = table.keys() - {*_TEXTS, "time"}
    if unknown:
        raise ConfigError(f"{where}: {sorted(unknown)[0]!r} is not known here.")
    for name in _TEXTS:
        if not isinstance(table.get(name), str) and (name in table or name in ("workspace", "rule")):
            raise ConfigError(f"{where}: {name} is text, and must be there.")
    moment = table.get("time")
    if moment is not None and not isinstance(moment, datetime):
        raise ConfigError(f"{where}: time is a date and time.")
    ms = round(moment.timestamp() * 1000) if moment is not None else 0
    texts = {name: table[name] for name in _TEXTS if name in table}
    return Grant(**texts, time=ms, file=file, line=line)


def _written(grants: Sequence[Grant]) -> str:
    parts = [_HEAD]
    for grant in grants:
        parts.append("\n[[grant]]\n")
        for name in _TEXTS:
            value = getattr(grant, name)
            if value is not None:
                parts.append(f"{name} = {_string(value)}\n")
        parts.append(
            f"time = {datetime.fromtimestamp(grant.time / 1000, UTC).isoformat(timespec='milliseconds')}\n"
        )
    return "".join(parts)


def _string(value: str) -> str:
    """A basic string of TOML: as in JSON, but for DEL, which must be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007F")
