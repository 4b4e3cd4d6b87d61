"""OpenAIModel against servers that are not ours, over real HTTP. One of them grades the client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from random import Random
from typing import Any

import pytest

from interlock.errors import ModelFailure
from interlock.intercept.signal import Signal
from interlock.log.facts import ToolSpec
from interlock.log.messages import MODEL, Message, Source, Text, ToolOutcome, ToolUse
from interlock.models.openai import OpenAIModel
from interlock.models.protocol import (
    CallDelta,
    Chunk,
    Finish,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    UsageReport,
)
from interlock.models.retry import TRANSIENT, RetryPolicy
from servers import Server, aimock_server, llmock_server, play

pytestmark = pytest.mark.slow

WEATHER = ToolSpec(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def request(*messages: Message | str, tools: tuple[ToolSpec, ...] = (), **settings: Any) -> ModelRequest:
    said = tuple([Message.user(message) if isinstance(message, str) else message for message in messages])
    return ModelRequest("openai", "gpt-4o-mini", (), said, tools, settings)


async def once(model: OpenAIModel, asked: ModelRequest) -> list[Chunk]:
    """One attempt, judged as the loop does: a stream without a finish is a failure."""
    async with aclosing(model.stream(asked, Signal())) as stream:
        chunks = [chunk async for chunk in stream]
    if not chunks or not isinstance(chunks[-1], Finish):
        raise ModelFailure("The stream ended without a finish.", code="STREAM_CLOSED")
    return chunks


async def persist(
    model: OpenAIModel, asked: ModelRequest, policy: RetryPolicy
) -> tuple[list[Chunk], list[ModelFailure]]:
    """The answer, and the failures on the way to it; what the policy gives up is raised."""
    failures: list[ModelFailure] = []
    while True:
        try:
            return await once(model, asked), failures
        except ModelFailure as failure:
            failures.append(failure)
            delay = policy.delay(failure, len(failures), Random(0))
            if delay is None:
                raise
        await asyncio.sleep(delay)


def text_of(chunks: list[Chunk]) -> str:
    return "".join([chunk.text for chunk in chunks if isinstance(chunk, TextDelta)])


def calls_of(chunks: list[Chunk]) -> list[tuple[str | None, str]]:
    calls: dict[int, tuple[str | None, str]] = {}
    for chunk in chunks:
        if isinstance(chunk, CallDelta):
            name, arguments = calls.get(chunk.block, (chunk.name, ""))
            calls[chunk.block] = (name, arguments + chunk.arguments)
    return list(calls.values())


# llmock: faults on demand, and a verdict on the client

LIMIT = 500  # tokens of its context window


@pytest.fixture(scope="module")
def llmock() -> Iterator[Server]:
    # With a pause between chunks the server still writes when a client hangs up, and so can tell that it did.
    options = ("--response-style", "hello", "--context-window", str(LIMIT), "--stream-chunk-delay-ms", "20")
    with llmock_server(*options) as server:
        yield server


# A malformed chunk is no usual reason to try again; the grader wants to see that it was not taken for an answer.
POLICY = RetryPolicy(base=0.06, cap=3.0, codes=TRANSIENT | {"MALFORMED"})

FAILS = {408: "TIMEOUT", 409: "SERVER", 429: "RATE_LIMIT", 500: "SERVER", 501: "SERVER", 502: "SERVER"} | {
    503: "SERVER",
    504: "SERVER",
    529: "SERVER",
}
REFUSES = {400: "BAD_REQUEST", 401: "AUTH", 402: "BAD_REQUEST", 403: "AUTH", 404: "NOT_FOUND"} | {
    413: "BAD_REQUEST",
    418: "BAD_REQUEST",
    422: "BAD_REQUEST",
}
BREAKS = {
    "disconnect": "TRANSPORT",
    "truncate": "STREAM_CLOSED",
    "malformed": "MALFORMED",
    "stall": "TIMEOUT",
}


async def test_every_fault_is_named_and_the_verdict_on_the_client_is_clean(llmock: Server) -> None:
    llmock.post("/_llmock/reset", {})
    model = OpenAIModel("gpt-4o-mini", base_url=llmock.base_url, idle=0.3)

    for status, code in FAILS.items():
        play(
            llmock,
            {"type": "fail", "status": status, "retry_after": 0.2, "message": f"fault {status}", "times": 2},
        )
        chunks, failures = await persist(model, request(f"Try {status}."), POLICY)
        assert text_of(chunks)
        assert [(failure.code, failure.status, failure.retry_after) for failure in failures] == [
            (code, status, 0.2)
        ] * 2
        assert failures[0].message == f"fault {status}"

    for status, code in REFUSES.items():
        play(llmock, {"type": "fail", "status": status, "message": f"fault {status}"})
        with pytest.raises(ModelFailure, match=f"^fault {status}$") as caught:
            await persist(model, request(f"Refuse {status}."), POLICY)
        assert (caught.value.code, caught.value.status) == (code, status)

    for kind, code in BREAKS.items():
        for after in range(4):
            play(llmock, {"type": "stream_fault", "kind": kind, "after_chunks": after, "stall_seconds": 1.2})
            chunks, failures = await persist(model, request(f"Break by {kind} after {after}."), POLICY)
            assert text_of(chunks)
            (failure,) = failures
            # A stream that ends before its first event is empty, by whatever name its end goes.
            assert failure.code == ("EMPTY_RESPONSE" if (kind, after) == ("truncate", 0) else code)

    play(llmock, {"type": "delay", "seconds": 0.5}, {"type": "slow_first_token", "seconds": 0.1})
    assert (await persist(model, request("Be slow."), POLICY))[1] == []

    with pytest.raises(ModelFailure, match="maximum context length") as caught:
        await persist(model, request("word " * 4 * LIMIT), POLICY)
    assert (caught.value.code, caught.value.status) == ("CONTEXT_LENGTH", 400)

    await model.aclose()
    verdict = llmock.get("/_llmock/verdict")
    assert verdict["findings"] == []
    assert verdict["faults_injected"] >= 2 * len(FAILS) + len(REFUSES) + 4 * len(BREAKS) - 4
    assert llmock.get("/_llmock/scenario") == {"pending": []}


async def test_a_response_that_does_not_begin_is_a_timeout(llmock: Server) -> None:
    model = OpenAIModel("gpt-4o-mini", base_url=llmock.base_url, timeout=0.2)
    play(llmock, {"type": "delay", "seconds": 0.6})
    with pytest.raises(ModelFailure) as caught:
        await once(model, request("Do not begin."))
    assert caught.value.code == "TIMEOUT"
    await model.aclose()


async def test_scripted_replies_arrive_as_they_were_written(llmock: Server) -> None:
    model = OpenAIModel("gpt-4o-mini", base_url=llmock.base_url)
    play(llmock, {"type": "reply", "text": "Zürich ist schön. 😀", "finish_reason": "length"})
    chunks = await once(model, request("Say something."))
    assert text_of(chunks) == "Zürich ist schön. 😀"
    assert isinstance(chunks[-2], UsageReport)
    assert chunks[-2].usage.input > 0
    assert chunks[-1] == Finish("max-tokens")

    play(
        llmock,
        {
            "type": "reply",
            "text": "I look.",
            "tool_calls": [{"name": "get_weather", "arguments": {"city": "Zürich"}}, {"name": "ls"}],
        },
    )
    chunks = await once(model, request("Look."))
    assert text_of(chunks) == "I look."
    assert calls_of(chunks) == [("get_weather", '{"city": "Z\\u00fcrich"}'), ("ls", "{}")]
    assert chunks[-1] == Finish("calls")

    play(llmock, {"type": "reply", "text": "No.", "finish_reason": "content_filter"})
    assert (await once(model, request("Filter.")))[-1] == Finish("filtered")
    await model.aclose()


async def test_faults_in_tool_calls_are_passed_on_as_they_are(llmock: Server) -> None:
    model = OpenAIModel("gpt-4o-mini", base_url=llmock.base_url)
    play(llmock, {"type": "tool_fault", "kind": "malformed_arguments"})
    ((name, arguments),) = calls_of(await once(model, request("Weather?", tools=(WEATHER,))))
    assert name == "get_weather"
    assert arguments.startswith('{"city')
    assert not arguments.endswith("}")
    play(llmock, {"type": "tool_fault", "kind": "unknown_tool"})
    assert (
        calls_of(await once(model, request("Weather again?", tools=(WEATHER,))))[0][0]
        == "llmock_unknown_tool"
    )
    await model.aclose()


async def test_a_round_with_a_tool_is_understood(llmock: Server) -> None:
    """The server calls an offered tool, and answers in text once the last message is its result."""
    model = OpenAIModel("gpt-4o-mini", base_url=llmock.base_url)
    asked = Message.user("What is the weather?")
    chunks = await once(model, request(asked, tools=(WEATHER,)))
    (call,) = [chunk for chunk in chunks if isinstance(chunk, CallDelta) and chunk.id]
    assert call.id is not None
    ((name, arguments),) = calls_of(chunks)
    answer = Message(role="assistant", content=(ToolUse(call.id, name or "", arguments),), source=MODEL)
    outcome = ToolOutcome(call.id, (Text("It rains."),))
    result = Message(role="tool", content=(outcome,), source=Source("tool", "get_weather"))
    chunks = await once(model, request(asked, answer, result, tools=(WEATHER,)))
    assert text_of(chunks)
    assert chunks[-1] == Finish("stop")
    await model.aclose()


async def test_a_quota_names_its_wait_and_the_request_passes_after_it() -> None:
    with llmock_server("--response-style", "hello", "--rpm", "60") as server:
        model = OpenAIModel("gpt-4o-mini", base_url=server.base_url)
        policy = RetryPolicy(cap=5.0)
        waits: list[float | None] = []
        while not waits:  # a bucket of 60, refilled by one a second
            _, failures = await persist(model, request("Once more."), policy)
            waits = [failure.retry_after for failure in failures]
            assert {failure.code for failure in failures} <= {"RATE_LIMIT"}
        assert waits[0] is not None
        assert 0 < waits[0] <= 5.0
        await model.aclose()
        assert server.get("/_llmock/verdict")["findings"] == []


# aimock: streamed tool calls in any order, cut into small pieces

EMOJI = "abc😀def👩‍💻 ✓ end"
FIXTURES: list[dict[str, Any]] = [
    {"match": {"toolCallId": "call_w"}, "response": {"content": "It rains in Zürich."}},
    {
        "match": {"userMessage": "think"},
        "response": {"content": EMOJI, "reasoning": "hm 😀 hm"},
        "chunkSize": 1,
    },
    {
        "match": {"userMessage": "tools first"},
        "response": {
            "blocks": [
                {
                    "type": "toolCall",
                    "name": "get_weather",
                    "arguments": '{"city":"Zürich 😀"}',
                    "id": "call_w",
                },
                {"type": "text", "text": "Let me check."},
                {"type": "toolCall", "name": "ls", "arguments": "{}", "id": "call_l"},
            ]
        },
        "chunkSize": 1,
    },
    {
        "match": {"userMessage": "cut"},
        "response": {"content": "one two three four"},
        "chunkSize": 3,
        "truncateAfterChunks": 3,
    },
    {
        "match": {"userMessage": "limit"},
        "response": {
            "error": {"message": "Slow down.", "type": "rate_limit_error"},
            "status": 429,
            "retryAfter": 3,
        },
    },
    {"match": {"userMessage": "filtered"}, "response": {"content": "No.", "finishReason": "content_filter"}},
    {
        "match": {"userMessage": "count"},
        "response": {
            "content": "ok",
            "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
        },
    },
    {"match": {"toolCallId": "call_w"}, "response": {"content": "It rains in Zürich."}},
    {
        "match": {"systemMessage": "<context source"},
        "response": {"content": "A context must not be a system message."},
    },
]


@pytest.fixture(scope="module")
def aimock() -> Iterator[Server]:
    with aimock_server(FIXTURES) as server:
        yield server


async def test_characters_cut_into_halves_arrive_whole(aimock: Server) -> None:
    model = OpenAIModel("small", base_url=aimock.base_url)
    chunks = await once(model, request("think"))
    assert text_of(chunks) == EMOJI
    assert "".join([chunk.text for chunk in chunks if isinstance(chunk, ReasoningDelta)]) == "hm 😀 hm"
    await model.aclose()


async def test_tool_calls_before_and_after_text_keep_their_order(aimock: Server) -> None:
    model = OpenAIModel("small", base_url=aimock.base_url)
    chunks = await once(model, request("tools first", tools=(WEATHER,)))
    assert calls_of(chunks) == [("get_weather", '{"city":"Zürich 😀"}'), ("ls", "{}")]
    assert [(chunk.block, chunk.id) for chunk in chunks if isinstance(chunk, CallDelta) and chunk.id] == [
        (0, "call_w"),
        (2, "call_l"),
    ]
    assert {chunk.block for chunk in chunks if isinstance(chunk, TextDelta)} == {1}
    assert text_of(chunks) == "Let me check."
    assert chunks[-1] == Finish("calls")
    await model.aclose()


async def test_a_result_finds_its_call(aimock: Server) -> None:
    model = OpenAIModel("small", base_url=aimock.base_url)
    answer = Message(
        role="assistant", content=(ToolUse("call_w", "get_weather", '{"city":"Zürich"}'),), source=MODEL
    )
    result = Message(
        role="tool", content=(ToolOutcome("call_w", (Text("Rain."),)),), source=Source("tool", "get_weather")
    )
    assert text_of(await once(model, request("tools first", answer, result))) == "It rains in Zürich."
    await model.aclose()


@pytest.mark.parametrize(
    ("prompt", "code", "status"), [("limit", "RATE_LIMIT", 429), ("nobody knows this", "NOT_FOUND", 404)]
)
async def test_refusals_are_named(aimock: Server, prompt: str, code: str, status: int) -> None:
    model = OpenAIModel("small", base_url=aimock.base_url)
    with pytest.raises(ModelFailure) as caught:
        await once(model, request(prompt))
    failure = caught.value
    assert (failure.code, failure.status) == (code, status)
    assert failure.request_id is not None
    assert failure.retry_after == (3.0 if code == "RATE_LIMIT" else None)
    await model.aclose()


async def test_a_stream_that_is_cut_is_no_answer(aimock: Server) -> None:
    model = OpenAIModel("small", base_url=aimock.base_url)
    with pytest.raises(ModelFailure) as caught:
        await once(model, request("cut"))
    assert caught.value.code == "TRANSPORT"
    await model.aclose()


async def test_usage_and_reason_are_the_servers(aimock: Server) -> None:
    model = OpenAIModel("small", base_url=aimock.base_url)
    *_, usage, finish = await once(model, request("count"))
    assert isinstance(usage, UsageReport)
    assert (usage.usage.input, usage.usage.output, finish) == (11, 7, Finish("stop"))
    assert (await once(model, request("filtered")))[-1] == Finish("filtered")
    await model.aclose()
