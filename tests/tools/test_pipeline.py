"""One call's way from the model's text to its result: which stage sees it, in which order, and what each may do.

`calling(...)` makes an agent whose first answer asks for these calls; `log(agent)` is what was written about them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import (
    Accept,
    Advise,
    Agent,
    Allow,
    Ask,
    Block,
    Cause,
    Claims,
    Deny,
    Effect,
    HookResult,
    Message,
    PostToolContext,
    Preset,
    Refuse,
    Replace,
    Rewrite,
    Signal,
    Source,
    Text,
    Tool,
    ToolCall,
    ToolContext,
    ToolError,
    ToolOutput,
    ToolResult,
    UnknownTool,
    tool,
    tool_error,
    tool_success,
)
from interlock.log.facts import (
    AssistantMessage,
    CallError,
    ObserverFailed,
    SubcallEnd,
    SubcallStart,
    ToolCalled,
    ToolDecided,
    ToolPrepared,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    UserMessage,
)
from interlock.log.strictjson import FrozenDict
from interlock.testing import ScriptedModel, assert_laws, call, calls, outline, run_virtual, says, shorthand

pytestmark = pytest.mark.virtual

ran: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_has_run() -> None:
    ran.clear()


@tool(effect="read", concurrency="parallel")
async def wait(name: str, seconds: int = 0) -> str:
    ran.append(name)
    await asyncio.sleep(seconds)
    return name


@tool
async def write(name: str) -> str:
    ran.append(name)
    return f"wrote {name}"


@tool(effect="read")
async def fail(ctx: ToolContext) -> str:
    ctx.defer("said before it failed")
    raise ToolError("it does not work", code="broken")


def calling(*wanted: Any, tools: Any = (wait, write, fail), pool: int = 10, **arguments: Any) -> Agent:
    """An agent whose model asks for these calls, or for one tool by name with these arguments."""
    return Agent(ScriptedModel(calls(*wanted, **arguments), says("done")), tools=tools, pool=pool)


async def told(agent: Agent) -> list[str]:
    """Run the agent once; one line for each result: what the model reads."""
    async with agent:
        assert (await agent.run("go")).ok
        assert_laws(agent.session)
        return texts(agent)


def texts(agent: Agent) -> list[str]:
    return ["\n".join(block.text for block in fact.content) for fact in agent.session.facts(ToolResulted)]


def codes(agent: Agent) -> list[str]:
    return [fact.error.code if fact.error else "ok" for fact in agent.session.facts(ToolResulted)]


def log(agent: Agent) -> list[str]:
    """Everything that was written about calls, in shorthand."""
    names = {m.id: m.text for e in agent.session.events for m in getattr(e.fact, "contexts", ())}
    shown = ("TC", "TP", "TD", "AA", "AD", "ST", "SD", "TR", "SB", "SX", "SE 1.1")
    return [token for token in shorthand(agent.session, names) if token.startswith(shown)]


def contexts(agent: Agent) -> list[str]:
    return [message.text for fact in agent.session.facts(ToolResulted) for message in fact.contexts]


class Trace:
    """Who saw which call, in order."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def at(self, stage: str, answer: Any = None) -> Callable[..., Any]:
        """A listener that leaves `stage:call` in the trace."""

        def listener(call: ToolCall | None, *_: object) -> Any:
            self.seen.append(f"{stage}:{call.id if call is not None else '-'}")
            return answer(call) if callable(answer) else answer

        return listener

    def around(self, stage: str) -> Callable[..., Any]:
        async def wrapper(call: ToolCall, following: Any) -> ToolResult:
            self.seen.append(f"{stage} in:{call.id}")
            result: ToolResult = await following()
            self.seen.append(f"{stage} out:{call.id}")
            return result

        return wrapper

    def everywhere(self, agent: Agent) -> None:
        agent.on.prepare(self.at("prepare"))
        agent.on.pre_execute(self.at("pre"))
        agent.guard(self.at("guard"))
        agent.on.execute(self.around("around"))
        agent.on.post_execute(self.at("post"))
        agent.on.result(self.at("result"))

    def finaliser(self, answer: str | None = None) -> Callable[[ToolCall, ToolResult], str | None]:
        def finalise(call: ToolCall, result: ToolResult) -> str | None:
            self.seen.append(f"finalise:{call.id}")
            return answer

        return finalise

    def of(self, call_id: str) -> list[str]:
        return [line.removesuffix(f":{call_id}") for line in self.seen if line.endswith(f":{call_id}")]


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


# Which calls may overlap


def answers(mode: Any) -> Callable[[ToolCall], Any]:
    def classify(call: ToolCall) -> Any:
        if isinstance(mode, Exception):
            raise mode
        return mode

    return classify


@pytest.mark.parametrize(
    ("mode", "overlap"),
    [
        ("parallel", True),
        (Claims(), True),
        (Claims(reads=["a"]), True),
        (Claims(writes=["a"]), False),
        ("exclusive", False),
        ("yes", False),
        ("PARALLEL", False),
        (True, False),
        (1, False),
        (None, False),
        (["parallel"], False),
        (RuntimeError("a bug"), False),
    ],
)
async def test_calls_overlap_only_if_their_classifier_clearly_says_so(mode: Any, overlap: bool) -> None:
    """SC-02, D-17: anything else, or a failure, means alone."""
    agent = calling(
        call("wait", name="a", seconds=1),
        call("wait", name="b", seconds=2),
        tools=[wait.with_(concurrency=answers(mode))],
    )
    await told(agent)
    apart = ["TC c1", "ST c1", "TR c1 ok", "TC c2", "ST c2", "TR c2 ok"]
    together = ["TC c1", "ST c1", "TC c2", "ST c2", "TR c1 ok", "TR c2 ok"]
    assert log(agent)[:-1] == (together if overlap else apart)


async def test_a_classifier_sees_frozen_arguments_and_changes_nothing_that_runs() -> None:
    """UW-19."""

    def spoils(call: ToolCall) -> str:
        call.arguments["name"] = "spoilt"
        return "parallel"

    agent = calling("wait", name="a", tools=[wait.with_(concurrency=spoils)])
    assert await told(agent) == ["a"]


async def test_claims_are_of_the_arguments_and_on_record() -> None:
    """D-17, UW-21: writes to different files run side by side, to the same one they do not."""

    def path(call: ToolCall) -> Claims:
        return Claims(writes=[call.arguments["name"]])

    agent = calling(
        call("wait", name="a", seconds=2),
        call("wait", name="b", seconds=1),
        call("wait", name="a", seconds=1),
        tools=[wait.with_(concurrency=path)],
    )
    await told(agent)
    assert [token for token in log(agent) if token[:2] in ("ST", "SD", "TR")] == [
        "ST c1", "ST c2", "SD c2 ok", "TR c1 ok", "TR c2 ok", "ST c3", "TR c3 ok",
    ]  # fmt: skip
    assert [started.claims.writes for started in agent.session.facts(ToolStarted) if started.claims] == [
        ("a",), ("b",), ("a",),
    ]  # fmt: skip


async def test_a_call_that_is_reclassified_after_an_earlier_result_waits_for_the_pool_and_runs_alone() -> (
    None
):
    """SC-07, D-17: the classifier of c3 answers otherwise after c1's result."""
    results: list[str] = []

    def classify(call: ToolCall) -> str:
        return "exclusive" if call.arguments["name"] == "c" and results else "parallel"

    agent = calling(
        call("wait", name="a", seconds=1),
        call("wait", name="b", seconds=3),
        call("wait", name="c", seconds=1),
        call("wait", name="d", seconds=1),
        tools=[wait.with_(concurrency=classify)],
        pool=2,
    )
    agent.on.result(lambda call, result: results.append(result.text))
    await told(agent)
    assert [token for token in log(agent) if token[:2] in ("ST", "TR")] == [
        "ST c1", "ST c2", "TR c1 ok", "TR c2 ok", "ST c3", "TR c3 ok", "ST c4", "TR c4 ok",
    ]  # fmt: skip


async def test_a_rewrite_may_make_a_call_conflict_with_an_earlier_one() -> None:
    """D-17: classified again on the effective arguments, at sealing."""

    def path(call: ToolCall) -> Claims:
        return Claims(writes=[call.arguments["name"]])

    agent = calling(
        call("wait", name="a", seconds=2),
        call("wait", name="b", seconds=1),
        tools=[wait.with_(concurrency=path)],
    )
    agent.on.prepare(lambda call: Rewrite({"name": "a"}) if call.arguments["name"] == "b" else None)
    await told(agent)
    assert log(agent) == [
        "TC c1", "ST c1", "TC c2", "TP c2", "TR c1 ok", "ST c2", "TR c2 ok", "SE 1.1 tools",
    ]  # fmt: skip


async def test_the_definition_found_at_admission_is_the_one_that_runs() -> None:
    """D-17, TP-23: it survives its unregistration, and its finaliser with it."""
    trace = Trace()
    agent = calling(call("wait", name="a"), tools=())
    dispose = agent.add_tool(wait.with_(finalise=trace.finaliser("FINAL")))

    def swap(call: ToolCall) -> None:
        dispose()
        agent.add_tool(wait.with_(render=lambda value: "another tool"))

    agent.on.pre_execute(swap)
    assert await told(agent) == ["FINAL"]
    assert ran == ["a"]


@pytest.mark.parametrize("name", ["wait", "write"])
async def test_what_is_spoken_about_calls_is_in_the_order_of_the_model(name: str) -> None:
    """SC-05: pre-execute and post-execute in order, each call's line right before it is looked at."""
    trace = Trace()
    agent = calling(*[call("wait", name=str(n), seconds=3 - n) for n in range(3)])
    trace.everywhere(agent)
    await told(agent)
    assert [line for line in trace.seen if line.startswith(("pre:", "post:", "result:"))] == [
        "pre:c1", "pre:c2", "pre:c3",
        "post:c1", "result:c1", "post:c2", "result:c2", "post:c3", "result:c3",
    ]  # fmt: skip


async def test_a_settled_outcome_is_logged_at_once_and_cited_by_its_result() -> None:
    """D-8b, SC-06."""
    agent = calling(call("wait", name="a", seconds=2), call("wait", name="b", seconds=1))
    await told(agent)
    assert log(agent) == [
        "TC c1", "ST c1", "TC c2", "ST c2", "SD c2 ok", "TR c1 ok", "TR c2 ok", "SE 1.1 tools",
    ]  # fmt: skip
    events = list(agent.session.events)
    (settled,) = [event for event in events if isinstance(event.fact, ToolSettled)]
    result = [event for event in events if isinstance(event.fact, ToolResulted)][1]
    assert settled.seq in result.causes
    assert (settled.fact.ok, settled.fact.review, settled.fact.ms) == (True, False, 1000)  # type: ignore[attr-defined]


async def test_a_denied_sibling_takes_its_turn() -> None:
    """SC-06, D-8b."""
    agent = calling(call("wait", name="a", seconds=2), call("wait", name="b"))
    agent.on.pre_execute(lambda call: Deny("no") if call.id == "c2" else None)
    await told(agent)
    assert log(agent) == [
        "TC c1", "ST c1", "TC c2", "TD c2 deny policy", "SD c2 ERR[DENIED]",
        "TR c1 ok", "TR c2 ERR[DENIED]", "SE 1.1 tools",
    ]  # fmt: skip


async def test_a_slow_rule_delays_no_earlier_result_and_a_slow_review_no_later_start() -> None:
    """SC-14, UW-08."""
    times: dict[str, float] = {}
    agent = calling(*[call("wait", name=name) for name in "abc"], pool=1)

    async def slow_rule(call: ToolCall) -> None:
        if call.id == "c2":
            await asyncio.sleep(60)

    async def slow_review(call: ToolCall, result: ToolResult) -> None:
        if call.id == "c2":
            await asyncio.sleep(60)

    def note(event: Any) -> None:
        times.setdefault(f"{event.type} {len(times)}", asyncio.get_running_loop().time())

    agent.on.pre_execute(slow_rule)
    agent.on.post_execute(slow_review)
    agent.on.observe(ToolStarted, ToolResulted)(note)
    await told(agent)
    assert list(times.items()) == [
        ("tool/started 0", 0), ("tool/result 1", 0),
        ("tool/started 2", 60), ("tool/started 3", 60),
        ("tool/result 4", 120), ("tool/result 5", 120),
    ]  # fmt: skip


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
    assert agent.session.facts(ToolPrepared, ToolDecided) == []


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


def raise_value_error(*_: object) -> None:
    raise ValueError("a bug")


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

    class Broken(Preset):
        def verdict(self, call: ToolCall) -> Any:
            if call.id == "c2":
                raise RuntimeError("a bug of the policy")
            return super().verdict(call)

    agent = Agent(
        ScriptedModel(
            calls(call("wait", name="a", seconds=2), call("wait", name="b"), call("write", name="c")),
            says("again"),
        ),
        tools=[wait, write],
        preset=Broken("broken", "allow", ""),
    )
    trace = Trace()
    agent.on.result(trace.at("result"))
    async with agent:
        result = await agent.run("go")
        assert outline(agent.session)[-1].startswith(
            "turn/end error UNKNOWN: RuntimeError: a bug of the policy"
        )
        assert not result.ok
        assert asyncio.get_running_loop().time() == 2, "the body that ran was awaited"
        assert ran == ["a"]
        assert codes(agent) == ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED", "TOOL_NOT_STARTED"]
        assert trace.seen == ["result:c1", "result:c2", "result:-"], "observers are told (D-25)"
        assert_laws(agent.session)
        assert (await agent.run("again")).ok
        assert_laws(agent.session)


# Around the body


async def test_wrappers_are_an_onion_outer_scopes_outside() -> None:
    """TP-11."""
    trace = Trace()
    agent = calling("wait", name="a")
    agent.on.execute(trace.around("inner"))
    agent.harness.on.execute(trace.around("outer"))
    assert await told(agent) == ["a"]
    assert trace.of("c1") == ["outer in", "inner in", "inner out", "outer out"]


async def test_a_wrapper_sees_failures_as_results() -> None:
    """TP-11: a raising body included."""
    seen: list[tuple[str, bool, bool]] = []

    async def around(call: ToolCall, following: Any) -> Any:
        result = await following()
        seen.append((result.text, result.ok, result.ran))
        return result

    agent = calling("fail")
    agent.on.execute(around)
    await told(agent)
    assert seen == [("Error [broken]: it does not work", False, True)]


async def test_a_wrapper_that_does_not_go_on_keeps_the_body_from_running() -> None:
    """TP-11, TP-12: what it authors is held to the contract of the tool, and rendered as the tool renders."""
    agent = calling("write", name="a", tools=[write.with_(render=str.upper)])

    async def cached(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=call, content=(Text("ignored"),), value="cached", conclude=True, ran=True)

    agent.on.execute(cached)
    assert await told(agent) == ["CACHED"]
    assert ran == []
    (result,) = agent.session.facts(ToolResulted)
    assert not result.conclude, "a wrapper cannot forge it"


async def test_an_authored_value_that_does_not_fit_is_an_invalid_output() -> None:
    """TP-12: a cached result of another tool."""

    async def cached(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=None, content=(), value=5, contexts=(Message.context("kept"),))

    agent = calling("write", name="a")
    agent.on.execute(cached)
    assert await told(agent) == ["Error [invalid_tool_output]: declared to return str, got int"]
    assert contexts(agent) == ["kept"]


async def test_an_authored_failure_keeps_its_error_content_and_contexts() -> None:
    """TP-12, D-6."""

    async def around(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(
            call=None,
            content=(Text("nothing there"),),
            error=CallError("cache_miss", "KeyError", handler_executed=True),
            contexts=(Message.context("kept"),),
            conclude=True,
        )

    agent = calling("write", name="a")
    agent.on.execute(around)
    assert await told(agent) == ["nothing there"]
    (result,) = agent.session.facts(ToolResulted)
    assert result.error == CallError("CACHE_MISS", "KeyError", handler_executed=False), "the body did not run"
    assert (contexts(agent), result.conclude) == (["kept"], False)


@pytest.mark.parametrize("make", [tool_success, lambda text: tool_error("odd", text)])
async def test_results_for_hooks_can_be_given_by_a_wrapper(make: Any) -> None:
    async def around(call: ToolCall, following: Any) -> Any:
        return make("here")

    agent = calling("write", name="a")
    agent.on.execute(around)
    assert await told(agent) in (["here"], ["Error [odd]: here"])


MALFORMED: list[dict[str, Any]] = [
    {"content": "text", "error": CallError("X")},
    {"content": ("text",), "error": CallError("X")},
    {"content": (Text("\ud800"),), "error": CallError("X")},
    {"content": (), "error": "boom"},
    {"content": (), "error": CallError("\ud800")},
    {"content": (), "error": CallError(5)},  # type: ignore[arg-type]  # that is the point
    {"content": (), "value": "v", "contexts": (5,)},
    {"content": (), "value": "v", "contexts": 5},
]


@pytest.mark.parametrize("fields", MALFORMED)
async def test_a_result_that_cannot_be_put_on_record_breaks_the_contract(fields: dict[str, Any]) -> None:
    """TP-12."""

    async def around(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=call, **fields)

    agent = calling("write", name="a")
    agent.on.execute(around, name="careless")
    await told(agent)
    assert codes(agent) == ["HOOK_CONTRACT_ERROR"]


async def test_contexts_of_an_authored_result_may_be_strings() -> None:
    async def around(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=call, content=(), value="v", contexts=("by the way",))  # type: ignore[arg-type]

    agent = calling("write", name="a")
    agent.on.execute(around, name="adds")
    await told(agent)
    (result,) = agent.session.facts(ToolResulted)
    assert [(m.text, m.source) for m in result.contexts] == [("by the way", Source("plugin", "adds"))]


async def test_a_value_that_fails_while_it_is_read_is_the_wrappers_failure() -> None:
    class Hostile(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError("no items")

    async def around(call: ToolCall, following: Any) -> ToolResult:
        return ToolResult(call=call, content=(), value=Hostile(a=1))

    @tool
    async def loose() -> Any:
        return None

    agent = calling("loose", tools=[loose])
    agent.on.execute(around)
    await told(agent)
    assert codes(agent)[0] in ("HOOK_EXECUTION_ERROR", "INVALID_TOOL_OUTPUT")


async def test_a_wrapper_that_answers_none_breaks_the_contract() -> None:
    agent = calling("write", name="a")

    async def forgets(call: ToolCall, following: Any) -> None:
        await following()

    agent.on.execute(forgets, name="forgets")
    (text,) = await told(agent)
    assert text == "Error [hook_contract_error]: forgets: answered None, not a ToolResult"
    assert ran == ["a"], "what it did stands"


async def test_a_wrapper_that_raises_keeps_what_the_body_had_to_say() -> None:
    """TP-13, UW-10: no review, no outer wrapper's view, the deferred contexts stay."""
    trace = Trace()

    @tool
    async def talk(ctx: ToolContext) -> str:
        ctx.defer("deferred")
        return "done"

    async def around(call: ToolCall, following: Any) -> ToolResult:
        await following()
        raise ValueError("a bug")

    agent = calling("talk", tools=[talk])
    agent.on.execute(trace.around("outer"))
    agent.on.execute(around)
    agent.on.post_execute(trace.at("post"))
    await told(agent)
    (result,) = agent.session.facts(ToolResulted)
    assert result.error == CallError("HOOK_EXECUTION_ERROR", "ValueError", handler_executed=True)
    assert (contexts(agent), trace.seen) == (["deferred"], ["outer in:c1"])


async def twice(call: ToolCall, following: Any) -> Any:
    await following()
    return await following()


async def at_once(call: ToolCall, following: Any) -> Any:
    return (await asyncio.gather(following(), following()))[0]


@pytest.mark.parametrize("wrapper", [twice, at_once])
async def test_only_what_may_be_repeated_runs_again(wrapper: Any) -> None:
    """D-18: each run of a READ body has its own line; a WRITE body runs once, also if it is asked for at once."""
    agent = calling("wait", name="a")
    agent.on.execute(wrapper)
    assert await told(agent) == ["a"]
    assert ran == ["a", "a"]
    assert log(agent) == ["TC c1", "ST c1", "ST c1 run 2", "TR c1 ok", "SE 1.1 tools"]

    ran.clear()
    agent = calling("write", name="a")
    agent.on.execute(wrapper)
    (text,) = await told(agent)
    assert text.endswith("next() was called a second time for a tool whose effect is WRITE")
    assert ran == ["a"]


async def test_next_is_over_when_the_wrapper_has_answered() -> None:
    """Nothing outlives its owner."""
    kept: list[Any] = []

    async def around(call: ToolCall, following: Any) -> ToolResult:
        kept.append(following)
        return ToolResult(call=call, content=(), value="early")

    agent = calling("write", name="a")
    agent.on.execute(around)
    assert await told(agent) == ["early"]
    with pytest.raises(Exception, match="after the wrapper had answered"):
        await kept[0]()
    assert ran == []


async def test_a_timeout_is_none_of_a_wrapper_s_business() -> None:
    """It wraps, and may time and retry what it wraps itself."""
    attempts: list[str] = []

    @tool(effect="read")
    async def flaky() -> str:
        attempts.append("x")
        if len(attempts) < 3:
            raise ToolError("not yet")
        return "at last"

    async def retries(call: ToolCall, following: Any) -> Any:
        while not (result := await following()).ok:
            assert call.effect is Effect.READ
        return result

    agent = calling("flaky", tools=[flaky])
    agent.on.execute(retries)
    assert await told(agent) == ["at last"]
    assert log(agent) == ["TC c1", "ST c1", "ST c1 run 2", "ST c1 run 3", "TR c1 ok", "SE 1.1 tools"]


# The review


@pytest.mark.parametrize(
    ("wanted", "prepare", "expected"),
    [
        (call("wait", name="a"), None, ["ok"]),
        (call("fail"), None, ["BROKEN"]),
        (call("nobody"), None, ["UNKNOWN_TOOL"]),
        (call("wait", raw="x"), None, ["INVALID_ARGS"]),
        (call("wait", name="a"), "deny", ["DENIED"]),
        (call("wait", name="a"), "ask", ["APPROVAL_UNAVAILABLE"]),
        (call("wait", name="a"), "guard", ["GUARD_DENIED"]),
    ],
)
async def test_every_settled_call_is_reviewed(wanted: Any, prepare: str | None, expected: list[str]) -> None:
    """TP-19."""
    seen: list[tuple[bool, bool]] = []
    agent = calling(wanted)
    if prepare == "guard":
        agent.guard(lambda call: Deny("no"))
    elif prepare is not None:
        agent.on.pre_execute(lambda call: Deny("no") if prepare == "deny" else Ask("?"))
    agent.on.post_execute(lambda call, result: seen.append((result.ok, result.ran)))
    await told(agent)
    assert codes(agent) == expected
    assert seen == [(expected == ["ok"], expected in (["ok"], ["BROKEN"]))]


async def test_a_content_replaces_what_the_model_reads() -> None:
    """TP-20."""
    agent = calling(call("wait", name="a"), call("fail"))
    agent.on.post_execute(lambda call, result: Replace(f"<{result.text}>"), name="editor")
    assert await told(agent) == ["<a>", "<Error [broken]: it does not work>"]
    assert codes(agent) == ["ok", "BROKEN"], "a failure stays one"
    assert [[(edit.who, edit.what) for edit in fact.edits] for fact in agent.session.facts(ToolResulted)] == [
        [("editor", "replaced")]
    ] * 2


async def test_a_replacement_may_be_a_failure() -> None:
    """TP-20: a success becomes one with its own code."""
    agent = calling("wait", name="a")
    agent.on.post_execute(lambda call, result: Replace("too old to be of use", error="stale"))
    (text,) = await told(agent)
    assert codes(agent) == ["STALE"]
    assert "too old to be of use" in text


async def test_a_value_is_validated_and_rendered_again() -> None:
    """TP-20."""
    agent = calling("wait", name="a", tools=[wait.with_(render=lambda value: f"name: {value}")])
    agent.on.post_execute(lambda call, result: Replace(value=result.value.upper()))
    assert await told(agent) == ["name: A"]


@pytest.mark.parametrize(
    ("wanted", "answer", "said"),
    [
        (call("wait", name="a"), Replace(value=5), "the value does not fit what wait returns"),
        (call("fail"), Replace(value="x"), "replaced the value of a failed call; give content instead"),
    ],
)
async def test_a_value_that_cannot_stand_breaks_the_contract(wanted: Any, answer: Any, said: str) -> None:
    """TP-20."""
    agent = calling(wanted)
    agent.on.post_execute(lambda call, result: answer, name="editor")
    (text,) = await told(agent)
    assert text.startswith("Error [hook_contract_error]: editor: ") and said in text


async def test_listeners_see_what_the_earlier_ones_made_of_the_result() -> None:
    """D-7: the last has the last word on content."""
    agent = calling("wait", name="a")
    agent.on.post_execute(lambda call, result: Replace(f"{result.text}1"))
    agent.on.post_execute(lambda call, result: Replace(f"{result.text}2"))
    assert await told(agent) == ["a12"]


@pytest.mark.parametrize(
    ("feedback", "text"), [("not that one", "not that one"), ("", "the result was withheld by a review")]
)
async def test_a_blocked_result_is_a_failure_that_says_why(feedback: str, text: str) -> None:
    """TP-20, TP-22: what the tool did is not undone."""
    trace = Trace()
    agent = calling("write", name="a")
    agent.on.post_execute(lambda call, result: Block(feedback))
    agent.on.post_execute(trace.at("later", Replace("prettier")))
    assert await told(agent) == [f"Error [blocked]: {text}"]
    assert (codes(agent), ran, trace.of("c1")) == (["BLOCKED"], ["a"], ["later"])
    (result,) = agent.session.facts(ToolResulted)
    assert result.error is not None and result.error.handler_executed


async def test_the_first_block_is_the_one_that_is_read() -> None:
    agent = calling("write", name="a")
    agent.on.post_execute(lambda call, result: Block("first"))
    agent.on.post_execute(lambda call, result: Block("second"))
    assert await told(agent) == ["Error [blocked]: first"]


async def test_a_result_that_could_not_be_reviewed_is_withheld_and_kept_for_people() -> None:
    """D-25: the model reads the failure; the log has what the body gave."""
    agent = calling("write", name="secret")
    agent.on.post_execute(raise_value_error, name="scanner")
    (text,) = await told(agent)
    assert "secret" not in text
    (settled,) = agent.session.facts(ToolSettled)
    assert settled.content == (Text("wrote secret"),)
    assert log(agent) == ["TC c1", "ST c1", "SD c1 ok", "TR c1 ERR[HOOK_EXECUTION_ERROR]", "SE 1.1 tools"]


async def test_a_review_that_is_cut_by_a_stop_withholds_the_result() -> None:
    """D-19, D-25: nobody knows what it would have said."""

    async def scans(call: ToolCall, result: ToolResult) -> None:
        await asyncio.sleep(9)

    agent = calling("write", name="secret")
    agent.on.post_execute(scans, name="scanner")
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert asyncio.get_running_loop().time() == 1
        assert codes(agent) == ["RESULT_WITHHELD"]
        (settled,) = agent.session.facts(ToolSettled)
        assert settled.content == (Text("wrote secret"),)
        assert_laws(agent.session)


async def test_on_a_turn_that_is_stopped_already_a_review_runs_to_its_end() -> None:
    """D-19b: post-execute still runs on what was started."""

    async def scans(call: ToolCall, result: ToolResult) -> Replace:
        await asyncio.sleep(2)
        return Replace(f"reviewed: {result.text}")

    agent = calling("wait", name="a", seconds=9)
    agent.on.post_execute(scans)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert texts(agent) == ["reviewed: Error [aborted]: tool call aborted"]
        assert_laws(agent.session)


# Contexts


@tool
async def talk(ctx: ToolContext) -> ToolOutput:
    ctx.defer("deferred 1")
    ctx.defer(Message.context("deferred 2"))
    return ToolOutput("done", contexts=["returned"])


async def adds(call: ToolCall, following: Any) -> ToolResult:
    result = await following()
    return ToolResult(
        call=call,
        content=(),
        value=result.value,
        contexts=(*result.contexts, *Allow(contexts=["wrapped"]).contexts),
    )


def talking() -> Agent:
    agent = calling("talk", tools=[talk])
    agent.on.prepare(lambda call: Advise(contexts=["prepared"]))
    agent.on.pre_execute(lambda call: Allow(contexts=["allowed"]))
    agent.on.execute(adds)
    return agent


async def test_contexts_ride_on_the_result_in_the_order_of_the_stages() -> None:
    """D-1b, TP-21: prepare, pre-execute, deferred by the body, wrapper, post."""
    agent = talking()
    agent.on.post_execute(lambda call, result: Accept(contexts=["posted 1"]))
    agent.on.post_execute(lambda call, result: Replace("x", contexts=["posted 2"]))
    await told(agent)
    expected = [
        "prepared",
        "allowed",
        "deferred 1",
        "deferred 2",
        "returned",
        "wrapped",
        "posted 1",
        "posted 2",
    ]
    assert contexts(agent) == expected
    said = [fact for fact in agent.session.facts(UserMessage) if fact.place == "context"]
    assert [fact.content[0].text for fact in said] == expected  # type: ignore[union-attr]
    assert all(fact.source.kind != "person" for fact in said)


async def test_a_block_keeps_only_its_own_contexts_and_those_from_before_the_body() -> None:
    """D-1b, TP-21."""
    agent = talking()
    agent.on.post_execute(lambda call, result: Accept(contexts=["accepted"]))
    agent.on.post_execute(lambda call, result: Block("no", contexts=["blocked 1"]))
    agent.on.post_execute(lambda call, result: Block("no", contexts=["blocked 2"]))
    await told(agent)
    assert contexts(agent) == ["prepared", "allowed", "blocked 1", "blocked 2"]


async def test_contexts_survive_a_denial() -> None:
    """D-1b, TP-05."""
    agent = talking()
    agent.on.pre_execute(lambda call: Deny("no", contexts=["denied"]))
    await told(agent)
    assert contexts(agent) == ["prepared", "allowed", "denied"]


@pytest.mark.parametrize("first", [True, False])
async def test_a_guard_has_contexts_too(first: bool) -> None:
    passes: list[str] = []

    def guard(call: ToolCall) -> Deny | None:
        passes.append(call.id)
        return Deny("no", contexts=["guarded"]) if first or len(passes) == 2 else None

    agent = talking()
    agent.guard(guard)
    await told(agent)
    assert contexts(agent) == ["prepared", "allowed", "guarded"]


async def test_a_failed_body_keeps_what_it_had_deferred() -> None:
    """TP-21, UW-10."""
    agent = calling("fail")
    await told(agent)
    assert contexts(agent) == ["said before it failed"]


async def test_a_failed_review_keeps_what_the_body_had_deferred() -> None:
    """TP-21, UW-10, A-P22."""
    agent = talking()
    agent.on.post_execute(raise_value_error)
    await told(agent)
    assert contexts(agent) == ["prepared", "allowed", "deferred 1", "deferred 2", "returned", "wrapped"]


async def test_one_message_may_be_deferred_twice() -> None:
    """UW-03: every context has an id of its own."""

    @tool
    async def repeats(ctx: ToolContext) -> str:
        message = Message.context("again", source=Source("tool", "repeats"))
        ctx.defer(message)
        ctx.defer(message)
        return "x"

    agent = calling("repeats", tools=[repeats])
    await told(agent)
    (result,) = agent.session.facts(ToolResulted)
    assert len({message.id for message in result.contexts}) == len(result.contexts) == 2


async def test_contexts_of_several_calls_are_in_the_order_of_the_model() -> None:
    """SC-08, D-1: not in the order in which they ended."""
    agent = calling(*[call("wait", name=name, seconds=s) for name, s in (("a", 3), ("b", 1), ("c", 2))])
    agent.on.post_execute(lambda call, result: Accept(contexts=[f"about {call.arguments['name']}"]))
    await told(agent)
    said = [fact for fact in agent.session.facts(UserMessage) if fact.place == "context"]
    assert [fact.content[0].text for fact in said] == ["about a", "about b", "about c"]  # type: ignore[union-attr]


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


# A stop


async def test_a_stop_before_the_batch_gives_every_call_its_pair() -> None:
    """SC-09, SC-10, UW-12, D-25: no policy, no body, no review, no finaliser; observers are told."""
    trace, seen = Trace(), list[tuple[bool, bool]]()
    agent = calling(
        call("wait", name="a"), call("nobody"), tools=[wait.with_(finalise=trace.finaliser("FINAL"))]
    )
    trace.everywhere(agent)
    agent.on.result(lambda call, result: seen.append((result.ran, result.ok)))
    agent.on.observe(AssistantMessage)(lambda event: agent.cancel())
    async with agent:
        await agent.run("go")
        assert log(agent) == [
            "TC' c1", "TR c1 ERR[ABORTED_BEFORE_DISPATCH]",
            "TC' c2", "TR c2 ERR[ABORTED_BEFORE_DISPATCH]", "SE 1.1 aborted",
        ]  # fmt: skip
        assert texts(agent)[0] == "Error [aborted_before_dispatch]: tool call aborted before dispatch"
        assert (trace.seen, seen) == (["result:-"] * 2, [(False, False)] * 2)
        assert_laws(agent.session)


@pytest.mark.parametrize("point", ["prepare", "pre_execute"])
async def test_a_stop_inside_policy_aborts_that_call_before_dispatch_and_skips_the_rest(point: str) -> None:
    """SC-09, TP-09, D-25: contexts of earlier points stay, there is no review."""
    trace = Trace()
    agent = calling(
        call("wait", name="a"), call("wait", name="b"), tools=[wait.with_(finalise=trace.finaliser("FINAL"))]
    )
    agent.on.prepare(lambda call: Advise(contexts=["prepared"]))

    async def stops(call: ToolCall) -> Any:
        agent.cancel()
        await asyncio.sleep(9)

    getattr(agent.on, point)(stops)
    agent.on.post_execute(trace.at("post"))
    async with agent:
        await agent.run("go")
        assert log(agent)[-4:] == [
            "TR c1 ERR[ABORTED_BEFORE_DISPATCH]" + ("(+prepared)" if point == "pre_execute" else ""),
            "TC' c2", "TR c2 ERR[ABORTED_BEFORE_DISPATCH]", "SE 1.1 aborted",
        ]  # fmt: skip
        assert (ran, trace.seen) == ([], [])
        assert asyncio.get_running_loop().time() == 0, "it was cut at once"
        assert_laws(agent.session)


async def test_a_denial_given_with_the_stop_keeps_its_identity_and_an_allow_does_not_run() -> None:
    """TP-09."""
    for answer, code in ((Deny("no"), "DENIED"), (Allow(), "ABORTED_BEFORE_DISPATCH")):
        agent = calling("wait", name="a")

        def stops(call: ToolCall, agent: Agent = agent, answer: Any = answer) -> Any:
            agent.cancel()
            return answer

        agent.on.pre_execute(stops)
        async with agent:
            await agent.run("go")
            assert (codes(agent), ran) == ([code], [])
            assert_laws(agent.session)


@pytest.mark.parametrize("moment", [1, 2])
async def test_a_guard_or_a_classifier_that_stops_the_turn_starts_nothing(moment: int) -> None:
    """Foreign code may stop at any moment, the last one included."""
    passes: list[str] = []
    agent = calling(call("wait", name="a"), call("wait", name="b"))

    def guard(call: ToolCall) -> None:
        passes.append(call.id)
        if len(passes) == moment:
            agent.cancel()

    agent.guard(guard)
    async with agent:
        await agent.run("go")
        assert ran == []
        assert codes(agent) == ["ABORTED_BEFORE_DISPATCH"] * 2
        assert_laws(agent.session)


async def test_a_wrapper_that_waits_does_not_hold_a_turn_that_is_stopped() -> None:
    """CA-13, D-19: a listener awaited at a point is cut at once; there is no body to be awaited."""

    async def waits(call: ToolCall, following: Any) -> Any:
        await asyncio.sleep(9)
        return await following()

    agent = calling("write", name="a")
    agent.on.execute(waits)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert asyncio.get_running_loop().time() == 1
        assert ran == []
        assert_laws(agent.session)


async def test_a_wrapper_that_waits_after_the_body_is_cut_and_what_the_body_did_stands() -> None:
    """D-19b: the chain had not returned before the stop, so the success is kept for people only."""
    trace = Trace()

    async def waits(call: ToolCall, following: Any) -> Any:
        result = await following()
        await asyncio.sleep(9)
        return result

    agent = calling(call("write", name="a"), call("fail"))
    agent.on.execute(waits)
    agent.on.post_execute(trace.at("post"))
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert asyncio.get_running_loop().time() == 1
        assert (codes(agent)[0], ran, trace.seen) == ("ABORTED", ["a"], ["post:c1"])
        (settled,) = agent.session.facts(ToolSettled)
        assert settled.content == (Text("wrote a"),)
        assert_laws(agent.session)


async def test_a_wrapper_is_not_cut_while_the_body_runs_which_is_told_once() -> None:
    """D-19, CA-09: and then it is, where it next waits."""
    seen: list[str] = []

    @tool
    async def slow() -> str:
        for _ in range(2):
            try:
                await asyncio.sleep(3)
            except asyncio.CancelledError:
                seen.append("body cut")
        return "ended"

    async def around(call: ToolCall, following: Any) -> Any:
        result = await following()
        seen.append(f"body {result.text}")
        try:
            await asyncio.sleep(9)
        finally:
            seen.append("wrapper cut")

    agent = calling("slow", tools=[slow])
    agent.on.execute(around)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert seen == ["body cut", "body ended", "wrapper cut"]
        assert (asyncio.get_running_loop().time(), codes(agent)) == (4, ["ABORTED"])
        assert_laws(agent.session)


async def test_a_body_that_a_wrapper_gave_up_was_invoked_all_the_same() -> None:
    """Whoever reads the result must know that it may have had effects."""

    async def impatient(call: ToolCall, following: Any) -> Any:
        running = asyncio.create_task(following())
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait([running])
        await asyncio.sleep(9)

    agent = calling("wait", name="a", seconds=9)
    agent.on.execute(impatient)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(2)
        agent.cancel()
        await receipt.turn()
        (result,) = agent.session.facts(ToolResulted)
        assert result.error == CallError("ABORTED", "", handler_executed=True)
        assert asyncio.get_running_loop().time() == 2
        assert_laws(agent.session)


async def test_a_wrapper_may_look_at_the_signal_itself() -> None:
    """What it raises then is no failure of its own; for another signal it is."""
    other = Signal()
    other.set(Cause("hook"))

    async def checks(call: ToolCall, following: Any) -> Any:
        await following()
        call.signal.raise_if_set()

    async def checks_another(call: ToolCall, following: Any) -> Any:
        other.raise_if_set()

    agent = calling("wait", name="a", seconds=9)
    agent.on.execute(checks)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert codes(agent) == ["ABORTED"]

    agent = calling("write", name="a")
    agent.on.execute(checks_another)
    await told(agent)
    assert codes(agent) == ["HOOK_EXECUTION_ERROR"]


async def test_a_hook_that_stops_the_turn_lets_what_runs_end_and_gives_the_rest_their_results() -> None:
    """D-16, SC-09: heard before the next start if it does not suspend."""
    trace = Trace()
    agent = calling(
        *[call("wait", name=name, seconds=s) for name, s in (("a", 1), ("b", 2), ("c", 1))], pool=2
    )
    agent.on.post_execute(
        trace.at("post", lambda call: Accept(stop=True) if call.id == "c1" else None), name="w"
    )
    async with agent:
        result = await agent.run("go")
        assert log(agent)[-4:] == [
            "TR c1 ok stop", "TR c2 ok", "TR c3 ERR[HOOK_STOPPED_CONTINUATION]", "SE 1.1 hook-stopped",
        ]  # fmt: skip
        assert (trace.of("c2"), trace.of("c3")) == (["post"], [])
        assert texts(agent)[2] == (
            "Error [hook_stopped_continuation]: Skipped after PostToolUse stopped the turn"
        )
        assert (result.text, ran) == ("a", ["a", "b"])
        assert_laws(agent.session)


async def test_a_hook_that_suspends_before_it_stops_may_see_one_more_start() -> None:
    """D-16: that call runs and is committed."""
    agent = calling(
        *[call("wait", name=name, seconds=s) for name, s in (("a", 1), ("b", 2), ("c", 1))], pool=2
    )

    async def stops(call: ToolCall, result: ToolResult) -> Accept | None:
        await asyncio.sleep(0.5)
        return Accept(stop=True) if call.id == "c1" else None

    agent.on.post_execute(stops)
    async with agent:
        await agent.run("go")
        assert codes(agent) == ["ok", "ok", "ok"]
        assert ran == ["a", "b", "c"]
        assert_laws(agent.session)


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


# Nested calls


@tool
async def outer(names: list[str], ctx: ToolContext) -> str:
    """Call `wait` for each name, one after the other."""
    return ",".join([(await ctx.call_tool("wait", name=name)).text or "" for name in names])


async def test_a_nested_call_goes_through_the_whole_pipeline() -> None:
    """TP-25."""
    trace, seen = Trace(), list[ToolCall]()
    agent = calling("outer", names=["a"], tools=[wait, outer])
    trace.everywhere(agent)
    agent.on.pre_execute(lambda call: seen.append(call))
    assert await told(agent) == ["a"]
    assert trace.of("c1:wait") == [
        "prepare", "pre", "guard", "guard", "around in", "around out", "post", "result",
    ]  # fmt: skip
    assert log(agent) == [
        "TC c1",
        "ST c1",
        "SB c1:wait",
        "ST c1:wait",
        "SX c1:wait ok",
        "TR c1 ok",
        "SE 1.1 tools",
    ]
    assert seen[1].parent is not None and (seen[1].parent.id, seen[1].parent.key) == ("c1", seen[0].key)
    (started,) = agent.session.facts(SubcallStart)
    assert (started.outer, started.name, started.arguments, started.effect) == (
        seen[0].key, "wait", {"name": "a"}, "read",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "prepare", "code"),
    [
        ({"name": "a"}, "deny", "DENIED"),
        ({"name": "a"}, "guard", "GUARD_DENIED"),
        ({"name": "a"}, "ask", "APPROVAL_UNAVAILABLE"),
        ({"name": "a"}, "raise", "PERMISSION_EVALUATION_ERROR"),
        ({"name": 1}, None, "INVALID_ARGS"),
    ],
)
async def test_a_nested_call_that_fails_is_raised_to_the_outer_body(
    arguments: dict[str, Any], prepare: str | None, code: str
) -> None:
    """TP-25."""
    caught: list[ToolError] = []

    @tool
    async def tries(ctx: ToolContext) -> str:
        try:
            await ctx.call_tool("wait", **arguments)
        except ToolError as error:
            caught.append(error)
        return "went on"

    agent = calling("tries", tools=[wait, tries])
    answers = {"deny": Deny("no"), "ask": Ask("?")}
    if prepare == "guard":
        agent.guard(lambda call: Deny("no") if call.name == "wait" else None)
    elif prepare == "raise":
        agent.on.pre_execute(lambda call: raise_value_error() if call.name == "wait" else None)
    elif prepare is not None:
        agent.on.pre_execute(lambda call: answers[prepare] if call.name == "wait" else None)
    assert await told(agent) == ["went on"]
    assert [error.code for error in caught] == [code]
    (ended,) = agent.session.facts(SubcallEnd)
    assert ended.error is not None and ended.error.code == code


async def test_a_nested_call_of_an_unknown_tool_or_with_what_is_no_json_is_raised() -> None:
    """TP-03."""
    caught: list[str] = []

    @tool
    async def tries(ctx: ToolContext) -> str:
        for name, value in (("nobody", 1), ("wait", object())):
            try:
                await ctx.call_tool(name, name=value)
            except (UnknownTool, ValueError) as error:
                caught.append(type(error).__name__)
        return "went on"

    agent = calling("tries", tools=[wait, tries])
    assert await told(agent) == ["went on"]
    assert caught == ["UnknownTool", "NotJSON"]


async def test_an_outer_body_that_does_not_catch_fails_with_the_code_of_its_nested_call() -> None:
    agent = calling("outer", names=["a"], tools=[wait, outer])
    agent.on.pre_execute(lambda call: Deny("no") if call.name == "wait" else None)
    (text,) = await told(agent)
    assert codes(agent) == ["DENIED"] and "no" in text


async def test_contexts_and_a_conclusion_of_nested_calls_ride_on_the_outer_result_in_order() -> None:
    """TP-25, TP-21: never before the outer result; D-1b."""

    @tool
    async def inner(name: str, ctx: ToolContext) -> str:
        ctx.defer(f"deferred {name}")
        ctx.conclude()
        return name

    @tool
    async def composite(ctx: ToolContext) -> ToolOutput:
        await ctx.call_tool("inner", name="a")
        await ctx.call_tool("inner", name="b")
        ctx.defer("its own")
        return ToolOutput("done", contexts=["returned"])

    agent = Agent(ScriptedModel(calls("composite")), tools=[inner, composite])
    agent.on.post_execute(lambda call, result: Accept(contexts=[f"about {call.name}"]))
    async with agent:
        assert (await agent.run("go")).ok
        assert contexts(agent) == [
            "deferred a", "about inner", "deferred b", "about inner", "its own", "returned", "about composite",
        ]  # fmt: skip
        assert log(agent)[-1] == "SE 1.1 concluded"
        assert_laws(agent.session)


async def test_nested_calls_are_ordered_among_themselves_and_never_conflict_with_an_ancestor() -> None:
    """D-17, TP-25: the outer call is exclusive, and so are two of the nested ones."""

    @tool
    async def alone(name: str) -> str:
        ran.append(f"{name} begins")
        await asyncio.sleep(1)
        ran.append(f"{name} ends")
        return name

    @tool
    async def composite(ctx: ToolContext) -> str:
        done = await asyncio.gather(*[ctx.call_tool("alone", name=name) for name in "ab"])
        return "".join([one.text or "" for one in done])

    agent = calling("composite", tools=[alone, composite])
    assert await told(agent) == ["ab"]
    assert ran == ["a begins", "a ends", "b begins", "b ends"]


async def test_a_nested_call_may_have_nested_calls() -> None:
    @tool
    async def outermost(ctx: ToolContext) -> str:
        return (await ctx.call_tool("outer", names=["a", "b"])).text or ""

    agent = calling("outermost", tools=[wait, outer, outermost])
    assert await told(agent) == ["a,b"]
    assert [token for token in log(agent) if token[:2] in ("SB", "SX")] == [
        "SB c1:outer", "SB c1:outer:wait", "SX c1:outer:wait ok", "SB c1:outer:wait", "SX c1:outer:wait ok",
        "SX c1:outer ok",
    ]  # fmt: skip


async def test_nested_calls_have_a_pool_of_their_own() -> None:
    """TP-25: the same cap, and an outer call that waits for them holds none of their places."""

    @tool
    async def composite(ctx: ToolContext) -> str:
        await asyncio.gather(*[ctx.call_tool("wait", name=str(n), seconds=1) for n in range(4)])
        return f"{asyncio.get_running_loop().time():g} s"

    assert await told(calling("composite", tools=[wait, composite], pool=2)) == ["2 s"]


async def test_what_an_outer_body_leaves_running_is_told_awaited_and_on_record() -> None:
    """TP-25: the end of the run ends what is in flight, and drops what has not started."""
    left: list[asyncio.Task[Any]] = []

    @tool
    async def leaves(ctx: ToolContext) -> str:
        nested = [ctx.call_tool("wait", name=str(n), seconds=9) for n in range(3)]
        left.extend(map(asyncio.create_task, nested))
        await asyncio.sleep(1)
        return "done"

    agent = calling("leaves", tools=[wait, leaves], pool=1)
    assert await told(agent) == ["done"]
    assert asyncio.get_running_loop().time() == 1
    assert ran == ["0"]
    assert [type(error).__name__ for error in await asyncio.gather(*left, return_exceptions=True)] == [
        "ToolError"
    ] * 3
    assert [token for token in log(agent) if token.startswith("SX")] == [
        "SX c1:wait ERR[ABORTED]",
        "SX c1:wait ERR[ABORTED_BEFORE_DISPATCH]",
        "SX c1:wait ERR[ABORTED_BEFORE_DISPATCH]",
    ]


async def test_a_stop_reaches_nested_calls() -> None:
    agent = calling("outer", names=["a", "b"], tools=[wait.with_(timeout=None), outer])
    agent.on.prepare(lambda call: Rewrite({"name": "a", "seconds": 9}) if call.name == "wait" else None)
    async with agent:
        receipt = agent.followup("go")
        await asyncio.sleep(1)
        agent.cancel()
        await receipt.turn()
        assert asyncio.get_running_loop().time() == 1
        assert log(agent)[-3:] == ["SX c1:wait ERR[ABORTED]", "TR c1 ERR[ABORTED]", "SE 1.1 aborted"]
        assert_laws(agent.session)


async def test_a_nested_call_that_waits_for_a_rule_is_cut_with_its_outer_call() -> None:
    """The outer call's time is over: nothing of it goes on."""

    async def slow(call: ToolCall) -> None:
        if call.name == "wait":
            await asyncio.sleep(9)

    agent = calling("outer", names=["a"], tools=[wait, outer.with_(timeout=1)])
    agent.on.pre_execute(slow)
    await told(agent)
    assert codes(agent) == ["TOOL_TIMEOUT"]
    assert asyncio.get_running_loop().time() == 1


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
@settings(deadline=None, max_examples=80)
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
