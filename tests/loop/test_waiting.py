"""Approvals that outlive their process: what is left, what goes on, and what has changed meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import (
    Accept,
    Agent,
    ApprovalRequest,
    Approved,
    Ask,
    Budget,
    Continue,
    Deny,
    Harness,
    Rejected,
    Rewrite,
    SessionClosed,
    Status,
    Stopping,
    ToolCall,
    ToolContext,
    tool,
)
from interlock.errors import (
    AlreadyDecided,
    AnswerMismatch,
    ApprovalError,
    NotTaken,
    TurnWaits,
    UnknownApproval,
)
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ToolDecided,
    ToolPrepared,
    ToolResulted,
    TurnEnd,
)
from interlock.log.reasons import Aborted, Cause, Completed, MaxTokens, OverBudget
from interlock.log.session import Session, open_session
from interlock.loop.pending import answer_pending
from interlock.testing import ScriptedModel, assert_laws, call, calls, max_tokens, says, shorthand
from interlock.tools.approval import Answered

pytestmark = pytest.mark.virtual

YES = Answered("allowed-once", None, "ada", "token", "cli")


class World:
    """One durable store, the tools, what their bodies did, and what people were shown, over several lives."""

    def __init__(self) -> None:
        self.store = BrittleStore()
        self.session = ""
        self.ran: list[str] = []
        self.shown: list[ApprovalRequest] = []
        self.withdrawn = 0

        @tool(concurrency="parallel")
        async def write(name: str, seconds: int = 0) -> str:
            self.ran.append(name)
            await asyncio.sleep(seconds)
            return f"wrote {name}"

        @tool(concurrency="parallel")
        async def compose(ctx: ToolContext, name: str) -> str:
            return (await ctx.call_tool("write", name=f"ask {name}")).text

        self.tools = [write, compose]

    async def nobody(self, request: ApprovalRequest) -> Approved:
        """Is shown it, and does not answer."""
        self.shown.append(request)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.withdrawn += 1
            raise
        return Approved()

    async def yes(self, request: ApprovalRequest) -> Approved | Rejected:
        self.shown.append(request)
        return Approved()

    def agent(self, *script: Any, **more: Any) -> Agent:
        made = Agent(
            ScriptedModel(*script),
            tools=more.pop("tools", self.tools),
            store=self.store,
            session=self.session or None,
            approver=more.pop("approver", self.yes),
            **more,
        )
        made.on.pre_execute(lambda call: Ask("sure?") if call.arguments["name"].startswith("ask") else None)
        return made

    async def waits(self, *names: str, script: Any = None, **more: Any) -> list[Event]:
        """A first life in which these are called, and which is left when only people can move it on."""
        answer = script or calls(*[call("write", name=name) for name in names])
        async with self.agent(answer, approver=self.nobody, **more) as agent:
            agent.followup("go")
            await waiting(agent)
            self.session = agent.session.id
            assert_laws(agent.session)
        return list(agent.session.events)

    async def keep(self, events: list[Event]) -> None:
        """What a crash leaves: a store with these lines of the session only."""
        self.store = BrittleStore()
        journal = await self.store.create("cut")
        journal.write(events)
        await journal.close()
        self.session = "cut"


async def waiting(agent: Agent) -> None:
    """Wait until nothing can go on but for a person."""
    seen = asyncio.Event()
    undo = agent.on.status(lambda status: seen.set() if status is Status.WAITING else None)
    if agent.status is not Status.WAITING:
        await seen.wait()
    undo()
    await asyncio.sleep(0.1)  # whoever is asked has been shown it


def since(session: Session, life: int) -> list[str]:
    """The tokens of this life, without chunks."""
    made = [token for token in shorthand(session) if token != "CH"]
    start = next(i for i, token in enumerate(made) if token.startswith(f"SO {life} "))
    return made[start + 1 :]


def results(session: Session) -> list[str]:
    return [fact.error.code if fact.error else fact.content[0].text for fact in session.facts(ToolResulted)]


# Leaving


async def test_leaving_while_a_person_is_asked_writes_nothing_and_the_channel_hears_that_it_is_over() -> None:
    """CA-10b."""
    world = World()
    events = await world.waits("ask me", "b")
    assert [token for token in shorthand(events) if token.startswith(("AD", "SE", "TE", "CR"))] == []
    assert world.withdrawn == 1
    session = await open_session(world.session, store=world.store, readonly=True)
    assert session.state.waiting
    assert session.head == events[-1].seq


async def test_whoever_waits_for_the_turn_is_told_that_it_waits() -> None:
    world = World()
    async with world.agent(calls(call("write", name="ask me")), approver=world.nobody) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await waiting(agent)
        queued = asyncio.ensure_future(agent.run("later"))
        await asyncio.sleep(0)
        receipt = agent.followup("and then")
        head = agent.session.head
    for waiter in (running, queued, asyncio.ensure_future(receipt.turn())):
        with pytest.raises(TurnWaits, match=r"turn 1 waits for an approval \(a\d+\)") as told:
            await waiter
        assert isinstance(told.value, SessionClosed)
        assert told.value.turn == 1
    assert agent.session.head == head
    session = await open_session(agent.session.id, store=world.store, readonly=True)
    assert [one.message.text for one in session.state.queues.next_turn] == ["later", "and then"]


async def test_status_says_waiting_until_it_is_closed() -> None:
    world = World()
    seen: list[Status] = []
    async with world.agent(calls(call("write", name="ask me")), approver=world.nobody) as agent:
        agent.on.status(seen.append)
        agent.followup("go")
        await waiting(agent)
    assert seen == [Status.RUNNING, Status.WAITING]
    assert agent.status is Status.CLOSED


async def test_a_store_in_memory_keeps_nothing_so_the_turn_is_stopped() -> None:
    """CA-10b."""
    world = World()
    async with Agent(
        ScriptedModel(calls(call("write", name="a"))), tools=world.tools, approver=world.nobody, preset="ask"
    ) as agent:
        agent.followup("go")
        await waiting(agent)
    assert agent.session.facts(TurnEnd)[-1].reason == Aborted(Cause("disposed"))
    assert_laws(agent.session)


async def test_a_turn_in_which_a_body_runs_is_not_waiting_and_is_stopped() -> None:
    world = World()
    script = calls(call("write", name="ask me"), call("write", name="b", seconds=60))
    async with world.agent(script, approver=world.nobody) as agent:
        agent.followup("go")
        await asyncio.sleep(1)
        assert agent.status is Status.RUNNING
    assert agent.session.facts(TurnEnd)[-1].reason == Aborted(Cause("disposed"))
    assert results(agent.session) == ["ABORTED_BEFORE_DISPATCH", "ABORTED"]


async def test_a_body_that_waits_for_a_nested_question_is_stopped_too() -> None:
    """A nested call's wait ends with its outer body."""
    world = World()
    script = calls(call("compose", name="b"), call("write", name="ask me too"))
    async with world.agent(script, approver=world.nobody) as agent:
        agent.followup("go")
        await waiting(agent)
    assert agent.session.facts(TurnEnd)[-1].reason == Aborted(Cause("disposed"))
    assert agent.session.state.approvals == {}


# Going on


async def test_opening_it_goes_on_by_itself_and_asks_the_same_question_again() -> None:
    """D-23: no wake, and no second `approval/asked`."""
    world = World()
    await world.waits("ask me")
    (first,) = world.shown
    seen: list[Status] = []
    async with world.agent(says("done"), approver=world.nobody) as agent:
        agent.on.status(seen.append)
        await waiting(agent)
        second = world.shown[1]
        assert (second.id, second.question, second.arguments, second.digest, second.by, second.options) == (
            first.id,
            first.question,
            first.arguments,
            first.digest,
            first.by,
            first.options,
        )
        assert (
            [said.answer for said in second.call.said] == [said.answer for said in first.call.said] == ["ask"]
        )
        assert since(agent.session, 2) == []
        assert seen == [Status.WAITING]
    async with world.agent(says("done")) as agent:
        await agent.idle()
        assert since(agent.session, 3)[:4] == ["AD c1 allowed-once", "ST c1", "TR c1 ok", "SE 1.1 tools"]
        assert len(agent.session.facts(ApprovalAsked)) == 1
        assert agent.session.facts(TurnEnd)[-1].reason == Completed()
        assert_laws(agent.session)
    assert world.ran == ["ask me"]


async def test_several_are_answered_in_any_order_over_several_lives() -> None:
    world = World()
    await world.waits("ask 1", "ask 2", "ask 3")
    for last in ("ask 3", "ask 1"):

        async def one(request: ApprovalRequest, last: str = last) -> Approved:
            return Approved() if request.arguments["name"] == last else await world.nobody(request)

        async with world.agent(approver=one) as agent:
            await waiting(agent)
    async with world.agent(says("done")) as agent:
        await agent.idle()
        assert results(agent.session) == ["wrote ask 1", "wrote ask 2", "wrote ask 3"]
        assert_laws(agent.session)
    assert world.ran == ["ask 3", "ask 1", "ask 2"]


async def test_leaving_it_before_it_has_gone_on_writes_nothing() -> None:
    world = World()
    await world.waits("ask me")
    async with world.agent():
        pass
    async with world.agent(says("done")) as agent:
        assert since(agent.session, 2) == ["SO 3 resume"]
        await agent.idle()
    assert world.ran == ["ask me"]


async def test_a_stop_right_after_opening_withdraws_the_question() -> None:
    world = World()
    await world.waits("ask me")
    async with world.agent() as agent:
        agent.cancel("user")
        await agent.idle()
        assert since(agent.session, 2) == [
            "CR user",
            "AD c1 cancelled",
            "TR c1 ERR[ABORTED_BEFORE_DISPATCH]",
            "SE 1.1 aborted",
            "TE 1 aborted{user}",
        ]
        assert_laws(agent.session)
    assert world.ran == []


async def test_what_is_sent_meanwhile_comes_after_it() -> None:
    world = World()
    await world.waits("ask me")
    async with world.agent(says("done"), says("hello")) as agent:
        result = await agent.run("and this")
        assert (result.text, result.turn) == ("hello", 2)
        assert agent.session.facts(TurnEnd)[0].reason == Completed()


async def test_nobody_there_in_the_next_life_means_no() -> None:
    """Law 8."""
    world = World()
    await world.waits("ask me")
    async with world.agent(says("done"), approver=None) as agent:
        await agent.idle()
        (end,) = agent.session.facts(ToolResulted)
        assert end.content[0].text == "Error [approval_unavailable]: sure? (nobody is there to approve it)"
    assert world.ran == []


async def test_a_yes_is_checked_by_the_rules_and_guards_of_this_life() -> None:
    """D-13."""
    world = World()
    await world.waits("ask 1", "ask 2")
    async with world.agent(says("done")) as agent:
        agent.on.pre_execute(lambda call: Deny("no more") if call.arguments["name"] == "ask 1" else None)
        agent.guard(lambda call: Deny("never") if call.arguments["name"] == "ask 2" else None)
        await agent.idle()
        assert results(agent.session) == ["DENIED", "GUARD_DENIED"]
        assert "TD c1 deny recheck" in since(agent.session, 2)
        assert_laws(agent.session)
    assert world.ran == []


async def test_what_was_shown_is_not_prepared_again() -> None:
    world = World()

    def prepare(call: ToolCall) -> Rewrite:
        return Rewrite(call.with_arguments(name=f"{call.arguments['name']}!").arguments)

    async with world.agent(calls(call("write", name="ask me")), approver=world.nobody) as agent:
        agent.on.prepare(prepare)
        agent.followup("go")
        await waiting(agent)
        world.session = agent.session.id
    async with world.agent(says("done")) as agent:
        agent.on.prepare(prepare)
        await agent.idle()
        assert agent.session.facts(ApprovalAsked)[0].effective == {"name": "ask me!"}
    assert world.ran == ["ask me!"]


async def test_what_listeners_had_said_before_the_question_rides_on_the_result() -> None:
    world = World()
    async with world.agent(calls(call("write", name="a")), approver=world.nobody) as agent:
        agent.on.pre_execute(lambda call: Ask("sure?", contexts=("this is the production system",)))
        agent.followup("go")
        await waiting(agent)
        world.session = agent.session.id
    async with world.agent(says("done")) as agent:
        await agent.idle()
        (end,) = agent.session.facts(ToolResulted)
        assert [message.text for message in end.contexts] == ["this is the production system"]
        assert "this is the production system" in [m.text for m in agent.session.history.view()]


async def test_a_tool_that_is_gone_or_has_changed_is_not_run_and_the_question_is_withdrawn() -> None:
    world = World()
    await world.waits("ask me")

    @tool
    async def write(path: str) -> str:
        raise AssertionError("it was asked for otherwise")

    for tools, code, text in (
        ([], "UNKNOWN_TOOL", "there is no tool named 'write'"),
        ([write], "INVALID_ARGS", "name"),
    ):
        kept = list((await open_session(world.session, store=world.store, readonly=True)).events)
        async with world.agent(says("done"), tools=tools) as agent:
            await agent.idle()
            (end,) = agent.session.facts(ToolResulted)
            assert end.error is not None
            assert end.error.code == code
            assert text in end.content[0].text
            assert agent.session.facts(ApprovalDecided)[0].outcome == "cancelled"
            assert_laws(agent.session)
        await world.keep(kept)
    assert len(world.shown) == 1


async def test_a_question_that_has_expired_meanwhile_is_a_no() -> None:
    world = World()
    await world.waits("ask me", approval_timeout=3600)
    await asyncio.sleep(3601)
    async with world.agent(says("done")) as agent:
        await agent.idle()
        (end,) = agent.session.facts(ToolResulted)
        assert end.error is not None
        assert end.error.code == "APPROVAL_UNAVAILABLE"
        assert "nobody answered in time: the question has expired at " in end.content[0].text
        assert_laws(agent.session)
    assert len(world.shown) == 1
    assert world.ran == []


# What a crash leaves between two lines


async def test_a_denial_that_was_only_just_decided_is_final() -> None:
    """Law 7: also where the rules of the next life would allow it."""
    world = World()
    async with world.agent(
        calls(*[call("write", name=n) for n in ("ask me", "b")]), approver=world.nobody
    ) as agent:
        agent.on.pre_execute(lambda call: Deny("not b") if call.arguments["name"] == "b" else None)
        agent.followup("go")
        await waiting(agent)
    events = list(agent.session.events)
    at = next(e.seq for e in events if isinstance(e.fact, ToolDecided) and e.fact.verdict == "deny")
    await world.keep(events[: at + 1])
    async with world.agent(says("done")) as agent:
        await agent.idle()
        assert results(agent.session) == ["wrote ask me", "DENIED"]
        assert agent.session.facts(ToolResulted)[1].content[0].text == "Error [denied]: not b"
        assert_laws(agent.session)


async def test_what_was_about_to_be_asked_is_decided_anew() -> None:
    """A decision of the earlier life is on record, so that of this one is, too."""
    world = World()
    events = await world.waits("ask 1", "ask 2")
    at = [e.seq for e in events if isinstance(e.fact, ToolDecided)][1]
    await world.keep(events[: at + 1])
    agent = Agent(
        ScriptedModel(says("done")), tools=world.tools, store=world.store, session="cut", approver=world.yes
    )
    async with agent:  # in which nobody asks
        await agent.idle()
        decided = [(fact.verdict, fact.by) for fact in agent.session.facts(ToolDecided)]
        assert [verdict for verdict, _ in decided] == ["ask", "ask", "allow"]
        assert results(agent.session) == ["wrote ask 1", "wrote ask 2"]
        assert_laws(agent.session)


async def test_what_was_rewritten_and_not_yet_asked_about_is_prepared_anew() -> None:
    """From the model's own text, and the log says so: the last `tool/prepared` is what counts."""
    world = World()

    def twice(call: ToolCall) -> Rewrite:
        return Rewrite(call.with_arguments(name=call.arguments["name"] * 2).arguments)

    async with world.agent(
        calls(call("write", name="ask"), call("write", name="b")), approver=world.nobody
    ) as agent:
        agent.on.prepare(twice)
        agent.followup("go")
        await waiting(agent)
    events = list(agent.session.events)
    at = [event.seq for event in events if isinstance(event.fact, ToolPrepared)][1]
    for again, effective in ((True, ["b", "bb"]), (False, ["b"])):
        await world.keep(events[: at + 1])
        world.ran.clear()
        async with world.agent(says("done")) as agent:
            if again:
                agent.on.prepare(twice)
            await agent.idle()
            made = [fact.effective["name"] for fact in agent.session.facts(ToolPrepared)]
            assert made == ["askask", "bb", *effective]
            assert_laws(agent.session)
        assert sorted(world.ran) == ["askask", effective[-1]]


async def test_a_yes_that_nobody_has_acted_on_is_acted_on() -> None:
    world = World()
    events = await world.waits("ask me")
    async with world.agent(says("done")) as agent:
        await agent.idle()
        events = list(agent.session.events)
    at = next(e.seq for e in events if isinstance(e.fact, ApprovalDecided))
    await world.keep(events[: at + 1])
    world.ran.clear()
    world.shown.clear()
    async with world.agent(says("done")) as agent:
        await agent.idle()
        assert since(agent.session, 3)[:3] == ["ST c1", "TR c1 ok", "SE 1.1 tools"]
        assert_laws(agent.session)
    assert (world.ran, world.shown) == (["ask me"], [])


async def test_a_turn_that_a_hook_or_a_person_had_stopped_does_not_go_on() -> None:
    world = World()
    async with world.agent(
        calls(call("write", name="a"), call("write", name="ask me")), approver=world.nobody
    ) as agent:
        agent.on.post_execute(lambda call, result: Accept(stop=True))
        agent.followup("go")
        await agent.idle()
    events = list(agent.session.events)
    stopped = next(e.seq for e in events if isinstance(e.fact, ToolResulted))
    if not any(isinstance(e.fact, ApprovalAsked) for e in events[:stopped]):
        pytest.fail("the second call was not asked about before the first was done")
    await world.keep(events[: stopped + 1])
    session = await open_session("cut", store=world.store)
    assert not session.state.waiting
    assert not session.open


# What a turn knows of itself


async def test_an_output_ceiling_that_was_reached_before_the_crash_sticks() -> None:
    """ST-08."""
    world = World()
    script = (max_tokens("cut"), calls(call("write", name="ask me")))
    async with world.agent(*script, approver=world.nobody) as agent:
        agent.on.turn_stopping(lambda stopping: Continue("go on") if stopping.step == 1 else None)
        agent.followup("go")
        await waiting(agent)
        world.session = agent.session.id
    async with world.agent(says("done")) as agent:
        await agent.idle()
        assert agent.session.facts(TurnEnd)[-1].reason == MaxTokens()


async def test_counts_go_on_where_they_were() -> None:
    """BU-02, D-15: steps, and how often the turn was continued without a person."""
    world = World()

    def go_on(stopping: Stopping) -> Continue:
        return Continue("go on")

    script = (says("1"), calls(call("write", name="ask me")))
    budget = Budget(forced=2)
    async with world.agent(*script, approver=world.nobody, budget=budget) as agent:
        agent.on.turn_stopping(go_on)
        agent.followup("go")
        await waiting(agent)
        world.session = agent.session.id
    async with world.agent(*[says(str(n)) for n in range(9)], budget=budget) as agent:
        agent.on.turn_stopping(go_on)
        await agent.idle()
        end = agent.session.facts(TurnEnd)[-1]
        assert (end.reason.budget, end.steps) == ("forced", 4)  # type: ignore[union-attr]


async def test_a_result_that_concludes_is_remembered() -> None:
    """TL-11."""
    world = World()

    @tool(concurrency="parallel")
    async def finish(ctx: ToolContext, name: str) -> str:
        ctx.conclude()
        return "finished"

    world.tools.append(finish)
    await world.waits(script=calls(call("finish", name="f"), call("write", name="ask me")))
    async with world.agent() as agent:
        await agent.idle()
        assert since(agent.session, 2)[-2:] == ["SE 1.1 concluded", "TE 1 completed"]


async def test_the_time_that_was_driven_before_counts_on() -> None:
    """BU-02: nine seconds before the question, three after the yes, and days between."""
    world = World()
    slow = calls(call("write", name="a", seconds=9), call("write", name="ask me", seconds=3))
    async with world.agent(slow, approver=world.nobody, budget=Budget(wall=10)) as agent:
        agent.followup("go")
        await waiting(agent)
        world.session = agent.session.id
        await asyncio.sleep(86_400)
    await asyncio.sleep(86_400)
    async with world.agent(says("done"), budget=Budget(wall=10)) as agent:
        await agent.idle()
        reason = agent.session.facts(TurnEnd)[-1].reason
        assert reason == OverBudget("wall", 10, 10)
        assert results(agent.session) == ["wrote a", "ABORTED"]
        assert agent.session.state.tally.wall_ms == pytest.approx(10_000, abs=200)


async def test_closing_the_harness_leaves_it_too() -> None:
    world = World()
    async with Harness(store=world.store) as harness:
        model = ScriptedModel(calls(call("write", name="a")))
        agent = harness.agent(model, tools=world.tools, approver=world.nobody, preset="ask")
        await agent.open()
        agent.followup("go")
        await waiting(agent)
    assert agent.status is Status.CLOSED
    assert agent.session.state.waiting


async def test_the_budget_of_a_queued_prompt_is_not_that_of_the_turn_that_waits() -> None:
    world = World()
    await world.waits("ask me")
    async with world.agent(says("done"), says("hello")) as agent:
        result = await agent.run("and this", budget=Budget(steps=1))
        assert result.ok
        assert agent.session.facts(TurnEnd)[0].reason == Completed()


# Answers from outside


async def answer(world: World, answered: Answered, **more: Any) -> str:
    session = await open_session(world.session, store=world.store, readonly=True)
    (approval,) = session.state.approvals.values()
    await answer_pending(world.session, approval.id, answered, store=world.store, **more)
    return approval.id


async def test_an_answer_from_outside_is_on_record_and_the_step_stays_open() -> None:
    world = World()
    await world.waits("ask me")
    barriers = world.store.barriers
    await answer(world, YES)
    assert world.store.barriers > barriers
    session = await open_session(world.session, store=world.store, readonly=True)
    assert since(session, 2) == ["AD c1 allowed-once"]
    assert session.state.waiting
    assert session.facts(ApprovalDecided)[0].by == "ada"
    assert_laws(session)
    async with world.agent(says("done")) as agent:
        await agent.idle()
        assert since(agent.session, 3)[:3] == ["ST c1", "TR c1 ok", "SE 1.1 tools"]
        assert len(world.shown) == 1
    assert world.ran == ["ask me"]


async def test_a_no_from_outside_is_what_the_model_reads() -> None:
    world = World()
    await world.waits("ask me")
    await answer(world, Answered("rejected", "use another file", "ada", "token", "cli"))
    async with world.agent(says("done")) as agent:
        await agent.idle()
        (end,) = agent.session.facts(ToolResulted)
        assert end.content[0].text == "Error [approval_rejected]: use another file"
    assert world.ran == []


async def test_what_is_no_answer_is_refused_and_nothing_is_written() -> None:
    world = World()
    await world.waits("ask me", approval_timeout=60)
    head = (await open_session(world.session, store=world.store, readonly=True)).head
    with pytest.raises(UnknownApproval, match=r"a1\d"):
        await answer_pending(world.session, "a99", YES, store=world.store)
    with pytest.raises(AnswerMismatch):
        await answer(world, YES, digest="another")
    with pytest.raises(ApprovalError, match="was not offered"):
        await answer(world, Answered("allowed-once", remember="always", rule="Write(*)"))
    await asyncio.sleep(61)
    with pytest.raises(ApprovalError, match="expired"):
        await answer(world, YES)
    assert (await open_session(world.session, store=world.store, readonly=True)).head == head


async def test_the_second_answer_is_told_who_was_first() -> None:
    world = World()
    await world.waits("ask me")
    approval_id = await answer(world, YES)
    with pytest.raises(AlreadyDecided, match="allowed-once by ada"):
        await answer_pending(world.session, approval_id, YES, store=world.store)


async def test_a_question_that_nobody_can_go_on_with_is_not_answered() -> None:
    """A nested call's wait ends with its outer body, a stopped turn's with the turn."""
    world = World()
    async with world.agent(calls(call("compose", name="b")), approver=world.nobody) as agent:
        agent.followup("go")
        await waiting(agent)
        events = list(agent.session.events)
    await world.keep(events)
    with pytest.raises(ApprovalError, match="has ended with its process"):
        await answer(world, YES)
    assert (await open_session("cut", store=world.store, readonly=True)).head == events[-1].seq


async def test_a_session_that_somebody_drives_is_answered_there() -> None:
    """And whoever drives it may take too long."""
    world = World()
    await world.keep(await world.waits("ask me"))
    driver = await world.store.open("cut")
    with pytest.raises(NotTaken, match="driven by this process"):
        await answer(world, YES, patience=0)
    await driver.close()
    await answer(world, YES)


# D-8


async def test_while_a_call_waits_earlier_siblings_commit_and_free_places_are_used() -> None:
    """And several are asked at once, in one life or over two."""
    world = World()
    names = ("a", "ask 1", "b", "ask 2", "c")
    script = calls(*[call("write", name=name, seconds=1) for name in names])
    async with world.agent(script, approver=world.nobody, pool=1) as agent:
        agent.followup("go")
        await waiting(agent)
        assert results(agent.session) == ["wrote a"]
        assert world.ran == ["a", "b", "c"]
        assert [request.arguments["name"] for request in world.shown] == ["ask 1", "ask 2"]
        assert len(agent.session.state.approvals) == 2
        world.session = agent.session.id

    async def second_first(request: ApprovalRequest) -> Approved:
        await asyncio.sleep(0.5 if request.arguments["name"] == "ask 1" else 0)
        return Approved()

    async with world.agent(says("done"), approver=second_first, pool=1) as agent:
        await agent.idle()
        assert [token for token in since(agent.session, 2) if token[:2] in ("AD", "ST", "SD", "TR")] == [
            "AD c4 allowed-once",
            "ST c4",
            "AD c2 allowed-once",
            "SD c4 ok",
            "ST c2",
            "TR c2 ok",
            "TR c3 ok",
            "TR c4 ok",
            "TR c5 ok",
        ]
        assert_laws(agent.session)
