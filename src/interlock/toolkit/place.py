"""Where the file tools may go: one folder, the workspace.

Lives here: `Place` (which folder a set of tools works in, and what a call claims there), `Spot` (one path in it) and
`folder`, which opens what was checked. A path is resolved first, links, `..` and links to nothing included, and
refused when it ends outside. It is opened from the root's descriptor, name by name, without following a link: a link
that is swapped in after the check leads nowhere.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from interlock.errors import ToolError
from interlock.tools.call import ToolCall
from interlock.tools.claims import Claims, Concurrency, Mode

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Spot:
    """A path in the workspace: `root` and `path` are resolved, and `path` is `root` or below it."""

    root: Path
    path: Path

    @property
    def parts(self) -> tuple[str, ...]:
        """The names that lead from the root to it."""
        return self.path.relative_to(self.root).parts

    def __str__(self) -> str:
        """The path as the model is told it: from the root, with `/`."""
        return shown(self.parts) or "."


class Place:
    """The workspace of a set of tools: a fixed folder, or the one that each call has."""

    def __init__(self, root: str | Path | None = None) -> None:
        self._root = None if root is None else Path(root).absolute()

    @property
    def fixed(self) -> Path | None:
        """The folder, if it is not that of each call."""
        return self._root

    def root(self, call: ToolCall) -> Path:
        """The resolved folder.

        Raises:
            ToolError: NO_WORKSPACE: there is none, or it has gone.
        """
        given = self._root or call.cwd
        if given is None:
            raise ToolError(
                f"{call.name} needs a workspace, and this agent has none: create it with Agent(..., cwd=...)",
                code="NO_WORKSPACE",
            )
        try:
            root = given.resolve(strict=True)
        except (OSError, RuntimeError) as error:  # Python 3.11 raises RuntimeError for a loop of links
            raise ToolError(
                f"the workspace {printable(given)} cannot be used: {reason(error)}", code="NO_WORKSPACE"
            ) from error
        if not root.is_dir():
            raise ToolError(f"the workspace {printable(given)} is not a folder", code="NO_WORKSPACE")
        return root

    def spot(self, call: ToolCall, path: str) -> Spot:
        """
        Raises:
            ToolError: OUTSIDE_WORKSPACE, NO_WORKSPACE, or a text that cannot be a path.
        """
        root = self.root(call)
        try:
            resolved = Path(os.path.realpath(root / path))
        except ValueError as error:  # a NUL
            raise ToolError(f"{path!r} is not a path: {error}") from error
        if not resolved.is_relative_to(root):
            plain = os.path.normpath(root / path) == str(resolved)
            leads = "" if plain else f" (it leads to {printable(resolved)})"
            raise ToolError(
                f"{path}{leads} is outside the workspace {printable(root)}", code="OUTSIDE_WORKSPACE"
            )
        return Spot(root, resolved)

    def reads(self, call: ToolCall) -> Mode:
        return self._claims(call, write=False)

    def writes(self, call: ToolCall) -> Mode:
        return self._claims(call, write=True)

    def _claims(self, call: ToolCall, *, write: bool) -> Mode:
        try:
            key = printable(self.spot(call, call.arguments.get("path", ".")).path)
        except ToolError:  # the body will refuse it; until then nothing is known about it
            return Concurrency.EXCLUSIVE
        return Claims(writes=[key]) if write else Claims(reads=[key])


def shown(parts: Sequence[str]) -> str:
    return printable("/".join(parts))


def printable(path: str | Path) -> str:
    """The path as text: bytes of a file name that are not UTF-8 are U+FFFD, since JSON cannot hold them."""
    return os.fsencode(path).decode(errors="replace")


@contextmanager
def folder(root: Path, parts: Sequence[str], *, create: bool = False) -> Iterator[int]:
    """A descriptor of the folder that `parts` lead to from `root`. With `create`, what is missing is made.

    Raises:
        OSError: missing, not a folder, or a link by now.
    """
    descriptor = os.open(root, _FOLDER)
    try:
        for part in parts:
            if create:
                try:
                    os.mkdir(part, dir_fd=descriptor)
                except FileExistsError:
                    pass
            inner = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def told(action: str, spot: Spot) -> Iterator[None]:
    """Tell the model what the system said, in place of a traceback."""
    try:
        yield
    except OSError as error:
        raise ToolError(f"cannot {action} {spot}: {reason(error)}") from error


def reason(error: BaseException) -> str:
    """What the system said, without its number and without a path of its own."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
