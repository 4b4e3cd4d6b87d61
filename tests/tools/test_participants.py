"""What each participant answered, and how long it took, is on the lines of the call."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from interlock import Accept, Advise, Allow, Ask, Block, Deny, Refuse, Rewrite, ToolContext, ToolError, tool
from interlock.log.facts import Said, SubcallEnd, ToolDecided, ToolPrepared, ToolResulted, ToolStarted
from interlock.loop import turn
from interlock.testing import assert_laws
from interlock.tools.rules import Ruled

from .calling import calling, raise_value_error, told


def answers(said: tuple[Said, ...]) -> list[tuple[str, str, str | None]]:
    assert all(one.us >= 0 for one in said)
    return [(one.who, one.answer, one.reason) for one in said]


async def test_nobody_who_is_silent_leaves_a_word() -> None:
    agent = calling("write", name="a")
    agent.on.prepare(lambda call: None)
    agent.on.pre_execute(lambda call: None)
    agent.guard(lambda call: None)
    agent.on.post_execute(lambda call, result: None)
    await told(agent)
    assert agent.session.facts(ToolPrepared, ToolDecided) == []
    (result,) = agent.session.facts(ToolResulted)
    assert result.said == ()


@pytest.mark.parametrize(
    ("listener", "said"),
    [
        (lambda call: Rewrite({"name": "b"}), ("who", "rewrite", None)),
        (lambda call: Rewrite({"name": "b"}, advise=Ask("sure?")), ("who", "rewrite, advise ask", "sure?")),
        (lambda call: Advise(Deny("no")), ("who", "advise deny", "no")),
        (lambda call: Advise(Allow()), ("who", "advise allow", None)),
        (lambda call: Advise(contexts="by the way"), ("who", "context", None)),
        (lambda call: Refuse(ToolError("not now", code="later")), ("who", "refuse LATER", "not now")),
        (
            lambda call: "yes",
            ("who", "error", "answered str 'yes', not one of Rewrite, Advise, Refuse or None"),
        ),
        (raise_value_error, ("who", "error", "a bug")),
    ],
)
async def test_whoever_prepares_is_on_record(listener: Any, said: tuple[str, str, str | None]) -> None:
    agent = calling("write", name="a")
    agent.on.prepare(listener, name="who")
    await told(agent)
    (prepared,) = agent.session.facts(ToolPrepared)
    assert answers(prepared.said) == [said]
    assert prepared.original == {"name": "a"}


async def test_a_later_listener_sees_what_the_record_says() -> None:
    seen: list[tuple[Said, ...]] = []
    agent = calling("write", name="a")
    agent.on.prepare(lambda call: Rewrite({"name": "b"}), name="first")
    agent.on.prepare(lambda call: seen.append(call.said), name="second")
    await told(agent)
    (prepared,) = agent.session.facts(ToolPrepared)
    assert seen == [prepared.said]


@pytest.mark.parametrize(
    ("guard", "said"),
    [(lambda call: Deny("no"), ("g", "deny", "no")), (raise_value_error, ("g", "error", "a bug"))],
)
async def test_a_guard_that_says_no_is_on_record(guard: Any, said: tuple[str, str, str | None]) -> None:
    agent = calling("write", name="a")
    agent.guard(guard, name="g")
    await told(agent)
    (decided,) = agent.session.facts(ToolDecided)
    assert (decided.stage, answers(decided.said)) == ("guard", [said])


async def test_wrappers_are_there_outermost_first_and_then_reviewers() -> None:
    async def passes(call: Any, following: Any) -> Any:
        return await following()

    async def replaces(call: Any, following: Any) -> Any:
        return msgspec.structs.replace(await following(), value="other")

    agent = calling("write", name="a")
    agent.on.execute(passes, name="outer")
    agent.on.execute(replaces, name="inner")
    agent.on.post_execute(lambda call, result: Accept(), name="content")
    agent.on.post_execute(lambda call, result: Block("no"), name="strict")
    agent.on.post_execute(raise_value_error, name="broken")
    await told(agent)
    (result,) = agent.session.facts(ToolResulted)
    assert answers(result.said) == [
        ("outer", "around passed", None),
        ("inner", "around replaced", None),
        ("content", "accept", None),
        ("strict", "block", "no"),
        ("broken", "error", "a bug"),
    ]


async def test_a_wrapper_that_fails_cuts_those_around_it() -> None:
    agent = calling("write", name="a")
    agent.on.execute(lambda call, following: following(), name="outer")
    agent.on.execute(raise_value_error, name="inner")
    await told(agent)
    (result,) = agent.session.facts(ToolResulted)
    assert answers(result.said) == [("outer", "around cut", None), ("inner", "around error", "a bug")]


async def test_nested_calls_have_a_record_of_their_own() -> None:
    @tool
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call_tool("inner")).text

    @tool(effect="read")
    async def inner() -> str:
        return "in"

    agent = calling("outer", tools=(outer, inner))
    agent.on.execute(lambda call, following: following(), name="wrap")
    agent.on.post_execute(lambda call, result: Accept() if call.name == "inner" else None, name="review")
    await told(agent)
    (nested,), (result,) = agent.session.facts(SubcallEnd), agent.session.facts(ToolResulted)
    assert answers(nested.said) == [("wrap", "around passed", None), ("review", "accept", None)]
    assert answers(result.said) == [("wrap", "around passed", None)]
    assert nested.settled is not None


class Rules:
    """Rules that always say the same."""

    def __init__(self, *said: Said) -> None:
        self._said = said

    def rule(self, call: Any) -> Ruled:
        return Ruled(((Deny("no mail"), "rule x"),), said=self._said)


async def test_rules_are_timed_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said = (Said("rule x", "deny", rule="x", file="f", line=1), Said("rule y", "allow", rule="y"))
    clock = iter(range(0, 10**9, 5000))
    monkeypatch.setattr("interlock.tools.admission.perf_counter_ns", lambda: next(clock))
    made = turn.Batch
    monkeypatch.setattr(turn, "Batch", lambda **given: made(**{**given, "rules": Rules(*said)}))
    agent = calling("write", name="a")
    await told(agent)
    (decided,) = agent.session.facts(ToolDecided)
    assert [(one.rule, one.us) for one in decided.said] == [("x", 5), ("y", 0)]


async def test_a_start_says_how_processes_are_confined() -> None:
    agent = calling("write", name="a")
    await told(agent)
    assert [fact.sandbox for fact in agent.session.facts(ToolStarted)] == [None]
    assert_laws(agent.session)
