"""All rules in force, and what they say of a call.

Lives here: `RuleSet`. Deny beats ask, ask beats allow, over all sources; the order of rules and files decides only which
of them is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath
from typing import Self

from interlock.policy.names import NARROWING, SUBJECTS
from interlock.policy.paths.characters import hidden_character
from interlock.policy.paths.located import Located, Root
from interlock.policy.paths.protected import protected_place
from interlock.policy.rules.action import Action
from interlock.policy.rules.domain import host_of
from interlock.policy.rules.hearing import Hearing
from interlock.policy.rules.matching import Entry, Index, Speaking
from interlock.policy.rules.places import Ground, allowing, forbidding, of_host
from interlock.policy.rules.rule import Effect, Rule, RuleError
from interlock.policy.rules.ruling import Part, Ruling
from interlock.tools.subject import SubjectKind

__all__ = ["Part", "RuleSet", "Ruling"]


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
        self._index = Index(self.rules)
        self._beside = tuple([Root.at(folder) for folder in self.additional])

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
        speaking = self._index.of(action.tool, action.kind, harmless=action.harmless)
        hearing = Hearing()
        ground = Ground(action.cwd, str(self.home), self._beside, action.base)
        match action.kind, action.subject:
            case "command", str(command):
                from interlock.policy.rules.commands import look_at_command  # with the parser

                look_at_command(command, action, speaking, self._index, ground, hearing)
            case ("read" | "edit") as kind, str(path):
                self._path(path, kind, action, speaking, ground, hearing)
            case "url", str(url):
                _address(url, action, speaking, hearing)
            case _:
                _call(action, speaking, hearing)
        return hearing.ruling()

    def hidden(self, tool: str, kind: SubjectKind | None = None) -> Rule | None:
        """The rule that denies every call of a tool, so that the model need not see it; None if none does.

        Args:
            kind: what the tool's calls are about, of a tool that is not in the box.
        """
        if kind is None and (subject := SUBJECTS.get(tool)) is not None:
            kind = subject.kind
        denied = self._index.of(tool, kind, harmless=False).deny
        return next((entry.rule for entry in denied if entry.whole), None)

    def unreadable(self, path: str | Path, cwd: Path) -> Rule | None:
        """The rule that keeps a path from being read unasked, for tools that come upon paths which no call names."""
        speaking = self._index.of("", "read", harmless=True)
        entries = (*speaking.deny, *speaking.ask)
        if not entries:
            return None
        ground = Ground(cwd, str(self.home), self._beside)
        found = forbidding(entries, ground.locate(str(path)), ground)
        return found[0].rule if found else None

    def _path(
        self,
        path: str,
        kind: SubjectKind,
        action: Action,
        speaking: Speaking,
        ground: Ground,
        hearing: Hearing,
    ) -> None:
        located = ground.locate(path)
        places = [located, *[ground.locate(other) for other in _narrowed(action, path)]]
        denials = speaking.deny
        if kind == "edit":  # what may not be read may not be written either
            denials += tuple([e for e in self._index.of("", "read", harmless=True).deny if not e.whole])
        hearing.part(
            "edit" if kind == "edit" else "read",
            path,
            deny=_matching(denials, action, places, ground),
            ask=_matching(speaking.ask, action, places, ground),
            allow=allowing(speaking.allow, located, ground),
            needs=f"no rule speaks of {action.tool} {path}",
        )
        if not located.certain and speaking.restrains:
            hearing.caution(path, f"what {path} leads to cannot be known")
        _look_closely(path, hearing)
        if kind == "edit" and (why := protected_place(located, ground.root)) is not None:
            hearing.caution(path, why)


def _matching(
    entries: Iterable[Entry], action: Action, places: Iterable[Located], ground: Ground
) -> list[Entry]:
    entries = tuple(entries)
    found = {entry.order: entry for entry in entries if _of_call(entry, action)}
    for located in places:
        found.update({entry.order: entry for entry in forbidding(entries, located, ground)})
    return list(found.values())


def _address(url: str, action: Action, speaking: Speaking, hearing: Hearing) -> None:
    host = host_of(url)
    deny, ask, allow = (
        [entry for entry in entries if _of_call(entry, action)] + of_host(entries, host)
        for entries in (speaking.deny, speaking.ask, speaking.allow)
    )
    hearing.part("url", url, deny=deny, ask=ask, allow=allow, needs=f"no rule speaks of {action.tool} {url}")
    if host is None and (speaking.restrains or allow):
        hearing.caution(url, f"which host {url} means is not certain")
    _look_closely(url, hearing)


def _call(action: Action, speaking: Speaking, hearing: Hearing) -> None:
    """A call that is about nothing in particular."""
    deny, ask, allow = (
        [entry for entry in entries if _of_call(entry, action)]
        for entries in (speaking.deny, speaking.ask, speaking.allow)
    )
    hearing.part(
        "tool", action.tool, deny=deny, ask=ask, allow=allow, needs=f"no rule speaks of {action.tool}"
    )


def _of_call(entry: Entry, action: Action) -> bool:
    """Whether the rule is about every call, or about the parameters of this one."""
    if entry.whole:
        return True
    return entry.parameter is not None and entry.parameter.holds(action.arguments, action.argument)


def _narrowed(action: Action, path: str) -> list[str]:
    """The one file that a search is narrowed to by its other argument, if that is a plain name."""
    narrowing = action.arguments.get(NARROWING.get(action.tool, ""))
    if not isinstance(narrowing, str):
        return []
    name = PurePosixPath(narrowing).name
    return [f"{path}/{name}"] if name and not any(c in name for c in "*?[{") else []


def _look_closely(text: str, hearing: Hearing) -> None:
    if (why := hidden_character(text)) is not None:
        hearing.caution(text, f"{text!r} cannot be read for certain: {why}")
