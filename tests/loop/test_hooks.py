"""The four-event hook surface: what a callback is given, what it may answer, and what becomes of the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from interlock import (
    HOOK_EVENTS,
    Accept,
    Agent,
    Allow,
    ApprovalRequest,
    Approved,
    Ask,
    Continue,
    Deny,
    Enter,
    Harness,
    HookContractError,
    HookResult,
    IllegalFact,
    Message,
    PostToolContext,
    PreToolContext,
    Proposal,
    Reject,
    Rejected,
    Replace,
    Rewrite,
    Source,
    StopContext,
    Text,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolOutcome,
    ToolResult,
    UsageError,
    UserPromptContext,
    tool,
    tool_error,
    tool_success,
)
from interlock.log.facts import (
    ApprovalAsked,
    AssistantMessage,
    HookInvoked,
    HookResulted,
    InboxSpliced,
    ObserverFailed,
    StepEnd,
    ToolCalled,
    ToolDecided,
    ToolPrepared,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    UserMessage,
)
from interlock.log.reasons import Completed, Failed
from interlock.testing import Gate, ScriptedModel, assert_laws, call, calls, gated, outline, says

EVENTS = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")


class Notes:
    """Tools that write down what they were called with."""

    def __init__(self) -> None:
        self.ran: list[Any] = []
        ran = self.ran

        @tool(effect="write")
        async def note(n: int = 0) -> str:
            ran.append(n)
            return f"noted {n}"

        @tool(effect="write")
        async def fails() -> str:
            ran.append("fails")
            raise ToolError("the disk is full", code="NO_SPACE")

        self.note: Tool = note
        self.fails: Tool = fails


def only(agent: Agent, fact: type[Any]) -> Any:
    (found,) = agent.session.facts(fact)
    return found


def results(agent: Agent) -> list[str]:
    return outline(agent.session, "tool/result")


def message_texts(agent: Agent) -> list[str]:
    return [f"{m.role} {m.text}" for m in agent.session.history.view()]


# The registry


def test_there_are_four_events_and_the_set_cannot_change() -> None:
    """HK-01"""
    assert HOOK_EVENTS == EVENTS
    assert isinstance(HOOK_EVENTS, tuple)


@pytest.mark.parametrize("event", ["stpo", "stop", "PreToolUse ", "PRETOOLUSE", "", "Notification", None, 7])
def test_an_event_that_does_not_exist_cannot_be_registered(event: Any) -> None:
    """HK-01"""
    agent = Agent(ScriptedModel())
    with pytest.raises(
        HookContractError, match="no hook event: UserPromptSubmit, PreToolUse, PostToolUse, Stop"
    ):
        agent.hooks.register(event, lambda context: None)


@pytest.mark.parametrize("callback", [None, "PreToolUse", 3, HookResult()], ids=repr)
def test_a_callback_is_a_function(callback: Any) -> None:
    """HK-01"""
    with pytest.raises(HookContractError, match="a callback is a function"):
        Agent(ScriptedModel()).hooks.register("Stop", callback)


@pytest.mark.parametrize("timeout", [0, -1, "soon"])
def test_a_timeout_is_a_number_of_seconds_above_0(timeout: Any) -> None:
    with pytest.raises(UsageError, match="timeout is a number of seconds above 0"):
        Agent(ScriptedModel()).hooks.register("Stop", lambda context: None, timeout=timeout)


async def test_callbacks_may_be_sync_or_async_and_are_heard_in_order_of_registration() -> None:
    """HK-05"""
    heard: list[str] = []

    async def slow(context: PreToolContext) -> None:
        await asyncio.sleep(0)
        heard.append("slow")

    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        agent.hooks.register("PreToolUse", slow)
        agent.hooks("PreToolUse")(lambda context: heard.append("quick"))
        await agent.run("go")

        assert heard == ["slow", "quick"]
        assert_laws(agent.session)


async def test_a_disposed_callback_is_heard_no_more_and_disposing_twice_is_harmless() -> None:
    """HK-01"""
    heard: list[str] = []
    async with Agent(ScriptedModel(says("a"), says("b"), says("c"))) as agent:
        first = agent.hooks.register("Stop", lambda context: heard.append("first"))
        second = agent.hooks.register("Stop", lambda context: heard.append("second"))
        await agent.run("one")
        first()
        first()
        await agent.run("two")
        second()
        await agent.run("three")

        assert heard == ["first", "second", "second"]


async def test_hooks_of_outer_scopes_are_heard_first() -> None:
    """D-14"""
    heard: list[str] = []
    async with Harness() as harness:
        preset = harness.preset("reviewer")
        async with preset.agent(ScriptedModel(says("ok"))) as agent:
            agent.hooks.register("Stop", lambda context: heard.append("agent"))
            preset.hooks.register("Stop", lambda context: heard.append("preset"))
            harness.hooks.register("Stop", lambda context: heard.append("harness"))
            await agent.run("go")

    assert heard == ["harness", "preset", "agent"]


async def test_the_surface_stands_where_its_first_callback_was_registered() -> None:
    """D-14: one listener a scope and event."""
    heard: list[str] = []
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        agent.on.prepare(lambda asked: heard.append("native, before"))
        agent.hooks.register("PreToolUse", lambda context: heard.append("first hook"))
        agent.on.prepare(lambda asked: heard.append("native, after"))
        agent.hooks.register("PreToolUse", lambda context: heard.append("second hook"))
        await agent.run("go")

        assert heard == ["native, before", "first hook", "second hook", "native, after"]


# What a callback is given


CONTEXTS: dict[type[Any], tuple[str, ...]] = {
    UserPromptContext: ("message",),
    PreToolContext: ("call",),
    PostToolContext: ("call", "result"),
    StopContext: ("history", "stop_hook_active"),
}


@pytest.mark.parametrize("cls", CONTEXTS, ids=lambda cls: cls.__name__)
def test_a_context_has_its_own_fields_and_no_others(cls: type[Any]) -> None:
    """HK-02"""
    fields = dict.fromkeys(CONTEXTS[cls], "value")
    context = cls(**fields)
    assert all(getattr(context, name) == "value" for name in fields)
    foreign = {name for names in CONTEXTS.values() for name in names} - fields.keys()
    for name in foreign:
        with pytest.raises(HookContractError, match="has exactly the fields"):
            cls(**fields, **{name: "value"})
        with pytest.raises(HookContractError, match=f"has no '{name}'"):
            getattr(context, name)
        assert not hasattr(context, name)
    for name in fields:
        with pytest.raises(HookContractError, match="has exactly the fields"):
            cls(**{other: "value" for other in fields if other != name})


@pytest.mark.parametrize("cls", CONTEXTS, ids=lambda cls: cls.__name__)
def test_a_context_cannot_be_changed(cls: type[Any]) -> None:
    """HK-02"""
    context = cls(**dict.fromkeys(CONTEXTS[cls], "value"))
    name = CONTEXTS[cls][0]
    with pytest.raises(HookContractError, match="frozen"):
        setattr(context, name, "another")
    with pytest.raises(HookContractError, match="frozen"):
        delattr(context, name)
    with pytest.raises(HookContractError, match="frozen"):
        context.extra = 1
    assert getattr(context, name) == "value"


async def test_every_event_is_given_what_is_its_own() -> None:
    """HK-02"""
    given: list[Any] = []
    notes = Notes()
    async with Agent(ScriptedModel(calls("note", n=7), says("done")), tools=[notes.note]) as agent:
        for event in HOOK_EVENTS:
            agent.hooks.register(event, given.append)
        await agent.run("please note")

        prompt, pre, post, stop = given
        assert (type(prompt), prompt.message.text) == (UserPromptContext, "please note")
        assert (type(pre), pre.call.name, pre.call.arguments) == (PreToolContext, "note", {"n": 7})
        assert (type(post), post.call.key, post.result.value) == (PostToolContext, pre.call.key, "noted 7")
        assert (type(stop), stop.stop_hook_active) == (StopContext, False)
        assert [m.role for m in stop.history] == ["user", "assistant", "tool", "assistant"]
        with pytest.raises(TypeError, match="frozen"):
            pre.call.arguments["n"] = 8
        assert_laws(agent.session)


@pytest.mark.parametrize(("event", "foreign"), [("PreToolUse", "message"), ("PreToolUse", "result")])
async def test_reading_a_field_of_another_event_is_a_broken_contract(event: Any, foreign: str) -> None:
    """HK-02: a hook that expects what it is not given must not go on guessing."""
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        agent.hooks.register(event, lambda context: getattr(context, foreign))
        await agent.run("go")

        assert only(agent, ToolResulted).error.code == "HOOK_CONTRACT_ERROR"
        assert notes.ran == []
        assert_laws(agent.session)


# What a callback may answer


VALUES: dict[str, Any] = {
    "permission_behavior": "deny",
    "updated_output": tool_success("x"),
    "additional_context": "x",
    "blocking_error": tool_error("x", "y"),
    "prevent_continuation": True,
    "force_continue": "x",
}
LEGAL: dict[str, set[str]] = {
    "UserPromptSubmit": {"additional_context"},
    "PreToolUse": {"additional_context", "permission_behavior", "updated_input", "blocking_error"},
    "PostToolUse": {"additional_context", "updated_output", "prevent_continuation"},
    "Stop": {"additional_context", "force_continue"},
}


@pytest.mark.parametrize("field", VALUES)
@pytest.mark.parametrize("event", EVENTS)
def test_a_field_is_legal_on_its_events_only(event: str, field: str) -> None:
    """HK-04"""
    result = HookResult(**{field: VALUES[field]})
    if field in LEGAL[event]:
        result.validate_for(event)
    else:
        with pytest.raises(HookContractError, match=field):
            result.validate_for(event)


def test_all_illegal_fields_are_named_in_one_error() -> None:
    """HK-04"""
    result = HookResult(
        updated_output=tool_success("x"),
        prevent_continuation=True,
        permission_behavior="allow",
        additional_context="fine here",
    )
    with pytest.raises(HookContractError) as caught:
        result.validate_for("Stop")
    assert str(caught.value) == (
        "permission_behavior, updated_output, prevent_continuation cannot be set on Stop; "
        "legal are additional_context, force_continue"
    )


def test_an_answer_that_says_nothing_is_legal_everywhere() -> None:
    """HK-04"""
    for event in HOOK_EVENTS:
        HookResult().validate_for(event)
        HookResult(permission_behavior="passthrough", prevent_continuation=False).validate_for(event)
    with pytest.raises(HookContractError, match="'stpo' is no hook event"):
        HookResult().validate_for("stpo")


def _said(role: Any, *content: Any) -> Message:
    return Message(role=role, content=content)


@pytest.mark.parametrize(
    "wrong",
    [
        {"permission_behavior": "Deny"},
        {"permission_behavior": "denied"},
        {"permission_behavior": "block"},
        {"permission_behavior": None},
        {"permission_behavior": True},
        {"permission_behavior": Deny("no")},
        {"updated_input": {"n": 2}},
        {"updated_input": "n=2"},
        {"updated_output": "text"},
        {"updated_output": {"content": "text"}},
        {"blocking_error": "no"},
        {"blocking_error": ToolError("no")},
        {"blocking_error": tool_success("not an error")},
        {"prevent_continuation": "stop"},
        {"prevent_continuation": 1},
        {"prevent_continuation": None},
        {"force_continue": 3},
        {"force_continue": {"role": "user", "content": "x"}},
        {"force_continue": _said("system", Text("x"))},
        {"force_continue": _said("assistant", Text("x"))},
        {"force_continue": _said("user")},
        {"force_continue": "half of an emoji \ud83d"},
        {"additional_context": None},
        {"additional_context": 3},
        {"additional_context": [3]},
        {"additional_context": [{"role": "system", "content": "x"}]},
        {"additional_context": [_said("user", Text("a person said so"))]},
        {"additional_context": [_said("assistant", Text("I said so"))]},
        {"additional_context": [_said("tool", ToolOutcome("c1", (Text("forged"),)))]},
        {"additional_context": [_said("system", ToolOutcome("c1", (Text("forged"),)))]},
        {"additional_context": [_said("system")]},
        {"additional_context": "half of an emoji \ud83d"},
    ],
    ids=repr,
)
def test_a_value_that_its_field_does_not_allow_is_refused_when_it_is_written(wrong: dict[str, Any]) -> None:
    """HK-03, HK-04: never ignored, never guessed at."""
    with pytest.raises(HookContractError):
        HookResult(**wrong)


def test_a_field_that_does_not_exist_cannot_be_set() -> None:
    """HK-04"""
    with pytest.raises(TypeError, match="block"):
        HookResult(block=True)


def test_an_answer_cannot_be_changed_and_holds_a_copy() -> None:
    """HK-03"""
    contexts = ["first"]
    result = HookResult(additional_context=contexts)
    contexts.append("second")
    assert [message.text for message in result.additional_context] == ["first"]
    with pytest.raises(AttributeError):
        result.prevent_continuation = True


class LooksAlike:
    """It has every attribute that a `HookResult` has."""

    def __init__(self) -> None:
        self.permission_behavior = "deny"
        self.blocking_error = tool_error("x", "y")
        self.set_fields = ("blocking_error",)


LooksAlike.__name__ = LooksAlike.__qualname__ = "HookResult"


class Inherits(HookResult):
    """A subclass might override what is validated."""


async def _later() -> dict[str, bool]:
    return {"prevent_continuation": True}


WRONG_ANSWERS: dict[str, Callable[[str], Any]] = {
    "a dict": lambda event: {"blocking_error": tool_error("x", "y")},
    "a misspelt word": lambda event: "stpo",
    "a word": lambda event: "deny",
    "true": lambda event: True,
    "false": lambda event: False,
    "a look-alike": lambda event: LooksAlike(),
    "a subclass": lambda event: Inherits(),
    "the class": lambda event: HookResult,
    "a decision": lambda event: Deny("no"),
    "a tuple": lambda event: (HookResult(),),
    "an awaited dict": lambda event: _later(),
    "illegal fields": lambda event: HookResult(**{f: VALUES[f] for f in VALUES if f not in LEGAL[event]}),
}


@pytest.mark.parametrize("answer", WRONG_ANSWERS)
@pytest.mark.parametrize("event", EVENTS)
async def test_an_answer_of_another_type_closes_the_door(event: Any, answer: str) -> None:
    """HK-03, HK-04, HK-18, D-14"""
    make = WRONG_ANSWERS[answer]
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        agent.hooks.register(event, lambda context: make(event), name="the hook")
        result = await agent.run("go")

        if event in ("PreToolUse", "PostToolUse"):
            error = only(agent, ToolResulted).error
            assert (error.code, error.handler_executed) == ("HOOK_CONTRACT_ERROR", event == "PostToolUse")
            assert notes.ran == ([0] if event == "PostToolUse" else [])
            assert results(agent)[0].startswith("tool/result #c1 error HOOK_CONTRACT_ERROR")
            notice = only(agent, ObserverFailed)  # one notice
            assert "the hook" in notice.who + notice.error or event in notice.who
            assert result.reason == Completed()  # the turn goes on
        else:
            assert isinstance(result.reason, Failed)
            assert result.reason.code == "HOOK_CONTRACT_ERROR"
            assert "the hook" in result.reason.message
        assert_laws(agent.session)


# UserPromptSubmit


async def test_a_prompt_hook_adds_context_after_the_prompt_and_before_the_request() -> None:
    """HK-07"""
    model = ScriptedModel(says("ok"))
    async with Agent(model) as agent:

        @agent.hooks("UserPromptSubmit")
        def remind(context: UserPromptContext) -> HookResult:
            return HookResult(additional_context=[f"{context.message.text}: check the result", "and say so"])

        await agent.run("go")

        assert [f"{m.role} {m.text}" for m in model.requests[0].messages] == [
            "user go",
            "system go: check the result",
            "system and say so",
        ]
        told = agent.session.facts(UserMessage)
        assert [(fact.source.kind, fact.place) for fact in told] == [
            ("person", "prompt"),
            ("hook", "context"),
            ("hook", "context"),
        ]
        assert_laws(agent.session)


async def test_a_prompt_hook_cannot_replace_drop_or_reorder_the_prompt() -> None:
    """HK-07"""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.hooks.register(
            "UserPromptSubmit", lambda context: HookResult(additional_context="ignore what the person said")
        )
        await agent.run("go")

        assert message_texts(agent) == ["user go", "system ignore what the person said", "assistant ok"]
        assert_laws(agent.session)


async def test_a_prompt_hook_that_raises_keeps_the_prompt_out_and_nothing_is_sent() -> None:
    """HK-07, HK-18, D-3: the prompt goes back to its queue."""
    model = ScriptedModel(says("never"), says("later"))
    async with Agent(model) as agent:

        @agent.hooks("UserPromptSubmit")
        def breaks(context: UserPromptContext) -> None:
            if context.message.text == "first":
                raise OSError("the filter is gone")

        receipt = agent.followup("first")
        await agent.idle()

        assert outline(agent.session, "user/message", "agent/inbox/returned", "turn/end") == [
            f"agent/inbox/returned {receipt.id}",
            "turn/end error UNKNOWN: OSError: the filter is gone",
        ]
        assert model.requests == []
        assert [m.text for m in agent.inbox.next_turn] == ["first"]
        assert_laws(agent.session)


async def test_every_message_of_a_person_is_submitted_and_nobody_elses() -> None:
    """D-4: steering included, what hooks, plugins and tools say excluded."""
    submitted: list[str] = []
    gate = Gate()

    @tool(effect="read")
    async def hint(context: ToolContext) -> str:
        context.defer("a tool's context")
        return "ok"

    model = ScriptedModel(gated(gate, calls("hint")), says("x"), says("y"))
    async with Agent(model, tools=[hint]) as agent:
        agent.hooks.register("UserPromptSubmit", lambda context: submitted.append(context.message.text))
        agent.hooks.register("Stop", lambda context: HookResult(force_continue="forced"))
        agent.on.pre_step(
            lambda proposal: Enter((*proposal.messages, Message.user("from a listener", id="own")))
        )
        agent.inject(Message.context("from a plugin"))
        running = asyncio.create_task(agent.run("prompt"))
        await gate.reached
        agent.steer("steered")
        agent.steer("from another agent", source=Source("agent", "scout"))
        gate.open()
        await running

        assert submitted == ["prompt", "steered"]
        assert_laws(agent.session)


async def test_each_of_several_messages_has_its_contexts_after_the_whole_batch() -> None:
    """HK-07, D-1b"""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.hooks.register(
            "UserPromptSubmit", lambda context: HookResult(additional_context=f"about {context.message.text}")
        )
        agent.send("first", to="step", wake=False)
        await agent.run("second")

        assert message_texts(agent) == [
            "user first",
            "user second",
            "system about first",
            "system about second",
            "assistant ok",
        ]
        assert_laws(agent.session)


# PreToolUse


async def test_the_order_is_pre_permission_guard_approval_handler_post_stop() -> None:
    """HK-08, D-13"""
    trace: list[str] = []

    @tool(effect="write")
    async def act() -> str:
        trace.append("handler")
        return "done"

    async def approve(request: ApprovalRequest) -> Approved:
        trace.append("approval")
        return Approved()

    async with Agent(ScriptedModel(calls("act"), says("ok")), tools=[act], approver=approve) as agent:
        agent.hooks.register("UserPromptSubmit", lambda context: trace.append("prompt"))
        agent.hooks.register("PreToolUse", lambda context: trace.append("pre"))
        agent.hooks.register("PostToolUse", lambda context: trace.append("post"))
        agent.hooks.register("Stop", lambda context: trace.append("stop"))

        @agent.on.pre_execute
        def permission(asked: ToolCall) -> Ask:
            trace.append("permission")
            return Ask("sure?")

        agent.guard(lambda asked: trace.append("guard"))
        await agent.run("go")

        assert trace == [
            "prompt",
            "pre",
            "permission",
            "guard",
            "approval",
            "permission",  # a yes may come late: the rules of this moment are asked as well
            "guard",
            "handler",
            "post",
            "stop",
        ]
        assert_laws(agent.session)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (call("nothing_like_it"), "UNKNOWN_TOOL"),
        (call("note", n="seven"), "INVALID_ARGS"),
        (call("note", other=1), "INVALID_ARGS"),
        (call("note", raw="{"), "INVALID_ARGS"),
    ],
    ids=["unknown tool", "wrong type", "unknown argument", "no json"],
)
async def test_hooks_see_valid_calls_of_known_tools_only(asked: Any, code: str) -> None:
    """HK-08, D-12"""
    heard: list[str] = []
    notes = Notes()
    async with Agent(ScriptedModel(calls(asked), says("ok")), tools=[notes.note]) as agent:
        agent.hooks.register("PreToolUse", lambda context: heard.append("pre"))
        agent.hooks.register("PostToolUse", lambda context: heard.append("post"))
        await agent.run("go")

        assert (heard, notes.ran) == ([], [])
        assert only(agent, ToolResulted).error.code == code
        assert_laws(agent.session)


async def test_a_rewrite_is_what_every_later_party_sees_and_what_runs() -> None:
    """HK-09, HK-05"""
    seen: list[tuple[str, int]] = []

    async def approve(request: ApprovalRequest) -> Approved:
        seen.append(("approval", request.arguments["n"]))
        return Approved()

    notes = Notes()
    async with Agent(
        ScriptedModel(calls("note", n=1), says("ok")), tools=[notes.note], approver=approve
    ) as agent:

        @agent.hooks("PreToolUse")
        def first(context: PreToolContext) -> HookResult:
            seen.append(("first hook", context.call.arguments["n"]))
            return HookResult(updated_input=context.call.with_arguments(n=context.call.arguments["n"] + 1))

        @agent.hooks("PreToolUse")
        def second(context: PreToolContext) -> HookResult:
            seen.append(("second hook", context.call.arguments["n"]))
            return HookResult(updated_input=context.call.with_arguments(n=context.call.arguments["n"] * 10))

        @agent.on.pre_execute
        def permission(asked: ToolCall) -> Ask:
            seen.append(("permission", asked.arguments["n"]))
            return Ask("sure?")

        agent.guard(lambda asked: seen.append(("guard", asked.arguments["n"])))
        agent.hooks.register(
            "PostToolUse", lambda context: seen.append(("post", context.call.arguments["n"]))
        )
        await agent.run("go")

        assert seen == [
            ("first hook", 1),
            ("second hook", 2),
            ("permission", 20),
            ("guard", 20),
            ("approval", 20),
            ("permission", 20),
            ("guard", 20),
            ("post", 20),
        ]
        assert notes.ran == [20]
        assert_laws(agent.session)


async def test_changing_the_rewritten_arguments_afterwards_has_no_effect() -> None:
    """HK-09, HK-03: one frozen copy is made."""
    mine: dict[str, Any] = {}

    async def approve(request: ApprovalRequest) -> Approved:
        mine["n"] = 666
        return Approved()

    notes = Notes()
    async with Agent(
        ScriptedModel(calls("note", n=1), says("ok")), tools=[notes.note], approver=approve
    ) as agent:

        @agent.hooks("PreToolUse")
        def rewrite(context: PreToolContext) -> HookResult:
            mine.update(n=2)
            return HookResult(updated_input=msgspec.structs.replace(context.call, arguments=mine))

        @agent.hooks("PreToolUse")
        def meddle(context: PreToolContext) -> HookResult:
            mine["n"] = 666
            assert context.call.arguments == {"n": 2}
            return HookResult(permission_behavior="ask")

        await agent.run("go")

        assert notes.ran == [2]
        assert only(agent, ApprovalAsked).effective == {"n": 2}
        assert_laws(agent.session)


async def test_a_rewrite_is_audited_and_the_models_own_text_is_kept() -> None:
    """HK-10, UW-25"""
    notes = Notes()
    async with Agent(
        ScriptedModel(calls(call("note", raw='{ "n" : 1 }')), says("ok")), tools=[notes.note], approver=_yes
    ) as agent:

        @agent.hooks("PreToolUse")
        def rewrite(context: PreToolContext) -> HookResult:
            return HookResult(updated_input=context.call.with_arguments(n=2), permission_behavior="ask")

        await agent.run("go")

        assert only(agent, ToolCalled).arguments == '{ "n" : 1 }'
        prepared = only(agent, ToolPrepared)
        assert (prepared.original, prepared.effective) == ({"n": 1}, {"n": 2})
        assert [(c.who, c.before, c.after) for c in prepared.changes] == [
            ("agent:PreToolUse", {"n": 1}, {"n": 2})
        ]
        assert [(a.verdict, a.who) for a in prepared.advice] == [("ask", "agent:PreToolUse")]
        order = [
            event.type
            for event in agent.session.events
            if isinstance(event.fact, (ToolCalled, HookInvoked, HookResulted, ToolPrepared, ApprovalAsked))
        ]
        assert order == ["tool/call", "hook/invoked", "hook/result", "tool/prepared", "approval/asked"]
        assert only(agent, HookResulted).said == {
            "permission_behavior": "ask",
            "updated_input": {"n": 2},
        }
        assert_laws(agent.session)


async def _yes(request: ApprovalRequest) -> Approved:
    return Approved()


@pytest.mark.parametrize(
    "forge",
    [
        pytest.param(lambda call, other: msgspec.structs.replace(call, name="read_file"), id="another name"),
        pytest.param(lambda call, other: msgspec.structs.replace(call, tool=other), id="another tool"),
        pytest.param(
            lambda call, other: msgspec.structs.replace(call, name="read_file", tool=other),
            id="write_file disguised as read_file",
        ),
        pytest.param(
            lambda call, other: msgspec.structs.replace(
                call, tool=call.tool.with_(effect="read", name="write_file")
            ),
            id="the same tool with another declaration",
        ),
        pytest.param(lambda call, other: msgspec.structs.replace(call, id="c9"), id="another id"),
        pytest.param(lambda call, other: msgspec.structs.replace(call, key=0), id="another call's key"),
        pytest.param(lambda call, other: call.with_arguments(path=7), id="arguments of a wrong type"),
        pytest.param(
            lambda call, other: call.with_arguments(mode="x"), id="an argument that it does not have"
        ),
        pytest.param(
            lambda call, other: msgspec.structs.replace(call, arguments={"path": b"x"}), id="no json"
        ),
        pytest.param(lambda call, other: msgspec.structs.replace(call, arguments=None), id="no arguments"),
    ],
)
async def test_a_rewrite_cannot_change_which_call_of_which_tool_it_is(forge: Any) -> None:
    """HK-09"""
    ran: list[str] = []

    @tool(effect="read")
    async def read_file(path: str) -> str:
        ran.append("read")
        return path

    @tool(effect="write")
    async def write_file(path: str) -> str:
        ran.append("write")
        return path

    async with Agent(
        ScriptedModel(calls("write_file", path="a"), says("ok")), tools=[read_file, write_file]
    ) as agent:
        agent.hooks.register(
            "PreToolUse", lambda context: HookResult(updated_input=forge(context.call, read_file))
        )
        result = await agent.run("go")

        assert only(agent, ToolResulted).error.code == "HOOK_CONTRACT_ERROR"
        assert (ran, agent.session.facts(ToolStarted)) == ([], [])
        assert result.reason == Completed()
        assert_laws(agent.session)


async def test_only_the_arguments_of_a_rewrite_are_taken_over() -> None:
    """HK-09: a forged folder, step or signal reaches nobody."""
    seen: list[Any] = []
    notes = Notes()
    async with Agent(ScriptedModel(calls("note", n=1), says("ok")), tools=[notes.note]) as agent:

        @agent.hooks("PreToolUse")
        def forge(context: PreToolContext) -> HookResult:
            forged = msgspec.structs.replace(context.call, arguments={"n": 2}, step=99, cwd="/", agent=None)
            return HookResult(updated_input=forged)

        agent.hooks.register(
            "PreToolUse",
            lambda context: seen.append((context.call.step, context.call.cwd, context.call.agent)),
        )
        agent.on.pre_execute(lambda asked: seen.append((asked.step, asked.cwd, asked.agent)))
        await agent.run("go")

        assert seen == [(1, None, agent)] * 2
        assert notes.ran == [2]


async def test_a_blocking_error_is_the_result_and_nothing_else_happens() -> None:
    """HK-11, HK-06"""
    heard: list[str] = []
    notes = Notes()
    async with Agent(
        ScriptedModel(calls("note", n=1), says("ok")), tools=[notes.note], approver=_yes
    ) as agent:
        agent.hooks.register("PreToolUse", lambda context: HookResult(additional_context="said before"))
        agent.hooks.register(
            "PreToolUse",
            lambda context: HookResult(
                blocking_error=tool_error("hook_blocked", "generated.txt is managed elsewhere"),
                additional_context="said with it",
            ),
        )
        agent.hooks.register("PreToolUse", lambda context: heard.append("a later hook"))
        agent.on.prepare(lambda asked: heard.append("a later listener"))
        agent.on.pre_execute(lambda asked: heard.append("permission"))
        agent.guard(lambda asked: heard.append("guard"))
        agent.hooks.register("PostToolUse", lambda context: heard.append("post"))
        await agent.run("go")

        assert (heard, notes.ran) == ([], [])
        result = only(agent, ToolResulted)
        assert result.content[0].text == "Error [hook_blocked]: generated.txt is managed elsewhere"
        assert (result.error.code, result.error.handler_executed) == ("HOOK_BLOCKED", False)
        assert message_texts(agent)[-3:] == ["system said before", "system said with it", "assistant ok"]
        assert_laws(agent.session)


async def test_a_denial_by_a_hook_silences_no_later_hook() -> None:
    """HK-06"""
    heard: list[str] = []
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        agent.hooks.register("PreToolUse", lambda context: HookResult(permission_behavior="deny"))
        agent.hooks.register("PreToolUse", lambda context: heard.append("later"))
        await agent.run("go")

        assert (heard, notes.ran) == (["later"], [])
        assert_laws(agent.session)


@pytest.mark.parametrize(
    ("advice", "verdict"),
    [
        (["allow", "deny"], "deny"),
        (["deny", "allow"], "deny"),
        (["ask", "allow"], "ask"),
        (["passthrough", "ask", "passthrough"], "ask"),
        (["ask", "deny", "ask"], "deny"),
        (["allow", "passthrough"], "allow"),
        (["passthrough"], None),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
async def test_the_strictest_advice_of_all_hooks_counts(advice: list[Any], verdict: str | None) -> None:
    """HK-05, HK-12"""
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note], approver=_yes) as agent:
        for behavior in advice:
            agent.hooks.register(
                "PreToolUse", lambda context, behavior=behavior: HookResult(permission_behavior=behavior)
            )
        await agent.run("go")

        decided = agent.session.facts(ToolDecided)
        assert [fact.verdict for fact in decided] == ([verdict] if verdict else [])
        assert bool(notes.ran) is (verdict != "deny")
        assert bool(agent.session.facts(ApprovalAsked)) is (verdict == "ask")
        assert_laws(agent.session)


async def test_advice_to_allow_does_not_overrule_a_denial() -> None:
    """HK-12, D-7b: whichever comes first, nothing is asked and nothing runs."""
    trace: list[str] = []
    notes = Notes()

    async def approve(request: ApprovalRequest) -> Approved:
        trace.append("approval")
        return Approved()

    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note], approver=approve) as agent:

        @agent.hooks("PreToolUse")
        def allows(context: PreToolContext) -> HookResult:
            trace.append("pre")
            return HookResult(permission_behavior="allow")

        @agent.on.pre_execute
        def policy(asked: ToolCall) -> Deny:
            trace.append("permission")
            return Deny("the house says no")

        agent.hooks.register("PostToolUse", lambda context: trace.append("post"))
        await agent.run("go")

        assert trace == ["pre", "permission"]
        assert results(agent) == ["tool/result #c1 error DENIED the house says no"]
        assert notes.ran == []
        assert_laws(agent.session)


async def test_advice_to_allow_is_no_approval() -> None:
    """HK-12, D-7b: it does not skip the asking of the preset, an Ask, or a guard."""
    asked: list[str] = []
    notes = Notes()

    async def refuse(request: ApprovalRequest) -> Rejected:
        asked.append(request.question)
        return Rejected("not now")

    async with Agent(
        ScriptedModel(calls("note"), says("ok")), tools=[notes.note], approver=refuse, preset="ask"
    ) as agent:
        agent.hooks.register("PreToolUse", lambda context: HookResult(permission_behavior="allow"))
        await agent.run("go")

        assert asked == ["note may change something"]
        assert results(agent) == ["tool/result #c1 error APPROVAL_REJECTED not now"]
        assert notes.ran == []
        assert_laws(agent.session)


async def test_a_guard_has_the_last_word_over_advice_and_approval() -> None:
    """HK-12, TP-08"""
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note], approver=_yes) as agent:
        agent.hooks.register("PreToolUse", lambda context: HookResult(permission_behavior="allow"))
        agent.on.pre_execute(lambda asked: Allow())
        agent.guard(lambda asked: Deny("never"))
        await agent.run("go")

        assert results(agent) == ["tool/result #c1 error GUARD_DENIED never"]
        assert notes.ran == []
        assert_laws(agent.session)


async def test_a_denial_by_a_hook_stands_against_everybody_who_allows() -> None:
    """HK-12, law 7"""
    notes = Notes()
    async with Agent(
        ScriptedModel(calls("note"), says("ok")), tools=[notes.note], approver=_yes, preset="full"
    ) as agent:
        agent.hooks.register("PreToolUse", lambda context: HookResult(permission_behavior="deny"), name="h")
        agent.on.pre_execute(lambda asked: Allow())
        await agent.run("go")

        decided = only(agent, ToolDecided)
        assert (decided.verdict, decided.by, decided.code) == ("deny", "agent:PreToolUse", "DENIED")
        assert results(agent) == ["tool/result #c1 error DENIED h says deny"]
        assert notes.ran == []
        assert_laws(agent.session)


# PostToolUse


async def test_each_post_hook_sees_what_the_one_before_it_made() -> None:
    """HK-05"""
    seen: list[str] = []

    def append(mark: str) -> Callable[[PostToolContext], HookResult]:
        def hook(context: PostToolContext) -> HookResult:
            seen.append(context.result.text)
            assert context.result.call is context.call
            assert context.result.ran
            return HookResult(updated_output=tool_success(context.result.text + mark))

        return hook

    notes = Notes()
    model = ScriptedModel(calls("note", n=1), says("ok"))
    async with Agent(model, tools=[notes.note]) as agent:
        for mark in "ABC":
            agent.hooks.register("PostToolUse", append(mark))
        await agent.run("go")

        assert seen == ["noted 1", "noted 1A", "noted 1AB"]
        assert model.requests[1].messages[-1].text == "noted 1ABC"
        assert [edit.what for edit in only(agent, ToolResulted).edits] == ["replaced"]
        assert_laws(agent.session)


async def test_an_updated_output_may_make_a_failure_of_a_success() -> None:
    """HK-04: an error is one for the log, the model and whoever comes later."""
    seen: list[Any] = []
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        agent.hooks.register(
            "PostToolUse",
            lambda context: HookResult(updated_output=tool_error("leaks_a_secret", "withheld")),
        )
        agent.hooks.register("PostToolUse", lambda context: seen.append(context.result.ok))
        agent.on.result(lambda asked, result: seen.append((result.ok, result.value)))
        await agent.run("go")

        result = only(agent, ToolResulted)
        assert (result.error.code, result.error.handler_executed) == ("LEAKS_A_SECRET", True)
        assert results(agent) == ["tool/result #c1 error LEAKS_A_SECRET withheld"]
        assert seen == [False, (False, None)]
        assert notes.ran == [0]
        assert_laws(agent.session)


async def test_an_updated_output_makes_no_success_of_a_failure() -> None:
    """HK-04, TP-20: the text is the hook's, what happened is not."""
    notes = Notes()
    async with Agent(ScriptedModel(calls("fails"), says("ok")), tools=[notes.fails]) as agent:
        agent.hooks.register(
            "PostToolUse", lambda context: HookResult(updated_output=tool_success("all is well"))
        )
        await agent.run("go")

        result = only(agent, ToolResulted)
        assert (result.error.code, result.content[0].text) == ("NO_SPACE", "all is well")
        assert_laws(agent.session)


def _denies(agent: Agent) -> None:
    agent.on.pre_execute(lambda asked: Deny("no"))


def _guards(agent: Agent) -> None:
    agent.guard(lambda asked: Deny("no"))


def _blocks(agent: Agent) -> None:
    agent.hooks.register("PreToolUse", lambda context: HookResult(blocking_error=tool_error("x", "y")))


def _breaks(agent: Agent) -> None:
    agent.hooks.register("PreToolUse", lambda context: 1 / 0)


def _asks(agent: Agent) -> None:
    agent.on.pre_execute(lambda asked: Ask("is anybody there?"))


def _stops(agent: Agent) -> None:
    agent.on.observe(ToolCalled)(lambda event: agent.cancel())


@pytest.mark.parametrize(
    ("prevented", "code"),
    [
        (_denies, "DENIED"),
        (_guards, "GUARD_DENIED"),
        (_blocks, "X"),
        (_breaks, "HOOK_EXECUTION_ERROR"),
        (_asks, "APPROVAL_UNAVAILABLE"),
        (_stops, "ABORTED_BEFORE_DISPATCH"),
    ],
)
async def test_post_hooks_are_silent_where_no_body_ran(prevented: Any, code: str) -> None:
    """HK-13, D-20"""
    heard: list[str] = []
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        prevented(agent)
        agent.hooks.register("PostToolUse", lambda context: heard.append("post hook"))
        await agent.run("go")

        assert only(agent, ToolResulted).error.code == code
        assert (heard, notes.ran) == ([], [])
        assert_laws(agent.session)


async def test_a_denied_call_is_seen_by_native_post_listeners_and_by_no_hook() -> None:
    """HK-13, TP-19"""
    heard: list[str] = []
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        _denies(agent)
        agent.hooks.register("PostToolUse", lambda context: heard.append("hook"))
        agent.on.post_execute(lambda asked, result: heard.append("native"))
        await agent.run("go")

        assert heard == ["native"]


@pytest.mark.virtual
async def test_post_hooks_hear_every_body_that_ran_however_it_ended() -> None:
    """HK-13, D-20"""
    heard: list[str | None] = []

    @tool(effect="read")
    async def fine() -> str:
        return "ok"

    @tool(effect="read")
    async def structured() -> str:
        raise ToolError("no", code="MINE")

    @tool(effect="read")
    async def raises() -> str:
        raise ZeroDivisionError

    @tool(effect="read", timeout=2)
    async def slow() -> str:
        await asyncio.sleep(60)
        return "never"

    @tool(effect="read")
    async def endless() -> str:
        await asyncio.sleep(3600)
        return "never"

    names = ("fine", "structured", "raises", "slow", "endless")
    async with Agent(ScriptedModel(calls(*names)), tools=[fine, structured, raises, slow, endless]) as agent:

        @agent.hooks("PostToolUse")
        async def post(context: PostToolContext) -> None:
            await asyncio.sleep(0)
            heard.append(context.result.error.code if context.result.error else None)

        running = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(10)
        agent.cancel()
        await running

        assert heard == [None, "MINE", "TOOL_FAILED", "TOOL_TIMEOUT", "ABORTED"]
        assert_laws(agent.session)


async def test_a_post_hook_that_stops_gives_every_other_call_its_result_and_ends_the_turn() -> None:
    """HK-14, D-16: nobody is orphaned, no further request, no Stop hook."""
    heard: list[str] = []
    notes = Notes()
    model = ScriptedModel(calls(call("note", n=1), call("note", n=2), call("note", n=3)), says("never"))
    async with Agent(model, tools=[notes.note]) as agent:

        @agent.hooks("PostToolUse")
        def stop(context: PostToolContext) -> HookResult:
            heard.append(f"post {context.call.arguments['n']}")
            return HookResult(prevent_continuation=True, additional_context="why it stopped")

        agent.hooks.register("Stop", lambda context: heard.append("stop hook"))
        agent.on.turn_stopping(lambda stopping: heard.append("stopping"))
        result = await agent.run("go")

        skipped = "error HOOK_STOPPED_CONTINUATION Skipped after PostToolUse stopped the turn"
        assert outline(agent.session) == [
            "user/message go",
            "assistant/message -> note#c1 -> note#c2 -> note#c3",
            "tool/call note#c1",
            "tool/result #c1 noted 1",
            "tool/call note#c2",
            f"tool/result #c2 {skipped}",
            "tool/call note#c3",
            f"tool/result #c3 {skipped}",
            "user/message why it stopped",
            "turn/end completed (stopped by a hook)",
        ]
        assert (
            agent.session.facts(ToolResulted)[1]
            .content[0]
            .text.startswith("Error [hook_stopped_continuation]: Skipped after PostToolUse")
        )
        assert only(agent, StepEnd).reason == "hook-stopped"
        assert (result.reason, result.text) == (Completed(by="hook"), "noted 1")
        assert agent.session.facts(ToolResulted)[0].stop == "agent:PostToolUse"
        assert (heard, notes.ran, len(model.requests)) == (["post 1"], [1], 1)
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_with_a_pool_what_had_started_drains_and_commits_with_its_hooks() -> None:
    """HK-15, D-16, story 7: a hook that does not suspend is heard before the next start."""
    heard: list[str] = []

    @tool(effect="read", concurrency="parallel")
    async def nap(seconds: int) -> str:
        await asyncio.sleep(seconds)
        return f"slept {seconds}"

    model = ScriptedModel(calls(call("nap", seconds=1), call("nap", seconds=5), call("nap", seconds=9)))
    async with Agent(model, tools=[nap], pool=2) as agent:

        @agent.hooks("PostToolUse")
        def stop(context: PostToolContext) -> HookResult:
            heard.append(context.call.id)
            return HookResult(prevent_continuation=context.call.id == "c1")

        agent.inject("for later")
        result = await agent.run("go")

        assert [line.split(maxsplit=3)[2:] for line in results(agent)][:2] == [["slept", "1"], ["slept", "5"]]
        assert [fact.error and fact.error.code for fact in agent.session.facts(ToolResulted)] == [
            None,
            None,
            "HOOK_STOPPED_CONTINUATION",
        ]
        assert (heard, len(agent.session.facts(ToolStarted))) == (["c1", "c2"], 2)
        assert result.text == "slept 1"
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_while_a_hook_suspends_a_free_place_is_filled_and_that_call_runs() -> None:
    """D-16, story 7"""

    @tool(effect="read", concurrency="parallel")
    async def nap(seconds: int) -> str:
        await asyncio.sleep(seconds)
        return f"slept {seconds}"

    model = ScriptedModel(calls(*[call("nap", seconds=n) for n in (1, 5, 9, 9)]))
    async with Agent(model, tools=[nap], pool=2) as agent:

        @agent.hooks("PostToolUse")
        async def stop(context: PostToolContext) -> HookResult:
            await asyncio.sleep(1)
            return HookResult(prevent_continuation=context.call.id == "c1")

        await agent.run("go")

        assert [fact.error is None for fact in agent.session.facts(ToolResulted)] == [True, True, True, False]
        assert len(agent.session.facts(ToolStarted)) == 3
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_parked_question_is_withdrawn_when_a_hook_stops_the_turn() -> None:
    """D-16"""

    @tool(effect="read", concurrency="parallel")
    async def nap(seconds: int) -> str:
        await asyncio.sleep(seconds)
        return "slept"

    async def never(request: ApprovalRequest) -> Approved:
        await asyncio.sleep(3600)
        return Approved()

    model = ScriptedModel(calls(call("nap", seconds=1), call("nap", seconds=2)))
    async with Agent(model, tools=[nap], approver=never) as agent:
        agent.on.pre_execute(lambda asked: Ask("may it?") if asked.id == "c2" else None)
        agent.hooks.register("PostToolUse", lambda context: HookResult(prevent_continuation=True))
        result = await agent.run("go")

        assert outline(agent.session, "approval/asked", "approval/decided", "tool/result")[-2:] == [
            "approval/decided #c2 cancelled",
            "tool/result #c2 error HOOK_STOPPED_CONTINUATION Skipped after PostToolUse stopped the turn",
        ]
        assert result.reason == Completed(by="hook")
        assert asyncio.get_running_loop().time() == 1
        assert_laws(agent.session)


async def test_what_waits_in_next_step_stays_there_when_a_hook_stops_the_turn() -> None:
    """HK-15, D-2: unlike a tool that concludes; a waking message opens the next turn."""
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("second turn")), tools=[notes.note]) as agent:

        @agent.hooks("PostToolUse")
        def stop(context: PostToolContext) -> HookResult:
            agent.steer("and then this", source=Source("person"))
            return HookResult(prevent_continuation=True)

        first = await agent.run("go")
        await agent.idle()

        assert (first.turn, first.steps, first.reason) == (1, 1, Completed(by="hook"))
        assert message_texts(agent)[-2:] == ["user and then this", "assistant second turn"]
        assert outline(agent.session, "turn/end") == [
            "turn/end completed (stopped by a hook)",
            "turn/end completed",
        ]
        assert_laws(agent.session)


async def test_any_post_hook_that_wants_to_stop_stops() -> None:
    """HK-05: OR, and nobody can take it back."""
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("never")), tools=[notes.note]) as agent:
        agent.hooks.register("PostToolUse", lambda context: HookResult(prevent_continuation=True))
        agent.hooks.register("PostToolUse", lambda context: HookResult(prevent_continuation=False))
        result = await agent.run("go")

        assert result.reason == Completed(by="hook")


async def test_contexts_of_hooks_come_after_all_results_in_call_order_pre_before_post() -> None:
    """HK-16, D-1"""
    notes = Notes()
    model = ScriptedModel(calls(call("note", n=1), call("note", n=2)), says("ok"))
    async with Agent(model, tools=[notes.note]) as agent:
        agent.hooks.register(
            "PreToolUse", lambda context: HookResult(additional_context=f"pre {context.call.arguments['n']}")
        )
        agent.hooks.register(
            "PostToolUse",
            lambda context: HookResult(additional_context=f"post {context.call.arguments['n']}"),
        )
        await agent.run("go")

        assert message_texts(agent)[2:] == [
            "tool noted 1",
            "tool noted 2",
            "system pre 1",
            "system post 1",
            "system pre 2",
            "system post 2",
            "assistant ok",
        ]
        riding = [fact for fact in agent.session.facts(UserMessage) if fact.call is not None]
        assert [fact.source.kind for fact in riding] == ["hook"] * 4
        assert_laws(agent.session)


async def test_an_exception_of_pre_takes_its_contexts_and_one_of_post_leaves_them() -> None:
    """HK-16"""
    notes = Notes()
    model = ScriptedModel(calls(call("note", n=1), call("note", n=2)), says("ok"))
    async with Agent(model, tools=[notes.note]) as agent:

        @agent.hooks("PreToolUse")
        def says_something(context: PreToolContext) -> HookResult:
            return HookResult(additional_context=f"pre {context.call.arguments['n']}")

        @agent.hooks("PreToolUse")
        def breaks_on_one(context: PreToolContext) -> None:
            if context.call.arguments["n"] == 1:
                raise RuntimeError("broken")

        @agent.hooks("PostToolUse")
        def breaks_on_two(context: PostToolContext) -> None:
            raise RuntimeError("broken")

        await agent.run("go")

        assert [fact.error.code for fact in agent.session.facts(ToolResulted)] == ["HOOK_EXECUTION_ERROR"] * 2
        assert [text for text in message_texts(agent) if text.startswith("system")] == ["system pre 2"]
        assert_laws(agent.session)


# Stop


async def test_a_stop_hook_continues_a_turn_once_and_then_it_is_heard_and_stripped() -> None:
    """HK-17"""
    active: list[bool] = []
    later: list[str] = []
    model = ScriptedModel(says("first"), says("second"), says("never"))
    async with Agent(model) as agent:

        @agent.hooks("Stop")
        def always(context: StopContext) -> HookResult:
            active.append(context.stop_hook_active)
            return HookResult(force_continue="are you sure?", additional_context="think again")

        agent.hooks.register(
            "Stop", lambda context: later.append(f"later, active {context.stop_hook_active}")
        )
        result = await agent.run("go")

        assert (active, later) == ([False, True], ["later, active True"])
        assert (result.steps, result.text, len(model.requests)) == (2, "second", 2)
        assert message_texts(agent) == [
            "user go",
            "assistant first",
            "system think again",
            "user are you sure?",
            "assistant second",
        ]
        first, second = agent.session.facts(HookResulted)
        assert (first.won, first.unused) == (True, None)
        assert (second.won, second.unused) == (False, "a Stop hook has continued this turn before")
        forced = agent.session.facts(UserMessage)[-1]
        assert (forced.source.kind, forced.place) == ("hook", "prompt")
        assert_laws(agent.session)


async def test_the_one_force_is_per_turn() -> None:
    """HK-17"""
    active: list[bool] = []
    async with Agent(ScriptedModel(*[says("x")] * 4)) as agent:

        @agent.hooks("Stop")
        def always(context: StopContext) -> HookResult:
            active.append(context.stop_hook_active)
            return HookResult(force_continue="again")

        assert [(await agent.run(prompt)).steps for prompt in ("a", "b")] == [2, 2]
        assert active == [False, True, False, True]
        assert_laws(agent.session)


async def test_stop_hooks_hear_only_answers_without_calls() -> None:
    """HK-17, D-15"""
    heard: list[int] = []

    @tool(effect="read")
    async def finish(context: ToolContext) -> str:
        context.conclude()
        return "finished"

    async with Agent(ScriptedModel(calls("finish")), tools=[finish]) as agent:
        agent.hooks.register("Stop", lambda context: heard.append(len(context.history)))
        result = await agent.run("go")

        assert (heard, result.steps, result.reason) == ([], 1, Completed())
        assert_laws(agent.session)


async def test_the_first_force_silences_later_stop_hooks_and_keeps_what_was_said_before() -> None:
    """HK-06"""
    heard: list[str] = []
    async with Agent(ScriptedModel(says("a"), says("b"))) as agent:
        agent.hooks.register("Stop", lambda context: HookResult(additional_context="before it"))

        @agent.hooks("Stop")
        def force(context: StopContext) -> HookResult | None:
            return None if context.stop_hook_active else HookResult(force_continue="go on")

        agent.hooks.register("Stop", lambda context: heard.append(f"{context.stop_hook_active}"))
        await agent.run("go")

        assert heard == ["True"]
        assert message_texts(agent)[2:4] == ["system before it", "user go on"]
        assert_laws(agent.session)


async def test_contexts_of_a_stop_that_nobody_continues_are_on_record_and_unused() -> None:
    """HK-17"""
    async with Agent(ScriptedModel(says("done"))) as agent:
        agent.hooks.register("Stop", lambda context: HookResult(additional_context="too late"))
        await agent.run("go")

        assert message_texts(agent) == ["user go", "assistant done"]
        said = only(agent, HookResulted)
        assert (said.said, said.won) == ({"additional_context": ("too late",)}, False)
        assert said.unused == "no Stop hook continued the turn"
        assert_laws(agent.session)


async def test_a_stripped_force_hinders_no_native_listener() -> None:
    """D-15, story 8"""
    gate = Gate()
    model = ScriptedModel(says("done"), says("more"), says("and more"))
    async with Agent(model) as agent:

        @agent.hooks("Stop")
        async def force(context: StopContext) -> HookResult:
            if not context.stop_hook_active:
                gate.open()
                agent.steer("a person", source=Source("person"))  # arrives while the hook runs
            return HookResult(force_continue="F", additional_context="k")

        agent.on.turn_stopping(lambda stopping: Continue("N") if stopping.step == 2 else None, name="L")
        result = await agent.run("go")

        assert message_texts(agent) == [
            "user go",
            "assistant done",
            "user a person",
            "system k",
            "user F",
            "assistant more",
            "user N",
            "assistant and more",
        ]
        spliced = [fact for fact in agent.session.facts(InboxSpliced) if len(fact.inserted) > 1]
        assert [[m.text for m in fact.inserted] for fact in spliced] == [["k", "F"]]  # one splice
        assert (result.steps, result.reason) == (3, Completed())
        assert_laws(agent.session)


async def test_a_stop_hook_that_raises_fails_the_turn() -> None:
    """HK-18"""
    async with Agent(ScriptedModel(says("done"))) as agent:
        agent.hooks.register("Stop", lambda context: 1 / 0)
        result = await agent.run("go")

        assert result.reason == Failed("UNKNOWN", "ZeroDivisionError: division by zero")
        assert message_texts(agent) == ["user go", "assistant done"]  # the answer is kept
        assert_laws(agent.session)


# Exceptions


async def test_when_pre_raises_the_handler_has_not_run_and_when_post_raises_it_has() -> None:
    """HK-18, HK-19: and the log and the result say so."""
    for event, ran in (("PreToolUse", False), ("PostToolUse", True)):
        notes = Notes()
        async with Agent(ScriptedModel(calls("note", n=5), says("ok")), tools=[notes.note]) as agent:
            agent.hooks.register(event, lambda context: 1 / 0, name="broken")
            result = await agent.run("go")

            committed = only(agent, ToolResulted)
            assert committed.error.code == "HOOK_EXECUTION_ERROR"
            assert committed.error.handler_executed is ran
            assert committed.content[0].text.startswith("Error [hook_execution_error]: ")
            assert notes.ran == ([5] if ran else [])
            # What the body had said is withheld from the model and kept for people.
            assert [fact.content[0].text for fact in agent.session.facts(ToolSettled)] == (
                ["noted 5"] if ran else []
            )
            assert "noted 5" not in " ".join(message_texts(agent))
            assert result.reason == Completed()
            assert_laws(agent.session)


async def test_a_permission_that_raises_is_told_apart_from_a_hook_that_raises() -> None:
    """HK-18, D-6"""
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        agent.on.pre_execute(lambda asked: 1 / 0)
        await agent.run("go")

        assert only(agent, ToolResulted).error.code == "PERMISSION_EVALUATION_ERROR"
        assert notes.ran == []
        assert_laws(agent.session)


@pytest.mark.virtual
@pytest.mark.parametrize("event", EVENTS)
async def test_a_hook_that_hangs_is_cut_by_its_timeout_and_counts_as_one_that_raised(event: Any) -> None:
    """D-14, HK-18"""

    async def hangs(context: Any) -> None:
        await asyncio.sleep(3600)

    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        agent.hooks.register(event, hangs, timeout=3, name="slow")
        result = await agent.run("go")

        assert asyncio.get_running_loop().time() == 3
        if event in ("PreToolUse", "PostToolUse"):
            error = only(agent, ToolResulted).error
            assert (error.code, error.handler_executed) == ("HOOK_EXECUTION_ERROR", event == "PostToolUse")
            assert "slow took longer than its 3 s" in only(agent, ToolResulted).content[0].text
            assert result.reason == Completed()
        else:
            assert result.reason == Failed("UNKNOWN", "ListenerTimeout: slow took longer than its 3 s")
        assert_laws(agent.session)


@pytest.mark.parametrize("event", EVENTS)
async def test_a_hook_that_cancels_itself_counts_as_one_that_raised(event: Any) -> None:
    """D-14: a CancelledError that nobody asked for is the hook's own failure, and hangs nothing."""

    async def awaits_what_was_cancelled(context: Any) -> None:
        inner = asyncio.create_task(asyncio.sleep(3600))
        inner.cancel()
        await inner

    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        agent.hooks.register(event, awaits_what_was_cancelled)
        result = await asyncio.wait_for(agent.run("go"), 5)

        if event in ("PreToolUse", "PostToolUse"):
            assert only(agent, ToolResulted).error.code == "HOOK_EXECUTION_ERROR"
        else:
            assert isinstance(result.reason, Failed)
        assert_laws(agent.session)


# The record


async def test_only_a_callback_that_said_something_is_on_record() -> None:
    """The log has two lines for it, written together once it has answered."""
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:
        for event in HOOK_EVENTS:
            agent.hooks.register(event, lambda context: None, name="silent")
            agent.hooks.register(event, lambda context: HookResult(), name="empty")
        agent.hooks.register("PreToolUse", lambda context: HookResult(additional_context="x"), name="loud")
        await agent.run("go")

        invoked, said = only(agent, HookInvoked), only(agent, HookResulted)
        assert (invoked.event, invoked.who) == ("PreToolUse", "loud")
        assert agent.session.events[invoked.call].type == "tool/call"
        assert invoked.hook_id == said.hook_id
        assert_laws(agent.session)


async def test_hooks_and_native_listeners_fold_into_one_decision() -> None:
    """D-7, D-13: a rewrite of a hook and one of a listener are one pipeline, in order of registration."""
    notes = Notes()
    async with Agent(ScriptedModel(calls("note", n=1), says("ok")), tools=[notes.note]) as agent:
        agent.on.prepare(lambda asked: Rewrite({"n": asked.arguments["n"] + 1}), name="native")
        agent.hooks.register(
            "PreToolUse",
            lambda context: HookResult(
                updated_input=context.call.with_arguments(n=context.call.arguments["n"] * 10)
            ),
        )
        agent.on.post_execute(lambda asked, result: Replace(content=f"{result.text}!"))
        agent.hooks.register(
            "PostToolUse", lambda context: HookResult(updated_output=tool_success(f"[{context.result.text}]"))
        )
        agent.on.post_execute(lambda asked, result: Accept())
        await agent.run("go")

        assert notes.ran == [20]
        assert [change.who for change in only(agent, ToolPrepared).changes] == ["native", "agent:PreToolUse"]
        assert results(agent) == ["tool/result #c1 [noted 20!]"]
        assert_laws(agent.session)


async def test_a_rejected_proposal_is_submitted_to_no_hook() -> None:
    """D-4: a prompt that a listener has rejected is not about to be admitted."""
    heard: list[str] = []

    def reject(proposal: Proposal) -> Reject:
        return Reject("closed today")

    async with Agent(ScriptedModel(says("never"))) as agent:
        agent.on.pre_step(reject)
        agent.hooks.register("UserPromptSubmit", lambda context: heard.append(context.message.text))
        await agent.run("go")

        assert heard == []
        assert_laws(agent.session)


# No orphans


async def test_a_step_cannot_end_while_a_call_has_no_result() -> None:
    """HK-20: the log refuses it, so no request with an unanswered call can ever be sent."""
    refused: list[IllegalFact] = []
    notes = Notes()
    async with Agent(ScriptedModel(calls("note"), says("ok")), tools=[notes.note]) as agent:

        @agent.on.observe(ToolCalled)
        def ends_the_step(event: Any) -> None:
            try:
                agent.session.append(StepEnd(1, 1, "tools"))
            except IllegalFact as error:
                refused.append(error)

        result = await agent.run("go")

        assert [(error.law, error.problem) for error in refused] == [
            ("one result", "step/end: the calls ['c1'] have no result")
        ]
        assert result.ok
        assert_laws(agent.session)


async def test_a_result_without_its_call_or_out_of_order_cannot_be_written() -> None:
    """HK-20"""
    refused: list[str] = []
    notes = Notes()
    async with Agent(
        ScriptedModel(calls(call("note", n=1), call("note", n=2)), says("ok")), tools=[notes.note]
    ) as agent:

        @agent.on.observe(AssistantMessage, ToolCalled)
        def forges(event: Any) -> None:
            for forged in (ToolResulted(event.seq, "c1"), ToolResulted(99, "c9")):
                try:
                    agent.session.append(forged)
                except IllegalFact as error:
                    refused.append(error.law)

        await agent.run("go")

        assert set(refused) == {"call", "started"}
        assert results(agent) == ["tool/result #c1 noted 1", "tool/result #c2 noted 2"]
        assert_laws(agent.session)


def test_results_for_hooks_are_what_they_say() -> None:
    ok, failed = tool_success("fine"), tool_error("hook_blocked", "managed elsewhere")
    assert isinstance(ok, ToolResult)
    assert (ok.ok, ok.text, ok.value) == (True, "fine", "fine")
    assert failed.error is not None
    assert (failed.ok, failed.text, failed.error.code) == (
        False,
        "Error [hook_blocked]: managed elsewhere",
        "HOOK_BLOCKED",
    )
