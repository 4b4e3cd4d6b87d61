"""Stop in an agent's run: who goes on, how often, and what the hook is told."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import Agent, Budget, Continue, HookResult, Source, StopContext, tool
from interlock.bridges.hooks.bridge import CAP
from interlock.bridges.hooks.event import Occurrence
from interlock.bridges.hooks.verdict import Answer
from interlock.log.facts import HookResulted
from interlock.log.stores.memory.store import MemoryStore
from interlock.testing import ScriptedModel, assert_laws, calls, fails, outline, says

from .scripted_hooks import Recorder, hooked, said, told

pytestmark = pytest.mark.virtual


@tool(effect="read")
async def area(side: int) -> int:
    return side * side


def until(n: int, answer: Answer) -> Any:
    """Answers so the first n times."""
    left = [answer] * n
    return lambda occurrence: left.pop() if left else None


async def test_a_stop_hook_that_blocks_continues_the_turn_with_its_reason() -> None:
    hook = Recorder(until(1, Answer(block="run the tests")))
    agent = Agent(ScriptedModel(says("done"), says("tests pass")))
    hooked(agent, Stop=[hook])
    async with agent:
        result = await agent.run("go")
        assert result.text == "tests pass"
        assert outline(agent.session) == [
            "user/message go",
            "assistant/message done",
            "user/message run the tests",
            "assistant/message tests pass",
            "turn/end completed",
        ]
        assert [(what.stop_hook_active, what.last_assistant_message) for what in hook.seen] == [
            (False, "done"),
            (True, "tests pass"),
        ]
        assert_laws(agent.session)


async def test_after_eight_blocks_in_a_row_the_turn_ends_and_the_record_says_why() -> None:
    agent = Agent(ScriptedModel(*[says(str(n)) for n in range(20)]))
    hooked(agent, Stop=[said(block="again")])
    async with agent:
        result = await agent.run("go")
        assert (result.ok, result.text) == (True, str(CAP))
        last = agent.session.facts(HookResulted)[-1]
        assert last.unused is not None and "8 times in a row" in last.unused
        assert not last.won
        assert len(told(agent)) == CAP + 1
        assert_laws(agent.session)


async def test_tools_between_the_blocks_do_not_start_the_count_again() -> None:
    """Else a hook that always blocks would keep an agent busy for ever."""
    script = [step for n in range(20) for step in (calls("area", side=n), says(str(n)))]
    agent = Agent(ScriptedModel(*script), tools=[area])
    hooked(agent, Stop=[said(block="again")])
    async with agent:
        assert (await agent.run("go")).text == str(CAP)


async def test_a_person_who_speaks_starts_the_count_again() -> None:
    agent = Agent(ScriptedModel(*[says(str(n)) for n in range(40)]), budget=Budget(forced=30))
    spoken: list[int] = []

    def hook(occurrence: Occurrence) -> Answer:
        spoken.append(1)
        if len(spoken) == 5:
            agent.steer("a word", source=Source("person"))
        return Answer(block="again")

    hooked(agent, Stop=[hook])
    async with agent:
        assert (await agent.run("go")).ok
        assert len(spoken) == 5 + CAP


async def test_the_count_is_a_fold_of_the_log_so_a_new_turn_begins_at_nothing() -> None:
    hook = Recorder(until(1, Answer(block="once more")))
    store = MemoryStore()
    agent = Agent(ScriptedModel(says("a"), says("b"), says("c")), store=store)
    hooked(agent, Stop=[hook])
    async with agent:
        await agent.run("go")
        await agent.run("again")
    assert [what.stop_hook_active for what in hook.seen] == [False, True, False]


async def test_feedback_alone_continues_as_well() -> None:
    agent = Agent(ScriptedModel(says("a"), says("b")))
    hooked(agent, Stop=[until(1, Answer(contexts=("look at the log",)))])
    async with agent:
        await agent.run("go")
        assert "user/message look at the log" in outline(agent.session)


async def test_the_reasons_of_several_are_one_message() -> None:
    agent = Agent(ScriptedModel(says("a"), says("b")))
    hooked(agent, Stop=[until(1, Answer(block="one")), until(1, Answer(block="two"))])
    async with agent:
        await agent.run("go")
        assert "user/message one\n\ntwo" in outline(agent.session)


async def test_a_hook_that_stops_everything_beats_one_that_wants_to_go_on() -> None:
    agent = Agent(ScriptedModel(says("a"), says("b")))
    hooked(agent, Stop=[said(block="go on"), said(stop="enough")])
    async with agent:
        assert (await agent.run("go")).text == "a"


async def test_a_stop_hook_that_fails_keeps_nobody_at_work() -> None:
    def fail(occurrence: Occurrence) -> Answer:
        raise OSError("it is gone")

    agent = Agent(ScriptedModel(says("a"), says("b")))
    hooked(agent, Stop=[fail])
    async with agent:
        assert (await agent.run("go")).text == "a"
        assert told(agent) == ["! Stop-1 {}"]


async def test_others_may_still_continue_the_turn() -> None:
    left = [Continue("a native word")]
    agent = Agent(ScriptedModel(says("a"), says("b"), says("c")))
    hooked(agent, Stop=[until(1, Answer(block="an outside word"))])
    agent.on.turn_stopping(lambda stopping: left.pop() if left else None)
    async with agent:
        assert (await agent.run("go")).ok
        assert outline(agent.session, "user/message") == [
            "user/message go",
            "user/message an outside word",
            "user/message a native word",
        ]


async def test_it_is_not_asked_when_the_turn_did_not_end_by_itself() -> None:
    hook = Recorder()
    agent = Agent(ScriptedModel(fails("BAD_REQUEST")))
    hooked(agent, Stop=[hook])
    async with agent:
        await agent.run("go")
    assert hook.seen == []


async def test_the_four_event_surface_knows_that_a_hook_has_continued_the_turn() -> None:
    active: list[bool] = []

    def stop(context: StopContext) -> HookResult:
        active.append(context.stop_hook_active)
        return HookResult()

    agent = Agent(ScriptedModel(says("a"), says("b")))
    hooked(agent, Stop=[until(1, Answer(block="again"))])
    agent.hooks.register("Stop", stop)
    async with agent:
        await agent.run("go")
    assert active == [False, True]
