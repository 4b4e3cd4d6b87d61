"""One call, as everybody but the model sees it, and its result.

Lives here: `ToolCall` (what policy, guards and wrappers are shown: always a known tool and valid arguments),
`ToolResult` (what observers and post listeners are shown) and `ToolOutput` (what a body may return).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.errors import HookContractError
from interlock.intercept.signal import Signal
from interlock.log.facts import CallError, Said
from interlock.log.messages import Message, Text
from interlock.log.reasons import error_text
from interlock.log.strictjson import FrozenDict, NotJSON, checked_text, freeze
from interlock.tools.confinement import Confinement

if TYPE_CHECKING:
    from interlock.tools.definition import Effect, Tool


class ToolCall(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """A call of a known tool with valid arguments. Immutable, arguments included."""

    key: int  # the seq of its `tool/call` or `subcall/start`: unique in the session
    id: str  # the model's id; a server may repeat it
    name: str
    tool: Tool
    arguments: FrozenDict  # the effective ones, after rewrites
    text: str  # the model's own text
    turn: int
    step: int
    index: int  # in the message, from 0
    signal: Signal
    agent: Any = None  # the loop's Agent, which this layer does not know
    parent: ToolCall | None = None  # the outer call of a nested one
    said: tuple[Said, ...] = ()  # what earlier participants answered, at the point that is asking now
    cwd: Path | None = None
    confinement: Confinement | None = None  # of the processes of a tool that says `sandbox=True`

    @property
    def effect(self) -> Effect:
        return self.tool.effect

    def with_arguments(self, **changed: Any) -> ToolCall:
        """The same call with some arguments changed.

        Raises:
            NotJSON: a changed value is not strict JSON.
        """
        return msgspec.structs.replace(self, arguments=freeze({**self.arguments, **changed}))

    def __repr__(self) -> str:
        return f"<ToolCall {self.name}#{self.id} {dict(self.arguments)!r}>"


class ToolOutput:
    """What a body returns when the plain value is not enough.

    value: one JSON value. text: what the model reads instead of the rendered value. contexts: said to the model
    with the next step. conclude: the turn may end after this batch.
    """

    __slots__ = ("conclude", "contexts", "text", "value")

    def __init__(
        self,
        value: Any,
        text: str | None = None,
        *,
        contexts: Iterable[Message | str] = (),
        conclude: bool = False,
    ) -> None:
        self.value = value
        self.text = text
        self.contexts = tuple(contexts)
        self.conclude = conclude

    def __repr__(self) -> str:
        return f"ToolOutput({self.value!r}, text={self.text!r}, conclude={self.conclude})"


class ToolResult(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What one call came to."""

    call: ToolCall | None  # None where there was no valid call: unknown tool, invalid arguments, skipped
    content: tuple[Text, ...]
    value: Any = None  # the frozen JSON value of a success
    error: CallError | None = None
    contexts: tuple[Message, ...] = ()
    conclude: bool = False
    ran: bool = False  # the body was invoked

    @property
    def ok(self) -> bool:
        return self.error is None

    @property
    def text(self) -> str:
        return "\n".join([block.text for block in self.content])


def tool_success(content: str) -> ToolResult:
    """A result for hooks to give in place of another."""
    return ToolResult(call=None, content=(Text(content),), value=content)


def tool_error(code: str, message: str) -> ToolResult:
    """A failed result for hooks to give: the model reads `Error [code]: message`."""
    return ToolResult(
        call=None, content=(Text(error_text(code, message)),), error=CallError(code.upper(), "", False)
    )


def failed_result(
    given: ToolResult, *, call: ToolCall, contexts: tuple[Message, ...], ran: bool
) -> ToolResult:
    """A failure that somebody else made, as the result of this call.

    Raises:
        HookContractError: its error or content cannot be put on record.
    """
    error: object = given.error
    content: object = given.content
    if not isinstance(error, CallError):
        raise HookContractError(f"the error of a ToolResult is a CallError, not {type(error).__name__}")
    if not isinstance(content, tuple) or any(type(block) is not Text for block in content):
        raise HookContractError("the content of a ToolResult is a tuple of Text")
    try:
        made = CallError(checked_text(error.code).upper(), checked_text(error.name), ran)
        content = tuple([Text(checked_text(block.text)) for block in content])
    except NotJSON as problem:
        raise HookContractError(f"ToolResult: {problem}") from None
    return ToolResult(call=call, content=content, error=made, contexts=contexts, ran=ran)


def arguments_of(value: Mapping[str, Any]) -> FrozenDict:
    """Frozen arguments.

    Raises:
        NotJSON: not strict JSON.
    """
    frozen = freeze(value)
    assert type(frozen) is FrozenDict
    return frozen
