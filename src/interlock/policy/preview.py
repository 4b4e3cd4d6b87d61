"""What a call would do, as lines for a person who decides about it.

Lives here: `preview`. Of a change to a file it shows the difference, of a command the command, of everything else the
arguments. The file is looked at without following a link out of the workspace, and nothing of it, nor of what a model
wrote, can steer a screen: every line is made printable here.
"""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from interlock.policy.printable import printable
from interlock.tools.subject import Subject

Kind: TypeAlias = Literal["plain", "added", "removed", "place", "note", "command"]

_SHOWN = 2_000  # characters of one argument
_LINES = 200  # of a difference
_LONGEST = 400  # characters of one line of it
_FILE = 1 << 20  # bytes of a file that is compared
_COMPARED = 5_000  # lines of it
_CONTEXT = 3  # lines around a difference


class Line(NamedTuple):
    kind: Kind
    text: str  # printable


def preview(arguments: Mapping[str, Any], subject: Subject | None, cwd: Path | None) -> list[Line]:
    """What a call with these arguments would do. It may read a file: call it in a thread."""
    given = arguments
    target = subject.of(given) if subject is not None else None
    if subject is None or target is None:
        return _arguments(given)
    if subject.kind == "command":
        rest = {name: value for name, value in given.items() if name != subject.argument}
        return [*_command(target), *_arguments(rest)]
    if subject.kind == "edit":
        difference = _difference(cwd, target, given)
        if difference is not None:
            note, lines = difference
            return [Line("plain", f"{subject.argument}: {printable(target)}{note}"), *lines]
    return _arguments(given)


def _arguments(given: Mapping[str, Any]) -> list[Line]:
    lines = []
    for name, value in given.items():
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
        if len(text) > _SHOWN:
            text = f"{text[:_SHOWN]}… ({len(text):,} characters)"
        first, *more = printable(text).split("\n")
        lines.append(Line("plain", f"{printable(name)}: {first}"))
        lines += [Line("plain", f"    {line}") for line in more]
    return lines


def _command(command: str) -> list[Line]:
    first, *more = printable(command).split("\n")
    return [Line("command", f"$ {first}"), *[Line("command", f"  {line}") for line in more]]


# A change to a file


def _difference(cwd: Path | None, target: str, given: Mapping[str, Any]) -> tuple[str, list[Line]] | None:
    """What to say of the file, and how it would differ; None where that cannot be told."""
    content, old, new = given.get("content"), given.get("old"), given.get("new")
    replaces = isinstance(old, str) and isinstance(new, str) and old != ""
    if not isinstance(content, str) and not replaces:
        return None
    found = _read(cwd, target)
    if found is None:
        return None
    before, exists = found
    if isinstance(content, str):
        note = "" if exists else " (new file)"
        if before == content and exists:
            return f"{note} (unchanged)", []
        return _limited(note, before, content)
    assert isinstance(old, str) and isinstance(new, str)
    if not exists:
        return " (there is no such file)", _replaced(old, new)
    count = before.count(old)
    if count == 0:
        return " (the text is not in the file as it stands)", _replaced(old, new)
    if count > 1 and given.get("replace_all") is not True:
        return f" (the text is there {count} times)", _replaced(old, new)
    return _limited("" if count == 1 else f" ({count} places)", before, before.replace(old, new))


def _replaced(old: str, new: str) -> list[Line]:
    """Without the file: what goes, and what comes in its place."""
    gone = [Line("removed", f"-{line}") for line in _shown(old.split("\n"))]
    came = [Line("added", f"+{line}") for line in _shown(new.split("\n"))]
    return _cut([*gone, *came])


def _limited(note: str, before: str, after: str) -> tuple[str, list[Line]] | None:
    old, new = before.split("\n") if before else [], after.split("\n") if after else []
    if max(len(old), len(new)) > _COMPARED:
        return None
    lines: list[Line] = []
    for text in list(difflib.unified_diff(old, new, n=_CONTEXT, lineterm=""))[2:]:
        kind: Kind = "plain"
        match text[:1]:
            case "+":
                kind = "added"
            case "-":
                kind = "removed"
            case "@":
                kind = "place"
            case _:
                pass
        lines.append(Line(kind, _shown([text])[0]))
    return note, _cut(lines)


def _shown(lines: Sequence[str]) -> list[str]:
    return [
        printable(line)
        if len(line) <= _LONGEST
        else f"{printable(line[:_LONGEST])}… ({len(line):,} characters)"
        for line in lines
    ]


def _cut(lines: list[Line]) -> list[Line]:
    if len(lines) <= _LINES:
        return lines
    left = len(lines) - _LINES
    return [*lines[:_LINES], Line("note", f"… {left:,} more lines are not shown")]


def _read(cwd: Path | None, target: str) -> tuple[str, bool] | None:
    """The text of a file of the workspace, and whether it is there; None if it cannot or must not be looked at."""
    if cwd is None:
        return None
    root = os.path.realpath(cwd)
    try:
        real = os.path.realpath(os.path.join(root, target))
    except ValueError:  # a NUL
        return None
    if not real.startswith(root.rstrip("/") + "/"):
        return None
    try:
        descriptor = os.open(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return "", False
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(_FILE + 1)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if len(data) > _FILE or b"\0" in data:
        return None
    return data.decode(errors="replace"), True
