"""What path rules and address rules say.

Lives here: `Ground` (where the paths of one call are looked for) and the questions asked of a path or an address:
which rules forbid it, which ask about it, which allow it. What forbids is tried on every name of a place, what allows
has to hold for each of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from interlock.policy.paths.located import Located, Root, folded_text, locate
from interlock.policy.rules.matching import Entry


class Ground:
    """The workspace of one call, the folders beside it, and the home folder. Resolved when first needed."""

    def __init__(self, cwd: Path, home: str, additional: Sequence[Root], base: Path | None = None) -> None:
        """
        Args:
            base: where relative paths begin; in the workspace, if it is not given.
        """
        self._cwd = cwd
        self._base = base
        self.home = home
        self._additional = additional

    @cached_property
    def root(self) -> Root:
        return Root.at(self._cwd)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the workspace is called: where rules that allow are anchored."""
        return self.root.names

    @cached_property
    def wide(self) -> tuple[str, ...]:
        """The workspace and the folders beside it, folded: where rules that forbid are anchored."""
        every = (self.root, *self._additional)
        names = [name for root in every for name in root.names]
        return tuple(dict.fromkeys([folded_text(name) for name in names]))

    def locate(self, text: str, *, shell: bool = False) -> Located:
        if self._base is not None and not text.startswith(("/", "~")):
            text = f"{self._base}/{text}"
        return locate(text, self.root, self.home, shell=shell)

    def inside(self, located: Located) -> bool:
        """Whether every name of a place is in the workspace or a folder beside it."""
        roots = [name.rstrip("/") for root in (self.root, *self._additional) for name in root.names]
        return located.certain and all(
            any(path == root or path.startswith(root + "/") for root in roots) for path in located.paths
        )


@dataclass(frozen=True, slots=True)
class Reach:
    """The paths that one word of a command stands for, folded: a shell pattern (`glob`), or a folder and what is in it
    (`below`). stays: nothing of it gets another name in a place that no rule knows: it is removed, moved or changed."""

    paths: tuple[str, ...]
    glob: bool
    below: bool
    stays: bool


def forbidding(entries: Iterable[Entry], located: Located, ground: Ground) -> list[Entry]:
    """Those with a path that covers some name of the place."""
    with_path = [entry for entry in entries if entry.path is not None]
    if not with_path:
        return []
    paths = tuple(dict.fromkeys([folded_text(path) for path in located.paths]))
    roots = ground.wide
    return [
        entry
        for entry in with_path
        if entry.path is not None and any(entry.path.covers(path, roots) for path in paths)
    ]


def allowing(entries: Iterable[Entry], located: Located, ground: Ground) -> list[Entry]:
    """Those that cover some name of the place, if together they cover every one; else none."""
    if not located.certain:
        return []
    found: dict[int, Entry] = {}
    for path in located.paths:
        covering = [
            entry
            for entry in entries
            if entry.whole or (entry.path is not None and entry.path.covers(path, ground.names))
        ]
        if not covering:
            return []
        found.update({entry.order: entry for entry in covering})
    return list(found.values())


def reached(entries: Iterable[Entry], reach: Reach, ground: Ground) -> list[Entry]:
    """Those with a path that may cover something within reach.

    A pattern for any depth may be met in every folder. For a copy that counts; for a folder that is removed or moved it
    does not, or each `rm -r` and `mv` would ask.
    """
    found = []
    for entry in entries:
        pattern = entry.path
        if pattern is None:
            continue
        below = reach.below and not (reach.stays and pattern.any_depth)
        if any(pattern.may_cover(path, ground.wide, glob=reach.glob, below=below) for path in reach.paths):
            found.append(entry)
    return found


def of_host(entries: Iterable[Entry], host: str | None) -> list[Entry]:
    """Those whose domain covers the host."""
    if host is None:
        return []
    return [entry for entry in entries if entry.domain is not None and entry.domain.fullmatch(host)]
