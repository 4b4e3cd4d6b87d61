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
from threading import get_ident
from time import gmtime, strftime, time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, overload

import msgspec

from interlock.errors import (
    DuplicateSession,
    IllegalFact,
    ReadOnlySession,
    SessionClosed,
    SessionError,
    StoreFailed,
    UnknownFact,
    UnknownSession,
    UnreadableLog,
    UsageError,
    WrongThread,
    said_error,
)
from interlock.log.causes import Spans, citing
from interlock.log.closing import CRASHED, Redo, closers, end_started
from interlock.log.event import Event
from interlock.log.facts import (
    FORMAT,
    Erased,
    Fact,
    ObserverFailed,
    SessionCreated,
    SessionOpened,
    SessionRepaired,
    StepEnd,
    ToolCalled,
    ToolResulted,
    ToolSettled,
    TurnEnd,
)
from interlock.log.history import History
from interlock.log.laws import Broken, forbidden, law_of, miscited, unforked
from interlock.log.state import Change, State, change_of
from interlock.log.tombstones import erasure_of, refuse_erased
from interlock.version import VERSION

if TYPE_CHECKING:
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.store import Journal, Store

#: By class of fact: the law that may forbid it, how what it cites is found, how it changes the state, and whether a
#: reader may skip it.
_Rules: TypeAlias = tuple[
    Callable[[State, Any], None] | None, Callable[[State, Any], Spans] | None, Change | None, bool
]


class _RulesByClass(dict[type[Fact], _Rules]):
    def __missing__(self, cls: type[Fact]) -> _Rules:
        rules = self[cls] = law_of(cls), citing(cls), change_of(cls), cls.ignorable
        return rules


_rules = _RulesByClass()

F = TypeVar("F", bound=Fact)
T = TypeVar("T")
Observer = Callable[[Event], None]
Dispose = Callable[[], None]

_CHECKED = 256  # events that `follow` reads at once
_AT_ONCE = 1000  # lines that are replayed before others on the event loop have a turn
_LINES_BETWEEN = 1000  # from one checkpoint to the next, at least: they are replayed in a few milliseconds


class _Listening(msgspec.Struct, frozen=True):
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
        self._kept = -1  # the last line of the folds that the store has, or was given
        if self.durable and not readonly:
            self.observe(self._keep, StepEnd, TurnEnd)
            journal.on_failure(self._wake_followers)

    # Reading

    @property
    def events(self) -> Events:
        """The lines of the log: `events[3]`, `events[10:20]`, `for event in events`."""
        return Events(self._journal)

    @property
    def journal(self) -> Journal:
        """Where its lines are kept, and its letters wait."""
        return self._journal

    @property
    def head(self) -> int:
        """The seq of the last line, -1 when there is none."""
        return self.state.head

    @property
    def history(self) -> History:
        """What the model has been told."""
        return self.state.history

    @property
    def erasure(self) -> Event | None:
        """The line that says who erased what the session held, if that was done."""
        return erasure_of(self._journal)

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
        first = self._go_on()
        state = self.state
        for event in self._journal.read(first, None):
            fact, seq = event.fact, event.seq
            if seq == 0 and isinstance(fact, SessionCreated):
                check_format(fact)
            breach = forbidden(state, fact)
            if breach is None and state.created is not None and state.created.parent is not None:
                breach = unforked(state, fact)
            if breach is not None:
                if seq == 0 and type(fact) is Erased and self._load_erased():
                    return
                raise IllegalFact(breach.law, breach.problem, seq=breach.seq)
            state.apply(event)
            if not seq % _AT_ONCE:
                await asyncio.sleep(0)
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
        self.append(opening(state.life + 1, "resume", self._journal))
        self._repair(redo)
        await self.barrier()

    def _go_on(self) -> int:
        """Begin with the folds that the store has kept, if they are of this log; the first line that they lack."""
        journal = self._journal
        kept = journal.checkpoint
        if kept is None:
            return 0
        journal.checkpoint = None  # it may be large
        from interlock.log.checkpoint import restored

        found = restored(kept, self.id, journal.head)
        if found is None:
            return 0
        try:
            last = next(journal.read(kept.seq, kept.seq))
        except (UnknownFact, UnreadableLog):
            return 0
        if not found.fits(last):
            return 0
        self.state, self._kept = found.state, kept.seq
        return kept.seq + 1

    def _load_erased(self) -> bool:
        """Whether it is an erased session, which is opened for reading; there is nothing to fold but where it ends.

        Raises:
            SessionErased: it was to be written to.
        """
        if not self.readonly:
            refuse_erased(self.id, self._journal)
        if self.erasure is None:
            return False
        for event in self._journal.read(0, None):
            self.state.apply(event)
        return True

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
        journal = self._journal
        if self._closed or self.readonly or get_ident() != self._thread or journal.failure is not None:
            raise self._refusal()
        if self.redactor is not None and not redacted:
            facts = tuple([self.redactor.value(fact) for fact in facts])
        state, clock = self.state, self._simulated
        now = int(time() * 1000) if clock is None else clock()
        if now == state.time:
            now = state.time  # the same object: most lines share their millisecond with the one before
        alone = len(facts) == 1  # nearly always
        made: list[Event] = []
        observers = self._observers
        heard = False
        try:
            for fact in facts:
                cls = type(fact)
                law, cites, change, ignorable = _rules[cls]
                if law is not None:
                    try:
                        law(state, fact)
                    except Broken as broken:
                        problem = f"{fact.type}: {broken.problem}"
                        raise IllegalFact(broken.law, problem, seq=state.head + 1) from None
                seq, life = state.head + 1, state.life
                if life == 0 or cls is SessionOpened:
                    life = self._beginning(fact)
                if causes is not None:
                    self._check_cited(fact, causes)
                    event = Event(seq, now, life, fact, causes, ignorable)
                else:
                    cited = cites(state, fact) if cites is not None else ()
                    event = Event(seq, now, life, fact, cited, ignorable)
                if alone:
                    journal.write((event,))
                # As `State.apply`, without its look-up.
                state.head = seq
                if change is not None:
                    change(state, seq, fact, event)
                state.time = now
                made.append(event)
                if cls in observers:
                    heard = True
            if not alone and made:
                journal.write(made)
        except BaseException as error:
            if made:  # all or none
                self._undo()
            if isinstance(error, StoreFailed):
                self._wake_followers()  # nothing more will come
            raise
        if heard or None in observers:
            self._untold += [event for event in made if type(event.fact) in observers or None in observers]
            if not self._telling:
                self._tell()
        if self._followers:
            self._wake_followers()
        return tuple(made)

    def _refusal(self) -> Exception:
        """Why nothing can be appended."""
        if self._closed:
            return SessionClosed(self.id)
        if self.readonly:
            return ReadOnlySession(self.id)
        if get_ident() != self._thread:
            return WrongThread("append")
        assert self._journal.failure is not None
        return self._journal.failure

    def _beginning(self, fact: Fact) -> int:
        """The life of a line that opens it, or comes before any is open."""
        if self.state.head < 0 and type(fact) is not SessionCreated:
            raise IllegalFact("created", f"a log starts with session/created, not {fact.type}", seq=0)
        return fact.life if type(fact) is SessionOpened else self.state.life or 1

    def _check_cited(self, fact: Fact, causes: Spans) -> None:
        breach = miscited(self.state, fact, causes)
        if breach is not None:
            raise IllegalFact(breach.law, breach.problem, seq=breach.seq)

    def _undo(self) -> None:
        """The folds have run ahead of the log: they are made anew from it."""
        self.state = State()
        for event in self._journal.read(0, None):
            self.state.apply(event)

    def _keep(self, told: Event) -> None:
        """Have the folds kept by the store when much has come since the last time, for whoever opens the session next.

        It is linear in the history, and so seldom that every line pays a constant share of it: after twice as many
        lines as there are messages, or when there are twice as many lines as the last time.
        """
        state, kept = self.state, self._kept
        if state.head - kept >= max(_LINES_BETWEEN, min(2 * len(state.history), kept)):
            from interlock.log.checkpoint import Snapshot, can_be_kept

            if can_be_kept(state):
                self._kept = state.head
                self._journal.keep(Snapshot(self.id, state, self.events[state.head]))

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


def opening(life: int, how: Literal["new", "resume", "fork"], journal: Journal) -> SessionOpened:
    """The line that says who writes from here on."""
    return SessionOpened(life, how, host=socket.gethostname(), pid=os.getpid(), lease=journal.fence)


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


async def _new_journal(
    store: Store, session_id: str | None, clock: Callable[[], int] | None, redactor: Redactor | None
) -> tuple[str, Journal]:
    while True:
        made = checked_id(session_id or new_session_id(now_ms(clock)), redactor)
        try:
            return made, await store.create(made)
        except DuplicateSession:
            # Of a thousand ids that are made in one second, two are the same, one time in thirty.
            if session_id is not None:
                raise


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
    made, journal = await _new_journal(store, session_id, clock, redactor)
    session = Session(made, journal, clock=clock, redactor=redactor)
    session.append(
        SessionCreated(FORMAT, made, cwd, agent, package=VERSION),
        opening(1, "new", session._journal),
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
        SessionErased: what it held was erased, and it is not opened read-only.
        UnknownFact, UnreadableLog: the log has a line that cannot be read here, or a newer format.
        SessionError: the log breaks a law; `interlock check` says where.
    """
    session = Session(
        session_id,
        await store.open(session_id, readonly=readonly, checkpoint=True),
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
