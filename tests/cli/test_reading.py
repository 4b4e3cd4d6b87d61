"""`interlock sessions`, `log` and `check`: looking at what is kept, without changing it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock import UsageError
from interlock.cli.reading import find
from interlock.log.checkpoint import Snapshot
from interlock.log.event import Event
from interlock.log.facts import SessionCreated, StepEnd, TurnStart
from interlock.log.session import create_session
from interlock.log.state import State
from interlock.log.stores.memory.store import MemoryStore
from interlock.log.stores.sqlite.checkpoint import keep_checkpoint
from interlock.models.scripted import calls, says


@pytest.fixture
def ran(interlock: Any, script: Any, work: Path) -> str:
    """The id of a session in which one task was run."""
    script(calls("read", path="a.txt"), says("It says hello."))
    interlock("run", "What does it say?", "--cwd", str(work))
    session_id: str = json.loads(interlock("sessions", "--json").out)["id"]
    return session_id


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("sessions",), 0, "No sessions yet in "),
        (("sessions", "--json"), 0, ""),
        (("log", "last"), 2, "No session 'last'"),
        (("check", "x"), 2, "No session 'x'"),
    ],
)
def test_looking_where_nothing_is_makes_no_file(
    interlock: Any, home: Path, arguments: tuple[str, ...], code: int, said: str
) -> None:
    ended = interlock(*arguments)
    assert ended.code == code
    assert said in ended.out + ended.err
    assert not home.exists()


def test_sessions_are_listed_the_last_used_first(interlock: Any, script: Any, work: Path) -> None:
    script(says("1"), says("2"), says("3"))
    for task in ("first", "second", "third\nand more"):
        interlock("run", task, "--cwd", str(work))
    head, *rows = interlock("sessions").out.splitlines()
    assert head.split() == ["session", "last", "used", "events", "folder", "title"]
    assert [row.split(str(work))[1].strip() for row in rows] == ["third and more", "second", "first"]
    listed = [json.loads(line) for line in interlock("sessions", "--json", "--limit", "2").out.splitlines()]
    assert [info["title"] for info in listed] == ["third and more", "second"]
    assert [row.split()[0] for row in rows[:2]] == [info["id"] for info in listed]
    assert interlock("sessions", "--limit", "0").code == 2


def test_the_log_is_a_timeline(interlock: Any, ran: str, work: Path) -> None:
    ended = interlock("log", ran)
    assert ended.code == 0 and ended.err == ""
    said = [line[17:] for line in ended.out.splitlines()]  # without seq and time
    assert said[0].startswith(f"─ session  {ran}, 20") and f" in {work} (interlock " in said[0]
    assert said[1].startswith("· life 1  begun by process ")
    assert said[2:9] == [
        "· preset  ask: tools that read run, for the rest a person is asked",
        "» for the next turn  person: What does it say?",
        "─ turn 1",
        "  ─ step 1.1",
        "    » person  What does it say?",
        said[7],  # the folder and the date
        "    · scripted:scripted  is sent 2 messages",
    ]
    assert said[9:12] == [
        "    ◆ model  → read#c1",
        "    → read#c1  path=a.txt",
        "    ▸ read#c1  runs, allowed by preset ask",
    ]
    assert said[-2:] == ["  ─ step 1.2 ends  completed", "─ turn 1 ends  completed, 2 steps"]
    numbers = [int(line.split()[0]) for line in ended.out.splitlines()]
    assert numbers == sorted(numbers) and numbers[0] == 0


def test_json_gives_the_stored_lines(interlock: Any, ran: str) -> None:
    ended = interlock("log", ran, "--json")
    assert [event.seq for event in ended.events] == list(range(len(ended.events)))
    assert isinstance(ended.events[0].fact, SessionCreated)


@pytest.mark.parametrize("part", [slice(None), slice(0, -1), slice(-6, None)])
def test_a_part_of_the_id_is_enough_if_only_one_fits(interlock: Any, ran: str, part: slice) -> None:
    assert interlock("log", ran[part]).out == interlock("log", "last").out


async def test_an_ambiguous_part_names_the_candidates() -> None:

    store = MemoryStore()
    for name in ("ab1", "ab2", "ab3", "ab4", "ab"):
        await (await create_session(store, name)).close()
    assert await find(store, "ab") == "ab"  # a whole id is meant, whatever else begins so
    assert await find(store, "3") == "ab3"
    with pytest.raises(UsageError, match=r"'a' could be any of 5 sessions: .*, …\. Type more"):
        await find(store, "a")


async def test_last_is_the_last_used_one_even_if_others_are_named_so() -> None:
    store = MemoryStore()
    clock = iter(range(1000, 2000))
    for name in ("blast", "plain"):
        await (await create_session(store, name, clock=lambda: next(clock))).close()
    assert await find(store, "last") == "plain"


def test_check_says_that_every_law_holds(interlock: Any, ran: str) -> None:
    events = len(interlock("log", ran, "--json").events)
    ended = interlock("check", ran, "last")
    assert ended.code == 0
    assert ended.out.splitlines() == [f"{ran}: {events} events, every law holds"] * 2


def test_check_says_where_a_law_is_broken(interlock: Any, ran: str, home: Path) -> None:
    events = interlock("log", ran, "--json").events
    end = next(event for event in events if isinstance(event.fact, StepEnd))
    _overwrite(home, end, "turn/start", b'{"turn":7}')
    ended = interlock("check", ran)
    assert ended.code == 1
    assert ended.out == f"{ran}: event {end.seq} breaks the law [one turn]: turn 1 is open\n"
    assert isinstance(interlock("log", ran, "--json").events[end.seq].fact, TurnStart)
    assert "─ turn 7" in interlock("log", ran).out  # a broken log can be looked at


@pytest.mark.parametrize(
    ("forged", "said"),
    [
        (False, None),
        (True, "replaying the log says something else"),
    ],
)
def test_check_compares_the_checkpoint_with_the_log(
    interlock: Any, ran: str, home: Path, forged: bool, said: str | None
) -> None:
    """ER-07: it is never truth."""
    events = interlock("log", ran, "--json").events
    state = State()
    for event in events:
        state.apply(event)
    if forged:
        state.grants["Bash(rm:*)"] = 1  # what no line says
    kept = Snapshot(ran, state, events[-1]).kept()
    with closing(sqlite3.connect(home / "interlock.db")) as connection, connection:
        connection.execute("CREATE TEMP TABLE held AS SELECT key AS session, fence FROM session")
        keep_checkpoint(connection, 1, kept)
    ended = interlock("check", ran)
    if said is None:
        assert (ended.code, ended.out) == (0, f"{ran}: {len(events)} events, every law holds\n")
        return
    assert ended.code == 1
    assert ended.out == f"{ran}: its checkpoint at event {events[-1].seq} is wrong: {said}\n"
    with closing(sqlite3.connect(home / "interlock.db")) as connection, connection:
        connection.execute("UPDATE checkpoint SET data = CAST('{}' AS BLOB)")
    assert "is wrong: it is damaged" in interlock("check", ran).out
    with closing(sqlite3.connect(home / "interlock.db")) as connection, connection:
        connection.execute("UPDATE checkpoint SET form = 'of another version'")
    assert interlock("check", ran).code == 0  # nobody reads it here


@pytest.mark.parametrize(
    ("stored_type", "data", "problem"),
    [
        ("plugin/thing", b"{}", "is of type 'plugin/thing', which the plugin 'plugin' writes"),
        ("step/end", b'{"turn":1}', "cannot be read"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(
    interlock: Any, ran: str, home: Path, stored_type: str, data: bytes, problem: str
) -> None:
    end = next(e for e in interlock("log", ran, "--json").events if isinstance(e.fact, StepEnd))
    _overwrite(home, end, stored_type, data)
    checked = interlock("check", ran)
    assert checked.code == 1
    assert checked.out.startswith(f"{ran}: Event {end.seq} ") and problem in checked.out
    shown = interlock("log", ran)
    assert shown.code == 6
    assert problem in shown.err and "─ step 1.1" in shown.out  # what comes before it is shown


def test_looking_writes_no_line(interlock: Any, ran: str, home: Path) -> None:
    before = _rows(home)
    for arguments in (("sessions",), ("log", ran), ("log", ran, "--json"), ("check", ran)):
        assert interlock(*arguments).code == 0
    assert _rows(home) == before


def _overwrite(home: Path, event: Event, stored_type: str, data: bytes) -> None:
    connection = sqlite3.connect(home / "interlock.db")
    with connection:
        changed = connection.execute(
            "UPDATE event SET type = ?, data = ? WHERE first = ?", (stored_type, data, event.seq)
        )
    assert changed.rowcount == 1
    connection.close()


def _rows(home: Path) -> list[Any]:
    connection = sqlite3.connect(home / "interlock.db")
    rows = (
        connection.execute("SELECT * FROM event").fetchall()
        + connection.execute("SELECT * FROM session").fetchall()
    )
    connection.close()
    return rows
