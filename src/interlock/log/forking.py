"""Another session that begins where a turn of this one ended.

Lives here: `fork_session`. A fork has its own copy of its parent's lines up to the boundary, each with its seq, time,
life and causes, and is from then on a session like any other. It needs nobody to be read: its parent may go on, be
moved, pruned or erased, and replaying the one log gives the one state. What that costs is room for the lines; big
values are kept once for both. Line 0 is the fork's own and names its parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from interlock.errors import IllegalFact, SessionErased, UnknownSession, UsageError
from interlock.log.event import Event
from interlock.log.facts import (
    FORMAT,
    Fact,
    GrantRevoked,
    ParentSession,
    PolicyChanged,
    SessionCreated,
    TurnEnd,
    TurnStart,
)
from interlock.log.laws import forbidden
from interlock.log.session import Session, check_format, checked_id, new_session_id, now_ms, opening
from interlock.log.state import State
from interlock.log.tombstones import refuse_erased
from interlock.version import VERSION

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.store import Journal, Store

_AT_ONCE = 1000  # lines read before others on the event loop have a turn


async def fork_session(
    session_id: str,
    *,
    store: Store,
    at: int | None = None,
    new_id: str | None = None,
    clock: Callable[[], int] | None = None,
    redactor: Redactor | None = None,
) -> Session:
    """A new session with all that this one was at the end of a turn, open for writing and on disk.

    History, request header, preset, grants, runtime context, the count of turns and what a budget of the session has
    used are those of that moment; what was pending then is not the fork's. What a person has taken back since is not
    given back: a grant that was revoked later is revoked in the fork. The session itself is only read: it may be driven
    meanwhile, and what counts is what it has on disk.

    Args:
        at: The turn at whose end the fork begins, from 1; the last closed one by default.
        redactor: Of what is appended to the fork. The lines that it inherits stay as they were written.

    Raises:
        UnknownSession, DuplicateSession: there is none of this id, or one of the new id.
        UsageError: the session has no closed turn of this number, or the redactor finds a secret in the new id.
        SessionErased: what the session held was erased.
        UnknownFact, UnreadableLog, IllegalFact: the log cannot be read here, or breaks a law.
    """
    parent = await store.open(session_id, readonly=True)
    try:
        refuse_erased(session_id, parent)
        lines = await _lines(parent)
    finally:
        await parent.close()
    boundary = _boundary(session_id, lines, at)
    later = lines[boundary + 1 :]
    now = now_ms(clock)
    made = checked_id(new_id or new_session_id(now), redactor)
    created = lines[0].fact
    assert isinstance(created, SessionCreated)  # the first law, which `_lines` has checked
    header = msgspec.structs.replace(
        created,
        format=FORMAT,
        session_id=made,
        parent=ParentSession(session_id, boundary, _above(created)),
        package=VERSION,
    )
    inherited = [Event(0, now, lines[0].life, header), *lines[1 : boundary + 1]]
    journal = await store.create(made)
    session = Session(made, journal, clock=clock, redactor=redactor)
    try:
        session.inherit(inherited)
        state = session.state
        session.append(opening(state.life + 1, "fork", journal), *_since(state, later))
        await session.barrier()
        await _still_there(session_id, store)
    except SessionErased:
        await session.close()
        await store.remove({made: session.head})
        raise
    except BaseException:
        await session.close()
        raise
    return session


def _above(created: SessionCreated) -> tuple[str, ...]:
    """Whose lines these are as well: whoever erases one of them finds a fork of a fork that is gone by then."""
    parent = created.parent
    return (parent.session, *parent.above) if parent is not None else ()


async def _still_there(session_id: str, store: Store) -> None:
    """Whoever erases a session looks for its forks, and may not have seen one that was still being made.

    Raises:
        SessionErased: what was copied should be gone.
    """
    try:
        parent = await store.open(session_id, readonly=True)
    except UnknownSession:
        return  # deleted: what its forks hold is theirs
    try:
        refuse_erased(session_id, parent)
    finally:
        await parent.close()


async def _lines(journal: Journal) -> list[Event]:
    """The whole log, lawful as far as its last closed turn."""
    lines: list[Event] = []
    state = State()
    for event in journal.read():
        if isinstance(event.fact, SessionCreated):
            check_format(event.fact)
        breach = forbidden(state, event.fact)
        if breach is not None:
            raise IllegalFact(breach.law, breach.problem, seq=breach.seq)
        state.apply(event)
        lines.append(event)
        if len(lines) % _AT_ONCE == 0:
            await asyncio.sleep(0)
    return lines


def _boundary(session_id: str, lines: Sequence[Event], at: int | None) -> int:
    """The seq of the end of the turn.

    Raises:
        UsageError: no such turn has ended.
    """
    ends = {event.fact.turn: event.seq for event in lines if isinstance(event.fact, TurnEnd)}
    if not ends:
        raise UsageError(f"Session {session_id} cannot be forked yet: no turn of it has ended.")
    last = max(ends)
    if at is None:
        return ends[last]
    if at not in ends:
        closed = f"1 to {last}" if last > 1 else "1"
        raise UsageError(f"Session {session_id} cannot be forked at turn {at}: closed turns are {closed}.")
    return ends[at]


def _since(state: State, later: Sequence[Event]) -> list[Fact]:
    """What was said after the boundary and holds for the fork all the same."""
    revoked: dict[str, Fact] = {}
    preset: PolicyChanged | None = None
    between = True  # the boundary's turn and the next one
    for event in later:
        fact = event.fact
        if isinstance(fact, GrantRevoked) and fact.rule in state.grants:
            revoked[fact.rule] = fact
        elif isinstance(fact, TurnStart):
            between = False
        elif isinstance(fact, PolicyChanged) and between:
            preset = fact
    return [*revoked.values(), *([preset] if preset is not None else [])]
