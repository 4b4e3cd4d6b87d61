"""Sending to a session without driving it, from any process that can reach its store.

Lives here: `Mailbox`, with the verbs of an agent, and `Posted`, what each of them gives. What was posted is on disk, and
is taken in order by whoever drives the session, now or later: a sender that has ended since has lost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.errors import (
    AnswerMismatch,
    ApprovalError,
    DuplicateMessage,
    InboxFull,
    InvalidMessage,
    LetterRefused,
    MayNotApprove,
    UnknownSession,
    UsageError,
)
from interlock.intercept.point import SPEAKER
from interlock.log.event import Event
from interlock.log.facts import ContentErased, ListName, MailTaken, Stamp
from interlock.log.mail import Answer, Cancel, Content, Send, What, written
from interlock.log.messages import Message, Source
from interlock.log.reasons import Cause, CauseKind
from interlock.log.session import now_ms, open_session
from interlock.log.strictjson import NotJSON
from interlock.log.tombstones import refusal, refuse_erased
from interlock.loop.inbox import MAX_PENDING, checked
from interlock.loop.pending import answerable
from interlock.loop.stop import cause_of, grace_ms
from interlock.policy.approval import Approved, Principal, Rejected

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.store import Journal, Store
    from interlock.tools.approval import How

_POLL = 0.05  # seconds between two looks into the log of a store that does not tell of new lines
_AT_ONCE = 500  # lines


class Mailbox:
    """Sends to one session, whether somebody drives it or not.

    by: who sends; it is on record. redact: takes secrets out before anything is written; whoever drives the session does
    it again with what it knows.

    Its verbs raise as those of an agent, before anything is written; and
    `UnknownSession`, `SessionErased`: there is nobody to send to. `MailboxFull`: too many letters wait.
    `StoreFailed`: it could not be written.
    """

    def __init__(
        self,
        session_id: str,
        *,
        store: Store,
        by: Principal | str | None = None,
        redact: Redactor | None = None,
    ) -> None:
        self.session_id = session_id
        self.by = Principal(by) if isinstance(by, str) else by
        self._store = store
        self._redact = redact

    async def followup(self, message: str | Message, *, source: Source | None = None) -> Posted:
        """Queue a message for a turn of its own, and start if idle."""
        return await self._send(message, "next-turn", source, wake=True)

    async def steer(self, message: str | Message, *, source: Source | None = None) -> Posted:
        """Queue a message for the next step of the turn that runs, and start if idle."""
        return await self._send(message, "next-step", source, wake=True)

    async def inject(self, message: str | Message, *, source: Source | None = None) -> Posted:
        """Queue a message for the next step, whenever that is: it wakes nobody."""
        return await self._send(message, "next-step", source, wake=False)

    async def cancel(
        self,
        cause: CauseKind | Cause = "user",
        *,
        turn: int | None = None,
        keep_inbox: bool = False,
        grace: float | None = None,
    ) -> Posted:
        """Stop, as `Agent.cancel` does.

        Args:
            turn: stop this one only: when it is over by the time that the letter is taken, that is refused.
        """
        seen: object = turn
        if seen is not None and (type(seen) is not int or seen < 1):
            raise UsageError(f"turn is a number from 1, not {turn!r}")
        return await self.post(Cancel(cause_of(cause), turn, bool(keep_inbox), grace_ms(grace)))

    async def answer(
        self,
        approval_id: str,
        answer: Approved | Rejected,
        *,
        digest: str | None = None,
        channel: str = "mailbox",
        how: How = "api",
    ) -> Posted:
        """Answer a question, as `agent.approvals.answer` does. The first answer counts."""
        given: object = answer
        if not isinstance(given, (Approved, Rejected)):
            raise ApprovalError(
                approval_id, f"an answer is Approved() or Rejected(), not {type(answer).__name__}"
            )
        if digest is not None and answer.digest not in (None, digest):
            raise AnswerMismatch(approval_id, answer.digest or "", digest)
        who = answer.principal if answer.principal is not None else self.by
        if isinstance(who, Principal) and not who.may_approve:
            raise MayNotApprove(approval_id, who.id)
        digest = digest if digest is not None else answer.digest
        if isinstance(answer, Approved):
            what = Answer(
                approval_id,
                "allowed-once",
                digest,
                how=how,
                channel=channel,
                edited=answer.edited,
                remember=answer.remember,
            )
        else:
            what = Answer(approval_id, "rejected", digest, answer.message, how, channel)
        return await self.post(what, who.id if isinstance(who, Principal) else who)

    async def driver(self) -> str | None:
        """Who drives the session at this moment, None: nobody."""
        return await self._store.holder(self.session_id)

    async def _send(
        self, message: str | Message, to: ListName, source: Source | None, *, wake: bool
    ) -> Posted:
        if source is None:
            source = SPEAKER.get()  # the words of a listener or a tool are never a person's
        return await self.post(Send(to, checked(message, source), wake))

    async def post(self, what: What, by: str | None = None) -> Posted:
        """The primitive under the verbs: what it says was checked. by: instead of the sender of this mailbox."""
        content = Content(what, by if by is not None or self.by is None else self.by.id)
        if self._redact is not None:
            content = self._redact.value(content)
        try:
            data = written(content)
        except NotJSON as error:
            raise InvalidMessage(str(error)) from None
        journal = await self._store.open(self.session_id, readonly=True, checkpoint=True)
        try:
            refuse_erased(self.session_id, journal)
            after = journal.head
        finally:
            await journal.close()
        number = await self._store.post(self.session_id, data, time=now_ms())
        return Posted(self.session_id, number, content.what, store=self._store, after=after)


class Posted:
    """A letter that is on disk. `await posted.taken()` waits until it has been taken.

    number: of the letter. Letters of a session are numbered in the order in which they were posted, whoever sent them.
    """

    def __init__(self, session_id: str, number: int, what: What, *, store: Store, after: int) -> None:
        self.session_id, self.number = session_id, number
        self._what = what
        self._store = store
        self._after = after  # the line that takes it comes later

    async def taken(self) -> Event:
        """The line of the log that says what became of it, once there is one: it may be that nobody comes to drive.

        Raises:
            DuplicateMessage, InboxFull, AlreadyDecided, AnswerMismatch, UnknownApproval, LetterRefused: it changed
                nothing.
            SessionErased: it went with all that the session held. SessionError: the session cannot be read.
        """
        journal = await self._store.open(self.session_id, readonly=True, checkpoint=True)
        try:
            event = await self._line(journal)
        except UnknownSession:
            await self._look_again()
            raise
        finally:
            await journal.close()
        if isinstance(event.fact, MailTaken) and event.fact.code is not None:
            await self._raise(event.fact)
        return event

    async def _line(self, journal: Journal) -> Event:
        at = self._after
        while True:
            for event in journal.read(at + 1, at + _AT_ONCE):
                at = event.seq
                stamp = getattr(event.fact, "letter", None)
                if isinstance(stamp, Stamp) and stamp.number == self.number:
                    return event
                if isinstance(event.fact, ContentErased):  # and the letter with it
                    raise refusal(self.session_id, event)
            if at >= journal.head and await journal.refresh() == at:
                await journal.news(_POLL)

    async def _look_again(self) -> None:
        """A store that erases a session by putting another file in place has lost the one that was read.

        Raises:
            SessionErased, UnknownSession: that is what has become of it.
        """
        journal = await self._store.open(self.session_id, readonly=True)
        try:
            refuse_erased(self.session_id, journal)
        finally:
            await journal.close()

    async def _raise(self, refused: MailTaken) -> None:
        what = self._what
        if isinstance(what, Send) and refused.code == DuplicateMessage.__name__:
            raise DuplicateMessage(what.message.id)
        if isinstance(what, Send) and refused.code == InboxFull.__name__:
            raise InboxFull(MAX_PENDING)
        if isinstance(what, Answer):
            session = await open_session(self.session_id, store=self._store, readonly=True)
            try:
                answerable(session, what.approval_id, what)
            finally:
                await session.close()
        raise LetterRefused(self.session_id, self.number, refused.code or "", refused.refused or "")

    def __repr__(self) -> str:
        return f"<Posted {self.number} to {self.session_id}>"
