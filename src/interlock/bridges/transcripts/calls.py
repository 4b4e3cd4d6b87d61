"""The lines of the calls of one answer.

Lives here: `Call` and `Inner`, a call as a transcript tells it, and `CallWriter`. A transcript says what was asked and
what came of it, and seldom who allowed it: what its outcome does not prove is not claimed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, assert_never

from interlock.bridges.transcripts.outcomes import Outcome
from interlock.bridges.transcripts.tools import Asked
from interlock.log.closing import CRASHED, closing_content, end_call
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    CallError,
    Fact,
    Said,
    SubcallEnd,
    SubcallStart,
    ToolCalled,
    ToolDecided,
    ToolResulted,
    ToolStarted,
)
from interlock.log.messages import Text, ToolUse
from interlock.log.reasons import ABORTED, TOOL_OUTCOME_UNKNOWN
from interlock.log.session import Session
from interlock.tools.pipeline import digest_of

_RAN_THERE = "it ran; who or what allowed it is not on record"


@dataclass(slots=True)
class Result:
    """What came of a call, `time` in epoch ms."""

    content: tuple[Text, ...]
    outcome: Outcome
    time: int


@dataclass(slots=True)
class Inner:
    """A call that another call has made, through an agent of its own or as a part of it."""

    id: str
    asked: Asked
    time: int
    result: Result | None = None


@dataclass(slots=True)
class Call:
    """A call of the answer. The first of `inner` are its parts, the others those of an agent that worked for it."""

    asked: Asked
    time: int
    given: str  # its id in the transcript
    result: Result | None = None
    inner: list[Inner] = field(default_factory=list)

    @property
    def outcome(self) -> Outcome | None:
        """None: nobody knows. A call for which an agent has worked has run, whatever its result says."""
        if self.result is None:
            return None
        if not self.result.outcome.started and len(self.inner) > len(self.asked.parts):
            return Outcome("stopped", ABORTED)
        return self.result.outcome


class Append(Protocol):
    def __call__(self, time: int, *facts: Fact) -> tuple[Event, ...]: ...


class CallWriter:
    """Writes calls and results in the model's order."""

    def __init__(self, session: Session, program: str, append: Append) -> None:
        self._session = session
        self._program = program
        self._append = append

    def write(self, uses: Sequence[ToolUse], calls: Sequence[Call]) -> None:
        """All calls of the open step, then all results."""
        seqs = [self._call(i, use, call) for i, (use, call) in enumerate(zip(uses, calls, strict=True))]
        for seq, call in zip(seqs, calls, strict=True):
            self._result(seq, call)

    def _call(self, index: int, use: ToolUse, call: Call) -> int:
        """The lines of a call up to its result; its seq."""
        turn = self._session.state.turn
        assert turn is not None
        asked = call.asked
        called = ToolCalled(turn.number, turn.steps, index, use.id, use.name, use.arguments, asked.effect)
        seq = self._append(call.time, called)[0].seq
        outcome = call.outcome
        self._decide(seq, asked, outcome)
        if outcome is None or outcome.started:
            for inner in call.inner:
                self._inner(seq, inner)
        return seq

    def _decide(self, call: int, asked: Asked, outcome: Outcome | None) -> None:
        """Who had a say in a call, as far as its outcome tells; and its start. No outcome: it may have run."""
        by = self._program
        digest = digest_of(asked.name, asked.value)
        decided: list[Fact] = []
        match outcome.fate if outcome is not None else "ran":
            case "ran" | "stopped":
                decided = [
                    ToolDecided(call, "policy", "allow", by, reason=_RAN_THERE),
                    ToolStarted(call, digest),
                ]
            case "rejected":
                assert outcome is not None
                question, name = f"{by} asked a person about it", f"a{call}"
                decided = [
                    ToolDecided(call, "policy", "ask", by),
                    ApprovalAsked(name, call, question, asked.value, digest, by=by),
                    ApprovalDecided(name, call, digest, "rejected", message=outcome.reason),
                ]
            case "denied":
                assert outcome is not None
                decided = [ToolDecided(call, "policy", "deny", by, outcome.code, outcome.reason)]
            case "blocked":
                assert outcome is not None
                hook = f"a hook of {by}"
                said = (Said(hook, "deny", outcome.reason),)
                decided = [ToolDecided(call, "policy", "deny", hook, outcome.code, outcome.reason, said)]
            case "invalid" | "skipped":
                pass
            case _ as never:
                assert_never(never)
        self._append(self._session.now(), *decided)

    def _inner(self, outer: int, inner: Inner) -> None:
        asked, result = inner.asked, inner.result
        start = SubcallStart(outer, inner.id, asked.name, asked.value, asked.effect)
        seq = self._append(inner.time, start)[0].seq
        self._decide(seq, asked, result.outcome if result is not None else None)
        if result is None:
            content = closing_content(TOOL_OUTCOME_UNKNOWN)
            self._append(
                self._session.now(),
                SubcallEnd(seq, False, content, CallError(TOOL_OUTCOME_UNKNOWN, "", True)),
            )
            return
        error = _error(result.outcome)
        self._append(result.time, SubcallEnd(seq, error is None, result.content, error, settled=result.time))

    def _result(self, seq: int, call: Call) -> None:
        state = self._session.state
        known = state.call(seq)
        assert known is not None
        result, outcome = call.result, call.outcome
        if result is None or outcome is None:  # the transcript does not say what became of it
            self._append(self._session.now(), *end_call(state, known, CRASHED, next_seq=state.head + 1))
            return
        resulted = ToolResulted(
            seq,
            known.use.id,
            result.content,
            _error(outcome),
            started=known.started_ms,
            settled=result.time if outcome.started else None,
        )
        self._append(result.time, resulted)


def _error(outcome: Outcome) -> CallError | None:
    return CallError(outcome.code, "", outcome.started) if outcome.code is not None else None
