"""Lives of one session, step by step: whatever is sent, finished, answered, stopped and cut off, the laws hold after it.

A Hypothesis state machine on the virtual clock. One event loop lives as long as the machine: a rule runs it until what
the rule does has been done, and between rules everything stands still, so that the laws can be looked at. Steps that do
not matter for a failure are left out one by one when it is shrunk, and what is left is printed as a program.

A crash cuts the log anywhere after what a barrier has acknowledged, inside of what was appended as one, too. Letters come
at any time, also while nobody drives: each is taken exactly once, in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import effort
from brittle_store import BrittleStore
from fates import fates
from interlock import (
    Agent,
    Approved,
    Budget,
    Claims,
    Effect,
    InputDropped,
    Mailbox,
    Message,
    Rejected,
    RetryPolicy,
    SessionClosed,
    ToolCall,
    ToolContext,
    ToolError,
    fork_session,
    open_session,
    tool,
)
from interlock.errors import TurnWaits
from interlock.log.event import Event
from interlock.log.facts import AssistantMessage, ToolResulted, ToolStarted, TurnEnd
from interlock.log.messages import ToolUse
from interlock.testing import assert_laws, call, calls
from interlock.testing.clock import VirtualClock

from .test_any_program import (
    STUBBORN,
    TOOLS,
    Driver,
    Listeners,
    Timed,
    answers,
    assert_all_is_well,
    assert_goes_on,
    assert_paired,
    listeners,
    settle,
    steps,
)

T = TypeVar("T")


class Bodies:
    """The bodies of one life that wait for a rule to end them, and how often each call's body was invoked."""

    of: ClassVar[WeakKeyDictionary[Agent, Bodies]] = WeakKeyDictionary()

    def __init__(self) -> None:
        self.held: list[asyncio.Future[str]] = []
        self.ran: Counter[int] = Counter()  # by call
        self.effects: set[int] = set()  # calls that may have changed something

    async def wait(self, call: ToolCall) -> str:
        self.ran[call.key] += 1
        if call.effect is not Effect.READ:
            self.effects.add(call.key)
        ending: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.held.append(ending)
        try:
            return await ending
        finally:
            self.held.remove(ending)


@tool(concurrency="parallel")
async def writing(ctx: ToolContext) -> str:
    return await Bodies.of[ctx.agent].wait(ctx.call)


@tool(concurrency="parallel")
async def outer(ctx: ToolContext) -> str:
    await ctx.call_tool("writing")
    ctx.defer("between")
    return await Bodies.of[ctx.agent].wait(ctx.call)


HELD = [
    writing,
    outer,
    writing.with_(name="alone", concurrency="exclusive"),
    writing.with_(name="claiming", concurrency=lambda call: Claims(writes=["a"])),
    writing.with_(name="reading", effect="read"),
]
_NAMES = [one.name for one in HELD]
batches = st.lists(
    st.sampled_from([*_NAMES, *_NAMES, *[one.name for one in TOOLS]]), min_size=1, max_size=4
).map(lambda names: calls(*[call(name) for name in names]))
scripts = st.tuples(batches, st.lists(st.one_of(batches, batches, answers), max_size=4)).map(
    lambda drawn: [drawn[0], *drawn[1]]
)
silent: tuple[list[str], ...] = ([], [], [], [])
letters = st.sampled_from(["followup", "steer", "inject", "stop", "stop and keep", "yes", "no"])
presets = st.sampled_from(["plan", "ask", "accept-edits", "full"])


class Lives(RuleBasedStateMachine):
    """One session over any number of lives."""

    agent: Agent

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner(loop_factory=VirtualClock)
        self._well = False  # the last look at the laws found no breach
        self._drivers: list[Driver] = []
        self._forked = 0  # seqs below were inherited: what was pending among them is not this session's
        self._posted = 0  # letters to this session that were acknowledged
        self._away: Sequence[str] = ()  # letters that are sent before the next life

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        self._well = False
        return self._runner.run(doing)

    # A life

    @initialize(
        script=scripts,
        said=st.one_of(st.just(silent), listeners),
        pool=st.sampled_from([1, 2, 10]),
        pause=st.sampled_from([0.0, 0.0, 0.0, 0.1]),
        preset=st.one_of(st.none(), presets),
    )
    def begin(self, script: list[Any], said: Any, pool: int, pause: float, preset: str | None) -> None:
        self._said, self._pool, self._pause = said, pool, pause
        self.run(self._open(BrittleStore(), None, script))
        if preset is not None:
            self.set_preset(preset)
        self.act(("send", "followup"))

    async def _open(self, store: BrittleStore, session: str | None, script: Sequence[Any]) -> None:
        self._store, self._bodies, self._model = store, Bodies(), Timed(script, self._pause)
        self._questions: list[asyncio.Future[Any]] = []
        self._on_disk = 0
        store.on_barrier = self._barrier
        self._earlier: set[int] = set()
        if session is not None:
            for what in self._away:
                await self._post(session, what)
            journal = await store.open(session, readonly=True)
            self._earlier = started(list(journal.read()))
        self.agent = Agent(
            self._model,
            tools=[*TOOLS, *HELD],
            store=store,
            session=session,
            approver=self._approve,
            retry=RetryPolicy(retries=1, base=0.5),
            pool=self._pool,
            budget=Budget(steps=12, forced=3),
        )
        Bodies.of[self.agent] = self._bodies
        Listeners(*self._said).register(self.agent)
        await self.agent.open()
        self._barrier()
        driver = Driver(self.agent)
        driver.sent = self._drivers[-1].sent if self._drivers else 0
        self._drivers.append(driver)

    def _barrier(self) -> None:
        """What the session has now will be there after any crash."""
        if self.agent._session is not None:
            self._on_disk = len(self.agent.session.events)

    async def _approve(self, request: object) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._questions.append(answer)
        try:
            return await answer
        finally:
            self._questions.remove(answer)

    # What may happen

    @rule(step=steps)
    def act(self, step: tuple[Any, ...]) -> None:
        """Send, run, edit the inbox, cancel, wake, or let time pass."""
        self.run(self._drivers[-1].play([step]))

    @rule(rounds=st.sampled_from([1, 4, 15, 50, 50, 100]))
    def go_on(self, rounds: int) -> None:
        """Let the loop turn, without time."""

        async def turn() -> None:
            for _ in range(rounds):
                await asyncio.sleep(0)

        self.run(turn())

    @precondition(lambda self: self._bodies.held)
    @rule(which=st.integers(0, 3), well=st.booleans())
    def end_body(self, which: int, well: bool) -> None:
        held = self._bodies.held[which % len(self._bodies.held)]
        if not held.done():
            if well:
                held.set_result("done")
            else:
                held.set_exception(ToolError("no"))
        self.go_on(1)

    @precondition(lambda self: self._questions)
    @rule(which=st.integers(0, 3), yes=st.booleans())
    def answer(self, which: int, yes: bool) -> None:
        question = self._questions[which % len(self._questions)]
        if not question.done():
            question.set_result(Approved() if yes else Rejected("no"))
        self.go_on(1)

    @rule(what=letters)
    def post(self, what: str) -> None:
        self.run(self._post(self.agent.session.id, what))
        self.go_on(1)

    async def _post(self, session_id: str, what: str) -> None:
        """Send a letter, which is not lost from here on. Its sender looks at the log, and may be late."""
        mail = Mailbox(session_id, store=self._store)
        message = Message.user(what, id=f"l{session_id}.{self._posted + 1}")
        session = await open_session(session_id, store=self._store, readonly=True)
        state = session.state
        match what:
            case "followup" | "steer" | "inject":
                posted = await getattr(mail, what)(message)
            case "stop" | "stop and keep":
                number = state.turn.number if state.turn is not None else None
                posted = await mail.cancel(turn=number, keep_inbox=what != "stop")
            case _:
                approval_id = next(iter(state.approvals), "a0")
                posted = await mail.answer(approval_id, Approved() if what == "yes" else Rejected("no"))
        self._posted += 1
        assert posted.number == self._posted

    @rule(preset=presets)
    def set_preset(self, preset: str) -> None:
        async def set_it() -> None:
            self.agent.set_preset(preset, sandbox="full")

        self.run(set_it())

    @rule(
        how=st.sampled_from(["crash", "crash", "reload", "fork"]),
        n=st.one_of(st.integers(0, 9), st.just(1000)),
        script=scripts,
        prompt=st.sampled_from([True, True, False]),
        away=st.one_of(st.just([]), st.lists(letters, max_size=3)),
    )
    def next_life(self, how: str, n: int, script: list[Any], prompt: bool, away: list[str]) -> None:
        """A crash that loses up to `n` lines, a clean end, or a fork at some closed turn, with which it goes on."""
        self._away = away
        if how == "crash":
            self.run(self._crash(n, script))
        elif how == "fork" and self.agent.session.facts(TurnEnd):
            self.run(self._fork(n, script))
        else:
            self.run(self._reload(script))
        if prompt:
            self.act(("send", "followup"))

    async def _crash(self, lost: int, script: Sequence[Any]) -> None:
        session = self.agent.session
        events = list(session.events)
        events = events[: max(self._on_disk, len(events) - lost, 1)]
        assert self._bodies.effects <= started(events), "a body ran whose start was not on disk"
        mailbox = self._store._sessions[session.id].letters
        await self.agent.aclose()  # what it writes now has never been
        store = BrittleStore()
        journal = await store.create(session.id)
        journal.write(events)
        await journal.close()
        store._sessions[session.id].letters = mailbox
        store._sessions[session.id].posted = self._posted
        await self._open(store, session.id, script)

    async def _reload(self, script: Sequence[Any]) -> None:
        await self.agent.aclose()
        self._look()
        await self._open(self._store, self.agent.session.id, script)

    async def _fork(self, which: int, script: Sequence[Any]) -> None:
        ends = [event for event in self.agent.session.events if isinstance(event.fact, TurnEnd)]
        end = ends[which % len(ends)]
        assert isinstance(end.fact, TurnEnd)
        fork = await fork_session(self.agent.session.id, store=self._store, at=end.fact.turn)
        assert_laws(fork)
        await fork.close()
        await self.agent.aclose()
        self._forked, self._posted = end.seq, 0
        await self._open(self._store, fork.id, script)

    # What holds

    @invariant()
    def laws(self) -> None:
        if self._drivers:
            self._look()
            self._well = True

    def _look(self) -> None:
        session = self.agent.session
        events = list(session.events)
        assert_laws(session)  # the laws of the log, and that replaying it gives what lives
        assert_results_in_order(events)
        wrong = {one: ends for one, ends in fates(events).items() if len(ends) != 1}
        if self._forked:
            wrong = {one: ends for one, ends in wrong.items() if ends}  # what was pending has gone there
        assert wrong == {}, "every message has one fate"
        self._look_at_letters(events)
        ran = self._bodies.ran
        assert max(ran.values(), default=0) <= 1, "a body ran twice"
        assert not ran.keys() & self._earlier, "a body that an earlier life had started ran again"
        assert ran.keys() <= started(events), "a body ran that has no start"
        assert max(starts(events).values(), default=0) <= 1
        for request in self._model.requests:
            assert_paired(request.messages)

    def _look_at_letters(self, events: Sequence[Event]) -> None:
        """Each is in the mailbox or in the log, where they are in order, once each."""
        taken = [e.fact.letter.number for e in events if e.seq > self._forked and stamped(e)]  # type: ignore[attr-defined]
        waiting = [letter.number for letter in self._store._sessions[self.agent.session.id].letters]
        assert taken == sorted(set(taken)), "letters were taken out of order, or twice"
        assert {*taken, *waiting} == {*range(1, self._posted + 1)}, "a letter is lost"
        assert taken == list(range(1, len(taken) + 1))

    def teardown(self) -> None:
        try:
            if self._well:
                self._runner.run(self._end())
                assert not asyncio.all_tasks(self._runner.get_loop()), "something outlives the agent"
        finally:
            self._runner.close()

    async def _end(self) -> None:
        await settle(self.agent)
        self._look()
        assert self.agent.session.state.mail == self._posted, "a letter was not taken"
        if not self._forked:
            assert_all_is_well(self.agent, self._model)
        await self.agent.aclose()
        for driver in self._drivers:
            for outcome in await asyncio.gather(*driver.waiting, return_exceptions=True):
                if isinstance(outcome, BaseException):
                    assert isinstance(outcome, (InputDropped, SessionClosed, TurnWaits, TimeoutError)), (
                        outcome
                    )
        if not self._forked:
            await assert_goes_on(self._store, self.agent.session.id)
        await asyncio.sleep(STUBBORN)  # for bodies that were given up on


def stamped(event: Event) -> bool:
    return getattr(event.fact, "letter", None) is not None


def started(events: Sequence[Event]) -> set[int]:
    return set(starts(events))


def starts(events: Sequence[Event]) -> Counter[int]:
    """How often the body of each call was started."""
    return Counter(event.fact.call for event in events if isinstance(event.fact, ToolStarted))


def assert_results_in_order(events: Sequence[Event]) -> None:
    """Law 4, while the last step may be open: the calls have their results in the model's order, one each."""
    facts = [event.fact for event in events]
    said = [fact.blocks for fact in facts if isinstance(fact, AssistantMessage)]
    asked = [block.id for blocks in said for block in blocks if isinstance(block, ToolUse)]
    given = [fact.call_id for fact in facts if isinstance(fact, ToolResulted)]
    assert given == asked[: len(given)]


@pytest.mark.parametrize("part", range(4) if effort.wanted else range(1))
def test_the_laws_hold_after_every_step_of_any_lives(part: int) -> None:
    """Laws 1 and 3 to 6, D-3, D-21. `make soak` tries many more, in parts that run side by side."""
    run_state_machine_as_test(
        Lives,
        settings=settings(
            deadline=None,
            max_examples=effort.wanted // 4 if effort.wanted else effort.examples(60),
            stateful_step_count=30 if effort.wanted else 15,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
