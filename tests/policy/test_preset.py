"""Presets: what happens to a call that nobody spoke about, and that every other voice is heard before it."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import (
    Advise,
    Agent,
    Allow,
    ApprovalRequest,
    Approved,
    Ask,
    ConfigError,
    Deny,
    Preset,
    ToolCall,
    tool,
)
from interlock.log.facts import ApprovalAsked, PolicyChanged, ToolDecided, ToolResulted, ToolStarted
from interlock.policy.preset import PRESETS, preset
from interlock.testing import ScriptedModel, assert_laws, calls, outline, says

pytestmark = pytest.mark.virtual


@tool(effect="read")
async def look() -> str:
    return "seen"


@tool(effect="idempotent")
async def put() -> str:
    return "put"


@tool
async def change() -> str:
    return "changed"


async def approves(request: ApprovalRequest) -> Approved:
    return Approved()


async def treated(name: str, preset: str | Preset | None, *listeners: Any, approver: Any = None) -> Agent:
    """An agent that was asked to call this tool once."""
    agent = Agent(
        ScriptedModel(calls(name), says("done")), tools=[look, put, change], preset=preset, approver=approver
    )
    async with agent:
        for listener in listeners:
            listener(agent)
        assert (await agent.run("go")).ok
        assert_laws(agent.session)
    return agent


def code(agent: Agent) -> str:
    (result,) = agent.session.facts(ToolResulted)
    return result.error.code if result.error is not None else "ran"


ASKED = "APPROVAL_UNAVAILABLE"


@pytest.mark.parametrize(
    ("chosen", "name", "expected"),
    [
        (None, "look", "ran"), (None, "put", "ran"), (None, "change", "ran"),
        ("plan", "look", "ran"), ("plan", "put", "DENIED"), ("plan", "change", "DENIED"),
        ("ask", "look", "ran"), ("ask", "put", ASKED), ("ask", "change", ASKED),
        ("full", "look", "ran"), ("full", "put", "ran"), ("full", "change", "ran"),
    ],
)  # fmt: skip
async def test_what_a_preset_does_with_a_call(chosen: str | None, name: str, expected: str) -> None:
    """D-7b: no preset chosen means allow; reads run under every one."""
    agent = await treated(name, chosen)
    assert code(agent) == expected
    assert bool(agent.session.facts(ToolStarted)) == (expected == "ran")


@pytest.mark.parametrize("chosen", ["plan", "ask", "full"])
async def test_the_default_alone_writes_no_decision(chosen: str) -> None:
    """D-7b."""
    for name in ("look", "change"):
        agent = await treated(name, chosen)
        assert agent.session.facts(ToolDecided) == []


async def test_a_chosen_preset_is_on_record_and_none_is_not() -> None:
    """D-7b."""
    (changed,) = (await treated("look", "ask")).session.facts(PolicyChanged)
    assert (changed.preset, changed.approval, changed.by) == ("ask", "ask", "agent")
    assert (await treated("look", None)).session.facts(PolicyChanged) == []


@pytest.mark.parametrize(
    ("chosen", "voice", "expected"),
    [
        ("plan", Allow(), "ran"), ("plan", Ask("sure?"), ASKED), ("plan", Deny("no"), "DENIED"),
        ("ask", Allow(), "ran"), ("ask", Deny("no"), "DENIED"),
        ("full", Ask("sure?"), ASKED), ("full", Deny("no"), "DENIED"),
        (None, Ask("sure?"), ASKED), (None, Deny("no"), "DENIED"),
    ],
)  # fmt: skip
async def test_a_listener_is_heard_before_the_default(chosen: str | None, voice: Any, expected: str) -> None:
    """D-7b: deny > ask > allow > the preset's default. An allow of a rule beats the default."""
    agent = await treated("change", chosen, lambda agent: agent.on.pre_execute(lambda call: voice))
    assert code(agent) == expected


@pytest.mark.parametrize(
    ("chosen", "advice", "expected"),
    [
        ("plan", Allow(), "DENIED"), ("ask", Allow(), ASKED), ("full", Allow(), "ran"),
        ("full", Ask("sure?"), ASKED), ("full", Deny("no"), "DENIED"), ("plan", Ask("sure?"), "DENIED"),
    ],
)  # fmt: skip
async def test_advice_never_loosens_the_default(chosen: str, advice: Any, expected: str) -> None:
    """D-7b, HK-12."""
    agent = await treated("change", chosen, lambda agent: agent.on.prepare(lambda call: Advise(advice)))
    assert code(agent) == expected


async def test_a_guard_is_heard_whatever_the_preset_allows() -> None:
    agent = await treated("look", "full", lambda agent: agent.guard(lambda call: Deny("never")))
    assert code(agent) == "GUARD_DENIED"


async def test_a_person_can_allow_what_the_preset_asks_about() -> None:
    agent = await treated("change", "ask", approver=approves)
    assert code(agent) == "ran"
    (asked,) = agent.session.facts(ApprovalAsked)
    assert asked.question == "change may change something"


async def test_a_denial_says_what_the_model_may_do_instead() -> None:
    agent = await treated("change", "plan")
    (result,) = agent.session.facts(ToolResulted)
    assert result.content[0].text == (
        "Error [denied]: preset plan: only tools that read may run; describe what you would do instead"
    )


async def test_a_preset_of_ones_own() -> None:
    strict = Preset("strict", "deny", "nothing but reading")
    assert code(await treated("change", strict)) == "DENIED"


def test_presets_are_found_by_name_and_an_unknown_one_is_refused() -> None:
    assert list(PRESETS) == ["plan", "ask", "accept-edits", "full"]
    assert preset("plan") is PRESETS["plan"]
    with pytest.raises(ConfigError, match="no preset 'yolo': choose one of plan, ask, accept-edits, full"):
        Agent(preset="yolo")


async def test_a_preset_that_raises_means_no() -> None:
    """Fail closed: the call does not run, and the turn goes on."""

    class Broken(Preset):
        def verdict(self, call: ToolCall) -> Any:
            raise RuntimeError("no table of rules")

    agent = await treated("change", Broken("broken", "allow", ""))
    assert outline(agent.session, "tool/result", "turn/end") == [
        "tool/result #c1 error PERMISSION_EVALUATION_ERROR preset: no table of rules",
        "turn/end completed",
    ]
