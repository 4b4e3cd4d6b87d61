"""Every Python block of the pages runs as it stands: a reader copies it whole.

A block whose fence says `python no-run` needs something that is not here, a key or a server: it is compiled only.
"""

from __future__ import annotations

import re
import runpy
from dataclasses import dataclass
from pathlib import Path

import pytest

from interlock.log import facts
from interlock.log.facts import known_facts
from interlock.models import registry

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
KNOWN = ("python", "python no-run")


@dataclass(frozen=True)
class Block:
    page: Path
    line: int  # of its fence, from 1
    info: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 1, found["info"].strip(), found["code"])
        for found in FENCE.finditer(text)
    ]


BLOCKS = [block for page in PAGES for block in blocks_of(page) if block.info.startswith("py")]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_runs_as_it_stands(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert block.info in KNOWN, f"{block}: a fence says {' or '.join(KNOWN)}, not {block.info!r}"
    program = tmp_path / f"{block.page.stem}_{block.line}.py"
    program.write_text(block.code, encoding="utf-8")
    compile(block.code, str(program), "exec")
    if block.info == "python no-run":
        return
    home, here = tmp_path / "home", tmp_path / "here"
    home.mkdir()
    here.mkdir()
    for name, folder in (("HOME", home), ("INTERLOCK_HOME", home / "interlock"), ("TMPDIR", here)):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.chdir(here)
    # What a block registers for itself is not there for the next one, nor for other tests.
    monkeypatch.setattr(facts, "_registry", known_facts())
    monkeypatch.setattr(registry, "_providers", dict(registry._providers))
    runpy.run_path(str(program), run_name="__main__")


def test_there_is_something_to_run() -> None:
    """A pattern that finds nothing would make every page pass."""
    runs = {block.page.name for block in BLOCKS if block.info == "python"}
    assert {"README.md", "seven-questions.md"} <= runs


def test_the_seven_questions_are_seven_and_each_has_a_program() -> None:
    text = (ROOT / "docs" / "seven-questions.md").read_text(encoding="utf-8")
    sections = re.split(r"^## ", text, flags=re.MULTILINE)[1:]
    assert [section.partition(".")[0] for section in sections] == [str(n) for n in range(1, 8)]
    for section in sections:
        assert section.partition("\n")[0].endswith("?"), section.partition("\n")[0]
        assert [found["info"] for found in FENCE.finditer(section)] == ["python"]
        assert "assert " in section
