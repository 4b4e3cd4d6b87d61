r"""Which paths the pattern of a `Read(...)` or `Edit(...)` rule covers, in the manner of gitignore.

Lives here: `PathPattern`, and `path_pattern`, which makes it of the text of a rule.

`*` and `?` stay within one name, `**` is any number of folders, `[...]` one character, `\` takes a character as it is. A
pattern without a slash is a name at any depth; what covers a folder covers everything in it. It begins where its first
characters say: `//` at the root of the file system, `~/` in the home folder, `/` in the folder of the file that holds
the rule, everything else in the workspace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from interlock.policy.paths.globs import Segment, may_meet, segments_of
from interlock.policy.paths.located import Root, folded, folded_text


class BadPattern(ValueError):
    """A pattern that cannot be one; the text says why."""


@dataclass(frozen=True, slots=True)
class PathPattern:
    """A compiled pattern.

    start: the folder that it begins in; None: the workspace. wide: it forbids: names are compared folded, dots and blanks
    behind a name do not count, and it is tried in every folder of the workspace. bare: one name at any depth, which for a wide one is anywhere at all.
    """

    text: str
    wide: bool
    start: tuple[str, ...] | None
    bare: bool
    everything: bool  # all that is below its start
    regex: re.Pattern[str]
    segments: tuple[Segment, ...]

    @property
    def any_depth(self) -> bool:
        """Whether it may cover something in every folder of the workspace."""
        return self.start is None and self.segments[:1] == (Segment.ANY,)

    def covers(self, path: str, roots: tuple[str, ...]) -> bool:
        """Whether it covers an absolute path: a folded one, and folded roots, if it is wide.

        Args:
            roots: the names of the workspace's folders.
        """
        inside = False
        for root in roots if self.start is None else self.start:
            below = _below(path, root)
            if below is None:
                continue
            inside = True
            if self.everything if not below else self.regex.match(below) is not None:
                return True
        if self.wide and self.bare and not inside and self.start is None:
            return self.regex.match(path[1:]) is not None
        return False

    def may_cover(self, path: str, roots: tuple[str, ...], *, glob: bool, below: bool) -> bool:
        """Whether it may cover what a path stands for; False only if it cannot. For a wide pattern.

        Args:
            path: absolute and folded. glob: it is a shell pattern. below: what is in the folder counts as well.
        """
        there = segments_of(path) if glob else _literal(path)
        if below:
            there = (*there, Segment.ANY)
        starts = roots if self.start is None else self.start
        if any(may_meet(there, (*_literal(start), *self.segments)) for start in starts):
            return True
        if self.start is None and self.bare and all(_below(path, root) is None for root in roots):
            return may_meet(there, self.segments)
        return False


def path_pattern(text: str, *, anchor: Path, home: Path, wide: bool) -> PathPattern:
    """
    Raises:
        BadPattern: it is no pattern.
    """
    written = text.strip()
    if written.startswith("!"):
        raise BadPattern("a rule cannot be negated with `!`: put what is meant into another list")
    rest = written
    start: tuple[str, ...] | None = None
    anchored = True
    if rest.startswith("//"):
        start, rest = ("/",), rest.lstrip("/")
    elif rest == "~" or rest.startswith("~/"):
        start, rest = Root.at(home).names, rest[1:].lstrip("/")
    elif rest.startswith("/"):
        start, rest = Root.at(anchor).names, rest.lstrip("/")
    else:
        dotted = rest.startswith("./")
        while rest.startswith("./"):
            rest = rest[2:].lstrip("/")
        anchored = "/" in rest.rstrip("/") or (dotted and not wide)
    folder = rest.endswith("/")
    names = [name for name in rest.split("/") if name not in ("", ".")]
    if ".." in names:
        raise BadPattern("a pattern cannot go up with `..`: write //path for a place outside, or ~/path")
    if wide:
        names = [_folded_name(name) for name in names]
        start = None if start is None else tuple([folded_text(name) for name in start])
        if start is None and len(names) == 2 and names[1] == "**" and names[0] != "**":
            anchored = False  # `dir/**` forbids at any depth
    try:
        segments = tuple([Segment.ANY if name == "**" else Segment.of(name) for name in names])
    except ValueError as error:
        raise BadPattern(f"{written!r} is not a pattern: {error}") from None
    if wide:
        segments = tuple([segment.trailed() for segment in segments])
    if not anchored:
        segments = (Segment.ANY, *segments)
    return PathPattern(
        text=written,
        wide=wide,
        start=start,
        bare=not anchored and len(names) == 1,
        everything=all(name == "**" for name in names) or (not anchored and names == ["*"]),
        regex=_regex(segments, folder=folder, wide=wide),
        segments=segments,
    )


def _folded_name(name: str) -> str:
    """A name of a wide pattern, without dots and blanks behind it, unless they belong to a wildcard."""
    return folded_text(name) if any(c in name for c in "*?[\\") else folded(name)


def _literal(path: str) -> tuple[Segment, ...]:
    return tuple([Segment.literal(name) for name in path.split("/") if name])


def _regex(segments: tuple[Segment, ...], *, folder: bool, wide: bool) -> re.Pattern[str]:
    """For a path relative to the start, without a leading slash; it is not empty.

    Runs of names between `**` are looked for from the left, each at its first place (an atomic group): a later place
    can never do better, and so no pattern takes long.
    """
    open_end = bool(segments) and segments[-1].any_folders
    made: list[str] = []
    run: list[str] = []
    floating = False

    def close() -> None:
        nonlocal run
        if run:
            skip = "(?:[^/]+/)*?" if floating else ""
            made.append(f"{'/' if made else ''}(?>{skip}{'/'.join(run)}(?=/|\\Z))")
            run = []

    for segment in segments:
        if segment.any_folders:
            close()
            floating = True
        else:
            run.append(segment.regex())
    close()
    if not made:
        end = ".*\\Z"
    elif (open_end or folder) and not wide:
        end = "/.+\\Z"  # what is in the folder, not the folder
    else:
        end = "(?:/.*)?\\Z"
    return re.compile("".join(made) + end, re.DOTALL)


def _below(path: str, root: str) -> str | None:
    """The path relative to a folder; empty for the folder itself, None outside."""
    if root == "/":
        return path[1:]
    if not path.startswith(root):
        return None
    rest = path[len(root) :]
    if not rest:
        return ""
    return rest[1:] if rest[0] == "/" else None
