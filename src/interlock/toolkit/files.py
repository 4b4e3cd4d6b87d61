"""Reading, writing and editing files of the workspace.

Lives here: the tools `read`, `write` and `edit`, and their makers for one `Place`.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from difflib import get_close_matches
from io import BufferedReader
from itertools import islice
from typing import Annotated

from annotated_types import Ge

from interlock.errors import ToolError
from interlock.intercept.signal import Signal
from interlock.toolkit.place import Place, Spot, folder, printable, shown, told
from interlock.toolkit.replace import replace_text
from interlock.toolkit.text import Report, is_binary, open_file, require_regular, text_lines
from interlock.toolkit.threads import in_thread
from interlock.tools.context import ToolContext
from interlock.tools.definition import Tool, tool
from interlock.tools.subject import Subject

_LONGEST_LINE = 2_000  # bytes of a line that are shown
_LISTED = 500  # names of a folder
_EDITABLE = 16 << 20  # bytes of a file that is edited in memory


def make_read(place: Place) -> Tool:
    @tool(effect="read", concurrency=place.reads, subject=Subject("read", "path", base=place.fixed))
    async def read(
        ctx: ToolContext, path: str, offset: Annotated[int, Ge(1)] = 1, limit: Annotated[int, Ge(1)] = 2000
    ) -> str:
        """Read a text file, or list a folder.

        Each line comes as its number, a tab, and its text. A long file comes in parts: the last line then says with
        which offset to read on. Lines are cut at 2,000 bytes. Binary files are refused.

        Args:
            path: The file or folder, from the workspace or absolute.
            offset: The first line to read, from 1.
            limit: How many lines to read.
        """
        return await in_thread(lambda: _read(place.spot(ctx.call, path), offset, limit, ctx.signal))

    return read


def make_write(place: Place) -> Tool:
    @tool(effect="idempotent", concurrency=place.writes, subject=Subject("edit", "path", base=place.fixed))
    async def write(ctx: ToolContext, path: str, content: str) -> str:
        """Write a whole text file. What was there is replaced; missing folders are created.

        To change a part of a file, use edit.

        Args:
            path: The file, from the workspace or absolute.
            content: All of its text.
        """
        return await in_thread(lambda: _write(place.spot(ctx.call, path), content))

    return write


def make_edit(place: Place) -> Tool:
    @tool(effect="write", concurrency=place.writes, subject=Subject("edit", "path", base=place.fixed))
    async def edit(ctx: ToolContext, path: str, old: str, new: str, replace_all: bool = False) -> str:
        """Replace text in a file: `old`, which must occur exactly once, by `new`.

        Give `old` as it stands in the file, indentation included and without the line numbers that read shows, with
        enough lines around it to be unique. The line endings of the file are kept.

        Args:
            path: The file, from the workspace or absolute.
            old: The text to replace.
            new: The text to put in its place.
            replace_all: Replace every occurrence.
        """
        return await in_thread(lambda: _edit(place.spot(ctx.call, path), old, new, replace_all))

    return edit


read = make_read(Place())
write = make_write(Place())
edit = make_edit(Place())


def _read(spot: Spot, offset: int, limit: int, stop: Signal) -> str:
    with told("read", spot):
        try:
            file = _open(spot)
        except IsADirectoryError:
            return _listing(spot)
        with file:
            if is_binary(file.peek()):
                raise ToolError(f"{spot} is a binary file of {os.fstat(file.fileno()).st_size:,} bytes")
            report = Report()
            number = 0
            for number, line in enumerate(text_lines(file, _LONGEST_LINE), 1):
                if stop.is_set():
                    return report.text("stopped")
                if number < offset:
                    continue
                text = f"{number:>6}\t{line.text}{' [the line is longer]' if line.cut else ''}"
                if number == offset + limit or not report.add(text):
                    return report.text(f"the file goes on: read it with offset={number}")
    if number == 0:
        return "[the file is empty]"
    if number < offset:
        raise ToolError(f"{spot} ends at line {number}, before offset={offset}")
    return report.text()


def _open(spot: Spot) -> BufferedReader:
    try:
        return open_file(spot.root, spot.parts)
    except FileNotFoundError as error:
        raise ToolError(f"there is no {spot}{_near(spot)}") from error


def _listing(spot: Spot) -> str:
    with folder(spot.root, spot.parts) as descriptor, os.scandir(descriptor) as entries:
        names = sorted(printable(f"{entry.name}/" if entry.is_dir() else entry.name) for entry in entries)
    if not names:
        return f"[the folder {spot} is empty]"
    more = len(names) - _LISTED
    return "\n".join([f"{spot}/ has:", *names[:_LISTED]] + ([f"[{more:,} more names]"] if more > 0 else []))


def _near(spot: Spot) -> str:
    """What to say of the surroundings of a missing file."""
    *parents, name = spot.parts or (".",)
    for depth in range(len(parents), -1, -1):
        with suppress(OSError), folder(spot.root, parents[:depth]) as descriptor:
            if depth < len(parents):
                return f": there is no folder {shown(parents[: depth + 1])}"
            with os.scandir(descriptor) as entries:
                near = get_close_matches(name, [entry.name for entry in islice(entries, 10_000)])
            return (
                f". Did you mean {' or '.join(shown([*parents, other]) for other in near)}?" if near else ""
            )
    return ""


def _write(spot: Spot, content: str) -> str:
    if not spot.parts:
        raise ToolError("the workspace itself is a folder: name a file in it")
    data = content.encode()
    *parents, name = spot.parts
    with told("write", spot), folder(spot.root, parents, create=True) as parent:
        before = replace_file(parent, name, data)
    if before is None:
        return f"created {spot}: {len(data):,} bytes"
    return f"wrote {spot}: {len(data):,} bytes, was {before:,}"


def replace_file(parent: int, name: str, data: bytes) -> int | None:
    """Put `data` in place of the file, whole or not at all, and keep its mode and owner. The old size, if any."""
    try:
        # Opened for writing, though only looked at: a file that may not be written must not be replaced either.
        existing = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
    except FileNotFoundError:
        old = None
    else:
        try:
            old = os.fstat(existing)
        finally:
            os.close(existing)
        require_regular(old, name)
    temporary = f".interlock-{secrets.token_hex(8)}.tmp"
    created = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666, dir_fd=parent)
    try:
        with os.fdopen(created, "wb") as file:
            if old is not None:
                with suppress(PermissionError):  # only root may give a file away
                    os.fchown(created, old.st_uid, old.st_gid)
                os.fchmod(created, stat.S_IMODE(old.st_mode))
            file.write(data)
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
    return None if old is None else old.st_size


def _edit(spot: Spot, old: str, new: str, replace_all: bool) -> str:
    if not old:
        raise ToolError("old is empty: say which text to replace, or use write for a whole file")
    with told("edit", spot), _open(spot) as file:
        data = file.read(_EDITABLE + 1)
    if len(data) > _EDITABLE:
        raise ToolError(f"{spot} is larger than {_EDITABLE:,} bytes: edit it with a command")
    if is_binary(data):
        raise ToolError(f"{spot} is a binary file")
    text = data.decode(errors="surrogateescape")  # bytes that are not UTF-8 come back as they were
    edited, count = replace_text(text, old, new, replace_all=replace_all, name=str(spot))
    *parents, name = spot.parts
    with told("edit", spot), folder(spot.root, parents) as parent:
        replace_file(parent, name, edited.encode(errors="surrogateescape"))
    return f"edited {spot}: replaced {'once' if count == 1 else f'{count:,} times'}"
