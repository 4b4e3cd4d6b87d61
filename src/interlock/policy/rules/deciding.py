"""What the rules say of a call, whatever it is about.

Lives here: `Decider`, which hears a set of rules. It is made when a call is first heard, with all that reads paths and
addresses: most agents have no rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from interlock.policy.names import NARROWING, SUBJECTS
from interlock.policy.paths.characters import hidden_character
from interlock.policy.paths.located import Located, Root
from interlock.policy.paths.protected import protected_place
from interlock.policy.rules.action import Action
from interlock.policy.rules.domain import host_of
from interlock.policy.rules.hearing import Hearing
from interlock.policy.rules.matching import Entry, Index, Speaking
from interlock.policy.rules.places import Ground, allowing, forbidding, of_host
from interlock.policy.rules.rule import Rule
from interlock.policy.rules.ruling import Ruling
from interlock.tools.subject import SubjectKind


class Decider:
    """The rules, ready to be heard. `additional`: folders that belong to the workspace, links followed now."""

    def __init__(self, rules: tuple[Rule, ...], additional: Sequence[Path]) -> None:
        self._index = Index(rules)
        self._beside = tuple([Root.at(folder) for folder in additional])

    def decide(self, action: Action, home: Path) -> Ruling:
        speaking = self._index.of(action.tool, action.kind, harmless=action.harmless)
        hearing = Hearing()
        ground = Ground(action.cwd, str(home), self._beside, action.base)
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

    def hidden(self, tool: str, kind: SubjectKind | None) -> Rule | None:
        if kind is None and (subject := SUBJECTS.get(tool)) is not None:
            kind = subject.kind
        denied = self._index.of(tool, kind, harmless=False).deny
        return next((entry.rule for entry in denied if entry.whole), None)

    def unreadable(self, path: str | Path, cwd: Path, home: Path) -> Rule | None:
        speaking = self._index.of("", "read", harmless=True)
        entries = (*speaking.deny, *speaking.ask)
        if not entries:
            return None
        ground = Ground(cwd, str(home), self._beside)
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
