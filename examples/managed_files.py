"""Managed files: what is generated elsewhere is read by everybody and written by no tool.

A hook that blocks gives the result of the call: nobody is asked, no tool runs, and the model reads why and what to do
instead. The path is compared as the file system sees it, so neither `./generated.txt` nor a link leads around it.
A shell is not confined by this: it needs a sandbox, or a rule of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path

from interlock import Agent, Effect, Harness, HookResult, PreToolContext, tool, tool_error
from interlock.testing import ScriptedModel, call, calls, says


def manage(agent: Agent | Harness, names: Iterable[str]) -> None:
    """Block every call that may change one of these files of the working folder, by its argument `path`."""
    managed = tuple(names)

    @agent.hooks("PreToolUse")
    def block(context: PreToolContext) -> HookResult | None:
        made = context.call
        path = made.arguments.get("path")
        if made.effect is Effect.READ or not isinstance(path, str):
            return None
        folder = made.cwd or Path.cwd()
        if (folder / path).resolve() not in {(folder / name).resolve() for name in managed}:
            return None
        return HookResult(
            blocking_error=tool_error(
                "hook_blocked", f"{path} is managed elsewhere; change what it is generated from"
            )
        )


@tool(effect="read")
async def read_file(path: str) -> str:
    """Read a text file."""
    return f"text of {path}"


@tool
async def write_file(path: str, content: str) -> str:
    """Write a text file."""
    return f"wrote {path}"


async def main() -> None:
    model = ScriptedModel(
        calls(
            call("read_file", path="generated.txt"),
            call("write_file", path="source.txt", content="x"),
            call("write_file", path="docs/../generated.txt", content="x"),
        ),
        says("I changed the source."),
    )
    async with Agent(model, tools=[read_file, write_file]) as agent:
        manage(agent, ["generated.txt"])
        result = await agent.run("Update generated.txt")
        for message in result.messages:
            if message.role == "tool":
                print(message.text)


if __name__ == "__main__":
    asyncio.run(main())
