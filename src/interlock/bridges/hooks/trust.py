"""Whose hooks may run without asking.

Lives here: `Trust`, a file of trusted folders and approved definitions in the state folder. A person's own files need
none, but Codex's hooks are approved one by one, as that program has it: an edited one is a new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from interlock.bridges.hooks.handler import Handler
from interlock.errors import ConfigError, said_error

FILE = "hook-trust.json"


class Trust:
    """The store. It is read at each question, so that what another process has written counts."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp: tuple[int, int] | None = None
        self._folders: frozenset[str] = frozenset()
        self._definitions: frozenset[str] = frozenset()

    def trusted(self, folder: Path) -> bool:
        """Whether the folder, or one above it, is trusted."""
        self._refresh()
        resolved = Path(os.path.realpath(folder))
        return any(str(one) in self._folders for one in (resolved, *resolved.parents))

    def approved(self, handler: Handler) -> bool:
        """Whether this very definition was approved, in this very file: what it runs may be named relative to that."""
        self._refresh()
        return _named(handler) in self._definitions

    def accepts(self, handler: Handler, project: Path) -> bool:
        """Whether a handler may run: a repository's in a trusted folder, Codex's if it was approved besides."""
        if handler.place.origin == "given":
            return True
        if handler.dialect == "codex" and not self.approved(handler):
            return False
        return handler.place.origin == "user" or self.trusted(project)

    def trust(self, folder: Path, handlers: Iterable[Handler] = ()) -> None:
        """Trust the folder, and approve these definitions.

        Raises:
            ConfigError: it cannot be written down.
        """
        self._refresh()
        folders = self._folders | {os.path.realpath(folder)}
        self._write(folders, self._definitions | {_named(handler) for handler in handlers})

    def distrust(self, folder: Path) -> bool:
        """Trust it no longer. Whether it was trusted itself.

        Raises:
            ConfigError: it cannot be written down.
        """
        self._refresh()
        name = os.path.realpath(folder)
        if name not in self._folders:
            return False
        self._write(self._folders - {name}, self._definitions)
        return True

    def _refresh(self) -> None:
        """What is not understood is not trusted."""
        try:
            status = os.stat(self._path)
            stamp = (status.st_mtime_ns, status.st_ino)
            if stamp == self._stamp:
                return
            value = json.loads(self._path.read_bytes())
            self._folders = _strings(value, "folders")
            self._definitions = _strings(value, "definitions")
            self._stamp = stamp
        except (OSError, ValueError, RecursionError):
            self._stamp, self._folders, self._definitions = None, frozenset(), frozenset()

    def _write(self, folders: Iterable[str], definitions: Iterable[str]) -> None:
        text = json.dumps({"folders": sorted(folders), "definitions": sorted(definitions)}, indent=1)
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "w") as file:
                file.write(text)
            os.replace(temporary, self._path)
        except OSError as error:
            raise ConfigError(
                f"The trust of hooks cannot be kept in {self._path}: {said_error(error)}"
            ) from error
        self._stamp = None


def _named(handler: Handler) -> str:
    return f"{handler.digest} {os.path.realpath(handler.place.file)}"


def _strings(value: object, key: str) -> frozenset[str]:
    given = value.get(key) if isinstance(value, Mapping) else None
    return (
        frozenset([one for one in given if isinstance(one, str)]) if isinstance(given, list) else frozenset()
    )
