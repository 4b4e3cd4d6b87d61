"""Before a call may run: lookup, preparation, rules and guards.

Lives here: the stages of the first lane, as functions from a call to what became of it. They read the registrations in
force, and write nothing: the pipeline does. Whatever goes wrong in a participant closes the door.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any, assert_never

import msgspec

from interlock.errors import HookContractError, ToolError, said_error
from interlock.intercept.decisions import (
    ALLOW,
    Advise,
    Allow,
    Deny,
    Refuse,
    Rewrite,
    Verdict,
    folded,
    kind_of,
    severity,
    verdict_name,
)
from interlock.intercept.point import SPEAKER, Listener, hear
from interlock.intercept.signal import Stopped
from interlock.log.facts import Advice, CallError, Change, Said
from interlock.log.messages import Message, Text
from interlock.log.reasons import (
    DENIED,
    GUARD_DENIED,
    HOOK_CONTRACT_ERROR,
    HOOK_EXECUTION_ERROR,
    INVALID_ARGS,
    PERMISSION_EVALUATION_ERROR,
    SANDBOX_UNAVAILABLE,
    UNKNOWN_TOOL,
    error_text,
)
from interlock.log.strictjson import EMPTY, MAX_ARGUMENTS, FrozenDict, NotJSON, parse
from interlock.tools.arguments import InvalidArguments
from interlock.tools.batch import Batch
from interlock.tools.call import ToolCall, ToolResult
from interlock.tools.definition import Tool
from interlock.tools.points import GUARD, PRE_EXECUTE, PREPARE


def failure(
    call: ToolCall | None,
    code: str,
    message: str,
    *,
    name: str = "",
    contexts: tuple[Message, ...] = (),
    ran: bool = False,
) -> ToolResult:
    """A failed result, as the model reads it."""
    return ToolResult(
        call=call,
        content=(Text(error_text(code, message)),),
        error=CallError(code, name, ran),
        contexts=contexts,
        ran=ran,
    )


def code_of(error: ToolError, default: str) -> str:
    """The code of a tool's error as data: upper case; the default where it gives none that can be used."""
    code: object = error.code
    return code.upper() if isinstance(code, str) and code.isascii() and code.strip() else default


def as_context(message: Message, key: int, n: int) -> Message:
    """A context with an id of its own in the session."""
    return msgspec.structs.replace(message, id=f"x{key}.{n}")


# Lookup and validation


class Looked(msgspec.Struct, eq=False):
    """A call that was looked up: its tool and arguments, or what is wrong with it."""

    tool: Tool | None
    arguments: FrozenDict = EMPTY
    problem: tuple[str, str] | None = None  # code, message
    values: dict[str, Any] | None = None  # the arguments as the function takes them, used by one run


def look(tool: Tool | None, name: str, text: str, known: Callable[[], tuple[str, ...]]) -> Looked:
    """Look at what the model wrote: pure, and before anybody is asked."""
    if tool is None:
        return unknown(name, known)
    if len(text) > MAX_ARGUMENTS:
        return Looked(
            tool,
            problem=(
                INVALID_ARGS,
                f"the arguments have {len(text):,} characters, more than {MAX_ARGUMENTS:,}",
            ),
        )
    try:
        arguments = parse(text) if text.strip() else EMPTY
    except NotJSON as error:
        return Looked(tool, problem=(INVALID_ARGS, f"the arguments are not valid JSON: {error}"))
    if type(arguments) is not FrozenDict:
        return Looked(tool, problem=(INVALID_ARGS, f"the arguments must be a JSON object, not {text[:40]}"))
    return fit(tool, arguments)


def unknown(name: str, known: Callable[[], tuple[str, ...]]) -> Looked:
    names = ", ".join(known()) or "none"
    return Looked(None, problem=(UNKNOWN_TOOL, f"there is no tool named {name!r}. Tools: {names}"))


def fit(tool: Tool, arguments: FrozenDict) -> Looked:
    """Look at arguments that are known: do they fit the tool?"""
    given: object = arguments
    if type(given) is not FrozenDict:
        return Looked(tool, problem=(INVALID_ARGS, f"the arguments must be a JSON object, not {given!r:.40}"))
    try:
        values = tool.arguments.validate(arguments)
    except InvalidArguments as error:
        return Looked(tool, arguments, problem=(INVALID_ARGS, str(error)))
    return Looked(tool, arguments, values=values)


# tools/prepare


class Prepared(msgspec.Struct):
    """What `tools/prepare` made of a call."""

    call: ToolCall
    changes: list[Change] = msgspec.field(default_factory=list)
    advice: list[tuple[Listener, Verdict]] = msgspec.field(default_factory=list)
    contexts: list[Message] = msgspec.field(default_factory=list)
    said: tuple[Said, ...] = ()  # everybody who did not abstain, in order
    refused: ToolResult | None = None
    stop: str | None = None  # who ends the turn after this batch
    reviewed: bool = True  # whether post-execute may see the outcome
    problem: tuple[str, str] | None = None  # who broke the contract, and how

    @property
    def noted(self) -> tuple[Advice, ...]:
        return tuple(
            [Advice(verdict_name(v), listener.who, getattr(v, "reason", None)) for listener, v in self.advice]
        )


async def prepare(batch: Batch, call: ToolCall) -> Prepared:
    """Let everybody rewrite, advise or refuse, in order.

    Raises:
        Stopped: the turn was stopped meanwhile.
    """
    made = Prepared(call)
    for listener in batch.scope.listeners(PREPARE):
        began = perf_counter_ns()
        try:
            answer: Rewrite | Advise | Refuse | None = await hear(listener, call.signal, made.call)
            if answer is None:
                continue
            match answer:
                case Rewrite(arguments=arguments, advise=advised, contexts=contexts):
                    rewritten = _rewritten(listener, made.call, batch.session.redacted(arguments))
                    made.changes.append(Change(listener.who, made.call.arguments, rewritten.arguments))
                    made.call = rewritten
                    _advise(made, listener, advised)
                    also = f", advise {verdict_name(advised)}" if advised is not None else ""
                    _note(made, listener, f"rewrite{also}", getattr(advised, "reason", None), began)
                    made.contexts += contexts
                case Advise(verdict=advised, contexts=contexts):
                    _advise(made, listener, advised)
                    if advised is not None:
                        reason = getattr(advised, "reason", None)
                        _note(made, listener, f"advise {verdict_name(advised)}", reason, began)
                    elif contexts:
                        _note(made, listener, "context", None, began)
                    made.contexts += contexts
                case Refuse(error=error, contexts=contexts, stop=stop):
                    made.contexts += contexts
                    made.stop = listener.who if stop else None
                    code, message = code_of(error, DENIED), said_error(error)
                    _note(made, listener, f"refuse {code}", message, began)
                    made.refused = failure(made.call, code, message, name=type(error).__name__)
                    return made
                case _:
                    assert_never(answer)
        except Stopped:
            raise
        except HookContractError as error:
            made.problem = (listener.who, error.problem)
            _note(made, listener, "error", error.problem, began)
            return _broken(made, HOOK_CONTRACT_ERROR, f"{listener.who}: {error.problem}", error)
        except Exception as error:  # noqa: BLE001  # a listener's own failure: the call does not run
            _note(made, listener, "error", said_error(error), began)
            return _broken(made, HOOK_EXECUTION_ERROR, f"{listener.who}: {said_error(error)}", error)
    return made


def _broken(made: Prepared, code: str, message: str, error: Exception) -> Prepared:
    made.refused = failure(made.call, code, message, name=type(error).__name__)
    made.contexts.clear()  # an exception of a point takes that point's contexts with it
    made.reviewed = False
    return made


def _rewritten(listener: Listener, call: ToolCall, arguments: object) -> ToolCall:
    assert type(arguments) is FrozenDict
    try:
        call.tool.arguments.validate(arguments)
    except InvalidArguments as error:
        raise HookContractError(
            f"rewrote the arguments of {call.name} so that they do not fit it: {error}",
            who=listener.who,
            point=PREPARE.name,
        ) from None
    return msgspec.structs.replace(call, arguments=arguments)


def _advise(made: Prepared, listener: Listener, verdict: Verdict | None) -> None:
    if verdict is not None:
        made.advice.append((listener, verdict))


def _note(made: Prepared, listener: Listener, answer: str, reason: str | None, began: int) -> None:
    made.said = (*made.said, Said(listener.who, answer, reason, us=_since(began)))
    made.call = msgspec.structs.replace(made.call, said=made.said)


def _since(began: int) -> int:
    """Microseconds since then, by `perf_counter_ns`."""
    return (perf_counter_ns() - began) // 1000


# tools/pre-execute


class Decided(msgspec.Struct, eq=False):
    """The verdict on a call, by whom, and what everybody said."""

    verdict: Verdict
    by: str
    code: str | None = None
    said: tuple[Said, ...] = ()
    contexts: tuple[Message, ...] = ()
    reviewed: bool = True
    problem: tuple[str, str] | None = None

    @property
    def reason(self) -> str | None:
        return None if isinstance(self.verdict, Allow) else self.verdict.reason


async def decide(batch: Batch, call: ToolCall, advice: list[tuple[Listener, Verdict]]) -> Decided:
    """Fold what everybody says: deny > ask > allow > the preset's default. All are heard, also after a denial.

    Advice only holds back: to allow it overrules nobody, and to ask it leaves a default that denies in force.

    Raises:
        Stopped: the turn was stopped meanwhile.
    """
    listeners = batch.scope.listeners(PRE_EXECUTE)
    if not listeners and not advice and batch.default is None and batch.rules is None:
        return _NOBODY_SPOKE
    spoken: list[tuple[Verdict, str]] = []
    held: list[tuple[Verdict, str]] = []
    said: list[Said] = []
    contexts: list[Message] = []
    for listener, verdict in advice:
        said.append(Said(listener.who, f"advise {verdict_name(verdict)}", getattr(verdict, "reason", None)))
        if severity(verdict) > 0:
            held.append((verdict, listener.who))
    if batch.rules is not None:
        began = perf_counter_ns()
        try:
            ruled = batch.rules.rule(call)
        except Exception as error:  # noqa: BLE001  # whatever fails in the rules: no
            return _no("rules", PERMISSION_EVALUATION_ERROR, said_error(error), said, began)
        if ruled is not None:
            if ruled.said:  # they are looked at as one: the time is noted once
                said += (msgspec.structs.replace(ruled.said[0], us=_since(began)), *ruled.said[1:])
            spoken += ruled.spoken
            held += ruled.held
            call = msgspec.structs.replace(call, said=(*call.said, *ruled.said))
    for listener in listeners:
        began = perf_counter_ns()
        try:
            answer: Verdict | None = await hear(listener, call.signal, call)
        except Stopped:
            raise
        except HookContractError as error:
            return _no(listener.who, HOOK_CONTRACT_ERROR, error.problem, said, began)
        except Exception as error:  # noqa: BLE001  # a listener's own failure: no
            return _no(listener.who, PERMISSION_EVALUATION_ERROR, said_error(error), said, began)
        if answer is not None:
            us = _since(began)
            said.append(Said(listener.who, verdict_name(answer), getattr(answer, "reason", None), us=us))
            spoken.append((answer, listener.who))
            contexts += answer.contexts
            call = msgspec.structs.replace(call, said=(*call.said, said[-1]))
    default = _ALLOWED
    if not spoken and batch.default is not None:
        began = perf_counter_ns()
        try:
            default = batch.default(call)
        except Exception as error:  # noqa: BLE001  # a preset of somebody's own: no
            return _no("preset", PERMISSION_EVALUATION_ERROR, said_error(error), said, began)
    verdict, by = folded(spoken, held, default)
    return Decided(verdict, by, DENIED if isinstance(verdict, Deny) else None, tuple(said), tuple(contexts))


_ALLOWED: tuple[Verdict, str] = (ALLOW, "default")
_NOBODY_SPOKE = Decided(*_ALLOWED)


def _no(who: str, code: str, problem: str, said: list[Said], began: int) -> Decided:
    return Decided(
        Deny(f"{who}: {problem}"),
        who,
        code,
        (*said, Said(who, "error", problem, us=_since(began))),
        reviewed=False,
        problem=(who, problem) if code == HOOK_CONTRACT_ERROR else None,
    )


# Guards


def guard(batch: Batch, call: ToolCall) -> Decided | None:
    """Ask every guard, and last whether the call can be confined. The first reason is given; a guard that fails denies."""
    denied: Decided | None = None
    for listener in batch.scope.listeners(GUARD):
        code, reason, problem = GUARD_DENIED, None, None
        contexts: tuple[Message, ...] = ()
        began = perf_counter_ns()
        try:
            token = SPEAKER.set(listener.source)
            try:
                answer = listener.fn(call)
            finally:
                SPEAKER.reset(token)
            if answer is None:
                continue
            if type(answer) is Deny:
                reason, contexts = answer.reason, answer.contexts
            else:
                if inspect.iscoroutine(answer):
                    answer.close()
                code = HOOK_CONTRACT_ERROR
                reason = f"{listener.who}: a guard answers Deny(reason) or None, not {kind_of(answer)}"
                problem = (listener.who, reason)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # a guard's own failure: no
            code, reason = PERMISSION_EVALUATION_ERROR, f"{listener.who}: {said_error(error)}"
        if denied is None:
            answered = "deny" if code == GUARD_DENIED else "error"
            said = (Said(listener.who, answered, reason.removeprefix(f"{listener.who}: "), us=_since(began)),)
            denied = Decided(Deny(reason), listener.who, code, said, contexts, code == GUARD_DENIED, problem)
    return denied if denied is not None or call.confinement is None else _unconfined(call)


def _unconfined(call: ToolCall) -> Decided | None:
    """A call that is to be confined does not run where that cannot be had."""
    confinement = call.confinement
    if confinement is None or not call.tool.sandbox:
        return None
    code, reason = SANDBOX_UNAVAILABLE, None
    began = perf_counter_ns()
    try:
        reason = confinement.problem()
    except Exception as error:  # noqa: BLE001  # whatever fails in it: no
        code, reason = PERMISSION_EVALUATION_ERROR, f"sandbox: {said_error(error)}"
    if reason is None:
        return None
    answered = "deny" if code == SANDBOX_UNAVAILABLE else "error"
    said = (Said("sandbox", answered, reason, us=_since(began)),)
    return Decided(Deny(reason), "sandbox", code, said, reviewed=code == SANDBOX_UNAVAILABLE)
