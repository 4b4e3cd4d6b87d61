"""Letters to the session that an agent drives: taken in order, each as the verb that it stands for.

Lives here: `Incoming`. What a letter does is one line of the log that carries its number, so a crash neither loses it nor
takes it twice; once that line is on disk, the mailbox forgets it. Nothing in a letter is trusted: what the verb would
refuse here is refused, on record, and changes nothing. No task waits for letters: the store tells when there may be some.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, assert_never

import msgspec

from interlock.errors import ApprovalError, IllegalFact, InboxError, SessionError, StoreClosed
from interlock.intercept.point import SPEAKER
from interlock.log.facts import ListName, MailTaken, Stamp
from interlock.loop.inbox import checked

if TYPE_CHECKING:
    from interlock.log.mail import Cancel, Kind, Send
    from interlock.log.stores.store import Letter
    from interlock.loop.agent import Agent

TURN_OVER = "TurnOver"  # the code of a cancel whose turn has ended
UNREADABLE = "Unreadable"  # of a letter that says nothing that is known here

_AGAIN = 1.0  # seconds until the store is asked again, when it could not say what there is


class Incoming:
    """Takes letters from when the agent is opened until it is left; what comes later is for the next life."""

    __slots__ = ("_agent", "_more", "_retry", "_stopped", "_task")

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._task: asyncio.Task[None] | None = None
        self._more = False  # there may be letters that the task has not seen
        self._retry: asyncio.TimerHandle | None = None
        self._stopped = False

    async def open(self, *, new: bool) -> None:
        """Take what came while nobody drove, and listen from now on.

        What is for the inbox is parked there, like everything that an earlier life has left.
        """
        if not new:
            try:
                await self._take(parked=True)
            except (
                SessionError
            ):  # what cannot be read now can be later; if nothing can be written, others say so
                self._later()
        self._agent.session.journal.on_letter(self._told)

    def stop(self) -> None:
        """Take nothing more."""
        self._stopped = True
        self._agent.session.journal.on_letter(None)
        if self._retry is not None:
            self._retry.cancel()

    async def close(self) -> None:
        """Wait until what was taken is done."""
        self.stop()
        while self._task is not None:
            await asyncio.wait((self._task,))

    def _told(self) -> None:
        self._more = True
        if self._task is None and not self._stopped:
            loop = self._agent._loop
            assert loop is not None
            self._task = loop.create_task(self._run(), name="interlock-mail")

    async def _run(self) -> None:
        SPEAKER.set(None)  # whoever posted in this process does not speak for what runs here
        try:
            while self._more and not self._over:
                self._more = False
                await self._take(parked=False)
        except (SessionError, StoreClosed):
            self._later()
        finally:
            self._task = None

    def _later(self) -> None:
        if not self._over:
            loop = asyncio.get_running_loop()
            self._retry = loop.call_later(_AGAIN, self._told)

    @property
    def _over(self) -> bool:
        """Nothing more can be taken in this life."""
        return self._stopped or self._agent.session.closed or self._agent._broken is not None

    async def _take(self, *, parked: bool) -> None:
        """
        Raises:
            SessionError: the store cannot be read, or not be written.
        """
        session = self._agent.session
        journal = session.journal
        letters = await journal.letters(session.state.mail)
        for letter in letters:
            if self._over:
                break
            if letter.number <= session.state.mail:  # a store that numbers wrongly blocks nobody
                continue
            await self._take_one(letter, parked=parked)
        if session.state.mail or letters or not parked:
            await session.barrier()
            await journal.forget_letters(session.state.mail)

    async def _take_one(self, letter: Letter, *, parked: bool) -> None:
        from interlock.log.mail import Answer, Cancel, Send, kind_of, read

        stamp = Stamp(letter.number, letter.time)
        try:
            content = read(letter.data)
        except ValueError as error:
            problem = f"it cannot be read here: {error}"
            self._refuse(stamp, "unreadable", None, UNREADABLE, problem)
            return
        what, by = content.what, content.by
        try:
            match what:
                case Send():
                    self._send(what, stamp, by, parked=parked)
                case Cancel():
                    self._cancel(what, stamp, by)
                case Answer():
                    from interlock.policy.approvals.by_letter import answer

                    await answer(self._agent.approvals, what, stamp, by)
                case _:
                    assert_never(what)
        except (InboxError, ApprovalError, IllegalFact, ValueError) as error:
            # The last two should not come: a letter may be wrong in a way that nobody has thought of, and blocks nobody.
            self._refuse(stamp, kind_of(what), by, type(error).__name__, str(error))

    def _refuse(self, stamp: Stamp, kind: Kind, by: str | None, code: str, problem: str) -> None:
        self._agent.session.append(MailTaken(stamp, kind, by, code, problem))

    def _send(self, what: Send, stamp: Stamp, by: str | None, *, parked: bool) -> None:
        agent = self._agent
        message = checked(what.message)
        target: ListName = what.list
        if what.wake and agent._stopping:
            target = "next-turn"  # the turn that is being stopped takes nothing more
        message = agent.inbox.insert(message, target, wake=what.wake, by=by, letter=stamp)
        if what.wake and not parked:
            agent._wake(message.id)

    def _cancel(self, what: Cancel, stamp: Stamp, by: str | None) -> None:
        agent, state = self._agent, self._agent.session.state
        if what.turn is not None and (state.turn is None or state.turn.number != what.turn):
            self._refuse(stamp, "cancel", by, TURN_OVER, f"turn {what.turn} is not open any more")
            return
        cause = msgspec.structs.replace(what.cause, by=what.cause.by or by)
        grace = what.grace_ms / 1000 if what.grace_ms is not None else None
        agent._cancel(cause, keep_inbox=what.keep_inbox, grace=grace, letter=stamp)
        if state is agent.session.state and state.mail < stamp.number:  # there was nothing to stop
            agent.session.append(MailTaken(stamp, "cancel", by))
