"""Notices after results: a person hears when something was changed, and when something failed.

`PostToolUse` is told only of tools that ran. A call that was denied or skipped has changed nothing, so there is no
notice for it, and a call that failed half-way is told of as one: it may have changed something.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from interlock import Agent, Deny, Effect, Harness, PostToolContext, ToolCall, ToolError, tool
from interlock.testing import ScriptedModel, call, calls, says


def notify(agent: Agent | Harness, tell: Callable[[str], object]) -> None:
    """Give `tell` one line for each change and each failure; what only looked, and found, is no news."""

    @agent.hooks("PostToolUse")
    def notice(context: PostToolContext) -> None:
        made, error = context.call, context.result.error
        if error is not None:
            tell(f"{made.name} failed: {error.code.lower()}")
        elif made.effect is not Effect.READ:
            tell(f"{made.name} is done: {context.result.text}")


@tool(effect="read")
async def read_file(path: str) -> str:
    """Read a text file."""
    return f"text of {path}"


@tool
async def write_file(path: str) -> str:
    """Write a text file."""
    if path.startswith("/"):
        raise ToolError("the disk is full", code="NO_SPACE")
    return f"wrote {path}"


async def main() -> None:
    model = ScriptedModel(
        calls(
            call("read_file", path="a.txt"),
            call("write_file", path="b.txt"),
            call("write_file", path="/c.txt"),
            call("write_file", path="secret.txt"),
        ),
        says("Two of three."),
    )
    async with Agent(model, tools=[read_file, write_file]) as agent:
        notify(agent, lambda line: print(f"* {line}"))

        @agent.on.pre_execute
        def no_secrets(call: ToolCall) -> Deny | None:
            return Deny("not this one") if call.arguments["path"] == "secret.txt" else None

        print((await agent.run("Copy everything")).text)


if __name__ == "__main__":
    asyncio.run(main())
