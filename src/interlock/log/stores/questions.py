"""What waits for a person in a store: the questions of all its sessions, without reading their logs.

Lives here: `OpenApproval` and `open_approvals`.
"""

from __future__ import annotations

import msgspec

from interlock.errors import SessionError
from interlock.log.facts import ApprovalAsked, SessionCreated, SubcallStart, ToolCalled
from interlock.log.stores.store import Store


class OpenApproval(msgspec.Struct, frozen=True):
    """A question that is open by what is on disk."""

    session: str
    seq: int  # of its approval/asked
    time: int  # epoch ms
    asked: ApprovalAsked
    tool: str
    call_id: str  # the model's
    cwd: str | None = None  # where the session works
    nested: bool = False  # asked by a call that another one made: it ends with that one's process

    @property
    def id(self) -> str:
        """Unique in the store: an approval's own id is so in its session only."""
        return f"{self.session}/{self.asked.approval_id}"


async def open_approvals(store: Store) -> list[OpenApproval]:
    """Every open question of a store, the one that was asked first at the beginning.

    Raises:
        SessionError: the store cannot be read.
    """
    found = []
    for session_id, seq in await store.approvals():
        journal = await store.open(session_id, readonly=True)
        try:
            event = next(journal.read(seq, seq))
            if not isinstance(event.fact, ApprovalAsked):
                raise SessionError(f"Line {seq} of session {session_id} is no question, as the store has it.")
            call = next(journal.read(event.fact.call, event.fact.call)).fact
            created = next(journal.read(0, 0)).fact
        finally:
            await journal.close()
        match call:
            case ToolCalled(name=name, call_id=call_id) | SubcallStart(name=name, id=call_id):
                pass
            case _:
                raise SessionError(
                    f"Line {event.fact.call} of session {session_id} is no call, but a question names it."
                )
        cwd = created.cwd if isinstance(created, SessionCreated) else None
        nested = isinstance(call, SubcallStart)
        found.append(OpenApproval(session_id, seq, event.time, event.fact, name, call_id, cwd, nested))
    return sorted(found, key=lambda one: (one.time, one.session, one.seq))
