"""Packed runs lose nothing: neither where a token ended nor when it came."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import UnreadableLog
from interlock.log.event import Event
from interlock.log.facts import AssistantChunk, TurnStart
from interlock.log.packing import MAX_RUN, pack, packable, runs, unpack

from .fact_strategies import json_values, times

text_with_halves = st.text(st.characters(), max_size=8)  # lone surrogates too
chunk = st.builds(
    AssistantChunk,
    sent=st.sampled_from([5, 9]),
    kind=st.sampled_from(["text", "reasoning", "call", "usage", "finish"]),
    block=st.integers(0, 3),
    text=text_with_halves,
    value=st.none() | json_values,
)


def _lines(facts: list[AssistantChunk], first: int, moments: list[int], lives: list[int]) -> list[Event]:
    return [
        Event(first + i, time, life, fact)
        for i, (fact, time, life) in enumerate(zip(facts, moments, lives, strict=True))
    ]


@st.composite
def streams(draw: st.DrawFn) -> list[Event]:
    facts = draw(st.lists(chunk, min_size=1, max_size=40))
    n = len(facts)
    moments = draw(st.lists(times, min_size=n, max_size=n))
    lives = draw(st.lists(st.integers(1, 2), min_size=n, max_size=n))
    return _lines(facts, draw(st.integers(0, 10**6)), moments, lives)


@settings(deadline=None)
@given(streams())
def test_runs_hold_the_same_lines_in_the_same_order(events: list[Event]) -> None:
    made = list(runs(events))
    assert [event for run in made for event in unpack(run.seq, run.data)] == events
    at = events[0].seq
    for run in made:
        lines = unpack(run.seq, run.data)
        assert (run.seq, run.count, run.time, run.life) == (at, len(lines), lines[-1].time, lines[0].life)
        at += run.count


@given(st.lists(chunk, min_size=1, max_size=10), times)
def test_one_run_survives_packing(facts: list[AssistantChunk], time: int) -> None:
    events = [
        Event(i, time + i, 1, msgspec.structs.replace(fact, sent=5)) for i, fact in enumerate(facts, start=3)
    ]
    assert unpack(3, pack(events)) == events


def _stream(n: int, **changes: Any) -> list[Event]:
    return [
        Event(i, 1_000 + i // 3, 1, AssistantChunk(2, "text", text=" token", **changes)) for i in range(n)
    ]


def test_a_chunk_costs_about_two_bytes_beside_its_text() -> None:
    events = _stream(20_000)
    size = sum(len(run.data) for run in runs(events))
    assert size < 20_000 * (len(" token") + 2.5)


def test_a_run_is_bounded_so_that_one_line_of_it_is_cheap_to_read() -> None:
    assert [run.count for run in runs(_stream(2 * MAX_RUN + 3))] == [MAX_RUN, MAX_RUN, 3]


def test_a_run_ends_with_its_request_and_with_its_life() -> None:
    events = [
        Event(0, 1, 1, AssistantChunk(2, "text", text="a")),
        Event(1, 1, 1, AssistantChunk(2, "text", text="b")),
        Event(2, 1, 1, AssistantChunk(7, "text", text="c")),
        Event(3, 1, 2, AssistantChunk(7, "text", text="d")),
    ]
    assert [(run.seq, run.count) for run in runs(events)] == [(0, 2), (2, 1), (3, 1)]
    assert list(runs([])) == []


def test_only_a_plain_chunk_is_packable() -> None:
    chunk = AssistantChunk(2, "text", text="a")
    assert packable(Event(0, 1, 1, chunk))
    assert not packable(Event(0, 1, 1, chunk, causes=(3,)))
    assert not packable(Event(0, 1, 1, chunk, ignorable=True))
    assert not packable(Event(0, 1, 1, TurnStart(1)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        pack(_stream(3))[:-1],
        msgspec.msgpack.encode([1, 2, 3, [0, 0], [(1, "text", 0)], [1, 1], b"ab", {}]),
    ],
    ids=["nothing", "another form", "cut off", "columns of unequal length"],
)
def test_bytes_that_are_no_run_are_refused_by_the_line_they_stand_for(data: bytes) -> None:
    with pytest.raises(UnreadableLog) as caught:
        unpack(41, data)
    assert caught.value.seq == 41
