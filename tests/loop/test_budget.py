"""Budgets: what may be used, where it is checked, and how a turn ends that has used it up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock import (
    Agent,
    ApprovalRequest,
    Approved,
    Ask,
    Budget,
    ConfigError,
    Continue,
    Deny,
    Harness,
    HookResult,
    MemoryStore,
    Message,
    Reject,
    RetryPolicy,
    Source,
    StopContext,
    Stopping,
    ToolContext,
    ToolError,
    tool,
)
from interlock.log.facts import (
    AssistantMessage,
    DecisionMade,
    InboxSpliced,
    RequestSent,
    StepEnd,
    StepStart,
    ToolStarted,
    TurnEnd,
)
from interlock.log.reasons import Aborted, Blocked, Completed, OverBudget
from interlock.models import ModelRequest
from interlock.testing import ScriptedModel, assert_laws, call, calls, fails, hangs, max_tokens, outline, says

AT_ONCE = RetryPolicy(base=0)


@tool(effect="read")
async def look(at: str = "") -> str:
    return f"saw {at}"


@tool(effect="read", concurrency="parallel")
async def nap(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "slept"


def endless(request: ModelRequest) -> Any:
    return calls("look")


def looks(n: int) -> list[Any]:
    return [endless] * n


# What is counted


async def test_a_turn_may_take_so_many_steps() -> None:
    """BU-01"""
    async with Agent(ScriptedModel(*looks(5)), tools=[look], budget=Budget(steps=2)) as agent:
        result = await agent.run("go")

        assert result.reason == OverBudget("steps", 2, 2)
        assert len(agent.session.facts(StepStart)) == result.steps == 2
        assert outline(agent.session, "step/end", "turn/end") == [
            "step/end tools",
            "step/end tools",
            "turn/end budget (steps: 2 of 2)",
        ]
        assert_laws(agent.session)


async def test_every_attempt_is_a_request() -> None:
    """BU-01, BU-02"""
    model = ScriptedModel(*[fails("SERVER")] * 5)
    async with Agent(model, retry=AT_ONCE, budget=Budget(requests=3)) as agent:
        result = await agent.run("go")

        assert result.reason == OverBudget("requests", 3, 3)
        assert len(model.requests) == 3
        assert outline(agent.session, "step/end", "turn/end") == [
            "step/end budget",
            "turn/end budget (requests: 3 of 3)",
        ]
        assert_laws(agent.session)


async def test_tokens_are_counted_in_and_out_as_the_provider_reports_them() -> None:
    """BU-01"""
    model = ScriptedModel(calls("look", usage=(60, 30)), calls("look", usage=(70, 40)), says("never"))
    async with Agent(model, tools=[look], budget=Budget(tokens=150)) as agent:
        result = await agent.run("go")

        assert result.reason == OverBudget(
            "tokens", 150, 200
        )  # the answer that passed the limit still stands
        assert (result.usage.input, result.usage.output) == (130, 70)
        assert len(model.requests) == 2
        assert_laws(agent.session)


async def test_calls_are_counted_at_admission_whatever_becomes_of_them() -> None:
    """BU-01: denied and invalid calls count too, so that a model cannot try for ever."""
    model = ScriptedModel(calls(call("look", at="a"), call("none"), call("look", at="b")), says("never"))
    async with Agent(model, tools=[look], budget=Budget(tool_calls=2)) as agent:
        agent.on.pre_execute(lambda asked: Deny("not today"))
        result = await agent.run("go")

        assert outline(agent.session, "tool/result", "turn/end") == [
            "tool/result #c1 error DENIED not today",
            "tool/result #c2 error UNKNOWN_TOOL there is no tool named 'none'. Tools: look",
            "tool/result #c3 error BUDGET_EXHAUSTED the budget for tool calls is used up; the tool was not started",
            "turn/end budget (tool_calls: 2 of 2)",
        ]
        assert result.reason == OverBudget("tool_calls", 2, 2)
        assert_laws(agent.session)


async def test_a_single_tool_may_have_a_budget_of_its_own() -> None:
    """BU-01"""

    @tool(effect="read")
    async def other() -> str:
        return "other"

    model = ScriptedModel(calls(call("look"), call("other"), call("other"), call("look")), says("never"))
    async with Agent(model, tools=[look, other], budget=Budget(tool_calls={"look": 1})) as agent:
        result = await agent.run("go")

        assert result.reason == OverBudget("tool_calls:look", 1, 1)
        assert [line.split()[-1] for line in outline(agent.session, "tool/result")[:3]] == [
            "saw",
            "other",
            "other",
        ]
        assert_laws(agent.session)


async def test_nested_calls_count_and_the_outer_tool_reads_that_the_budget_is_used_up() -> None:
    """D-17"""
    heard: list[str | None] = []

    @tool(effect="read")
    async def both(context: ToolContext) -> str:
        await context.call_tool("look", at="first")
        try:
            await context.call_tool("look", at="second")
        except ToolError as error:
            heard.append(error.code)
        return "tried"

    async with Agent(ScriptedModel(calls("both")), tools=[look, both], budget=Budget(tool_calls=2)) as agent:
        result = await agent.run("go")

        assert heard == ["BUDGET_EXHAUSTED"]
        assert result.reason == OverBudget("tool_calls", 2, 2)
        assert outline(agent.session, "tool/result") == ["tool/result #c1 tried"]  # it had started: it ends
        assert_laws(agent.session)


# In the middle of a batch


async def test_in_mid_batch_nothing_starts_and_every_call_is_answered() -> None:
    """BU-03"""
    model = ScriptedModel(calls(*[call("look", at=str(n)) for n in range(4)], saying="all of them"))
    async with Agent(model, tools=[look], budget=Budget(tool_calls=2)) as agent:
        result = await agent.run("go")

        spent = "error BUDGET_EXHAUSTED the budget for tool calls is used up; the tool was not started"
        assert outline(agent.session, "tool/result", "step/end", "turn/end") == [
            "tool/result #c1 saw 0",
            "tool/result #c2 saw 1",
            f"tool/result #c3 {spent}",
            f"tool/result #c4 {spent}",
            "step/end budget",
            "turn/end budget (tool_calls: 2 of 2)",
        ]
        assert [message.role for message in result.messages] == ["user", "assistant", *["tool"] * 4]
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_what_had_started_when_the_budget_was_spent_ends_and_is_committed() -> None:
    """BU-03"""
    model = ScriptedModel(calls(call("nap", seconds=9), call("nap", seconds=1), call("nap", seconds=1)))
    async with Agent(model, tools=[nap], budget=Budget(tool_calls=2)) as agent:
        await agent.run("go")

        assert len(agent.session.facts(ToolStarted)) == 2
        assert [line[:25] for line in outline(agent.session, "tool/result")] == [
            "tool/result #c1 slept",
            "tool/result #c2 slept",
            "tool/result #c3 error BUD",
        ]
        assert asyncio.get_running_loop().time() == 9
        assert_laws(agent.session)


async def test_contexts_of_a_batch_that_the_budget_ended_become_history() -> None:
    """BU-03, D-1"""

    @tool(effect="read")
    async def hint(context: ToolContext) -> str:
        context.defer("mind the step")
        return "ok"

    async with Agent(
        ScriptedModel(calls(call("hint"), call("hint"))), tools=[hint], budget=Budget(tool_calls=1)
    ) as agent:
        result = await agent.run("go")

        assert [m.role for m in result.messages] == ["user", "assistant", "tool", "tool", "system"]
        assert result.messages[-1].text == "mind the step"
        assert_laws(agent.session)


# At the boundary


async def test_a_budget_that_is_spent_before_a_claim_leaves_the_input_where_it_is() -> None:
    """BU-04"""
    async with Agent(ScriptedModel(*looks(3)), tools=[look], budget=Budget(steps=1)) as agent:
        agent.on.observe(StepEnd)(lambda event: agent.steer("one more thing"))
        result = await agent.run("go")
        await agent.idle()

        assert result.reason == OverBudget("steps", 1, 1)
        assert [message.text for message in agent.inbox.next_step] == ["one more thing"]
        (end,) = agent.session.facts(TurnEnd)
        assert (end.pending.next_step, end.pending.next_turn) == (1, 0)
        assert_laws(agent.session)


async def test_a_queue_behind_a_spent_budget_is_parked_until_somebody_wakes_it() -> None:
    """D-2"""
    async with Agent(ScriptedModel(says("one"), says("two")), budget=Budget(tokens=10)) as agent:
        first, second = agent.followup("a"), agent.followup("b")
        await first.turn()
        await agent.idle()
        assert (await second.turn()).text == "two"  # counted anew in each turn

    usage = [says("one", usage=(10, 1)), says("two", usage=(10, 1)), says("three", usage=(10, 1))]
    async with Agent(ScriptedModel(*usage), budget=Budget(tokens=10, per="session")) as agent:
        assert (await agent.run("a")).reason == Completed()  # it had ended when its tokens were counted
        agent.followup("b")
        await agent.idle()
        assert [message.text for message in agent.inbox.next_turn] == ["b"]
        agent.wake()
        await agent.idle()
        assert outline(agent.session, "turn/end") == [
            "turn/end completed",
            "turn/end budget (tokens: 11 of 10)",
            "turn/end budget (tokens: 11 of 10)",
        ]
        assert len(agent.session.facts(RequestSent)) == 1
        assert_laws(agent.session)


async def test_a_run_that_finds_its_budget_spent_takes_its_prompt_back() -> None:
    """BU-04"""
    async with Agent(ScriptedModel(says("never")), budget=Budget(steps=0)) as agent:
        result = await agent.run("go")

        assert (result.reason, result.steps, result.text) == (OverBudget("steps", 0, 0), 0, "")
        assert len(agent.inbox) == 0
        assert_laws(agent.session)


# Whose budget


async def test_all_budgets_hold_and_the_least_is_met_first() -> None:
    """BU-01: of the harness, of the agent, and of one run"""
    async with Harness(budget=Budget(steps=4), tools=[look]) as harness:
        async with harness.agent(ScriptedModel(*looks(9)), budget=Budget(steps=3)) as agent:
            assert (await agent.run("a", budget=Budget(steps=1))).reason == OverBudget("steps", 1, 1)
            assert (await agent.run("b")).reason == OverBudget("steps", 3, 3)  # the run's own was for its run
            assert_laws(agent.session)
        async with harness.agent(ScriptedModel(*looks(9))) as agent:
            assert (await agent.run("c")).reason == OverBudget("steps", 4, 4)


async def test_a_runs_budget_does_not_hold_for_the_turns_before_it() -> None:
    """BU-01"""
    async with Agent(ScriptedModel(calls("look"), says("one"), *looks(3)), tools=[look]) as agent:
        first = agent.followup("a")
        second = await agent.run("b", budget=Budget(steps=1))

        assert (await first.turn()).steps == 2
        assert second.reason == OverBudget("steps", 1, 1)
        assert_laws(agent.session)


async def test_a_sessions_budget_goes_on_where_an_earlier_life_left_it() -> None:
    """BU-02: counts are folds of the log."""
    store = MemoryStore()
    budget = Budget(requests=5, per="session")
    async with Agent(
        ScriptedModel(calls("look"), calls("look"), says("ok")), tools=[look], store=store, budget=budget
    ) as agent:
        assert (await agent.run("go")).ok
        session = agent.session.id
    model = ScriptedModel(*[fails("SERVER")] * 5)
    async with Agent(model, store=store, session=session, retry=AT_ONCE, budget=budget) as agent:
        result = await agent.run("again")

        assert result.reason == OverBudget("requests", 5, 5)
        assert len(model.requests) == 2
        assert_laws(agent.session)


# Time


@pytest.mark.virtual
async def test_a_deadline_ends_a_silent_stream_and_keeps_what_was_shown() -> None:
    """BU-05"""
    async with Agent(ScriptedModel(hangs("so far")), budget=Budget(wall=50)) as agent:
        result = await agent.run("go")

        assert result.reason == OverBudget("wall", 50, 50)
        assert asyncio.get_running_loop().time() == 50
        assert outline(agent.session, "assistant/message", "step/end", "turn/end") == [
            "assistant/message so far (interrupted)",
            "step/end budget",
            "turn/end budget (wall: 50 of 50)",
        ]
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_deadline_tells_the_bodies_and_starts_no_more() -> None:
    """BU-05, D-19"""
    model = ScriptedModel(calls(call("nap", seconds=99), call("look", at="after")))
    async with Agent(model, tools=[nap, look], budget=Budget(wall=5)) as agent:
        result = await agent.run("go")

        assert result.reason == OverBudget("wall", 5, 5)
        assert outline(agent.session, "tool/result") == [
            "tool/result #c1 error ABORTED tool call aborted",
            "tool/result #c2 error BUDGET_EXHAUSTED the budget for tool calls is used up; the tool was not started",
        ]
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_the_clock_stands_still_while_a_person_is_asked() -> None:
    """BU, D-23"""

    async def thinks(request: ApprovalRequest) -> Approved:
        await asyncio.sleep(86_400)
        return Approved()

    model = ScriptedModel(calls("nap", seconds=3), calls("nap", seconds=3))
    async with Agent(model, tools=[nap], approver=thinks, budget=Budget(wall=5)) as agent:
        agent.on.pre_execute(lambda asked: Ask("may it sleep?") if asked.step == 1 else None)
        result = await agent.run("go")

        assert result.reason == OverBudget("wall", 5, 5)
        assert asyncio.get_running_loop().time() == 86_400 + 5
        assert outline(agent.session, "tool/result")[0] == "tool/result #c1 slept"
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_sessions_time_is_that_of_all_its_turns_and_not_of_the_pauses_between() -> None:
    """BU-02, BU"""
    model = ScriptedModel(calls("nap", seconds=3), says("ok"), calls("nap", seconds=3), says("never"))
    async with Agent(model, tools=[nap], budget=Budget(wall=5, per="session")) as agent:
        assert (await agent.run("one")).ok
        await asyncio.sleep(1000)
        result = await agent.run("two")

        assert result.reason == OverBudget("wall", 5, 5)
        assert asyncio.get_running_loop().time() == 1005
        assert (await agent.run("three")).reason == OverBudget("wall", 5, 5)
        assert asyncio.get_running_loop().time() == 1005
        assert_laws(agent.session)


# Precedence


async def test_a_stop_beats_a_spent_budget() -> None:
    """BU-04, ER-02"""
    model = ScriptedModel(calls(call("look", at="1"), call("look", at="2")))
    async with Agent(model, tools=[look], budget=Budget(tool_calls=1)) as agent:
        agent.on.result(lambda call, result: agent.cancel() if not result.ok else None)
        result = await agent.run("go")

        assert outline(agent.session, "tool/result", "step/end") == [
            "tool/result #c1 saw 1",
            "tool/result #c2 error BUDGET_EXHAUSTED the budget for tool calls is used up; the tool was not started",
            "step/end aborted",
        ]
        assert isinstance(result.reason, Aborted)
        assert_laws(agent.session)


async def test_a_spent_budget_beats_a_rejection_and_the_output_ceiling() -> None:
    """BU-04, ER-02"""
    async with Agent(ScriptedModel(max_tokens("cut")), budget=Budget(steps=1)) as agent:
        agent.on.pre_step(lambda proposal: Reject("no more") if proposal.step == 2 else None)
        agent.on.observe(AssistantMessage)(lambda event: agent.steer("go on"))
        result = await agent.run("go")

        assert result.reason == OverBudget("steps", 1, 1)
        assert_laws(agent.session)


async def test_a_rejection_beats_the_output_ceiling() -> None:
    """ER-02"""
    async with Agent(ScriptedModel(max_tokens("cut"))) as agent:
        agent.on.pre_step(lambda proposal: Reject("no more") if proposal.step == 2 else None, name="gate")
        agent.on.observe(AssistantMessage)(lambda event: agent.steer("go on"))
        result = await agent.run("go")

        assert result.reason == Blocked("no more", "gate")
        assert_laws(agent.session)


# Going on without a person


async def test_listeners_may_continue_a_turn_so_often() -> None:
    """BU-07"""
    async with Agent(
        ScriptedModel(*[says(f"answer {n}") for n in range(9)]), budget=Budget(forced=3)
    ) as agent:
        agent.on.turn_stopping(lambda stopping: Continue(f"go on {stopping.forced}"), name="driver")
        result = await agent.run("go")

        assert (result.reason, result.steps) == (OverBudget("forced", 3, 3), 4)
        assert [m.text for m in result.messages if m.role == "user"] == [
            "go",
            "go on 0",
            "go on 1",
            "go on 2",
        ]
        last = agent.session.facts(DecisionMade)[-1]  # over the cap it is on record, and nothing more
        assert (last.point, last.said[0].reason) == ("agent/turn-stopping", "go on 3")
        assert result.text == "answer 3"
        assert len(agent.inbox) == 0
        assert_laws(agent.session)


async def test_without_a_budget_the_bound_is_eight() -> None:
    """BU-07, D-15, UW-09"""
    async with Agent(ScriptedModel(*[says("x")] * 20)) as agent:
        agent.on.turn_stopping(lambda stopping: Continue("go on"))
        result = await agent.run("go")

        assert (result.reason, result.steps) == (OverBudget("forced", 8, 8), 9)
        assert_laws(agent.session)


async def test_no_continuation_at_all_may_be_allowed() -> None:
    """BU-07"""
    async with Agent(ScriptedModel(says("x")), budget=Budget(forced=0)) as agent:
        agent.on.turn_stopping(lambda stopping: Continue("go on"))
        result = await agent.run("go")

        assert (result.reason, result.steps) == (OverBudget("forced", 0, 0), 1)
        assert_laws(agent.session)


async def test_steering_from_a_stopping_listener_counts_and_is_taken_back_over_the_cap() -> None:
    """BU-07, D-15"""
    async with Agent(ScriptedModel(*[says("x")] * 9), budget=Budget(forced=1)) as agent:

        @agent.on.turn_stopping
        def steers(stopping: Stopping) -> None:
            stopping.agent.steer(f"once more {stopping.forced}")

        result = await agent.run("go")

        assert (result.reason, result.steps) == (OverBudget("forced", 1, 1), 2)
        assert len(agent.inbox) == 0
        removed = [fact for fact in agent.session.facts(InboxSpliced) if fact.removed]
        assert [fact.outcome for fact in removed] == ["canceled"]
        assert [m.source.kind for m in result.messages if m.text.startswith("once")] == ["plugin"]
        assert_laws(agent.session)


async def test_a_person_who_speaks_meanwhile_is_not_counted_and_not_taken_back() -> None:
    """D-15"""
    async with Agent(ScriptedModel(*[says("x")] * 9), budget=Budget(forced=1)) as agent:

        @agent.on.turn_stopping
        def person_comes(stopping: Stopping) -> Continue | None:
            if stopping.step <= 3:
                person = Message.user(f"I say {stopping.step}", source=Source("person", "ada"))
                stopping.agent.steer(person)
            return Continue("and me")

        result = await agent.run("go")

        # Three rounds with a person, one without; the next one is over the cap.
        assert (result.reason, result.steps) == (OverBudget("forced", 1, 1), 5)
        assert [m.text for m in result.messages if m.source.kind == "person"] == [
            "go",
            "I say 1",
            "I say 2",
            "I say 3",
        ]
        assert_laws(agent.session)


async def test_the_count_of_forced_continuations_starts_anew_with_each_turn() -> None:
    """BU-07"""
    async with Agent(ScriptedModel(*[says("x")] * 9), budget=Budget(forced=2)) as agent:
        agent.on.turn_stopping(lambda stopping: Continue("go on") if stopping.forced < 2 else None)

        assert [(await agent.run(prompt)).steps for prompt in ("a", "b")] == [3, 3]
        assert_laws(agent.session)


async def test_a_stop_hooks_one_force_counts_like_any_other() -> None:
    """BU-07, HK-17"""
    async with Agent(ScriptedModel(says("x"), says("y")), budget=Budget(forced=0)) as agent:

        @agent.hooks("Stop")
        def force(context: StopContext) -> HookResult:
            return HookResult(force_continue="go on")

        result = await agent.run("go")

        assert (result.reason, result.steps) == (OverBudget("forced", 0, 0), 1)
        assert_laws(agent.session)


# What is no budget


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": -1},
        {"steps": 1.5},
        {"steps": "3"},
        {"steps": True},
        {"requests": -1},
        {"tokens": float("inf")},
        {"forced": None},
        {"forced": -1},
        {"tool_calls": -1},
        {"tool_calls": {"look": -1}},
        {"tool_calls": {"look": "many"}},
        {"tool_calls": {7: 1}},
        {"tool_calls": "3"},
        {"wall": 0},
        {"wall": -2},
        {"wall": "5"},
        {"wall": True},
        {"wall": float("nan")},
        {"per": "month"},
    ],
    ids=repr,
)
def test_a_budget_that_means_nothing_is_refused_at_once(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Budget(**wrong)


async def test_a_budget_cannot_be_changed_once_it_is_made() -> None:
    limits = {"look": 1}
    budget = Budget(tool_calls=limits)
    with pytest.raises(AttributeError):
        budget.steps = 3
    limits["look"] = 99
    async with Agent(ScriptedModel(*looks(3)), tools=[look], budget=budget) as agent:
        assert (await agent.run("go")).reason == OverBudget("tool_calls:look", 1, 1)


async def test_a_model_that_calls_a_thousand_tools_in_one_answer_runs_what_is_allowed() -> None:
    """BU-03"""
    many = calls(*[call("look", at=str(n)) for n in range(1000)])
    async with Agent(ScriptedModel(many), tools=[look], budget=Budget(tool_calls=10)) as agent:
        result = await agent.run("go")

        assert result.reason == OverBudget("tool_calls", 10, 10)
        assert len(agent.session.facts(ToolStarted)) == 10
        assert [m.role for m in result.messages].count("tool") == 1000
        assert_laws(agent.session)
