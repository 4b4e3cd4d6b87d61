"""`interlock export` and `interlock import`: a session is carried from one store to another."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from interlock.models.scripted import calls, says


@pytest.fixture
def ran(interlock: Any, script: Any, work: Path) -> str:
    """The id of a session in which one task was run."""
    script(calls("read", path="a.txt"), says("It says hello."))
    interlock("run", "What does it say?", "--cwd", str(work))
    session_id: str = json.loads(interlock("sessions", "--json").out)["id"]
    return session_id


def test_an_export_is_the_log(interlock: Any, ran: str) -> None:
    assert interlock("export", "last").out == interlock("log", ran, "--json").out


def test_a_session_goes_from_one_store_to_another(
    interlock: Any, ran: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "session.jsonl"
    ended = interlock("export", ran, "--output", str(file))
    assert (ended.code, ended.out) == (0, "")
    events = len(file.read_bytes().splitlines())
    assert ended.err == f"{ran}: {events} events to {file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "elsewhere"))
    events = len(file.read_bytes().splitlines())
    assert interlock("import", str(file)).out == f"{ran}: {events} events\n"
    assert interlock("export", ran).out.encode() == file.read_bytes()
    assert interlock("check", ran).code == 0
    again = interlock("import", str(file), "--json")
    assert (again.code, again.out) == (6, "")
    assert "There is a session" in again.err


def test_what_was_imported_is_said_for_programs(
    interlock: Any, ran: str, tmp_path: Path, monkeypatch: Any
) -> None:
    file = tmp_path / "session.jsonl"
    interlock("export", ran, "-o", str(file))
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "elsewhere"))
    ended = interlock("import", str(file), "--json", "--format", "interlock")
    assert json.loads(ended.out) == {"session_id": ran, "events": len(file.read_bytes().splitlines())}


def test_a_file_is_never_overwritten(interlock: Any, ran: str, tmp_path: Path) -> None:
    file = tmp_path / "precious"
    file.write_text("mine")
    ended = interlock("export", ran, "--output", str(file))
    assert ended.code == 2
    assert "already" in ended.err
    assert file.read_text() == "mine"
    assert {path.name for path in tmp_path.iterdir()} >= {"precious"}
    assert not list(tmp_path.glob(".precious*"))


def test_a_place_where_no_file_can_be_made_is_said(interlock: Any, ran: str, tmp_path: Path) -> None:
    ended = interlock("export", ran, "--output", str(tmp_path / "nowhere" / "file"))
    assert ended.code == 2
    assert "No such file or directory" in ended.err


def test_a_broken_file_is_refused_with_the_place_and_leaves_nothing(
    interlock: Any, ran: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "session.jsonl"
    interlock("export", ran, "--output", str(file))
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:4], *lines[5:]]))
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "elsewhere"))
    ended = interlock("import", str(file))
    assert ended.code == 6
    assert f"line 5 of {file}" in ended.err
    assert interlock("sessions", "--json").out == ""


def test_a_file_that_cannot_be_read_is_said(interlock: Any, home: Path, tmp_path: Path) -> None:
    ended = interlock("import", str(tmp_path / "none"), "--format", "interlock")
    assert ended.code == 2
    assert "No such file" in ended.err
    assert not home.exists()
