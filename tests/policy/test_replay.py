"""What other rules would have decided about calls that are on record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock import Advise, Agent, Allow, Approved, Ask, Deny, Rewrite, ToolContext, tool
from interlock.policy.policy import rules_given
from interlock.policy.preset import PRESETS
from interlock.policy.replay import Replayed, Word, replay
from interlock.policy.rules.ruleset import RuleSet
from interlock.testing import ScriptedModel, call, calls, run_virtual, says
from interlock.tools.subject import Subject

CWD = Path("/work/project")


@tool(subject=Subject("command", "command"))
async def bash(command: str) -> str:
    return "done"


@tool(subject=Subject("edit", "path"))
async def write(path: str) -> str:
    return "written"


@tool(effect="read", subject=Subject("read", "path"))
async def read(path: str) -> str:
    return "text"


@tool(subject=Subject("url", "to"))
async def fetch(to: str) -> str:
    return "page"


@tool
async def twice(ctx: ToolContext, command: str) -> str:
    return (await ctx.call_tool("bash", command=command)).text


TOOLS = [bash, write, read, fetch, twice]


def rules(**lists: Sequence[str]) -> RuleSet:
    return rules_given(lists, CWD)  # type: ignore[arg-type]


def agent_of(*wanted: Any, **more: Any) -> Agent:
    return Agent(ScriptedModel(calls(*wanted), says("done")), tools=TOOLS, **more)


async def replayed(agent: Agent, other: RuleSet, **more: Any) -> list[Replayed]:
    async with agent:
        await agent.run("go")
    return replay(agent.session.events, other, cwd=CWD, **more)


def words(made: Sequence[Replayed]) -> list[tuple[str, str, str]]:
    return [(one.id, one.was.verdict, one.would.verdict) for one in made]


pytestmark = pytest.mark.virtual


async def test_a_call_is_decided_about_again_by_the_other_rules() -> None:
    agent = agent_of(
        call("bash", command="git push"), call("bash", command="git log"), call("read", path="a")
    )
    made = await replayed(agent, rules(deny=["Bash(git push:*)"], ask=["Read(a)"]))
    assert words(made) == [("c1", "allow", "deny"), ("c2", "allow", "allow"), ("c3", "allow", "ask")]
    assert [one.changed for one in made] == [True, False, True]
    first = made[0]
    assert (first.was, first.tool, first.place) == (Word("allow", "no preset"), "bash", "1.1.1")
    assert (first.would.rule, first.would.source) == ("Bash(git push:*)", "rule Bash(git push:*)")
    assert "git push" in first.reason and first.session == agent.session.id


async def test_the_rules_of_that_time_are_forgotten() -> None:
    agent = agent_of(call("bash", command="git push"), rules={"deny": ["Bash(git push:*)"]})
    (one,) = await replayed(agent, rules())
    assert (one.was.rule, one.was.verdict, one.would) == (
        "Bash(git push:*)",
        "deny",
        Word("allow", "default"),
    )


async def test_the_preset_of_that_time_is_not() -> None:
    agent = agent_of(call("write", path="a"), call("read", path="a"), preset="ask")
    made = await replayed(agent, rules(allow=["Edit(a)"]))
    assert words(made) == [("c1", "ask", "allow"), ("c2", "allow", "allow")]
    assert made[1].would.by == "preset ask"
    assert words(await replayed(agent_of(call("write", path="a")), rules(), preset=PRESETS["plan"])) == [
        ("c1", "allow", "deny")
    ]


@pytest.mark.parametrize(
    ("listener", "was", "would"),
    [
        (lambda call: Deny("no"), "deny", "deny"),
        (lambda call: Ask("sure?"), "ask", "ask"),
        (lambda call: Allow(), "allow", "allow"),
        (lambda call: 1 / 0, "deny", "deny"),
    ],
)
async def test_whoever_else_spoke_keeps_their_word(listener: Any, was: str, would: str) -> None:
    agent = agent_of(call("bash", command="ls"), preset="plan")
    agent.on.pre_execute(listener, name="boss")
    (one,) = await replayed(agent, rules(allow=["Bash(ls)"]))
    assert words([one]) == [("c1", was, would)]
    assert one.was.by == "boss"


async def test_advice_to_allow_overrules_nobody_here_either() -> None:
    agent = agent_of(call("bash", command="ls"), preset="plan")
    agent.on.prepare(lambda call: Advise(Allow()), name="hint")
    (one,) = await replayed(agent, rules())
    assert (one.was, one.would) == (Word("deny", "preset plan"), Word("deny", "preset plan"))


async def test_a_caution_of_other_rules_asks_unless_the_preset_is_stricter() -> None:
    """What cannot be understood asks, and a stricter default stands."""
    wanted = call("bash", command="eval $X")
    made = await replayed(agent_of(wanted), rules(allow=["Bash(eval:*)"]))
    assert (made[0].would.verdict, made[0].would.by) == ("ask", "caution")
    made = await replayed(agent_of(wanted, preset="plan"), rules())
    assert made[0].would.verdict == "deny"


async def test_the_arguments_are_those_that_were_decided_about() -> None:
    agent = agent_of(call("bash", command="ls"))
    agent.on.prepare(lambda call: Rewrite({"command": "git push"}))
    (one,) = await replayed(agent, rules(deny=["Bash(git push:*)"]))
    assert (one.arguments, one.would.verdict) == ({"command": "git push"}, "deny")


async def test_what_a_person_ran_instead_was_not_what_was_asked_about() -> None:
    async def edits(request: Any) -> Approved:
        return Approved(arguments={"command": "git status"})

    agent = agent_of(call("bash", command="git push"), preset="ask", approver=edits)
    (one,) = await replayed(agent, rules(deny=["Bash(git push:*)"]))
    assert (one.arguments, one.was.verdict, one.would.verdict) == ({"command": "git push"}, "ask", "deny")


async def test_nested_calls_are_decided_about_too_and_those_that_never_got_so_far_are_not() -> None:
    agent = agent_of(call("twice", command="git push"), call("bash", cmd="x"), call("nothing"))
    made = await replayed(agent, rules(deny=["Bash(git push:*)"]))
    assert [(one.tool, one.changed) for one in made] == [("twice", False), ("bash", True)]


async def test_a_tool_of_ones_own_is_about_what_it_is_said_to_be() -> None:
    agent = agent_of(call("fetch", to="https://example.org/x"))
    other = rules(deny=["WebFetch(domain:example.org)"])
    assert words(await replayed(agent, other)) == [("c1", "allow", "allow")]
    agent = agent_of(call("fetch", to="https://example.org/x"))
    made = await replayed(agent, other, subjects={"fetch": Subject("url", "to")})
    assert words(made) == [("c1", "allow", "deny")]


def test_a_log_without_its_beginning_is_refused() -> None:
    with pytest.raises(ValueError, match="the log has no beginning"):
        replay([], RuleSet())


COMMANDS = ("ls", "git push", "git log", "rm -rf x", "cat a | tee b", "eval $X")
RULES = ("Bash", "Bash(git:*)", "Bash(git push:*)", "Bash(ls)", "Edit(b)", "Read(a)", "bash", "write")
lists = st.fixed_dictionaries(
    {}, optional={effect: st.lists(st.sampled_from(RULES), max_size=2) for effect in ("allow", "ask", "deny")}
)


@settings(deadline=None, max_examples=examples(50))
@given(
    st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=3),
    lists,
    lists,
    st.sampled_from([None, *PRESETS]),
    st.sampled_from([None, *COMMANDS]),
)
def test_a_replay_says_what_a_run_would_have_said(
    commands: list[str],
    before: Mapping[Any, Any],
    after: Mapping[Any, Any],
    preset: str | None,
    denied: str | None,
) -> None:
    """Over the same rules nothing changes; over others, the replay of one log is the record of the other."""

    async def run(given: Mapping[Any, Any]) -> Agent:
        agent = agent_of(
            *[call("bash", command=command) for command in commands], rules=given, preset=preset, cwd=None
        )
        if denied is not None:
            agent.on.pre_execute(
                lambda call: Deny("no") if call.arguments["command"] == denied else None, name="boss"
            )
        async with agent:
            await agent.run("go")
        return agent

    async def both() -> tuple[Agent, Agent]:
        return await run(before), await run(after)

    first, second = run_virtual(both())
    here = Path.cwd()
    same = replay(first.session.events, rules_given(before, here))
    other = replay(first.session.events, rules_given(after, here))
    real = replay(second.session.events, rules_given(after, here))
    assert not any(one.changed for one in [*same, *real])
    assert [one.would.verdict for one in other] == [one.was.verdict for one in real]
