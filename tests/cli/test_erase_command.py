"""`interlock erase`, as a process: what it asks, what it says, and what the other commands make of what is left."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import sqlite3
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from interlock import Agent, Mailbox, SQLiteStore, tool
from interlock.log.erasing import ErasureReceipt
from interlock.log.facts import ContentErased
from interlock.log.forking import fork_session
from interlock.testing import ScriptedModel, calls, says

from .conftest import Ended, Program

CANARY = "canary-of-erase"


@tool(effect="read")
def look(at: str) -> str:
    """Looks."""
    return f"{CANARY} seen " * 4000


@pytest.fixture
def session(home: Path) -> str:
    """A session in the default store, and a fork of it."""

    async def made() -> str:
        async with SQLiteStore(home / "interlock.db") as store:
            model = ScriptedModel(calls("look", at=CANARY), says("Done."))
            async with Agent(model, tools=[look], store=store) as agent:
                await agent.run(f"Say {CANARY}")
                session_id = agent.session.id
            await (await fork_session(session_id, store=store, new_id="fork-1")).close()
            await Mailbox(session_id, store=store, by="ada").followup("hallo")
            return session_id

    return asyncio.run(made())


def holds(home: Path) -> list[str]:
    return [file.name for file in home.rglob("*") if file.is_file() and CANARY.encode() in file.read_bytes()]


@pytest.mark.slow
def test_it_erases_and_gives_a_receipt(program: Program, home: Path, session: str, tmp_path: Path) -> None:
    assert holds(home)
    file = tmp_path / "receipt.json"
    ended = program.run(
        "erase", session, "--yes", "--by", "ops", "--reason", "request 12", "--receipt", str(file)
    )
    assert (ended.code, ended.err) == (0, "")
    assert holds(home) == []
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    receipt = msgspec.json.decode(file.read_bytes(), type=ErasureReceipt)
    assert (receipt.by, receipt.reason, receipt.left) == ("ops", "request 12", ())
    fork, own = receipt.sessions
    assert (fork.session, fork.fork_of, own.session, own.letters) == ("fork-1", session, session, 1)
    assert sum(len(one.artifacts) for one in receipt.sessions) >= 1
    assert f"receipt {receipt.id}" in ended.out
    assert "fork-1  last used" in ended.out and f"a fork of {session}" in ended.out
    assert CANARY not in file.read_text() + ended.out


@pytest.mark.slow
def test_what_is_left_is_looked_at(interlock: Callable[..., Ended], session: str, work: Path) -> None:
    interlock("erase", session, "--yes", "--by", "ops")

    assert "every law holds" in interlock("check", session).out
    log = interlock("log", session).out
    assert "user/message  (erased)" in log and "by ops, receipt er-" in log
    assert "(erased " in interlock("sessions").out
    listed = [json.loads(line) for line in interlock("sessions", "--json").out.splitlines()]
    assert all(one["erased"] and one["title"] is None for one in listed)
    assert "was erased at" in interlock("explain", session).out
    assert interlock("search", "canary").code == 1
    assert interlock("export", session, "-o", str(work / "x.jsonl")).code == 0
    assert interlock("--store", f"jsonl:{work / 'there'}", "import", str(work / "x.jsonl")).code == 0
    assert "every law holds" in interlock("--store", f"jsonl:{work / 'there'}", "check", session).out
    for arguments in (
        ("fork", session),
        ("send", session, "hallo"),
        ("run", "--model", "script:none", "--resume", session, "hallo"),
    ):
        refused = interlock(*arguments)
        assert refused.code != 0
        assert refused.out == ""
    assert "was erased at" in interlock("fork", session).err
    assert "was erased at" in interlock("send", session, "hallo").err


def test_nobody_is_asked_without_a_terminal(
    interlock: Callable[..., Ended], home: Path, session: str
) -> None:
    ended = interlock("erase", session)
    assert ended.code == 2
    assert "add --yes. Nothing was erased." in ended.err
    assert holds(home)


def test_a_dry_run_erases_nothing(interlock: Callable[..., Ended], home: Path, session: str) -> None:
    ended = interlock("erase", session, "--dry-run")
    assert ended.code == 0
    assert ended.out.startswith("fork-1") and session in ended.out
    assert holds(home)


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "erased"), [("yes", True), ("no", False), ("", False)])
def test_on_a_terminal_it_asks(program: Program, home: Path, session: str, answer: str, erased: bool) -> None:
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    with subprocess.Popen(
        [*program.command, "erase", session],
        cwd=program.work,
        env=program.environment,
        stdin=theirs,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        out, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(theirs)
    assert "Erase all that these 2 sessions hold? It cannot be undone. [y/N]" in out
    assert (holds(home) == []) == erased
    assert ("Nothing was erased." in out) == (not erased)


def test_all_of_somebody(interlock: Callable[..., Ended], home: Path, session: str) -> None:
    ended = interlock("erase", "--principal", "ada", "--yes")
    assert ended.code == 0
    assert session in ended.out and "fork-1" in ended.out
    assert holds(home) == []
    assert interlock("erase", "--principal", "ada", "--yes").out == "ada took part in no session.\n"


def test_what_hooks_were_given_goes_as_well(
    interlock: Callable[..., Ended], home: Path, session: str
) -> None:
    """Also where a crash has come between the lines and that: the next one who erases takes it."""
    for _ in range(2):
        for name in (session, "another"):
            folder = home / "hooks" / name
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "transcript.jsonl").write_text(CANARY if name == session else "kept")
        assert holds(home)
        ended = interlock("erase", "--principal", "ada", "--yes")
        assert (ended.code, ended.err) == (0, "")
        assert holds(home) == []
        assert (home / "hooks" / "another" / "transcript.jsonl").exists()
    assert ended.out == "ada took part in no session.\n"


def test_files_are_written_anew_though_a_crash_came_before(
    interlock: Callable[..., Ended], home: Path, session: str
) -> None:
    """Of a principal nothing is left to be found then."""

    async def cut() -> None:
        async with SQLiteStore(home / "interlock.db") as store:
            await store.erase([ContentErased(one, "er", "ops") for one in (session, "fork-1")], time=5)

    with sqlite3.connect(home / "interlock.db") as file:
        before = file.execute("PRAGMA page_count").fetchone()
    asyncio.run(cut())
    assert interlock("erase", "--principal", "ada", "--yes").code == 0
    with sqlite3.connect(home / "interlock.db") as file:
        assert file.execute("PRAGMA freelist_count").fetchone() == (0,)
        assert file.execute("PRAGMA page_count").fetchone() < before


def test_a_log_that_cannot_be_read_leaves_it_open(
    interlock: Callable[..., Ended], home: Path, session: str
) -> None:
    """Nobody may take it for done: it may be one of theirs."""
    with sqlite3.connect(home / "interlock.db") as file:
        file.execute(
            "UPDATE event SET data = ? WHERE type = 'turn/start' AND session = "
            "(SELECT key FROM session WHERE id = 'fork-1')",
            (b'{"turn": "one"}',),
        )
    ended = interlock("erase", "--principal", "bob", "--yes")
    assert ended.code == 1
    assert "fork-1 cannot be read, and is left alone" in ended.out
    assert interlock("erase", "--principal", "ada", "--yes").code == 0  # as a fork it is one of hers
    assert holds(home) == []


def test_a_receipt_that_cannot_be_kept_is_printed(
    interlock: Callable[..., Ended], home: Path, session: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything has gone by then."""

    def full(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    ended = interlock("erase", session, "--yes", "--receipt", str(tmp_path / "receipt.json"))
    assert ended.code != 0
    assert "No space left on device. The receipt is what is printed above." in ended.err
    assert "receipt er-" in ended.out and session in ended.out
    assert holds(home) == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Name the sessions that are to be erased, or give --principal."),
        (("--principal", " ", "--yes"), "--principal is the id of somebody"),
        (("none", "--yes"), "No session 'none' in this store"),
        (("last", "--yes", "--receipt", "work"), "There is a file"),
        (("last", "--yes", "--receipt", "no/such/folder"), "cannot be written"),
        (("last", "--yes", "--by", " "), "Say who erases"),
    ],
)
def test_what_is_wrong_is_said(
    interlock: Callable[..., Ended],
    home: Path,
    session: str,
    arguments: tuple[str, ...],
    said: str,
    work: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(work)
    (work / "work").touch()
    ended = interlock("erase", *arguments)
    assert ended.code == 2
    assert said in ended.err
    assert holds(home)
