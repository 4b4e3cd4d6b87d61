"""Checkpoints on their way to a disk, when others keep the threads, or have taken the session."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Event as Gate
from types import SimpleNamespace
from typing import cast

import pytest

from interlock.errors import LeaseLost
from interlock.log import session as sessions
from interlock.log.checkpoint import Kept, Snapshot
from interlock.log.event import Event
from interlock.log.facts import TurnEnd, TurnStart
from interlock.log.reasons import Completed
from interlock.log.session import create_session, open_session
from interlock.log.state import State
from interlock.log.stores import keeping as keeping_of
from interlock.log.stores.keeping import Keeping

from .lawful_logs import ENDED, written
from .leased import postgres_place, sqlite_place


def folded(log: list[Event]) -> State:
    state = State()
    for event in log:
        state.apply(event)
    return state


async def test_the_newest_is_waited_for_as_well() -> None:
    put: list[Kept] = []
    keeping = Keeping(put.append)
    log = written(ENDED)
    keeping.on_disk(len(log))
    first, second = [Snapshot("s", folded(log[: n + 1]), log[n]) for n in (3, len(log) - 1)]
    keeping.take(first)
    keeping.take(second)
    await keeping.done()
    assert put == [first.kept(), second.kept()]


async def test_closing_does_not_wait_for_threads_that_others_keep(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nor is it kept later, when somebody else may write to the session."""
    monkeypatch.setattr(keeping_of, "_TO_BEGIN", 0.01)
    put: list[Kept] = []
    log, gate = written(ENDED), Gate()
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as threads:
        loop.set_default_executor(threads)
        busy = loop.run_in_executor(None, gate.wait, 60)
        keeping = Keeping(put.append)
        keeping.on_disk(len(log))
        keeping.take(Snapshot("s", folded(log), log[-1]))
        async with asyncio.timeout(30):
            await keeping.done()
        keeping.drop()
        gate.set()
        await busy
        await asyncio.to_thread(lambda: None)
    assert put == []


async def test_what_is_encoded_when_the_journal_lets_go_is_dropped() -> None:
    put: list[Kept] = []
    log, gate = written(ENDED), Gate()
    snapshot = Snapshot("s", folded(log), log[-1])
    slow = SimpleNamespace(seq=snapshot.seq, kept=lambda: gate.wait(60) and snapshot.kept())
    keeping = Keeping(put.append)
    keeping.on_disk(len(log))
    keeping.take(cast("Snapshot", slow))
    encoding = keeping._encoding
    assert encoding is not None
    keeping.drop()
    gate.set()
    await asyncio.wait([encoding])
    await asyncio.to_thread(lambda: None)
    assert put == []


@pytest.mark.parametrize("place", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)])
async def test_who_has_lost_the_session_replaces_no_checkpoint(
    place: str, tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be sound, and older than that of whoever drives the session now."""
    monkeypatch.setattr(sessions, "_LINES_BETWEEN", 10)
    where = (
        sqlite_place(tmp_path) if place == "sqlite" else postgres_place(request.getfixturevalue("postgres"))
    )
    async with where.store() as store, where.store() as other:
        session = await create_session(store, "s")
        session.append(TurnStart(1), TurnEnd(1, Completed(), 0))
        await session.barrier()
        late = Snapshot("s", session.state, session.events[session.head]).kept()
        where.expire("s")
        rival = await open_session("s", store=other)
        for turn in range(2, 60):
            rival.append(TurnStart(turn), TurnEnd(turn, Completed(), 0))
        await rival.close()
        before = where.raw("SELECT seq FROM {s}checkpoint")
        assert before and before[0][0] > late.seq
        key = session._journal._target  # type: ignore[attr-defined]
        await store._in_thread(lambda: store._leases.keep(key, late))
        assert where.raw("SELECT seq FROM {s}checkpoint") == before
        with suppress(LeaseLost):
            await session.close()
