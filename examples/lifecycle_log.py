"""Logging: one line for each lifecycle event, and not one of them in the loop.

The events are told in the order in which they happen: a person's prompt, each call before permission, each result of
a tool that ran, and the end of an answer without calls. A hook that only looks answers nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from interlock import (
    Agent,
    Harness,
    PostToolContext,
    PreToolContext,
    StopContext,
    UserPromptContext,
    tool,
)
from interlock.testing import ScriptedModel, calls, says


def log_lifecycle(agent: Agent | Harness, write: Callable[[str], object] = print) -> None:
    """Give `write` one line an event, for as long as the agent or the harness lives."""

    @agent.hooks("UserPromptSubmit")
    def prompt(context: UserPromptContext) -> None:
        write(f"[Hook] UserPromptSubmit: {context.message.text}")

    @agent.hooks("PreToolUse")
    def before(context: PreToolContext) -> None:
        write(f"[Hook] PreToolUse: {context.call.name}")

    @agent.hooks("PostToolUse")
    def after(context: PostToolContext) -> None:
        error = context.result.error
        write(f"[Hook] PostToolUse: {context.call.name} -> {'ok' if error is None else error.code.lower()}")

    @agent.hooks("Stop")
    def stop(context: StopContext) -> None:
        write("[Hook] Stop" + (" (once more)" if context.stop_hook_active else ""))


@tool(effect="read")
async def read_file(path: str) -> str:
    """Read a text file."""
    return f"# {path}\nRun `make demo`."


async def main() -> None:
    model = ScriptedModel(calls("read_file", path="README.md"), says("One runs it with `make demo`."))
    async with Agent(model, tools=[read_file]) as agent:
        log_lifecycle(agent)
        result = await agent.run("Read README.md and say how to run this")
        print(result.text)


if __name__ == "__main__":
    asyncio.run(main())
