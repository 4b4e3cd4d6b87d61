"""Rules, preset and remembered grants in an agent: who is heard, what is on record, and what the model is shown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock import (
    Agent,
    Allow,
    ApprovalRequest,
    Approved,
    Ask,
    ConfigError,
    Harness,
    MemoryStore,
    Preset,
    ToolContext,
    tool,
)
from interlock.log.facts import PolicyChanged, RequestHeader, ToolDecided, ToolStarted
from interlock.policy.preset import PRESETS
from interlock.testing import ScriptedModel, assert_laws, calls, outline, says
from interlock.toolkit import workspace
from interlock.tools.rules import Ruled

EDITS = {"path": "a.txt", "content": "new"}


def agent(cwd: Path, *steps: Any, **settings: Any) -> Agent:
    return Agent(ScriptedModel(*steps, says("done")), tools=workspace(), cwd=cwd, **settings)


async def decided(made: Agent) -> list[str]:
    async with made:
        await made.run("go")
        assert_laws(made.session)
        return outline(made.session, "tool/decided", "tool/result")


async def test_a_rule_that_allows_beats_the_preset_and_is_named_with_its_place(tmp_path: Path) -> None:
    made = agent(tmp_path, calls("write", **EDITS), preset="ask", rules={"allow": ["Edit(*.txt)"]})
    assert await decided(made) == [
        "tool/decided #c1 allow by rule Edit(*.txt)",
        "tool/result #c1 created a.txt: 3 bytes",
    ]
    (line,) = made.session.facts(ToolDecided)
    assert [(said.who, said.answer, said.rule, said.file) for said in line.said] == [
        ("rule Edit(*.txt)", "allow", "Edit(*.txt)", "given")
    ]


async def test_deny_beats_ask_beats_allow_over_all_sources(tmp_path: Path) -> None:
    async with Harness(rules={"deny": ["Edit(/a.txt)"]}) as harness:
        made = Agent(
            ScriptedModel(calls("write", **EDITS), says("done")),
            tools=workspace(),
            cwd=tmp_path,
            harness=harness,
            rules={"allow": ["Edit"], "ask": ["Edit"]},
        )
        made.on.pre_execute(lambda call: Allow())
        async with made:
            await made.run("go")
            (line,) = made.session.facts(ToolDecided)
    assert (line.verdict, line.by) in (("deny", "rule Edit(/a.txt)"), ("ask", "rule Edit"))
    assert not (tmp_path / "a.txt").exists()


async def test_a_listener_can_be_stricter_than_a_rule_and_never_looser(tmp_path: Path) -> None:
    made = agent(tmp_path, calls("write", **EDITS), rules={"allow": ["Edit"]})
    made.on.pre_execute(lambda call: Ask("sure?"), name="careful")
    assert (await decided(made))[0] == "tool/decided #c1 ask by careful: sure?"
    made = agent(tmp_path, calls("write", **EDITS), rules={"deny": ["Edit"]})
    made.on.pre_execute(lambda call: Allow(), name="loose")
    assert (await decided(made))[0].startswith("tool/decided #c1 deny by rule Edit")


async def test_a_caution_holds_back_an_allow_and_leaves_a_stricter_default(tmp_path: Path) -> None:
    """A protected path is never approved without a person; where the preset denies, it stays denied."""
    edits = calls("write", path=".git/config", content="x")
    made = agent(tmp_path, edits, preset="full", rules={"allow": ["Edit"]})
    assert (await decided(made))[0].startswith("tool/decided #c1 ask by caution")
    made = agent(tmp_path, edits, preset="plan")
    assert (await decided(made))[-1].startswith("tool/result #c1 error DENIED")
    made = agent(tmp_path, edits, preset="full")
    assert (await decided(made))[-1].startswith("tool/result #c1 error APPROVAL_UNAVAILABLE")


async def test_rules_that_fail_mean_no(tmp_path: Path) -> None:
    made = agent(tmp_path, calls("write", **EDITS), preset="full")

    def broken(call: object) -> Ruled:
        raise OSError("the disk is gone")

    made.rule = broken  # type: ignore[method-assign,assignment]
    assert (await decided(made))[-1] == (
        "tool/result #c1 error PERMISSION_EVALUATION_ERROR rules: the disk is gone"
    )


async def test_a_tool_that_is_denied_as_a_whole_is_not_shown_to_the_model(tmp_path: Path) -> None:
    made = agent(tmp_path, calls("bash", command="ls"), rules={"deny": ["Bash", "Edit(secrets/**)"]})
    assert (await decided(made))[-1].startswith("tool/result #c1 error DENIED")
    (header, *_) = made.session.facts(RequestHeader)
    assert [spec.name for spec in header.tools] == ["edit", "glob", "grep", "read", "write"]


async def test_nested_calls_are_held_to_the_same_rules(tmp_path: Path) -> None:
    @tool(concurrency="exclusive")
    async def twice(ctx: ToolContext) -> str:
        return str(await ctx.call_tool("write", **EDITS))

    made = agent(tmp_path, calls("twice"), rules={"deny": ["Edit"]})
    made.add_tool(twice)
    await decided(made)
    assert not (tmp_path / "a.txt").exists()


async def test_accept_edits_edits_the_workspace_and_asks_about_the_rest(tmp_path: Path) -> None:
    made = agent(tmp_path, calls("write", **EDITS), preset="accept-edits", sandbox="full")
    assert await decided(made) == ["tool/result #c1 created a.txt: 3 bytes"]
    made = agent(tmp_path, calls("write", path=".claude/settings.json", content="{}"), preset="accept-edits")
    assert (await decided(made))[-1].startswith("tool/result #c1 error APPROVAL_UNAVAILABLE")
    made = agent(tmp_path, calls("bash", command="ls"), preset="accept-edits", sandbox="full")
    assert (await decided(made))[-1].startswith("tool/result #c1 error APPROVAL_UNAVAILABLE")


async def test_a_change_of_preset_holds_for_the_next_call_and_is_on_record(tmp_path: Path) -> None:
    made = agent(tmp_path, calls("write", **EDITS), says("no"), calls("write", **EDITS), preset="plan")
    async with made:
        await made.run("go")
        made.set_preset("full", by="ada")
        await made.run("again")
        assert [(f.preset, f.sandbox, f.approval, f.by) for f in made.session.facts(PolicyChanged)] == [
            ("plan", "read-only", "deny", "agent"),
            ("full", "full", "allow", "ada"),
        ]
        assert len(made.session.facts(ToolStarted)) == 1


async def test_a_session_that_is_resumed_without_a_preset_keeps_its_own(tmp_path: Path) -> None:
    """Nobody who forgets to choose gets more than what was chosen before."""
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store, preset=Preset("mine", "ask", sandbox="read-only")) as made:
        session_id = made.session.id
    async with Agent(ScriptedModel(), store=store, session=session_id) as made:
        assert made.preset is not None
        assert (made.preset.name, made.preset.rest, made.policy.sandbox) == ("mine", "ask", "read-only")
        assert len(made.session.facts(PolicyChanged)) == 1
    async with Agent(ScriptedModel(), store=store, session=session_id, preset="plan") as made:
        assert [fact.preset for fact in made.session.facts(PolicyChanged)] == ["mine", "plan"]


async def test_a_sandbox_that_is_chosen_for_a_resumed_session_is_not_taken_back_by_its_log() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store, preset="full") as made:
        session_id = made.session.id
    async with Agent(ScriptedModel(), store=store, session=session_id, sandbox="read-only") as made:
        assert made.confinement is not None
        assert (made.preset, made.confinement.mode) == (PRESETS["full"], "read-only")
        assert [(f.preset, f.sandbox) for f in made.session.facts(PolicyChanged)] == [
            ("full", "full"),
            ("full", "read-only"),
        ]


async def test_a_rule_that_was_allowed_for_the_session_holds_also_after_a_restart(tmp_path: Path) -> None:
    asked: list[str] = []

    async def for_the_session(request: ApprovalRequest) -> Approved:
        asked.append(request.arguments["path"])
        return Approved(remember="session")

    store = MemoryStore()
    steps = calls("write", **EDITS), says("one"), calls("write", path="a.txt", content="newer")
    async with agent(tmp_path, *steps, preset="ask", approver=for_the_session, store=store) as made:
        await made.run("go")
        await made.run("again")
        session_id, granted = made.session.id, dict(made.session.state.grants)
    assert (asked, list(granted)) == (["a.txt"], ["Edit(/a.txt)"])
    again = agent(tmp_path, calls("write", **EDITS), store=store, session=session_id)
    assert (await decided(again))[-1].startswith("tool/result #c1 wrote")


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ({"allow": "Bash"}, "the rules to allow are a list"),
        ({"permit": ["Bash"]}, "rules are given as lists by effect"),
        ({"deny": ["Bash("]}, r"'Bash\(' is not a rule"),
        (["Bash"], "rules are given as lists by effect"),
    ],
)
def test_rules_that_are_none_are_refused(rules: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Agent(ScriptedModel(), rules=rules)


def test_a_sandbox_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="sandbox is one of read-only, workspace-write, full"):
        Agent(ScriptedModel(), sandbox="none")  # type: ignore[arg-type]
