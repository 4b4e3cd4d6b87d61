"""How much a turn or a session may use, and whether it has.

Lives here: `Budget`, and `Meter`, which holds budgets against the counts of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import msgspec

from interlock.errors import ConfigError
from interlock.log.reasons import OverBudget
from interlock.log.session import Session
from interlock.log.strictjson import FrozenDict
from interlock.log.tally import Tally


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """Limits; those left out do not limit. Reaching one ends the turn with the reason `budget`.

    steps, requests (retries included), tokens (in and out): whole numbers. tool_calls: a number in all, or a mapping
    from tool names to numbers. wall: seconds of driving; it stands still while a person is asked. forced: how often a
    turn may be continued by listeners without a person. per: whether the counts start anew with each turn.
    """

    forced: int = 8
    steps: int | None = None
    requests: int | None = None
    tool_calls: int | Mapping[str, int] | None = None
    tokens: int | None = None
    wall: float | None = None
    per: Literal["turn", "session"] = "turn"

    def __post_init__(self) -> None:
        if self.per not in ("turn", "session"):
            raise ConfigError(f'per is "turn" or "session", not {self.per!r}')
        calls = self.tool_calls
        forced: object = self.forced
        if forced is None:
            raise ConfigError("budget: forced always has a limit; it is a whole number from 0")
        numbers = {
            "forced": self.forced,
            "steps": self.steps,
            "requests": self.requests,
            "tokens": self.tokens,
        }
        if isinstance(calls, Mapping):
            if not all(isinstance(name, str) for name in calls):
                raise ConfigError(f"budget: tool_calls names tools by their names, not {list(calls)!r}")
            msgspec.structs.force_setattr(self, "tool_calls", FrozenDict(calls))
            numbers |= {f"tool_calls[{name!r}]": limit for name, limit in calls.items()}
        else:
            numbers["tool_calls"] = calls
        for name, limit in numbers.items():
            given: object = limit
            if given is not None and (type(given) is not int or given < 0):
                raise ConfigError(f"budget: {name} is a whole number from 0, not {limit!r}")
        wall = self.wall
        if wall is not None and not (type(wall) in (int, float) and wall > 0):
            raise ConfigError(f"budget: wall is a number of seconds above 0, not {wall!r}")


class Meter:
    """Several budgets against one session's counts. Every question is constant work."""

    __slots__ = ("_budgets", "_session")

    def __init__(self, budgets: Iterable[Budget | None], session: Session) -> None:
        self._budgets = tuple(budget for budget in budgets if budget is not None)
        self._session = session

    @property
    def forced(self) -> int:
        """How often a turn may be continued without a person: the least of all budgets."""
        return min((budget.forced for budget in self._budgets), default=8)

    def _tally(self, budget: Budget) -> Tally:
        if budget.per == "session" or self._session.state.turn is None:
            return self._session.state.tally
        return self._session.state.turn.tally

    def before_step(self) -> OverBudget | None:
        """What forbids a further step, if anything does."""
        for budget in self._budgets:
            tally = self._tally(budget)
            if budget.steps is not None and tally.steps >= budget.steps:
                return OverBudget("steps", budget.steps, tally.steps)
        return self.before_request()

    def before_request(self) -> OverBudget | None:
        """What forbids a further attempt, if anything does."""
        for budget in self._budgets:
            tally = self._tally(budget)
            if budget.requests is not None and tally.requests >= budget.requests:
                return OverBudget("requests", budget.requests, tally.requests)
            if budget.tokens is not None and tally.tokens >= budget.tokens:
                return OverBudget("tokens", budget.tokens, tally.tokens)
            if budget.wall is not None and budget.per == "session" and tally.wall_ms >= budget.wall * 1000:
                return OverBudget("wall", budget.wall, tally.wall_ms / 1000)
        return None

    def before_call(self, name: str) -> OverBudget | None:
        """What forbids a further call of this tool, if anything does."""
        for budget in self._budgets:
            limit, tally = budget.tool_calls, self._tally(budget)
            if isinstance(limit, Mapping):
                of_tool = limit.get(name)
                if of_tool is not None and tally.tools.get(name, 0) >= of_tool:
                    return OverBudget(f"tool_calls:{name}", of_tool, tally.tools.get(name, 0))
            elif limit is not None and tally.tool_calls >= limit:
                return OverBudget("tool_calls", limit, tally.tool_calls)
        return None

    def wall_left(self) -> tuple[float, float] | None:
        """Seconds that the open turn may still be driven, and the limit they come from."""
        left: list[tuple[float, float]] = []
        state = self._session.state
        turn = state.turn.driven_ms(self._session.now()) if state.turn is not None else 0
        for budget in self._budgets:
            if budget.wall is not None:
                used = turn + (state.tally.wall_ms if budget.per == "session" else 0)
                left.append((budget.wall - used / 1000, budget.wall))
        return min(left, default=None)
