"""Rules as a file would have them, one line each: `deny Bash(git push:*)`."""

from __future__ import annotations

from pathlib import Path

from interlock.policy.rules.rule import EFFECTS, Rule
from interlock.policy.rules.ruleset import RuleSet

HOME = Path("/home/ada")


def rule(line: str, cwd: Path, *, number: int = 1, file: str = "interlock.toml", home: Path = HOME) -> Rule:
    effect, _, text = line.strip().partition(" ")
    known = next(one for one in EFFECTS if one == effect)
    return Rule.parse(known, text, anchor=cwd, home=home, file=file, line=number, origin="project")


def rules(cwd: Path, *lines: str, home: Path = HOME) -> RuleSet:
    return RuleSet(
        [rule(line, cwd, number=number, home=home) for number, line in enumerate(lines, 1)], home=home
    )
