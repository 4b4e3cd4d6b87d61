"""The question to a person, as the pipeline sees it.

Lives here: `Asker`, the protocol that the approval service meets, its `Question` and `Answered`. Who is asked, and how,
is not known here; that nobody answered means no, is.
"""

from __future__ import annotations

from typing import Literal, Protocol, TypeAlias

import msgspec

from interlock.log.facts import ApprovalDecided, Stamp
from interlock.log.strictjson import FrozenDict
from interlock.tools.call import ToolCall

Outcome: TypeAlias = Literal["allowed-once", "rejected", "cancelled", "unavailable"]
How: TypeAlias = Literal["tty", "token", "api", "acp", "hook"]
Remember: TypeAlias = Literal["session", "always"]


class Question(msgspec.Struct, frozen=True):
    """What a person is asked about a call, as it is on record."""

    id: str
    call: ToolCall  # with the effective arguments
    text: str  # why it is asked
    digest: str  # of the tool's name and these arguments
    by: str = ""  # who made it ask
    options: tuple[str, ...] = ("once",)  # and "session RULE", "always RULE"
    expires: int | None = None  # epoch ms


class Answered(msgspec.Struct, frozen=True):
    """The one answer. `message` is for the model; `by`, `how` and `channel` say who answered and how they are known.

    edited: the arguments that are to run instead. remember, rule: a rule that was written with the yes, and for how
    long.
    """

    outcome: Outcome
    message: str | None = None
    by: str | None = None
    how: How | None = None
    channel: str | None = None
    edited: FrozenDict | None = None
    remember: Remember | None = None
    rule: str | None = None

    def on_record(
        self, approval_id: str, call: int, digest: str, letter: Stamp | None = None
    ) -> ApprovalDecided:
        """The line of the log that says so."""
        return ApprovalDecided(
            approval_id,
            call,
            digest,
            self.outcome,
            by=self.by,
            how=self.how,
            channel=self.channel,
            message=self.message,
            edited=self.edited,
            rule_written=self.rule,
            scope=self.remember,
            letter=letter,
        )


class Asker(Protocol):
    @property
    def available(self) -> bool:
        """Whether there is anybody to ask."""

    def options(self, call: ToolCall) -> tuple[str, ...]:
        """What a yes to this call may be: `once`, and with a rule to remember `session RULE` and `always RULE`."""

    @property
    def lifetime(self) -> float | None:
        """Seconds after which a question without an answer is a no; None: it waits."""

    async def ask(self, question: Question) -> Answered:
        """Wait for a person's answer. It never raises but `CancelledError`: what goes wrong is `unavailable`.

        A question that an earlier life has asked comes again, as it was. Cancelled, it is withdrawn, or this life ends
        and the next one asks it again.
        """
