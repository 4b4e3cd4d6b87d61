"""Erasing and removing in processes of their own: killed anywhere, and beside one that drives."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from crash.places import KINDS, AnyStore, address_of, store_at
from interlock.errors import SessionBusy, UnknownSession
from interlock.log.erasing import erase_sessions
from interlock.log.event import Event
from interlock.log.facts import ContentErased, Erased
from interlock.log.laws import check
from interlock.log.retention import plan_pruning, prune_sessions

from .canaries import places_of, sung, word

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent.parent
SCRIPT = Path(__file__).parent / "erase_process.py"
KILLS = 8
MOST = {"sqlite": 95, "jsonl": 105, "postgres": 230}  # about so many things are done until all is


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "kept").mkdir()
    with address_of(request.param, tmp_path / "kept") as made:
        yield made


def process(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path[1:]])},
    )


def ended(*arguments: object) -> bool:
    """Run it; whether it came to its end, and was not killed."""
    with process(*arguments) as one:
        out, _ = one.communicate(timeout=60)
        assert one.returncode in (0, -signal.SIGKILL), one.returncode
        assert (out == "done\n") == (one.returncode == 0)
        return one.returncode == 0


def moments(address: str) -> list[int]:
    """When it is killed; the last time it is not."""
    some = Random(7).sample(range(1, MOST[address.split()[0]]), KILLS)
    return [*sorted(some), 10**9]


async def lines_of(store: AnyStore, session_id: str) -> list[Event] | None:
    try:
        journal = await store.open(session_id, readonly=True)
    except UnknownSession:
        return None
    try:
        return list(journal.read())
    finally:
        await journal.close()


async def test_an_erasure_that_is_killed_anywhere_is_whole_or_was_not(address: str, tmp_path: Path) -> None:
    """And erasing again completes it."""
    outcomes = set[bool]()
    async with store_at(address) as store:
        stays = await sung(store, tmp_path / "stays", word())
        others = await lines_of(store, stays)
    for at in moments(address):
        canary = word()
        async with store_at(address) as store:
            session_id = await sung(store, tmp_path / f"{at}", canary)
            before = await lines_of(store, session_id)
        assert before is not None
        done = ended("erases", address, session_id, at)
        async with store_at(address) as store:
            after = await lines_of(store, session_id)
            assert after is not None
            erased = after != before
            outcomes.add(erased)
            if erased:
                assert check(after) == []
                assert [type(event.fact) for event in after] == [Erased] * len(before) + [ContentErased]
            assert erased or not done
            assert await lines_of(store, stays) == others
            receipt = await erase_sessions([session_id], store=store, by="ops")
            assert receipt.left == ()
            assert (receipt.sessions[0].before is not None) == erased
            assert places_of(canary, store) == []
            assert await lines_of(store, stays) == others
    assert outcomes == {False, True}


async def test_a_removal_that_is_killed_anywhere_is_whole_or_was_not(address: str, tmp_path: Path) -> None:
    """And pruning again completes it."""
    outcomes = set[bool]()
    for at in moments(address):
        canary = word()
        async with store_at(address) as store:
            session_id = await sung(store, tmp_path / f"{at}", canary)
            journal = await store.open(session_id)
            await journal.forget_letters(1)
            await journal.close()
            before = await lines_of(store, session_id)
        done = ended("removes", address, session_id, at)
        async with store_at(address) as store:
            after = await lines_of(store, session_id)
            assert after in (before, None)
            outcomes.add(after is None)
            assert after is None or not done
            pruned = await prune_sessions(store=store, older_than=0, clock=lambda: 2**50)
            assert [gone.session for gone in pruned.gone] == ([session_id] if after is not None else [])
            assert places_of(canary, store) == []
    assert outcomes == {False, True}


async def test_a_session_that_another_process_drives_stays(address: str, tmp_path: Path) -> None:
    """It is refused by name, and a pruning leaves it and says so."""
    async with store_at(address) as store:
        session_id = await sung(store, tmp_path / "a", word())
        journal = await store.open(session_id)
        await journal.forget_letters(1)
        await journal.close()
        before = await lines_of(store, session_id)
        with process("drives", address, session_id) as driver:
            assert driver.stdout is not None
            assert driver.stdout.readline() == "drives\n"
            with pytest.raises(SessionBusy, match=f"{session_id} is driven by process {driver.pid}"):
                await erase_sessions([session_id], store=store, by="ops")
            planned = await plan_pruning(store=store, older_than=0, clock=lambda: 2**50)
            assert planned.gone == ()
            assert f"process {driver.pid}" in planned.kept[0].why
            pruned = await prune_sessions(store=store, older_than=0, clock=lambda: 2**50)
            assert (pruned.gone, [kept.session for kept in pruned.kept]) == ((), [session_id])
            assert await lines_of(store, session_id) == before
            driver.communicate("\n")
        pruned = await prune_sessions(store=store, older_than=0, clock=lambda: 2**50)
        assert [gone.session for gone in pruned.gone] == [session_id]
