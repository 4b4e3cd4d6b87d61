"""A question to ask, without an agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from interlock.intercept.signal import Signal
from interlock.log.facts import Said
from interlock.policy.approval import ApprovalRequest
from interlock.tools.approval import Question
from interlock.tools.call import ToolCall, arguments_of
from interlock.tools.definition import Tool, tool
from interlock.tools.subject import Subject


@tool
def write(path: str, content: str = "") -> str:
    return path


@tool
def edit(path: str, old: str, new: str, replace_all: bool = False) -> str:
    return path


@tool
def bash(command: str, timeout: float = 120) -> str:
    return command


WRITE = write  # rules know nothing of what it is about
EDITS = write.with_(subject=Subject("edit", "path"))
EDIT = edit.with_(subject=Subject("edit", "path"))
BASH = bash.with_(subject=Subject("command", "command"))


def call_of(
    used: Tool = EDITS,
    *,
    key: int = 1,
    said: tuple[Said, ...] = (),
    cwd: Path | None = None,
    **arguments: Any,
) -> ToolCall:
    return ToolCall(
        key=key,
        id="c1",
        name=used.name,
        tool=used,
        arguments=arguments_of(arguments or {"path": "a.txt"}),
        text="",
        turn=1,
        step=1,
        index=0,
        signal=Signal(),
        said=said,
        cwd=cwd,
    )


def asked(call: ToolCall | None = None, **more: Any) -> Question:
    made = call or call_of()
    return Question(f"a{made.key}", made, f"{made.name} may change something", "digest", **more)


def request_of(call: ToolCall | None = None, **more: Any) -> ApprovalRequest:
    """The same, as a channel is shown it."""
    question = asked(call)
    return ApprovalRequest(
        question.id, question.call, question.text, question.call.arguments, question.digest, **more
    )
