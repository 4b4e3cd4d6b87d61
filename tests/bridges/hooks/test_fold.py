"""Several answers together: declared order counts, the order of finishing does not, and nobody loosens."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridges.hooks.cases import HAPPENINGS, occurrence
from interlock.bridges.hooks.event import PermissionRequest, PreToolUse
from interlock.bridges.hooks.fold import fold
from interlock.bridges.hooks.verdict import (
    STRICTNESS,
    Answer,
    InputChange,
    Permission,
    PermissionAnswer,
    Problem,
)

PRE = occurrence(HAPPENINGS["PreToolUse"])
ASKED = occurrence(HAPPENINGS["PermissionRequest"])
WORDS = st.sampled_from(["a", "b", "c"])
changes = st.builds(InputChange, st.dictionaries(WORDS, st.integers(0, 3), max_size=2), st.booleans())
answers = st.builds(
    Answer,
    permission=st.none() | st.builds(Permission, st.sampled_from(["allow", "ask", "defer", "deny"]), WORDS),
    decision=st.none()
    | st.builds(
        PermissionAnswer, st.sampled_from(["allow", "deny"]), WORDS, st.booleans(), st.none() | changes
    ),
    block=st.none() | WORDS,
    input=st.none() | changes,
    output=st.none() | WORDS,
    contexts=st.lists(WORDS, max_size=2).map(tuple),
    stop=st.none() | WORDS,
    failure=st.none() | WORDS,
)


def strictness(answer: Answer) -> tuple[int, bool, bool, bool]:
    verdict = answer.permission.verdict if answer.permission else None
    denied = answer.decision is not None and answer.decision.behavior == "deny"
    return STRICTNESS[verdict], denied, answer.block is not None, answer.stop is not None


@given(st.lists(answers, max_size=5), answers, st.integers(0, 5), st.sampled_from([PRE, ASKED]))
def test_a_handler_in_any_position_never_loosens(
    others: list[Answer], extra: Answer, place: int, at: Any
) -> None:
    before = strictness(fold(at, others).answer)
    after = strictness(fold(at, [*others[:place], extra, *others[place:]]).answer)
    assert all(new >= old for new, old in zip(after, before, strict=True))


@given(st.lists(answers, max_size=5), st.randoms())
def test_the_strictest_wins_in_any_order(given_answers: list[Answer], rng: random.Random) -> None:
    shuffled = list(given_answers)
    rng.shuffle(shuffled)
    assert strictness(fold(PRE, shuffled).answer) == strictness(fold(PRE, given_answers).answer)


@given(st.lists(answers, max_size=5))
def test_all_contexts_are_kept_in_declared_order(given_answers: list[Answer]) -> None:
    assert fold(PRE, given_answers).answer.contexts == tuple(
        text for answer in given_answers for text in answer.contexts
    )


@given(st.lists(answers, max_size=5))
def test_who_won_is_among_those_who_said_something(given_answers: list[Answer]) -> None:
    for i in fold(PRE, given_answers).won:
        assert given_answers[i].decides


@given(st.lists(answers, min_size=1, max_size=5))
def test_without_the_others_a_winner_of_the_verdict_says_the_same(given_answers: list[Answer]) -> None:
    folded = fold(PRE, given_answers)
    if folded.answer.permission is not None:
        verdicts = {
            permission.verdict for i in folded.won if (permission := given_answers[i].permission) is not None
        }
        assert folded.answer.permission.verdict in verdicts


def test_nobody_said_anything() -> None:
    folded = fold(PRE, [])
    assert (folded.answer, folded.won) == (Answer(), frozenset())


def test_the_reasons_of_a_verdict_are_joined_and_said_once() -> None:
    folded = fold(
        PRE,
        [
            Answer(permission=Permission("ask", "why?")),
            Answer(permission=Permission("deny", "no")),
            Answer(permission=Permission("deny", "never")),
            Answer(permission=Permission("deny", "no")),
        ],
    )
    assert folded.answer.permission == Permission("deny", "no\n\nnever")
    assert folded.won == {1, 2, 3}


@pytest.mark.parametrize(
    ("changes", "expected", "won"),
    [
        ([({"a": 1}, False)], {"a": 1}, {0}),
        ([({"a": 1}, False), ({"b": 2}, False)], {"b": 2}, {1}),
        ([({"command": "x"}, True)], {"command": "x", "timeout": 60}, {0}),
        ([({"a": 1}, False), ({"b": 2}, True)], {"a": 1, "b": 2}, {0, 1}),
        ([({"b": 2}, True), ({"a": 1}, False)], {"a": 1}, {1}),
    ],
)
def test_rewrites_are_laid_one_over_the_other(
    changes: list[tuple[dict[str, Any], bool]], expected: dict[str, Any], won: set[int]
) -> None:
    given_answers = [Answer(input=InputChange(fields, merge)) for fields, merge in changes]
    folded = fold(PRE, given_answers)
    assert isinstance(PRE.what, PreToolUse)
    assert folded.answer.input == InputChange(expected)
    assert folded.won == won
    assert PRE.what.input == {"command": "npm test", "timeout": 60}


def test_a_person_is_answered_for_by_all_who_allow_and_by_any_who_denies() -> None:
    yes = Answer(
        decision=PermissionAnswer("allow", input=InputChange({"command": "ls"}), updates=({"n": 1},))
    )
    also = Answer(decision=PermissionAnswer("allow", updates=({"n": 2},)))
    no = Answer(decision=PermissionAnswer("deny", "no", interrupt=True))
    assert isinstance(ASKED.what, PermissionRequest)
    together = fold(ASKED, [yes, also])
    assert together.answer.decision == PermissionAnswer(
        "allow", input=InputChange({"command": "ls"}), updates=({"n": 1}, {"n": 2})
    )
    assert together.won == {0, 1}
    refused = fold(ASKED, [yes, no, also])
    assert (refused.answer.decision, refused.won) == (no.decision, {1})


def test_the_last_rewrite_of_a_result_is_shown_and_all_blocks_are_told() -> None:
    folded = fold(
        occurrence(HAPPENINGS["PostToolUse"]),
        [Answer(output="a"), Answer(output="b", block="x"), Answer(block="y", stop=""), Answer(stop="done")],
    )
    assert folded.answer == Answer(output="b", block="x\n\ny", stop="done")
    assert folded.won == {1, 2, 3}


def test_a_problem_of_several_is_one() -> None:
    same = Answer(problems=(Problem("odd", detail="at 1"),))
    assert fold(PRE, [same, Answer(problems=(Problem("odd", detail="at 2"),))]).answer.problems == (
        Problem("odd"),
    )
