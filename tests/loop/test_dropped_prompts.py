"""D-4b: a person's message that is not to be admitted is dropped alone, with the reason that its sender is told."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import (
    Agent,
    Enter,
    HookContractError,
    InputDropped,
    MemoryStore,
    Message,
    Proposal,
    Source,
    tool,
)
from interlock.log.facts import InboxDropped
from interlock.log.reasons import Blocked, Failed
from interlock.testing import ScriptedModel, assert_laws, calls, outline, run_virtual, says

HOOK = Source("plugin", "test")


def refusing(*refused: str) -> object:
    """A listener that drops these messages, by their words, and enters with the others."""

    def listener(proposal: Proposal) -> Enter:
        bad = {m.id: f"no {m.text}" for m in proposal.messages if m.text in refused}
        return Enter([m for m in proposal.messages if m.id not in bad], dropped=bad)

    return listener


async def test_one_of_two_prompts_is_dropped_and_the_step_is_entered_with_the_other() -> None:
    model = ScriptedModel(says("fine"))
    async with Agent(model, store=MemoryStore()) as agent:
        agent.on.pre_step(refusing("bad"), name="gate")  # type: ignore[arg-type]
        bad, good = agent.steer("bad"), agent.steer("good")
        await agent.idle()
        assert (await good.turn()).ok
        with pytest.raises(InputDropped, match="no bad"):
            await bad.turn()
        assert outline(agent.session) == [
            "user/message good",
            "assistant/message fine",
            "turn/end completed",
        ]
        [dropped] = agent.session.facts(InboxDropped)
        assert (dropped.ids, dropped.outcome, dropped.reason, dropped.by) == (
            (bad.id,),
            "rejected",
            "no bad",
            "gate",
        )
        assert [message.text for message in dropped.messages] == ["bad"]
        assert_laws(agent.session)


async def test_the_turn_is_rejected_when_nothing_else_of_a_person_remains() -> None:
    model = ScriptedModel(says("never"))
    async with Agent(model, store=MemoryStore()) as agent:
        agent.on.pre_step(refusing("bad"), name="gate")  # type: ignore[arg-type]
        agent.inject("background", source=HOOK)
        result = await agent.run("bad")
        assert result.reason == Blocked("no bad", "gate")
        assert model.requests == []
        assert [message.text for message in agent.inbox.next_step] == ["background"]
        assert_laws(agent.session)


async def test_each_of_several_blocked_prompts_keeps_its_own_reason() -> None:
    async with Agent(ScriptedModel(says("never")), store=MemoryStore()) as agent:
        agent.on.pre_step(refusing("a"), name="first")  # type: ignore[arg-type]
        agent.on.pre_step(refusing("b"), name="second")  # type: ignore[arg-type]
        agent.steer("a")
        agent.steer("b")
        await agent.idle()
        assert [fact.reason for fact in agent.session.facts(InboxDropped)] == ["no a", "no b"]
        assert outline(agent.session) == ["turn/end blocked by first: no a"]


async def test_steering_that_is_dropped_does_not_end_the_turn_that_it_was_meant_for() -> None:
    @tool
    async def work() -> str:
        agent.steer("bad")
        return "worked"

    async with Agent(ScriptedModel(calls("work"), says("done")), tools=[work]) as agent:
        agent.on.pre_step(refusing("bad"))  # type: ignore[arg-type]
        result = await agent.run("go")
        assert result.ok and result.text == "done"
        assert outline(agent.session, "user/message") == ["user/message go"]
        assert_laws(agent.session)


async def test_a_message_that_no_person_sent_does_not_reject_the_turn_when_it_is_dropped() -> None:
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.on.pre_step(refusing("noise"))  # type: ignore[arg-type]
        agent.inject("noise", source=HOOK)
        agent.steer("signal", source=HOOK)
        await agent.idle()
        assert outline(agent.session)[-1] == "turn/end completed"


async def test_nobody_later_brings_a_dropped_message_back() -> None:
    """Law 7: a denial is final."""
    kept: list[Message] = []

    def remember(proposal: Proposal) -> None:
        kept.extend(proposal.messages)

    async with Agent(ScriptedModel(says("never"))) as agent:
        agent.on.pre_step(remember)
        agent.on.pre_step(refusing("bad"))  # type: ignore[arg-type]
        agent.on.pre_step(lambda proposal: Enter(kept))
        assert isinstance((await agent.run("bad")).reason, Blocked)


@pytest.mark.parametrize("dropped", [["m"], {"m": ""}, {"m": 1}], ids=["a list", "no reason", "a number"])
def test_dropped_maps_ids_to_reasons(dropped: Mapping[str, str]) -> None:
    with pytest.raises(HookContractError):
        Enter([], dropped=dropped)


def test_a_message_cannot_be_entered_and_dropped() -> None:
    with pytest.raises(HookContractError, match="entered and dropped"):
        Enter([Message.user("x", id="m")], dropped={"m": "no"})


async def test_only_what_was_proposed_can_be_dropped() -> None:
    async with Agent(ScriptedModel(says("never"))) as agent:
        agent.on.pre_step(lambda proposal: Enter(proposal.messages, dropped={"other": "no"}))
        reason = (await agent.run("go")).reason
        assert isinstance(reason, Failed) and "was not proposed" in reason.message


@given(st.lists(st.booleans(), min_size=1, max_size=5))
def test_each_message_has_one_fate_and_the_turn_is_blocked_exactly_when_all_are(blocked: list[bool]) -> None:
    async def one() -> None:
        async with Agent(ScriptedModel(says("ok")), store=MemoryStore()) as agent:
            agent.on.pre_step(refusing(*[f"m{i}" for i, bad in enumerate(blocked) if bad]))  # type: ignore[arg-type]
            for i in range(len(blocked)):
                agent.steer(f"m{i}")
            await agent.idle()
            admitted = outline(agent.session, "user/message")
            assert admitted == [f"user/message m{i}" for i, bad in enumerate(blocked) if not bad]
            assert len(agent.session.facts(InboxDropped)) == sum(blocked)
            ends = outline(agent.session, "turn/end")
            assert [end.split()[1] for end in ends] == ["blocked" if all(blocked) else "completed"]
            assert_laws(agent.session)

    run_virtual(one())
