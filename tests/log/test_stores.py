"""What every store promises, run against each of them; what only a disk can show is in tests of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.errors import (
    DuplicateSession,
    ReadOnlySession,
    SessionBusy,
    SessionClosed,
    StoreClosed,
    UnknownSession,
)
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    Fact,
    InboxSpliced,
    SessionCreated,
    StepStart,
    ToolResulted,
    TurnStart,
    Unknown,
    UserMessage,
)
from interlock.log.messages import Message, Source, Text
from interlock.log.packing import MAX_RUN
from interlock.log.stores.query import Where
from interlock.log.stores.store import Journal, SessionInfo, Store

from .conftest import AnyStore
from .fact_strategies import logs
from .store_lines import T0, lines, steps


def stream(n: int, first: int = 0) -> list[Event]:
    return lines(*[AssistantChunk(first, "text", text=f"{i} ") for i in range(n)], first=first)


def mixed() -> list[Event]:
    """A log with a long run, short runs, and runs that something interrupts."""
    log = steps(3)
    for length in (2 * MAX_RUN + 7, 1, 5):
        log += stream(length, first=len(log))
        log += steps(2, first=len(log))
    return log + stream(4, first=len(log))


async def test_a_store_meets_the_protocol(store: Store) -> None:
    async with store:
        assert isinstance(store, Store)
        assert (await store.create("s")).durable == store.durable


async def test_lines_are_read_as_soon_as_they_are_written(store: Store) -> None:
    """D-22: appended is ordered and visible."""
    async with store:
        journal = await store.create("s")
        assert (journal.head, list(journal.read())) == (-1, [])
        log = mixed()
        for event in log:
            journal.write([event])
            assert journal.head == event.seq
            assert list(journal.read(event.seq)) == [event]
        assert list(journal.read()) == log


@pytest.mark.parametrize("barrier", [False, True], ids=["in memory", "after a barrier"])
async def test_any_slice_can_be_read(store: Store, barrier: bool) -> None:
    async with store:
        journal = await store.create("s")
        log = mixed()
        journal.write(log[:-3])
        if barrier:
            await journal.barrier()
        journal.write(log[-3:])
        borders = [
            0,
            1,
            2,
            3,
            4,
            MAX_RUN + 2,
            MAX_RUN + 3,
            2 * MAX_RUN + 9,
            *range(len(log) - 20, len(log) + 2),
        ]
        for first in borders:
            assert list(journal.read(first)) == log[first:]
            for last in borders:
                assert list(journal.read(first, last)) == log[first : last + 1]
        assert list(journal.read(-5, 1)) == log[:2]


async def test_a_reader_sees_the_lines_of_the_moment_in_which_it_began(store: Store) -> None:
    async with store:
        journal = await store.create("s")
        log = mixed()
        journal.write(log)
        reader = journal.read()
        seen = [next(reader) for _ in range(10)]
        journal.write(steps(3, first=len(log)))
        await journal.barrier()
        journal.write(stream(3, first=len(log) + 3))
        late = journal.read(len(log) - 2)
        seen += reader
        assert seen == log
        await journal.barrier()
        assert len(list(late)) == 8


async def test_what_was_written_is_there_when_the_session_is_opened_again(store: Store) -> None:
    async with store:
        journal = await store.create("s")
        log = mixed()
        journal.write(log)
        await journal.close()
        for _ in range(2):
            journal = await store.open("s")
            assert (journal.head, list(journal.read())) == (len(log) - 1, log)
            journal.write(more := steps(1, first=len(log)))
            log += more
            await journal.close()


async def test_a_batch_that_does_not_continue_the_log_is_refused_whole(store: Store) -> None:
    async with store:
        journal = await store.create("s")
        good = steps(6)
        bad = [good[1:], [*good[:2], good[3]], [good[0], good[0]], [good[1], good[0]]]
        for batch in bad:
            with pytest.raises(ValueError, match="goes on with line"):
                journal.write(batch)
            assert (journal.head, list(journal.read())) == (-1, [])
        journal.write(good)
        for batch in ([good[-1]], steps(1, first=8), stream(1, first=5)):
            with pytest.raises(ValueError, match="goes on with line 6"):
                journal.write(batch)
        journal.write([])
        await journal.barrier()
        assert list(journal.read()) == good


async def test_a_session_is_made_once(store: Store) -> None:
    async with store:
        journal = await store.create("s")
        with pytest.raises(DuplicateSession) as caught:
            await store.create("s")
        assert caught.value.session_id == "s"
        journal.write(steps(1))
        await journal.close()
        with pytest.raises(DuplicateSession):
            await store.create("s")


async def test_of_many_who_make_the_same_session_one_succeeds(store: Store) -> None:
    async with store:
        made = await asyncio.gather(*[store.create("s") for _ in range(5)], return_exceptions=True)
        assert sorted(isinstance(one, DuplicateSession) for one in made) == [False] + [True] * 4


async def test_a_session_that_is_not_there_cannot_be_opened(store: Store) -> None:
    async with store:
        for readonly in (False, True):
            with pytest.raises(UnknownSession) as caught:
                await store.open("nobody", readonly=readonly)
        assert caught.value.session_id == "nobody"
        assert await store.list() == []


async def test_one_journal_writes_and_any_number_read(store: Store) -> None:
    async with store:
        writer = await store.create("s")
        with pytest.raises(SessionBusy):
            await store.open("s")
        readers = [await store.open("s", readonly=True) for _ in range(2)]
        writer.write(log := mixed())
        await writer.barrier()
        for reader in readers:
            assert await reader.refresh() == reader.head == len(log) - 1
            assert list(reader.read()) == log
            with pytest.raises(ReadOnlySession):
                reader.write(steps(1, first=len(log)))
            await reader.barrier()
            await reader.close()
        await writer.close()
        again = await store.open("s")
        assert await again.refresh() == len(log) - 1


async def test_each_opening_that_writes_has_the_next_number_where_the_store_counts(store: Store) -> None:
    async with store:
        fences = []
        for n in range(4):
            journal = await store.open("s") if n else await store.create("s")
            reader = await store.open("s", readonly=True)
            assert reader.fence is None
            fences.append(journal.fence)
            assert await store.holder("s") == "this process"
            await journal.close()
            assert await store.holder("s") is None
        with pytest.raises(UnknownSession):
            await store.holder("t")
        assert fences in ([1, 2, 3, 4], [None] * 4)


async def test_a_closed_journal_is_read_but_not_written(store: Store) -> None:
    async with store:
        journal = await store.create("s")
        journal.write(log := mixed())
        await journal.close()
        await journal.close()
        with pytest.raises(SessionClosed) as caught:
            journal.write(steps(1, first=len(log)))
        assert caught.value.session_id == "s"
        assert list(journal.read()) == log
        # A journal that is closed late does not let go of the session in another's name.
        other = await store.open("s")
        await journal.close()
        other.write(steps(1, first=len(log)))
        with pytest.raises(SessionBusy):
            await store.open("s")


async def test_a_closed_store_refuses_everything(store: Store) -> None:
    journal = await store.create("s")
    journal.write(steps(2))
    await store.close()
    await store.close()
    with pytest.raises(SessionClosed):
        journal.write(steps(1, first=2))
    for refused in (store.create("t"), store.open("s"), store.list()):
        with pytest.raises(StoreClosed):
            await refused


async def test_half_a_character_is_kept(store: Store) -> None:
    """A model may stream half of a surrogate pair in each of two chunks."""
    async with store:
        journal = await store.create("s")
        halves = lines(*[AssistantChunk(0, "text", text=text) for text in ("a", "\ud83d", "\ude00 ")])
        journal.write(halves)
        await journal.close()
        assert list((await store.open("s")).read()) == halves


async def test_big_texts_come_back_as_they_were(store: Store) -> None:
    text = "".join(f"line {i}\n" for i in range(20_000))
    reference = {"artifact": "0" * 64, "bytes": 1, "media_type": "text/plain", "preview": ""}
    log = lines(
        StepStart(1, 1),
        ToolResulted(0, "c1", (Text(text), Text("short")), meta=reference),
        ToolResulted(0, "c2", (Text(text),), meta={"again": [text, reference]}),
        ToolResulted(0, "c3", (Text(text[:-1]),)),
    )
    async with store:
        journal = await store.create("s")
        journal.write(log)
        assert list(journal.read()) == log  # from memory
        await journal.close()
        assert list(journal.read()) == log  # from the store
        assert list(journal.read(2, 2)) == log[2:3]
        assert list((await store.open("s", readonly=True)).read()) == log


async def test_a_fact_that_is_no_json_is_refused_with_its_batch(store: Store) -> None:
    if not store.durable:
        pytest.skip("nothing is encoded in memory")
    async with store:
        journal = await store.create("s")
        for event in (
            Event(1, T0, 1, Unknown("plugin/noted", object()), ignorable=True),
            Event(1, T0, 1, AssistantChunk(1, "usage", value={"n": 1j})),
            Event(1, T0, 1, AssistantChunk(1, "text", text="\ud83d", value={"n": 1j})),
            Event(1, T0, 1, AssistantChunk(1, "text", value="\ud83d")),
            Event(1, T0, 1, ToolResulted(1, "c", (Text("\ud800"),))),
        ):
            with pytest.raises(ValueError, match=f"line 1, {event.type}"):
                journal.write([*steps(1), event])
            assert (journal.head, list(journal.read())) == (-1, [])
        journal.write(steps(2))
        await journal.close()
        assert list((await store.open("s")).read()) == steps(2)


@pytest.mark.parametrize("session_id", ["a/b", "..", ".hidden", "tab\there", "Größe", "a b%20c", "index"])
async def test_an_id_may_be_any_text(store: Store, session_id: str) -> None:
    async with store:
        journal = await store.create(session_id)
        journal.write(steps(2))
        await journal.close()
        with pytest.raises(DuplicateSession):
            await store.create(session_id)
        assert [info.id for info in await store.list()] == [session_id]
        assert (await store.open(session_id)).head == 1


async def test_a_follower_is_told_of_new_lines(store: Store) -> None:
    async with store:
        writer = await store.create("s")
        writer.write(steps(1))
        await writer.barrier()
        reader = await store.open("s", readonly=True)
        written = 1
        while written < 30:
            writer.write(steps(3, first=written))
            written += 3
            await writer.barrier()
            async with asyncio.timeout(60):
                while await reader.refresh() < written - 1:
                    await reader.news(0.01)
            assert list(reader.read(written - 4)) == steps(4, first=written - 4)


async def test_what_an_unknown_type_says_depends_on_whether_it_may_be_skipped(store: Store) -> None:
    """Law 10, in the store: nothing is half-read."""
    async with store:
        journal = await store.create("s")
        noted = lines(TurnStart(1), Unknown("plugin/noted", {"any": [1, None]}), TurnStart(2))
        journal.write(noted)
        await journal.close()
        assert list((await store.open("s")).read()) == noted


# Listing


async def test_a_list_shows_the_sessions_that_have_lines_the_last_first(store: Store) -> None:
    async with store:
        await store.create("empty")
        for name, time in (("a", 30), ("b", 10), ("c", 20)):
            journal = await store.create(name)
            journal.write([Event(0, 5, 1, SessionCreated("1.0", name, f"/home/{name}", "coder"))])
            journal.write([Event(1, time, 1, TurnStart(1))])
            await journal.barrier()
        infos = await store.list()
        assert [(i.id, i.created, i.updated, i.events, i.cwd, i.agent, i.title) for i in infos] == [
            ("a", 5, 30, 2, "/home/a", "coder", None),
            ("c", 5, 20, 2, "/home/c", "coder", None),
            ("b", 5, 10, 2, "/home/b", "coder", None),
        ]
        journal.write([Event(2, 40, 1, AssistantChunk(0, "text", text="a"))])
        journal.write([Event(3, 50, 1, AssistantChunk(0, "text", text="b"))])
        await journal.barrier()
        first = (await store.list())[0]
        assert (first.id, first.updated, first.events) == ("c", 50, 4)


async def test_paging_through_a_list_misses_no_session(store: Store) -> None:
    """Also where many were updated in the same millisecond."""
    async with store:
        moments = [7, 3, 9, 9, 9, 3, 1, 9, 8, 3]
        for i, time in enumerate(moments):
            journal = await store.create(f"s{i}")
            journal.write([Event(0, time, 1, TurnStart(1))])
            await journal.barrier()
        pages: list[list[SessionInfo]] = []
        before = None
        while page := await store.list(limit=2, before=before):
            pages.append(page)
            before = page[-1].updated
        assert [[info.updated for info in page] for page in pages] == [[9, 9, 9, 9], [8, 7], [3, 3, 3], [1]]
        assert {info.id for page in pages for info in page} == {f"s{i}" for i in range(len(moments))}
        assert len(await store.list(limit=100)) == len(moments)


async def test_sessions_are_listed_by_where_they_work_and_searched_by_what_was_said(store: Store) -> None:
    async with store:
        for name in ("a", "b"):
            journal = await store.create(name)
            said = UserMessage("m1", Source("person"), "user", (Text(f"Paint door {name} green"),))
            journal.write(lines(SessionCreated("1.0", name, f"/home/{name}"), TurnStart(1), said))
            await journal.close()
        assert [info.id for info in await store.list(where=Where(cwd="/home/b"))] == ["b"]
        assert await store.search("green wall") == []
        assert sorted(match.session for match in await store.search("green")) == ["a", "b"]
        (match,) = await store.search("green", where=Where(cwd="/home/a"))
        assert (match.session, match.seq, match.place) == ("a", 2, "prompt")


def _said(text: str, kind: str = "person") -> Message:
    return Message.user(text, id="m1", source=Source(kind))  # type: ignore[arg-type]  # one of its kinds


@pytest.mark.parametrize(
    ("facts", "title"),
    [
        ([InboxSpliced("next-turn", 0, 0, (_said("Fix  the\n\tbuild "),))], "Fix the build"),
        ([InboxSpliced("next-step", 0, 0, (_said("note", "hook"), _said("Go on")))], "Go on"),
        ([UserMessage("m1", Source("person"), "user", (Text("Fix"), Text("it")))], "Fix it"),
        ([UserMessage("m1", Source("runtime"), "user", (Text("context"),)), TurnStart(1)], None),
        ([InboxSpliced("next-turn", 0, 0, (_said(" \n "),)), TurnStart(1)], None),
        (
            [
                InboxSpliced("next-turn", 0, 0, (_said("first"),)),
                InboxSpliced("next-turn", 1, 0, (_said("second"),)),
            ],
            "first",
        ),
        ([InboxSpliced("next-turn", 0, 0, (_said("word " * 50_000),))], ("word " * 16).rstrip()),
    ],
    ids=["one line", "a person's", "admitted", "not a person's", "blank", "the first", "its beginning"],
)
async def test_a_title_is_how_the_first_prompt_begins(store: Store, facts: list[Fact], title: str) -> None:
    async with store:
        journal = await store.create("s")
        for event in lines(*facts):
            journal.write([event])
        await journal.close()
        assert [info.title for info in await store.list()] == [title]
        # What is known is kept when the session is opened again.
        journal = await store.open("s")
        later = InboxSpliced("next-turn", 0, 0, (_said("later"),))
        journal.write(lines(later, first=len(facts)))
        await journal.close()
        assert [info.title for info in await store.list()] == [title or "later"]


# Any log, written in any portions, with or without barriers, read in the middle of it


@st.composite
def writings(draw: st.DrawFn) -> list[tuple[list[Event], str]]:
    """Batches of one log, and what is done after each: nothing, a barrier, or opening it again."""
    log = draw(logs())
    cuts = sorted({0, len(log), *draw(st.lists(st.integers(0, len(log)), max_size=6))})
    then = st.sampled_from(["", "", "barrier", "reopen"])
    return [(log[a:b], draw(then)) for a, b in pairwise(cuts)]


@settings(deadline=None, max_examples=examples(60))
@given(batches=writings())
def test_a_journal_is_a_list_of_events(
    make_store: Callable[[Path], AnyStore], batches: list[tuple[list[Event], str]]
) -> None:
    async def play(folder: Path) -> None:
        async with make_store(folder) as store:
            journal: Journal = await store.create("s")
            expected: list[Event] = []
            for batch, then in batches:
                places = (0, len(expected) // 2, max(len(expected) - 1, 0))
                readers = [(journal.read(at), expected[at:]) for at in places]
                journal.write(batch)
                expected += batch
                if then == "barrier":
                    await journal.barrier()
                elif then == "reopen":
                    await journal.close()
                    journal = await store.open("s")
                for reader, then_there in readers:
                    assert list(reader) == then_there
                assert list(journal.read()) == expected
                assert journal.head == len(expected) - 1

    with TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


def asking(*asked: tuple[str, str]) -> list[Fact]:
    """`("?", id)` asks, `("!", id)` decides."""
    return [
        ApprovalAsked(id_, 0, "sure?", {}, "d") if what == "?" else ApprovalDecided(id_, 0, "d", "rejected")
        for what, id_ in asked
    ]


@settings(max_examples=30, deadline=None)
@given(
    courses=st.lists(
        st.lists(st.tuples(st.sampled_from("?!"), st.sampled_from("ab")), max_size=6), min_size=1, max_size=3
    )
)
def test_the_open_approvals_are_those_asked_and_not_decided(
    make_store: Callable[[Path], AnyStore], courses: list[list[tuple[str, str]]]
) -> None:
    """Without reading a log; also what is asked again after it was decided."""

    async def ask_all(folder: Path) -> None:
        expected: list[tuple[str, int]] = []
        async with make_store(folder) as store:
            for n, course in enumerate(courses):
                journal = await store.create(f"s{n}")
                last: dict[str, int] = {}
                for seq, (what, id_) in enumerate(course):
                    if what == "?":
                        last[id_] = seq
                    else:
                        last.pop(id_, None)
                expected += sorted([(f"s{n}", seq) for seq in last.values()])
                journal.write(lines(*asking(*course)))
                await journal.barrier()
            assert sorted(await store.approvals()) == expected

    with TemporaryDirectory() as folder:
        asyncio.run(ask_all(Path(folder)))
