"""Approvals through an agent: what is on record, what is remembered, and what comes too late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import (
    Agent,
    AlreadyDecided,
    AnswerLater,
    ApprovalRequest,
    Approved,
    Ask,
    MemoryStore,
    Principal,
    Rejected,
    tool,
)
from interlock.errors import UsageError
from interlock.log.facts import ApprovalAsked, ApprovalDecided, ApprovalLate, GrantRevoked, ToolResulted
from interlock.policy.approvals.grants import Grants
from interlock.testing import ScriptedModel, assert_laws, call, calls, outline, says, shorthand
from interlock.testing.clock import WALL_ORIGIN_MS
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


def agent_of(approver: Any = None, *script: Any, **settings: Any) -> Agent:
    """An agent whose preset asks about every payment."""
    model = ScriptedModel(*(script or (calls("pay", to="bob"),)), says("done"))
    return Agent(model, tools=[pay], approver=approver, preset="ask", **settings)


async def settled() -> None:
    """In simulated time: whatever can happen without anybody's help has happened."""
    await asyncio.sleep(1)


def codes(agent: Agent) -> list[str]:
    return [result.error.code if result.error else "ran" for result in agent.session.facts(ToolResulted)]


# From outside


async def test_an_answer_from_outside_is_on_record_with_who_how_where_and_for_what() -> None:
    async with agent_of(AnswerLater()) as agent:
        receipt = agent.followup("go")
        await settled()
        (request,) = agent.approvals.pending
        assert (request.session, request.by) == (agent.session.id, "preset ask")
        agent.approvals.answer(
            request.id,
            Approved(),
            principal=Principal("ci", "service"),
            digest=request.digest,
            channel="web",
            how="token",
        )
        assert agent.approvals.pending == ()
        assert (await receipt.turn()).ok
        (decided,) = agent.session.facts(ApprovalDecided)
        assert (decided.by, decided.how, decided.channel) == ("ci", "token", "web")
        assert decided.digest == request.digest == digest_of("pay", {"to": "bob"})
        assert outline(agent.session, "approval/asked", "approval/decided") == [
            "approval/asked #c1 pay may change something",
            "approval/decided #c1 allowed-once by ci",
        ]
        assert_laws(agent.session)


async def test_of_two_who_answer_the_first_counts_and_the_second_is_told_and_on_record() -> None:
    async with agent_of(AnswerLater()) as agent:
        receipt = agent.followup("go")
        await settled()
        (request,) = agent.approvals.pending
        agent.approvals.answer(request.id, Rejected("not bob"), principal="ann")
        with pytest.raises(AlreadyDecided, match="rejected by ann") as at_once:
            agent.approvals.answer(request.id, Approved(), principal="bob")
        assert (await receipt.turn()).ok
        with pytest.raises(AlreadyDecided, match="rejected by ann") as later:
            agent.approvals.answer(request.id, Approved(), principal="carl")
        assert at_once.value.time == later.value.time == WALL_ORIGIN_MS + 1000
        assert outline(agent.session, "approval/decided", "approval/late") == [
            "approval/decided #c1 rejected by ann",
            "approval/late allowed-once by bob",
            "approval/late allowed-once by carl",
        ]
        assert (ran, codes(agent)) == ([], ["APPROVAL_REJECTED"])
        assert_laws(agent.session)


async def test_an_answer_after_a_stop_is_late_also_in_the_same_moment() -> None:
    async with agent_of(AnswerLater()) as agent:
        receipt = agent.followup("go")
        await settled()
        (request,) = agent.approvals.pending
        agent.cancel()
        with pytest.raises(AlreadyDecided, match="cancelled"):
            agent.approvals.answer(request.id, Approved(), principal="ann")
        await receipt.turn()
        (late,) = agent.session.facts(ApprovalLate)
        assert (late.answer, late.by) == ("allowed-once", "ann")
        assert ran == []
        assert_laws(agent.session)


async def test_one_who_answers_after_somebody_else_was_first_is_on_record() -> None:
    async def stubborn(request: ApprovalRequest) -> Approved:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return Approved(principal="the stubborn one")

    async with agent_of(stubborn) as agent:
        agent.approvals.add(AnswerLater())
        receipt = agent.followup("go")
        await settled()
        agent.approvals.answer(agent.approvals.pending[0].id, Rejected(), principal="ann")
        await receipt.turn()
        assert outline(agent.session, "approval/decided", "approval/late") == [
            "approval/decided #c1 rejected by ann",
            "approval/late allowed-once by the stubborn one",
        ]
        assert ran == []
        assert_laws(agent.session)


async def test_a_stop_while_everybody_is_asked_leaves_nobody_running() -> None:
    asked: list[str] = []

    def person(name: str) -> Callable[[ApprovalRequest], Any]:
        async def asks(request: ApprovalRequest) -> None:
            asked.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                asked.remove(name)

        return asks

    async with agent_of(person("a")) as agent:
        agent.approvals.add(person("b"))
        receipt = agent.followup("go")
        await settled()
        assert asked == ["a", "b"]
        agent.cancel()
        await receipt.turn()
        assert asked == []
        assert_laws(agent.session)


async def test_answers_to_several_questions_come_in_any_order() -> None:
    script = calls(*[call("pay", to=to) for to in "abc"])
    async with agent_of(AnswerLater(), script) as agent:
        receipt = agent.followup("go")
        await settled()
        for request in reversed(agent.approvals.pending):
            agent.approvals.answer(request.id, Approved() if request.arguments["to"] != "b" else Rejected())
            await settled()
        await receipt.turn()
        assert ran == ["c", "a"]
        assert codes(agent) == ["ran", "APPROVAL_REJECTED", "ran"]
        assert_laws(agent.session)


async def test_what_a_person_changed_is_what_runs() -> None:
    async with agent_of(AnswerLater()) as agent:
        receipt = agent.followup("go")
        await settled()
        agent.approvals.answer(agent.approvals.pending[0].id, Approved(arguments={"to": "carol"}))
        await receipt.turn()
        assert ran == ["carol"]
        (decided,) = agent.session.facts(ApprovalDecided)
        assert decided.edited == {"to": "carol"}
        assert_laws(agent.session)


async def test_a_question_that_expires_is_a_no_that_says_so() -> None:
    async with agent_of(AnswerLater(), approval_timeout=60) as agent:
        receipt = agent.followup("go")
        await settled()
        (asked,) = agent.session.facts(ApprovalAsked)
        assert asked.expires == WALL_ORIGIN_MS + 60_000
        await receipt.turn()
        assert asyncio.get_running_loop().time() == pytest.approx(60)
        (result,) = agent.session.facts(ToolResulted)
        assert result.content[0].text == (
            "Error [approval_unavailable]: pay may change something "
            "(nobody answered in time: the question has expired)"
        )
        with pytest.raises(AlreadyDecided, match="unavailable"):
            agent.approvals.answer(asked.approval_id, Approved())
        assert_laws(agent.session)


# What is remembered


async def test_a_yes_for_the_session_writes_the_rule_that_was_shown_and_spares_the_next_question() -> None:
    seen: list[str | None] = []

    async def remembers(request: ApprovalRequest) -> Approved:
        seen.append(request.rule("session"))
        assert request.rule("always") is None, "nobody has said where it would be kept"
        return Approved("session")

    store = MemoryStore()
    script = (calls("pay", to="bob"), calls("pay", to="eve"), says("done"))
    async with Agent(
        ScriptedModel(*script), tools=[pay], approver=remembers, preset="ask", store=store
    ) as agent:
        await agent.run("go")
        assert (seen, ran) == (["pay"], ["bob", "eve"])
        (decided,) = agent.session.facts(ApprovalDecided)
        assert (decided.rule_written, decided.scope) == ("pay", "session")
        assert list(agent.session.state.grants) == ["pay"]
        session = agent.session.id
        assert_laws(agent.session)
    model = ScriptedModel(calls("pay", to="eve"), says("done"), calls("pay", to="mallory"), says("done"))
    async with Agent(
        model, tools=[pay], approver=remembers, preset="ask", store=store, session=session
    ) as agent:
        await agent.run("again")
        assert (len(seen), ran[2:]) == (1, ["eve"]), "a later life remembers it"
        agent.approvals.revoke("pay", by="ann")
        with pytest.raises(UsageError, match="not allowed for this session; allowed: nothing"):
            agent.approvals.revoke("pay")
        await agent.run("once more")
        assert len(seen) == 2, "it is asked again"
        assert outline(agent.session, "grant/revoked") == ["grant/revoked pay by ann"]
        assert "GR pay" in shorthand(agent.session)
        assert [fact.by for fact in agent.session.facts(GrantRevoked)] == ["ann"]
        assert_laws(agent.session)


async def test_a_yes_for_always_is_kept_in_a_file_and_counts_at_once(tmp_path: Path) -> None:
    async def remembers(request: ApprovalRequest) -> Approved:
        return Approved("always", principal="ann")

    script = (calls("pay", to="bob"), calls("pay", to="eve"), says("done"))
    agent = Agent(ScriptedModel(*script), tools=[pay], approver=remembers, preset="ask", cwd=tmp_path)
    agent.approvals.grants = Grants(tmp_path / "kept" / "grants.toml")
    async with agent:
        await agent.run("go")
        (decided,) = agent.session.facts(ApprovalDecided)
        assert (decided.rule_written, decided.scope, decided.by) == ("pay", "always", "ann")
        (grant,) = agent.approvals.grants.load(tmp_path)
        assert (grant.rule, grant.by, grant.how, grant.session) == ("pay", "ann", "api", agent.session.id)
        assert grant.channel is not None and grant.channel.endswith("remembers")
        assert ran == ["bob", "eve"]
        assert_laws(agent.session)


async def test_a_rule_that_cannot_be_kept_leaves_the_yes_for_this_once(tmp_path: Path) -> None:
    async def remembers(request: ApprovalRequest) -> Approved:
        return Approved("always")

    (tmp_path / "file").write_text("")
    agent = agent_of(remembers, cwd=tmp_path)
    agent.approvals.grants = Grants(tmp_path / "file" / "grants.toml")
    async with agent:
        await agent.run("go")
        (decided,) = agent.session.facts(ApprovalDecided)
        assert (decided.outcome, decided.rule_written, decided.scope) == ("allowed-once", None, None)
        assert decided.message is not None and decided.message.startswith("it could not be remembered: ")
        assert ran == ["bob"]
        assert_laws(agent.session)


async def test_where_a_listener_asks_nothing_is_offered_but_once() -> None:
    """A rule that allows is not heard above it: to offer one would be a promise that is not kept."""
    async with agent_of(AnswerLater()) as agent:
        agent.on.pre_execute(lambda call: Ask("sure?"), name="careful")
        receipt = agent.followup("go")
        await settled()
        (request,) = agent.approvals.pending
        assert request.options == ("once",)
        assert [(said.who, said.answer) for said in request.call.said] == [("careful", "ask")]
        agent.approvals.answer(request.id, Rejected())
        await receipt.turn()
