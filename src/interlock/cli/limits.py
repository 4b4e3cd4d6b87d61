"""Budgets as they are typed: `steps=30,tokens=100000,wall=300`.

Lives here: `budget_of`.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Any

from interlock.errors import ConfigError
from interlock.loop.budget import Budget

_WHOLE = ("steps", "requests", "tool_calls", "tokens", "forced")
_KEYS = (*_WHOLE, "wall")
_ONE_TOOL = "tool_calls:"


def budget_of(text: str) -> Budget:
    """The budget; `tool_calls:bash=3` limits one tool, `wall` is in seconds.

    Raises:
        ConfigError: an unknown or repeated limit, or a value that is no number.
    """
    limits: dict[str, Any] = {}
    tools: dict[str, int] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise ConfigError(f"--budget: {part.strip()!r} is no limit: write name=number, as in steps=30")
        into: dict[str, Any] = limits
        if name.startswith(_ONE_TOOL):
            into, name = tools, name.removeprefix(_ONE_TOOL)
        elif name not in _KEYS:
            near = get_close_matches(name, _KEYS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(_KEYS)}."
            raise ConfigError(f"--budget: there is no limit {name!r}. {hint}")
        if name in into:
            raise ConfigError(f"--budget: {name!r} is given twice")
        into[name] = _number(name, value)
    if tools:
        if "tool_calls" in limits:
            raise ConfigError("--budget: give tool_calls either a number in all, or one for each tool")
        limits["tool_calls"] = tools
    return Budget(**limits)


def _number(name: str, value: str) -> int | float:
    try:
        return float(value) if name == "wall" else int(value)
    except ValueError:
        kind = "seconds" if name == "wall" else "a whole number"
        raise ConfigError(f"--budget: {name} takes {kind}, not {value!r}") from None
