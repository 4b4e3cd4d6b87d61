"""Configuration is kept current, and held back until it is trusted."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from interlock.bridges.hooks.files import Layout
from interlock.bridges.hooks.handler import Command
from interlock.bridges.hooks.trust import Trust
from interlock.bridges.hooks.watch import Watch
from interlock.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    return made


def put(folder: Path, *commands: str, name: str = ".claude/settings.json") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"hooks": {"Stop": [{"hooks": [{"command": one} for one in commands]}]}}))
    return path


def watch(project: Path, trust: Trust | None = None) -> Watch:
    layout = Layout.of(project, home=project.parent / "home", environ={})
    return Watch(project, layout, trust=trust)


def commands(watch: Watch) -> list[str]:
    return [one.action.command for one in watch.current().handlers if isinstance(one.action, Command)]


def test_an_edit_counts_at_the_next_event(project: Path) -> None:
    watching = watch(project)
    assert commands(watching) == []
    path = put(project, "a")
    assert commands(watching) == ["a"]
    before = watching.everything()
    assert watching.everything() is before  # nothing changed: nothing is read again
    put(project, "a", "b")
    assert commands(watching) == ["a", "b"]
    path.unlink()
    assert commands(watching) == []


def test_a_replaced_file_of_the_same_size_counts(project: Path) -> None:
    watching = watch(project)
    path = put(project, "aaa")
    assert commands(watching) == ["aaa"]
    times = os.stat(path)
    put(project, "bbb", name=".claude/new.json")
    os.replace(project / ".claude" / "new.json", path)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert commands(watching) == ["bbb"]


def test_an_edit_that_went_wrong_takes_no_gate_away(project: Path) -> None:
    watching = watch(project)
    path = put(project, "gate")
    assert commands(watching) == ["gate"]
    path.write_text("{broken")
    assert commands(watching) == ["gate"]
    (problem,) = watching.everything().problems
    assert problem.what.endswith("; its hooks stay as they were")
    assert watching.everything().broken == ()
    put(project, "mended")
    assert (commands(watching), watching.everything().problems) == (["mended"], ())


def test_a_file_that_was_never_good_has_nothing_to_fall_back_on(project: Path) -> None:
    path = put(project, "gate")
    path.write_text("{broken")
    assert watch(project).current().broken == (path,)


def test_a_start_from_a_file_that_is_broken_is_refused(project: Path, tmp_path: Path) -> None:
    put(project, "gate").write_text('{\n"hooks": }')
    watching = watch(project)
    with pytest.raises(ConfigError, match=r"settings\.json:2: the file is not valid JSON: .*mend the file"):
        watching.check()
    put(project, "gate")
    watching.check()


def test_a_repository_that_is_not_trusted_cannot_stop_a_start(project: Path, tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust.json")
    put(project, "gate").write_text("{")
    watch(project, trust).check()
    put(tmp_path / "home", "gate").write_text("{")
    with pytest.raises(ConfigError):
        watch(project, trust).check()


# Trust


def test_a_repository_s_hooks_wait_for_trust_and_a_person_s_do_not(project: Path, tmp_path: Path) -> None:
    trust = Trust(tmp_path / "state" / "trust.json")
    put(tmp_path / "home", "mine")
    put(project, "theirs")
    watching = watch(project, trust)
    assert commands(watching) == ["mine"]
    assert [one.place.origin for one in watching.held()] == ["project"]
    trust.trust(project)
    assert commands(watching) == ["mine", "theirs"]
    assert trust.distrust(project) is True
    assert trust.distrust(project) is False
    assert commands(watching) == ["mine"]


def test_codex_s_hooks_are_approved_one_by_one_and_anew_after_an_edit(project: Path, tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust.json")
    put(project, "one", name=".codex/hooks.json")
    put(tmp_path / "home", "mine", name=".codex/hooks.json")
    watching = watch(project, trust)
    trust.trust(project)
    assert commands(watching) == []
    trust.trust(project, watching.held())
    assert commands(watching) == ["mine", "one"]
    put(project, "two", name=".codex/hooks.json")
    assert commands(watching) == ["mine"]


def test_a_definition_that_was_approved_is_not_approved_elsewhere(project: Path, tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trust.json")
    other = tmp_path / "other"
    for one in (project, other):
        put(one, "./check.sh", name=".codex/hooks.json")
    trust.trust(project, watch(project, trust).held())
    trust.trust(other)
    assert commands(watch(project, trust)) == ["./check.sh"]
    assert commands(watch(other, trust)) == []


def test_trust_is_in_a_file_of_its_owner_and_reaches_what_is_below(project: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "trust.json"
    Trust(path).trust(project)
    again = Trust(path)
    (project / "below").mkdir()
    (tmp_path / "link").symlink_to(project)
    assert again.trusted(project)
    assert again.trusted(project / "below")
    assert again.trusted(tmp_path / "link")
    assert not again.trusted(tmp_path)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", ["", "{", "[]", '{"folders": "/"}', '{"folders": [3]}'])
def test_what_is_not_understood_is_not_trusted(content: str, project: Path, tmp_path: Path) -> None:
    path = tmp_path / "trust.json"
    path.write_text(content)
    assert not Trust(path).trusted(project)


def test_a_trust_that_cannot_be_kept_is_said(project: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be kept"):
        Trust(tmp_path / "file" / "trust.json").trust(project)
