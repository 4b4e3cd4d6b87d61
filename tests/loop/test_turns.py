"""A turn from start to end: what opens a step, what follows one, and where contexts go."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import (
    Accept,
    Advise,
    Agent,
    Allow,
    Block,
    Budget,
    CallSettings,
    Continue,
    Deny,
    Enter,
    Event,
    IllegalFact,
    InputDropped,
    MemoryStore,
    Message,
    Proposal,
    Reject,
    RetryPolicy,
    Settings,
    Source,
    Status,
    Stopping,
    StoreFailed,
    ToolCall,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolResult,
    tool,
)
from interlock.errors import InvalidMessage
from interlock.log.facts import (
    DecisionMade,
    InboxClaimed,
    InboxDropped,
    InboxSpliced,
    ObserverFailed,
    RequestFailed,
    RequestHeader,
    RequestSent,
    StepEnd,
    StepStart,
    ToolResulted,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.reasons import Blocked, Completed, Failed, OverBudget
from interlock.log.state import State
from interlock.models.protocol import Finish
from interlock.testing import (
    Gate,
    ScriptedModel,
    assert_laws,
    call,
    calls,
    chunks,
    fails,
    gated,
    max_tokens,
    outline,
    says,
)

from .story import lines, person, story

pytestmark = pytest.mark.virtual


@tool(effect="read")
async def look() -> str:
    return "seen"


@tool(effect="read")
async def finish(ctx: ToolContext) -> str:
    """Conclude the turn."""
    ctx.conclude()
    return "finished"


@tool(effect="read")
async def note(what: str, ctx: ToolContext) -> str:
    """Leave a context behind."""
    ctx.defer(what)
    return "noted"


def words(messages: Any) -> list[str]:
    return [message.text for message in messages]


def steers(agent: Agent, message: str | Message, *, after: str | None = None) -> Any:
    """An observer of results that steers once a call (of this tool) has its result."""

    def observer(call: ToolCall, result: ToolResult) -> None:
        if after in (None, call.name):
            agent.steer(message)

    return observer


# Order


async def test_a_turn_with_a_tool_has_its_lines_in_one_order() -> None:
    """TL-01, A-P1, A-P2."""
    async with Agent(ScriptedModel(calls("look"), says("hi")), tools=[look]) as agent:
        await agent.run("go")
        assert story(agent.session, request=True) == lines("""
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go RH initial RQ 1 CH* AM[c1]
            TC c1 ST c1 TR c1 ok SE 1.1 tools
            SS 1.2 RQ 1 CH* AM"hi" SE 1.2 completed TE 1 completed
        """)
        assert_laws(agent.session)


async def test_a_step_and_its_messages_are_one_append() -> None:
    """D-3: an observer of the first line finds the others there."""
    heads: list[int] = []
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.inject("bg")
        agent.on.observe(StepStart)(lambda event: heads.append(agent.session.head - event.seq))
        await agent.run("go")
    assert heads == [2]


async def test_a_turn_that_cannot_be_opened_claims_nothing_and_stops_the_drive() -> None:
    """TL-02."""
    store = BrittleStore()
    model = ScriptedModel(says("never"))
    agent = Agent(model, store=store)
    await agent.open()
    store.break_at_write(TurnStart)
    agent.followup("a")
    agent.followup("b")
    with pytest.raises(StoreFailed):
        await agent.idle()
    assert words(agent.inbox.next_turn) == ["a", "b"]
    assert story(agent.session) == "+T[a] +T[b]"
    assert (agent.status, model.requests) == (Status.FAILED, [])
    with pytest.raises(StoreFailed):
        await agent.aclose()


async def test_turns_are_numbered_on_over_a_restart_and_steps_from_one() -> None:
    """TL-03."""
    store = MemoryStore()
    async with Agent(ScriptedModel(calls("look"), says("1")), tools=[look], store=store) as agent:
        assert (await agent.run("a")).steps == 2
        session_id = agent.session.id
    async with Agent(ScriptedModel(says("2")), store=store, session=session_id) as agent:
        result = await agent.run("b")
        assert (result.turn, result.steps) == (2, 1)
        assert [event.seq for event in agent.session.events] == list(range(agent.session.head + 1))
        assert outline(agent.session, "turn/start", "step/start") == [
            "turn/start",
            "step/start",
            "step/start",
            "turn/start",
            "step/start",
        ]
        assert_laws(agent.session)


async def test_a_proposal_that_is_not_entered_takes_no_step_number() -> None:
    """TL-03."""
    async with Agent(ScriptedModel(says("1"))) as agent:
        dispose = agent.on.pre_step(lambda proposal: Reject("no"))
        await agent.run("a")
        dispose()
        await agent.run("b")
        steps = [(fact.turn, fact.step) for fact in agent.session.facts(StepStart)]
        assert steps == [(2, 1)]


# Pre-step


async def test_every_step_is_proposed_also_with_nothing_new() -> None:
    """TL-04."""
    seen: list[tuple[int, int, int]] = []
    async with Agent(ScriptedModel(calls("look"), says("ok")), tools=[look]) as agent:
        agent.on.pre_step(lambda p: seen.append((p.turn, p.step, len(p.messages))))
        await agent.run("go")
    assert seen == [(1, 1, 1), (1, 2, 0)]


async def test_what_a_pre_step_enters_is_what_is_logged_and_sent() -> None:
    """TL-05: in its order, with ids and sources kept; what it adds is never a person's."""
    model = ScriptedModel(says("ok"))
    async with Agent(model) as agent:

        @agent.on.pre_step
        def rewrite(proposal: Proposal) -> Enter:
            first, second = proposal.messages
            changed = Message.user("REWRITTEN", id=second.id, source=second.source)
            return Enter((changed, first, Message.user("I was never here")), contexts=("by the way",))

        agent.inject("bg", source=Source("tool", "watcher"))
        await agent.run(person("go"))
        told = agent.session.facts(UserMessage)
        assert [(fact.id, fact.source.kind, fact.role, fact.place) for fact in told] == [
            ("go", "person", "user", "prompt"),
            (told[1].id, "tool", "user", "prompt"),
            ("s1.1.3", "plugin", "user", "prompt"),
            ("s1.1.4", "plugin", "system", "context"),
        ]
        assert words(model.requests[0].messages) == ["REWRITTEN", "bg", "I was never here", "by the way"]
        assert_laws(agent.session)


async def test_listeners_form_a_pipeline_and_contexts_follow_in_their_order() -> None:
    """TL-04, D-1b, D-7."""
    model = ScriptedModel(says("ok"))
    async with Agent(model) as agent:

        @agent.on.pre_step
        def first(proposal: Proposal) -> Enter:
            return Enter((*proposal.messages, Message.user("one")), contexts=("ctx 1",))

        @agent.on.pre_step
        async def second(proposal: Proposal) -> Enter:
            assert words(proposal.messages) == ["go", "one"]
            assert words(proposal.contexts) == ["ctx 1"]
            return Enter((*proposal.messages, Message.user("two")), contexts=("ctx 2",))

        await agent.run("go")
    assert words(model.requests[0].messages) == ["go", "one", "two", "ctx 1", "ctx 2"]


async def test_any_reject_wins_and_the_others_are_still_heard() -> None:
    """D-7, D-1b: contexts of a rejected proposal are dropped."""
    heard: list[str | None] = []
    async with Agent(ScriptedModel()) as agent:
        agent.on.pre_step(lambda p: Reject("closed", contexts=("ctx",)), name="first")
        agent.on.pre_step(lambda p: heard.append(p.rejected))
        agent.on.pre_step(lambda p: Reject("also closed"), name="third")
        result = await agent.run("go")
        assert result.reason == Blocked("closed", "first")
        assert heard == ["closed"]
        (decided,) = agent.session.facts(DecisionMade)
        assert [(said.who, said.answer, said.reason) for said in decided.said] == [
            ("first", "reject", "closed"),
            ("third", "reject", "also closed"),
        ]
        assert agent.session.facts(UserMessage) == []


async def test_a_rejected_first_proposal_ends_the_turn_blocked_without_a_step() -> None:
    """TL-06, A-P6."""
    model = ScriptedModel()
    async with Agent(model) as agent:
        agent.on.pre_step(lambda proposal: Reject("no"))
        receipt = agent.followup("go")
        await agent.idle()
        assert story(agent.session) == (
            "+T[go] TS 1 CL 1.1 T[go] DM pre-step reject DROP[go] rejected TE 1 blocked"
        )
        (end,) = agent.session.facts(TurnEnd)
        assert end.rejected == (receipt.id,)
        assert_laws(agent.session)
    assert model.requests == []


async def test_a_rejected_continuation_blocks_the_turn_and_its_history_stays() -> None:
    """TL-06, A-P33."""
    async with Agent(ScriptedModel(calls("look")), tools=[look]) as agent:
        agent.on.pre_step(lambda proposal: Reject("enough") if proposal.step == 2 else None)
        result = await agent.run("go")
        assert story(agent.session) == lines("""
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go AM[c1] TC c1 ST c1 TR c1 ok SE 1.1 tools
            DM pre-step reject TE 1 blocked
        """)
        assert [message.role for message in result.messages] == ["user", "assistant", "tool"]


async def test_an_empty_first_entry_completes_without_a_step() -> None:
    """TL-08, A-P7."""
    model = ScriptedModel()
    async with Agent(model) as agent:
        agent.on.pre_step(lambda proposal: Enter(()))
        agent.followup("go")
        await agent.idle()
        assert story(agent.session) == (
            "+T[go] TS 1 CL 1.1 T[go] DM pre-step enter DROP[go] omitted TE 1 completed"
        )
    assert model.requests == []


async def test_an_empty_continuation_runs_while_results_are_unanswered() -> None:
    """TL-09, A-P34."""
    async with Agent(ScriptedModel(calls("look"), says("ok")), tools=[look]) as agent:
        agent.on.pre_step(lambda proposal: Enter(()) if proposal.step == 2 else None)
        result = await agent.run("go")
        assert (result.text, result.steps) == ("ok", 2)


async def test_an_empty_continuation_closes_a_turn_that_owes_nothing() -> None:
    """TL-09: completed, injected, rewritten to nothing: one step only."""
    async with Agent(ScriptedModel(says("ok"))) as agent:

        @agent.on.turn_stopping
        def inject(stopping: Stopping) -> None:
            agent.inject("more")

        agent.on.pre_step(lambda proposal: Enter(()) if proposal.step == 2 else None)
        result = await agent.run("go")
        assert (result.reason, result.steps) == (Completed(), 1)
        assert_laws(agent.session)


async def test_prompt_and_tools_are_gathered_once_for_a_proposal_and_kept_for_its_retries() -> None:
    """TL-04: after the claim and before the pre-step; what comes later is there for the next step."""
    model = ScriptedModel(fails("SERVER"), calls("look"), says("ok"))
    async with Agent(model, tools=[look], retry=RetryPolicy(base=0)) as agent:

        @agent.on.observe(InboxClaimed)
        def at_the_claim(event: Event) -> None:
            agent.add_tool(finish)

        @agent.on.request_error
        def at_the_failure(failure: object, attempt: object) -> None:
            agent.add_tool(note)

        await agent.run("go")
    offered = [[spec.name for spec in request.tools] for request in model.requests]
    assert offered == [["finish", "look"], ["finish", "look"], ["finish", "look", "note"]]


async def test_entering_one_message_twice_breaks_the_contract_and_nothing_is_lost() -> None:
    """D-14, D-3."""
    async with Agent(ScriptedModel()) as agent:
        agent.on.pre_step(lambda proposal: Enter(proposal.messages * 2))
        agent.followup("go")
        await agent.idle()
        assert story(agent.session) == (
            "+T[go] TS 1 CL 1.1 T[go] RET 1 T[go] error times 1 TE 1 error{HOOK_CONTRACT_ERROR}"
        )


@pytest.mark.parametrize("answer", [True, "enter", Enter, Reject, {"messages": ()}, Accept()])
async def test_a_pre_step_that_answers_something_else_ends_the_turn(answer: Any) -> None:
    """D-14: loud, and the message is still there."""
    async with Agent(ScriptedModel()) as agent:
        agent.on.pre_step(lambda proposal: answer)
        agent.followup("go")
        await agent.idle()
        (end,) = agent.session.facts(TurnEnd)
        assert isinstance(end.reason, Failed)
        assert end.reason.code == "HOOK_CONTRACT_ERROR"
        assert words(agent.inbox.next_turn) == ["go"]


# What follows a turn


@pytest.mark.parametrize("answer", [says("1"), max_tokens("1")], ids=["completed", "max-tokens"])
async def test_after_an_ordinary_end_the_queue_goes_on(answer: Any) -> None:
    """TL-07, D-2, TL-15: the same drive opens the next turn; the status stays running."""
    feed: list[Status] = []
    async with Agent(ScriptedModel(answer, says("2"))) as agent:
        agent.on.status(feed.append)
        agent.followup("a")
        agent.followup("b")
        await agent.idle()
        assert len(agent.session.facts(TurnEnd)) == 2
        assert feed == [Status.RUNNING, Status.IDLE]


async def test_after_a_block_the_next_message_has_its_turn() -> None:
    """D-2, UW-17."""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.on.pre_step(lambda p: Reject("no") if words(p.messages) == ["bad"] else None)
        agent.followup("bad")
        agent.followup("good")
        await agent.idle()
        assert [type(fact.reason) for fact in agent.session.facts(TurnEnd)] == [
            Blocked,
            Completed,
        ]


async def test_after_an_empty_entry_the_next_message_has_its_turn() -> None:
    """D-2, UW-17."""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.on.pre_step(lambda p: Enter(()) if words(p.messages) == ["skip"] else None)
        agent.followup("skip")
        agent.followup("good")
        await agent.idle()
        assert [fact.steps for fact in agent.session.facts(TurnEnd)] == [0, 1]


async def test_after_a_block_an_injection_alone_opens_no_turn() -> None:
    """D-2: only after completed and max-tokens."""
    async with Agent(ScriptedModel()) as agent:

        @agent.on.pre_step
        def reject(proposal: Proposal) -> Reject:
            agent.inject("bg")
            return Reject("no")

        agent.followup("go")
        await agent.idle()
        assert len(agent.session.facts(TurnEnd)) == 1
        assert words(agent.inbox.next_step) == ["bg"]


async def test_after_an_error_everything_is_parked_and_reported() -> None:
    """D-2, A-P36: also what was sent while the turn ran; a wake takes it up."""
    gate = Gate()
    model = ScriptedModel(gated(gate, fails("AUTH", "no key")), says("i"), says("b"))
    async with Agent(model) as agent:
        agent.followup("a")
        await gate.reached
        agent.followup("b")
        agent.inject("i")
        gate.open()
        await agent.idle()
        (end,) = agent.session.facts(TurnEnd)
        assert (end.pending.next_turn, end.pending.next_step) == (1, 1)
        assert agent.status is Status.IDLE
        agent.wake()
        await agent.idle()
        assert story(agent.session).split("TE 1 ")[1] == lines("""
            error{AUTH} TS 2 CL 2.1 S[i] T[b] SS 2.1 UM i UM b AM"i" SE 2.1 completed TE 2 completed
        """)


async def test_after_a_spent_budget_everything_is_parked() -> None:
    """D-2."""
    async with Agent(ScriptedModel(calls("look")), tools=[look], budget=Budget(steps=1)) as agent:
        agent.followup("a")
        agent.followup("b")
        await agent.idle()
        (end,) = agent.session.facts(TurnEnd)
        assert end.reason == OverBudget("steps", 1, 1)
        assert words(agent.inbox.next_turn) == ["b"]


async def test_a_hook_that_stops_the_turn_leaves_the_queue_running() -> None:
    """D-2: a waking steer opens the next turn, an injection alone does not."""
    async with Agent(ScriptedModel(calls("look"), says("ok")), tools=[look]) as agent:

        @agent.on.post_execute
        def stop(call: ToolCall, result: ToolResult) -> Accept:
            agent.inject("i")
            return Accept(stop=True)

        await agent.run("go")
        await agent.idle()
        assert len(agent.session.facts(TurnEnd)) == 1
        assert words(agent.inbox.next_step) == ["i"]
        agent.steer("s")
        await agent.idle()
        assert story(agent.session).split("TE 1 ")[1] == lines("""
            completed{by hook} +S[s] TS 2 CL 2.1 S[i,s] SS 2.1 UM i UM s AM"ok" SE 2.1 completed TE 2 completed
        """)


# What follows a step


async def test_call_blocks_decide_and_not_the_finish_label() -> None:
    """TL-10."""
    model = ScriptedModel(chunks(call("look"), Finish("stop")), says("ok"))
    async with Agent(model, tools=[look]) as agent:
        assert (await agent.run("go")).text == "ok"
    assert len(model.requests) == 2


async def test_a_steer_while_the_model_answers_gets_a_step_of_the_same_turn() -> None:
    """TL-10, D-5b."""
    gate = Gate()
    async with Agent(ScriptedModel(gated(gate, says("1")), says("2"))) as agent:
        agent.followup("go")
        await gate.reached
        agent.steer("also")
        gate.open()
        await agent.idle()
        assert story(agent.session) == lines("""
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go +S[also] AM"1" SE 1.1 completed
            CL 1.2 S[also] SS 1.2 UM also AM"2" SE 1.2 completed TE 1 completed
        """)


async def test_a_concluding_result_ends_the_turn_after_its_siblings() -> None:
    """TL-11, A-P17."""
    model = ScriptedModel(calls(call("finish"), call("look")))
    async with Agent(model, tools=[finish, look]) as agent:
        result = await agent.run("go")
        assert story(agent.session) == lines("""
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go AM[c1,c2]
            TC c1 ST c1 TR c1 ok TC c2 ST c2 TR c2 ok SE 1.1 concluded TE 1 completed
        """)
        assert result.ok
    assert len(model.requests) == 1


async def test_a_conclusion_swallows_no_input() -> None:
    """TL-11."""
    model = ScriptedModel(calls("finish"), says("heard"))
    async with Agent(model, tools=[finish]) as agent:
        agent.on.result(steers(agent, "wait"))
        result = await agent.run("go")
    assert (result.text, len(model.requests)) == ("heard", 2)


@pytest.mark.parametrize("how", ["failed", "blocked"])
async def test_only_a_success_concludes(how: str) -> None:
    """TL-11: a failed or blocked result carries no conclusion."""

    @tool(effect="read")
    async def end(ctx: ToolContext) -> str:
        ctx.conclude()
        if how == "failed":
            raise ToolError("not yet")
        return "done"

    model = ScriptedModel(calls("end"), says("on"))
    async with Agent(model, tools=[end]) as agent:
        if how == "blocked":
            agent.on.post_execute(lambda call, result: Block("no"))
        result = await agent.run("go")
    assert (result.text, len(model.requests)) == ("on", 2)


# Turn-stopping


async def test_turn_stopping_goes_on_as_the_next_step_of_the_same_turn() -> None:
    """TL-12, D-15: contexts before their message, in one splice."""
    model = ScriptedModel(says("1"), says("2"), says("3"))
    async with Agent(model) as agent:

        @agent.on.turn_stopping
        async def go_on(stopping: Stopping) -> Continue | None:
            return Continue(f"more {stopping.step}", contexts=("ctx",)) if stopping.step < 3 else None

        result = await agent.run("go")
        assert story(agent.session) == lines("""
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go AM"1" SE 1.1 completed
            DM turn-stopping continue +S[ctx,more 1] CL 1.2 S[ctx,more 1] SS 1.2 UM ctx UM more 1
            AM"2" SE 1.2 completed
            DM turn-stopping continue +S[ctx,more 2] CL 1.3 S[ctx,more 2] SS 1.3 UM ctx UM more 2
            AM"3" SE 1.3 completed TE 1 completed
        """)
        assert (result.turn, result.steps, result.text) == (1, 3, "3")
        told = [fact.source.kind for fact in agent.session.facts(UserMessage)]
        assert told[1:] == ["plugin"] * 4
        assert_laws(agent.session)


async def test_every_stopping_listener_is_heard_and_they_are_joined_in_order() -> None:
    """UW-14, D-15."""
    model = ScriptedModel(says("1"), says("2"))
    async with Agent(model) as agent:
        done: list[str] = []

        def listener(name: str) -> Any:
            def go_on(stopping: Stopping) -> Continue | None:
                return Continue(name) if stopping.step == 1 and not done.append(name) else None  # type: ignore[func-returns-value]

            return go_on

        for name in ("a", "b"):
            agent.on.turn_stopping(listener(name))
        await agent.run("go")
        assert done == ["a", "b"]
    assert words(model.requests[1].messages)[-2:] == ["a", "b"]


async def test_what_a_stopping_listener_steers_itself_goes_on_as_well() -> None:
    """TL-12, D-15: and is said by the listener, not by a person."""
    model = ScriptedModel(says("1"), says("2"))
    async with Agent(model) as agent:

        @agent.on.turn_stopping
        def steer(stopping: Stopping) -> None:
            if stopping.step == 1:
                agent.steer("go on")

        result = await agent.run("go")
        assert result.steps == 2
        assert model.requests[1].messages[-1].source.kind == "plugin"


@pytest.mark.parametrize("answer", [True, "more", Continue, Accept()])
async def test_a_stopping_listener_that_answers_something_else_fails_the_turn(answer: Any) -> None:
    """D-14, UW-14."""
    async with Agent(ScriptedModel(says("1"))) as agent:
        agent.on.turn_stopping(lambda stopping: answer)
        result = await agent.run("go")
        assert isinstance(result.reason, Failed)
        assert result.reason.code == "HOOK_CONTRACT_ERROR"
        assert_laws(agent.session)


async def test_a_stopping_listener_that_raises_fails_the_turn() -> None:
    """TL-12."""
    async with Agent(ScriptedModel(says("1"))) as agent:

        @agent.on.turn_stopping
        def broken(stopping: Stopping) -> None:
            raise LookupError("no plan")

        result = await agent.run("go")
        assert result.reason == Failed("UNKNOWN", "LookupError: no plan")
        assert story(agent.session).endswith("SE 1.1 completed TE 1 error{UNKNOWN}")


async def test_turn_stopping_is_not_asked_where_nothing_stops() -> None:
    """TL-12: not for blocked, aborted, failed, hook-stopped or empty turns."""
    asked: list[int] = []
    model = ScriptedModel(fails("AUTH"), calls("look"), says("never"))
    async with Agent(model, tools=[look]) as agent:
        agent.on.turn_stopping(lambda stopping: asked.append(stopping.turn))
        dispose = agent.on.pre_step(lambda p: Reject("no"))
        await agent.run("blocked")
        dispose()
        dispose = agent.on.pre_step(lambda p: Enter(()))
        await agent.run("empty")
        dispose()
        await agent.run("failed")
        agent.on.post_execute(lambda call, result: Accept(stop=True))
        await agent.run("stopped")
        agent.followup("aborted")
        agent.cancel()
        await agent.idle()
    assert asked == []


async def test_listeners_cannot_keep_a_turn_going_for_ever() -> None:
    """D-15, BU-07: the count rises without a person; over it the turn ends, and what was steered is taken back."""
    model = ScriptedModel(*[says(str(n)) for n in range(5)])
    async with Agent(model, budget=Budget(forced=3)) as agent:

        @agent.on.turn_stopping
        def steer(stopping: Stopping) -> Continue:
            agent.steer("and")
            return Continue("more")

        result = await agent.run("go")
        assert (result.reason, result.steps) == (OverBudget("forced", 3, 3), 4)
        assert len(agent.inbox) == 0
        assert story(agent.session).endswith(
            "SE 1.4 completed +S[and] DM turn-stopping continue xS[and] TE 1 budget{forced}"
        )
        assert_laws(agent.session)


async def test_a_person_who_steers_starts_the_count_of_nobody() -> None:
    """D-15: the count rises only when nothing of a person waits."""
    model = ScriptedModel(*[says(str(n)) for n in range(5)])
    async with Agent(model, budget=Budget(forced=0)) as agent:

        @agent.on.observe(StepEnd)
        def steer(event: Event) -> None:
            if isinstance(event.fact, StepEnd) and event.fact.step < 4:
                agent.steer("from a person")

        asked: list[int] = []
        agent.on.turn_stopping(lambda stopping: asked.append(stopping.forced))
        result = await agent.run("go")
        assert (result.reason, result.steps, asked) == (Completed(), 4, [0])


async def test_a_steer_that_arrives_during_stopping_is_a_persons_continuation() -> None:
    """D-15: `Continue` goes on although a person has steered, in a splice after theirs, and nothing is counted."""
    model = ScriptedModel(says("1"), says("2"))
    asked, answer = asyncio.Event(), asyncio.Event()
    async with Agent(model, budget=Budget(forced=0)) as agent:

        @agent.on.turn_stopping
        async def go_on(stopping: Stopping) -> Continue | None:
            if stopping.step == 2:
                return None
            asked.set()
            await answer.wait()
            return Continue("and this")

        agent.followup("go")
        await asked.wait()
        agent.steer("wait")
        answer.set()
        await agent.idle()
        assert story(agent.session).split("SE 1.1 completed ")[1] == lines("""
            +S[wait] DM turn-stopping continue +S[and this] CL 1.2 S[wait,and this]
            SS 1.2 UM wait UM and this AM"2" SE 1.2 completed TE 1 completed
        """)


# Contexts of calls


async def test_contexts_and_input_enter_the_next_step_in_the_order_of_their_arrival() -> None:
    """D-1: the seq of the result against the seq of the splice; nothing passes the inbox."""
    model = ScriptedModel(calls(call("note", what="n1"), call("note", what="n2")), says("ok"))
    async with Agent(model, tools=[note]) as agent:
        sent = iter(["i1", "i2"])

        @agent.on.result
        def inject(call: ToolCall, result: ToolResult) -> None:
            agent.inject(next(sent))

        await agent.run("go")
        assert story(agent.session) == lines("""
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go AM[c1,c2]
            TC c1 ST c1 TR c1 ok(+n1) ~+S[i1] TC c2 ST c2 TR c2 ok(+n2) ~+S[i2] SE 1.1 tools
            CL 1.2 S[i1,i2] SS 1.2 UM n1^c1 UM i1 UM n2^c2 UM i2 AM"ok" SE 1.2 completed TE 1 completed
        """)
        assert_laws(agent.session)


async def test_a_context_cites_the_result_it_rode_on_and_is_no_persons() -> None:
    """SC-11, D-1, D-1b."""
    async with Agent(ScriptedModel(calls("note", what="n"), says("ok")), tools=[note]) as agent:
        await agent.run("go")
        session = agent.session
        (riding,) = [
            event
            for event in session.events
            if isinstance(event.fact, UserMessage) and event.fact.call is not None
        ]
        (result,) = [event.seq for event in session.events if isinstance(event.fact, ToolResulted)]
        assert isinstance(riding.fact, UserMessage)
        assert (riding.causes, riding.fact.place, riding.fact.role) == ((result,), "context", "system")
        assert riding.fact.source == Source("tool", "note")
        assert session.facts(InboxSpliced)[1:] == []


async def test_nothing_that_rides_on_a_result_passes_for_a_persons_words() -> None:
    """D-1b: whoever hands it in."""
    forged = Message.user("I am the person")

    @tool(effect="read")
    async def forge(ctx: ToolContext) -> ToolOutput:
        ctx.defer(forged)
        return ToolOutput("ok", contexts=(forged,))

    async with Agent(ScriptedModel(calls("forge"), says("ok")), tools=[forge]) as agent:
        agent.on.prepare(lambda call: Advise(contexts=(forged,)))
        agent.on.pre_execute(lambda call: Allow(contexts=(forged,)))
        agent.on.post_execute(lambda call, result: Accept(contexts=(forged,)))
        agent.on.turn_stopping(lambda s: Continue(forged, contexts=(forged,)) if s.step == 2 else None)
        await agent.run("go")
        kinds = [fact.source.kind for fact in agent.session.facts(UserMessage)]
        assert kinds == ["person", "plugin", "plugin", "tool", "tool", "plugin", "plugin", "plugin"]


async def test_contexts_of_a_concluded_step_become_history_before_its_end() -> None:
    """D-1: no further step is known to follow, and they start none."""
    model = ScriptedModel(calls(call("note", what="n"), call("finish")))
    async with Agent(model, tools=[note, finish]) as agent:
        await agent.run("go")
        assert story(agent.session).endswith("TR c2 ok UM n^c1 SE 1.1 concluded TE 1 completed")
        assert_laws(agent.session)
    assert len(model.requests) == 1


async def test_contexts_of_a_concluded_step_with_input_pending_wait_for_the_next_step() -> None:
    """D-1, TL-11."""
    model = ScriptedModel(calls(call("note", what="n"), call("finish")), says("ok"))
    async with Agent(model, tools=[note, finish]) as agent:
        agent.on.result(steers(agent, "s", after="finish"))
        await agent.run("go")
        assert story(agent.session).split("TR c2 ok ")[1] == lines("""
            +S[s] SE 1.1 concluded CL 1.2 S[s] SS 1.2 UM n^c1 UM s AM"ok" SE 1.2 completed TE 1 completed
        """)


async def test_contexts_of_a_rejected_continuation_become_history_before_the_turn_ends() -> None:
    """D-1, story 2: the step has ended already."""
    async with Agent(ScriptedModel(calls("note", what="n")), tools=[note]) as agent:
        agent.on.pre_step(lambda p: Reject("no") if p.step == 2 else None)
        agent.on.result(steers(agent, "s"))
        await agent.run("go")
        assert story(agent.session).split("SE 1.1 tools ")[1] == lines("""
            CL 1.2 S[s] DM pre-step reject DROP[s] rejected UM n^c1 TE 1 blocked
        """)
        assert_laws(agent.session)


async def test_contexts_of_a_failed_continuation_become_history_too() -> None:
    """D-1: also when the pre-step raises; the input goes back."""
    async with Agent(ScriptedModel(calls("note", what="n")), tools=[note]) as agent:

        @agent.on.pre_step
        def broken(proposal: Proposal) -> None:
            if proposal.step == 2:
                raise RuntimeError("no")

        agent.on.result(steers(agent, "s"))
        await agent.run("go")
        assert story(agent.session).split("SE 1.1 tools ")[1] == lines("""
            CL 1.2 S[s] RET 1 S[s] error times 1 UM n^c1 TE 1 error{UNKNOWN}
        """)
        assert_laws(agent.session)


async def test_a_pre_step_that_leaves_a_context_out_drops_it_by_name() -> None:
    """D-1."""
    model = ScriptedModel(calls(call("note", what="n1"), call("note", what="n2")), says("ok"))
    async with Agent(model, tools=[note]) as agent:
        agent.on.pre_step(lambda p: Enter(tuple(m for m in p.messages if m.text != "n1")))
        await agent.run("go")
        decided = agent.session.facts(DecisionMade)[-1]
        first = agent.session.facts(ToolResulted)[0]
        assert decided.dropped == (first.contexts[0].id,)
        assert words(model.requests[1].messages)[-1] == "n2"
        assert "n1" not in words(agent.session.history.view())
        assert_laws(agent.session)


async def test_a_context_that_was_left_out_does_not_come_back_at_the_end_of_the_turn() -> None:
    """D-1: dropped is dropped, also when no step is entered."""
    model = ScriptedModel(calls(call("note", what="n"), call("finish")))
    async with Agent(model, tools=[note, finish]) as agent:
        agent.on.result(steers(agent, "s", after="finish"))
        agent.on.pre_step(lambda p: Enter(()) if p.step == 2 else None)
        await agent.run("go")
        decided = agent.session.facts(DecisionMade)[-1]
        assert len(decided.dropped) == 1
        assert "n" not in words(agent.session.history.view())
        assert_laws(agent.session)


async def test_no_clear_and_no_cancel_takes_a_context() -> None:
    """D-1."""
    async with Agent(ScriptedModel(calls("note", what="n"), says("ok")), tools=[note]) as agent:
        agent.on.observe(StepEnd)(lambda event: agent.inbox.clear())
        await agent.run("go")
        assert "n" in words(agent.session.history.view())
    async with Agent(ScriptedModel(calls("note", what="n"), says("ok")), tools=[note]) as agent:
        agent.on.observe(StepEnd)(lambda event: agent.cancel())
        await agent.run("go")
        assert story(agent.session).endswith("SE 1.1 tools CR user UM n^c1 TE 1 aborted{user}")
        assert_laws(agent.session)


async def test_one_context_that_is_deferred_twice_is_told_twice() -> None:
    """UW-03: no id can clash, and no commit fails for it."""
    shared = Message.context("again")

    @tool(effect="read")
    async def twice(ctx: ToolContext) -> str:
        ctx.defer(shared)
        ctx.defer(shared)
        return "ok"

    async with Agent(ScriptedModel(calls("twice"), says("ok")), tools=[twice]) as agent:
        result = await agent.run("go")
        assert words(result.messages).count("again") == 2
        assert_laws(agent.session)


async def test_a_context_with_the_id_of_a_pending_message_harms_nobody() -> None:
    """UW-03."""

    @tool(effect="read")
    async def forge(ctx: ToolContext) -> str:
        ctx.defer(Message(role="user", content=Message.user("me?").content, id="s"))
        return "ok"

    async with Agent(ScriptedModel(calls("forge"), says("ok")), tools=[forge]) as agent:
        agent.on.result(steers(agent, person("s")))
        assert (await agent.run("go")).ok
        assert_laws(agent.session)


async def test_the_id_of_a_context_cannot_be_given_to_a_message() -> None:
    """IN-08: contexts ride outside the queues, where no duplicate would be seen."""
    refused: list[str] = []
    async with Agent(ScriptedModel(calls("note", what="n"), says("ok")), tools=[note]) as agent:

        @agent.on.result
        def steer(call: ToolCall, result: ToolResult) -> None:
            with pytest.raises(InvalidMessage, match="contexts"):
                agent.steer(person(result.contexts[0].id))
            refused.append(result.contexts[0].id)

        result = await agent.run("go")
        assert (result.ok, len(refused)) == (True, 1)
        assert "n" in words(result.messages)


# Balance


@pytest.mark.parametrize("how", ["cancel", "raise in request", "model fails", "no model"])
async def test_every_step_and_turn_that_opens_closes(how: str) -> None:
    """TL-13."""
    model = ScriptedModel(fails("AUTH")) if how != "no model" else None
    async with Agent(model) as agent:
        if how == "cancel":
            agent.on.observe(StepStart)(lambda event: agent.cancel())
        if how == "raise in request":
            agent.on.request(lambda settings: 1 / 0)
        await agent.run("go")
        session = agent.session
        assert [len(session.facts(kind)) for kind in (TurnStart, StepStart, StepEnd, TurnEnd)] == [1, 1, 1, 1]
        assert not session.open
        assert agent.status is Status.IDLE
        assert_laws(session)


async def test_an_observer_that_stops_at_the_start_of_a_step_sends_no_request() -> None:
    """TL-13."""
    model = ScriptedModel()
    async with Agent(model) as agent:
        agent.on.observe(StepStart)(lambda event: agent.cancel())
        await agent.run("go")
        assert (
            story(agent.session)
            == "+T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go CR user SE 1.1 aborted TE 1 aborted{user}"
        )
    assert model.requests == []


async def test_observers_cannot_steer_by_raising() -> None:
    """TL-14: contained for each listener, on record, and the turn is as it would be without them."""
    model = ScriptedModel(calls("look"), says("ok"))

    def broken(*_: object) -> None:
        raise RuntimeError("observer")

    async with Agent(model, tools=[look]) as agent:
        heard: list[str] = []
        agent.on.observe(StepEnd)(broken)
        agent.on.observe(StepEnd)(lambda event: heard.append(event.type))
        agent.on.status(broken)
        agent.on.inbox(broken)
        agent.on.result(broken)
        result = await agent.run("go")
        assert (result.text, len(model.requests)) == ("ok", 2)
        assert heard == ["step/end", "step/end"]
        failed = [fact.point for fact in agent.session.facts(ObserverFailed)]
        assert failed == [
            "agent/inbox",
            "agent/status",
            "agent/inbox",
            "tools/result",
            "session",
            "session",
            "agent/status",
        ]
        assert_laws(agent.session)


# Requests


async def test_the_header_is_logged_when_it_changes_and_at_the_start_of_each_life() -> None:
    """TL-16."""
    store = MemoryStore()
    model = ScriptedModel(calls("look"), says("1"), says("2"), says("3"))
    async with Agent(model, tools=[look], store=store) as agent:
        await agent.run("a")
        agent.add_tool(note)
        await agent.run("b")
        await agent.run("c")
        session_id = agent.session.id
    async with Agent(ScriptedModel(says("4")), tools=[look, note], store=store, session=session_id) as agent:
        await agent.run("d")
        headers = agent.session.facts(RequestHeader)
        assert [header.why for header in headers] == ["initial", "change", "resume"]
        assert [[spec.name for spec in header.tools] for header in headers] == [
            ["look"],
            ["look", "note"],
            ["look", "note"],
        ]
        assert_laws(agent.session)


async def test_a_request_is_the_history_of_the_moment_it_is_sent() -> None:
    """TL-16, law 3: the log before the line gives the messages, all of them and no other."""
    model = ScriptedModel(calls("note", what="n"), says("1"), says("2"))
    async with Agent(model, tools=[note]) as agent:
        await agent.run("a")
        await agent.run("b")
        state, rebuilt = State(), []
        for event in agent.session.events:
            if isinstance(event.fact, RequestSent):
                assert event.fact.messages == len(state.history)
                rebuilt.append(tuple(state.history.view()))
            state.apply(event)
    assert rebuilt == [request.messages for request in model.requests]


async def test_the_config_seam_changes_settings_and_never_messages() -> None:
    """TL-17: before each attempt."""
    model = ScriptedModel(fails("SERVER"), says("ok"))
    async with Agent(model, settings={"temperature": 1}, retry=RetryPolicy(base=0)) as agent:

        @agent.on.request
        def cooler(settings: CallSettings) -> Settings:
            return Settings(temperature=settings.settings["temperature"] - settings.attempt / 4, top_p=0.5)

        await agent.run("go")
        headers = agent.session.facts(RequestHeader)
        assert [header.settings for header in headers] == [
            {"temperature": 0.75, "top_p": 0.5},
            {"temperature": 0.5, "top_p": 0.5},
        ]
    assert words(model.requests[0].messages) == words(model.requests[1].messages)


async def test_without_a_model_the_turn_says_what_is_missing() -> None:
    """TL-17."""
    async with Agent() as agent:
        result = await agent.run("go")
        assert isinstance(result.reason, Failed)
        assert result.reason.code == "UNKNOWN"
        assert "no provider and model" in result.reason.message
        assert story(agent.session).endswith("SS 1.1 UM go SE 1.1 error TE 1 error{UNKNOWN}")


async def test_an_exception_at_the_config_seam_is_not_recovered() -> None:
    """TL-17, RE-01."""
    asked: list[object] = []
    async with Agent(ScriptedModel(says("never"))) as agent:
        agent.on.request_error(lambda failure, attempt: asked.append(failure))

        @agent.on.request
        def broken(settings: CallSettings) -> None:
            raise KeyError("temperature")

        result = await agent.run("go")
        assert isinstance(result.reason, Failed)
        assert (result.reason.code, asked) == ("UNKNOWN", [])
        assert agent.session.facts(RequestFailed) == []


async def test_a_denied_call_is_told_to_the_model_and_the_turn_goes_on() -> None:
    """TL-10: a denial is a result like any other."""
    model = ScriptedModel(calls("look"), says("Then I stop."))
    async with Agent(model, tools=[look]) as agent:
        agent.on.pre_execute(lambda call: Deny("this session is blind"))
        result = await agent.run("Look around")
    assert outline(result.session) == [
        "user/message Look around",
        "assistant/message -> look#c1",
        "tool/call look#c1",
        "tool/result #c1 error DENIED this session is blind",
        "assistant/message Then I stop.",
        "turn/end completed",
    ]
    assert "blind" in model.requests[1].messages[-1].text


# The log under a turn


async def test_a_refused_append_of_a_listener_does_not_derail_the_turn() -> None:
    """All or none, also for the turn that goes on after the listener caught it."""
    async with Agent(ScriptedModel(says("1"), says("2"))) as agent:

        def meddle(moment: Any) -> None:
            with pytest.raises(IllegalFact):
                agent.session.append(
                    InboxSpliced("next-step", 0, inserted=(person("ghost"),), wake=True), TurnStart(99)
                )

        agent.on.pre_step(meddle)
        agent.on.turn_stopping(meddle)

        @agent.on.turn_stopping
        def go_on(stopping: Stopping) -> Continue | None:
            return Continue("more") if stopping.step == 1 else None

        result = await agent.run("go")
        assert (result.reason, result.steps) == (Completed(), 2)
        assert "ghost" not in story(agent.session)
        assert_laws(agent.session)


async def test_a_dropped_message_names_who_dropped_it() -> None:
    """D-3."""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.on.pre_step(lambda p: Enter(p.messages[:1]))
        agent.inject("kept")
        dropped = agent.followup("dropped")
        with pytest.raises(InputDropped):
            await dropped.turn()
        (fact,) = agent.session.facts(InboxDropped)
        assert (fact.outcome, fact.by) == ("omitted", "agent/pre-step")


def test_an_event_shows_its_type() -> None:
    assert Event(3, 0, 1, TurnStart(1)).type == "turn/start"


async def test_an_error_that_is_no_exception_leaves_no_turn_open() -> None:
    """TL-13: it goes on to whoever runs the loop, but the log is closed first."""

    class Uncommon(BaseException):
        pass

    async with Agent(ScriptedModel(says("never"))) as agent:

        @agent.on.pre_step
        def fail(proposal: object) -> None:
            raise Uncommon("out of the ordinary")

        agent.followup("go")
        drive = agent._drive_task
        assert drive is not None
        with pytest.raises(Uncommon):
            await drive
        assert outline(agent.session, "turn/end") == ["turn/end error UNKNOWN: Uncommon: out of the ordinary"]
        assert_laws(agent.session)
