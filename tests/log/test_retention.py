"""Keeping only so much: whole sessions that are over go, the longest unused first. In every store."""

from __future__ import annotations

import asyncio
import secrets
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import UnknownSession, UsageError
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    AssistantChunk,
    ContentErased,
    Fact,
    ToolResulted,
    TurnEnd,
    TurnStart,
)
from interlock.log.messages import Text
from interlock.log.reasons import Completed
from interlock.log.retention import Pruning, plan_pruning, prune_sessions
from interlock.log.stores.jsonl.store import JSONLStore
from interlock.log.stores.memory.store import MemoryStore
from interlock.log.stores.postgres.store import PostgresStore
from interlock.log.stores.sqlite.store import SQLiteStore
from interlock.log.stores.store import Store
from postgres_server import PostgresServer

from .canaries import places_of, sung, word
from .conftest import AnyStore
from .store_lines import lines

NOW = 1_000_000
HOUR = 3_600_000


@pytest.fixture
def server(request: pytest.FixtureRequest, store: AnyStore) -> PostgresServer | None:
    """The server of the store, if it has one."""
    return request.getfixturevalue("postgres") if isinstance(store, PostgresStore) else None


async def kept(store: Store, session_id: str, *facts: Fact, time: int) -> None:
    """A session whose lines were written then."""
    journal = await store.create(session_id)
    journal.write([Event(seq, time, 1, fact) for seq, fact in enumerate(facts)])
    await journal.close()


OVER = (TurnStart(1), TurnEnd(1, Completed(), 0))
ASKED = (TurnStart(1), ApprovalAsked("a", 0, "sure?", {}, "d"))


async def pruned(store: Store, **how: Any) -> Pruning:
    return await prune_sessions(store=store, clock=lambda: NOW, **how)


def ids(pruning: Pruning) -> list[str]:
    return [gone.session for gone in pruning.gone]


async def all_of(store: Store) -> set[str]:
    return {info.id for info in await store.list(limit=1000)}


sessions = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from(["over", "open", "asks", "letters", "driven", "erased"])),
    max_size=12,
)


@settings(deadline=None)
@given(sessions, st.integers(0, 20))
def test_what_is_older_and_over_goes_and_nothing_else(made: list[tuple[int, str]], age: int) -> None:
    async def law() -> None:
        store = MemoryStore()
        for i, (old, how) in enumerate(made):
            facts = {"open": OVER[:1], "asks": ASKED}.get(how, OVER)
            await kept(store, f"s{i}", *facts, time=NOW - old)
            if how == "erased":
                await store.erase([ContentErased(f"s{i}", "er", "ops")], time=NOW - old)
        for i, (_, how) in enumerate(made):
            if how == "letters":
                await store.post(f"s{i}", b"{}", time=NOW)
            if how == "driven":
                await store.open(f"s{i}")
        aged = {f"s{i}": how for i, (old, how) in enumerate(made) if old > age}
        going = {id_ for id_, how in aged.items() if how in ("over", "erased")}
        planned = await plan_pruning(store=store, older_than=age, clock=lambda: NOW)
        assert set(ids(planned)) == going
        done = await pruned(store, older_than=age)
        assert set(ids(done)) == going
        assert await all_of(store) == {f"s{i}" for i in range(len(made))} - going
        why = {one.session: one.why for one in done.kept}
        words = {
            "open": "turn is open",
            "asks": "waits for a person",
            "letters": "letters",
            "driven": "drives",
        }
        assert why.keys() == {id_ for id_, how in aged.items() if how in words}
        assert all(words[aged[id_]] in why[id_] for id_ in why)
        oldest_first = [next(old for i, (old, _) in enumerate(made) if f"s{i}" == id_) for id_ in ids(done)]
        assert oldest_first == sorted(oldest_first, reverse=True)
        assert ids(await pruned(store, older_than=age)) == []

    asyncio.run(law())


async def test_nothing_of_a_session_that_went_is_left_in_any_file(
    store: AnyStore, server: PostgresServer | None, tmp_path: Path
) -> None:
    canary, other = word(), word()
    async with store:
        session_id = await sung(store, tmp_path / "a", canary, turns=2, shared=f"{other}-shared")
        journal = await store.open(session_id)
        await journal.forget_letters(1)  # or it would stay
        await journal.close()
        stays = await sung(store, tmp_path / "b", other, shared=f"{other}-shared")  # a letter waits
        await store.search(canary)
        size = await store.size()
        done = await prune_sessions(store=store, older_than=0, clock=lambda: 2**50)
        assert ids(done) == [session_id]
        assert [one.session for one in done.kept] == [stays]
        assert (done.before, done.after) == (size, await store.size())
        assert places_of(canary, store, server) == []
        with pytest.raises(UnknownSession):
            await store.open(session_id)
        assert await store.search(canary) == []
        looking = await store.open(stays, readonly=True)
        assert len(list(looking.read())) == looking.head + 1  # with the text that both had
        if store.durable:
            assert done.after < size
            (gone,) = done.gone
            assert (len(gone.artifacts), len(gone.kept)) == (2, 1)
        # The id is free again.
        await (await store.create(session_id)).close()
    assert places_of(canary, store, server) == []


async def test_a_size_is_reached_by_the_longest_unused_ones(store: AnyStore) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("it has no files")
    async with store:
        for i in range(12):
            text = Text(secrets.token_hex(15_000))  # nothing makes it shorter
            result = ToolResulted(0, "c", (text,))
            await kept(
                store, f"s{i:02}", TurnStart(1), result, TurnEnd(1, Completed(), 1), time=NOW - 100 + i
            )
        whole = (await pruned(store, max_size=2**40)).after
        assert await all_of(store) == {f"s{i:02}" for i in range(12)}
        limit = whole - 100_000
        planned = await plan_pruning(store=store, max_size=limit)
        assert ids(planned) and planned.after <= limit
        done = await pruned(store, max_size=limit)
        gone = ids(done)
        assert gone == [f"s{i:02}" for i in range(len(gone))]
        assert 3 <= len(gone) <= 9  # how large a page or a table is decides, but not all of them
        assert done.after <= limit
        assert done.after == await store.size()
        assert await all_of(store) == {f"s{i:02}" for i in range(len(gone), 12)}


async def test_no_more_goes_than_has_to_where_files_cannot_get_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SQLiteStore(tmp_path / "log.db") as store:
        for i in range(5):
            await kept(store, f"s{i}", *OVER, time=i)

        async def not_now() -> str:
            return "others drive"

        monkeypatch.setattr(store, "compact", not_now)
        done = await pruned(store, older_than=NOW - 2, max_size=0)
        assert (ids(done), done.problem) == (["s0", "s1"], "others drive")


async def test_what_may_not_go_stays_though_it_is_too_large(store: AnyStore) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("it has no files")
    async with store:
        await kept(store, "over", *OVER, time=5)
        await kept(store, "asks", *ASKED, time=6)
        done = await pruned(store, max_size=0)
        assert ids(done) == ["over"]
        assert [(one.session, one.why) for one in done.kept] == [("asks", "it waits for a person")]
        assert done.after > 0
        assert await store.approvals() == [("asks", 1)]


async def test_a_plan_changes_nothing(store: AnyStore, tmp_path: Path) -> None:
    async with store:
        await kept(store, "s", *OVER, time=5)
        await store.search("anything")  # from now on nothing is indexed
        size = await store.size()
        planned = await plan_pruning(store=store, older_than=0, clock=lambda: NOW)
        assert ids(planned) == ["s"]
        assert (planned.before, await store.size()) == (size, size)
        assert planned.after <= size
        assert await all_of(store) == {"s"}
        await (await store.open("s")).close()


async def test_a_session_that_has_grown_since_stays(store: AnyStore) -> None:
    """It was looked at before somebody opened it, wrote, and left."""
    async with store:
        await kept(store, "s", *OVER, time=5)
        journal = await store.open("s")
        journal.write(lines(TurnStart(2), first=2))
        await journal.close()
        assert await store.remove({"s": 1}) == []
        assert await store.remove({"none": 1}) == []
        assert await all_of(store) == {"s"}
        await store.post("s", b"{}", time=5)
        assert await store.remove({"s": 2}) == []
        assert await all_of(store) == {"s"}


async def test_a_session_that_was_forked_may_go(store: AnyStore, tmp_path: Path) -> None:
    from interlock.log.forking import fork_session

    async with store:
        session_id = await sung(store, tmp_path / "a", word())
        journal = await store.open(session_id)
        await journal.forget_letters(1)
        await journal.close()
        fork = await fork_session(session_id, store=store, new_id="f")
        before = [event.fact for event in fork.events]
        assert [gone.session for gone in await store.remove({session_id: journal.head})] == [session_id]
        assert [event.fact for event in fork.events] == before
        await fork.close()


async def test_a_session_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    async with JSONLStore(tmp_path / "sessions") as store:
        await kept(store, "s", *OVER, time=5)
    file = tmp_path / "sessions" / "s.jsonl"
    file.write_bytes(file.read_bytes() + b'{"seq":2,"what":1}\n')
    async with JSONLStore(tmp_path / "sessions") as store:
        done = await pruned(store, older_than=0)
        assert ids(done) == []
        assert [("cannot be read" in one.why) for one in done.kept] == [True]


async def test_half_a_character_keeps_nobody_from_looking(store: AnyStore) -> None:
    """A line with it is written in another way."""
    chunk = AssistantChunk(0, "text", text="half \ud83d")
    async with store:
        await kept(store, "over", TurnStart(1), chunk, TurnEnd(1, Completed(), 1), time=5)
        await kept(store, "open", TurnStart(1), chunk, time=6)
        done = await pruned(store, older_than=0)
        assert ids(done) == ["over"]
        assert [(one.session, one.why) for one in done.kept] == [("open", "a turn is open")]


async def test_what_is_kept_outside_of_the_store_goes_before(
    store: AnyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash between the two, the store still knows whose it is; and nothing goes of a session that is driven."""
    from .test_erasing import Shelf

    shelf = Shelf("s", "new", "driven", "elsewhere")
    async with store:
        for name, time in (("s", 5), ("driven", 6), ("new", NOW)):
            await kept(store, name, *OVER, time=time)
        driven = await store.open("driven")
        remove = store.remove

        async def crash(heads: Any) -> Any:
            raise KeyboardInterrupt

        monkeypatch.setattr(store, "remove", crash)
        with pytest.raises(KeyboardInterrupt):
            await pruned(store, older_than=5, beside=[shelf])
        assert shelf.kept == {"new", "driven", "elsewhere"}
        monkeypatch.setattr(store, "remove", remove)
        shelf = Shelf("s", "driven", stuck=True)
        done = await pruned(store, older_than=5, beside=[shelf])
        assert ids(done) == []
        assert {one.session: one.why for one in done.kept} == {
            "s": "what is kept of it outside the store cannot be deleted: not yours",
            "driven": "this process drives it",
        }
        shelf.stuck = False
        done = await pruned(store, older_than=5, beside=[shelf])
        assert (ids(done), done.beside, shelf.kept) == (["s"], ("shelf/s",), {"driven"})
        await driven.close()


async def test_many_go_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from interlock.log import retention

    monkeypatch.setattr(retention, "_AT_ONCE", 3)
    async with SQLiteStore(tmp_path / "log.db") as store:
        for i in range(8):
            await kept(store, f"s{i}", *OVER, time=i)
        assert ids(await pruned(store, older_than=0)) == [f"s{i}" for i in range(8)]
        assert await store.list() == []


@pytest.mark.parametrize("how", [{}, {"older_than": -1}, {"max_size": -1}], ids=str)
async def test_what_is_not_said_is_refused(how: dict[str, int]) -> None:
    for do in (prune_sessions, plan_pruning):
        with pytest.raises(UsageError):
            await do(store=MemoryStore(), **how)  # type: ignore[arg-type]
