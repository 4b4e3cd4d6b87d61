"""Short lawful logs to begin with, and the lines to go on from them."""

from __future__ import annotations

from typing import Any

from interlock.log.causes import cited
from interlock.log.event import Event
from interlock.log.facts import (
    FORMAT,
    ApprovalAsked,
    ApprovalDecided,
    AssistantMessage,
    CallError,
    Fact,
    InboxClaimed,
    InboxSpliced,
    RequestHeader,
    RequestSent,
    SessionCreated,
    SessionOpened,
    StepEnd,
    StepStart,
    SubcallStart,
    ToolCalled,
    ToolDecided,
    ToolResulted,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.messages import PERSON, Message, Source, Text, ToolUse
from interlock.log.reasons import Completed
from interlock.log.state import State


def message(name: str) -> Message:
    return Message.user(name, id=name)


def put(*names: str, to: Any = "next-step", at: int = 0, removed: int = 0) -> InboxSpliced:
    return InboxSpliced(to, at, removed, tuple([message(name) for name in names]))


def told(name: str, claim: int | None = None, call: int | None = None) -> UserMessage:
    return UserMessage(name, PERSON, "user", (Text(name),), claim=claim, call=call)


def called(index: int, name: str = "", **changes: Any) -> ToolCalled:
    return ToolCalled(1, 1, index, name or f"c{index + 1}", "look", "{}", **changes)


def result(call: int, call_id: str, error: str | None = "DENIED", **more: Any) -> ToolResulted:
    return ToolResulted(call, call_id, (), CallError(error) if error is not None else None, **more)


def ask(call: int, name: str = "a") -> ApprovalAsked:
    return ApprovalAsked(name, call, "may it?", {}, "digest")


def answer(outcome: Any, name: str = "a", call: int = 9, digest: str = "digest") -> ApprovalDecided:
    return ApprovalDecided(name, call, digest, outcome)


def decided(verdict: Any, call: int = 9) -> ToolDecided:
    return ToolDecided(call, "policy", verdict, "rule")


NOTE = Message(role="system", content=(Text("note"),), id="x9.1", source=Source("plugin"))
END = TurnEnd(1, Completed(), 1)
USES = (ToolUse("c1", "look", "{}"), ToolUse("c2", "look", "{}"))

# Lawful logs, each longer than the one before; the number is the seq of the last line.
BEGUN: tuple[Fact, ...] = (SessionCreated(FORMAT, "s"), SessionOpened(1, "new"))  # 1
QUEUED = (*BEGUN, put("m", "n"))  # 2
TURN = (*QUEUED, TurnStart(1))  # 3
CLAIMED = (*TURN, InboxClaimed(1, 1, ("m", "n")))  # 4
STEP = (*TURN, StepStart(1, 1), told("x"))  # 5
HEADED = (*STEP, RequestHeader("initial", "p", "m", {}))  # 6
SENT = (*HEADED, RequestSent(4, 1, 6, 5, 1, "digest"))  # 7
ANSWERED = (*SENT, AssistantMessage(7, USES))  # 8
CALLED = (*ANSWERED, called(0))  # 9
STARTED = (*CALLED, ToolStarted(9, "digest"))  # 10
NESTED = (*STARTED, SubcallStart(9, "c1:look", "look", {}))  # 11
DONE = (*CALLED, result(9, "c1"), called(1), result(11, "c2"))  # 12
ENDED = (*DONE, StepEnd(1, 1, "tools"))  # 13
WITH_CONTEXT = (
    *CALLED,
    result(9, "c1", contexts=(NOTE,)),
    called(1),
    result(11, "c2"),
    StepEnd(1, 1, "tools"),
)  # 13


def written(facts: tuple[Fact, ...]) -> list[Event]:
    """The lines of a log, with the causes that they would have."""
    state, events = State(), list[Event]()
    for seq, fact in enumerate(facts):
        life = fact.life if isinstance(fact, SessionOpened) else state.life or 1
        event = Event(seq, 1000 + seq, life, fact, cited(state, fact), fact.ignorable)
        events.append(event)
        state.apply(event)
    return events


def state_of(facts: tuple[Fact, ...]) -> State:
    """Where a log of these facts stands."""
    state = State()
    for event in written(facts):
        state.apply(event)
    return state
