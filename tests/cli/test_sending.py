"""`interlock send` and `interlock stop`: what they say, and what whoever drives the session does."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import signal
import sqlite3
import subprocess
from contextlib import closing
from threading import Thread
from typing import Any

import pytest

from interlock import Agent, Mailbox, MemoryStore, SQLiteStore, tool
from interlock.cli.driving import run_to_end
from interlock.cli.sending import _outcome
from interlock.errors import NotTaken
from interlock.log.facts import (
    ApprovalDecided,
    CancelRequested,
    InboxSpliced,
    MailTaken,
    TurnEnd,
    UserMessage,
)
from interlock.log.reasons import Aborted, Cause, Completed
from interlock.log.stores.sqlite.database import default_path
from interlock.models.registry import register_provider
from interlock.testing import Gate, ScriptedModel, call, calls, gated, hangs, says

from .test_processes import (
    LIMIT,
    SLEEP,
    Sleeper,
    facts,
    model,
    sleeper,  # noqa: F401  # the fixture
    started,
)

WAITS = "nobody drives it: it waits in its mailbox, and is taken when the session is opened next\n"


def of_last(interlock: Any, kind: type) -> list[Any]:
    return [event.fact for event in interlock("log", "last", "--json").events if isinstance(event.fact, kind)]


@pytest.fixture
def session(interlock: Any, script: Any, work: Any) -> str:
    """A session in which a turn has ended."""
    script(says("one"), says("two"))
    assert interlock("run", "Go", "--cwd", str(work)).code == 0
    return str(json.loads(interlock("sessions", "--json").out)["id"])


# Nobody drives


def test_a_message_waits_for_whoever_drives_next(interlock: Any, session: str) -> None:
    assert interlock("send", session, "Only the docs", "--steer").out == WAITS
    assert interlock("send", session[-6:], "-", "--by", "ada", stdin="And\nthe tests\n").out == WAITS
    assert interlock("send", "last", "By the way", "--inject").out == WAITS
    assert of_last(interlock, InboxSpliced)[-1].letter is None, "nothing has touched the log"
    ended = interlock("run", "--resume", session, "--resume-pending")
    assert ended.code == 0 and "pending from before: Only the docs" in ended.err
    sent = [fact for fact in of_last(interlock, InboxSpliced) if fact.letter is not None]
    assert [(fact.letter.number, fact.list, fact.wake, fact.by) for fact in sent] == [
        (1, "next-step", True, getpass.getuser()),
        (2, "next-turn", True, "ada"),
        (3, "next-step", False, getpass.getuser()),
    ]
    told = [fact.content[0].text for fact in of_last(interlock, UserMessage) if fact.place == "prompt"]
    assert told == ["Go", "Only the docs", "By the way", "And\nthe tests\n"]
    shown = interlock("log", "last").out
    assert "person (ada, letter 2): And the tests" in shown
    assert f"person ({getpass.getuser()}, letter 3): By the way" in shown
    assert interlock("check", "last").code == 0


def test_with_nothing_open_there_is_nothing_to_stop(interlock: Any, session: str) -> None:
    ended = interlock("stop", session)
    assert (ended.code, ended.out) == (0, f"Nothing runs in session {session}.\n")
    assert interlock("check", "last").code == 0


def test_a_stop_discards_what_is_pending_though_nothing_runs(interlock: Any, session: str) -> None:
    async def live(*injected: str) -> list[str]:
        async with (
            SQLiteStore() as store,
            Agent(ScriptedModel(), store=store, session=session) as agent,
        ):
            for text in injected:
                agent.inject(text)
            return [message.text for message in agent.inbox.next_step]

    assert asyncio.run(live("more")) == ["more"]
    assert interlock("stop", session, "--keep-inbox").out == f"Nothing runs in session {session}.\n"
    assert interlock("stop", session).out == WAITS
    assert asyncio.run(live()) == []
    assert interlock("check", session).code == 0


def test_what_cannot_be_sent_is_said(interlock: Any, session: str) -> None:
    for wrong in (
        ("send", session, "x", "--steer", "--inject"),
        ("send", session, "  "),
        ("send", session, "-"),
        ("send", "nobody", "x"),
        ("send", "", "x"),
        ("send", session, "x", "--by", " "),
        ("stop", "nobody"),
        ("stop", ""),
        ("stop", session, "--grace", "-1"),
        ("stop", session, "--grace", "x"),
        ("send", session, "x" * (1 << 20 | 1)),
    ):
        ended = interlock(*wrong)
        assert ended.code == 2 and ended.err and ended.out == "", wrong


def test_what_is_no_text_is_not_sent(interlock: Any, session: str) -> None:
    ended = interlock("send", session, "-", stdin=b"\xff\xfe")
    assert ended.code == 2 and "is not UTF-8" in ended.err
    assert interlock("send", session, "-", stdin="\u00e4\u20ac".encode()).out == WAITS


def test_a_stop_reaches_what_waits_in_the_mailbox(interlock: Any, session: str) -> None:
    assert interlock("send", session, "Do it").out == WAITS
    assert interlock("stop", session, "--keep-inbox").out == f"Nothing runs in session {session}.\n"
    assert interlock("stop", session).out == WAITS

    async def pending() -> int:
        async with (
            SQLiteStore() as store,
            Agent(ScriptedModel(), store=store, session=session) as agent,
        ):
            return len(agent.inbox)

    assert asyncio.run(pending()) == 0
    assert interlock("check", session).code == 0


@pytest.mark.virtual
async def test_what_is_sent_to_a_run_is_done_before_it_ends() -> None:
    """It was taken: the process that has taken it does not leave in the middle of it."""
    store, gate = MemoryStore(), Gate()

    @tool
    async def work() -> str:
        posted = await Mailbox(agent.session.id, store=store, by="ada").followup("And the tests")
        await posted.taken()
        return "done"

    answers = [calls(call("work")), says("the first"), gated(gate, says("the second"))]
    agent = Agent(ScriptedModel(*answers), tools=[work], store=store)
    async with agent:
        asyncio.get_running_loop().call_later(60, gate.open)
        result = await run_to_end(agent, "Go")
    assert result is not None and result.text == "the first"
    assert [fact.reason for fact in agent.session.facts(TurnEnd)] == [Completed(), Completed()]


@pytest.mark.slow
def test_ctrl_c_in_a_turn_that_was_sent_is_what_the_run_came_to(
    interlock: Any, monkeypatch: pytest.MonkeyPatch, work: Any
) -> None:
    stage = "begins"

    async def sends() -> None:
        async with SQLiteStore() as store:
            (info,) = await store.list()
            await Mailbox(info.id, store=store).followup("And the tests")

    def waits() -> bool:
        with closing(sqlite3.connect(default_path())) as connection:
            return connection.execute("SELECT count(*) FROM letter").fetchone() != (0,)

    def answer(_: object) -> Any:
        nonlocal stage
        if stage == "sent" and not waits():
            stage = "over"
            return says("the first")
        if stage == "over":
            os.kill(os.getpid(), signal.SIGINT)
            return hangs()
        if stage == "begins":
            stage = "sent"
            sending = Thread(target=asyncio.run, args=(sends(),))
            sending.start()
            sending.join()
        return calls(call("read", path="a.txt"))

    monkeypatch.setenv("INTERLOCK_MODEL", "script:model")
    undo = register_provider("script", lambda name, *, base_url: ScriptedModel(*[answer] * 10_000))
    try:
        ended = interlock("run", "Go", "--cwd", str(work))
    finally:
        undo()
    assert (ended.code, ended.out) == (130, "the first\n")
    assert [fact.reason for fact in of_last(interlock, TurnEnd)] == [Completed(), Aborted(Cause("user"))]


@pytest.mark.virtual
async def test_a_driver_that_goes_without_taking_it_is_not_said_to_be_slow() -> None:
    async with Agent(ScriptedModel(), store=(store := MemoryStore())) as agent:
        agent.session.journal.on_letter(None)  # it does not hear
        mailbox = Mailbox(agent.session.id, store=store)
        posted = await mailbox.inject("x")
        waiting = asyncio.create_task(_outcome(mailbox, posted))
        with pytest.raises(NotTaken):
            await waiting
        waiting = asyncio.create_task(_outcome(mailbox, posted))
        await asyncio.sleep(1)
    assert await waiting is None


def test_a_full_mailbox_is_said(interlock: Any, session: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.log.stores.sqlite.mail.MAX_LETTERS", 1)
    assert interlock("send", session, "one").code == 0
    ended = interlock("send", session, "two")
    assert ended.code == 2 and "wait in the mailbox" in ended.err


def test_a_secret_of_the_environment_is_not_sent(
    interlock: Any, session: str, monkeypatch: pytest.MonkeyPatch, home: Any
) -> None:
    monkeypatch.setenv("MY_TOKEN", "canary-4f1c9e2b7a60")
    assert interlock("send", session, "it is canary-4f1c9e2b7a60").out == WAITS
    files = b"".join([path.read_bytes() for path in home.iterdir() if path.is_file()])
    assert b"canary-4f" not in files and b"[redacted:MY_TOKEN]" in files


def test_a_stop_that_waits_ends_the_turn_that_waits(interlock: Any, script: Any, work: Any) -> None:
    script(calls(call("write", path="b.txt", content="x")))
    assert interlock("run", "Write it", "--cwd", str(work), "--approvals", "wait").code == 7
    assert interlock("stop", "last", "--by", "ada").out == WAITS
    assert interlock("run", "--resume", "last").code == 130
    assert of_last(interlock, TurnEnd)[-1].reason == Aborted(Cause("user", "ada"))
    assert not (work / "b.txt").exists()
    assert "by ada, letter 1" in interlock("log", "last").out
    assert interlock("approvals", "list").out.startswith("Nothing waits")


# Real processes


@pytest.mark.slow
def test_another_process_is_steered_and_stopped(served: Any, sleeper: Sleeper) -> None:  # noqa: F811  # the fixture
    with started(served, *SLEEP) as running:
        sleeper.runs()
        sent = served.run("send", "last", "Only the docs", "--steer", "--by", "ada")
        assert sent.code == 0 and sent.out.startswith("taken: event ")
        stopped = served.run("stop", "last", "--by", "ada")
        assert stopped.code == 0 and "; turn 1 ends when what it has started does" in stopped.out
        assert running.wait(LIMIT) == 130
    (steered,) = [fact for fact in facts(served, InboxSpliced) if fact.letter is not None]
    assert (steered.by, steered.inserted[0].text) == ("ada", "Only the docs")
    assert int(sent.out.split()[-1]) == position(served, InboxSpliced)
    (asked,) = facts(served, CancelRequested)
    assert (asked.cause, asked.turn, asked.letter.number) == (Cause("user", "ada"), 1, 2)
    assert facts(served, TurnEnd)[-1].reason == Aborted(Cause("user", "ada"))
    assert served.run("check", "last").code == 0
    again = served.run("stop", "last")
    assert again.out.startswith("Nothing runs in session ")
    assert facts(served, MailTaken) == []


def position(served: Any, kind: type) -> int:
    events = served.run("log", "last", "--json").events
    return max(event.seq for event in events if isinstance(event.fact, kind) and event.fact.letter)


@pytest.mark.slow
def test_a_question_of_a_driven_session_is_answered_from_elsewhere(served: Any, work: Any) -> None:
    """The process that asks has a terminal of its own, here one that says nothing."""
    arguments = [
        "run",
        "Write it",
        *model("writer"),
        "--approvals",
        "stdio",
        "--output-format",
        "stream-json",
    ]
    with subprocess.Popen(
        [*served.command, *arguments],
        cwd=served.work,
        env=served.environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if json.loads(line)["type"] == "approval/ask":
                break
        (one,) = [json.loads(line) for line in served.run("approvals", "list", "--json").out.splitlines()]
        told = served.run("approvals", "answer", one["id"], "yes", "--digest", one["digest"])
        assert told.code == 0
        assert told.out.splitlines()[0] == f"{one['id']}: yes."
        assert told.out.splitlines()[1].startswith(f"process {running.pid} on ")
        late = served.run("approvals", "answer", one["id"], "no")
        assert late.code == 2 and "it was decided at" in late.err
        running.communicate(timeout=LIMIT)
        assert running.returncode == 0
    (decided,) = facts(served, ApprovalDecided)
    assert (decided.outcome, decided.channel) == ("allowed-once", "command line")
    assert (work / "b.txt").exists()
    assert facts(served, TurnEnd)[-1].reason == Completed()
