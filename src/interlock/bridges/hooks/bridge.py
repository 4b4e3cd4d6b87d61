"""Outside hooks inside an agent's run.

Lives here: `OutsideHooks`, which listens at the points of a layer and speaks there for programs. It knows no format:
what happened is told as a `Happening`, and what comes back is one `Answer`, folded in declared order. What is done with
it is said here, once for each event.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import Any

from interlock.bridges.hooks import event as happening
from interlock.bridges.hooks.after import Aftermath
from interlock.bridges.hooks.event import EventName
from interlock.bridges.hooks.forced import STOP
from interlock.bridges.hooks.permission import PermissionChannel
from interlock.bridges.hooks.session import Heard, SessionHooks
from interlock.errors import ToolError
from interlock.intercept.decisions import (
    Accept,
    Advise,
    Allow,
    Ask,
    Continue,
    Deny,
    Enter,
    Refuse,
    Reject,
    Replace,
    Rewrite,
    Verdict,
)
from interlock.intercept.scope import Dispose
from interlock.log.messages import Message, Source
from interlock.log.reasons import ABORTED, HOOK_EXECUTION_ERROR, HOOK_STOPPED_CONTINUATION
from interlock.loop.harness import Layer
from interlock.loop.points import Proposal, SessionEnd, SessionStart, Stopping
from interlock.process.exported import EXPORTED
from interlock.tools.call import ToolCall, ToolResult

NOT_FIRED: frozenset[EventName] = frozenset(
    {"PreCompact", "SubagentStart", "SubagentStop"}
)  # no place for them yet
CAP = 8  # how often in a row the Stop hooks may continue a turn
Next = Callable[[], Awaitable[ToolResult]]
_STOPPED = "a hook stopped the turn"
_SOURCES = {"new": "startup", "resume": "resume", "fork": "fork"}


class OutsideHooks:
    """Hooks of other programs, for every agent of a layer: `hooks.attach(agent)` before the agent is entered.

    Each session has a runner of its own, so that what one has in the background is not another's.
    """

    def __init__(self, make: Callable[[Any], SessionHooks]) -> None:
        """
        Args:
            make: the hooks of one agent's session: what is configured, and a runner of its own.
        """
        self._make = make
        self._sessions: dict[Any, SessionHooks] = {}

    def attach(self, layer: Layer) -> Dispose:
        """Listen in this layer; returns the way to undo it. Of an agent that is open already, the start is over.

        Raises:
            UsageError: the layer is closed.
        """
        on, undo = layer.on, ExitStack()
        on.session_end(self._session_end, name="hooks:SessionEnd")  # to the end: it waits for what was begun
        undo.callback(self._take_back)
        undo.callback(on.session_start(self._session_start, name="hooks:SessionStart"))
        undo.callback(on.pre_step(self._first_step, name="hooks:SessionStart"))
        undo.callback(on.pre_step(self._after_batch, name="hooks:PostToolBatch"))
        undo.callback(on.pre_step(self._prompts, name="hooks:UserPromptSubmit"))
        undo.callback(on.prepare(self._prepare, name="hooks:PreToolUse"))
        undo.callback(on.post_execute(self._post_execute, name="hooks:PostToolUse"))
        undo.callback(on.turn_stopping(self._turn_stopping, name="hooks:Stop"))
        return undo.close

    def _take_back(self) -> None:
        for hooks in self._sessions.values():
            hooks.undo.close()
            hooks.detached = True

    def _of(self, agent: Any) -> SessionHooks:
        """Its hooks, made when they are first wanted: what fails in that closes the point that wants them."""
        hooks = self._sessions.get(agent)
        if hooks is None:
            hooks = self._sessions[agent] = self._make(agent)
            hooks.undo.callback(Aftermath(hooks).close)
            hooks.undo.callback(agent.approvals.add(PermissionChannel(hooks), first=True))
        return hooks

    # agent/session-start, agent/session-end

    async def _session_start(self, start: SessionStart) -> None:
        agent, hooks = start.agent, self._of(start.agent)
        heard = await hooks.hear(happening.SessionStart(source=_SOURCES[start.how]))  # type: ignore[arg-type]
        for context in heard.contexts:
            agent.inject(context)
        hooks.stopped = heard.answer.stop
        for ran in heard.ran:
            hooks.exports.update(ran.exports)
        if hooks.exports:
            hooks.undo.callback(agent.on.execute(_exporting(hooks.exports), name="hooks:CLAUDE_ENV_FILE"))

    async def _session_end(self, end: SessionEnd) -> None:
        hooks = self._sessions.pop(end.agent, None)
        if hooks is not None:
            try:
                if not hooks.detached:
                    await hooks.hear(happening.SessionEnd(reason="other"))
            finally:
                await hooks.aclose()

    # agent/pre-step: the end of SessionStart, PostToolBatch, UserPromptSubmit

    def _first_step(self, proposal: Proposal) -> Enter | Reject | None:
        if proposal.rejected is not None:
            return None
        hooks = self._of(proposal.agent)
        if hooks.stopped is not None:
            reason, hooks.stopped = hooks.stopped, None
            return Reject(reason or _STOPPED)
        contexts = hooks.delivered()
        return Enter(proposal.messages, contexts=contexts) if contexts else None

    async def _after_batch(self, proposal: Proposal) -> Enter | Reject | None:
        if proposal.rejected is not None:
            return None
        hooks = self._of(proposal.agent)
        batch = hooks.batch.take()
        if not batch:
            return None
        heard = await hooks.hear(happening.PostToolBatch(calls=batch))
        ends = heard.answer.stop if heard.answer.stop is not None else heard.answer.block
        if ends is not None:
            return Reject(ends or _STOPPED)
        return Enter(proposal.messages, contexts=heard.contexts) if heard.contexts else None

    async def _prompts(self, proposal: Proposal) -> Enter | Reject | None:
        if proposal.rejected is not None:
            return None
        hooks = self._of(proposal.agent)
        contexts: list[Message] = []
        dropped: dict[str, str] = {}
        for message in proposal.messages:
            if message.source.kind != "person":
                continue
            hooks.prompt = message
            heard = await hooks.hear(happening.UserPromptSubmit(prompt=message.text))
            if heard.answer.stop is not None:
                return Reject(heard.answer.stop or _STOPPED)
            if heard.answer.block is not None:
                dropped[message.id] = heard.answer.block or "a hook blocked this prompt"
            else:
                contexts += heard.contexts
        if not contexts and not dropped:
            return None
        kept = [message for message in proposal.messages if message.id not in dropped]
        return Enter(kept, contexts=contexts, dropped=dropped)

    # tools/prepare: PreToolUse

    async def _prepare(self, call: ToolCall) -> Rewrite | Advise | Refuse | None:
        hooks = self._of(call.agent)
        heard = await hooks.hear(
            happening.PreToolUse(tool=call.name, tool_use_id=call.id, input=call.arguments), call=call.key
        )
        answer, contexts = heard.answer, heard.contexts
        if answer.stop is not None:
            refusal = ToolError(f"{_STOPPED} before this call", code=HOOK_STOPPED_CONTINUATION)
            return Refuse(refusal, contexts=contexts, stop=True)
        failed = _failed(heard)
        if failed is not None:
            return Refuse(ToolError(failed, code=HOOK_EXECUTION_ERROR), contexts=contexts)
        advice = _advice(heard)
        if answer.input is not None and not isinstance(advice, Deny):
            arguments = answer.input.over(call.arguments)
            if arguments != call.arguments:
                return Rewrite(arguments, advise=advice, contexts=contexts)
        return Advise(advice, contexts=contexts) if advice is not None or contexts else None

    # tools/post-execute: PostToolUse, PostToolUseFailure

    async def _post_execute(self, call: ToolCall, result: ToolResult) -> Accept | Replace | None:
        if not result.ran or call.signal.is_set():
            return None
        hooks = self._of(call.agent)
        ms = hooks.batch.duration(call.key)
        what: happening.PostToolUse | happening.PostToolUseFailure
        if result.error is None:
            what = happening.PostToolUse(
                tool=call.name,
                tool_use_id=call.id,
                input=call.arguments,
                response=result.text,
                duration_ms=ms,
            )
        elif result.error.code == ABORTED:
            return None
        else:
            what = happening.PostToolUseFailure(
                tool=call.name,
                tool_use_id=call.id,
                input=call.arguments,
                error=result.text,
                duration_ms=ms,
            )
        heard = await hooks.hear(what, call=call.key)
        answer, contexts = heard.answer, list(heard.contexts)
        if answer.block is not None:
            contexts += [
                Message.context(ran.answer.block, source=Source("hook", ran.handler.who))
                for ran in heard.ran
                if ran.answer.block
            ]
        stop = answer.stop is not None
        if answer.output is not None and answer.output != result.text:
            return Replace(content=answer.output, contexts=contexts, stop=stop)
        return Accept(contexts=contexts, stop=stop) if contexts or stop else None

    # agent/turn-stopping: Stop

    async def _turn_stopping(self, stopping: Stopping) -> Continue | None:
        if not stopping.answered:
            return None
        hooks = self._of(stopping.agent)
        forced = hooks.forced.count()
        capped = f"the turn was continued {CAP} times in a row: it ends" if forced >= CAP else None
        last = stopping.message.text if stopping.message is not None else None
        heard = await hooks.hear(
            happening.Stop(
                stop_hook_active=forced > 0,
                last_assistant_message=last,
                prompt=hooks.prompt.text if hooks.prompt is not None else "",
            ),
            unused=capped,
        )
        answer = heard.answer
        if answer.stop is not None or capped is not None:
            return None
        if answer.block is not None:
            text = answer.block or "a Stop hook wants the work to go on"
            return Continue(Message.user(text, source=STOP), contexts=heard.contexts)
        if answer.contexts:  # feedback that is no blame continues as well
            return Continue(Message.user("\n\n".join(answer.contexts), source=STOP))
        return None


def _exporting(exports: Mapping[str, str]) -> Callable[[ToolCall, Next], Awaitable[ToolResult]]:
    """A wrapper that gives these variables to what a tool starts."""

    async def wrapper(call: ToolCall, following: Next) -> ToolResult:
        token = EXPORTED.set(exports)
        try:
            return await following()
        finally:
            EXPORTED.reset(token)

    return wrapper


def _failed(heard: Heard) -> str | None:
    """Why the call does not run, if it was denied because a hook failed to answer."""
    permission = heard.answer.permission
    if permission is None or permission.verdict != "deny":
        return None
    winners = [ran for ran in heard.winners if ran.answer.permission is not None]
    if winners and all(ran.answer.failure is not None for ran in winners):
        return permission.reason or winners[0].answer.failure
    return None


def _advice(heard: Heard) -> Verdict | None:
    """What the hooks advise. A hook that defers wants the call to wait for somebody: it asks."""
    permission = heard.answer.permission
    if permission is None:
        return None
    match permission.verdict:
        case "deny":
            return Deny(permission.reason or "a hook denied this call")
        case "ask" | "defer":
            return Ask(permission.reason or "a hook wants a person to decide")
        case "allow":
            return Allow()
