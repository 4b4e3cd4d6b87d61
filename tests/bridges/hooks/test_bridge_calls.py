"""PreToolUse, PostToolUse, PostToolUseFailure and PostToolBatch in an agent's run: what each answer does."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Agent, Deny, ToolContext, ToolError, tool
from interlock.bridges.hooks import event as happening
from interlock.bridges.hooks.event import Occurrence
from interlock.bridges.hooks.verdict import Answer, InputChange, Permission, Problem
from interlock.log.facts import HookProblem, ToolPrepared, ToolResulted, UserMessage
from interlock.log.messages import Source
from interlock.testing import ScriptedModel, assert_laws, call, calls, outline, run_virtual, says

from .scripted_hooks import Recorder, handler, hooked, said, told, unanswered

pytestmark = pytest.mark.virtual
ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


@tool
async def write(name: str, mode: str = "w") -> str:
    ran.append(f"{name}:{mode}" if mode != "w" else name)
    return f"wrote {name}"


@tool(effect="read", concurrency="parallel")
async def wait(name: str, seconds: int = 0) -> str:
    ran.append(name)
    await asyncio.sleep(seconds)
    return name


@tool
async def broken() -> str:
    ran.append("broken")
    raise ToolError("it does not work", code="broken")


@tool
async def outer(ctx: ToolContext, name: str) -> str:
    return (await ctx.call_tool("write", name=name)).text or ""


def agent(*wanted: Any, pool: int = 10, approver: Any = None) -> Agent:
    model = ScriptedModel(calls(*wanted), says("done"))
    return Agent(model, tools=[write, wait, broken, outer], pool=pool, approver=approver)


def results(agent: Agent) -> list[str]:
    return outline(agent.session, "tool/result")


def deny(reason: str = "not here") -> Any:
    return said(permission=Permission("deny", reason))


def rewrites(merge: bool = False, **arguments: Any) -> Any:
    return said(input=InputChange(arguments, merge))


# PreToolUse


async def test_a_deny_reaches_the_model_and_the_body_does_not_run() -> None:
    running = agent(call("write", name="a"))
    hooked(running, PreToolUse=[deny()])
    async with running:
        assert (await running.run("go")).ok
        assert results(running) == ["tool/result #c1 error DENIED not here"]
        assert outline(running.session, "tool/decided") == [
            "tool/decided #c1 deny by hooks:PreToolUse: not here"
        ]
        assert told(running) == ["+ PreToolUse-1 {'permission': 'deny', 'reason': 'not here'}"]
        assert ran == []
        assert_laws(running.session)


async def test_advice_to_allow_overrules_nobody() -> None:
    running = agent(call("write", name="a"))
    hooked(running, PreToolUse=[said(permission=Permission("allow"))])
    running.on.pre_execute(lambda call: Deny("a rule says no"))
    async with running:
        await running.run("go")
        assert results(running) == ["tool/result #c1 error DENIED a rule says no"]
        assert ran == []


@pytest.mark.parametrize("verdict", ["ask", "defer"])
async def test_a_hook_that_asks_makes_a_person_decide(verdict: Any) -> None:
    running = agent(call("write", name="a"))
    hooked(running, PreToolUse=[said(permission=Permission(verdict, "sure?"))])
    async with running:
        await running.run("go")
        assert results(running) == [
            "tool/result #c1 error APPROVAL_UNAVAILABLE sure? (nobody is there to approve it)"
        ]
        assert ran == []


async def test_rewriters_are_folded_in_declared_order_whatever_finishes_first() -> None:
    async def slow(occurrence: Occurrence) -> Answer:
        await asyncio.sleep(5)
        return Answer(input=InputChange({"name": "slow", "mode": "a"}))

    running = agent(call("write", name="x"))
    hooked(running, PreToolUse=[slow, rewrites(merge=True, name="quick")])
    async with running:
        await running.run("go")
        assert ran == ["quick:a"]
        [prepared] = running.session.facts(ToolPrepared)
        assert (prepared.original, prepared.effective) == ({"name": "x"}, {"name": "quick", "mode": "a"})


@given(st.permutations([1, 2, 3]))
def test_the_outcome_of_a_rewrite_does_not_depend_on_who_is_quick(seconds: list[int]) -> None:
    async def one() -> None:
        ran.clear()

        def taking(n: int, name: str) -> Any:
            async def hook(occurrence: Occurrence) -> Answer:
                await asyncio.sleep(n)
                return Answer(input=InputChange({"name": name}))

            return hook

        running = agent(call("write", name="x"))
        hooked(running, PreToolUse=[taking(n, f"hook{i}") for i, n in enumerate(seconds)])
        async with running:
            await running.run("go")
        assert ran == ["hook2"]

    run_virtual(one())


async def test_a_rewrite_that_does_not_fit_the_tool_is_a_broken_contract_and_nothing_runs() -> None:
    running = agent(call("write", name="a"))
    hooked(running, PreToolUse=[rewrites(title="b")])
    async with running:
        await running.run("go")
        [result] = running.session.facts(ToolResulted)
        assert result.error is not None and result.error.code == "HOOK_CONTRACT_ERROR"
        assert ran == []


async def test_what_is_rewritten_is_what_rules_see() -> None:
    seen: list[object] = []
    running = agent(call("write", name="a"))
    hooked(running, PreToolUse=[rewrites(name="b")])
    running.on.pre_execute(lambda call: seen.append(call.arguments["name"]))
    async with running:
        await running.run("go")
    assert (seen, ran) == (["b"], ["b"])


@pytest.mark.parametrize(
    ("on_failure", "expected"), [(None, []), ("block", []), ("continue", ["a"])], ids=str
)
async def test_a_gate_that_fails_is_closed_unless_it_was_told_to_let_things_pass(
    on_failure: Any, expected: list[str]
) -> None:
    def fail(occurrence: Occurrence) -> Answer:
        raise OSError("cannot be started")

    running = agent(call("write", name="a"))
    hooked(running, (handler("PreToolUse", "gate", on_failure=on_failure), fail))
    async with running:
        await running.run("go")
        assert ran == expected
        [result] = running.session.facts(ToolResulted)
        assert (result.error.code if result.error else None) == (None if expected else "HOOK_EXECUTION_ERROR")
        assert_laws(running.session)


async def test_a_hook_that_stops_everything_beats_an_allow_and_ends_the_turn_at_once() -> None:
    running = agent(call("write", name="a"), call("write", name="b"))
    after = Recorder()
    hooked(
        running,
        PreToolUse=[said(permission=Permission("allow")), said(stop="enough", contexts=("noted",))],
        PostToolUse=[after],
        Stop=[after],
    )
    async with running:
        result = await running.run("go")
        assert result.ok and result.reason.by == "hook"  # type: ignore[union-attr]
        assert [line.split()[3] for line in results(running)] == ["HOOK_STOPPED_CONTINUATION"] * 2
        assert (ran, after.seen, len(running.model.requests)) == ([], [], 1)  # type: ignore[union-attr]
        assert outline(running.session, "user/message") == ["user/message go", "user/message noted"]
        assert_laws(running.session)


async def test_a_stop_before_one_call_lets_started_ones_end_and_starts_no_other() -> None:
    def hook(occurrence: Occurrence) -> Answer:
        stops = occurrence.what.input["name"] == "b"  # type: ignore[union-attr]
        return Answer(stop="enough" if stops else None)

    running = agent(*[call("wait", name=name, seconds=5) for name in "abc"])
    hooked(running, PreToolUse=[hook])
    async with running:
        await running.run("go")
        assert ran == ["a"]
        assert [line.split()[2] for line in results(running)] == ["a", "error", "error"]
        assert_laws(running.session)


async def test_the_hook_is_told_the_tool_the_arguments_and_the_model_s_id() -> None:
    hook = Recorder()
    running = agent(call("write", name="a"))
    hooked(running, PreToolUse=[hook])
    async with running:
        await running.run("go")
    assert hook.seen == [happening.PreToolUse(tool="write", tool_use_id="c1", input={"name": "a"})]


async def test_hooks_speak_in_nested_calls_too() -> None:
    def hook(occurrence: Occurrence) -> Answer | None:
        return Answer(permission=Permission("deny", "no")) if occurrence.what.tool == "write" else None  # type: ignore[union-attr]

    running = agent(call("outer", name="a"))
    hooked(running, PreToolUse=[hook])
    async with running:
        await running.run("go")
        assert ran == []
        assert "error DENIED" in results(running)[0]
        assert_laws(running.session)


async def test_invalid_and_unknown_calls_are_told_to_no_hook() -> None:
    hook = Recorder()
    running = agent(call("write", title="a"), call("nobody"))
    hooked(running, PreToolUse=[hook], PostToolUse=[hook], PostToolUseFailure=[hook])
    async with running:
        await running.run("go")
    assert hook.seen == []


# PostToolUse, PostToolUseFailure


async def test_another_output_is_what_the_model_reads() -> None:
    running = agent(call("write", name="a"))
    hooked(running, PostToolUse=[said(output="first"), said(output="second")])
    async with running:
        await running.run("go")
        assert results(running) == ["tool/result #c1 second"]
        assert told(running) == [
            "~ PostToolUse-1 {'updated_output': 'first'}",
            "+ PostToolUse-2 {'updated_output': 'second'}",
        ]


async def test_feedback_stands_beside_the_result_and_contexts_follow_it() -> None:
    running = agent(call("write", name="a"))
    hooked(running, PostToolUse=[said(block="format it", contexts=("a note",))])
    async with running:
        await running.run("go")
        assert results(running) == ["tool/result #c1 wrote a"]
        messages = [fact for fact in running.session.facts(UserMessage) if fact.source.kind == "hook"]
        assert [fact.content[0].text for fact in messages] == ["a note", "format it"]  # type: ignore[union-attr]
        assert {fact.source for fact in messages} == {Source("hook", "claude hooks/PostToolUse-1")}


async def test_a_failure_is_told_to_its_own_event() -> None:
    success, failure = Recorder(), Recorder(said(contexts=("it is known",)))
    running = agent(call("broken"))
    hooked(running, PostToolUse=[success], PostToolUseFailure=[failure])
    async with running:
        await running.run("go")
        [what] = failure.seen
        assert (what.tool, what.error) == ("broken", "Error [broken]: it does not work")
        assert success.seen == []
        assert outline(running.session, "user/message")[-1] == "user/message it is known"


async def test_a_denied_call_is_told_to_neither() -> None:
    """HK-13: its body did not run."""
    hook = Recorder()
    running = agent(call("write", name="a"))
    running.on.pre_execute(lambda call: Deny("no"))
    hooked(running, PostToolUse=[hook], PostToolUseFailure=[hook])
    async with running:
        await running.run("go")
    assert hook.seen == []


async def test_a_post_hook_can_end_the_turn() -> None:
    running = agent(call("write", name="a"), call("write", name="b"))
    hooked(running, PostToolUse=[said(stop="enough")])
    async with running:
        result = await running.run("go")
        assert (result.text, ran) == ("wrote a", ["a"])
        assert result.reason.by == "hook"  # type: ignore[union-attr]
        assert_laws(running.session)


# PostToolBatch


async def test_a_batch_is_told_once_and_whole_before_the_next_request() -> None:
    batch = Recorder(said(contexts=("both are done",)))
    running = agent(call("wait", name="a"), call("wait", name="b"))
    hooked(running, PreToolUse=[rewrites(merge=True, seconds=1)], PostToolBatch=[batch])
    async with running:
        assert (await running.run("go")).ok
        [what] = batch.seen
        assert [(c.tool, c.tool_use_id, c.input, c.response) for c in what.calls] == [
            ("wait", "c1", {"name": "a", "seconds": 1}, "a"),
            ("wait", "c2", {"name": "b", "seconds": 1}, "b"),
        ]
        assert outline(running.session, "user/message")[-1] == "user/message both are done"


async def test_a_batch_hook_that_blocks_ends_the_turn_before_the_next_request() -> None:
    running = agent(call("write", name="a"))
    hooked(running, PostToolBatch=[said(block="not further")])
    async with running:
        await running.run("go")
        assert outline(running.session)[-1] == "turn/end blocked by hooks:PostToolBatch: not further"
        assert len(running.model.requests) == 1  # type: ignore[union-attr]
        assert_laws(running.session)


async def test_an_answer_without_calls_is_no_batch() -> None:
    batch = Recorder()
    running = Agent(ScriptedModel(says("a"), says("b")))
    hooked(running, PostToolBatch=[batch])
    async with running:
        await running.run("go")
        await running.run("again")
    assert batch.seen == []


# On record


async def test_each_hook_has_its_two_lines_and_the_first_is_there_before_it_starts() -> None:
    open_lines: list[list[str]] = []
    running = agent(call("write", name="a"))

    def look(occurrence: Occurrence) -> None:
        open_lines.append(unanswered(running))

    hooked(running, PreToolUse=[look, look])
    async with running:
        await running.run("go")
        assert open_lines == [["PreToolUse", "PreToolUse"]] * 2
        assert unanswered(running) == []


async def test_a_stop_that_cuts_a_hook_is_on_record_and_nothing_runs() -> None:
    running = agent(call("write", name="a"))

    async def slow(occurrence: Occurrence) -> None:
        running.cancel()
        await asyncio.sleep(100)

    hooked(running, PreToolUse=[slow])
    async with running:
        await running.run("go")
        assert asyncio.get_running_loop().time() < 1
        assert (told(running), ran) == (["! PreToolUse-1 {}"], [])
        assert_laws(running.session)


async def test_a_problem_is_reported_once() -> None:
    problem = Problem("`hookEventName` is PreTool, not PreToolUse", "/hooks/x", 3)
    running = agent(call("write", name="a"), call("write", name="b"))
    hooked(
        running,
        problems=[Problem("matcher '[' is not a regular expression", "/hooks/y", 1)],
        PreToolUse=[said(problems=(problem,))],
    )
    async with running:
        await running.run("go")
        assert [(fact.file, fact.line) for fact in running.session.facts(HookProblem)] == [
            ("/hooks/y", 1),
            ("/hooks/x", 3),
        ]


async def test_a_hook_that_runs_once_is_not_run_again_in_the_session() -> None:
    hook = Recorder()
    running = agent(call("write", name="a"), call("write", name="b"))
    hooked(running, (handler("PreToolUse", "once", once=True), hook))
    async with running:
        await running.run("go")
    assert len(hook.seen) == 1
