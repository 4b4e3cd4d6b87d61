"""What is left of a log whose content was erased: seq, type, time, life and causes, and the laws that these can break."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import IllegalFact, UnreadableLog
from interlock.log.event import Event, decode_event, decode_fact, encode_event, encode_fact
from interlock.log.facts import (
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    ContentErased,
    Erased,
    Fact,
    Failure,
    RequestFailed,
    SessionCreated,
    SessionOpened,
    StepEnd,
    SubcallEnd,
    ToolDecided,
    TurnStart,
    UserMessage,
)
from interlock.log.laws import Breach, check
from interlock.log.packing import Run, erased, pack, unpack
from interlock.log.session import Session
from interlock.log.stores.memory.store import MemoryStore
from interlock.log.transfer import exported, import_export, is_export

from .fact_strategies import events as any_events
from .growing_logs import growing_logs
from .lawful_logs import (
    ANSWERED,
    BEGUN,
    CALLED,
    DONE,
    ENDED,
    NESTED,
    SENT,
    STARTED,
    STEP,
    TURN,
    WITH_CONTEXT,
    ask,
    called,
    result,
    written,
)

SAID = ContentErased("s", "er-1", "ops", "a request")


def tombstones(log: Sequence[Event], said: Fact = SAID) -> list[Event]:
    """What erasing this log leaves."""
    left = [msgspec.structs.replace(event, fact=Erased(event.type)) for event in log]
    return [*left, Event(len(left), 9000, left[-1].life, said)]


# One line


@given(any_events)
def test_a_tombstone_says_all_but_the_content(event: Event) -> None:
    tombstone = msgspec.structs.replace(event, fact=Erased(event.type))
    line = encode_event(tombstone)
    assert decode_event(line) == tombstone
    assert tombstone.type == event.type
    assert b'"erased":true' in line and b'"data"' not in line
    assert encode_fact(tombstone.fact) == b""
    assert decode_fact(event.type, b"", seq=event.seq) == tombstone.fact


@pytest.mark.parametrize("also", ['"data":{"turn":1}', '"erased":false', '"words":"left"'])
def test_a_line_that_is_half_a_tombstone_is_none(also: str) -> None:
    with pytest.raises(UnreadableLog):
        decode_event(f'{{"seq":3,"type":"turn/start","time":5,"life":1,"erased":true,{also}}}')


@given(st.lists(st.tuples(st.text(max_size=5), st.integers(-5, 900)), min_size=1, max_size=40))
def test_a_run_of_chunks_keeps_its_times_only(chunks: list[tuple[str, int]]) -> None:
    time, events = 10_000, []
    for seq, (text, tick) in enumerate(chunks, 7):
        time += tick
        events.append(Event(seq, time, 2, AssistantChunk(3, "text", 1, text, {"name": text})))
    left = erased(Run(7, len(events), time, 2, pack(events)))
    assert unpack(7, left.data) == [
        msgspec.structs.replace(event, fact=Erased(AssistantChunk.type)) for event in events
    ]
    assert erased(left) == left  # again


def test_a_run_that_cannot_be_read_goes_as_well() -> None:
    left = erased(Run(7, 3, 50, 2, b"\x98 CANARY"))
    assert unpack(7, left.data) == [Event(seq, 50, 2, Erased(AssistantChunk.type)) for seq in (7, 8, 9)]


def test_what_is_neither_a_run_nor_its_tombstones_is_refused() -> None:
    with pytest.raises(UnreadableLog, match="packed run"):
        unpack(7, msgspec.msgpack.encode([1, 2]))


# The whole log


@settings(deadline=None)
@given(growing_logs())
def test_whatever_was_lawful_is_lawful_when_it_is_erased(log: list[Event]) -> None:
    assert check(log) == []
    assert check(tombstones(log)) == []


@pytest.mark.parametrize("facts", [BEGUN, STEP, CALLED, NESTED, ENDED, WITH_CONTEXT], ids=len)
def test_a_log_may_be_erased_wherever_it_stands(facts: tuple[Fact, ...]) -> None:
    assert check(tombstones(written(facts))) == []


def with_line(log: list[Event], seq: int, **changes: object) -> list[Event]:
    return [
        msgspec.structs.replace(event, **changes) if event.seq == seq else event  # type: ignore[arg-type]
        for event in log
    ]


def then(facts: tuple[Fact, ...], *more: tuple[type[Fact], tuple[int, ...]]) -> list[Event]:
    """The tombstones of a lawful log, and of lines that no law lets follow."""
    log = written(facts)
    for cls, causes in more:
        log.append(Event(len(log), 2000, log[-1].life, Erased(cls.type), causes))
    return tombstones(log)


def gap(log: list[Event]) -> list[Event]:
    return [event for event in log if event.seq != 2]


BROKEN: list[tuple[str, str, int, Callable[[], list[Event]]]] = [
    ("a gap", "contiguous", 3, lambda: gap(tombstones(written(TURN)))),
    ("no creation", "created", 0, lambda: with_line(tombstones(written(TURN)), 0, fact=Erased("turn/start"))),
    ("two creations", "created", 2, lambda: then(BEGUN, (SessionCreated, ()))),
    ("a life that was", "lives", 3, lambda: with_line(tombstones(written(TURN)), 3, life=2)),
    ("an opening in a life that was", "lives", 2, lambda: then(BEGUN, (SessionOpened, ()))),
    ("a cause that is later", "causes", 3, lambda: with_line(tombstones(written(TURN)), 3, causes=(3,))),
    ("a span that is none", "causes", 3, lambda: with_line(tombstones(written(TURN)), 3, causes=((2, 1),))),
    ("a turn in a turn", "one turn", 4, lambda: then(TURN, (TurnStart, ()))),
    ("an end without a turn", "turn", 2, lambda: with_line(then(BEGUN, (TurnStart, ())), 2, fact=Erased("turn/end"))),
    ("an end of a turn in a step", "step closed", 6, lambda: with_line(then(STEP, (TurnStart, ())), 6, fact=Erased("turn/end"))),
    ("a step in a step", "one step", 6, lambda: with_line(then(STEP, (TurnStart, ())), 6, fact=Erased("step/start"))),
    ("a step without a turn", "turn", 2, lambda: with_line(then(BEGUN, (TurnStart, ())), 2, fact=Erased("step/start"))),
    ("an end without a step", "step", 4, lambda: then(TURN, (StepEnd, ()))),
    ("a claim in a step", "claim", 6, lambda: with_line(then(STEP, (StepEnd, ())), 6, fact=Erased("agent/inbox/claimed"))),
    ("a message without a turn", "turn", 2, lambda: then(BEGUN, (UserMessage, ()))),
    ("a request in a request", "request", 8, lambda: with_line(then(SENT, (StepEnd, ())), 8, fact=Erased("request/sent"))),
    ("a request after the answer", "request", 9, lambda: with_line(then(ANSWERED, (StepEnd, ())), 9, fact=Erased("request/sent"))),
    ("a chunk without a request", "request", 6, lambda: then(STEP, (AssistantChunk, ()))),
    ("a failure without a request", "request", 6, lambda: then(STEP, (RequestFailed, ()))),
    ("an answer without its chunks", "cites", 9, lambda: then(SENT, (AssistantChunk, ()), (AssistantMessage, ()))),
    ("a call that nobody asked for", "call", 6, lambda: with_line(then(STEP, (StepEnd, ())), 6, fact=Erased("tool/call"))),
    ("a verdict about no call", "call", 9, lambda: then(ANSWERED, (ToolDecided, ()))),
    ("a result of nothing", "call", 9, lambda: with_line(then(ANSWERED, (StepEnd, ())), 9, fact=Erased("tool/result"))),
    ("a result of no call", "result order", 10, lambda: with_line(tombstones(written(DONE)), 10, causes=(8,))),
    ("a result without a cause", "result order", 10, lambda: with_line(tombstones(written(DONE)), 10, causes=())),
    ("two results", "call", 11, lambda: with_line(tombstones(written(DONE)), 11, fact=Erased("tool/result"), causes=(9,))),
    ("a step without a result", "one result", 10, lambda: then(CALLED, (StepEnd, ()))),
    ("a message before a result", "adjacent", 10, lambda: then(CALLED, (UserMessage, ()))),
    ("an end of no nested call", "nested", 11, lambda: then(STARTED, (SubcallEnd, ()))),
    (
        "a nested call without an end",
        "nested",
        13,
        lambda: with_line(then((*NESTED,), (StepEnd, (9,)), (StepEnd, ())), 12, fact=Erased("tool/result")),
    ),
    ("an answer to nothing", "one answer", 10, lambda: then(CALLED, (ApprovalDecided, ()))),
    (
        "a question without an answer",
        "one answer",
        12,
        lambda: with_line(then((*CALLED, ask(9)), (StepEnd, (9,)), (StepEnd, ())), 11, fact=Erased("tool/result")),
    ),
    ("a line that has its content", "erased", 3, lambda: with_line(tombstones(written(TURN)), 3, fact=TurnStart(1))),
    ("a tombstone of an erasure", "erased", 4, lambda: tombstones(written(TURN), Erased(ContentErased.type))),
    ("nobody who has erased it", "erased", 4, lambda: tombstones(written(TURN))[:-1]),
    ("a line after the last", "erased", 5, lambda: [*tombstones(written(TURN)), Event(5, 9001, 1, Erased("turn/end"))]),
    ("one tombstone", "erased", 3, lambda: with_line(written(TURN), 3, fact=Erased("turn/start"))),
    ("an erasure of lines that are there", "erased", 4, lambda: [*written(TURN), Event(4, 9000, 1, SAID)]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("law", "seq", "broken"), [rest for _, *rest in BROKEN], ids=[name for name, *_ in BROKEN]
)
def test_every_breach_of_the_shape_is_found(law: str, seq: int, broken: Callable[[], list[Event]]) -> None:
    (breach,) = check(broken())
    assert (breach.seq, breach.law) == (seq, law)
    assert isinstance(breach, Breach) and str(breach)


@settings(deadline=None)
@given(growing_logs(), st.data())
def test_a_line_that_is_missing_or_doubled_is_found(log: list[Event], data: st.DataObject) -> None:
    left = tombstones(log)
    at = data.draw(st.integers(0, len(left) - 1))
    assert check(left[:at] + left[at + 1 :])
    assert check(left[: at + 1] + left[at:])


@pytest.mark.parametrize("fact", [Erased("turn/start"), SAID], ids=["tombstone", "erasure"])
async def test_nothing_of_it_can_be_appended(fact: Fact) -> None:
    """Only a store erases, and then the whole session."""
    session = Session("s", await MemoryStore().create("s"))
    for one in TURN:
        session.append(one)
    with pytest.raises(IllegalFact, match=r"\[erased\]"):
        session.append(fact)
    assert session.head == 3


# Moving it


@settings(deadline=None)
@given(growing_logs(most=30))
def test_an_erased_session_moves_as_any_other(log: list[Event]) -> None:
    left = tombstones(log)
    file = BytesIO(b"".join(exported(left)))
    assert is_export(file)

    async def moved() -> None:
        store = MemoryStore()
        made = await import_export(file, store=store, path=Path("x.jsonl"))
        journal = await store.open("s", readonly=True)
        assert (made.session_id, list(journal.read())) == ("s", left)
        assert (await store.list())[0].erased == 9000

    asyncio.run(moved())


def test_the_laws_of_the_shape_are_laws_of_whole_logs() -> None:
    """What is required of an erased log was required of it before: these are no log's tombstones."""
    assert check(tombstones(written((*CALLED, result(9, "c1"), called(1), result(11, "c2"))))) == []
    assert check(tombstones(written((*SENT, RequestFailed(7, Failure("X", "y")))))) == []
