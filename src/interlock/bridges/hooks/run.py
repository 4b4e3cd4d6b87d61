"""Running handlers.

Lives here: `Runner` and `Ran`. The handlers of one event start together; none can keep another from starting. What
each answers is read in its dialect; one that fails on a gate means no.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import assert_never

from interlock.bridges.hooks.background import Background
from interlock.bridges.hooks.dialects import DIALECTS
from interlock.bridges.hooks.dialects.dialect import Dialect, Printed
from interlock.bridges.hooks.dialects.printed import Object, parse
from interlock.bridges.hooks.environment import exports
from interlock.bridges.hooks.event import TOOL_EVENTS, Occurrence, PreToolUse, SessionStart
from interlock.bridges.hooks.fold import settled
from interlock.bridges.hooks.handler import Command, Handler, Http
from interlock.bridges.hooks.http import PostFailed, post
from interlock.bridges.hooks.matching import Condition, subject
from interlock.bridges.hooks.overflow import Overflow
from interlock.bridges.hooks.verdict import NOTHING, Answer, Problem
from interlock.errors import said_error
from interlock.process.exchange import exchange

_ENV_FILE_LIMIT = 1 << 20  # bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One handler, run."""

    handler: Handler
    answer: Answer  # with what its failure means for the event already in it
    ms: int
    exit: int | None = None  # None: a request, or it did not come to an exit of its own
    exports: Mapping[str, str] = field(
        default_factory=dict
    )  # SessionStart: variables for later shell commands
    waits: bool = True  # False: it runs in the background, and its answer is delivered later
    wakes: str | None = None  # in the background: what an idle session is to be woken with


class Runner:
    """Runs the handlers of one session, and owns those in the background. Close it.

    folder: for files that belong to this session's hooks; made when it is needed.
    condition: whether a call meets the permission rule of a handler's `if`. One that raises is taken as met.
    redacted: takes secrets out of what handlers print, before anything is made of it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        condition: Condition | None = None,
        environ: Mapping[str, str] = os.environ,
        redacted: Callable[[str], str] = str,
    ) -> None:
        self._folder = folder
        self._condition = condition
        self._environ = environ
        self._overflow = Overflow(folder)
        self._redacted = redacted
        self._once: set[str] = set()
        self.on_delivery: Callable[[], object] = lambda: None  # called when `delivered` has something
        self._background: Background[Ran] = Background(lambda: self.on_delivery())

    def select(self, handlers: Sequence[Handler], occurrence: Occurrence) -> tuple[Handler, ...]:
        """Those that are meant by what happened, in their order."""
        return tuple([handler for handler in handlers if self._is_meant(handler, occurrence)])

    def _is_meant(self, handler: Handler, occurrence: Occurrence) -> bool:
        if handler.event != occurrence.event or (handler.once and handler.digest in self._once):
            return False
        word = subject(occurrence)
        if word is not None:
            names: tuple[str, ...] = (word,)
            if occurrence.event in TOOL_EVENTS:
                names = DIALECTS[handler.dialect].tool_names(word)
            if not handler.matcher.meets(names[0], names[1:]):
                return False
        if handler.condition is None:
            return True
        if occurrence.event not in TOOL_EVENTS:
            return False
        if self._condition is None:
            return True
        try:
            return self._condition(handler.condition, occurrence)
        except Exception:  # noqa: BLE001  # a hook that may be meant runs
            return True

    async def run(self, handlers: Sequence[Handler], occurrence: Occurrence) -> tuple[Ran, ...]:
        """Run what `select` chose, together, to the end. Results in the order of `handlers`.

        Raises:
            asyncio.CancelledError: every process is gone by then.
        """
        self._once.update(handler.digest for handler in handlers if handler.once)
        ran: dict[int, Ran] = {}  # by place in `handlers`
        in_turn = [i for i, h in enumerate(handlers) if h.dialect == "gemini" and not h.background]
        if not any(handlers[i].sequential for i in in_turn):
            in_turn = []

        async def one(place: int, occurrence: Occurrence) -> Ran:
            ran[place] = await self._one(handlers[place], occurrence)
            return ran[place]

        async def one_after_another(occurrence: Occurrence) -> None:
            """Each is told what the earlier ones made of the arguments."""
            for place in in_turn:
                change = (await one(place, occurrence)).answer.input
                if isinstance(occurrence.what, PreToolUse) and change is not None:
                    what = replace(occurrence.what, input=change.over(occurrence.what.input))
                    occurrence = replace(occurrence, what=what)

        async with asyncio.TaskGroup() as group:
            for i, handler in enumerate(handlers):
                if handler.background:
                    self._background.start(partial(self._one, handler, occurrence))
                    ran[i] = Ran(handler=handler, answer=NOTHING, ms=0, waits=False)
                elif i not in in_turn:
                    group.create_task(one(i, occurrence))
            if in_turn:
                group.create_task(one_after_another(occurrence))
        return tuple([ran[i] for i in range(len(handlers))])

    def delivered(self) -> tuple[Ran, ...]:
        """What background handlers have answered since the last time: contexts, messages and wakes only."""
        return tuple([_undecided(ran) for ran in self._background.take()])

    async def aclose(self) -> None:
        """End what still runs in the background."""
        await self._background.aclose()

    # One handler

    async def _one(self, handler: Handler, occurrence: Occurrence) -> Ran:
        started = perf_counter()
        dialect = DIALECTS[handler.dialect]
        try:
            body = json.dumps(dialect.encode(occurrence), ensure_ascii=False).encode(errors="replace")
            match handler.action:
                case Command():
                    ran = await self._command(handler, handler.action, dialect, occurrence, body)
                case Http():
                    ran = await self._http(handler, handler.action, dialect, occurrence, body)
                case _:
                    assert_never(handler.action)
        except Exception as error:  # noqa: BLE001  # a handler that cannot be run has failed, whatever the cause
            ran = _failed(handler, f"could not be run: {said_error(error)}")
        answer = settled(handler.event, handler.on_failure, self._bounded(ran.answer))
        return replace(ran, answer=answer, ms=round((perf_counter() - started) * 1000))

    def _bounded(self, answer: Answer) -> Answer:
        told = self._overflow.told
        return replace(
            answer,
            contexts=tuple([told(text) for text in answer.contexts]),
            messages=tuple([told(text) for text in answer.messages]),
            block=None if answer.block is None else told(answer.block),
        )

    async def _http(
        self, handler: Handler, action: Http, dialect: Dialect, occurrence: Occurrence, body: bytes
    ) -> Ran:
        try:
            async with asyncio.timeout(handler.timeout):
                said = self._redacted(await post(action, body, environ=self._environ))
        except TimeoutError:
            return _failed(handler, f"did not answer within {handler.timeout:g} s")
        except PostFailed as error:
            return _failed(handler, str(error))
        if said.strip() and not isinstance(parse(said), Object):
            return _failed(handler, "answered with something that is not a JSON object")
        return Ran(handler=handler, answer=dialect.decode(occurrence, Printed(0, said)), ms=0)

    async def _command(
        self, handler: Handler, action: Command, dialect: Dialect, occurrence: Occurrence, body: bytes
    ) -> Ran:
        environment = {name: value for name, value in self._environ.items() if not name.startswith("OTEL_")}
        environment.update(dialect.environment(occurrence))
        file = None
        if isinstance(occurrence.what, SessionStart) and handler.dialect == "claude":
            file = self._env_file()
            environment["CLAUDE_ENV_FILE"] = str(file)
        try:
            done = await exchange(
                _argv(action, environment),
                given=body,
                cwd=_folder(occurrence),
                environment=environment,
                timeout=handler.timeout,
            )
            if done.how == "timed-out":
                return _failed(handler, f"did not end within {handler.timeout:g} s")
            if done.code is None:
                code = 128 + (done.killed_by or 0)
            else:
                code = done.code
            stdout, stderr = self._redacted(done.stdout), self._redacted(done.stderr)
            answer = dialect.decode(occurrence, Printed(code, stdout, stderr))
            found: dict[str, str] = {}
            if file is not None:
                found, unread = _exports(file, self._environ)
                answer = replace(
                    answer,
                    problems=answer.problems
                    + tuple([Problem(f"Not understood in CLAUDE_ENV_FILE: {line}") for line in unread]),
                )
            answer = replace(answer, problems=tuple([_placed(one, handler) for one in answer.problems]))
            return Ran(
                handler=handler,
                answer=answer,
                ms=0,
                exit=done.code,
                exports=found,
                wakes=stderr.strip() or None if handler.rewake and code == 2 else None,
            )
        except (OSError, ValueError) as error:
            return _failed(handler, f"could not be started: {said_error(error)}")
        finally:
            if file is not None:
                file.unlink(missing_ok=True)

    def _env_file(self) -> Path:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file = self._folder / f"env-{os.urandom(6).hex()}.sh"
        file.touch(mode=0o600)
        return file


def _failed(handler: Handler, failure: str) -> Ran:
    return Ran(handler=handler, answer=Answer(failure=failure), ms=0)


def _placed(problem: Problem, handler: Handler) -> Problem:
    """A problem that a handler made is reported where it is written."""
    return (
        problem if problem.file else replace(problem, file=str(handler.place.file), line=handler.place.line)
    )


def _undecided(ran: Ran) -> Ran:
    """What a handler in the background said, without its decisions: they come too late."""
    answer = ran.answer
    kept = Answer(
        contexts=answer.contexts, messages=answer.messages, failure=answer.failure, problems=answer.problems
    )
    return replace(ran, answer=kept, waits=False)


def _folder(occurrence: Occurrence) -> Path:
    """Where the session is, or where it began if that folder has gone."""
    return occurrence.cwd if occurrence.cwd.is_dir() else occurrence.project


_PLACEHOLDERS = ("CLAUDE_PROJECT_DIR", "CLAUDE_PLUGIN_ROOT", "CLAUDE_PLUGIN_DATA")


def _argv(action: Command, environment: Mapping[str, str]) -> tuple[str, ...]:
    if action.args is not None:
        return tuple([_filled(word, environment) for word in (action.command, *action.args)])
    match action.shell:
        case "bash":
            return (shutil.which("bash") or "sh", "-c", action.command)
        case "login":
            return (environment.get("SHELL") or "/bin/sh", "-lc", action.command)
        case "powershell":
            return (
                shutil.which("pwsh") or "powershell",
                "-NoProfile",
                "-NonInteractive",
                "-Command",
                action.command,
            )
        case "sh":
            return ("/bin/sh", "-c", action.command)


def _filled(word: str, environment: Mapping[str, str]) -> str:
    """A word of the `args` form: no shell is there to put in the names of folders."""
    for name in _PLACEHOLDERS:
        if name in environment:
            word = word.replace(f"${{{name}}}", environment[name])
    return word


def _exports(file: Path, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    try:
        with file.open("rb") as content:
            text = content.read(_ENV_FILE_LIMIT).decode(errors="replace")
    except OSError as error:
        return {}, [f"the file cannot be read: {said_error(error)}"]
    return exports(text, environ)
