"""RE-05, RE-06: how often a failed request is repeated, and after how long."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import ModelFailure
from interlock.models.retry import TRANSIENT, RetryPolicy

CALM = RetryPolicy(jitter=0)
ALWAYS = RetryPolicy(retries=None, codes="all", jitter=0)


def delay(
    policy: RetryPolicy, n: int, code: str = "SERVER", retry_after: float | None = None
) -> float | None:
    return policy.delay(ModelFailure("no", code=code, retry_after=retry_after), n, Random(0))


def test_the_delay_doubles_up_to_the_cap_and_ends_after_the_retries() -> None:
    assert [delay(CALM, n) for n in range(1, 8)] == [0.5, 1.0, 2.0, 4.0, 8.0, None, None]
    assert delay(RetryPolicy(retries=9, jitter=0), 9) == 10.0


@pytest.mark.parametrize("code", sorted(TRANSIENT))
def test_what_may_pass_is_repeated(code: str) -> None:
    assert delay(CALM, 1, code) == 0.5


@pytest.mark.parametrize(
    "code", ["AUTH", "BAD_REQUEST", "CONTEXT_LENGTH", "NOT_FOUND", "MALFORMED", "UNKNOWN"]
)
def test_what_will_not_pass_is_repeated_only_on_demand(code: str) -> None:
    assert delay(CALM, 1, code) is None
    assert delay(RetryPolicy(codes=frozenset({code}), jitter=0), 1, code) == 0.5
    assert delay(ALWAYS, 1, code) == 0.5


def test_the_providers_wait_is_used_as_it_is_within_the_cap() -> None:
    assert delay(RetryPolicy(), 1, retry_after=3.25) == 3.25
    assert delay(RetryPolicy(), 1, retry_after=0.0) == 0.0
    assert delay(RetryPolicy(), 1, retry_after=10.0) == 10.0


def test_a_longer_wait_ends_a_normal_policy_and_not_an_endless_one() -> None:
    assert delay(CALM, 1, retry_after=10.1) is None
    assert delay(ALWAYS, 1, retry_after=10.1) == 0.5
    assert (CALM.mode, ALWAYS.mode) == ("normal", "always")


def test_an_endless_policy_has_a_delay_for_any_attempt() -> None:
    assert delay(ALWAYS, 5000) == 10.0


@settings(deadline=None)
@given(st.integers(1, 100), st.floats(0, 1), st.randoms(use_true_random=False))
def test_jitter_stays_within_its_share_and_the_cap(n: int, jitter: float, rng: Random) -> None:
    policy = RetryPolicy(retries=None, jitter=jitter)
    exact = min(0.5 * 2 ** min(n - 1, 60), 10.0)
    made = policy.delay(ModelFailure("no", code="SERVER"), n, rng)
    assert made is not None
    assert exact * (1 - jitter) <= made <= min(exact * (1 + jitter), 10.0)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"retries": -1}, "retries must be 0 or more"),
        ({"attempts_per_step": 0}, "attempts_per_step must be 1 or more"),
        ({"jitter": 1.5}, "jitter must be from 0 to 1"),
        ({"base": -1}, "base and cap must be 0 or more"),
        ({"cap": -1}, "base and cap must be 0 or more"),
        ({"codes": "some"}, 'codes must be a set of codes or "all"'),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        RetryPolicy(**wrong)
