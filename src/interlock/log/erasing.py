"""Forgetting what sessions hold: theirs, or all in which somebody took part.

Lives here: `plan_erasure`, which finds out what is meant, `erase_sessions`, which does it, `finish_erasing`, and the
`ErasureReceipt` that says what went, without a word of it. What is left of a session are tombstones, by which its log
can still be checked.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from interlock.errors import (
    SessionError,
    SharedSessions,
    UnknownFact,
    UnknownSession,
    UnreadableLog,
    UsageError,
)
from interlock.log.beside import forget_beside
from interlock.log.facts import ContentErased
from interlock.log.mail import read
from interlock.log.participants import participants, senders
from interlock.log.session import now_ms
from interlock.log.stores.gone import Gone, Standing
from interlock.log.tombstones import erasure_of

if TYPE_CHECKING:
    from interlock.log.beside import Beside
    from interlock.log.stores.store import Journal, Store

BYTES = "bytes of what was erased"  # what is left where the files could not be written anew
MAX_WORDS = 1000  # characters of who erases, and of why: the line that says so stays small

_AT_ONCE = 1000  # lines read before others on the event loop have a turn


class ErasurePlan(msgspec.Struct, frozen=True):
    """What an erasure would take.

    sessions: in the order in which they go: forks before what they are forks of.
    forks: those of them that are meant only because they hold copies of the others' lines.
    unread: others whose log cannot be read, and why: whether somebody took part is not known.
    """

    sessions: tuple[Standing, ...]
    forks: tuple[str, ...]
    unread: dict[str, str]


class ErasedSession(Gone, frozen=True, omit_defaults=True):
    """What went of one session.

    before: the receipt of an earlier erasure: nothing was left to go but what lay beside its tombstones.
    beside: where something was kept outside the store.
    """

    fork_of: str | None = None
    before: str | None = None
    beside: tuple[str, ...] = ()


class Left(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was not erased, and why. `again`: erasing again is to take it."""

    what: str
    why: str
    again: bool = False


class ErasureReceipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went, when and by whom. It holds nothing of the content."""

    id: str
    time: int  # epoch ms
    by: str
    sessions: tuple[ErasedSession, ...]
    reason: str | None = None
    principal: str | None = None
    left: tuple[Left, ...] = ()


async def plan_erasure(
    session_ids: Iterable[str] = (), *, store: Store, principal: str | None = None, shared: bool = False
) -> ErasurePlan:
    """Find out what is to be erased: these sessions, those in which the principal took part, and all forks of them.

    Args:
        shared: also sessions in which other principals took part; without it, they are refused.

    Raises:
        UsageError: the principal has no id.
        UnknownSession: there is none of an id.
        SharedSessions: of the sessions of the principal, others took part in some.
    """
    if principal is not None and not principal.strip():
        raise UsageError("A principal has an id: principal='…'.")
    standing = {one.id: one for one in await store.standings()}
    wanted = frozenset(named := tuple(session_ids))
    meant = dict.fromkeys(named)
    for session_id in meant:
        if session_id not in standing:
            raise UnknownSession(session_id)
    unread: dict[str, str] = {}
    everybody: dict[str, set[str]] = {}
    if principal is not None:
        for session_id, one in standing.items():
            if one.erased:
                continue
            try:
                everybody[session_id] = await _who(session_id, store)
            except UnknownSession:
                continue
            except (UnknownFact, UnreadableLog) as error:
                unread[session_id] = str(error)
        meant |= dict.fromkeys([id_ for id_, who in everybody.items() if principal in who])
    found = _with_forks(meant, standing)
    if principal is not None and not shared:
        others = {id_: everybody.get(id_, set()) - {principal} for id_ in found if id_ not in wanted}
        if others := {id_: who for id_, who in others.items() if who}:
            raise SharedSessions(principal, {id_: tuple(sorted(who)) for id_, who in others.items()})
    return ErasurePlan(
        tuple([standing[id_] for id_ in found]),
        tuple([id_ for id_ in found if id_ not in meant]),
        {id_: why for id_, why in unread.items() if id_ not in found},
    )


async def erase_sessions(
    session_ids: Iterable[str] = (),
    *,
    store: Store,
    by: str,
    reason: str | None = None,
    principal: str | None = None,
    shared: bool = False,
    beside: Iterable[Beside] = (),
    clock: Callable[[], int] | None = None,
) -> ErasureReceipt:
    """Erase what these sessions hold, and their forks; with a principal, all sessions in which it took part.

    Tombstones are left, with seq, type, time, life and causes, and a last line that says who did it; nobody can go on
    with such a session, fork it or send to it. When this returns, the files of the store have forgotten what went, but
    for what the receipt names as left. After a crash, or where something was left, erase again: that completes it.

    Args:
        by: who erases. It is on record, with the reason, where everything else is gone: let them tell nothing.
        beside: what is kept of sessions outside the store, such as the `HookFiles` of outside hooks; it goes as well.

    Raises:
        UnknownSession, SharedSessions: as of `plan_erasure`.
        SessionBusy: somebody drives one of them.
        UsageError: it is not said by whom, or nothing is meant. In all these cases nothing was changed, unless somebody
            has forked one of them in this very moment: erase again.
        SessionError: the store failed; erase again.
    """
    by, reason = _checked(by, reason)
    wanted = tuple(session_ids)
    if not wanted and principal is None:
        raise UsageError("Name the sessions that are to be erased, or a principal.")
    receipt, now = f"er-{secrets.token_hex(8)}", now_ms(clock)
    erased: dict[str, ErasedSession] = {}
    forks: list[Standing] = []
    left: list[Left] = []
    while True:
        plan = await plan_erasure(wanted, store=store, principal=principal, shared=shared)
        going = [one for one in plan.sessions if one.id not in erased]
        if not going:
            break  # nobody has made a fork meanwhile
        before = {one.id: await _erased_before(one.id, store) for one in going if one.erased}
        gone = await store.erase([ContentErased(one.id, receipt, by, reason) for one in going], time=now)
        forks += [one for one in going if one.above]
        for one, what in zip(going, gone, strict=True):
            erased[one.id] = ErasedSession(
                **msgspec.structs.asdict(what), fork_of=one.parent, before=before.get(one.id)
            )
    after = {one.id: one for one in await store.standings()}
    left += _holders(forks, after)
    collected, unfinished = await _finished(store)
    forgotten, unforgotten = await _forgotten(store, beside)
    for session_id, paths in forgotten.items():
        if session_id not in erased:  # whoever has erased it has not come to that
            erased[session_id] = ErasedSession(session_id, before=await _erased_before(session_id, store))
        erased[session_id] = msgspec.structs.replace(erased[session_id], beside=paths)
    # What one of them has left because of another one may have gone with that.
    deleted = set(collected).union(*[one.artifacts for one in erased.values()])
    sessions = tuple(
        [
            msgspec.structs.replace(one, kept=tuple([digest for digest in one.kept if digest not in deleted]))
            for one in erased.values()
        ]
    )
    left += [
        Left(f"session {session_id}", f"it cannot be read: {why}") for session_id, why in plan.unread.items()
    ]
    left += [
        Left(f"artifact {digest}", f"another session holds the same text as {one.session} did")
        for one in sessions
        for digest in one.kept
    ]
    return ErasureReceipt(receipt, now, by, sessions, reason, principal, (*left, *unfinished, *unforgotten))


async def finish_erasing(*, store: Store, beside: Iterable[Beside] = ()) -> tuple[Left, ...]:
    """Complete erasures that a crash has cut, or that had to leave something; what is left all the same."""
    _, unfinished = await _finished(store)
    _, unforgotten = await _forgotten(store, beside)
    return (*unfinished, *unforgotten)


async def _finished(store: Store) -> tuple[list[str], list[Left]]:
    """See to it that the files forget what the store has: the artifacts that went, and what is left."""
    try:
        collected, problem = await store.collect(), await store.compact()
    except SessionError as error:
        collected, problem = [], str(error)
    return collected, [Left(BYTES, problem, again=True)] if problem is not None else []


async def _forgotten(store: Store, beside: Iterable[Beside]) -> tuple[dict[str, tuple[str, ...]], list[Left]]:
    """Delete what is kept outside the store of all sessions that are erased, by whomever; and what is left."""
    forgotten, left = await forget_beside(beside, [one.id for one in await store.standings() if one.erased])
    return forgotten, [
        Left(f"what is kept of {session_id} outside the store", why, again=True)
        for session_id, why in left.items()
    ]


def _checked(by: str, reason: str | None) -> tuple[str, str | None]:
    by = by.strip()
    if not by:
        raise UsageError("Say who erases: by='…'.")
    if len(by) + len(reason or "") > MAX_WORDS:
        raise UsageError(f"Who erases and why have at most {MAX_WORDS:,} characters.")
    return by, (reason.strip() or None) if reason is not None else None


def _with_forks(meant: Iterable[str], standing: dict[str, Standing]) -> list[str]:
    """These sessions and all forks of them, each after its own forks."""
    forks: dict[str, list[str]] = {}
    for one in standing.values():
        for above in one.above:
            forks.setdefault(above, []).append(one.id)
    seen: set[str] = set()
    found: list[str] = []
    for session_id in meant:
        if session_id in seen:
            continue
        seen.add(session_id)
        stack = [(session_id, iter(forks.get(session_id, ())))]
        while stack:
            last, its_forks = stack[-1]
            fork = next((id_ for id_ in its_forks if id_ not in seen), None)
            if fork is None:
                found.append(last)
                stack.pop()
            else:
                seen.add(fork)
                stack.append((fork, iter(forks.get(fork, ()))))
    return found


async def _who(session_id: str, store: Store) -> set[str]:
    """The principals that the log and the mailbox of a session name.

    Raises:
        UnknownFact, UnreadableLog: the log cannot be read here.
    """
    journal = await store.open(session_id, readonly=True)
    try:
        found: set[str] = set()
        for first in range(0, journal.head + 1, _AT_ONCE):
            found |= participants([event.fact for event in journal.read(first, first + _AT_ONCE - 1)])
            await asyncio.sleep(0)
        for letter in await journal.letters(0):
            try:
                found |= senders(read(letter.data))
            except ValueError:
                pass  # whoever sent it, it cannot be read
        return found
    finally:
        await journal.close()


async def _erased_before(session_id: str, store: Store) -> str | None:
    """The receipt of an erasure that was done."""
    journal = await store.open(session_id, readonly=True)
    try:
        return _receipt(journal)
    finally:
        await journal.close()


def _receipt(journal: Journal) -> str | None:
    said = erasure_of(journal)
    return said.fact.receipt if said is not None and isinstance(said.fact, ContentErased) else None


def _holders(forks: Iterable[Standing], known: dict[str, Standing]) -> Iterator[Left]:
    """The sessions that go on holding lines with which forks began: what they were forks of, and its other forks."""
    for fork in forks:
        above = set(fork.above)
        for one in known.values():
            if one.erased:
                continue
            if one.id in above:
                why = f"{fork.id} was a fork of it, and it holds the lines that it began with"
            elif common := above.intersection(one.above):
                why = f"it is a fork of {min(common)} as {fork.id} was, and holds lines that it began with"
            else:
                continue
            yield Left(f"session {one.id}", why)
