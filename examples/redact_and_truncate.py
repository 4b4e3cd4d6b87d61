"""Two rewrites of a result, redacting secrets and cutting long output, and why their order matters.

Each `PostToolUse` hook sees what the one before it made of the result. Redact first: a secret is whole when it is looked
for. Cut first, and a secret that lies across the cut is not recognised any more: its beginning gets through.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

from interlock import Agent, HookResult, PostToolContext, tool, tool_success
from interlock.testing import ScriptedModel, calls, says

LIMIT = 100_000  # characters of a result that the model reads
MARK = "[truncated]"
SECRET = re.compile(r"sk-[0-9a-f]{16}")


def redact(context: PostToolContext) -> HookResult | None:
    """Replace every key by a note. It may do so in a failure too, which stays one."""
    text, found = SECRET.subn("[redacted]", context.result.text)
    return HookResult(updated_output=tool_success(text)) if found else None


def truncate(context: PostToolContext) -> HookResult | None:
    """Keep the first `LIMIT` characters of a success, and say that there were more."""
    text = context.result.text
    if not context.result.ok or len(text) <= LIMIT:
        return None
    return HookResult(updated_output=tool_success(f"{text[:LIMIT]}\n{MARK}"))


Hook = Callable[[PostToolContext], HookResult | None]
KEY = "sk-0123456789abcdef"


@tool(effect="read")
async def read_log() -> str:
    """Read the log of the server."""
    return f"{'.' * (LIMIT - 10)}{KEY} and so on"  # the key lies across the limit


async def seen_by_the_model(*hooks: Hook) -> str:
    """What the model reads of the log when these hooks are registered in this order."""
    model = ScriptedModel(calls("read_log"), says("I see."))
    async with Agent(model, tools=[read_log]) as agent:
        for hook in hooks:
            agent.hooks.register("PostToolUse", hook)
        await agent.run("What does the log say?")
    return model.requests[1].messages[-1].text


async def main() -> None:
    for name, hooks in {
        "redact, then truncate": (redact, truncate),
        "truncate, then redact": (truncate, redact),
    }.items():
        text = await seen_by_the_model(*hooks)
        print(f"{name}: {text[LIMIT - 10 :]!r}")


if __name__ == "__main__":
    asyncio.run(main())
