"""One permission rule, as it is written.

Lives here: `Rule`, its syntax (`Tool` or `Tool(specifier)`), and `RuleError`, which every mistake in rules and in the
files that hold them is raised as.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeAlias, assert_never, get_args

from interlock.errors import ConfigError
from interlock.policy.names import KIND_OF, OURS, SUBJECTS
from interlock.policy.paths.pattern import path_pattern
from interlock.policy.rules.domain import domain_regex
from interlock.tools.subject import SubjectKind

Effect: TypeAlias = Literal["allow", "ask", "deny"]
EFFECTS: tuple[Effect, ...] = get_args(Effect)

_RULE = re.compile(r"(?P<tool>[^\s()]+)(?:\((?P<specifier>.*)\))?", re.DOTALL)


class RuleError(ConfigError):
    """A rule, or a file that holds rules, cannot be used. Nothing of it is in force.

    `file` and `line` say where, as far as it is known; `problem` what is wrong, and what to do.
    """

    def __init__(self, problem: str, *, file: str | None = None, line: int | None = None) -> None:
        self.problem, self.file, self.line = problem, file, line
        super().__init__(f"{place(file, line)}: {problem}" if file is not None else problem)


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a list of rules.

    text: as written. tool: the name before the parenthesis, `*` in it is any characters. specifier: what is between
    the parentheses; None if the rule is about every call of the tool. anchor: the folder that `/path` is relative to.
    home: the folder that `~/path` is relative to. origin: project, local, user, file, ceiling, session, grant, given.
    """

    effect: Effect
    text: str
    tool: str
    specifier: str | None
    anchor: Path
    home: Path
    file: str | None = None
    line: int | None = None
    origin: str = "given"

    @classmethod
    def parse(
        cls,
        effect: Effect,
        text: str,
        *,
        anchor: Path,
        home: Path | None = None,
        file: str | None = None,
        line: int | None = None,
        origin: str = "given",
    ) -> Self:
        """
        Raises:
            RuleError: it is not a rule.
        """
        if effect not in EFFECTS:
            raise RuleError(
                f"a rule allows, asks or denies; {effect!r} is none of them", file=file, line=line
            )
        written = text.strip()
        found = _RULE.fullmatch(written)
        if found is None:
            raise RuleError(
                f"{text!r} is not a rule: write Tool, or Tool(specifier), for example Bash(git log:*)",
                file=file,
                line=line,
            )
        specifier = found["specifier"]
        if specifier is not None and not specifier.strip():
            raise RuleError(
                f"{text!r} has nothing between its parentheses: leave them out, or say what it is about",
                file=file,
                line=line,
            )
        anchor, home = anchor.absolute(), (home or Path.home()).absolute()
        if specifier is not None:
            try:
                _check(kind_named(found["tool"]), specifier, anchor, home)
            except ValueError as error:
                raise RuleError(f"{written}: {error}", file=file, line=line) from None
        return cls(
            effect=effect,
            text=written,
            tool=found["tool"],
            specifier=specifier,
            anchor=anchor,
            home=home,
            file=file,
            line=line,
            origin=origin,
        )

    @property
    def whole(self) -> bool:
        """Whether it speaks of every call of its tool. `Bash(*)` does; `Read(*)` is about paths."""
        if self.specifier is None:
            return True
        return self.specifier.strip() in ("*", ":*") and kind_named(self.tool) not in ("read", "edit")

    @property
    def pattern(self) -> bool:
        """Whether its tool is a pattern."""
        return "*" in self.tool

    @property
    def where(self) -> str:
        """Where it is written: `interlock.toml:4`, or its origin."""
        return place(self.file, self.line) if self.file is not None else self.origin

    def __str__(self) -> str:
        return f"{self.effect} {self.text} ({self.where})"


def kind_named(tool: str) -> SubjectKind | None:
    """What a rule with this tool is about, as far as its name says: `Bash` and `bash` of commands."""
    if (kind := KIND_OF.get(tool)) is not None:
        return kind
    subject = SUBJECTS.get(OURS.get(tool, tool))
    return subject.kind if subject is not None else None


def _check(kind: SubjectKind | None, specifier: str, anchor: Path, home: Path) -> None:
    """
    Raises:
        ValueError: it is no specifier for such a tool.
    """
    match kind:
        case "read" | "edit":
            path_pattern(specifier, anchor=anchor, home=home, wide=False)
        case "url":
            if (domain := domain_of(specifier)) is not None:
                domain_regex(domain)
        case "command" | None:
            pass
        case _:
            assert_never(kind)


def domain_of(specifier: str) -> str | None:
    """The pattern behind `domain:`; None if the specifier does not begin so."""
    name, colon, domain = specifier.partition(":")
    return domain if colon and name.strip().lower() == "domain" else None


def place(file: str | None, line: int | None) -> str:
    return f"{file}:{line}" if line is not None else f"{file}"
