"""Keeping only so much: whole sessions go, the longest unused first, never one that is not over.

Lives here: `prune_sessions`, `plan_pruning`, which only says what would go, and `Kept`, why a session stays although its
time has come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from interlock.errors import UnknownSession, UsageError
from interlock.log.beside import forget_beside
from interlock.log.session import now_ms
from interlock.log.stores.gone import Gone, Standing

if TYPE_CHECKING:
    from interlock.log.beside import Beside
    from interlock.log.stores.store import Store

_AT_ONCE = 100  # sessions that are deleted in one transaction: others wait to write meanwhile
_ENVELOPE = 64  # bytes, about, of a line beside its data


class Kept(msgspec.Struct, frozen=True):
    """A session that stays, and why."""

    session: str
    why: str


class Pruning(msgspec.Struct, frozen=True):
    """What went, or would go.

    before, after: bytes that the files of the store measured, and measure now, or would about.
    kept: sessions whose time has come, and that stay.
    artifacts: SHA-256 of those that nothing referred to any more, beside those of the sessions.
    beside: where something was kept of the sessions outside the store.
    problem: what was left to do, and why.
    """

    gone: tuple[Gone, ...]
    before: int
    after: int
    kept: tuple[Kept, ...] = ()
    artifacts: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    problem: str | None = None


async def plan_pruning(
    *,
    store: Store,
    older_than: int | None = None,
    max_size: int | None = None,
    clock: Callable[[], int] | None = None,
) -> Pruning:
    """What `prune_sessions` would do now; how much smaller the files would get is an estimate.

    Raises:
        UsageError: neither an age nor a size is given, or one that is below 0.
    """
    _check(older_than, max_size)
    size = await store.size()
    standings = await store.standings()
    limit = _before(older_than, clock)
    candidates, kept = _sorted_out(standings, limit, max_size is not None)
    scale = _scale(size, standings)
    going: list[Standing] = []
    after = size
    for one in candidates:
        if not (_is_aged(one, limit) or (max_size is not None and after > max_size)):
            break  # the others were used later
        if (holder := await _holder(one, store)) is not None:
            kept.append(Kept(one.id, f"{holder} drives it"))
            continue
        going.append(one)
        after -= int(_weight(one) * scale)
    gone = tuple([Gone(one.id, one.head + 1, one.bytes) for one in going])
    return Pruning(gone, size, max(after, 0), tuple(kept))


async def _holder(one: Standing, store: Store) -> str | None:
    try:
        return await store.holder(one.id)
    except UnknownSession:
        return None  # it has gone meanwhile


async def prune_sessions(
    *,
    store: Store,
    older_than: int | None = None,
    max_size: int | None = None,
    beside: Iterable[Beside] = (),
    clock: Callable[[], int] | None = None,
) -> Pruning:
    """Delete whole sessions that are over, with all that lies beside their lines, and make the files smaller.

    Those that are older than the age go, and after them the longest unused ones, until the files of the store are no
    larger than the size. A session stays that somebody drives, in which a turn is open or a question waits for a person,
    or that has letters. Forks have their own lines, and go by themselves.

    Args:
        older_than: milliseconds since the last line.
        max_size: bytes.
        beside: what is kept of sessions outside the store, such as the `HookFiles` of outside hooks; it goes as well.

    Raises:
        UsageError: neither of them is given, or one that is below 0; nothing was deleted.
        SessionError: the store failed; prune again.
    """
    _check(older_than, max_size)
    before = await store.size()
    limit = _before(older_than, clock)
    removing = _Removing(store, tuple(beside))
    gone, stayed = removing.gone, removing.stayed
    candidates, _ = _sorted_out(await store.standings(), limit, max_size is not None)
    await removing.remove(_aged(candidates, limit))
    artifacts = await store.collect()
    problem = await store.compact()
    # Where the files could not be written anew, what they measure says nothing: more would go than has to.
    while problem is None and max_size is not None and (size := await store.size()) > max_size:
        standings = await store.standings()
        candidates, _ = _sorted_out(standings, limit, True)
        candidates = [one for one in candidates if one.id not in stayed]
        if not candidates:
            break
        # How much of the files goes with a session is not known before: it is tried, and measured again.
        await removing.remove(_enough(candidates, size - max_size, _scale(size, standings)))
        artifacts += await store.collect()
        problem = await store.compact()
    after = await store.size()
    _, kept = _sorted_out(await store.standings(), limit, max_size is not None and after > max_size)
    named = {one.session for one in kept}
    kept += [Kept(session, why) for session, why in stayed.items() if session not in named]
    paths = tuple(removing.beside)
    return Pruning(tuple(gone), before, after, tuple(kept), tuple(artifacts), paths, problem)


class _Removing:
    """What went so far, and what stayed that was to go, and why."""

    def __init__(self, store: Store, beside: Sequence[Beside]) -> None:
        self.gone: list[Gone] = []
        self.stayed: dict[str, str] = {}
        self.beside: list[str] = []
        self._store = store
        self._beside = beside

    async def remove(self, going: Sequence[Standing]) -> None:
        for some in _pieces(going):
            await self._forget_beside(some)
            some = [one for one in some if one.id not in self.stayed]
            removed = await self._store.remove({one.id: one.head for one in some})
            self.gone += removed
            names = {one.session for one in removed}
            for one in some:
                if one.id not in names:
                    holder = await _holder(one, self._store)
                    self.stayed[one.id] = (
                        f"{holder} drives it" if holder is not None else "it was used just now"
                    )

    async def _forget_beside(self, some: Sequence[Standing]) -> None:
        """Before the sessions: what a crash would leave after them, nobody would know to be theirs."""
        there = {session_id for one in self._beside for session_id in one.of([one.id for one in some])}
        free = [one.id for one in some if one.id in there and await _holder(one, self._store) is None]
        gone, left = await forget_beside(self._beside, free)
        self.beside += [path for paths in gone.values() for path in paths]
        for session_id, why in left.items():
            self.stayed[session_id] = f"what is kept of it outside the store cannot be deleted: {why}"


def _pieces(going: Sequence[Standing]) -> Iterator[Sequence[Standing]]:
    for start in range(0, len(going), _AT_ONCE):
        yield going[start : start + _AT_ONCE]


def _check(older_than: int | None, max_size: int | None) -> None:
    if older_than is None and max_size is None:
        raise UsageError("Say how old a session may be, or how large the store: older_than=…, max_size=….")
    if (older_than or 0) < 0 or (max_size or 0) < 0:
        raise UsageError("An age and a size are not below 0.")


def _before(older_than: int | None, clock: Callable[[], int] | None) -> int | None:
    """The point in time, epoch ms, before which a session was used last."""
    return now_ms(clock) - older_than if older_than is not None else None


def _sorted_out(
    standings: Iterable[Standing], limit: int | None, all_of_them: bool
) -> tuple[list[Standing], list[Kept]]:
    """Those that may go, the longest unused first; and those that stay although their time has come.

    Args:
        all_of_them: the time of every session has come, since the store is too large.
    """
    candidates: list[Standing] = []
    kept: list[Kept] = []
    for one in sorted(standings, key=lambda one: (one.updated, one.id)):
        why = _why_kept(one)
        if why is None:
            candidates.append(one)
        elif all_of_them or (limit is not None and one.updated < limit):
            kept.append(Kept(one.id, why))
    return candidates, kept


def _why_kept(one: Standing) -> str | None:
    """What keeps a session, whatever its age."""
    if one.broken:
        return "a line of it cannot be read: `interlock check` says which"
    if one.erased:  # what was open in it will never go on
        return None
    if one.asks:
        return "it waits for a person"
    if one.open:
        return "a turn is open"
    if one.letters:
        return "letters wait in its mailbox"
    return None


def _aged(candidates: Iterable[Standing], limit: int | None) -> list[Standing]:
    return [one for one in candidates if _is_aged(one, limit)]


def _is_aged(one: Standing, limit: int | None) -> bool:
    return limit is not None and one.updated < limit


def _weight(one: Standing) -> int:
    return one.bytes + _ENVELOPE * (one.head + 1)


def _scale(size: int, standings: Sequence[Standing]) -> float:
    """Bytes of the files for each byte that sessions weigh."""
    return size / max(sum(map(_weight, standings)), 1)


def _enough(candidates: Sequence[Standing], needed: int, scale: float) -> list[Standing]:
    """So many of them that the files get smaller by so much, as far as can be said; at least one."""
    chosen: list[Standing] = []
    freed = 0.0
    for one in candidates:
        if chosen and freed >= needed:
            break
        chosen.append(one)
        freed += _weight(one) * scale
    return chosen
