"""The story that `interlock demo` tells: a person corrects an agent, allows too much, and presses stop.

Lives here: `tell`, with a scripted model, and `tell_real`, the same task for a model of one's own. The tools, the
files, the rules and the log are real in both. Nothing is timed by waiting: the story's people act on what the log says.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import Any, TypeAlias

from rich.text import Text

from interlock.cli import exit_codes, flaky_service, oneline
from interlock.cli.driving import INSTRUCTIONS, run_to_end, show_all
from interlock.cli.flaky_service import CONFIG, LOG, POOL, REPORT
from interlock.cli.live import LiveView, Running
from interlock.cli.place import place
from interlock.cli.screen import Screen
from interlock.cli.stopping import Stopping
from interlock.cli.timeline import Timeline, show
from interlock.errors import ConfigError
from interlock.intercept.decisions import Deny
from interlock.log.event import Event
from interlock.log.facts import StepStart, ToolSettled
from interlock.log.laws import check
from interlock.log.session import Session
from interlock.log.stores.sqlite.database import default_path
from interlock.loop.agent import Agent
from interlock.models.protocol import Chunk, Model, ModelRequest
from interlock.models.registry import resolve_model
from interlock.models.scripted import Gate, ScriptedModel, call, calls, gated, says
from interlock.policy.approval import ApprovalRequest, Approved
from interlock.policy.terminal import question
from interlock.toolkit import workspace
from interlock.tools.call import ToolCall, ToolResult
from interlock.tools.context import ToolContext
from interlock.tools.definition import Effect, Tool, tool

TASK = (
    "The checkout service fails now and then. Read its log and its configuration, find the cause, and then decide "
    "whether something has to be changed."
)
LIMIT = "Analysis only, for now: write no file."
SECOND_TASK = "Watch the log until it happens again."

PACE = 0.015  # seconds a word, on a terminal: as fast as a model that can be followed
HELD_BACK = 0.4  # seconds that the demo keeps the first read back
SEEN = 3  # signs of life of the slow tool before somebody presses stop

_ACTS = {
    (1, 1): "Three reads are asked for at once. The demo holds the first one back, so that the others\n"
    "overtake it; the results are committed in the model's order all the same.",
    (1, 2): "The model is speaking when the person remembers a limit. A request that was sent cannot be\n"
    "changed: what arrives now is taken with the next step.",
    (1, 3): "A denial is final, and is told: the model reads why, and what the person said meanwhile.",
    (2, 1): "A second task. While its slow tool runs, somebody presses stop: what was started is waited\n"
    "for, and the calls that never ran are answered too.",
}
_HURRY = (
    "The model had asked for a write before it could hear of the limit, and a write needs a yes.\n"
    "While the question is open, the limit is made a guard. The person, in a hurry, says yes."
)

_LOOKS = "I look at the log, the configuration and the report job side by side."
_HASTY = (
    "At 09:20 all four connections are taken, and orders fail until the supervisor\n"
    "restarts the service. The pool is small, so I double it."
)
_FOUND = (
    "Analysis only, then; I wrote nothing. The pool is not too small, it leaks:\n"
    "report.py takes a connection and gives it back only when nothing goes wrong.\n"
    "Each report that meets an order without a price costs one for good, and after\n"
    "four of them none is left. A larger pool would only make the failure rarer.\n"
    "The remedy: give it back in a `finally`, as service.py does."
)
_WATCHES = "I watch the log, and count the failures meanwhile."


def analysis_only(call: ToolCall) -> Deny | None:
    """The limit as a guard: it can deny, and nobody can overrule it."""
    if call.effect is Effect.READ:
        return None
    return Deny("analysis only: nothing may be written in this session; describe the change instead")


@tool(effect="read")
async def watch(ctx: ToolContext, path: str) -> str:
    """Wait for new lines in a log.

    Args:
        path: The log file, from the workspace.
    """
    assert ctx.cwd is not None
    log = ctx.cwd / path
    size = log.stat().st_size
    try:
        while log.stat().st_size == size:
            ctx.progress("no new line yet")
            await asyncio.sleep(0.2)
    finally:
        await asyncio.sleep(0.5)  # letting go takes a moment, and a stop waits for it
    return "the log has grown"


async def tell() -> int:
    """Tell the story with the scripted model; the exit code."""
    remembers = Gate()
    model = ScriptedModel(
        calls(call("read", path=LOG), call("read", path=CONFIG), call("read", path=REPORT), saying=_LOOKS),
        gated(
            remembers,
            calls(call("edit", path=CONFIG, old="pool_size = 4", new="pool_size = 8"), saying=_HASTY),
            after=9,
        ),
        says(_FOUND),
        calls(
            call("watch", path=LOG),
            call("grep", pattern="TimeoutError", path=LOG),
            call("read", path=POOL),
            saying=_WATCHES,
        ),
        name="demo",
    )
    async with _stage(model, watch) as (agent, screen, stopping):
        slow_runs = asyncio.Event()
        agent.on.observe(StepStart)(_acts(screen))
        agent.on.execute(_hold_back(agent), name="the demo")
        agent.on.progress(_after(SEEN, slow_runs))
        if screen.alive:
            agent.on.model_stream(_paced, name="the demo")

        async def correct() -> None:
            await remembers.reached
            agent.steer(LIMIT)
            remembers.open()

        async def stop() -> None:
            await slow_runs.wait()
            agent.cancel("user")

        for task, acts in ((TASK, correct), (SECOND_TASK, stop)):
            if stopping.received is None:
                async with _meanwhile(acts()):
                    await run_to_end(agent, task)
        return stopping.exit_code or _epilogue(screen, agent.session)


async def tell_real(spec: str, base_url: str | None) -> int:
    """Give the task to a real model: the limit comes when it takes its second step; the exit code."""
    model = resolve_model(spec, base_url=base_url)
    try:
        async with _stage(model) as (agent, screen, stopping):

            def correct(event: Event) -> None:
                fact = event.fact
                if isinstance(fact, StepStart) and fact.step == 2:
                    agent.steer(LIMIT)

            agent.on.observe(StepStart)(correct)
            result = await run_to_end(agent, TASK)
            lawful = _epilogue(screen, agent.session)
            if result is None:
                return stopping.exit_code or exit_codes.INTERRUPTED
            return stopping.exit_code or lawful or exit_codes.of_reason(result.reason)
    finally:
        await model.aclose()


# The stage


@asynccontextmanager
async def _stage(model: Model, *tools: Tool) -> AsyncIterator[tuple[Agent, Screen, Stopping]]:
    """An agent in a new folder, seen on stdout."""
    folder = _new_folder()
    flaky_service.build(folder)
    screen = Screen(sys.stdout)
    scripted = isinstance(model, ScriptedModel)
    said_by = "The model is scripted; the" if scripted else f"The model is {model.provider}:{model.name}; the"
    screen.line(
        Text.assemble(
            (f"A flaky service, with its log, configuration and code, is in {folder}\n"),
            (f"{said_by} tools, the files, the policy and the log are real.\n\n", "dim"),
            ("» person", "bold"),
            f"  {TASK}",
        )
    )
    running = Running(screen)
    async with (
        place().store() as store,
        Agent(
            model,
            tools=[*workspace(), *tools],
            instructions=INSTRUCTIONS,
            cwd=folder,
            store=store,
            approver=_Hasty(screen),
            preset="ask",
        ) as agent,
        running.counting(),
    ):
        agent.on.progress(running.progress)
        show_all(agent, [LiveView(screen, answers=True).event, running.event])
        with Stopping(agent, screen) as stopping:
            yield agent, screen, stopping


@asynccontextmanager
async def _meanwhile(acts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Somebody acts while the block runs, and is not waited for when it ends."""
    acting = asyncio.create_task(acts)
    try:
        yield
    finally:
        acting.cancel()
        await asyncio.wait((acting,))
        if not acting.cancelled():
            acting.result()


def _new_folder() -> Path:
    """A new folder beside the store, for this user only."""
    parent = default_path().absolute().parent
    try:
        parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        taken = {path.name for path in parent.iterdir()}
        folder = next(parent / name for n in count(1) if (name := f"demo-{n}") not in taken)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise ConfigError(f"No folder for the demo can be made: {error}. Set INTERLOCK_HOME.") from error
    return folder


class _Hasty:
    """The person of the story: makes the limit a guard, and says yes all the same."""

    how = "tty"
    channel = "terminal"

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    async def __call__(self, request: ApprovalRequest, /) -> Approved:
        _narrate(self._screen, _HURRY)
        request.call.agent.guard(analysis_only, name="analysis_only")
        self._screen.line(Text(f"{question(request).strip()} yes"))
        return Approved()


def _narrate(screen: Screen, text: str) -> None:
    screen.line(Text(f"\n{text}\n", "bold yellow"))


def _acts(screen: Screen) -> Callable[[Event], None]:
    def act(event: Event) -> None:
        fact = event.fact
        if isinstance(fact, StepStart) and (text := _ACTS.get((fact.turn, fact.step))) is not None:
            _narrate(screen, text)

    return act


Run: TypeAlias = Callable[[], Awaitable[ToolResult]]


def _hold_back(agent: Agent) -> Callable[[ToolCall, Run], Awaitable[ToolResult]]:
    """Keep the read of the log back until two others are done, and a little longer."""
    overtaken = asyncio.Event()
    agent.on.observe(ToolSettled)(_after(2, overtaken))

    async def hold_back(call: ToolCall, run: Run) -> ToolResult:
        if call.name == "read" and call.arguments["path"] == LOG:
            await overtaken.wait()
            await asyncio.sleep(HELD_BACK)
        return await run()

    return hold_back


def _after(times: int, happened: asyncio.Event) -> Callable[..., None]:
    """A listener that sets `happened` when it is told for that many times."""
    told = count(1)

    def tell(*_: object) -> None:
        if next(told) == times:
            happened.set()

    return tell


async def _paced(request: ModelRequest, stream: Callable[[], AsyncIterator[Chunk]]) -> AsyncIterator[Chunk]:
    async for chunk in stream():
        await asyncio.sleep(PACE)
        yield chunk


def _epilogue(screen: Screen, session: Session) -> int:
    """The session as `interlock log` shows it, and whether it obeys the laws; the exit code."""
    _narrate(screen, f"The same, as `interlock log {session.id}` shows it:")
    timeline = Timeline()
    for event in session.events:
        line = timeline.line(event)
        if line is not None:
            show(screen.console, line)
    breaches = check(session.events)
    for breach in breaches:
        screen.line(Text(f"a law is broken: {breach}", "bold red"))
    if breaches:
        return exit_codes.FAILED
    screen.line(
        f"\n{oneline.count(len(session.events), 'event')}, and every law of the log holds. It is kept in {place()}"
    )
    return exit_codes.COMPLETED
