"""What several answers mean together.

Lives here: `fold`, `Folded`, and `settled`, what a failure means. Answers are folded in the order in which their
handlers are declared, whatever finished first: deny > defer > ask > allow; a later rewrite is laid over an earlier
one; what a handler adds never takes back what another one refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, assert_never

from interlock.bridges.hooks.event import GATES, EventName, Occurrence, PermissionRequest, PreToolUse
from interlock.bridges.hooks.verdict import (
    STRICTNESS,
    Answer,
    InputChange,
    Permission,
    PermissionAnswer,
)

OnFailure = Literal["block", "continue"]


@dataclass(frozen=True, slots=True)
class Folded:
    """All answers as one, and whose word it was: indexes into what was folded."""

    answer: Answer
    won: frozenset[int] = frozenset()  # whose decision, rewrite, block or stop is in `answer`


def settled(event: EventName, on_failure: OnFailure | None, answer: Answer) -> Answer:
    """The answer, with what its failure means. A gate that fails means no, unless it was told to let things pass.

    A stop is never refused: a broken hook would keep the agent at work for ever.
    """
    if answer.failure is None or on_failure == "continue" or (on_failure is None and event not in GATES):
        return answer
    reason = f"A {event} hook failed, and what it guards is refused: {answer.failure}"
    match event:
        case "PreToolUse":
            return replace(answer, permission=Permission("deny", reason), input=None)
        case "PermissionRequest":
            return replace(answer, decision=PermissionAnswer("deny", reason))
        case "UserPromptSubmit" | "PreCompact" | "PostToolUse" | "PostToolBatch":
            return replace(answer, block=reason)
        case "PostToolUseFailure":
            return replace(answer, contexts=(*answer.contexts, reason))
        case (
            "SessionStart"
            | "SessionEnd"
            | "Stop"
            | "StopFailure"
            | "Notification"
            | "SubagentStart"
            | "SubagentStop"
        ):
            return answer
        case _:
            assert_never(event)


def fold(occurrence: Occurrence, answers: Sequence[Answer]) -> Folded:
    """Fold answers in declared order. Contexts, messages and problems of all are kept, also beside a refusal.

    Blocks and stops: any; their reasons are joined, the first said first. Rewrites of the result: the last. Of the
    arguments: each over what the earlier ones made of them.
    """
    won: set[int] = set()
    permission, deciders = _permission(answers)
    decision, judges = _decision(answers)
    won |= deciders | judges
    blocks = [(i, answer.block) for i, answer in enumerate(answers) if answer.block is not None]
    stops = [(i, answer.stop) for i, answer in enumerate(answers) if answer.stop is not None]
    won.update(i for i, _ in (*blocks, *stops))
    outputs = [(i, answer.output) for i, answer in enumerate(answers) if answer.output is not None]
    won.update(i for i, _ in outputs[-1:])
    change, rewriters = _input(occurrence, [answer.input for answer in answers])
    if permission is None or permission.verdict != "deny":
        won |= rewriters
    if decision is not None and decision.behavior == "allow":
        combined, rewriters = _input(
            occurrence, [answer.decision.input if answer.decision else None for answer in answers]
        )
        decision = replace(
            decision,
            input=combined,
            updates=tuple(update for a in answers if a.decision for update in a.decision.updates),
        )
        won |= rewriters
    failures = [answer.failure for answer in answers if answer.failure is not None]
    return Folded(
        Answer(
            permission=permission,
            decision=decision,
            block=_joined([reason for _, reason in blocks]),
            input=change,
            output=outputs[-1][1] if outputs else None,
            contexts=tuple(text for answer in answers for text in answer.contexts),
            messages=tuple(text for answer in answers for text in answer.messages),
            stop=_joined([reason for _, reason in stops]),
            failure=_joined(failures),
            problems=tuple(dict.fromkeys(problem for answer in answers for problem in answer.problems)),
        ),
        frozenset(won),
    )


def _joined(reasons: Sequence[str]) -> str | None:
    """None when there are none; each different reason once."""
    if not reasons:
        return None
    return "\n\n".join(dict.fromkeys(reason for reason in reasons if reason))


def _permission(answers: Sequence[Answer]) -> tuple[Permission | None, set[int]]:
    said = [(i, answer.permission) for i, answer in enumerate(answers) if answer.permission is not None]
    if not said:
        return None, set()
    strictest = max((permission.verdict for _, permission in said), key=lambda verdict: STRICTNESS[verdict])
    winners = [(i, permission) for i, permission in said if permission.verdict == strictest]
    reason = _joined([permission.reason for _, permission in winners]) or ""
    return Permission(strictest, reason), {i for i, _ in winners}


def _decision(answers: Sequence[Answer]) -> tuple[PermissionAnswer | None, set[int]]:
    said = [(i, answer.decision) for i, answer in enumerate(answers) if answer.decision is not None]
    if not said:
        return None, set()
    denied = [(i, decision) for i, decision in said if decision.behavior == "deny"]
    if not denied:
        return said[0][1], {i for i, _ in said}
    message = _joined([decision.message for _, decision in denied]) or ""
    return (
        PermissionAnswer("deny", message, any(decision.interrupt for _, decision in denied)),
        {i for i, _ in denied},
    )


def _input(
    occurrence: Occurrence, changes: Sequence[InputChange | None]
) -> tuple[InputChange | None, set[int]]:
    """The arguments as they end up, and who had a word in them."""
    what = occurrence.what
    if not isinstance(what, (PreToolUse, PermissionRequest)) or not any(changes):
        return None, set()
    current: Mapping[str, Any] = what.input
    authors: set[int] = set()
    for i, change in enumerate(changes):
        if change is not None:
            current = change.over(current)
            authors = authors | {i} if change.merge else {i}
    return InputChange(dict(current)), authors
