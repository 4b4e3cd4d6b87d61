"""The work that is cut off by kills: tools that leave marks in a folder, and a model that knows what comes next.

Everything is a function of what the model is shown, so that any life of the session goes on with the same script. A
call names itself in its arguments, by a token that no other call has, and its body leaves that token in the folder as
the first thing it does. The log says of the same tokens what was started, and what came of it.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interlock import Ask, Tool, ToolCall, ToolContext, tool
from interlock.intercept.signal import Signal
from interlock.log.event import Event
from interlock.log.facts import SubcallStart, ToolCalled, ToolResulted, ToolStarted
from interlock.log.messages import Message
from interlock.models.protocol import CallDelta, Chunk, Finish, ModelRequest, TextDelta
from interlock.toolkit import bash, write

TOKEN = re.compile(r"\bk\d+(?:-\w+)+\b")
PROMPT = re.compile(r"job (\d+) \((\w+)\)")
FINISHED = re.compile(r"finished (\d+) \w+$")
BIG = 40_000  # characters: more than what a store keeps within a line


# The tools


def tools(folder: Path) -> list[Tool]:
    """`write` and `bash` of the box, and four that mark what they do in `folder`."""
    marks = folder / "marks"
    marks.mkdir(parents=True, exist_ok=True)

    def mark(name: str, token: str) -> None:
        file = os.open(marks / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC)
        try:
            os.write(file, f"{token}\n".encode())  # in one piece, and seen by others at once
        finally:
            os.close(file)

    @tool(concurrency="parallel")
    async def append(token: str) -> str:
        mark("append", token)
        await asyncio.sleep(0.004)
        return f"appended {token}"

    @tool(effect="idempotent", concurrency="parallel")
    async def put(token: str) -> str:
        mark("put", token)
        await asyncio.sleep(0.002)
        return f"put {token}"

    @tool(effect="read", concurrency="parallel")
    def peek(ctx: ToolContext, token: str) -> str:
        mark("peek", f"{token}-{ctx.agent.session.state.life}")
        return token.ljust(BIG, ".")

    @tool(concurrency="parallel")
    async def both(ctx: ToolContext, token: str) -> str:
        mark("both", token)
        ctx.defer(f"about {token}")
        await ctx.call_tool("append", token=f"{token}-inner")
        await ctx.call_tool("peek", token=f"{token}-look")
        return f"did both {token}"

    return [append, put, peek, both, bash, write]


def asks(call: ToolCall) -> Ask | None:
    """The rule of every life: a command that says so needs a person."""
    return Ask("sure?") if "# ask" in str(call.arguments.get("command", "")) else None


async def twice(call: ToolCall, next: Any) -> Any:  # noqa: A002  # the name that a wrapper gets it by
    """The wrapper of every life: what may be repeated is, so that a call can have two runs."""
    result = await next()
    return await next() if call.name == "put" else result


# The model

SCRIPT: tuple[tuple[tuple[str, str], ...], ...] = (
    (
        ("append", ""),
        ("peek", ""),
        ("put", ""),
        ("append", ""),
        ("write", "files/{}"),
    ),
    (
        ("bash", "echo {} >> marks/bash; sleep 0.01; echo said {}"),
        ("both", ""),
        ("bash", "echo {} >> marks/bash # ask"),
        ("peek", ""),
    ),
    (("both", ""), ("put", ""), ("append", "")),
)


def _arguments(tool_name: str, form: str, token: str) -> dict[str, str]:
    match tool_name:
        case "bash":
            return {"command": form.replace("{}", token)}
        case "write":
            return {"path": form.replace("{}", token), "content": token}
        case _:
            return {"token": token}


class Continuing:
    """A model that does the script of the job that was asked for last; it meets `Model`, and keeps nothing."""

    provider = "scripted"
    name = "continuing"
    retry = None

    async def stream(self, request: ModelRequest, signal: Signal) -> AsyncIterator[Chunk]:
        job, said = self._where(request.messages)
        pause = 0.001
        if job is None or said > len(SCRIPT):
            for word in ("I ", "have ", "heard."):
                yield TextDelta(word)
                await asyncio.sleep(pause)
        elif said == len(SCRIPT):
            for word in ("That ", "was ", "it: ", f"finished {job[1]} {job[2]}"):
                yield TextDelta(word)
                await asyncio.sleep(pause)
        else:
            yield TextDelta("Next: ")
            await asyncio.sleep(pause)
            for block, (tool_name, form) in enumerate(SCRIPT[said], 1):
                token = f"k{job[1]}-{job[2]}-{said}-{block}"
                text = json.dumps(_arguments(tool_name, form, token))
                yield CallDelta(block, f"c{block}", tool_name, text[:9])
                await asyncio.sleep(pause)
                yield CallDelta(block, None, None, text[9:])
        yield Finish("stop")

    def _where(self, messages: Iterable[Message]) -> tuple[re.Match[str] | None, int]:
        """The job that was asked for last, and how many answers it has got."""
        job, said = None, 0
        for message in messages:
            found = PROMPT.match(message.text) if message.role == "user" else None
            if found is not None:
                job, said = found, 0
            elif message.role == "assistant":
                said += 1
        return job, said

    async def aclose(self) -> None:
        """Nothing to let go of."""


# What was done, by the folder and by the log


def marks(folder: Path) -> dict[str, Counter[str]]:
    """By tool, how often its body was invoked for each token."""
    found = {file.name: Counter(file.read_text().split()) for file in folder.glob("marks/*")}
    # A write that was killed may leave the temporary file that was to take the place of the other.
    files = [file.name for file in folder.glob("files/*") if TOKEN.fullmatch(file.name)]
    found["write"] = Counter(files)
    return found


@dataclass(frozen=True)
class Record:
    """What a log says of each token."""

    started: Counter[str] = field(default_factory=Counter)
    succeeded: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, events: Iterable[Event]) -> Record:
        made = cls()
        tokens: dict[int, str] = {}
        for event in events:
            match event.fact:
                case ToolCalled() as fact:
                    if (found := TOKEN.search(fact.arguments)) is not None:
                        tokens[event.seq] = found.group()
                        made.names[found.group()] = fact.name
                case SubcallStart() as fact:
                    tokens[event.seq] = fact.arguments["token"]
                    made.names[fact.arguments["token"]] = fact.name
                case ToolStarted(call=call):
                    made.started[tokens[call]] += 1
                case ToolResulted(call=call, error=None):
                    made.succeeded.add(tokens[call])
                case _:
                    pass
        return made
