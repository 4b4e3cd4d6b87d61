"""An answer that came by letter: on record at once, by the same rules as any other.

Lives here: `answer`. The question may not be open in this process yet, when a step that waits has not been taken up; so
what counts is what the log asks. Whoever asks hears from the log that it is decided.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from interlock.errors import (
    AlreadyDecided,
    AnswerMismatch,
    ApprovalError,
    ConfigError,
    MayNotApprove,
)
from interlock.log.facts import Stamp
from interlock.log.state import Approval
from interlock.log.strictjson import FrozenDict
from interlock.policy.approval import offered
from interlock.policy.aside import aside
from interlock.tools.approval import Answered
from interlock.tools.arguments import InvalidArguments

if TYPE_CHECKING:
    from interlock.log.mail import Answer
    from interlock.policy.approvals.grants import Grants
    from interlock.policy.approvals.service import Approvals


async def answer(approvals: Approvals, what: Answer, letter: Stamp, by: str | None) -> None:
    """
    Raises:
        AlreadyDecided, AnswerMismatch, MayNotApprove, UnknownApproval, ApprovalError: it changed nothing.
    """
    answered = Answered(
        what.outcome, what.message, by, what.how, what.channel, what.edited, what.remember, what.rule
    )
    approval = _open(approvals, what.approval_id, answered)
    answered = _accepted(approvals, approval, answered, what.digest)
    session = approvals.session
    if answered.remember == "always":
        answered = await _remembered(approvals, approval, answered)
    session.append(answered.on_record(approval.id, approval.call, approval.digest, letter))


async def _remembered(approvals: Approvals, approval: Approval, answered: Answered) -> Answered:
    """The answer with its rule written for always, unless its sender has done so; not, if somebody else was heard first."""
    session, rule = approvals.session, answered.rule
    grants, created = approvals.grants, session.state.created
    cwd = created.cwd if created is not None else None
    assert rule is not None
    if grants is None or cwd is None:  # what is kept is its sender's business
        approvals.written[rule] = session.now()
        return answered
    there = rule in approvals.written or await aside(lambda: _has(grants, cwd, rule))
    remembered = await approvals.remember(cwd, answered)
    try:
        _open(approvals, approval.id, answered)
    except ApprovalError:
        if not there and remembered.remember is not None:
            approvals.written.pop(rule, None)
            await aside(lambda: grants.revoke(cwd, rule))
        raise
    return remembered


def _has(grants: Grants, cwd: str, rule: str) -> bool:
    try:
        return any(kept.rule == rule for kept in grants.load(cwd))
    except ConfigError:  # then nothing can be written there, and whoever tries says so
        return False


def _open(approvals: Approvals, approval_id: str, answered: Answered) -> Approval:
    """The question, if it has no answer; else this one came late, and that is on record."""
    state = approvals.session.state
    approval, asking = state.approvals.get(approval_id), approvals.question(approval_id)
    if approval is not None and (asking is None or not asking.decided):
        return approval
    refusal = approvals.refusal(approval_id)
    if isinstance(refusal, AlreadyDecided):
        approvals.came_late(approval_id, answered)
    raise refusal


def _accepted(approvals: Approvals, approval: Approval, answered: Answered, digest: str | None) -> Answered:
    asked, session = approval.asked, approvals.session
    if answered.channel is not None and not approvals.may_answer(answered.channel):
        raise MayNotApprove(approval.id, answered.channel)
    if digest is not None and digest != approval.digest:
        raise AnswerMismatch(approval.id, digest, approval.digest)
    if asked.expires is not None and session.now() >= asked.expires:
        raise ApprovalError(approval.id, "the question has expired; without an answer in time it is a no")
    if answered.outcome == "rejected":
        return Answered("rejected", answered.message, answered.by, answered.how, answered.channel)
    rule = None
    if answered.remember is not None:
        rule = offered(asked.options).get(answered.remember)
        if rule is None or answered.rule not in (None, rule):
            wanted = (
                f"{answered.rule!r} ({answered.remember})" if answered.rule else f"it ({answered.remember})"
            )
            raise ApprovalError(
                approval.id,
                f"to remember {wanted} was not offered; offered: {', '.join(asked.options)}",
            )
        if answered.edited is not None:
            raise ApprovalError(approval.id, "the rule that was shown is not for edited arguments")
    return Answered(
        "allowed-once",
        None,
        answered.by,
        answered.how,
        answered.channel,
        _edited(approvals, approval, answered),
        answered.remember,
        rule,
    )


def _edited(approvals: Approvals, approval: Approval, answered: Answered) -> FrozenDict | None:
    edited = answered.edited
    if edited is None or edited == approval.asked.effective:
        return None
    asking = approvals.question(approval.id)
    if asking is not None:  # else whoever takes the step up looks at them
        call = asking.request.call
        try:
            call.tool.arguments.validate(edited)
        except InvalidArguments as error:
            raise ApprovalError(
                approval.id, f"the edited arguments do not fit {call.name}: {error}"
            ) from None
    return edited
