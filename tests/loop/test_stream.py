"""Streams: from chunks to one message, to the prefix that was shown, or to a failure that nothing cites."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from interlock import Agent, Continue, ModelFailure, Reasoning, RetryPolicy, Signal, Text, ToolUse, tool
from interlock.log.assembly import Assembly
from interlock.log.facts import (
    AssistantChunk,
    AssistantMessage,
    Fact,
    Failure,
    RequestFailed,
    StepEnd,
    ToolCalled,
    Usage,
)
from interlock.log.reasons import Aborted, Completed, Failed, MaxTokens
from interlock.models import CallDelta, Chunk, Finish, ModelRequest, ReasoningDelta, TextDelta, UsageReport
from interlock.testing import (
    Gate,
    ScriptedModel,
    assert_laws,
    call,
    calls,
    chunks,
    cuts_off,
    fails,
    gated,
    hangs,
    max_tokens,
    nothing,
    outline,
    reasons,
    says,
)

AT_ONCE = RetryPolicy(base=0)
NEVER = RetryPolicy(retries=0)


@tool(effect="read", concurrency="parallel")
async def echo(word: str = "") -> str:
    return word


class Adapter:
    """An adapter made of one function: from the number of the attempt to whatever `stream` returns."""

    provider = name = "foreign"

    def __init__(self, stream: Callable[[int], Any], retry: RetryPolicy = NEVER) -> None:
        self._stream = stream
        self.retry = retry
        self.asked = 0

    def stream(self, request: ModelRequest, signal: Signal) -> AsyncIterator[Chunk]:
        self.asked += 1
        stream: AsyncIterator[Chunk] = self._stream(self.asked)
        return stream

    async def aclose(self) -> None:
        pass


async def given(*parts: Any) -> AsyncIterator[Chunk]:
    for part in parts:
        yield part


def seqs(agent: Agent, *types: type[Fact]) -> list[int]:
    return [event.seq for event in agent.session.events if isinstance(event.fact, types)]


def only(agent: Agent, fact: type[Fact]) -> Any:
    (found,) = agent.session.facts(fact)
    return found


def cited(agent: Agent, seq: int) -> list[int]:
    """The seqs that a line cites, with its ranges written out."""
    found: list[int] = []
    for span in agent.session.events[seq].causes:
        found += range(span[0], span[1] + 1) if isinstance(span, tuple) else [span]
    return found


# Chunks become a message


async def test_every_chunk_is_logged_in_order_and_the_message_is_what_they_assemble_to() -> None:
    """ST-01"""
    answer = reasons("why not", then=calls(call("echo", word="x"), saying="I will look."))
    async with Agent(ScriptedModel(answer, says("done")), tools=[echo]) as agent:
        await agent.run("go")

        first = agent.session.facts(AssistantMessage)[0]
        assembly = Assembly()
        for chunk in agent.session.facts(AssistantChunk):
            if chunk.sent == first.sent:
                assembly.add(chunk)
        assert assembly.blocks() == first.blocks
        assert first.blocks == (
            Reasoning("why not"),
            Text("I will look."),
            ToolUse("c1", "echo", '{"word": "x"}'),
        )
        assert_laws(agent.session)


async def test_deltas_of_one_block_may_be_spread_over_the_stream() -> None:
    """ST-01"""
    answer = chunks(
        TextDelta("one ", block=0),
        CallDelta(1, "k", "echo", '{"wo'),
        TextDelta("line", block=0),
        CallDelta(1, arguments='rd": "x"}'),
        Finish("calls"),
    )
    async with Agent(ScriptedModel(answer, says("done")), tools=[echo]) as agent:
        await agent.run("go")

        message = agent.session.facts(AssistantMessage)[0]
        assert message.blocks == (Text("one line"), ToolUse("k", "echo", '{"word": "x"}'))
        assert_laws(agent.session)


async def test_what_comes_after_the_finish_is_logged_and_ignored_usage_apart() -> None:
    """ST-01: stragglers are ignored; some servers send the usage last."""
    late = chunks(
        TextDelta("all"),
        Finish("stop"),
        TextDelta(" and more"),
        CallDelta(1, "c9", "echo", "{}"),
        Finish("max-tokens"),
        UsageReport(Usage(input=7, output=2)),
    )
    async with Agent(ScriptedModel(late), tools=[echo]) as agent:
        result = await agent.run("go")

        message = only(agent, AssistantMessage)
        assert (message.blocks, message.finish, message.usage) == ((Text("all"),), "stop", Usage(7, 2))
        assert len(agent.session.facts(AssistantChunk)) == 6
        assert result.reason == Completed()
        assert_laws(agent.session)


async def test_an_answer_without_content_is_on_record_but_not_in_the_history() -> None:
    """ST-02"""
    async with Agent(ScriptedModel(nothing(usage=(5, 0)), says("later"))) as agent:
        result = await agent.run("go")

        message = only(agent, AssistantMessage)
        assert (message.blocks, message.usage) == ((), Usage(5, 0))
        assert cited(agent, seqs(agent, AssistantMessage)[0]) == seqs(agent, AssistantChunk)
        assert result.reason == Completed()
        assert (result.text, [m.role for m in result.messages]) == ("", ["user"])
        await agent.run("again")
        assert [m.role for m in agent.session.history.view()] == ["user", "user", "assistant"]
        assert_laws(agent.session)


async def test_a_message_cites_the_chunks_of_its_own_attempt_and_nothing_between_them() -> None:
    """ST-02"""
    gate = Gate()
    model = ScriptedModel(fails("SERVER", after="lost words"), gated(gate, says("a b c"), after=2), says("d"))
    async with Agent(model, retry=AT_ONCE) as agent:
        running = asyncio.create_task(agent.run("go"))
        await gate.reached
        agent.steer("meanwhile")  # its line lies between two chunks
        gate.open()
        await running

        answered = agent.session.facts(AssistantMessage)[0]
        own = [
            event.seq
            for event in agent.session.events
            if isinstance(event.fact, AssistantChunk) and event.fact.sent == answered.sent
        ]
        spliced = own[1] + 1
        assert own == [own[0], own[1], spliced + 1, spliced + 2]
        assert agent.session.events[seqs(agent, AssistantMessage)[0]].causes == (
            (own[0], own[1]),
            (own[2], own[3]),
        )
        assert_laws(agent.session)


# Stopping in the middle


async def test_a_stop_in_mid_stream_keeps_what_was_shown() -> None:
    """ST-03, ST-05, A-P8"""
    model = ScriptedModel(hangs("partial answer"), says("I go on."))
    async with Agent(model) as agent:
        agent.on.observe(AssistantChunk)(
            lambda event: agent.cancel() if event.fact.text == "answer" else None
        )
        stopped = await agent.run("go")
        await agent.run("and now?")

        assert isinstance(stopped.reason, Aborted)
        assert outline(agent.session, "user/message", "assistant/message", "step/end", "turn/end") == [
            "user/message go",
            "assistant/message partial answer (interrupted)",
            "step/end aborted",
            "turn/end aborted (user)",
            "user/message and now?",
            "assistant/message I go on.",
            "step/end completed",
            "turn/end completed",
        ]
        message = agent.session.facts(AssistantMessage)[0]
        assert cited(agent, seqs(agent, AssistantMessage)[0]) == seqs(agent, AssistantChunk)[:2]
        assert message.finish is None
        assert model.requests[1].messages[1].text == "partial answer"  # the model reads what was shown
        assert_laws(agent.session)


@pytest.mark.parametrize(
    ("streamed", "kept"),
    [
        pytest.param((TextDelta("a"), CallDelta(1, "c", "echo", "{")), (Text("a"),), id="calls are dropped"),
        pytest.param((TextDelta(" \n"), TextDelta("b", 1)), (Text("b"),), id="white space is not shown"),
        pytest.param(
            (ReasoningDelta("r", 0, "signed"), TextDelta("c", 1)),
            (Reasoning("r"), Text("c")),
            id="replay data is dropped",
        ),
        pytest.param((TextDelta("second", 1), ReasoningDelta("first", 0)), (Text("second"), Reasoning("first")), id="order of arrival"),
        pytest.param((CallDelta(0, "c", "echo", '{"word"'),), (), id="nothing was visible"),
        pytest.param((), (), id="nothing was streamed"),
    ],
)  # fmt: skip
async def test_only_the_visible_prefix_of_an_interrupted_answer_is_kept(
    streamed: tuple[Chunk, ...], kept: tuple[Any, ...]
) -> None:
    """ST-03: where nothing was visible, there is no message."""
    gate = Gate()
    usage = UsageReport(Usage(input=3, output=1))
    async with Agent(ScriptedModel(chunks(*streamed, usage, gate, Finish("calls"))), tools=[echo]) as agent:
        running = asyncio.create_task(agent.run("go"))
        await gate.reached
        agent.cancel()
        await running

        found = agent.session.facts(AssistantMessage)
        assert [(m.blocks, m.interrupted, m.usage) for m in found] == (
            [(kept, True, Usage(3, 1))] if kept else []
        )
        roles = [m.role for m in agent.session.history.view()]
        assert roles == (["user", "assistant"] if kept else ["user"])
        assert not agent.session.facts(ToolCalled)
        assert_laws(agent.session)


async def test_a_stop_on_the_finish_chunk_keeps_the_text_and_drops_the_calls() -> None:
    """ST-04, A-P19"""
    async with Agent(ScriptedModel(calls(call("echo"), saying="full text")), tools=[echo]) as agent:
        agent.on.observe(AssistantChunk)(
            lambda event: agent.cancel() if event.fact.kind == "finish" else None
        )
        await agent.run("go")

        assert outline(agent.session) == [
            "user/message go",
            "assistant/message full text (interrupted)",
            "turn/end aborted (user)",
        ]
        assert_laws(agent.session)


async def test_a_stop_once_the_answer_stands_pairs_its_calls() -> None:
    """ST-04, SC-09"""
    async with Agent(ScriptedModel(calls(call("echo"), call("echo"), saying="both")), tools=[echo]) as agent:
        agent.on.observe(AssistantMessage)(lambda event: agent.cancel())
        await agent.run("go")

        aborted = "error ABORTED_BEFORE_DISPATCH tool call aborted before dispatch"
        assert outline(agent.session) == [
            "user/message go",
            "assistant/message both -> echo#c1 -> echo#c2",
            "tool/call echo#c1",
            f"tool/result #c1 {aborted}",
            "tool/call echo#c2",
            f"tool/result #c2 {aborted}",
            "turn/end aborted (user)",
        ]
        assert_laws(agent.session)


async def test_no_chunk_is_logged_after_the_stop_even_from_a_stream_that_ignores_it() -> None:
    """ST-11: such a stream holds the turn until it ends."""
    shown, released = asyncio.Event(), asyncio.Event()

    async def stubborn(attempt: int) -> AsyncIterator[Chunk]:
        yield TextDelta("before")
        shown.set()
        try:
            await released.wait()
        except asyncio.CancelledError:
            await released.wait()
        yield TextDelta(" after")
        yield Finish()

    async with Agent(Adapter(stubborn)) as agent:
        running = asyncio.create_task(agent.run("go"))
        await shown.wait()
        agent.cancel()
        await asyncio.sleep(0)
        assert agent.session.open  # it is waited for
        released.set()
        result = await running

        assert isinstance(result.reason, Aborted)
        assert [chunk.text for chunk in agent.session.facts(AssistantChunk)] == ["before"]
        assert_laws(agent.session)


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
async def test_an_adapter_may_look_at_the_signal_itself(wrapped: bool) -> None:
    """ST-03: its end is the stop and no failure, and what was shown is kept."""

    class Looks(Adapter):
        async def stream(self, request: ModelRequest, signal: Signal) -> AsyncIterator[Chunk]:
            yield TextDelta("shown")
            signal.raise_if_set()
            yield Finish()

    async with Agent(Looks(lambda attempt: None)) as agent:
        if wrapped:
            agent.on.model_stream(lambda request, following: following())
        agent.on.observe(AssistantChunk)(lambda event: agent.cancel())
        await agent.run("go")

        assert outline(agent.session, "assistant/message", "request/failed", "turn/end") == [
            "assistant/message shown (interrupted)",
            "turn/end aborted (user)",
        ]
        assert_laws(agent.session)


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "wrapped"])
@pytest.mark.parametrize("how", ["completes", "stops", "breaks"])
async def test_the_adapters_stream_is_closed_before_the_step_ends(how: str, wrapped: bool) -> None:
    """Law 9: a connection does not outlive its request, however that ends."""
    open_streams: list[int] = []
    at_the_end: list[list[int]] = []

    async def stream(attempt: int) -> AsyncIterator[Chunk]:
        open_streams.append(attempt)
        try:
            yield TextDelta("x")
            yield Finish()
        finally:
            await asyncio.sleep(0)  # as closing a connection does
            open_streams.remove(attempt)

    async with Agent(Adapter(stream)) as agent:
        if wrapped:

            @agent.on.model_stream
            async def through(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
                async for chunk in following():
                    if how == "breaks":
                        raise RuntimeError("the wrapper breaks")
                    yield chunk

        @agent.on.observe(AssistantChunk)
        def seen(event: Any) -> None:
            if how == "stops":
                agent.cancel()

        agent.on.observe(StepEnd)(lambda event: at_the_end.append(list(open_streams)))
        await agent.run("go")

        assert at_the_end == [[]]
        assert_laws(agent.session)


# Failure and the output ceiling


async def test_a_failed_attempt_leaves_chunks_that_nobody_cites() -> None:
    """ST-06, A-P11"""
    model = ScriptedModel(fails("SERVER", after="half an"), says("whole answer"))
    async with Agent(model, retry=AT_ONCE) as agent:
        await agent.run("go")

        failed_at, answered_at = [fact.sent for fact in agent.session.facts(RequestFailed, AssistantMessage)]
        assert failed_at < answered_at
        lost = [
            event.seq
            for event in agent.session.events
            if isinstance(event.fact, AssistantChunk) and event.fact.sent == failed_at
        ]
        assert len(lost) == 2
        everything = [seq for event in agent.session.events for seq in cited(agent, event.seq)]
        assert not set(lost) & set(everything)
        assert [m.text for m in agent.session.history.view()] == ["go", "whole answer"]
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_stop_during_recovery_leaves_no_message() -> None:
    """ST-06"""
    async with Agent(ScriptedModel(fails("SERVER", after="half"))) as agent:
        running = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(0.1)  # inside the wait of half a second
        agent.cancel()
        result = await running

        assert isinstance(result.reason, Aborted)
        assert not agent.session.facts(AssistantMessage)
        assert_laws(agent.session)


async def test_at_the_output_ceiling_the_text_stays_and_no_call_runs() -> None:
    """ST-07"""
    cut = max_tokens("so far", call("echo", word="x"), call("echo", raw='{"wo'))
    async with Agent(ScriptedModel(cut), tools=[echo]) as agent:
        result = await agent.run("go")

        message = only(agent, AssistantMessage)
        assert (message.blocks, message.finish, message.dropped_calls) == (
            (Text("so far"),),
            "max-tokens",
            2,
        )
        assert not agent.session.facts(ToolCalled)
        assert (result.reason, only(agent, StepEnd).reason) == (MaxTokens(), "max-tokens")
        assert_laws(agent.session)


async def test_the_ceiling_sticks_to_its_turn_and_not_to_the_next_one() -> None:
    """ST-08"""
    async with Agent(ScriptedModel(max_tokens("cut"), says("whole"), says("fresh"))) as agent:
        agent.on.turn_stopping(
            lambda stopping: Continue("go on") if (stopping.turn, stopping.step) == (1, 1) else None
        )
        first = await agent.run("go")
        second = await agent.run("again")

        assert (first.reason, first.text, first.steps) == (MaxTokens(), "whole", 2)
        assert second.reason == Completed()
        assert_laws(agent.session)


async def test_what_the_turn_earned_and_what_it_owes_are_two_things() -> None:
    """ST-09, UW-01: a turn that met the ceiling still answers the results of a later step."""
    gate = Gate()
    model = ScriptedModel(gated(gate, max_tokens("cut")), calls("echo"), says("read the result"))
    async with Agent(model, tools=[echo]) as agent:
        running = asyncio.create_task(agent.run("go"))
        await gate.reached
        agent.steer("use the tool")
        gate.open()
        result = await running

        assert (result.reason, result.steps, len(model.requests)) == (MaxTokens(), 3, 3)
        assert result.text == "read the result"
        assert_laws(agent.session)


# What models do wrong


async def test_calls_decide_and_not_the_label_of_the_finish() -> None:
    """TL-10"""
    labelled_stop = chunks(CallDelta(0, "k", "echo", '{"word": "ran"}'), Finish("stop"))
    labelled_calls = chunks(TextDelta("no calls at all"), Finish("calls"))
    model = ScriptedModel(labelled_stop, labelled_calls)
    async with Agent(model, tools=[echo]) as agent:
        result = await agent.run("go")

        assert outline(agent.session, "tool/result", "turn/end") == [
            "tool/result #k ran",
            "turn/end completed",
        ]
        assert result.text == "no calls at all"
        assert_laws(agent.session)


async def test_repeated_and_missing_ids_are_renamed_and_the_rename_is_on_record() -> None:
    """D-9, UW-20"""
    answer = chunks(
        CallDelta(0, "x", "echo", '{"word": "0"}'),
        CallDelta(1, "x", "echo", '{"word": "1"}'),
        CallDelta(2, "x-2", "echo", '{"word": "2"}'),
        CallDelta(3, None, "echo", '{"word": "3"}'),
        CallDelta(4, "", "echo", '{"word": "4"}'),
        Finish("calls"),
    )
    model = ScriptedModel(answer, says("done"))
    async with Agent(model, tools=[echo]) as agent:
        await agent.run("go")

        assert outline(agent.session, "tool/result") == [
            "tool/result #x 0",
            "tool/result #x-3 1",
            "tool/result #x-2 2",
            "tool/result #call-1-1-3 3",
            "tool/result #call-1-1-4 4",
        ]
        message = agent.session.facts(AssistantMessage)[0]
        assert message.renamed == {"x-3": "x", "call-1-1-3": "", "call-1-1-4": ""}
        answered = [m.content[0].call_id for m in model.requests[1].messages if m.role == "tool"]
        assert answered == [use.id for use in model.requests[1].messages[1].calls]
        assert_laws(agent.session)


async def test_a_server_may_use_the_same_id_in_every_step() -> None:
    """D-9: a call's identity is the line of its tool/call."""
    model = ScriptedModel(
        calls(call("echo", id="call_0", word="first")),
        calls(call("echo", id="call_0", word="second")),
        says("done"),
    )
    seen: list[tuple[int, str]] = []
    async with Agent(model, tools=[echo]) as agent:
        agent.on.result(lambda call, result: seen.append((call.key, call.id)))
        await agent.run("go")

        assert seen == [(seq, "call_0") for seq in seqs(agent, ToolCalled)]
        assert all(message.renamed is None for message in agent.session.facts(AssistantMessage))
        assert_laws(agent.session)


async def test_a_stream_without_a_finish_is_a_failure_and_its_calls_never_run() -> None:
    """D-10, UW-15"""
    cut = chunks(TextDelta("then"), CallDelta(1, "c", "echo", '{"word": "whole"}'))
    model = ScriptedModel(cut, cuts_off(), says("third time"))
    async with Agent(model, tools=[echo], retry=AT_ONCE) as agent:
        result = await agent.run("go")

        assert [fact.failure.code for fact in agent.session.facts(RequestFailed)] == ["STREAM_CLOSED"] * 2
        assert not agent.session.facts(ToolCalled)
        assert result.text == "third time"
        assert [m.role for m in agent.session.history.view()] == ["user", "assistant"]
        assert_laws(agent.session)


async def test_a_stream_without_a_finish_ends_the_turn_when_nothing_retries() -> None:
    """D-10"""
    async with Agent(ScriptedModel(cuts_off("half")), retry=NEVER) as agent:
        result = await agent.run("go")

        assert result.reason == Failed("STREAM_CLOSED", "the stream ended without a finish")
        assert not agent.session.facts(AssistantMessage)
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_silent_stream_is_a_timeout_that_is_retried() -> None:
    """BU-05: the idle limit counts from the last chunk, and cuts nothing that still talks."""

    async def slow(attempt: int) -> AsyncIterator[Chunk]:
        for word in ("one ", "two ", "three"):
            await asyncio.sleep(2.9)
            yield TextDelta(word)
        if attempt == 1:
            await asyncio.sleep(3600)
        yield Finish()

    policy = RetryPolicy(retries=1, base=1, jitter=0, idle=3)
    async with Agent(Adapter(slow, policy)) as agent:
        began = asyncio.get_running_loop().time()
        result = await agent.run("go")

        assert asyncio.get_running_loop().time() - began == pytest.approx(3 * 2.9 + 3 + 1 + 3 * 2.9)
        assert only(agent, RequestFailed).failure == Failure("TIMEOUT", "no chunk came for 3 s")
        assert outline(agent.session, "retry/scheduled", "retry/started", "turn/end") == [
            "retry/scheduled",
            "retry/started",
            "turn/end completed",
        ]
        assert result.text == "one two three"
        assert_laws(agent.session)


def raising(error: BaseException) -> Callable[[int], Any]:
    async def stream(attempt: int) -> AsyncIterator[Chunk]:
        yield TextDelta("half")
        raise error

    return stream


def at_dispatch(error: Exception) -> Callable[[int], Any]:
    def stream(attempt: int) -> Any:
        raise error

    return stream


async def _coroutine(attempt: int) -> AsyncIterator[Chunk]:
    return given(TextDelta("x"), Finish())


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        pytest.param(raising(KeyError("choices")), "UNKNOWN", id="a foreign exception"),
        pytest.param(raising(TimeoutError()), "TIMEOUT", id="its own timeout"),
        pytest.param(raising(ConnectionResetError("reset")), "TRANSPORT", id="a broken connection"),
        pytest.param(raising(ModelFailure("no", code="AUTH", status=401)), "AUTH", id="a failure"),
        pytest.param(raising(asyncio.CancelledError()), "ABORTED", id="cancels itself"),
        pytest.param(at_dispatch(ModelFailure("down", code="SERVER")), "SERVER", id="fails at dispatch"),
        pytest.param(at_dispatch(TypeError("bad call")), "UNKNOWN", id="raises at dispatch"),
        pytest.param(_coroutine, "MALFORMED", id="a coroutine instead of a stream"),
        pytest.param(lambda n: None, "MALFORMED", id="no stream"),
        pytest.param(lambda n: given(), "STREAM_CLOSED", id="an empty stream"),
        pytest.param(lambda n: given({"text": "x"}, Finish()), "MALFORMED", id="a dict"),
        pytest.param(lambda n: given("text", Finish()), "MALFORMED", id="a string"),
        pytest.param(lambda n: given(TextDelta, Finish()), "MALFORMED", id="a class"),
        pytest.param(lambda n: given(TextDelta(None), Finish()), "MALFORMED", id="text that is none"),
        pytest.param(lambda n: given(ReasoningDelta(5), Finish()), "MALFORMED", id="reasoning that is a number"),
        pytest.param(lambda n: given(CallDelta(0, 7, "echo"), Finish()), "MALFORMED", id="an id that is a number"),
        pytest.param(lambda n: given(CallDelta(0, "c", "echo", {"word": "x"}), Finish()), "MALFORMED", id="arguments that are a dict"),
        pytest.param(lambda n: given(TextDelta("x", "0"), Finish()), "MALFORMED", id="a block that is text"),
        pytest.param(lambda n: given(TextDelta("a\ud83d"), Finish()), "MALFORMED", id="half of an emoji"),
        pytest.param(lambda n: given(UsageReport(None), Finish()), "MALFORMED", id="no usage"),
        pytest.param(lambda n: given(UsageReport(Usage("3", 1)), Finish()), "MALFORMED", id="usage that is text"),
        pytest.param(lambda n: given(Finish(None)), "MALFORMED", id="a finish without a reason"),
        pytest.param(lambda n: given(Finish("tired")), "MALFORMED", id="a reason that nobody knows"),
    ],
)  # fmt: skip
async def test_a_broken_adapter_fails_its_request_and_harms_nothing_else(
    stream: Callable[[int], Any], code: str
) -> None:
    """RE-01, RE-03: whatever an adapter does, the log stays lawful and the session goes on."""
    adapter = Adapter(lambda n: stream(n) if n == 1 else given(TextDelta("well again"), Finish()))
    async with Agent(adapter, tools=[echo]) as agent:
        result = await asyncio.wait_for(agent.run("go"), 5)

        assert isinstance(result.reason, Failed)
        assert result.reason.code == code
        assert only(agent, RequestFailed).failure.code == code
        assert not agent.session.facts(AssistantMessage)
        assert (await agent.run("again")).text == "well again"
        assert_laws(agent.session)


async def test_a_message_that_cannot_be_shown_is_said_to_be_so() -> None:
    """ER-03: an error that cannot be turned into text still gives a reason."""

    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    async with Agent(Adapter(raising(Unspeakable()))) as agent:
        result = await agent.run("go")

        assert isinstance(result.reason, Failed)
        assert "Unspeakable" in result.reason.message
        assert_laws(agent.session)
