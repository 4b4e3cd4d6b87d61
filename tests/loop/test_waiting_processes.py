"""Questions that survive real processes: killed, or left; answered by another, in any order."""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock import SQLiteStore
from interlock.log.facts import ApprovalAsked, ToolResulted, ToolStarted, TurnEnd
from interlock.log.reasons import Completed
from interlock.log.session import open_session
from interlock.loop.pending import answer_pending
from interlock.testing import assert_laws
from interlock.tools.approval import Answered

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("waiting_process.py")
RESULTS = ["wrote ask 1", "wrote ask 2", "wrote free", "wrote ask 3"]


class Place:
    """A store on disk, and a file that says which bodies ran."""

    def __init__(self, tmp_path: Path) -> None:
        self.store = tmp_path / "sessions.db"
        self.done = tmp_path / "done"
        self.session = "-"

    @contextmanager
    def driven(self, *yes: str, until: str) -> Iterator[subprocess.Popen[str]]:
        """A process that drives the session, from when it says so and what a person allows has run."""
        arguments = [str(self.store), str(self.done), self.session, *yes]
        with subprocess.Popen(
            [sys.executable, str(SCRIPT), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                self._listen(process, yes, until)
                yield process
            finally:
                process.kill()

    def _listen(self, process: subprocess.Popen[str], yes: tuple[str, ...], until: str) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said = line.strip()
            if said == until and set(yes) <= set(self.ran):
                return
            if said not in ("running", "waiting", "idle"):
                self.session = said
        pytest.fail(f"it ended before it was {until}")

    def crashes(self, *yes: str) -> None:
        """A life that is killed while it waits."""
        with self.driven(*yes, until="waiting") as process:
            process.kill()

    def leaves(self, *yes: str) -> None:
        """A life that ends by itself while it waits."""
        with self.driven(*yes, until="waiting") as process:
            process.communicate("")
            assert process.returncode == 0

    def ends(self, *yes: str) -> None:
        with self.driven(*yes, until="idle"):
            pass

    @property
    def ran(self) -> list[str]:
        return self.done.read_text().splitlines() if self.done.exists() else []

    async def assert_all_is_done(self) -> None:
        async with SQLiteStore(self.store) as store:
            session = await open_session(self.session, store=store, readonly=True)
            assert_laws(session)
            assert [fact.content[0].text for fact in session.facts(ToolResulted)] == RESULTS
            assert session.facts(TurnEnd)[-1].reason == Completed()
            for kind in (ApprovalAsked, ToolStarted):
                made = [fact.call for fact in session.facts(kind)]  # type: ignore[attr-defined]
                assert len(made) == len(set(made))
        assert sorted(self.ran) == ["ask 1", "ask 2", "ask 3", "free"]

    async def pending(self) -> list[str]:
        async with SQLiteStore(self.store) as store:
            return list((await open_session(self.session, store=store, readonly=True)).state.approvals)

    async def answers(self, approval_id: str) -> None:
        async with SQLiteStore(self.store) as store:
            yes = Answered("allowed-once", None, "ada", "token", "cli")
            await answer_pending(self.session, approval_id, yes, store=store)


async def test_a_process_that_waits_is_killed_and_the_next_one_goes_on(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.crashes()
    assert place.ran == ["free"]
    place.ends("ask 1", "ask 2", "ask 3")
    await place.assert_all_is_done()


async def test_a_process_that_waits_ends_cleanly_and_the_next_one_goes_on(tmp_path: Path) -> None:
    """CA-10b: and writes nothing."""
    place = Place(tmp_path)
    place.leaves()
    async with SQLiteStore(place.store) as store:
        head = (await open_session(place.session, store=store, readonly=True)).head
    place.leaves()
    async with SQLiteStore(place.store) as store:
        session = await open_session(place.session, store=store, readonly=True)
        assert [event.type for event in session.events[head + 1 :]] == ["session/opened"]
    place.ends("ask 1", "ask 2", "ask 3")
    await place.assert_all_is_done()


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3)))[1::2], ids=str)
async def test_each_is_answered_in_a_life_of_its_own_and_each_life_is_killed(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    place = Place(tmp_path)
    place.crashes()
    for n in order[:-1]:
        place.crashes(f"ask {n}")
    place.ends(f"ask {order[-1]}")
    await place.assert_all_is_done()


async def test_they_are_answered_while_nobody_drives(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.crashes()
    for approval_id in reversed(await place.pending()):
        await place.answers(approval_id)
    place.ends()
    await place.assert_all_is_done()
