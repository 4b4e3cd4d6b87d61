"""From what a transcript tells to the lines of a lawful log.

Lives here: `Assembler`. A reader tells it in the order of its file what was said and done; it finds the turns and
steps, holds an answer back until all of its calls have their results, and appends to a session, whose laws check
every line. Time is the transcript's: the session's clock is the assembler's `now`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from interlock.bridges.transcripts.calls import Call, CallWriter, Inner, Result
from interlock.bridges.transcripts.kept import Kept
from interlock.bridges.transcripts.outcomes import Outcome
from interlock.bridges.transcripts.tools import Asked, as_text
from interlock.log.assembly import name_calls
from interlock.log.closing import CRASHED, Ending, cancelled, closers, end_turn, failed
from interlock.log.event import Event
from interlock.log.facts import (
    AssistantMessage,
    CancelRequested,
    Fact,
    Failure,
    HistoryReplaced,
    RequestFailed,
    RequestHeader,
    RequestSent,
    Section,
    SessionRepaired,
    StepEnd,
    StepStart,
    ToolSpec,
    TurnStart,
    Usage,
    UserMessage,
)
from interlock.log.history import request_digest
from interlock.log.messages import PERSON, Message, Reasoning, Source, Text, ToolUse
from interlock.log.reasons import Cause, Completed, Failed, MaxTokens, StepReason
from interlock.log.session import Session
from interlock.log.strictjson import EMPTY
from interlock.loop.request import header_digest

UNKNOWN = "unknown"  # a provider or a model that a transcript does not name


@dataclass(slots=True)
class _Answer:
    """One answer of the model, until its step is closed."""

    key: str
    time: int
    blocks: list[Text | Reasoning | ToolUse] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    finish: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A message that no step has taken."""

    content: tuple[Text, ...]
    source: Source
    role: Literal["user", "system"]
    time: int


class Assembler:
    """Writes one session. Its methods are told in the order of the transcript; times are epoch ms."""

    def __init__(
        self,
        session: Session,
        program: str,
        *,
        skipped: Counter[str],
        lossy: Counter[str],
    ) -> None:
        self.program = program
        self.skipped = skipped  # lines that are left out, by kind
        self.lossy = lossy  # what is not exact, by kind
        self.line = 0  # of the transcript, for what is kept of it
        self.now = 0
        self.provider = UNKNOWN
        self.model = UNKNOWN
        self.system: tuple[Section, ...] = ()
        self.tools: tuple[ToolSpec, ...] = ()
        self.ordinal = 0  # how many answers have begun
        self._begun: list[int] = [-1]  # by ordinal: the last line of the history before the answer
        self._after: list[int] = [-1]  # by ordinal: its last line with the answer and its results
        self._turns: list[int] = []  # the ordinal of the last answer before each turn
        # The last line that a compaction has shadowed, and how many answers had begun by then.
        self._floor = -1, 0
        self._session = session
        self._calls = CallWriter(session, program, self._append)
        self._answer: _Answer | None = None
        self._waiting: list[_Waiting] = []
        self._last_step: StepReason | None = None  # of the open turn
        self._attempts = 0  # of the open step
        self._told = 0  # messages that it was entered with
        self._header = -1, b""  # the seq of the header in force, and its digest

    # What is told

    def prompt(
        self,
        content: Sequence[Text],
        time: int,
        *,
        source: Source = PERSON,
        role: Literal["user", "system"] = "user",
    ) -> None:
        """Somebody said something to the model: a person, or for any other source, as context."""
        if content:
            self._waiting.append(_Waiting(tuple(content), source, role, time))

    def prompted_after(self, waiting: int) -> bool:
        """Whether a person has said something behind the first `waiting` messages that nobody has answered."""
        return any(one.source == PERSON for one in self._waiting[waiting:])

    def take_back(self, keep: int) -> None:
        """All but the first `keep` messages that nobody has answered were never sent after all."""
        for one in self._waiting[keep:]:
            self.skip("prompt that was taken back")
            self.keep("prompt", [block.text for block in one.content])
        del self._waiting[keep:]

    @property
    def waiting(self) -> int:
        """How many messages no answer has taken."""
        return len(self._waiting)

    def said(self, key: str, block: Text | Reasoning, time: int) -> None:
        """The model said a piece of the answer `key`."""
        if isinstance(block, Text) and not block.text:
            return
        self._answering(key, time).blocks.append(block)

    def answered(self, key: str, time: int, *, finish: str | None = None, usage: Usage | None = None) -> None:
        """More about the answer `key`, which may be empty."""
        answer = self._answering(key, time)
        answer.finish = finish or answer.finish
        answer.usage = usage or answer.usage

    def called(self, key: str, call_id: str, asked: Asked, time: int) -> None:
        """The model called a tool in the answer `key`."""
        answer = self._answering(key, time)
        answer.blocks.append(ToolUse(call_id, asked.name, asked.arguments))
        inner = [Inner(f"{call_id}.{i}", part, time) for i, part in enumerate(asked.parts, 1)]
        answer.calls.append(Call(asked, time, call_id, inner=inner))

    def resulted(self, call_id: str, content: Sequence[Text], outcome: Outcome, time: int) -> bool:
        """A call of the open answer has its result. False: there is no such call, or it has one."""
        for call in self.calls:
            if call.given == call_id and call.result is None:
                call.result = Result(tuple(content), outcome, time)
                for inner in call.inner[: len(call.asked.parts)]:
                    inner.result = Result((), outcome, time)
                return True
        return False

    @property
    def calls(self) -> Sequence[Call]:
        """The calls of the answer whose step is not closed."""
        return self._answer.calls if self._answer is not None else ()

    def called_within(self, outer_id: str, inner: Inner) -> bool:
        """A call of the open answer has made one. False: there is no such call."""
        for call in self.calls:
            if call.given == outer_id:
                call.inner.append(inner)
                return True
        return False

    def attempt_failed(self, failure: Failure, time: int) -> None:
        """A request failed, and was repeated."""
        self._close_answer()
        self._enter(time)
        self._append(time, RequestFailed(self._send(), failure))

    def gave_up(self, failure: Failure, time: int) -> None:
        """A request failed, and the turn with it."""
        self._close_answer()
        self._enter(time)
        self._send()
        self._end(failed(Failed(failure.code, failure.message, failure.status)), time)

    def interrupted(self, time: int) -> bool:
        """A person stopped the turn. False: there was none."""
        self._close_answer(interrupted=True)
        state = self._session.state
        if self._waiting and state.step is None:
            self._enter(time)
        if state.turn is None:
            return False
        cause = Cause("user")
        self._append(time, CancelRequested(cause, state.turn.number, keep_inbox=True))
        self._end(cancelled(cause, keep_inbox=True), time)
        return True

    def turn_over(self, time: int | None = None) -> None:
        """The turn is over; what no answer has taken belongs to the next one."""
        self._close_answer()
        state = self._session.state
        if state.turn is None:
            return
        time = self.now if time is None else time
        if state.step is not None:  # the model was asked, and nothing came
            self._end(CRASHED, time)
            return
        self._append(time, end_turn(state, MaxTokens() if state.turn.max_tokens else Completed()))

    def compacted(
        self, messages: Sequence[Message], time: int, *, kept_from: tuple[int, bool] | None = None
    ) -> None:
        """The history up to now was replaced by these messages.

        Args:
            kept_from: what follows the answer of this ordinal, or if the second is true also the answer, was kept.
        """
        self._close_answer()
        history, head = self._session.state.history, self._session.head
        last = head
        if kept_from is not None:
            ordinal, whole = kept_from
            last = self._begun[ordinal] if whole else self._after[ordinal]
        if not history.covers(0, last):
            for one in messages:
                self.prompt(
                    [block for block in one.content if isinstance(block, Text)], time, source=one.source
                )
            return
        named = tuple(
            [
                Message(role=one.role, content=one.content, id=f"h{head + 1}.{i}", source=one.source)
                for i, one in enumerate(messages)
            ]
        )
        self._append(time, HistoryReplaced(0, last, named, "compaction", self.program))
        self._floor = last, self.ordinal if kept_from is None else kept_from[0]

    def rewound(self, ordinal: int, time: int) -> None:
        """A person went back to the end of the answer `ordinal`; what came after it happened, and is forgotten."""
        self.turn_over()
        floor, compacted = self._floor
        if ordinal < compacted:
            self.lossy["rewind behind a compaction"] += 1
        last = max(self._after[ordinal], floor)
        state = self._session.state
        if state.history.covers(last + 1, state.head):
            self._append(time, HistoryReplaced(last + 1, state.head, (), "pruning", self.program))

    def rolled_back(self, turns: int, time: int) -> None:
        """The last turns are forgotten."""
        self.turn_over()
        if turns > 0:
            self.rewound(self._turns[-turns] if turns <= len(self._turns) else 0, time)
            del self._turns[-turns:]

    def keep(self, kind: str, data: object) -> None:
        """Something that has no line of its own is kept as it is."""
        self._session.append(Kept(self.line, kind, data))

    def skip(self, kind: str) -> None:
        self.skipped[kind] += 1

    def text(self, text: object) -> Text:
        """A piece of text; what is none is shown as JSON."""
        return Text(text if isinstance(text, str) else as_text(text))

    def over(self) -> None:
        """The transcript ends here. What is open is closed, as after a crash."""
        self._close_answer()
        if self._waiting:
            self._enter(self.now)
        state = self._session.state
        if state.turn is not None and (state.step is not None or self._last_step == "tools"):
            self._end(CRASHED, self.now)
        else:
            self.turn_over()

    # Lines

    def _append(self, time: int, *facts: Fact) -> tuple[Event, ...]:
        """Within a turn the clock does not go back: calls overlap, and are written in their order."""
        self.now = max(self.now, time) if self._session.open else time
        return self._session.append(*facts)

    def _enter(self, time: int) -> None:
        """Open a step with the messages that wait, and a turn if there is none or it is over."""
        state = self._session.state
        waiting, self._waiting = self._waiting, []
        asked = any(one.source == PERSON for one in waiting)
        if state.turn is not None and asked and (state.step is not None or self._last_step != "tools"):
            self.turn_over()
        time = waiting[0].time if waiting else time
        if state.turn is None:
            self._append(time, TurnStart(state.turns + 1))
            self._turns.append(self.ordinal)
            self._last_step = None
        turn = state.turn
        assert turn is not None
        lines: list[Fact] = []
        if state.step is None:  # else it is asked again, after a failure
            lines.append(StepStart(turn.number, turn.steps + 1))
            self._attempts = self._told = 0
        number = turn.steps + (state.step is None)
        for one in waiting:
            self._told += 1
            place: Literal["prompt", "context"] = "prompt" if one.source == PERSON else "context"
            name = f"s{turn.number}.{number}.{self._told}"
            lines.append(UserMessage(name, one.source, one.role, one.content, place))
        self._append(time, *lines)

    def _send(self) -> int:
        """A request leaves; the seq of its line."""
        state = self._session.state
        step, last = state.step, state.header
        assert step is not None
        if step.request is not None:  # it has no answer in the transcript
            self._session.append(
                RequestFailed(step.request.seq, Failure("UNKNOWN", "nothing is known of it"))
            )
        if last is None or (last.provider, last.model, last.system, last.tools) != (
            self.provider,
            self.model,
            self.system,
            self.tools,
        ):
            why: Literal["initial", "change"] = "initial" if last is None else "change"
            header = RequestHeader(why, self.provider, self.model, EMPTY, self.system, self.tools)
            (event,) = self._session.append(header)
            self._header = event.seq, header_digest(header)
        self._attempts += 1
        seq, digest = self._header
        (event,) = self._session.append(
            RequestSent(
                step.seq,
                self._attempts,
                seq,
                state.history.last,
                len(state.history),
                request_digest(digest, state.history.digest),
            )
        )
        return event.seq

    def _answering(self, key: str, time: int) -> _Answer:
        """The answer `key`, begun if it is another one than the last."""
        answer = self._answer
        if answer is not None and answer.key == key:
            answer.time = max(answer.time, time)
            return answer
        self._close_answer()
        self._enter(time)
        self._send()
        self.ordinal += 1
        self._begun.append(self._session.state.history.last)
        self._after.append(self._begun[-1])
        self._answer = _Answer(key, time)
        return self._answer

    def _end(self, ending: Ending, time: int) -> None:
        """Close the step, the turn and all that is open in them."""
        facts = closers(self._session.state, ending)
        if ending.crashed:
            facts.append(SessionRepaired(self._session.head + 1, "crash"))
        self._append(time, *facts)

    def _close_answer(self, *, interrupted: bool = False) -> None:
        """Write the answer, its calls and their results, and close its step unless the turn was interrupted in it."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        state = self._session.state
        turn, step = state.turn, state.step
        assert turn is not None and step is not None and step.request is not None
        blocks, renamed = name_calls(tuple(answer.blocks), turn.number, step.number)
        cut = interrupted and not answer.calls
        if cut:
            blocks = tuple([one for one in blocks if isinstance(one, (Text, Reasoning)) and one.text.strip()])
        if blocks or not cut:
            message = AssistantMessage(
                step.request.seq,
                blocks,
                answer.finish,
                answer.usage,
                interrupted=cut,
                renamed=renamed or None,
            )
            self._append(answer.time, message)
        uses = [block for block in blocks if isinstance(block, ToolUse)]
        self._calls.write(uses, answer.calls)
        if not interrupted:
            self._last_step = _reason(answer)
            self._append(self.now, StepEnd(turn.number, step.number, self._last_step))
        self._after[self.ordinal] = state.history.last


def _reason(answer: _Answer) -> StepReason:
    if answer.calls:
        return "tools"
    return "max-tokens" if answer.finish == "max-tokens" else "completed"
