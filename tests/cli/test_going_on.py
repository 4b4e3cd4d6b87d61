"""Going on with a session, and with a fork of one: `run --continue`, `--resume-pending`, `fork`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interlock import Agent, SQLiteStore, check
from interlock.log.facts import SessionCreated
from interlock.models.scripted import calls, says
from interlock.testing import ScriptedModel


def session_of(interlock: Any) -> str:
    """The session that was used last."""
    return str(interlock("sessions", "--limit", "1", "--json").out.split('"id":"')[1].split('"')[0])


def task(interlock: Any, folder: Path, *arguments: str) -> str:
    ended = interlock("run", *arguments, "--cwd", str(folder))
    assert ended.code == 0, ended.err
    return str(ended.out)


def leave_pending(home: Path, work: Path, *messages: str) -> None:
    """A session with a turn, and messages that nobody has run."""

    async def main() -> None:
        async with (
            SQLiteStore(home / "interlock.db") as store,
            Agent(ScriptedModel(says("one")), store=store, cwd=work, preset="ask") as agent,
        ):
            await agent.run("first")
            for message in messages:
                agent.send(message, to="turn", wake=False)

    asyncio.run(main())


# The last session of this folder


def test_continue_is_the_last_session_of_this_folder(
    interlock: Any, script: Any, work: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    model = script(says("a"), says("b"), says("c"))
    task(interlock, work, "in work")
    mine = session_of(interlock)
    task(interlock, other, "elsewhere")
    task(interlock, work, "and on", "--continue")
    assert session_of(interlock) == mine
    assert [m.text for m in model.requests[2].messages if m.source.kind != "runtime"] == [
        "in work",
        "a",
        "and on",
    ]


@pytest.mark.parametrize("options", [(), ("--trace",)])
def test_what_an_earlier_life_has_said_is_not_shown_again(
    interlock: Any, script: Any, work: Path, options: tuple[str, ...]
) -> None:
    """The log has it; reading all of it would make a long session slow to go on with."""
    script(calls("read", path="a.txt"), says("a"), calls("glob", pattern="*"), says("b"))
    first = interlock("run", "in work", "--cwd", str(work), *options)
    again = interlock("run", "and on", "--cwd", str(work), "--continue", *options)
    assert first.code == again.code == 0
    assert "read" in first.err
    assert "glob" in again.err and "read" not in again.err


def test_continue_in_a_folder_without_a_session_says_what_to_do(
    interlock: Any, script: Any, work: Path
) -> None:
    script(says("a"))
    ended = interlock("run", "go", "-c", "--cwd", str(work))
    assert ended.code == 2
    assert f"No session has worked in {work}" in ended.err and "--resume" in ended.err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--continue", "--resume", "last"), "name two sessions"),
        (("--resume-pending",), "needs a session"),
    ],
)
def test_what_cannot_be_meant(
    interlock: Any, script: Any, work: Path, options: tuple[str, ...], said: str
) -> None:
    script(says("a"))
    ended = interlock("run", "go", "--cwd", str(work), *options)
    assert (ended.code, said in ended.err) == (2, True)


# What was left pending


def test_it_is_parked_shown_and_comes_before_the_task(
    interlock: Any, script: Any, home: Path, work: Path
) -> None:
    """IN-11."""
    leave_pending(home, work, "from before")
    model = script(says("two"), says("three"))
    ended = interlock("run", "and now", "--continue", "--cwd", str(work))
    assert (ended.code, ended.out) == (0, "three\n")
    assert "pending from before: from before" in ended.err
    asked = [
        [m.text for m in request.messages if m.source.kind == "person"][-1] for request in model.requests
    ]
    assert asked == ["from before", "and now"]


def test_without_a_task_it_stays_parked_and_the_command_says_how_to_run_it(
    interlock: Any, script: Any, home: Path, work: Path
) -> None:
    leave_pending(home, work, "x", "y")
    model = script(says("two"))
    ended = interlock("run", "--resume", "last")
    assert ended.code == 2
    assert "2 messages pending" in ended.err and "--resume-pending" in ended.err
    assert model.requests == []


def test_resume_pending_runs_it(interlock: Any, script: Any, home: Path, work: Path) -> None:
    leave_pending(home, work, "x", "y")
    script(says("to x"), says("to y"))
    ended = interlock("run", "--resume", "last", "--resume-pending")
    assert (ended.code, ended.out) == (0, "to y\n")
    assert "pending from before: x" in ended.err
    again = interlock("run", "--resume", "last", "--resume-pending")
    assert (again.code, "Nothing waits" in again.err) == (2, True)


# Forks


def test_a_fork_goes_on_from_its_turn_and_leaves_its_parent_alone(
    interlock: Any, script: Any, work: Path
) -> None:
    model = script(says("a"), says("b"), says("c"))
    task(interlock, work, "one")
    parent = session_of(interlock)
    task(interlock, work, "two", "--continue")
    before = interlock("log", parent, "--json").out
    ended = interlock("fork", parent[-6:], "--turn", "1")
    made = ended.out.strip()
    assert ended.code == 0 and made != parent
    task(interlock, work, "instead", "--resume", made)
    assert [m.text for m in model.requests[2].messages if m.source.kind != "runtime"] == [
        "one",
        "a",
        "instead",
    ]
    assert interlock("log", parent, "--json").out == before
    events = interlock("log", made, "--json").events
    assert check(events) == []
    created = events[0].fact
    assert isinstance(created, SessionCreated) and created.parent is not None
    assert created.parent.session == parent
    assert f"a fork of {parent}" in interlock("log", made).out
    assert interlock("check", made, parent).code == 0


def test_a_fork_at_a_turn_that_is_not_closed_is_refused(interlock: Any, script: Any, work: Path) -> None:
    script(says("a"))
    task(interlock, work, "one")
    ended = interlock("fork", "last", "--turn", "2")
    assert (ended.code, ended.out) == (2, "")
    assert "closed turns are 1" in ended.err
    assert interlock("fork", "nobody").code == 2
