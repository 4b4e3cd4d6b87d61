"""The live handle of one session: it takes input, drives turns, and stops.

Lives here: `Agent`. Its verbs return at once; one task of its own, the drive, does the work and is awaited by `idle`
and by leaving the agent. Everything the agent knows is in the log; what is kept here is only who waits for what.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal, assert_never, get_args

from interlock.context.sections import Instructions, sections
from interlock.context.workspace import WorkspaceContext
from interlock.errors import (
    ConfigError,
    InputDropped,
    ModelFailure,
    SessionClosed,
    TurnWaits,
    UsageError,
    WrongThread,
)
from interlock.intercept.point import SPEAKER, Listener, hear, tell
from interlock.intercept.signal import Signal
from interlock.log.closing import Redo, end_approval
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalDecided,
    CancelRequested,
    Fact,
    InboxDropped,
    ListName,
    Section,
    Stamp,
    ToolSpec,
    TurnEnd,
)
from interlock.log.forking import fork_session
from interlock.log.messages import Message, Source
from interlock.log.reasons import (
    Aborted,
    Blocked,
    Cause,
    CauseKind,
    Completed,
    EndReason,
    Failed,
    Interrupted,
    MaxTokens,
    OverBudget,
)
from interlock.log.session import Session, create_session, open_session
from interlock.log.strictjson import FrozenDict, NotJSON, freeze
from interlock.loop.budget import Budget, Meter
from interlock.loop.harness import Harness, Layer
from interlock.loop.inbox import Inbox, checked
from interlock.loop.mail import Incoming
from interlock.loop.points import (
    EVENT,
    INBOX,
    SESSION_END,
    SESSION_START,
    STATUS,
    EventFilter,
    InboxNotice,
    SessionEnd,
    SessionStart,
)
from interlock.loop.request import Assembler
from interlock.loop.result import Receipt, TurnResult
from interlock.loop.status import Status
from interlock.loop.stop import cause_of, grace_ms
from interlock.loop.threadsafe import Threadsafe
from interlock.loop.turn import TurnRun
from interlock.models.protocol import Model
from interlock.models.registry import resolve_model
from interlock.models.retry import RetryPolicy
from interlock.policy.approval import ApproverFunction
from interlock.policy.approvals.service import Approvals
from interlock.policy.policy import GivenRules, Policy, rules_given
from interlock.policy.preset import Preset
from interlock.policy.rules.ruleset import RuleSet
from interlock.tools.call import ToolCall
from interlock.tools.confinement import Confinement, SandboxMode
from interlock.tools.definition import Tool
from interlock.tools.rules import Ruled
from interlock.tools.scheduler import Left, checked_pool

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.store import Store
    from interlock.process.sandbox import SandboxSettings

_RUNTIME = Source("runtime", "workspace")
_RNG = Random()  # of all agents that are given none: it spreads retries, and one takes 3 KB


class Agent(Layer):
    """Drives one session. An async context manager: leaving it stops the work, waits for it, and closes the log.

    model: `"provider:name"` or a `Model`. instructions: the system prompt, as text, sections, or several of them.
    cwd: the working folder; with it, the model is told of the folder, the date and its AGENTS.md. session: the id of a
    session to go on with. fork: go on with a fork of it instead, from the end of this turn or of its last closed one.
    resume_pending: run what was left pending in it, which otherwise stays parked until a wake. redo: run calls
    again that a crash has cut in a step which waits for a person: those of READ tools, or of IDEMPOTENT ones as well;
    otherwise their outcome is not known. store: where the session is kept, in memory by default. approver: who can be
    asked; without one, asking means no. approval_timeout: seconds after which an unanswered question is a no. preset:
    what happens to calls that nobody spoke about; without one they run, and a session that is resumed keeps the one it
    had. rules: permission rules, as lists by effect or from `load_rules`. sandbox: how tools that run processes are
    confined, instead of as the preset says: a mode, or settings. redact: takes secrets out of all that the log and the
    model get; its `add` declares one more. budget, pool, retry: as on `Harness`. settings: of the model call, such as
    `temperature`.

    All of it belongs to one event loop; from another thread use `threadsafe`.
    """

    def __init__(
        self,
        model: str | Model | None = None,
        *,
        tools: Iterable[Tool | Callable[..., Any]] = (),
        instructions: Instructions = None,
        cwd: str | Path | None = None,
        session: str | None = None,
        fork: int | Literal["last"] | None = None,
        resume_pending: bool = False,
        redo: Redo | None = None,
        store: Store | None = None,
        approver: ApproverFunction | None = None,
        approval_timeout: float | None = None,
        budget: Budget | None = None,
        pool: int | None = None,
        harness: Harness | None = None,
        layer: Layer | None = None,
        name: str | None = None,
        preset: str | Preset | None = None,
        rules: GivenRules | None = None,
        sandbox: SandboxMode | SandboxSettings | None = None,
        retry: RetryPolicy | None = None,
        settings: Mapping[str, Any] | None = None,
        rng: Random | None = None,
        today: Callable[[], date] | None = None,
        redact: Redactor | None = None,
    ) -> None:
        """
        Raises:
            ConfigError: a setting that cannot work; nothing was opened.
        """
        self._own_harness = harness is None
        self.harness = harness if harness is not None else Harness(store=store)
        super().__init__(name or "agent", layer or self.harness)
        self.name = name
        self.redact = redact if redact is not None else self.harness.redact
        self.cwd = Path(cwd).expanduser().absolute() if cwd is not None else None
        if self.cwd is not None and not self.cwd.is_dir():
            raise ConfigError(f"cwd {str(self.cwd)!r} is no folder")
        given = model if model is not None else self.harness.model
        self._model: Model | None = resolve_model(given) if given is not None else None
        if self._model is not None and not isinstance(self._model, Model):
            raise ConfigError(f"a model is provider:name or an adapter, not {type(self._model).__name__}")
        self._owns_model = isinstance(given, str)
        self._others: dict[str, Model] = {}  # that listeners at agent/request asked for, by provider:name
        self.sections: tuple[Section, ...] = sections(instructions)
        if fork is not None and session is None:
            raise ConfigError("fork= needs session=: the session to fork")
        if fork is not None and fork != "last" and type(fork) is not int:
            raise ConfigError(f"fork is 'last' or the number of a turn, not {fork!r}")
        if redo not in (None, *get_args(Redo)):
            raise ConfigError(f"redo is 'read' or 'idempotent', not {redo!r}")
        self._resume, self._fork, self._resume_pending, self._redo = session, fork, resume_pending, redo
        self._store: Store = store if store is not None else self.harness.store
        self.approvals = Approvals(
            approver if approver is not None else self.harness.approver,
            lifetime=approval_timeout,
            propose=_propose,
        )
        self._budgets = (self.harness.limit, self.harness.budget, budget)
        self.pool = checked_pool(pool if pool is not None else self.harness.pool)
        shared = self.harness.rules or RuleSet()
        own = rules_given(rules, self.cwd or Path.cwd()) if rules is not None else None
        self._sandboxing = None if isinstance(sandbox, str) else sandbox
        self.policy = Policy(
            shared.and_(own) if own is not None else shared,
            self.harness.ceiling,
            preset=preset,
            sandbox=sandbox if isinstance(sandbox, str) else sandbox.mode if sandbox is not None else None,
        )
        self.confinement: Confinement | None = self._confined()
        self.retry = retry or self.harness.retry or RetryPolicy()
        names = {} if self._model is None else {"provider": self._model.provider, "model": self._model.name}
        try:
            self.call_settings: FrozenDict = freeze({**names, **(settings or {})})
        except NotJSON as error:
            raise ConfigError(f"settings: {error}") from None
        self.rng = rng or _RNG
        self._workspace = WorkspaceContext(self.cwd, today or _today) if self.cwd is not None else None
        for tool in tools:
            self.add_tool(tool)

        self._session: Session | None = None
        self._inbox: Inbox | None = None
        self._assembler: Assembler | None = None
        #: All tools as the model would be shown them, and those that no rule hides.
        self._shown: tuple[tuple[ToolSpec, ...], tuple[ToolSpec, ...]] | None = None
        self._status = Status.IDLE
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._drive_task: asyncio.Task[None] | None = None
        self._turn: TurnRun | None = None
        self._signal: Signal | None = None  # of the open turn
        self._woken = False  # a waking verb came since the last turn ended
        self._latched: set[str] = set()  # messages that woke after the stop of the open turn
        self._halt = False  # a cancel came between turns
        self._disposed = False
        self._left: TurnWaits | None = None  # the open turn waits for a person, and is left so
        self._failure: Exception | None = None  # why nothing further starts
        self._receipts: dict[str, Receipt] = {}
        self._own_budgets: dict[str, Budget] = {}  # by message, from run(budget=)
        self._graces: set[asyncio.TimerHandle] = set()
        self._abandoned: set[asyncio.Task[None]] = set()
        self._last_result: TurnResult | None = None
        self._unobserve: Callable[[], None] | None = None
        self._mail: Incoming | None = None
        self.threadsafe = Threadsafe(self)

    # Opening and closing

    async def __aenter__(self) -> Agent:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def open(self) -> None:
        """Open the session, or a new one, for driving. Entering the agent does it.

        A turn that an earlier life has left waiting for a person goes on by itself.

        Raises:
            SessionError: the session cannot be opened.
        """
        if self._session is not None:
            raise UsageError("this agent is open already; use one agent for one `async with`")
        if self.scope.closed:
            raise UsageError(
                "the layer of this agent was left: its guards and tools are gone; make a new agent"
            )
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        if self._resume is None:
            cwd = str(self.cwd) if self.cwd is not None else None
            session = await create_session(self._store, cwd=cwd, agent=self.name, redactor=self.redact)
        elif self._fork is not None:
            at = None if self._fork == "last" else self._fork
            session = await fork_session(self._resume, store=self._store, at=at, redactor=self.redact)
        else:
            session = await open_session(
                self._resume, store=self._store, redo=self._redo, redactor=self.redact
            )
        self._session = session
        self._inbox = Inbox(session, self._ready, self._notice)
        self._assembler = Assembler(session, self.scope)
        session.observe(self._admission, InboxDropped, who="agent")
        self.approvals.attach(session)
        session.observe(self._granted, ApprovalDecided, who="agent")
        self.scope.watch(EVENT, self._observe)
        self._observe()
        self._put_policy_in_force()
        self.harness.joined(self)
        how = "new" if self._resume is None else "resume" if self._fork is None else "fork"
        self._mail = Incoming(self)
        try:
            await self._mail.open(new=how != "resume")
            await self._announce(SESSION_START, SessionStart(self, how))
        except BaseException:  # cancelled, most likely: nobody will leave what was not entered
            await self.aclose()
            raise
        if session.open:
            self._start()
        if self._resume_pending:
            self.wake()

    def _put_policy_in_force(self) -> None:
        """What was chosen for this agent; what the log of the session has, where nothing was."""
        session, policy = self.session, self.policy
        last = session.state.preset
        if policy.preset is None and last is not None:
            policy.restore(last)
            self.confinement = self._confined()
        line = policy.changed("agent")
        if line is not None and (
            last is None
            or (line.preset, line.sandbox, line.approval, line.sources)
            != (last.preset, last.sandbox or "full", last.approval, last.sources)
        ):
            session.append(line)

    async def _announce(self, point: Any, notice: object) -> None:
        """Tell observers that are awaited, one by one: contained, and on record when they fail."""
        for listener in self.scope.listeners(point):
            try:
                await hear(listener, None, notice)
            except Exception as error:  # noqa: BLE001  # an observer: contained
                self._contain(listener, error)

    async def aclose(self) -> None:
        """Stop (cause `disposed`), wait for what runs, unwind the scope, close the log. Twice is harmless.

        A turn in which nothing goes on but for a person is left as it is, if the store is durable: nothing is written,
        and it goes on when the session is opened again.
        """
        if self._status is Status.CLOSED:
            return
        if self._session is not None and not self._disposed:
            self._disposed = True
            if self._mail is not None:
                self._mail.stop()
            if self._can_be_left:
                self._leave()
            elif self._signal is not None:
                self._cancel(Cause("disposed"), keep_inbox=True, grace=None)
            self._halt = True
        while self._drive_task is not None:
            await asyncio.wait((self._drive_task,))
        for handle in self._graces:
            handle.cancel()
        async with AsyncExitStack() as stack:  # the last first, and all of them, whatever one raises
            if self._own_harness:
                stack.push_async_callback(self.harness.aclose)
            owned = [self._model] if self._owns_model and self._model is not None else []
            for model in (*owned, *self._others.values()):
                stack.push_async_callback(model.aclose)
            if self._session is not None:
                stack.push_async_callback(self._session.close)
            if self._mail is not None:
                stack.push_async_callback(self._mail.close)
            stack.callback(self._end_waiting)
            stack.callback(self.harness.left, self)
            stack.callback(self.scope.close)
            if self._session is not None:
                stack.push_async_callback(self._announce, SESSION_END, SessionEnd(self))

    @property
    def _can_be_left(self) -> bool:
        """Whether the open turn waits for a person, and stays what it is without this process."""
        session, turn = self.session, self._turn
        if not (session.durable and session.state.waiting) or self._stopping:
            return False
        return turn.resting if turn is not None else True  # it has not been taken up yet

    def _leave(self) -> None:
        state = self.session.state
        assert state.turn is not None
        self._left = TurnWaits(self.session.id, state.turn.number, list(state.approvals))
        if self._turn is not None:
            self._turn.leave()

    def _end_waiting(self) -> None:
        self._set_status(Status.CLOSED)
        for receipt in self._receipts.values():
            receipt.failed(self._left or SessionClosed(self.session.id))

    # What it is

    @property
    def session(self) -> Session:
        """The log.

        Raises:
            UsageError: the agent is not open.
        """
        if self._session is None:
            raise UsageError("the agent is not open: use `async with Agent(...) as agent:`")
        return self._session

    @property
    def inbox(self) -> Inbox:
        """What is pending."""
        _ = self.session
        assert self._inbox is not None
        return self._inbox

    @property
    def assembler(self) -> Assembler:
        _ = self.session
        assert self._assembler is not None
        return self._assembler

    @property
    def status(self) -> Status:
        return self._status

    @property
    def model(self) -> Model | None:
        return self._model

    @property
    def last_result(self) -> TurnResult | None:
        """How the turn that ended last came out, since the agent was last idle; also one that an earlier life began."""
        return self._last_result

    @property
    def preset(self) -> Preset | None:
        """What happens to calls that nobody spoke about; None: they run."""
        return self.policy.preset

    def set_preset(
        self, preset: str | Preset, *, sandbox: SandboxMode | None = None, by: str = "agent"
    ) -> None:
        """Put another preset in force, for every call that has not been decided about; it is on record.

        Args:
            sandbox: instead of the preset's own mode.
            by: who chose it.

        Raises:
            ConfigError: there is no such preset or mode, or the ceiling does not permit it; nothing changed.
            SessionClosed, StoreFailed, WrongThread: nothing changed.
        """
        self._ready("set_preset")
        before = self.policy.preset, self.policy.sandbox
        self.policy.choose(preset, sandbox)
        try:
            confinement = self._confined()
            line = self.policy.changed(by)
            assert line is not None
            self.session.append(line)
        except BaseException:
            self.policy.choose(*before)
            raise
        self.confinement = confinement
        if self._turn is not None:
            self._turn.confine(confinement)

    def _confined(self) -> Confinement | None:
        """How the processes of tools that say `sandbox=True` are confined by now; None: not at all.

        Raises:
            ConfigError: a folder that the sandbox is to show does not exist.
        """
        mode = self.policy.sandbox
        if mode == "full":
            return None
        from interlock.process.sandbox import Sandbox

        return Sandbox.for_workspace(mode, self.cwd or Path.cwd(), self._sandboxing)

    def rule(self, call: ToolCall) -> Ruled | None:
        """What the permission rules say of a call, those granted for this session among them."""
        granted = {**self.session.state.grants, **self.approvals.written}
        self.policy.grant(granted, self.cwd or Path.cwd())
        return self.policy.rule(call)

    def _granted(self, event: Event) -> None:
        """What was allowed for always holds from now on; for the session, the log says it."""
        fact = event.fact
        if isinstance(fact, ApprovalDecided) and fact.scope == "always" and fact.rule_written is not None:
            self.policy.remember(fact.rule_written, self.cwd or Path.cwd())

    def specs(self) -> tuple[ToolSpec, ...]:
        """The tools that the model is shown: those that no rule denies as a whole."""
        specs = self.registry.specs()
        if not self.policy.rules.rules:
            return specs
        if self._shown is None or self._shown[0] is not specs:
            shown = [spec for spec in specs if not self.policy.hides(self._tool(spec.name))]
            self._shown = specs, tuple(shown)
        return self._shown[1]

    def _tool(self, name: str) -> Tool:
        tool = self.registry.get(name)
        assert tool is not None
        return tool

    # Verbs

    def followup(self, message: str | Message, *, source: Source | None = None) -> Receipt:
        """Queue a message for a turn of its own, and start if idle.

        Raises:
            InboxError: the message is not valid, pending already, or too many are; nothing changed.
            SessionClosed, StoreFailed, WrongThread: nothing changed.
        """
        return self.send(message, to="turn", wake=True, source=source)

    def steer(self, message: str | Message, *, source: Source | None = None) -> Receipt:
        """Queue a message for the next step of the turn that runs, and start if idle. Raises as `followup`."""
        return self.send(message, to="step", wake=True, source=source)

    def inject(self, message: str | Message, *, source: Source | None = None) -> Receipt:
        """Queue a message for the next step, whenever that is: it wakes nobody. Raises as `followup`."""
        return self.send(message, to="step", wake=False, source=source)

    def send(
        self,
        message: str | Message,
        *,
        to: Literal["turn", "step"],
        wake: bool,
        source: Source | None = None,
    ) -> Receipt:
        """The primitive under `followup`, `steer` and `inject`. Raises as `followup`."""
        self._ready("send")
        if to not in ("turn", "step"):
            raise UsageError(f'to is "turn" or "step", not {to!r}')
        given: object = wake
        if not isinstance(given, bool):
            raise UsageError(f"wake is True or False, not {wake!r}")
        if source is None:
            source = SPEAKER.get()  # the words of a listener or a tool are never a person's
        made = checked(message, source)
        target: ListName = "next-turn" if to == "turn" else "next-step"
        if wake and self._stopping:
            target = "next-turn"  # the turn that is being stopped takes nothing more
        made = self.inbox.insert(made, target, wake=wake)
        receipt = self._receipts[made.id] = Receipt(made.id, target, self.session.barrier)
        if wake:
            self._wake(made.id)
        return receipt

    def wake(self) -> None:
        """Open a turn if anything is pending: a queue that was parked, or what a resumed session had left."""
        self._ready("wake")
        pending = self.inbox.next_step + self.inbox.next_turn
        if pending:
            self._wake(*[message.id for message in pending])

    async def run(self, prompt: str | Message, *, budget: Budget | None = None) -> TurnResult:
        """Send a prompt and wait for the end of the turn that claims it.

        If that turn does not admit the message, it is taken back, and the result has that turn's reason. Cancelling
        the task that awaits this cancels that turn (cause `caller`), waits for its end, and raises again.

        Raises:
            InputDropped: it was taken out of the queue before a turn claimed it. InboxError: it was not accepted.
            TurnWaits: the agent was left while the turn waits for a person. StoreFailed: the log cannot be written.
        """
        receipt = self.followup(prompt)
        if budget is not None:
            self._own_budgets[receipt.id] = budget
        try:
            result = await receipt.claimed_turn()
        except asyncio.CancelledError:
            await self._give_up(receipt)
            raise
        finally:
            self._own_budgets.pop(receipt.id, None)
            self._receipts.pop(receipt.id, None)
        await self.session.barrier()
        return result

    async def _give_up(self, receipt: Receipt) -> None:
        """The task that awaits `run` was cancelled: stop its turn, or take its message back."""
        if receipt.over or self.session.closed:
            return
        turn = self.session.state.turn
        if turn is not None and receipt.claimed_by == turn.number:
            self._cancel(Cause("caller"), keep_inbox=True, grace=None)
            ended = asyncio.ensure_future(receipt.claimed_turn())
            while not ended.done():
                try:
                    await asyncio.wait((ended,))
                except asyncio.CancelledError:  # asked to hurry: a started effect is still awaited
                    continue
            ended.exception()  # a store that failed meanwhile is told by everything else
        elif self._broken is None:
            self.inbox.remove(receipt.id)

    @asynccontextmanager
    async def stream(self, prompt: str | Message) -> AsyncIterator[AsyncIterator[Event]]:
        """The same as `run`, event by event, until the end of that turn: a cursor over the log, without a queue.

        Leaving the block early does not stop the turn.

        Raises:
            StoreFailed: while iterating: the log cannot be written.
        """
        after = self.session.head
        receipt = self.followup(prompt)
        receipt.awaited = True

        async def events() -> AsyncIterator[Event]:
            at = after
            while True:
                done = receipt.over or self._failure is not None or self.session.closed
                for event in self.session.events[at + 1 : self.session.head + 1]:
                    at = event.seq
                    yield event
                    if isinstance(event.fact, TurnEnd) and event.fact.turn == receipt.ended_by:
                        return
                if done:
                    break
                await self.session.changed(at)
            if self._failure is not None:
                raise self._failure

        yield events()

    def cancel(
        self, cause: CauseKind | Cause = "user", *, keep_inbox: bool = False, grace: float | None = None
    ) -> None:
        """Stop: start nothing more, tell what runs, and discard what is pending unless `keep_inbox`.

        It returns at once, and works from any callback; `await idle()` waits for the end. What was started is awaited;
        with `grace` (seconds) what still runs then is given up, on record.

        Raises:
            UsageError: no such cause, or `grace` is no number of seconds from 0. SessionClosed, WrongThread.
            StoreFailed: it cannot be put on record; what runs is told all the same.
        """
        self._reachable("cancel")
        grace_ms(grace)
        self._cancel(cause_of(cause), keep_inbox=bool(keep_inbox), grace=grace)
        if self._broken is not None:
            raise self._broken

    async def idle(self) -> None:
        """Wait until nothing runs and all that was said is on disk. Cancelling the waiter stops only the waiting.

        Raises:
            StoreFailed: the log cannot be written.
        """
        _ = self.session
        while self._drive_task is not None:
            await asyncio.wait((self._drive_task,))
        if self._failure is not None:
            raise self._failure
        if not self.session.closed:
            await self.session.barrier()

    # Stopping

    def _cancel(
        self, cause: Cause, *, keep_inbox: bool, grace: float | None, letter: Stamp | None = None
    ) -> None:
        session, inbox = self.session, self.inbox
        signal, turn = self._signal, session.state.turn
        running = self._drive_task is not None
        discarded = () if keep_inbox else inbox.next_step + inbox.next_turn
        facts: list[Fact] = []
        if running or turn is not None or discarded:
            number = turn.number if turn is not None else None
            facts.append(CancelRequested(cause, number, keep_inbox, grace_ms(grace), letter))
            if not keep_inbox:
                facts += inbox.clearing()
            for approval in session.state.approvals.values():
                facts += end_approval(approval)
        if not keep_inbox:
            self._latched.clear()
            self._woken = False
        self._halt = self._halt or (running and turn is None)  # between turns, there is nothing else to stop
        try:
            if facts and session.failure is None:
                session.append(*facts)
        finally:
            if signal is not None and turn is not None:
                signal.set(cause)
                if grace is not None:
                    assert self._loop is not None
                    self._graces.add(self._loop.call_later(grace, self._abandon, signal, grace))
        for message in discarded:
            self._notice("discarded", message)

    def _abandon(self, signal: Signal, grace: float) -> None:
        """The grace is over: give up on the bodies that still run in the turn that was stopped."""
        turn = self._turn
        if turn is None or signal is not self._signal:
            return
        for job in turn.jobs:
            if job.running:
                task = job.abandon(round(grace * 1000))
                if task is not None:
                    self._abandoned.add(task)
                    task.add_done_callback(self._late)

    def _late(self, task: asyncio.Task[None]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # looked at, so that it is not reported as never retrieved

    # Driving

    @property
    def _stopping(self) -> bool:
        """The open turn was stopped, and has not ended yet."""
        return self._signal is not None and self._signal.is_set() and self.session.state.turn is not None

    def _wake(self, *message_ids: str) -> None:
        """Start driving for the sake of these messages; after the turn that is being stopped, if one is."""
        if self._disposed:
            return
        if self._stopping:
            self._latched.update(message_ids)
            return
        self._halt = False
        # What comes during a turn is that turn's business: how it ends says whether the queue goes on.
        self._woken = self._woken or self.session.state.turn is None
        self._start()

    def _start(self) -> None:
        """Start driving, if nothing does."""
        if self._drive_task is None:
            assert self._loop is not None
            # The turn that an earlier life has left is open already: a cancel may come before the task runs.
            turn = self.session.state.turn
            self._signal = Signal() if turn is not None else None
            if self._signal is not None and turn is not None and turn.cancel is not None:
                self._signal.set(turn.cancel.cause)  # before it was taken up
            self._drive_task = self._loop.create_task(self._drive(), name="interlock-drive")
            self._set_status(Status.RUNNING)  # whoever is told of it may stop the drive already

    async def _drive(self) -> None:
        SPEAKER.set(None)  # whoever woke it does not speak for what runs here
        self._last_result = None
        goes_on = True
        try:
            if self.session.open and not self._halt:
                goes_on = await self._run_turn()
            while goes_on and len(self.inbox) and not self._halt:
                self._woken = False
                goes_on = await self._run_turn()
        except Left:
            pass  # `_left` says so
        except Exception as error:  # noqa: BLE001  # the log cannot be written, or a bug: whoever waits is told
            self._failure = error
        finally:
            self._drive_task = None
            self._turn = self._signal = None
            self._failure = self._broken
            if self._left is None:
                self._release_waiting()
                self._set_status(Status.FAILED if self._failure is not None else Status.IDLE)

    async def _run_turn(self) -> bool:
        """Run one turn; whether the next one opens at once."""
        session = self.session
        self._signal = self._signal or Signal()
        left = session.state.turn  # by an earlier life
        before = left.before if left is not None else len(session.history)
        budgets = (*self._budgets, self._budget_of_next() if left is None else None)
        turn = self._turn = TurnRun(self, Meter(budgets, session), self._signal)
        reason = await turn.run()
        result = self._result(turn, reason, before)
        latched = any(session.state.queues.find(i) is not None for i in self._latched)
        self._latched.clear()
        self._turn = self._signal = None
        self._last_result = result
        self._end_receipts(turn.number, result)
        return not self._halt and (self._next_follows(result) or latched or self._woken)

    def _next_follows(self, result: TurnResult) -> bool:
        """After which ends the queue goes on by itself; after the others it is parked until somebody wakes it."""
        queues = self.session.state.queues
        waking = bool(queues.next_turn) or any(waiting.wake for waiting in queues.next_step)
        reason = result.reason
        match reason:
            case Completed(by=None) | MaxTokens() if result.steps:
                return waking or bool(queues.next_step)  # also for what was only injected
            case Completed() | MaxTokens() | Blocked():
                return waking
            case Aborted() | Failed() | OverBudget() | Interrupted():
                return False
            case _:
                assert_never(reason)

    def _budget_of_next(self) -> Budget | None:
        queue = self.session.state.queues.next_turn
        return self._own_budgets.get(queue[0].message.id) if queue else None

    def _result(self, turn: TurnRun, reason: EndReason, before: int) -> TurnResult:
        session = self.session
        messages = session.history.view()[before:]
        text = turn.stopped_text
        if text is None:
            text = next((m.text for m in reversed(messages) if m.role == "assistant" and not m.calls), "")
        return TurnResult(text, reason, messages, turn.usage, turn.number, turn.steps, session)

    # Who waits for what

    def claimed(self, messages: list[Message], turn: int) -> None:
        """The open turn reserved these messages."""
        for message in messages:
            receipt = self._receipts.get(message.id)
            if receipt is not None:
                receipt.claimed_by = turn
            self._notice("claimed", message, turn)

    def _admission(self, event: Event) -> None:
        fact = event.fact
        if isinstance(fact, InboxDropped):
            for message_id in fact.ids:
                self._drop(message_id, fact.outcome, fact.reason)

    def _drop(self, message_id: str, outcome: str, reason: str | None = None) -> None:
        receipt = self._receipts.get(message_id)
        if receipt is not None and receipt.claimed_by is None:
            del self._receipts[message_id]
            receipt.failed(InputDropped(message_id, outcome, reason))
        elif receipt is not None:
            receipt.fate = outcome, reason

    def _end_receipts(self, turn: int, result: TurnResult) -> None:
        queues = self.session.state.queues
        for message_id, receipt in list(self._receipts.items()):
            if receipt.claimed_by != turn:
                continue
            if receipt.fate is not None:
                receipt.given_back(result)
                receipt.failed(InputDropped(message_id, *receipt.fate))
                self._receipts.pop(message_id, None)
            elif queues.holds(message_id):
                receipt.claimed_by = None
                receipt.given_back(result)
                if receipt.awaited:  # taken back before another turn can claim it
                    self.inbox.remove(message_id)
            else:
                receipt.admitted(result)
                self._receipts.pop(message_id, None)

    def _release_waiting(self) -> None:
        """The drive has ended: nobody waits for a turn that does not come by itself.

        Whoever runs a message that is parked hears how the last turn went; if that went well, or there was none, the
        queue was halted, and the message is taken back.
        """
        last = self._last_result
        for receipt in list(self._receipts.values()):
            if self._failure is not None:
                receipt.failed(self._failure)
            elif receipt.awaited:
                if last is not None and not last.ok:
                    receipt.given_back(last)
                self.inbox.remove(receipt.id)

    # Telling

    def _notice(self, kind: str, message: Message, turn: int | None = None) -> None:
        if kind == "discarded" and self.session.state.queues.find(message.id) is None:  # else it was edited
            self._drop(message.id, "canceled")
            self._latched.discard(message.id)
        self._tell(INBOX, InboxNotice(kind, message, turn))

    def _set_status(self, status: Status) -> None:
        if status is not self._status:
            self._status = status
            self._tell(STATUS, status)

    def wait(self, waits: bool) -> None:
        """Nothing can go on but for a person, or it can again."""
        if self._drive_task is not None:
            self._set_status(Status.WAITING if waits else Status.RUNNING)

    def _tell(self, point: Any, notice: object) -> None:
        for listener in self.scope.listeners(point):
            try:
                tell(listener, notice)
            except Exception as error:  # noqa: BLE001  # an observer: contained, and on record
                self._contain(listener, error)

    def _contain(self, listener: Listener, error: Exception) -> None:
        if self._session is not None:
            self._session.contained(listener.point.name, listener.who, error, max(self._session.head, 0))

    def _observe(self) -> None:
        """Subscribe the observers in force to the log."""
        if self._unobserve is not None:
            self._unobserve()
            self._unobserve = None
        undo: list[Callable[[], None]] = []
        for listener in self.scope.listeners(EVENT):
            types = listener.fn.types if isinstance(listener.fn, EventFilter) else ()
            undo.append(self.session.observe(partial(tell, listener), *types, who=listener.who))

        def unobserve() -> None:
            for one in undo:
                one()

        self._unobserve = unobserve

    # What a turn asks of its agent

    def model_for(self, settings: Mapping[str, Any]) -> tuple[Model | None, ModelFailure | None]:
        """The adapter that serves these settings, or why it cannot be had.

        Raises:
            ConfigError: no provider or model is named, or nobody knows the provider.
        """
        provider, name = settings.get("provider"), settings.get("model")
        if not provider or not name:
            missing = (
                "provider and model" if not provider and not name else "provider" if not provider else "model"
            )
            raise ConfigError(f"the request has no {missing}: give Agent a model, or set it at agent/request")
        own = self._model
        if own is not None and own.provider == provider:
            return own, None
        other = f"{provider}:{name}"
        try:
            if other not in self._others:
                self._others[other] = resolve_model(other)
        except ModelFailure as failure:
            return None, failure
        return self._others[other], None

    def runtime_context(self) -> tuple[Message, ...]:
        """What the model should know of the folder and the day, if it is not what was logged last."""
        if self._workspace is None:
            return ()
        text = self._workspace.snapshot()
        if self.session.state.runtime.get(_RUNTIME.name) == text:
            return ()
        return (Message.context(text, source=_RUNTIME, role="user"),)

    # Checks

    def _reachable(self, verb: str) -> None:
        session = self.session
        if threading.get_ident() != self._thread:
            raise WrongThread(verb)
        if session.closed or self._status is Status.CLOSED:
            raise SessionClosed(session.id)

    def _ready(self, verb: str) -> None:
        self._reachable(verb)
        if self._broken is not None:
            raise self._broken

    @property
    def _broken(self) -> Exception | None:
        """Why nothing further starts."""
        return self._failure or self.session.failure


def _propose(call: ToolCall) -> str | None:
    from interlock.policy.proposing import propose  # with the rules, once somebody is asked

    return propose(call)


def _today() -> date:
    return datetime.now(UTC).astimezone().date()
