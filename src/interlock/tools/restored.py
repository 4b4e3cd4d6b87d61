"""Calls of a step that an earlier life has left open: each goes on from what is on record.

Lives here: `job_of`, and `RestoredJob`. A body that has started is not started again, and repair has fixed what is known
of it, unless it was left open to run again. What was settled keeps its outcome, what was denied stays denied, and a
person is shown the same question, with the same arguments; everything else is decided anew by the rules and guards of
this life.
"""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec

from interlock.intercept.decisions import Ask, Deny
from interlock.intercept.signal import Stopped
from interlock.log.closing import CRASHED, closing_text, end_call, said_of
from interlock.log.facts import ApprovalDecided, ToolPrepared, ToolResulted
from interlock.log.reasons import DENIED, GUARD_DENIED, TOOL_OUTCOME_UNKNOWN
from interlock.log.state import Approval, Call
from interlock.tools.admission import Decided, Looked, decide, failure, fit, guard, unknown
from interlock.tools.approval import Answered
from interlock.tools.batch import Batch
from interlock.tools.call import ToolCall, ToolResult
from interlock.tools.claims import Concurrency, Mode
from interlock.tools.definition import Tool
from interlock.tools.pipeline import CallJob
from interlock.tools.scheduler import Admission


def job_of(batch: Batch, call: Call) -> CallJob:
    """The job of a call of the open step, from where it stands."""
    return RestoredJob(batch, call) if call.called else CallJob(batch, call.use, call.index)


class RestoredJob(CallJob):
    """A call that was admitted in an earlier life, and has no result."""

    def __init__(self, batch: Batch, call: Call) -> None:
        super().__init__(batch, call.use, call.index)
        self.key = call.seq
        self._kept = call.settled is not None  # its outcome is that of the earlier life
        self._runs_before = call.runs if not self._kept else 0

    @property
    def _record(self) -> Call:
        """What the log says of it now."""
        call = self.batch.session.state.call(self.key)
        assert call is not None
        return call

    def mode(self) -> Mode:
        return Concurrency.PARALLEL if self._will_not_run(self._record) else super().mode()

    @staticmethod
    def _will_not_run(record: Call) -> bool:
        if record.settled is not None or record.verdict == "deny":
            return True
        outcome = record.approval.outcome if record.approval is not None else None
        return outcome is not None and outcome != "allowed-once"

    def _read(self, tool: Tool | None) -> Looked:
        approval = self._record.approval
        if approval is None:
            return super()._read(tool)
        if tool is None:
            return unknown(self._name, self.batch.registry.names)
        # What was shown is what runs: it is not prepared again.
        return fit(tool, approval.asked.effective if approval.edited is None else approval.edited)

    def _decided_before(self) -> bool:
        return self._record.decided >= 0

    # Lane 1

    async def admit(self) -> Admission:
        if self._signal.is_set():
            return Admission.REFUSED
        record, looked = self._record, self._look()
        self._admitted = True
        call = self._call = self._made(looked)
        if self._kept:
            self._settled = True
            return Admission.SETTLED
        if self._runs_before:
            return await self._again(call, looked)
        approval, decision = record.approval, record.decision
        denied = decision is not None and decision.verdict == "deny"
        if approval is not None:
            self._digest = approval.digest
            self._say(said_of(record) if denied else approval.asked.contexts)
        if decision is not None and denied:
            code = decision.code or DENIED
            self._reviewed = code in (DENIED, GUARD_DENIED)  # else somebody failed who should have decided
            return self._settle(failure(call, code, decision.reason or ""))
        try:
            if approval is not None:
                return await self._go_on(approval, looked)
            if looked.problem is not None:
                return self._settle(failure(call, *looked.problem))
            if record.prepared:  # what was made of it in the earlier life counts no more
                self._append(ToolPrepared(self.key, call.arguments, call.arguments))
            return await self._consider(call)
        except Stopped:
            return Admission.REFUSED

    async def _again(self, call: ToolCall, looked: Looked) -> Admission:
        """It was running when its life ended, and is to run again: if it is what it was, and nobody objects by now."""
        if looked.problem is not None or call.tool.effect.value != self._record.effect:
            return self._not_again()
        if self._gap(call) is not None:
            return self._not_again()
        try:
            decided = await decide(self.batch, call, [])
        except Stopped:
            return Admission.REFUSED
        if decided.reviewed:
            self._say(decided.contexts)
        self._append(self._decision("recheck", decided))
        if isinstance(decided.verdict, (Ask, Deny)):
            return self._not_again()
        denied = guard(self.batch, call)
        return self._guarded(denied) if denied is not None else Admission.READY

    def _deny(self, decided: Decided, point: str) -> Admission:
        if not self._runs_before:
            return super()._deny(decided, point)
        self._notice(point, decided.problem)
        return self._not_again()  # a denial would say that it never ran

    def _not_again(self) -> Admission:
        self._reviewed = False  # nobody has seen what it did
        said = closing_text(TOOL_OUTCOME_UNKNOWN)
        return self._settle(failure(self._call, TOOL_OUTCOME_UNKNOWN, said, ran=True))

    async def _go_on(self, approval: Approval, looked: Looked) -> Admission:
        asked, answer = approval.asked, approval.answer
        if answer is None:
            answered = self._without_a_person(asked.expires, looked)
            if answered is None:
                assert self._call is not None
                decision = self._record.decision
                said = decision.said if decision is not None else ()
                return self._park(msgspec.structs.replace(self._call, said=said), asked)
            answer = answered.on_record(approval.id, self.key, approval.digest)
            self._append(answer)
            if looked.problem is not None:
                return self._unfit(looked.problem)
        elif looked.problem is not None and answer.outcome == "allowed-once" and _is_gone(answer, looked):
            return self._unfit(looked.problem)
        return await self._act_on(answer, asked.question)

    def _without_a_person(self, expires: int | None, looked: Looked) -> Answered | None:
        """What the question comes to if nobody can be asked any more; None: it is asked."""
        if looked.problem is not None:
            return Answered("cancelled", "the call that it was about can no longer run")
        if expires is not None and self.batch.session.now() >= expires:
            when = datetime.fromtimestamp(expires / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
            return Answered("unavailable", f"nobody answered in time: the question has expired at {when}")
        asker = self.batch.asker
        if asker is None or not asker.available:
            return Answered("unavailable", "nobody is there to approve it")
        return None

    def _unfit(self, problem: tuple[str, str]) -> Admission:
        code, said = problem
        return self._settle(
            failure(self._call, code, f"while a person was asked, the tools have changed: {said}")
        )

    # Lane 3

    def commit_at_once(self) -> bool:
        if not self._kept:
            return super().commit_at_once()
        session, batch = self.batch.session, self.batch
        facts = end_call(session.state, self._record, CRASHED, next_seq=session.head + 1)
        session.append(*facts)
        result = facts[-1]
        assert isinstance(result, ToolResulted)
        if result.conclude:
            batch.concluded = True
        batch.contexts.pop(self.key, None)
        self._tell(
            ToolResult(
                call=self._call,
                content=result.content,
                error=result.error,
                contexts=result.contexts,
                conclude=result.conclude,
                ran=result.error is None or result.error.handler_executed,
            )
        )
        return True


def _is_gone(answer: ApprovalDecided, looked: Looked) -> bool:
    """Whether it is the tool that does not fit, and not what a person has put in place of the arguments."""
    return looked.tool is None or answer.edited is None
