"""Questions of sessions that nobody drives: an answer is put on record, and whoever drives the session next acts on it.

Lives here: `answer_pending`. It opens the session as any life does, so what had been running in a step that waits is
closed by then; the step itself stays open.
"""

from __future__ import annotations

import os
import socket
from time import localtime, strftime
from typing import TYPE_CHECKING

from interlock.errors import AlreadyDecided, AnswerMismatch, ApprovalError, SessionBusy, UnknownApproval
from interlock.log.facts import ApprovalDecided, SessionOpened
from interlock.log.session import Session, open_session
from interlock.log.state import Approval
from interlock.tools.approval import Answered

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.store import Store


async def answer_pending(
    session_id: str,
    approval_id: str,
    answered: Answered,
    *,
    store: Store,
    digest: str | None = None,
    redactor: Redactor | None = None,
) -> None:
    """Answer a question of a session that nobody drives. When it returns, the answer is on disk.

    Args:
        digest: of what the answerer saw; another one than what is asked is refused.
        redactor: takes secrets out of what is said with it.

    Raises:
        SessionBusy: the process that opened the session last is alive: answer there.
        UnknownApproval, AlreadyDecided, AnswerMismatch, ApprovalError: it is no answer to an open question; nothing
            was written.
    """
    looking = await open_session(session_id, store=store, readonly=True)
    try:
        refuse_if_driven(looking)
        _answerable(looking, approval_id, answered, digest)
    finally:
        await looking.close()
    # Whether anything runs again is for the life that goes on with it to say.
    session = await open_session(session_id, store=store, redo="idempotent", redactor=redactor)
    try:
        approval = _answerable(session, approval_id, answered, digest)
        session.append(answered.on_record(approval_id, approval.call, approval.digest))
        await session.barrier()
    finally:
        await session.close()


def _answerable(session: Session, approval_id: str, answered: Answered, digest: str | None) -> Approval:
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
    step = state.step
    if not state.waiting or step is None or approval.call not in step.waiting:
        raise ApprovalError(
            approval_id, "what asked it has ended with its process, or was stopped: no answer makes it go on"
        )
    asked = approval.asked
    if digest is not None and digest != approval.digest:
        raise AnswerMismatch(approval_id, digest, approval.digest)
    if asked.expires is not None and session.now() >= asked.expires:
        raise ApprovalError(approval_id, "the question has expired; without an answer in time it is a no")
    if answered.remember is not None and f"{answered.remember} {answered.rule}" not in asked.options:
        offered = ", ".join(asked.options)
        raise ApprovalError(
            approval_id,
            f"to remember {answered.rule!r} ({answered.remember}) was not offered; offered: {offered}",
        )
    return approval


def refuse_if_driven(session: Session) -> None:
    """
    Raises:
        SessionBusy: the process of its last life is another one on this machine, and alive.
    """
    opened = session.facts(SessionOpened)[-1]
    pid = opened.pid
    if pid <= 0 or pid == os.getpid() or opened.host != socket.gethostname():
        return
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return
    except OSError:
        pass  # it is somebody else's, and there
    raise SessionBusy(session.id, f"process {pid} on {opened.host}")
