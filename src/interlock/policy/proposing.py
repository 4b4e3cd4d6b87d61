"""The rule that would spare a person the same question: what "for this session" and "always" stand for.

Lives here: `propose`. It offers a rule only where that rule, alone, would let exactly such a call run; where there is
none, a person can only say yes for this once.
"""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import Rule, RuleError
from interlock.policy.rules.ruleset import RuleSet
from interlock.tools.call import ToolCall

#: Commands that a person means as a whole, whatever follows. They build, test and look; none of them
#: publishes or removes.
FAMILIES = (
    "cargo bench", "cargo build", "cargo check", "cargo clippy", "cargo fmt", "cargo test", "git add", "git blame",
    "git commit", "git diff", "git fetch", "git log", "git show", "git stash list", "git status",
    "go build", "go test", "go vet", "ls", "mypy", "npm run build", "npm run lint", "npm run test", "npm test",
    "pip list", "pip show", "pnpm test", "pytest", "python -m pytest", "python3 -m pytest", "ruff", "tox", "tsc",
    "uv run mypy", "uv run pytest", "uv run ruff", "yarn test",
)  # fmt: skip
_PATTERN = frozenset("*?[]\\!")  # a path with one of these would be more than itself as a rule
_LONGEST = 200  # characters of a rule: a person has to be able to read it


def propose(call: ToolCall) -> str | None:
    """A rule for calls like this one, as it would be written; None if there is none that would be heard."""
    action = Action.of(call)
    for text in _candidates(action):
        if len(text) <= _LONGEST and text.isprintable() and _spares(text, action):
            return text
    return None


def _candidates(action: Action) -> list[str]:
    subject = action.subject
    match action.kind:
        case None:
            return [action.tool]
        case "command" if subject is not None:
            from interlock.policy.shell import analyse  # with the parser

            if analyse(subject).doubts:  # a person looks at each of these
                return []
            words = " ".join(subject.split())
            wide = [f"Bash({one}:*)" for one in FAMILIES if words == one or words.startswith(f"{one} ")]
            return [*wide, *([] if "*" in subject else [f"Bash({subject.strip()})"])]
        case ("read" | "edit") as kind if subject is not None:
            path = Path(os.path.normpath(action.cwd / subject))
            if path == action.cwd or not path.is_relative_to(action.cwd):
                return []
            name = path.relative_to(action.cwd).as_posix()
            if _PATTERN.intersection(name) or name != name.strip():
                return []
            return [f"{kind.capitalize()}(/{name})"]
        case "url" if subject is not None:
            host = _host(subject)
            return [f"WebFetch(domain:{host})"] if host else []
        case _:
            return []


def _host(address: str) -> str | None:
    try:
        return urlsplit(address).hostname
    except ValueError:
        return None


def _spares(text: str, action: Action) -> bool:
    """Whether this rule alone allows the action."""
    try:
        rule = Rule.parse("allow", text, anchor=action.cwd)
    except RuleError:
        return False
    ruling = RuleSet([rule]).decide(action)
    return ruling.effect == "allow" and ruling.rule is rule
