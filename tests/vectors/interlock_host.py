"""An agent of Interlock as a host of `agent-hooks`: its eight interception points, each at a point of ours.

    agent_startup    on.session_start, and on.pre_step, which refuses the first step after a no
    input            on.pre_step
    pre_model_call   on.model_stream, before next()
    post_model_call  on.model_stream, of the whole answer, before any of it is let through
    pre_tool_call    on.prepare
    post_tool_call   on.post_execute
    output           on.model_stream, of an answer without calls, before any of it is let through
    agent_shutdown   on.session_end

The emitter is the kit's own: it asks the interceptors, folds what they say and keeps the records. What it is handed, and
that what it says is done, is this adapter's and Interlock's. Not mapped: a transform of what a model is sent, which
would have to be a change of `ModelRequest`; it counts as a denial.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from agent_hooks import AgentContextBuilder, InterceptionBlocked, InterceptionEmitter
from agent_hooks.approval import ApprovalResolver
from agent_hooks.composition import CompositionConfig
from agent_hooks.ctk import Capability, RunOutcome, RunRecord, Scenario, redact_paths
from agent_hooks.ctk.harness import ToolSpec
from agent_hooks.declaration import HostRegistry, HostSurface
from agent_hooks.emitter import IdentityProvider

from interlock import (
    Accept,
    Agent,
    Block,
    Enter,
    Message,
    Proposal,
    Refuse,
    Reject,
    Replace,
    Rewrite,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
)
from interlock.log.messages import Text, ToolOutcome
from interlock.models.protocol import CallDelta, Chunk, Finish, ModelRequest, TextDelta
from interlock.tools.definition import Tool

_FINISH = {"calls": "tool_calls", "stop": "stop"}


class ScriptedAnswers:
    """A model that gives the answers of a scenario, chunk by chunk."""

    provider, name, retry = "scripted", "vector", None

    def __init__(self, scenario: Scenario) -> None:
        self._answers = iter(scenario.model_script)

    async def stream(self, request: ModelRequest, signal: Any) -> AsyncIterator[Chunk]:
        answer = next(self._answers, None)
        if answer is None:
            yield Finish("stop")
            return
        if answer.content is not None:
            yield TextDelta(answer.content)
        for i, wanted in enumerate(answer.tool_calls, 1):
            yield CallDelta(i, wanted["id"], wanted["name"], json.dumps(wanted["args"]))
        yield Finish("calls" if answer.tool_calls else "stop")

    async def aclose(self) -> None:
        pass


def tool_of(spec: ToolSpec, names: set[str], done: Callable[[str, dict[str, Any]], None]) -> Tool:
    """A tool that takes these arguments, each of any value, and behaves as the scenario says."""
    source = f"async def body(ctx{''.join(f', {name}=None' for name in sorted(names))}): return run(ctx)"

    def run(ctx: ToolContext) -> Any:
        arguments = json.loads(json.dumps(dict(ctx.call.arguments)))
        value, is_error = spec.invoke(arguments)
        done(spec.name, arguments)
        if is_error:
            raise ToolError(value if isinstance(value, str) else json.dumps(value))
        return value

    made: dict[str, Any] = {"run": run}
    exec(source, made)  # the names of the arguments are the scenario's
    body = made["body"]
    body.__annotations__ = {"ctx": ToolContext, **dict.fromkeys(names, Any), "return": Any}
    return tool(spec.name)(body)


class InterlockHost:
    """The harness that the kit runs its vectors against."""

    name = "interlock"
    capabilities = frozenset(
        {
            Capability.MODEL_CALLS,
            Capability.TOOL_CALLS,
            # What a model wrote is kept as text; what is no JSON to Interlock is refused, and never rounded.
            Capability.INT64_JSON,
            Capability.BIGINT_JSON,
            Capability.HOST_DECLARATION,
        }
    )
    tool_seam_host_error = "continue"

    def host_surface(self) -> HostSurface:
        return HostSurface.from_capabilities(
            sorted(one.value for one in self.capabilities), self.tool_seam_host_error
        )

    def setup(
        self,
        scenario: Scenario,
        interceptors: list[Any],
        resolver: ApprovalResolver | None,
        mode: Any,
        composition: CompositionConfig,
        identity_provider: str | None,
        redact_for_approval: list[str] | None = None,
    ) -> None:
        provider: Any = identity_provider
        if provider == "ctk-fault":
            provider = IdentityProvider("ctk-fault", _fails)
        emitter = InterceptionEmitter(
            mode=mode, resolver=resolver, composition=composition, identity_provider=provider
        )
        for one in interceptors:
            emitter.register(one)
        if redact_for_approval:
            emitter.set_approval_redactor(lambda context: redact_paths(context, redact_for_approval))
        self._begin(scenario, emitter)

    def setup_declared(self, scenario: Scenario, document: dict[str, Any], registry: HostRegistry) -> None:
        self._begin(scenario, InterceptionEmitter.from_declaration_value(document, registry))

    def _begin(self, scenario: Scenario, emitter: InterceptionEmitter) -> None:
        self._scenario, self._emitter = scenario, emitter
        self._builder = AgentContextBuilder(agent_id="agent", framework="interlock", session_id="s")
        self._tool_log: list[dict[str, Any]] = []
        self._blocked: str | None = None  # the reason of a no that ends the turn
        self._outcome = RunOutcome.ERROR

    def teardown(self) -> None:
        """Nothing outlives `run`."""

    async def run(self) -> RunRecord:
        scenario = self._scenario
        agent = Agent(ScriptedAnswers(scenario), tools=self._tools())
        agent.on.session_start(self._startup)
        agent.on.pre_step(self._input)
        agent.on.model_stream(self._model_call)
        agent.on.prepare(self._pre_tool_call)
        agent.on.post_execute(self._post_tool_call)
        agent.on.session_end(self._shutdown)
        async with agent:
            result = await agent.run(Message.user(scenario.input["content"]))
            if result.ok:
                self._outcome = RunOutcome.COMPLETED
            elif self._blocked is not None:
                self._outcome = RunOutcome.BLOCKED
        return RunRecord(
            outcome=self._outcome,
            final_output=result.text if result.ok else None,
            tool_invocations=self._tool_log,
            error=None if result.ok or self._blocked else str(result.reason),
            identities=[(one.input_identity, one.enforced_identity) for one in self._emitter.results],
            records=[one.to_wire() for one in self._emitter.results],
        )

    def _tools(self) -> list[Tool]:
        asked = [wanted for answer in self._scenario.model_script for wanted in answer.tool_calls]
        return [
            tool_of(
                spec,
                {
                    *spec.schema,
                    *[name for one in spec.behavior for name in one.when_args or {}],
                    *[name for wanted in asked if wanted["name"] == spec.name for name in wanted["args"]],
                },
                lambda name, arguments: self._tool_log.append({"name": name, "args": arguments}),
            )
            for spec in self._scenario.tools.values()
        ]

    # The points

    async def _allowed(self, context: Any) -> bool:
        """Ask everybody; False, with the reason kept, if the answer is no."""
        try:
            await self._emitter.emit(context)
        except InterceptionBlocked as no:
            self._blocked = no.result.verdict.reason or "no reason"
            return False
        return True

    async def _startup(self, start: Any) -> None:
        await self._allowed(self._builder.agent_startup(tools_registered=sorted(self._scenario.tools)))

    async def _input(self, proposal: Proposal) -> Enter | Reject | None:
        if self._blocked is not None:
            return Reject(self._blocked)
        messages = []
        for message in proposal.messages:
            context = self._builder.input(content=message.text, role=message.role)
            if not await self._allowed(context):
                return Reject(self._blocked or "no reason")
            messages.append(_with_text(message, context["input"]["content"]))
        return Enter(messages)

    async def _model_call(self, request: ModelRequest, following: Callable[[], AsyncIterator[Chunk]]) -> Any:
        messages = [_wire(message) for message in request.messages]
        context = self._builder.pre_model_call(model_id=request.model, messages=messages)
        if not await self._allowed(context) or context["messages"] != [*map(_wire, request.messages)]:
            raise PermissionError(self._blocked or "what the model is sent cannot be changed here")
        chunks = [chunk async for chunk in following()]
        content, wanted, finish = _assembled(chunks)
        context = self._builder.post_model_call(
            model_id=request.model, content=content, tool_calls=wanted, finish_reason=finish
        )
        if not await self._allowed(context):
            raise PermissionError(self._blocked)
        response = context["response"]
        content = response["content"]
        if not response["tool_calls"]:
            context = self._builder.output(content=content)
            if not await self._allowed(context):
                raise PermissionError(self._blocked)
            content = context["output"]["content"]
        for chunk in _chunks(content, response["tool_calls"]):
            yield chunk

    async def _pre_tool_call(self, call: ToolCall) -> Rewrite | Refuse | None:
        arguments = json.loads(json.dumps(dict(call.arguments)))
        context = self._builder.pre_tool_call(call_id=call.id, name=call.name, args=arguments)
        try:
            await self._emitter.emit(context)
        except InterceptionBlocked as no:
            return Refuse(ToolError(no.result.verdict.reason or "no reason"))
        effective = context["tool_call"]["args"]
        return Rewrite(effective) if effective != call.arguments else None

    async def _post_tool_call(self, call: ToolCall, result: ToolResult) -> Accept | Replace | Block | None:
        if not result.ran:
            return None
        value = json.loads(json.dumps(result.value)) if result.ok else result.text
        context = self._builder.post_tool_call(
            call_id=call.id, name=call.name, args=json.loads(json.dumps(dict(call.arguments))), value=value,
            is_error=not result.ok,
        )  # fmt: skip
        try:
            await self._emitter.emit(context)
        except InterceptionBlocked as no:
            return Block(no.result.verdict.reason or "no reason")
        changed = context["tool_result"]["value"]
        if changed == value:
            return None
        return Replace(value=changed) if result.ok else Replace(content=str(changed))

    async def _shutdown(self, end: Any) -> None:
        reason = "completed" if self._outcome is RunOutcome.COMPLETED else "error"
        await self._emitter.emit_unchecked(self._builder.agent_shutdown(reason=reason))


def _fails(_: Any) -> str:
    raise RuntimeError("a provider that fails")


def _with_text(message: Message, text: Any) -> Message:
    return message if text == message.text else Message.user(text, id=message.id)


def _wire(message: Message) -> dict[str, Any]:
    """A message as the interceptors see it."""
    parts = [block.text for block in message.content if isinstance(block, (Text, ToolOutcome))]
    return {"role": message.role, "content": "\n".join(parts)}


def _assembled(chunks: list[Chunk]) -> tuple[str | None, list[dict[str, Any]], str]:
    text = "".join([chunk.text for chunk in chunks if isinstance(chunk, TextDelta)])
    wanted = [
        {"id": chunk.id, "name": chunk.name, "args": json.loads(chunk.arguments or "{}")}
        for chunk in chunks
        if isinstance(chunk, CallDelta)
    ]
    finish = next((chunk.reason for chunk in chunks if isinstance(chunk, Finish)), "stop")
    return text or None, wanted, _FINISH.get(finish, finish)


def _chunks(content: Any, wanted: list[dict[str, Any]]) -> list[Chunk]:
    chunks: list[Chunk] = [TextDelta(content)] if content else []
    chunks += [
        CallDelta(i, one["id"], one["name"], json.dumps(one["args"])) for i, one in enumerate(wanted, 1)
    ]
    return [*chunks, Finish("calls" if wanted else "stop")]
