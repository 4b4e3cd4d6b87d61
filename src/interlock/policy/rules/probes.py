"""Calls that a rule is about, made up from its text.

Lives here: `probes`. Lint finds out by them which rules cover which: what decides every call that a rule is about
decides instead of it.
"""

from __future__ import annotations

import re
from pathlib import Path

from interlock.policy.names import AGENT_ARGUMENTS, AGENT_TOOLS, KIND_OF
from interlock.policy.rules.action import Action
from interlock.policy.rules.matching import PARAMETER
from interlock.policy.rules.rule import Rule, domain_of, kind_named

_FILLERS = ("qzxw", "jvkq")  # words that no rule is about
_CALLS = {"command": "{} {}", "read": "{}/{}", "edit": "{}/{}", "url": "https://{}.{}/"}
_TOOLS = {"Bash": "bash", "Read": "read", "Edit": "edit"}


def probes(rule: Rule, cwd: Path) -> list[Action]:
    """Two calls that the rule is about and that differ in all that it leaves open; none where that is not clear."""
    made = [_probe(rule, cwd, filler) for filler in _FILLERS]
    return [action for action in made if action is not None]


def _probe(rule: Rule, cwd: Path, filler: str) -> Action | None:
    tool = _TOOLS.get(rule.tool, rule.tool).replace("*", filler)
    kind = KIND_OF.get(rule.tool) or kind_named(rule.tool)
    if rule.whole:
        return Action.named(tool, _CALLS[kind].format(filler, filler) if kind else {}, cwd)
    specifier = rule.specifier
    assert specifier is not None
    match kind:
        case "command":
            if "[" in specifier:
                return None
            text = re.sub(r"(:\*| \*)$", " *", specifier)
            return Action.named(tool, text.replace("*", filler), cwd)
        case "read" | "edit":
            path = _path(specifier.strip(), rule, filler)
            return None if path is None else Action.named(tool, path, cwd)
        case "url":
            domain = domain_of(specifier)
            return (
                None
                if domain is None
                else Action.named(tool, f"https://{domain.strip().replace('*', filler)}/", cwd)
            )
        case None:
            found = PARAMETER.fullmatch(specifier)
            if found is not None:
                return Action.named(tool, {found["name"]: found["value"].replace("*", filler)}, cwd)
            if tool in AGENT_TOOLS:
                return Action.named(tool, {AGENT_ARGUMENTS[0]: specifier.replace("*", filler)}, cwd)
            return None


def _path(pattern: str, rule: Rule, filler: str) -> str | None:
    if any(c in pattern for c in "[\\"):
        return None
    filled = pattern.replace("**", f"{filler}/{filler}").replace("*", filler).replace("?", filler[0])
    if filled.endswith("/"):
        filled += filler
    if filled.startswith("//"):
        return "/" + filled.lstrip("/")
    if filled.startswith("~/"):
        return f"{rule.home}/{filled[2:]}"
    return f"{rule.anchor}{filled}" if filled.startswith("/") else filled
