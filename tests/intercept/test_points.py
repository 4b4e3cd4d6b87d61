"""Where others speak: registrations that unwind, answers that are held to their point, and a lattice that only tightens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
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
    Continue,
    Deny,
    Enter,
    Harness,
    HookContractError,
    Message,
    Refuse,
    Reject,
    Replace,
    Retry,
    Rewrite,
    Settings,
    Signal,
    Source,
    Text,
    ToolError,
    UsageError,
    tool,
)
from interlock.intercept.decisions import Verdict, severity, strictest, verdict_name
from interlock.intercept.point import (
    SPEAKER,
    Kind,
    Listener,
    ListenerCancelled,
    ListenerTimeout,
    Point,
    hear,
    name_of,
    tell,
)
from interlock.intercept.scope import Scope
from interlock.intercept.signal import Stopped
from interlock.log.facts import ObserverFailed, ToolResulted, ToolStarted
from interlock.testing import ScriptedModel, assert_laws, calls, run_virtual, says

GATE: Point[Any] = Point("test/gate", "gate", Kind.DECIDE, (Allow, Deny), "deny > allow", "(str)")
WATCH: Point[Any] = Point("test/watch", "watch", Kind.OBSERVE, (), "", "(str)", awaited=False)


def noted(answer: object) -> None:
    """A listener."""


def names(scope: Scope) -> list[str]:
    return [listener.who for listener in scope.listeners(GATE)]


# Scopes


def test_outer_scopes_are_heard_first_each_in_order_of_registration() -> None:
    """D-7."""
    harness = Scope("harness")
    agent = Scope("agent", Scope("preset", harness))
    agent.listen(GATE, noted, name="agent 1")
    harness.listen(GATE, noted, name="harness 1")
    assert agent.parent is not None
    agent.parent.listen(GATE, noted, name="preset 1")
    harness.listen(GATE, noted, name="harness 2")
    agent.listen(GATE, noted, name="agent 2")
    assert names(agent) == ["harness 1", "harness 2", "preset 1", "agent 1", "agent 2"]
    assert names(harness) == ["harness 1", "harness 2"]


def test_a_disposer_takes_back_one_registration_and_may_be_called_twice() -> None:
    scope = Scope("agent")
    first = scope.listen(GATE, noted, name="one")
    scope.listen(GATE, noted, name="two")
    first()
    first()
    assert names(scope) == ["two"]


def test_the_same_function_may_be_registered_twice() -> None:
    scope = Scope("agent")
    scope.listen(GATE, noted, name="one")
    scope.listen(GATE, noted, name="two")()
    assert names(scope) == ["one"]


def test_leaving_a_scope_unwinds_it_newest_first_inner_scopes_before_it() -> None:
    undone: list[str] = []
    outer = Scope("outer")
    for name in ("a", "b"):
        outer.owns(lambda name=name: undone.append(name))  # type: ignore[misc]  # bound as it is
    inner = Scope("inner", outer)
    inner.owns(lambda: undone.append("inner"))
    kept = outer.owns(lambda: undone.append("taken back"))
    kept()
    with outer:
        pass
    outer.close()
    assert undone == ["taken back", "inner", "b", "a"]
    assert (outer.closed, inner.closed) == (True, True)


async def test_a_scope_can_be_left_asynchronously_and_its_parent_lives_on() -> None:
    outer = Scope("outer")
    outer.listen(GATE, noted, name="outer")
    async with Scope("inner", outer) as inner:
        inner.listen(GATE, noted, name="inner")
        assert names(inner) == ["outer", "inner"]
    assert names(inner) == names(outer) == ["outer"]


def test_nothing_can_be_registered_in_a_scope_that_was_left() -> None:
    scope = Scope("agent")
    scope.close()
    with pytest.raises(UsageError, match="the scope 'agent' is closed; register before it is left"):
        scope.listen(GATE, noted)
    assert names(scope) == []


def test_an_undo_that_fails_keeps_no_other_from_being_undone() -> None:
    undone: list[str] = []
    scope = Scope("agent")
    scope.owns(lambda: undone.append("first"))
    scope.owns(lambda: undone[5].clear())  # type: ignore[attr-defined]  # fails: that is the point
    scope.owns(lambda: undone.append("last"))
    with pytest.raises(IndexError):
        scope.close()
    assert undone == ["last", "first"]
    scope.close()


def test_who_watches_is_told_of_every_change_further_out_too() -> None:
    outer = Scope("outer")
    inner = Scope("inner", outer)
    seen: list[list[str]] = []
    inner.watch(GATE, lambda: seen.append(names(inner)))
    dispose = outer.listen(GATE, noted, name="outer")
    inner.listen(GATE, noted, name="inner")
    outer.listen(WATCH, noted)
    dispose()
    assert seen == [["outer"], ["outer", "inner"], ["inner"]]


class Callback:
    async def __call__(self, said: str) -> None: ...


async def coroutine_function(said: str) -> None: ...


@pytest.mark.parametrize(
    ("point", "fn", "options", "problem"),
    [
        (GATE, "noted", {}, "test/gate: a listener is a function, not str"),
        (GATE, noted, {"timeout": 0}, "test/gate: timeout is a number of seconds above 0, not 0"),
        (GATE, noted, {"timeout": "1"}, "test/gate: timeout is a number of seconds above 0, not '1'"),
        (
            GATE,
            noted,
            {"timeout": float("nan")},
            "test/gate: timeout is a number of seconds above 0, not nan",
        ),
        (WATCH, noted, {"timeout": 1}, "test/watch does not await its listeners"),
        (WATCH, coroutine_function, {}, "test/watch does not await its listeners"),
        (WATCH, Callback(), {}, "test/watch does not await its listeners"),
    ],
)
def test_an_illegal_listener_is_refused_at_registration(
    point: Point[Any], fn: Any, options: dict[str, Any], problem: str
) -> None:
    scope = Scope("agent")
    with pytest.raises(UsageError) as refused:
        scope.listen(point, fn, **options)
    assert problem in str(refused.value)
    assert scope.listeners(point) == ()


def test_a_listener_is_called_after_its_scope_and_function_unless_it_has_a_name() -> None:
    scope = Scope("harness")
    scope.listen(GATE, noted)
    scope.listen(GATE, Callback())
    scope.listen(GATE, noted, name="the gate")
    assert names(scope) == [f"harness:{__name__}.noted", f"harness:{__name__}.Callback", "the gate"]


def test_a_function_of_the_program_is_called_without_its_module() -> None:
    def fn() -> None: ...

    fn.__module__, fn.__qualname__ = "__main__", "fn"
    assert name_of(fn) == "fn"
    assert repr(GATE) == "<Point test/gate>"


# Answers


async def answer_of(
    fn: Callable[..., Any],
    signal: Signal | None = None,
    *,
    timeout: float | None = None,
    point: Point[Any] = GATE,
) -> Any:
    return await hear(Listener(point, fn, "somebody", timeout), signal, "said")


@pytest.mark.parametrize("answer", [None, Allow(), Deny("no")])
async def test_an_answer_may_be_given_at_once_or_be_awaited(answer: object) -> None:
    async def later(said: str) -> object:
        await asyncio.sleep(0)
        return answer

    def promised(said: str) -> asyncio.Future[object]:
        future = asyncio.get_running_loop().create_future()
        future.set_result(answer)
        return future

    for fn in (lambda said: answer, later, promised):
        assert await answer_of(fn) is answer


def look_alike() -> object:
    @dataclass
    class Deny:
        reason: str

    return Deny("no")


class Sneaky(str):
    __slots__ = ()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (True, "answered bool True, not one of Allow, Deny or None"),
        (False, "answered bool False"),
        ("deny", "answered str 'deny', not one of Allow, Deny or None"),
        ({"decision": "deny"}, "answered dict {'decision': 'deny'}"),
        (Ask("sure?"), "answered Ask Ask(reason='sure?', contexts=()), not one of Allow, Deny or None"),
        (Deny, "answered the class Deny instead of an instance: write Deny(...)"),
        (look_alike(), "it has the same name as an answer class, but is another class"),
        (Sneaky("allow"), "answered Sneaky"),
        ((Allow(),), "answered tuple"),
        ("x" * 10_000, "answered str"),
    ],
)
async def test_any_other_answer_breaks_the_contract_loudly(answer: object, said: str) -> None:
    """D-14: a dict, a string, a look-alike, a class instead of an instance. Never a guess."""

    async def later(_: str) -> object:
        return answer

    for fn in (lambda _: answer, later):
        with pytest.raises(HookContractError) as broken:
            await answer_of(fn)
        assert said in broken.value.problem
        assert len(broken.value.problem) < 300
        assert (broken.value.who, broken.value.point) == ("somebody", "test/gate")


async def test_an_answer_whose_repr_fails_breaks_the_contract_all_the_same() -> None:
    class Hostile:
        def __repr__(self) -> str:
            raise RuntimeError("no repr")

    with pytest.raises(HookContractError, match="answered Hostile"):
        await answer_of(lambda said: Hostile())


async def test_a_point_without_answers_takes_none() -> None:
    point: Point[Any] = Point("test/around", "around", Kind.AROUND, (), "onion")
    assert await answer_of(lambda said: None, point=point) is None
    with pytest.raises(HookContractError, match="answered Allow, but this point takes no answers"):
        await answer_of(lambda said: Allow(), point=point)


async def test_what_a_listener_raises_passes() -> None:
    with pytest.raises(ZeroDivisionError):
        await answer_of(lambda said: 1 / 0)


# Waiting for an answer


@pytest.mark.virtual
async def test_a_listener_that_exceeds_its_timeout_is_cut() -> None:
    async def slow(said: str) -> Allow:
        await asyncio.sleep(9)
        return Allow()

    with pytest.raises(ListenerTimeout, match="somebody took longer than its 2 s"):
        await answer_of(slow, timeout=2)
    with pytest.raises(ListenerTimeout):
        await answer_of(slow, Signal(), timeout=3)
    assert asyncio.get_running_loop().time() == 5


@pytest.mark.virtual
async def test_a_listener_that_ends_in_time_is_heard() -> None:
    async def quick(said: str) -> Allow:
        await asyncio.sleep(1)
        return Allow()

    assert await answer_of(quick, timeout=2) == Allow()
    assert await answer_of(quick, Signal(), timeout=2) == Allow()


@pytest.mark.virtual
async def test_an_answer_after_the_timeout_is_none_even_if_the_cut_was_swallowed() -> None:
    """A gate that exceeds its timeout denies: it cannot talk its way out."""

    async def stubborn(said: str) -> Allow:
        try:
            await asyncio.sleep(9)
        except asyncio.CancelledError:
            await asyncio.sleep(1)
        return Allow()

    with pytest.raises(ListenerTimeout):
        await answer_of(stubborn, timeout=2)


@pytest.mark.virtual
async def test_a_timeout_of_its_own_is_its_own_failure() -> None:
    async def fails(said: str) -> None:
        raise TimeoutError("mine")

    with pytest.raises(TimeoutError, match="mine"):
        await answer_of(fails, timeout=2)


@pytest.mark.virtual
async def test_a_listener_is_cut_when_the_signal_is_set() -> None:
    """CA-13, D-19."""

    async def slow(said: str) -> Allow:
        await asyncio.sleep(9)
        return Allow()

    for timeout in (None, 5.0):
        signal = Signal()
        asyncio.get_running_loop().call_later(1, signal.set, Cause("user"))
        with pytest.raises(Stopped):
            await answer_of(slow, signal, timeout=timeout)
    assert asyncio.get_running_loop().time() == 2


async def test_a_listener_of_a_signal_that_is_set_is_not_asked() -> None:
    signal, asked = Signal(), list[str]()
    signal.set(Cause("user"))
    with pytest.raises(Stopped):
        await answer_of(asked.append, signal)
    assert asked == []


@pytest.mark.virtual
async def test_any_awaitable_is_awaited_and_cut() -> None:
    signal, loop = Signal(), asyncio.get_running_loop()
    ready = loop.create_future()
    ready.set_result(Allow())
    assert await answer_of(lambda said: ready, signal) == Allow()
    loop.call_later(1, signal.set, Cause("user"))
    with pytest.raises(Stopped):
        await answer_of(lambda said: loop.create_future(), signal)


async def test_a_listener_that_cancels_itself_has_failed() -> None:
    """It awaited something that was cancelled: that is not the end of the turn."""

    async def awaits_a_cancelled_future(said: str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    def raises(said: str) -> None:
        raise asyncio.CancelledError

    for fn in (awaits_a_cancelled_future, raises):
        with pytest.raises(ListenerCancelled, match="somebody was cancelled from within"):
            await answer_of(fn)


@pytest.mark.virtual
async def test_a_cancel_of_the_task_passes_through_a_listener() -> None:
    async def slow(said: str) -> None:
        await asyncio.sleep(9)

    task = asyncio.create_task(answer_of(slow, Signal(), timeout=5))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# Who speaks


async def test_while_a_listener_is_heard_it_is_the_speaker() -> None:
    heard: list[Source | None] = []

    async def later(said: str) -> None:
        heard.append(SPEAKER.get())
        await asyncio.sleep(0)
        heard.append(SPEAKER.get())

    await answer_of(later)
    tell(Listener(WATCH, lambda said: heard.append(SPEAKER.get()), "an observer"), "said")
    assert heard == [Source("plugin", "somebody")] * 2 + [Source("plugin", "an observer")]
    assert SPEAKER.get() is None


def test_an_observer_answers_nothing() -> None:
    for answer in (1, coroutine_function("x")):
        with pytest.raises(TypeError, match="an observer returns nothing and is not async; it gave"):
            tell(Listener(WATCH, lambda said, answer=answer: answer, "an observer"), "said")


# Decisions as plain data


ILLEGAL: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (Deny, ("",), {}, "Deny needs a reason in words, not ''"),
    (Deny, ("  ",), {}, "Deny needs a reason in words"),
    (Deny, (None,), {}, "Deny needs a reason in words, not None"),
    (Deny, ("\ud800",), {}, "Deny: invalid Unicode"),
    (Ask, (5,), {}, "Ask needs a reason in words, not 5"),
    (Reject, (b"no",), {}, "Reject needs a reason in words"),
    (Deny, ("no",), {"contexts": 5}, "Deny: contexts are messages or strings, not int"),
    (Allow, (), {"contexts": [5]}, "Allow: a message is a str or an interlock.Message, not int"),
    (Allow, (), {"contexts": ["\ud800"]}, "Allow: invalid Unicode"),
    (
        Accept,
        (),
        {"contexts": [Message(role="assistant", content=(Text("x"),))]},
        "Accept: only user and system",
    ),
    (Accept, (), {"stop": "yes"}, "Accept: stop is True or False, not 'yes'"),
    (Accept, (), {"stop": 1}, "Accept: stop is True or False, not 1"),
    (Block, ("no",), {"stop": None}, "Block: stop is True or False"),
    (Block, (5,), {}, "Block: feedback: int is not text"),
    (Block, ("\ud800",), {}, "Block: feedback: invalid Unicode"),
    (Replace, (), {}, "Replace takes content or value, exactly one of them"),
    (Replace, ("a",), {"value": 1}, "Replace takes content or value"),
    (Replace, ("\ud800",), {}, "Replace: invalid Unicode"),
    (Replace, (), {"value": float("nan")}, "Replace: nan is not a JSON number"),
    (Replace, (), {"value": object()}, "Replace: object is not a JSON value"),
    (Replace, (5,), {}, "Replace: content is a string or several of Text"),
    (Replace, (), {"value": 1, "error": "x"}, "Replace: an error goes with content, not with a value"),
    (Replace, ("a",), {"error": "\ud800"}, "Replace: invalid Unicode"),
    (Settings, (), {"messages": [], "tools": []}, "Settings cannot change what is said: messages, tools"),
    (Replace, (("text",),), {}, "Replace: content is a string or several of Text"),
    (Replace, ((Text("\ud800"),),), {}, "Replace: invalid Unicode"),
    (Replace, (tuple([Text(five) for five in [5]]),), {}, "Replace: int is not text"),  # type: ignore[arg-type]
    (Replace, ("a",), {"stop": "no"}, "Replace: stop is True or False"),
    (Rewrite, ([("a", 1)],), {}, "Rewrite: arguments are a mapping, not list"),
    (Rewrite, ({"a": object()},), {}, "Rewrite: object is not a JSON value"),
    (Rewrite, ({1: "a"},), {}, "Rewrite: the key 1 is int, not str"),
    (Rewrite, ({},), {"advise": "allow"}, "Rewrite: advice is Allow, Ask or Deny, not str"),
    (Advise, ("deny",), {}, "Advise: advice is Allow, Ask or Deny, not str"),
    (Advise, (Deny,), {}, "Advise: advice is Allow, Ask or Deny, not the class Deny"),
    (Advise, (Reject("no"),), {}, "Advise: advice is Allow, Ask or Deny, not Reject"),
    (Refuse, ("no",), {}, "Refuse: error is a ToolError, not str"),
    (Refuse, (ValueError("no"),), {}, "Refuse: error is a ToolError, not ValueError"),
    (Enter, ([5],), {}, "Enter: a message is a str or an interlock.Message"),
    (Enter, (5,), {}, "Enter: contexts are messages or strings, not int"),
    (Settings, (), {"temperature": object()}, "Settings: object is not a JSON value"),
    (Retry, (-1,), {}, "Retry: after is a number of seconds from 0, not -1"),
    (Retry, (float("nan"),), {}, "Retry: after is a number of seconds from 0"),
    (Retry, ("1",), {}, "Retry: after is a number of seconds from 0, not '1'"),
    (Continue, (5,), {}, "Continue: a message is a str or an interlock.Message"),
    (Continue, ("\ud800",), {}, "Continue: invalid Unicode"),
]


@pytest.mark.parametrize(("cls", "args", "options", "problem"), ILLEGAL)
def test_a_decision_with_an_illegal_field_cannot_be_made(
    cls: Any, args: tuple[Any, ...], options: dict[str, Any], problem: str
) -> None:
    """D-14."""
    with pytest.raises(HookContractError) as refused:
        cls(*args, **options)
    assert problem in str(refused.value)


def test_codes_are_data_and_messages_are_messages() -> None:
    """D-6."""
    assert Replace("no", error="not_found").error == "NOT_FOUND"
    message = Message.user("go", id="m1")
    entered = Enter((message,), contexts=("by the way",))
    assert (entered.messages, entered.contexts[0].text) == ((message,), "by the way")


def test_a_decision_is_frozen_and_keeps_copies() -> None:
    arguments: dict[str, Any] = {"a": [1]}
    rewrite = Rewrite(arguments)
    arguments["a"].append(2)
    assert rewrite.arguments == {"a": (1,)}
    with pytest.raises(AttributeError):
        rewrite.arguments = {}  # type: ignore[misc]  # that is the point
    contexts = ["one"]
    deny = Deny("no", contexts=contexts)
    contexts.append("two")
    assert [message.text for message in deny.contexts] == ["one"]


def test_a_context_may_be_one_string_and_is_nobodys_words() -> None:
    (message,) = Allow(contexts="beware").contexts
    assert (message.text, message.role, message.source.kind) == ("beware", "system", "plugin")


@pytest.mark.parametrize("cls", [Allow, Ask, Deny, Accept, Block, Enter, Reject, Rewrite, Advise, Refuse])
def test_decisions_are_final(cls: type) -> None:
    assert getattr(cls, "__final__", False)


# The lattice

verdicts = st.sampled_from([Allow(), Ask("sure?"), Deny("no")])


@given(st.lists(verdicts), verdicts, st.randoms(), verdicts)
@settings(deadline=None)
def test_adding_a_verdict_in_any_position_never_loosens_the_outcome(
    said: list[Verdict], extra: Verdict, random: Any, default: Verdict
) -> None:
    """D-7, law 7."""
    before = strictest(said, default=Allow())
    after = [*said, extra]
    random.shuffle(after)
    assert severity(strictest(after, default=Allow())) == max(severity(before), severity(extra))
    assert strictest([], default=default) is default


def test_the_first_of_the_strictest_is_named() -> None:
    first, second = Deny("first"), Deny("second")
    assert strictest([Allow(), first, second], default=Allow()) is first
    assert [verdict_name(one) for one in (Allow(), Ask("?"), first)] == ["allow", "ask", "deny"]


@tool(effect="write")
async def change() -> str:
    return "changed"


def raises(call: Any) -> None:
    raise RuntimeError("a bug")


async def slow(call: Any) -> Allow:
    await asyncio.sleep(9)
    return Allow()


# What a participant may be, by how strict its voice is: abstain or allow, ask, deny or fail.
GATES: dict[str, Callable[[Any], Any]] = {
    "abstains": lambda call: None,
    "allows": lambda call: Allow(),
    "asks": lambda call: Ask("sure?"),
    "denies": lambda call: Deny("no"),
    "raises": raises,
    "answers a string": lambda call: "allow",
    "answers a dict": lambda call: {"decision": "allow"},
    "is too slow": slow,
}
ALLOWED, ASKED, DENIED = 0, 1, 2


def voice(gate: str) -> int:
    return {"abstains": ALLOWED, "allows": ALLOWED, "asks": ASKED}.get(gate, DENIED)


async def outcome(gates: list[tuple[str, bool]], guards: list[str]) -> int:
    """How strictly one call was treated, by listeners in the harness (True) or the agent, and guards."""
    async with (
        Harness() as harness,
        harness.agent(ScriptedModel(calls("change"), says("done")), tools=[change]) as agent,
    ):
        for gate, shared in gates:
            (harness if shared else agent).on.pre_execute(GATES[gate], timeout=2)
        for gate in guards:
            agent.guard(GATES[gate])
        result = await agent.run("go")
        assert result.ok
        assert_laws(agent.session)
        (done,) = agent.session.facts(ToolResulted)
        started = bool(agent.session.facts(ToolStarted))
    code = done.error.code if done.error is not None else None
    assert started == (code is None)
    return {None: ALLOWED, "APPROVAL_UNAVAILABLE": ASKED}.get(code, DENIED)


gate_lists = st.lists(st.tuples(st.sampled_from(sorted(GATES)), st.booleans()), max_size=4)
guard_lists = st.lists(st.sampled_from(["abstains", "denies", "raises", "answers a string"]), max_size=2)


@given(gate_lists, guard_lists, st.sampled_from(sorted(GATES)), st.booleans(), st.integers(0, 4))
@settings(deadline=None, max_examples=60)
def test_adding_a_listener_in_any_position_never_loosens_a_decision(
    gates: list[tuple[str, bool]], guards: list[str], extra: str, shared: bool, at: int
) -> None:
    """D-7, D-14, law 7: whatever the listener is, wherever it stands, and whoever else speaks."""
    more = [*gates[:at], (extra, shared), *gates[at:]]
    before = run_virtual(outcome(gates, guards))
    after = run_virtual(outcome(more, guards))
    assert after >= before
    strictest_voice = max(
        [voice(gate) for gate, _ in more] + [voice(gate) for gate in guards], default=ALLOWED
    )
    assert after == strictest_voice


# In an agent


@pytest.mark.virtual
async def test_what_is_registered_in_a_preset_holds_for_its_agents_only_and_not_after_it() -> None:
    async with Harness() as harness:
        async with harness.preset("careful") as preset:
            preset.on.pre_execute(lambda call: Deny("careful"))
            inside = preset.agent(ScriptedModel(calls("change"), says("…")), tools=[change])
            outside = harness.agent(ScriptedModel(calls("change"), says("…")), tools=[change])
            codes = []
            for agent in (inside, outside):
                await agent.open()
                await agent.run("go")
                assert_laws(agent.session)
                codes += [
                    done.error.code if done.error else None for done in agent.session.facts(ToolResulted)
                ]
            assert codes == ["DENIED", None]
            with pytest.raises(UsageError, match="would lose its guards"):
                preset.close()
        assert inside.scope.closed and not outside.scope.closed


def test_a_tool_cannot_be_added_to_a_layer_that_was_left() -> None:
    preset = Harness().preset("careful")
    preset.close()
    with pytest.raises(UsageError, match="is closed"):
        preset.add_tool(change)
    assert preset.registry.get("change") is None


async def test_an_async_guard_is_refused_at_registration() -> None:
    """D-14: it would have to be awaited right before the body."""

    async def guard(call: Any) -> Deny:
        return Deny("no")

    async with Agent(ScriptedModel()) as agent:
        with pytest.raises(UsageError, match=r"a guard must be a plain function|does not await"):
            agent.guard(guard)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(UsageError):
            agent.guard(Callback())  # type: ignore[arg-type]  # that is the point


@pytest.mark.virtual
async def test_a_broken_contract_is_one_notice_and_the_turn_goes_on() -> None:
    """D-14."""
    async with Agent(ScriptedModel(calls("change"), says("done")), tools=[change]) as agent:
        agent.on.pre_execute(lambda call: "allow", name="typo")
        result = await agent.run("go")
        assert result.ok
        (done,) = agent.session.facts(ToolResulted)
        assert done.error is not None and done.error.code == "HOOK_CONTRACT_ERROR"
        (notice,) = agent.session.facts(ObserverFailed)
        assert (notice.point, notice.who) == ("tools/pre-execute", "typo")
        assert_laws(agent.session)


async def test_points_can_be_registered_at_with_a_decorator_that_takes_options() -> None:
    async with Agent(ScriptedModel()) as agent:

        @agent.on.pre_execute(name="the gate", timeout=3)
        def gate(call: Any) -> Deny | None:
            return None

        (listener,) = agent.scope.listeners(agent.on.pre_execute._point)
        assert (listener.who, listener.timeout) == ("the gate", 3)
        gate()
        assert agent.scope.listeners(agent.on.pre_execute._point) == ()
        assert repr(agent.on.pre_execute) == "<on.pre_execute (ToolCall)>"


def test_a_refusal_needs_a_tool_error() -> None:
    assert Refuse(ToolError("no", code="X")).error.code == "X"
