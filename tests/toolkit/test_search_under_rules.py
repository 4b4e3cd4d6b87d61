"""A search comes upon files that no call names: what rules keep from being read stays out of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock import Agent
from interlock.testing import ScriptedModel, calls, says
from interlock.toolkit import workspace


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (".env", "src/.env", "src/a.txt", "drafts/b.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a key\n")
    return tmp_path


async def found(folder: Path, rules: dict[str, list[str]], tool: str, **arguments: str) -> list[str]:
    model = ScriptedModel(calls(tool, **arguments), says("Done."))
    async with Agent(model, tools=workspace(), cwd=folder, rules=rules) as agent:
        await agent.run("Look")
    return model.requests[1].messages[-1].text.splitlines()


@pytest.mark.parametrize("rules", [{"deny": ["Read(.env)"]}, {"ask": ["Read(.env)"]}])
async def test_a_search_leaves_out_what_may_not_be_read(folder: Path, rules: dict[str, list[str]]) -> None:
    assert await found(folder, rules, "grep", pattern="key") == [
        "drafts/b.txt:1:a key",
        "src/a.txt:1:a key",
        "[left out because of permission rules: 2]",
    ]
    assert await found(folder, rules, "glob", pattern="**") == [
        "drafts/b.txt",
        "src/a.txt",
        "[left out because of permission rules: 2]",
    ]


async def test_without_such_a_rule_everything_is_found(folder: Path) -> None:
    for rules in ({}, {"deny": ["Edit(.env)", "Bash(rm:*)"]}):
        assert len(await found(folder, rules, "grep", pattern="key")) == 4
