"""The outside hooks of one session.

Lives here: `SessionHooks`: which handlers an event concerns, their two lines in the log, what they say together, and
the work after the fact that is owned here and awaited at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, Protocol

from interlock.bridges.hooks.batch import LastBatch
from interlock.bridges.hooks.event import EventName, Happening, Notification, Occurrence, PermissionMode
from interlock.bridges.hooks.files import Loaded
from interlock.bridges.hooks.fold import fold
from interlock.bridges.hooks.forced import Forced
from interlock.bridges.hooks.handler import Handler
from interlock.bridges.hooks.record import invoked, resulted
from interlock.bridges.hooks.run import Ran, Runner
from interlock.bridges.hooks.transcript import Transcript
from interlock.bridges.hooks.verdict import NOTHING, Answer, Problem
from interlock.errors import said_error
from interlock.log.facts import HookProblem, HookResulted
from interlock.log.messages import Message, Source
from interlock.log.session import Session

LAST = 10.0  # seconds that what was begun after the fact may take when the session is left
_MODES: dict[str, PermissionMode] = {
    "plan": "plan",
    "ask": "default",
    "accept-edits": "acceptEdits",
    "full": "bypassPermissions",
}


@dataclass(frozen=True, slots=True)
class Heard:
    """What the handlers of one event said: one by one, and together."""

    ran: tuple[Ran, ...] = ()
    answer: Answer = NOTHING
    won: frozenset[int] = frozenset()

    @property
    def contexts(self) -> tuple[Message, ...]:
        """What they tell the model, each in its own name."""
        return tuple(
            [
                Message.context(text, source=source_of(ran.handler))
                for ran in self.ran
                for text in ran.answer.contexts
            ]
        )

    @property
    def winners(self) -> tuple[Ran, ...]:
        return tuple([ran for i, ran in enumerate(self.ran) if i in self.won])


def source_of(handler: Handler) -> Source:
    return Source("hook", handler.who)


class Configured(Protocol):
    """What is configured, kept current."""

    def current(self) -> Loaded:
        """The handlers that may run now, in declared order, and what is wrong with the files. It never raises."""


class SessionHooks:
    """One session and its hooks. `aclose` waits for what was begun after the fact, and ends what is left."""

    def __init__(
        self, agent: Any, configured: Configured, runner: Runner, folder: Path | None = None
    ) -> None:
        """
        Args:
            folder: for the transcript; without one there is none.
        """
        self.agent = agent
        self.session: Session = agent.session
        self.configured = configured
        self.runner = runner
        self.transcript = Transcript(self.session, folder, self.cwd) if folder is not None else None
        self.prompt: Message | None = None  # the last one of a person
        self.detached = False  # nobody asks it any more; what was begun is still waited for
        self.stopped: str | None = None  # why the next turn does not run, if a SessionStart hook said so
        self.batch = LastBatch(self.session)
        self.forced = Forced(self.session)
        self.exports: dict[str, str] = {}  # variables for the commands of this session
        self.undo = ExitStack()  # what listens for this session alone
        self.undo.callback(self.batch.close)
        self._told: set[Problem] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._background: dict[Handler, list[str]] = {}  # ids of lines that wait for their result
        self._said_later: list[Message] = []  # by background handlers
        self._leaving = False
        runner.on_delivery = self._collect
        self._spent: set[str] | None = None  # digests of `once` handlers that have run

    # Asking

    async def hear(self, what: Happening, *, call: int | None = None, unused: str | None = None) -> Heard:
        """Run the handlers that this concerns, together, and fold what they say in declared order.

        Args:
            call: the key of the call that it is about.
            unused: why a block, or what is told beside it, is not going to have an effect, if it is not.

        Raises:
            asyncio.CancelledError: cut; every process is gone, and the log says so.
        """
        occurrence = self.occurrence(what)
        handlers = self._chosen(occurrence)
        if not handlers:
            return NOBODY
        await self._write_transcript()
        lines = self._begin(handlers, occurrence, call)
        began = perf_counter()
        try:
            ran = await self.runner.run(handlers, occurrence)
        except BaseException as error:
            if not self.session.closed and self.session.failure is None:
                ms = round((perf_counter() - began) * 1000)
                cut = isinstance(error, asyncio.CancelledError)
                why = "it was cut: the turn was stopped" if cut else said_error(error)
                self.session.append(*[HookResulted(hook_id, ms, error=why) for hook_id in lines])
            raise
        folded = fold(occurrence, [one.answer for one in ran])
        for i, (hook_id, one) in enumerate(zip(lines, ran, strict=True)):
            if not one.waits:
                self._background.setdefault(one.handler, []).append(hook_id)
                continue
            lost = unused if one.answer.block is not None or one.answer.contexts else None
            won = i in folded.won and lost is None
            if lost is None and not won and one.answer.decides:
                lost = "another hook's answer stands"
            self.session.append(resulted(hook_id, one, won=won, unused=lost))
            self.report(*one.answer.problems)
        return Heard(ran, folded.answer, folded.won)

    def _chosen(self, occurrence: Occurrence) -> tuple[Handler, ...]:
        loaded = self.configured.current()
        self.report(*loaded.problems)
        chosen = self.runner.select(self._permitted(loaded.handlers), occurrence)
        if any(handler.once for handler in chosen):
            spent = self._already_ran()
            chosen = tuple([handler for handler in chosen if not (handler.once and handler.digest in spent)])
            spent.update([handler.digest for handler in chosen if handler.once])
        return chosen

    def configures(self, event: EventName) -> bool:
        """Whether any handler of this event may run."""
        handlers = self._permitted(self.configured.current().handlers)
        return any(handler.event == event for handler in handlers)

    def _permitted(self, handlers: tuple[Handler, ...]) -> tuple[Handler, ...]:
        """Those that the ceiling lets in."""
        origins: tuple[str, ...] | None = self.agent.harness.ceiling.hooks
        if origins is None:
            return handlers
        return tuple([handler for handler in handlers if handler.place.origin in origins])

    def _already_ran(self) -> set[str]:
        """What the log says has run: a `once` handler runs once a session, also over a restart."""
        if self._spent is None:
            self._spent = set(self.session.state.hooks)
        return self._spent

    async def _write_transcript(self) -> None:
        if self.transcript is not None:
            try:
                await self.transcript.update()
            except OSError as error:
                self.report(Problem(f"the transcript cannot be written: {said_error(error)}"))

    def _begin(self, handlers: tuple[Handler, ...], occurrence: Occurrence, call: int | None) -> list[str]:
        first = self.session.head + 1
        lines = [f"h{first + i}" for i in range(len(handlers))]
        self.session.append(
            *[
                invoked(hook_id, occurrence.event, handler, call)
                for hook_id, handler in zip(lines, handlers, strict=True)
            ]
        )
        return lines

    def delivered(self) -> tuple[Message, ...]:
        """What background handlers have had to say to the model since the last time."""
        said, self._said_later = self._said_later, []
        return tuple(said)

    def _collect(self) -> None:
        """Background handlers have answered: it is put on record, and an idle session is woken if one asks for it."""
        if self.session.closed or self.session.failure is not None:
            return
        for ran in self.runner.delivered():
            waiting = self._background.get(ran.handler)
            if waiting:
                self.session.append(resulted(waiting.pop(0), ran, won=False, unused=None))
            self.report(*ran.answer.problems)
            source = source_of(ran.handler)
            self._said_later += [Message.context(text, source=source) for text in ran.answer.contexts]
            if ran.wakes is not None and not self._leaving:
                self.agent.steer(Message.user(ran.wakes, source=source))

    def report(self, *problems: Problem) -> None:
        """Put problems on record, each once."""
        for problem in problems:
            if problem not in self._told:
                self._told.add(problem)
                self.session.append(HookProblem(problem.file or "", problem.what, problem.line))

    # Where it happens

    @property
    def cwd(self) -> Path:
        return self.agent.cwd or Path.cwd()

    def occurrence(self, what: Happening) -> Occurrence:
        agent, state, cwd = self.agent, self.session.state, self.cwd
        preset = state.preset.preset if state.preset is not None else None
        return Occurrence(
            what=what,
            session_id=self.session.id,
            cwd=cwd,
            project=cwd,
            transcript_path=str(self.transcript.path) if self.transcript is not None else None,
            permission_mode=_MODES.get(preset or "", "default"),
            model=agent.model.name if agent.model is not None else "",
            turn_id=str(state.turn.number) if state.turn is not None else None,
            prompt_id=self.prompt.id if self.prompt is not None else None,
            time=self.session.now(),
        )

    # After the fact

    def ask_notice(self, tool: str, question: str) -> None:
        """A person is asked now."""
        message = f"{tool}: {question}"
        self.later(
            Notification(notification_type="permission_prompt", title="Permission needed", message=message)
        )

    def later(self, what: Happening) -> None:
        """Tell hooks of it without waiting for them: the session waits when it is left."""
        task = asyncio.get_running_loop().create_task(self._contained(self.hear(what)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _contained(self, work: Coroutine[Any, Any, object]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001  # nobody waits for it: on record
            self.session.contained("hooks", "hooks", error, max(self.session.head, 0))

    async def aclose(self) -> None:
        """Wait for what was begun after the fact, end what takes too long, and what runs in the background."""
        self.undo.close()
        self._leaving = True
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=LAST)
        finally:
            for task in self._tasks:
                task.cancel()
            while self._tasks:
                await asyncio.wait(self._tasks)
            await self.runner.aclose()
            if self.session.failure is None:
                self._collect()
                for ids in self._background.values():
                    self.session.append(
                        *[HookResulted(i, 0, error="it was ended with the session") for i in ids]
                    )
                self._background.clear()


NOBODY = Heard()
