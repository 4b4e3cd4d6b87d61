"""Places that no rule and no preset opens without a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.policy.paths.located import Root, locate
from interlock.policy.paths.protected import NAMES, SEQUENCES, protected_place
from interlock.policy.rules.action import Action
from policy.rules.written import rules


def protected(path: str, workspace: Path) -> str | None:
    root = Root.at(workspace)
    return protected_place(locate(path, root, str(Path.home())), root)


@pytest.mark.parametrize("name", [*NAMES, *["/".join(names) for names in SEQUENCES]])
@pytest.mark.parametrize("form", ["{}", "deep/down/{}", "{}/inside", "../elsewhere/{}"])
def test_an_edit_asks_whatever_is_allowed(tmp_path: Path, name: str, form: str) -> None:
    path = form.format(name)
    assert protected(path, tmp_path)
    ruling = rules(tmp_path, "allow Edit", "allow Edit(**)", f"allow Edit(/{tmp_path}/**)").decide(
        Action.named("write", path, tmp_path)
    )
    assert (ruling.effect, ruling.rule) == ("ask", None)
    assert ruling.cautious
    assert "protected" in ruling.reason


@pytest.mark.parametrize(
    "path", [".GIT/config", ".git./config", ".Git /x", "a/../.git/x", "/etc/passwd", "~/.bashrc"]
)
def test_other_spellings_are_protected_too(tmp_path: Path, path: str) -> None:
    assert protected(path, tmp_path)


@pytest.mark.parametrize(
    "path", ["src/a.py", "git/config", ".gitignore", ".github/workflows/x.yml", "vscode", ".env"]
)
def test_what_is_none_of_them_is_not(tmp_path: Path, path: str) -> None:
    assert protected(path, tmp_path) is None


def test_a_link_is_protected_if_it_leads_there(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "g").symlink_to(".git")
    said = protected("g/hooks/pre-commit", tmp_path)
    assert said
    assert f"{tmp_path}/.git/hooks/pre-commit" in said


def test_a_denial_stays_a_denial_and_reading_is_free(tmp_path: Path) -> None:
    git = Action.named("edit", ".git/config", tmp_path)
    assert rules(tmp_path, "allow Edit", "deny Edit(.git)").decide(git).effect == "deny"
    assert (
        rules(tmp_path, "allow Read").decide(Action.named("read", ".git/config", tmp_path)).effect == "allow"
    )


def test_a_workspace_inside_such_a_folder_is_a_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / ".claude" / "worktrees" / "one"
    workspace.mkdir(parents=True)
    assert protected("src/a.py", workspace) is None
    assert protected(".claude/settings.json", workspace)
    assert protected("../two/a.py", workspace)


def test_without_any_rule_it_is_still_said(tmp_path: Path) -> None:
    """A preset's default is weaker than this: nobody has to write a rule for it."""
    assert rules(tmp_path).decide(Action.named("edit", ".git/config", tmp_path)).cautious
    assert rules(tmp_path).decide(Action.named("edit", "src/a", tmp_path)).effect is None


def test_a_workspace_that_is_everything_opens_nothing() -> None:
    assert protected("etc/passwd", Path("/"))
    assert protected("usr/lib/x", Path("/"))
    assert protected("srv/x", Path("/")) is None
