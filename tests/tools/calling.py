"""Agents whose model asks for calls, and what was written and said about those."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from interlock import Agent, ToolCall, ToolContext, ToolError, ToolResult, tool
from interlock.log.facts import ToolResulted
from interlock.testing import ScriptedModel, assert_laws, calls, says, shorthand

ran: list[str] = []  # what the bodies below have done in this test


@tool(effect="read", concurrency="parallel")
async def wait(name: str, seconds: int = 0) -> str:
    ran.append(name)
    await asyncio.sleep(seconds)
    return name


@tool
async def write(name: str) -> str:
    ran.append(name)
    return f"wrote {name}"


@tool(effect="read")
async def fail(ctx: ToolContext) -> str:
    ctx.defer("said before it failed")
    raise ToolError("it does not work", code="broken")


def calling(*wanted: Any, tools: Any = (wait, write, fail), pool: int = 10, **arguments: Any) -> Agent:
    """An agent whose model asks for these calls, or for one tool by name with these arguments."""
    return Agent(ScriptedModel(calls(*wanted, **arguments), says("done")), tools=tools, pool=pool)


async def told(agent: Agent) -> list[str]:
    """Run the agent once; one line for each result: what the model reads."""
    async with agent:
        assert (await agent.run("go")).ok
        assert_laws(agent.session)
        return texts(agent)


def texts(agent: Agent) -> list[str]:
    return ["\n".join(block.text for block in fact.content) for fact in agent.session.facts(ToolResulted)]


def codes(agent: Agent) -> list[str]:
    return [fact.error.code if fact.error else "ok" for fact in agent.session.facts(ToolResulted)]


def log(agent: Agent) -> list[str]:
    """Everything that was written about calls, in shorthand."""
    names = {m.id: m.text for e in agent.session.events for m in getattr(e.fact, "contexts", ())}
    shown = ("TC", "TP", "TD", "AA", "AD", "ST", "SD", "TR", "SB", "SX", "SE 1.1")
    return [token for token in shorthand(agent.session, names) if token.startswith(shown)]


def contexts(agent: Agent) -> list[str]:
    return [message.text for fact in agent.session.facts(ToolResulted) for message in fact.contexts]


class Trace:
    """Who saw which call, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def at(self, stage: str, answer: Any = None) -> Callable[..., Any]:
        """A listener that leaves `stage:call` in the trace."""

        def listener(call: ToolCall | None, *_: object) -> Any:
            self.seen.append(f"{stage}:{call.id if call is not None else '-'}")
            return answer(call) if callable(answer) else answer

        return listener

    def around(self, stage: str) -> Callable[..., Any]:
        async def wrapper(call: ToolCall, following: Any) -> ToolResult:
            self.seen.append(f"{stage} in:{call.id}")
            result: ToolResult = await following()
            self.seen.append(f"{stage} out:{call.id}")
            return result

        return wrapper

    def everywhere(self, agent: Agent) -> None:
        agent.on.prepare(self.at("prepare"))
        agent.on.pre_execute(self.at("pre"))
        agent.guard(self.at("guard"))
        agent.on.execute(self.around("around"))
        agent.on.post_execute(self.at("post"))
        agent.on.result(self.at("result"))

    def finaliser(self, answer: str | None = None) -> Callable[[ToolCall, ToolResult], str | None]:
        def finalise(call: ToolCall, result: ToolResult) -> str | None:
            self.seen.append(f"finalise:{call.id}")
            return answer

        return finalise

    def of(self, call_id: str) -> list[str]:
        return [line.removesuffix(f":{call_id}") for line in self.seen if line.endswith(f":{call_id}")]


def raise_value_error(*_: object) -> None:
    raise ValueError("a bug")
