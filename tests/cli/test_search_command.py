"""`interlock search`, and the filters of `interlock sessions`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any, get_args

import pytest

from interlock.cli.filters import Reason, moment_of
from interlock.errors import UsageError
from interlock.log.stores.query import REASONS
from interlock.models.scripted import call, calls, fails, says

READS = calls(call("read", path="a.txt"))


@pytest.fixture
def two(interlock: Any, script: Any, work: Path, tmp_path: Path) -> tuple[str, str]:
    """A session that read a file, and in another folder one that failed; their folders."""
    other = tmp_path / "other"
    other.mkdir()
    script(READS, says("It says \x1b[31mhello there."), fails("AUTH"))
    assert interlock("run", "Read the file", "--cwd", str(work)).code == 0
    assert interlock("run", "Hello?", "--cwd", str(other)).code == 1
    return str(work), str(other)


def found(interlock: Any, *arguments: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in interlock("search", *arguments, "--json").out.splitlines()]


def test_it_shows_where_something_was_said(interlock: Any, two: tuple[str, str]) -> None:
    ended = interlock("search", "hello", "there")
    assert ended.code == 0
    (where, what) = ended.out.splitlines()
    assert " turn 1 " in where and where.endswith("answer")
    assert what.strip() == "It says \\x1b[31mhello there."
    assert "\x1b" not in ended.out
    (match,) = found(interlock, "hello there")
    assert where.startswith(f"{match['session']}  {match['seq']}")


def test_what_is_found_is_narrowed(interlock: Any, two: tuple[str, str]) -> None:
    _, other = two
    assert {match["place"] for match in found(interlock, "hello")} == {"result", "answer", "prompt"}
    assert [match["place"] for match in found(interlock, "hello", "--tool", "read")] == ["result"]
    assert [match["place"] for match in found(interlock, "hello", "--folder", other)] == ["prompt"]
    assert [match["cwd"] for match in found(interlock, "hello", "--reason", "error")] == [other]
    assert len(found(interlock, "hello", "--since", "1h")) == 3
    assert found(interlock, "hello", "--until", "1h") == []
    assert len(found(interlock, "hello", "--limit", "1")) == 1


def test_nothing_found_is_exit_code_1(interlock: Any, two: tuple[str, str]) -> None:
    for text in ("nowhere", '"', "*", "--", "a AND ("):
        ended = interlock("search", "--", text)
        assert (ended.code, ended.out, ended.err) == (1, "", "")


def test_without_a_store_nothing_is_found_and_none_is_made(interlock: Any, home: Path) -> None:
    assert interlock("search", "x").code == 1
    assert not home.exists()


def test_sessions_are_narrowed(interlock: Any, two: tuple[str, str]) -> None:
    work, other = two

    def listed(*arguments: str) -> list[str]:
        lines = interlock("sessions", "--json", *arguments).out.splitlines()
        return [json.loads(line)["cwd"] for line in lines]

    assert listed() == [other, work]
    assert listed("--tool", "read") == [work]
    assert listed("--reason", "error") == [other]
    assert listed("--folder", work) == [work]
    assert listed("--since", "1d") == [other, work]
    assert listed("--until", "1d") == []
    assert interlock("sessions", "--tool", "bash").out == "No such sessions.\n"


def test_a_time_that_is_none_is_refused(interlock: Any) -> None:
    ended = interlock("sessions", "--since", "soon")
    assert (ended.code, "--since 'soon' is no time" in ended.err) == (2, True)


def test_times() -> None:
    now = 1_700_000_000_000
    assert moment_of("--since", "2d", now) == now - 2 * 86_400_000
    assert moment_of("--since", "30m", now) == now - 30 * 60_000
    local = time.mktime((2026, 11, 30, 8, 15, 0, 0, 0, -1))
    assert moment_of("--since", "2026-11-30T08:15", now) == int(local * 1000)
    assert moment_of("--since", "2026-11-30T08:15+00:00", now) == 1_796_026_500_000
    for typed in ("", "d", "1y", "-1d", "2026-13-01", "9999999d"):
        with pytest.raises(UsageError):
            moment_of("--since", typed, now)


def test_every_reason_can_be_named() -> None:
    assert set(get_args(Reason)) == set(REASONS)
