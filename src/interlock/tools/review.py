"""After an outcome is known: post-execute and the tool's last word.

Lives here: `review`, which lets post listeners replace, block or comment a result, and the finaliser change its text.
What a tool did is not undone by any of it. A listener that fails, or is cut, withholds the result.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import assert_never

import msgspec

from interlock.errors import HookContractError, said_error
from interlock.intercept.decisions import Accept, Block, Replace
from interlock.intercept.point import Listener, hear
from interlock.intercept.signal import Stopped
from interlock.log.facts import CallError, Edit, Said
from interlock.log.messages import Message, Text
from interlock.log.reasons import (
    BLOCKED,
    HOOK_CONTRACT_ERROR,
    HOOK_EXECUTION_ERROR,
    INVALID_TOOL_OUTPUT,
    RESULT_WITHHELD,
    error_text,
)
from interlock.log.strictjson import check_text
from interlock.tools.admission import failure
from interlock.tools.arguments import InvalidOutput
from interlock.tools.batch import Batch
from interlock.tools.call import ToolCall, ToolResult
from interlock.tools.points import POST_EXECUTE
from interlock.tools.rendering import rendered


class Reviewed(msgspec.Struct):
    """What the review made of a result."""

    result: ToolResult
    edits: tuple[Edit, ...] = ()
    said: tuple[Said, ...] = ()  # everybody who did not abstain, in order
    stop: str | None = None  # who ends the turn after this batch
    failed: bool = False  # a listener failed: the result before it is kept in the log only
    problem: tuple[str, str] | None = None  # who broke the contract, and how


async def review(batch: Batch, call: ToolCall, result: ToolResult, earlier: tuple[Message, ...]) -> Reviewed:
    """Hear every post listener, each with what the earlier ones made of the result.

    Args:
        earlier: contexts of prepare and pre-execute, which survive a Block.
    """
    made = Reviewed(result)
    said: list[Message] = []
    blocking: list[Message] = []
    blocked: Block | None = None
    for listener in batch.scope.listeners(POST_EXECUTE):
        # A listener is cut when the turn is stopped while it runs; on a turn that is stopped already it still runs.
        signal = None if call.signal.is_set() else call.signal
        began = perf_counter_ns()
        try:
            answer: Accept | Replace | Block | None = await hear(listener, signal, call, made.result)
            if answer is None:
                continue
            if answer.stop and made.stop is None:
                made.stop = listener.who
            match answer:
                case Accept(contexts=contexts):
                    _note(made, listener, "accept", None, began)
                    said += contexts
                case Replace(contexts=contexts):
                    said += contexts
                    made.result = _replaced(listener, call, made.result, answer)
                    _note(made, listener, "replace", None, began)
                    made.edits = (*made.edits, Edit(listener.who, "replaced"))
                case Block(contexts=contexts, feedback=feedback):
                    _note(made, listener, "block", feedback or None, began)
                    blocking += contexts
                    blocked = blocked or answer
                    made.edits = (*made.edits, Edit(listener.who, "blocked"))
                case _:
                    assert_never(answer)
        except Stopped:
            _note(made, listener, "cut", None, began)
            return _failed(
                made, call, RESULT_WITHHELD, f"{listener.who} was cut while it reviewed the result"
            )
        except HookContractError as error:
            _note(made, listener, "error", error.problem, began)
            made.problem = (listener.who, error.problem)
            return _failed(made, call, HOOK_CONTRACT_ERROR, f"{listener.who}: {error.problem}", error)
        except Exception as error:  # noqa: BLE001  # a listener's own failure
            _note(made, listener, "error", said_error(error), began)
            return _failed(made, call, HOOK_EXECUTION_ERROR, f"{listener.who}: {said_error(error)}", error)
    contexts = (*earlier, *result.contexts, *said)
    if blocked is not None:
        feedback = blocked.feedback or "the result was withheld by a review"
        made.result = ToolResult(
            call=call,
            content=(Text(error_text(BLOCKED, feedback)),),
            error=CallError(BLOCKED, "", result.ran),
            ran=result.ran,
        )
        contexts = (*earlier, *blocking)
    made.result = msgspec.structs.replace(made.result, contexts=contexts)
    return made


def _note(made: Reviewed, listener: Listener, answer: str, reason: str | None, began: int) -> None:
    us = (perf_counter_ns() - began) // 1000
    made.said = (*made.said, Said(listener.who, answer, reason, us=us))


def _replaced(listener: Listener, call: ToolCall, result: ToolResult, answer: Replace) -> ToolResult:
    if not answer.has_value:
        assert isinstance(answer.content, tuple)
        error = CallError(answer.error, "", result.ran) if answer.error is not None else result.error
        return msgspec.structs.replace(result, content=answer.content, value=None, error=error)
    if result.error is not None:
        raise HookContractError(
            "replaced the value of a failed call; give content instead",
            who=listener.who,
            point=POST_EXECUTE.name,
        )
    try:
        value = call.tool.output.validate(answer.value)
    except InvalidOutput as error:
        raise HookContractError(
            f"the value does not fit what {call.name} returns: {error}",
            who=listener.who,
            point=POST_EXECUTE.name,
        ) from None
    return msgspec.structs.replace(result, value=value, content=rendered(call, value))


def _failed(
    made: Reviewed, call: ToolCall, code: str, message: str, error: Exception | None = None
) -> Reviewed:
    made.failed = True
    name = type(error).__name__ if error is not None else ""
    made.result = failure(call, code, message, name=name, contexts=made.result.contexts, ran=made.result.ran)
    return made


def finalise(call: ToolCall, made: Reviewed) -> None:
    """The last word on the text of a tool that has one; once for every outcome that went through the pipeline."""
    assert call.tool.finalise is not None
    try:
        text: object = call.tool.finalise(call, made.result)
        if text is None:
            return
        if type(text) is not str:
            raise InvalidOutput(f"the finaliser of {call.name} gave {type(text).__name__}, not text or None")
        content = (Text(check_text(text)),)
    except Exception as error:  # noqa: BLE001  # the tool's own failure
        made.failed = True
        made.result = failure(
            call,
            INVALID_TOOL_OUTPUT,
            f"the finaliser of {call.name} failed: {said_error(error)}",
            name=type(error).__name__,
            contexts=made.result.contexts,
            ran=made.result.ran,
        )
        return
    made.result = msgspec.structs.replace(made.result, content=content, value=None)
    made.edits = (*made.edits, Edit(call.name, "finalised"))
