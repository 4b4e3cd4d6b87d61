"""Any program of sends, edits and stops, against any model, tools and listeners: what holds after every run.

The programs run on the virtual clock, so that a run costs no time and has one course of events.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from itertools import cycle
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import examples
from fates import fates
from interlock import (
    Accept,
    Agent,
    Approved,
    Ask,
    Block,
    Budget,
    Continue,
    Deny,
    Enter,
    InboxError,
    InputDropped,
    MemoryStore,
    Message,
    Proposal,
    Reject,
    Rejected,
    RetryPolicy,
    SessionClosed,
    Status,
    Stopping,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
)
from interlock.intercept.signal import Signal
from interlock.log.event import Event
from interlock.log.facts import AssistantMessage, StepEnd, StepStart, ToolResulted, TurnEnd, TurnStart
from interlock.log.messages import ToolOutcome, ToolUse
from interlock.models.protocol import ModelRequest
from interlock.testing import (
    ScriptedModel,
    assert_laws,
    call,
    calls,
    cuts_off,
    fails,
    hangs,
    max_tokens,
    nothing,
    run_virtual,
    says,
)

# The world


@tool(effect="read", concurrency="parallel")
async def quick() -> str:
    return "done"


@tool(effect="write")
async def slow(ctx: ToolContext) -> str:
    ctx.defer("a context")
    await asyncio.sleep(1)
    return "done"


@tool(effect="read", concurrency="parallel")
async def broken() -> str:
    await asyncio.sleep(0.5)
    raise ToolError("no")


@tool(effect="read", concurrency="parallel")
async def hang() -> str:
    """Wait until it is cut."""
    await asyncio.get_running_loop().create_future()
    return "never"


@tool(effect="write", concurrency="parallel")
async def stubborn() -> str:
    """Go on for its time, whatever happens."""
    loop = asyncio.get_running_loop()
    end = loop.time() + STUBBORN
    while loop.time() < end:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(end - loop.time())
    return "done after all"


@tool(effect="read", timeout=2)
async def composite(ctx: ToolContext) -> str:
    await asyncio.gather(ctx.call_tool("quick"), ctx.call_tool("slow"))
    return "done"


@tool(effect="read")
async def conclude(ctx: ToolContext) -> str:
    ctx.conclude()
    return "concluded"


STUBBORN = 4.0
TOOLS = [quick, slow, broken, hang, stubborn, composite, conclude]

batches = st.lists(st.sampled_from([*[one.name for one in TOOLS], "unheard_of"]), min_size=1, max_size=4).map(
    lambda names: calls(*[call(name) for name in names])
)
answers = st.one_of(
    batches,
    batches,
    st.sampled_from(
        [
            says("some words"),
            nothing(),
            max_tokens("cut", call("quick")),
            hangs("so far"),
            cuts_off("cut off"),
            fails("SERVER", after="a false start"),
            fails("AUTH"),
            calls(call("quick", id="same"), call("slow", id="same")),
        ]
    ),
)
scripts = st.lists(answers, min_size=1, max_size=6)


class Timed(ScriptedModel):
    """A model that takes its time between chunks; when its script is over it says the same for ever."""

    def __init__(self, script: Sequence[Any], pause: float) -> None:
        super().__init__(*script, *[says("enough")] * 200)
        self._pause = pause

    async def stream(self, request: ModelRequest, signal: Signal) -> Any:
        async for chunk in super().stream(request, signal):
            yield chunk
            await asyncio.sleep(self._pause)


class Listeners:
    """What every listener does, time after time, from lists that go round."""

    def __init__(self, pre_step: list[str], policy: list[str], post: list[str], stopping: list[str]) -> None:
        self.pre_step = cycle(pre_step or ["pass"])
        self.policy = cycle(policy or ["pass"])
        self.post = cycle(post or ["pass"])
        self.stopping = cycle(stopping or ["pass"])

    def register(self, agent: Agent) -> None:
        agent.on.pre_step(self.on_pre_step)
        agent.on.pre_execute(self.on_pre_execute)
        agent.on.post_execute(self.on_post_execute)
        agent.on.turn_stopping(self.on_turn_stopping)

    async def on_pre_step(self, proposal: Proposal) -> Any:
        match next(self.pre_step):
            case "slow":
                await asyncio.sleep(0.5)
            case "raise":
                raise RuntimeError("no")
            case "reject":
                return Reject("no")
            case "omit":
                return Enter(proposal.messages[1:])
            case "add":
                return Enter((*proposal.messages, Message.user("added")), contexts=("because",))
            case "steer":
                proposal.agent.steer("from a listener")
        return None

    async def on_pre_execute(self, call: ToolCall) -> Any:
        match next(self.policy):
            case "slow":
                await asyncio.sleep(0.5)
            case "ask":
                return Ask("may it?")
            case "deny":
                return Deny("no")
            case "raise":
                raise RuntimeError("no")
        return None

    async def on_post_execute(self, call: ToolCall, result: ToolResult) -> Any:
        match next(self.post):
            case "slow":
                await asyncio.sleep(0.5)
            case "block":
                return Block("not that", contexts=("blocked",))
            case "stop":
                return Accept(stop=True)
            case "raise":
                raise RuntimeError("no")
        return None

    async def on_turn_stopping(self, stopping: Stopping) -> Any:
        match next(self.stopping):
            case "continue":
                return Continue("go on")
            case "slow":
                await asyncio.sleep(0.5)
            case "raise":
                raise RuntimeError("no")
        return None


def some(*names: str) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(["pass", "pass", "pass", *names]), max_size=4)


listeners = st.tuples(
    some("slow", "raise", "reject", "omit", "add", "steer"),
    some("slow", "ask", "deny", "raise"),
    some("slow", "block", "stop", "raise"),
    some("continue", "slow", "raise"),
)

# The program

pauses = st.sampled_from([0.0, 0.0, 0.1, 0.7, 2.5])
steps = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(["followup", "steer", "inject", "park"])),
    st.tuples(st.just("send"), st.sampled_from(["followup", "steer"])),
    st.tuples(st.just("run"), st.sampled_from([None, 0.0, 0.3, 3.0])),
    st.tuples(st.just("remove"), st.integers(0, 3)),
    st.tuples(st.just("replace"), st.integers(0, 3)),
    st.tuples(st.just("clear")),
    st.tuples(st.just("cancel"), st.booleans(), st.sampled_from([None, None, 0.0, 0.5])),
    st.tuples(st.just("wake")),
    st.tuples(st.just("pause"), pauses),
    st.tuples(st.just("pause"), pauses),
)
programs = st.lists(steps, min_size=2, max_size=14).map(lambda program: [("send", "followup"), *program])
people = st.lists(st.sampled_from(["yes", "no", "never", "fails"]), max_size=3)


class Driver:
    """Runs a program against an agent, and remembers who waits for what."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.waiting: list[asyncio.Task[Any]] = []
        self.sent = 0

    def _message(self) -> Message:
        self.sent += 1
        return Message.user(f"message {self.sent}", id=f"p{self.sent}")

    async def play(self, program: list[tuple[Any, ...]]) -> None:
        for what, *arguments in program:
            await getattr(self, what)(*arguments)

    async def send(self, verb: str) -> None:
        agent = self.agent
        if verb == "park":
            receipt = agent.send(self._message(), to="turn", wake=False)
        else:
            receipt = getattr(agent, verb)(self._message())
        self.waiting.append(asyncio.ensure_future(receipt.turn()))

    async def run(self, cancel_after: float | None) -> None:
        async def run() -> Any:
            if cancel_after is None:
                return await self.agent.run(self._message())
            async with asyncio.timeout(cancel_after):
                return await self.agent.run(self._message())

        self.waiting.append(asyncio.ensure_future(run()))
        await asyncio.sleep(0)

    def _pick(self, n: int) -> str:
        pending = self.agent.inbox.next_step + self.agent.inbox.next_turn
        return pending[n % len(pending)].id if pending else "nothing"

    async def remove(self, n: int) -> None:
        self.agent.inbox.remove(self._pick(n))

    async def replace(self, n: int) -> None:
        self.agent.inbox.replace(self._pick(n), self._message())

    async def clear(self) -> None:
        self.agent.inbox.clear()

    async def cancel(self, keep: bool, grace: float | None) -> None:
        self.agent.cancel(keep_inbox=keep, grace=grace)

    async def wake(self) -> None:
        self.agent.wake()

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def all_done(self) -> None:
        """Everybody who waited has an answer: a result, or what became of the message."""
        for outcome in await asyncio.gather(*self.waiting, return_exceptions=True):
            if isinstance(outcome, BaseException):
                assert isinstance(outcome, (InputDropped, SessionClosed, TimeoutError)), outcome


def approver(answers: list[str]) -> Any:
    said = cycle(answers or ["yes"])

    async def approve(request: object) -> Any:
        answer = next(said)
        await asyncio.sleep(0.5)
        match answer:
            case "yes":
                return Approved()
            case "no":
                return Rejected("no")
            case "never":
                return await asyncio.get_running_loop().create_future()
            case _:
                raise RuntimeError("the channel broke")

    return approve


# What holds


def assert_paired(messages: Sequence[Message]) -> None:
    """HK-20: every call of an answer has its result right after it, in order, and there is no other result."""
    owed: list[str] = []
    for message in messages:
        results = [block.call_id for block in message.content if isinstance(block, ToolOutcome)]
        if results:
            assert results == owed[:1], "a result without its call, or out of order"
            owed = owed[1:]
            continue
        assert not owed, f"the calls {owed} have no result before the next message"
        owed = [block.id for block in message.content if isinstance(block, ToolUse)]
    assert not owed


def assert_balanced(events: Sequence[Event]) -> None:
    """Law 5: one end for each start, steps within their turn."""
    open_turn = open_step = None
    for event in events:
        match event.fact:
            case TurnStart(turn=turn):
                assert open_turn is None
                open_turn = turn
            case StepStart(turn=turn, step=step):
                assert (open_turn, open_step) == (turn, None)
                open_step = step
            case StepEnd(step=step):
                assert open_step == step
                open_step = None
            case TurnEnd(turn=turn):
                assert (open_turn, open_step) == (turn, None)
                open_turn = None
            case _:
                pass
    assert (open_turn, open_step) == (None, None)


def assert_answered(events: Sequence[Event]) -> None:
    """Law 4: as many results as calls, each once."""
    asked = [
        block.id
        for event in events
        if isinstance(event.fact, AssistantMessage)
        for block in event.fact.blocks
        if isinstance(block, ToolUse)
    ]
    given_ = [event.fact.call_id for event in events if isinstance(event.fact, ToolResulted)]
    assert asked == given_


async def settle(agent: Agent) -> None:
    """Stop until nothing runs, what was woken after a stop included; and wait for what a grace gave up on."""
    while agent.status is not Status.IDLE:
        agent.cancel(keep_inbox=True, grace=1)
        await asyncio.sleep(2)
    await asyncio.sleep(STUBBORN)


def assert_all_is_well(agent: Agent, model: ScriptedModel) -> None:
    events = list(agent.session.events)
    assert_laws(agent.session)
    assert_balanced(events)
    assert_answered(events)
    for request in model.requests:
        assert_paired(request.messages)
    assert {one: ends for one, ends in fates(events).items() if len(ends) != 1} == {}


async def assert_goes_on(store: MemoryStore, session_id: str) -> None:
    """Open it again: what was left is taken up, and the next turns run."""
    model = ScriptedModel(*[says("again")] * 200)
    async with Agent(model, tools=TOOLS, store=store, session=session_id) as agent:
        agent.followup("and now?")
        await agent.idle()
        assert len(agent.inbox) == 0
        assert agent.session.facts(TurnEnd)[-1].steps == 1
        assert_all_is_well(agent, model)


common = settings(deadline=None, max_examples=examples(120), suppress_health_check=[HealthCheck.too_slow])


@common
@given(programs, scripts, listeners, people, pauses, st.sampled_from([1, 2, 10]), st.data())
def test_whatever_is_done_the_log_is_lawful_and_every_message_has_one_fate(
    program: list[tuple[Any, ...]],
    script: list[Any],
    said: tuple[list[str], list[str], list[str], list[str]],
    persons: list[str],
    pause: float,
    pool: int,
    data: st.DataObject,
) -> None:
    """The laws, D-3, law 1: replaying the log gives the live state; and nobody waits for ever."""

    async def main() -> None:
        store = MemoryStore()
        model = Timed(script, pause)
        async with Agent(
            model,
            tools=TOOLS,
            store=store,
            approver=approver(persons),
            retry=RetryPolicy(retries=1, base=0.5),
            pool=pool,
            budget=Budget(steps=12, forced=3),
        ) as agent:
            Listeners(*said).register(agent)
            driver = Driver(agent)
            await driver.play(program)
            await settle(agent)
            assert_all_is_well(agent, model)
            session_id = agent.session.id
        await driver.all_done()
        assert_laws(agent.session)
        events = list(agent.session.events)
        await assert_goes_on(store, session_id)

        cut = MemoryStore()
        journal = await cut.create("s")
        journal.write(events[: data.draw(st.integers(1, len(events)), label="cut before line")])
        await journal.close()
        await assert_goes_on(cut, "s")

    run_virtual(main())


@common
@given(
    programs,
    scripts,
    listeners,
    st.sampled_from(["event", "inbox", "status", "result"]),
)
def test_the_same_from_inside_observers(
    program: list[tuple[Any, ...]],
    script: list[Any],
    said: tuple[list[str], list[str], list[str], list[str]],
    where: str,
) -> None:
    """CA-11, D-21: verbs work from any callback, at whatever moment it is told."""

    async def main() -> None:
        model = Timed(script, 0.1)
        async with Agent(
            model, tools=TOOLS, retry=RetryPolicy(retries=0), budget=Budget(steps=12, forced=3)
        ) as agent:
            Listeners(*said).register(agent)
            driver = Driver(agent)
            left = iter(program)

            def act(*_: object) -> None:
                """One step of the program, if it does not wait."""
                what, *arguments = next(left, ("pause", 0))
                if what not in ("pause", "run"):
                    moves = getattr(driver, what)(*arguments)
                    with contextlib.suppress(StopIteration, InboxError):
                        moves.send(None)

            match where:
                case "event":
                    agent.on.observe(TurnStart, StepStart, AssistantMessage, ToolResulted, StepEnd, TurnEnd)(
                        act
                    )
                case "inbox":
                    agent.on.inbox(act)
                case "status":
                    agent.on.status(act)
                case _:
                    agent.on.result(act)
            for n in range(3):
                agent.followup(Message.user(f"start {n}", id=f"start {n}"))
                await asyncio.sleep(5)
            left = iter(())
            await settle(agent)
            assert_all_is_well(agent, model)
        await driver.all_done()

    run_virtual(main())


@pytest.mark.virtual
async def test_one_course_of_events_for_one_program() -> None:
    """The same program gives the same log, line by line, times included."""
    program = [("send", "followup"), ("pause", 0.7), ("send", "steer"), ("cancel", True, 0.5), ("wake",)]

    async def play() -> list[Event]:
        model = Timed([calls("slow", "stubborn"), says("ok")], 0.1)
        async with Agent(model, tools=TOOLS) as agent:
            driver = Driver(agent)
            await driver.play(program)
            await settle(agent)
            events = list(agent.session.events)
        await driver.all_done()
        return events

    first = await play()
    start = first[0].time
    second = await play()
    again = second[0].time
    assert [(e.time - start, e.type, e.causes) for e in first] == [
        (e.time - again, e.type, e.causes) for e in second
    ]
