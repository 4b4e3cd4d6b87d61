"""Every path that one text may stand for.

Lives here: `Root` (a folder as it is called and as it really is), `Located` and `locate`, which follows links, and
`folded` and `folded_text`, the forms in which what forbids compares names. Reads links of the path in question, nothing else.

A link and what it leads to are two names of one thing: a rule that forbids is tried on each, a rule that allows has to
hold for each. `..` after a link means the folder above its target to the system, and the folder above the link to a
reader: both are names here.
"""

from __future__ import annotations

import os
import re
import stat
from collections import deque
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from unicodedata import normalize

_LINKS = 40  # followed in one path, as Linux does
_TRAILING = re.compile(r"(?<=[^/. ])[. ]+(?=/|\Z)")
_FOLDER_OF_PROCESS = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/(?P<name>cwd|root)")
_OPEN_FILE = re.compile(r"/proc/[^/]+(?:/task/[^/]+)?/fd/(?P<number>[^/]+)")


@dataclass(frozen=True, slots=True)
class Root:
    """A folder, absolute: `called` without `.` and `..`, `real` with links followed."""

    called: str
    real: str

    @classmethod
    def at(cls, folder: str | Path) -> Root:
        called = str(folder)
        try:
            found = os.stat(called)
            identity = found.st_dev, found.st_ino
        except (OSError, ValueError):
            identity = None
        known = _ROOTS.get(called)
        if known is not None and known[0] == identity:
            return known[1]
        root = cls(collapsed(os.path.abspath(called)), os.path.realpath(called))
        if len(_ROOTS) >= _REMEMBERED:
            _ROOTS.clear()
        _ROOTS[called] = identity, root
        return root

    @property
    def names(self) -> tuple[str, ...]:
        return (self.called,) if self.called == self.real else (self.called, self.real)


@dataclass(frozen=True, slots=True)
class Located:
    """The paths, absolute, as written first and the real one last. Not `certain`: it may be another one, too."""

    paths: tuple[str, ...]
    certain: bool = True

    @property
    def real(self) -> str:
        return self.paths[-1]


_REMEMBERED = 1_000
#: Roots that were resolved before, each with what stood there: another folder under the same name is another root.
_ROOTS: dict[str, tuple[tuple[int, int] | None, Root]] = {}


def collapsed(path: str) -> str:
    """An absolute path without `.`, `..` and doubled slashes, as text."""
    path = os.path.normpath(path)
    return path[1:] if path.startswith("//") else path


def locate(text: str, root: Root, home: str, *, shell: bool = False) -> Located:
    """
    Args:
        text: as it was written, relative to `root`.
        shell: a leading `~` is a home folder. Otherwise it may be one, or a name.
    """
    if "\0" in text:
        return Located((collapsed(f"{root.real}/{text.partition(chr(0))[0]}"),), certain=False)
    if not text.startswith("~"):
        return _followed(text, root)
    expanded, certain = _home(text, root, home)
    located = _followed(expanded, root)
    paths = located.paths
    if not shell:
        literal = _followed(f"./{text}", root)
        paths, certain = _unique((*literal.paths, *paths)), certain and literal.certain
    return Located(paths, certain and located.certain)


def _home(text: str, root: Root, home: str) -> tuple[str, bool]:
    """A path that begins with a tilde, and whether that is certain."""
    user, _, rest = text[1:].partition("/")
    if not user or user == os.path.basename(home):
        return f"{home}/{rest}", True
    if user == "+":
        return f"{root.called}/{rest}", True
    if user == "root":
        return f"/root/{rest}", True
    return f"/home/{user}/{rest}", False  # the list of users is not read for this


def _followed(text: str, root: Root) -> Located:
    written = text if text.startswith("/") else f"{root.called}/{text}"
    paths = [collapsed(written)]
    start = written
    if written.startswith(root.called) and written[len(root.called) :][:1] in ("", "/"):
        start = root.real + written[len(root.called) :]
    left = deque(start.split("/"))
    here = ""
    links = 0
    while left:
        name = left.popleft()
        if name in ("", "."):
            continue
        if name == "..":
            here = here.rpartition("/")[0]
            continue
        here = f"{here}/{name}"
        if root.real.startswith(here) and root.real[len(here) :][:1] in ("", "/"):
            continue  # the root is resolved already
        target = _target(here, root)
        if target is None:
            if (opened := _OPEN_FILE.fullmatch(here)) and opened["number"] not in ("0", "1", "2"):
                return Located(_unique((*paths, here)), certain=False)
            continue
        links += 1
        if links > _LINKS:
            return Located(_unique((*paths, here)), certain=False)
        left.extendleft(reversed(target.split("/")))
        here = "" if target.startswith("/") else here.rpartition("/")[0]
        paths.append(collapsed("/".join((here or "/", *left))))
    paths.append(here or "/")
    return Located(_unique(paths))


def _target(path: str, root: Root) -> str | None:
    """Where a link leads; None if it is none."""
    if path.startswith("/proc/"):
        # These lead elsewhere for the process that will open the path than for this one.
        if found := _FOLDER_OF_PROCESS.fullmatch(path):
            return root.real if found["name"] == "cwd" else "/"
        if _OPEN_FILE.fullmatch(path):
            return None
    try:
        if not stat.S_ISLNK(os.lstat(path).st_mode):
            return None
        return os.readlink(path)
    except (OSError, ValueError):  # it is not there, or may not be looked at: then it is no link to follow
        return None


def _unique(paths: tuple[str, ...] | list[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(paths))


@lru_cache(maxsize=4096)
def folded(path: str) -> str:
    """The path in one case and one Unicode form, with no dots and blanks behind a name."""
    return _TRAILING.sub("", folded_text(path))


def folded_text(text: str) -> str:
    """One case and one Unicode form: what patterns that forbid are tried on."""
    if text.isascii():
        return text.lower()
    return normalize("NFC", normalize("NFD", text).casefold())
