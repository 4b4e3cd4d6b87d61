"""Runs of stream chunks, packed: a model streams a line for each token, and most of such a line is its envelope.

Lives here: `runs`, which cuts chunk lines into runs, `pack` / `unpack`, the bytes of one run, and `erased`, what is left
of them when the content is erased. Lossless: where one chunk ends and when it came are kept, in about two bytes a chunk.
Every store packs here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, cast

import msgspec

from interlock.errors import UnreadableLog
from interlock.log.event import Event
from interlock.log.facts import AssistantChunk, ChunkKind, Erased

MAX_RUN = 256  # lines in one run: what has to be unpacked to read one of them


class Run(msgspec.Struct, frozen=True, gc=False):
    """Consecutive chunks of one request, as one row."""

    seq: int  # of its first line
    count: int
    time: int  # of its last line, epoch ms
    life: int
    data: bytes


class _Columns(msgspec.Struct, array_like=True, frozen=True):
    """A run by columns. The text is kept as bytes because a model may stream half of a surrogate pair."""

    life: int
    sent: int
    time: int  # of the first line
    ticks: list[int]  # ms since the line before
    kinds: list[tuple[int, ChunkKind, int]]  # so many lines of this kind and block
    lengths: list[int]  # characters
    text: bytes
    values: dict[int, Any]  # of the few lines that have one, by their place in the run


class _Times(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What is left of a run whose content was erased."""

    life: int
    time: int  # of the first line
    ticks: list[int]  # ms since the line before


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_Columns).decode
_decode_times = msgspec.msgpack.Decoder(_Times).decode
_kind_and_block = attrgetter("kind", "block")


def packable(event: Event) -> bool:
    """Whether a run can hold the event: a chunk that says nothing beside its fact and its time."""
    return type(event.fact) is AssistantChunk and not event.causes and not event.ignorable


def runs(events: Sequence[Event]) -> Iterator[Run]:
    """Packable events with contiguous seqs as runs, in order."""
    start, end = 0, len(events)
    while start < end:
        sent, life = cast("AssistantChunk", events[start].fact).sent, events[start].life
        stop = start + 1
        limit = min(end, start + MAX_RUN)
        while stop < limit:
            fact: Any = events[stop].fact
            if fact.sent != sent or events[stop].life != life:
                break
            stop += 1
        yield Run(events[start].seq, stop - start, events[stop - 1].time, life, pack(events[start:stop]))
        start = stop


def pack(events: Sequence[Event]) -> bytes:
    """The bytes of one run: packable events with contiguous seqs, of one request and one life."""
    facts = cast("list[AssistantChunk]", [event.fact for event in events])
    times = [event.time for event in events]
    return _encode(
        _Columns(
            events[0].life,
            facts[0].sent,
            times[0],
            [time - before for before, time in zip([times[0], *times], times, strict=False)],
            [(len(list(lines)), *key) for key, lines in groupby(facts, _kind_and_block)],
            [len(fact.text) for fact in facts],
            "".join([fact.text for fact in facts]).encode("utf-8", "surrogatepass"),
            {i: fact.value for i, fact in enumerate(facts) if fact.value is not None},
        )
    )


def unpack(first: int, data: bytes) -> list[Event]:
    """The events of a run whose first line is `first`.

    Raises:
        UnreadableLog: these are not the bytes of a run.
    """
    try:
        columns = _decode(data)
    except msgspec.MsgspecError as error:
        if (tombstones := _unpack_erased(first, data)) is not None:
            return tombstones
        raise _no_run(first, error) from None
    try:
        text = columns.text.decode("utf-8", "surrogatepass")
        kinds = [key for count, *key in columns.kinds for _ in range(count)]
        lines = list(zip(kinds, columns.ticks, columns.lengths, strict=True))
    except ValueError as error:
        raise _no_run(first, error) from None
    sent, life, time, values = columns.sent, columns.life, columns.time, columns.values
    events = []
    at = 0
    for i, ((kind, block), tick, length) in enumerate(lines):
        time += tick
        fact = AssistantChunk(sent, kind, block, text[at : at + length], values.get(i))  # type: ignore[arg-type]
        at += length
        events.append(Event(first + i, time, life, fact))
    return events


def erased(run: Run) -> Run:
    """The run without its content: how many lines there were, and when each came. It may be erased already."""
    try:
        columns = _decode(run.data)
        left = _Times(run.life, columns.time, columns.ticks)
    except msgspec.MsgspecError:
        try:
            left = _decode_times(run.data)
        except msgspec.MsgspecError:  # what is broken goes as well; its lines are as old as the last of them
            left = _Times(run.life, run.time, [0] * run.count)
    if len(left.ticks) != run.count:
        left = _Times(run.life, run.time, [0] * run.count)
    return msgspec.structs.replace(run, data=_encode(left))


def _unpack_erased(first: int, data: bytes) -> list[Event] | None:
    try:
        left = _decode_times(data)
    except msgspec.MsgspecError:
        return None
    time, events = left.time, []
    for seq, tick in enumerate(left.ticks, first):
        time += tick
        events.append(Event(seq, time, left.life, Erased(AssistantChunk.type)))
    return events


def _no_run(first: int, error: Exception) -> UnreadableLog:
    return UnreadableLog(first, f"a packed run of assistant/chunk: {error}")
