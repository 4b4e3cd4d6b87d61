"""The handle of a session: opening and leaving it, waiting for it, and using it wrongly."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import (
    Agent,
    Budget,
    Cause,
    ConfigError,
    DuplicateTool,
    Event,
    Harness,
    InputDropped,
    MemoryStore,
    ModelFailure,
    Preset,
    Proposal,
    Reject,
    SessionBusy,
    SessionClosed,
    SessionStart,
    SQLiteStore,
    Status,
    Stopping,
    StoreFailed,
    ToolCall,
    ToolContext,
    ToolResult,
    UnknownModel,
    UsageError,
    WrongThread,
    tool,
)
from interlock.errors import UnknownSession
from interlock.intercept.signal import Signal
from interlock.log.facts import (
    AssistantChunk,
    AssistantMessage,
    Fact,
    InboxClaimed,
    InboxSpliced,
    ObserverFailed,
    PolicyChanged,
    RequestSent,
    StepEnd,
    ToolResulted,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.reasons import Aborted, Completed, Failed
from interlock.models.protocol import ModelRequest
from interlock.testing import Gate, ScriptedModel, assert_laws, calls, fails, gated, hangs, outline, says

from .story import lines, person, story

virtual = pytest.mark.virtual


def words(messages: Any) -> list[str]:
    return [message.text for message in messages]


async def seen(agent: Agent, kind: type[Fact], n: int = 1) -> None:
    """Wait until the log holds `n` facts of this kind."""
    while len(agent.session.facts(kind)) < n:
        await agent.session.changed(agent.session.head)


async def gather_into(shown: list[Event], events: AsyncIterator[Event]) -> None:
    async for event in events:
        shown.append(event)  # noqa: PERF401  # what came before an error is kept


@tool(effect="read")
async def look() -> str:
    return "seen"


@tool
async def write() -> str:
    return "written"


# Opening


@virtual
async def test_a_new_agent_has_an_idle_session_of_two_lines() -> None:
    async with Agent(ScriptedModel(), name="helper") as agent:
        assert outline(agent.session, "session/created", "session/opened") == [
            "session/created",
            "session/opened",
        ]
        assert agent.session.head == 1
        assert agent.status is Status.IDLE
        assert agent.session.state.created is not None
        assert agent.session.state.created.agent == "helper"
    assert agent.status is Status.CLOSED


@virtual
async def test_an_agent_that_is_not_open_says_how_to_open_it() -> None:
    agent = Agent(ScriptedModel())
    for use in (
        lambda: agent.session,
        lambda: agent.inbox,
        lambda: agent.followup("go"),
        lambda: agent.cancel(),
        lambda: agent.wake(),
        lambda: agent.threadsafe.steer("go"),
    ):
        with pytest.raises(UsageError, match="not open"):
            use()
    with pytest.raises(UsageError, match="not open"):
        await agent.idle()
    assert agent.status is Status.IDLE
    await agent.aclose()


@virtual
async def test_an_agent_is_for_one_opening() -> None:
    async with Agent(ScriptedModel()) as agent:
        with pytest.raises(UsageError, match="open already"):
            await agent.open()
    with pytest.raises(UsageError, match="open already"):
        await agent.open()


@virtual
async def test_a_session_that_does_not_exist_cannot_be_resumed() -> None:
    store = MemoryStore()
    agent = Agent(ScriptedModel(), store=store, session="nowhere")
    with pytest.raises(UnknownSession):
        await agent.open()
    await agent.aclose()


@virtual
async def test_one_session_has_one_driver() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        with pytest.raises(SessionBusy):
            await Agent(ScriptedModel(), store=store, session=agent.session.id).open()
    async with Agent(ScriptedModel(), store=store, session=agent.session.id) as again:
        assert again.session.state.life == 2


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"model": "nobody:knows"}, UnknownModel),
        ({"cwd": "/no/such/folder"}, ConfigError),
        ({"preset": "yolo"}, ConfigError),
        ({"tools": [look, look]}, DuplicateTool),
        ({"tools": [5]}, ConfigError),
        ({"settings": {"temperature": float("nan")}}, ValueError),
        ({"pool": 0}, ValueError),
    ],
)
def test_a_setting_that_cannot_work_is_refused_before_anything_is_opened(
    settings: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        Agent(**settings)


@virtual
async def test_a_preset_is_recorded_once_and_again_when_it_changes() -> None:
    """D-7b."""
    store = MemoryStore()
    session_id: str | None = None
    for preset in ("plan", "plan", Preset("mine", "ask", "my own"), None):
        async with Agent(ScriptedModel(), store=store, session=session_id, preset=preset) as agent:
            session_id = agent.session.id
    said = [(f.preset, f.approval) for f in agent.session.facts(PolicyChanged)]
    assert said == [("plan", "deny"), ("mine", "ask")]


@virtual
async def test_session_start_is_told_how_and_may_inject() -> None:
    store = MemoryStore()
    heard: list[str] = []

    def greet(start: SessionStart) -> None:
        heard.append(start.how)
        start.agent.inject(f"opened {start.how}")

    async def slow(start: SessionStart) -> None:
        await asyncio.sleep(1)
        heard.append("slow")

    session_id: str | None = None
    for _ in range(2):
        agent = Agent(ScriptedModel(), store=store, session=session_id)
        agent.on.session_start(greet)
        agent.on.session_start(slow)
        async with agent:
            session_id = agent.session.id
    assert heard == ["new", "slow", "resume", "slow"]
    assert words(w.message for w in agent.session.state.queues.next_step) == ["opened new", "opened resume"]


@virtual
async def test_a_session_start_that_fails_is_contained() -> None:
    """TL-14."""
    agent = Agent(ScriptedModel(says("ok")))
    agent.on.session_start(lambda start: 1 / 0)
    async with agent:
        assert (await agent.run("go")).ok
        (failed,) = agent.session.facts(ObserverFailed)
        assert failed.point == "agent/session-start"
        assert "ZeroDivisionError" in failed.error


# Receipts


@virtual
async def test_a_receipt_says_where_it_is_queued_and_when_it_is_on_disk() -> None:
    """D-22: acknowledged is after a barrier."""
    store = BrittleStore()
    async with Agent(ScriptedModel(says("ok")), store=store) as agent:
        receipt = agent.inject("later")
        assert (receipt.list, receipt.id) == ("next-step", "m2")
        before = store.barriers
        await receipt
        assert store.barriers == before + 1
        assert "m2" in repr(receipt)


@virtual
async def test_a_receipt_gives_the_turn_that_admitted_it_to_everybody_who_waits() -> None:
    async with Agent(ScriptedModel(says("a"), says("b"))) as agent:
        first, second = agent.followup("1"), agent.followup("2")
        waiting = [asyncio.ensure_future(receipt.turn()) for receipt in (first, second, first)]
        assert [(await one).text for one in waiting] == ["a", "b", "a"]
        assert (await first.turn()).turn == 1


@virtual
async def test_a_receipt_outlives_an_error_and_gives_the_turn_that_took_it_in_the_end() -> None:
    """D-3: returned is not the end."""
    async with Agent(ScriptedModel(says("at last"))) as agent:
        failing = [True]

        @agent.on.pre_step
        def check(proposal: Proposal) -> None:
            if failing:
                failing.pop()
                raise RuntimeError("once")

        receipt = agent.followup("go")
        await agent.idle()
        agent.wake()
        result = await receipt.turn()
        assert (result.text, result.turn) == ("at last", 2)


@virtual
async def test_several_messages_of_one_step_have_the_same_result() -> None:
    async with Agent(ScriptedModel(says("ok"))) as agent:
        receipts = [agent.inject("a"), agent.steer("b"), agent.followup("c")]
        results = [await receipt.turn() for receipt in receipts]
        assert results[0] is results[1] is results[2]


@virtual
async def test_who_waits_for_a_message_of_an_agent_that_is_left_is_told() -> None:
    """Nobody waits for ever: the message is in the log, and nothing here will run it."""
    async with Agent(ScriptedModel(hangs())) as agent:
        agent.followup("a")
        parked = asyncio.ensure_future(agent.followup("b").turn())
        await seen(agent, RequestSent)
        idle = asyncio.ensure_future(agent.inject("c").turn())
    for waiting in (parked, idle):
        with pytest.raises(SessionClosed):
            await waiting


# Run


@virtual
async def test_run_gives_the_result_of_the_turn() -> None:
    async with Agent(ScriptedModel(calls("look"), says("done", usage=(3, 1))), tools=[look]) as agent:
        result = await agent.run("go")
        assert (result.text, result.ok, result.turn, result.steps) == ("done", True, 1, 2)
        assert result.session is agent.session
        assert [message.role for message in result.messages] == ["user", "assistant", "tool", "assistant"]
        assert (result.usage.input, result.usage.output) == (3, 1)


@virtual
async def test_run_is_on_disk_when_it_returns() -> None:
    """D-22."""
    store = BrittleStore()
    async with Agent(ScriptedModel(says("ok")), store=store) as agent:
        last: list[int] = []
        store.on_barrier = lambda: last.append(agent.session.head)
        await agent.run("go")
        assert last[-1] == agent.session.head


@virtual
async def test_nothing_is_raised_for_a_turn_that_ended_otherwise() -> None:
    async with Agent(ScriptedModel(fails("AUTH"))) as agent:
        result = await agent.run("go")
        assert (result.ok, type(result.reason), result.text) == (False, Failed, "")


@virtual
async def test_run_takes_its_own_budget() -> None:
    """It counts for the turn of this message only."""
    model = ScriptedModel(calls("look"), calls("look"), says("ok"))
    async with Agent(model, tools=[look]) as agent:
        assert (await agent.run("go", budget=Budget(steps=1))).reason != Completed()
        assert (await agent.run("go")).reason == Completed()


@virtual
async def test_two_runs_at_once_have_a_turn_each() -> None:
    async with Agent(ScriptedModel(says("a"), says("b"))) as agent:
        results = await asyncio.gather(agent.run("1"), agent.run("2"))
        assert [(result.turn, result.text) for result in results] == [(1, "a"), (2, "b")]


@virtual
async def test_run_raises_when_somebody_takes_its_message_away() -> None:
    gate = Gate()
    async with Agent(ScriptedModel(gated(gate, says("ok")))) as agent:
        agent.followup("first")
        await gate.reached
        running = asyncio.ensure_future(agent.run(person("mine")))
        await asyncio.sleep(0)
        agent.inbox.remove("mine")
        with pytest.raises(InputDropped) as caught:
            await running
        assert caught.value.message_id == "mine"
        gate.open()


@virtual
async def test_run_on_an_agent_that_is_being_left_ends() -> None:
    """CA-10, CA-13: its turn was stopped, or no turn took its message."""
    async with Agent(ScriptedModel(hangs())) as agent:
        started = asyncio.ensure_future(agent.run("a"))
        await seen(agent, RequestSent)
        queued = asyncio.ensure_future(agent.run("b"))
        await asyncio.sleep(0)
    for running in (started, queued):
        assert (await running).reason == Aborted(Cause("disposed"))
    async with Agent(ScriptedModel()) as agent:
        never = asyncio.ensure_future(agent.run("a"))
        await asyncio.sleep(0)
    with pytest.raises(InputDropped):
        await never
    assert len(agent.session.state.queues) == 0


# Stream


@virtual
async def test_stream_shows_every_line_of_its_turn_and_ends() -> None:
    async with Agent(ScriptedModel(calls("look"), says("ok")), tools=[look]) as agent:
        async with agent.stream("go") as events:
            shown = [event async for event in events]
        assert shown == list(agent.session.events[2:])
        assert [shown[0].type, shown[-1].type] == ["agent/inbox/spliced", "turn/end"]


@virtual
async def test_stream_ends_with_its_own_turn() -> None:
    """Not with the turn before, nor the one after."""
    gate = Gate()
    async with Agent(ScriptedModel(gated(gate, says("a")), says("b"), says("c"))) as agent:
        agent.followup("1")
        await gate.reached
        async with agent.stream("2") as events:
            agent.followup("3")
            gate.open()
            ends = [e.fact.turn async for e in events if isinstance(e.fact, TurnEnd)]
        assert ends == [1, 2]


@virtual
async def test_leaving_a_stream_early_does_not_stop_the_turn() -> None:
    async with Agent(ScriptedModel(says("one two three"))) as agent:
        async with agent.stream("go") as events:
            async for event in events:
                if event.type == "assistant/chunk":
                    break
        await agent.idle()
        assert outline(agent.session, "turn/end") == ["turn/end completed"]


@virtual
async def test_a_slow_reader_delays_nobody_and_misses_nothing() -> None:
    async with Agent(ScriptedModel(says("a b c d e f"))) as agent:
        shown: list[Event] = []
        async with agent.stream("go") as events:
            async for event in events:
                if not shown:
                    await agent.idle()
                shown.append(event)
        assert shown == list(agent.session.events[2:])


@virtual
async def test_stream_ends_when_its_message_is_parked_or_dropped() -> None:
    """The same as `run`: it does not wait for a turn that does not come."""
    gate = Gate()
    async with Agent(ScriptedModel(gated(gate, fails("AUTH")))) as agent:
        agent.followup("a")
        await gate.reached
        async with agent.stream("b") as events:
            gate.open()
            kinds = [event.type async for event in events]
        assert "turn/end" in kinds
        assert len(agent.inbox) == 0
        agent.on.pre_step(lambda p: Reject("no"))
        async with agent.stream("c") as events:
            assert [event.type async for event in events][-1] == "turn/end"


@virtual
async def test_stream_ends_when_the_agent_is_left() -> None:
    async with Agent(ScriptedModel(hangs())) as agent:
        agent.followup("a")
        shown: list[Event] = []

        async def read() -> None:
            async with agent.stream("b") as events:
                shown.extend([event async for event in events])

        reader = asyncio.ensure_future(read())
        await seen(agent, RequestSent)
    await reader
    assert any(isinstance(event.fact, TurnEnd) for event in shown)


# Idle and status


@virtual
async def test_idle_waits_for_replacement_work_and_for_the_disk() -> None:
    """TL-15: an observer of the end of a turn may send more."""
    store = BrittleStore()
    async with Agent(ScriptedModel(says("1"), says("2")), store=store) as agent:

        @agent.on.observe(TurnEnd)
        def more(event: Event) -> None:
            if isinstance(event.fact, TurnEnd) and event.fact.turn == 1:
                agent.followup("more")

        last: list[int] = []
        store.on_barrier = lambda: last.append(agent.session.head)
        agent.followup("go")
        await agent.idle()
        assert len(agent.session.facts(TurnEnd)) == 2
        assert last[-1] == agent.session.head


@virtual
async def test_work_that_an_observer_of_idle_sends_is_done() -> None:
    async with Agent(ScriptedModel(says("1"), says("2"))) as agent:
        sent: list[Status] = []

        @agent.on.status
        def more(status: Status) -> None:
            sent.append(status)
            if sent.count(Status.IDLE) == 1 and status is Status.IDLE:
                agent.followup("more")

        agent.followup("go")
        await agent.idle()
        assert sent == [Status.RUNNING, Status.IDLE, Status.RUNNING, Status.IDLE]
        assert len(agent.session.facts(TurnEnd)) == 2


@virtual
async def test_idle_of_an_idle_agent_returns_at_once() -> None:
    async with Agent(ScriptedModel()) as agent:
        await agent.idle()


# Leaving


@virtual
async def test_leaving_twice_and_at_once_is_harmless() -> None:
    async with Agent(ScriptedModel(hangs())) as agent:
        agent.followup("go")
        await seen(agent, RequestSent)
        await asyncio.gather(agent.aclose(), agent.aclose())
        await agent.aclose()
    assert outline(agent.session, "turn/end") == ["turn/end aborted (disposed)"]


@virtual
async def test_leaving_waits_for_what_runs() -> None:
    """Law 9, CA-10."""
    ended: list[str] = []

    @tool
    async def slow() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
            ended.append("cleaned up")
            raise
        return "never"

    async with Agent(ScriptedModel(calls("slow")), tools=[slow]) as agent:
        agent.followup("go")
        await seen(agent, ToolStarted)
        await asyncio.sleep(1)
    assert ended == ["cleaned up"]
    assert_laws(agent.session)


@virtual
async def test_a_closed_agent_refuses_its_verbs_and_can_still_be_read() -> None:
    async with Agent(ScriptedModel(says("ok"))) as agent:
        await agent.run("go")
        kept = agent.inject("kept")
    for verb in (agent.followup, agent.steer, agent.inject):
        with pytest.raises(SessionClosed):
            verb("late")
    for change in (
        agent.wake,
        agent.inbox.clear,
        lambda: agent.inbox.remove(kept.id),
        lambda: agent.inbox.replace(kept.id, "x"),
    ):
        with pytest.raises(SessionClosed):
            change()
    with pytest.raises(SessionClosed):
        await agent.run("late")
    await agent.idle()
    assert words(agent.inbox.next_step) == ["kept"]
    assert outline(agent.session)[-1] == "turn/end completed"
    assert_laws(agent.session)


@virtual
async def test_an_exception_in_the_block_passes_and_everything_is_closed() -> None:
    with pytest.raises(KeyError):
        async with Agent(ScriptedModel(hangs())) as agent:
            agent.followup("go")
            await seen(agent, RequestSent)
            raise KeyError("mine")
    assert agent.status is Status.CLOSED
    assert not agent.session.open


@virtual
async def test_cancelling_who_leaves_does_not_leave_half_of_it() -> None:
    """It can be left again, and then it is closed."""

    @tool
    async def slow() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(5)
            raise
        return "never"

    agent = Agent(ScriptedModel(calls("slow")), tools=[slow])
    await agent.open()
    agent.followup("go")
    await seen(agent, ToolStarted)
    await asyncio.sleep(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await agent.aclose()
    await agent.aclose()
    assert agent.status is Status.CLOSED
    assert not agent.session.open


def test_a_loop_that_ends_under_an_agent_closes_its_turn() -> None:
    """Law 5: who forgets to leave it, or presses ctrl-c, finds a closed log."""

    async def main() -> Agent:
        agent = Agent(ScriptedModel(hangs("so far")))
        await agent.open()
        agent.followup("go")
        await seen(agent, AssistantChunk)
        return agent

    agent = asyncio.run(main())  # cancels what still runs
    assert story(agent.session).endswith('AM!"so far" SE 1.1 aborted TE 1 aborted{disposed}')
    assert agent.status is Status.IDLE
    assert_laws(agent.session)


@virtual
async def test_leaving_does_not_close_a_model_that_was_handed_in() -> None:
    class Adapter(ScriptedModel):
        closed = 0

        async def aclose(self) -> None:
            self.closed += 1

    given = Adapter()
    async with Agent(given):
        pass
    assert given.closed == 0


@virtual
async def test_registrations_end_with_their_layer() -> None:
    """Law 9: harness, preset, agent; outer to inner."""
    heard: list[str] = []

    def listener(name: str) -> Callable[[Proposal], None]:
        return lambda proposal: heard.append(name)

    async with Harness(model=ScriptedModel(*[says("ok")] * 4)) as harness:
        harness.on.pre_step(listener("harness"))
        with harness.preset("careful") as careful:
            careful.on.pre_step(listener("preset"))
            async with careful.agent() as agent:
                agent.on.pre_step(listener("agent"))
                await agent.run("a")
                assert heard == ["harness", "preset", "agent"]
        async with harness.agent() as other:
            await other.run("b")
        assert heard[3:] == ["harness"]


@virtual
async def test_a_harness_that_is_left_closes_its_agents() -> None:
    async with Harness(model=ScriptedModel(hangs(), hangs())) as harness:
        agents = [harness.agent() for _ in range(2)]
        for agent in agents:
            await agent.open()
            agent.followup("go")
            await seen(agent, RequestSent)
    assert [agent.status for agent in agents] == [Status.CLOSED] * 2
    for agent in agents:
        assert_laws(agent.session)


# Threads


async def in_thread(fn: Callable[[], Any]) -> Any:
    """What `fn` returns or raises, in a thread of its own."""
    outcome: list[Any] = []
    loop, done = asyncio.get_running_loop(), asyncio.Event()

    def body() -> None:
        try:
            outcome.append(fn())
        except Exception as error:  # noqa: BLE001  # looked at by the test
            outcome.append(error)
        loop.call_soon_threadsafe(done.set)

    thread = threading.Thread(target=body)
    thread.start()
    await done.wait()
    thread.join()
    return outcome[0]


async def test_a_verb_from_another_thread_is_refused_and_names_the_way() -> None:
    async with Agent(ScriptedModel()) as agent:
        kept = agent.inject("kept")
        before = agent.session.head
        for use in (
            lambda: agent.followup("go"),
            lambda: agent.steer("go"),
            lambda: agent.inject("go"),
            lambda: agent.send("go", to="turn", wake=False),
            lambda: agent.cancel(),
            lambda: agent.wake(),
            lambda: agent.inbox.clear(),
            lambda: agent.inbox.remove(kept.id),
            lambda: agent.inbox.replace(kept.id, "x"),
            lambda: agent.inbox.splice("next-step", 0, 1),
            lambda: agent.session.append(TurnStart(1)),
        ):
            error = await in_thread(use)
            assert isinstance(error, WrongThread)
            assert "threadsafe" in str(error)
        assert agent.session.head == before


async def test_another_thread_has_the_same_verbs_by_threadsafe() -> None:
    async with Agent(ScriptedModel(hangs(), says("ok"))) as agent:
        receipt = await in_thread(lambda: agent.threadsafe.followup("a").result())
        await seen(agent, RequestSent)
        await in_thread(lambda: agent.threadsafe.cancel("parent", keep_inbox=True).result())
        assert (await receipt.turn()).reason == Aborted(Cause("parent"))
        await in_thread(lambda: agent.threadsafe.inject("i").result())
        await in_thread(lambda: agent.threadsafe.send("t", to="turn", wake=False).result())
        await in_thread(lambda: agent.threadsafe.wake().result())
        await agent.idle()
        assert story(agent.session).split("TE 1 ")[1] == lines("""
            aborted{parent} ~+S[i] ~+T[t] TS 2 CL 2.1 S[i] T[t] SS 2.1 UM i UM t AM"ok"
            SE 2.1 completed TE 2 completed
        """)
        steered = await in_thread(lambda: agent.threadsafe.steer(5).result())  # type: ignore[arg-type]
        assert "message" in str(steered)
        assert isinstance(steered, UsageError)


async def test_a_call_from_another_thread_that_was_taken_back_does_nothing() -> None:
    async with Agent(ScriptedModel()) as agent:
        future = agent.threadsafe.followup("go")
        assert future.cancel()
        await asyncio.sleep(0)
        await agent.idle()
        assert len(agent.inbox) == 0


async def test_a_sync_tool_reaches_its_agent_from_its_thread() -> None:
    @tool(effect="read")
    def ask_for_more(ctx: ToolContext) -> str:
        with pytest.raises(WrongThread):
            ctx.agent.steer("directly")
        ctx.agent.threadsafe.steer("through the loop").result(timeout=10)
        return "asked"

    async with Agent(ScriptedModel(calls("ask_for_more"), says("ok")), tools=[ask_for_more]) as agent:
        result = await agent.run("go")
        assert "through the loop" in words(result.messages)
        assert_laws(agent.session)


def test_threadsafe_after_the_loop_has_gone_says_that_the_agent_is_closed() -> None:
    async def main() -> Agent:
        async with Agent(ScriptedModel()) as agent:
            return agent

    agent = asyncio.run(main())
    with pytest.raises(SessionClosed):
        agent.threadsafe.followup("go")


# A store that fails


FACTS_OF_A_TURN = [InboxClaimed, RequestSent, AssistantMessage, ToolStarted, ToolResulted, StepEnd, TurnEnd]


@virtual
@pytest.mark.parametrize("at", FACTS_OF_A_TURN, ids=lambda fact: fact.type)
async def test_a_write_that_fails_stops_everything_and_keeps_the_queue(at: type[Fact]) -> None:
    """D-22: status failed, nothing further starts, and who waits is told what to do."""
    store = BrittleStore()
    model = ScriptedModel(calls("write"), says("ok"))
    agent = Agent(model, tools=[write], store=store)
    await agent.open()
    store.break_at_write(at)
    running = asyncio.ensure_future(agent.run("a"))
    await asyncio.sleep(0)
    queued = agent.followup("b")
    with pytest.raises(StoreFailed, match="reopen") as caught:
        await running
    assert caught.value.problem == "the disk is full"
    with pytest.raises(StoreFailed):
        await queued.turn()
    with pytest.raises(StoreFailed):
        await agent.idle()
    assert agent.status is Status.FAILED
    assert "b" in words(agent.inbox.next_turn)
    for use in (lambda: agent.followup("c"), lambda: agent.inbox.clear(), agent.wake, lambda: agent.cancel()):
        with pytest.raises(StoreFailed):
            use()
    with pytest.raises(StoreFailed):
        await agent.aclose()
    assert agent.status is Status.CLOSED

    store.mend()
    async with Agent(ScriptedModel(*[says("ok")] * 3), store=store, session=agent.session.id) as again:
        assert words(again.inbox.next_turn)[-1] == "b"
        again.wake()
        await again.idle()
        assert len(again.inbox) == 0
        assert_laws(again.session)


@virtual
@pytest.mark.parametrize("number", range(1, 5))
async def test_a_barrier_that_fails_lets_nothing_happen_after_it(number: int) -> None:
    """D-22, law 6: no request and no effect without its line on disk."""
    effects: list[str] = []

    @tool
    async def change() -> str:
        effects.append("changed")
        return "changed"

    store = BrittleStore()
    model = ScriptedModel(calls("change"), says("ok"))
    agent = Agent(model, tools=[change], store=store)
    await agent.open()
    store.barriers = 0
    store.break_at_barrier(number)
    with pytest.raises(StoreFailed):
        await agent.run("a")
    requests, changed = len(model.requests), len(effects)
    assert (requests, changed) == {1: (0, 0), 2: (1, 0), 3: (1, 1), 4: (2, 1)}[number]
    with pytest.raises(StoreFailed):
        await agent.aclose()


@virtual
async def test_a_follower_and_a_stream_of_a_failed_store_end_with_its_error() -> None:
    """D-22: nobody waits for lines that cannot come."""
    store = BrittleStore()
    agent = Agent(ScriptedModel(says("ok")), store=store)
    await agent.open()

    async def follow() -> list[str]:
        shown: list[Event] = []
        with pytest.raises(StoreFailed):
            await gather_into(shown, agent.session.follow())
        return [event.type for event in shown]

    async def stream() -> list[str]:
        shown: list[Event] = []
        with pytest.raises(StoreFailed):
            async with agent.stream("go") as events:
                await gather_into(shown, events)
        return [event.type for event in shown]

    store.break_at_write(TurnEnd)
    followed, streamed = await asyncio.gather(follow(), stream())
    assert followed[2:] == streamed
    assert "assistant/message" in streamed
    with pytest.raises(StoreFailed):
        await agent.aclose()


@virtual
async def test_a_store_that_cannot_open_opens_no_agent() -> None:
    store = BrittleStore()
    store.break_at_write(1)
    with pytest.raises(StoreFailed):
        async with Agent(ScriptedModel(), store=store):
            raise AssertionError("it was not opened")


@virtual
async def test_a_session_that_is_closed_under_its_agent_hangs_nobody() -> None:
    """A bug of the caller is told to whoever waits."""
    gate = Gate()
    async with Agent(ScriptedModel(gated(gate, says("ok")))) as agent:
        running = asyncio.ensure_future(agent.run("go"))
        await gate.reached
        await agent.session.close()
        gate.open()
        with pytest.raises(SessionClosed):
            await running
        assert agent.status is Status.FAILED


async def test_on_a_real_disk_the_agent_keeps_its_word(tmp_path: Path) -> None:
    """The same over SQLite: run, leave, resume."""
    async with SQLiteStore(tmp_path / "log.db") as store:
        async with Agent(ScriptedModel(calls("write"), says("1")), tools=[write], store=store) as agent:
            assert (await agent.run("a")).text == "1"
            agent.send("b", to="turn", wake=False)
            session_id = agent.session.id
            assert_laws(agent.session)
        async with Agent(ScriptedModel(says("2")), store=store, session=session_id) as agent:
            agent.wake()
            await agent.idle()
            assert [fact.id for fact in agent.session.facts(UserMessage)]
            assert words(agent.session.history.view())[-2:] == ["b", "2"]
            assert_laws(agent.session)


# Odd callers


@virtual
async def test_a_tool_that_leaves_its_agent_is_cut_and_does_not_wait_for_itself() -> None:
    """CA-10: the stop that it asked for reaches it."""

    @tool(effect="read")
    async def leave(ctx: ToolContext) -> str:
        await ctx.agent.aclose()
        return "never"

    agent = Agent(ScriptedModel(calls("leave")), tools=[leave])
    await agent.open()
    result = await agent.run("go")
    assert result.reason == Aborted(Cause("disposed"))
    await agent.aclose()
    assert not agent.session.open


@virtual
async def test_an_adapter_that_is_stopped_by_its_own_request_is_told() -> None:
    class Suicidal(ScriptedModel):
        async def stream(self, request: ModelRequest, signal: Signal) -> Any:
            agent.cancel()
            await asyncio.sleep(100)
            yield

    agent = Agent(Suicidal())
    async with agent:
        result = await agent.run("go")
        assert result.reason == Aborted(Cause("user"))
        assert asyncio.get_running_loop().time() == 0


@virtual
async def test_listeners_that_are_registered_while_a_turn_runs_are_heard_from_then_on() -> None:
    heard: list[int] = []
    async with Agent(ScriptedModel(calls("look"), says("ok")), tools=[look]) as agent:

        @agent.on.pre_step
        def first(proposal: Proposal) -> None:
            if proposal.step == 1:
                agent.on.pre_step(lambda p: heard.append(p.step))
                agent.on.turn_stopping(lambda stopping: heard.append(100 + stopping.step))

        await agent.run("go")
    assert heard == [2, 102]


@virtual
async def test_a_model_failure_of_any_code_is_a_reason_and_no_exception() -> None:
    class Failing(ScriptedModel):
        def stream(self, request: ModelRequest, signal: Signal) -> Any:
            raise ModelFailure("not even a stream", code="BAD_REQUEST")

    async with Agent(Failing()) as agent:
        result = await agent.run("go")
        assert result.reason == Failed("BAD_REQUEST", "not even a stream")
        assert_laws(agent.session)


@virtual
async def test_every_verb_is_heard_with_the_listener_as_its_source() -> None:
    """D-15: inside a listener a verb is never a person's, unless it says so."""
    sources: list[str] = []
    async with Agent(ScriptedModel(calls("look"), *[says("ok")] * 3), tools=[look]) as agent:
        agent.on.inbox(lambda notice: sources.append(notice.message.source.kind))

        @agent.on.pre_execute
        async def async_listener(call: ToolCall) -> None:
            agent.steer("a")

        @agent.on.post_execute
        def sync_listener(call: ToolCall, result: ToolResult) -> None:
            agent.steer("b")

        @agent.on.turn_stopping
        def stopping(stopping: Stopping) -> None:
            if stopping.step == 2:
                agent.followup("c")

        await agent.run("go")
        await agent.idle()
        inserted = [fact.inserted[0].source.kind for fact in agent.session.facts(InboxSpliced)]
    assert inserted == ["person", "plugin", "plugin", "plugin"]
