"""Several processes and one session: killed, stopped and woken again, following."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from crash.places import KINDS, address_of, store_at
from interlock.errors import SessionBusy
from interlock.log.facts import SessionOpened, ToolResulted, ToolStarted
from interlock.log.laws import check
from interlock.log.session import open_session
from interlock.log.stores.store import Journal, Store

pytestmark = pytest.mark.slow

TESTS = Path(__file__).parent.parent
SCRIPT = Path(__file__).parent / "lease_process.py"


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    with address_of(request.param, tmp_path) as made:
        yield made


@contextmanager
def running(*arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A process of `lease_process.py`."""
    with subprocess.Popen(
        [sys.executable, str(SCRIPT), *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path[1:]])},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def heard(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


async def taken_over(store: Store, session: str) -> Journal:
    """Open it as soon as it can be, without a line: what its driver would write next still fits."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await store.open(session)
            except SessionBusy:
                await asyncio.sleep(0.01)


async def test_a_session_whose_process_was_killed_is_resumed_at_once(address: str) -> None:
    """Long before its lease expires. Until then, whoever comes is told which process has it."""
    async with store_at(address) as store:
        with running("drives", address, 3600) as process:
            session = heard(process)
            assert heard(process) == "deciding"
            with pytest.raises(SessionBusy, match=f"is driven by process {process.pid} on ") as busy:
                await store.open(session)
            assert await store.holder(session) == busy.value.holder
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert await store.holder(session) is None
            resumed = await open_session(session, store=store)
        counts = address.split()[0] != "jsonl"
        assert [fact.lease for fact in resumed.facts(SessionOpened)] == ([1, 2] if counts else [None, None])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_process_that_was_stopped_for_too_long_starts_nothing_when_it_goes_on(
    kind: str, tmp_path: Path
) -> None:
    with address_of(kind, tmp_path) as address:
        async with store_at(address) as store:
            with running("drives", address, 1) as process:
                session = heard(process)
                assert heard(process) == "deciding"
                process.send_signal(signal.SIGSTOP)
                taken = await taken_over(store, session)
                process.send_signal(signal.SIGCONT)
                said, _ = process.communicate("go on\n", timeout=60)
                lost, ran = said.splitlines()
            told = f"LeaseLost: Session {session} was taken over by process {os.getpid()} on "
            assert lost.startswith(told)
            assert ran == "ran: "
            await taken.close()
            other = await open_session(session, store=store)
            assert other.facts(ToolStarted) == []
            assert [fact.error and fact.error.code for fact in other.facts(ToolResulted)] == [
                "TOOL_NOT_STARTED"
            ]
            assert list(check(other.events)) == []


async def test_a_follower_sees_each_line_whichever_process_has_written_it(address: str) -> None:
    """Two drive in turns, a third one follows from a line on, and is told of new ones."""
    lives, first = 4, 2
    async with store_at(address) as store:
        await (await store.create("s")).close()
    with running("follows", address, first, 2 * lives) as follower:
        assert heard(follower) == "follows"
        with running("writes", address, lives) as one, running("writes", address, lives) as other:
            for writer in (one, other):
                assert writer.wait(timeout=60) == 0
        said, _ = follower.communicate(timeout=60)
    async with store_at(address) as store:
        events = list((await store.open("s", readonly=True)).read())
    assert [event.seq for event in events] == list(range(2 * lives * 10))
    assert said.splitlines() == [f"{event.seq} {event.time} {event.life}" for event in events[first:]]
    assert len({event.time for event in events}) == 2, "both have written"
