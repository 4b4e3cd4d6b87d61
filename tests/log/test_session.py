"""One append-only log: how lines get in, who is told, and who may read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from threading import Thread
from typing import Any

import msgspec
import pytest

from brittle_store import BrittleStore
from interlock.errors import (
    DuplicateSession,
    IllegalFact,
    ReadOnlySession,
    SessionBusy,
    SessionClosed,
    SessionError,
    StoreFailed,
    UnknownFact,
    UnknownSession,
    WrongThread,
)
from interlock.log.event import Event, decode_event
from interlock.log.facts import (
    FORMAT,
    Fact,
    InboxSpliced,
    ObserverFailed,
    SessionCreated,
    SessionOpened,
    TurnEnd,
    TurnStart,
    Unknown,
    register_fact,
)
from interlock.log.messages import Message
from interlock.log.reasons import Completed
from interlock.log.session import Session, create_session, new_session_id, open_session
from interlock.log.stores.memory.store import MemoryStore
from interlock.testing import assert_laws

pytestmark = pytest.mark.virtual


@register_fact
class Noted(Fact, frozen=True):
    """A plugin noted something."""

    type = "test/noted"
    text: str


def end(turn: int) -> TurnEnd:
    return TurnEnd(turn, Completed(), 0)


def texts(session: Session) -> list[str]:
    return [fact.text for fact in session.facts(Noted)]


async def new() -> Session:
    return await create_session(MemoryStore())


async def stored(*facts: Fact, store: MemoryStore | None = None) -> MemoryStore:
    """A store with a session "s" of these facts, written past every law."""
    store = store or MemoryStore()
    journal = await store.create("s")
    journal.write([Event(seq, 0, 1, fact, ignorable=type(fact) is Unknown) for seq, fact in enumerate(facts)])
    await journal.close()
    return store


BEGIN = (SessionCreated(FORMAT, "s"), SessionOpened(1, "new"))


# Appending


async def test_what_was_appended_is_ordered_and_visible_at_once() -> None:
    """D-22."""
    session = await new()
    (first,) = session.append(Noted("a"))
    second, third = session.append(Noted("b"), Noted("c"))
    assert [first.seq, second.seq, third.seq] == [2, 3, 4]
    assert (session.head, len(session.events)) == (4, 5)
    assert texts(session) == ["a", "b", "c"]
    assert session.events[-1] == third
    assert session.append() == ()


async def test_a_line_knows_its_time_and_its_life() -> None:
    store, times = MemoryStore(), iter(range(100, 200))
    session = await create_session(store, "s", clock=lambda: next(times))
    session.append(Noted("a"))
    session.append(Noted("b"), Noted("c"))  # one append, one time
    assert [(event.time, event.life) for event in session.events] == [
        (100, 1),
        (100, 1),
        (101, 1),
        (102, 1),
        (102, 1),
    ]
    await session.close()
    session = await open_session("s", store=store, clock=lambda: next(times))
    assert [(event.type, event.time, event.life) for event in session.events[5:]] == [
        ("session/opened", 103, 2)
    ]
    assert session.now() == 104


async def test_an_append_is_all_or_none() -> None:
    """The lines before the bad one are not there either, in no fold and in no observer's ears."""
    session = await new()
    session.append(TurnStart(1))
    told: list[Event] = []
    session.observe(told.append)
    with pytest.raises(IllegalFact) as caught:
        session.append(Noted("a"), end(1), TurnStart(2), TurnStart(3))
    assert (caught.value.law, caught.value.seq) == ("one turn", 6)
    assert (session.head, session.state.turns, session.open, told) == (2, 1, True, [])
    assert_laws(session)
    session.append(Noted("b"), end(1))
    assert [event.seq for event in told] == [3, 4]


async def test_a_line_that_a_law_forbids_changes_nothing() -> None:
    session = await new()
    with pytest.raises(IllegalFact) as caught:
        session.append(end(1))
    assert (caught.value.law, caught.value.seq, session.head) == ("turn", 2, 1)
    assert str(caught.value).startswith("[turn] turn/end:")


@pytest.mark.parametrize("facts", [1, 2])
async def test_a_write_that_fails_changes_nothing(facts: int) -> None:
    """D-22, for one line and for several."""
    store = BrittleStore()
    session = await create_session(store)
    told: list[Event] = []
    session.observe(told.append)
    store.break_at_write(TurnStart)
    with pytest.raises(StoreFailed):
        session.append(*[TurnStart(1), Noted("a")][:facts])
    assert (session.head, session.open, told) == (1, False, [])
    with pytest.raises(StoreFailed):  # from now on nothing is written, not even what would be lawful
        session.append(Noted("b"))
    assert isinstance(session.failure, StoreFailed)


async def test_a_barrier_that_fails_is_told_to_all_who_wait() -> None:
    store = BrittleStore()
    session = await create_session(store)
    session.append(Noted("a"))
    store.break_at_barrier(1)
    for outcome in await asyncio.gather(session.barrier(), session.barrier(), return_exceptions=True):
        assert isinstance(outcome, StoreFailed)


async def test_given_causes_are_kept_and_checked() -> None:
    """A plugin says what its line rests on; a line cannot rest on a later one."""
    session = await new()
    (event,) = session.append(Noted("a"), causes=(0, (0, 1)))
    assert event.causes == (0, (0, 1))
    for causes in ((3,), (-1,), ((2, 1),), ((0, 3),)):
        with pytest.raises(IllegalFact) as caught:
            session.append(Noted("b"), causes=causes)
        assert caught.value.law == "causes"
    assert_laws(session)


async def test_a_log_begins_with_its_creation() -> None:
    session = Session("s", await MemoryStore().create("s"))
    with pytest.raises(IllegalFact) as caught:
        session.append(TurnStart(1))
    assert (caught.value.law, caught.value.seq) == ("created", 0)


async def test_a_closed_session_takes_nothing_and_can_be_read() -> None:
    session = await new()
    session.append(Noted("a"))
    await session.close()
    await session.close()
    with pytest.raises(SessionClosed):
        session.append(Noted("b"))
    assert texts(session) == ["a"]
    assert session.closed


async def test_a_session_belongs_to_one_thread() -> None:
    session = await new()
    caught: list[BaseException] = []

    def append() -> None:
        try:
            session.append(Noted("a"))
        except WrongThread as error:
            caught.append(error)

    thread = Thread(target=append)
    thread.start()
    thread.join()
    assert len(caught) == 1
    assert session.head == 1


# Reading


async def test_events_are_a_sequence() -> None:
    session = await new()
    session.append(*[Noted(str(n)) for n in range(5)])
    events = session.events
    everything = list(events)
    assert len(events) == 7
    assert events[2:5] == tuple(everything[2:5])
    assert events[-2:] == tuple(everything[-2:])
    assert events[::2] == tuple(everything[::2])
    assert events[::-1] == tuple(reversed(everything))
    assert events[5:2] == events[99:] == ()
    assert (events[0], events[-1]) == (everything[0], everything[-1])
    for i in (7, -8):
        with pytest.raises(IndexError):
            events[i]
    assert everything[3] in events


async def test_facts_are_found_by_type() -> None:
    session = await new()
    session.append(TurnStart(1), Noted("a"), end(1))
    assert [type(fact) for fact in session.facts()] == [
        SessionCreated,
        SessionOpened,
        TurnStart,
        Noted,
        TurnEnd,
    ]
    assert session.facts(TurnStart, TurnEnd) == [TurnStart(1), end(1)]


# Observers


async def test_observers_hear_what_they_asked_for_after_it_was_committed() -> None:
    """Law 2."""
    session = await new()
    heard: list[tuple[str, int, int]] = []

    def listener(name: str) -> Callable[[Event], None]:
        return lambda event: heard.append((name, event.seq, session.head))

    session.observe(listener("all"))
    session.observe(listener("turns"), TurnStart, TurnEnd)
    session.append(TurnStart(1))
    session.append(Noted("a"), end(1))
    assert heard == [("turns", 2, 2), ("all", 2, 2), ("all", 3, 4), ("turns", 4, 4), ("all", 4, 4)]


async def test_an_observer_that_was_taken_back_hears_nothing() -> None:
    session = await new()
    heard: list[Event] = []
    dispose = session.observe(heard.append, Noted, TurnStart)
    session.append(Noted("a"))
    dispose()
    dispose()
    session.append(Noted("b"), TurnStart(1))
    assert len(heard) == 1


async def test_an_append_from_an_observer_commits_at_once_and_is_told_in_order() -> None:
    """D-21, UW-04: it has its seq; only the telling is queued."""
    session = await new()
    heard: list[list[int]] = [[], []]

    def add(event: Event) -> None:
        heard[0].append(event.seq)
        if event.seq in (2, 4):
            before = session.head
            (made,) = session.append(Noted("more"))
            assert made.seq == before + 1 == session.head

    session.observe(add)
    session.observe(lambda event: heard[1].append(event.seq))
    session.append(Noted("a"))
    session.append(Noted("b"), Noted("c"))
    assert heard == [[2, 3, 4, 5, 6], [2, 3, 4, 5, 6]]


async def test_a_long_chain_of_appends_from_observers_does_not_nest() -> None:
    """UW-04: it is a queue, not a recursion."""
    session = await new()

    def add(event: Event) -> None:
        if event.seq < 5000:
            session.append(Noted("x"))

    session.observe(add)
    session.append(Noted("x"))
    assert session.head == 5000


async def test_an_observer_that_raises_is_contained_and_on_record() -> None:
    """Law 2, TL-14: it breaks neither the append nor the other observers."""
    session = await new()
    heard: list[Event] = []

    def broken(event: Event) -> None:
        raise RuntimeError("no " * 1000)

    session.observe(broken, Noted, who="plugin x")
    session.observe(heard.append, Noted)
    (event,) = session.append(Noted("a"))
    assert heard == [event]
    (failed,) = session.facts(ObserverFailed)
    assert (failed.point, failed.who, failed.at) == ("session", "plugin x", event.seq)
    assert failed.error.startswith("RuntimeError: no no")
    assert len(failed.error) <= 500
    assert_laws(session)


async def test_observers_that_fail_on_everything_do_not_go_on_for_ever() -> None:
    """EVENTS: at most one line per listener and event; a failure to hear of a failure writes none."""
    session = await new()

    def broken(event: Event) -> None:
        raise RuntimeError("always")

    session.observe(broken, who="a")
    session.observe(broken, who="b")
    session.append(Noted("x"))
    assert [failed.who for failed in session.facts(ObserverFailed)] == ["a", "b"]


async def test_an_observer_that_raises_something_unspeakable_is_contained() -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    session = await new()

    def broken(event: Event) -> None:
        raise Unspeakable

    session.observe(broken, Noted)
    session.append(Noted("x"))
    assert "Unspeakable" in session.facts(ObserverFailed)[0].error


async def test_a_failure_that_cannot_be_put_on_record_breaks_no_append() -> None:
    """Law 2, D-22: the line was written; that nothing more can be is told to whoever writes next."""
    store = BrittleStore()
    session = await create_session(store)

    def broken(event: Event) -> None:
        raise RuntimeError("no")

    session.observe(broken)
    store.break_at_write(ObserverFailed)
    (event,) = session.append(Noted("a"))
    assert (event.seq, session.head) == (2, 2)
    with pytest.raises(StoreFailed):
        session.append(Noted("b"))
    with pytest.raises(StoreFailed):
        await session.barrier()


async def test_an_observer_may_close_the_session() -> None:
    session = await new()
    closing: list[asyncio.Task[None]] = []
    session.observe(lambda event: closing.append(asyncio.ensure_future(session.close())))
    session.append(Noted("a"))
    await closing[0]
    assert session.closed


# Following


async def taken(events: AsyncIterator[Event], n: int) -> list[int]:
    shown = []
    async for event in events:
        shown.append(event.seq)
        if len(shown) == n:
            break
    return shown


async def test_a_follower_sees_what_was_and_what_comes_until_the_session_is_closed() -> None:
    session = await new()
    session.append(Noted("before"))
    shown: list[int] = []

    async def follow() -> None:
        async for event in session.follow():
            shown.append(event.seq)  # noqa: PERF401  # looked at while it goes on

    follower = asyncio.ensure_future(follow())
    await asyncio.sleep(1)
    assert shown == [0, 1, 2]
    session.append(Noted("now"), Noted("and now"))
    await asyncio.sleep(1)
    assert shown == [0, 1, 2, 3, 4]
    session.append(Noted("last"))
    await session.close()
    await follower
    assert shown == [0, 1, 2, 3, 4, 5]


async def test_a_follower_may_begin_anywhere() -> None:
    session = await new()
    session.append(*[Noted(str(n)) for n in range(600)])
    assert await taken(session.follow(after=598), 3) == [599, 600, 601]
    assert await taken(session.follow(after=-1), 602) == list(range(602))


async def test_followers_are_cursors_and_delay_nobody() -> None:
    """A slow one loses nothing, and what it has not read is in no queue."""
    session = await new()
    slow = session.follow()
    assert (await anext(slow)).seq == 0
    for n in range(1000):
        session.append(Noted(str(n)))
    assert await taken(slow, 1001) == list(range(1, 1002))


async def test_a_follower_that_is_cancelled_leaves_nothing_behind() -> None:
    session = await new()
    follower = asyncio.ensure_future(taken(session.follow(), 99))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    follower.cancel()
    with pytest.raises(asyncio.CancelledError):
        await follower
    assert session._followers == set()
    session.append(Noted("a"))


async def test_a_follower_of_a_failed_store_ends_with_its_error() -> None:
    """D-22: what was written is given first."""
    store = BrittleStore()
    session = await create_session(store)
    shown: list[int] = []

    async def follow() -> None:
        async for event in session.follow():
            shown.append(event.seq)  # noqa: PERF401  # what came before the error is kept

    follower = asyncio.ensure_future(follow())
    await asyncio.sleep(1)
    store.break_at_barrier(1)
    session.append(Noted("a"))
    with pytest.raises(StoreFailed):
        await session.barrier()
    with pytest.raises(StoreFailed):
        await follower
    assert shown == [0, 1, 2]


# Read-only


async def test_a_read_only_session_writes_nothing_and_can_be_opened_beside_its_writer() -> None:
    """EVENTS: reading or following writes nothing, not even a new life, and mends nothing."""
    store = MemoryStore()
    writer = await create_session(store, "s")
    writer.append(TurnStart(1))
    reader = await open_session("s", store=store, readonly=True)
    assert (reader.head, reader.open, reader.state.life) == (2, True, 1)
    with pytest.raises(ReadOnlySession):
        reader.append(Noted("a"))
    await reader.close()
    assert writer.head == 2
    with pytest.raises(SessionBusy):
        await open_session("s", store=store)


async def test_a_read_only_follower_sees_what_its_writer_writes() -> None:
    store = MemoryStore()
    writer = await create_session(store, "s")
    reader = await open_session("s", store=store, readonly=True)
    following = asyncio.ensure_future(taken(reader.follow(), 4))
    await asyncio.sleep(1)
    writer.append(Noted("a"))
    await asyncio.sleep(1)
    writer.append(Noted("b"))
    assert await following == [0, 1, 2, 3]


# Opening


async def test_each_opening_is_a_life() -> None:
    store = MemoryStore()
    await (await create_session(store, "s", cwd="/work", agent="helper")).close()
    for life in (2, 3):
        session = await open_session("s", store=store)
        assert session.facts(SessionOpened)[-1].life == life
        await session.close()
    assert session.state.created is not None
    assert (session.state.created.cwd, session.state.created.agent) == ("/work", "helper")
    assert session.state.created.format == FORMAT


async def test_an_id_is_made_once() -> None:
    store = MemoryStore()
    await create_session(store, "s")
    with pytest.raises(DuplicateSession):
        await create_session(store, "s")
    assert new_session_id(0).startswith("19700101-000000-")


async def test_an_id_that_is_taken_is_not_made_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a thousand sessions that are made in a second, two have the same random part, one time in thirty."""
    drawn = iter(["one", "one", "two"])
    monkeypatch.setattr("interlock.log.session.new_session_id", lambda now: next(drawn))
    store = MemoryStore()
    first, second = await create_session(store), await create_session(store)
    assert (first.id, second.id) == ("one", "two")
    assert len({new_session_id(0) for _ in range(50)}) == 50


async def test_a_session_that_is_not_there_cannot_be_opened() -> None:
    with pytest.raises(UnknownSession):
        await open_session("s", store=MemoryStore())


async def test_a_session_that_was_lost_before_its_first_line_is_not_there() -> None:
    """Its process died between the making and the first write."""
    store = await stored()
    for _ in range(2):
        with pytest.raises(UnknownSession):
            await open_session("s", store=store)


async def test_a_newer_major_format_is_refused_and_says_what_to_do() -> None:
    store = await stored(SessionCreated("2.0", "s"), SessionOpened(1, "new"))
    for readonly in (True, False):
        with pytest.raises(SessionError, match=r"format 2\.0.*newer interlock"):
            await open_session("s", store=store, readonly=readonly)


async def test_a_newer_minor_format_is_read() -> None:
    """What is new in it is refused line by line, if it may not be skipped."""
    store = await stored(SessionCreated("1.9", "s"), SessionOpened(1, "new"))
    assert (await open_session("s", store=store)).state.life == 2


async def test_an_unknown_line_is_refused_by_name_unless_it_may_be_skipped() -> None:
    """Law 10, D-24: on every reading; a log is never half-read."""

    class Unreadable(MemoryStore):
        """Gives its lines as a disk would: as text."""

        async def open(self, session_id: str, *, readonly: bool = False, checkpoint: bool = False) -> Any:
            journal = await super().open(session_id, readonly=readonly)
            lines = b'{"seq":2,"type":"plugin/gone","time":0,"life":1,"data":{"x":1}%s}'

            class Journal:
                durable, failure, head, checkpoint = False, None, 2, None

                def read(self, first: int = 0, last: int | None = None) -> Any:
                    yield from journal.read(first, 1)
                    yield decode_event(lines % ignorable)

                async def close(self) -> None:
                    await journal.close()

            return Journal()

    store = await stored(*BEGIN, store=Unreadable())
    ignorable = b""
    for readonly in (True, False, False):
        with pytest.raises(UnknownFact) as caught:
            await open_session("s", store=store, readonly=readonly)
        assert (caught.value.type, caught.value.seq) == ("plugin/gone", 2)
    ignorable = b',"ignorable":true'
    session = await open_session("s", store=store, readonly=True)
    assert session.events[2].fact == Unknown("plugin/gone", {"x": 1})
    assert session.events[2].type == "plugin/gone"


async def test_a_log_that_breaks_a_law_is_refused_with_the_place() -> None:
    store = await stored(*BEGIN, TurnStart(1), TurnStart(2))
    for _ in range(2):  # the attempt does not keep the session
        with pytest.raises(IllegalFact) as caught:
            await open_session("s", store=store)
        assert (caught.value.law, caught.value.seq) == ("one turn", 3)


async def test_a_plugins_facts_are_lines_like_any_other() -> None:
    store = MemoryStore()
    session = await create_session(store, "s")
    session.append(Noted("mine"))
    await session.close()
    assert texts(await open_session("s", store=store, readonly=True)) == ["mine"]


async def test_messages_in_facts_are_shared_and_frozen() -> None:
    session = await new()
    session.append(InboxSpliced("next-turn", 0, inserted=(Message.user("go", id="m"),)))
    (spliced,) = session.facts(InboxSpliced)
    with pytest.raises(AttributeError):
        spliced.inserted[0].id = "n"  # type: ignore[misc]  # that is the point
    assert msgspec.structs.replace(spliced, start=1) != spliced
