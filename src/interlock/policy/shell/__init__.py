"""What a shell command would do, and whether the pattern of a `Bash(...)` rule covers it.

Lives here: nothing but the names. `analyse(command)` takes a command line apart, `command_matcher(pattern)` is asked
about each simple command of it. Pure functions of text: no rules, no files, no environment.

How a rule set combines them: deny if `catches`; ask if `may_catch` of a deny rule, or if an ask rule does either; allow
only if every command that is not `free` or `shadow` has an allow rule that `allows` it and `excuses` each of its doubts,
and nothing is in `unknown`. Paths are held to path rules as `PathUse` says.
"""

from __future__ import annotations

from interlock.policy.shell.analysing import analyse
from interlock.policy.shell.analysis import (
    Analysis,
    Assignment,
    Doubt,
    PathUse,
    Piece,
    SimpleCommand,
    View,
    Word,
)
from interlock.policy.shell.matcher import CommandMatcher, command_matcher

__all__ = [
    "Analysis",
    "Assignment",
    "CommandMatcher",
    "Doubt",
    "PathUse",
    "Piece",
    "SimpleCommand",
    "View",
    "Word",
    "analyse",
    "command_matcher",
]
