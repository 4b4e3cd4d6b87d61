"""Claims: what two calls may touch at once, and the table that finds a conflict without comparing every pair."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock import Claims, Concurrency
from interlock.tools.claims import ClaimTable, Mode, stricter

# A small alphabet, so that keys meet: "a" beside "ab", trailing and double slashes, the root.
keys = st.lists(st.sampled_from(["a", "b", "ab", "A", ""]), max_size=4).map("/".join)
key_lists = st.lists(keys, max_size=3)
claims = st.builds(lambda reads, writes: Claims(reads=reads, writes=writes), key_lists, key_lists)
modes: st.SearchStrategy[Mode] = st.one_of(st.sampled_from(list(Concurrency)), claims)


def within(inner: str, outer: str) -> bool:
    """The key is the other one, or lies under it. A slash at the end says nothing; the empty key is the root."""
    inner, outer = inner.rstrip("/"), outer.rstrip("/")
    return outer == "" or inner == outer or inner.startswith(f"{outer}/")


def meet(one: Sequence[str], other: Sequence[str]) -> bool:
    return any(within(a, b) or within(b, a) for a in one for b in other)


def conflict(one: Mode, other: Mode) -> bool:
    """The definition, word by word."""
    if Concurrency.EXCLUSIVE in (one, other):
        return True
    if not isinstance(one, Claims) or not isinstance(other, Claims):
        return False
    return meet(one.writes, other.writes) or meet(one.writes, other.reads) or meet(one.reads, other.writes)


@pytest.mark.slow
@given(st.lists(claims, max_size=6), claims)
@settings(deadline=None, max_examples=examples(500))
def test_the_table_finds_a_conflict_exactly_where_some_pair_has_one(
    held: list[Claims], asked: Claims
) -> None:
    """D-17."""
    table = ClaimTable()
    for one in held:
        table.add(one)
    assert table.conflicts(asked) == any(conflict(one, asked) for one in held)


@given(st.lists(st.tuples(claims, st.booleans()), max_size=8), claims)
@settings(deadline=None)
def test_what_was_released_leaves_nothing_behind(held: list[tuple[Claims, bool]], asked: Claims) -> None:
    table = ClaimTable()
    for one, _ in held:
        table.add(one)
    for one, released in held:
        if released:
            table.remove(one)
    assert table.conflicts(asked) == any(conflict(one, asked) for one, released in held if not released)


@given(claims, claims)
@settings(deadline=None)
def test_a_conflict_is_one_from_both_sides(one: Claims, other: Claims) -> None:
    holding_one, holding_other = ClaimTable(), ClaimTable()
    holding_one.add(one)
    holding_other.add(other)
    assert holding_one.conflicts(other) == holding_other.conflicts(one)


@given(modes, modes, modes)
@settings(deadline=None, max_examples=examples(500))
def test_a_mode_that_is_not_stricter_conflicts_with_nothing_new(now: Mode, before: Mode, third: Mode) -> None:
    """D-17: only what became stricter has to wait again."""
    if not stricter(now, before):
        assert not conflict(now, third) or conflict(before, third)


@given(modes)
@settings(deadline=None)
def test_a_mode_is_not_stricter_than_itself(mode: Mode) -> None:
    assert not stricter(mode, mode)


@pytest.mark.parametrize(
    ("now", "before", "expected"),
    [
        (Concurrency.EXCLUSIVE, Concurrency.PARALLEL, True),
        (Concurrency.EXCLUSIVE, Claims(), True),
        (Concurrency.PARALLEL, Claims(writes=["a"]), False),
        (Claims(reads=["a"]), Concurrency.PARALLEL, True),
        (Claims(), Concurrency.PARALLEL, False),
        (Claims(writes=["a"]), Concurrency.EXCLUSIVE, False),
        (Claims(writes=["a"]), Claims(reads=["a"]), True),
        (Claims(reads=["a"]), Claims(writes=["a"]), False),
        (Claims(reads=["a", "b"]), Claims(reads=["a"]), True),
    ],
)
def test_stricter(now: Mode, before: Mode, expected: bool) -> None:
    assert stricter(now, before) is expected


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (Claims(reads=["a"]), Claims(reads=["a"]), False),
        (Claims(writes=["src/a.py"]), Claims(writes=["src/b.py"]), False),
        (Claims(writes=["src"]), Claims(reads=["src/a/b.py"]), True),
        (Claims(writes=["src/a/b.py"]), Claims(reads=["src"]), True),
        (Claims(writes=["src"]), Claims(reads=["srcs"]), False),
        (Claims(writes=["/"]), Claims(reads=["/etc/hosts"]), True),
        (Claims(writes=["a/"]), Claims(writes=["a"]), True),
        (Claims(), Claims(writes=["a"]), False),
    ],
)
def test_a_key_conflicts_with_itself_its_parents_and_its_children_when_either_side_writes(
    one: Claims, other: Claims, expected: bool
) -> None:
    """D-17, UW-21: writes to different files do not conflict."""
    table = ClaimTable()
    table.add(one)
    assert table.conflicts(other) is expected


def test_claims_are_values_and_take_any_iterable_of_keys() -> None:
    assert Claims(reads=(key for key in "ab")) == Claims(reads=["a", "b"])
    assert hash(Claims(writes=["a"])) == hash(Claims(writes=("a",)))
    assert Claims() == Claims(reads=(), writes=())


@pytest.mark.parametrize("given", [{"reads": "src"}, {"writes": "src"}])
def test_one_string_is_not_a_list_of_keys(given: dict[str, str]) -> None:
    """Its letters would be taken for keys."""
    with pytest.raises(TypeError, match=r"several keys: write \['src'\]"):
        Claims(**given)


def test_a_key_is_text() -> None:
    with pytest.raises(TypeError, match="a claimed key is a str"):
        Claims(reads=[1])  # type: ignore[list-item]  # that is the point
