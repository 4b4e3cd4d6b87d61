"""Any batch of calls, over any number of crashes, at any line: each call goes on from what is on record.

A crash is a log that is cut: what a life wrote after the cut has not happened. The lives run on the virtual clock.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock import (
    Accept,
    Agent,
    Ask,
    Claims,
    Deny,
    MemoryStore,
    Status,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    tool,
)
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    AssistantMessage,
    SubcallStart,
    ToolCalled,
    ToolResulted,
    ToolStarted,
    TurnEnd,
    UserMessage,
)
from interlock.log.messages import ToolUse
from interlock.log.reasons import Completed, Interrupted
from interlock.log.session import open_session
from interlock.log.state import State
from interlock.log.strictjson import FrozenDict
from interlock.loop.pending import answer_pending
from interlock.testing import ScriptedModel, assert_laws, call, calls, run_virtual, says
from interlock.tools.approval import Answered

# The calls of a batch


@dataclass(frozen=True)
class Wanted:
    """One call: which tool, what the rules of every life say of it, how long its body takes, what it touches."""

    tool: str
    rule: str  # none, ask, deny
    seconds: int
    key: str


wanted = st.builds(
    Wanted,
    st.sampled_from(["parallel", "parallel", "claiming", "claiming", "alone", "read", "outer", "fails"]),
    st.sampled_from(["none", "ask", "ask", "ask", "deny"]),
    st.sampled_from([0, 0, 1, 3]),
    st.sampled_from(["a", "a/b", "c"]),
)
batches = st.lists(wanted, min_size=1, max_size=5)


def tools(ran: list[str]) -> list[Tool]:
    """`ran`: the names of the calls whose bodies were invoked."""

    @tool(concurrency="parallel")
    async def parallel(name: str, rule: str, seconds: int, key: str) -> str:
        ran.append(name)
        await asyncio.sleep(seconds)
        return f"did {name}"

    @tool(concurrency="parallel")
    async def fails(name: str, rule: str, seconds: int, key: str) -> str:
        ran.append(name)
        await asyncio.sleep(seconds)
        raise ToolError("it does not work")

    @tool(concurrency="parallel")
    async def outer(ctx: ToolContext, name: str, rule: str, seconds: int, key: str) -> str:
        ran.append(name)
        ctx.defer(f"said by {name}")
        for inner, asks in (("first", "none"), ("second", "ask" if seconds else "none")):
            await ctx.call_tool("parallel", name=f"{name}.{inner}", rule=asks, seconds=seconds, key=key)
        return f"did {name}"

    claims = lambda call: Claims(writes=[call.arguments["key"]])  # noqa: E731
    return [
        parallel,
        fails,
        outer,
        parallel.with_(name="claiming", concurrency=claims),
        parallel.with_(name="alone", concurrency="exclusive"),
        parallel.with_(name="read", effect="read"),
    ]


def rule(call: ToolCall) -> Any:
    match call.arguments["rule"]:
        case "ask":
            return Ask("may it?", contexts=(f"about {call.arguments['name']}",))
        case "deny":
            return Deny("no")
        case _:
            return None


# People

says_ = st.sampled_from(["yes", "yes", "yes", "no", "edits", "never"])


def answer_of(what: str, arguments: FrozenDict) -> Answered:
    match what:
        case "no":
            return Answered("rejected", "rather not", "ada", "api", "test")
        case "edits":
            changed = FrozenDict({**arguments, "key": "edited"})
            return Answered("allowed-once", None, "ada", "api", "test", changed)
        case _:
            return Answered("allowed-once", None, "ada", "api", "test")


@dataclass
class People:
    """Meets `Asker`: answers from a list, after a list of times, over and over."""

    answers: Sequence[str]
    after: Sequence[int]
    asked: list[str] = field(default_factory=list)
    available: bool = True
    lifetime: float | None = None

    def options(self, call: ToolCall) -> tuple[str, ...]:
        return ("once",)

    def attach(self, session: Any) -> None: ...

    async def ask(self, question: Any) -> Answered:
        n = len(self.asked)
        self.asked.append(question.id)
        what = self.answers[n % len(self.answers)]
        if what == "never":
            await asyncio.get_running_loop().create_future()
        await asyncio.sleep(self.after[n % len(self.after)])
        return answer_of(what, question.call.arguments)


people = st.tuples(
    st.lists(says_, min_size=1, max_size=4), st.lists(st.sampled_from([0, 1, 2]), min_size=1, max_size=3)
)

# A life

QUIET = 4.0  # seconds; longer than any body and any person takes


async def store_of(events: Sequence[Event]) -> MemoryStore:
    store = MemoryStore()
    journal = await store.create("s")
    journal.write(events)
    await journal.close()
    return store


def state_of(events: Sequence[Event]) -> State:
    state = State()
    for event in events:
        state.apply(event)
    return state


async def live(
    events: Sequence[Event] | None,
    batch: Sequence[Wanted],
    who: People,
    *,
    reviewed: bool,
) -> list[Event]:
    """One life from this log on, or from nothing: what is on record when nothing goes on any more."""
    ran: list[str] = []
    script = calls(
        *[call(w.tool, name=f"n{i}", rule=w.rule, seconds=w.seconds, key=w.key) for i, w in enumerate(batch)]
    )
    model = ScriptedModel(*([script] if events is None else []), *[says("done")] * 9)
    store = MemoryStore() if events is None else await store_of(events)
    agent = Agent(model, tools=tools(ran), store=store, session=None if events is None else "s", pool=2)
    agent.approvals = who  # type: ignore[assignment]  # as good as the original
    agent.on.pre_execute(rule)
    if reviewed:
        agent.on.post_execute(lambda call, result: Accept(contexts=("reviewed",)))
    async with agent:
        if events is None:
            agent.followup("go")
        with contextlib.suppress(TimeoutError):
            while True:
                async with asyncio.timeout(QUIET):
                    await agent.session.changed(agent.session.head)
        assert agent.status in (Status.IDLE, Status.WAITING)
        assert_laws(agent.session)
        after = list(agent.session.events)
    assert after[: len(events or ())] == list(events or ())
    before = started(events or ())
    assert not before & set(ran), "a body that had started was started again"
    assert max(Counter(ran).values(), default=0) <= 1
    assert set(ran) <= started(after)
    return after


def names(events: Sequence[Event]) -> dict[int, str]:
    """The names of calls and nested calls, by seq."""
    found: dict[int, str] = {}
    for event in events:
        fact = event.fact
        if isinstance(fact, ToolCalled):
            found[event.seq] = f"n{fact.index}"
        elif isinstance(fact, SubcallStart):
            found[event.seq] = fact.arguments["name"]
    return found


def started(events: Sequence[Event]) -> set[str]:
    known = names(events)
    return {known[event.fact.call] for event in events if isinstance(event.fact, ToolStarted)}


def assert_ended_well(events: Sequence[Event]) -> None:
    """Everything is closed, and each call has one result, one question at most, and one start at most."""
    state = state_of(events)
    assert state.turn is None
    assert state.approvals == {}
    uses = [
        b.id
        for e in events
        if isinstance(e.fact, AssistantMessage)
        for b in e.fact.blocks
        if isinstance(b, ToolUse)
    ]
    assert [e.fact.call_id for e in events if isinstance(e.fact, ToolResulted)] == uses
    for kind in (ApprovalAsked, ToolStarted):
        counts = Counter(e.fact.call for e in events if isinstance(e.fact, kind))
        assert max(counts.values(), default=0) <= 1, kind.__name__
    answers = Counter(e.fact.approval_id for e in events if isinstance(e.fact, ApprovalDecided))
    assert max(answers.values(), default=0) <= 1
    results = {e.fact.call: e.fact for e in events if isinstance(e.fact, ToolResulted)}
    riding = [message.id for result in results.values() for message in result.contexts]
    told = [e.fact.id for e in events if isinstance(e.fact, UserMessage) and e.fact.call is not None]
    assert sorted(riding) == sorted(told), "a context is lost, or told twice"
    assert len(set(told)) == len(told)
    for asked in (e.fact for e in events if isinstance(e.fact, ApprovalAsked) and e.fact.call in results):
        said = [message.text for message in results[asked.call].contexts]
        assert [message.text for message in asked.contexts] == said[: len(asked.contexts)]
    for end in (e.fact for e in events if isinstance(e.fact, TurnEnd)):
        assert isinstance(end.reason, (Completed, Interrupted))


common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
YES = (["yes"], [0])


async def last_life(events: Sequence[Event], batch: Sequence[Wanted], *, reviewed: bool) -> list[Event]:
    """Everybody says yes: it ends. A step that did not wait was interrupted, and nothing is left to do."""
    waited = state_of(events).waiting
    after = await live(events, batch, People(*YES), reviewed=reviewed)
    assert_ended_well(after)
    if waited:
        assert [event.fact.reason for event in after if isinstance(event.fact, TurnEnd)][-1] == Completed()
    return after


async def crashed_at_every_line(
    batch: list[Wanted], who: tuple[list[str], list[int]], reviewed: bool, reviewed_later: bool
) -> None:
    events = await live(None, batch, People(*who), reviewed=reviewed)
    for at in cuts(events, 2):
        await last_life(events[:at], batch, reviewed=reviewed_later)


def cuts(events: list[Event], least: int) -> list[int]:
    """Where a crash may cut this log: not inside one append, such as a step's start with what it is told."""
    inside = [at for at, event in enumerate(events) if isinstance(event.fact, UserMessage)]
    return [at for at in range(least, len(events) + 1) if at not in inside]


async def crashed_again_and_again(
    batch: list[Wanted], crowd: list[tuple[list[str], list[int]]], reviewed: bool, data: st.DataObject
) -> None:
    events: list[Event] | None = None
    for who in crowd:
        after = await live(events, batch, People(*who), reviewed=reviewed)
        least = len(events) if events is not None else 2
        # A crash may cut the end of an open life, never what was there before it.
        events = after[: data.draw(st.sampled_from(cuts(after, least)), label="cut before line")]
        events = await answered_outside(events, data)
    assert events is not None
    await last_life(events, batch, reviewed=reviewed)


async def answered_outside(events: list[Event], data: st.DataObject) -> list[Event]:
    """Some of the questions that are open are answered while nobody drives."""
    for _ in range(data.draw(st.integers(0, 2), label="answers from outside")):
        state = state_of(events)
        if not state.waiting or state.step is None:
            break
        pending = [one for one in state.approvals.values() if one.call in state.step.waiting]
        if not pending:
            break
        approval = data.draw(st.sampled_from(pending), label="which")
        what = data.draw(st.sampled_from(["yes", "no", "edits"]), label="answer")
        store = await store_of(events)
        answered = answer_of(what, approval.asked.effective)
        await answer_pending("s", approval.id, answered, store=store, digest=approval.digest)
        session = await open_session("s", store=store, readonly=True)
        assert_laws(session)
        assert session.state.waiting
        events = list(session.events)
        assert isinstance(events[-1].fact, ApprovalDecided)
    return events


every_line = given(st.tuples(batches, people, st.booleans(), st.booleans()))
again_and_again = given(
    st.tuples(batches, st.lists(people, min_size=2, max_size=5), st.booleans()), st.data()
)


@settings(common, max_examples=8)
@every_line
def test_a_crash_at_any_line_and_then_a_life_in_which_everybody_says_yes(drawn: Any) -> None:
    run_virtual(crashed_at_every_line(*drawn))


@settings(common, max_examples=40)
@again_and_again
def test_several_crashes_with_answers_from_inside_and_outside_in_any_order(
    drawn: Any, data: st.DataObject
) -> None:
    run_virtual(crashed_again_and_again(*drawn, data))


@pytest.mark.slow
@settings(common, max_examples=80)
@every_line
def test_the_same_with_many_more_batches(drawn: Any) -> None:
    run_virtual(crashed_at_every_line(*drawn))


@pytest.mark.slow
@settings(common, max_examples=500)
@again_and_again
def test_the_same_with_many_more_courses(drawn: Any, data: st.DataObject) -> None:
    run_virtual(crashed_again_and_again(*drawn, data))
