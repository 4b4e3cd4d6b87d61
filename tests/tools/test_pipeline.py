"""One call's way from the model's text to its result: which stage sees it, in which order, and what each may do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock import (
    Advise,
    Agent,
    Allow,
    Ask,
    Block,
    Deny,
    HookResult,
    PostToolContext,
    Refuse,
    Rewrite,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolResult,
    tool,
)
from interlock.log.facts import (
    AssistantMessage,
    CallError,
    ObserverFailed,
    ToolCalled,
    ToolDecided,
    ToolPrepared,
    ToolResulted,
)
from interlock.log.strictjson import FrozenDict
from interlock.testing import ScriptedModel, assert_laws, call, calls, outline, run_virtual, says

from .calling import Trace, calling, codes, contexts, fail, log, raise_value_error, ran, told, wait, write

pytestmark = pytest.mark.virtual


# Stages


async def test_a_call_meets_the_stages_in_one_order() -> None:
    """TP-01, D-13: guards speak before the question would be asked, and again before the body."""
    trace = Trace()
    agent = calling("wait", name="a", tools=[wait.with_(finalise=trace.finaliser())])
    agent.add_tool(write)
    trace.everywhere(agent)
    assert await told(agent) == ["a"]
    assert trace.of("c1") == [
        "prepare", "pre", "guard", "guard", "around in", "around out", "post", "finalise", "result",
    ]  # fmt: skip
    assert log(agent) == ["TC c1", "ST c1", "TR c1 ok", "SE 1.1 tools"]


async def test_without_listeners_a_call_is_allowed_and_nothing_is_said_about_it() -> None:
    """TP-04, D-7b."""
    agent = calling("write", name="a")
    assert await told(agent) == ["wrote a"]
    assert agent.session.facts(ToolDecided, ToolPrepared) == []


async def test_every_stage_sees_the_same_call_and_nobody_can_change_it() -> None:
    """TP-02."""
    seen: list[ToolCall] = []
    agent = calling("wait", name="a")

    def look(call: ToolCall, *_: object) -> None:
        seen.append(call)

    async def around(call: ToolCall, following: Any) -> Any:
        seen.append(call)
        return await following()

    agent.on.prepare(look)
    agent.on.pre_execute(look)
    agent.guard(look)
    agent.on.execute(around)
    agent.on.post_execute(look)
    agent.on.result(look)
    await told(agent)
    (called,) = [event for event in agent.session.events if isinstance(event.fact, ToolCalled)]
    assert {(c.key, c.id, c.name, c.text, c.turn, c.step, c.index, c.parent) for c in seen} == {
        (called.seq, "c1", "wait", '{"name": "a"}', 1, 1, 0, None)
    }
    assert all(c.agent is agent and type(c.arguments) is FrozenDict for c in seen)
    assert repr(seen[0]) == "<ToolCall wait#c1 {'name': 'a'}>"
    with pytest.raises(AttributeError):
        seen[0].name = "write"  # type: ignore[misc]  # that is the point


async def test_a_listener_that_changes_the_arguments_in_place_has_failed() -> None:
    """TP-02: they are frozen."""
    agent = calling("wait", name="a")

    def post(call: ToolCall, result: ToolResult) -> None:
        call.arguments["name"] = "b"

    agent.on.post_execute(post)
    await told(agent)
    assert codes(agent) == ["HOOK_EXECUTION_ERROR"]


async def test_the_body_may_change_its_own_copy() -> None:
    kept: list[ToolCall] = []

    @tool(effect="read")
    async def spoil(names: list[str]) -> int:
        names.append("more")
        return len(names)

    agent = calling("spoil", names=["a"], tools=[spoil])
    agent.on.result(lambda call, result: kept.append(call))
    assert await told(agent) == ["2"]
    assert kept[0].arguments == {"names": ("a",)}


async def test_each_participant_sees_what_the_earlier_ones_have_said() -> None:
    seen: list[list[tuple[str, str]]] = []

    def said(call: ToolCall) -> None:
        seen.append([(one.who, one.answer) for one in call.said])

    agent = calling("wait", name="a")
    agent.on.prepare(lambda call: Rewrite({"name": "b"}), name="r")
    agent.on.prepare(lambda call: Advise(Ask("hm")), name="v")
    agent.on.prepare(said)
    agent.on.pre_execute(lambda call: Allow(), name="one")
    agent.on.pre_execute(lambda call: Deny("no"), name="two")
    agent.on.pre_execute(said)
    await told(agent)
    assert seen == [[("r", "rewrite"), ("v", "advise ask")], [("one", "allow"), ("two", "deny")]]


# Before the lane: lookup and validation


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        (call("nobody"), "UNKNOWN_TOOL"),
        (call("wait", raw="not json"), "INVALID_ARGS"),
        (call("wait", raw='{"name": 1}'), "INVALID_ARGS"),
    ],
)
async def test_a_call_that_cannot_be_looked_up_meets_only_the_review(wanted: Any, code: str) -> None:
    """D-12, TP-18, A-P28: policy always sees a known tool and valid arguments."""
    trace = Trace()
    agent = calling(wanted, tools=[wait.with_(finalise=trace.finaliser())])
    trace.everywhere(agent)
    await told(agent)
    finalised = ["finalise"] if code == "INVALID_ARGS" else []
    assert (codes(agent), trace.of("c1")) == ([code], ["post", *finalised, "result"])
    assert log(agent) == ["TC c1", f"TR c1 ERR[{code}]", "SE 1.1 tools"]


async def test_an_unknown_tool_has_no_effect_on_record_and_the_model_is_told_which_there_are() -> None:
    """TP-18."""
    agent = calling(call("nobody"), call("wait", name="a"))
    first, second = await told(agent)
    assert first == ("Error [unknown_tool]: there is no tool named 'nobody'. Tools: fail, wait, write")
    assert second == "a"
    assert [fact.effect for fact in agent.session.facts(ToolCalled)] == [None, "read"]


async def test_a_call_that_cannot_be_looked_up_is_alone() -> None:
    """SC-02: unknown, or with invalid arguments."""
    agent = calling(call("nobody"), call("wait", name="a"), call("wait", raw="{}"), call("wait", name="b"))
    await told(agent)
    assert log(agent) == [
        "TC c1", "TR c1 ERR[UNKNOWN_TOOL]",
        "TC c2", "ST c2", "TR c2 ok",
        "TC c3", "TR c3 ERR[INVALID_ARGS]",
        "TC c4", "ST c4", "TR c4 ok", "SE 1.1 tools",
    ]  # fmt: skip


async def test_duplicate_ids_in_one_answer_are_renamed_and_each_call_is_answered() -> None:
    """D-9, SC-13, UW-20, A-P38."""
    agent = calling(
        call("wait", name="a", id="x"), call("wait", name="b", id="x"), call("wait", name="c", id="")
    )
    await told(agent)
    assert [fact.call_id for fact in agent.session.facts(ToolResulted)] == ["x", "x-2", "call-1-1-2"]
    assert sorted(ran) == ["a", "b", "c"]
    (first, _) = agent.session.facts(AssistantMessage)
    assert first.renamed == {"x-2": "x", "call-1-1-2": ""}


# Preparation


async def test_a_rewrite_changes_what_everybody_after_it_sees_and_the_log_keeps_both() -> None:
    """D-13, UW-25."""
    seen: list[Any] = []
    agent = calling("wait", name="a")
    agent.on.prepare(lambda call: Rewrite({"name": "b"}), name="first")
    agent.on.prepare(lambda call: Rewrite({**call.arguments, "seconds": 1}), name="second")
    agent.on.pre_execute(lambda call: seen.append(dict(call.arguments)))
    agent.guard(lambda call: seen.append(dict(call.arguments)))
    assert await told(agent) == ["b"]
    assert seen == [{"name": "b", "seconds": 1}] * 3
    (called,), (prepared,) = agent.session.facts(ToolCalled), agent.session.facts(ToolPrepared)
    assert called.arguments == '{"name": "a"}'
    assert (prepared.original, prepared.effective) == ({"name": "a"}, {"name": "b", "seconds": 1})
    assert [(change.who, change.after) for change in prepared.changes] == [
        ("first", {"name": "b"}),
        ("second", {"name": "b", "seconds": 1}),
    ]
    assert log(agent)[:2] == ["TC c1", "TP c1"]


async def test_with_arguments_makes_a_changed_copy() -> None:
    agent = calling("wait", name="a", seconds=2)
    agent.on.prepare(lambda call: Rewrite(call.with_arguments(name="b").arguments))
    assert await told(agent) == ["b"]


async def test_a_rewrite_that_does_not_fit_the_tool_breaks_the_contract() -> None:
    """Validated again after each rewrite."""
    agent = calling("wait", name="a")
    agent.on.prepare(lambda call: Rewrite({"nome": "b"}), name="typo")
    (text,) = await told(agent)
    assert text.startswith(
        "Error [hook_contract_error]: typo: rewrote the arguments of wait so that they do not fit"
    )
    assert ran == []


async def test_a_refusal_ends_the_point_and_is_the_result() -> None:
    """D-7, D-13: nobody is asked."""
    trace = Trace()
    agent = calling("wait", name="a")
    agent.on.prepare(lambda call: Refuse(ToolError("use write", code="not_here"), contexts=["why"]))
    trace.everywhere(agent)
    assert await told(agent) == ["Error [not_here]: use write"]
    assert (codes(agent), contexts(agent)) == (["NOT_HERE"], ["why"])
    assert trace.of("c1") == ["post", "result"]


@pytest.mark.parametrize("code", [None, "", 5, "\ud800"])
async def test_a_refusal_without_a_usable_code_is_a_denial(code: Any) -> None:
    agent = calling("wait", name="a")
    agent.on.prepare(lambda call: Refuse(ToolError("no", code=code)))
    assert await told(agent) == ["Error [denied]: no"]


async def test_advice_joins_the_rules() -> None:
    agent = calling("wait", name="a")
    agent.on.prepare(lambda call: Advise(Deny("I would not")), name="adviser")
    agent.on.pre_execute(lambda call: Allow(), name="rule")
    assert await told(agent) == ["Error [denied]: I would not"]
    (decided,) = agent.session.facts(ToolDecided)
    assert decided.by == "adviser"
    assert [(said.who, said.answer) for said in decided.said] == [
        ("adviser", "advise deny"),
        ("rule", "allow"),
    ]
    (prepared,) = agent.session.facts(ToolPrepared)
    assert [(one.who, one.verdict, one.reason) for one in prepared.advice] == [
        ("adviser", "deny", "I would not")
    ]


async def test_advice_of_nothing_is_only_its_contexts() -> None:
    agent = calling("wait", name="a")
    agent.on.prepare(lambda call: Advise(contexts=["by the way"]))
    assert await told(agent) == ["a"]
    assert contexts(agent) == ["by the way"]
    (prepared,) = agent.session.facts(ToolPrepared, ToolDecided)
    assert isinstance(prepared, ToolPrepared)
    assert (prepared.advice, prepared.changes, prepared.effective) == ((), (), {"name": "a"})
    assert [said.answer for said in prepared.said] == ["context"]


# Denials


async def test_a_denied_call_runs_nothing_and_is_reviewed() -> None:
    """TP-05, D-6, UW-11, A-P31."""
    trace = Trace()
    agent = calling("write", name="a")
    agent.on.pre_execute(lambda call: Deny("read-only session"))
    trace.everywhere(agent)
    assert await told(agent) == ["Error [denied]: read-only session"]
    assert trace.of("c1") == ["prepare", "pre", "post", "result"]
    assert log(agent) == ["TC c1", "TD c1 deny policy", "TR c1 ERR[DENIED]", "SE 1.1 tools"]
    (result,) = agent.session.facts(ToolResulted)
    assert result.error == CallError("DENIED")


async def test_all_rules_are_heard_after_a_denial_and_the_strictest_counts() -> None:
    """D-7."""
    trace = Trace()
    agent = calling("write", name="a")
    agent.on.pre_execute(trace.at("first", Deny("first no")), name="first")
    agent.on.pre_execute(trace.at("second", Allow()), name="second")
    agent.on.pre_execute(trace.at("third", Deny("second no")), name="third")
    assert await told(agent) == ["Error [denied]: first no"]
    assert trace.of("c1") == ["first", "second", "third"]
    (decided,) = agent.session.facts(ToolDecided)
    assert (decided.by, [said.answer for said in decided.said]) == ("first", ["deny", "allow", "deny"])


async def test_guards_speak_outer_scopes_first_and_the_first_reason_is_given() -> None:
    """TP-08."""
    trace = Trace()
    agent = calling("write", name="a")
    agent.guard(trace.at("agent", Deny("the agent's")))
    agent.harness.guard(trace.at("harness", Deny("the harness's")))
    assert await told(agent) == ["Error [guard_denied]: the harness's"]
    assert trace.of("c1") == ["harness", "agent"]
    assert log(agent)[1] == "TD c1 deny guard"


async def test_a_guard_that_denies_in_the_last_moment_leaves_no_start() -> None:
    """D-13: the second pass, right before the body."""
    passes: list[str] = []

    def guard(call: ToolCall) -> Deny | None:
        passes.append(call.id)
        return Deny("too late") if len(passes) == 2 else None

    agent = calling("write", name="a")
    agent.guard(guard)
    assert await told(agent) == ["Error [guard_denied]: too late"]
    assert log(agent) == ["TC c1", "TD c1 deny guard", "TR c1 ERR[GUARD_DENIED]", "SE 1.1 tools"]
    assert ran == []


async def later_no(call: ToolCall) -> Deny:
    return Deny("no")


def raise_cancelled(call: ToolCall) -> None:
    raise asyncio.CancelledError


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    ("guard", "code"),
    [
        (lambda call: False, "HOOK_CONTRACT_ERROR"),
        (lambda call: "no", "HOOK_CONTRACT_ERROR"),
        (lambda call: Deny, "HOOK_CONTRACT_ERROR"),
        (lambda call: Allow(), "HOOK_CONTRACT_ERROR"),
        (lambda call: later_no(call), "HOOK_CONTRACT_ERROR"),
        (raise_value_error, "PERMISSION_EVALUATION_ERROR"),
        (raise_cancelled, "PERMISSION_EVALUATION_ERROR"),
    ],
)
async def test_a_guard_that_fails_in_any_way_denies(guard: Any, code: str, again: bool) -> None:
    """TP-08, D-14: at the first pass and at the second, and there is no review."""
    trace, passes = Trace(), list[str]()

    def guards(call: ToolCall) -> Any:
        passes.append(call.id)
        return guard(call) if len(passes) > again else None

    agent = calling("write", name="a")
    agent.guard(guards)
    agent.on.post_execute(trace.at("post"))
    await told(agent)
    assert (codes(agent), ran, trace.seen) == ([code], [], [])
    notices = agent.session.facts(ObserverFailed)
    assert len(notices) == (code == "HOOK_CONTRACT_ERROR")


# What goes wrong in a participant


class Unsayable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), Unsayable(), TimeoutError(), asyncio.CancelledError()]
)
@pytest.mark.parametrize(
    ("point", "code", "has_run"),
    [
        ("prepare", "HOOK_EXECUTION_ERROR", False),
        ("pre_execute", "PERMISSION_EVALUATION_ERROR", False),
        ("execute", "HOOK_EXECUTION_ERROR", False),
        ("post_execute", "HOOK_EXECUTION_ERROR", True),
    ],
)
async def test_a_listener_that_raises_is_that_calls_failure(
    point: str, code: str, has_run: bool, error: BaseException
) -> None:
    """D-14, TP-10: siblings and the turn go on; no review of a call that failed so before its body."""
    trace = Trace()
    agent = calling(call("wait", name="a"), call("wait", name="b"))

    async def fails(call: ToolCall, *_: object) -> Any:
        if call.id == "c1":
            raise error
        return await _[0]() if point == "execute" else None  # type: ignore[operator]  # next()

    getattr(agent.on, point)(fails, name="fails")
    agent.on.post_execute(trace.at("post"))
    agent.on.result(trace.at("result"))
    await told(agent)
    assert codes(agent) == [code, "ok"]
    assert ("a" in ran) == has_run
    assert trace.of("c1") == ["result"]
    assert trace.of("c2") == ["post", "result"]
    (first, _) = agent.session.facts(ToolResulted)
    assert first.error is not None and first.error.handler_executed == has_run


@pytest.mark.parametrize(
    ("point", "has_run"),
    [("prepare", False), ("pre_execute", False), ("execute", False), ("post_execute", True)],
)
async def test_an_illegal_answer_is_that_calls_failure_with_one_notice(point: str, has_run: bool) -> None:
    """D-14."""
    agent = calling("wait", name="a")
    getattr(agent.on, point)(lambda *_: {"decision": "allow"}, name="typo")
    await told(agent)
    assert (codes(agent), bool(ran)) == (["HOOK_CONTRACT_ERROR"], has_run)
    (notice,) = agent.session.facts(ObserverFailed)
    assert notice.who == "typo" and notice.point.endswith(point.replace("_", "-"))


@pytest.mark.parametrize(
    ("point", "code"),
    [
        ("prepare", "HOOK_EXECUTION_ERROR"),
        ("pre_execute", "PERMISSION_EVALUATION_ERROR"),
        ("post_execute", "HOOK_EXECUTION_ERROR"),
    ],
)
async def test_a_listener_that_exceeds_its_timeout_has_failed(point: str, code: str) -> None:
    """D-14: a gate that exceeds its timeout denies."""

    async def slow(*_: object) -> None:
        await asyncio.sleep(9)

    agent = calling("wait", name="a")
    getattr(agent.on, point)(slow, timeout=2, name="slow")
    (text,) = await told(agent)
    assert codes(agent) == [code]
    assert text.endswith("slow took longer than its 2 s")


async def test_a_failing_point_takes_its_own_contexts_with_it() -> None:
    """D-1b: contexts of the points before it stay."""
    agent = calling("wait", name="a")
    agent.on.prepare(lambda call: Advise(contexts=["prepared"]))
    agent.on.pre_execute(lambda call: Allow(contexts=["lost"]))
    agent.on.pre_execute(raise_value_error)
    await told(agent)
    assert contexts(agent) == ["prepared"]


async def test_a_failure_of_the_machinery_ends_the_turn_with_a_result_for_every_call() -> None:
    """SC-12, UW-02: no new starts; what runs is awaited; every call has its result; the next request is valid."""

    class Broken:
        available, lifetime = True, None

        def attach(self, session: Any) -> None: ...

        def options(self, call: ToolCall) -> tuple[str, ...]:
            return ("once",)

        async def ask(self, *_: object, **__: object) -> Any:
            raise RuntimeError("a bug of the service")

    agent = Agent(
        ScriptedModel(
            calls(call("wait", name="a", seconds=2), call("wait", name="b"), call("write", name="c")),
            says("again"),
        ),
        tools=[wait, write],
    )
    agent.approvals = Broken()  # type: ignore[assignment]  # a broken part of ours, not somebody's approver
    agent.on.pre_execute(lambda call: Ask("sure?") if call.id == "c2" else None)
    trace = Trace()
    agent.on.result(trace.at("result"))
    async with agent:
        result = await agent.run("go")
        assert outline(agent.session)[-1].startswith(
            "turn/end error UNKNOWN: RuntimeError: a bug of the service"
        )
        assert not result.ok
        assert asyncio.get_running_loop().time() == 2, "the body that ran was awaited"
        assert ran == ["a"]
        assert codes(agent) == ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED", "TOOL_NOT_STARTED"]
        assert trace.seen == ["result:c1", "result:c2", "result:-"], "observers are told (D-25)"
        assert_laws(agent.session)
        assert (await agent.run("again")).ok
        assert_laws(agent.session)


# The finaliser


@pytest.mark.parametrize(
    ("prepare", "code"),
    [
        (lambda agent: None, "ok"),
        (lambda agent: agent.on.pre_execute(lambda call: Deny("no")), "DENIED"),
        (lambda agent: agent.on.pre_execute(raise_value_error), "PERMISSION_EVALUATION_ERROR"),
        (lambda agent: agent.on.prepare(raise_value_error), "HOOK_EXECUTION_ERROR"),
        (lambda agent: agent.guard(raise_value_error), "PERMISSION_EVALUATION_ERROR"),
        (lambda agent: agent.on.execute(raise_value_error), "HOOK_EXECUTION_ERROR"),
        (lambda agent: agent.on.post_execute(raise_value_error), "HOOK_EXECUTION_ERROR"),
        (lambda agent: agent.on.post_execute(lambda call, result: Block("no")), "BLOCKED"),
    ],
)
async def test_the_tool_has_the_last_word_on_the_text_of_every_outcome(prepare: Any, code: str) -> None:
    """TP-23: once, content only."""
    trace = Trace()
    agent = calling("wait", name="a", tools=[wait.with_(finalise=trace.finaliser("FINALISED"))])
    prepare(agent)
    assert await told(agent) == ["FINALISED"]
    assert (codes(agent), trace.seen) == ([code], ["finalise:c1"])
    (result,) = agent.session.facts(ToolResulted)
    assert [edit.what for edit in result.edits][-1] == "finalised"


async def test_a_finaliser_may_leave_the_text_as_it_is() -> None:
    trace = Trace()
    agent = calling("wait", name="a", tools=[wait.with_(finalise=trace.finaliser(None))])
    assert await told(agent) == ["a"]
    (result,) = agent.session.facts(ToolResulted)
    assert result.edits == ()


@pytest.mark.parametrize(
    "finalise",
    [
        raise_value_error,
        lambda call, result: 5,
        lambda call, result: "\ud800",
        lambda call, result: b"bytes",
        lambda: None,
    ],
)
async def test_a_finaliser_that_fails_is_a_failure_of_its_tool(finalise: Any) -> None:
    """TP-23: not run again."""
    agent = calling("wait", name="a", tools=[wait.with_(finalise=finalise)])
    (text,) = await told(agent)
    assert text.startswith("Error [invalid_tool_output]: the finaliser of wait")
    assert ran == ["a"]


# Observers and the record


async def test_observers_see_what_is_on_record() -> None:
    """TP-24."""
    seen: list[ToolResult] = []
    agent = calling(call("wait", name="a"), call("fail"))
    agent.on.result(lambda call, result: seen.append(result))
    agent.on.result(lambda call, result: seen.append(result))
    await told(agent)
    assert seen[0] is seen[1] and seen[2] is seen[3]
    for result, fact in zip(seen[::2], agent.session.facts(ToolResulted), strict=True):
        assert (result.content, result.error, result.contexts) == (fact.content, fact.error, fact.contexts)
    events = list(agent.session.events)
    cited = [event.causes for event in events if isinstance(event.fact, ToolResulted)]
    called = [event.seq for event in events if isinstance(event.fact, ToolCalled)]
    assert [causes[0] for causes in cited] == called, "each result cites its call"


async def test_an_observer_that_fails_is_contained_and_on_record() -> None:
    """TL-14, TP-24."""
    trace = Trace()
    agent = calling("wait", name="a")
    agent.on.result(raise_value_error, name="broken")
    agent.on.result(lambda call, result: "an answer", name="chatty")
    agent.on.result(trace.at("result"))
    assert await told(agent) == ["a"]
    assert trace.of("c1") == ["result"]
    assert [(fact.point, fact.who) for fact in agent.session.facts(ObserverFailed)] == [
        ("tools/result", "broken"),
        ("tools/result", "chatty"),
    ]


async def test_the_value_is_for_listeners_and_never_logged() -> None:
    """TP-17."""
    seen: list[Any] = []

    @tool(render=lambda value: "a list")
    async def numbers() -> list[int]:
        return [1, 2]

    agent = calling("numbers", tools=[numbers])
    agent.on.post_execute(lambda call, result: seen.append(result.value))
    assert await told(agent) == ["a list"]
    assert seen == [(1, 2)]
    assert all("1,2" not in str(event.fact) for event in agent.session.events)


# Which calls the hook surface hears of


@pytest.mark.parametrize(
    ("wanted", "heard"),
    [
        (call("wait", name="a"), True),
        (call("fail"), True),
        (call("crash"), True),
        (call("slow"), True),
        (call("nobody"), False),
        (call("wait", raw="x"), False),
        (call("wait", name="denied"), False),
    ],
)
async def test_post_tool_use_hears_of_every_call_whose_body_was_invoked(wanted: Any, heard: bool) -> None:
    """D-20: success, structured error, exception, timeout; not denied, unknown or invalid."""

    @tool
    async def crash() -> str:
        raise ValueError("a bug")

    @tool(timeout=1)
    async def slow() -> str:
        await asyncio.sleep(9)
        return "never"

    seen: list[str] = []

    def hook(context: PostToolContext) -> HookResult | None:
        seen.append(context.call.name)
        return None

    agent = calling(wanted, tools=[wait, fail, crash, slow])
    agent.on.pre_execute(lambda call: Deny("no") if call.arguments.get("name") == "denied" else None)
    agent.hooks.register("PostToolUse", hook)
    await told(agent)
    assert bool(seen) == heard


# Concluding


async def test_a_result_may_conclude_the_turn_and_its_siblings_still_run() -> None:
    """TL-11, A-P17."""

    @tool(effect="read")
    async def finish(ctx: ToolContext) -> ToolOutput:
        return ToolOutput("finished", conclude=True)

    agent = Agent(ScriptedModel(calls(call("finish"), call("wait", name="a"))), tools=[finish, wait])
    async with agent:
        assert (await agent.run("go")).ok
        assert ran == ["a"]
        assert log(agent)[-1] == "SE 1.1 concluded"
        assert [fact.conclude for fact in agent.session.facts(ToolResulted)] == [True, False]
        assert_laws(agent.session)


async def test_a_failed_or_blocked_result_does_not_conclude() -> None:
    """TL-11."""

    @tool
    async def finish(how: str, ctx: ToolContext) -> str:
        ctx.conclude()
        if how == "fail":
            raise ToolError("no")
        return how

    agent = calling(call("finish", how="fail"), call("finish", how="block"), tools=[finish])
    agent.on.post_execute(lambda call, result: Block("no") if result.ok else None)
    await told(agent)
    assert [fact.conclude for fact in agent.session.facts(ToolResulted)] == [False, False]
    assert log(agent)[-1] == "SE 1.1 tools"


@pytest.mark.parametrize("value", [0, 1, "yes", None])
async def test_concluding_is_a_clear_yes_or_no(value: Any) -> None:
    @tool
    async def finish() -> ToolOutput:
        return ToolOutput("x", conclude=value)

    agent = calling("finish", tools=[finish])
    await told(agent)
    assert codes(agent) == ["INVALID_TOOL_OUTPUT"]


# Any mixture


KINDS = (
    "ok",
    "fails",
    "denied",
    "guarded",
    "unknown",
    "invalid",
    "asked",
    "refused",
    "blocked",
    "broken",
    "slow",
)


@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=5),
    st.integers(1, 3),
    st.none() | st.sampled_from([0, 1, 2]),
    st.booleans(),
)
@settings(deadline=None, max_examples=examples(80))
def test_any_mixture_of_outcomes_gives_every_call_one_result_in_order(
    kinds: list[str], pool: int, stop_at: float | None, parallel: bool
) -> None:
    """SC-13, law 4, law 7."""

    async def main() -> None:
        ran.clear()
        wanted = []
        for kind in kinds:
            if kind == "unknown":
                wanted.append(call("nobody"))
            elif kind == "invalid":
                wanted.append(call("wait", raw="{}"))
            else:
                wanted.append(call("wait", name=kind, seconds=2 if kind == "slow" else 0))
        used: Tool = wait if parallel else wait.with_(concurrency="exclusive")
        agent = calling(*wanted, tools=[used], pool=pool)

        def of(kind: str, answer: Any) -> Callable[..., Any]:
            return lambda call, *_: answer if call.arguments.get("name") == kind else None

        agent.on.prepare(of("refused", Refuse(ToolError("no"))))
        agent.on.pre_execute(of("denied", Deny("no")))
        agent.on.pre_execute(of("asked", Ask("?")))
        agent.on.pre_execute(of("broken", "allow"))
        agent.guard(of("guarded", Deny("no")))
        agent.on.post_execute(of("blocked", Block("no")))
        async with agent:
            if stop_at is not None:
                asyncio.get_running_loop().call_later(stop_at, agent.cancel)
            await agent.run("go")
            await agent.idle()
            assert_laws(agent.session)
            if answered := [m for m in agent.session.facts(AssistantMessage) if not m.interrupted]:
                ids = [block.id for block in answered[0].blocks if hasattr(block, "id")]
                assert [fact.call_id for fact in agent.session.facts(ToolResulted)] == ids
        assert not set(ran) & {"denied", "guarded", "asked", "refused", "broken"}

    run_virtual(main())
