"""What a person, a folder and a machine have set: rules, preset and other tables, from their files.

Lives here: `Settings`, everything that a command starts an agent from, and `load_rules`. One reading for all: a file that is wrong
anywhere stops the start, and nothing of it is in force.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

from interlock.policy.approvals.grants import Grants
from interlock.policy.ceiling import Ceiling, ceiling_of
from interlock.policy.policy import Policy
from interlock.policy.preset import PRESETS
from interlock.policy.rules.document import Document, read_document
from interlock.policy.rules.finding import Finding
from interlock.policy.rules.lint import lint
from interlock.policy.rules.rule import Rule, RuleError, place
from interlock.policy.rules.ruleset import RuleSet
from interlock.policy.rules.sources import read_all, rules_of
from interlock.tools.confinement import SandboxMode

DEFAULT = "ask"  # the preset of every command

_TABLES = ("permissions", "preset", "sandbox", "hooks")
#: Whose word counts first: a file that was named, then the nearest one.
_NEAREST = ("file", "local", "project", "user")


@dataclass(frozen=True, slots=True)
class Settings:
    """What holds for a workspace.

    rules: of all files. granted: what was allowed for always. findings: what lint says. documents: the files, whole.
    """

    cwd: Path
    rules: RuleSet
    granted: tuple[Rule, ...]
    findings: tuple[Finding, ...]
    documents: tuple[Document, ...]
    ceiling: Ceiling
    trusted: bool = True

    @classmethod
    def load(
        cls,
        cwd: str | Path,
        *,
        only: Sequence[Path] | None = None,
        trusted: bool = True,
        home: Path | None = None,
        ceiling: Ceiling | str | Path | None = None,
    ) -> Self:
        """Read everything that is written for a folder.

        Args:
            only: these files of rules, and no others.
            trusted: without it, the files in the folder may deny and ask, and what else they say is held back.

        Raises:
            ConfigError: a file cannot be used: which, where in it, and what to do. The ceiling may be one of them.
        """
        cwd, above = Path(cwd).expanduser().absolute(), ceiling_of(ceiling)
        if only is not None:
            documents = tuple([_needed(path) for path in only])
            rules = RuleSet(
                [rule for document in documents for rule in rules_of(document, anchor=cwd, home=home)],
                sources=[(document.shown, document.digest) for document in documents],
                home=home,
            )
            made = cls(cwd, rules, (), tuple(lint(rules, cwd)), documents, above)
        else:
            loaded = read_all(cwd, home=home, trusted=trusted)
            granted = [
                Rule.parse(
                    "allow",
                    grant.rule,
                    anchor=cwd,
                    home=home,
                    file=grant.file,
                    line=grant.line,
                    origin="grant",
                )
                for grant in Grants().load(cwd)
            ]
            made = cls(cwd, loaded.rules, tuple(granted), loaded.findings, loaded.documents, above, trusted)
        for document in made.documents:
            _known_tables(document)
        made.preset  # noqa: B018  # a wrong one is an error now, not when it is asked for
        return made

    @property
    def preset(self) -> str | None:
        """The preset that a file chooses, the nearest first.

        Raises:
            RuleError: there is none of that name.
        """
        found = self.table("preset")
        if found is None:
            return None
        document, name = found
        if not isinstance(name, str) or name not in PRESETS:
            raise RuleError(
                f"there is no preset {name!r}: choose one of {', '.join(PRESETS)}",
                file=document.shown,
                line=document.line_of("preset"),
            )
        return name

    def table(self, name: str) -> tuple[Document, Any] | None:
        """What the nearest file of ours says under a key, and that file. One in a folder that is not trusted says
        nothing but rules."""
        for origin in _NEAREST:
            if origin in ("local", "project") and not self.trusted:
                continue
            for document in self.documents:
                if document.is_toml and document.origin == origin and name in document.data:
                    return document, document.data[name]
        return None

    def held_back(self) -> list[str]:
        """What the files of a folder that is not trusted say in vain: a line each."""
        if self.trusted:
            return []
        said = [
            f"rule to allow {finding.rule} ({place(finding.file or '', finding.line)})"
            for finding in self.findings
            if finding.kind == "held-back"
        ]
        for document in self.documents:
            if document.origin not in ("project", "local"):
                continue
            key = "additional_directories" if document.is_toml else "additionalDirectories"
            if folders := document.data.get("permissions", {}).get(key):
                said.append(f"folders beside the workspace: {', '.join(folders)} ({document.shown})")
            if document.is_toml:
                said += [f"{key} ({document.shown})" for key in ("preset", "sandbox") if key in document.data]
        return said

    @property
    def effective(self) -> RuleSet:
        """The rules of the files, and what was allowed for always."""
        return self.rules.with_rules(self.granted)

    def policy(self, preset: str | None = None, sandbox: SandboxMode | None = None) -> Policy:
        """The policy of an agent here. preset: instead of what the files choose; `ask`, if nobody chooses.

        Raises:
            ConfigError: the ceiling does not permit it.
        """
        return Policy(self.effective, self.ceiling, preset=preset or self.preset or DEFAULT, sandbox=sandbox)


def _needed(path: Path) -> Document:
    document = read_document(path.absolute(), origin="file", shown=str(path))
    if document is None:
        raise RuleError("there is no such file: name one that is there", file=str(path))
    return document


def _known_tables(document: Document) -> None:
    """A key that nobody reads is a mistake in a file of ours; those of other programs have more."""
    if not document.is_toml:
        return
    for key in document.data:
        if key not in _TABLES:
            near = get_close_matches(key, _TABLES, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(_TABLES)}"
            raise RuleError(f"{key!r} is not a key: {hint}", file=document.shown, line=document.line_of(key))


def load_rules(cwd: str | Path) -> RuleSet:
    """The permission rules for a folder: of its files, of the person, and what was allowed for always.

    Raises:
        ConfigError: a file cannot be used; nothing of any of them is in force.
    """
    return Settings.load(cwd).effective
