"""OpenAIModel over real sockets: what is sent, what is read, what went wrong, and that nothing stays open."""

from __future__ import annotations

import asyncio
import json
import socket
import traceback
from contextlib import aclosing
from typing import Any

import openai
import pytest

from interlock.errors import ConfigError, MissingKey, ModelFailure
from interlock.intercept.signal import Signal
from interlock.log.facts import Section, ToolSpec, Usage
from interlock.log.messages import Message
from interlock.models import openai as adapter
from interlock.models.openai import OpenAIModel
from interlock.models.protocol import CallDelta, Chunk, Finish, ModelRequest, TextDelta, UsageReport
from interlock.models.retry import RetryPolicy
from raw_server import DONE, Do, Part, RawServer, chunked, delta, error, event, stream

KEY = "sk-test-0123456789"
HI = (delta(content="Hi"), delta("stop"), DONE)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_ORG_ID",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
    ):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def request(*messages: Message, **settings: Any) -> ModelRequest:
    return ModelRequest("openai", "small", (), messages or (Message.user("hi"),), (), settings)


async def ask(model: OpenAIModel, asked: ModelRequest | None = None) -> list[Chunk]:
    async with aclosing(model.stream(asked or request(), Signal())) as chunks:
        return [chunk async for chunk in chunks]


async def answer(*reply: Part, **options: Any) -> list[Chunk]:
    """What one reply is read as."""
    async with RawServer([reply]) as server:
        model = OpenAIModel("small", base_url=server.base_url, **options)
        try:
            return await ask(model)
        finally:
            await model.aclose()


async def failure(*reply: Part, **options: Any) -> ModelFailure:
    with pytest.raises(ModelFailure) as caught:
        await answer(*reply, **options)
    return caught.value


# What is sent


async def test_a_request_on_the_wire() -> None:
    asked = ModelRequest(
        "openai",
        "small",
        (Section("persona", "Be brief."),),
        (Message.user("hi"),),
        (ToolSpec("ls", "List.", {"type": "object"}),),
        {"max_output_tokens": 5, "temperature": 0},
    )
    async with RawServer([stream(*HI)]) as server:
        model = OpenAIModel("small", base_url=server.base_url, api_key=KEY)
        assert await ask(model, asked) == [TextDelta("Hi"), Finish()]
        await model.aclose()
    (head,), (body,) = server.heads, server.bodies
    assert head.startswith("POST /v1/chat/completions HTTP/1.1\r\n")
    assert f"authorization: bearer {KEY}".lower() in head.lower()
    assert "content-type: application/json" in head.lower()
    assert body == {
        "model": "small",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
        "temperature": 0,
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "tools": [
            {
                "type": "function",
                "function": {"name": "ls", "description": "List.", "parameters": {"type": "object"}},
            }
        ],
    }


async def test_a_large_body_arrives_whole() -> None:
    text = "ü" * 4_000_000
    async with RawServer([stream(*HI)]) as server:
        model = OpenAIModel("small", base_url=server.base_url)
        await ask(model, request(Message.user(text)))
        await model.aclose()
    assert server.bodies[0]["messages"] == [{"role": "user", "content": text}]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://mine.openai.azure.com/openai/v1", "max_completion_tokens"),
        ("https://openai.example.com/v1", "max_tokens"),
        ("http://localhost:8000/v1", "max_tokens"),
    ],
)
def test_the_name_of_the_output_ceiling(url: str, name: str) -> None:
    model = OpenAIModel("small", base_url=url, api_key=KEY)
    assert json.loads(model._writer.body(request(max_output_tokens=5)))[name] == 5


async def test_a_finished_answer_gives_its_connection_back() -> None:
    replies = [chunked(*HI), chunked(*HI), stream(*HI)]
    async with RawServer(replies) as server:
        model = OpenAIModel("small", base_url=server.base_url)
        for _ in replies:
            assert await ask(model) == [TextDelta("Hi"), Finish()]
        assert server.connections == 1
        await model.aclose()


async def test_a_server_that_keeps_the_connection_open_after_the_end_holds_nobody() -> None:
    assert await answer(*stream(*HI, Do.HANG)) == [TextDelta("Hi"), Finish()]


async def test_a_client_of_ones_own_is_used_and_stays_open() -> None:
    async with RawServer([chunked(*HI), chunked(*HI)]) as server:
        client = openai.AsyncOpenAI(base_url=server.base_url, api_key=KEY, max_retries=5)
        model = OpenAIModel("small", client=client)
        assert await ask(model) == [TextDelta("Hi"), Finish()]
        await model.aclose()
        assert not client.is_closed()
        assert await ask(model) == [TextDelta("Hi"), Finish()]
        await client.close()
    assert KEY in server.heads[0]


async def test_it_can_be_used_again_after_it_was_closed() -> None:
    async with RawServer([stream(*HI), stream(*HI)]) as server:
        model = OpenAIModel("small", base_url=server.base_url)
        for _ in range(2):
            assert await ask(model) == [TextDelta("Hi"), Finish()]
            await model.aclose()
    assert server.connections == 2


async def test_many_at_once_share_one_client() -> None:
    async with RawServer([stream(*HI)] * 20) as server:
        model = OpenAIModel("small", base_url=server.base_url)
        answers = await asyncio.gather(*[ask(model) for _ in range(20)])
        assert answers == [[TextDelta("Hi"), Finish()]] * 20
        await model.aclose()


# Shapes of a stream


async def test_bytes_split_anywhere_within_characters_lines_and_events() -> None:
    wire = b"".join(
        [delta(content="Grüezi 😀"), delta("stop"), event(choices=[], usage={"prompt_tokens": 3}), DONE]
    )
    wire = wire.replace(b"\\u00fc", "ü".encode()).replace(b"\\ud83d\\ude00", "😀".encode())
    assert await answer(*stream(*[wire[i : i + 1] for i in range(len(wire))])) == [
        TextDelta("Grüezi 😀"),
        UsageReport(Usage(3)),
        Finish(),
    ]


async def test_crlf_comments_ids_and_events_without_data() -> None:
    parts = [b": connected\r\n\r\nretry: 10\r\n\r\nid: 1\r\n", delta(content="Hi").replace(b"\n", b"\r\n")]
    ping = b": keep-alive\r\n\r\nevent: ping\r\n\r\n"
    assert await answer(*stream(*parts, ping, delta("stop"), DONE)) == [TextDelta("Hi"), Finish()]


async def test_a_chunk_of_ten_megabytes() -> None:
    (text, end) = await answer(*stream(delta(content="x" * 10_000_000), delta("stop"), DONE))
    assert isinstance(text, TextDelta)
    assert (len(text.text), end) == (10_000_000, Finish())


async def test_a_call_without_an_id() -> None:
    piece = {"index": 0, "function": {"name": "ls", "arguments": "{}"}}
    assert await answer(*stream(delta(tool_calls=[piece]), delta("tool_calls"), DONE)) == [
        CallDelta(0, None, "ls", "{}"),
        Finish("calls"),
    ]


@pytest.mark.parametrize("end", [(), (b"data: [DONE]\n",), (b"data: [DONE]",), (DONE,)])
async def test_a_reason_is_what_makes_an_end_not_the_last_line(end: tuple[bytes, ...]) -> None:
    assert await answer(*stream(delta(content="Hi"), delta("stop"), *end)) == [TextDelta("Hi"), Finish()]
    assert await answer(*stream(delta(content="Hi"), *end)) == [TextDelta("Hi")]


async def test_the_last_event_needs_no_blank_line() -> None:
    assert await answer(*stream(delta(content="Hi"), delta("stop").rstrip(b"\n") + b"\n")) == [
        TextDelta("Hi"),
        Finish(),
    ]


async def test_nothing_after_done_is_read() -> None:
    assert await answer(*stream(*HI, b"data: nonsense\n\n")) == [TextDelta("Hi"), Finish()]


@pytest.mark.parametrize("breaking", [stream(*HI[:2], Do.RESET), chunked(*HI[:2], whole=False)])
async def test_a_stream_that_breaks_after_its_reason_was_whole(breaking: tuple[Part, ...]) -> None:
    assert await answer(*breaking) == [TextDelta("Hi"), Finish()]


# Failures


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "BAD_REQUEST"),
        (401, "AUTH"),
        (404, "NOT_FOUND"),
        (408, "TIMEOUT"),
        (429, "RATE_LIMIT"),
        (503, "SERVER"),
        (529, "SERVER"),
    ],
)
async def test_a_refusal_keeps_its_facts(status: int, code: str) -> None:
    headers = "retry-after: 2\r\nx-request-id: req-7\r\n"
    seen = await failure(*error(status, {"error": {"message": "The server's own words."}}, headers=headers))
    assert (seen.code, seen.status, seen.message) == (code, status, "The server's own words.")
    assert (seen.retry_after, seen.request_id) == (2.0, "req-7")


async def test_a_context_that_is_too_long() -> None:
    seen = await failure(*error(400, {"error": {"message": "Too long.", "code": "context_length_exceeded"}}))
    assert (seen.code, seen.status) == ("CONTEXT_LENGTH", 400)


async def test_a_page_of_a_proxy_is_quoted_and_bounded() -> None:
    seen = await failure(*error(502, f"<html><h1>Bad\n gateway</h1>{'x' * 5000}</html>"))
    assert seen.code == "SERVER"
    assert seen.message.startswith("<html><h1>Bad gateway</h1>xxx")
    assert len(seen.message) == 1000


async def test_a_refusal_without_words() -> None:
    assert (await failure(*error(500, {}))).message != ""
    assert (await failure(*error(500, ""))).message == "Whatever"  # the reason phrase


async def test_an_adapter_does_not_repeat_a_request() -> None:
    async with RawServer([error(500, {}), stream(*HI)]) as server:
        client = openai.AsyncOpenAI(base_url=server.base_url, api_key=KEY, max_retries=5)
        with pytest.raises(ModelFailure):
            await ask(OpenAIModel("small", client=client))
        await client.close()
    assert len(server.bodies) == 1


async def test_the_key_is_in_no_error_text() -> None:
    for reply in (
        error(401, {"error": {"message": f"Incorrect API key provided: {KEY}."}}),
        error(500, f"key {KEY}"),
        stream(event(error={"message": f"{KEY} is over quota"})),
        stream(b"data: " + KEY.encode() + b"\n\n"),
        stream(b"you sent " + KEY.encode(), kind="text/html"),
    ):
        with pytest.raises(ModelFailure) as caught:
            await answer(*reply, api_key=KEY)
        shown = "".join(traceback.format_exception(caught.value)) + repr(caught.value)
        assert KEY not in shown
        assert "[api key]" in caught.value.message


async def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and not listening
        model = OpenAIModel("small", base_url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        with pytest.raises(ModelFailure, match=r"127\.0\.0\.1: ConnectError .*") as caught:
            await ask(model)
        await model.aclose()
    assert (caught.value.code, caught.value.status) == ("TRANSPORT", None)


async def test_a_name_that_does_not_resolve() -> None:
    model = OpenAIModel("small", base_url="http://nowhere.invalid/v1", api_key=KEY)
    with pytest.raises(ModelFailure, match=r"nowhere\.invalid: ConnectError") as caught:
        await ask(model)
    await model.aclose()
    assert caught.value.code == "TRANSPORT"


@pytest.mark.parametrize(
    "reply",
    [
        (Do.RESET,),
        (b"HTTP/1.1 200 OK\r\ncontent-", Do.CLOSE),
        (b"nonsense\r\n\r\n",),
        stream(delta(content="Hi"), b'data: {"choi', Do.RESET),
        chunked(delta(content="Hi"), whole=False),
        (b"HTTP/1.1 500 No\r\ncontent-length: 100\r\n\r\n{", Do.RESET),
    ],
    ids=["reset", "cut head", "no http", "reset in an event", "cut body", "reset in an error"],
)
async def test_a_connection_that_breaks(reply: tuple[Part, ...]) -> None:
    assert (await failure(*reply)).code == "TRANSPORT"


async def test_what_came_before_a_break_was_told() -> None:
    seen: list[Chunk] = []
    async with RawServer([stream(delta(content="Hi"), Do.RESET)]) as server:
        model = OpenAIModel("small", base_url=server.base_url)
        with pytest.raises(ModelFailure):
            async for chunk in model.stream(request(), Signal()):
                seen.append(chunk)  # noqa: PERF401  # what came before the failure counts
        await model.aclose()
    assert seen == [TextDelta("Hi")]


async def test_silence_before_an_answer() -> None:
    seen = await failure(Do.HANG, timeout=0.05)
    assert (seen.code, seen.message) == ("TIMEOUT", "127.0.0.1 was silent for more than 0.05 s.")


async def test_silence_within_an_answer() -> None:
    seen = await failure(*stream(delta(content="Hi"), Do.HANG), idle=0.05)
    assert (seen.code, seen.message) == ("TIMEOUT", "127.0.0.1 was silent for more than 0.05 s.")
    assert (await failure(*stream(delta(content="Hi"), Do.HANG), timeout=0.05)).code == "TIMEOUT"


async def test_an_idle_limit_is_not_for_the_time_before_an_answer() -> None:
    late = asyncio.Event()
    async with RawServer([(late, *stream(*HI))]) as server:
        model = OpenAIModel("small", base_url=server.base_url, idle=0.01)
        task = asyncio.create_task(ask(model))
        await server.asked.wait()
        asyncio.get_running_loop().call_later(0.1, late.set)
        assert await task == [TextDelta("Hi"), Finish()]
        await model.aclose()


@pytest.mark.parametrize(
    "reply", [stream(), stream(b": hello\n\n"), stream(DONE)], ids=["nothing", "a comment", "done"]
)
async def test_an_empty_stream(reply: tuple[Part, ...]) -> None:
    seen = await failure(*reply)
    assert (seen.code, seen.status) == ("EMPTY_RESPONSE", 200)


async def test_a_chunk_that_is_not_json() -> None:
    seen = await failure(
        *stream(delta(content="Hi"), b'data: {"choices": [\n\n', DONE, headers="x-request-id: req-9\r\n")
    )
    assert (seen.code, seen.request_id) == ("MALFORMED", "req-9")


async def test_an_error_object_inside_the_stream_keeps_its_meaning() -> None:
    seen = await failure(*stream(delta(content="Hi"), event(error={"message": "Overloaded", "code": 529})))
    assert (seen.code, seen.message) == ("SERVER", "Overloaded")


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('{"error": {"message": "no such model", "code": "model_not_found"}}', "NOT_FOUND", "no such model"),
        ('{"error": {"code": 503}}', "SERVER", "{'code': 503}"),
        ('{"choices": []}', "MALFORMED", '127.0.0.1 answered without a stream of events: {"choices": []}'),
        ("{", "MALFORMED", "127.0.0.1 answered without a stream of events: {"),
    ],
)
async def test_a_success_that_is_no_stream(text: str, code: str, message: str) -> None:
    seen = await failure(*stream(text.encode(), kind="application/json"))
    assert (seen.code, seen.message, seen.status) == (code, message, 200)


async def test_a_page_instead_of_a_stream() -> None:
    seen = await failure(*stream(b"<html>Log in</html>", kind="text/html; charset=utf-8"))
    assert (seen.code, seen.message) == (
        "MALFORMED",
        "127.0.0.1 answered without a stream of events: <html>Log in</html>",
    )
    seen = await failure(*stream(b"<html>", Do.RESET, kind="text/html"))
    assert seen.code == "TRANSPORT"


# Cancelling


@pytest.mark.parametrize(
    "reply", [(Do.HANG,), stream(delta(content="Hi"), Do.HANG)], ids=["before", "within"]
)
async def test_cancelling_closes_the_connection(reply: tuple[Part, ...]) -> None:
    async with RawServer([reply]) as server:
        model = OpenAIModel("small", base_url=server.base_url)
        shown = asyncio.Event()

        async def consume() -> None:
            async with aclosing(model.stream(request(), Signal())) as chunks:
                async for _ in chunks:
                    shown.set()

        task = asyncio.create_task(consume())
        await (server.asked if reply == (Do.HANG,) else shown).wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.gone.wait()
        await model.aclose()


async def test_a_consumer_that_leaves_closes_the_connection() -> None:
    async with RawServer([stream(delta(content="Hi"), delta(content="Ho"), Do.HANG)]) as server:
        model = OpenAIModel("small", base_url=server.base_url)
        async with aclosing(model.stream(request(), Signal())) as chunks:
            assert await anext(chunks) == TextDelta("Hi")
        await server.gone.wait()
        await model.aclose()


async def test_cancelling_the_first_use_leaves_the_model_usable() -> None:
    async with RawServer([stream(*HI)]) as server:
        model = OpenAIModel("small", base_url=server.base_url)
        task = asyncio.create_task(ask(model))
        await asyncio.sleep(0)  # it waits for the client to be made
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await ask(model) == [TextDelta("Hi"), Finish()]
        await model.aclose()


# Making one


def test_what_it_says_of_itself() -> None:
    policy = RetryPolicy(retries=1)
    model = OpenAIModel("small", base_url="http://user:word@localhost:1/v1", provider="mine", retry=policy)
    assert (model.provider, model.name, model.retry) == ("mine", "small", policy)
    assert repr(model) == "OpenAIModel('small', provider='mine', host='localhost')"


@pytest.mark.parametrize(
    "url", ["http://localhost/v1", "http://127.0.0.1:8000/v1", "http://127.9.9.9/v1", "http://[::1]:8000/v1"]
)
def test_a_server_on_this_machine_needs_no_key(url: str) -> None:
    assert OpenAIModel("small", base_url=url).base_url == url


@pytest.mark.parametrize(
    "url",
    [None, "https://models.example.org/v1", "http://10.0.0.5:8000/v1", "http://localhost.example.org/v1"],
)
def test_any_other_needs_one_and_says_where_it_comes_from(
    url: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingKey, match=r"No API key for openai: set OPENAI_API_KEY, or pass api_key="):
        OpenAIModel("small", base_url=url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    OpenAIModel("small", base_url=url)


def test_the_server_of_the_environment_is_for_openai_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:9/v1")
    assert OpenAIModel("small").base_url == "http://localhost:9/v1"
    assert OpenAIModel("small", provider="mine", api_key=KEY).base_url == adapter.DEFAULT_URL


@pytest.mark.parametrize("url", ["localhost:8000/v1", "ftp://x/v1", "http://", "/v1"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match=r"base_url is not an http\(s\) URL"):
        OpenAIModel("small", base_url=url, api_key=KEY)


def test_without_the_sdk_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"interlock\[openai\]"):
        OpenAIModel("small", base_url="http://localhost/v1")
