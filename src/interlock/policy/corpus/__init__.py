"""A measured corpus: what agents type, and what people type who want to get around a rule.

Lives here: `Corpus` (rules, and commands by kind), `harmless()`, `evasions()`, `measure`, which holds both against
whatever decides, and `measured`, which holds them against the rules of this package. The commands are in TOML files beside this module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

Answer = Literal["allow", "ask", "deny"] | None  # None: no rule speaks of it, so that a preset decides
Decide = Callable[["RuleLists", str], Answer]


class RuleLists(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Rules as people write them."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Corpus(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`commands`: by kind."""

    rules: RuleLists
    commands: dict[str, tuple[str, ...]]

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Kind and command."""
        for kind, commands in self.commands.items():
            for command in commands:
                yield kind, command

    def __len__(self) -> int:
        return sum(len(commands) for commands in self.commands.values())


@cache
def harmless() -> Corpus:
    """Commands that must not ask under a usual rule set."""
    return _read("harmless.toml")


@cache
def evasions() -> Corpus:
    """Commands that must be denied or asked about, though everything is allowed beside the rules that forbid."""
    return _read("evasions.toml")


def _read(name: str) -> Corpus:
    text = (files("interlock.policy.corpus") / name).read_text("utf-8")
    return msgspec.toml.decode(text, type=Corpus)


@dataclass(frozen=True, slots=True)
class Miss:
    """A command that was not answered as it must be."""

    corpus: Literal["harmless", "evasions"]
    kind: str
    command: str
    answer: Answer


@dataclass(frozen=True, slots=True)
class Measured:
    """How many commands were answered as they must be, of how many, and the others."""

    allowed: int
    harmless: int
    stopped: int
    denied: int  # of those stopped; the others ask
    evasions: int
    misses: tuple[Miss, ...]

    @property
    def rates(self) -> tuple[float, float]:
        """Harmless ones that do not ask, evasions that are stopped: each from 0 to 1."""
        return self.allowed / self.harmless, self.stopped / self.evasions


def measure(decide: Decide) -> Measured:
    """
    Args:
        decide: the answer to one command under these rules; the workspace is /work/project.
    """
    misses: list[Miss] = []
    denied = 0
    for kind, command in harmless():
        answer = decide(harmless().rules, command)
        if answer != "allow":
            misses.append(Miss("harmless", kind, command, answer))
    allowed = len(harmless()) - len(misses)
    asked = 0
    for kind, command in evasions():
        answer = decide(evasions().rules, command)
        denied += answer == "deny"
        asked += answer == "ask"
        if answer not in ("deny", "ask"):
            misses.append(Miss("evasions", kind, command, answer))
    return Measured(allowed, len(harmless()), denied + asked, denied, len(evasions()), tuple(misses))


def measured() -> Measured:
    """How the rules of this package answer."""
    from pathlib import Path

    from interlock.policy.rules.action import Action
    from interlock.policy.rules.ruleset import RuleSet

    workspace = Path("/work/project")  # need not exist: nothing runs
    made: dict[RuleLists, RuleSet] = {}

    def decided(lists: RuleLists, command: str) -> Answer:
        if lists not in made:
            made[lists] = RuleSet.of(allow=lists.allow, ask=lists.ask, deny=lists.deny, anchor=workspace)
        return made[lists].decide(Action.named("bash", command, workspace)).effect

    return measure(decided)
