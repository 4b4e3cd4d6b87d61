"""Questions of sessions that are not driven here: an answer is put on record, and whoever drives the session acts on it.

Lives here: `answer_pending`. Where nobody drives the session, it is opened as any life does, so what had been running in
a step that waits is closed by then; the step itself stays open. Whoever drives it is sent a letter.
"""

from __future__ import annotations

import asyncio
from time import localtime, strftime
from typing import TYPE_CHECKING

from interlock.errors import (
    AlreadyDecided,
    AnswerMismatch,
    ApprovalError,
    NotTaken,
    SessionBusy,
    UnknownApproval,
)
from interlock.log.facts import ApprovalDecided
from interlock.log.mail import Answer, read
from interlock.log.session import Session, open_session
from interlock.log.state import Approval
from interlock.log.tombstones import refusal
from interlock.tools.approval import Answered

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.store import Store

PATIENCE = 10.0  # seconds in which whoever drives a session takes a letter, unless it is held up


async def answer_pending(
    session_id: str,
    approval_id: str,
    answered: Answered,
    *,
    store: Store,
    digest: str | None = None,
    redactor: Redactor | None = None,
    patience: float = PATIENCE,
) -> str | None:
    """Answer a question, whoever drives the session. When it returns, the answer is on disk, and counts.

    Args:
        digest: of what the answerer saw; another one than what is asked is refused.
        redactor: takes secrets out of what is said with it.
        patience: seconds for which whoever drives the session may take to hear of it.

    Returns:
        Who drives the session, and goes on with it; None: nobody.

    Raises:
        UnknownApproval, AlreadyDecided, AnswerMismatch, ApprovalError, SessionErased: it is no answer to an open
            question; nothing was changed.
        NotTaken: it is in the mailbox of the session, and was not taken in time.
        LetterRefused, MailboxFull: whoever drives the session did not take it.
    """
    what = Answer(
        approval_id,
        "allowed-once" if answered.outcome == "allowed-once" else "rejected",
        digest,
        answered.message,
        answered.how,
        answered.channel,
        answered.edited,
        answered.remember,
        answered.rule,
    )
    looking = await open_session(session_id, store=store, readonly=True)
    try:
        if (said := looking.erasure) is not None:
            raise refusal(session_id, said)
        approval = answerable(looking, approval_id, what)
        waits = _waits(looking, approval)
        sent = await _other_answer(looking, what)
    finally:
        await looking.close()
    if sent is not None and await store.holder(session_id) is None:
        raise ApprovalError(
            approval_id,
            f"another answer to it waits in the mailbox of the session: letter {sent}, which comes first, and is taken "
            f"when the session is opened next",
        )
    try:
        if not waits:  # only the process that asks can hear of it
            holder = await store.holder(session_id)
            if holder is None:
                raise _gone(approval_id)
            raise SessionBusy(session_id, holder)
        # Whether anything runs again is for the life that goes on with it to say.
        session = await open_session(session_id, store=store, redo="idempotent", redactor=redactor)
    except SessionBusy as busy:
        await _send(session_id, what, answered.by, busy.holder, store, redactor, patience)
        return busy.holder
    try:
        approval = answerable(session, approval_id, what)
        if not _waits(session, approval):
            raise _gone(approval_id)
        session.append(answered.on_record(approval_id, approval.call, approval.digest))
        await session.barrier()
    finally:
        await session.close()
    return None


async def _send(
    session_id: str,
    what: Answer,
    by: str | None,
    holder: str,
    store: Store,
    redactor: Redactor | None,
    patience: float,
) -> None:
    from interlock.loop.mailbox import Mailbox

    posted = await Mailbox(session_id, store=store, by=by, redact=redactor).post(what)
    try:
        async with asyncio.timeout(patience):
            await posted.taken()
    except TimeoutError:
        raise NotTaken(session_id, posted.number, holder, patience) from None


async def _other_answer(session: Session, answer: Answer) -> int | None:
    """The number of the letter that nobody has taken yet and that answers this question first, and otherwise."""
    for letter in await session.journal.letters(session.state.mail):
        try:
            what = read(letter.data).what
            if isinstance(what, Answer) and what.approval_id == answer.approval_id:
                answerable(session, what.approval_id, what)
                return letter.number if _said(what) != _said(answer) else None
        except (ApprovalError, ValueError):  # it is going to be refused
            continue
    return None


def _said(answer: Answer) -> tuple[object, ...]:
    return answer.outcome, answer.edited, answer.remember


def _waits(session: Session, approval: Approval) -> bool:
    """Whether a step waits for it that goes on in another life, too."""
    state = session.state
    return state.waiting and state.step is not None and approval.call in state.step.waiting


def _gone(approval_id: str) -> ApprovalError:
    return ApprovalError(
        approval_id, "what asked it has ended with its process, or was stopped: no answer makes it go on"
    )


def answerable(session: Session, approval_id: str, answer: Answer) -> Approval:
    """The open question, if this is an answer to it.

    Raises:
        ApprovalError: it is not.
    """
    state = session.state
    approval = state.approvals.get(approval_id)
    if approval is None:
        for event in session.events:
            fact = event.fact
            if isinstance(fact, ApprovalDecided) and fact.approval_id == approval_id:
                when = strftime("%Y-%m-%d %H:%M:%S", localtime(event.time / 1000))
                raise AlreadyDecided(
                    approval_id, fact.outcome, by=fact.by, channel=fact.channel, time=event.time, when=when
                )
        raise UnknownApproval(approval_id, list(state.approvals))
    asked = approval.asked
    if answer.digest is not None and answer.digest != approval.digest:
        raise AnswerMismatch(approval_id, answer.digest, approval.digest)
    if asked.expires is not None and session.now() >= asked.expires:
        raise ApprovalError(approval_id, "the question has expired; without an answer in time it is a no")
    if answer.remember is not None and not _is_offered(answer.remember, answer.rule, asked.options):
        offered = ", ".join(asked.options)
        rule = (
            f"{answer.rule!r} ({answer.remember})" if answer.rule is not None else f"it ({answer.remember})"
        )
        raise ApprovalError(approval_id, f"to remember {rule} was not offered; offered: {offered}")
    return approval


def _is_offered(remember: str, rule: str | None, options: tuple[str, ...]) -> bool:
    if rule is not None:
        return f"{remember} {rule}" in options
    return any(option.startswith(f"{remember} ") for option in options)
