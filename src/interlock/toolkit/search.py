"""Finding files by name and by content.

Lives here: the tools `glob` and `grep`, and their makers for one `Place`. Patterns are matched by the `regex` package,
which lets go of the interpreter lock meanwhile and keeps to a time limit: with `re`, one unlucky pattern on one line
would stop the whole program.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

from annotated_types import Ge, Le

from interlock.errors import ToolError
from interlock.intercept.signal import Signal
from interlock.toolkit.place import Place, Spot, shown, told
from interlock.toolkit.text import Report, is_binary, open_file, text_lines
from interlock.toolkit.threads import in_thread
from interlock.toolkit.walk import Pattern, Walk
from interlock.tools.call import ToolCall
from interlock.tools.context import ToolContext
from interlock.tools.definition import Tool, tool
from interlock.tools.subject import Subject

if TYPE_CHECKING:
    import regex

    from interlock.policy.rules.ruleset import RuleSet

_FILES = 1_000  # of one glob
_MATCHES = 200  # of one grep
_SEARCHED = 10_000  # bytes of a line that are searched
_SHOWN = 500  # characters of a line that are shown
_PATIENCE = 1.0  # seconds for one line

#: Whether a file is kept from being read, by its names from the root.
Kept: TypeAlias = Callable[[tuple[str, ...]], bool]


def make_glob(place: Place) -> Tool:
    @tool(effect="read", concurrency=place.reads, subject=Subject("read", "path", ".", place.fixed))
    async def glob(ctx: ToolContext, pattern: str, path: str = ".") -> str:
        """Find files by name, sorted by path.

        `*` stays within one name, `**` stands for any number of folders: `**/*.py`, `src/**/test_*.{ts,tsx}`. Links
        to folders are not followed, .git is left out.

        Args:
            pattern: A pattern for the path below `path`.
            path: The folder to look in.
        """

        def search() -> str:
            spot = place.spot(ctx.call, path)
            return _glob(spot, pattern, ctx.signal, _kept(ctx.call, spot.root))

        return await in_thread(search)

    return glob


def make_grep(place: Place) -> Tool:
    @tool(effect="read", concurrency=place.reads, subject=Subject("read", "path", ".", place.fixed))
    async def grep(
        ctx: ToolContext,
        pattern: str,
        path: str = ".",
        glob: str | None = None,
        ignore_case: bool = False,
        context: Annotated[int, Ge(0), Le(20)] = 0,
    ) -> str:
        """Search the lines of text files with a Python regular expression.

        A match is shown as `file:line:text`, lines around it as `file-line-text`. Binary files, links and .git are
        left out. Of a line, the first 10,000 bytes are searched.

        Args:
            pattern: The regular expression, matched anywhere in a line.
            path: The file to search, or the folder.
            glob: Search only files with such names, as `*.py`, or such paths below `path`, as `src/**/*.py`.
            ignore_case: Match upper and lower case alike.
            context: How many lines to show before and after a match.
        """

        def search() -> str:
            spot = place.spot(ctx.call, path)
            kept = _kept(ctx.call, spot.root)
            return _grep(spot, pattern, glob, ignore_case, context, ctx.signal, kept)

        return await in_thread(search)

    return grep


glob = make_glob(Place())
grep = make_grep(Place())


def _kept(call: ToolCall, root: Path) -> Kept:
    """Which files the permission rules keep from being read unasked: a search comes upon files that no call names."""
    if call.agent is None:
        return lambda parts: False
    rules: RuleSet = call.agent.policy.rules
    workspace = call.cwd or root
    return lambda parts: rules.unreadable(root.joinpath(*parts), workspace) is not None


def _glob(spot: Spot, pattern: str, stop: Signal, kept: Kept) -> str:
    report = Report()
    more = kept_back = 0
    walk = Walk(spot.root, spot.parts, Pattern(pattern), stop.is_set)
    with told("list", spot):
        for entry in walk:
            if entry.is_link and not _leads_to_a_file_inside(spot.root, entry.parts):
                continue
            if kept(entry.parts):
                kept_back += 1
                continue
            if more or len(report.lines) == _FILES or not report.add(shown(entry.parts)):
                more += 1
    notes = []
    if more:
        notes.append(f"{more:,} more files")
    elif not report.lines:
        notes.append(f"no file below {spot} matches {pattern}")
    return report.text("; ".join(notes + _left_out(walk.unread, kept_back, stop)))


def _leads_to_a_file_inside(root: Path, parts: tuple[str, ...]) -> bool:
    target = Path(os.path.realpath(root.joinpath(*parts)))
    return target.is_relative_to(root) and target.is_file()


def _grep(
    spot: Spot, pattern: str, names: str | None, ignore_case: bool, context: int, stop: Signal, kept: Kept
) -> str:
    import regex

    try:
        compiled = regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except (regex.error, RecursionError, ValueError) as error:
        raise ToolError(f"{pattern!r} is not a regular expression: {error}") from error
    search = _Search(compiled, context, stop)
    with told("search", spot):
        if spot.path.is_file():
            search.file(spot.root, spot.parts)
        else:
            wanted = Pattern("**" if names is None else names if "/" in names else f"**/{names}")
            walk = Walk(spot.root, spot.parts, wanted, stop.is_set)
            for entry in walk:
                if not entry.is_link and kept(entry.parts):
                    search.kept_back += 1
                elif not entry.is_link:
                    search.file(spot.root, entry.parts)
                if search.full:
                    break
            search.unread += walk.unread
    if search.full:
        notes = [f"stopped after {search.matches} matches: make the pattern or the path narrower"]
    elif search.matches == 0:
        notes = [f"no match in {search.files:,} files"]
    else:
        notes = []
    return search.report.text("; ".join(notes + _left_out(search.unread, search.kept_back, stop)))


def _left_out(unread: int, kept_back: int, stop: Signal) -> list[str]:
    notes = [f"could not be read: {unread:,}"] if unread else []
    if kept_back:
        notes.append(f"left out because of permission rules: {kept_back:,}")
    return [*notes, "stopped"] if stop.is_set() else notes


class _Search:
    """One search over many files, until the report is full."""

    def __init__(self, pattern: regex.Pattern[str], context: int, stop: Signal) -> None:
        self._pattern, self._context, self._stop = pattern, context, stop
        self.report = Report()
        self.matches = 0
        self.files = 0
        self.unread = 0
        self.kept_back = 0
        self.full = False

    def file(self, root: Path, parts: tuple[str, ...]) -> None:
        try:
            with open_file(root, parts) as file:
                if not is_binary(file.peek()):
                    self.files += 1
                    self._lines(file, shown(parts))
        except OSError:  # it may not be read, or has gone meanwhile
            self.unread += 1

    def _lines(self, file: BufferedReader, name: str) -> None:
        before: deque[str] = deque(maxlen=self._context)
        after = 0  # lines to show after a match
        last = 0  # the last line that was shown
        for number, line in enumerate(text_lines(file, _SEARCHED), 1):
            if self._stop.is_set():
                return
            found = self._find(line.text, name, number)
            if found is not None:
                first = number - len(before)
                if self._context and self.report.lines and (first > last + 1 or not last):
                    self._add("--")
                for text in before:
                    self._add(text)
                before.clear()
                self._add(f"{name}:{number}:{_excerpt(line.text, found)}")
                self.matches += 1
                after, last = self._context, number
            elif after:
                self._add(f"{name}-{number}-{_excerpt(line.text, 0)}")
                after, last = after - 1, number
            elif self._context:
                before.append(f"{name}-{number}-{_excerpt(line.text, 0)}")
            if self.full or self.matches == _MATCHES:
                self.full = True
                return

    def _add(self, line: str) -> None:
        self.full = self.full or not self.report.add(line)

    def _find(self, text: str, name: str, number: int) -> int | None:
        """Where the pattern matches in a line."""
        try:
            found = self._pattern.search(text, timeout=_PATIENCE)
        except (TimeoutError, MemoryError):
            raise ToolError(
                f"the pattern takes too much time or memory on {name}:{number}: "
                "make it simpler, without repeats inside repeats"
            ) from None
        return found.start() if found else None


def _excerpt(text: str, at: int) -> str:
    """A line as it is shown: what is around `at`, if it is long."""
    if len(text) <= _SHOWN:
        return text
    start = max(0, min(at - _SHOWN // 5, len(text) - _SHOWN))
    return (
        f"{'...' if start else ''}{text[start : start + _SHOWN]}{'...' if start + _SHOWN < len(text) else ''}"
    )
