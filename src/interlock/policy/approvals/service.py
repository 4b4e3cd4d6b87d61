"""The approval service of one agent: every way to reach a person, and every question that is open.

Lives here: `Approvals`, which meets the pipeline's `Asker`. It fails closed: one answer a question, from somebody who
may give it, for what was shown; every other end of a question is a no. What was answered too late is told to whoever
answered, and is on record.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, assert_never

from msgspec.structs import replace

from interlock.errors import (
    AlreadyDecided,
    AnswerMismatch,
    ConfigError,
    MayNotApprove,
    UnknownApproval,
    UsageError,
    WrongThread,
)
from interlock.intercept.scope import Dispose
from interlock.log.event import Event
from interlock.log.facts import ApprovalDecided, ApprovalLate, GrantRevoked
from interlock.log.session import Session
from interlock.policy.approval import ApprovalRequest, Approved, ApproverFunction, Principal, Rejected
from interlock.policy.approvals.accepting import accepted
from interlock.policy.approvals.asking import OpenQuestion
from interlock.policy.approvals.channel import Channel
from interlock.policy.aside import aside
from interlock.tools.approval import Answered, How, Outcome, Question
from interlock.tools.call import ToolCall

if TYPE_CHECKING:
    from pathlib import Path

    from interlock.policy.approvals.grants import Grants

Propose = Callable[[ToolCall], str | None]


class Approvals:
    """Who is asked, what is open, and what is remembered.

    lifetime: seconds after which an unanswered question is a no. propose: the rule that would spare a call like this
    one the question, or None; without it nothing is offered but a yes for this once. grants: where a yes for always
    is kept; without it, that is not offered.
    """

    def __init__(
        self,
        approver: ApproverFunction | None = None,
        *,
        lifetime: float | None = None,
        propose: Propose | None = None,
        grants: Grants | None = None,
    ) -> None:
        """
        Raises:
            ConfigError: `lifetime` is no number of seconds above 0.
        """
        seconds: object = lifetime
        if seconds is not None and not (
            isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and 0 < seconds < float("inf")
        ):
            raise ConfigError(f"approval_timeout is a number of seconds above 0, not {lifetime!r}")
        self._lifetime = lifetime
        self.propose = propose
        self.grants = grants
        #: Rules that were allowed for always since the agent was opened, and when, epoch ms. Later lives read the file.
        self.written: dict[str, int] = {}
        self._channels: list[Channel] = []
        self._open: dict[str, OpenQuestion] = {}
        self._late: dict[str, list[Answered]] = {}  # of questions that are decided, but not yet on record
        self._session: Session | None = None
        self._thread: int | None = None
        if approver is not None:
            self.add(approver)

    @property
    def session(self) -> Session:
        assert self._session is not None
        return self._session

    def question(self, approval_id: str) -> OpenQuestion | None:
        """What is asked here under this id."""
        return self._open.get(approval_id)

    def attach(self, session: Session) -> None:
        """Its questions are those of this session."""
        self._session = session
        self._thread = get_ident()
        session.observe(self._on_record, ApprovalDecided, who="approvals")

    # Channels

    def add(self, channel: ApproverFunction, *, first: bool = False) -> Dispose:
        """Ask over this channel too, questions that are open included, until the returned function is called.

        Args:
            first: ask it before people. It may abstain with None.

        Raises:
            UsageError: it cannot be called.
        """
        given: object = channel
        if not callable(given):
            raise UsageError(
                f"a channel is an async function of an ApprovalRequest, not {type(given).__name__}"
            )
        made = Channel(channel, first=first)
        self._channels.append(made)
        for question in self._open.values():
            if not question.decided and made.may_approve and (first or question.people):
                question.show(made)

        def dispose() -> None:
            if made in self._channels:
                self._channels.remove(made)
                for question in self._open.values():
                    question.forget(made)

        return dispose

    def _asked(self) -> list[Channel]:
        return [channel for channel in self._channels if channel.may_approve]

    # What the pipeline asks of it

    @property
    def available(self) -> bool:
        """Whether there is anybody to ask who may answer."""
        return bool(self._asked())

    @property
    def lifetime(self) -> float | None:
        return self._lifetime

    def options(self, call: ToolCall) -> tuple[str, ...]:
        """What a yes to this call may be. To remember it is offered only where the rule would spare the question.

        Where a rule or a listener asks, no rule that allows would be heard: it asks again whatever is remembered.
        """
        if self.propose is None or any(said.answer in _ASKS for said in call.said):
            return ("once",)
        try:
            rule = self.propose(call)
        except Exception:  # noqa: BLE001  # somebody's own function: nothing is offered
            return ("once",)
        if not rule or not rule.isprintable():
            return ("once",)
        always = (f"always {rule}",) if self.grants is not None and call.cwd is not None else ()
        return ("once", f"session {rule}", *always)

    async def ask(self, question: Question) -> Answered:
        """Ask everybody, and make of whatever comes back a clear yes or a clear no."""
        request = ApprovalRequest(
            question.id,
            question.call,
            question.text,
            question.call.arguments,
            question.digest,
            question.by,
            question.options,
            question.expires,
            self._session.id if self._session is not None else None,
        )
        asking = OpenQuestion(question, request, on_late=self.came_late, now=self._now)
        self._open[question.id] = asking
        try:
            answered = await asking.answer(self._asked)
            if answered.remember == "always":
                assert question.call.cwd is not None  # it is offered only where there is a folder
                answered = await self.remember(question.call.cwd, answered)
            return answered
        finally:
            del self._open[question.id]

    # What people ask of it

    @property
    def pending(self) -> tuple[ApprovalRequest, ...]:
        """The questions that are open, in the order in which they were asked."""
        return tuple([asking.request for asking in self._open.values() if not asking.decided])

    def answer(
        self,
        approval_id: str,
        answer: Approved | Rejected,
        *,
        principal: Principal | str | None = None,
        digest: str | None = None,
        channel: str = "api",
        how: How = "api",
    ) -> None:
        """Answer a question that is open. The first answer counts.

        Args:
            principal: who answers.
            digest: of what they saw, as of `ApprovalRequest`; the same as in the answer itself.
            channel: where they are. If it is the name of a channel that may not approve, neither may they.

        Raises:
            AlreadyDecided: somebody was first, or it was withdrawn. That this answer came is on record.
            AnswerMismatch: it was given to other arguments than are asked.
            MayNotApprove: this principal, or this channel, may not.
            UnknownApproval, ApprovalError: no such question; no answer to it.
        """
        if self._thread is not None and get_ident() != self._thread:
            raise WrongThread("approvals.answer")
        who = Principal(principal) if isinstance(principal, str) else principal
        if who is not None and not who.may_approve:
            raise MayNotApprove(approval_id, who.id)
        if not self.may_answer(channel):
            raise MayNotApprove(approval_id, channel)
        if digest is not None:
            stated: str | None = getattr(answer, "digest", None)
            if stated is not None and stated != digest:
                raise AnswerMismatch(approval_id, stated, digest)
            if stated is None:
                answer = replace(answer, digest=digest)
        by = who.id if who is not None else None
        asking = self._open.get(approval_id)
        if asking is None:
            refusal = self.refusal(approval_id)
            if isinstance(refusal, AlreadyDecided):
                self._note_late(approval_id, Answered(_outcome(answer), None, by, how, channel))
            raise refusal
        answered = accepted(asking.request, answer, by=by, how=how, channel=channel)
        if not asking.take(answered):
            raise self.refusal(approval_id)

    def may_answer(self, channel: str) -> bool:
        """False: a channel of this name is there to be told, not to be asked."""
        return not any(one.name == channel and not one.may_approve for one in self._channels)

    def refusal(self, approval_id: str) -> AlreadyDecided | UnknownApproval:
        """Why there is no answer to be given: somebody was first, or there is no such question."""
        decided = self._decided(approval_id)
        if decided is not None:
            return _already(decided)
        asking = self._open.get(approval_id)
        if asking is None:
            return UnknownApproval(approval_id, [request.id for request in self.pending])
        first = asking.answered or Answered("cancelled")
        return _decided_so(approval_id, first.outcome, first.by, first.channel, self._now())

    def revoke(self, rule: str, *, by: Principal | str | None = None) -> None:
        """What this rule allowed for the session is asked again.

        Raises:
            UsageError: it is not allowed for this session.
        """
        session = self._session
        if session is None or rule not in session.state.grants:
            allowed = ", ".join(session.state.grants) if session is not None else ""
            raise UsageError(f"{rule!r} is not allowed for this session; allowed: {allowed or 'nothing'}")
        session.append(GrantRevoked(rule, by.id if isinstance(by, Principal) else by))

    # What is remembered

    async def remember(self, cwd: str | Path, answered: Answered) -> Answered:
        """Write the rule for this folder; where that fails, the yes counts for this once, and the record says why."""
        from interlock.policy.approvals.grants import Grant, workspace_of

        grants, rule = self.grants, answered.rule
        assert grants is not None and rule is not None
        grant = Grant(
            workspace_of(cwd),
            rule,
            answered.by,
            answered.how,
            answered.channel,
            self._now(),
            self._session.id if self._session is not None else None,
        )
        try:
            await aside(lambda: grants.add(grant))
        except (OSError, ConfigError) as error:
            return replace(answered, remember=None, rule=None, message=f"it could not be remembered: {error}")
        self.written[rule] = grant.time
        return answered

    # Answers that came late

    def came_late(self, approval_id: str, answered: Answered) -> None:
        """Put on record that this was answered, too, once it is on record what counts."""
        if self._session is not None and approval_id in self._session.state.approvals:
            self._late.setdefault(approval_id, []).append(answered)  # after the line that decides it
        else:
            self._note_late(approval_id, answered)

    def _on_record(self, event: Event) -> None:
        """It is decided in the log, whoever decided it."""
        fact = event.fact
        assert isinstance(fact, ApprovalDecided)
        asking = self._open.get(fact.approval_id)
        if asking is not None:
            asking.end(_answered(fact))
        for answered in self._late.pop(fact.approval_id, ()):
            self._note_late(fact.approval_id, answered)

    def _note_late(self, approval_id: str, answered: Answered) -> None:
        session = self._session
        if session is not None and not session.closed and session.failure is None:
            session.append(ApprovalLate(approval_id, answered.outcome, answered.by))

    def _decided(self, approval_id: str) -> tuple[ApprovalDecided, int] | None:
        """How the log says that it was decided, and when. It reads the log: late answers are rare."""
        if self._session is None or approval_id in self._session.state.approvals:
            return None
        for event in self._session.events:
            if type(event.fact) is ApprovalDecided and event.fact.approval_id == approval_id:
                return event.fact, event.time
        return None

    def _now(self) -> int:
        """Epoch ms, by the clock of the log."""
        if self._session is not None:
            return self._session.now()
        simulated: Callable[[], int] | None = getattr(asyncio.get_running_loop(), "wall_ms", None)
        return simulated() if simulated is not None else int(time.time() * 1000)


_ASKS = ("ask", "advise ask")


def _outcome(answer: Approved | Rejected) -> Outcome:
    match answer:
        case Approved():
            return "allowed-once"
        case Rejected():
            return "rejected"
        case _:
            assert_never(answer)


def _answered(fact: ApprovalDecided) -> Answered | None:
    """Somebody's answer, as it is on record; None: it was withdrawn."""
    if fact.outcome in ("allowed-once", "rejected"):
        return Answered(fact.outcome, fact.message, fact.by, fact.how, fact.channel)
    return None


def _already(decided: tuple[ApprovalDecided, int]) -> AlreadyDecided:
    fact, when = decided
    return _decided_so(fact.approval_id, fact.outcome, fact.by, fact.channel, when)


def _decided_so(
    approval_id: str, outcome: str, by: str | None, channel: str | None, when: int
) -> AlreadyDecided:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(when / 1000))
    return AlreadyDecided(approval_id, outcome, by=by, channel=channel, time=when, when=moment)
