"""B10: what it costs to tell a server everything again: the body of a request, and a whole exchange."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from bench.measuring import Figure, Goal, Spent, cost, interleaved, require, stopwatch, unmeasured
from bench.scale import Scale
from interlock import Message, Signal, Source, Text, ToolOutcome, ToolUse
from interlock.log.facts import Section, ToolSpec
from interlock.log.history import History, Messages
from interlock.log.messages import MODEL
from interlock.models import ModelRequest, OpenAIModel
from interlock.models.chat_request import BodyWriter

STEP = 2  # messages by which the next request of a session is longer
_LINES = "\n".join(f"{n:>6}\tdef function_{n}(value: int) -> int: return value + {n}" for n in range(1, 9))


class Session(NamedTuple):
    """The requests of the last steps of one session: each is longer by two messages, the last has them all."""

    warm: ModelRequest  # the one before them
    requests: list[ModelRequest]


def session(messages: int, requests: int) -> Session:
    """A conversation in which files are read, one a step."""
    history = History()
    for n in range(messages):
        history.append(n, _message(n))
    longest = history.view()
    made = [
        ModelRequest(
            provider="bench",
            model="m",
            system=(Section("instructions", "You are a careful engineer. " * 20),),
            messages=Messages(longest.row, messages - STEP * earlier),
            tools=(ToolSpec("read", "Reads a file.", {"type": "object", "properties": {}}),),
            settings={"temperature": 0},
        )
        for earlier in range(requests, -1, -1)
    ]
    return Session(made[0], made[1:])


def _message(n: int) -> Message:
    if n == 0:
        return Message.user("Find out where the values are computed, and explain it.")
    if n % 2:
        use = ToolUse(f"call_{n}", "read", f'{{"path": "src/module_{n}.py", "offset": {n}}}')
        return Message(role="assistant", content=(Text(f"Now I look at module {n}."), use), source=MODEL)
    outcome = ToolOutcome(f"call_{n - 1}", (Text(_LINES),))
    return Message(role="tool", content=(outcome,), source=Source("tool"))


def writer() -> BodyWriter:
    return BodyWriter(system_mid=False, ceiling="max_tokens")


# The body


async def next_bodies(session: Session) -> Spent:
    """As in a session that goes on: what was said before is rendered already."""
    made = writer()
    made.body(session.warm)
    with stopwatch() as watch:
        bodies = [made.body(request) for request in session.requests]
    require(bodies[-1] == writer().body(session.requests[-1]), "bodies")
    return watch.spent


async def first_bodies(session: Session) -> Spent:
    """As in a session that was just opened: nothing is rendered yet."""
    writers = [writer() for _ in session.requests]
    with stopwatch() as watch:
        for made, request in zip(writers, session.requests, strict=True):
            made.body(request)
    return watch.spent


async def encoded_bodies(bodies: list[Any]) -> Spent:
    """The same bodies as JSON, when they are plain dicts and lists already."""
    with stopwatch() as watch:
        for body in bodies:
            msgspec.json.encode(body)
    return watch.spent


# The whole exchange


async def harness_exchanges(session: Session, url: str) -> Spent:
    model = OpenAIModel("m", base_url=url, provider="bench")
    try:
        await _exchange(model, session.warm)
        with stopwatch() as watch:
            for request in session.requests:
                await _exchange(model, request)
    finally:
        await model.aclose()
    return watch.spent


async def _exchange(model: OpenAIModel, request: ModelRequest) -> None:
    said = [chunk async for chunk in model.stream(request, Signal())]
    require(len(said) == ANSWER_CHUNKS, "an answer")


async def floor_exchanges(bodies: list[Any], port: int) -> Spent:
    """The same over a bare connection: encode, write, read to the end of the answer."""
    reader, stream = await asyncio.open_connection("127.0.0.1", port)
    try:
        with stopwatch() as watch:
            for body in bodies:
                data = msgspec.json.encode(body)
                stream.write(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(data))
                stream.write(data)
                await reader.readuntil(b"\r\n0\r\n\r\n")
    finally:
        stream.close()
        await stream.wait_closed()
    return watch.spent


ANSWER_CHUNKS = 3  # a text, the usage and the finish: what `swallow` answers


@contextmanager
def swallowing_server() -> Iterator[int]:
    """A server of its own process, which reads requests, throws them away and says "ok". Its port."""
    program = [sys.executable, str(Path(__file__).with_name("swallow.py"))]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None and server.stdout is not None
        yield int(server.stdout.readline())
        server.stdin.close()  # it ends when nobody holds the other end any more


def run(scale: Scale) -> list[Figure]:
    sessions = {messages: session(messages, scale.requests) for messages in scale.bodies}
    figures = [
        figure for messages, made in sessions.items() for figure in _body_figures(scale, messages, made)
    ]
    if find_spec("openai") is None:
        missing = "the openai SDK is not installed"
        return [*figures, unmeasured("B10", "a whole exchange", "ms an exchange", why=missing)]
    with swallowing_server() as port:
        for messages, made in sessions.items():
            figures.append(_exchange_figure(scale, messages, made, port))
    return figures


def _plain(session: Session) -> list[Any]:
    return [msgspec.json.decode(writer().body(request)) for request in session.requests]


def _body_figures(scale: Scale, messages: int, made: Session) -> list[Figure]:
    samples = interleaved(
        scale.rounds,
        {
            "next": partial(next_bodies, made),
            "first": partial(first_bodies, made),
            "encoding": partial(encoded_bodies, _plain(made)),
        },
    )
    return [
        cost(
            "B10",
            f"body of {messages:,} messages, {which}",
            "us CPU a body",
            samples[name],
            samples["encoding"],
            scale=1e6 / scale.requests,
            goal=Goal("<=", 2, "ratio") if name == "next" else None,
        )
        for name, which in (("next", "the next of a session"), ("first", "the first after opening one"))
    ]


def _exchange_figure(scale: Scale, messages: int, made: Session, port: int) -> Figure:
    samples = interleaved(
        scale.rounds,
        {
            "mine": partial(harness_exchanges, made, f"http://127.0.0.1:{port}/v1"),
            "floor": partial(floor_exchanges, _plain(made), port),
        },
    )
    return cost(
        "B10",
        f"a whole exchange of {messages:,} messages with a server that swallows them",
        "ms CPU an exchange",
        samples["mine"],
        samples["floor"],
        scale=1e3 / scale.requests,
    )
