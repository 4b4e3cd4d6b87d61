"""One task for one agent, from the command line: its screen, its output, its end.

Lives here: `drive`. What is live goes to stderr, what was asked for to stdout, so that `answer=$(interlock run …)` has
the answer and nothing else.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal, TypeAlias, assert_never

import msgspec

from interlock.cli import exit_codes
from interlock.cli.consent import hooks_for, trusts
from interlock.cli.live import LiveView, Running
from interlock.cli.oneline import count, short
from interlock.cli.place import place, redactor
from interlock.cli.screen import Screen
from interlock.cli.stopping import Stopping
from interlock.cli.trace import Trace
from interlock.errors import InputDropped, SessionBusy, TurnWaits, UsageError
from interlock.log.event import Event, encode_event, encode_json
from interlock.log.reasons import describe
from interlock.log.session import Session, open_session
from interlock.log.stores.store import Store
from interlock.loop.agent import Agent
from interlock.loop.budget import Budget
from interlock.loop.result import TurnResult
from interlock.loop.status import Status
from interlock.models.protocol import Model
from interlock.models.registry import resolve_model
from interlock.policy.approval import AnswerLater
from interlock.policy.approvals.grants import Grants
from interlock.policy.printable import printable
from interlock.policy.settings import DEFAULT, Settings
from interlock.policy.stdio import StdioApprover
from interlock.policy.terminal import TerminalApprover
from interlock.process.sandbox import SandboxSettings, sandbox_settings
from interlock.toolkit import workspace
from interlock.tools.confinement import SandboxMode

OutputFormat: TypeAlias = Literal["text", "json", "stream-json"]
Ask: TypeAlias = Literal["terminal", "stdio", "wait", "none"]

_AT_ONCE = 500  # lines that are echoed before others on the event loop have a turn

INSTRUCTIONS = (
    "You work in the folder of a person who gave you one task, with tools for its files and a shell. Read before you "
    "change anything. A call may be refused: read the reason, and do not try to get around it. When the task is done, "
    "answer in a few sentences; nobody can answer questions."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What `interlock run` was asked for."""

    prompt: str | None  # None: go on with what waits
    model: str
    base_url: str | None
    cwd: str | None  # None: that of the session to go on with, else this one
    output: OutputFormat
    budget: Budget | None
    preset: str | None  # None: that of the session to go on with, else what the files say
    sandbox: SandboxMode | None  # None: the preset's, or what the files say
    rules: tuple[Path, ...] | None  # None: those of the folder and the person
    trace: bool
    ask: Ask
    hooks: bool  # of other programs, found for the folder
    redact: bool  # secrets are taken out
    session: str | None = None  # to go on with: its whole id
    resume_pending: bool = False  # run what was left pending in it


async def drive(task: Task) -> int:
    """Run the task; the exit code.

    Raises:
        InterlockError: a setting is wrong, or the log cannot be written.
        BrokenPipeError: whoever read the output has gone; the turn was stopped.
    """
    model = resolve_model(task.model, base_url=task.base_url)
    try:
        async with place().store() as store:
            return await _run(task, model, store)
    finally:
        await model.aclose()


async def _run(task: Task, model: Model, store: Store) -> int:
    earlier = await _look_at(task, store) if task.session is not None else _Earlier()
    cwd = task.cwd or earlier.cwd or "."
    screen = Screen(sys.stderr)
    running = Running(screen)
    live = task.output == "text" and not task.trace
    shows: list[Callable[[Event], None]] = []
    if task.trace:
        shows.append(tracing(screen))
    elif live:
        shows.append(LiveView(screen, answers=screen.alive).event)
    shows.append(running.event)
    person = sys.stdin.isatty()
    settings = Settings.load(cwd, only=task.rules, trusted=not person or trusts(cwd))
    agent = Agent(
        model,
        tools=workspace(),
        instructions=INSTRUCTIONS,
        cwd=cwd,
        store=store,
        session=task.session,
        resume_pending=task.resume_pending,
        budget=task.budget,
        preset=task.preset or (None if earlier.has_preset else settings.preset or DEFAULT),
        rules=settings.effective,
        sandbox=_sandbox(task, settings),
        redact=redactor() if task.redact else None,
    )
    agent.approvals.grants = Grants()
    agent.on.progress(running.progress)
    if task.hooks:
        hooks_for(cwd, person=person).attach(agent)
    stopping = Stopping(agent, screen)
    try:
        async with (
            asyncio.TaskGroup() as tasks,
            asking(task.ask, agent, screen) as asked,
            agent,
            running.counting(),
        ):
            show_sandbox(agent, screen)
            show_all(agent, shows)
            if task.session is not None:
                show_pending(agent.session, screen)
            if task.output == "stream-json":
                tasks.create_task(echo(agent.session, sys.stdout.buffer))
            with stopping:
                result = await run_or_leave(agent, task.prompt, asked)
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None  # one is enough to tell; the others are its consequences
    if asked.left:
        _give_waiting(agent.session, task.output, screen)
        return exit_codes.WAITING
    if result is None:
        return stopping.exit_code or exit_codes.INTERRUPTED
    code = exit_codes.of_reason(result.reason)
    last = agent.last_result or result  # of what others have sent, perhaps
    ends = (code, exit_codes.of_reason(last.reason))
    if exit_codes.INTERRUPTED in ends and stopping.exit_code is not None:
        code = stopping.exit_code
    if live:
        screen.line(f"interlock log {result.session.id}")
    elif not result.ok:
        screen.line(f"interlock: {printable(describe(result.reason))} (interlock log {result.session.id})")
    _give(result, task.output, seen=live and screen.alive)
    return code


async def run_to_end(agent: Agent, prompt: str | None) -> TurnResult | None:
    """The turn of this prompt, or the one that was left waiting; None if it was stopped before there was one, or is
    left waiting again. What others have sent meanwhile has come to its end as well."""
    if prompt is None:
        await _until_idle(agent)
        return agent.last_result
    try:
        result = await agent.run(prompt)
    except (InputDropped, TurnWaits):
        return None
    await _until_idle(agent)
    return result


async def _until_idle(agent: Agent) -> None:
    await agent.idle()
    while agent.status is Status.RUNNING:  # a letter came while the disk was waited for
        await agent.idle()


@dataclass(frozen=True, slots=True)
class _Earlier:
    """What a session to go on with says of itself: where it works, and whether a preset was chosen for it."""

    cwd: str | None = None
    has_preset: bool = False


async def _look_at(task: Task, store: Store) -> _Earlier:
    """What the session says that the task goes on with.

    Raises:
        SessionBusy: nothing waits in it for us, since somebody else drives it.
        UsageError: nothing waits in it, and no task is given.
    """
    assert task.session is not None
    session = await open_session(task.session, store=store, readonly=True)
    try:
        if task.prompt is None and not session.state.waiting:
            await _refuse_if_driven(task.session, store)
            letters = await session.journal.letters(session.state.mail)
            _refuse_without_work(session, task, len(letters))
        created = session.state.created
        return _Earlier(created.cwd if created is not None else None, session.state.preset is not None)
    finally:
        await session.close()


async def _refuse_if_driven(session_id: str, store: Store) -> None:
    """
    Raises:
        SessionBusy: somebody else drives the session.
    """
    holder = await store.holder(session_id)
    if holder is not None:
        raise SessionBusy(session_id, holder)


def _refuse_without_work(session: Session, task: Task, letters: int) -> None:
    """
    Args:
        letters: that wait in its mailbox.

    Raises:
        UsageError: nothing is to be done.
    """
    pending = len(session.state.queues) + letters
    if pending and task.resume_pending:
        return
    if pending:
        raise UsageError(
            f"{count(pending, 'message')} pending in session {session.id}, parked: run with --resume-pending, or give a "
            f"task, which comes after. `interlock log {session.id}` shows them."
        )
    raise UsageError(
        f"Nothing waits in session {session.id}: give a task, or see what it did with "
        f"`interlock log {session.id}`."
    )


def _sandbox(task: Task, settings: Settings) -> SandboxSettings | None:
    """What the files say of the sandbox, with the mode of the command line."""
    table = settings.table("sandbox")
    made = SandboxSettings()
    if table is not None:
        document, _ = table
        made = sandbox_settings(document.data, document.shown)
    return msgspec.structs.replace(made, mode=task.sandbox or made.mode)


def show_sandbox(agent: Agent, screen: Screen) -> None:
    """Say how commands are confined, if they are. What the log says of it is known once the session is open."""
    if agent.confinement is not None:
        problem = agent.confinement.problem()
        enforced = f"cannot be enforced, and no command runs: {problem}" if problem else "is enforced"
        screen.line(printable(f"sandbox {agent.confinement.mode}: {enforced}"))


def show_all(agent: Agent, shows: Sequence[Callable[[Event], None]]) -> None:
    """Show what the agent's log has of this life, and of a step that it goes on with; and then what comes."""
    session, state = agent.session, agent.session.state
    step = state.step
    first = 0 if state.life == 1 else state.opened_seq if step is None else min(step.seq, state.opened_seq)
    earlier = session.events[state.preset_seq : state.preset_seq + 1] if state.preset_seq < first else ()
    for event in (*earlier, *session.events[first:]):
        for show in shows:
            show(event)
    for show in shows:
        agent.on.observe()(show)


def show_pending(session: Session, screen: Screen) -> None:
    """Say what an earlier life has left pending. It comes before whatever is sent now."""
    for waiting in (*session.state.queues.next_step, *session.state.queues.next_turn):
        sent = getattr(session.events[waiting.seq].fact, "letter", None) is not None  # and taken just now
        if sent or waiting.seq < session.state.opened_seq:
            screen.line(f"pending from before: {short(waiting.message.text, 100)}")


def tracing(screen: Screen) -> Callable[[Event], None]:
    """Writes the lines of a `Trace` on the screen."""
    trace = Trace()

    def show(event: Event) -> None:
        for line in trace.lines(event):
            screen.line(line)

    return show


class Asking:
    """waits: set once nothing goes on but for a person; None: that is waited for. left: the session was left so."""

    waits: asyncio.Event | None = None
    left = False


@asynccontextmanager
async def asking(ask: Ask, agent: Agent, screen: Screen) -> AsyncIterator[Asking]:
    """Give the agent, before it is opened, whoever can be asked while the block runs."""
    asked = Asking()
    match ask:
        case "none":
            yield asked
        case "terminal":
            agent.approvals.add(TerminalApprover(around=screen.step_aside))
            yield asked
        case "stdio":
            async with StdioApprover() as channel:
                agent.approvals.add(channel)
                yield asked
        case "wait":
            agent.approvals.add(AnswerLater())
            waits = asked.waits = asyncio.Event()
            agent.on.status(lambda status: waits.set() if status is Status.WAITING else None)
            yield asked
        case _:
            assert_never(ask)


async def run_or_leave(agent: Agent, prompt: str | None, asked: Asking) -> TurnResult | None:
    """As `run_to_end`; where nothing goes on but for a person who is not waited for, the agent is left as it is.

    A call within another one cannot be left: it ends with its process.
    """
    if asked.waits is None:
        return await run_to_end(agent, prompt)
    running = asyncio.create_task(run_to_end(agent, prompt))
    waiting = asyncio.create_task(asked.waits.wait())
    try:
        await asyncio.wait((running, waiting), return_when=asyncio.FIRST_COMPLETED)
        if not running.done():
            asked.left = agent.session.state.waiting
            await agent.aclose()
        return await running
    finally:
        for task in (running, waiting):
            task.cancel()
        await asyncio.wait((running, waiting))


async def echo(session: Session, out: BinaryIO) -> None:
    """Write every line of the log, from the first, until the session is closed: a cursor that delays nobody.

    Raises:
        BrokenPipeError: nobody reads it any more.
    """
    at = -1
    while True:
        lines = [encode_event(event) + b"\n" for event in session.events[at + 1 : at + 1 + _AT_ONCE]]
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


def _give_waiting(session: Session, output: OutputFormat, screen: Screen) -> None:
    """What is waited for, and how to go on."""
    ids = [f"{session.id}/{approval}" for approval in session.state.approvals]
    if output == "json":
        reason = {"kind": "waiting", "approvals": ids}
        summary = {"session": session.id, "ok": False, "reason": reason, "turn": session.state.turns}
        sys.stdout.buffer.write(encode_json(summary) + b"\n")
    for one in ids:
        screen.line(f"waiting for a person: interlock approvals answer {one} yes|no")
    screen.line(f"then go on: interlock run --resume {session.id}")
