"""One configured handler.

Lives here: `Handler`, its `Command` or `Http`, and the `Place` where it stands. Handlers are made by `definitions`
from configuration files, checked; what runs them trusts them.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias

from interlock.bridges.hooks.event import EventName
from interlock.bridges.hooks.matching import Matcher

DialectName: TypeAlias = Literal["claude", "codex", "gemini"]
Origin: TypeAlias = Literal["user", "project", "local", "given"]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a handler is written. `origin`: user's own files, the repository's, this machine's in the repository."""

    file: Path
    line: int | None
    origin: Origin

    def __str__(self) -> str:
        return str(self.file) if self.line is None else f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Command:
    """A process. With `args`, `command` is the program and no shell is asked."""

    command: str
    args: tuple[str, ...] | None = None
    shell: Literal["sh", "bash", "login", "powershell"] = "sh"


@dataclass(frozen=True, slots=True)
class Http:
    """A POST of the payload. `$NAME` in the values of `headers` stands for allowed variables of the environment."""

    url: str
    headers: tuple[tuple[str, str], ...] = ()
    allowed_env: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """What runs at an event, and when.

    condition: one permission rule that the call must meet (`if`).
    on_failure: None is the default of the event: a gate denies.
    background: it is not waited for, and decides nothing. rewake: its exit code 2 wakes an idle session.
    sequential: handlers of this event run one after another (Gemini).
    """

    dialect: DialectName
    event: EventName
    matcher: Matcher
    action: Command | Http
    place: Place
    timeout: float  # seconds
    condition: str | None = None
    on_failure: Literal["block", "continue"] | None = None
    once: bool = False
    background: bool = False
    rewake: bool = False
    sequential: bool = False
    status: str | None = None  # what to show while it runs
    name: str | None = None
    digest: str = field(init=False)  # of the definition, without its place: identical ones run once

    def __post_init__(self) -> None:
        what = [
            self.dialect,
            self.event,
            self.matcher.text,
            repr(self.action),
            self.timeout,
            self.condition,
            self.on_failure,
            (self.once, self.background, self.rewake, self.sequential),
        ]
        object.__setattr__(self, "digest", hashlib.sha256(json.dumps(what).encode()).hexdigest()[:32])

    @property
    def who(self) -> str:
        """How logs and people name it: the dialect and its place, shortened to the last two parts of the path."""
        parts = self.place.file.parts[-2:]
        line = "" if self.place.line is None else f":{self.place.line}"
        return f"{self.dialect} {'/'.join(parts)}{line}"
