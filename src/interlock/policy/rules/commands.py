"""What rules say of a shell command.

Lives here: `look_at_command`, which holds every simple command, path and address of a command line to the rules. Every
command needs a rule that allows it, any of them may be denied; what cannot be understood asks.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from interlock.policy.paths.located import Located, folded, folded_text
from interlock.policy.paths.protected import DEVICES, NAMES, protected_below, protected_place
from interlock.policy.rules.action import Action
from interlock.policy.rules.domain import host_of
from interlock.policy.rules.hearing import Hearing
from interlock.policy.rules.matching import Entry, Index, Speaking
from interlock.policy.rules.places import Ground, Reach, allowing, forbidding, of_host, reached
from interlock.policy.rules.ruling import PartKind
from interlock.policy.shell import (
    Analysis,
    CommandMatcher,
    Doubt,
    PathUse,
    SimpleCommand,
    analyse,
    command_matcher,
)

#: Folders for what is thrown away: a blanket `Bash` may write there.
SCRATCH = ("/tmp", "/var/tmp", "/private/tmp")

_BLANKET = command_matcher("*")
_WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class _Rules:
    """The rules that may speak of the parts of a command."""

    deny: tuple[Entry, ...]  # about commands
    ask: tuple[Entry, ...]
    allow: tuple[tuple[Entry, CommandMatcher], ...]
    read: Speaking
    edit: Speaking
    url: Speaking
    restrains: bool  # something is forbidden or asked about, so that a command may try to get around it

    @property
    def blanket(self) -> list[Entry]:
        return [entry for entry, matcher in self.allow if matcher.blanket]


def look_at_command(
    command: str, action: Action, speaking: Speaking, index: Index, ground: Ground, hearing: Hearing
) -> None:
    """Hold a command line to the rules, part by part."""
    _whole(action, speaking, hearing)
    read, edit, url = (
        index.of("", "read", harmless=True),
        index.of("", "edit", harmless=False),
        index.of("", "url", harmless=True),
    )
    rules = _Rules(
        deny=tuple([entry for entry in speaking.deny if entry.command is not None]),
        ask=tuple([entry for entry in speaking.ask if entry.command is not None]),
        allow=tuple(
            [
                (entry, _BLANKET if entry.command is None else entry.command)
                for entry in speaking.allow
                if entry.whole or entry.command is not None
            ]
        ),
        read=read,
        edit=edit,
        url=url,
        restrains=speaking.restrains or any(s.deny or s.ask for s in (read, edit, url)),
    )
    analysis = analyse(command)
    looking = _Looking(rules, ground, hearing)
    for doubt in analysis.unknown:
        looking.doubt(doubt, command, doubt.reason, told=bool(rules.allow))
    looking.look(command, analysis)


def _whole(action: Action, speaking: Speaking, hearing: Hearing) -> None:
    """Rules about the call as such: every call of the tool, or one with some parameter."""
    deny, ask = (
        [
            entry
            for entry in entries
            if entry.whole
            or (entry.parameter is not None and entry.parameter.holds(action.arguments, action.argument))
        ]
        for entries in (speaking.deny, speaking.ask)
    )
    if deny or ask:
        hearing.part("tool", action.tool, deny=deny, ask=ask)


@dataclass(frozen=True, slots=True)
class _Looking:
    rules: _Rules
    ground: Ground
    hearing: Hearing

    def look(self, command_line: str, analysis: Analysis) -> None:
        if not (analysis.commands or analysis.paths or analysis.unknown):
            self.hearing.part("command", command_line, else_="it runs nothing")
        for command in analysis.commands:
            allow = self._command(command)
            # What is moved keeps its name, and with it the rules for that name at any depth.
            written = {path for use in command.paths if use.access == "write" for path in use.paths}
            for use in command.paths:
                self._path(use, allow, stays=use.access == "write" or written.issuperset(use.paths))
            for url in command.urls:
                self._url(url)
        blanket = [(entry, matcher) for entry, matcher in self.rules.allow if matcher.blanket]
        for use in analysis.paths:
            self._path(use, blanket, stays=use.access == "write")

    def _command(self, command: SimpleCommand) -> list[tuple[Entry, CommandMatcher]]:
        """The rules that allow it, with their matchers."""
        rules, hearing = self.rules, self.hearing
        allow = [(entry, matcher) for entry, matcher in rules.allow if matcher.allows(command)]
        deny = [entry for entry in rules.deny if entry.command and entry.command.catches(command)]
        ask = [entry for entry in rules.ask if entry.command and entry.command.catches(command)]
        needs = None
        if not (command.free or command.shadow):
            needs = f"no rule speaks of `{command.text}`"
        hearing.part(
            "command",
            command.text,
            deny=deny,
            ask=ask,
            allow=[entry for entry, _ in allow],
            needs=needs,
            else_="it needs no rule",
        )
        certain = {entry.order for entry in (*deny, *ask)}
        for entry in (*rules.deny, *rules.ask):
            if entry.order not in certain and entry.command and entry.command.may_catch(command):
                hearing.caution(
                    command.text,
                    f"`{command.text}` may be what {entry.rule.text} ({entry.rule.where}) is about: "
                    "what it runs is not known in full",
                )
        for doubt in command.doubts:
            if self._settled(doubt):
                continue
            if not any(matcher.excuses(doubt, command) for _, matcher in allow):
                self.doubt(doubt, command.text, f"`{command.text}`: {doubt.reason}", told=bool(allow))
        return allow

    def _settled(self, doubt: Doubt) -> bool:
        """Whether what it is about is the workspace's own after all."""
        if doubt.path is None:
            return False
        located = self._locate(doubt.path)
        if not self.ground.inside(located):
            return False
        return not doubt.installed or any(map(os.path.isfile, located.paths))

    def doubt(self, doubt: Doubt, text: str, why: str, *, told: bool) -> None:
        """A doubt asks where something could get around a rule by it, or a rule would allow it (`told`)."""
        if told or self.rules.restrains or doubt.kind in ("characters", "critical"):
            self.hearing.caution(text, why)
        else:
            self.hearing.part("doubt", text, needs=why)

    # Paths

    def _path(self, use: PathUse, allow: Sequence[tuple[Entry, CommandMatcher]], *, stays: bool) -> None:
        if use.access == "enter":
            self._enter(use)
            return
        if not use.unknown and use.paths and all(path in DEVICES for path in use.paths):
            return
        if use.by == "named":
            self._named(use)
            return
        shown = " or ".join(use.paths) or "a path that is not known"
        speaking = self.rules.edit if use.access == "write" else self.rules.read
        kind: PartKind = "edit" if use.access == "write" else "read"
        denials, asking = list(speaking.deny), list(speaking.ask)
        if use.access == "write":
            denials += [entry for entry in self.rules.read.deny if not entry.whole]
        places = [self._locate(path) for path in use.paths if not _is_glob(use, path)]
        # What covers the folder before a pattern covers whatever the pattern stands for.
        looked = [*places, *[self._locate(_plain_part(path)) for path in use.paths if _is_glob(use, path)]]
        deny, ask = self._forbidding(denials, looked), self._forbidding(asking, looked)
        needs = self._needs(use, allow, shown) if use.access == "write" else None
        granted: list[Entry] = []
        if needs is not None and len(places) == len(use.paths) and not use.unknown:
            granted = self._granting(places)
        self.hearing.part(
            kind,
            shown,
            deny=deny,
            ask=ask,
            allow=granted,
            needs=needs,
            else_="nothing forbids it",
        )
        certain = {entry.order for entry in (*deny, *ask)}
        self._reach(
            use, [e for e in (*speaking.deny, *speaking.ask) if e.order not in certain], shown, stays=stays
        )
        if use.access == "write":
            self._protected(use, places, shown)

    def _named(self, use: PathUse) -> None:
        """Ask where a word that may be a file names one that must not be read."""
        entries = [e for e in (*self.rules.read.deny, *self.rules.read.ask) if e.path is not None]
        if not entries:
            return
        places = [self._locate(_plain_part(path) if _is_glob(use, path) else path) for path in use.paths]
        shown = " or ".join(use.paths)
        if met := self._forbidding(entries, places):
            rule = met[0].rule
            self.hearing.caution(shown, f"{rule.text} ({rule.where}) is about {shown}, which may be read")
        elif use.glob:
            self._reach(use, entries, shown, stays=False)

    def _locate(self, path: str) -> Located:
        return self.ground.locate(path, shell=True)

    def _forbidding(self, entries: Sequence[Entry], places: Sequence[Located]) -> list[Entry]:
        found = {entry.order: entry for entry in entries if entry.whole}
        for located in places:
            found.update({entry.order: entry for entry in forbidding(entries, located, self.ground)})
        return list(found.values())

    def _needs(self, use: PathUse, allow: Sequence[tuple[Entry, CommandMatcher]], shown: str) -> str | None:
        """Why a write needs a rule of its own; None if what allows the command is enough."""
        if use.by == "operand" or any(matcher.covers(use) for _, matcher in allow):
            return None
        if any(matcher.blanket for _, matcher in allow) and self._at_home(use):
            return None
        return f"no rule allows to write {shown}"

    def _at_home(self, use: PathUse) -> bool:
        """Whether a write stays in the workspace, or in a folder for what is thrown away."""
        if use.unknown or not use.paths:
            return False
        for path in use.paths:
            located = self._locate(_plain_part(path) if use.glob else path)
            if not self.ground.inside(located) and not (
                located.certain and all(map(_scratch, located.paths))
            ):
                return False
        return True

    def _granting(self, places: Sequence[Located]) -> list[Entry]:
        """Edit rules that together allow every place."""
        found: dict[int, Entry] = {}
        for located in places:
            covering = allowing(self.rules.edit.allow, located, self.ground)
            if not covering:
                return []
            found.update({entry.order: entry for entry in covering})
        return list(found.values())

    def _reach(self, use: PathUse, entries: Sequence[Entry], shown: str, *, stays: bool) -> None:
        """Ask where a rule that forbids or asks may be met, though that is not certain."""
        scoped = [entry for entry in entries if entry.path is not None]
        met = scoped[:1] if use.unknown or not use.paths else []
        for path in use.paths if scoped and not met else ():
            glob = _is_glob(use, path)
            plain = _plain_part(path) if glob else path
            located = self._locate(plain)
            if not located.certain:
                met = scoped
            elif glob or use.tree:
                rest = path[len(plain) :]
                reach = Reach(
                    tuple(
                        [folded_text(f"{one.rstrip('/')}/{rest}" if rest else one) for one in located.paths]
                    ),
                    glob=glob,
                    below=use.tree and not os.path.isfile(located.real),
                    stays=stays,
                )
                met = reached(scoped, reach, self.ground)
            if met:
                break
        if met:
            rule = met[0].rule
            verb = "written" if use.access == "write" else "read"
            self.hearing.caution(
                shown, f"{rule.text} ({rule.where}) may be about what is {verb} by way of {shown}"
            )

    def _protected(self, use: PathUse, places: Sequence[Located], shown: str) -> None:
        if use.unknown or not use.paths:
            if use.by != "operand":
                self.hearing.caution(shown, "where it writes is not known")
            return
        for located in places:
            why = protected_place(located, self.ground.root)
            if why is None and not located.certain:
                why = f"what {shown} leads to cannot be known"
            if why is not None:
                self.hearing.caution(shown, why)
        for path in use.paths:
            if _is_glob(use, path):
                why = protected_place(self._locate(_plain_part(path)), self.ground.root)
                why = why or _glob_protected(path)
                if why is not None:
                    self.hearing.caution(path, why)
            if use.tree:
                for name in self._locate(_plain_part(path) if use.glob else path).paths:
                    if (why := protected_below(name, self.ground.root, self.ground.home)) is not None:
                        self.hearing.caution(path, why)
                        break

    def _enter(self, use: PathUse) -> None:
        """Other rules are meant for the workspace: what runs in another folder may be something else."""
        if self.rules.blanket:
            return
        places = [self._locate(path) for path in use.paths]
        if use.unknown or use.glob or not places or not all(map(self.ground.inside, places)):
            shown = " or ".join(use.paths) or "a folder that is not known"
            if self.rules.allow or self.rules.restrains:
                self.hearing.caution(shown, f"what follows runs in {shown}, outside the workspace")

    # Addresses

    def _url(self, url: str) -> None:
        speaking = self.rules.url
        host = host_of(url)
        deny, ask = (
            [entry for entry in entries if entry.whole] + of_host(entries, host)
            for entries in (speaking.deny, speaking.ask)
        )
        if deny or ask:
            self.hearing.part("url", url, deny=deny, ask=ask)
        elif host is None and speaking.restrains:
            self.hearing.caution(url, f"which host {url} means is not certain")


def _is_glob(use: PathUse, path: str) -> bool:
    return use.glob and not _WILD.isdisjoint(path)


def _plain_part(path: str) -> str:
    """The folder before the first name that is a pattern."""
    names = path.split("/")
    for at, name in enumerate(names):
        if not _WILD.isdisjoint(name):
            return "/".join(names[:at]) + ("/" if at else "")
    return path


def _scratch(path: str) -> bool:
    return any(path.startswith(folder + "/") for folder in SCRATCH)


def _glob_protected(path: str) -> str | None:
    """A pattern for names that begin with a dot may stand for a protected one."""
    for name in folded(path).split("/"):
        if not name.startswith(".") or _WILD.isdisjoint(name):
            continue
        begin = name[: min(name.find(c) for c in _WILD if c in name)]
        if any(protected.startswith(begin) for protected in NAMES):
            return f"{path} may stand for a protected place"
    return None
