"""What nobody below may loosen: the ceiling that an operator sets over all agents of a machine or of a harness.

Lives here: `Ceiling`, how its file is read, and how several of them meet: each of them holds. It names the presets,
sandbox modes and hook sources that may be chosen, rules that deny or ask whatever else is said, and the greatest
budgets. A file that is named and cannot be read in full stops the start.

    presets = ["plan", "ask"]
    sandbox = ["read-only", "workspace-write"]
    hooks = ["user"]

    [permissions]
    deny = ["Read(~/.ssh/**)", "Bash(git push:*)"]
    ask = ["WebFetch"]

    [budget]
    steps = 200
    tool_calls = 1000
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from interlock.errors import ConfigError
from interlock.intercept.decisions import Ask, Deny
from interlock.policy.preset import MODES, PRESETS, RESTS, Preset
from interlock.policy.rules.ruleset import RuleSet
from interlock.tools.call import ToolCall
from interlock.tools.confinement import SandboxMode
from interlock.tools.definition import Effect

if TYPE_CHECKING:
    from interlock.policy.rules.action import Action
    from interlock.policy.rules.document import Document
    from interlock.policy.rules.rule import RuleError

SYSTEM = Path("/etc/interlock/policy.toml")
VARIABLE = "INTERLOCK_CEILING"
HOOK_SOURCES = ("user", "project", "local", "given")
LIMITS = ("steps", "requests", "tool_calls", "tokens", "wall")


class Ceiling(msgspec.Struct, frozen=True):
    """What holds over everything else. None: no limit of that kind.

    presets: names of presets that may be chosen. sandbox: modes that may be chosen. hooks: where outside hooks may come from.
    rules: deny and ask rules. limits: the greatest budget of a turn: steps, requests, tool_calls, tokens, wall.
    """

    presets: tuple[str, ...] | None = None
    sandbox: tuple[SandboxMode, ...] | None = None
    hooks: tuple[str, ...] | None = None
    rules: RuleSet = msgspec.field(default_factory=RuleSet)
    limits: Mapping[str, Any] = msgspec.field(default_factory=dict)
    files: tuple[str, ...] = ()  # where it comes from

    def __post_init__(self) -> None:
        """Its rules are the ceiling's, whoever wrote them: what they ask about is held back, and never let through."""
        if any(rule.origin != "ceiling" for rule in self.rules.rules):
            given = self.rules
            from dataclasses import replace

            rules = RuleSet(
                [replace(rule, origin="ceiling") for rule in given.rules],
                additional=given.additional,
                sources=given.sources,
                home=given.home,
            )
            msgspec.structs.force_setattr(self, "rules", rules)

    @property
    def name(self) -> str:
        return f"the ceiling {', '.join(self.files)}" if self.files else "the ceiling"

    # Choosing below it

    def permit(self, preset: Preset | None) -> None:
        """
        Raises:
            ConfigError: this preset, or having none, is not permitted. One of somebody's own has to be as strict as a
                permitted one.
        """
        if self.presets is None:
            return
        if preset is not None and preset.name in PRESETS:
            if preset.name in self.presets and preset == PRESETS[preset.name]:
                return
        elif type(preset) is Preset:  # what a class of somebody's own answers cannot be known
            loosest = max((RESTS.index(PRESETS[name].rest) for name in self.presets), default=-1)
            if RESTS.index(preset.rest) <= loosest:
                return
        chosen = f"the preset {preset.name!r}" if preset is not None else "no preset at all"
        permitted = ", ".join(self.presets) or "none"
        raise ConfigError(f"{self.name} does not permit {chosen}: choose one of {permitted}")

    def mode(self, preset: Preset | None, chosen: SandboxMode | None) -> SandboxMode:
        """The sandbox mode for this preset: the chosen one, or the preset's, made as strict as it has to be.

        Raises:
            ConfigError: the chosen one is not permitted, or no permitted one is strict enough.
        """
        wanted = chosen or (preset.sandbox if preset is not None else "full")
        if self.sandbox is None or wanted in self.sandbox:
            return wanted
        permitted = ", ".join(self.sandbox) or "none"
        stricter = [mode for mode in MODES[: MODES.index(wanted)] if mode in self.sandbox]
        if chosen is not None or not stricter:
            raise ConfigError(
                f"{self.name} does not permit the sandbox mode {wanted!r}: choose one of {permitted}"
            )
        return stricter[-1]

    # Deciding

    @property
    def reads_only(self) -> bool:
        """Whether every preset that may be chosen denies what does not only read: then no rule may allow it."""
        if self.presets is None:
            return False
        return all(PRESETS[name].rest == "deny" for name in self.presets)

    @property
    def refusal(self) -> str:
        """Why it denies what does not only read, where it does."""
        return f"{self.name} permits only tools that read"

    def verdict(self, action: Action, effect: Effect) -> Deny | Ask | None:
        """What it says of a call, whatever is said below; None: nothing."""
        if self.reads_only and effect is not Effect.READ:
            return Deny(self.refusal)
        ruling = self.rules.decide(action)
        if ruling.effect == "deny":
            return Deny(ruling.reason)
        if ruling.effect == "ask":
            return Ask(ruling.reason)
        return None

    def guard(self, call: ToolCall) -> Deny | None:
        """Its denials again, right before a body: nothing that was said below has changed them."""
        from interlock.policy.rules.action import Action

        said = self.verdict(Action.of(call), call.effect)
        return said if isinstance(said, Deny) else None

    @property
    def guards(self) -> bool:
        """Whether it has anything to say of calls."""
        return self.reads_only or bool(self.rules.rules)

    # Several

    def and_(self, other: Ceiling) -> Ceiling:
        """Both hold."""
        limits = {**self.limits, **other.limits}
        for name in self.limits.keys() & other.limits.keys():
            limits[name] = min(self.limits[name], other.limits[name])
        return Ceiling(
            _both(self.presets, other.presets),
            _both(self.sandbox, other.sandbox),
            _both(self.hooks, other.hooks),
            self.rules.and_(other.rules),
            limits,
            self.files + other.files,
        )


def _both(one: tuple[Any, ...] | None, other: tuple[Any, ...] | None) -> tuple[Any, ...] | None:
    if one is None or other is None:
        return other if one is None else one
    return tuple(name for name in one if name in other)


# Reading

_KEYS = ("presets", "sandbox", "hooks", "permissions", "budget")


def ceiling_of(given: Ceiling | str | Path | None = None, *, system: Path = SYSTEM) -> Ceiling:
    """What holds here: the file of the system, the one that the environment names, and the given one, all of them.

    Raises:
        ConfigError: one that is named cannot be read, or is wrong; the file of the system need not be there.
    """
    made = Ceiling()
    if _there(system):
        made = made.and_(read_ceiling(system))
    named = os.environ.get(VARIABLE)
    if named:
        made = made.and_(read_ceiling(Path(named)))
    if given is not None:
        made = made.and_(given if isinstance(given, Ceiling) else read_ceiling(Path(given)))
    return made


def _there(path: Path) -> bool:
    """
    Raises:
        ConfigError: nobody can say, since a folder above it may not be entered: it may hold a ceiling.
    """
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        from interlock.policy.rules.rule import RuleError

        raise RuleError(f"it cannot be read: {error.strerror}", file=str(path)) from None
    return True


def read_ceiling(path: Path) -> Ceiling:
    """
    Raises:
        ConfigError: it cannot be read, or something in it is wrong: file, line and what to do.
    """
    from interlock.policy.rules.document import read_document
    from interlock.policy.rules.rule import RuleError
    from interlock.policy.rules.sources import rules_of

    document = read_document(path, origin="ceiling")
    if document is None:
        raise RuleError("the ceiling is not there; nothing starts without it", file=str(path))
    data = document.data
    unknown = [key for key in data if key not in _KEYS]
    if unknown:
        known = ", ".join(_KEYS)
        raise _wrong(document, unknown[0], f"a ceiling has no {unknown[0]!r}: it may have {known}")
    rules = rules_of(document)
    for rule in rules:
        if rule.effect == "allow":
            raise RuleError("a ceiling allows nothing: it denies and asks", file=rule.file, line=rule.line)
    modes = _names(document, "sandbox", MODES)
    return Ceiling(
        _names(document, "presets", tuple(PRESETS)),
        None if modes is None else tuple([mode for mode in MODES if mode in modes]),
        _names(document, "hooks", HOOK_SOURCES),
        RuleSet(rules, sources=[(str(document.path), document.digest)]),
        _limits(document),
        (str(document.path),),
    )


def _names(document: Document, key: str, known: tuple[str, ...]) -> tuple[str, ...] | None:
    if key not in document.data:
        return None
    given = document.data[key]
    if not isinstance(given, (list, tuple)) or any(name not in known for name in given):
        raise _wrong(document, key, f"{key} is a list of some of {', '.join(known)}, not {given!r}")
    return tuple(given)


def _limits(document: Document) -> Mapping[str, Any]:
    given = document.data.get("budget", {})
    if not isinstance(given, Mapping):
        raise _wrong(document, "budget", f"[budget] holds numbers, not {given!r}")
    for name, limit in given.items():
        if name not in LIMITS:
            raise _wrong(document, "budget", f"[budget] has no {name!r}: it may have {', '.join(LIMITS)}")
        whole = type(limit) is int and limit >= 0
        if not (whole or (name == "wall" and type(limit) is float)) or (name == "wall" and limit <= 0):
            kind = "a number of seconds above 0" if name == "wall" else "a whole number from 0"
            raise _wrong(document, "budget", f"{name} is {kind}, not {limit!r}")
    return dict(given)


def _wrong(document: Document, key: str, problem: str) -> RuleError:
    from interlock.policy.rules.rule import RuleError

    return RuleError(problem, file=str(document.path), line=document.line_of(key))
