"""What was allowed for always: one file, written whole, by one process at a time, and used only when it is whole."""

from __future__ import annotations

import stat
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import ConfigError
from interlock.policy.approvals.grants import Grant, Grants, workspace_of

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
grants = st.builds(
    Grant,
    texts,
    texts,
    st.none() | texts,
    st.none() | texts,
    st.none() | texts,
    st.integers(0, 2**42),
    st.none() | texts,
)


def bare(grant: Grant) -> Grant:
    return Grant(grant.workspace, grant.rule, grant.by, grant.how, grant.channel, grant.time, grant.session)


@settings(deadline=None, max_examples=30)
@given(st.lists(grants, max_size=5, unique_by=lambda grant: (grant.workspace, grant.rule)))
def test_what_is_added_is_read_again(tmp_path_factory: pytest.TempPathFactory, given: list[Grant]) -> None:
    """Any text, control characters and quotes among it; and each is found at its line."""
    kept = Grants(tmp_path_factory.mktemp("grants") / "grants.toml")
    for grant in given:
        kept.add(grant)
    found = kept.load()
    assert [bare(grant) for grant in found] == given
    lines = kept.path.read_text().split("\n") if given else []
    for grant in found:
        assert grant.file == str(kept.path) and grant.line is not None
        assert lines[grant.line - 1] == "[[grant]]"
        tomllib.loads("\n".join(lines[: grant.line]))


def test_a_rule_is_kept_once_for_each_workspace_and_can_be_revoked(tmp_path: Path) -> None:
    kept = Grants(tmp_path / "state" / "grants.toml")
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (tmp_path / "link").symlink_to(here)
    assert kept.load() == () and not kept.revoke(here, "Bash(ls)")
    assert not kept.path.parent.exists(), "looking makes no file"
    for folder in (here, there, tmp_path / "link"):
        kept.add(Grant(workspace_of(folder), "Bash(ls)", by="ada"))
    kept.add(Grant(workspace_of(here), "Edit(/a)"))
    assert [grant.rule for grant in kept.load(tmp_path / "link")] == ["Bash(ls)", "Edit(/a)"]
    assert [grant.workspace for grant in kept.load(there)] == [str(there)]
    assert kept.revoke(here, "Bash(ls)") and not kept.revoke(here, "Bash(ls)")
    assert [grant.rule for grant in kept.load(here)] == ["Edit(/a)"]
    assert len(kept.load(there)) == 1


def test_the_file_is_for_this_user_only_and_nothing_else_is_left(tmp_path: Path) -> None:
    kept = Grants(tmp_path / "state" / "grants.toml")
    kept.add(Grant("/w", "Bash(ls)"))
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in kept.path.parent.iterdir()}
    assert modes == {"grants.toml": 0o600, "grants.lock": 0o600}
    assert stat.S_IMODE(kept.path.parent.stat().st_mode) == 0o700


GRANT = '[[grant]]\nworkspace = "/w"\nrule = "Bash(ls)"\n'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version = 1\n[[grant", "grants.toml: "),
        ("", "version is None"),
        ("version = 2\n", "version is 2; this version reads 1"),
        ("version = 1\nallow = []\n", "nothing else"),
        ("version = 1\ngrant = 5\n", "nothing else"),
        ("version = 1\ngrant = [5]\n", "a grant is a table"),
        (f"version = 1\n{GRANT}[[grant]]\nworkspace = '/w'\n", ":5: rule is text, and must be there"),
        (f"version = 1\n{GRANT}by = 5\n", ":2: by is text"),
        (f"version = 1\n{GRANT}time = 5\n", ":2: time is a date"),
        (f"version = 1\n{GRANT}until = 'x'\n", ":2: 'until' is not known here"),
        (b"\xff", "cannot be read"),
    ],
)
def test_a_file_that_is_not_whole_is_not_used_and_not_written(
    tmp_path: Path, text: str | bytes, problem: str
) -> None:
    kept = Grants(tmp_path / "grants.toml")
    data = text if isinstance(text, bytes) else text.encode()
    kept.path.write_bytes(data)
    uses: list[Any] = [kept.load, lambda: kept.add(Grant("/w", "x")), lambda: kept.revoke("/w", "x")]
    for use in uses:
        with pytest.raises(ConfigError) as error:
            use()
        assert problem in str(error.value)
    assert kept.path.read_bytes() == data


def test_where_a_line_cannot_be_known_none_is_said(tmp_path: Path) -> None:
    kept = Grants(tmp_path / "grants.toml")
    kept.path.write_text('version = 1\ngrant = [{workspace = "/w", rule = "x"}]\n')
    assert [(grant.rule, grant.line) for grant in kept.load()] == [("x", None)]


@pytest.mark.slow
def test_two_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path, each = tmp_path / "state" / "grants.toml", 10
    program = textwrap.dedent(
        f"""
        import sys
        from pathlib import Path
        from interlock.policy.approvals.grants import Grant, Grants
        kept = Grants(Path({str(path)!r}))
        sys.stdin.readline()
        for n in range({each}):
            kept.add(Grant("/w", f"rule {{sys.argv[1]}} {{n}}"))
            kept.add(Grant("/w", f"gone {{sys.argv[1]}} {{n}}"))
            assert kept.revoke("/w", f"gone {{sys.argv[1]}} {{n}}")
        """
    )
    running = [
        subprocess.Popen([sys.executable, "-c", program, name], stdin=subprocess.PIPE, text=True)
        for name in "ab"
    ]
    for process in running:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in running:
        process.communicate(timeout=120)
        assert process.returncode == 0
    rules = {grant.rule for grant in Grants(path).load()}
    assert rules == {f"rule {name} {n}" for name in "ab" for n in range(each)}


def test_a_writer_does_not_wait_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.policy.approvals.grants.PATIENCE", 0.0)
    kept = Grants(tmp_path / "grants.toml")
    with kept._locked(), pytest.raises(TimeoutError, match="another process"):
        kept.add(Grant("/w", "x"))
