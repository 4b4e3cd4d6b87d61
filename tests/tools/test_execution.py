"""Running a body: whatever it raises or returns, however it ends, or if it never does.

Async bodies run in simulated time; tests with sync bodies run in a real loop, since those have threads.
"""

from __future__ import annotations

import asyncio
import contextvars
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import (
    Accept,
    Agent,
    Cause,
    Message,
    Signal,
    Text,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolResult,
    tool,
)
from interlock.intercept.signal import Stopped
from interlock.log.facts import (
    CallError,
    RequestHeader,
    ToolAbandoned,
    ToolLate,
    ToolResulted,
    ToolSettled,
    ToolStarted,
)
from interlock.testing import ScriptedModel, assert_laws, call, calls, outline, says, shorthand
from interlock.tools.threads import run_in_thread


def calling(body: Tool, *wanted: Any, **settings: Any) -> Agent:
    return Agent(ScriptedModel(calls(*(wanted or (body.name,))), says("done")), tools=[body], **settings)


async def told(agent: Agent) -> str:
    """Run the agent once; what the model reads of its one call."""
    async with agent:
        assert (await agent.run("go")).ok
        assert_laws(agent.session)
    return text(agent)


def result_of(agent: Agent) -> ToolResulted:
    (result,) = agent.session.facts(ToolResulted)
    return result


def text(agent: Agent) -> str:
    return "\n".join([block.text for block in result_of(agent).content])


def code(agent: Agent) -> str:
    error = result_of(agent).error
    return error.code if error is not None else "ok"


def log(agent: Agent) -> list[str]:
    return [token for token in shorthand(agent.session) if token[:2] in ("TC", "ST", "SD", "TR", "TA", "TL")]


async def reached(event: threading.Event) -> None:
    """Wait for a thread."""
    await run_in_thread(event.wait)


async def stopped_after(agent: Agent, seconds: float, **how: Any) -> float:
    """Start the agent, stop it, and wait for the end; when that was."""
    receipt = agent.followup("go")
    await asyncio.sleep(seconds)
    agent.cancel(**how)
    await receipt.turn()
    assert_laws(agent.session)
    return asyncio.get_running_loop().time()


# What a body returns


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain text", "plain text"),
        ("", ""),
        (None, "null"),
        (3, "3"),
        (True, "true"),
        ({"a": [1, "é"]}, '{"a":[1,"é"]}'),
        (ToolOutput({"rows": 3}), '{"rows":3}'),
        (ToolOutput({"rows": 3}, "three rows"), "three rows"),
        (ToolOutput(None, ""), ""),
    ],
)
async def test_the_model_reads_the_value_or_the_text_that_stands_for_it(value: Any, shown: str) -> None:
    """TP-17."""

    @tool
    async def body() -> Any:
        return value

    assert await told(calling(body)) == shown


@pytest.mark.virtual
async def test_a_renderer_says_how_the_model_reads_a_value() -> None:
    @tool(render=lambda value: f"{value['n']} of {value['m']}")
    async def body() -> dict[str, int]:
        return {"n": 1, "m": 3}

    assert await told(calling(body)) == "1 of 3"


def fails(*_: object) -> Any:
    raise ValueError("a bug")


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("value", "render", "said"),
    [
        (object(), None, "object is not a JSON value"),
        (float("nan"), None, "nan is not a JSON number"),
        ("\ud800", None, "a lone surrogate"),
        ({1: 2}, None, "the key 1 is int, not str"),
        (ToolOutput(object()), None, "object is not a JSON value"),
        (ToolOutput("a", 5), None, "int is not text"),  # type: ignore[arg-type]  # that is the point
        (ToolOutput("a", "\ud800"), None, "a lone surrogate"),
        (ToolOutput("a", contexts=[5]), None, "a message is a str or an interlock.Message, not int"),  # type: ignore[list-item]
        ("a", fails, "its renderer failed: a bug"),
        ("a", lambda value: 5, "its renderer gave int, not text"),
        ("a", lambda value: "\ud800", "its renderer gave invalid Unicode"),
    ],
)
async def test_what_is_no_json_or_cannot_be_rendered_is_an_invalid_output(
    value: Any, render: Any, said: str
) -> None:
    """TP-17: a failure of the tool, and the turn goes on."""

    @tool(render=render)
    async def body() -> Any:
        return value

    agent = calling(body)
    shown = await told(agent)
    assert shown.startswith("Error [invalid_tool_output]: ") and said in shown
    assert result_of(agent).error == CallError("INVALID_TOOL_OUTPUT", "", handler_executed=True)


@pytest.mark.virtual
async def test_a_value_of_another_type_than_declared_is_an_invalid_output() -> None:
    @tool
    async def body() -> str:
        return 1  # type: ignore[return-value]  # that is the point

    assert await told(calling(body)) == "Error [invalid_tool_output]: declared to return str, got int"


@pytest.mark.virtual
async def test_a_huge_output_is_kept_whole() -> None:
    @tool
    async def body() -> str:
        return "x" * 20_000_000

    agent = calling(body)
    assert len(await told(agent)) == 20_000_000


@pytest.mark.virtual
async def test_a_body_that_changes_its_value_afterwards_changes_nothing() -> None:
    kept: list[list[int]] = []

    @tool
    async def body() -> Any:
        kept.append([1])
        return kept[0]

    agent = calling(body)

    def change(call: ToolCall, result: ToolResult) -> Accept:
        kept[0].append(2)
        assert result.value == (1,)
        return Accept()

    agent.on.post_execute(change)
    assert await told(agent) == "[1]"


# What a body raises


class Halt(BaseException):
    """Not an Exception."""


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class NotText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]  # noqa: PLE0307  # that is the point


RAISED: list[tuple[BaseException, str]] = [
    (ValueError("no such file"), "Error [tool_failed]: no such file"),
    (ValueError(), "Error [tool_failed]: ValueError"),
    (ToolError("try again"), "Error [tool_failed]: try again"),
    (ToolError("try again", code="busy"), "Error [busy]: try again"),
    (ToolError("no", code=5), "Error [tool_failed]: no"),  # type: ignore[arg-type]  # that is the point
    (ToolError("no", code="\ud800"), "Error [tool_failed]: no"),
    (ToolError("no", code=""), "Error [tool_failed]: no"),
    (AssertionError("wrong"), "Error [tool_failed]: wrong"),
    (TimeoutError("its own"), "Error [tool_failed]: its own"),
    (StopAsyncIteration("odd"), "Error [tool_failed]: odd"),
    (SystemExit(3), "Error [tool_failed]: the tool called exit(3)"),
    (SystemExit(), "Error [tool_failed]: the tool called exit(None)"),
    (Halt("stop"), "Error [tool_failed]: stop"),
    (Hostile(), "Error [tool_failed]: Hostile (its message cannot be shown)"),
    (NotText(), "Error [tool_failed]: NotText (its message cannot be shown)"),
    (ValueError("\ud800"), "Error [tool_failed]: ValueError (its message cannot be shown)"),
    (asyncio.CancelledError(), "Error [tool_failed]: the tool cancelled itself"),
    (MemoryError(), "Error [tool_failed]: MemoryError"),
    (
        BaseExceptionGroup("several", [Halt("a"), ValueError("b")]),
        "Error [tool_failed]: several (2 sub-exceptions)",
    ),
    (Stopped(Cause("user")), "Error [aborted]: tool call aborted"),
]


@pytest.mark.virtual
@pytest.mark.parametrize(("error", "shown"), RAISED)
async def test_whatever_an_async_body_raises_is_a_failure_that_the_model_reads(
    error: BaseException, shown: str
) -> None:
    """TP-24, TP-16: hostile exceptions and those that are no Exception included; the turn goes on."""

    @tool
    async def body() -> str:
        raise error

    agent = calling(body)
    assert await told(agent) == shown
    assert result_of(agent).error is not None and result_of(agent).error.handler_executed  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        *RAISED,
        (KeyboardInterrupt(), "Error [tool_failed]: KeyboardInterrupt: KeyboardInterrupt"),
        (GeneratorExit(), "Error [tool_failed]: GeneratorExit: GeneratorExit"),
        (StopIteration(7), "Error [tool_failed]: StopIteration: 7"),
    ],
)
async def test_whatever_a_sync_body_raises_is_a_failure_that_the_model_reads(
    error: BaseException, shown: str
) -> None:
    """In its thread a KeyboardInterrupt is no Ctrl-C."""

    @tool
    def body() -> str:
        raise error

    assert await told(calling(body)) == shown


@pytest.mark.virtual
async def test_the_class_of_the_exception_is_on_record() -> None:
    class NoSuchFile(ToolError):
        pass

    @tool
    async def body() -> str:
        raise NoSuchFile("where?", code="not_found")

    agent = calling(body)
    await told(agent)
    assert result_of(agent).error == CallError("NOT_FOUND", "NoSuchFile", handler_executed=True)


@pytest.mark.virtual
async def test_a_body_that_awaits_what_was_cancelled_has_failed_and_nothing_else_is() -> None:
    @tool
    async def body() -> str:
        task = asyncio.create_task(asyncio.sleep(9))
        task.cancel()
        await task
        return "never"

    assert await told(calling(body)) == "Error [tool_failed]: the tool cancelled itself"


@pytest.mark.virtual
async def test_a_body_without_end_of_recursion_has_failed() -> None:
    @tool
    async def body() -> str:
        def deeper(n: int) -> int:
            return deeper(n + 1)

        return str(deeper(0))

    assert (await told(calling(body))).startswith("Error [tool_failed]: maximum recursion depth exceeded")


@pytest.mark.slow
def test_a_ctrl_c_during_an_async_body_ends_the_program() -> None:
    """It is the person's, not the tool's."""
    program = """
        import asyncio
        from interlock import Agent, tool
        from interlock.testing import ScriptedModel, calls

        @tool
        async def body() -> str:
            raise KeyboardInterrupt

        async def main():
            async with Agent(ScriptedModel(calls("body")), tools=[body]) as agent:
                await agent.run("go")

        asyncio.run(main())
    """
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode != 0
    assert "\nKeyboardInterrupt" in ended.stderr


# Sync bodies


async def test_a_sync_body_runs_in_a_thread_with_its_context() -> None:
    who: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")
    seen: list[Any] = []

    @tool
    def body(ctx: ToolContext) -> str:
        seen.extend([threading.get_ident() != main, who.get()])
        ctx.defer("from the thread")
        ctx.progress("half")
        ctx.conclude()
        return "done"

    main = threading.get_ident()
    who.set("somebody")
    agent = Agent(ScriptedModel(calls("body")), tools=[body])
    shown: list[str] = []
    agent.on.progress(lambda call, text: shown.append(text))
    assert await told(agent) == "done"
    assert seen == [True, "somebody"]
    assert shown == ["half"]
    assert [message.text for message in result_of(agent).contexts] == ["from the thread"]
    assert result_of(agent).conclude


async def test_sync_bodies_overlap_when_they_may() -> None:
    together = threading.Barrier(3)

    @tool(concurrency="parallel")
    def body() -> int:
        return together.wait() * 0

    agent = calling(body, call("body"), call("body"), call("body"))
    async with agent:
        assert (await agent.run("go")).ok


async def test_a_sync_body_is_told_of_a_stop_by_its_signal_and_awaited() -> None:
    """D-19, CA-09, TP-15: nothing can stop a thread but its own code."""
    begun, may_end = threading.Event(), threading.Event()
    seen: list[str] = []

    @tool
    def body(ctx: ToolContext) -> str:
        begun.set()
        may_end.wait()
        cause = ctx.signal.cause
        seen.append(cause.kind if cause is not None else "none")
        return "ended by itself"

    async with calling(body) as agent:
        receipt = agent.followup("go")
        await reached(begun)
        agent.cancel()
        waiting = asyncio.create_task(receipt.turn())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not waiting.done(), "the turn waits for its body"
        may_end.set()
        await waiting
        assert seen == ["user"]
        assert (code(agent), log(agent)[-2:]) == ("ABORTED", ["SD c1 ERR[ABORTED]", "TR c1 ERR[ABORTED]"])
        assert_laws(agent.session)


async def test_a_wrapper_that_gives_up_waiting_does_not_give_up_the_body() -> None:
    """TP-15: no race ever abandons a started body."""
    begun, may_end = threading.Event(), threading.Event()
    ended: list[str] = []

    @tool
    def body(ctx: ToolContext) -> str:
        begun.set()
        may_end.wait()
        ended.append("the body")
        return "done"

    async def impatient(call: ToolCall, following: Any) -> ToolResult:
        running = asyncio.create_task(following())
        await reached(begun)
        running.cancel()
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.wait([running])
        ended.append("the wrapper's wait")
        return ToolResult(call=call, content=(), value="a fallback")

    agent = calling(body)
    agent.on.execute(impatient)
    await told(agent)
    assert ended == ["the body", "the wrapper's wait"]


# Time


@pytest.mark.virtual
async def test_a_body_that_exceeds_its_timeout_is_cut_and_its_contexts_stay() -> None:
    """TP-26."""

    @tool(timeout=2)
    async def body(ctx: ToolContext) -> str:
        ctx.defer("said in time")
        await asyncio.sleep(9)
        return "never"

    agent = calling(body)
    assert await told(agent) == "Error [tool_timeout]: body took longer than its 2 s"
    assert asyncio.get_running_loop().time() == 2
    assert [message.text for message in result_of(agent).contexts] == ["said in time"]
    assert result_of(agent).error == CallError("TOOL_TIMEOUT", "", handler_executed=True)


async def swallows() -> str:
    try:
        await asyncio.sleep(9)
    except asyncio.CancelledError:
        await asyncio.sleep(1)
    return "a success, after all"


async def fails_as_it_is_cut() -> str:
    try:
        await asyncio.sleep(9)
    finally:
        raise ValueError("while cleaning up")


@pytest.mark.virtual
@pytest.mark.parametrize(("body", "at"), [(swallows, 3), (fails_as_it_is_cut, 2)])
async def test_a_timeout_beats_whatever_the_body_comes_to_afterwards(body: Any, at: float) -> None:
    """TP-26, TP-15: it is awaited all the same."""
    agent = calling(tool("body", timeout=2)(body))
    assert await told(agent) == "Error [tool_timeout]: body took longer than its 2 s"
    assert asyncio.get_running_loop().time() == at


@pytest.mark.virtual
async def test_a_body_that_ends_in_time_leaves_no_timer() -> None:
    @tool(timeout=2)
    async def body() -> str:
        await asyncio.sleep(1)
        return "in time"

    agent = calling(body)
    assert await told(agent) == "in time"
    assert asyncio.get_running_loop().time() == 1


@pytest.mark.virtual
async def test_a_deadline_of_somebody_else_is_not_claimed() -> None:
    """TP-26."""

    @tool(timeout=5)
    async def body() -> str:
        async with asyncio.timeout(1):
            await asyncio.sleep(9)
        return "never"

    agent = calling(body)
    assert await told(agent) == "Error [tool_failed]: TimeoutError"


async def test_a_sync_body_that_exceeds_its_timeout_is_told_and_awaited() -> None:
    @tool(timeout=0.001)
    def body(ctx: ToolContext) -> str:
        told = threading.Event()
        ctx.signal.on_set(lambda cause: told.set())
        told.wait()
        return "when I was told"

    assert await told(calling(body)) == "Error [tool_timeout]: body took longer than its 0.001 s"


@pytest.mark.virtual
async def test_each_run_has_its_own_time() -> None:
    """D-18, TP-26."""
    runs: list[float] = []

    @tool(effect="read", timeout=2)
    async def body() -> str:
        runs.append(asyncio.get_running_loop().time())
        await asyncio.sleep(9 if len(runs) == 1 else 1)
        return "at last"

    async def retries(call: ToolCall, following: Any) -> Any:
        result = await following()
        return result if result.ok else await following()

    agent = calling(body)
    agent.on.execute(retries)
    assert await told(agent) == "at last"
    assert runs == [0, 2]


@pytest.mark.virtual
async def test_what_a_tool_declares_about_itself_is_not_shown_to_the_model() -> None:
    """TP-26."""

    @tool(timeout=2, effect="read", concurrency="parallel", stop="process")
    async def body(n: int, ctx: ToolContext) -> str:
        return "x"

    agent = calling(body, call("body", n=1))
    await told(agent)
    (header,) = agent.session.facts(RequestHeader)
    (shown,) = header.tools
    assert set(shown.schema["properties"]) == {"n"}
    assert "timeout" not in str(shown)


@pytest.mark.virtual
async def test_the_end_of_an_outer_calls_time_is_the_end_of_its_nested_calls() -> None:
    """D-19, TP-25: the signal is set and stopping begins in the same tick."""
    causes: list[Any] = []

    @tool
    async def inner(ctx: ToolContext) -> str:
        try:
            await asyncio.sleep(9)
        finally:
            causes.append(ctx.signal.is_set())
        return "never"

    @tool(timeout=2)
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call_tool("inner")).text or ""

    agent = Agent(ScriptedModel(calls("outer"), says("done")), tools=[inner, outer])
    assert await told(agent) == "Error [tool_timeout]: outer took longer than its 2 s"
    assert (asyncio.get_running_loop().time(), causes) == (2, [True])


# A stop


@pytest.mark.virtual
async def test_a_stop_sets_the_signal_and_cuts_an_async_body_once_in_the_same_tick() -> None:
    """D-19."""
    seen: list[str] = []

    @tool
    async def body(ctx: ToolContext) -> str:
        ctx.signal.on_set(lambda cause: seen.append(f"set at {asyncio.get_running_loop().time():g}"))
        ctx.defer("said before")
        for _ in range(2):
            try:
                await asyncio.sleep(3)
            except asyncio.CancelledError:
                seen.append(f"cut at {asyncio.get_running_loop().time():g}")
        seen.append(f"ends at {asyncio.get_running_loop().time():g}")
        raise ctx_failed

    ctx_failed = ToolError("my own end", code="half_done")
    async with calling(body) as agent:
        assert await stopped_after(agent, 1) == 4
        assert seen == ["set at 1", "cut at 1", "ends at 4"]
        assert text(agent) == "Error [half_done]: my own end", "a failure keeps its identity (TP-16)"
        assert [message.text for message in result_of(agent).contexts] == ["said before"]


@pytest.mark.virtual
async def test_a_body_that_ends_because_it_is_cut_is_aborted() -> None:
    """TP-16."""

    @tool
    async def body(ctx: ToolContext) -> str:
        ctx.defer("said before")
        await asyncio.sleep(9)
        return "never"

    async with calling(body) as agent:
        assert await stopped_after(agent, 1) == 1
        assert text(agent) == "Error [aborted]: tool call aborted"
        assert [message.text for message in result_of(agent).contexts] == ["said before"]
        assert result_of(agent).error == CallError("ABORTED", "", handler_executed=True)


@pytest.mark.virtual
async def test_a_success_after_the_stop_is_aborted_and_kept_for_people() -> None:
    """D-19b: the content is in tool/settled, with the code of the result."""
    agent = calling(tool("body")(swallows))
    async with agent:
        assert await stopped_after(agent, 1) == 2
        assert log(agent) == ["TC c1", "ST c1", "SD c1 ERR[ABORTED]", "TR c1 ERR[ABORTED]"]
        (settled,) = agent.session.facts(ToolSettled)
        assert settled.content == (Text("a success, after all"),)


@pytest.mark.virtual
async def test_a_success_before_the_stop_stays_one_however_late_its_review_is() -> None:
    """D-19b, story 4."""

    @tool(concurrency="parallel")
    async def body(seconds: int) -> str:
        await asyncio.sleep(seconds)
        return "in time"

    agent = calling(body, call("body", seconds=9), call("body", seconds=1))
    async with agent:
        await stopped_after(agent, 2)
        results = [fact.error.code if fact.error else "ok" for fact in agent.session.facts(ToolResulted)]
        assert results == ["ABORTED", "ok"]


@pytest.mark.virtual
async def test_a_body_that_shields_itself_is_awaited() -> None:
    """D-19, CA-09, A-P41."""
    done: list[str] = []

    async def work() -> None:
        await asyncio.sleep(5)
        done.append("work")

    @tool
    async def body() -> str:
        working = asyncio.create_task(work())
        try:
            await asyncio.shield(working)
        finally:
            await working
        return "done"

    async with calling(body) as agent:
        assert await stopped_after(agent, 1) == 5
        assert done == ["work"]
        assert code(agent) == "ABORTED"


@pytest.mark.virtual
async def test_a_process_body_is_told_by_its_signal_only() -> None:
    """D-19: it ends its processes, and says what came."""

    @tool(stop="process")
    async def body(ctx: ToolContext) -> str:
        await ctx.signal.wait()
        await asyncio.sleep(2)
        raise ToolError("killed; the output so far: ...", code="killed")

    async with calling(body) as agent:
        assert await stopped_after(agent, 1) == 3
        assert text(agent) == "Error [killed]: killed; the output so far: ..."


@pytest.mark.virtual
async def test_a_stop_right_after_the_start_invokes_no_body() -> None:
    """TP-14, TP-16: started on record, and never invoked."""
    invoked: list[str] = []

    @tool
    async def body() -> str:
        invoked.append("x")
        return "x"

    agent = calling(body)
    agent.on.observe(ToolStarted)(lambda event: agent.cancel())
    async with agent:
        await agent.run("go")
        assert (code(agent), invoked) == ("ABORTED_BEFORE_DISPATCH", [])
        assert result_of(agent).error == CallError("ABORTED_BEFORE_DISPATCH", "", handler_executed=False)
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_callback_on_the_signal_that_fails_makes_no_stop_ineffective() -> None:
    loop = asyncio.get_running_loop()
    problems: list[Any] = []
    loop.set_exception_handler(lambda loop, context: problems.append(context["exception"]))

    @tool
    async def body(ctx: ToolContext) -> str:
        ctx.signal.on_set(fails)
        await asyncio.sleep(9)
        return "never"

    async with calling(body) as agent:
        assert await stopped_after(agent, 1) == 1
        assert code(agent) == "ABORTED"
    assert [type(problem) for problem in problems] == [ValueError]


# Signals of wrappers


@tool(effect="read")
async def waits(ctx: ToolContext) -> str:
    try:
        await asyncio.sleep(9)
    except asyncio.CancelledError:
        cause = ctx.signal.cause
        raise ToolError(f"cut: {cause.kind if cause else None}") from None
    return "never"


def gives(signal: Signal | None) -> Any:
    async def wrapper(call: ToolCall, following: Any) -> Any:
        return await following(signal) if signal is not None else await following()

    return wrapper


@pytest.mark.virtual
@pytest.mark.parametrize("inner", [False, True])
async def test_a_wrapper_may_stop_the_body_by_a_signal_of_its_own(inner: bool) -> None:
    """TP-14: also if another wrapper stands between it and the body."""
    signal = Signal()
    agent = calling(waits)
    agent.on.execute(gives(signal))
    if inner:
        agent.on.execute(gives(None))
    asyncio.get_running_loop().call_later(2, signal.set, Cause("hook"))
    assert await told(agent) == "Error [tool_failed]: cut: hook"
    assert asyncio.get_running_loop().time() == 2


@pytest.mark.virtual
async def test_signals_of_several_wrappers_and_the_turn_are_merged_and_the_first_wins() -> None:
    """TP-14: the body sees it with its reason; the wrappers' own signals are left alone."""
    loop = asyncio.get_running_loop()
    for sooner, later, cause in ((2, 3, "hook"), (3, 2, "parent")):
        outer, inner = Signal(), Signal()
        agent = calling(waits)
        agent.on.execute(gives(outer))
        agent.on.execute(gives(inner))
        loop.call_later(sooner, outer.set, Cause("hook"))
        loop.call_later(later, inner.set, Cause("parent"))
        assert await told(agent) == f"Error [tool_failed]: cut: {cause}"

    quiet = Signal()
    agent = calling(waits)
    agent.on.execute(gives(quiet))
    async with agent:
        await stopped_after(agent, 1)
        assert text(agent) == "Error [tool_failed]: cut: user"
        assert not quiet.is_set()


@pytest.mark.virtual
async def test_a_signal_that_is_set_already_invokes_no_body() -> None:
    """TP-14."""
    signal = Signal()
    signal.set(Cause("hook"))
    agent = calling(waits)
    agent.on.execute(gives(signal))
    await told(agent)
    assert result_of(agent).error == CallError("ABORTED_BEFORE_DISPATCH", "", handler_executed=False)


@pytest.mark.virtual
async def test_after_the_run_a_wrappers_signal_reaches_nobody() -> None:
    """TP-14: listeners are removed."""
    signal, kept = Signal(), list[ToolContext]()

    @tool
    async def body(ctx: ToolContext) -> str:
        kept.append(ctx)
        return "x"

    agent = calling(body)
    agent.on.execute(gives(signal))
    await told(agent)
    signal.set(Cause("hook"))
    assert not kept[0].signal.is_set()


@pytest.mark.virtual
async def test_what_is_no_signal_is_the_wrappers_failure() -> None:
    agent = calling(waits)
    agent.on.execute(gives("soon"))  # type: ignore[arg-type]  # that is the point
    await told(agent)
    assert code(agent) == "HOOK_EXECUTION_ERROR"


# Bodies that do not end


@tool(effect="read")
async def stubborn(ctx: ToolContext) -> str:
    for _ in range(5):
        try:
            await asyncio.sleep(10)
        except asyncio.CancelledError:
            continue
    return "finished, long after"


@pytest.mark.virtual
async def test_without_grace_a_stop_waits_for_a_body_that_ignores_it() -> None:
    """CA-09, TP-15."""
    async with calling(stubborn) as agent:
        assert await stopped_after(agent, 1) == 41
        assert code(agent) == "ABORTED"


@pytest.mark.virtual
async def test_after_the_grace_it_is_given_up_on_record_and_its_late_end_too() -> None:
    """CA-12, D-19, UW-16: the result says that nobody knows; nothing reviews it."""
    reviewed: list[str] = []
    async with calling(stubborn) as agent:
        agent.on.post_execute(lambda call, result: reviewed.append(call.id))
        assert await stopped_after(agent, 1, grace=3) == 4
        assert log(agent) == ["TC c1", "ST c1", "TA c1", "TR c1 ERR[TOOL_OUTCOME_UNKNOWN]"]
        (abandoned,) = agent.session.facts(ToolAbandoned)
        assert (abandoned.after_ms, abandoned.how) == (3000, "cooperative")
        assert outline(agent.session)[-1] == "turn/end aborted (user)"
        await asyncio.sleep(60)
        (late,) = agent.session.facts(ToolLate)
        assert (late.ok, late.summary, late.ms) == (True, "finished, long after", 41_000)
        assert reviewed == []
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_body_that_ends_within_the_grace_is_not_given_up() -> None:
    agent = calling(tool("body")(swallows))
    async with agent:
        assert await stopped_after(agent, 1, grace=5) == 2
        assert code(agent) == "ABORTED"
        await asyncio.sleep(10)
        assert agent.session.facts(ToolAbandoned, ToolLate) == []


@pytest.mark.virtual
async def test_a_body_that_was_given_up_does_not_hold_the_next_turn() -> None:
    model = ScriptedModel(calls("stubborn"), says("next"))
    async with Agent(model, tools=[stubborn]) as agent:
        await stopped_after(agent, 1, grace=1)
        assert (await agent.run("again")).text == "next"
        assert asyncio.get_running_loop().time() == 2
        await asyncio.sleep(60)
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_nested_calls_of_a_body_that_was_given_up_are_closed_with_it() -> None:
    @tool
    async def outer(ctx: ToolContext) -> str:
        return (await asyncio.shield(asyncio.ensure_future(ctx.call_tool("stubborn")))).text or ""

    agent = Agent(ScriptedModel(calls("outer")), tools=[stubborn, outer])
    async with agent:
        assert await stopped_after(agent, 1, grace=1) == 2
        assert [t for t in shorthand(agent.session) if t.startswith(("SB", "SX", "TR"))] == [
            "SB c1:stubborn", "SX c1:stubborn ERR[TOOL_OUTCOME_UNKNOWN]", "TR c1 ERR[TOOL_OUTCOME_UNKNOWN]",
        ]  # fmt: skip
        await asyncio.sleep(60)
        assert_laws(agent.session)


async def test_a_thread_that_never_returns_holds_neither_the_turn_nor_the_exit_once_it_is_given_up() -> None:
    """D-19."""
    begun, never = threading.Event(), threading.Event()

    @tool
    def body() -> str:
        begun.set()
        never.wait()
        return "late"

    async with calling(body) as agent:
        receipt = agent.followup("go")
        await reached(begun)
        agent.cancel(grace=0)
        await receipt.turn()
        assert code(agent) == "TOOL_OUTCOME_UNKNOWN"
        assert_laws(agent.session)
    never.set()


# What the body is given


@pytest.mark.virtual
async def test_a_body_knows_its_call_its_folder_and_its_agent(tmp_path: Path) -> None:
    seen: list[Any] = []

    @tool
    async def body(ctx: ToolContext) -> str:
        seen.extend([ctx.call.id, ctx.cwd, ctx.agent, ctx.signal.is_set()])
        return "x"

    agent = calling(body, cwd=tmp_path)
    await told(agent)
    assert seen == ["c1", tmp_path, agent, False]


@pytest.mark.virtual
@pytest.mark.parametrize("context", [5, None, "\ud800", Message(role="assistant", content=(Text("I"),))])
async def test_a_context_that_cannot_be_said_is_refused_where_it_is_given(context: Any) -> None:
    """The tool reads it, and the batch goes on."""

    @tool
    async def body(ctx: ToolContext) -> str:
        ctx.defer(context)
        return "x"

    agent = calling(body)
    assert (await told(agent)).startswith("Error [invalid_tool_output]: ")


@pytest.mark.virtual
async def test_progress_is_shown_live_and_neither_logged_nor_able_to_break_anything() -> None:
    shown: list[str] = []

    @tool
    async def body(ctx: ToolContext) -> str:
        ctx.progress("half way")
        return "done"

    agent = calling(body)
    agent.on.progress(fails)
    agent.on.progress(lambda call, text: shown.append(f"{call.id} {text}"))
    assert await told(agent) == "done"
    assert shown == ["c1 half way"]
    assert all("half way" not in str(event.fact) for event in agent.session.events)


# Intent before effect


@pytest.mark.virtual
@pytest.mark.parametrize(
    ("effect", "waits_for_disk"), [("read", False), ("idempotent", True), ("write", True)]
)
async def test_the_start_of_a_body_with_effects_is_on_disk_before_it_begins(
    effect: Any, waits_for_disk: bool
) -> None:
    """Law 6: and not if the disk fails."""
    store = BrittleStore()
    barriers: list[int] = []

    @tool(effect=effect)
    async def body() -> str:
        barriers.append(store.barriers)
        return "x"

    started: list[int] = []
    agent = calling(body, store=store)
    agent.on.observe(ToolStarted)(lambda event: started.append(store.barriers))
    await told(agent)
    assert (barriers[0] > started[0]) == waits_for_disk


@pytest.mark.virtual
async def test_a_body_whose_start_cannot_be_written_does_not_begin() -> None:
    store, invoked = BrittleStore(), list[str]()

    @tool
    async def body() -> str:
        invoked.append("x")
        return "x"

    agent = calling(body, store=store)
    agent.on.observe(ToolStarted)(lambda event: store.break_now())
    async with agent:
        with pytest.raises(Exception, match="the disk is full"):
            await agent.run("go")
        assert invoked == []
        store.mend()


@pytest.mark.virtual
async def test_a_body_that_is_run_again_is_on_disk_again_before_it_begins() -> None:
    """D-18."""
    store, at = BrittleStore(), list[int]()

    @tool(effect="idempotent")
    async def body() -> str:
        at.append(store.barriers)
        return "x"

    async def twice(call: ToolCall, following: Any) -> Any:
        await following()
        return await following()

    agent = calling(body, store=store)
    agent.on.execute(twice)
    await told(agent)
    assert at[1] > at[0]
    assert [fact.run for fact in agent.session.facts(ToolStarted)] == [1, 2]
