"""Whether a call meets the `if` of a handler.

Lives here: `met`. An `if` is one permission rule, and is read as widely as a rule that denies: any part of a command
counts, and a command that cannot be understood is taken as meant. A hook that runs once too often harms less than one
that is left out.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from interlock.bridges.hooks.event import (
    Occurrence,
    PermissionRequest,
    PostToolUse,
    PostToolUseFailure,
    PreToolUse,
)
from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import Rule
from interlock.policy.rules.ruleset import RuleSet


def met(condition: str, occurrence: Occurrence) -> bool:
    """Whether the call that this is about is one that the rule speaks of.

    Raises:
        RuleError: it is no rule; whoever asks takes it as met.
    """
    what = occurrence.what
    if not isinstance(what, (PreToolUse, PermissionRequest, PostToolUse, PostToolUseFailure)):
        return False
    action = Action.named(what.tool, what.input, occurrence.cwd)
    ruling = _rules(condition, occurrence.project).decide(action)
    if ruling.effect == "deny":
        return True
    rule = _rules(condition, occurrence.project).rules[0]
    return ruling.effect == "ask" and action.kind == "command" and rule.tool in ("Bash", action.tool)


@lru_cache(maxsize=256)
def _rules(condition: str, project: Path) -> RuleSet:
    return RuleSet([Rule.parse("deny", condition, anchor=project)])
