"""What a reader of a log knows of each call: a fold of its lines, for those who show it.

Lives here: `Calls` and `SeenCall`. It follows any log, also one that breaks a law, and keeps the calls of one step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from interlock.cli import oneline
from interlock.log.event import Event, decode_json
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    PolicyChanged,
    StepStart,
    SubcallEnd,
    SubcallStart,
    ToolCalled,
    ToolDecided,
    ToolPrepared,
    ToolResulted,
    ToolSettled,
    ToolStarted,
)

_WHOLE_ID = 8  # characters of an id that is shown whole
_NOBODY = {"cancelled": "the question was withdrawn", "unavailable": "nobody was there to answer"}


@dataclass(slots=True)
class SeenCall:
    """One call, as far as the log has told."""

    key: int  # the seq of its tool/call or subcall/start
    id: str
    name: str
    arguments: (
        Mapping[str, Any] | str
    )  # the effective ones; the model's own text where that is no JSON object
    outer: SeenCall | None = None  # of a nested call
    allowed_by: str = ""  # why it may run
    question: str = ""  # what a person was asked last
    started: int | None = None  # epoch ms, as the next two
    settled: int | None = None
    committed: int | None = None

    @property
    def label(self) -> str:
        """`read#c1`; of a long id its end."""
        return label(self.name, self.id)

    @property
    def running(self) -> bool:
        return self.started is not None and self.settled is None and self.committed is None

    def arguments_text(self, limit: int = 160) -> str:
        if isinstance(self.arguments, str):
            return oneline.short(self.arguments, limit)
        return oneline.arguments(self.arguments, limit)


@dataclass(slots=True)
class Calls:
    """The calls of the step that is open or was the last, by their keys, in the model's order."""

    by_key: dict[int, SeenCall] = field(default_factory=dict)
    default: str = "allowed by default"  # why a call runs that nobody spoke about

    def see(self, event: Event) -> SeenCall | None:
        """Take in a line; the call that it is about, if it is about one."""
        fact = event.fact
        match fact:
            case StepStart():
                self.by_key.clear()
                return None
            case PolicyChanged(preset=preset):
                self.default = f"allowed by preset {preset}"
                return None
            case ToolCalled(call_id=id_, name=name, arguments=text):
                return self._add(SeenCall(event.seq, id_, name, _object(text)))
            case SubcallStart(outer=outer, id=id_, name=name, arguments=given):
                arguments = given if isinstance(given, Mapping) else str(given)
                return self._add(SeenCall(event.seq, id_, name, arguments, self.by_key.get(outer)))
            case _:
                return self._known(event)

    def _known(self, event: Event) -> SeenCall | None:
        fact = event.fact
        key = fact.start if isinstance(fact, SubcallEnd) else getattr(fact, "call", None)
        call = self.by_key.get(key) if key is not None else None
        if call is not None:
            self._learn(call, event)
        return call

    def _add(self, call: SeenCall) -> SeenCall:
        self.by_key[call.key] = call
        return call

    def _learn(self, call: SeenCall, event: Event) -> None:
        match event.fact:
            case ToolPrepared(effective=effective) if isinstance(effective, Mapping):
                call.arguments = effective
            case ToolDecided(verdict="allow", by=by):
                call.allowed_by = f"allowed by {by}"
            case ApprovalAsked(question=question):
                call.question = question
            case ApprovalDecided(outcome="allowed-once") as answer:
                call.allowed_by = f"allowed once by {_who(answer)}"
            case ToolStarted():
                call.started = call.started or event.time
                call.allowed_by = call.allowed_by or self.default
            case ToolSettled():
                call.settled = event.time
            case ToolResulted(settled=settled):
                call.settled = call.settled or settled
                call.committed = event.time
            case SubcallEnd():
                call.settled = call.committed = event.time
            case _:
                pass

    def running(self) -> list[SeenCall]:
        """Those whose bodies run now."""
        return [call for call in self.by_key.values() if call.running]

    def ahead_of(self, call: SeenCall) -> SeenCall | None:
        """The first earlier call that has no result yet: what holds back the result of this one."""
        for other in self.by_key.values():
            if other is call:
                return None
            if other.committed is None and other.outer is None:
                return other
        return None


def label(name: str, id_: str) -> str:
    """How a call is named where there is little room: models choose ids of 24 characters and more."""
    end = id_ if len(id_) <= _WHOLE_ID else f"…{id_[-4:]}"
    return oneline.short(f"{name}#{end}", 80)


def answered(answer: ApprovalDecided) -> str:
    """`a person (terminal) says yes, once`."""
    because = f": {oneline.short(answer.message, 400)}" if answer.message else ""
    if answer.outcome in _NOBODY:
        return f"{_NOBODY[answer.outcome]}{because}"
    says = "no"
    if answer.outcome == "allowed-once":
        says = f"yes, {_scope(answer)}"
    return f"{_who(answer)} says {says}{because}"


def _scope(answer: ApprovalDecided) -> str:
    """How far a yes goes, and with which arguments."""
    if answer.rule_written is not None:
        where = "always" if answer.scope == "always" else "for this session"
        return f"{where}: {oneline.short(answer.rule_written, 200)}"
    if isinstance(answer.edited, Mapping):
        return f"once, with {oneline.arguments(answer.edited)}"
    return "once"


def _who(answer: ApprovalDecided) -> str:
    who = answer.by or "a person"
    return f"{who} ({answer.channel})" if answer.channel else who


def _object(text: str) -> Mapping[str, Any] | str:
    try:
        value = decode_json(text) if text.strip() else {}
    except ValueError:
        return text
    return value if isinstance(value, dict) else text
