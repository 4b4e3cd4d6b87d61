"""The eight worked examples, line by line: what a log looks like, from hello world to a crash."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import (
    Accept,
    Agent,
    ApprovalRequest,
    Approved,
    Ask,
    Budget,
    Continue,
    Deny,
    HookResult,
    MemoryStore,
    Message,
    Reject,
    Source,
    Status,
    ToolCall,
    ToolContext,
    tool,
)
from interlock.log.facts import ToolSettled
from interlock.log.session import Session
from interlock.testing import Gate, ScriptedModel, assert_laws, call, calls, gated, outline, says, shorthand

pytestmark = pytest.mark.virtual


def tokens(text: str) -> list[str]:
    """The tokens of a story as it is written: `a · b · c` over several lines, chunk runs as CH*."""
    return [token.strip() for token in re.split(r"·|\n", text) if token.strip()]


def log(session: Session, names: dict[str, str] | None = None, *, after: str = "SO 1 new") -> list[str]:
    """The session's tokens after the given one, with runs of chunks as CH*."""
    made: list[str] = []
    for token in shorthand(session, names):
        if token == "CH":
            if made and made[-1] == "CH*":
                continue
            token = "CH*"
        made.append(token)
    return made[made.index(after) + 1 :]


def from_first(made: Sequence[str], token: str) -> list[str]:
    return list(made[list(made).index(token) :])


def person(text: str, message_id: str) -> Message:
    return Message.user(text, id=message_id)


@tool(effect="read")
async def look() -> str:
    return "seen"


async def test_story_1_hello_world_with_one_read_tool() -> None:
    async with Agent(ScriptedModel(calls("look"), says("…")), tools=[look]) as agent:
        await agent.run(person("hello", "m1"))
        assert log(agent.session) == tokens("""
            +T[m1] · TS 1 · CL 1.1 T[m1] · SS 1.1 · UM m1 · RH initial · RQ 1 · CH* · AM[c1]
            TC c1 · ST c1 · TR c1 ok · SE 1.1 tools
            SS 1.2 · RQ 1 · CH* · AM"…" · SE 1.2 completed · TE 1 completed
        """)
        assert_laws(agent.session)


async def test_story_1_under_the_preset_ask_nobody_there_means_no() -> None:
    @tool
    async def change() -> str:
        raise AssertionError("nobody approved it")

    async with Agent(ScriptedModel(calls("change"), says("…")), tools=[change], preset="ask") as agent:
        await agent.run("hello")
        assert from_first(log(agent.session), "TC c1")[:5] == tokens("""
            TC c1 · AA c1 · AD c1 unavailable · TR c1 ERR[APPROVAL_UNAVAILABLE] · SE 1.1 tools
        """)
        assert_laws(agent.session)


class Ends:
    """Bodies that end when the story says so."""

    def __init__(self, *names: str) -> None:
        self._may_end = {name: asyncio.Event() for name in names}
        self._ended: dict[str, asyncio.Event] = {name: asyncio.Event() for name in names}

    async def wait(self, name: str) -> None:
        await self._may_end[name].wait()

    def end(self, name: str) -> None:
        self._may_end[name].set()


async def until(session: Session, *seen: str) -> None:
    """Wait until the log holds these tokens."""
    at = -1
    while not set(seen) <= set(shorthand(session)):
        at = session.head
        await session.changed(at)


async def test_story_2_parallel_reads_commit_in_order_and_contexts_come_after_them() -> None:
    ends = Ends("c1", "c2", "c3")

    @tool(effect="read", concurrency="parallel")
    async def fetch(name: str) -> str:
        await ends.wait(name)
        return name

    gate = Gate()
    model = ScriptedModel(
        gated(
            gate, calls(call("fetch", name="c1"), call("fetch", name="c2"), call("fetch", name="c3")), after=2
        ),
        says("…"),
    )
    async with Agent(model, tools=[fetch], pool=2) as agent:

        @agent.on.post_execute
        def comment(call: ToolCall, result: object) -> Accept:
            return Accept(contexts=[f"p{call.id[1]}"])

        receipt = agent.followup(person("go", "go"))
        await gate.reached
        agent.steer(person("steer", "s1"))
        gate.open()
        await until(agent.session, "TC c3")
        agent.inject(person("inject", "i1"))
        ends.end("c2")
        await until(agent.session, "ST c3")
        ends.end("c3")
        await until(agent.session, "SD c3 ok")
        ends.end("c1")
        await receipt.turn()
        names = {m.id: m.text for e in agent.session.events for m in getattr(e.fact, "contexts", ())}
        made = log(agent.session, names)
        assert made == tokens("""
            +T[go] · TS 1 · CL 1.1 T[go] · SS 1.1 · UM go · RH initial · RQ 1 · CH* · +S[s1] · CH* · AM[c1,c2,c3]
            TC c1 · ST c1 · TC c2 · ST c2 · TC c3
            ~+S[i1] · SD c2 ok · ST c3 · SD c3 ok
            TR c1 ok(+p1) · TR c2 ok(+p2) · TR c3 ok(+p3) · SE 1.1 tools
            CL 1.2 S[s1,i1] · SS 1.2 · UM s1 · UM i1 · UM p1^c1 · UM p2^c2 · UM p3^c3
            RQ 1 · CH* · AM"…" · SE 1.2 completed · TE 1 completed
        """)
        answer = next(e for e in agent.session.events if e.type == "assistant/message")
        assert len(answer.causes) == 2, "two ranges of chunks: the splice between them is no cause"
        assert all(settled.review for settled in agent.session.facts(ToolSettled))  # type: ignore[attr-defined]
        assert_laws(agent.session)


async def test_story_2_input_and_contexts_are_ordered_by_arrival() -> None:
    """D-1: had i1 come between the results of c1 and c2, the batch is s1, p1, i1, p2."""

    @tool(effect="read", concurrency="parallel")
    async def fetch() -> str:
        return "x"

    async with Agent(ScriptedModel(calls(call("fetch"), call("fetch")), says("…")), tools=[fetch]) as agent:
        agent.on.post_execute(lambda call, result: Accept(contexts=[f"p{call.id[1]}"]))
        agent.on.result(
            lambda call, result: agent.inject(person("i", "i1")) and None if call.id == "c1" else None
        )
        agent.followup(person("go", "go"))
        agent.inject(person("s", "s0"))
        await agent.idle()
        names = {m.id: m.text for e in agent.session.events for m in getattr(e.fact, "contexts", ())}
        made = log(agent.session, names)
        entered = made[made.index("SS 1.2") + 1 : made.index("SS 1.2") + 4]
        assert entered == ["UM p1^c1", "UM i1", "UM p2^c2"]
        assert_laws(agent.session)


async def test_story_2_if_the_next_step_is_rejected_the_contexts_become_history_before_the_turn_ends() -> (
    None
):
    @tool(effect="read", concurrency="parallel")
    async def fetch() -> str:
        return "x"

    async with Agent(ScriptedModel(calls(call("fetch"), call("fetch"))), tools=[fetch]) as agent:
        agent.on.post_execute(lambda call, result: Accept(contexts=[f"p{call.id[1]}"]))
        agent.on.pre_step(lambda proposal: Reject("enough") if proposal.step == 2 else None)
        agent.on.observe()(
            lambda e: (
                agent.inject(person("s", "s1")) and None
                if e.type == "tool/call" and e.fact.index == 0
                else None
            )
        )
        await agent.run(person("go", "go"))
        names = {m.id: m.text for e in agent.session.events for m in getattr(e.fact, "contexts", ())}
        assert from_first(log(agent.session, names), "SE 1.1 tools") == tokens("""
            SE 1.1 tools · CL 1.2 S[s1] · DM pre-step reject · DROP[s1] rejected · UM p1^c1 · UM p2^c2 · TE 1 blocked
        """)
        assert_laws(agent.session)


async def test_story_3_rewritten_asked_approved_and_still_denied_by_a_guard() -> None:
    ran: list[str] = []

    @tool
    async def write(path: str) -> str:
        ran.append(path)
        return "written"

    approved = asyncio.Event()

    async def approver(request: object) -> Approved:
        approved.set()
        return Approved()

    async with Agent(
        ScriptedModel(calls("write", path="a"), says("…")), tools=[write], approver=approver
    ) as agent:
        posts: list[str] = []
        agent.hooks.register(
            "PreToolUse",
            lambda c: HookResult(updated_input=c.call.with_arguments(path="b"), additional_context="note"),
        )
        agent.hooks.register("PostToolUse", lambda c: posts.append("hook"))
        agent.on.post_execute(lambda call, result: posts.append("native"))
        agent.on.pre_execute(lambda call: Ask("it writes"))
        agent.guard(
            lambda call: Deny("never there") if approved.is_set() and call.arguments["path"] == "b" else None
        )
        await agent.run("go")
        names = {m.id: m.text for e in agent.session.events for m in getattr(e.fact, "contexts", ())}
        assert from_first(log(agent.session, names), "TC c1")[:10] == tokens("""
            TC c1 · HI · HR · TP c1 · TD c1 ask policy · AA c1 · AD c1 allowed-once · TD c1 deny guard
            TR c1 ERR[GUARD_DENIED](+note) · SE 1.1 tools
        """)
        assert ran == []
        assert posts == ["native"]
        facts = {e.type: e.fact for e in agent.session.events}
        assert facts["approval/asked"].effective == facts["tool/prepared"].effective == {"path": "b"}
        assert facts["tool/call"].arguments == '{"path": "a"}', "the model's own text is kept"
        assert_laws(agent.session)


async def test_story_4_a_stop_ends_everything_open_in_the_model_s_order() -> None:
    ends = Ends("c1", "c2")
    both = asyncio.Event()

    @tool(effect="read", concurrency="parallel")
    async def fetch(name: str, ctx: ToolContext) -> str:
        if name == "c2":
            both.set()
        try:
            await ends.wait(name)
        except asyncio.CancelledError:
            if name == "c1":
                ctx.defer("d1")
                await asyncio.sleep(1)
            raise
        return name

    @tool(effect="read", concurrency="parallel")
    async def ask_first() -> str:
        raise AssertionError("nobody approved it")

    @tool
    async def alone() -> str:
        raise AssertionError("the turn was stopped")

    async def approver(request: object) -> Approved:
        await asyncio.Event().wait()
        raise AssertionError("the question is cancelled")

    model = ScriptedModel(
        calls(
            call("fetch", name="c1"),
            call("fetch", name="c2"),
            call("ask_first"),
            call("fetch", name="c4"),
            call("alone"),
        )
    )
    async with Agent(model, tools=[fetch, ask_first, alone], pool=2, approver=approver) as agent:
        agent.on.pre_execute(lambda call: Ask("sure?") if call.name == "ask_first" else None)
        observed: list[tuple[str, bool]] = []
        agent.on.result(lambda call, result: observed.append((call.id if call else "none", result.ran)))
        agent.followup("go")
        await until(agent.session, "TC c4", "AA c3")
        await both.wait()
        agent.steer(person("s", "s1"))
        agent.followup(person("f", "f2"))
        agent.cancel("user")
        await agent.idle()
        names = {m.id: m.text for e in agent.session.events for m in getattr(e.fact, "contexts", ())}
        assert from_first(log(agent.session, names), "TC c1") == tokens("""
            TC c1 · ST c1 · TC c2 · ST c2 · TC c3 · TD c3 ask policy · AA c3 · TC c4 · +S[s1] · +T[f2]
            CR user · xS[s1] · xT[f2] · AD c3 cancelled
            SD c2 ERR[ABORTED]
            TR c1 ERR[ABORTED](+d1) · TR c2 ERR[ABORTED] · TR c3 ERR[ABORTED_BEFORE_DISPATCH]
            TR c4 ERR[ABORTED_BEFORE_DISPATCH] · TC' c5 · TR c5 ERR[ABORTED_BEFORE_DISPATCH]
            UM d1^c1 · SE 1.1 aborted · TE 1 aborted{user}
        """)
        assert observed == [("c1", True), ("c2", True), ("c3", False), ("c4", False), ("none", False)]
        assert_laws(agent.session)


async def test_story_4_an_outcome_is_fixed_when_the_body_returned() -> None:
    """A success before the stop stays one; one after it is ABORTED, and its content is kept in the log only."""
    ends = Ends("c1", "c2")

    @tool(effect="read", concurrency="parallel")
    async def fetch(name: str) -> str:
        if name == "c1":
            await asyncio.shield(asyncio.ensure_future(ends.wait(name)))
        return f"content of {name}"

    @tool(effect="read", concurrency="parallel")
    async def stubborn() -> str:
        waiting = asyncio.ensure_future(ends.wait("c1"))
        while not waiting.done():
            try:
                await asyncio.shield(waiting)
            except asyncio.CancelledError:
                ends.end("c1")
        return "content of c1"

    model = ScriptedModel(calls(call("stubborn"), call("fetch", name="c2")))
    async with Agent(model, tools=[fetch, stubborn]) as agent:
        agent.followup("go")
        await until(agent.session, "SD c2 ok")
        agent.cancel("user", keep_inbox=True)
        await agent.idle()
        made = log(agent.session)
        assert from_first(made, "CR user") == tokens("""
            CR user · SD c1 ERR[ABORTED] · TR c1 ERR[ABORTED] · TR c2 ok · SE 1.1 aborted · TE 1 aborted{user}
        """)
        kept = [fact for fact in agent.session.facts(ToolSettled) if fact.error is not None]  # type: ignore[attr-defined]
        assert kept[0].content[0].text == "content of c1"  # type: ignore[attr-defined]
        assert_laws(agent.session)


async def test_story_4_steering_after_the_stop_opens_the_next_turn() -> None:
    """CA-05."""

    running = asyncio.Event()

    @tool(effect="read")
    async def wait() -> str:
        running.set()
        await asyncio.Event().wait()
        return "never"

    async with Agent(ScriptedModel(calls("wait"), says("…")), tools=[wait]) as agent:
        agent.followup("go")
        await running.wait()
        agent.cancel("user")
        agent.steer(person("s", "s2"))
        await agent.idle()
        assert from_first(log(agent.session), "CR user") == tokens("""
            CR user · +T[s2] · TR c1 ERR[ABORTED] · SE 1.1 aborted · TE 1 aborted{user}
            TS 2 · CL 2.1 T[s2] · SS 2.1 · UM s2 · RQ 1 · CH* · AM"…" · SE 2.1 completed · TE 2 completed
        """)
        assert_laws(agent.session)


async def test_story_4_an_idle_cancel_with_empty_queues_writes_nothing() -> None:
    async with Agent(ScriptedModel()) as agent:
        head = agent.session.head
        agent.cancel("user")
        assert agent.session.head == head


async def test_story_5_a_prompt_that_could_not_be_admitted_goes_back() -> None:
    async with Agent(ScriptedModel(says("one"), says("two"))) as agent:

        def fail_once(proposal: object) -> None:
            if not fail_once.done:  # type: ignore[attr-defined]
                fail_once.done = True  # type: ignore[attr-defined]
                raise RuntimeError("pre-step broke")

        fail_once.done = False  # type: ignore[attr-defined]
        agent.on.pre_step(fail_once)
        agent.followup(person("f", "f1"))
        await agent.idle()
        agent.followup(person("g", "g"))
        await agent.idle()
        assert log(agent.session) == tokens("""
            +T[f1] · TS 1 · CL 1.1 T[f1] · RET 1 T[f1] error times 1 · TE 1 error{UNKNOWN}
            +T[g] · TS 2 · CL 2.1 T[f1] · SS 2.1 · UM f1 · RH initial · RQ 1 · CH* · AM"one" · SE 2.1 completed · TE 2 completed
            TS 3 · CL 3.1 T[g] · SS 3.1 · UM g · RQ 1 · CH* · AM"two" · SE 3.1 completed · TE 3 completed
        """)
        assert_laws(agent.session)


async def test_story_5_the_third_failure_drops_it_and_run_takes_it_back() -> None:
    async with Agent(ScriptedModel()) as agent:

        @agent.on.pre_step
        def fail(proposal: object) -> None:
            raise RuntimeError("pre-step broke")

        agent.followup(person("f", "f1"))
        await agent.idle()
        for _ in range(2):
            agent.wake()
            await agent.idle()
        made = log(agent.session)
        assert [token for token in made if token.startswith(("RET", "DROP"))] == [
            "RET 1 T[f1] error times 1",
            "RET 2 T[f1] error times 2",
            "DROP[f1] failed",
        ]
        result = await agent.run(person("h", "h1"))
        assert not result.ok
        assert log(agent.session)[-1] == "xT[h1]"
        assert agent.inbox.next_turn == ()
        assert_laws(agent.session)


class Crashed:
    """A process that dies in the middle of one answer's calls, and the one that opens its session afterwards.

    Bodies never end in the first life unless they are named `quick`; a person is asked about the calls named in
    `asked`, and says nothing in the first life and yes in the second.
    """

    def __init__(self, *asked: str, denied: str = "", exclusive: str = "", reviewed: bool = False) -> None:
        self.asked, self.denied, self.exclusive, self.reviewed = asked, denied, exclusive, reviewed
        self.ran: list[str] = []
        self.shown: list[str] = []
        self.store = MemoryStore()

    def agent(self, model: ScriptedModel, *, hangs: bool, session: str | None = None, **more: Any) -> Agent:
        @tool(concurrency=lambda c: "exclusive" if c.arguments["name"] == self.exclusive else "parallel")
        async def write(name: str, quick: bool = False) -> str:
            self.ran.append(name)
            if hangs and not quick:
                await asyncio.Event().wait()
            return f"wrote {name}"

        async def approver(request: ApprovalRequest) -> Approved:
            self.shown.append(request.id)
            if hangs:
                await asyncio.Event().wait()
            return Approved()

        agent = Agent(
            model,
            tools=[write],
            approver=approver,
            session=session,
            store=more.pop("store", self.store),
            **more,
        )

        def policy(call: ToolCall) -> Ask | Deny | None:
            name = call.arguments["name"]
            return (
                Ask("sure?") if name in self.asked else Deny("not that one") if name == self.denied else None
            )

        agent.on.pre_execute(policy)
        if self.reviewed:
            agent.on.post_execute(lambda call, result: Accept())
        return agent

    async def dies(self, *until_seen: str, quick: Sequence[str] = (), n: int = 2) -> list[str]:
        """The log of the first life from the answer on, cut when these tokens are there."""
        names = [f"c{i}" for i in range(1, n + 1)]
        model = ScriptedModel(calls(*[call("write", name=name, quick=name in quick) for name in names]))
        async with self.agent(model, hangs=True) as agent:
            agent.followup("go")
            await until(agent.session, *until_seen)
            crashed = list(agent.session.events)
        journal = await self.store.create("crashed")
        journal.write(crashed)
        await journal.close()
        self.ran.clear()
        return from_first(shorthand(crashed), f"AM[{','.join(names)}]")

    async def goes_on(self) -> list[str]:
        """The log of the second life, to the end of the turn: nobody has woken it."""
        async with self.agent(ScriptedModel(says("…")), hangs=False, session="crashed") as agent:
            await agent.idle()
            assert_laws(agent.session)
            made = log(agent.session, after="SO 1 new")
            return from_first(made, "SO 2 resume")


async def test_story_6_where_nobody_waits_the_step_is_repaired() -> None:
    """The process dies while c1 runs."""
    crash = Crashed(exclusive="c2")
    assert await crash.dies("ST c1") == tokens("AM[c1,c2] · TC c1 · ST c1")
    assert await crash.goes_on() == tokens("""
        SO 2 resume · TR c1 ERR[TOOL_OUTCOME_UNKNOWN] · TC' c2 · TR c2 ERR[TOOL_NOT_STARTED]
        SE 1.1 interrupted · TE 1 interrupted · SR[c1,c2]
    """)
    async with crash.agent(ScriptedModel(says("…")), hangs=False, session="crashed") as agent:
        assert (await agent.run("again")).ok
        assert "RH resume" in log(agent.session)
        assert_laws(agent.session)
    assert crash.ran == []


async def test_story_6_a_call_that_waits_for_a_person_survives_the_crash_of_one_that_runs() -> None:
    """The process dies while c1 runs and c2 waits: no second `AA`, and `RH resume` as in the first request of a life."""
    crash = Crashed("c2")
    assert await crash.dies("ST c1", "AA c2") == tokens(
        "AM[c1,c2] · TC c1 · ST c1 · TC c2 · TD c2 ask policy · AA c2"
    )
    assert await crash.goes_on() == tokens("""
        SO 2 resume · TR c1 ERR[TOOL_OUTCOME_UNKNOWN] · SR[c1]
        AD c2 allowed-once · ST c2 · TR c2 ok · SE 1.1 tools
        SS 1.2 · RH resume · RQ 1 · CH* · AM"…" · SE 1.2 completed · TE 1 completed
    """)
    assert crash.ran == ["c2"]


async def test_story_6_the_mirror_case_may_not_commit_before_the_one_that_waits() -> None:
    """c1 waits, and c2 runs."""
    crash = Crashed("c1")
    assert await crash.dies("AA c1", "ST c2") == tokens(
        "AM[c1,c2] · TC c1 · TD c1 ask policy · AA c1 · TC c2 · ST c2"
    )
    assert await crash.goes_on() == tokens("""
        SO 2 resume · SD c2 ERR[TOOL_OUTCOME_UNKNOWN] · SR[c2]
        AD c1 allowed-once · ST c1 · TR c1 ok · TR c2 ERR[TOOL_OUTCOME_UNKNOWN] · SE 1.1 tools
        SS 1.2 · RH resume · RQ 1 · CH* · AM"…" · SE 1.2 completed · TE 1 completed
    """)
    assert crash.ran == ["c1"]


async def test_story_6_a_call_that_nobody_had_looked_at_is_admitted_after_the_one_that_waits() -> None:
    """c3 is exclusive, and has no `TC` yet."""
    crash = Crashed("c2", exclusive="c3")
    await crash.dies("ST c1", "AA c2", n=3)
    assert (await crash.goes_on())[:10] == tokens("""
        SO 2 resume · TR c1 ERR[TOOL_OUTCOME_UNKNOWN] · SR[c1]
        AD c2 allowed-once · ST c2 · TR c2 ok · TC c3 · ST c3 · TR c3 ok · SE 1.1 tools
    """)
    assert crash.ran == ["c2", "c3"]


async def test_story_6_a_denied_sibling_comes_back_as_that() -> None:
    """Also under a post listener: there is nothing to withhold."""
    crash = Crashed("c1", denied="c2", reviewed=True)
    await crash.dies("AA c1", "SD c2 ERR[DENIED]")
    assert (await crash.goes_on())[:6] == tokens("""
        SO 2 resume · AD c1 allowed-once · ST c1 · TR c1 ok · TR c2 ERR[DENIED] · SE 1.1 tools
    """)
    assert crash.ran == ["c1"]


async def test_story_6_what_a_review_had_yet_to_see_is_withheld() -> None:
    """D-25: the content stays in the log only."""
    crash = Crashed("c1", reviewed=True)
    await crash.dies("AA c1", "SD c2 ok", quick=["c2"])
    assert (await crash.goes_on())[:6] == tokens("""
        SO 2 resume · AD c1 allowed-once · ST c1 · TR c1 ok · TR c2 ERR[RESULT_WITHHELD] · SE 1.1 tools
    """)
    unseen = Crashed("c1")
    await unseen.dies("AA c1", "SD c2 ok", quick=["c2"])
    assert (await unseen.goes_on())[3:5] == tokens("TR c1 ok · TR c2 ok")
    assert crash.ran == unseen.ran == ["c1"]


async def test_story_6_a_clean_exit_keeps_what_a_crash_keeps() -> None:
    """CA-10b: on a durable store leaving the agent writes nothing while c1 waits."""
    crash = Crashed("c1")
    store = BrittleStore()  # claims to be durable
    model = ScriptedModel(calls(call("write", name="c1"), call("write", name="c2", quick=True)))
    async with crash.agent(model, hangs=True, store=store) as agent:
        agent.followup("go")
        await until(agent.session, "AA c1", "SD c2 ok")
        await asyncio.sleep(1)
        assert agent.status is Status.WAITING
        session_id, head = agent.session.id, agent.session.head
    assert agent.session.head == head
    async with crash.agent(ScriptedModel(says("…")), hangs=False, session=session_id, store=store) as agent:
        await agent.idle()
        assert log(agent.session, after="SD c2 ok") == tokens("""
            SO 2 resume · AD c1 allowed-once · ST c1 · TR c1 ok · TR c2 ok · SE 1.1 tools
            SS 1.2 · RH resume · RQ 1 · CH* · AM"…" · SE 1.2 completed · TE 1 completed
        """)
        assert_laws(agent.session)
    assert crash.ran == ["c2", "c1"]


async def test_story_6_the_clock_of_the_budget_stands_still_while_it_waits() -> None:
    """BU: for days, and while nobody drives."""
    crash = Crashed("c1")
    store, budget = BrittleStore(), Budget(wall=60)
    model = ScriptedModel(calls(call("write", name="c1")))
    async with crash.agent(model, hangs=True, store=store, budget=budget) as agent:
        agent.followup("go")
        await until(agent.session, "AA c1")
        await asyncio.sleep(3 * 86_400)
        session_id = agent.session.id
    await asyncio.sleep(3 * 86_400)
    async with crash.agent(
        ScriptedModel(says("…")), hangs=False, session=session_id, store=store, budget=budget
    ) as agent:
        await agent.idle()
        assert log(agent.session)[-1] == "TE 1 completed"
        assert agent.session.state.tally.wall_ms < 60_000


async def test_story_7_a_post_hook_ends_the_turn_after_this_batch() -> None:
    ends = Ends("c1", "c2", "c3")

    @tool(effect="read", concurrency="parallel")
    async def fetch(name: str) -> str:
        await ends.wait(name)
        return f"content of {name}"

    model = ScriptedModel(calls(call("fetch", name="c1"), call("fetch", name="c2"), call("fetch", name="c3")))
    async with Agent(model, tools=[fetch], pool=2) as agent:

        @agent.hooks("PostToolUse")
        def stop(context: object) -> HookResult | None:
            return HookResult(prevent_continuation=True) if context.call.id == "c1" else None  # type: ignore[attr-defined]

        receipt = agent.followup("go")
        await until(agent.session, "TC c3")
        ends.end("c1")
        await until(agent.session, "TR c1 ok stop")
        ends.end("c2")
        result = await receipt.turn()
        assert from_first(log(agent.session), "TC c1") == tokens("""
            TC c1 · ST c1 · TC c2 · ST c2 · TC c3 · HI · HR · TR c1 ok stop · TR c2 ok
            TR c3 ERR[HOOK_STOPPED_CONTINUATION] · SE 1.1 hook-stopped · TE 1 completed{by hook}
        """)
        assert result.text == "content of c1"
        assert result.ok
        skipped = outline(agent.session, "tool/result")[-1]
        assert "Skipped after PostToolUse" in skipped
        assert_laws(agent.session)


async def test_story_7_while_a_post_hook_suspends_the_place_is_filled() -> None:
    ends = Ends("c1", "c2", "c3")
    said = asyncio.Event()

    @tool(effect="read", concurrency="parallel")
    async def fetch(name: str) -> str:
        await ends.wait(name)
        return name

    model = ScriptedModel(calls(call("fetch", name="c1"), call("fetch", name="c2"), call("fetch", name="c3")))
    async with Agent(model, tools=[fetch], pool=2) as agent:

        @agent.hooks("PostToolUse")
        async def stop(context: object) -> HookResult | None:
            if context.call.id != "c1":  # type: ignore[attr-defined]
                return None
            await said.wait()
            return HookResult(prevent_continuation=True)

        receipt = agent.followup("go")
        await until(agent.session, "TC c3")
        ends.end("c1")
        await until(agent.session, "ST c3")
        said.set()
        ends.end("c2")
        ends.end("c3")
        await receipt.turn()
        results = [token for token in log(agent.session) if token.startswith("TR")]
        assert results == ["TR c1 ok stop", "TR c2 ok", "TR c3 ok"]
        assert_laws(agent.session)


async def test_story_8_a_stop_hook_forces_once_and_others_may_still_continue() -> None:
    steered = False
    async with Agent(ScriptedModel(says("done"), says("…"), says("…"))) as agent:
        seen: list[bool] = []
        prompts: list[str] = []

        @agent.hooks("Stop")
        def force(context: object) -> HookResult:
            nonlocal steered
            seen.append(context.stop_hook_active)  # type: ignore[attr-defined]
            if not steered:
                steered = True
                agent.steer(person("S", "S"), source=Source("person"))
            forced = Message.user("F", id="F", source=Source("hook"))
            return HookResult(force_continue=forced, additional_context="k")

        @agent.on.turn_stopping
        def later(stopping: object) -> Continue | None:
            return Continue("N") if len(seen) == 2 else None

        agent.hooks.register("UserPromptSubmit", lambda c: prompts.append(c.message.text))
        await agent.run(person("go", "go"))
        assert seen == [False, True, True]
        names = {m.id: m.text for m in agent.session.history.view() if m.id}
        assert from_first(log(agent.session, names), "SE 1.1 completed") == tokens("""
            SE 1.1 completed · +S[S] · HI · HR · DM turn-stopping continue · +S[k,F]
            CL 1.2 S[S,k,F] · SS 1.2 · UM S · UM k · UM F · RQ 1 · CH* · AM"…" · SE 1.2 completed
            HI · HR unused · DM turn-stopping continue · +S[N]
            CL 1.3 S[N] · SS 1.3 · UM N · RQ 1 · CH* · AM"…" · SE 1.3 completed · HI · HR unused · TE 1 completed
        """)
        assert prompts == ["go", "S"], "a hook's own message is no person's"
        texts = [m.text for m in agent.session.history.view()]
        assert texts == ["go", "done", "S", "k", "F", "…", "N", "…"]
        assert_laws(agent.session)
