"""Where there can be no sandbox, it is said why, and what to do about it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.process.sandbox import Sandbox, problem


@pytest.fixture(autouse=True)
def _nothing_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem, "_works", set())


def pretended(folder: Path, script: str) -> str:
    program = folder / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(program)


def test_bubblewrap_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("interlock.process.sandbox.sandbox._SYSTEM_PATH", ())
    (tmp_path / "work").mkdir()
    said = Sandbox("read-only", root=tmp_path / "work").problem()
    assert said is not None
    assert said.startswith("bubblewrap is not installed")
    assert "apt install bubblewrap" in said


def test_another_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    assert Sandbox("read-only", root=tmp_path).problem() == (
        "the sandbox mode read-only needs Linux; on darwin only the mode full runs"
    )
    assert Sandbox("full", root=tmp_path).problem() is None


@pytest.mark.parametrize(
    ("says", "hint"),
    [
        ("bwrap: No permissions to create new namespace", "may not create user namespaces"),
        ("bwrap: setting up uid map: Permission denied", "AppArmor profile"),
        ("bwrap: Creating new namespace failed: Operation not permitted", "seccomp=unconfined"),
        ("bwrap: creation of new user namespaces was not disabled as requested", "user.max_user_namespaces"),
        ("bwrap: Can't mount proc on /newroot/proc: Operation not permitted", "systempaths=unconfined"),
        ("bwrap: Unknown option --disable-userns", "0.8 or newer"),
        ("something new", "something new"),
        ("", "exited with 1"),
    ],
)
def test_what_it_says_is_explained(tmp_path: Path, says: str, hint: str) -> None:
    program = pretended(tmp_path, f'echo "{says}" >&2; exit 1' if says else "exit 1")
    said = problem.found_problem(program)
    assert said is not None
    assert said.startswith(f"bubblewrap ({program}) does not run here: ")
    assert hint in said


def test_that_it_works_is_found_out_once_and_that_it_fails_each_time(tmp_path: Path) -> None:
    program = pretended(tmp_path, f"echo >> {tmp_path}/tries; test -e {tmp_path}/mended")
    assert problem.found_problem(program) is not None
    assert problem.found_problem(program) is not None
    (tmp_path / "mended").touch()
    assert problem.found_problem(program) is None
    assert problem.found_problem(program) is None
    assert (tmp_path / "tries").read_text() == "\n" * 3


def test_a_program_that_cannot_be_started_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "bwrap").write_text("no program")
    assert "does not run here" in (problem.found_problem(str(tmp_path / "bwrap")) or "")
