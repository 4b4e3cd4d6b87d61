"""What may overlap: how calls declare what they touch, and when two of them conflict.

Lives here: `Concurrency`, `Claims`, their union `Mode`, and `ClaimTable`, which finds a conflict in work that grows with
the depth of a key and not with the number of calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Concurrency(StrEnum):
    """What may run beside a call."""

    EXCLUSIVE = "exclusive"  # the default: alone
    PARALLEL = "parallel"  # conflicts with nothing but an exclusive call


@dataclass(frozen=True, slots=True)
class Claims:
    """What one call touches: `/`-separated keys, such as resolved paths.

    A key conflicts with itself, with its parents and with its children when either side writes.
    """

    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()

    def __init__(self, *, reads: Iterable[str] = (), writes: Iterable[str] = ()) -> None:
        for given in (reads, writes):
            if isinstance(given, str):
                raise TypeError(f"claims are several keys: write [{given!r}]")
        object.__setattr__(self, "reads", tuple(reads))
        object.__setattr__(self, "writes", tuple(writes))
        if not all(isinstance(key, str) for key in self.reads + self.writes):
            raise TypeError("a claimed key is a str")


Mode: TypeAlias = Concurrency | Claims


def stricter(now: Mode, before: Mode) -> bool:
    """Whether `now` can conflict with something that `before` could not."""
    if now is Concurrency.PARALLEL or before is Concurrency.EXCLUSIVE:
        return False
    if now is Concurrency.EXCLUSIVE:
        return True
    assert isinstance(now, Claims)
    if before is Concurrency.PARALLEL:
        return bool(now.reads or now.writes)
    assert isinstance(before, Claims)
    return not (
        set(now.writes) <= set(before.writes) and set(now.reads) <= set(before.reads) | set(before.writes)
    )


def _upward(key: str) -> Iterator[str]:
    """The key and its parents, the root (the empty key) last."""
    key = key.rstrip("/")
    while key:
        yield key
        key = key[: max(key.rfind("/"), 0)]
    yield ""


class ClaimTable:
    """The keys that are held now."""

    __slots__ = ("_below_reads", "_below_writes", "_reads", "_writes")

    def __init__(self) -> None:
        self._reads: Counter[str] = Counter()
        self._writes: Counter[str] = Counter()
        self._below_reads: Counter[str] = Counter()  # held keys at or under a key
        self._below_writes: Counter[str] = Counter()

    def add(self, claims: Claims) -> None:
        self._count(claims, 1)

    def remove(self, claims: Claims) -> None:
        self._count(claims, -1)

    def _count(self, claims: Claims, by: int) -> None:
        for keys, held, below in (
            (claims.reads, self._reads, self._below_reads),
            (claims.writes, self._writes, self._below_writes),
        ):
            for key in keys:
                upward = list(_upward(key))
                for counter, prefixes in ((held, upward[:1]), (below, upward)):
                    for prefix in prefixes:
                        counter[prefix] += by
                        if not counter[prefix]:
                            del counter[prefix]

    def conflicts(self, claims: Claims) -> bool:
        """Whether a held key conflicts with one of these."""
        for key in claims.writes:
            upward = list(_upward(key))
            if upward[0] in self._below_writes or upward[0] in self._below_reads:
                return True
            if any(prefix in self._writes or prefix in self._reads for prefix in upward):
                return True
        for key in claims.reads:
            upward = list(_upward(key))
            if upward[0] in self._below_writes or any(prefix in self._writes for prefix in upward):
                return True
        return False
