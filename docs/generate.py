"""The tables of the documentation that are made from the code, between `<!-- begin: NAME -->` and `<!-- end: NAME -->`.

    python docs/generate.py           write them
    python docs/generate.py --check   name the pages that are stale, and exit with 1

Lives here: the tables of events and points, and the writing of all of them. `fail_closed`, `fields`
and `hook_parity` make the others.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import msgspec
from fail_closed import fail_closed
from fields import fields, formats, own_facts, values
from hook_parity import hook_parity

import interlock
from interlock.intercept.point import Kind
from interlock.log.facts import Fact
from interlock.loop.points import POINTS
from interlock.policy.corpus import measured

DOCS = Path(__file__).parent
SOURCE = Path(interlock.__file__).parent
FACTS = "interlock.log.facts"
TOOLS_OF_TESTS = "testing."  # they show every fact, which says nothing about any of them
WHOLE = ("bridges", "cli", "log.stores")  # packages that count as one reader

_MARKED = re.compile(r"(<!-- begin: (\S+) -->\n).*?(<!-- end: \2 -->)", re.S)


# Who makes and who reads a fact


@dataclass
class Uses:
    """The modules that construct a fact of one class, and those that look at it."""

    made: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)


@cache
def uses_of_facts(source: Path = SOURCE) -> dict[str, Uses]:
    """By name of the fact class. A module that calls the class makes it; any other mention in running code reads it."""
    found: dict[str, Uses] = {cls.__name__: Uses() for cls in own_facts()}
    for path in sorted(source.rglob("*.py")):
        module = ".".join(path.relative_to(source).with_suffix("").parts)
        if module == FACTS.removeprefix("interlock.") or module.startswith(TOOLS_OF_TESTS):
            continue
        module = next((package for package in WHOLE if module.startswith(f"{package}.")), module)
        tree = ast.parse(path.read_text(encoding="utf-8"))
        imported = _imported_facts(tree)
        for node, called in _mentions(tree):
            if node.id in imported and imported[node.id] in found:
                uses = found[imported[node.id]]
                (uses.made if called else uses.read).add(module)
    return found


def _imported_facts(tree: ast.Module) -> dict[str, str]:
    """Local names of what the module imports from the vocabulary."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == FACTS
        for alias in node.names
    }


def _mentions(node: ast.AST, called: bool = False) -> Iterator[tuple[ast.Name, bool]]:
    """Every name in running code, and whether it is called. Annotations and assertions only tell the type checker."""
    if isinstance(node, ast.Name):
        yield node, called
        return
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.Assert):
                yield from _mentions(child, isinstance(node, ast.Call) and name == "func")


# Tables


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _code(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _marks(cls: type[Fact]) -> str:
    marks = ["S"] if cls.surface else []
    if cls.barrier:
        marks.append(f"B: {cls.barrier}")
    if cls.ignorable:
        marks.append("i")
    return "; ".join(marks)


def _meaning(cls: type[Fact]) -> str:
    return (cls.__doc__ or "").strip().splitlines()[0]


def _fields(cls: type[Fact]) -> str:
    names = [one.name + ("" if one.required else "?") for one in msgspec.structs.fields(cls)]
    return f"`{' '.join(names)}`"


def events() -> str:
    uses = uses_of_facts()
    rows = [
        [
            f"`{cls.type}`",
            _meaning(cls),
            _fields(cls),
            _marks(cls),
            _code(sorted(uses[cls.__name__].made)) or "nobody yet",
            _code(sorted(uses[cls.__name__].read)),
        ]
        for cls in own_facts()
        if cls.__module__ == FACTS
    ]
    return table(["event", "meaning", "fields", "marks", "made by", "read by"], rows)


def points() -> str:
    attributes = {"guard": "agent.guard", "observe": "agent.on.observe(*facts)"}
    rows = [
        [
            f"`{point.name}`",
            f"`{attributes.get(point.attribute, f'agent.on.{point.attribute}')}`",
            f"{point.kind.value}{'' if point.awaited or point.kind is Kind.AROUND else ', sync'}",
            f"`{point.listener}`",
            _code([cls.__name__ for cls in point.answers]) or "none",
            point.merge,
        ]
        for point in POINTS
    ]
    return table(["point", "in code", "kind", "listener", "answers", "merge law"], rows)


def parity() -> str:
    return table(*hook_parity())


def corpus() -> str:
    found = measured()
    harmless, evasions = found.rates
    return table(
        ["commands", "how many", "rate"],
        [
            ["harmless, that do not ask", f"{found.allowed} of {found.harmless}", f"{harmless:.1%}"],
            [
                "evasions, that do not run",
                f"{found.stopped} of {found.evasions}, {found.denied} of them denied outright",
                f"{evasions:.1%}",
            ],
        ],
    )


TABLES: dict[str, Callable[[], str]] = {
    "events": events,
    "points": points,
    "fail-closed": fail_closed,
    "hook-parity": parity,
    "corpus": corpus,
    "formats": lambda: table(*formats()),
    "fields": lambda: table(*fields()),
    "values": lambda: table(*values()),
}


# Pages


def filled(text: str) -> str:
    """The page with its tables as they should be.

    Raises:
        KeyError: a marker names a table that nobody makes.
    """
    return _MARKED.sub(lambda found: f"{found[1]}{TABLES[found[2]]()}{found[3]}", text)


def main(arguments: list[str]) -> int:
    check = "--check" in arguments
    stale = []
    for page in sorted(DOCS.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        made = filled(text)
        if made != text:
            stale.append(page)
            if not check:
                page.write_text(made, encoding="utf-8")
    for page in stale:
        said = "is stale: run python docs/generate.py" if check else "written"
        print(f"docs/{page.name} {said}")  # noqa: T201  # a command tells what it did
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
