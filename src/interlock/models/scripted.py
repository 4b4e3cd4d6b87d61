"""A model that answers from a script: for tests, examples and everything that must be the same each time.

Lives here: `ScriptedModel`, the small functions that make its answers, and `Gate`, where an answer waits for the test.
An answer is a row of parts that are played in order: chunks as they are, and the few things that chunks cannot say.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import msgspec

from interlock.errors import ModelFailure
from interlock.intercept.signal import Signal
from interlock.log.facts import Usage
from interlock.models.protocol import (
    CallDelta,
    Chunk,
    Finish,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    UsageReport,
)
from interlock.models.retry import RetryPolicy


class Gate:
    """A place where an answer waits: `await gate.reached` in the test, look around, then `gate.open()`."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._opened = asyncio.Event()

    @property
    def reached(self) -> Coroutine[Any, Any, Any]:
        """Await it: the answer has come this far."""
        return self._reached.wait()

    def open(self) -> None:
        """Let the answer go on. A gate stays open."""
        self._opened.set()

    async def _pass(self) -> None:
        self._reached.set()
        await self._opened.wait()


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call in an answer; made by `call`. Without `id` the model numbers it c1, c2, ... over its life."""

    name: str
    arguments: str
    id: str | None = None
    block: int = 0


@dataclass(frozen=True, slots=True)
class _Failure:
    code: str
    message: str
    status: int | None
    retry_after: float | None


class _Hang:
    """Wait until the task is cancelled."""


Part: TypeAlias = Chunk | Call | Gate | _Failure | _Hang


@dataclass(frozen=True, slots=True)
class Answer:
    """What one request gets. `ScriptedModel` also takes a function of the request that returns one."""

    parts: tuple[Part, ...]


Reply: TypeAlias = Answer | Callable[[ModelRequest], Answer]
Counts: TypeAlias = tuple[int, int]  # tokens in, tokens out


def says(text: str, *, usage: Counts | None = None) -> Answer:
    """Text, a word a chunk, and an ordinary end."""
    return Answer((*_words(text), *_end("stop", usage)))


def call(name: str, /, *, id: str | None = None, raw: str | None = None, **arguments: Any) -> Call:  # noqa: A002
    """One tool call. `raw` is the argument text as it is, valid or not; a tool's own `id` or `raw` is given that way."""
    return Call(name, json.dumps(arguments, ensure_ascii=False) if raw is None else raw, id)


def calls(
    *wanted: str | Call, saying: str | None = None, usage: Counts | None = None, **arguments: Any
) -> Answer:
    """One call, `calls("read", path="a")`, or several, `calls(call("read", path="a"), call("grep", id="x"))`.

    `saying` is what is said before them.
    """
    if arguments and not (len(wanted) == 1 and isinstance(wanted[0], str)):
        raise TypeError("arguments go with one tool's name; with several calls, give them to call(...)")
    made = [call(item, **arguments) if isinstance(item, str) else item for item in wanted]
    return Answer((*_words(saying or ""), *_blocks(made, 1 if saying else 0), *_end("calls", usage)))


def reasons(text: str, *, then: Answer | None = None, usage: Counts | None = None) -> Answer:
    """Reasoning, a word a chunk, and then another answer (without one, an ordinary end)."""
    thinking = [ReasoningDelta(word.text) for word in _words(text)]
    rest = _end("stop", usage) if then is None else tuple([_shifted(part) for part in then.parts])
    return Answer((*thinking, *rest))


def max_tokens(text: str, *cut: Call, usage: Counts | None = None) -> Answer:
    """An answer that met the output ceiling, perhaps within its calls."""
    return Answer((*_words(text), *_blocks(cut, 1 if text else 0), *_end("max-tokens", usage)))


def nothing(*, usage: Counts | None = None) -> Answer:
    """An answer without any content."""
    return Answer(_end("stop", usage))


def fails(
    code: str,
    message: str = "the script fails here",
    *,
    status: int | None = None,
    retry_after: float | None = None,
    after: str = "",
) -> Answer:
    """A `ModelFailure`, after the text `after` was streamed. `retry_after` in seconds."""
    return Answer((*_words(after), _Failure(code, message, status, retry_after)))


def hangs(text: str = "") -> Answer:
    """The text, and then silence until the request is cancelled."""
    return Answer((*_words(text), _Hang()))


def cuts_off(text: str = "") -> Answer:
    """The text, and then the stream ends without a `Finish`."""
    return Answer(_words(text))


def chunks(*raw: Part) -> Answer:
    """Exactly these parts, gates among them; nothing is added, no `Finish` either."""
    return Answer(raw)


def gated(gate: Gate, answer: Answer, *, after: int = 0) -> Answer:
    """The answer, waiting at `gate` before its first chunk, or after so many."""
    return Answer((*answer.parts[:after], gate, *answer.parts[after:]))


class ScriptedModel:
    """Gives its answers in order, one a request.

    requests: what was asked, oldest first; the messages of each are a tuple, as they were then. `record=False` keeps
    none, for runs of many steps.

    Raises while streaming:
        ModelFailure: SCRIPT_EXHAUSTED, when there are more requests than answers.
    """

    provider = "scripted"
    retry: RetryPolicy | None = None

    def __init__(self, *answers: Reply, name: str = "scripted", record: bool = True) -> None:
        self.name = name
        self.requests: list[ModelRequest] = []
        self._answers = answers
        self._record = record
        self._asked = 0
        self._calls = 0

    async def stream(self, request: ModelRequest, signal: Signal) -> AsyncGenerator[Chunk, None]:
        asked, self._asked = self._asked, self._asked + 1
        if self._record:
            self.requests.append(msgspec.structs.replace(request, messages=tuple(request.messages)))
        if asked >= len(self._answers):
            raise ModelFailure(
                f"The script of {self.name!r} had {len(self._answers)} answers, and this is request {asked + 1}.",
                code="SCRIPT_EXHAUSTED",
            )
        answer = self._answers[asked]
        if not isinstance(answer, Answer):
            answer = answer(request)
        for part in answer.parts:
            match part:
                case Call(name=name, arguments=arguments, id=call_id, block=block):
                    yield CallDelta(block, self._next_id() if call_id is None else call_id, name, arguments)
                case Gate():
                    await part._pass()
                case _Failure():
                    raise ModelFailure(
                        part.message, code=part.code, status=part.status, retry_after=part.retry_after
                    )
                case _Hang():
                    await asyncio.get_running_loop().create_future()
                case _:
                    yield part

    def _next_id(self) -> str:
        self._calls += 1
        return f"c{self._calls}"

    async def aclose(self) -> None:
        """Nothing to let go of."""


def _words(text: str) -> tuple[TextDelta, ...]:
    return tuple([TextDelta(word) for word in re.findall(r"\s*\S+\s?|\s+", text)])


def _end(reason: Literal["stop", "calls", "max-tokens"], usage: Counts | None) -> tuple[Chunk, ...]:
    if usage is None:
        return (Finish(reason),)
    return (UsageReport(Usage(input=usage[0], output=usage[1])), Finish(reason))


def _blocks(wanted: list[Call] | tuple[Call, ...], first: int) -> list[Call]:
    return [replace(item, block=first + i) for i, item in enumerate(wanted)]


def _shifted(part: Part) -> Part:
    """The part, one block later: something stands before it now."""
    match part:
        case TextDelta(text, block):
            return TextDelta(text, block + 1)
        case ReasoningDelta(text, block, signature):
            return ReasoningDelta(text, block + 1, signature)
        case CallDelta(block, id, name, arguments):
            return CallDelta(block + 1, id, name, arguments)
        case Call():
            return replace(part, block=part.block + 1)
        case _:
            return part
