"""The live view of an agent: what it says as it says it, and what its tools do.

Lives here: `LiveView`, which draws events on a screen, and `Running`, which says what is waited for. Both are driven by
the log, so that what is seen has happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from time import monotonic

from rich.text import Text

from interlock.cli.calls import Calls
from interlock.cli.screen import Screen
from interlock.cli.timeline import STYLES, Line, Timeline
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalDecided,
    ApprovalLate,
    AssistantChunk,
    AssistantMessage,
    BudgetWarned,
    CancelRequested,
    Fact,
    GrantRevoked,
    HookProblem,
    HookResulted,
    InboxDropped,
    InboxSpliced,
    MailTaken,
    ObserverFailed,
    RequestFailed,
    RequestSent,
    RetryScheduled,
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
)
from interlock.log.messages import Text as Words
from interlock.log.messages import ToolUse
from interlock.tools.call import ToolCall

_SHOWN: tuple[type[Fact], ...] = (
    ApprovalDecided, ApprovalLate, BudgetWarned, CancelRequested, GrantRevoked, HookProblem, InboxDropped, MailTaken,
    ObserverFailed, RequestFailed, RetryScheduled, SubcallEnd, SubcallStart, ToolAbandoned, ToolCalled, ToolDecided, ToolPrepared,
    ToolResulted, ToolSettled, TurnEnd,
)  # fmt: skip


class LiveView:
    """Draws the events of one session as they come. `answers`: also messages without calls, which are answers."""

    def __init__(self, screen: Screen, *, answers: bool) -> None:
        self._screen = screen
        self._answers = answers
        self._timeline = Timeline()
        self._turn = False

    def event(self, event: Event) -> None:
        fact = event.fact
        line = self._timeline.line(event)
        match fact:
            case TurnStart():
                self._turn = True
            case AssistantChunk(kind="text", text=text) if self._screen.alive:
                self._screen.words(text)
            case AssistantMessage():
                self._said(fact)
            case InboxSpliced(inserted=inserted) if line is not None and inserted and self._turn:
                self._show(line)  # the first prompt needs no telling: whoever reads this has just given it
            case HookResulted(said=said) if line is not None:
                if fact.error is not None or fact.unused is not None or _for_the_person(said):
                    self._show(line)
            case _ if line is not None and isinstance(fact, _SHOWN):
                self._show(line)
            case _:
                pass
        if isinstance(fact, TurnEnd):
            self._turn = False

    def _said(self, message: AssistantMessage) -> None:
        """The end of what was streamed; all of it where nothing was."""
        calls = any(isinstance(block, ToolUse) for block in message.blocks)
        if not self._screen.alive and (calls or self._answers):
            self._screen.words("".join([block.text for block in message.blocks if isinstance(block, Words)]))
        self._screen.end_words()
        if message.interrupted:
            self._screen.line(Text("(interrupted)", "dim"))

    def _show(self, line: Line) -> None:
        indent = "  " if line.depth else ""
        words = f"  {line.words}" if line.words else ""
        self._screen.line(
            Text.assemble(f"{indent}", (f"{line.mark} {line.subject}", STYLES[line.mark]), words)
        )


def _for_the_person(said: object) -> bool:
    """Whether a hook has something to say to whoever looks on."""
    return isinstance(said, Mapping) and ("messages" in said or "stop" in said)


_NOTICE = 5  # seconds between two lines that say the same where no line can be changed


class Running:
    """Says what is waited for: the model, the tools that run, and, once somebody pressed stop, those that still do."""

    def __init__(self, screen: Screen, *, clock: Callable[[], float] = monotonic) -> None:
        self._screen = screen
        self._clock = clock
        self._calls = Calls()
        self._asked: float | None = None  # when the model was asked that has not answered
        self._progress: dict[int, str] = {}  # by call
        self._since: dict[int, float] = {}  # by call, when its body began
        self._stopped_at: float | None = None
        self._told = -_NOTICE  # seconds after the stop

    def event(self, event: Event) -> None:
        self._calls.see(event)
        now = self._clock()
        match event.fact:
            case CancelRequested() if self._stopped_at is None:
                self._stopped_at = now
            case TurnEnd():
                self._asked, self._stopped_at, self._told = None, None, -_NOTICE
            case StepStart():
                self._since.clear()
                self._progress.clear()
            case RequestSent():
                self._asked = now
            case AssistantMessage() | RequestFailed():
                self._asked = None
            case ToolStarted(call=call):
                self._since[call] = now
            case ToolSettled() | ToolResulted() | ToolAbandoned():
                pass
            case _:
                return
        self.tick()

    def progress(self, call: ToolCall, text: str) -> None:
        """What a body says of itself while it runs."""
        self._progress[call.key] = text

    @asynccontextmanager
    async def counting(self) -> AsyncIterator[None]:
        """Count the seconds while the block runs."""
        counting = asyncio.create_task(self._count())
        try:
            yield
        finally:
            counting.cancel()
            await asyncio.gather(counting, return_exceptions=True)
            self._screen.status("")

    async def _count(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.tick()

    def tick(self) -> None:
        """Say it anew: something has happened, or time has passed."""
        now = self._clock()
        running = self._calls.running()
        if self._stopped_at is None:
            parts = [
                self._part(call.key, call.name, now) for call in running if now - self._since[call.key] >= 1
            ]
            if self._asked is not None and now - self._asked >= 1:
                parts.append(f"waiting for the model ({int(now - self._asked)} s)")
            self._screen.status(", ".join(parts))
            return
        seconds = int(now - self._stopped_at)
        names = ", ".join([call.name for call in running])
        text = f"stopping, waiting for {names} ({seconds} s)" if names else "stopping"
        self._screen.status(text)
        if not self._screen.alive and names and seconds - self._told >= _NOTICE:
            self._told = seconds
            self._screen.line(text)

    def _part(self, key: int, name: str, now: float) -> str:
        progress = f": {self._progress[key]}" if key in self._progress else ""
        return f"{name} ({int(now - self._since[key])} s){progress}"
