"""Budgets as they are typed."""

from __future__ import annotations

import pytest

from interlock import Budget, ConfigError
from interlock.cli.limits import budget_of


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("steps=30", Budget(steps=30)),
        ("steps=30,tokens=100000,wall=1.5", Budget(steps=30, tokens=100_000, wall=1.5)),
        (" requests = 4 , forced=0", Budget(requests=4, forced=0)),
        ("tool_calls=9", Budget(tool_calls=9)),
        ("tool_calls:bash=3,tool_calls:read=0", Budget(tool_calls={"bash": 3, "read": 0})),
    ],
)
def test_limits_are_names_and_numbers(text: str, budget: Budget) -> None:
    assert budget_of(text) == budget


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("stps=3", "there is no limit 'stps'. Did you mean 'steps'?"),
        ("cost=3", "there is no limit 'cost'. There are steps,"),
        ("steps", "'steps' is no limit: write name=number"),
        ("", "'' is no limit"),
        ("steps=3,", "'' is no limit"),
        ("steps=many", "steps takes a whole number, not 'many'"),
        ("steps=1.5", "steps takes a whole number, not '1.5'"),
        ("wall=soon", "wall takes seconds, not 'soon'"),
        ("steps=1,steps=2", "'steps' is given twice"),
        ("tool_calls:bash=1,tool_calls:bash=2", "'bash' is given twice"),
        ("tool_calls=1,tool_calls:bash=2", "either a number in all, or one for each tool"),
        ("steps=-1", "steps is a whole number from 0, not -1"),
        ("wall=0", "wall is a number of seconds above 0"),
    ],
)
def test_a_limit_that_is_none_is_told(text: str, problem: str) -> None:
    with pytest.raises(ConfigError) as raised:
        budget_of(text)
    assert problem in str(raised.value)
