"""docs/explain.md shows what really comes out, and names every field of it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from interlock.cli.main import main
from interlock.log.explanation import Difference, Explained, Fate, Link, Stage

PAGE = (Path(__file__).parents[2] / "docs" / "explain.md").read_text(encoding="utf-8")
PROGRAM, OUTPUT = re.search(r"```python\n(.*?)```.*?```text\n(.*?)```", PAGE, re.DOTALL).groups()  # type: ignore[union-attr]
TOOK = re.compile(r" \([\d.]+ (?:µs|ms|s)\)|, [\d.]+ m?s after it was done")


def test_the_output_is_that_of_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, folder in (("HOME", tmp_path / "home"), ("INTERLOCK_HOME", tmp_path / "home" / "interlock")):
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    program = tmp_path / "program.py"
    program.write_text(PROGRAM, encoding="utf-8")
    runpy.run_path(str(program), run_name="__main__")
    with pytest.raises(SystemExit) as ended:
        main(["explain", "last"])
    assert ended.value.code == 0
    assert TOOK.sub("", capsys.readouterr().out) == TOOK.sub("", OUTPUT)


def test_every_stage_fate_and_field_is_on_the_page() -> None:
    named = set(re.findall(r"`([a-z_]+)`", PAGE))
    fields = {name for cls in (Explained, Link, Difference) for name in cls.__struct_fields__}
    assert fields | set(Stage.__args__) | set(Fate.__args__) <= named
