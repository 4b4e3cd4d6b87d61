"""What sending something gives back: a receipt, and the result of a turn.

Lives here: `TurnResult` and `Receipt`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import msgspec

from interlock.log.facts import ListName, Usage
from interlock.log.messages import Message
from interlock.log.reasons import Completed, EndReason
from interlock.log.session import Session


class TurnResult(msgspec.Struct, frozen=True):
    """How a turn ended. Nothing is raised for one that did not complete: look at `ok` and `reason`."""

    text: str  # the last answer, or the first result that stopped the turn
    reason: EndReason
    messages: tuple[Message, ...]  # all that the turn added to the history
    usage: Usage
    turn: int
    steps: int
    session: Session

    @property
    def ok(self) -> bool:
        """The turn completed."""
        return isinstance(self.reason, Completed)


class Receipt:
    """A message was taken. `await receipt` waits until that is on disk; `await receipt.turn()` for its turn."""

    __slots__ = (
        "_acknowledge",
        "_ended",
        "_error",
        "_result",
        "_waiting",
        "awaited",
        "claimed_by",
        "fate",
        "id",
        "list",
    )

    def __init__(self, message_id: str, to: ListName, acknowledge: Callable[[], Awaitable[None]]) -> None:
        self.id = message_id
        self.list = to
        self.claimed_by: int | None = None  # the turn that took it last
        self.fate: tuple[str, str | None] | None = None  # how the turn that claimed it dropped it, and why
        self.awaited = False  # somebody waits for the end of the turn that claims it
        self._acknowledge = acknowledge
        self._result: TurnResult | None = None
        self._error: Exception | None = None
        self._ended: TurnResult | None = None  # of the turn that claimed it, admitted or not
        self._waiting: list[asyncio.Future[None]] = []

    def __await__(self) -> Generator[Any, None, None]:
        """
        Raises:
            StoreFailed: it could not be written.
        """
        return self._acknowledge().__await__()

    async def turn(self) -> TurnResult:
        """The result of the turn that admitted the message.

        Raises:
            InputDropped: it was rejected, left out, canceled, or failed too often.
        """
        while self._result is None and self._error is None:
            await self._changed()
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    async def claimed_turn(self) -> TurnResult:
        """The result of the turn that claimed it, whether it admitted it or not.

        Raises:
            InputDropped: it was taken out of the queue unclaimed.
        """
        self.awaited = True
        while not self.over:
            await self._changed()
        ended = self._result or self._ended
        if ended is None:
            assert self._error is not None
            raise self._error
        return ended

    @property
    def ended_by(self) -> int | None:
        """The number of the turn that was its end, once that is over; None also if it was dropped."""
        ended = self._result or self._ended
        return ended.turn if ended is not None else None

    @property
    def over(self) -> bool:
        """The turn that claimed it has ended, or it was dropped."""
        return self.decided or self._ended is not None

    @property
    def decided(self) -> bool:
        """Its turn is over, or it was dropped."""
        return self._result is not None or self._error is not None

    # The agent says what became of it

    def admitted(self, result: TurnResult) -> None:
        self._result = result
        self._wake()

    def failed(self, error: Exception) -> None:
        self._error = error
        self._wake()

    def given_back(self, result: TurnResult) -> None:
        self._ended = result
        self._wake()

    async def _changed(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def __repr__(self) -> str:
        return f"<Receipt {self.id} in {self.list}>"
