"""What is known while a command line is followed: variables, folders, functions.

Lives here: `State`, and `Steady`, which says of which variables anything can be known at all.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from interlock.policy.shell.analysis import Word

FOLDERS = 8  # that it may be in; with more of them it is not known


@dataclass(slots=True)
class State:
    """`folders`: where it may be, relative to where it began; None if that is not known."""

    variables: dict[str, tuple[Word, ...]] = field(default_factory=dict)
    folders: tuple[str, ...] | None = ("",)
    functions: frozenset[str] = frozenset()

    def copy(self) -> State:
        return State(dict(self.variables), self.folders, self.functions)

    def or_(self, other: State) -> State:
        """What is known if either may be the case."""
        same = {name: value for name, value in self.variables.items() if other.variables.get(name) == value}
        return State(same, either(self.folders, other.folders), self.functions & other.functions)


def either(one: tuple[str, ...] | None, other: tuple[str, ...] | None) -> tuple[str, ...] | None:
    if one is None or other is None:
        return None
    both = tuple(dict.fromkeys((*one, *other)))
    return both if len(both) <= FOLDERS else None


class Steady:
    """Which variables are assigned in one place only, by looking at the text."""

    def __init__(self, source: str) -> None:
        self._source = source

    def count(self, name: str) -> int:
        """How often the name stands in the text where it is not expanded."""
        plain = rf"(?<![$\w{{!#]){name}(?!\w)"
        assigning = rf"\$\{{{name}:?="
        return len(re.findall(plain, self._source)) + len(re.findall(assigning, self._source))

    def variable(self, name: str) -> bool:
        return self.count(name) == 1

    def untouched(self, name: str) -> bool:
        return self.count(name) == 0
