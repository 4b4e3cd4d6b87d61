"""A piece of real work, on a checkout of this very repository, with the tools in the box and a log on disk.

The model is scripted, but it reacts: which line it edits, and what it reports, it takes from what the tools really
said. Everything else is real: git, the files, the tests that fail and pass, SQLite.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import date
from pathlib import Path

import pytest

from interlock import Agent, Budget, Session, SQLiteStore, ToolCall, ToolResult, open_session
from interlock.log.facts import (
    AssistantMessage,
    RequestSent,
    SessionOpened,
    SessionRepaired,
    ToolResulted,
    ToolSettled,
    ToolStarted,
)
from interlock.log.messages import ToolOutcome, ToolUse
from interlock.log.reasons import Completed, OverBudget
from interlock.models import ModelRequest
from interlock.models.scripted import Answer, Call, Reply
from interlock.testing import ScriptedModel, assert_laws, call, calls, says
from interlock.toolkit import workspace

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2]
MODULE = "src/interlock/models/sse.py"
TESTS = "tests/models/test_sse.py"
JOINED = 'b"\\n".join(self._data)'  # what the module does with the lines of an event
NEW_TEST = """def test_two_lines_of_data_are_joined_by_a_line_break() -> None:
    assert decoded(b"data: a\\ndata: b\\n\\n") == [b"a\\nb"]


"""
FIRST_TEST = "def test_an_event_is_complete_at_its_blank_line() -> None:\n"
USED = (1_000, 50)  # tokens in and out that every answer reports


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone of this repository; where there is only its source, a repository that is made of that."""
    environment = {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "1",  # a checkout may belong to another user
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "GIT_AUTHOR_NAME": "A Model",
        "GIT_AUTHOR_EMAIL": "model@example.invalid",
        "GIT_COMMITTER_NAME": "A Model",
        "GIT_COMMITTER_EMAIL": "model@example.invalid",
        "PYTHONDONTWRITEBYTECODE": "1",  # edits within one second must not meet the bytecode of the last one
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    folder = tmp_path / "checkout"
    if (REPOSITORY / ".git").exists():
        git(tmp_path, "clone", "--quiet", str(REPOSITORY), str(folder))
    else:
        ignored = shutil.ignore_patterns(".*", "__pycache__", "node_modules", "*.egg-info")
        shutil.copytree(REPOSITORY, folder, ignore=ignored)
        shutil.copy(REPOSITORY / ".gitignore", folder)
        git(folder, "init", "--quiet")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message=All of it")
    return folder


def git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout


# The model


def heard(request: ModelRequest, call_id: str) -> str:
    """What the model has read as the result of its call `call_id`, the last of that name."""
    for message in reversed(request.messages):
        for block in message.content:
            if isinstance(block, ToolOutcome) and block.call_id == call_id:
                return block.text
    raise AssertionError(f"the model was told nothing of {call_id}")


def found(pattern: str, text: str) -> re.Match[str]:
    match = re.search(pattern, text)
    assert match is not None, f"no {pattern!r} in:\n{text}"
    return match


def line_in(listing: str) -> str:
    """The text of the only line that `read` or `grep` showed."""
    return found(r"^(?: *\d+\t|[^:\n]+:\d+:)(.*)", listing)[1]


def reads(*paths: str, limit: int = 30) -> list[Call]:
    return [call("read", path=path, limit=limit) for path in paths]


def break_it(request: ModelRequest) -> Answer:
    line = line_in(heard(request, "where"))
    assert JOINED in line
    return answer(call("edit", path=MODULE, old=line, new=line.replace(JOINED, JOINED.removeprefix("b"))))


def look_at_the_error(request: ModelRequest) -> Answer:
    number = int(found(rf"{re.escape(MODULE)}:(\d+): TypeError", heard(request, "red"))[1])
    return answer(call("read", id="culprit", path=MODULE, offset=number, limit=1))


def mend_it_badly(request: ModelRequest) -> Answer:
    line = line_in(heard(request, "culprit"))
    return answer(call("edit", path=MODULE, old=line, new=line.replace('"\\n"', 'b""')))


def look_at_the_assertion(request: ModelRequest) -> Answer:
    number = int(found(rf"{re.escape(TESTS)}:(\d+): AssertionError", heard(request, "still red"))[1])
    return answer(
        call("read", id="expected", path=TESTS, offset=number, limit=1),
        call("grep", id="culprit", pattern=r'b""\.join\(self\._data\)', path=MODULE),
    )


def mend_it(request: ModelRequest) -> Answer:
    assert r"\n" in line_in(heard(request, "expected"))  # the test wants the line break between the lines
    line = line_in(heard(request, "culprit"))
    return answer(call("edit", path=MODULE, old=line, new=line.replace('b""', 'b"\\n"')))


def report(request: ModelRequest) -> Answer:
    before = int(found(r"(\d+) passed", heard(request, "before"))[1])
    after = int(found(r"(\d+) passed", heard(request, "after"))[1])
    return says(f"Mended, with a test more: {before} passed before, {after} pass now.", usage=USED)


def answer(*wanted: Call) -> Answer:
    return calls(*wanted, usage=USED)


def bash(command: str, *, id: str | None = None) -> Answer:  # noqa: A002  # the name it has everywhere
    return answer(call("bash", id=id, command=command))


def run_tests(name: str) -> Answer:
    command = f"PYTHONPATH=src {shlex.quote(sys.executable)} -m pytest -q -x -p no:cacheprovider {TESTS}"
    return bash(command, id=name)


SCRIPT: list[Reply] = [
    # Look around
    answer(call("glob", id="modules", pattern="src/interlock/models/*.py")),
    answer(
        call("glob", pattern="tests/models/test_*.py"),
        call("grep", id="class", pattern=r"^class EventDecoder", path="src"),
        call("read", path="pyproject.toml", limit=10),
    ),
    answer(*reads(MODULE, TESTS, "CONTRIBUTING.md", "Makefile", limit=200)),
    bash("git status --short", id="clean"),
    run_tests("before"),
    # Break it, and find out
    answer(call("grep", id="where", pattern=r'append\(b"\\n"\.join', path=MODULE)),
    break_it,
    answer(call("read", path=MODULE), call("grep", id="users", pattern="EventDecoder", path="src")),
    bash("git diff --stat", id="broken"),
    run_tests("red"),
    look_at_the_error,
    answer(*reads(TESTS, MODULE)),
    # Mend it badly, and find out
    mend_it_badly,
    run_tests("still red"),
    look_at_the_assertion,
    mend_it,
    run_tests("green"),
    bash("git diff", id="as before"),
    # Leave a test behind
    answer(*reads(TESTS, MODULE), call("grep", id="tests", pattern="^def test_", path=TESTS)),
    answer(call("edit", path=TESTS, old=FIRST_TEST, new=NEW_TEST + FIRST_TEST)),
    run_tests("after"),
    answer(
        call("grep", pattern="joined_by_a_line_break", path="tests"),
        call("grep", pattern="joined_by_a_line_break", path="src"),
    ),
    bash("git diff --stat", id="changed"),
    bash("git commit --quiet --all --message='Test that lines of data are joined'"),
    bash("git log --format=%s -1", id="subject"),
    # Write a note, and take it back
    answer(
        call("write", path="notes/mended.md", content="The lines of an event are joined by a line break.\n")
    ),
    answer(*reads("notes/mended.md", MODULE), call("glob", pattern="notes/*")),
    bash("git status --short", id="untracked"),
    bash("rm -r notes"),
    answer(call("glob", id="no notes", pattern="notes/*"), call("read", path=MODULE)),
    bash("git diff HEAD~1", id="diff"),
    report,
]
CALLS_BY_TOOL = {"bash": 14, "read": 15, "grep": 7, "glob": 4, "edit": 4, "write": 1}
ALLOWED = sum(CALLS_BY_TOOL.values()) + 2  # in the whole session


# What the test does to it


def first_returns_last() -> Callable[..., Awaitable[ToolResult]]:
    """A wrapper of bodies: the first call of an answer returns only when all others have."""
    returned: Counter[int] = Counter()
    all_others = asyncio.Condition()

    async def wait_for_the_others(
        call: ToolCall, following: Callable[[], Awaitable[ToolResult]]
    ) -> ToolResult:
        result = await following()
        if call.index == 0:
            others = len(call.agent.session.history.view()[-1].calls) - 1
            async with all_others:
                await all_others.wait_for(lambda: returned[call.step] == others)
        else:
            async with all_others:
                returned[call.step] += 1
                all_others.notify_all()
        return result

    return wait_for_the_others


async def test_a_bug_is_made_found_and_mended_in_a_real_repository(checkout: Path, tmp_path: Path) -> None:
    original = (checkout / MODULE).read_text()
    database = tmp_path / "sessions.db"
    budget = Budget(tool_calls=ALLOWED, per="session")

    async with SQLiteStore(database) as store:
        model = ScriptedModel(*SCRIPT)
        agent = Agent(
            model,
            tools=workspace(),
            cwd=checkout,
            store=store,
            budget=budget,
            today=lambda: date(2026, 11, 30),
        )
        async with agent:
            agent.on.execute(first_returns_last())
            result = await agent.run("Make a bug in the decoder of server-sent events, and mend it.")
            session_id = agent.session.id
            assert_laws(agent.session)
        told = model.requests[-1]

    # It was really done, says git
    assert result.reason == Completed()
    assert result.steps == len(SCRIPT) >= 30
    assert (checkout / MODULE).read_text() == original
    assert git(checkout, "status", "--short") == ""
    assert git(checkout, "log", "--format=%an %s", "-1") == "A Model Test that lines of data are joined\n"
    assert NEW_TEST in (checkout / TESTS).read_text()

    # The model was told what really happened
    assert MODULE in heard(told, "modules").splitlines()
    assert heard(told, "class").startswith(f"{MODULE}:")
    assert heard(told, "clean") == "[no output]"
    assert f"{MODULE} | 2 +-" in heard(told, "broken")
    assert "src/interlock/models/openai.py:" in heard(told, "users")
    red, still_red = heard(told, "red"), heard(told, "still red")
    assert "expected str instance, bytes found" in red and red.endswith("[exit code 1]")
    assert "1 failed" in still_red and still_red.endswith("[exit code 1]")
    assert "passed" in heard(told, "green") and "exit code" not in heard(told, "green")
    assert heard(told, "as before") == "[no output]"
    assert f"{TESTS} | 4 ++++" in heard(told, "changed")
    assert heard(told, "subject") == "Test that lines of data are joined"
    assert heard(told, "untracked") == "?? notes/"
    assert [line for line in heard(told, "diff").splitlines() if re.match(r"[+-](?![+-])", line)] == [
        f"+{line}" for line in NEW_TEST.splitlines()
    ]
    before = len(heard(told, "tests").splitlines())
    assert result.text == f"Mended, with a test more: {before} passed before, {before + 1} pass now."
    assert heard(told, "no notes").startswith("[")

    # Another process, a day later
    async with SQLiteStore(database) as store:
        session = await open_session(session_id, store=store, readonly=True)
        assert_laws(session)
        assert session.durable
        calls_overlapped_and_were_committed_in_order(session)
        tally = session.state.tally
        assert tally.tools == CALLS_BY_TOOL
        assert tally.tool_calls == sum(CALLS_BY_TOOL.values())
        assert (tally.steps, tally.requests) == (len(SCRIPT), len(SCRIPT))
        assert (tally.tokens_in, tally.tokens_out) == (len(SCRIPT) * USED[0], len(SCRIPT) * USED[1])
        assert (result.usage.input, result.usage.output) == (tally.tokens_in, tally.tokens_out)
        told_before = session.history.view()
        await session.close()

        def remember(request: ModelRequest) -> Answer:
            return says(found(r"expected str instance, bytes found", heard(request, "red"))[0], usage=USED)

        model = ScriptedModel(
            bash("git log --format=%s -1", id="last"),
            remember,
            answer(call("read", id="one more", path=MODULE), call("read", id="too many", path=TESTS)),
        )
        agent = Agent(
            model,
            tools=workspace(),
            cwd=checkout,
            session=session_id,
            store=store,
            budget=budget,
            today=lambda: date(2026, 11, 30),
        )
        async with agent:
            remembered = await agent.run("What had been wrong?")
            assert remembered.ok and remembered.turn == 2
            assert remembered.text == "expected str instance, bytes found"
            assert heard(model.requests[-1], "last") == "Test that lines of data are joined"
            # The history goes on where it was, with what is new
            assert list(model.requests[0].messages[: len(told_before)]) == list(told_before)
            assert [m.text for m in model.requests[0].messages[len(told_before) :]] == [
                "What had been wrong?"
            ]
            assert [opened.how for opened in agent.session.facts(SessionOpened)] == ["new", "resume"]
            assert agent.session.facts(SessionRepaired) == []

            # The budget is the session's: one call is left, and two are wanted
            spent = await agent.run("Read it again, both files.")
            assert spent.reason == OverBudget("tool_calls", ALLOWED, ALLOWED)
            outcomes = {o.call_id: o for m in spent.messages for o in m.content if isinstance(o, ToolOutcome)}
            assert outcomes["one more"].error is None
            assert outcomes["too many"].error is not None
            assert agent.session.state.tally.tool_calls == ALLOWED
            assert_laws(agent.session)


def calls_overlapped_and_were_committed_in_order(session: Session) -> None:
    """In each answer with several calls: the first was started before and finished after the others."""
    answers: list[list[str]] = []
    started: dict[int, int] = {}
    settled: dict[int, int] = {}
    results: list[tuple[str, int, int]] = []  # the model's id, the call, the line

    def compare() -> None:
        if not answers or not answers[-1]:
            return
        assert [call_id for call_id, _, _ in results] == answers[-1]
        (_, first, first_line), *others = results
        for _, other, _ in others:
            assert started[first] < started[other] < settled[other] < first_line
        assert first not in settled  # nothing was committed before it

    for event in session.events:
        match event.fact:
            case AssistantMessage(blocks=blocks):
                answers.append([block.id for block in blocks if isinstance(block, ToolUse)])
            case ToolStarted(call=key):
                started[key] = event.seq
            case ToolSettled(call=key):
                settled[key] = event.seq
            case ToolResulted(call=key, call_id=call_id):
                results.append((call_id, key, event.seq))
            case RequestSent():
                compare()
                results.clear()
            case _:
                pass
    assert sum(len(ids) > 1 for ids in answers) >= 5
