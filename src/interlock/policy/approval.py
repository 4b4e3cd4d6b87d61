"""A person's yes or no to one call, and that anything else means no.

Lives here: `Approver`, the protocol of whoever can ask a person, its request and answers, and `Approvals`, which makes
every way of not getting an answer a denial. The answer is bound to the digest of what was shown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, final, get_args, runtime_checkable

from interlock.errors import said_error
from interlock.intercept.uncut import cancelled_from_outside
from interlock.log.strictjson import NotJSON, check_text, freeze
from interlock.tools.approval import Answered
from interlock.tools.call import ToolCall


@dataclass(frozen=True, slots=True)
class ApprovalRequest:
    """What a person is asked. `arguments` are the effective ones: what is seen is what runs."""

    id: str
    call: ToolCall
    question: str  # why it is asked
    arguments: Mapping[str, Any]
    digest: str  # of the tool's name and these arguments
    by: str = ""  # who made it ask


@final
@dataclass(frozen=True, slots=True)
class Approved:
    """Run this call, once."""


@final
@dataclass(frozen=True, slots=True)
class Rejected:
    """Do not run it. `message` is for the model: say what it may do instead."""

    message: str | None = None

    def __post_init__(self) -> None:
        if self.message is not None:
            try:
                check_text(self.message)
            except NotJSON as error:
                raise ValueError(f"Rejected: {error}") from None


@runtime_checkable
class Approver(Protocol):
    """Whoever can ask a person. `how` tells the record how the person is known: tty, token, api or acp."""

    async def __call__(self, request: ApprovalRequest, /) -> Approved | Rejected:
        """The answer. Raising, or answering anything else, means no."""
        ...


How: TypeAlias = Literal["tty", "token", "api", "acp"]
ApproverFunction: TypeAlias = Callable[[ApprovalRequest], Awaitable[Approved | Rejected]]


class Approvals:
    """The approval service of one agent: fail closed, one answer a question."""

    def __init__(self, approver: ApproverFunction | None) -> None:
        self._approver = approver

    @property
    def available(self) -> bool:
        return self._approver is not None

    async def ask(
        self, call: ToolCall, question: str, *, approval_id: str, digest: str, by: str = ""
    ) -> Answered:
        """Ask, and make of whatever comes back a clear yes or a clear no."""
        approver = self._approver
        if approver is None:
            return Answered("unavailable", "nobody is there to approve it")
        request = ApprovalRequest(approval_id, call, question, call.arguments, digest, by)
        how: How | None = None
        channel: str | None = None
        try:
            how, channel, principal = _known_by(approver)
            answer: object = await approver(request)
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            return Answered("unavailable", "the approver cancelled itself", None, how, channel)
        except Exception as error:  # noqa: BLE001  # an answerer's own failure: nobody answered
            said = f"the approver failed: {type(error).__name__}: {said_error(error)}"
            return Answered("unavailable", said, None, how, channel)
        if type(answer) is Approved:
            return Answered("allowed-once", None, principal, how, channel)
        if type(answer) is Rejected:
            return Answered("rejected", answer.message, principal, how, channel)
        said = f"the approver answered {type(answer).__name__}, not Approved() or Rejected()"
        return Answered("unavailable", said, None, how, channel)


def _known_by(approver: object) -> tuple[How, str, str | None]:
    """How the person is known, over which channel, and who they are, as the approver says.

    Raises:
        ValueError: it is nothing that can be put on record.
    """
    how: Any = getattr(approver, "how", "api")
    if how not in get_args(How):
        raise ValueError(f"`how` is one of {', '.join(get_args(How))}, not {how!r}")
    channel: Any = getattr(approver, "channel", None)
    principal: Any = getattr(approver, "principal", None)
    for name, value in (("channel", channel), ("principal", principal)):
        if value is not None and type(freeze(value)) is not str:
            raise ValueError(f"`{name}` is text, not {value!r}")
    return how, channel or getattr(approver, "__qualname__", type(approver).__name__), principal
