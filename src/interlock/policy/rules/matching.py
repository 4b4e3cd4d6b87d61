"""Which rules may speak of a tool, and whether one does.

Lives here: `Entry`, one rule made ready for one tool, and `Speaking`, all rules that may speak of it, sorted by effect.
Rules that forbid or ask are read widely, rules that allow exactly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interlock.policy.names import (
    AGENT_ARGUMENTS,
    AGENT_TOOLS,
    CLAUDE,
    KIND_OF,
    KINDS,
    UNCONSULTED,
    rule_names,
)
from interlock.policy.paths.located import folded_text
from interlock.policy.paths.pattern import PathPattern, path_pattern
from interlock.policy.rules.domain import domain_regex
from interlock.policy.rules.rule import Effect, Rule, domain_of
from interlock.tools.subject import SubjectKind

if TYPE_CHECKING:
    from interlock.policy.shell import CommandMatcher

#: An allow rule may leave a tool's name open only behind the literal name of a server.
ANCHORED = re.compile(r"mcp__[^*]*[^*_]__[^*]*\*.*", re.DOTALL)
PARAMETER = re.compile(r"\s*(?P<name>[A-Za-z_][\w.-]*)\s*:\s*(?P<value>.*?)\s*", re.DOTALL)
_FOLDED_KINDS: Mapping[str, SubjectKind] = {name.lower(): kind for name, kind in KIND_OF.items()}


@dataclass(frozen=True, slots=True)
class Parameter:
    """`Tool(name:value)`: a parameter of the call, and what its value has to be."""

    names: tuple[str, ...]
    value: re.Pattern[str]
    wide: bool

    def holds(self, arguments: Mapping[str, Any], subject: str | None) -> bool:
        """
        Args:
            subject: the name of the argument that the call is about; it is none of the parameters.
        """
        for name in self.names:
            text = _scalar(arguments.get(name, ...)) if name != subject else None
            if text is not None and self.value.fullmatch(folded_text(text) if self.wide else text):
                return True
        return False


@dataclass(frozen=True, slots=True)
class Entry:
    """A rule, ready for one tool. What is None is not looked at; `whole`: every call of it.

    order: its place among all rules.
    """

    rule: Rule
    order: int
    whole: bool = False
    command: CommandMatcher | None = None
    path: PathPattern | None = None
    domain: re.Pattern[str] | None = None
    parameter: Parameter | None = None

    @property
    def scoped(self) -> bool:
        return not self.whole


@dataclass(frozen=True, slots=True)
class Speaking:
    """The rules that may speak of one tool, in the order of their sources."""

    deny: tuple[Entry, ...] = ()
    ask: tuple[Entry, ...] = ()
    allow: tuple[Entry, ...] = ()

    @property
    def restrains(self) -> bool:
        """Whether something is denied or asked about for some calls and not for others."""
        return any(entry.scoped for entry in (*self.deny, *self.ask))


def speaking(rules: Iterable[Rule], tool: str, kind: SubjectKind | None, *, harmless: bool) -> Speaking:
    """The rules that may speak of a tool.

    Args:
        kind: what the tool's calls are about. harmless: it declares that it changes nothing.
    """
    made: dict[Effect, list[Entry]] = {"deny": [], "ask": [], "allow": []}
    for order, rule in enumerate(rules):
        if names_tool(rule, tool, kind, harmless=harmless):
            entry = _entry(rule, order, tool, kind)
            if entry is not None:
                made[rule.effect].append(entry)
    return Speaking(tuple(made["deny"]), tuple(made["ask"]), tuple(made["allow"]))


def names_tool(rule: Rule, tool: str, kind: SubjectKind | None, *, harmless: bool = True) -> bool:
    """Whether the tool of a rule is this one, or stands for it."""
    if rule.effect == "allow":
        return _names_exactly(rule.tool, tool, kind, harmless)
    return _names_widely(rule.tool, tool, kind)


def _names_exactly(named: str, tool: str, kind: SubjectKind | None, harmless: bool) -> bool:
    if "*" in named:
        return ANCHORED.fullmatch(named) is not None and _open(named).fullmatch(tool) is not None
    if named in rule_names(tool) or _of_server(named, tool):
        return True
    if kind is None or named != KINDS[kind]:
        return False
    # What may read, or fetch, is not by that allowed to do whatever else a tool of somebody's own does with a path.
    return kind in ("command", "edit") or harmless or tool in CLAUDE


def _names_widely(named: str, tool: str, kind: SubjectKind | None) -> bool:
    names = [name.lower() for name in rule_names(tool)]
    wanted = named.lower()
    if "*" in wanted:
        if kind is not None:
            names.append(KINDS[kind].lower())
        return any(_open(wanted).fullmatch(name) for name in names)
    if wanted in names or _of_server(wanted, tool.lower()):
        return True
    # Our own names stand for their tools alone; every other spelling of a kind's name stands for the kind.
    return kind is not None and named not in CLAUDE and _FOLDED_KINDS.get(wanted) == kind


def _of_server(named: str, tool: str) -> bool:
    """`mcp__server` stands for every tool of that server."""
    return named.startswith("mcp__") and tool.startswith(f"{named}__")


@lru_cache(maxsize=1024)
def _open(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join([re.escape(part) for part in pattern.split("*")]), re.DOTALL)


def _entry(rule: Rule, order: int, tool: str, kind: SubjectKind | None) -> Entry | None:
    """The rule for this tool; None if it can never match a call of it."""
    if rule.whole:
        return Entry(rule, order, whole=True)
    specifier = rule.specifier
    assert specifier is not None
    wide = rule.effect != "allow"
    command = path = domain = None
    if kind == "command":
        from interlock.policy.shell import command_matcher  # with the parser, wanted by few agents

        command = command_matcher(specifier)
    elif kind in ("read", "edit"):
        if rule.tool not in UNCONSULTED:
            path = _path(specifier, rule.anchor, rule.home, wide)
    elif kind == "url" and (host := domain_of(specifier)) is not None:
        try:
            domain = domain_regex(host)
        except ValueError:  # of a rule that names a tool of somebody's own: it was not known to be a domain
            domain = None
    parameter = _parameter(specifier, tool, wide, kind)
    if command is None and path is None and domain is None and parameter is None:
        return None
    return Entry(rule, order, False, command, path, domain, parameter)


@lru_cache(maxsize=4096)
def _path(specifier: str, anchor: Path, home: Path, wide: bool) -> PathPattern | None:
    try:
        return path_pattern(specifier, anchor=anchor, home=home, wide=wide)
    except ValueError:  # of a rule that names a tool of somebody's own: it was not known to be about paths
        return None


def _parameter(specifier: str, tool: str, wide: bool, kind: SubjectKind | None) -> Parameter | None:
    if kind is None and tool in AGENT_TOOLS and PARAMETER.fullmatch(specifier) is None:
        return Parameter(AGENT_ARGUMENTS, _value(specifier, wide), wide)
    found = PARAMETER.fullmatch(specifier)
    if found is None or not wide:
        return None
    # `Bash(timeout:*)` is about the command and `WebFetch(domain:x)` about the host, whatever parameters there are.
    if (kind == "command" and found["value"] == "*") or (kind == "url" and domain_of(specifier) is not None):
        return None
    return Parameter((found["name"],), _value(found["value"], wide), wide)


def _value(text: str, wide: bool) -> re.Pattern[str]:
    parts = [re.escape(folded_text(part) if wide else part) for part in text.strip().split("*")]
    return re.compile(".*".join(parts), re.DOTALL)


def _scalar(value: Any) -> str | None:
    """A parameter as text; None for a list, an object and what is left out."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return str(value) if isinstance(value, (int, float)) else None


@dataclass
class Index:
    """`Speaking` for each tool, made when it is first asked for."""

    rules: tuple[Rule, ...]
    _made: dict[tuple[str, SubjectKind | None, bool], Speaking] = field(default_factory=dict)

    def of(self, tool: str, kind: SubjectKind | None, *, harmless: bool) -> Speaking:
        key = (tool, kind, harmless)
        found = self._made.get(key)
        if found is None:
            if len(self._made) >= _REMEMBERED:
                self._made.clear()
            found = self._made[key] = speaking(self.rules, tool, kind, harmless=harmless)
        return found


_REMEMBERED = 1_000  # tools; there are a few, unless somebody makes up names
