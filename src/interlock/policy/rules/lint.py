"""What whoever wrote a rule should know about it.

Lives here: `lint`. Each finding has the file and line of its rule. What is wrong beyond doubt is no finding but a
RuleError, and stops the start.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path

from interlock.policy.names import (
    AGENT_TOOLS,
    CLAUDE,
    ELSEWHERE,
    KINDS,
    OURS,
    SUBJECTS,
    UNCONSULTED,
    our_name,
)
from interlock.policy.rules.finding import Finding, FindingKind, Severity
from interlock.policy.rules.matching import ANCHORED, PARAMETER
from interlock.policy.rules.probes import probes
from interlock.policy.rules.rule import EFFECTS, Effect, Rule, domain_of, kind_named
from interlock.policy.rules.ruleset import RuleSet

_KNOWN = frozenset({*CLAUDE, *OURS, *KINDS.values(), *ELSEWHERE, *AGENT_TOOLS})


def lint(rules: RuleSet, cwd: Path, *, tools: Iterable[str] = ()) -> tuple[Finding, ...]:
    """Everything there is to say, in the order of the rules.

    Args:
        cwd: the workspace.
        tools: names of tools beside those in the box.
    """
    given = frozenset(tools)
    made: list[Finding] = []
    for rule in rules.rules:
        made += _alone(rule, given)
    made += _together(rules, cwd)
    made += _not_covered(rules)
    places: dict[tuple[str | None, int | None, str | None], int] = {}
    for place, rule in enumerate(rules.rules):
        places.setdefault((rule.file, rule.line, rule.text), place)
    return tuple(sorted(made, key=lambda found: places[found.file, found.line, found.rule]))


def _said(rule: Rule, kind: FindingKind, what: str, severity: Severity = "warning") -> Finding:
    return Finding(rule.file, rule.line, rule.text, kind, what, severity)


# One rule alone


def _alone(rule: Rule, tools: frozenset[str]) -> Iterator[Finding]:
    named, kind = rule.tool, kind_named(rule.tool)
    if rule.pattern:
        if rule.effect == "allow" and ANCHORED.fullmatch(named) is None:
            yield _said(
                rule,
                "unanchored",
                "it is left out: an allow rule may leave the tool open only behind a server, as mcp__server__get_*",
            )
        return
    if named.startswith("mcp__") or named in tools:
        pass
    elif named not in _KNOWN:
        yield _unknown(rule, tools)
        if kind is None:
            return
    elif named in ELSEWHERE - {*KINDS.values(), *AGENT_TOOLS, *UNCONSULTED}:
        yield _said(rule, "unknown-tool", f"no tool here is called {named}; it does nothing", "note")
    if not rule.whole:
        yield from _specified(rule)


def _unknown(rule: Rule, tools: frozenset[str]) -> Finding:
    known = sorted(_KNOWN | tools)
    same = [name for name in known if name.lower() == rule.tool.lower()]
    near = same or get_close_matches(rule.tool, known, n=1)
    hint = f"did you mean {near[0]}?" if near else "if it is a tool of your own, that is as it should be"
    return _said(
        rule, "unknown-tool", f"no tool is called {rule.tool}: {hint}", "warning" if near else "note"
    )


def _specified(rule: Rule) -> Iterator[Finding]:
    specifier, kind = rule.specifier or "", kind_named(rule.tool)
    parameter = PARAMETER.fullmatch(specifier)
    if rule.tool in UNCONSULTED:
        yield _said(
            rule,
            "unconsulted",
            f"it is never looked at: write {UNCONSULTED[rule.tool]}({specifier}), which covers {rule.tool} too",
        )
        return
    subject = SUBJECTS.get(our_name(rule.tool))
    if parameter is not None and subject is not None and parameter["name"] == subject.argument:
        yield _said(
            rule, "never", f"{subject.argument} is what {rule.tool} rules are about: write its value alone"
        )
    elif kind == "url" and domain_of(specifier) is None and (rule.effect == "allow" or parameter is None):
        yield _said(rule, "never", f"it matches nothing: write {rule.tool}(domain:example.com)")
    elif kind is None and rule.tool not in AGENT_TOOLS:
        if parameter is None and rule.tool.startswith("mcp__"):
            yield _said(
                rule, "never", f"it matches nothing: write {rule.tool}(parameter:value), or no parentheses"
            )
        elif parameter is not None and rule.effect == "allow":
            yield _said(rule, "never", "it allows nothing: parameters count in deny and ask only")
    if kind == "command" and ":*" in specifier.strip()[:-2]:
        yield _said(rule, "star", "`:*` is a wildcard only at the end; elsewhere write ` *`")
    if kind in ("read", "edit"):
        if (
            rule.origin == "user"
            and specifier.strip().startswith("/")
            and not specifier.strip().startswith("//")
        ):
            whole = specifier.strip()
            yield _said(
                rule,
                "anchor",
                f"{whole} begins in {rule.anchor}: write /{whole} for the root of the file system, ~{whole} for home",
            )
        if rule.tool in CLAUDE and rule.effect != "allow":
            wide = KINDS[kind]
            yield _said(
                rule, "narrow", f"it is about the tool {rule.tool} alone: {wide}({specifier}) is about all"
            )


# Rules beside each other


def _together(rules: RuleSet, cwd: Path) -> Iterator[Finding]:
    seen: dict[tuple[str, str, Path], Rule] = {}
    strict = {
        effect: RuleSet([rule for rule in rules.rules if rule.effect == effect], home=rules.home)
        for effect in EFFECTS
    }
    alike = _Alike(rules)
    for rule in rules.rules:
        key = (rule.effect, rule.text, rule.anchor)
        first = seen.setdefault(key, rule)
        if first is not rule:
            yield _said(rule, "duplicate", f"it is at {first.where} already", "note")
            continue
        if rule.pattern and rule.effect == "allow":
            continue
        tried = probes(rule, cwd)
        if not tried:
            continue
        for effect in reversed(EFFECTS[EFFECTS.index(rule.effect) :]):
            beside = strict[effect] if effect != rule.effect else alike.of(rule)
            found = [set(beside.decide(action).matched) for action in tried]
            covering = set.intersection(*found) - {rule}
            other = next((one for one in beside.rules if one in covering), None)
            if other is None:
                continue
            if effect != rule.effect:
                yield _said(rule, "shadowed", f"it is never decisive: {other} covers all of it")
            elif other.text != rule.text and not _mutual(rule, other, beside, cwd):
                yield _said(rule, "redundant", f"{other} covers all of it", "note")
            break


class _Alike:
    """Rules of one effect that may cover each other. Lists that allow are long: those for commands are told apart by
    their first word, or comparing each with each would be felt at every start."""

    def __init__(self, rules: RuleSet) -> None:
        self._home = rules.home
        self._words = [(rule, _first_word(rule)) for rule in rules.rules]
        self._made: dict[tuple[Effect, str | None], RuleSet] = {}

    def of(self, rule: Rule) -> RuleSet:
        word = _first_word(rule)
        key = rule.effect, word
        if key not in self._made:
            beside = [
                other
                for other, first in self._words
                if other.effect == rule.effect and (word is None or first is None or first == word)
            ]
            self._made[key] = RuleSet(beside, home=self._home)
        return self._made[key]


def _first_word(rule: Rule) -> str | None:
    """Of the command that an allow rule names; None if that is not all there is to say."""
    if rule.effect != "allow" or rule.whole or kind_named(rule.tool) != "command":
        return None
    word = re.split(r"[\s:]", (rule.specifier or "").strip(), maxsplit=1)[0]
    return word if re.fullmatch(r"[\w.+-]+", word) else None


def _mutual(rule: Rule, other: Rule, rules: RuleSet, cwd: Path) -> bool:
    """Whether two rules cover each other, and the one that is named first is this one."""
    back = probes(other, cwd)
    both = bool(back) and all(rule in rules.decide(action).matched for action in back)
    return both and rules.rules.index(rule) < rules.rules.index(other)


_SHELL_READS = (
    "shell commands that are known to read a file are held to it; programs that are not known, code that they run, and "
    "searches through a folder get around it. Only the sandbox hides a file"
)
_SHELL_WRITES = (
    "redirections and commands that are known to write are held to it; programs that are not known and code that they "
    "run get around it. Only the sandbox keeps a file as it is"
)


def _not_covered(rules: RuleSet) -> Iterator[Finding]:
    """Said once for each kind: what path rules cannot see."""
    if rules.hidden("bash") is not None:
        return
    for kind, what in (("read", _SHELL_READS), ("edit", _SHELL_WRITES)):
        for rule in rules.rules:
            if rule.effect != "allow" and not rule.whole and rule.tool == KINDS[kind]:  # type: ignore[index]  # kinds
                yield _said(rule, "not-covered", what, "note")
                break
