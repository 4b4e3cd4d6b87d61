"""The tables that are made from the code are up to date, and what makes them sees what it should."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest

from interlock.log.facts import known_facts
from interlock.loop.points import POINTS

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    """`docs/generate.py`, which finds the module beside it as a script does."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["generate"] = module
    sys.path.insert(0, str(DOCS))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module


def test_no_page_is_stale(generate: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """What to do when it fails: `python docs/generate.py`, and read the difference."""
    assert (generate.main(["--check"]), capsys.readouterr().out) == (0, "")


def test_a_table_that_was_changed_by_hand_is_stale(generate: ModuleType) -> None:
    page = (DOCS / "architecture.md").read_text(encoding="utf-8")
    changed = page.replace("| `turn/start` |", "| `turn/begun` |")
    assert changed != page
    assert generate.filled(changed) == page


def test_an_unknown_table_is_an_error(generate: ModuleType) -> None:
    with pytest.raises(KeyError):
        generate.filled("<!-- begin: weather -->\n<!-- end: weather -->")


def test_every_table_is_on_a_page(generate: ModuleType) -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert set(re.findall(r"<!-- begin: (\S+) -->", pages)) == set(generate.TABLES)


def test_every_fact_and_every_point_has_a_row(generate: ModuleType) -> None:
    first_cells = [line.split(" | ")[0] for line in generate.events().splitlines()[2:]]
    assert first_cells == [
        f"| `{cls.type}`" for cls in known_facts().values() if cls.__module__ == "interlock.log.facts"
    ]
    assert len(generate.points().splitlines()) == 2 + len(POINTS)


def test_every_field_of_a_fact_and_of_what_is_inside_has_a_row(generate: ModuleType) -> None:
    """And it says what the JSON may be, in words."""
    _, rows = generate.fields()
    named, event = [], ""
    for cell, field, value, _, _ in rows:
        event = cell or event
        assert value
        named.append((event, field))
    assert named == [
        (f"`{cls.type}`", f"`{field.encode_name}`")
        for cls in known_facts().values()
        if cls.__module__ == "interlock.log.facts"
        for field in msgspec.structs.fields(cls)
    ]
    within = {cell for cell, *_ in generate.values()[1]}
    used = {word for _, _, value, _, _ in rows for word in re.findall(r"\b[A-Z][a-z]\w+", value)}
    assert used and used <= within
    stamp = ["Stamp", "`number`", "integer", "", "from 1; later letters have higher ones"]
    assert stamp in generate.values()[1]


def test_a_call_makes_a_fact_and_any_other_mention_reads_it(generate: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "maker.py").write_text(
        "from interlock.log.facts import TurnStart as Start\n"
        "def begin(session) -> Start:\n"
        "    made: Start = Start(1)\n"
        "    assert isinstance(made, Start)\n"
        "    return made\n"
    )
    (tmp_path / "readers").mkdir()
    (tmp_path / "readers" / "reader.py").write_text(
        "from interlock.log.facts import StepStart, TurnEnd, TurnStart\n"
        "rules = {TurnEnd: None}\n"
        "def look(fact: StepStart):\n"
        "    match fact:\n"
        "        case TurnStart(turn=turn):\n"
        "            return turn\n"
    )
    uses = generate.uses_of_facts(tmp_path)
    assert (uses["TurnStart"].made, uses["TurnStart"].read) == ({"maker"}, {"readers.reader"})
    assert (uses["TurnEnd"].made, uses["TurnEnd"].read) == (set(), {"readers.reader"})
    assert (uses["StepStart"].made, uses["StepStart"].read) == (set(), set())


def test_only_reserved_facts_are_made_by_nobody(generate: ModuleType) -> None:
    """A fact that nothing makes any more must not stay in the vocabulary unnoticed."""
    nobody = {name for name, uses in generate.uses_of_facts().items() if not uses.made}
    assert nobody == {"BudgetWarned"}


def _anchor(heading: str) -> str:
    """How a page of Markdown names a heading in a link."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_between_pages_lead_somewhere() -> None:
    root = DOCS.parent
    broken = []
    for page in [root / "README.md", root / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
            there = page.parent / target if target else page
            headings = (
                re.findall(r"^#+ (.*)$", there.read_text(), re.M)
                if there.suffix == ".md" and there.exists()
                else []
            )
            if not there.exists() or (anchor and anchor not in map(_anchor, headings)):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []
