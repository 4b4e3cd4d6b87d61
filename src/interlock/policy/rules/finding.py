"""Something about a rule that whoever wrote it should know.

Lives here: `Finding`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from interlock.policy.rules.rule import place

FindingKind: TypeAlias = Literal[
    "unknown-tool",  # no tool is called so
    "never",  # it can match no call
    "unconsulted",  # a path behind Write, Glob, NotebookEdit: Edit and Read rules cover those
    "unanchored",  # an allow rule that leaves the tool open
    "shadowed",  # a stricter rule covers everything it is about
    "redundant",  # another rule of its kind covers everything it is about
    "duplicate",  # it is there twice
    "narrow",  # it covers less than it seems to
    "star",  # `:*` before the end is no wildcard
    "anchor",  # its path begins elsewhere than it seems to
    "held-back",  # its folder is not trusted
    "not-covered",  # what gets around it
    "unknown-key",  # a key of another program that nobody here reads
]
Severity: TypeAlias = Literal["warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What is said of one rule, or of a file if `rule` is None. A mistake that stops the start is a RuleError instead."""

    file: str | None
    line: int | None
    rule: str | None
    kind: FindingKind
    what: str
    severity: Severity = "warning"

    def __str__(self) -> str:
        where = f"{place(self.file, self.line)}: " if self.file is not None else ""
        return f"{where}{self.severity}: {f'{self.rule}: ' if self.rule else ''}{self.what} [{self.kind}]"
