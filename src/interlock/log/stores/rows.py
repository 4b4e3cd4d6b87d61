"""Lines as rows of a database: what the SQL stores have in common.

Lives here: `Row`, `row_of` (a line by itself), `packed` (rows to be written: chunks in runs, big texts taken out) and
`events_of` (what rows that were read hold).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeAlias, cast

import msgspec

from interlock.errors import UnreadableLog
from interlock.log.artifacts import LIMIT, DataPath, put_back, take_out
from interlock.log.event import Event, decode_fact, encode_fact, encode_json
from interlock.log.facts import AssistantChunk, Span
from interlock.log.packing import Run, packable, runs, unpack

ENVELOPE = 64  # bytes, about, that a line weighs beside its data

_DIGEST = re.compile(rb"[0-9a-f]{64}")

_decode_causes = msgspec.json.Decoder(tuple[Span, ...]).decode
decode_paths = msgspec.json.Decoder(tuple[DataPath, ...]).decode


class Row(NamedTuple):
    """A row of the table of events."""

    session: int
    first: int  # its seq; of a packed run, the seq of the first line
    lines: int | None  # in a packed run; None for a line by itself
    type: str
    time: int  # epoch ms; of a run, the time of the last line
    life: int
    causes: bytes | None  # JSON
    ignorable: bool
    data: bytes  # JSON of the fact, or a packed run
    artifacts: bytes | None  # JSON: the paths in data where a reference stands for a text

    @property
    def last(self) -> int:
        """The seq of its last line."""
        return self.first + (self.lines or 1) - 1


Item: TypeAlias = Row | Event  # a row, or a chunk that is still to be packed


def item_of(session: int, event: Event) -> tuple[Item, int]:
    """What is kept of a line until it is written, and about how many bytes that is.

    Raises:
        ValueError: the fact is not JSON.
    """
    fact = event.fact
    if type(fact) is AssistantChunk and packable(event):
        if fact.value is not None:
            row_of(session, event)  # it is packed later, when it is too late to refuse it
        return event, len(fact.text) + ENVELOPE
    row = row_of(session, event)
    return row, len(row.data) + ENVELOPE


def row_of(session: int, event: Event) -> Row:
    """The row of a line by itself.

    Raises:
        ValueError: the fact is not JSON.
    """
    fact = event.fact
    try:
        data = encode_fact(fact)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"line {event.seq}, {event.type}: {error}") from error
    causes = encode_json(event.causes) if event.causes else None
    type_ = fact.type or event.type  # only a fact that stands for another has none of its own
    return Row(session, event.seq, None, type_, event.time, event.life, causes, event.ignorable, data, None)


def packed(session: int, items: Sequence[Item], artifacts: dict[str, bytes]) -> Iterator[Row]:
    """The rows to be written; big texts are put into `artifacts`, by their digest."""
    for kind, some in groupby(items, type):
        if kind is Event:
            for run in runs(cast("list[Event]", list(some))):
                yield _row_of_run(session, run)
            continue
        for row in cast("Iterator[Row]", some):
            taken = take_out(row.data) if len(row.data) > LIMIT else None
            if taken is None:
                yield row
            else:
                artifacts.update(taken.artifacts)
                yield row._replace(data=taken.data, artifacts=encode_json(taken.paths))


def _row_of_run(session: int, run: Run) -> Row:
    return Row(
        session, run.seq, run.count, AssistantChunk.type, run.time, run.life, None, False, run.data, None
    )


StoredRow: TypeAlias = tuple[int, int | None, bytes, bytes | None, str, int, int, bytes | None, bool | int]
"""first, lines, data, artifacts, type, time, life, causes and ignorable of a row."""


def events_of(
    rows: Iterable[StoredRow], first: int, last: int, fetch: Callable[[str], bytes | None]
) -> Iterator[Event]:
    """The lines from `first` to `last` (inclusive) that these rows hold; it ends where one is missing.

    Args:
        fetch: gives an artifact by its digest, None when it is missing.

    Raises:
        UnknownFact, UnreadableLog: one cannot be read here.
    """
    for seq, lines, data, paths, type_, time, life, causes, ignorable in rows:
        end = seq + (lines or 1)
        if first > last or not seq <= first < end:  # there may be more rows than are asked for
            return
        if lines is not None:
            yield from unpack(seq, data)[first - seq : last + 1 - seq]
        else:
            yield event_of(seq, data, paths, type_, time, life, causes, ignorable, fetch)
        first = end


def event_of(
    seq: int,
    data: bytes,
    paths: bytes | None,
    type_: str,
    time: int,
    life: int,
    causes: bytes | None,
    ignorable: int,
    fetch: Callable[[str], bytes | None],
) -> Event:
    """The event of a row by itself; `fetch` gives an artifact by its digest, None when it is missing.

    Raises:
        UnknownFact, UnreadableLog: it cannot be read here.
    """
    try:
        if paths is not None:
            data = put_back(data, decode_paths(paths), partial(_artifact, seq, fetch))
        spans = _decode_causes(causes) if causes is not None else ()
    except msgspec.MsgspecError as error:
        raise UnreadableLog(seq, f"{type_}: {error}") from None
    fact = decode_fact(type_, data, seq=seq, ignorable=bool(ignorable))
    return Event(seq, time, life, fact, spans, bool(ignorable))


def _artifact(seq: int, fetch: Callable[[str], bytes | None], digest: str) -> bytes:
    if (found := fetch(digest)) is None:
        raise UnreadableLog(seq, f"its artifact {digest} is missing")
    return found


def digests_in(data: bytes, paths: bytes) -> list[str]:
    """The artifacts that a row refers to."""
    found: list[str] = []

    def note(digest: str) -> bytes:
        found.append(digest)
        return b""

    put_back(data, decode_paths(paths), note)
    return found


def needed_by(data: bytes, paths: bytes) -> list[str]:
    """The artifacts that a row refers to; of one that is broken, all that it may refer to."""
    try:
        return digests_in(data, paths)
    except (msgspec.MsgspecError, KeyError, IndexError, TypeError, ValueError):
        return [found.decode() for found in _DIGEST.findall(data)]
