"""One task for one agent, from the command line: its screen, its output, its end.

Lives here: `drive`. What is live goes to stderr, what was asked for to stdout, so that `answer=$(interlock run …)` has
the answer and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Literal, TypeAlias, assert_never

from interlock.cli import exit_codes
from interlock.cli.live import LiveView, Running
from interlock.cli.screen import Screen
from interlock.cli.stopping import Stopping
from interlock.cli.trace import Trace
from interlock.errors import InputDropped
from interlock.log.event import Event, encode_event, encode_json
from interlock.log.reasons import describe
from interlock.log.session import Session
from interlock.log.stores.sqlite import SQLiteStore
from interlock.loop.agent import Agent
from interlock.loop.budget import Budget
from interlock.loop.result import TurnResult
from interlock.models.protocol import Model
from interlock.models.registry import resolve_model
from interlock.policy.terminal import TerminalApprover, printable
from interlock.toolkit import workspace

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]

INSTRUCTIONS = (
    "You work in the folder of a person who gave you one task, with tools for its files and a shell. Read before you "
    "change anything. A call may be refused: read the reason, and do not try to get around it. When the task is done, "
    "answer in a few sentences; nobody can answer questions."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What `interlock run` was asked for."""

    prompt: str
    model: str
    base_url: str | None
    cwd: str
    output: OutputFormat
    budget: Budget | None
    preset: str
    trace: bool


async def drive(task: Task) -> int:
    """Run the task; the exit code.

    Raises:
        InterlockError: a setting is wrong, or the log cannot be written.
        BrokenPipeError: whoever read the output has gone; the turn was stopped.
    """
    model = resolve_model(task.model, base_url=task.base_url)
    try:
        async with SQLiteStore() as store:
            return await _run(task, model, store)
    finally:
        await model.aclose()


async def _run(task: Task, model: Model, store: SQLiteStore) -> int:
    screen = Screen(sys.stderr)
    running = Running(screen)
    live = task.output == "text" and not task.trace
    shows: list[Callable[[Event], None]] = []
    if task.trace:
        shows.append(tracing(screen))
    elif live:
        shows.append(LiveView(screen, answers=screen.alive).event)
    shows.append(running.event)
    agent = Agent(
        model,
        tools=workspace(),
        instructions=INSTRUCTIONS,
        cwd=task.cwd,
        store=store,
        approver=TerminalApprover(around=screen.step_aside) if sys.stdin.isatty() else None,
        budget=task.budget,
        preset=task.preset,
    )
    agent.on.progress(running.progress)
    try:
        async with asyncio.TaskGroup() as tasks, agent, running.counting():
            show_all(agent, shows)
            if task.output == "stream-json":
                tasks.create_task(echo(agent.session, sys.stdout.buffer))
            with Stopping(agent, screen) as stopping:
                result = await run_to_end(agent, task.prompt)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # one is enough to tell; the others are its consequences
    if result is None:
        return stopping.exit_code or exit_codes.INTERRUPTED
    code = exit_codes.of_reason(result.reason)
    if code == exit_codes.INTERRUPTED and stopping.exit_code is not None:
        code = stopping.exit_code
    if live:
        screen.line(f"interlock log {result.session.id}")
    elif not result.ok:
        screen.line(f"interlock: {printable(describe(result.reason))} (interlock log {result.session.id})")
    _give(result, task.output, seen=live and screen.alive)
    return code


async def run_to_end(agent: Agent, prompt: str) -> TurnResult | None:
    """The turn of this prompt; None if it was stopped before there was one."""
    try:
        return await agent.run(prompt)
    except InputDropped:
        return None


def show_all(agent: Agent, shows: Sequence[Callable[[Event], None]]) -> None:
    """Show what the agent's log has, and then what comes."""
    for event in agent.session.events:
        for show in shows:
            show(event)
    for show in shows:
        agent.on.observe()(show)


def tracing(screen: Screen) -> Callable[[Event], None]:
    """Writes the lines of a `Trace` on the screen."""
    trace = Trace()

    def show(event: Event) -> None:
        for line in trace.lines(event):
            screen.line(line)

    return show


async def echo(session: Session, out: BinaryIO) -> None:
    """Write every line of the log, from the first, until the session is closed: a cursor that delays nobody.

    Raises:
        BrokenPipeError: nobody reads it any more.
    """
    at = -1
    while True:
        lines = [encode_event(event) + b"\n" for event in session.events[at + 1 :]]
        if lines:
            at += len(lines)
            await asyncio.to_thread(_write, out, b"".join(lines))  # a slow reader must not hold the loop
        elif session.closed:
            return
        else:
            await session.changed(at)


def _write(out: BinaryIO, data: bytes) -> None:
    out.write(data)
    out.flush()


def _give(result: TurnResult, output: OutputFormat, *, seen: bool) -> None:
    """What was asked for, on stdout. `seen`: the answer is on the terminal already."""
    match output:
        case "text":
            terminal = sys.stdout.isatty()
            if result.text and not (seen and terminal):
                print(printable(result.text) if terminal else result.text)
        case "json":
            summary = {
                "session": result.session.id,
                "ok": result.ok,
                "reason": result.reason,
                "text": result.text,
                "usage": result.usage,
                "turn": result.turn,
                "steps": result.steps,
            }
            sys.stdout.buffer.write(encode_json(summary) + b"\n")
        case "stream-json":
            pass
        case _:
            assert_never(output)
