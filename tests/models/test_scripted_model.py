"""ScriptedModel: what it streams, what it records, and where it waits."""

from __future__ import annotations

import asyncio

import pytest

from interlock.errors import ModelFailure
from interlock.intercept.signal import Signal
from interlock.log.facts import Usage
from interlock.log.messages import Message
from interlock.models.protocol import (
    CallDelta,
    Chunk,
    Finish,
    Model,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    UsageReport,
)
from interlock.models.scripted import (
    Answer,
    Gate,
    ScriptedModel,
    call,
    calls,
    chunks,
    cuts_off,
    fails,
    gated,
    hangs,
    max_tokens,
    nothing,
    reasons,
    says,
)


def request(*messages: Message) -> ModelRequest:
    return ModelRequest("scripted", "scripted", (), messages, (), {})


async def ask(model: ScriptedModel, *messages: Message) -> list[Chunk]:
    return [chunk async for chunk in model.stream(request(*messages), Signal())]


async def played(answer: Answer) -> list[Chunk]:
    return await ask(ScriptedModel(answer))


def test_it_is_a_model() -> None:
    model = ScriptedModel(name="small")
    assert isinstance(model, Model)
    assert (model.provider, model.name, model.retry) == ("scripted", "small", None)


async def test_text_comes_a_word_a_chunk_and_loses_nothing() -> None:
    text = " Two  words\nand a tail \n"
    *words, end = await played(says(text))
    assert [word.text for word in words if isinstance(word, TextDelta)] == [
        " Two ",
        " words\n",
        "and ",
        "a ",
        "tail ",
        "\n",
    ]
    assert "".join(word.text for word in words if isinstance(word, TextDelta)) == text
    assert end == Finish("stop")


async def test_usage_comes_before_the_finish() -> None:
    assert await played(says("x", usage=(7, 2))) == [
        TextDelta("x"),
        UsageReport(Usage(input=7, output=2)),
        Finish(),
    ]


async def test_one_call_or_several_are_numbered_over_the_models_life() -> None:
    model = ScriptedModel(
        calls("read", path="a"),
        calls(call("read", path="b"), call("grep", id="mine", pattern="é"), call("ls"), saying="I look."),
    )
    assert await ask(model) == [CallDelta(0, "c1", "read", '{"path": "a"}'), Finish("calls")]
    assert await ask(model) == [
        TextDelta("I "),
        TextDelta("look."),
        CallDelta(1, "c2", "read", '{"path": "b"}'),
        CallDelta(2, "mine", "grep", '{"pattern": "é"}'),
        CallDelta(3, "c3", "ls", "{}"),
        Finish("calls"),
    ]


async def test_raw_argument_text_is_not_looked_at() -> None:
    assert (await played(calls(call("read", raw="{not json"))))[0] == CallDelta(0, "c1", "read", "{not json")


def test_arguments_beside_several_calls_are_refused() -> None:
    with pytest.raises(TypeError, match="give them to call"):
        calls("read", "grep", path="a")


async def test_reasoning_stands_before_the_answer_in_a_block_of_its_own() -> None:
    assert await played(reasons("Hm.", then=calls("read", saying="So.", path="a"))) == [
        ReasoningDelta("Hm.", 0),
        TextDelta("So.", 1),
        CallDelta(2, "c1", "read", '{"path": "a"}'),
        Finish("calls"),
    ]
    assert await played(reasons("Hm.")) == [ReasoningDelta("Hm."), Finish()]


async def test_reasoning_can_precede_whatever_an_answer_consists_of() -> None:
    gate = Gate()
    gate.open()
    inner = reasons(
        "b", then=chunks(CallDelta(0, "x", "read", "{}"), gate, UsageReport(Usage()), Finish("calls"))
    )
    assert await played(reasons("a", then=inner)) == [
        ReasoningDelta("a", 0),
        ReasoningDelta("b", 1),
        CallDelta(2, "x", "read", "{}"),
        UsageReport(Usage()),
        Finish("calls"),
    ]


async def test_the_ceiling_can_cut_text_and_calls() -> None:
    assert await played(max_tokens("p", call("read", raw='{"pa'))) == [
        TextDelta("p"),
        CallDelta(1, "c1", "read", '{"pa'),
        Finish("max-tokens"),
    ]


async def test_an_empty_answer_and_a_cut_one() -> None:
    assert await played(nothing()) == [Finish("stop")]
    assert await played(cuts_off("no end")) == [TextDelta("no "), TextDelta("end")]
    assert await played(chunks(TextDelta("a", 3))) == [TextDelta("a", 3)]


async def test_a_failure_keeps_its_facts_and_comes_after_its_text() -> None:
    model = ScriptedModel(fails("RATE_LIMIT", "slow down", status=429, retry_after=1.5, after="one two"))
    seen: list[Chunk] = []
    with pytest.raises(ModelFailure) as caught:
        async for chunk in model.stream(request(), Signal()):
            seen.append(chunk)  # noqa: PERF401  # what came before the failure counts
    failure = caught.value
    assert seen == [TextDelta("one "), TextDelta("two")]
    assert (failure.code, failure.message, failure.status, failure.retry_after) == (
        "RATE_LIMIT",
        "slow down",
        429,
        1.5,
    )


async def test_a_hang_ends_only_by_cancelling() -> None:
    model = ScriptedModel(hangs("partial"))
    seen: list[Chunk] = []
    shown = asyncio.Event()

    async def consume() -> None:
        async for chunk in model.stream(request(), Signal()):
            seen.append(chunk)
            shown.set()

    task = asyncio.create_task(consume())
    await shown.wait()
    await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == [TextDelta("partial")]


async def test_an_answer_waits_at_its_gate_until_the_test_opens_it() -> None:
    gate = Gate()
    model = ScriptedModel(gated(gate, says("a b c"), after=2))
    seen: list[Chunk] = []

    async def consume() -> None:
        async for chunk in model.stream(request(), Signal()):
            seen.append(chunk)  # noqa: PERF401  # it is looked at on the way

    task = asyncio.create_task(consume())
    await gate.reached
    assert seen == [TextDelta("a "), TextDelta("b ")]
    assert not task.done()
    gate.open()
    await task
    assert seen[2:] == [TextDelta("c"), Finish()]
    await gate.reached  # it stays reached, and open


async def test_a_gate_stands_before_the_answer_by_default() -> None:
    gate = Gate()
    assert gated(gate, says("a")).parts == (gate, TextDelta("a"), Finish())


async def test_a_model_may_react_to_what_it_is_asked() -> None:
    model = ScriptedModel(lambda asked: says(asked.messages[-1].text.upper()))
    assert (await ask(model, Message.user("loud")))[0] == TextDelta("LOUD")


async def test_requests_are_kept_as_they_were() -> None:
    model = ScriptedModel(says("x"), says("y"))
    history = [Message.user("one")]
    asked = ModelRequest("scripted", "scripted", (), history, (), {"seed": 1})
    assert [chunk async for chunk in model.stream(asked, Signal())]
    history.append(Message.user("two"))
    assert [chunk async for chunk in model.stream(asked, Signal())]
    assert [[message.text for message in kept.messages] for kept in model.requests] == [
        ["one"],
        ["one", "two"],
    ]
    assert isinstance(model.requests[0].messages, tuple)
    assert model.requests[0].settings == {"seed": 1}


async def test_without_record_nothing_is_kept() -> None:
    model = ScriptedModel(says("x"), record=False)
    assert await ask(model, Message.user("one"))
    assert model.requests == []


async def test_one_request_too_many_says_so() -> None:
    model = ScriptedModel(says("x"), name="small")
    await ask(model)
    with pytest.raises(ModelFailure, match=r"'small' had 1 answers, and this is request 2") as caught:
        await ask(model)
    assert caught.value.code == "SCRIPT_EXHAUSTED"
    assert len(model.requests) == 2
    await model.aclose()
