"""What files set: one reading for all, the nearest first, and nothing of it half applied."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock import ConfigError
from interlock.policy.approvals.grants import Grant, Grants
from interlock.policy.ceiling import Ceiling
from interlock.policy.judging import decide
from interlock.policy.settings import Settings


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing in it."""
    made = tmp_path / "home"
    made.mkdir()
    monkeypatch.setenv("HOME", str(made))
    monkeypatch.setenv("INTERLOCK_HOME", str(made / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    return made


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def verdict(settings: Settings, tool: str, given: str, preset: str | None = None) -> str:
    return decide(tool, given, policy=settings.policy(preset), cwd=settings.cwd).verdict


def test_a_folder_without_any_file_asks(folder: Path) -> None:
    settings = Settings.load(folder)
    policy = settings.policy()
    assert policy.preset is not None
    assert (policy.preset.name, policy.sandbox, settings.rules.rules) == ("ask", "full", ())
    assert verdict(settings, "Bash", "make") == "ask"
    assert verdict(settings, "Read", "a.txt") == "allow"


def test_rules_of_all_files_are_in_force(folder: Path, home: Path) -> None:
    put(folder / "interlock.toml", '[permissions]\nallow = ["Bash(make:*)"]\n')
    put(
        folder / ".claude" / "settings.json",
        '{"permissions": {"deny": ["Bash(make deploy:*)"]}, "model": "x"}',
    )
    put(home / ".claude" / "settings.json", '{"permissions": {"ask": ["Bash(make publish)"]}}')
    settings = Settings.load(folder)
    assert verdict(settings, "Bash", "make test") == "allow"
    assert verdict(settings, "Bash", "make deploy now") == "deny"
    assert verdict(settings, "Bash", "make publish") == "ask"
    found = decide("Bash", "make deploy", policy=settings.policy(), cwd=folder)
    assert found.rule is not None
    assert (found.rule.text, found.rule.where) == ("Bash(make deploy:*)", ".claude/settings.json:1")


def test_the_nearest_file_chooses_the_preset_and_the_command_line_beats_it(folder: Path, home: Path) -> None:
    put(home / ".config" / "interlock" / "config.toml", 'preset = "full"\n')
    assert Settings.load(folder).preset == "full"
    put(folder / "interlock.toml", 'preset = "plan"\n')
    settings = Settings.load(folder)
    assert verdict(settings, "Bash", "make") == "deny"
    assert verdict(settings, "Bash", "make", preset="ask") == "ask"
    put(folder / "interlock.local.toml", 'preset = "accept-edits"\n')
    policy = Settings.load(folder).policy()
    assert policy.preset is not None and (policy.preset.name, policy.sandbox) == (
        "accept-edits",
        "workspace-write",
    )


def test_a_folder_that_is_not_trusted_may_only_deny_and_ask(folder: Path) -> None:
    put(
        folder / "interlock.toml",
        'preset = "full"\n[permissions]\nallow = ["Bash"]\ndeny = ["Bash(rm:*)"]\n[sandbox]\nnetwork = true\n',
    )
    settings = Settings.load(folder, trusted=False)
    assert settings.preset is None and settings.table("sandbox") is None
    assert verdict(settings, "Bash", "make") == "ask"
    assert verdict(settings, "Bash", "rm a") == "deny"
    assert [finding.kind for finding in settings.findings if finding.kind == "held-back"] == ["held-back"]
    trusted = Settings.load(folder)
    assert verdict(trusted, "Bash", "make") == "allow"
    assert trusted.table("sandbox") is not None


def test_what_was_allowed_for_always_holds_in_its_workspace_only(folder: Path, tmp_path: Path) -> None:
    Grants().add(Grant(str(folder.resolve()), "Bash(make:*)", by="ada", time=1))
    settings = Settings.load(folder)
    assert verdict(settings, "Bash", "make test") == "allow"
    (rule,) = settings.granted
    assert (rule.origin, rule.line is not None) == ("grant", True)
    assert verdict(Settings.load(tmp_path), "Bash", "make test") == "ask"


def test_only_the_files_that_were_named(folder: Path, tmp_path: Path) -> None:
    put(folder / "interlock.toml", '[permissions]\ndeny = ["Bash"]\n')
    named = put(tmp_path / "other.toml", 'preset = "plan"\n[permissions]\nallow = ["Bash(make:*)"]\n')
    settings = Settings.load(folder, only=[named])
    assert verdict(settings, "Bash", "make") == "allow"
    assert verdict(settings, "Bash", "ls -l") == "deny"
    with pytest.raises(ConfigError, match="there is no such file"):
        Settings.load(folder, only=[tmp_path / "gone.toml"])


def test_the_ceiling_is_over_all_of_it(folder: Path, tmp_path: Path) -> None:
    put(folder / "interlock.toml", '[permissions]\nallow = ["Bash"]\n')
    top = put(tmp_path / "top.toml", '[permissions]\ndeny = ["Bash(make:*)"]\n')
    settings = Settings.load(folder, ceiling=top)
    assert verdict(settings, "Bash", "make") == "deny"
    with pytest.raises(ConfigError, match="does not permit the preset 'ask'"):
        Settings.load(folder, ceiling=Ceiling(presets=("plan",))).policy()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('preset = "yolo"', ":1: there is no preset 'yolo'"),
        ("preset = 3", ":1: there is no preset 3"),
        ('\nprest = "ask"', ":2: 'prest' is not a key: did you mean 'preset'?"),
        ("[colours]\na = 1", ":1: 'colours' is not a key: there are permissions"),
        ("[permissions", ":1: not valid TOML"),
        ('[permissions]\nallow = ["Bash("]', ":2: 'Bash(' is not a rule"),
    ],
)
def test_a_file_that_is_wrong_stops_the_start(folder: Path, text: str, problem: str) -> None:
    put(folder / "interlock.toml", text)
    with pytest.raises(ConfigError) as caught:
        Settings.load(folder)
    assert str(caught.value).startswith("interlock.toml" + problem)


def test_a_person_is_shown_the_folders_that_a_file_would_add_before_trusting_it(tmp_path: Path) -> None:
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text('{"permissions": {"additionalDirectories": ["/"]}}')
    (tmp_path / "interlock.toml").write_text('[permissions]\nadditional_directories = ["../a", "/b"]\n')
    settings = Settings.load(tmp_path, trusted=False, home=tmp_path / "home")
    assert settings.rules.additional == ()
    assert sorted(settings.held_back()) == [
        "folders beside the workspace: ../a, /b (interlock.toml)",
        "folders beside the workspace: / (.claude/settings.json)",
    ]


def test_a_table_that_nobody_reads_stops_the_start(tmp_path: Path) -> None:
    (tmp_path / "interlock.toml").write_text("[approvals]\ntimeout = 60\n")
    with pytest.raises(ConfigError, match="'approvals' is not a key"):
        Settings.load(tmp_path, home=tmp_path / "home")
