"""Taking what a session in memory holds out of it, and where it stands.

Lives here: `standing` and `blank`, for `MemoryStore`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from interlock.log.event import Event, encode_fact
from interlock.log.facts import ContentErased, Erased, SessionCreated, TurnEnd, TurnStart
from interlock.log.packing import Run, erased
from interlock.log.stores.gone import Gone, Standing
from interlock.log.stores.listing import About

if TYPE_CHECKING:
    from interlock.log.stores.memory.store import Lines


def standing(lines: Lines, asks: int) -> Standing:
    """Of a session that has a line."""
    last = lines.chunks[-1] if lines.chunks else lines.rows[-1]
    turn = next((row for row in reversed(lines.rows) if _type(row) in (TurnStart.type, TurnEnd.type)), None)
    first = lines.rows[0]
    created = first.fact if isinstance(first, Event) else None
    parent = created.parent if isinstance(created, SessionCreated) else None
    return Standing(
        lines.session_id,
        lines.head,
        last.time,
        _size(lines)[1],
        turn is not None and _type(turn) == TurnStart.type,
        asks,
        len(lines.letters),
        (parent.session, *parent.above) if parent is not None else (),
        is_erased(lines),
    )


def is_erased(lines: Lines) -> bool:
    last = lines.rows[-1] if lines.rows and not lines.chunks else None
    return isinstance(last, Event) and type(last.fact) is ContentErased


def what_goes(lines: Lines, asks: int) -> Gone:
    """What is told of a session when it is erased or removed."""
    events, size = _size(lines) if not is_erased(lines) else (0, 0)
    return Gone(lines.session_id, events, size, letters=len(lines.letters), questions=asks)


def blank(lines: Lines, erasure: ContentErased, now: int) -> None:
    """Put tombstones in the place of the lines, and say so in one more."""
    rows: list[Event | Run] = [
        erased(row) if isinstance(row, Run) else msgspec.structs.replace(row, fact=Erased(row.type))
        for row in [*lines.rows, *lines.chunks]
    ]
    life = rows[-1].life
    lines.head += 1
    lines.rows = [*rows, Event(lines.head, now, life, erasure)]
    lines.chunks = []
    lines.about = About()
    lines.letters = ()


def _type(row: Event | Run) -> str:
    return row.type if isinstance(row, Event) else ""


def _size(lines: Lines) -> tuple[int, int]:
    """How many lines hold something, and about how many bytes."""
    events = size = 0
    for row in [*lines.rows, *lines.chunks]:
        if isinstance(row, Run):
            events, size = events + row.count, size + len(row.data)
        elif type(row.fact) is not Erased:
            events, size = events + 1, size + _weight(row)
    return events, size


def _weight(event: Event) -> int:
    try:
        return len(encode_fact(event.fact))
    except (TypeError, ValueError, OverflowError):
        return 0  # it was never to be written
