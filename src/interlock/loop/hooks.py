"""The four-event hook surface: one context type an event, one `HookResult` with per-event legal fields.

Lives here: `HOOK_EVENTS`, the contexts, `HookResult` and `HookSurface`. It stands on the points: a surface is one
listener a scope and event, registered where its first callback was. Hooks can advise, rewrite and block; they cannot
authorise.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, fields
from time import perf_counter_ns
from typing import Any, Literal, TypeAlias, dataclass_transform, get_args

import msgspec

from interlock.errors import HookContractError, ToolError
from interlock.intercept.decisions import (
    Accept,
    Advise,
    Allow,
    Ask,
    Continue,
    Deny,
    Enter,
    Refuse,
    Replace,
    Rewrite,
    Verdict,
)
from interlock.intercept.point import Kind, Listener, Point, hear
from interlock.intercept.scope import Dispose, Scope
from interlock.log.facts import HookInvoked, HookResulted
from interlock.log.messages import Message, Source, as_message
from interlock.log.reasons import HOOK_BLOCKED
from interlock.log.strictjson import NotJSON, freeze
from interlock.loop.points import PRE_STEP, TURN_STOPPING, Proposal, Stopping
from interlock.tools.call import ToolCall, ToolResult
from interlock.tools.points import POST_EXECUTE, PREPARE

HookEvent: TypeAlias = Literal["UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop"]
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)

PermissionBehavior: TypeAlias = Literal["passthrough", "allow", "ask", "deny"]
_BEHAVIORS: tuple[str, ...] = get_args(PermissionBehavior)

_LEGAL: dict[str, frozenset[str]] = {
    "UserPromptSubmit": frozenset({"additional_context"}),
    "PreToolUse": frozenset({"additional_context", "permission_behavior", "updated_input", "blocking_error"}),
    "PostToolUse": frozenset({"additional_context", "updated_output", "prevent_continuation"}),
    "Stop": frozenset({"additional_context", "force_continue"}),
}


class _Foreign(HookContractError, AttributeError):
    """A field that this event's context does not have; an AttributeError too, so that `hasattr` answers."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class _Context:
    """A context has its own fields and no others, and says so."""

    def __init_subclass__(cls) -> None:
        fields_ = tuple(cls.__annotations__)

        def init(self: _Context, **given: object) -> None:
            if given.keys() != set(fields_):
                raise HookContractError(
                    f"{cls.__name__} has exactly the fields {', '.join(fields_)}, not {', '.join(given) or 'none'}"
                )
            for name, value in given.items():
                object.__setattr__(self, name, value)

        cls.__init__ = init  # type: ignore[assignment]  # one constructor for all four

    def __getattr__(self, name: str) -> Any:
        raise _Foreign(
            f"{type(self).__name__} has no {name!r}; it has {', '.join(type(self).__annotations__)}"
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise HookContractError(f"{type(self).__name__} is frozen: answer with a HookResult instead")

    def __delattr__(self, name: str) -> None:
        raise HookContractError(f"{type(self).__name__} is frozen: nothing can be taken out of it")


class UserPromptContext(_Context):
    """A person's message is about to be admitted."""

    message: Message


class PreToolContext(_Context):
    """A valid call, before permission."""

    call: ToolCall


class PostToolContext(_Context):
    """A call whose body ran, and its result as earlier callbacks left it."""

    call: ToolCall
    result: ToolResult


class StopContext(_Context):
    """The model answered without calls. `stop_hook_active`: the turn was continued by a Stop hook before."""

    history: Any
    stop_hook_active: bool


HookContext: TypeAlias = UserPromptContext | PreToolContext | PostToolContext | StopContext


@dataclass(frozen=True)
class HookResult:
    """What a callback answers. Every field has one meaning, and is legal on some events only.

    permission_behavior: advice, never authority. updated_input: `call.with_arguments(...)`. updated_output:
    `tool_success(...)`, or `tool_error(...)` to make a failure of it; a failed call stays failed. additional_context:
    system messages or strings. blocking_error: a failed result, `tool_error(...)`. prevent_continuation: end the turn
    after this batch. force_continue: a user message.

    Raises:
        HookContractError: a value that its field does not allow.
    """

    permission_behavior: PermissionBehavior = "passthrough"
    updated_input: ToolCall | None = None
    updated_output: ToolResult | None = None
    additional_context: tuple[Message, ...] = ()
    blocking_error: ToolResult | None = None
    prevent_continuation: bool = False
    force_continue: Message | None = None

    def __init__(
        self,
        *,
        permission_behavior: PermissionBehavior = "passthrough",
        updated_input: ToolCall | None = None,
        updated_output: ToolResult | None = None,
        additional_context: Iterable[Message | str] | str = (),
        blocking_error: ToolResult | None = None,
        prevent_continuation: bool = False,
        force_continue: Message | str | None = None,
    ) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        if permission_behavior not in _BEHAVIORS:
            raise HookContractError(
                f"permission_behavior is one of {', '.join(_BEHAVIORS)}, not {permission_behavior!r}"
            )
        _is("updated_input", updated_input, ToolCall)
        _is("updated_output", updated_output, ToolResult)
        _is("blocking_error", blocking_error, ToolResult)
        if blocking_error is not None and blocking_error.ok:
            raise HookContractError(
                "blocking_error must be an error result: make one with tool_error(code, message)"
            )
        given: object = prevent_continuation
        if not isinstance(given, bool):
            raise HookContractError(f"prevent_continuation is True or False, not {given!r}")
        put("permission_behavior", permission_behavior)
        put("updated_input", updated_input)
        put("updated_output", updated_output)
        put("additional_context", _system_messages(additional_context))
        put("blocking_error", blocking_error)
        put("prevent_continuation", prevent_continuation)
        put("force_continue", _user_message(force_continue))

    @property
    def set_fields(self) -> tuple[str, ...]:
        """The names of the fields that say something."""
        return tuple(f.name for f in fields(self) if getattr(self, f.name) != f.default)

    def validate_for(self, event: str) -> None:
        """
        Raises:
            HookContractError: an unknown event, or fields that are not legal on it: all of them in one error.
        """
        if event not in _LEGAL:
            raise HookContractError(f"{event!r} is no hook event: {', '.join(HOOK_EVENTS)}")
        illegal = [name for name in self.set_fields if name not in _LEGAL[event]]
        if illegal:
            raise HookContractError(
                f"{', '.join(illegal)} cannot be set on {event}; legal are {', '.join(sorted(_LEGAL[event]))}"
            )


def _is(name: str, value: object, cls: type) -> None:
    if value is not None and type(value) is not cls:
        raise HookContractError(f"{name} is a {cls.__name__}, not {type(value).__name__}")


def _system_messages(given: Iterable[Message | str] | str) -> tuple[Message, ...]:
    several: object = (given,) if isinstance(given, (str, Message)) else given
    if not isinstance(several, Iterable):
        raise HookContractError(f"additional_context holds messages, not {type(given).__name__}")
    return tuple(
        [
            _message(
                Message.context(one) if isinstance(one, str) else one,
                "additional_context",
                "system",
                "another role would forge a speaker or a result",
            )
            for one in several
        ]
    )


def _user_message(given: Message | str | None) -> Message | None:
    if given is None:
        return None
    message: object = Message.user(given) if isinstance(given, str) else given
    return _message(message, "force_continue", "user", "it takes the place of a person's next words")


def _message(message: object, field: str, role: str, why: str) -> Message:
    if type(message) is not Message:
        raise HookContractError(f"{field} takes messages and strings, not {type(message).__name__}")
    if message.role != role:
        raise HookContractError(f"{field} takes {role} messages only, not {message.role!r}: {why}")
    try:
        return as_message(message)
    except NotJSON as error:
        raise HookContractError(f"{field}: {error}") from None


Callback: TypeAlias = Callable[[Any], HookResult | Awaitable[HookResult | None] | None]

_CALLBACK: dict[str, Point[Any]] = {
    event: Point(f"hook {event}", event, Kind.DECIDE, (HookResult,), "", "(context)") for event in HOOK_EVENTS
}
_POINTS: dict[str, Point[Any]] = {
    "UserPromptSubmit": PRE_STEP,
    "PreToolUse": PREPARE,
    "PostToolUse": POST_EXECUTE,
    "Stop": TURN_STOPPING,
}
_STRICTNESS = {"passthrough": 0, "allow": 1, "ask": 2, "deny": 3}


class HookSurface:
    """The callbacks of one scope: `hooks.register("PreToolUse", fn)` or `@hooks("PreToolUse")`."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._callbacks: dict[str, list[Listener]] = {event: [] for event in HOOK_EVENTS}
        self._listening: dict[str, Dispose] = {}

    def __call__(self, event: HookEvent) -> Callable[[Callback], Dispose]:
        return lambda callback: self.register(event, callback)

    def register(
        self, event: HookEvent, callback: Callback, *, timeout: float | None = None, name: str | None = None
    ) -> Dispose:
        """Call `callback` at the event, in order of registration; returns the way to undo it.

        Raises:
            HookContractError: no such event, or not callable. UsageError: the timeout is not above 0.
        """
        if event not in HOOK_EVENTS:
            raise HookContractError(f"{event!r} is no hook event: {', '.join(HOOK_EVENTS)}")
        if not callable(callback):
            raise HookContractError(f"{event}: a callback is a function, not {type(callback).__name__}")
        callbacks = self._callbacks[event]
        listener = self._scope.listener(_CALLBACK[event], callback, timeout=timeout, name=name)
        callbacks.append(listener)
        if event not in self._listening:
            answer = getattr(self, f"_{_POINTS[event].attribute}")
            self._listening[event] = self._scope.listen(
                _POINTS[event], answer, name=f"{self._scope.name}:{event}"
            )

        def dispose() -> None:
            if listener in callbacks:
                callbacks.remove(listener)
            if not callbacks and event in self._listening:
                self._listening.pop(event)()

        return self._scope.owns(dispose)

    # UserPromptSubmit, at agent/pre-step

    async def _pre_step(self, proposal: Proposal) -> Enter | None:
        if proposal.rejected is not None:
            return None
        contexts: list[Message] = []
        for message in proposal.messages:
            if message.source.kind != "person":
                continue
            for listener in tuple(self._callbacks["UserPromptSubmit"]):
                run = _Run(proposal.agent.session, "UserPromptSubmit", listener)
                result = await run.hear(proposal.signal, UserPromptContext(message=message))
                if result is not None:
                    contexts += [_by(context, listener) for context in result.additional_context]
                    run.log(result)
        return Enter(proposal.messages, contexts=tuple(contexts)) if contexts else None

    # PreToolUse, at tools/prepare

    async def _prepare(self, call: ToolCall) -> Rewrite | Advise | Refuse | None:
        effective, contexts = call, list[Message]()
        behavior, reason = "passthrough", ""
        for listener in tuple(self._callbacks["PreToolUse"]):
            run = _Run(call.agent.session, "PreToolUse", listener, call.key)
            result = await run.hear(call.signal, PreToolContext(call=effective))
            if result is None:
                continue
            contexts += [_by(context, listener) for context in result.additional_context]
            if result.updated_input is not None:
                effective = _same_call(effective, result.updated_input, listener)
            if _STRICTNESS[result.permission_behavior] > _STRICTNESS[behavior]:
                behavior, reason = (
                    result.permission_behavior,
                    f"{listener.who} says {result.permission_behavior}",
                )
            run.log(result)
            if result.blocking_error is not None:
                return Refuse(_refusal(result.blocking_error), contexts=tuple(contexts))
        advice: Verdict | None = None
        if behavior != "passthrough":
            advice = Allow() if behavior == "allow" else Ask(reason) if behavior == "ask" else Deny(reason)
        if effective.arguments != call.arguments:
            return Rewrite(effective.arguments, advise=advice, contexts=tuple(contexts))
        if advice is not None or contexts:
            return Advise(advice, contexts=tuple(contexts))
        return None

    # PostToolUse, at tools/post-execute

    async def _post_execute(self, call: ToolCall, result: ToolResult) -> Accept | Replace | None:
        if not result.ran:
            return None
        current, contexts, stop = result, list[Message](), False
        for listener in tuple(self._callbacks["PostToolUse"]):
            run = _Run(call.agent.session, "PostToolUse", listener, call.key)
            said = await run.hear(
                None if call.signal.is_set() else call.signal, PostToolContext(call=call, result=current)
            )
            if said is None:
                continue
            contexts += [_by(context, listener) for context in said.additional_context]
            if said.updated_output is not None:
                current = msgspec.structs.replace(
                    said.updated_output, call=call, ran=True, error=said.updated_output.error or current.error
                )
            stop = stop or said.prevent_continuation
            run.log(said)
        if current is not result:
            error = current.error.code if current.error is not None else None
            return Replace(content=current.content, error=error, contexts=tuple(contexts), stop=stop)
        return Accept(contexts=tuple(contexts), stop=stop) if contexts or stop else None

    # Stop, at agent/turn-stopping

    async def _turn_stopping(self, stopping: Stopping) -> Continue | None:
        if not stopping.answered:
            return None
        session = stopping.agent.session
        active = session.state.turn.hook_forced
        forced: Message | None = None
        contexts: list[Message] = []
        heard: list[tuple[_Run, HookResult]] = []
        for listener in tuple(self._callbacks["Stop"]):
            run = _Run(session, "Stop", listener)
            result = await run.hear(
                stopping.signal, StopContext(history=stopping.history, stop_hook_active=active)
            )
            if result is None:
                continue
            heard.append((run, result))
            contexts += [_by(context, listener) for context in result.additional_context]
            if result.force_continue is not None and not active:
                forced = _by(result.force_continue, listener)
                break
        unused = "a Stop hook has continued this turn before" if active else "no Stop hook continued the turn"
        for run, result in heard:
            won = forced is not None and result.force_continue is not None
            run.log(result, won=won, unused=None if forced is not None else unused)
        return Continue(forced, contexts=tuple(contexts)) if forced is not None else None


class _Run:
    """One callback's turn to speak, and its two lines, which are written only when it said something."""

    def __init__(self, session: Any, event: str, listener: Listener, call: int | None = None) -> None:
        self._session = session
        self._event = event
        self._listener = listener
        self._call = call
        self._began = perf_counter_ns()
        self._ms = 0

    async def hear(self, signal: Any, context: HookContext) -> HookResult | None:
        result: HookResult | None = await hear(self._listener, signal, context)
        self._ms = (perf_counter_ns() - self._began) // 1_000_000
        if result is None:
            return None
        try:
            result.validate_for(self._event)
        except HookContractError as error:
            raise HookContractError(error.problem, who=self._listener.who, point=self._event) from None
        return result if result.set_fields else None

    def log(self, result: HookResult, *, won: bool = False, unused: str | None = None) -> None:
        session = self._session
        hook_id = f"h{session.head + 1}"
        said: dict[str, Any] = {}
        for name in result.set_fields:
            value = getattr(result, name)
            said[name] = _readable(value)
        session.append(
            HookInvoked(hook_id, self._event, self._listener.who, self._call),
            HookResulted(hook_id, self._ms, freeze(said), won=won, unused=unused),
        )


def _readable(value: object) -> Any:
    match value:
        case Message():
            return value.text
        case ToolCall():
            return value.arguments
        case ToolResult():
            return value.text
        case tuple():
            return [_readable(one) for one in value]
        case _:
            return value


def _by(message: Message, listener: Listener) -> Message:
    return Message(role=message.role, content=message.content, source=Source("hook", listener.who))


def _same_call(call: ToolCall, updated: ToolCall, listener: Listener) -> ToolCall:
    """The updated call, if it is the same call of the same tool: arguments are all that a hook may change."""
    if (
        updated.key != call.key
        or updated.id != call.id
        or updated.name != call.name
        or updated.tool is not call.tool
    ):
        raise HookContractError(
            f"updated_input is another call ({updated.name}#{updated.id}): it must come from "
            f"context.call.with_arguments(...)",
            who=listener.who,
            point="PreToolUse",
        )
    try:
        arguments = freeze(updated.arguments)
        call.tool.arguments.validate(arguments)
    except ValueError as error:  # InvalidArguments or NotJSON
        raise HookContractError(
            f"updated_input does not fit {call.name}: {error}", who=listener.who, point="PreToolUse"
        ) from None
    return msgspec.structs.replace(call, arguments=arguments)


def _refusal(result: ToolResult) -> ToolError:
    error = result.error
    code = error.code if error is not None else HOOK_BLOCKED
    text = result.text
    prefix = f"Error [{code.lower()}]: "
    return ToolError(text.removeprefix(prefix), code=code)
