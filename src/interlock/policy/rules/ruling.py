"""What the rules say of one call, with everything that was looked at.

Lives here: `Ruling` and its `Part`s. Plain data: what is shown, logged and explained is taken from here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from interlock.policy.rules.rule import Effect, Rule

PartKind: TypeAlias = Literal["tool", "command", "read", "edit", "url", "doubt"]


@dataclass(frozen=True, slots=True)
class Part:
    """One thing that was looked at: a simple command, a path, an address, the call itself, or a doubt.

    effect: None if no rule speaks of it. rule: the first that decides, if a rule does. why: in words.
    """

    kind: PartKind
    text: str
    effect: Effect | None
    rule: Rule | None
    why: str


@dataclass(frozen=True, slots=True)
class Ruling:
    """What the rules say.

    effect: None if no rule speaks. rule: the first of those that decide. An `ask` without a rule is a caution: nobody
    asked for it by name, but something here may not be approved without a person (a protected path, a command that
    cannot be understood); whoever has a stricter default keeps it. reason: in words, for model and person. matched:
    every rule that matched, those that decide first.
    """

    effect: Effect | None
    rule: Rule | None
    reason: str
    parts: tuple[Part, ...] = ()
    matched: tuple[Rule, ...] = ()

    @property
    def cautious(self) -> bool:
        return self.effect == "ask" and self.rule is None
