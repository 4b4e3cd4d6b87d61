"""A session: one append-only log, and the folds that say what it means.

Lives here: `Session`, and `create_session` / `open_session`. `append` orders, checks the laws, advances the folds and
commits, then observers are told; all of it on one event loop, and without suspending. An append from inside an
observer commits at once and has its seq: only the telling is queued.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import get_ident
from time import gmtime, strftime, time
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, overload

from interlock.errors import (
    IllegalFact,
    ReadOnlySession,
    SessionClosed,
    SessionError,
    StoreFailed,
    UnknownSession,
    UsageError,
    WrongThread,
    said_error,
)
from interlock.log.causes import Spans, citing
from interlock.log.closing import CRASHED, Redo, closers, end_started
from interlock.log.event import Event
from interlock.log.facts import (
    FORMAT,
    Fact,
    ObserverFailed,
    SessionCreated,
    SessionOpened,
    SessionRepaired,
    ToolCalled,
    ToolResulted,
    ToolSettled,
)
from interlock.log.history import History
from interlock.log.laws import Broken, forbidden, law_of, miscited, unforked
from interlock.log.state import Change, State, change_of
from interlock.version import VERSION

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.store import Journal, Store

#: By class of fact: the law that may forbid it, how what it cites is found, how it changes the state, and whether a
#: reader may skip it.
_Rules: TypeAlias = tuple[
    Callable[[State, Any], None] | None, Callable[[State, Any], Spans] | None, Change | None, bool
]
_rules: dict[type[Fact], _Rules] = {}

F = TypeVar("F", bound=Fact)
T = TypeVar("T")
Observer = Callable[[Event], None]
Dispose = Callable[[], None]

_CHECKED = 256  # events that `follow` reads at once


@dataclass(frozen=True, slots=True)
class _Listening:
    who: str
    fn: Observer


class Events(Sequence[Event]):
    """The log as a sequence. Reading a slice reads the store; nothing is kept in memory for it."""

    __slots__ = ("_journal",)

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def __len__(self) -> int:
        return self._journal.head + 1

    @overload
    def __getitem__(self, index: int) -> Event: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Event, ...]: ...
    def __getitem__(self, index: int | slice) -> Event | tuple[Event, ...]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return tuple(self[i] for i in range(start, stop, step))
            return tuple(self._journal.read(start, stop - 1)) if stop > start else ()
        at = index if index >= 0 else len(self) + index
        if not 0 <= at < len(self):
            raise IndexError(f"event {index} of {len(self)}")
        return next(self._journal.read(at, at))

    def __iter__(self) -> Iterator[Event]:
        return self._journal.read(0, None)


class Session:
    """One session, open for reading, and for writing unless it was opened read-only."""

    def __init__(
        self,
        session_id: str,
        journal: Journal,
        *,
        clock: Callable[[], int] | None = None,
        readonly: bool = False,
        redactor: Redactor | None = None,
    ) -> None:
        self.id = session_id
        self.redactor = redactor
        self.state = State()
        self.readonly = readonly
        self.durable = journal.durable  # it has a disk to wait for
        self._journal = journal
        self._simulated = clock if clock is not None else _simulated_clock()  # None: the real one
        self._thread = get_ident()
        self._observers: dict[type[Fact] | None, tuple[_Listening, ...]] = {}
        self._untold: list[Event] = []
        self._telling = False
        self._followers: set[asyncio.Future[None]] = set()
        self._closed = False

    # Reading

    @property
    def events(self) -> Events:
        """The lines of the log: `events[3]`, `events[10:20]`, `for event in events`."""
        return Events(self._journal)

    @property
    def head(self) -> int:
        """The seq of the last line, -1 when there is none."""
        return self.state.head

    @property
    def history(self) -> History:
        """What the model has been told."""
        return self.state.history

    @property
    def open(self) -> bool:
        """Whether a turn is open."""
        return self.state.turn is not None

    @property
    def failure(self) -> StoreFailed | None:
        """What the store said when it failed; nothing is written after it."""
        return self._journal.failure

    @property
    def closed(self) -> bool:
        return self._closed

    def now(self) -> int:
        """The time that the next line would have, epoch milliseconds."""
        return int(time() * 1000) if self._simulated is None else self._simulated()

    @overload
    def facts(self) -> list[Fact]: ...
    @overload
    def facts(self, *types: type[F]) -> list[F]: ...
    def facts(self, *types: type[Fact]) -> Sequence[Fact]:
        """All facts in order, of these types if any are named."""
        return [event.fact for event in self.events if not types or isinstance(event.fact, types)]

    # Opening

    async def _load(self, redo: Redo | None) -> None:
        state = self.state
        for event in self._journal.read(0, None):
            if isinstance(event.fact, SessionCreated):
                check_format(event.fact)
            breach = forbidden(state, event.fact) or unforked(state, event.fact)
            if breach is not None:
                raise IllegalFact(breach.law, breach.problem, seq=breach.seq)
            state.apply(event)
        if state.created is None:
            raise UnknownSession(self.id)  # made, and lost before its first line was on disk
        parent = state.created.parent
        if parent is not None and state.head <= parent.seq:
            raise SessionError(
                f"Session {self.id} is a fork of {parent.session} that was never finished: nothing was done in it. "
                f"Fork {parent.session} again."
            )
        if self.readonly:
            return
        self.append(SessionOpened(state.life + 1, "resume", host=socket.gethostname(), pid=os.getpid()))
        self._repair(redo)
        await self.barrier()

    def _repair(self, redo: Redo | None) -> None:
        step = self.state.step
        first = self.state.head + 1
        if self.state.waiting:  # it stays open: whoever drives the session goes on with it
            ended = end_started(self.state, redo)
            if ended:
                calls = tuple(fact.call for fact in ended if isinstance(fact, (ToolResulted, ToolSettled)))
                self.append(*ended, SessionRepaired(first, "crash", calls))
            return
        closed = (
            tuple(call.seq for call in step.calls[step.next_result :] if call.called)
            if step is not None
            else ()
        )
        facts = closers(self.state, CRASHED)
        if not facts:
            return
        synthetic = tuple(first + i for i, fact in enumerate(facts) if isinstance(fact, ToolCalled))
        self.append(*facts, SessionRepaired(first, "crash", closed + synthetic))

    # Writing

    def inherit(self, lines: Sequence[Event]) -> None:
        """Take the lines of another log as they are, into this empty one; they are lawful."""
        self._journal.write(lines)
        for event in lines:
            self.state.apply(event)

    def redacted(self, value: T) -> T:
        """The value without secrets: as it would be after it was appended, if it were or were in a fact."""
        return value if self.redactor is None else self.redactor.value(value)

    def append(self, *facts: Fact, causes: Spans | None = None, redacted: bool = False) -> tuple[Event, ...]:
        """Append facts as one: all of them or none. The session's redactor takes secrets out of them before.

        They are ordered and visible in this process when it returns, on disk after `barrier`. What each line rests
        on is found from the state, unless `causes` says it.

        Raises:
            IllegalFact: a law forbids one of them.
            SessionClosed, ReadOnlySession, StoreFailed, WrongThread: nothing can be appended.
        """
        if self._closed:
            raise SessionClosed(self.id)
        if self.readonly:
            raise ReadOnlySession(self.id)
        if get_ident() != self._thread:
            raise WrongThread("append")
        journal = self._journal
        if journal.failure is not None:
            raise journal.failure
        if self.redactor is not None and not redacted:
            facts = tuple([self.redactor.value(fact) for fact in facts])
        clock = self._simulated
        now = int(time() * 1000) if clock is None else clock()
        if now == self.state.time:
            now = self.state.time  # the same object: most lines share their millisecond with the one before
        if len(facts) == 1:
            fact, state = facts[0], self.state
            rules = _rules.get(type(fact)) or _rules_of(type(fact))
            event = self._next(fact, rules, now, causes)
            events: tuple[Event, ...] = (event,)
            try:
                journal.write(events)
            except StoreFailed:
                self._wake_followers()  # nothing more will come
                raise
            # As `State.apply`, without its look-up: this is the way of nearly every line.
            seq = state.head = event.seq
            change = rules[2]
            if change is not None:
                change(state, seq, fact, event)
            state.time = now
        else:
            events = self._append_all(facts, now, causes)
        observers = self._observers
        if observers:
            for event in events:
                if type(event.fact) in observers or None in observers:
                    self._untold.append(event)
            if self._untold and not self._telling:
                self._tell()
        if self._followers:
            self._wake_followers()
        return events

    def _next(self, fact: Fact, rules: _Rules, now: int, causes: Spans | None) -> Event:
        """The next line with this fact, if it is lawful."""
        state = self.state
        law, cites, _, ignorable = rules
        if law is not None:
            try:
                law(state, fact)
            except Broken as broken:
                raise IllegalFact(broken.law, f"{fact.type}: {broken.problem}", seq=state.head + 1) from None
        if state.head < 0 and type(fact) is not SessionCreated:
            raise IllegalFact("created", f"a log starts with session/created, not {fact.type}", seq=0)
        if causes is None:
            causes = cites(state, fact) if cites is not None else ()
        elif (breach := miscited(state, fact, causes)) is not None:
            raise IllegalFact(breach.law, breach.problem, seq=breach.seq)
        # An opening is the first line of its own life.
        life = fact.life if type(fact) is SessionOpened else state.life or 1
        return Event(state.head + 1, now, life, fact, causes, ignorable)

    def _append_all(self, facts: tuple[Fact, ...], now: int, causes: Spans | None) -> tuple[Event, ...]:
        made: list[Event] = []
        try:
            for fact in facts:
                event = self._next(fact, _rules_of(type(fact)), now, causes)
                self.state.apply(event)
                made.append(event)
            if made:
                self._journal.write(made)
        except BaseException:
            # All or none: the folds have run ahead of the log, so they are made anew from it.
            self.state = State()
            for event in self._journal.read(0, None):
                self.state.apply(event)
            self._wake_followers()  # if the store has failed, nothing more will come
            raise
        return tuple(made)

    async def barrier(self) -> None:
        """Wait until all that was appended is on disk.

        Raises:
            StoreFailed: it is not, and will not be.
        """
        try:
            await self._journal.barrier()
        except StoreFailed:
            self._wake_followers()
            raise

    # Telling

    def observe(self, fn: Observer, *types: type[Fact], who: str | None = None) -> Dispose:
        """Call `fn` with each event, of these fact types if any are named, after it was committed.

        It can neither veto nor break anything: what it raises is contained and logged as `observer/failed`.
        """
        listening = _Listening(who or str(getattr(fn, "__qualname__", fn)), fn)
        keys: tuple[type[Fact] | None, ...] = types or (None,)
        for key in keys:
            self._observers[key] = (*self._observers.get(key, ()), listening)

        def dispose() -> None:
            for key in keys:
                left = tuple(one for one in self._observers.get(key, ()) if one is not listening)
                if left:
                    self._observers[key] = left
                else:
                    self._observers.pop(key, None)

        return dispose

    def _tell(self) -> None:
        self._telling = True
        try:
            while self._untold:
                batch, self._untold = self._untold, []
                for told in batch:  # what observers append meanwhile comes after it
                    self._tell_one(told)
        finally:
            self._telling = False

    def _tell_one(self, told: Event) -> None:
        for listening in self._observers.get(type(told.fact), ()) + self._observers.get(None, ()):
            try:
                listening.fn(told)
            except Exception as error:  # noqa: BLE001  # foreign code: contained, and on record
                if not isinstance(told.fact, ObserverFailed):  # else it would never end
                    self.contained("session", listening.who, error, told.seq)

    def contained(self, point: str, who: str, error: Exception, at: int) -> None:
        """Put an observer's failure on record, if anything can be; what the observer was told of stands."""
        if not self._closed and self._journal.failure is None:
            what = self.redacted(f"{type(error).__name__}: {said_error(error)}")[:500]
            with suppress(StoreFailed):  # told at the next barrier, and to whoever appends next
                self.append(ObserverFailed(point, who, what, at))

    def _wake_followers(self) -> None:
        waiting, self._followers = self._followers, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def changed(self, after: int, *, poll: float = 0.2) -> None:
        """Wait until there is a line after seq `after`, the session is closed, or its store has failed.

        On a read-only session, which another process may be writing, it looks every `poll` seconds.
        """
        while self._journal.head <= after and not self._closed and self._journal.failure is None:
            if self.readonly:
                before = self._journal.head
                if await self._journal.refresh() == before:
                    await self._journal.news(poll)
                for event in self._journal.read(self.state.head + 1, None):
                    self.state.apply(event)  # history, head and what is open move along with the writer
                continue
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._followers.add(future)
            try:
                await future
            finally:
                self._followers.discard(future)

    async def follow(self, after: int = -1) -> AsyncIterator[Event]:
        """Every event from the one after seq `after`, as it comes, until the session is closed.

        A cursor over the log, without a queue: a slow follower delays nobody and loses nothing.

        Raises:
            StoreFailed: nothing more can be written; what was, has been given.
        """
        at = after
        while True:
            head = self._journal.head
            if at < head:
                for event in self._journal.read(at + 1, min(head, at + _CHECKED)):
                    at = event.seq
                    yield event
            elif self._closed:
                return
            elif self._journal.failure is not None:
                raise self._journal.failure
            else:
                await self.changed(at)

    async def close(self) -> None:
        """Wait for the disk, then let go of the log. Closing twice is harmless."""
        if self._closed:
            return
        self._closed = True
        self._wake_followers()
        await self._journal.close()


def _rules_of(cls: type[Fact]) -> _Rules:
    rules = _rules.get(cls)
    if rules is None:
        rules = _rules[cls] = law_of(cls), citing(cls), change_of(cls), cls.ignorable
    return rules


def _simulated_clock() -> Callable[[], int] | None:
    """Epoch milliseconds of an event loop whose time is simulated, None on any other."""
    try:
        simulated: Callable[[], int] | None = getattr(asyncio.get_running_loop(), "wall_ms", None)
    except RuntimeError:
        return None
    return simulated


def now_ms(clock: Callable[[], int] | None = None) -> int:
    """The time of this clock, of a simulated event loop, or the real one: epoch milliseconds."""
    clock = clock or _simulated_clock()
    return clock() if clock is not None else int(time() * 1000)


def new_session_id(now: int) -> str:
    """A short id that sorts by the time it was made, epoch milliseconds, and can be typed."""
    stamp = strftime("%Y%m%d-%H%M%S", gmtime(now / 1000))
    return f"{stamp}-{secrets.token_hex(3)}"


def checked_id(session_id: str, redactor: Redactor | None) -> str:
    """
    Raises:
        UsageError: the redactor finds a secret in it.
    """
    if redactor is not None and redactor.text(session_id) != session_id:
        raise UsageError("the id of a session cannot hold a secret")
    return session_id


async def create_session(
    store: Store,
    session_id: str | None = None,
    *,
    cwd: str | None = None,
    agent: str | None = None,
    clock: Callable[[], int] | None = None,
    redactor: Redactor | None = None,
) -> Session:
    """A new session, with its first two lines.

    Raises:
        SessionError: there is one of this id. UsageError: the redactor finds a secret in the id.
    """
    made = checked_id(session_id or new_session_id(now_ms(clock)), redactor)
    session = Session(made, await store.create(made), clock=clock, redactor=redactor)
    session.append(
        SessionCreated(FORMAT, made, cwd, agent, package=VERSION),
        SessionOpened(1, "new", host=socket.gethostname(), pid=os.getpid()),
    )
    return session


async def open_session(
    session_id: str,
    *,
    store: Store,
    readonly: bool = False,
    redo: Redo | None = None,
    clock: Callable[[], int] | None = None,
    redactor: Redactor | None = None,
) -> Session:
    """Open an existing session, and close what a crash left open, unless it is read-only.

    A step in which a call waits for a person's answer stays open: of it, only what was running is closed.

    Args:
        redo: In such a step, calls that were running stay open as well, to run again, if their tools are READ, or READ
            or IDEMPOTENT, and nothing speaks against it.

    Raises:
        UnknownSession: there is none of this id.
        UnknownFact, UnreadableLog: the log has a line that cannot be read here, or a newer format.
        SessionError: the log breaks a law; `interlock check` says where.
    """
    session = Session(
        session_id,
        await store.open(session_id, readonly=readonly),
        clock=clock,
        readonly=readonly,
        redactor=redactor,
    )
    try:
        await session._load(redo)
    except BaseException:
        await session.close()
        raise
    return session


def check_format(fact: SessionCreated) -> None:
    """
    Raises:
        SessionError: a later version has written the log, with other meanings.
    """
    major = fact.format.partition(".")[0]
    if major != FORMAT.partition(".")[0]:
        raise SessionError(
            f"session {fact.session_id} has format {fact.format}; this version reads {FORMAT}. Install a newer interlock."
        )
