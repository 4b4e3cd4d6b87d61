"""What the calls of one answer share.

Lives here: `Batch`: the log, the registrations in force, the turn's signal, and how the batch as a whole ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from interlock.intercept.decisions import Verdict
from interlock.intercept.scope import Scope
from interlock.intercept.signal import Signal
from interlock.log.closing import Ending
from interlock.log.messages import Message
from interlock.log.session import Session
from interlock.tools.approval import Asker
from interlock.tools.call import ToolCall
from interlock.tools.confinement import Confinement
from interlock.tools.registry import Registry
from interlock.tools.rules import Rules
from interlock.tools.scheduler import Scheduler


class Batch(msgspec.Struct, eq=False):
    """The calls of one step."""

    session: Session
    scope: Scope
    registry: Registry
    signal: Signal
    turn: int
    step: int
    agent: Any = None
    cwd: Path | None = None
    pool: int = 10
    asker: Asker | None = None
    #: The permission rules in force: they speak before every listener.
    rules: Rules | None = None
    #: How tools that say `sandbox=True` are confined; None: they are not.
    confinement: Confinement | None = None
    #: The preset's verdict for a call that nobody spoke about, and who says so; without one it is allowed.
    default: Callable[[ToolCall], tuple[Verdict, str]] | None = None
    #: Called before a call is admitted, with the tool's name: an ending if a budget is used up.
    spent: Callable[[str], Ending | None] = lambda name: None
    on_waiting: Callable[[bool], None] | None = None
    #: How calls that have not started end, once the batch is stopped.
    ending: Ending | None = None
    scheduler: Scheduler = msgspec.field(default=None)  # type: ignore[assignment]  # made below, once and for all
    #: What listeners have said about calls that have no result yet, by call.
    contexts: dict[int, tuple[Message, ...]] = msgspec.field(default_factory=dict)
    #: The first result that stopped the turn, as text.
    stopped_text: str | None = None
    #: A successful result lets the turn end after this batch.
    concluded: bool = False

    def __post_init__(self) -> None:
        self.scheduler = Scheduler(self.pool, self.on_waiting)

    def stop(self, ending: Ending) -> None:
        """Start nothing more; what has not started gets this ending. The first one counts, a cancel beats it."""
        if self.ending is None or ending.step == "aborted":
            self.ending = ending
        self.scheduler.stop()
