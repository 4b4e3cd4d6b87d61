"""The question to a person, as the pipeline sees it.

Lives here: `Asker`, the protocol that the approval service meets, and `Answered`. Who is asked, and how, is not known
here; that nobody answered means no, is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

from interlock.tools.call import ToolCall

Outcome = Literal["allowed-once", "rejected", "cancelled", "unavailable"]


@dataclass(frozen=True, slots=True)
class Answered:
    """The one answer. `message` is for the model; `by`, `how` and `channel` say who answered and how they are known."""

    outcome: Outcome
    message: str | None = None
    by: str | None = None
    how: Literal["tty", "token", "api", "acp"] | None = None
    channel: str | None = None


class Asker(Protocol):
    @property
    def available(self) -> bool:
        """Whether there is anybody to ask."""

    async def ask(
        self, call: ToolCall, question: str, *, approval_id: str, digest: str, by: str = ""
    ) -> Answered:
        """Wait for a person's answer. `by`: who made it ask. It never raises but `CancelledError`: what goes wrong is `unavailable`."""
