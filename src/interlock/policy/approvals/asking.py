"""One open question: who was shown it, and the one answer it gets.

Lives here: `OpenQuestion`. Everybody is asked at once, the first valid answer wins, and nobody is left running when it
is over. Whatever goes wrong with one who was asked leaves the others; when nobody is left, that is the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextvars import copy_context

from interlock.errors import ApprovalError, MayNotApprove, said_error
from interlock.intercept.uncut import cancelled_from_outside
from interlock.policy.approval import ApprovalRequest
from interlock.policy.approvals.accepting import accepted
from interlock.policy.approvals.channel import Channel
from interlock.tools.approval import Answered, Question

NOBODY = "nobody is there to approve it"
WITHDRAWN = "the question was withdrawn"


class OpenQuestion:
    """A question from when it is shown to when it is answered. It belongs to the task that runs `answer`."""

    def __init__(
        self,
        question: Question,
        request: ApprovalRequest,
        *,
        on_late: Callable[[str, Answered], None],
        now: Callable[[], int],
    ) -> None:
        """
        Args:
            on_late: told of each valid answer that came when it was decided already.
            now: epoch ms.
        """
        self.question = question
        self.request = request
        self.answered: Answered | None = None
        self.over = False  # it was withdrawn: no answer counts any more
        self.people = False  # those who are asked first have had their say
        self._on_late = on_late
        self._now = now
        self._closed: set[Channel] = set()
        self._asked: dict[asyncio.Task[None], Channel] = {}
        self._problems: list[str] = []
        self._changed = asyncio.Event()
        self._context = copy_context()

    async def answer(self, channels: Callable[[], Sequence[Channel]]) -> Answered:
        """Ask those who come first, then everybody else, and wait for the answer.

        Args:
            channels: those that may approve, at the moment of asking.
        """
        expiry: asyncio.TimerHandle | None = None
        if self.question.expires is not None:
            left = (self.question.expires - self._now()) / 1000
            expiry = asyncio.get_running_loop().call_later(max(left, 0), self._expire)
        try:
            for first in (True, False):
                self.people = not first
                for channel in channels():
                    if channel.first is first and not self.decided:
                        self.show(channel)
                await self._until_decided_or_nobody_is_left()
            if self.answered is None and not self.over:
                self._nobody()
        finally:
            if expiry is not None:
                expiry.cancel()
            if self.answered is None:
                self.over = True
            await self._withdraw()
        if (
            self.answered is None
        ):  # withdrawn while nobody cancelled this task: it has been decided in the log
            return Answered("cancelled", WITHDRAWN)
        return self.answered

    @property
    def decided(self) -> bool:
        return self.over or self.answered is not None

    # Who is asked

    def show(self, channel: Channel) -> None:
        """Ask over this channel too."""
        task = asyncio.get_running_loop().create_task(
            self._hear(channel), name=f"interlock-approval-{self.question.id}", context=self._context.copy()
        )
        self._asked[task] = channel
        task.add_done_callback(self._ended)

    def forget(self, channel: Channel) -> None:
        """Ask over this channel no longer; what it answers all the same is none."""
        self._closed.add(channel)
        for task, asked in self._asked.items():
            if asked is channel:
                task.cancel("this way of asking was closed")

    async def _hear(self, channel: Channel) -> None:
        try:
            by, how, name = channel.known_by()
            answer: object = await channel.approver(self.request)
            if answer is None and channel.first:
                return
            if not channel.may_approve or channel in self._closed:
                raise MayNotApprove(self.question.id, name)
            answered = accepted(self.request, answer, by=by, how=how, channel=name)
        except asyncio.CancelledError:
            if cancelled_from_outside():
                raise
            self._problems.append(f"{channel.name} cancelled itself")
        except ApprovalError as error:
            self._problems.append(f"{channel.name}: {error.problem}")
        except Exception as error:  # noqa: BLE001  # an answerer's own failure: it leaves the others
            self._problems.append(f"{channel.name} failed: {type(error).__name__}: {said_error(error)}")
        else:
            self.take(answered)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._asked.pop(task, None)
        self._changed.set()

    async def _until_decided_or_nobody_is_left(self) -> None:
        while not self.decided and self._asked:
            self._changed.clear()
            await self._changed.wait()

    async def _withdraw(self) -> None:
        """Tell everybody who is still asked that it is over, and wait for them."""
        for task in self._asked:
            task.cancel(self._why())
        cancelled: asyncio.CancelledError | None = None
        while self._asked:
            try:
                await asyncio.wait([*self._asked])
            except asyncio.CancelledError as error:  # asked to hurry: whoever was started is still awaited
                cancelled = error
        if cancelled is not None:
            raise cancelled

    def _why(self) -> str:
        answered = self.answered
        if answered is None or answered.outcome in ("cancelled", "unavailable"):
            return WITHDRAWN if answered is None else answered.message or WITHDRAWN
        who = answered.by or "somebody"
        says = "yes" if answered.outcome == "allowed-once" else "no"
        return f"{who} ({answered.channel}) said {says}" if answered.channel else f"{who} said {says}"

    # The answer

    def take(self, answered: Answered) -> bool:
        """This is the answer, unless there is one; whether it is."""
        expires = self.question.expires
        if expires is not None and self._now() >= expires and not self.decided:
            self._expire()  # a machine that slept wakes its timers late
        if self.decided:
            self._on_late(self.question.id, answered)
            return False
        self.answered = answered
        self._changed.set()
        return True

    def end(self, answered: Answered | None = None) -> None:
        """It was withdrawn, or this was put on record as its answer: what comes from now on is late."""
        if not self.decided:
            self.over, self.answered = True, answered
            self._changed.set()

    def _expire(self) -> None:
        self._unavailable("nobody answered in time: the question has expired")

    def _nobody(self) -> None:
        said = "; ".join(self._problems)
        self._unavailable(f"nobody answered: {said}" if said else NOBODY)

    def _unavailable(self, why: str) -> None:
        if not self.decided:
            self.answered = Answered("unavailable", why)
            self._changed.set()
