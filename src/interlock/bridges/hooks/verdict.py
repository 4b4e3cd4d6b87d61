"""What a handler's answer means, neutral of any program's format.

Lives here: `Answer`, its parts, and `Problem`. A dialect makes an answer of what a process printed; nothing that it
printed and that is not understood is lost: it is a problem, and on a gate a failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

Verdict: TypeAlias = Literal["allow", "ask", "defer", "deny"]
STRICTNESS: Mapping[Verdict | None, int] = {None: 0, "allow": 1, "ask": 2, "defer": 3, "deny": 4}


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong with a hook or its configuration, for a person; said once.

    detail: what differs from time to time; two problems that differ only in it are one.
    """

    what: str  # and what to do about it
    file: str | None = None
    line: int | None = None
    detail: str = field(default="", compare=False)

    def __str__(self) -> str:
        at = "" if self.file is None else f"{self.file}{'' if self.line is None else f':{self.line}'}: "
        return f"{at}{self.what}{f': {self.detail}' if self.detail else ''}"


@dataclass(frozen=True, slots=True)
class Permission:
    """PreToolUse: advice on the call. The reason of a deny is for the model, of the others for the person."""

    verdict: Verdict
    reason: str = ""


@dataclass(frozen=True, slots=True)
class InputChange:
    """Other arguments, with our names. Whole ones, or (`merge`) fields that are laid over those that are there."""

    arguments: Mapping[str, Any]
    merge: bool = False

    def over(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        return {**arguments, **self.arguments} if self.merge else self.arguments


@dataclass(frozen=True, slots=True)
class PermissionAnswer:
    """PermissionRequest: an answer in a person's place. A deny's message is for the model."""

    behavior: Literal["allow", "deny"]
    message: str = ""
    interrupt: bool = False  # with a deny: end the turn as well
    input: InputChange | None = None  # checked against the rules again
    updates: tuple[Mapping[str, Any], ...] = ()  # permission updates as the hook wrote them


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one handler, or all of them together, said. Every field has one meaning; most answers leave most unset.

    permission: PreToolUse only; a block there is a deny here.
    decision: PermissionRequest only.
    block: a reason. UserPromptSubmit: the prompt is dropped, the person is told. PostToolUse: told to the model
        beside the result. PostToolBatch: the turn ends before the next request. Stop, SubagentStop: the work goes on,
        with the reason. PreCompact: nothing is summarised.
    input: other arguments; PreToolUse only.
    output: another text for the model to read as the result; PostToolUse only.
    contexts: for the model. messages: for the person.
    stop: everything ends after this event; its reason is for the person, "" if none was given. Beats all else.
    failure: how the handler failed to answer: it could not start, crashed, timed out, answered nonsense. What is
        decided then is in the other fields already when it comes from the runner.
    problems: to be reported, once each.
    """

    permission: Permission | None = None
    decision: PermissionAnswer | None = None
    block: str | None = None
    input: InputChange | None = None
    output: str | None = None
    contexts: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    stop: str | None = None
    failure: str | None = None
    problems: tuple[Problem, ...] = ()

    @property
    def decides(self) -> bool:
        """Whether it says more than contexts and messages."""
        return any(
            part is not None
            for part in (self.permission, self.decision, self.block, self.input, self.output, self.stop)
        )


NOTHING = Answer()
