"""Asking a person: only a clear yes runs the call, once; every other end of the question is a no."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import (
    Accept,
    Agent,
    Allow,
    ApprovalRequest,
    Approved,
    Ask,
    Deny,
    Rejected,
    Rewrite,
    Status,
    TerminalApprover,
    ToolCall,
    ToolContext,
    ToolError,
    tool,
)
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    CancelRequested,
    ToolDecided,
    ToolResulted,
    ToolStarted,
)
from interlock.testing import ScriptedModel, assert_laws, call, calls, outline, says
from interlock.tools.pipeline import digest_of

pytestmark = pytest.mark.virtual

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    ran.clear()


@tool(concurrency="parallel")
async def pay(to: str) -> str:
    ran.append(to)
    return f"paid {to}"


@tool
async def outer(ctx: ToolContext) -> str:
    """Pay through another tool."""
    try:
        return (await ctx.call_tool("pay", to="nested")).text or ""
    except ToolError as error:
        return f"refused: {error}"


class Desk:
    """An approver that answers when the test says so."""

    def __init__(self) -> None:
        self.requests: list[ApprovalRequest] = []
        self._answers: dict[str, asyncio.Future[Any]] = {}

    async def __call__(self, request: ApprovalRequest) -> Any:
        self.requests.append(request)
        future = self._answers[request.arguments["to"]] = asyncio.get_running_loop().create_future()
        return await future

    def answer(self, to: str, answer: object) -> None:
        self._answers[to].set_result(answer)


def asking(approver: Any, *script: Any, **settings: Any) -> Agent:
    """An agent in which every payment is asked about."""
    agent = Agent(
        ScriptedModel(*(script or (calls("pay", to="bob"),)), says("done")),
        tools=[pay, outer],
        approver=approver,
        **settings,
    )
    agent.on.pre_execute(lambda call: Ask(f"pay {call.arguments['to']}?") if call.name == "pay" else None)
    return agent


async def settled() -> None:
    """In simulated time: whatever can happen without anybody's help has happened."""
    await asyncio.sleep(1)


def codes(agent: Agent) -> list[str]:
    return [result.error.code if result.error else "ran" for result in agent.session.facts(ToolResulted)]


def approval_lines(agent: Agent) -> list[str]:
    lines = agent.session.facts(ApprovalAsked, ApprovalDecided)
    return [fact.outcome if isinstance(fact, ApprovalDecided) else "asked" for fact in lines]


# Yes and no


async def test_a_yes_runs_the_call_once() -> None:
    """TP-06: only allowed-once continues, and it allows one call."""
    seen: list[str] = []

    async def approves(request: ApprovalRequest) -> Approved:
        seen.append(request.call.id)
        return Approved()

    async with asking(approves, calls("pay", to="bob"), calls("pay", to="bob")) as agent:
        await agent.run("go")
        assert (ran, seen) == (["bob", "bob"], ["c1", "c2"])
        assert approval_lines(agent) == ["asked", "allowed-once"] * 2
        assert_laws(agent.session)


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (Rejected(), "Error [approval_rejected]: a person said no"),
        (Rejected("ask Ann first"), "Error [approval_rejected]: ask Ann first"),
    ],
)
async def test_a_no_is_told_to_the_model_with_the_persons_words(answer: Rejected, text: str) -> None:
    """TP-05, D-6."""

    async def rejects(request: ApprovalRequest) -> Rejected:
        return answer

    async with asking(rejects) as agent:
        assert (await agent.run("go")).ok
        (result,) = agent.session.facts(ToolResulted)
        assert result.content[0].text == text
        assert result.error is not None and not result.error.handler_executed
        assert ran == []
        (decided,) = agent.session.facts(ApprovalDecided)
        assert (decided.outcome, decided.message) == ("rejected", answer.message)
        assert_laws(agent.session)


async def test_who_answered_and_how_they_are_known_is_on_record() -> None:
    class Door:
        how = "token"
        channel = "front door"
        principal = "ann@example.org"

        async def __call__(self, request: ApprovalRequest) -> Approved:
            return Approved()

    async with asking(Door()) as agent:
        await agent.run("go")
        (decided,) = agent.session.facts(ApprovalDecided)
        assert (decided.by, decided.how, decided.channel) == ("ann@example.org", "token", "front door")


async def test_an_approver_without_a_name_is_called_after_its_function() -> None:
    async def somebody(request: ApprovalRequest) -> Approved:
        return Approved()

    async with asking(somebody) as agent:
        await agent.run("go")
        (decided,) = agent.session.facts(ApprovalDecided)
        assert (decided.by, decided.how) == (None, "api")
        assert decided.channel is not None and decided.channel.endswith("somebody")


# Everything else is a no


class Hostile(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def look_alike() -> object:
    @dataclass
    class Approved:
        """Not ours."""

    return Approved()


def gives(answer: object) -> Callable[[ApprovalRequest], Any]:
    async def approver(request: ApprovalRequest) -> object:
        return answer

    return approver


def raises(error: BaseException) -> Callable[[ApprovalRequest], Any]:
    async def approver(request: ApprovalRequest) -> object:
        raise error

    return approver


async def awaits_what_was_cancelled(request: ApprovalRequest) -> object:
    future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    future.cancel()
    return await future


class Knows:
    def __init__(self, **attributes: object) -> None:
        self.__dict__.update(attributes)

    async def __call__(self, request: ApprovalRequest) -> Approved:
        return Approved()


class FailsToBeKnown(Knows):
    @property
    def principal(self) -> str:
        raise Hostile


NOBODY = [
    gives(None),
    gives(True),
    gives("yes"),
    gives({"approved": True}),
    gives(Approved),
    gives(look_alike()),
    gives(Allow()),
    gives([Approved()]),
    raises(ValueError("no")),
    raises(Hostile()),
    raises(TimeoutError()),
    raises(asyncio.CancelledError()),
    awaits_what_was_cancelled,
    lambda request: Approved(),
    lambda request: None,
    lambda: Approved(),
    Knows(how="telepathy"),
    Knows(how=["tty"]),
    Knows(channel=5),
    Knows(principal=object()),
    Knows(channel="\ud800"),
    FailsToBeKnown(),
]


@pytest.mark.parametrize("approver", NOBODY)
async def test_every_way_of_not_answering_means_no(approver: Any) -> None:
    """Law 8, TP-06, TP-07: raising, an answer of another type, a look-alike, an approver that cannot be recorded."""
    async with asking(approver) as agent:
        assert (await agent.run("go")).ok
        assert (ran, codes(agent)) == ([], ["APPROVAL_UNAVAILABLE"])
        assert approval_lines(agent) == ["asked", "unavailable"]
        assert agent.session.facts(ToolStarted) == []
        assert_laws(agent.session)


async def test_without_an_approver_asking_and_its_end_are_one_append() -> None:
    """D-7b: nobody ever sees the question open."""
    seen: list[list[str]] = []
    async with asking(None) as agent:
        agent.on.observe(ApprovalAsked)(lambda event: seen.append(approval_lines(agent)))
        await agent.run("go")
        assert seen == [["asked", "unavailable"]]
        (result,) = agent.session.facts(ToolResulted)
        assert result.content[0].text == (
            "Error [approval_unavailable]: pay bob? (nobody is there to approve it)"
        )
        assert_laws(agent.session)


async def test_the_question_is_on_disk_before_anybody_is_shown_it() -> None:
    """Law 6: what a crash could make unasked is not asked."""
    store, shown = BrittleStore(), list[str]()

    async def approves(request: ApprovalRequest) -> Approved:
        shown.append(request.id)
        return Approved()

    async with asking(approves, store=store) as agent:
        agent.on.observe(ApprovalAsked)(lambda event: store.break_now())
        with pytest.raises(Exception, match="the disk is full"):
            await agent.run("go")
        assert (shown, ran) == ([], [])
        store.mend()


# What is asked


async def test_what_is_seen_is_what_runs() -> None:
    """The effective arguments are shown, after every rewrite, and the digest binds the answer to them."""
    desk = Desk()
    agent = asking(desk)
    agent.on.prepare(lambda call: Rewrite({"to": "carol"}) if call.name == "pay" else None)
    async with agent:
        receipt = agent.followup("go")
        await settled()
        (request,) = desk.requests
        (asked,) = agent.session.facts(ApprovalAsked)
        assert request.arguments == asked.effective == request.call.arguments == {"to": "carol"}
        assert (request.id, request.question, request.digest) == (
            asked.approval_id,
            "pay carol?",
            asked.digest,
        )
        assert request.digest == digest_of("pay", {"to": "carol"}) != digest_of("pay", {"to": "bob"})
        desk.answer("carol", Approved())
        await receipt.turn()
        (decided,), (started,) = agent.session.facts(ApprovalDecided), agent.session.facts(ToolStarted)
        assert decided.digest == started.digest == request.digest
        assert ran == ["carol"]
        assert_laws(agent.session)


def test_a_digest_is_of_the_tool_and_its_arguments() -> None:
    digests = [
        digest_of("a", {"x": 1}),
        digest_of("b", {"x": 1}),
        digest_of("a", {"x": "1"}),
        digest_of("a", {"x": 1, "y": None}),
        digest_of("a", {}),
    ]
    assert len(set(digests)) == len(digests)
    assert digest_of("a", {"x": 1}) == digests[0]


async def test_it_is_said_who_made_it_ask() -> None:
    desk = Desk()
    agent = Agent(ScriptedModel(calls("pay", to="bob"), says("done")), tools=[pay], approver=desk)
    agent.on.pre_execute(lambda call: Allow(), name="somebody")
    agent.on.pre_execute(lambda call: Ask("why not?"), name="the careful one")
    async with agent:
        receipt = agent.followup("go")
        await settled()
        assert desk.requests[0].by == "the careful one"
        desk.answer("bob", Rejected())
        await receipt.turn()


# While a person thinks


async def test_answers_come_in_any_order_and_results_in_the_models() -> None:
    """D-8."""
    for order in permutations(("a", "b", "c")):
        ran.clear()
        desk = Desk()
        script = calls(*[call("pay", to=to) for to in "abc"])
        async with asking(desk, script) as agent:
            receipt = agent.followup("go")
            await settled()
            assert [request.arguments["to"] for request in desk.requests] == ["a", "b", "c"]
            for to in order:
                desk.answer(to, Approved() if to != "b" else Rejected())
                await settled()
            await receipt.turn()
            assert ran == [to for to in order if to != "b"]
            assert codes(agent) == ["ran", "APPROVAL_REJECTED", "ran"]
            assert_laws(agent.session)


async def test_the_agent_is_waiting_until_nobody_is_asked() -> None:
    desk, statuses = Desk(), list[Status]()
    async with asking(desk, calls(call("pay", to="a"), call("pay", to="b"))) as agent:
        agent.on.status(statuses.append)
        receipt = agent.followup("go")
        await settled()
        assert agent.status is Status.WAITING
        desk.answer("a", Approved())
        await settled()
        assert agent.status is Status.WAITING, "the other question is still open"
        desk.answer("b", Approved())
        await receipt.turn()
        await agent.idle()
        assert statuses == [
            Status.RUNNING, Status.WAITING, Status.RUNNING, Status.WAITING, Status.RUNNING, Status.IDLE,
        ]  # fmt: skip


async def test_a_call_that_waits_delays_no_earlier_result_and_no_free_place() -> None:
    """D-8, SC-14."""
    desk = Desk()
    script = calls(call("pay", to="first"), call("pay", to="asked"), call("pay", to="last"))
    agent = Agent(ScriptedModel(script, says("done")), tools=[pay], approver=desk, pool=1)
    agent.on.pre_execute(lambda call: Ask("?") if call.arguments["to"] == "asked" else None)
    async with agent:
        receipt = agent.followup("go")
        await settled()
        assert ran == ["first", "last"]
        assert codes(agent) == ["ran"]
        desk.answer("asked", Approved())
        await receipt.turn()
        assert codes(agent) == ["ran"] * 3
        assert_laws(agent.session)


async def test_a_guard_that_denies_spares_the_question() -> None:
    """D-13."""
    desk = Desk()
    agent = asking(desk)
    agent.guard(lambda call: Deny("never to bob"))
    async with agent:
        await agent.run("go")
        assert (desk.requests, codes(agent)) == ([], ["GUARD_DENIED"])
        assert agent.session.facts(ApprovalAsked) == []
        assert_laws(agent.session)


async def test_a_guard_speaks_again_after_the_yes() -> None:
    """TP-08, A-P16, law 7: approved, then denied."""
    desk, frozen = Desk(), list[bool]()
    agent = asking(desk)
    agent.guard(lambda call: Deny("the account is frozen") if frozen else None)
    async with agent:
        receipt = agent.followup("go")
        await settled()
        frozen.append(True)
        desk.answer("bob", Approved())
        await receipt.turn()
        assert approval_lines(agent) == ["asked", "allowed-once"]
        assert (ran, codes(agent)) == ([], ["GUARD_DENIED"])
        assert [d.stage for d in agent.session.facts(ToolDecided)] == ["policy", "guard"]
        assert_laws(agent.session)


async def test_a_delayed_yes_is_checked_against_the_rules_of_the_moment() -> None:
    """D-13: a rule that came while the person thought still denies."""
    desk = Desk()
    async with asking(desk) as agent:
        receipt = agent.followup("go")
        await settled()
        agent.on.pre_execute(lambda call: Deny("no more payments today"))
        desk.answer("bob", Approved())
        await receipt.turn()
        assert (ran, codes(agent)) == ([], ["DENIED"])
        assert_laws(agent.session)


# A stop while a person thinks


async def test_a_stop_withdraws_the_question_in_the_same_append() -> None:
    """CA-11b, TP-09."""
    desk = Desk()
    async with asking(desk) as agent:
        receipt = agent.followup("go")
        await settled()
        agent.cancel()
        facts = [event.fact for event in agent.session.events]
        at = next(i for i, fact in enumerate(facts) if isinstance(fact, CancelRequested))
        decided = facts[at + 1]
        assert isinstance(decided, ApprovalDecided) and decided.outcome == "cancelled"
        await receipt.turn()
        assert desk._answers["bob"].cancelled(), "the approver was told"
        assert (ran, codes(agent)) == ([], ["ABORTED_BEFORE_DISPATCH"])
        assert_laws(agent.session)


async def test_a_late_yes_starts_nothing() -> None:
    """TP-07: the approver swallows the cut, and answers after all."""

    async def stubborn(request: ApprovalRequest) -> Approved:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return Approved()

    async with asking(stubborn) as agent:
        receipt = agent.followup("go")
        await settled()
        agent.cancel()
        await receipt.turn()
        assert (ran, approval_lines(agent)) == ([], ["asked", "cancelled"])
        assert codes(agent) == ["ABORTED_BEFORE_DISPATCH"]
        assert_laws(agent.session)


async def test_a_stop_in_the_moment_of_asking_asks_nobody() -> None:
    desk = Desk()
    async with asking(desk) as agent:
        agent.on.observe(ApprovalAsked)(lambda event: agent.cancel())
        await agent.run("go")
        assert desk.requests == []
        assert (approval_lines(agent), codes(agent)) == (["asked", "cancelled"], ["ABORTED_BEFORE_DISPATCH"])
        assert_laws(agent.session)


async def test_a_stop_by_the_approver_itself_is_a_stop() -> None:
    async def leaves(request: ApprovalRequest) -> Approved:
        request.call.agent.cancel()
        return Approved()

    async with asking(leaves) as agent:
        await agent.run("go")
        assert (ran, codes(agent)) == ([], ["ABORTED_BEFORE_DISPATCH"])
        assert_laws(agent.session)


async def test_a_hook_that_stops_the_turn_withdraws_the_question() -> None:
    """D-16: of a hook-stopped batch a parked approval is cancelled."""
    desk = Desk()
    script = calls(call("pay", to="first"), call("pay", to="asked"))
    agent = Agent(ScriptedModel(script), tools=[pay], approver=desk)
    agent.on.pre_execute(lambda call: Ask("?") if call.arguments["to"] == "asked" else None)

    async def stops(call: ToolCall, result: object) -> Accept:
        await settled()
        return Accept(stop=True)

    agent.on.post_execute(stops)
    async with agent:
        await agent.run("go")
        assert approval_lines(agent) == ["asked", "cancelled"]
        assert codes(agent) == ["ran", "HOOK_STOPPED_CONTINUATION"]
        assert outline(agent.session)[-1] == "turn/end completed (stopped by a hook)"
        assert_laws(agent.session)


# Nested calls


@pytest.mark.parametrize(("answer", "text"), [(Approved(), "paid nested"), (Rejected("no"), "refused: ")])
async def test_a_nested_call_asks_for_itself(answer: object, text: str) -> None:
    """TP-25."""
    async with asking(gives(answer), calls("outer")) as agent:
        await agent.run("go")
        (result,) = agent.session.facts(ToolResulted)
        assert result.content[0].text.startswith(text)
        assert len(agent.session.facts(ApprovalAsked)) == 1
        assert_laws(agent.session)


async def test_a_stop_withdraws_the_question_of_a_nested_call() -> None:
    desk = Desk()
    async with asking(desk, calls("outer")) as agent:
        receipt = agent.followup("go")
        await settled()
        assert agent.status is Status.WAITING
        agent.cancel()
        await receipt.turn()
        assert (ran, approval_lines(agent)) == ([], ["asked", "cancelled"])
        assert_laws(agent.session)


# At a terminal


async def test_a_person_at_a_terminal_is_shown_the_call_and_can_refuse_it() -> None:
    screen = io.StringIO()
    approver = TerminalApprover(reading=io.StringIO("use the test account\n"), writing=screen)
    async with asking(approver) as agent:
        await agent.run("go")
        assert "pay bob?" in screen.getvalue() and "to: bob" in screen.getvalue()
        (decided,) = agent.session.facts(ApprovalDecided)
        assert (decided.outcome, decided.how, decided.channel) == ("rejected", "tty", "terminal")
        assert decided.message == "use the test account"
        assert ran == []


def test_an_answer_says_only_what_can_be_put_on_record() -> None:
    with pytest.raises(ValueError, match="Rejected: invalid Unicode"):
        Rejected("\ud800")
    assert Rejected() == Rejected(None) and Approved() == Approved()


async def test_an_agent_with_a_nested_question_is_waiting_only_when_nothing_else_runs() -> None:
    """The wall clock stands still only then."""
    desk = Desk()

    @tool(concurrency="parallel")
    async def asks(ctx: ToolContext) -> str:
        return (await ctx.call_tool("pay", to="nested")).text or ""

    @tool(concurrency="parallel")
    async def works() -> str:
        await asyncio.sleep(5)
        return "worked"

    agent = asking(desk, calls(call("asks"), call("works")))
    agent.add_tool(asks)
    agent.add_tool(works)
    async with agent:
        receipt = agent.followup("go")
        await settled()
        assert (len(desk.requests), agent.status) == (1, Status.RUNNING)
        await asyncio.sleep(5)
        assert agent.status is Status.WAITING
        desk.answer("nested", Approved())
        await receipt.turn()
        assert ran == ["nested"]
        assert_laws(agent.session)
