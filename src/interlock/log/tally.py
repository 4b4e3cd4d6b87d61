"""What was used: counts that budgets are held against.

Lives here: `Tally`. It is a fold of the log, so that resuming a session continues the count.
"""

from __future__ import annotations

from interlock.log.facts import Usage


class Tally:
    """Counts of one turn or of one session."""

    __slots__ = ("requests", "steps", "tokens_in", "tokens_out", "tool_calls", "tools", "wall_ms")

    def __init__(self) -> None:
        self.steps = 0
        self.requests = 0  # retries included
        self.tool_calls = 0  # at admission, nested ones included; synthetic ones are not calls
        self.tools: dict[str, int] = {}
        self.tokens_in = 0
        self.tokens_out = 0
        self.wall_ms = 0  # of closed turns, without the time in which a person was asked

    @property
    def tokens(self) -> int:
        return self.tokens_in + self.tokens_out

    def called(self, name: str) -> None:
        self.tool_calls += 1
        self.tools[name] = self.tools.get(name, 0) + 1

    def used(self, usage: Usage) -> None:
        self.tokens_in += usage.input
        self.tokens_out += usage.output
