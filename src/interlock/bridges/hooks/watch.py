"""Configuration that is kept current.

Lives here: `Watch`: it looks whether a file has changed each time hooks are wanted, without a thread. A file that was
good and is broken now counts as it was: an edit that went wrong must not take a gate away.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from interlock.bridges.hooks.files import NONE_RUN, ConfigFile, Layout, Loaded, Parsed, combine, read
from interlock.bridges.hooks.handler import Handler
from interlock.bridges.hooks.trust import Trust
from interlock.bridges.hooks.verdict import Problem
from interlock.errors import ConfigError

_Stamp = tuple[int, int, int, int]  # device, inode, size, time of change


@dataclass(slots=True)
class _Seen:
    """A file as it was last looked at."""

    stamp: _Stamp | None
    parsed: Parsed | None  # what counts: the last version that could be read
    problems: tuple[Problem, ...] = ()  # of a later version that could not


class Watch:
    """The files of one project."""

    def __init__(self, project: Path, layout: Layout | None = None, *, trust: Trust | None = None) -> None:
        """
        Args:
            trust: who may run a repository's hooks. None: the folder is taken as trusted, as a program without a
                person does.
        """
        self.project = project
        self._layout = layout or Layout.of(project)
        self._trust = trust
        self._seen: dict[Path, _Seen] = {}
        self._all: Loaded | None = None

    def everything(self) -> Loaded:
        """What the files say now, held back or not. It never raises."""
        changed = False
        for file in self._layout.files:
            stamp = _stamp(file.path)
            seen = self._seen.get(file.path)
            if seen is None or seen.stamp != stamp:
                self._seen[file.path] = _again(file, stamp, seen)
                changed = True
        if self._all is None or changed:
            current = [self._seen[file.path] for file in self._layout.files]
            loaded = combine([seen.parsed for seen in current if seen.parsed is not None])
            later = tuple([problem for seen in current for problem in seen.problems])
            self._all = replace(loaded, problems=loaded.problems + later)
        return self._all

    def check(self) -> None:
        """Refuse to start where a file whose hooks would run cannot be understood: a gate may stand in it.

        Raises:
            ConfigError: the first such file, with the line.
        """
        loaded = self.everything()
        trusted = self._trust is None or self._trust.trusted(self.project)
        counted = {str(file.path) for file in self._layout.files if trusted or file.origin == "user"}
        broken = {str(path) for path in loaded.broken} & counted
        for problem in loaded.problems:
            if problem.file in broken:
                said = replace(problem, what=problem.what.removesuffix(NONE_RUN))
                raise ConfigError(f"{said}. Hooks may be configured in it: mend the file, or remove it.")

    def current(self) -> Loaded:
        """The handlers that may run now: without those that are held back. It never raises."""
        loaded = self.everything()
        held = self.held()
        return (
            replace(loaded, handlers=tuple([h for h in loaded.handlers if h not in held])) if held else loaded
        )

    def held(self) -> tuple[Handler, ...]:
        """Those that wait for somebody's trust."""
        if self._trust is None:
            return ()
        handlers = self.everything().handlers
        return tuple([h for h in handlers if not self._trust.accepts(h, self.project)])


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _again(file: ConfigFile, stamp: _Stamp | None, before: _Seen | None) -> _Seen:
    parsed = read(file)
    good = before.parsed if before is not None else None
    if parsed is not None and parsed.broken and good is not None and not good.broken:
        return _Seen(stamp, good, tuple([_stays(problem) for problem in parsed.problems]))
    return _Seen(stamp, parsed)


def _stays(problem: Problem) -> Problem:
    what = problem.what.removesuffix(NONE_RUN)
    return replace(problem, what=f"{what}; its hooks stay as they were")
