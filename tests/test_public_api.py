"""What `import interlock` promises: these names, each with a meaning, and nothing heavy before it is used."""

from __future__ import annotations

import dataclasses
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import interlock
import interlock.models
import interlock.testing

LIST = Path(__file__).with_name("public_api.txt")
#: Names for values, which cannot have a docstring of their own.
VALUES = {"EndReason", "HOOK_EVENTS", "HookEvent"}


def test_the_public_names_are_those_of_the_list() -> None:
    """A name that comes or goes is a change that users see: edit the list, and the changelog."""
    assert list(interlock.__all__) == LIST.read_text(encoding="utf-8").split()


@pytest.mark.parametrize("module", [interlock, interlock.models, interlock.testing], ids=lambda m: m.__name__)
def test_every_name_resolves_and_is_seen(module: object) -> None:
    for name in module.__all__:  # type: ignore[attr-defined]  # every module has one here
        assert getattr(module, name) is not None
        assert name in dir(module)


def test_what_type_checkers_see_is_what_is_there() -> None:
    """The names are written twice, for the type checker and for the loading on first use."""
    for module in (interlock, interlock.models, interlock.testing):
        source = Path(str(module.__file__)).read_text(encoding="utf-8")
        for_checkers = {
            line.rpartition(" as ")[2]
            for line in source.splitlines()
            if line.startswith("    from ") and " as " in line
        }
        assert for_checkers == set(module.__all__), module.__name__


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        _ = interlock.Agnet


@pytest.mark.parametrize("name", sorted(set(interlock.__all__) - VALUES))
def test_every_public_name_has_a_docstring_of_its_own(name: str) -> None:
    value = getattr(interlock, name)
    assert inspect.isclass(value) or inspect.isroutine(value), f"{name} is a value: name it in VALUES"
    written = value.__dict__.get("__doc__") if inspect.isclass(value) else value.__doc__
    assert written and len(written.split()) >= 3
    made_by_dataclass = dataclasses.is_dataclass(value) and written.startswith(f"{name}(")
    assert not made_by_dataclass, f"{name} has only the docstring that dataclass makes"


def _loaded_by(code: str) -> set[str]:
    """The modules that are loaded after `code` ran in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules, sep='\\n')"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ran.stdout.split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    loaded = _loaded_by("import interlock")
    assert "interlock" in loaded
    assert not loaded & {"asyncio", "pydantic", "msgspec", "openai", "typer", "rich"}


def test_an_agent_without_tools_does_not_need_pydantic() -> None:
    loaded = _loaded_by(
        "from interlock import Agent\n"
        "from interlock.testing import ScriptedModel, says\n"
        "Agent(ScriptedModel(says('hello')))"
    )
    assert "interlock.loop.agent" in loaded
    assert not loaded & {"pydantic", "openai", "typer", "rich"}
