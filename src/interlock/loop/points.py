"""The places around turns, steps and requests where others may speak, and the registration of all points by name.

Lives here: the points of the agent, what their listeners are shown, and `On`, which has one attribute a point.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, overload

import msgspec

from interlock.errors import UsageError
from interlock.intercept.decisions import Continue, Enter, GiveUp, Reject, Retry, Settings
from interlock.intercept.point import Kind, Point
from interlock.intercept.scope import Dispose, Scope
from interlock.intercept.signal import Signal
from interlock.log.event import Event
from interlock.log.facts import Fact
from interlock.log.messages import Message
from interlock.models.protocol import Chunk, ModelRequest
from interlock.tools import points as tool_points


class SessionStart(msgspec.Struct, frozen=True):
    """A session was opened for driving. `how`: new, resume or fork."""

    agent: Any
    how: str


class SessionEnd(msgspec.Struct, frozen=True):
    """The agent is being left: nothing runs any more, and the log can still be written."""

    agent: Any


class Proposal(msgspec.Struct, frozen=True, eq=False):
    """What the next step would be told, as earlier listeners left it."""

    agent: Any
    messages: tuple[Message, ...]
    turn: int
    step: int
    signal: Signal
    contexts: tuple[Message, ...] = ()  # what earlier listeners add after the batch
    rejected: str | None = None  # the reason, if an earlier listener rejected
    by: str = ""  # who rejected


class CallSettings(msgspec.Struct, frozen=True):
    """The settings of the next attempt, `provider` and `model` among them. Messages are not settings."""

    agent: Any
    turn: int
    step: int
    attempt: int
    settings: Mapping[str, Any]


class Attempt(msgspec.Struct, frozen=True):
    """Which attempt failed."""

    agent: Any
    turn: int
    step: int
    number: int  # from 1
    provider: str
    signal: Signal


class Stopping(msgspec.Struct, frozen=True, eq=False):
    """The turn is about to end. `answered`: the last answer had no calls."""

    agent: Any
    turn: int
    step: int
    message: Message | None  # the last answer
    answered: bool
    history: Any
    signal: Signal
    forced: int  # how often the turn has been continued without a person


class InboxNotice(msgspec.Struct, frozen=True):
    """Live: a message was inserted, discarded or claimed. `turn`: by which turn it was claimed."""

    kind: str
    message: Message
    turn: int | None = None


SESSION_START: Point[Any] = Point(
    "agent/session-start", "session_start", Kind.OBSERVE, (), "", "(SessionStart)"
)
SESSION_END: Point[Any] = Point("agent/session-end", "session_end", Kind.OBSERVE, (), "", "(SessionEnd)")
PRE_STEP: Point[Any] = Point(
    "agent/pre-step",
    "pre_step",
    Kind.DECIDE,
    (Enter, Reject),
    "any reject wins; messages: pipeline; contexts: concatenated",
    "(Proposal)",
)
REQUEST: Point[Any] = Point(
    "agent/request", "request", Kind.DECIDE, (Settings,), "pipeline", "(CallSettings)"
)
MODEL_STREAM: Point[Any] = Point(
    "llm/stream",
    "model_stream",
    Kind.AROUND,
    (),
    "onion; next() once",
    "(ModelRequest, next)",
    awaited=False,  # it is iterated; a silent stream is timed by `RetryPolicy(idle=...)`
)
REQUEST_ERROR: Point[Any] = Point(
    "agent/request-error",
    "request_error",
    Kind.DECIDE,
    (Retry, GiveUp),
    "the first to answer owns it; else the retry policy",
    "(ModelFailure, Attempt)",
)
TURN_STOPPING: Point[Any] = Point(
    "agent/turn-stopping",
    "turn_stopping",
    Kind.DECIDE,
    (Continue,),
    "concatenated, through steering; capped",
    "(Stopping)",
)
STATUS: Point[Any] = Point("agent/status", "status", Kind.OBSERVE, (), "", "(Status)", awaited=False)
INBOX: Point[Any] = Point("agent/inbox", "inbox", Kind.OBSERVE, (), "", "(InboxNotice)", awaited=False)
EVENT: Point[Any] = Point("session/event", "observe", Kind.OBSERVE, (), "", "(Event)", awaited=False)

POINTS = (
    SESSION_START,
    PRE_STEP,
    REQUEST,
    MODEL_STREAM,
    REQUEST_ERROR,
    *tool_points.POINTS,
    TURN_STOPPING,
    SESSION_END,
    STATUS,
    INBOX,
    EVENT,
)

StreamNext = Callable[[], AsyncIterator[Chunk]]
StreamWrapper = Callable[[ModelRequest, StreamNext], AsyncIterator[Chunk]]


class Register:
    """Registers listeners at one point: call it with a function, or use it as a decorator."""

    __slots__ = ("_point", "_scope")

    def __init__(self, scope: Scope, point: Point[Any]) -> None:
        self._scope = scope
        self._point = point

    @overload
    def __call__(
        self, fn: Callable[..., Any], /, *, timeout: float | None = None, name: str | None = None
    ) -> Dispose: ...
    @overload
    def __call__(
        self, fn: None = None, /, *, timeout: float | None = None, name: str | None = None
    ) -> Callable[[Callable[..., Any]], Dispose]: ...
    def __call__(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        timeout: float | None = None,
        name: str | None = None,
    ) -> Dispose | Callable[[Callable[..., Any]], Dispose]:
        """Register `fn`; returns the way to undo it.

        timeout: seconds; a gate that exceeds it denies. name: how decisions are explained.
        """
        if fn is None:
            return lambda function: self._scope.listen(self._point, function, timeout=timeout, name=name)
        return self._scope.listen(self._point, fn, timeout=timeout, name=name)

    def __repr__(self) -> str:
        return f"<on.{self._point.attribute} {self._point.listener}>"


class On:
    """One attribute a point: `agent.on.pre_execute(listener)`."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.session_start = Register(scope, SESSION_START)
        self.session_end = Register(scope, SESSION_END)
        self.pre_step = Register(scope, PRE_STEP)
        self.request = Register(scope, REQUEST)
        self.model_stream = Register(scope, MODEL_STREAM)
        self.request_error = Register(scope, REQUEST_ERROR)
        self.prepare = Register(scope, tool_points.PREPARE)
        self.pre_execute = Register(scope, tool_points.PRE_EXECUTE)
        self.execute = Register(scope, tool_points.EXECUTE)
        self.post_execute = Register(scope, tool_points.POST_EXECUTE)
        self.result = Register(scope, tool_points.RESULT)
        self.progress = Register(scope, tool_points.PROGRESS)
        self.turn_stopping = Register(scope, TURN_STOPPING)
        self.status = Register(scope, STATUS)
        self.inbox = Register(scope, INBOX)

    def observe(self, *types: type[Fact]) -> Callable[[Callable[[Event], object]], Dispose]:
        """Be told of events after they were committed: `@agent.on.observe(ToolResulted)`; of all, without types.

        Raises:
            UsageError: something that is not a fact class, or a function that is none or async.
        """
        for cls in types:
            given: object = cls
            if not (isinstance(given, type) and issubclass(given, Fact)):
                raise UsageError(f"on.observe takes fact classes from interlock.log.facts, not {cls!r}")

        def register(fn: Callable[[Event], object]) -> Dispose:
            checked = self._scope.listener(EVENT, fn, timeout=None, name=None)
            return self._scope.listen(EVENT, EventFilter(fn, types), name=checked.who)

        return register


class EventFilter:
    """An observer of some types of events."""

    def __init__(self, fn: Callable[[Event], object], types: tuple[type[Fact], ...]) -> None:
        self.fn = fn
        self.types = types

    def __call__(self, event: Event) -> object:
        return self.fn(event)
