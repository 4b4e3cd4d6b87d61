"""What a dialect is.

Lives here: `Dialect`, the protocol, `Printed`, what a handler put out, and `Status`, how far a field is honoured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias

from interlock.bridges.hooks.event import EventName, Occurrence
from interlock.bridges.hooks.handler import DialectName
from interlock.bridges.hooks.matching import Style
from interlock.bridges.hooks.verdict import Answer

Honoured: TypeAlias = Literal["honoured", "differs", "ignored", "not yet"]


@dataclass(frozen=True, slots=True)
class Status:
    """How far a field of an answer, or of a payload, is honoured. `ignored`: there as here, it has no effect."""

    how: Honoured
    note: str = ""


@dataclass(frozen=True, slots=True)
class Printed:
    """What a handler put out. For a request, `code` is 0 and `stdout` the body."""

    code: int  # exit code; 128 + n when signal n killed it
    stdout: str
    stderr: str = ""


class Dialect(Protocol):
    @property
    def name(self) -> DialectName: ...

    @property
    def events(self) -> Mapping[str, tuple[EventName, ...]]:
        """Which of our events its names stand for: mostly one."""

    @property
    def known(self) -> frozenset[str]:
        """Names of events of that program for which there is no place here: accepted, never fired."""

    @property
    def honoured(self) -> Mapping[EventName, Mapping[str, Status]]:
        """By event: the fields of an answer (`hookSpecificOutput.updatedInput`), and `input:` those of the payload."""

    def style(self, event: EventName) -> Style:
        """How matchers on the event are read."""

    def tool_names(self, tool: str) -> tuple[str, ...]:
        """What matchers may call our tool: first the name in payloads, then others."""

    def encode(self, occurrence: Occurrence) -> dict[str, Any]:
        """The payload.

        Raises:
            KeyError: this dialect has no such event.
        """

    def decode(self, occurrence: Occurrence, printed: Printed) -> Answer:
        """What the output means. It never raises."""

    def environment(self, occurrence: Occurrence) -> Mapping[str, str]:
        """What is added to the environment of a process."""
