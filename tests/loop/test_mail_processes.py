"""Two real processes: the second one steers, stops and answers a session that the first one drives."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import Approved, Mailbox, Redactor
from interlock.errors import LetterRefused
from interlock.log.facts import (
    ApprovalDecided,
    CancelRequested,
    InboxSpliced,
    MailTaken,
    SessionOpened,
    TurnEnd,
    UserMessage,
)
from interlock.log.reasons import Aborted, Cause, Completed
from interlock.log.session import Session, open_session
from interlock.loop.pending import answer_pending
from interlock.testing import assert_laws
from interlock.tools.approval import Answered
from postgres_server import PostgresServer, new_schema, postgres_server

from .driving_process import store_at

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).with_name("driving_process.py")


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "jsonl", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    match request.param:
        case "sqlite":
            where = str(tmp_path / "sessions.db")
        case "jsonl":
            where = str(tmp_path / "sessions")
        case _:
            where = f"{request.getfixturevalue('postgres').folder},{new_schema()}"
    return Place(request.param, where, tmp_path / "done")


class Driver:
    """The other process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        self.session = process.stdout.readline().strip()

    def until(self, type_: str) -> None:
        """Read on until this line is in its log, and on disk."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.strip() == type_:
                return
        pytest.fail(f"it ended before {type_}")

    def ends(self) -> None:
        self.process.communicate("")
        assert self.process.returncode == 0

    def is_killed(self) -> None:
        self.process.kill()
        self.process.wait()


class Place:
    def __init__(self, kind: str, where: str, done: Path) -> None:
        self.kind, self.where, self.done = kind, where, done

    @contextmanager
    def driven(self, what: str, session: str = "-") -> Iterator[Driver]:
        command = [sys.executable, str(SCRIPT), self.kind, self.where, session, what, str(self.done)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield Driver(process)
            finally:
                process.kill()

    def store(self) -> Any:
        return store_at(self.kind, self.where)


def lives(session: Session) -> int:
    return len(session.facts(SessionOpened))


async def test_a_second_process_steers_and_stops_a_session_that_the_first_one_drives(place: Place) -> None:
    with place.driven("hangs") as driver:
        driver.until("assistant/chunk")
        async with place.store() as store:
            mail = Mailbox(driver.session, store=store, by="ada")
            steer = await (await mail.steer("Only the docs")).taken()
            assert isinstance(steer.fact, InboxSpliced) and steer.fact.by == "ada"
            stop = await (await mail.cancel(turn=1, keep_inbox=True)).taken()
            assert isinstance(stop.fact, CancelRequested) and stop.fact.cause == Cause("user", "ada")
            driver.until("turn/end")
            with pytest.raises(LetterRefused, match="turn 1 is not open"):
                await (await mail.cancel(turn=1)).taken()
            await (await mail.followup("And now?")).taken()
            driver.until("turn/end")
            await (await mail.inject("for later")).taken()
            assert await mail.driver() == f"process {driver.process.pid} on {hostname()}"
            session = await open_session(driver.session, store=store, readonly=True)
            assert_laws(session)
            assert lives(session) == 1, "nobody else has driven it"
            ends = [fact.reason for fact in session.facts(TurnEnd)]
            assert ends == [Aborted(Cause("user", "ada")), Completed()]
            told = [fact.content[0].text for fact in session.facts(UserMessage)]  # type: ignore[union-attr]
            assert told == ["go", "Only the docs", "And now?"]
            assert [message.message.text for message in session.state.queues.next_step] == ["for later"]
            assert await store.open(driver.session, readonly=True)
        driver.ends()


async def test_a_second_process_answers_while_the_first_one_waits(place: Place) -> None:
    with place.driven("asks") as driver:
        driver.until("approval/asked")
        async with place.store() as store:
            session = await open_session(driver.session, store=store, readonly=True)
            (approval,) = session.state.approvals.values()
            yes = Answered("allowed-once", None, "ada", "token", "cli")
            held_by = await answer_pending(
                driver.session, approval.id, yes, store=store, digest=approval.digest
            )
            assert held_by == f"process {driver.process.pid} on {hostname()}"
            driver.until("turn/end")
            assert place.done.read_text() == "a\n"
            session = await open_session(driver.session, store=store, readonly=True)
            assert_laws(session)
            (decided,) = session.facts(ApprovalDecided)
            assert (decided.by, decided.how, decided.channel) == ("ada", "token", "cli")
            assert decided.letter is not None and decided.letter.number == 1
            assert lives(session) == 1
        driver.ends()


async def test_whoever_drives_is_killed_and_the_next_life_takes_what_was_sent_meanwhile(place: Place) -> None:
    with place.driven("asks") as driver:
        driver.until("approval/asked")
        driver.is_killed()
    async with place.store() as store:
        mail = Mailbox(driver.session, store=store, by="ada")
        session = await open_session(driver.session, store=store, readonly=True)
        (approval,) = session.state.approvals
        posted = [await mail.inject("noted"), await mail.answer(approval, Approved())]
    with place.driven("asks", driver.session) as second:
        second.until("turn/end")
        assert place.done.read_text() == "a\n"
        async with place.store() as store:
            mail = Mailbox(driver.session, store=store)
            await (await mail.inject("more")).taken()
            session = await open_session(driver.session, store=store, readonly=True)
            assert_laws(session)
            assert session.state.mail == len(posted) + 1
            assert session.facts(MailTaken) == []
            assert await (await store.open(driver.session, readonly=True)).letters(3) == []
        second.ends()


async def test_whoever_drives_is_killed_while_it_takes_letters(place: Place) -> None:
    """Each of them is taken once, in order, by this life or by the next."""
    count = 40
    with place.driven("asks") as driver:
        driver.until("approval/asked")
        async with place.store() as store:
            mail = Mailbox(driver.session, store=store)
            for number in range(count):
                if number == count // 2:
                    driver.until("agent/inbox/spliced")  # some were taken by now
                    driver.process.kill()
                posted = await mail.inject(f"letter {number}")
            driver.process.wait()
    with place.driven("asks", driver.session) as second:
        async with place.store() as store:
            mail = Mailbox(driver.session, store=store)
            last = await mail.inject("the last one")
            assert last.number == count + 1 == posted.number + 1
            await last.taken()
            session = await open_session(driver.session, store=store, readonly=True)
            assert_laws(session)
            spliced = [fact for fact in session.facts(InboxSpliced) if fact.letter is not None]
            numbers = [fact.letter.number for fact in spliced if fact.letter is not None]
            assert numbers == list(range(1, count + 2))
            texts = [fact.inserted[0].text for fact in spliced]
            assert texts[:count] == [f"letter {number}" for number in range(count)]
        second.ends()


async def test_a_secret_in_a_letter_is_in_no_raw_file(tmp_path: Path) -> None:
    """While it waits, and after it was taken."""
    secret = "canary-4f1c9e2b7a60"
    for kind, where in (("sqlite", "sessions.db"), ("jsonl", "sessions")):
        folder = tmp_path / kind
        folder.mkdir()
        place = Place(kind, str(folder / where), folder / "done")
        with place.driven("asks") as driver:
            driver.until("approval/asked")
            driver.is_killed()
        async with place.store() as store:
            redact = Redactor({"bird": secret})
            mail = Mailbox(driver.session, store=store, by=f"ada {secret}", redact=redact)
            await mail.followup(f"the word is {secret}")
            await mail.steer("x" * 40_000 + secret)
            await mail.cancel(Cause("user", reason=secret))
            assert_nowhere(secret, folder)
            assert holds("[redacted:bird]", folder)
        with place.driven("asks", driver.session) as second:
            second.until("turn/end")
            second.ends()
        assert_nowhere(secret, folder)
        async with place.store() as store:
            session = await open_session(driver.session, store=store, readonly=True)
            assert_laws(session)
            assert session.facts(CancelRequested)[0].cause.reason == "[redacted:bird]"


def holds(text: str, folder: Path) -> bool:
    return any(text.encode() in path.read_bytes() for path in folder.rglob("*") if path.is_file())


def assert_nowhere(secret: str, folder: Path) -> None:
    assert not holds(secret, folder)


def hostname() -> str:
    import socket

    return socket.gethostname()
