"""One attempt's stream: from chunks to lines of the log.

Lives here: `consume`. Every chunk is logged before it means anything. The adapter's failures come back as a
`ModelFailure`, which recovery may deal with; what wrappers raise is not the model's failure and passes through.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from interlock.errors import HookContractError, ModelFailure
from interlock.intercept.point import Listener
from interlock.intercept.signal import Signal, Stopped
from interlock.log.facts import AssistantChunk
from interlock.log.session import Session
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
    stream = _wrapped(model, request, wrappers, signal) if wrappers else model.stream(request, signal)
    try:
        await _log(session, stream, signal, sent, idle)
    except (Stopped, asyncio.CancelledError):
        raise
    except ModelFailure as failure:
        return failure
    except _Adapter as failed:
        return failed.failure
    except Exception as error:
        if wrappers:
            raise
        return _failure(error)
    signal.raise_if_set()
    request_open = session.state.step.request if session.state.step is not None else None
    if request_open is not None and request_open.assembly.finish is None:
        return ModelFailure("the stream ended without a finish", code="STREAM_CLOSED")
    return None


async def _log(
    session: Session, stream: AsyncIterator[Chunk], signal: Signal, sent: int, idle: float | None
) -> None:
    watch = _Watch(idle) if idle is not None else None
    try:
        with signal.cutting():
            if watch is None:
                await _append(session, stream, signal, sent, None)
            else:
                async with watch.limit:
                    await _append(session, stream, signal, sent, watch)
    except TimeoutError:
        if watch is not None and watch.limit.expired():
            raise ModelFailure(f"no chunk came for {idle:g} s", code="TIMEOUT") from None
        raise
    finally:
        if watch is not None:
            watch.stop()


async def _append(
    session: Session, stream: AsyncIterator[Chunk], signal: Signal, sent: int, watch: _Watch | None
) -> None:
    append = session.append
    try:
        async for chunk in stream:
            if signal.cause is not None:
                return
            if type(chunk) is TextDelta:
                append(AssistantChunk(sent, "text", chunk.block, chunk.text))
            else:
                append(_fact(sent, chunk))
            if watch is not None:
                watch.seen()
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


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


def _fact(sent: int, chunk: Chunk) -> AssistantChunk:
    match chunk:
        case TextDelta(text=text, block=block):
            return AssistantChunk(sent, "text", block, text)
        case ReasoningDelta(text=text, block=block, signature=signature):
            return AssistantChunk(
                sent, "reasoning", block, text, {"signature": signature} if signature is not None else None
            )
        case CallDelta(block=block, id=call_id, name=name, arguments=arguments):
            value = {key: given for key, given in (("id", call_id), ("name", name)) if given}
            return AssistantChunk(sent, "call", block, arguments, value or None)
        case UsageReport(usage=usage):
            return AssistantChunk(sent, "usage", value=msgspec.to_builtins(usage))
        case Finish(reason=reason):
            return AssistantChunk(sent, "finish", value={"reason": reason})
        case _:
            raise ModelFailure(
                f"the adapter gave {type(chunk).__name__}, which is no chunk", code="MALFORMED"
            )


class _Adapter(Exception):
    """Carries the adapter's failure through wrappers, told apart from their own."""

    def __init__(self, failure: ModelFailure) -> None:
        self.failure = failure
        super().__init__(str(failure))


def _failure(error: Exception) -> ModelFailure:
    code = "TIMEOUT" if isinstance(error, TimeoutError) else "UNKNOWN"
    if isinstance(error, ConnectionError):
        code = "TRANSPORT"
    return ModelFailure(f"{type(error).__name__}: {error}", code=code)


async def _innermost(model: Model, request: ModelRequest, signal: Signal) -> AsyncIterator[Chunk]:
    stream = model.stream(request, signal)
    try:
        try:
            async for chunk in stream:
                yield chunk
        finally:
            close = getattr(stream, "aclose", None)
            if close is not None:
                await close()
    except ModelFailure as failure:
        raise _Adapter(failure) from failure
    except (GeneratorExit, Stopped):
        raise
    except Exception as error:
        raise _Adapter(_failure(error)) from error


def _wrapped(
    model: Model, request: ModelRequest, wrappers: tuple[Listener, ...], signal: Signal
) -> AsyncIterator[Chunk]:
    def layer(i: int) -> AsyncIterator[Chunk]:
        if i == len(wrappers):
            return _innermost(model, request, signal)
        listener, used = wrappers[i], False

        def following() -> AsyncIterator[Chunk]:
            nonlocal used
            if used:
                raise HookContractError("next() was called twice", who=listener.who, point=MODEL_STREAM.name)
            used = True
            return layer(i + 1)

        stream: Any = listener.fn(request, following)
        if not hasattr(stream, "__aiter__"):
            if asyncio.iscoroutine(stream):
                stream.close()
            raise HookContractError(
                f"answered {type(stream).__name__}; write an async generator that yields the chunks of next()",
                who=listener.who,
                point=MODEL_STREAM.name,
            )
        return stream  # type: ignore[no-any-return]  # checked to be iterable

    return layer(0)
