"""Which call of a batch runs when: three lanes that know neither model nor log.

Lives here: `Scheduler` and the `Job` protocol it drives. The lanes are independent, so that a slow rule, a person who
thinks, or a slow review delays nobody who need not wait:

    admit    one job at a time, in order: rules, guards, the question to a person (the job is parked meanwhile)
    pool     up to `pool` bodies at once, each in a task of its own, unless it cannot suspend
    commit   one job at a time, in order: the review and the result

An exclusive job is admitted when all earlier ones are committed, and nothing is admitted after it before it commits. A
job that conflicts with an earlier one is not admitted before that one has released its claims, and nothing after it is.
A job that turns out stricter after its admission becomes a barrier: it waits for all earlier jobs to commit and for
started later ones to return, and no later job starts meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from enum import Enum
from heapq import heappop, heappush
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from interlock.errors import ConfigError
from interlock.tools.claims import Claims, ClaimTable, Concurrency, Mode, stricter

_LaneBody: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
_Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], "asyncio.Task[None]"]


def checked_pool(pool: object) -> int:
    """
    Raises:
        ConfigError: not a whole number from 1.
    """
    if type(pool) is not int or pool < 1:
        raise ConfigError(f"pool is a whole number from 1, not {pool!r}")
    return pool


class Admission(Enum):
    """What became of a job in the first lane."""

    READY = "ready"  # may run
    PARKED = "parked"  # a person is asked: `resume` says what became of it
    SETTLED = "settled"  # its outcome is known: denied, refused, invalid
    REFUSED = "refused"  # it stays unstarted, and the batch stops: a stop, or a spent budget


class Left(Exception):
    """The batch was left as it is, waiting for a person: nothing of it was ended."""


class Job(Protocol):
    """One call, as the scheduler drives it. What a method raises is a failure of the batch, not of the call."""

    def mode(self) -> Mode:
        """What it conflicts with, read anew each time."""

    async def admit(self) -> Admission:
        """Look at it: rules, guards, and the beginning of a question."""

    async def resume(self) -> Admission:
        """Wait for the answer to the question; not PARKED. Cancelled when the batch is stopped."""

    def start(self) -> bool:
        """Last look, right before the body, without suspending. False: settled, do not run."""

    def run_at_once(self) -> bool:
        """Run the body here, if neither it nor what is around it can suspend. False: nothing was done, `run` it."""

    async def run(self) -> None:
        """Run the body, in a task of its own. When it returns, the outcome is fixed."""

    def settle(self) -> None:
        """The outcome is known, and an earlier job is not committed yet."""

    def commit_at_once(self) -> bool:
        """Commit it here, if nothing has to be awaited for that. False: nothing was done, `commit` it."""

    async def commit(self) -> None:
        """Review the outcome and write the result: all earlier jobs are committed."""

    def skip(self) -> None:
        """End it unstarted: the batch was stopped."""


#: Where a job is. Not an enum: it is looked at a dozen times a call, and looking up a member costs more than the rest.
_At: TypeAlias = Literal["waiting", "admitting", "parked", "ready", "running", "settled", "committed"]

# Looked up once, for the same reason.
_EXCLUSIVE, _PARALLEL = Concurrency.EXCLUSIVE, Concurrency.PARALLEL
_READY, _PARKED, _SETTLED = Admission.READY, Admission.PARKED, Admission.SETTLED

_UNBROKEN = 32  # jobs admitted before others get a turn


class _Slot(msgspec.Struct, eq=False):
    index: int
    job: Job
    at: _At = "waiting"
    mode: Mode = _EXCLUSIVE  # as it was admitted; its claims are held
    barrier: bool = False
    task: asyncio.Task[Any] | None = None  # of its body, or of the question to a person
    committed: asyncio.Future[None] | None = None


class _Lane(msgspec.Struct, eq=False):
    """A loop that runs inline in the driver's task, or in a task of its own once somebody needs it."""

    running: bool = False  # it has begun, and has more to look at
    _sleeper: asyncio.Future[None] | None = None
    _task: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Not running, or asleep."""
        return not self.running or self._sleeper is not None

    async def inline(self, body: _LaneBody) -> None:
        """Run it here to its end, or wait for the task that does."""
        if self.running:
            assert self._task is not None
            await asyncio.wait((self._task,))
        else:
            self.running = True
            await body()
            self.running = False

    def wake(self) -> None:
        """Let it look again, if it runs."""
        if self._sleeper is not None:
            sleeper, self._sleeper = self._sleeper, None
            if not sleeper.done():
                sleeper.set_result(None)

    def need(self, body: _LaneBody, spawn: _Spawn, ended: Callable[[], None]) -> None:
        """Let it look again, and start it in a task if it does not run. `ended` is called when it has nothing to do."""
        if self.running:
            self.wake()
        else:
            self.running = True
            self._task = spawn(self._run(body, ended))

    async def sleep(self, asleep: Callable[[], None]) -> None:
        """Wait until it is woken. A lane looks and sleeps without suspending between, so no waking is missed.

        Args:
            asleep: called when it can be woken already, and before it suspends.
        """
        sleeper = self._sleeper = asyncio.get_running_loop().create_future()
        asleep()
        try:
            await sleeper
        finally:
            if self._sleeper is sleeper:
                self._sleeper = None

    async def _run(self, body: _LaneBody, ended: Callable[[], None] | None = None) -> None:
        self.running = True
        await body()
        self.running = False  # a lane that failed is never run again
        if ended is not None:
            ended()


class Scheduler:
    """One batch: the calls of one answer, or the nested calls of one outer call.

    Either `run` a list of jobs that is known, or `submit` jobs as they come and `aclose` at the end.
    """

    def __init__(self, pool: int = 10, on_waiting: Callable[[bool], None] | None = None) -> None:
        """
        Args:
            pool: how many bodies may run at once, 1 or more.
            on_waiting: told when nothing can go on but for a person, and when that is over.
        """
        self.pool = checked_pool(pool)
        self.stopped = False
        self._on_waiting = on_waiting
        self._waiting = False
        self._slots: list[_Slot] = []
        self._next = 0  # the next to admit
        self._done = 0  # committed so far: slots are committed in order
        self._running = 0  # places taken
        self._parked = 0
        self._blocked = 0  # of the running: those that wait for a person
        self._ready: list[tuple[int, _Slot]] = []  # a heap by index: two slots are never compared
        self._barriers: set[int] = set()  # exclusive and stricter jobs from admission to commit
        self._held: ClaimTable | None = None  # made when somebody claims something
        self._admitter = _Lane()
        self._committer = _Lane()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._error: BaseException | None = None

    # Driving

    async def run(self, jobs: Iterable[Job]) -> None:
        """Drive all jobs to their commit, or, once stopped, the started ones to theirs and the others to `skip`.

        Raises:
            Left: `leave` was called.
            BaseException: the first that a job's method raised; started bodies have been awaited by then, and jobs
                that have no commit are left as they are.
        """
        self._slots = [_Slot(i, job) for i, job in enumerate(jobs)]
        try:
            await self._admitter.inline(self._admit_lane)
            if self._parked or self._blocked:
                self._quiet()
            if self._done < len(self._slots):
                await self._committer.inline(self._commit_lane)
        except BaseException as error:  # noqa: BLE001  # raised below, once what was started has ended
            self._fail(error)
            if isinstance(error, asyncio.CancelledError):
                for task in self._tasks:
                    task.cancel()
        if self._tasks:
            await self._drain()
        self._slots = []  # jobs refer to whoever holds this scheduler: no cycle is left for the collector
        if self._error is not None:
            raise self._error

    async def submit(self, job: Job) -> None:
        """Add a job at the end and wait until it is committed or skipped.

        Raises:
            BaseException: the first that a job's method raised.
        """
        slot = _Slot(len(self._slots), job)
        slot.committed = asyncio.get_running_loop().create_future()
        self._slots.append(slot)
        if self.stopped:
            self._need_commit()
        else:
            self._admitter.need(self._admit_lane, self._spawn, self._quiet)
        await asyncio.shield(slot.committed)

    async def aclose(self) -> None:
        """Stop, and wait for what was started."""
        self.stop()
        await self._drain()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        """Admit and start nothing more; end the questions. Calling it twice is harmless."""
        if self.stopped:
            return
        self.stopped = True
        for slot in self._slots[self._done :]:
            if slot.at == "parked" and slot.task is not None:
                slot.task.cancel()
        self._admitter.wake()
        if self._done < len(self._slots):
            self._need_commit()

    @property
    def resting(self) -> bool:
        """Only a person's answer can move it on, and no body is running."""
        return self._waiting and not self._running

    def leave(self) -> None:
        """End the questions and nothing else: `run` raises `Left`. Only while it is resting."""
        self._on_waiting = None  # it goes on waiting, if not here
        self._fail(Left())

    def abandon(self, job: Job) -> asyncio.Task[None]:
        """Stop waiting for a body that does not end; its outcome has been fixed by the caller, who owns the task."""
        slot = next(one for one in self._slots if one.job is job)
        assert slot.task is not None
        task, slot.task = slot.task, None
        self._tasks.discard(task)
        self._settled(slot)
        asyncio.get_running_loop().call_soon(self._free_place)  # after the commit lane, as when a body ends
        return task

    def waits(self, waits: bool) -> None:
        """A running body can go on only when a person has answered, about a call that it made; or it can again."""
        self._blocked += 1 if waits else -1
        if waits:
            self._quiet()
        else:
            self._active()

    # Lane 1: admit

    async def _admit_lane(self) -> None:
        while self._next < len(self._slots) and not self.stopped:
            slot = self._slots[self._next]
            admissible = self._may_admit(slot)
            if self.stopped:  # by the classifier, which is foreign code
                return
            if not admissible:
                await self._admitter.sleep(self._quiet)
                continue
            self._next += 1
            slot.at = "admitting"
            self._hold(slot)
            if self._waiting:
                self._active()
            self._admitted(slot, await slot.job.admit())
            if self._next % _UNBROKEN == 0:  # calls that never wait must not keep everybody else from running
                await asyncio.sleep(0)

    def _may_admit(self, slot: _Slot) -> bool:
        if self._barriers and (min(self._barriers) < slot.index):
            return False
        mode = slot.mode = slot.job.mode()
        if mode is _EXCLUSIVE:
            return self._done == slot.index
        return self._held is None or not isinstance(mode, Claims) or not self._held.conflicts(mode)

    def _hold(self, slot: _Slot) -> None:
        if slot.mode is _EXCLUSIVE:
            self._barriers.add(slot.index)
        elif slot.mode is not _PARALLEL:
            assert isinstance(slot.mode, Claims)
            if self._held is None:
                self._held = ClaimTable()
            self._held.add(slot.mode)

    def _admitted(self, slot: _Slot, admission: Admission) -> None:
        if admission is _READY:
            slot.at = "ready"
            if slot.mode is _EXCLUSIVE and not self._running and not self.stopped:
                self._start(slot)  # nothing else is under way
            else:
                self._classify(slot)
                heappush(self._ready, (slot.index, slot))
                self._fill()
        elif admission is _SETTLED:
            self._settled(slot)
        elif admission is _PARKED:
            slot.at = "parked"
            self._classify(slot)
            self._parked += 1
            slot.task = asyncio.get_running_loop().create_task(slot.job.resume())
            self._tasks.add(slot.task)
            slot.task.add_done_callback(lambda task: self._guarded(lambda: self._answered(slot, task)))
            if self.stopped:
                slot.task.cancel()
        else:
            slot.at = "waiting"
            self._release(slot)
            self.stop()
        if self.stopped:
            self._need_commit()

    def _answered(self, slot: _Slot, task: asyncio.Task[Admission]) -> None:
        self._tasks.discard(task)
        slot.task = None
        self._parked -= 1
        self._active()
        # A task that is cancelled before its first step never runs: what became of it is seen from outside.
        self._admitted(slot, Admission.REFUSED if task.cancelled() else task.result())
        self._quiet()  # another question may be open still

    def _classify(self, slot: _Slot) -> None:
        """Read the mode again; a job that became stricter is a barrier from now on."""
        if slot.mode is _EXCLUSIVE or slot.barrier:
            return  # nothing is stricter
        mode = slot.job.mode()
        if mode is not _PARALLEL and stricter(mode, slot.mode):
            slot.barrier = True
            self._barriers.add(slot.index)

    # Lane 2: the pool

    def _fill(self) -> None:
        """Start what may start: the first ready job, as long as there is a place."""
        while self._ready and self._running < self.pool and not self.stopped:
            slot = self._ready[0][1]
            if self._barriers and min(self._barriers) < slot.index:
                return
            self._classify(slot)
            if self.stopped:  # by the classifier, which is foreign code
                return
            if slot.barrier and not (self._done == slot.index and self._running == 0):
                return
            heappop(self._ready)
            self._start(slot)

    def _start(self, slot: _Slot) -> None:
        """Start the body. One that cannot suspend has ended when this returns.

        Its result is committed before the next body starts, if it is its turn: who hears of it may stop the batch.
        """
        if not slot.job.start():
            self._settled(slot)
            return
        slot.at = "running"
        self._running += 1
        if not slot.job.run_at_once():
            slot.task = self._spawn(self._body(slot), self._body_ended)
            return
        self._running -= 1
        if slot.index == self._done and not self._committer.running and slot.job.commit_at_once():
            self._release(slot)
            self._committed(slot)
            if self._done < len(self._slots) and self._slots[self._done].at == "settled":
                self._need_commit()
        else:
            self._settled(slot)

    async def _body(self, slot: _Slot) -> None:
        await slot.job.run()
        if slot.task is not None:  # else it was abandoned, and is counted no more
            slot.task = None
            self._settled(slot)

    def _body_ended(self, task: asyncio.Task[None]) -> None:
        # Called an iteration of the loop after the body has returned, so the commit lane goes first: a review that
        # stops the batch is heard before the place is filled again, unless it suspends.
        abandoned = task not in self._tasks
        self._ended(task)
        if not abandoned and not task.cancelled() and task.exception() is None:
            self._free_place()

    def _free_place(self) -> None:
        self._running -= 1
        self._guarded(self._fill)
        self._admitter.wake()
        self._quiet()

    def _settled(self, slot: _Slot) -> None:
        slot.at = "settled"
        self._release(slot)
        if slot.index > self._done:
            slot.job.settle()
        else:
            self._need_commit()
        self._admitter.wake()  # what it claimed is free; the commit lane goes first

    def _release(self, slot: _Slot) -> None:
        if self._held is not None and isinstance(slot.mode, Claims):
            self._held.remove(slot.mode)
            slot.mode = _PARALLEL

    # Lane 3: commit

    async def _commit_lane(self) -> None:
        while self._done < len(self._slots) and self._error is None:
            slot = self._slots[self._done]
            if slot.at == "settled":
                self._active()
                if not slot.job.commit_at_once():
                    await slot.job.commit()
            elif self.stopped and slot.at in ("waiting", "ready"):
                slot.job.skip()
                self._release(slot)
            else:
                await self._committer.sleep(self._quiet)
                continue
            self._committed(slot)
            self._fill()

    def _committed(self, slot: _Slot) -> None:
        slot.at = "committed"
        self._done += 1
        self._barriers.discard(slot.index)
        if slot.committed is not None:
            slot.committed.set_result(None)
        self._admitter.wake()

    def _need_commit(self) -> None:
        if self._error is None:  # after a failure nothing is committed any more
            self._committer.need(self._commit_lane, self._spawn, self._quiet)

    # Tasks, failure, waiting

    def _spawn(
        self, coroutine: Coroutine[Any, Any, None], ended: Callable[[asyncio.Task[None]], None] | None = None
    ) -> asyncio.Task[None]:
        # With a name, else asyncio makes one up for each: 0.2 us.
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(coroutine, name="interlock batch")
        self._tasks.add(task)
        task.add_done_callback(ended or self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fail(error)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except BaseException as error:  # noqa: BLE001  # raised by run()
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        if self._error is None:
            self._error = error
        self.stop()
        for slot in self._slots[self._done :]:
            if slot.committed is not None and not slot.committed.done():
                slot.committed.set_exception(self._error)
        self._admitter.wake()
        self._committer.wake()

    async def _drain(self) -> None:
        while pending := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(pending)
        for task in self._tasks:  # ended in this very iteration of the loop: nobody has looked at them yet
            if not task.cancelled() and (error := task.exception()) is not None:
                self._fail(error)

    def _active(self) -> None:
        if self._waiting:
            self._waiting = False
            if self._on_waiting is not None:
                self._on_waiting(False)

    def _quiet(self) -> None:
        """If only a person's answer can move the batch on, say so."""
        if (
            (self._parked or self._blocked)
            and not self.stopped
            and self._running == self._blocked
            and not self._waiting
            and self._admitter.idle
            and self._committer.idle
        ):
            self._waiting = True
            if self._on_waiting is not None:
                self._on_waiting(True)
