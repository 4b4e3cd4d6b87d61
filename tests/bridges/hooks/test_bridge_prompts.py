"""SessionStart and UserPromptSubmit in an agent's run."""

from __future__ import annotations

from typing import Any

import pytest

from interlock import Agent, InputDropped, Source, tool
from interlock.bridges.hooks import event as happening
from interlock.bridges.hooks.event import Occurrence
from interlock.bridges.hooks.verdict import Answer
from interlock.log.facts import HookInvoked, InboxDropped, RequestSent, UserMessage
from interlock.log.reasons import Blocked
from interlock.log.stores.memory.store import MemoryStore
from interlock.testing import ScriptedModel, assert_laws, calls, outline, says

from .scripted_hooks import Recorder, hooked, said, told

pytestmark = pytest.mark.virtual


def blocks(*words: str) -> Any:
    """Blocks prompts that are one of these."""

    def hook(occurrence: Occurrence) -> Answer | None:
        prompt = occurrence.what.prompt  # type: ignore[union-attr]
        return Answer(block=f"no {prompt}") if prompt in words else None

    return hook


# SessionStart


async def test_what_a_session_start_hook_says_is_in_the_first_request() -> None:
    hook = Recorder(said(contexts=("the branch is main",)))
    model = ScriptedModel(says("hi"))
    agent = Agent(model)
    hooked(agent, SessionStart=[hook])
    async with agent:
        await agent.run("go")
        assert hook.seen == [happening.SessionStart(source="startup")]
        assert [message.text for message in model.requests[0].messages] == ["the branch is main", "go"]
        first, _ = agent.session.facts(UserMessage)
        assert first.source == Source("hook", "claude hooks/SessionStart-1")
        assert_laws(agent.session)


async def test_a_resumed_session_says_so() -> None:
    store, hook = MemoryStore(), Recorder()
    async with Agent(ScriptedModel(says("hi")), store=store) as agent:
        await agent.run("go")
    again = Agent(ScriptedModel(says("hi")), store=store, session=agent.session.id)
    hooked(again, SessionStart=[hook])
    async with again:
        pass
    assert hook.seen == [happening.SessionStart(source="resume")]


async def test_a_session_start_hook_that_stops_everything_blocks_the_first_turn() -> None:
    model = ScriptedModel(says("hi"))
    agent = Agent(model)
    hooked(agent, SessionStart=[said(stop="maintenance")])
    async with agent:
        assert (await agent.run("go")).reason == Blocked("maintenance", "hooks:SessionStart")
        assert model.requests == []
        assert (await agent.run("again")).ok


async def test_contexts_of_the_start_outlive_a_blocked_first_prompt() -> None:
    model = ScriptedModel(says("hi"))
    agent = Agent(model)
    hooked(agent, SessionStart=[said(contexts=("note",))], UserPromptSubmit=[blocks("bad")])
    async with agent:
        assert isinstance((await agent.run("bad")).reason, Blocked)
        await agent.run("good")
        assert [message.text for message in model.requests[0].messages] == ["note", "good"]


# UserPromptSubmit


async def test_contexts_follow_the_prompt() -> None:
    hook = Recorder(said(contexts=("today is Monday",)))
    model = ScriptedModel(says("hi"))
    agent = Agent(model)
    hooked(agent, UserPromptSubmit=[hook])
    async with agent:
        await agent.run("which day?")
        assert hook.seen == [happening.UserPromptSubmit(prompt="which day?")]
        assert [message.text for message in model.requests[0].messages] == ["which day?", "today is Monday"]


async def test_a_blocked_prompt_never_reaches_the_model_and_its_sender_is_told_why() -> None:
    """D-4b."""
    model = ScriptedModel(says("never"))
    agent = Agent(model)
    hooked(agent, UserPromptSubmit=[blocks("bad")])
    async with agent:
        receipt = agent.followup("bad")
        with pytest.raises(InputDropped, match="no bad"):
            await receipt.turn()
        await agent.idle()
        assert model.requests == []
        assert outline(agent.session) == ["turn/end blocked by hooks:UserPromptSubmit: no bad"]
        [dropped] = agent.session.facts(InboxDropped)
        assert (dropped.reason, dropped.by) == ("no bad", "hooks:UserPromptSubmit")
        assert_laws(agent.session)


async def test_of_several_prompts_only_the_blocked_one_is_dropped() -> None:
    model = ScriptedModel(says("fine"))
    agent = Agent(model)
    hooked(agent, UserPromptSubmit=[blocks("bad")])
    async with agent:
        for words in ("bad", "good"):
            agent.steer(words)
        await agent.idle()
        assert outline(agent.session) == [
            "user/message good",
            "assistant/message fine",
            "turn/end completed",
        ]


async def test_steering_is_submitted_too_and_what_no_person_said_is_not() -> None:
    """D-4."""
    hook = Recorder()

    @tool
    async def work() -> str:
        running.steer("hurry", source=Source("person"))
        running.steer("noise", source=Source("plugin", "x"))
        return "worked"

    running = Agent(ScriptedModel(calls("work"), says("done")), tools=[work])
    hooked(running, UserPromptSubmit=[hook])
    async with running:
        await running.run("go")
        assert [what.prompt for what in hook.seen] == ["go", "hurry"]


async def test_a_stop_rejects_the_turn_whatever_else_was_said() -> None:
    model = ScriptedModel(says("never"))
    agent = Agent(model)
    hooked(agent, UserPromptSubmit=[said(contexts=("x",)), said(stop="closed for today")])
    async with agent:
        assert (await agent.run("go")).reason == Blocked("closed for today", "hooks:UserPromptSubmit")
        assert model.requests == []


async def test_a_prompt_hook_that_fails_lets_no_prompt_through() -> None:
    def fail(occurrence: Occurrence) -> Answer:
        raise OSError("it is gone")

    model = ScriptedModel(says("never"))
    agent = Agent(model)
    hooked(agent, UserPromptSubmit=[fail])
    async with agent:
        assert isinstance((await agent.run("go")).reason, Blocked)
        assert model.requests == []
        assert [line[0] for line in told(agent)] == ["+"]


async def test_the_hooks_have_their_say_before_the_request_leaves() -> None:
    agent = Agent(ScriptedModel(says("hi")))
    hooked(agent, SessionStart=[said()], UserPromptSubmit=[said()])
    async with agent:
        await agent.run("go")
        order = [fact.type for fact in agent.session.facts(HookInvoked, RequestSent)]
        assert order == ["hook/invoked", "hook/invoked", "request/sent"]
