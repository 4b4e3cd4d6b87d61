"""From what somebody answered to the one answer that goes on record, or to why it is none.

Lives here: `accepted`. An answer counts for the arguments that were shown and writes only the rule that was offered.
"""

from __future__ import annotations

from interlock.errors import AnswerMismatch, ApprovalError, MayNotApprove
from interlock.log.strictjson import FrozenDict
from interlock.policy.approval import ApprovalRequest, Approved, Principal, Rejected, offered
from interlock.tools.approval import Answered, How
from interlock.tools.arguments import InvalidArguments


def accepted(
    request: ApprovalRequest, answer: object, *, by: str | None, how: How | None, channel: str | None
) -> Answered:
    """
    Args:
        by: who answers, if the answer itself does not say it.

    Raises:
        AnswerMismatch: it was given to other arguments.
        MayNotApprove: whoever answers may not.
        ApprovalError: it is no answer to this question; the text says why.
    """
    if type(answer) is not Approved and type(answer) is not Rejected:
        raise ApprovalError(request.id, f"an answer is Approved() or Rejected(), not {type(answer).__name__}")
    if answer.digest is not None and answer.digest != request.digest:
        raise AnswerMismatch(request.id, answer.digest, request.digest)
    who = answer.principal
    if isinstance(who, Principal):
        if not who.may_approve:
            raise MayNotApprove(request.id, who.id)
        who = who.id
    by = who if who is not None else by
    if type(answer) is Rejected:
        return Answered("rejected", answer.message, by, how, channel)
    rule = None
    if answer.remember is not None:
        rule = offered(request.options).get(answer.remember)
        if rule is None:
            raise ApprovalError(
                request.id,
                f"to remember it ({answer.remember}) was not offered; offered: {', '.join(request.options)}",
            )
    return Answered("allowed-once", None, by, how, channel, _edited(request, answer), answer.remember, rule)


def _edited(request: ApprovalRequest, answer: Approved) -> FrozenDict | None:
    edited = answer.edited
    if edited is None or edited == request.arguments:
        return None
    try:
        request.call.tool.arguments.validate(edited)
    except InvalidArguments as error:
        raise ApprovalError(
            request.id, f"the edited arguments do not fit {request.call.name}: {error}"
        ) from None
    return edited
