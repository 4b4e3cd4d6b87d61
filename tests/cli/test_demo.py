"""`interlock demo`: the story, told twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock import check
from interlock.cli import flaky_service, story
from interlock.log.facts import (
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    InboxSpliced,
    StepStart,
    ToolCalled,
    ToolDecided,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    UserMessage,
)
from interlock.log.reasons import kind_of
from interlock.models.scripted import calls, says
from interlock.testing import outline

pytestmark = pytest.mark.slow  # it starts many processes


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(story, "HELD_BACK", 0)


def test_the_story_is_told(interlock: Any, home: Path) -> None:
    ended = interlock("demo")
    assert ended.code == 0 and ended.err == ""
    events = interlock("log", "last", "--json").events
    assert check(events) == []
    assert outline(events, "tool/result", "turn/end", "tool/decided") == [
        *[f"tool/result #{call} {_read(home, path)}" for call, path in _READS],
        "tool/decided #c4 deny by analysis_only: analysis only: nothing may be written in this session; describe the "
        "change instead",
        "tool/result #c4 error GUARD_DENIED analysis only: nothing may be written in this session; describe the "
        "change instead",
        "turn/end completed",
        "tool/result #c5 error ABORTED tool call aborted",
        "tool/result #c6 error ABORTED_BEFORE_DISPATCH tool call aborted before dispatch",
        "tool/result #c7 error ABORTED_BEFORE_DISPATCH tool call aborted before dispatch",
        "turn/end aborted (user)",
    ]
    # What is shown in the end is what `interlock log` shows.
    assert interlock("log", "last").out in ended.out


_READS = [("c1", flaky_service.LOG), ("c2", flaky_service.CONFIG), ("c3", flaky_service.REPORT)]


def _read(home: Path, path: str) -> str:
    text = (home / "demo-1" / path).read_text()
    return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(text.splitlines(), 1))


def test_the_acts_happen_as_they_are_told(interlock: Any, home: Path) -> None:
    interlock("demo")
    facts = [event.fact for event in interlock("log", "last", "--json").events]

    def at(cls: type, n: int = 0) -> int:
        return [i for i, fact in enumerate(facts) if isinstance(fact, cls)][n]

    # Two reads finish before the first one, and are committed after it.
    assert [facts[at(ToolStarted, n)].call for n in range(3)] == [at(ToolCalled, n) for n in range(3)]
    assert {facts[at(ToolSettled, n)].call for n in range(2)} == {at(ToolCalled, 1), at(ToolCalled, 2)}
    assert at(ToolSettled, 1) < at(ToolResulted, 0)
    # The limit arrives while the model speaks, and is admitted with the next step.
    steered = at(InboxSpliced, 1)
    assert facts[steered].inserted[0].text == story.LIMIT
    assert isinstance(facts[steered - 1], AssistantChunk) and isinstance(facts[steered + 1], AssistantChunk)
    assert steered < at(AssistantMessage, 1)
    admitted = next(f for f in facts[at(StepStart, 2) :] if isinstance(f, UserMessage))
    assert admitted.content[0].text == story.LIMIT
    # The person says yes, and a guard still says no: nothing ran.
    assert facts[at(ApprovalDecided)].outcome == "allowed-once"
    assert (facts[at(ToolDecided)].stage, facts[at(ToolDecided)].verdict) == ("guard", "deny")
    edit = at(ToolCalled, 3)
    assert not [f for f in facts if isinstance(f, ToolStarted) and f.call == edit]
    assert (home / "demo-1" / flaky_service.CONFIG).read_text().startswith("[database]\npool_size = 4\n")
    # The stop: what ran was awaited, the others were answered.
    assert [kind_of(f.reason) for f in facts if isinstance(f, TurnEnd)] == ["completed", "aborted"]
    assert [f.synthetic for f in facts if isinstance(f, ToolCalled)][-3:] == [False, True, True]


def test_it_works_twice_each_time_in_a_folder_of_its_own(interlock: Any, home: Path) -> None:
    assert [interlock("demo").code for _ in range(2)] == [0, 0]
    assert sorted(path.name for path in home.iterdir()) == ["demo-1", "demo-2", "interlock.db"]
    assert len(interlock("sessions", "--json").out.splitlines()) == 2
    assert interlock("check", "last").code == 0


def test_the_same_task_runs_on_a_model_of_ones_own(interlock: Any, script: Any, home: Path) -> None:
    model = script(
        calls("read", path=flaky_service.LOG),
        calls("write", path="fix.txt", content="x"),
        says("The pool leaks."),
    )
    ended = interlock("demo", "--model", "script:mine")
    assert ended.code == 0
    assert "The pool leaks." in ended.out and "every law of the log holds" in ended.out
    assert model.requests[0].messages[0].text == story.TASK
    assert story.LIMIT in [message.text for message in model.requests[2].messages]
    assert "analysis only" in model.requests[2].messages[-2].text  # the denial, before the limit
    assert not (home / "demo-1" / "fix.txt").exists()


def test_a_model_that_fails_is_told_by_the_exit_code(interlock: Any, script: Any) -> None:
    script()
    assert interlock("demo", "--model", "script:mine").code == 1
    assert interlock("demo", "--model", "nobody:x").code == 2


def test_a_home_that_cannot_be_made_is_told(interlock: Any, home: Path) -> None:
    home.write_text("a file")
    ended = interlock("demo")
    assert ended.code == 2
    assert "No folder for the demo can be made" in ended.err


def test_the_cause_can_be_found_by_reading(tmp_path: Path) -> None:
    flaky_service.build(tmp_path)
    log = (tmp_path / flaky_service.LOG).read_text().splitlines()
    first = next(i for i, line in enumerate(log) if "TimeoutError" in line)
    assert sum("has no price" in line for line in log[:first]) == 4  # as many as the pool has connections
    assert "09:20" in log[first]
    for source in tmp_path.glob("checkout/*.py"):
        compile(source.read_text(), source.name, "exec")
