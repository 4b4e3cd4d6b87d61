"""Walking a folder, in the order of the paths.

Lives here: `Pattern`, a glob that is matched name by name while the walk goes down, and `Walk`. Links are not
followed, `.git` is not entered.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from interlock.errors import ToolError
from interlock.toolkit.place import folder

_ALTERNATIVES = 64  # patterns that one with {a,b} may stand for
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")  # innermost ones

State = frozenset[tuple[int, int]]  # (alternative, segments of it that are matched)


class Pattern:
    """A glob: `*` and `?` within one name, `[a-z]`, `{a,b}`, and `**` for any number of folders."""

    __slots__ = ("_alternatives", "start")

    def __init__(self, text: str) -> None:
        """
        Raises:
            ToolError: it is absolute or has `..`, or stands for too many patterns.
        """
        self._alternatives = [
            tuple(segment for segment in expanded.split("/") if segment not in ("", "."))
            for expanded in _expand(text)
        ]
        if text.startswith("/") or any(".." in segments for segments in self._alternatives):
            raise ToolError(f"the pattern {text!r} must stay below path: name the folder with path")
        self.start = self._skip((i, 0) for i in range(len(self._alternatives)))

    def step(self, state: State, name: str) -> State:
        """The state after one more name. An empty one matches nothing below."""
        after = []
        for alternative, matched in state:
            segments = self._alternatives[alternative]
            if matched == len(segments):
                continue
            if segments[matched] == "**":
                after.append((alternative, matched))
            elif fnmatchcase(name, segments[matched]):
                after.append((alternative, matched + 1))
        return self._skip(after)

    def matches(self, state: State) -> bool:
        return any(matched == len(self._alternatives[alternative]) for alternative, matched in state)

    def _skip(self, state: Iterator[tuple[int, int]] | list[tuple[int, int]]) -> State:
        """`**` may stand for no folder at all."""
        reached = set()
        for alternative, matched in state:
            reached.add((alternative, matched))
            segments = self._alternatives[alternative]
            while matched < len(segments) and segments[matched] == "**":
                matched += 1
                reached.add((alternative, matched))
        return frozenset(reached)


def _expand(text: str) -> list[str]:
    """`*.{ts,tsx}` is `*.ts` and `*.tsx`."""
    made = [text]
    while _BRACES.search(made[0]):  # the others have the same braces left
        split = [_BRACES.split(pattern, maxsplit=1) for pattern in made]
        made = [before + choice + after for before, inner, after in split for choice in inner.split(",")]
        if len(made) > _ALTERNATIVES:
            raise ToolError(
                f"a pattern may stand for {_ALTERNATIVES} at most, {text[:100]!r} stands for more"
            )
    return made


class Entry(NamedTuple):
    parts: tuple[str, ...]  # from the root
    is_link: bool


class Walk:
    """The files below a folder of the workspace that match, sorted by path; `unread` counts folders it may not list."""

    def __init__(
        self, root: Path, start: tuple[str, ...], pattern: Pattern, stopped: Callable[[], bool]
    ) -> None:
        self._root, self._start, self._pattern, self._stopped = root, start, pattern, stopped
        self.unread = 0

    def __iter__(self) -> Iterator[Entry]:
        """
        Raises:
            OSError: the first folder cannot be listed.
        """
        waiting: list[tuple[Entry, bool, State]] = [(Entry(self._start, False), True, self._pattern.start)]
        while waiting and not self._stopped():
            entry, is_folder, state = waiting.pop()
            if not is_folder:
                yield entry
                continue
            try:
                found = self._list(entry.parts, state)
            except OSError:
                if entry.parts == self._start:
                    raise
                self.unread += 1
                continue
            waiting += reversed(found)

    def _list(self, parts: tuple[str, ...], state: State) -> list[tuple[Entry, bool, State]]:
        found = []
        with folder(self._root, parts) as descriptor, os.scandir(descriptor) as entries:
            for entry in entries:
                is_folder = entry.is_dir(follow_symlinks=False)
                is_link = entry.is_symlink()
                after = self._pattern.step(state, entry.name)
                if entry.name == ".git" or not (after if is_folder else self._pattern.matches(after)):
                    continue
                if is_folder or is_link or entry.is_file():  # nobody searches a pipe
                    made = (Entry((*parts, entry.name), is_link), is_folder, after)
                    found.append((f"{entry.name}/" if is_folder else entry.name, made))
        return [made for _, made in sorted(found, key=lambda item: item[0])]
