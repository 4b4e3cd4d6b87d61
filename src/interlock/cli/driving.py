"""One task for one agent, from the command line: its screen, its output, its end.

Lives here: `drive`. What is live goes to stderr, what was asked for to stdout, so that `answer=$(interlock run …)` has
the answer and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Literal, TypeAlias

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
from interlock.policy.terminal import TerminalApprover
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
    """
    model = resolve_model(task.model, base_url=task.base_url)
    try:
        async with SQLiteStore() as store:
            return await _run(task, model, store)
    finally:
        await model.aclose()
