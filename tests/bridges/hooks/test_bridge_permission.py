"""PermissionRequest in an agent's run: hooks answer before people are asked, or leave it to them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from interlock import Agent, ApprovalRequest, Approved, Ask, Deny, Rejected, ToolCall, tool
from interlock.bridges.hooks import event as happening
from interlock.bridges.hooks.event import Occurrence
from interlock.bridges.hooks.verdict import Answer, InputChange, PermissionAnswer
from interlock.log.facts import ApprovalDecided, HookProblem
from interlock.log.reasons import Aborted
from interlock.testing import ScriptedModel, assert_laws, call, calls, outline, says

from .scripted_hooks import Recorder, hooked, said, told

pytestmark = pytest.mark.virtual
ran: list[str] = []


@tool
async def write(name: str) -> str:
    ran.append(name)
    return f"wrote {name}"


@pytest.fixture(autouse=True)
def _nothing_ran() -> None:
    ran.clear()


class Person:
    """Says yes to everything, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    async def __call__(self, request: ApprovalRequest) -> Approved | Rejected:
        self.asked.append(dict(request.arguments))
        return Approved()


def asking(*wanted: Any, person: Person | None = None) -> Agent:
    model = ScriptedModel(calls(*(wanted or (call("write", name="a"),))), says("done"))
    agent = Agent(model, tools=[write], approver=person)
    agent.on.pre_execute(lambda call: Ask("may it write?"), name="rule")
    return agent


def answers(behavior: Any, message: str = "", **more: Any) -> Any:
    return said(decision=PermissionAnswer(behavior, message, **more))


async def test_a_hook_that_allows_spares_the_person_and_is_on_record_as_a_hook() -> None:
    person = Person()
    agent = asking(person=person)
    hooked(agent, PermissionRequest=[answers("allow")])
    async with agent:
        await agent.run("go")
        assert (ran, person.asked) == (["a"], [])
        [decided] = agent.session.facts(ApprovalDecided)
        assert (decided.outcome, decided.how, decided.channel, decided.by) == (
            "allowed-once",
            "hook",
            "hooks",
            "hooks",
        )
        assert told(agent) == ["+ PermissionRequest-1 {'decision': 'allow'}"]
        assert_laws(agent.session)


async def test_nobody_else_need_be_there() -> None:
    agent = asking()
    hooked(agent, PermissionRequest=[answers("allow")])
    async with agent:
        await agent.run("go")
    assert ran == ["a"]


async def test_a_denial_is_told_to_the_model_and_beats_an_allow() -> None:
    agent = asking(person=Person())
    hooked(agent, PermissionRequest=[answers("allow"), answers("deny", "not on Fridays")])
    async with agent:
        await agent.run("go")
        assert outline(agent.session, "tool/result") == [
            "tool/result #c1 error APPROVAL_REJECTED not on Fridays"
        ]
        assert ran == []


async def test_without_an_answer_the_person_is_asked_and_hooks_are_told_of_it() -> None:
    person, notice = Person(), Recorder()
    agent = asking(person=person)
    hooked(agent, PermissionRequest=[said()], Notification=[notice])
    async with agent:
        await agent.run("go")
    assert (ran, person.asked) == (["a"], [{"name": "a"}])
    first = notice.seen[0]
    assert (first.notification_type, first.message) == ("permission_prompt", "write: may it write?")


async def test_without_permission_hooks_the_notice_comes_with_the_question() -> None:
    notice = Recorder()
    agent = asking(person=Person())
    hooked(agent, Notification=[notice])
    async with agent:
        await agent.run("go")
    assert notice.seen[0].notification_type == "permission_prompt"


async def test_there_is_no_notice_where_nobody_is_asked() -> None:
    notice = Recorder()
    agent = asking()
    hooked(agent, Notification=[notice])
    async with agent:
        await agent.run("go")
    assert [what.notification_type for what in notice.seen] == ["agent_completed"]


async def test_edited_arguments_run_and_are_held_to_the_rules_again() -> None:
    agent = asking()
    hooked(agent, PermissionRequest=[answers("allow", input=InputChange({"name": "b"}))])
    async with agent:
        await agent.run("go")
        assert ran == ["b"]
        [decided] = agent.session.facts(ApprovalDecided)
        assert decided.edited == {"name": "b"}
        assert_laws(agent.session)

    def never_c(call: ToolCall) -> Deny | None:
        return Deny("never c") if call.arguments["name"] == "c" else None

    agent = asking()
    agent.on.pre_execute(never_c)
    hooked(agent, PermissionRequest=[answers("allow", input=InputChange({"name": "c"}))])
    async with agent:
        await agent.run("go")
        assert ran == ["b"]
        assert "never c" in outline(agent.session, "tool/result")[0]


async def test_a_denial_with_interrupt_ends_the_turn() -> None:
    agent = asking(call("write", name="a"), call("write", name="b"))
    hooked(agent, PermissionRequest=[answers("deny", "stop it", interrupt=True)])
    async with agent:
        reason = (await agent.run("go")).reason
        assert isinstance(reason, Aborted) and reason.cause.kind == "hook"
        assert reason.cause.reason == "stop it"
        assert ran == []
        assert_laws(agent.session)


async def test_a_stop_beats_an_allow() -> None:
    agent = asking()
    hooked(agent, PermissionRequest=[answers("allow"), said(stop="enough")])
    async with agent:
        assert isinstance((await agent.run("go")).reason, Aborted)
        assert ran == []


async def test_one_that_fails_means_no() -> None:
    def fail(occurrence: Occurrence) -> Answer:
        raise OSError("it is gone")

    person = Person()
    agent = asking(person=person)
    hooked(agent, PermissionRequest=[fail])
    async with agent:
        await agent.run("go")
    assert (ran, person.asked) == ([], [])


async def test_a_cancel_while_the_hook_thinks_ends_it() -> None:
    async def slow(occurrence: Occurrence) -> Answer:
        agent.cancel()
        await asyncio.sleep(100)
        return Answer(decision=PermissionAnswer("allow"))

    agent = asking()
    hooked(agent, PermissionRequest=[slow])
    async with agent:
        await agent.run("go")
        assert asyncio.get_running_loop().time() < 1
        assert ran == []
        assert_laws(agent.session)


async def test_it_is_told_what_would_run() -> None:
    hook = Recorder()
    agent = asking(person=Person())
    hooked(
        agent,
        PreToolUse=[said(input=InputChange({"name": "b"}))],
        PermissionRequest=[hook],
    )
    async with agent:
        await agent.run("go")
    assert hook.seen == [happening.PermissionRequest(tool="write", tool_use_id="c1", input={"name": "b"})]


OFFERED = {
    "type": "addRules",
    "behavior": "allow",
    "rules": [{"toolName": "write", "ruleContent": "name:a"}],
    "destination": "session",
}


@pytest.mark.parametrize(
    ("update", "written"),
    [
        (OFFERED, "write(name:a)"),
        (OFFERED | {"rules": [{"toolName": "write"}]}, None),
        (OFFERED | {"behavior": "deny"}, None),
        ({"type": "setMode", "mode": "bypassPermissions"}, None),
    ],
    ids=["the offered rule", "a wider rule", "a denial", "a mode"],
)
async def test_a_hook_may_write_the_rule_that_was_offered_and_no_other(
    update: dict[str, Any], written: str | None
) -> None:
    agent = Agent(ScriptedModel(calls("write", name="a"), says("done")), tools=[write], preset="ask")
    agent.approvals.propose = lambda call: "write(name:a)"
    hooked(agent, PermissionRequest=[answers("allow", updates=(update,))])
    async with agent:
        await agent.run("go")
        assert ran == ["a"]
        [decided] = agent.session.facts(ApprovalDecided)
        assert decided.rule_written == written
        assert len(agent.session.facts(HookProblem)) == (written is None)
        assert_laws(agent.session)
