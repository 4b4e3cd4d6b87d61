"""Asking before writes: a person sees every call that may change something, and says yes or no.

A hook's "ask" is advice. It can make a decision stricter and never looser: whatever a rule or a guard denies is denied
without a question, and where nobody is there to ask, the answer is no.
"""

from __future__ import annotations

import asyncio

from interlock import (
    Agent,
    ApprovalRequest,
    Approved,
    Effect,
    Harness,
    HookResult,
    PreToolContext,
    Rejected,
    tool,
)
from interlock.testing import ScriptedModel, call, calls, says


def ask_before_writes(agent: Agent | Harness) -> None:
    """Have a person asked before any tool that does not only read."""

    @agent.hooks("PreToolUse")
    def ask(context: PreToolContext) -> HookResult | None:
        if context.call.effect is Effect.READ:
            return None
        return HookResult(permission_behavior="ask")


@tool(effect="read")
async def read_file(path: str) -> str:
    """Read a text file."""
    return f"text of {path}"


@tool
async def write_file(path: str, content: str) -> str:
    """Write a text file."""
    return f"wrote {path}"


@tool
async def delete_file(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


async def person(request: ApprovalRequest) -> Approved | Rejected:
    """Somebody at the keyboard, for this demonstration: writing is fine, deleting is not."""
    shown = ", ".join(f"{name}={value!r}" for name, value in request.arguments.items())
    answer = Rejected("keep the file") if request.call.name == "delete_file" else Approved()
    print(f"{request.call.name}({shown})? {'yes' if isinstance(answer, Approved) else 'no'}")
    return answer


async def main() -> None:
    model = ScriptedModel(
        calls(
            call("read_file", path="a.txt"),
            call("write_file", path="b.txt", content="copy"),
            call("delete_file", path="a.txt"),
        ),
        says("Copied, and kept the original."),
    )
    async with Agent(model, tools=[read_file, write_file, delete_file], approver=person) as agent:
        ask_before_writes(agent)
        result = await agent.run("Move a.txt to b.txt")
        for message in result.messages:
            if message.role == "tool":
                print(message.text)


if __name__ == "__main__":
    asyncio.run(main())
