"""The vectors of `agent-hooks-sdk`, each through a whole agent.

Skipped are those of a capability that the host does not declare: mediating an answer piece by piece. The kit for
Python cannot be told what was released meanwhile, so that its own host does not declare it either. The count is printed
at the end of the test run.
"""

from __future__ import annotations

import pytest
from agent_hooks.ctk import load_vectors, run_vectors

from .interlock_host import InterlockHost

NOT_DECLARED = {"incremental_output"}


@pytest.fixture
def agent_hooks_harness() -> type[InterlockHost]:
    """What the kit's own fixture runs each vector against."""
    return InterlockHost


def test_vector(agent_hooks_assert: None) -> None:
    """One test a vector; the assertions are the kit's."""


def test_all_75_are_tried_and_none_that_is_declared_is_skipped() -> None:
    vectors = load_vectors()
    results = run_vectors(InterlockHost, vectors)
    skipped = {result.id for result in results if result.status == "skip"}
    assert skipped == {vector["id"] for vector in vectors if NOT_DECLARED & set(vector["capabilities"])}
    assert {result.id: result.failures for result in results if result.status == "fail"} == {}
    assert (len(results), len(skipped)) == (75, 4)
