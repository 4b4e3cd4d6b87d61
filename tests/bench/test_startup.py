"""What it takes to begin, counted: modules that are loaded and classes that are made by generated code.

Both are the same on every machine, unlike a time. A ceiling is what it takes today and a little room. Whoever needs a
further module at the start says so here; whoever does not imports it where it is used.
"""

from __future__ import annotations

import subprocess
import sys

import pytest
from bench.startup import FIRST_AGENT, FIRST_TURN, started

REPORT = """
import sys
loaded = sorted(sys.modules)
made = [
    f"{value.__module__}.{value.__qualname__}"
    for name in loaded if name.partition(".")[0] == "interlock"
    for value in vars(sys.modules[name]).values()
    if isinstance(value, type) and value.__module__ == name and "__dataclass_params__" in vars(value)
]
print(*loaded)
print(*made)
"""

#: Parts that an agent has only if it is given them.
WHEN_GIVEN = {
    "interlock.bridges": "hooks of other programs",
    "interlock.cli": "the command line",
    "interlock.log.redaction.shapes": "a redactor",
    "interlock.log.stores.query": "a search",
    "interlock.loop.hooks": "hooks",
    "interlock.models.openai": "a model by its name",
    "interlock.policy.approvals.grants": "grants for always",
    "interlock.policy.proposing": "a question to a person",
    "interlock.policy.rules.deciding": "rules",
    "interlock.policy.rules.rule": "rules",
    "interlock.policy.shell": "rules on commands",
    "interlock.process.sandbox": "a sandbox",
    "interlock.toolkit": "the tools in the box",
    "openai": "a model by its name",
    "psycopg": "a store",
    "rich": "the command line",
    "sqlite3": "a store",
    "typer": "the command line",
}
#: What comes with pydantic, and so with the first tool.
WITH_PYDANTIC = {
    "difflib": "a mistyped name",
    "email.utils": "a model by its name",
    "html": "a model by its name",
    "pydantic": "a tool",
}


def loaded_by(code: str) -> tuple[set[str], set[str]]:
    """The modules that are loaded after `code` ran in a process of its own, and our dataclasses in them."""
    ran = subprocess.run([sys.executable, "-c", code + REPORT], capture_output=True, text=True, check=True)
    loaded, made = ran.stdout.splitlines()
    return set(loaded.split()), set(made.split())


def few(what: str, found: set[str], ceiling: int) -> None:
    assert len(found) <= ceiling, f"{len(found)} {what}, more than {ceiling}: {', '.join(sorted(found))}"
    assert len(found) > 0.8 * ceiling, f"only {len(found)} {what} now: lower the ceiling of {ceiling}"


@pytest.fixture(scope="module")
def agent() -> tuple[set[str], set[str]]:
    return loaded_by(FIRST_AGENT[2])


@pytest.fixture(scope="module")
def turn() -> set[str]:
    return loaded_by(FIRST_TURN[2])[0]


def test_what_nobody_gave_an_agent_is_not_loaded(agent: tuple[set[str], set[str]]) -> None:
    unused = {**WHEN_GIVEN, **WITH_PYDANTIC}
    assert {name: why for name, why in unused.items() if name in agent[0]} == {}


def test_nor_is_it_for_a_turn_with_a_tool(agent: tuple[set[str], set[str]], turn: set[str]) -> None:
    assert {name: why for name, why in WHEN_GIVEN.items() if name in turn} == {}
    ours = {name for name in turn - agent[0] if name.partition(".")[0] == "interlock"}
    assert ours <= {"interlock.models.scripted", "interlock.testing"}


def test_the_first_agent_loads_few_modules(agent: tuple[set[str], set[str]]) -> None:
    few("modules of ours", {name for name in agent[0] if name.partition(".")[0] == "interlock"}, 95)


def test_few_of_its_classes_are_made_by_generated_code(agent: tuple[set[str], set[str]]) -> None:
    """Making a dataclass takes fifty times as long as making a `msgspec.Struct`, at every start."""
    few("dataclasses", agent[1], 7)


def test_a_start_is_measured_as_it_is_of_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """With bytecode, whatever the environment says: a compilation is paid once, when a package is installed."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    looks = [
        sys.executable,
        "-c",
        "import sys, statistics as module, os; assert not sys.dont_write_bytecode; "
        "assert os.path.exists(module.__cached__) and module.__cached__.startswith(sys.pycache_prefix)",
    ]
    samples = started(1, {"looks": looks})
    assert len(samples["looks"]) == 1
