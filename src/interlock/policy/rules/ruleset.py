"""All rules in force, and what they say of a call.

Lives here: `RuleSet`. Deny beats ask, ask beats allow, over all sources; the order of rules and files decides only which
of them is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from interlock.policy.rules.action import Action
    from interlock.policy.rules.deciding import Decider
    from interlock.policy.rules.rule import Effect, Rule
    from interlock.policy.rules.ruling import Ruling
    from interlock.tools.subject import SubjectKind


class RuleSet:
    """Rules, and the folders that belong to the workspace beside it.

    `sources` are the files they came from, each with the digest of its bytes.
    """

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        additional: Iterable[Path] = (),
        sources: Iterable[tuple[str, str]] = (),
        home: Path | None = None,
    ) -> None:
        self.rules = tuple(rules)
        self.additional = tuple(additional)
        self.sources = tuple(sources)
        self._home = home
        if self.additional:
            _ = self._decider  # what their links lead to now is meant

    @cached_property
    def _decider(self) -> Decider:
        from interlock.policy.rules.deciding import Decider  # with all that it takes to read rules

        return Decider(self.rules, self.additional)

    @property
    def home(self) -> Path:
        """The folder that `~` stands for."""
        return self._home if self._home is not None else Path.home()

    @classmethod
    def of(
        cls,
        *,
        allow: Sequence[str] = (),
        ask: Sequence[str] = (),
        deny: Sequence[str] = (),
        anchor: str | Path = ".",
    ) -> Self:
        """Rules from lists. `anchor`: the folder that relative paths and `/path` are relative to.

        Raises:
            RuleError: something in a list is no rule.
        """
        from interlock.policy.rules.rule import Rule, RuleError

        folder = Path(anchor).absolute()
        lists: dict[Effect, Sequence[str]] = {"deny": deny, "ask": ask, "allow": allow}
        made: list[Rule] = []
        for effect, texts in lists.items():
            if isinstance(texts, str):
                raise RuleError(f"the rules to {effect} are a list, not one string: [{texts!r}]")
            made += [Rule.parse(effect, text, anchor=folder) for text in texts]
        return cls(made)

    def with_rules(self, rules: Iterable[Rule]) -> RuleSet:
        """These rules and more; folders and sources stay."""
        return RuleSet(
            (*self.rules, *rules), additional=self.additional, sources=self.sources, home=self._home
        )

    def and_(self, other: RuleSet) -> RuleSet:
        """Both: rules, folders and sources."""
        return RuleSet(
            self.rules + other.rules,
            additional=self.additional + other.additional,
            sources=self.sources + other.sources,
            home=self._home,
        )

    def decide(self, action: Action) -> Ruling:
        """What the rules say of a call. Reads nothing but the links of the paths in question."""
        return self._decider.decide(action, self.home)

    def hidden(self, tool: str, kind: SubjectKind | None = None) -> Rule | None:
        """The rule that denies every call of a tool, so that the model need not see it; None if none does.

        Args:
            kind: what the tool's calls are about, of a tool that is not in the box.
        """
        return self._decider.hidden(tool, kind) if self.rules else None

    def unreadable(self, path: str | Path, cwd: Path) -> Rule | None:
        """The rule that keeps a path from being read unasked, for tools that come upon paths which no call names."""
        return self._decider.unreadable(path, cwd, self.home) if self.rules else None
