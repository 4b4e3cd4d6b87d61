"""What all readers of transcripts share.

Lives here: `Reader`, one for each format, told line after line; `About`, what it learns of the whole; `Malformed`,
raised at a line that cannot be of its format; times, tokens, and how a picture is named in a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Protocol

from interlock.bridges.transcripts.assembling import Assembler
from interlock.bridges.transcripts.lines import Line
from interlock.log.strictjson import MAX_INTEGER


class Malformed(ValueError):
    """What is wrong with a line."""


@dataclass(slots=True)
class About:
    """What a transcript says of itself; `started` in epoch ms."""

    cwd: str | None = None
    version: str | None = None
    session: str | None = None
    started: int | None = None


class Reader(Protocol):
    program: ClassVar[str]  # as people call it
    about: About

    def take(self, line: Line) -> None:
        """Tell the assembler what the line says.

        Raises:
            Malformed: it is no such line.
        """

    def over(self) -> None:
        """There are no more lines."""


def moment(stamp: object) -> int | None:
    """Epoch milliseconds of an ISO 8601 time; None if it is none."""
    if not isinstance(stamp, str):
        return None
    try:
        when = datetime.fromisoformat(stamp)
        return max(0, int((when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() * 1000))
    except (ValueError, OverflowError):
        return None


def count(value: object) -> int | None:
    """The value if it is a number of things."""
    fits = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INTEGER
    return value if fits else None  # type: ignore[return-value]  # `fits` says that it is an int


def tokens(value: object) -> int:
    return count(value) or 0


def words(value: object) -> str | None:
    """The value if it is text with something in it."""
    return value if isinstance(value, str) and value else None


def required(value: dict[str, Any], key: str, what: str) -> Any:
    if value.get(key) is None:
        raise Malformed(f"{what} has no {key!r}")
    return value[key]


def picture(to: Assembler, kind: str, block: object, data: object, media: object = None) -> str:
    """Keep what is no text, and name it in the place where it was."""
    to.keep(kind, block)
    to.lossy[f"{kind} beside its message"] += 1
    size = f", {len(data):,} characters" if isinstance(data, str) else ""
    named = f": {media}" if isinstance(media, str) else ""
    return f"[{kind}{named}{size}]"
