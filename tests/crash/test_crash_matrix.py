"""Crash matrix B: real processes with real tools, killed at any moment. `make crash` does it for longer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from crash.__main__ import main
from crash.fight import fight
from crash.matrix import FAULTS, Acknowledged, Found, compare_marks, kill_again_and_again
from crash.places import KINDS, address_of
from crash.work import Record
from interlock.log.event import Event
from interlock.log.facts import SessionCreated, SessionOpened, ToolCalled, ToolStarted

KILLS = 15


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_after_any_kill_nothing_is_lost_and_nothing_ran_unrecorded(kind: str, tmp_path: Path) -> None:
    """Laws 1 and 6: what was acknowledged is there, every effect has its start, and every session goes on."""
    with address_of(kind, tmp_path) as address:
        found = await kill_again_and_again(address, tmp_path, kills=KILLS, seed=1)
    assert found.faults == {fault: [] for fault in FAULTS}
    assert found.kills == KILLS == sum(found.stages.values())
    assert found.resumed >= KILLS - found.stages["opening"]
    assert found.repaired > 0
    assert found.bodies > 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
async def test_two_processes_that_want_one_session_leave_a_whole_log(kind: str, tmp_path: Path) -> None:
    """One writes at a time, no gap, no double; whoever is too late is told so, and who was first."""
    with address_of(kind, tmp_path) as address:
        found = await fight(address, tmp_path, seconds=3)
    assert found.faults == {fault: [] for fault in FAULTS}
    assert sum(found.lives.values()) > 0
    assert found.refusals.keys() <= {"SessionBusy"}


# The matrix sees what it looks for.


def events(*facts: object) -> list[Event]:
    return [Event(seq, 0, 1, fact) for seq, fact in enumerate(facts)]  # type: ignore[arg-type]


CREATED = SessionCreated("1.1", "s", None, None), SessionOpened(1, "new")
CALLED = ToolCalled(1, 1, 0, "c1", "append", '{"token": "k0-a-0-1"}', "write")


@pytest.mark.parametrize(
    ("started", "marked", "fault"),
    [(1, 1, None), (1, 0, None), (0, 1, "ran without start"), (1, 2, "ran twice"), (2, 2, None)],
)
def test_marks_are_compared_with_starts(started: int, marked: int, fault: str | None) -> None:
    log = events(*CREATED, CALLED, *[ToolStarted(2, "d", run + 1) for run in range(started)])
    found = Found()
    compare_marks({"append": Counter({"k0-a-0-1": marked} if marked else {})}, Record.of(log), found)
    assert [kind for kind in FAULTS if found.faults[kind]] == ([fault] if fault else [])


def test_what_was_acknowledged_is_looked_for() -> None:
    heard = Acknowledged()
    for line in ("ready", "session s 1", "sent m1", "disk 1 0123456789abcdef", "disk 9 abc", "idle 1"):
        heard.hear(line)
    assert heard.lost(events(*CREATED)) == [
        "message m1",
        "line 1, which is another one now",
        "line 9 of 2",
        "turn 1 of 0",
    ]


def test_the_command_says_what_it_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--kills" in capsys.readouterr().out
