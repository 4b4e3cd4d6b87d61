"""The command itself: its help, its version, its codes, and what it does not import."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from interlock import (
    ConfigError,
    InterlockError,
    ModelFailure,
    StoreFailed,
    UsageError,
    __version__,
)
from interlock.cli import exit_codes
from interlock.errors import SessionBusy, UnknownSession
from interlock.log.reasons import (
    TURN_PRECEDENCE,
    Aborted,
    Blocked,
    Cause,
    Completed,
    EndReason,
    Failed,
    Interrupted,
    MaxTokens,
    OverBudget,
)


def test_version(interlock: Any) -> None:
    assert interlock("--version") == (0, f"interlock {__version__}\n", "")


def test_help_lists_the_commands_and_run_documents_its_codes(interlock: Any) -> None:
    listed = interlock("--help").out
    for name in ("demo", "run", "sessions", "log", "explain", "check", "approvals"):
        assert f"\n  {name} " in listed
        assert interlock(name, "--help").code == 0
    documented = interlock("run", "--help").out
    numbers = {value for name, value in vars(exit_codes).items() if name.isupper() and isinstance(value, int)}
    assert numbers == {0, 1, 2, 3, 4, 5, 6, 7, 130, 143}
    for number in numbers:
        assert f"\n  {number:>5}  " in documented
    assert "only by a sandbox" in " ".join(documented.split())


def test_without_a_command_the_help_is_shown(interlock: Any) -> None:
    ended = interlock()
    assert ended.code == 2
    assert "Commands:" in ended.out + ended.err


def test_an_unknown_command_is_a_usage_error(interlock: Any) -> None:
    assert interlock("rnu").code == 2


REASONS: list[tuple[EndReason, int]] = [
    (Completed(), 0),
    (Completed(by="hook"), 0),
    (Failed("SERVER", "down"), 1),
    (MaxTokens(), 3),
    (Blocked("no", "gate"), 4),
    (OverBudget("steps", 1, 1), 5),
    (Aborted(Cause("user")), 130),
    (Interrupted(), 130),
]


@pytest.mark.parametrize(("reason", "code"), REASONS)
def test_every_end_of_a_turn_has_a_code(reason: EndReason, code: int) -> None:
    assert exit_codes.of_reason(reason) == code
    assert {type(reason) for reason, _ in REASONS} == set(TURN_PRECEDENCE)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (UsageError("x"), 2),
        (UnknownSession("x"), 2),
        (StoreFailed("x"), 6),
        (SessionBusy("x", "y"), 6),
        (ModelFailure("x"), 1),
    ],
)
def test_every_error_has_a_code(error: InterlockError, code: int) -> None:
    assert exit_codes.of_error(error) == code


@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (["--help"], []),
        (["--version"], []),
        (["run", "--help"], ["pydantic"]),  # typer reads options with it
    ],
)
def test_help_loads_nothing_heavy(arguments: list[str], loaded: list[str]) -> None:
    program = (
        "import sys\n"
        "from interlock.cli.main import main\n"
        "try:\n"
        f"    main({arguments!r})\n"
        "except SystemExit:\n"
        "    pass\n"
        "heavy = {'msgspec', 'pydantic', 'rich', 'sqlite3', 'openai', 'interlock.loop', 'interlock.log'}\n"
        "print(sorted(heavy & set(sys.modules)))\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.splitlines()[-1] in (str(loaded), "[]")
