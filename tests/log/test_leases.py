"""Who may write to a session: one at a time, and the one who took it last."""

# ruff: noqa: ASYNC110  # what is waited for is in a database

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.errors import LeaseLost, SessionBusy, StoreFailed, UnknownSession, UsageError
from interlock.log.event import Event
from interlock.log.facts import SessionOpened, TurnEnd, TurnStart
from interlock.log.forking import fork_session
from interlock.log.reasons import Completed
from interlock.log.session import create_session, open_session
from interlock.log.stores.buffered import BufferedJournal

from .leased import LeasedStore, Place, postgres_place, renew, sqlite_place
from .store_lines import T0, lines, steps

PLACES = ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(scope="session", params=PLACES)
def new_place(request: pytest.FixtureRequest) -> Callable[[Path], Place]:
    """Makes a place of one kind, in a folder if it needs one."""
    if request.param == "sqlite":
        return sqlite_place
    server = request.getfixturevalue("postgres")
    return lambda folder: postgres_place(server)


@pytest.fixture
def place(new_place: Callable[[Path], Place], tmp_path: Path) -> Place:
    return new_place(tmp_path)


async def made(store: LeasedStore, session: str = "s", n: int = 3) -> BufferedJournal[int]:
    """A session with some lines on disk, open for writing."""
    journal = await store.create(session)
    journal.write(steps(n))
    await journal.barrier()
    return journal


# Taking and giving back


async def test_who_has_opened_it_keeps_all_others_out_until_it_is_closed(place: Place) -> None:
    async with place.store() as one, place.store() as other:
        journal = await made(one)
        for store in (one, other):
            with pytest.raises(SessionBusy, match="driven by this process"):
                await store.open("s")
        await journal.close()
        second = await other.open("s")
        with pytest.raises(SessionBusy, match="driven by this process"):
            await one.open("s")
        await second.close()
        third = await one.open("s")
        assert (journal.fence, second.fence, third.fence) == (1, 2, 3)


async def test_a_store_that_is_closed_gives_all_back(place: Place) -> None:
    async with place.store() as store:
        journals = [await made(store, name) for name in "abc"]
        await journals[0].close()
        assert place.leases() == {"b": 1, "c": 1}
    assert place.leases() == {}
    async with place.store() as store:
        assert [(await store.open(name)).fence for name in "abc"] == [2, 2, 2]


async def test_of_two_that_open_at_once_one_has_it(place: Place) -> None:
    async with place.store() as one, place.store() as other:
        await (await made(one)).close()
        opened = await asyncio.gather(
            one.open("s"), one.open("s"), other.open("s"), other.open("s"), return_exceptions=True
        )
        assert sorted(type(result).__name__ for result in opened)[1:] == ["SessionBusy"] * 3
        assert place.fences() == {"s": 2}


@pytest.mark.parametrize("how", ["open", "create"])
async def test_who_stops_waiting_for_a_session_does_not_keep_it(place: Place, how: str) -> None:
    async with place.store() as store, place.store() as other:
        await (await made(store)).close()
        opening = asyncio.create_task(store.open("s") if how == "open" else store.create("t"))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with asyncio.timeout(30):
            while True:
                with suppress(SessionBusy, UnknownSession):
                    await other.open("s" if how == "open" else "t")
                    break
                await asyncio.sleep(0)


async def test_a_session_that_cannot_be_opened_is_not_kept(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with place.store() as store, place.store() as other:
        await (await made(store)).close()

        def broken(*_: object) -> None:
            raise RuntimeError("it cannot be read")

        with monkeypatch.context() as patched:
            patched.setattr(type(store), "_found", broken)
            with pytest.raises(RuntimeError):
                await store.open("s")
        assert (await other.open("s")).head == 2


async def test_reading_takes_nothing(place: Place) -> None:
    async with place.store() as store, place.store() as other:
        session = await create_session(store, "s")
        session.append(TurnStart(1))
        await session.barrier()
        before = place.fences(), place.leases(), place.expires()
        reader = await other.open("s", readonly=True)
        assert reader.fence is None
        await reader.refresh()
        assert len(list(reader.read())) == 3
        await reader.close()
        await other.list()
        await other.search("anything")
        await other.approvals()
        assert (place.fences(), place.leases(), place.expires()) == before


async def test_the_log_has_the_number_of_each_opening(place: Place) -> None:
    async with place.store() as store:
        session = await create_session(store, "s")
        await session.close()
        session = await open_session("s", store=store)
        assert [fact.lease for fact in session.facts(SessionOpened)] == [1, 2]


async def test_a_fork_counts_by_itself_and_its_parent_may_be_driven(place: Place) -> None:
    async with place.store() as store, place.store() as other:
        session = await create_session(store, "s")
        await session.close()
        session = await open_session("s", store=store)
        session.append(TurnStart(1))
        session.append(TurnEnd(1, Completed(), 0))
        await session.barrier()
        fork = await fork_session("s", store=other, new_id="f")
        assert [fact.lease for fact in fork.facts(SessionOpened)] == [1, 2, 1]
        assert place.leases() == {"s": 2, "f": 1}


@pytest.mark.parametrize("term", [0, -1, 0.05, float("nan")])
def test_a_term_that_cannot_be_kept_is_refused(place: Place, term: float) -> None:
    with pytest.raises(UsageError, match=r"at least 0\.1 seconds"):
        place.store(term)


# Losing it


async def test_who_lost_it_writes_nothing_and_is_told_who_has_it(place: Place) -> None:
    """And only that session fails."""
    first, second = place.store(), place.store()
    journal, mine = await made(first), await made(first, "mine")
    place.expire()
    rival = await second.open("s")
    assert (journal.fence, rival.fence, rival.head) == (1, 2, 2)
    # Both are in one transaction.
    journal.write(steps(2, first=3))
    mine.write(steps(2, first=3))
    results = await asyncio.gather(journal.barrier(), mine.barrier(), return_exceptions=True)
    assert results[1] is None
    for raised in (results[0], journal.failure):
        assert isinstance(raised, LeaseLost)
        assert (raised.session_id, raised.holder) == ("s", "this process")
        assert str(raised).startswith("Session s was taken over by this process: nothing more is written")
    with pytest.raises(LeaseLost):
        journal.write(steps(1, first=5))
    assert list(journal.read()) == steps(5)  # what it knows of it
    with pytest.raises(LeaseLost):
        await journal.close()
    rival.write(lines(TurnStart(7), first=3))
    await rival.close()
    mine.write(steps(1, first=5))
    await mine.close()
    assert [event.fact for event in (await first.open("s")).read(3)] == [TurnStart(7)]
    await first.close()
    await second.close()


async def test_whoever_has_had_it_meanwhile_leaves_no_way_back(place: Place) -> None:
    """Also where nothing was written by them, so that the line would fit."""
    async with place.store() as second:
        first = place.store()
        journal = await made(first)
        place.expire()
        await (await second.open("s")).close()
        assert place.leases() == {}
        journal.write(steps(1, first=3))
        with pytest.raises(LeaseLost, match="taken over by another process"):
            await journal.barrier()
        with pytest.raises(LeaseLost):
            await first.close()
        assert (await second.open("s")).head == 2


async def test_a_late_closing_gives_nothing_back_that_is_anothers(place: Place) -> None:
    async with place.store() as first, place.store() as second, place.store() as third:
        journal = await made(first)
        place.expire()
        await second.open("s")
        await journal.close()  # it had nothing left to write
        assert place.leases() == {"s": 2}
        with pytest.raises(SessionBusy):
            await third.open("s")


async def test_it_is_told_at_the_next_renewal_without_a_line(place: Place) -> None:
    async with place.store() as first, place.store() as second:
        journal, mine = await made(first), await made(first, "mine")
        place.expire()
        await second.open("s")
        assert journal.failure is None
        await renew(first)
        assert isinstance(journal.failure, LeaseLost)
        assert mine.failure is None
        with pytest.raises(LeaseLost):
            journal.write(steps(1, first=3))
        mine.write(steps(1, first=3))
        await mine.barrier()


async def test_who_slept_and_was_not_replaced_goes_on(place: Place) -> None:
    async with place.store() as first, place.store() as second:
        journal = await made(first)
        assert await second.holder("s") == "this process"
        place.expire()
        assert await second.holder("s") is None
        expired = place.expires()
        journal.write(steps(1, first=3))
        await journal.barrier()
        await renew(first)
        assert place.expires() > expired
        with pytest.raises(SessionBusy):
            await second.open("s")


async def test_a_line_on_its_way_is_there_before_it_is_taken_over_or_never(place: Place) -> None:
    """Whoever takes it sees all there is: nothing comes in between its opening and its first line."""
    async with place.store() as store:
        await (await made(store, n=1)).close()
    before = place.store()
    journal = await before.open("s")
    for round_ in range(10):
        after = place.store()
        await after.list()
        barriers = []
        for _ in range(10):
            journal.write(steps(1, first=journal.head + 1))
            barriers.append(asyncio.create_task(journal.barrier()))
            await asyncio.sleep(0)
        place.expire()
        taken = await after.open("s")
        assert taken.fence == round_ + 3
        taken.write(steps(1, first=taken.head + 1))
        await taken.barrier()
        results = await asyncio.gather(*barriers, return_exceptions=True)
        acknowledged = sum(result is None for result in results)
        assert all(isinstance(result, LeaseLost | None) for result in results)
        # What was acknowledged was there when it was taken over, and is all below the line that came then.
        assert taken.head >= journal.head - 10 + acknowledged + 1
        with suppress(LeaseLost):
            await before.close()
        before, journal = after, taken
    assert list(journal.read()) == steps(journal.head + 1)
    await before.close()


async def test_it_is_renewed_by_itself(place: Place) -> None:
    async with place.store(0.3) as store:
        await made(store)
        before = place.expires()
        async with asyncio.timeout(60):
            while place.expires() == before:
                await asyncio.sleep(0.01)
        assert place.fences() == {"s": 1}


async def test_what_was_never_closed_is_let_go_when_nobody_can_write_any_more(place: Place) -> None:
    """As in a notebook: the event loop of the store has ended, and the process goes on."""

    async def leave() -> None:
        await made(place.store(0.3))

    thread = Thread(target=lambda: asyncio.run(leave()))
    thread.start()
    thread.join()
    async with asyncio.timeout(60):
        while place.leases():
            await asyncio.sleep(0.01)
    async with place.store() as store:
        assert (await store.open("s")).fence == 2


async def test_a_store_that_has_failed_need_not_be_waited_for(place: Place) -> None:
    """Its lease stays where it cannot be given back."""
    first = place.store()
    journal = await made(first)
    lease = place.raw("SELECT * FROM {s}lease")
    assert lease
    place.raw("ALTER TABLE {s}artifact RENAME TO moved")
    place.raw("ALTER TABLE {s}event RENAME TO other")
    journal.write(steps(1, first=3))
    with pytest.raises(StoreFailed):
        await journal.barrier()
    place.raw("ALTER TABLE {s}other RENAME TO event")
    place.raw("ALTER TABLE {s}moved RENAME TO artifact")
    assert place.raw("SELECT * FROM {s}lease") == lease
    async with place.store() as second:
        assert (await second.open("s")).fence == 2
    with pytest.raises(StoreFailed):
        await first.close()


# Any interleaving


@dataclass
class Held:
    """One opening for writing. lost: whether it has been told."""

    store: int
    journal: BufferedJournal[int]
    lost: bool = False


@dataclass
class World:
    """Some stores at one place, and what has to be true of two sessions."""

    place: Place
    stores: list[LeasedStore] = field(default_factory=list)
    fences: dict[str, int] = field(default_factory=dict)
    holding: dict[str, int | None] = field(default_factory=dict)  # the store whose lease it is
    expired: set[str] = field(default_factory=set)
    held: dict[tuple[int, str], Held] = field(default_factory=dict)  # by store, also those that have lost it
    stored: dict[str, list[Event]] = field(default_factory=dict)

    async def start(self) -> None:
        self.stores = [self.place.store() for _ in range(3)]
        for session in "st":
            journal = await self.stores[0].create(session)
            assert journal.fence == 1
            await journal.close()
            self.fences[session], self.holding[session], self.stored[session] = 1, None, []

    async def open(self, store: int, session: str) -> None:
        holder = self.holding[session]
        busy = (store, session) in self.held or (holder not in (None, store) and session not in self.expired)
        if busy:
            with pytest.raises(SessionBusy, match="this process"):
                await self.stores[store].open(session)
            return
        journal = await self.stores[store].open(session)
        self.fences[session] += 1
        assert journal.fence == self.fences[session]
        assert list(journal.read()) == self.stored[session]
        self.holding[session] = store
        self.expired.discard(session)
        self.held[store, session] = Held(store, journal)

    async def write(self, store: int, session: str) -> None:
        held = self.held.get((store, session))
        if held is None:
            return
        journal = held.journal
        # Its life is its fence: so the log tells who has written what.
        line = Event(journal.head + 1, T0, journal.fence or 0, TurnStart(journal.head + 1))
        try:
            journal.write([line])
            await journal.barrier()
        except LeaseLost:
            held.lost = True
            assert journal.fence is not None and journal.fence < self.fences[session]
        else:
            assert not held.lost
            assert journal.fence == self.fences[session], "only the last opening writes"
            self.stored[session].append(line)

    async def close(self, store: int, session: str) -> None:
        held = self.held.pop((store, session), None)
        if held is None:
            return
        if held.journal.head > len(self.stored[session]) - 1 or held.lost:
            with suppress(LeaseLost):
                await held.journal.close()
        else:
            await held.journal.close()
        if held.journal.fence == self.fences[session]:
            self.holding[session] = None
            self.expired.discard(session)

    async def expire(self, store: int, session: str) -> None:
        self.place.expire(session)
        if self.holding[session] is not None:
            self.expired.add(session)

    async def renew(self, store: int, session: str) -> None:
        await renew(self.stores[store])
        for (owner, name), held in self.held.items():
            if owner == store:
                if held.journal.fence == self.fences[name]:
                    assert held.journal.failure is None
                    self.expired.discard(name)
                else:
                    assert isinstance(held.journal.failure, LeaseLost)

    async def close_store(self, store: int, session: str) -> None:
        for name in "st":
            await self.close(store, name)
        with suppress(LeaseLost):
            await self.stores[store].close()
        self.stores[store] = self.place.store()

    async def look(self) -> None:
        assert self.place.fences() == self.fences
        assert self.place.leases() == {
            name: self.fences[name] for name, holder in self.holding.items() if holder is not None
        }
        for session, stored in self.stored.items():
            reader = await self.stores[0].open(session, readonly=True)
            assert list(reader.read()) == stored
            assert [event.seq for event in stored] == list(range(len(stored)))
            assert [event.life for event in stored] == sorted(event.life for event in stored)
            await reader.close()

    async def end(self) -> None:
        for store in self.stores:
            with suppress(LeaseLost):
                await store.close()


ACTS = (World.open, World.write, World.close, World.expire, World.renew, World.close_store)


@settings(deadline=None, max_examples=examples(100))
@given(
    program=st.lists(
        st.tuples(
            st.sampled_from([World.open, World.write, World.expire, *ACTS]),
            st.integers(0, 2),
            st.sampled_from("st"),
        ),
        max_size=25,
    )
)
def test_in_any_order_of_events_only_the_last_opening_writes(
    new_place: Callable[[Path], Place], program: list[tuple[Callable[..., object], int, str]]
) -> None:
    """At most one whose lines are taken, numbers that only grow, and each line by whoever had the highest one."""

    async def play(folder: Path) -> None:
        world = World(new_place(folder))
        await world.start()
        try:
            for act, store, session in program:
                await act(world, store, session)  # type: ignore[misc]  # all of them are coroutines
                await world.look()
        finally:
            await world.end()

    with TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))
