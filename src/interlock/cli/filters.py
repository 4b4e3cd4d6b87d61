"""Options that say which sessions, or which lines of them, are meant.

Lives here: the options of `sessions` and `search`, and `where_of`, from what was typed to a `Where`.
"""

from __future__ import annotations

import re
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import typer

if TYPE_CHECKING:
    from interlock.log.stores.query import Where

_TIMES = "a date, a date and time, or how long ago: 2026-11-30, 2026-11-30T08:15, 3d, 12h, 30m."

Since = Annotated[str | None, typer.Option(metavar="TIME", help=f"Not before {_TIMES}", show_default=False)]
Until = Annotated[str | None, typer.Option(metavar="TIME", help="Before this time.", show_default=False)]
Folder = Annotated[
    str | None, typer.Option(metavar="DIR", help="Only of sessions in this folder.", show_default=False)
]
ToolName = Annotated[
    str | None, typer.Option("--tool", metavar="NAME", help="Only calls of this tool.", show_default=False)
]
Reason: TypeAlias = Literal["completed", "max-tokens", "blocked", "budget", "aborted", "error", "interrupted"]
EndedBy = Annotated[
    Reason | None,
    typer.Option("--reason", help="Only where a turn ended for this reason.", show_default=False),
]

_AGO = re.compile(r"(\d{1,6})([mhdw])")
_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def where_of(
    since: str | None, until: str | None, folder: str | None, tool: str | None, reason: str | None
) -> Where:
    """
    Raises:
        UsageError: a time that cannot be understood.
    """
    from interlock.log.stores.query import Where

    now = int(time.time() * 1000)
    return Where(
        since=moment_of("--since", since, now) if since is not None else None,
        until=moment_of("--until", until, now) if until is not None else None,
        cwd=folder_of(folder) if folder is not None else None,
        tool=tool,
        reason=reason,
    )


def folder_of(typed: str) -> str:
    """A folder as sessions have it on record."""
    return str(Path(typed).expanduser().absolute())


def moment_of(option: str, typed: str, now: int) -> int:
    """A point in time in the local zone, epoch milliseconds.

    Raises:
        UsageError: it is none.
    """
    from interlock.errors import UsageError

    ago = _AGO.fullmatch(typed.strip())
    if ago is not None:
        return now - int(ago[1]) * _MS[ago[2]]
    try:
        return int(datetime.fromisoformat(typed.strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{option} {typed!r} is no time. Give {_TIMES}") from None
