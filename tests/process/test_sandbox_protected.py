"""What stays as it is in a workspace that may be written, and that nothing of the protection stays behind."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from interlock.intercept.signal import Signal
from interlock.process.command import Finished
from interlock.process.run import run
from interlock.process.sandbox import PROTECTED, Sandbox
from interlock.process.sandbox.protected import Protection
from interlock.process.sandbox.view import View

from .boxing import require_bubblewrap

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    require_bubblewrap()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def in_sandbox(work: Path, command: str, **options: object) -> Finished:
    sandbox = Sandbox("workspace-write", root=work, **options)  # type: ignore[arg-type]
    return asyncio.run(run(command, cwd=work, signal=Signal(), sandbox=sandbox))


def tree(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): os.readlink(path) if path.is_symlink() else path.read_text() if path.is_file() else "/"
        for path in folder.rglob("*")
    }  # fmt: skip


WRITING = (
    "mkdir -p {0}/x; rmdir {0}; rm -rf {0}; echo x > {0}; ln -sfn /tmp {0}; mv {0} away; rm -rf away; true"
)


@pytest.mark.parametrize("name", [name.rstrip("/") for name in PROTECTED])
@pytest.mark.parametrize("there", [False, True], ids=["absent", "there"])
def test_a_protected_path_is_as_before_whether_it_was_there_or_not(
    work: Path, name: str, there: bool
) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    if there and not (work / name).exists():
        (work / name).mkdir()
        (work / name / "kept").write_text("as it was")
    before = tree(work)
    finished = in_sandbox(work, WRITING.format(name))
    assert tree(work) == before
    assert finished.code == 0


def test_without_a_repository_none_is_made(work: Path) -> None:
    finished = in_sandbox(work, "git init; mkdir .git/hooks; true")
    assert "Read-only file system" in finished.output
    assert tree(work) == {}


def test_placeholders_are_seen_by_git_neither_inside_nor_afterwards(work: Path) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    finished = in_sandbox(work, "git status --porcelain; git add -A; git status --porcelain")
    assert finished.output == ""
    assert os.listdir(work) == [".git"]


def test_what_no_mount_can_hold_is_undone_and_said(work: Path) -> None:
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    (work / "real").mkdir()
    (work / "real" / "settings.json").write_text("{}")
    (work / ".claude").symlink_to("real")
    before = tree(work)
    command = "echo x > .git/commondir; rm .claude; mkdir -p .claude/x; echo x > real/settings.json; echo x > .mcp.json"
    finished = in_sandbox(work, command)
    assert tree(work) == before
    assert sorted(finished.undone) == [".claude", ".mcp.json", "commondir"]
    assert in_sandbox(work, "true").undone == ()


def test_a_repository_that_lies_elsewhere(work: Path, tmp_path: Path) -> None:
    """As with worktrees: `.git` is a file."""
    subprocess.run(
        ["git", "init", "-q", "--separate-git-dir", str(tmp_path / "store.git"), str(work)], check=True
    )
    git = (work / ".git").read_text()
    finished = in_sandbox(work, "rm -f .git; mkdir .git; echo 'gitdir: /tmp' > .git; true")
    assert (work / ".git").read_text() == git
    assert finished.code == 0


def test_a_repository_among_the_writable_folders_is_protected_too(work: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", str(tmp_path / "main")], check=True)
    git = tmp_path / "main" / ".git"
    before = tree(git)
    command = f"cd {git}; echo x > hooks/pre-commit; echo x > config; mv hooks h; echo x > commondir; echo fine > MINE"
    in_sandbox(work, command, writable=[git])
    assert tree(git) == before | {"MINE": "fine\n"}


def test_a_workspace_inside_a_repository_is_part_of_it(work: Path, tmp_path: Path) -> None:
    """The placeholder of its own `.git` hides nothing from git."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    (work / "a").touch()
    finished = in_sandbox(
        work, "git status --porcelain; git rev-parse --show-prefix", writable=[tmp_path / ".git"]
    )
    assert finished.output == "?? work/\nwork/\n"


def test_other_names_can_be_given(work: Path) -> None:
    (work / "locked.txt").write_text("1")
    in_sandbox(work, "echo 2 > locked.txt; mkdir -p .claude/x; true", protected=["locked.txt"])
    assert tree(work) == {"locked.txt": "1", ".claude": "/", ".claude/x": "/"}


def test_two_commands_at_once_share_the_placeholders(work: Path) -> None:
    """The first to end must not take away what still protects the other."""
    first, second = Protection(), Protection()
    views = View(["/"]), View(["/"])
    for protection, view in zip((first, second), views, strict=True):
        protection.cover(view, work, (), PROTECTED)
    held = set(os.listdir(work))
    assert {".git", ".claude", "interlock.toml"} <= held
    assert first.release() == ()
    assert set(os.listdir(work)) == held
    assert second.release() == ()
    assert os.listdir(work) == []


def test_placeholders_that_a_crash_has_left_are_taken_away_by_the_next_command(work: Path) -> None:
    crashed = Protection()
    crashed.cover(View(["/"]), work, (), PROTECTED)
    for held in crashed._held:
        os.close(held.descriptor)  # as the end of its process does
    assert os.listdir(work) != []
    in_sandbox(work, "true")
    assert os.listdir(work) == []


def test_what_somebody_puts_into_a_placeholder_meanwhile_stays(work: Path) -> None:
    protection = Protection()
    protection.cover(View(["/"]), work, (), [".claude/", "interlock.toml"])
    (work / ".claude").chmod(0o755)
    (work / ".claude" / "settings.json").write_text("{}")
    shutil.copy(work / ".claude" / "settings.json", work / "new.toml")
    (work / "new.toml").replace(work / "interlock.toml")
    protection.release()
    assert tree(work) == {".claude": "/", ".claude/settings.json": "{}", "interlock.toml": "{}"}
