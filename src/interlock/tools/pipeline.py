"""One call's way through the three lanes, and its lines in the log.

Lives here: `CallJob`, a call of the model, and `NestedJob`, a call of another tool. The stages themselves live in
`admission`, `execution` and `review`; here is their order, and what is written when.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from hashlib import blake2b
from typing import Any

import msgspec

from interlock.errors import ToolError, UnknownTool, said_error
from interlock.intercept.decisions import Allow, Ask, Deny, Verdict, verdict_name
from interlock.intercept.point import Listener, tell
from interlock.intercept.signal import Stopped
from interlock.log.closing import closing_content, edited_context, end_approval, end_call, hook_stopped
from interlock.log.event import encode_json
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalLate,
    CallError,
    ClaimedKeys,
    Fact,
    ObserverFailed,
    Said,
    SubcallEnd,
    SubcallStart,
    ToolAbandoned,
    ToolCalled,
    ToolDecided,
    ToolLate,
    ToolPrepared,
    ToolResulted,
    ToolSettled,
    ToolStarted,
)
from interlock.log.messages import Message, ToolUse
from interlock.log.reasons import (
    ABORTED_BEFORE_DISPATCH,
    APPROVAL_CANCELLED,
    APPROVAL_REJECTED,
    APPROVAL_UNAVAILABLE,
    SECRET_REDACTED,
    TOOL_OUTCOME_UNKNOWN,
)
from interlock.tools.admission import (
    Decided,
    Looked,
    Prepared,
    as_context,
    decide,
    failure,
    fit,
    guard,
    look,
    prepare,
)
from interlock.tools.approval import Question
from interlock.tools.batch import Batch
from interlock.tools.call import ToolCall, ToolOutput, ToolResult, arguments_of
from interlock.tools.claims import Claims, Concurrency, Mode
from interlock.tools.context import ToolContext
from interlock.tools.definition import Effect, Tool
from interlock.tools.execution import Execution
from interlock.tools.points import EXECUTE, POST_EXECUTE, PRE_EXECUTE, PREPARE, RESULT
from interlock.tools.review import Reviewed, finalise, review
from interlock.tools.scheduler import Admission, Scheduler

_MODES = {member.value: member for member in Concurrency}


_NOT_ALLOWED = {
    "rejected": (APPROVAL_REJECTED, "a person said no"),
    "cancelled": (APPROVAL_CANCELLED, "the question was withdrawn"),
    "unavailable": (APPROVAL_UNAVAILABLE, "nobody answered"),
}


def _missing() -> None:
    raise ToolError("there is no such tool")


def digest_of(name: str, arguments: Any) -> str:
    """What binds an answer, and a start, to the arguments that were seen."""
    return blake2b(encode_json([name, arguments]), digest_size=16).hexdigest()


class CallJob:
    """A call that the model made."""

    def __init__(self, batch: Batch, use: ToolUse, index: int) -> None:
        self.batch = batch
        self.index = index
        self._signal = batch.signal  # what stops this call
        self._parent: ToolCall | None = None
        self.key = -1  # the seq of its tool/call, once it is written
        self._admitted = False
        self._name, self._id, self._text = use.name, use.id, use.arguments
        self._looked: Looked | None = None
        self._call: ToolCall | None = None
        self._digest = ""
        self._outcome: ToolResult | None = None
        self._reviewed = True  # whether post-execute may see the outcome
        self._settled = False
        self._stop: str | None = None  # who refused it and ends the turn after this batch
        self._contexts: tuple[Message, ...] = ()  # of prepare and pre-execute
        self._parked: Question | None = None
        self._runs_before = 0  # in earlier lives
        self._began: float | None = None  # when its body was started, by the loop's clock
        self._ended_ms: int | None = None
        self._execution: Execution | None = None
        self._nested: Scheduler | None = None
        self._abandoned = False
        self._mode: Mode = Concurrency.EXCLUSIVE
        self._constant: Mode | None = None  # of a tool that declares one mode for all calls

    # Classification

    def mode(self) -> Mode:
        """What the call conflicts with: its tool's declaration, or what its classifier says of these arguments now."""
        if self._constant is not None and self._admitted:
            return self._constant
        looked = self._look()
        if looked.tool is None or looked.problem is not None:
            return Concurrency.EXCLUSIVE
        declared = looked.tool.concurrency
        if isinstance(declared, Concurrency):
            self._mode = self._constant = declared
            return declared
        try:
            said: object = declared(self._call or self._made(looked))
        except Exception:  # noqa: BLE001  # a classifier's own failure: alone is always safe
            said = Concurrency.EXCLUSIVE
        if isinstance(said, str):
            said = _MODES.get(said)
        self._mode = said if isinstance(said, (Concurrency, Claims)) else Concurrency.EXCLUSIVE
        return self._mode

    def _look(self) -> Looked:
        """Looked up until it is admitted; the definition found then is the one that runs."""
        if not self._admitted:
            tool = self.batch.registry.get(self._name)
            if self._looked is None or self._looked.tool is not tool:
                self._looked = self._read(tool)
        assert self._looked is not None
        return self._looked

    def _read(self, tool: Tool | None) -> Looked:
        return look(tool, self._name, self._text, self.batch.registry.names)

    def _made(self, looked: Looked) -> ToolCall:
        batch = self.batch
        return ToolCall(
            key=self.key,
            id=self._id,
            name=self._name,
            # An unknown tool has a stand-in, so that a review can look at the call like at any other.
            tool=looked.tool or Tool(name=self._name or "unknown", fn=_missing),
            arguments=looked.arguments,
            text=self._text,
            turn=batch.turn,
            step=batch.step,
            index=self.index,
            signal=self._signal,
            agent=batch.agent,
            cwd=batch.cwd,
            parent=self._parent,
            confinement=batch.confinement,
        )

    # Lane 1

    async def admit(self) -> Admission:
        batch = self.batch
        ending = batch.spent(self._name)
        if ending is not None:
            batch.stop(ending)
            return Admission.REFUSED
        if self._signal.cause is not None:
            return Admission.REFUSED
        looked = self._look()
        # `_value_` is `value` without the property around it, which costs more than the rest of the line.
        effect = looked.tool.effect._value_ if looked.tool is not None else None
        self.key = self._append(self._called(effect))
        self._admitted = True
        call = self._call = self._made(looked)
        if looked.problem is not None:
            return self._settle(failure(call, *looked.problem))
        try:
            return await self._consider(call)
        except Stopped:
            return Admission.REFUSED

    async def _consider(self, call: ToolCall) -> Admission:
        batch = self.batch
        advice: list[tuple[Listener, Verdict]] = []
        if batch.scope.listeners(PREPARE):
            prepared = await self._prepared(call)
            if prepared.refused is not None:
                self._reviewed = prepared.reviewed
                if prepared.stop is not None:
                    self._stop = prepared.stop
                    batch.stop(hook_stopped())  # at once: nothing else of the batch is to start
                return self._settle(prepared.refused)
            call, advice = prepared.call, prepared.advice
        # Sealed: what policy, the person, the guards and the body see is one and the same from here on.
        if call.said:
            call = msgspec.structs.replace(call, said=())
        self._call = call
        if self._looked is not None and call.arguments is not self._looked.arguments:
            self._looked = Looked(call.tool, call.arguments)
        if (gap := self._gap(call)) is not None:
            return gap
        decided = await decide(batch, call, advice)
        if decided.contexts and decided.reviewed:
            self._say(decided.contexts)
        if decided.said or self._decided_before():
            self._append(self._decision("policy", decided))
        if isinstance(decided.verdict, Deny):
            return self._deny(decided, PRE_EXECUTE.name)
        denied = guard(batch, call)
        if denied is not None:
            return self._guarded(denied)
        if isinstance(decided.verdict, Ask):
            return self._ask(decided.verdict.reason, decided.by, decided.said)
        return Admission.READY

    def _gap(self, call: ToolCall) -> Admission | None:
        """What runs is what is logged; with a mark in the place of a secret, that could destroy what it names."""
        redactor = self.batch.session.redactor
        mark = (
            redactor.marked(call.arguments)
            if redactor is not None and call.effect is not Effect.READ
            else None
        )
        if mark is None:
            return None
        return self._settle(
            failure(
                call,
                SECRET_REDACTED,
                f"nothing ran: the arguments hold {mark}, which stands for a secret that is not passed on. Let the "
                f"tool take it from where it is kept, a variable of the environment or a file, without spelling it",
            )
        )

    def _decided_before(self) -> bool:
        """Whether an earlier life has decided about it: what this one decides is then always on record."""
        return False

    async def _prepared(self, call: ToolCall) -> Prepared:
        prepared = await prepare(self.batch, call)
        self._say(prepared.contexts)
        if prepared.said:
            effective = prepared.call.arguments
            changes = tuple(prepared.changes)
            self._append(
                ToolPrepared(self.key, call.arguments, effective, changes, prepared.noted, prepared.said)
            )
        self._notice(PREPARE.name, prepared.problem)
        return prepared

    def _decision(self, stage: Any, decided: Decided) -> ToolDecided:
        verdict = verdict_name(decided.verdict)
        return ToolDecided(self.key, stage, verdict, decided.by, decided.code, decided.reason, decided.said)

    def _deny(self, decided: Decided, point: str) -> Admission:
        self._notice(point, decided.problem)
        self._reviewed = decided.reviewed
        return self._settle(failure(self._call, decided.code or "DENIED", decided.reason or ""))

    def _guarded(self, denied: Decided) -> Admission:
        self._append(self._decision("guard", denied))
        self._say(denied.contexts)
        return self._deny(denied, "guard")

    def _ask(self, question: str, by: str, said: tuple[Said, ...]) -> Admission:
        assert self._call is not None
        shown = msgspec.structs.replace(self._call, said=said)  # with who said what, for the person
        batch = self.batch
        approval_id = f"a{self.key}"
        digest = self._seal()
        asker = batch.asker
        lifetime = asker.lifetime if asker is not None else None
        asked = batch.session.redacted(
            ApprovalAsked(
                approval_id,
                self.key,
                question,
                self._call.arguments,
                digest,
                options=asker.options(shown) if asker is not None else ("once",),
                expires=batch.session.now() + round(lifetime * 1000) if lifetime is not None else None,
                by=by,
                contexts=self._contexts,
            )
        )
        if batch.asker is None or not batch.asker.available:
            batch.session.append(asked, ApprovalDecided(approval_id, self.key, digest, "unavailable"))
            message = f"{question} (nobody is there to approve it)"
            return self._settle(failure(self._call, APPROVAL_UNAVAILABLE, message))
        self._append(asked)
        return self._park(shown, asked)

    def _park(self, shown: ToolCall, asked: ApprovalAsked) -> Admission:
        self._parked = Question(
            asked.approval_id, shown, asked.question, asked.digest, asked.by, asked.options, asked.expires
        )
        return Admission.PARKED

    async def resume(self) -> Admission:
        assert self._parked is not None and self._call is not None and self.batch.asker is not None
        approval_id = self._parked.id
        session = self.batch.session
        if session.durable:
            await session.barrier()  # nobody is shown what a crash could make unasked
        if (recorded := self._recorded()) is not None:  # somebody has answered before anybody was asked
            return await self._act_on(recorded, self._parked.text)
        answered = await self.batch.asker.ask(self._parked)
        if (recorded := self._recorded()) is not None:  # the answer came by another way
            return await self._act_on(recorded, self._parked.text)
        if approval_id not in session.state.approvals:  # cancelled in the meantime: the answer starts nothing
            if answered.outcome != "cancelled":  # else nobody has answered
                self._append(ApprovalLate(approval_id, answered.outcome, answered.by))
            return Admission.REFUSED
        answer = session.redacted(answered.on_record(approval_id, self.key, self._digest))
        self._append(answer)
        return await self._act_on(answer, self._parked.text)

    def _recorded(self) -> ApprovalDecided | None:
        """A person's answer that is on record already, put there by whoever took it."""
        call = self.batch.session.state.call(self.key)
        answer = call.approval.answer if call is not None and call.approval is not None else None
        return answer if answer is not None and answer.outcome in ("allowed-once", "rejected") else None

    async def _act_on(self, answer: ApprovalDecided, question: str) -> Admission:
        if answer.outcome == "allowed-once":
            return await (self._recheck() if answer.edited is None else self._reconsider(answer))
        code, message = _NOT_ALLOWED[answer.outcome]
        if answer.outcome == "unavailable":
            message = f"{question} ({answer.message or message})"
        elif answer.message:
            message = answer.message
        return self._settle(failure(self._call, code, message))

    async def _recheck(self) -> Admission:
        """A yes may come late: what the rules of this moment deny does not run. They do not ask a second time."""
        assert self._call is not None
        try:
            decided = await decide(self.batch, self._call, [])
        except Stopped:
            return Admission.REFUSED
        if not isinstance(decided.verdict, Deny):
            return Admission.READY
        self._append(self._decision("recheck", decided))
        return self._deny(decided, PRE_EXECUTE.name)

    async def _reconsider(self, answer: ApprovalDecided) -> Admission:
        """A person has put other arguments in their place: the tool, the rules and the guards look at those anew.

        Whoever would ask has been answered by the person who wrote them; a denial is final. The model is told.
        """
        call, edited = self._call, answer.edited
        assert call is not None
        self._say((edited_context(self.key, self._name, edited, len(self._contexts) + 1),))
        looked = fit(call.tool, edited)
        if looked.problem is not None:
            code, problem = looked.problem
            return self._settle(failure(call, code, f"a person changed the arguments, and {problem}"))
        self._looked = looked
        call = self._call = msgspec.structs.replace(call, arguments=looked.arguments)
        if (gap := self._gap(call)) is not None:
            return gap
        self._digest = digest_of(self._name, call.arguments)
        try:
            decided = await decide(self.batch, call, [])
        except Stopped:
            return Admission.REFUSED
        if isinstance(decided.verdict, Deny):
            self._append(self._decision("recheck", decided))
            return self._deny(decided, PRE_EXECUTE.name)
        by = decided.by if isinstance(decided.verdict, Allow) else answer.by or "a person"
        self._append(ToolDecided(self.key, "recheck", "allow", by, said=decided.said))
        return Admission.READY

    # Lane 2

    def start(self) -> bool:
        call, batch = self._call, self.batch
        assert call is not None
        denied = guard(batch, call)
        if denied is not None:
            self._guarded(denied)
            return False
        claims = self._mode
        keys = ClaimedKeys(claims.reads, claims.writes) if isinstance(claims, Claims) else None
        run = self._runs_before + 1
        self._append(ToolStarted(self.key, self._seal(), run, keys, self._sandbox()))
        self._began = asyncio.get_running_loop().time()
        return True

    def _seal(self) -> str:
        if not self._digest:
            assert self._call is not None
            self._digest = digest_of(self._name, self._call.arguments)
        return self._digest

    def run_at_once(self) -> bool:
        call, batch = self._call, self.batch
        assert call is not None
        if call.tool.awaits or batch.scope.listeners(EXECUTE):
            return False
        if batch.session.durable and call.effect is not Effect.READ:
            return False  # it waits for the disk
        execution = self._executing(call)
        self._ran(execution, execution.at_once())
        return True

    async def run(self) -> None:
        call = self._call
        assert call is not None
        if self.batch.session.durable:
            await self._intent_is_durable()
        execution = self._executing(call)
        self._ran(execution, await execution.run())

    def _executing(self, call: ToolCall) -> Execution:
        looked = self._looked
        assert looked is not None
        self._execution = Execution(
            self.batch,
            call,
            arguments=looked.values if looked.arguments is call.arguments else None,
            call_tool=self._call_tool,
            again=self._run_again,
            drain=self._end_nested,
        )
        return self._execution

    def _ran(self, execution: Execution, result: ToolResult) -> None:
        if self._abandoned:
            self._late(execution.withheld or result)
            return
        self._reviewed = execution.reviewed
        if execution.problem is not None:
            self._notice("tools/execute", execution.problem)
        self._ended_ms = self.batch.session.now()
        self._outcome = result
        if execution.withheld is not None:
            self._log_settled(execution.withheld, result.error)

    async def _run_again(self, run: int) -> None:
        run += self._runs_before
        self._append(ToolStarted(self.key, self._seal(), run, sandbox=self._sandbox()))
        if self.batch.session.durable:
            await self._intent_is_durable()

    def _sandbox(self) -> str | None:
        call = self._call
        if call is None or call.confinement is None or not call.tool.sandbox:
            return None
        return call.confinement.mode

    async def _intent_is_durable(self) -> None:
        """A body that may have an effect waits until its start is on disk."""
        if self._call is not None and self._call.effect is not Effect.READ:
            await self.batch.session.barrier()

    def settle(self) -> None:
        if not self._settled and self._outcome is not None:
            self._log_settled(self._outcome, self._outcome.error)

    def _settle(self, outcome: ToolResult) -> Admission:
        self._outcome = outcome
        return Admission.SETTLED

    def _log_settled(self, result: ToolResult, error: CallError | None) -> None:
        self._settled = True
        self._append(
            ToolSettled(
                self.key,
                error is None,
                result.content,
                error,
                self._own((*self._contexts, *result.contexts)),
                result.conclude and error is None,
                self._elapsed(),
                review=self._reviewed and self._has_review(),
            )
        )

    def _has_review(self) -> bool:
        finaliser = self._call is not None and self._call.tool.finalise is not None
        return finaliser or bool(self.batch.scope.listeners(POST_EXECUTE))

    def _elapsed(self) -> int:
        began = self._began
        return round((asyncio.get_running_loop().time() - began) * 1000) if began is not None else 0

    # Giving up on a body

    def abandon(self, after_ms: int) -> asyncio.Task[None] | None:
        """Fix the outcome of a body that does not end; whoever calls owns its task from then on."""
        if self._outcome is not None or self._call is None or self._execution is None:
            return None
        self._abandoned = self._execution.abandoned = True
        how: Any = "SIGKILL" if self._call.tool.stop.value == "process" else "cooperative"
        self._append(ToolAbandoned(self.key, after_ms, how))
        self._reviewed = False
        content = closing_content(TOOL_OUTCOME_UNKNOWN)
        error = CallError(TOOL_OUTCOME_UNKNOWN, "", True)
        step = self.batch.session.state.step
        for nested in reversed(list(step.subcalls.values())) if step is not None else ():
            if nested.within(self.key):
                self._append(SubcallEnd(nested.seq, False, content, error))
        self._outcome = ToolResult(call=self._call, content=content, error=error, ran=True)
        return self.batch.scheduler.abandon(self)

    def _late(self, result: ToolResult) -> None:
        session = self.batch.session
        if not session.closed and session.failure is None:
            text = session.redacted(result.text)  # before it is cut: half of a secret is not found
            session.append(ToolLate(self.key, result.ok, text[:200], self._elapsed()))

    @property
    def running(self) -> bool:
        return self._execution is not None and self._outcome is None

    # Lane 3

    def commit_at_once(self) -> bool:
        result = self._outcome
        assert result is not None
        if self._reviewed and self.batch.scope.listeners(POST_EXECUTE):
            return False
        if self._contexts:
            result = msgspec.structs.replace(result, contexts=(*self._contexts, *result.contexts))
        self._commit(Reviewed(result))
        return True

    async def commit(self) -> None:
        call, result = self._call, self._outcome
        assert call is not None and result is not None
        made = await review(self.batch, call, result, self._contexts)
        self._notice("tools/post-execute", made.problem)
        if made.failed:
            made.result = msgspec.structs.replace(made.result, contexts=(*self._contexts, *result.contexts))
            if not self._settled:
                self._log_settled(result, result.error)  # the hidden original, for people
        self._commit(made)

    def _commit(self, made: Reviewed) -> None:
        call = self._call
        assert call is not None
        made.stop = made.stop or self._stop
        if call.tool.finalise is not None:
            finalise(call, made)
        if made.result.contexts:
            contexts = self._own(made.result.contexts)
            made.result = msgspec.structs.replace(made.result, contexts=contexts)
        final = made.result
        if made.stop is not None and self.batch.stopped_text is None:
            self.batch.stopped_text = self.batch.session.redacted(final.text)
        self._log_result(made)
        if final.conclude and final.ok and self._parent is None:
            self.batch.concluded = True
        self.batch.contexts.pop(self.key, None)
        self._execution = None  # it refers back to this job
        self._tell(final)
        if made.stop is not None:
            self.batch.stop(hook_stopped())

    def skip(self) -> None:
        session, ending = self.batch.session, self.batch.ending
        assert ending is not None
        step = session.state.step
        assert step is not None
        open_call = step.calls[step.next_result]
        facts = end_call(
            session.state,
            open_call,
            ending,
            next_seq=session.head + 1,
            contexts=self._own(self._contexts),
        )
        session.append(*facts)
        self.batch.contexts.pop(self.key, None)
        result = facts[-1]
        assert isinstance(result, ToolResulted)
        self.ended(result)

    def ended(self, result: ToolResulted) -> None:
        """It has this result, which nobody reviewed: observers are told all the same."""
        self._tell(
            ToolResult(call=self._call, content=result.content, error=result.error, contexts=result.contexts)
        )

    def _tell(self, result: ToolResult) -> None:
        """Observers of results: contained, and on record when they fail."""
        for listener in self.batch.scope.listeners(RESULT):
            try:
                tell(listener, self._call, result)
            except Exception as error:  # noqa: BLE001  # foreign code: contained
                self._notice("tools/result", (listener.who, said_error(error)))

    # Nested calls

    async def _call_tool(self, name: str, arguments: dict[str, Any]) -> ToolOutput:
        batch = self.batch
        if batch.registry.get(name) is None:
            raise UnknownTool(name, batch.registry.names())
        if self._nested is None:
            self._nested = Scheduler(batch.pool, self._runner.waits)
            self._running_context.signal.on_set(lambda cause: self._stop_nested())
        job = NestedJob(self, name, arguments)
        await self._nested.submit(job)
        return job.output()

    def _stop_nested(self) -> None:
        if self._nested is not None:
            self._nested.stop()

    def _end_nested(self) -> Awaitable[None] | None:
        nested, self._nested = self._nested, None
        return nested.aclose() if nested is not None else None

    @property
    def _running_context(self) -> ToolContext:
        """The context of the body that runs."""
        assert self._execution is not None and self._execution.context is not None
        return self._execution.context

    @property
    def _runner(self) -> Scheduler:
        """What runs this call."""
        return self.batch.scheduler

    # The log

    def _called(self, effect: Any) -> Fact:
        batch = self.batch
        return ToolCalled(batch.turn, batch.step, self.index, self._id, self._name, self._text, effect)

    def _log_result(self, made: Reviewed) -> None:
        result = made.result
        open_call = self.batch.session.state.call(self.key)
        self._append(
            ToolResulted(
                self.key,
                self._id,
                result.content,
                result.error,
                conclude=result.conclude and result.ok,
                contexts=result.contexts,
                stop=made.stop,
                edits=made.edits,
                started=open_call.started_ms if open_call is not None else None,
                settled=self._ended_ms,
                said=self._voices(made),
            )
        )

    def _voices(self, made: Reviewed) -> tuple[Said, ...]:
        """What those around the body and after it did."""
        execution = self._execution
        if execution is None or not execution.said:
            return made.said
        return (*reversed(execution.said), *made.said)

    def _append(self, fact: Fact) -> int:
        return self.batch.session.append(fact)[0].seq

    def _say(self, contexts: Any) -> None:
        if contexts:
            self._contexts = self._own((*self._contexts, *contexts))
            self.batch.contexts[self.key] = self._contexts

    def _own(self, contexts: tuple[Message, ...]) -> tuple[Message, ...]:
        """Contexts with ids of this call, numbered in order."""
        if not contexts:
            return contexts
        return tuple([as_context(message, self.key, n) for n, message in enumerate(contexts, 1)])

    def _notice(self, point: str, problem: tuple[str, str] | None) -> None:
        if problem is not None:
            what = self.batch.session.redacted(problem[1])[:500]
            self._append(ObserverFailed(point, problem[0], what, self.key))


class NestedJob(CallJob):
    """A call that a tool made: its own rules, guards, approval and review; its contexts ride on the outer result."""

    def __init__(self, outer: CallJob, name: str, arguments: dict[str, Any]) -> None:
        super().__init__(outer.batch, ToolUse(f"{outer._id}:{name}", name, ""), outer.index)
        self._outer = outer
        self._parent = outer._call
        self._context = outer._running_context
        self._signal = self._context.signal  # its outer call's end is its own
        self._among = outer._nested
        self._given = outer.batch.session.redacted(arguments_of(arguments))
        self._text = encode_json(self._given).decode()
        self._final: ToolResult | None = None

    @property
    def _runner(self) -> Scheduler:
        assert self._among is not None
        return self._among

    @property
    def _forsaken(self) -> bool:
        """Some outer call was abandoned: its lines, and with them these, are closed."""
        return self._outer._abandoned or (isinstance(self._outer, NestedJob) and self._outer._forsaken)

    def _append(self, fact: Fact) -> int:
        return self.key if self._forsaken else super()._append(fact)

    def _called(self, effect: Any) -> Fact:
        return SubcallStart(self._outer.key, self._id, self._name, self._given, effect)

    def _log_settled(self, result: ToolResult, error: CallError | None) -> None:
        self._settled = True  # its own end line follows at once in the outer call; nothing reviews it twice

    def _log_result(self, made: Reviewed) -> None:
        result = self._final = made.result
        self._append(
            SubcallEnd(
                self.key,
                result.ok,
                result.content,
                result.error,
                result.contexts,
                result.conclude and result.ok,
                edits=made.edits,
                settled=self._ended_ms,
                said=self._voices(made),
            )
        )
        for message in result.contexts:
            self._context.defer(message)
        if result.conclude and result.ok:
            self._context.conclude()

    def skip(self) -> None:
        ending = self.batch.ending
        code = ending.unstarted if ending is not None else ABORTED_BEFORE_DISPATCH
        error = CallError(code)
        content = closing_content(code)
        self._final = ToolResult(call=self._call, content=content, error=error)
        if self.key >= 0:
            open_call = self.batch.session.state.call(self.key)
            for fact in end_approval(open_call.approval if open_call is not None else None):
                self._append(fact)
            self._append(SubcallEnd(self.key, False, content, error))

    def output(self) -> ToolOutput:
        """What the outer body gets.

        Raises:
            ToolError: it failed, was refused or skipped.
        """
        result = self._final
        assert result is not None
        if result.error is not None:
            raise ToolError(result.text, code=result.error.code)
        return ToolOutput(result.value if result.value is not None else result.text, result.text)
