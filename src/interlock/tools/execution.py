"""Running a body: the onion around it, its signal, its timeout, and what its outcome is.

Lives here: `Execution`, one call's body and everything wrapped around it. A body that was started is awaited; when the
turn is stopped it is told at once, by its signal and, if it is async, by one `CancelledError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextvars import copy_context
from time import perf_counter_ns
from typing import Any

from interlock.errors import HookContractError, ToolError, said_error
from interlock.intercept.decisions import as_contexts
from interlock.intercept.point import SPEAKER, Listener, hear, tell
from interlock.intercept.signal import Cut, Signal, Stopped
from interlock.intercept.uncut import cancelled_from_outside, uncut
from interlock.log.facts import Said
from interlock.log.messages import Message, Text
from interlock.log.reasons import (
    ABORTED,
    ABORTED_BEFORE_DISPATCH,
    HOOK_CONTRACT_ERROR,
    HOOK_EXECUTION_ERROR,
    INVALID_TOOL_OUTPUT,
    TOOL_FAILED,
    TOOL_TIMEOUT,
    Cause,
)
from interlock.log.strictjson import JSON, NotJSON, checked_text
from interlock.tools.admission import code_of, failure
from interlock.tools.arguments import InvalidOutput
from interlock.tools.batch import Batch
from interlock.tools.call import ToolCall, ToolOutput, ToolResult, failed_result
from interlock.tools.context import ToolContext
from interlock.tools.definition import Effect, StopMode
from interlock.tools.points import EXECUTE, PROGRESS
from interlock.tools.rendering import rendered
from interlock.tools.threads import in_thread

Next = Callable[..., Awaitable[ToolResult]]

_RETURNED = Cause("parent", reason="the tool that called it has returned")
_GIVEN_UP = Cause("hook", reason="a wrapper gave up waiting")


class Execution:
    """One call's body, with everything wrapped around it."""

    def __init__(
        self,
        batch: Batch,
        call: ToolCall,
        *,
        arguments: dict[str, Any] | None,
        call_tool: Callable[[str, dict[str, Any]], Awaitable[ToolOutput]],
        again: Callable[[int], Awaitable[None]],
        drain: Callable[[], Awaitable[None] | None],
    ) -> None:
        """
        Args:
            arguments: validated ones for the first run, if there are any; a further run gets its own.
            call_tool: runs a nested call. drain: ends the nested calls that a body has left running.
            again: records that the body starts again, with the number of the run from 2, and waits for the disk.
        """
        self._batch = batch
        self._call = call
        self._arguments = arguments
        self._call_tool = call_tool
        self._again = again
        self._drain = drain
        self.ran = False  # the body was invoked
        self.abandoned = False  # nobody waits for it any more, on record
        self.reviewed = True  # whether post-execute may see the outcome
        self.problem: tuple[str, str] | None = None  # who broke the contract, and how
        self.withheld: ToolResult | None = None  # a success that came after the stop: kept in the log only
        self.context: ToolContext | None = None  # of the run that is under way
        self._inside = 0  # nanoseconds that are not those of the wrapper that is being timed
        self._result: ToolResult | None = None  # what the body itself came to, last
        self._runs = 0
        self.said: list[Said] = []  # what the wrappers did, the innermost first
        self._deferred: list[Message] = []

    async def run(self) -> ToolResult:
        """The outcome, fixed when this returns. It raises only what is no outcome: a cancelled task, a failed store."""
        wrappers = self._batch.scope.listeners(EXECUTE)
        return self._fixed(await self._through(wrappers) if wrappers else await self._body(()))

    def at_once(self) -> ToolResult:
        """The outcome of a body that cannot suspend, without wrappers; fixed, and no task is needed for it.

        In a context of its own, as if it had one: what it sets there is not seen by anybody else.
        """
        call = self._call
        if call.signal.cause is not None:
            return self._undispatched()
        # Where nobody sees its signal, that of the turn will do.
        seen = call.tool.context_parameter is not None
        signal = Signal(call.signal) if seen else call.signal
        context = self.context = ToolContext(call, signal, self._progress, self._call_tool)
        try:
            return self._fixed(copy_context().run(self._invoke_at_once, context))
        finally:
            self.context = None
            if seen:
                signal.release()

    def _invoke_at_once(self, context: ToolContext) -> ToolResult:
        tool = self._call.tool
        arguments = self._given(context)
        SPEAKER.set(tool.source)
        try:
            return self._returned(context, _driven(tool.fn(**arguments)))
        except BaseException as error:  # noqa: BLE001  # as in `_invoke`
            return self._raised(context, error)

    def _fixed(self, result: ToolResult) -> ToolResult:
        if self._call.signal.cause is not None and result.error is None:
            # It returned after the stop: what it did stands, what it says is kept for people only.
            self.withheld = result
            result = failure(self._call, ABORTED, "tool call aborted", contexts=result.contexts, ran=self.ran)
        return result

    # The onion

    async def _through(self, wrappers: tuple[Listener, ...]) -> ToolResult:
        """What the wrappers make of it. They are cut when the turn is stopped; a body that was started is awaited."""
        cut = self._call.signal.cutting()
        try:
            with cut:
                return await self._wrapped(wrappers, 0, cut)
        except _WrapperFailed as failed:
            self.reviewed = False
            return failed.result
        except Stopped:
            if self._result is not None:
                return self._result
            if self.ran:
                deferred = tuple(self._deferred)
                return failure(self._call, ABORTED, "tool call aborted", contexts=deferred, ran=True)
            return self._undispatched()

    async def _wrapped(
        self, wrappers: tuple[Listener, ...], i: int, cut: Cut, signals: tuple[Signal, ...] = ()
    ) -> ToolResult:
        """What the wrapper answers. `signals`: those that outer wrappers have given to their next()."""
        listener = wrappers[i]
        inner: list[ToolResult] = []
        called = 0
        over = False
        did, why = (
            "around cut",
            None,
        )  # unless it answers: the turn was stopped, or a wrapper inside it failed
        outside, self._inside = self._inside, 0
        began = perf_counter_ns()

        async def following(signal: Signal | None = None) -> ToolResult:
            nonlocal called
            called += 1
            if over:
                raise HookContractError("next() was called after the wrapper had answered")
            if called > 1 and self._call.effect is Effect.WRITE:
                raise HookContractError("next() was called a second time for a tool whose effect is WRITE")
            given = signals if signal is None else (*signals, signal)
            if i + 1 < len(wrappers):
                result = await self._wrapped(wrappers, i + 1, cut, given)
            else:
                cut.pause()
                entered = perf_counter_ns()
                try:
                    result = self._undispatched() if self._may_not_act() else await self._body(given)
                finally:
                    self._inside += perf_counter_ns() - entered
                    cut.go_on()
            inner.append(result)
            return result

        try:
            answer = await hear(listener, None, self._call, following)
            if answer is None:
                raise HookContractError("answered None, not a ToolResult")
            passed = answer in inner  # the very object
            did = "around passed" if passed else "around replaced" if called else "around answered"
            return answer if passed else self._authored(answer, listener)
        except (_WrapperFailed, asyncio.CancelledError):
            raise
        except HookContractError as error:
            did, why = "around error", error.problem
            self.problem = (listener.who, error.problem)
            raise _WrapperFailed(
                self._broken(HOOK_CONTRACT_ERROR, f"{listener.who}: {error.problem}", error)
            ) from None
        except Exception as error:  # a wrapper's own failure
            if isinstance(error, Stopped) and self._call.signal.is_set():
                raise
            did, why = "around error", said_error(error)
            message = f"{listener.who}: {why}"
            raise _WrapperFailed(self._broken(HOOK_EXECUTION_ERROR, message, error)) from None
        finally:
            over = True
            took = perf_counter_ns() - began
            us = max(0, took - self._inside) // 1000
            self._inside = outside + took
            self.said.append(Said(listener.who, did, why, None, None, None, us))

    def _broken(self, code: str, message: str, error: Exception) -> ToolResult:
        return failure(
            self._call, code, message, name=type(error).__name__, contexts=tuple(self._deferred), ran=self.ran
        )

    def _authored(self, answer: ToolResult, by: Listener) -> ToolResult:
        """A result that a wrapper made: held to the same contract as the body's own.

        Raises:
            HookContractError: it is a failure that cannot be put on record.
        """
        contexts = as_contexts(answer.contexts, "ToolResult", by.source)
        if answer.error is not None:
            return failed_result(answer, call=self._call, contexts=contexts, ran=self.ran)
        try:
            value = self._call.tool.output.validate(answer.value)
            content = rendered(self._call, value)
        except InvalidOutput as error:
            return failure(self._call, INVALID_TOOL_OUTPUT, str(error), contexts=contexts, ran=self.ran)
        concluded = self._result is not None and self._result.conclude
        return ToolResult(
            call=self._call, content=content, value=value, contexts=contexts, conclude=concluded, ran=self.ran
        )

    # The body

    async def _body(self, given: tuple[Signal, ...]) -> ToolResult:
        call = self._call
        signal = Signal(call.signal)
        unlink = [one.on_set(signal.set) for one in given] if given else ()
        self._runs += 1
        try:
            if self._runs > 1:
                await self._again(self._runs)
            if signal.cause is not None:
                return self._undispatched()
            timer = timed_out = None
            if call.tool.timeout is not None:
                timed_out = Cause("budget", by="timeout")  # this very one: an outer call has another
                timer = asyncio.get_running_loop().call_later(call.tool.timeout, signal.set, timed_out)
            context = ToolContext(call, signal, self._progress, self._call_tool)
            self.context = context
            try:
                result = await self._invoke(context, signal)
            finally:
                if timer is not None:
                    timer.cancel()
                draining = self._drain()
                if draining is not None:
                    signal.set(_RETURNED)
                    await draining
            if timed_out is not None and signal.cause is timed_out:
                message = f"{call.name} took longer than its {call.tool.timeout:g} s"
                result = failure(call, TOOL_TIMEOUT, message, contexts=result.contexts, ran=True)
        finally:
            self.context = None  # it refers back to this: nothing is left for the collector
            signal.release()
            for undo in unlink:
                undo()
        self._result = result
        return result

    def _may_not_act(self) -> bool:
        """Whether the session was lost to another driver, or to a broken disk, while wrappers waited."""
        return self._batch.session.failure is not None and self._call.effect is not Effect.READ

    async def _invoke(self, context: ToolContext, signal: Signal) -> ToolResult:
        tool = self._call.tool
        arguments = self._given(context)
        spoken = SPEAKER.set(tool.source)
        try:
            if tool.is_async and tool.stop is StopMode.PROCESS:
                # It ends its processes when the signal is set, and says what came.
                value = await tool.fn(**arguments)
            elif tool.is_async:
                with Cut(signal):
                    value = await tool.fn(**arguments)
            else:
                value = await self._thread(lambda: tool.fn(**arguments), signal)
            return self._returned(context, value)
        except BaseException as error:  # noqa: BLE001  # the tool's own failure, whatever it is: the model reads it
            return self._raised(context, error)
        finally:
            SPEAKER.reset(spoken)

    def _given(self, context: ToolContext) -> dict[str, Any]:
        """The arguments of this run."""
        call, tool = self._call, self._call.tool
        arguments, self._arguments = self._arguments, None
        if arguments is None:
            arguments = tool.arguments.validate(call.arguments)
        if tool.context_parameter is not None:
            arguments[tool.context_parameter] = context
        self.ran = True
        return arguments

    def _returned(self, context: ToolContext, value: object) -> ToolResult:
        """What a value comes to.

        Raises:
            InvalidOutput, HookContractError: it is not what the tool declares.
        """
        tool = self._call.tool
        output = value if type(value) is ToolOutput else None
        checked = tool.output.validate(output.value if output is not None else value)
        content = self._content(output, checked)
        contexts: Sequence[Message] = context._deferred
        if output is not None:
            contexts = (*contexts, *as_contexts(output.contexts, tool.name, tool.source))
        return ToolResult(
            call=self._call,
            content=content,
            value=checked,
            contexts=self._keep(contexts) if contexts else (),
            conclude=context._conclude or (output is not None and _flag(output.conclude)),
            ran=True,
        )

    def _raised(self, context: ToolContext, error: BaseException) -> ToolResult:
        """What an exception of the body comes to.

        Raises:
            BaseException: the error itself, if it is no outcome: the program is to end, or whoever awaits this.
        """
        match error:
            case Stopped():
                return self._failed(context, ABORTED, "tool call aborted")
            case asyncio.CancelledError():
                if cancelled_from_outside():
                    raise error
                if context.signal.cause is not None:
                    return self._failed(context, ABORTED, "tool call aborted")
                return self._failed(context, TOOL_FAILED, "the tool cancelled itself", "CancelledError")
            case ToolError():
                code = code_of(error, TOOL_FAILED)
                return self._failed(context, code, said_error(error), type(error).__name__)
            case InvalidOutput() | HookContractError():
                return self._failed(context, INVALID_TOOL_OUTPUT, str(error))
            case SystemExit():
                return self._failed(context, TOOL_FAILED, f"the tool called exit({error.code})", "SystemExit")
            case KeyboardInterrupt() | GeneratorExit():
                raise error
            case _:
                return self._failed(context, TOOL_FAILED, said_error(error), type(error).__name__)

    async def _thread(self, body: Callable[[], Any], signal: Signal) -> Any:
        """Run a sync body. A wrapper that gives up waits all the same, unless the body was abandoned on record."""

        def on_cancel() -> None:
            if self.abandoned:
                raise asyncio.CancelledError
            signal.set(_GIVEN_UP)

        return await uncut(in_thread(body), on_cancel)

    def _undispatched(self) -> ToolResult:
        return failure(self._call, ABORTED_BEFORE_DISPATCH, "tool call aborted before dispatch")

    def _failed(self, context: ToolContext, code: str, message: str, name: str = "") -> ToolResult:
        contexts = self._keep(context._deferred)
        return failure(self._call, code, message, name=name, contexts=contexts, ran=True)

    def _keep(self, contexts: Any) -> tuple[Message, ...]:
        self._deferred += contexts
        return tuple(contexts)

    def _content(self, output: ToolOutput | None, value: JSON) -> tuple[Text, ...]:
        if output is None or output.text is None:
            return rendered(self._call, value)
        try:
            return (Text(checked_text(output.text)),)
        except NotJSON as error:
            raise InvalidOutput(str(error)) from None

    def _progress(self, text: str) -> None:
        for listener in self._batch.scope.listeners(PROGRESS):
            try:
                tell(listener, self._call, text)
            except Exception:  # noqa: BLE001, S112  # live only: an observer of progress can break nothing
                continue


def _driven(body: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine that cannot suspend returns."""
    try:
        body.send(None)
    except StopIteration as returned:
        return returned.value
    raise AssertionError("it has suspended")


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidOutput(f"conclude is True or False, not {type(value).__name__}")
    return value


class _WrapperFailed(Exception):
    """A wrapper broke: no outer wrapper sees a result, and there is no review."""

    def __init__(self, result: ToolResult) -> None:
        self.result = result
