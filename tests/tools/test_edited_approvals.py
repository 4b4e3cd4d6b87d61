"""A yes with other arguments: the person's are checked like any others, run instead, and the model is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import Agent, ApprovalRequest, Approved, Ask, Claims, Deny, ToolCall, tool
from interlock.log.facts import ApprovalAsked, ApprovalDecided, ToolDecided, ToolResulted, ToolStarted
from interlock.log.strictjson import FrozenDict
from interlock.loop.pending import answer_pending
from interlock.policy.approval import AnswerLater
from interlock.testing import ScriptedModel, assert_laws, call, calls, says
from interlock.tools.approval import Answered
from interlock.tools.pipeline import digest_of

from .calling import codes, contexts, log, texts, write

pytestmark = pytest.mark.virtual


def asks(call: ToolCall) -> Ask:
    return Ask("sure?")


def edits(**arguments: Any) -> Callable[[ApprovalRequest], Any]:
    async def approver(request: ApprovalRequest) -> Approved:
        return Approved(arguments=arguments)

    approver.principal = "ada"  # type: ignore[attr-defined]
    return approver


def agent_of(approver: Any, **more: Any) -> Agent:
    return Agent(
        ScriptedModel(calls("write", name="a"), says("done")), tools=[write], approver=approver, **more
    )


async def test_what_a_person_wrote_runs_instead_and_the_log_has_both() -> None:
    """Story 3: `AD allowed-once(edited) TD allow recheck ST`, and a digest of its own."""
    async with agent_of(edits(name="b")) as agent:
        agent.on.pre_execute(asks)
        assert (await agent.run("go")).ok
        assert [token.split("(+")[0] for token in log(agent)] == [
            "TC c1",
            "TD c1 ask policy",
            "AA c1",
            "AD c1 allowed-once(edited)",
            "TD c1 allow recheck",
            "ST c1",
            "TR c1 ok",
            "SE 1.1 tools",
        ]
        assert texts(agent) == ["wrote b"]
        (asked,), (answered,) = agent.session.facts(ApprovalAsked), agent.session.facts(ApprovalDecided)
        (started,) = agent.session.facts(ToolStarted)
        assert (asked.effective, answered.edited) == ({"name": "a"}, {"name": "b"})
        assert asked.digest == answered.digest == digest_of("write", {"name": "a"})
        assert started.digest == digest_of("write", {"name": "b"})
        assert agent.session.facts(ToolDecided)[-1].by == "ada"
        assert_laws(agent.session)


async def test_the_model_is_told_what_it_was_changed_to() -> None:
    model = ScriptedModel(calls("write", name="a"), says("done"))
    async with Agent(model, tools=[write], approver=edits(name="b")) as agent:
        agent.on.pre_execute(lambda call: Ask("sure?", contexts=("be careful",)))
        await agent.run("go")
        (told,) = [m for m in model.requests[1].messages if m.source.name == "approval"]
        assert (told.role, told.source.kind) == ("system", "runtime")
        assert told.text == (
            "A person changed the arguments of this call of write before they allowed it. "
            'What counts is: {"name":"b"}'
        )
        assert contexts(agent) == ["be careful", told.text]


async def test_arguments_that_do_not_fit_fail_and_say_whose_they_are() -> None:
    """Whoever takes an answer refuses them; where one came in another way, nothing runs."""

    class Careless:
        available, lifetime = True, None

        def attach(self, session: Any) -> None: ...

        def options(self, call: ToolCall) -> tuple[str, ...]:
            return ("once",)

        async def ask(self, question: Any) -> Answered:
            return Answered("allowed-once", edited=FrozenDict(nom="b"))

    agent = agent_of(None)
    agent.approvals = Careless()  # type: ignore[assignment]  # as good as the original
    async with agent:
        agent.on.pre_execute(asks)
        await agent.run("go")
        assert codes(agent) == ["INVALID_ARGS"]
        assert texts(agent)[0].startswith("Error [invalid_args]: a person changed the arguments, and ")
        assert agent.session.facts(ToolStarted) == []
        assert_laws(agent.session)


async def test_rules_listeners_and_guards_look_at_them_and_a_denial_is_final() -> None:
    def no_b(call: ToolCall) -> Deny | None:
        return Deny("not b") if call.arguments["name"] == "b" else None

    async with agent_of(edits(name="b")) as agent:
        agent.on.pre_execute(asks)
        agent.on.pre_execute(no_b)
        await agent.run("go")
        assert codes(agent) == ["DENIED"]
        assert "TD c1 deny recheck" in log(agent)
        assert_laws(agent.session)
    async with agent_of(edits(name="b")) as agent:
        agent.on.pre_execute(asks)
        agent.guard(no_b)
        await agent.run("go")
        assert codes(agent) == ["GUARD_DENIED"]
        assert_laws(agent.session)


async def test_whoever_asks_about_them_has_been_answered_by_the_person_who_wrote_them() -> None:
    shown: list[str] = []

    async def approver(request: ApprovalRequest) -> Approved:
        shown.append(request.arguments["name"])
        return Approved(arguments={"name": "b"})

    async with agent_of(approver) as agent:
        agent.on.pre_execute(lambda call: Ask(f"{call.arguments['name']}?"))
        await agent.run("go")
        assert texts(agent) == ["wrote b"]
        decided = agent.session.facts(ToolDecided)[-1]
        assert (decided.stage, decided.verdict) == ("recheck", "allow")
        assert [(said.answer, said.reason) for said in decided.said] == [("ask", "b?")]
    assert shown == ["a"]


async def test_what_they_touch_counts_from_then_on() -> None:
    """D-17: an edited call that touches more waits for the others, as any that became stricter."""
    order: list[str] = []

    @tool(concurrency=lambda call: Claims(writes=[call.arguments["path"]]))
    async def save(path: str, by: str) -> str:
        order.append(f"{by} begins")
        await asyncio.sleep(1)
        order.append(f"{by} ends")
        return by

    async def approver(request: ApprovalRequest) -> Approved:
        return Approved(arguments={"path": "b", "by": "edited"})

    wanted = calls(call("save", path="a", by="asked"), call("save", path="b", by="other"))
    async with Agent(ScriptedModel(wanted, says("done")), tools=[save], approver=approver) as agent:
        agent.on.pre_execute(lambda call: Ask("sure?") if call.arguments["by"] == "asked" else None)
        await agent.run("go")
        assert_laws(agent.session)
    assert order == ["other begins", "other ends", "edited begins", "edited ends"]


async def test_they_survive_the_process_that_took_them() -> None:
    """D-23: put on record by one process, checked and run by the next."""
    store = BrittleStore()

    async def nobody(request: ApprovalRequest) -> Approved:
        raise AssertionError("it is answered")

    model = ScriptedModel(calls("write", name="a"))
    async with Agent(model, tools=[write], store=store, approver=AnswerLater()) as agent:
        agent.on.pre_execute(asks)
        agent.followup("go")
        await asyncio.sleep(1)
        session = agent.session.id
        (approval,) = agent.session.state.approvals
    answered = Answered("allowed-once", None, "ada", "token", "cli", FrozenDict(name="b"))
    await answer_pending(session, approval, answered, store=store)
    agent = Agent(ScriptedModel(says("done")), tools=[write], store=store, session=session, approver=nobody)
    async with agent:
        agent.on.pre_execute(lambda call: Deny("not a") if call.arguments["name"] == "a" else None)
        await agent.idle()
        assert texts(agent) == ["wrote b"]
        assert '{"name":"b"}' in contexts(agent)[0]
        assert agent.session.facts(ToolResulted)[0].error is None
        assert_laws(agent.session)
