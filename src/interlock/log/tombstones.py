"""A log whose content was erased: what is left of it, and the laws that can still be checked.

Lives here: `Shape`, the laws over seq, type, life and causes alone, `erasure_of`, whether a journal is that of an erased
session, and `refuse_erased`. What a tombstone has no data for is not checked; what is checked here, every lawful log
obeys. `laws.check` says which of the two a log is held against.
"""

from __future__ import annotations

from collections.abc import Callable
from time import localtime, strftime
from typing import TYPE_CHECKING, NamedTuple

from interlock.errors import SessionErased
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantChunk,
    AssistantMessage,
    BudgetWarned,
    ContentErased,
    DecisionMade,
    Erased,
    HistoryReplaced,
    InboxClaimed,
    RequestFailed,
    RequestHeader,
    RequestSent,
    RetryScheduled,
    RetryStarted,
    SessionCreated,
    SessionOpened,
    StepEnd,
    StepStart,
    SubcallEnd,
    SubcallStart,
    ToolAbandoned,
    ToolCalled,
    ToolDecided,
    ToolPrepared,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
)

if TYPE_CHECKING:
    from interlock.log.stores.store import Journal


class Amiss(NamedTuple):
    """The law that a line breaks, and how."""

    law: str
    problem: str


class _Broken(Exception):
    def __init__(self, law: str, problem: str) -> None:
        self.amiss = Amiss(law, problem)


class Shape:
    """Where a log of tombstones stands, line by line."""

    def __init__(self) -> None:
        self._head = -1
        self._life = 0
        self._erased = False  # its last line was read
        self._turn = False
        self._step = False
        # Of the open step:
        self._request: list[list[int]] | None = None  # first and last of the chunks of the open one
        self._answered = False
        self._calls: list[int] = []  # without a result
        self._nested = 0  # calls of calls, without an end
        self._asked = 0  # questions without an answer

    def take(self, event: Event) -> Amiss | None:
        """The law that this line breaks as the next one, or None."""
        try:
            self._check(event)
        except _Broken as broken:
            return broken.amiss
        finally:
            self._head = event.seq
        return None

    @property
    def unsaid(self) -> Amiss | None:
        """What is wrong when the log ends here."""
        return None if self._erased else Amiss("erased", f"no {ContentErased.type} says who erased it")

    def _check(self, event: Event) -> None:
        type_ = event.type
        if self._erased:
            raise _Broken("erased", f"{type_} comes after {ContentErased.type}")
        if type(event.fact) is ContentErased:
            self._erased = True
        elif type(event.fact) is not Erased or type_ == ContentErased.type:
            raise _Broken("erased", f"{type_} among tombstones")
        if (event.seq == 0) != (type_ == SessionCreated.type):
            raise _Broken("created", "a session is created once, on line 0")
        for span in event.causes:
            first, last = span if isinstance(span, tuple) else (span, span)
            if not 0 <= first <= last < event.seq:
                raise _Broken("causes", f"cites {span}, which is not earlier")
        self._life += type_ == SessionOpened.type
        if event.life != (self._life or 1):
            raise _Broken("lives", f"written by life {event.life} in life {self._life}")
        if type_ in _IN_TURN and not self._turn:
            raise _Broken("turn", f"{type_}, and no turn is open")
        if type_ in _IN_STEP and not self._step:
            raise _Broken("step", f"{type_}, and no step is open")
        if (change := _CHANGES.get(type_)) is not None:
            change(self, event)

    def _turn_started(self, event: Event) -> None:
        if self._turn:
            raise _Broken("one turn", "a turn is open")
        self._turn = True

    def _turn_ended(self, event: Event) -> None:
        if self._step:
            raise _Broken("step closed", "a step is open")
        self._turn = False

    def _between_steps(self, event: Event) -> None:
        if self._step:
            raise _Broken("claim", "a claim comes between steps")

    def _step_started(self, event: Event) -> None:
        if self._step:
            raise _Broken("one step", "a step is open")
        self._step = True
        self._request, self._answered, self._calls, self._nested, self._asked = None, False, [], 0, 0

    def _step_ended(self, event: Event) -> None:
        if self._calls:
            raise _Broken("one result", f"the calls {self._calls} have no result")
        if self._nested:
            raise _Broken("nested", "nested calls are open")
        if self._asked:
            raise _Broken("one answer", "questions are open")
        self._step = False

    def _adjacent(self, event: Event) -> None:
        if self._calls:
            raise _Broken("adjacent", f"{event.type} comes between call {self._calls[0]} and its result")

    def _sent(self, event: Event) -> None:
        if self._request is not None:
            raise _Broken("request", "a request is open")
        if self._answered:
            raise _Broken("request", "the step has its answer")
        self._request = []

    def _of_request(self, event: Event) -> list[list[int]]:
        if self._request is None:
            raise _Broken("request", f"{event.type}, and no request is open")
        return self._request

    def _chunk(self, event: Event) -> None:
        spans = self._of_request(event)
        if spans and spans[-1][1] == event.seq - 1:
            spans[-1][1] = event.seq
        else:
            spans.append([event.seq, event.seq])

    def _message(self, event: Event) -> None:
        needed = {first if first == last else (first, last) for first, last in self._of_request(event)}
        if not needed <= set(event.causes):
            raise _Broken("cites", f"{event.type} rests on {sorted(map(str, needed))}")
        self._request, self._answered = None, True

    def _failed(self, event: Event) -> None:
        self._of_request(event)
        self._request = None

    def _called(self, event: Event) -> None:
        if not self._answered:
            raise _Broken("call", "no answer has asked for a call")
        self._calls.append(event.seq)

    def _of_call(self, event: Event) -> None:
        if not self._calls:
            raise _Broken("call", f"{event.type}, and no call is open")

    def _resulted(self, event: Event) -> None:
        self._of_call(event)
        if self._calls[0] not in event.causes:
            raise _Broken("result order", f"the next result is that of call {self._calls[0]}")
        del self._calls[0]

    def _nested_started(self, event: Event) -> None:
        self._of_call(event)
        self._nested += 1

    def _nested_ended(self, event: Event) -> None:
        if not self._nested:
            raise _Broken("nested", "no nested call is open")
        self._nested -= 1

    def _question(self, event: Event) -> None:
        self._of_call(event)
        self._asked += 1

    def _decided(self, event: Event) -> None:
        if not self._asked:
            raise _Broken("one answer", "no question is open")
        self._asked -= 1


_IN_TURN = frozenset(
    cls.type for cls in (TurnEnd, InboxClaimed, StepStart, UserMessage, DecisionMade, BudgetWarned)
)
_IN_STEP = frozenset(
    cls.type
    for cls in (
        StepEnd,
        RequestHeader,
        RequestSent,
        AssistantChunk,
        AssistantMessage,
        RequestFailed,
        RetryScheduled,
        RetryStarted,
        ToolCalled,
        ToolPrepared,
        ToolDecided,
        ApprovalAsked,
        ApprovalDecided,
        ToolStarted,
        ToolSettled,
        ToolResulted,
        ToolAbandoned,
        SubcallStart,
        SubcallEnd,
    )
)
_CHANGES: dict[str, Callable[[Shape, Event], object]] = {
    TurnStart.type: Shape._turn_started,
    TurnEnd.type: Shape._turn_ended,
    InboxClaimed.type: Shape._between_steps,
    StepStart.type: Shape._step_started,
    StepEnd.type: Shape._step_ended,
    UserMessage.type: Shape._adjacent,
    HistoryReplaced.type: Shape._adjacent,
    RequestSent.type: Shape._sent,
    AssistantChunk.type: Shape._chunk,
    AssistantMessage.type: Shape._message,
    RequestFailed.type: Shape._failed,
    ToolCalled.type: Shape._called,
    ToolPrepared.type: Shape._of_call,
    ToolDecided.type: Shape._of_call,
    ApprovalAsked.type: Shape._question,
    ApprovalDecided.type: Shape._decided,
    ToolStarted.type: Shape._of_call,
    ToolSettled.type: Shape._of_call,
    ToolResulted.type: Shape._resulted,
    ToolAbandoned.type: Shape._of_call,
    SubcallStart.type: Shape._nested_started,
    SubcallEnd.type: Shape._nested_ended,
}


def erasure_of(journal: Journal) -> Event | None:
    """The line that says so, where the session was erased. It reads two lines."""
    if journal.head < 0:
        return None
    last = next(journal.read(journal.head, journal.head))
    return last if type(last.fact) is ContentErased else None


def refuse_erased(session_id: str, journal: Journal) -> None:
    """
    Raises:
        SessionErased: there is nothing left to go on with.
    """
    if (said := erasure_of(journal)) is not None:
        raise refusal(session_id, said)


def refusal(session_id: str, said: Event) -> SessionErased:
    """Why nothing can be done any more with a session whose last line is this one."""
    assert isinstance(said.fact, ContentErased)
    when = strftime("%Y-%m-%d %H:%M:%S", localtime(said.time / 1000))
    return SessionErased(session_id, by=said.fact.by, receipt=said.fact.receipt, time=said.time, when=when)
