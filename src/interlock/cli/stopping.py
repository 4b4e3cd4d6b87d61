"""Ctrl-C and SIGTERM while an agent works.

Lives here: `Stopping`. The first one asks the agent to stop, and what was started is awaited; the second gives that a
few seconds; the third leaves at once, and the log is closed when the session is opened again.
"""

from __future__ import annotations

import asyncio
import os
import signal
from types import TracebackType

from interlock.cli.screen import Screen
from interlock.loop.agent import Agent

GRACE = 2.0  # seconds for what still runs at the second signal

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopping:
    """Handles both signals while the block runs. `received`: the first that came."""

    def __init__(self, agent: Agent, screen: Screen) -> None:
        self.received: signal.Signals | None = None
        self._agent = agent
        self._screen = screen
        self._count = 0

    def __enter__(self) -> Stopping:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._handle, number)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def _handle(self, number: signal.Signals) -> None:
        self.received = self.received or number
        self._count += 1
        if self._count == 1:
            self._screen.line("stopping; once more, and what still runs is given up")
            self._agent.cancel("user")
        elif self._count == 2:
            self._screen.line(f"stopping, within {GRACE:g} s; once more to leave at once")
            self._agent.cancel("user", grace=GRACE)
        else:
            os._exit(128 + number)

    @property
    def exit_code(self) -> int | None:
        """As shells have it: 128 and the number of the signal; None when none came."""
        return None if self.received is None else 128 + self.received
