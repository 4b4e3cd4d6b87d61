"""The folders of what hooks were given of sessions: each in its place, whatever the id, and gone when it is to go."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import SQLiteStore
from interlock.bridges.hooks.kept import HookFiles, folder_of
from interlock.log.erasing import erase_sessions
from interlock.log.retention import prune_sessions
from interlock.testing import says

from .real_hooks import Project

ids = st.text() | st.sampled_from(["..", ".", "", "a/b", "../../home", "x" * 300, "\ud83d", "%2E%2E", "%"])


@given(ids, ids)
def test_a_folder_is_that_of_one_session_and_lies_with_the_others(one: str, other: str) -> None:
    """An id may come from a file that somebody has imported: what is deleted is never anything else."""
    folder = folder_of(one)
    assert folder.parent == folder_of("s").parent
    assert folder.name not in ("", ".", "..") and "/" not in folder.name
    assert len(folder.name.encode()) < 250
    assert (folder == folder_of(other)) == (one == other)


def test_only_what_is_there_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path))
    files = HookFiles()
    assert files.of(["a", "b"]) == ()
    for name in ("a", "c"):
        folder_of(name).mkdir(parents=True)
        (folder_of(name) / "transcript.jsonl").touch()
    other = tmp_path / "elsewhere"
    other.mkdir()
    (other / "kept").touch()
    folder_of("b").symlink_to(other)
    folder_of("d").touch()
    assert files.of(["a", "b", "x"]) == ["a", "b"]
    for name in ("a", "b", "d", "x"):
        assert files.forget(name) == str(folder_of(name))
    assert [folder_of(name).exists() for name in "abcd"] == [False, False, True, False]
    assert (other / "kept").exists()  # it was only named there


@pytest.mark.slow
@pytest.mark.parametrize("how", ["erased", "pruned"])
async def test_what_hooks_were_given_goes_with_the_session(
    project: Project, tmp_path: Path, how: str
) -> None:
    project.claude({"Stop": "true"})
    async with SQLiteStore(tmp_path / "log.db") as store:
        made = []
        for _ in range(2):
            async with project.agent(says("ok"), store=store) as agent:
                await agent.run("canary-of-hooks")
                made.append(agent.session.id)
        gone, stays = made
        assert b"canary-of-hooks" in (folder_of(gone) / "transcript.jsonl").read_bytes()
        if how == "erased":
            receipt = await erase_sessions([gone], store=store, by="ops", beside=[HookFiles()])
            assert receipt.sessions[0].beside == (str(folder_of(gone)),)
            assert receipt.left == ()
            assert folder_of(stays).exists()
        else:
            done = await prune_sessions(store=store, older_than=0, beside=[HookFiles()], clock=lambda: 2**50)
            assert set(done.beside) == {str(folder_of(gone)), str(folder_of(stays))}
        assert not folder_of(gone).exists()
