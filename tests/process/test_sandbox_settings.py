from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from interlock.errors import ConfigError
from interlock.process.sandbox import Limits, Sandbox, SandboxSettings, sandbox_settings


def read(text: str) -> SandboxSettings:
    return sandbox_settings(tomllib.loads(text), "interlock.toml")


def test_without_a_table_everything_has_its_default() -> None:
    assert read("[permissions]\nallow = []") == SandboxSettings()
    assert SandboxSettings().limits() == Limits()


def test_a_whole_table(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    settings = read(
        """
        [sandbox]
        mode = "workspace-write"
        network = true
        writable = ["cache", "~"]
        hidden = [".env"]
        pass_env = ["AWS_PROFILE", "MY_*"]
        environment = { CI = "1" }
        memory_mb = 100
        processes = 0
        cpu_seconds = 60
        """
    )
    assert settings.mode == "workspace-write"
    sandbox = Sandbox.for_workspace("read-only", tmp_path, settings)
    assert (sandbox.mode, sandbox.network) == ("read-only", True)  # whoever makes it has chosen the mode
    assert sandbox.root == tmp_path
    assert sandbox.writable == (tmp_path / "cache", Path.home().resolve())
    assert sandbox.hidden == (tmp_path / ".env",)
    assert sandbox.passed == ("AWS_PROFILE", "MY_*")
    assert sandbox.environment == {"CI": "1"}
    assert sandbox.limits == Limits(memory=100 << 20, processes=None, cpu=60)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ("sandbox = 'full'", "interlock.toml: sandbox is a table, [sandbox], not 'full'"),
        (
            "[sandbox]\nnetwrok = true",
            "interlock.toml: [sandbox] has no key 'netwrok': did you mean network?",
        ),
        (
            "[sandbox]\nxyz = 1",
            "interlock.toml: [sandbox] has no key 'xyz': there are mode, network, writable",
        ),
        ("[sandbox]\nmode = 'none'", "interlock.toml: [sandbox] mode: invalid enum value 'none'"),
        ("[sandbox]\nnetwork = 'yes'", "interlock.toml: [sandbox] network: expected `bool`, got `str`"),
        ("[sandbox]\nmemory_mb = -1", "interlock.toml: [sandbox] memory_mb: expected `int` >= 0"),
        ("[sandbox]\nwritable = '/x'", "interlock.toml: [sandbox] writable: expected `array`, got `str`"),
        (
            "[sandbox]\npass_env = ['A B']",
            "interlock.toml: [sandbox] pass_env[0]: expected `str` matching regex",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_place(table: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(table)
    assert str(raised.value).startswith(problem)


def test_folders_must_exist(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for options, problem in [
        ({"root": tmp_path / "no"}, "the workspace '.*no': No such file"),
        ({"root": tmp_path, "writable": ["no"]}, "writable 'no': No such file"),
        ({"root": tmp_path, "writable": ["file"]}, "writable 'file' is not a folder"),
        ({"root": tmp_path, "readable": ["no"]}, "readable 'no': No such file"),
    ]:
        with pytest.raises(ConfigError, match=problem):
            Sandbox("read-only", **options)  # type: ignore[arg-type]
    for options in (
        {"root": "/"},
        {"root": tmp_path, "writable": ["/dev/shm"]},
        {"root": tmp_path, "readable": ["/proc"]},
    ):
        with pytest.raises(ConfigError, match=r"cannot be shown: the sandbox has a /(proc|dev) of its own"):
            Sandbox("read-only", **options)  # type: ignore[arg-type]
    Sandbox("read-only", root=tmp_path, readable=["file"], hidden=["no"])
    with pytest.raises(ConfigError, match="read-only, workspace-write, full, not 'none'"):
        Sandbox("none", root=tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "limits", [{"memory": 0}, {"processes": -1}, {"temporary": None}, {"cpu": 1.5}, {"open_files": True}]
)
def test_a_limit_is_a_positive_number(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="is a positive number"):
        Limits(**limits)


def test_a_sandbox_says_in_a_few_words_what_it_is(tmp_path: Path) -> None:
    assert Sandbox("read-only", root=tmp_path).summary == "read-only, no network"
    assert Sandbox("workspace-write", root=tmp_path, network=True).summary == "workspace-write, network"
    assert Sandbox("full", root=tmp_path).summary == "full"
    assert repr(Sandbox("full", root=tmp_path)) == f"Sandbox('full', root={str(tmp_path)!r}: full)"


def test_limits_are_never_above_those_of_this_process() -> None:
    import resource

    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    [files] = [line for line in Limits(open_files=1 << 40).ulimits() if " -n " in line]
    assert files == f"ulimit -n {min(hard, 1 << 40) if hard != resource.RLIM_INFINITY else 1 << 40}"
    assert Limits(None, None, None, None).ulimits() == ["ulimit -c 0"]


def test_a_home_folder_is_no_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    problem = Sandbox("read-only", root=tmp_path).problem()
    assert problem is not None
    assert problem.startswith(
        f"the sandbox cannot hide the home folder {tmp_path} and let commands work in it"
    )
    assert Sandbox("full", root=tmp_path).problem() is None
    assert os.environ["HOME"] == str(tmp_path)
