"""One attempt's stream: from chunks to lines of the log.

Lives here: `consume`. Every chunk is logged before it means anything; with a redactor, the text of a chunk that may
be the beginning of a secret comes with a later one. The adapter's failures come back as a
`ModelFailure`, which recovery may deal with; what wrappers raise is not the model's failure and passes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import msgspec

from interlock.errors import HookContractError, ModelFailure, said_error
from interlock.intercept.point import Listener, ListenerCancelled, speaking
from interlock.intercept.signal import Cut, Signal, Stopped
from interlock.intercept.uncut import cancelled_from_outside
from interlock.log.facts import AssistantChunk, ChunkKind, Usage
from interlock.log.session import Session
from interlock.log.strictjson import FrozenDict, NotJSON, checked_text
from interlock.loop.points import MODEL_STREAM
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

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor, Stream


async def consume(
    session: Session,
    model: Model,
    request: ModelRequest,
    wrappers: tuple[Listener, ...],
    signal: Signal,
    sent: int,
    idle: float | None,
) -> ModelFailure | None:
    """Log the stream's chunks until it ends; the failure, if it was the adapter's.

    Args:
        idle: seconds without a chunk after which it counts as TIMEOUT.

    Raises:
        Stopped: the turn was stopped; chunks that come after that are not logged.
    """
    onion = _Onion(model, request, wrappers, signal) if wrappers else None
    failure: ModelFailure | None = None
    try:
        stream = onion.layer(0) if onion is not None else _opened(model.stream(request, signal))
        try:
            with Cut(signal):
                if idle is None:
                    await _append(session, stream, signal, sent, None)
                else:
                    failure = await _append_in_time(session, stream, signal, sent, idle)
        finally:
            await _close(stream)  # outside the region: a stop that came from a chunk must not cut the closing
    except Stopped:
        raise
    except (Exception, asyncio.CancelledError) as error:  # an adapter's or a wrapper's own
        if _from_outside(error) or (onion is not None and error is not onion.failure):
            raise
        failure = _failure(error)
    finally:
        if onion is not None:
            await onion.aclose()
    if signal.cause is not None:
        raise Stopped(signal.cause)
    step = session.state.step
    if (
        failure is None
        and step is not None
        and step.request is not None
        and step.request.assembly.finish is None
    ):
        return ModelFailure("the stream ended without a finish", code="STREAM_CLOSED")
    return failure


async def _append_in_time(
    session: Session, stream: AsyncIterator[Chunk], signal: Signal, sent: int, idle: float
) -> ModelFailure | None:
    watch = _Watch(idle)
    try:
        async with watch.limit:
            await _append(session, stream, signal, sent, watch)
    except TimeoutError:
        if not watch.limit.expired():
            raise
        return ModelFailure(f"no chunk came for {idle:g} s", code="TIMEOUT")
    finally:
        watch.stop()
    return None


async def _append(
    session: Session, stream: AsyncIterator[Chunk], signal: Signal, sent: int, watch: _Watch | None
) -> None:
    append: Callable[[AssistantChunk], object] = session.append
    if session.redactor is not None:
        append = _Redacted(session, session.redactor).append
    unbroken = 0
    async for chunk in stream:
        if signal.cause is not None:
            return
        unbroken += 1
        if unbroken == _UNBROKEN:  # a stream that never waits must not keep everybody else from running
            unbroken = 0
            await asyncio.sleep(0)
        if (
            type(chunk) is TextDelta
            and type(text := chunk.text) is str
            and text.isascii()  # anything else is looked at more closely
            and type(chunk.block) is int
        ):
            append(AssistantChunk(sent, "text", chunk.block, text))
        else:
            append(_fact(sent, chunk))
        if watch is not None:
            watch.seen()


class _Redacted:
    """Appends chunks without their secrets, also those that are cut over several, each block for itself.

    What is held back comes with the next chunk of its block, or before the finish; if the stream is cut, it is dropped:
    nobody has seen it.
    """

    def __init__(self, session: Session, redactor: Redactor) -> None:
        self._session = session
        self._redactor = redactor
        self._blocks: dict[tuple[ChunkKind, int], Stream] = {}

    def append(self, fact: AssistantChunk) -> None:
        """Append the chunk, or what of it can be by now; a chunk that says nothing else is left out."""
        append = self._session.append
        value = fact.value
        if fact.kind == "finish":
            for (kind, block), stream in self._blocks.items():
                if stream.holds:
                    append(AssistantChunk(fact.sent, kind, block, stream.end()), redacted=True)
        elif fact.text:
            of_block = self._blocks.get((fact.kind, fact.block))
            if of_block is None:
                of_block = self._blocks[fact.kind, fact.block] = self._redactor.stream()
            text = of_block.feed(fact.text)
            if not text and value is None:
                return
            if text != fact.text:
                fact = AssistantChunk(fact.sent, fact.kind, fact.block, text, value)
        if value is not None and fact.kind in ("call", "reasoning"):
            said = {name: self._redactor.text(text) for name, text in value.items()}
            fact = msgspec.structs.replace(fact, value=said)
        append(fact, redacted=True)


def _opened(stream: Any) -> AsyncIterator[Chunk]:
    if hasattr(stream, "__aiter__"):
        return stream  # type: ignore[no-any-return]  # checked to be iterable
    if asyncio.iscoroutine(stream):
        stream.close()
    raise _Malformed(f"answered {type(stream).__name__}; `stream` is an async generator, or returns one")


async def _close(stream: Any) -> None:
    close = getattr(stream, "aclose", None)
    if close is not None:
        await close()


_UNBROKEN = 128  # chunks logged before others get a turn


class _Watch:
    """One timer for a whole stream: it looks now and then, instead of being set anew for each chunk."""

    def __init__(self, idle: float) -> None:
        self._loop = asyncio.get_running_loop()
        self.limit = asyncio.timeout(None)
        self._idle = idle
        self._last = self._loop.time()
        self._handle = self._loop.call_at(self._last + idle, self._look)

    def seen(self) -> None:
        self._last = self._loop.time()

    def _look(self) -> None:
        due = self._last + self._idle
        if due <= self._loop.time():
            self.limit.reschedule(self._loop.time())
        else:
            self._handle = self._loop.call_at(due, self._look)

    def stop(self) -> None:
        self._handle.cancel()


class _Malformed(ValueError):
    """What came out of a stream is no chunk."""


_FINISHED = {reason: FrozenDict({"reason": reason}) for reason in get_args(get_type_hints(Finish)["reason"])}


def _fact(sent: int, chunk: object) -> AssistantChunk:
    """The line of a chunk.

    Raises:
        _Malformed: it is none, or holds something that the log could not give back.
    """
    try:
        match chunk:
            case TextDelta(text=text, block=int(block)):
                return AssistantChunk(sent, "text", block, checked_text(text))
            case CallDelta(block=int(block), id=call_id, name=name, arguments=arguments):
                named: dict[str, str] = {}
                if call_id:
                    named["id"] = checked_text(call_id)
                if name:
                    named["name"] = checked_text(name)
                return AssistantChunk(sent, "call", block, checked_text(arguments), named or None)
            case Finish(reason=str(reason)) if reason in _FINISHED:
                return AssistantChunk(sent, "finish", value=_FINISHED[reason])
            case ReasoningDelta(text=text, block=int(block), signature=signature):
                signed = {"signature": checked_text(signature)} if signature is not None else None
                return AssistantChunk(sent, "reasoning", block, checked_text(text), signed)
            case UsageReport(usage=usage):
                counted = msgspec.convert(msgspec.to_builtins(usage), Usage)
                return AssistantChunk(sent, "usage", value=msgspec.to_builtins(counted))
            case _:
                pass
    except (NotJSON, msgspec.ValidationError) as error:
        raise _Malformed(f"gave a {type(chunk).__name__} that cannot be kept: {error}") from None
    known = isinstance(chunk, (TextDelta, ReasoningDelta, CallDelta, Finish))
    raise _Malformed(f"gave {chunk!r:.80}" if known else f"gave {type(chunk).__name__}, which is no chunk")


def _failure(error: BaseException) -> ModelFailure:
    """The adapter's failure: its own, or what its exception means."""
    match error:
        case ModelFailure():
            return error
        case _Malformed():
            return ModelFailure(f"the adapter {error}", code="MALFORMED")
        case asyncio.CancelledError():
            return ModelFailure("the adapter cancelled itself", code="ABORTED")
        case TimeoutError():
            code = "TIMEOUT"
        case ConnectionError():
            code = "TRANSPORT"
        case _:
            code = "UNKNOWN"
    return ModelFailure(f"{type(error).__name__}: {said_error(error)}", code=code)


def _from_outside(error: BaseException) -> bool:
    """Whether the driving task itself was cancelled; code that raises CancelledError on its own has failed."""
    return isinstance(error, asyncio.CancelledError) and cancelled_from_outside()


class _Onion:
    """The adapter's stream inside its wrappers. `failure` is the adapter's own, whatever passes it on."""

    def __init__(
        self, model: Model, request: ModelRequest, wrappers: tuple[Listener, ...], signal: Signal
    ) -> None:
        self.failure: ModelFailure | None = None
        self._model = model
        self._request = request
        self._wrappers = wrappers
        self._signal = signal
        self._layers: list[AsyncIterator[Chunk]] = []  # outer to inner, as far as they were opened

    def layer(self, i: int) -> AsyncIterator[Chunk]:
        stream = self._wrapper(self._wrappers[i], i) if i < len(self._wrappers) else self._adapter()
        self._layers.append(stream)
        return stream

    async def aclose(self) -> None:
        """Close what a wrapper did not read to its end."""
        for stream in self._layers:
            await _close(stream)

    async def _adapter(self) -> AsyncIterator[Chunk]:
        stream: Any = None
        try:
            try:
                stream = _opened(self._model.stream(self._request, self._signal))
                async for chunk in stream:
                    _fact(0, chunk)  # its own mistakes are told apart from those of wrappers
                    yield chunk
            finally:
                await _close(stream)
        except Stopped:
            raise
        except (Exception, asyncio.CancelledError) as error:
            if _from_outside(error):
                raise
            self.failure = _failure(error)
            raise self.failure from (None if self.failure is error else error)

    async def _wrapper(self, listener: Listener, i: int) -> AsyncIterator[Chunk]:
        used = False

        def following() -> AsyncIterator[Chunk]:
            nonlocal used
            if used:
                raise HookContractError("next() was called twice", who=listener.who, point=MODEL_STREAM.name)
            used = True
            return self.layer(i + 1)

        stream: Any = None
        try:
            with speaking(listener.source):
                stream = _opened(listener.fn(self._request, following))
            chunks = aiter(stream)
            while True:
                try:
                    with speaking(listener.source):
                        chunk = await anext(chunks)
                except StopAsyncIteration:
                    return
                _fact(0, chunk)
                yield chunk
        except _Malformed as error:
            raise HookContractError(str(error), who=listener.who, point=MODEL_STREAM.name) from None
        except asyncio.CancelledError as error:
            if _from_outside(error):
                raise
            raise ListenerCancelled(listener.who) from None
        finally:
            await _close(stream)
