"""Requests: what one consists of, who may change its settings, who may wrap it, and how the log proves it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from interlock import (
    Agent,
    CallSettings,
    ConfigError,
    Enter,
    HookContractError,
    MemoryStore,
    ModelFailure,
    Proposal,
    RetryPolicy,
    Settings,
    Signal,
    SQLiteStore,
    UnknownModel,
    open_session,
    tool,
)
from interlock.log.facts import (
    AssistantChunk,
    AssistantMessage,
    DecisionMade,
    RequestFailed,
    RequestHeader,
    RequestSent,
    Said,
    Section,
    StepStart,
    TurnEnd,
)
from interlock.log.reasons import Aborted, Failed
from interlock.log.state import State
from interlock.models import Chunk, Finish, ModelRequest, TextDelta
from interlock.models.registry import register_provider
from interlock.testing import ScriptedModel, assert_laws, calls, fails, outline, says

AT_ONCE = RetryPolicy(base=0)


@tool(effect="read")
async def look() -> str:
    """Look around."""
    return "seen"


@tool(effect="read")
async def aim(at: str) -> str:
    """Aim at something."""
    return at


def only(agent: Agent, fact: type[Any]) -> Any:
    (found,) = agent.session.facts(fact)
    return found


class Named(ScriptedModel):
    """A scripted model of some provider, that knows whether it was closed."""

    def __init__(self, provider: str, *answers: Any) -> None:
        super().__init__(*answers, name=f"{provider}-1")
        self.provider = provider
        self.closed = 0

    async def aclose(self) -> None:
        self.closed += 1


# The header


async def test_the_first_request_of_a_life_logs_its_header_and_the_next_ones_only_a_difference() -> None:
    """TL-16"""
    store = MemoryStore()
    async with Agent(ScriptedModel(calls("look"), says("a"), says("b")), tools=[look], store=store) as agent:
        await agent.run("one")
        await agent.run("two")
        assert [header.why for header in agent.session.facts(RequestHeader)] == ["initial"]
        session = agent.session.id
        assert_laws(agent.session)
    async with Agent(
        ScriptedModel(says("c"), says("d")), tools=[look], store=store, session=session
    ) as agent:
        await agent.run("three")
        agent.add_tool(aim)
        await agent.run("four")
        assert [header.why for header in agent.session.facts(RequestHeader)] == [
            "initial",
            "resume",
            "change",
        ]
        assert_laws(agent.session)


async def test_a_header_holds_all_of_a_request_but_its_messages() -> None:
    """TL-16"""
    model = ScriptedModel(says("ok"), name="the-model")
    sections = ["Be brief.", Section("house", "No jokes.")]
    async with Agent(model, tools=[look, aim], instructions=sections, settings={"temperature": 0.2}) as agent:
        await agent.run("go")

        header = only(agent, RequestHeader)
        assert (header.provider, header.model, header.settings) == (
            "scripted",
            "the-model",
            {"temperature": 0.2},
        )
        assert header.system == (Section("instructions", "Be brief."), Section("house", "No jokes."))
        assert [spec.name for spec in header.tools] == ["aim", "look"]  # sorted, whatever the order given
        asked = model.requests[0]
        assert (asked.provider, asked.model, asked.settings, asked.system, asked.tools) == (
            header.provider,
            header.model,
            header.settings,
            header.system,
            header.tools,
        )
        assert asked.session == agent.session.id


async def test_the_order_in_which_tools_were_added_is_no_difference() -> None:
    """TL-16"""
    async with Agent(ScriptedModel(says("a"), says("b")), tools=[look]) as agent:
        dispose = agent.add_tool(aim)
        await agent.run("one")
        dispose()
        agent.add_tool(aim)
        await agent.run("two")

        assert len(agent.session.facts(RequestHeader)) == 1


async def test_tools_are_taken_once_per_proposal_before_anybody_is_asked() -> None:
    """TL-04: what a listener adds is there for the next step, and a retry sends what was assembled."""
    model = ScriptedModel(fails("SERVER"), calls("look"), says("ok"))
    async with Agent(model, tools=[look], retry=AT_ONCE) as agent:

        @agent.on.pre_step
        def adds(proposal: Proposal) -> None:
            if proposal.step == 1:
                agent.add_tool(aim)

        await agent.run("go")

        assert [[spec.name for spec in request.tools] for request in model.requests] == [
            ["look"],
            ["look"],
            ["aim", "look"],
        ]
        assert_laws(agent.session)


# The messages and their digest


async def test_every_request_is_the_history_as_it_was_when_it_left() -> None:
    """TL-16, law 3"""
    model = ScriptedModel(
        calls("look", saying="First I look."), fails("SERVER"), says("Seen."), says("Again.")
    )
    async with Agent(model, tools=[look], retry=AT_ONCE, instructions="Be kind.") as agent:
        agent.inject("by the way")
        agent.on.pre_step(lambda proposal: Enter(proposal.messages, contexts=["it is late"]))
        await agent.run("one")
        await agent.run("two")

        state, sent = State(), []
        for event in agent.session.events:
            if isinstance(event.fact, RequestSent):
                view = state.history.view()
                sent.append(list(view))
                assert (event.fact.messages, event.fact.last) == (len(view), state.history.last)
                assert event.fact.header == state.header_seq
                assert agent.session.events[event.fact.step_start].fact.type == StepStart.type
            state.apply(event)
        assert sent == [list(request.messages) for request in model.requests]
        assert len(sent) == 4
        assert_laws(agent.session)


async def test_the_messages_of_a_request_are_a_view_that_does_not_grow() -> None:
    """UW-27: they are not copied for each request, and a later step changes nothing in them."""
    kept: list[Any] = []

    class Keeps(ScriptedModel):
        async def stream(self, request: ModelRequest, signal: Signal) -> AsyncIterator[Chunk]:
            kept.append(request.messages)
            async for chunk in super().stream(request, signal):
                yield chunk

    async with Agent(Keeps(calls("look"), says("ok")), tools=[look]) as agent:
        await agent.run("go")

        assert [len(messages) for messages in kept] == [1, 3]
        assert kept[0].row is kept[1].row
        assert not hasattr(kept[0], "append")
        with pytest.raises(IndexError):
            kept[0][1]


async def test_the_digest_tells_requests_apart_by_everything_in_them() -> None:
    """Law 3"""

    async def digests(*prompts: str, **settings: Any) -> list[str]:
        async with Agent(ScriptedModel(*[says("ok")] * len(prompts)), **settings) as agent:
            for prompt in prompts:
                await agent.run(prompt)
            return [fact.digest for fact in agent.session.facts(RequestSent)]

    base = await digests("a", "b")
    assert base == await digests("a", "b")  # the same in every session
    variants = [
        base,
        await digests("b", "a"),
        await digests("a", "c"),
        await digests("a", "b", instructions="x"),
        await digests("a", "b", tools=[look]),
        await digests("a", "b", settings={"temperature": 0}),
    ]
    firsts = [first for first, _ in variants]
    assert firsts[0] == firsts[2]  # the same first prompt
    assert len({tuple(variant) for variant in variants}) == len(variants)
    assert len({digest for variant in variants for digest in variant}) == 2 * len(variants) - 1


async def test_no_request_leaves_before_its_input_is_on_disk(tmp_path: Path) -> None:
    """Law 6: another reader of the file sees `request/sent` when the adapter is asked."""
    path = tmp_path / "sessions.db"
    last_on_disk: list[str] = []

    class Looks(ScriptedModel):
        async def stream(self, request: ModelRequest, signal: Signal) -> AsyncIterator[Chunk]:
            other = SQLiteStore(path)
            reader = await open_session(request.session, store=other, readonly=True)
            last_on_disk.append(reader.events[-1].type)
            await reader.close()
            await other.close()
            async for chunk in super().stream(request, signal):
                yield chunk

    store = SQLiteStore(path)
    async with Agent(Looks(calls("look"), says("ok")), tools=[look], store=store) as agent:
        await agent.run("go")
        assert last_on_disk == ["request/sent", "request/sent"]
        assert_laws(agent.session)
    await store.close()


# Settings


async def test_settings_are_a_pipeline_and_the_last_word_counts() -> None:
    """TL-17, D-7"""
    seen: list[dict[str, Any]] = []
    model = ScriptedModel(says("ok"))
    async with Agent(model, settings={"temperature": 1, "seed": 7}) as agent:

        @agent.on.request
        async def first(asked: CallSettings) -> Settings:
            seen.append(dict(asked.settings))
            return Settings(temperature=0.5, stop=["END"])

        @agent.on.request
        def second(asked: CallSettings) -> Settings:
            seen.append(dict(asked.settings))
            return Settings(temperature=0)

        agent.on.request(lambda asked: None)
        await agent.run("go")

        named = {"provider": "scripted", "model": "scripted"}
        assert seen == [
            {**named, "temperature": 1, "seed": 7},
            {**named, "temperature": 0.5, "seed": 7, "stop": ("END",)},
        ]
        assert model.requests[0].settings == {"temperature": 0, "seed": 7, "stop": ("END",)}
        assert only(agent, RequestHeader).settings == model.requests[0].settings
        assert_laws(agent.session)


async def test_who_changed_the_settings_is_on_record_and_who_abstained_is_not() -> None:
    """The log tells every decision."""
    async with Agent(ScriptedModel(calls("look"), says("ok")), tools=[look]) as agent:
        agent.on.request(lambda asked: None, name="abstains")
        agent.on.request(
            lambda asked: Settings(temperature=0, seed=1) if asked.step == 1 else None, name="decides"
        )
        await agent.run("go")

        decided = only(agent, DecisionMade)
        assert (decided.point, decided.answer, decided.by) == ("agent/request", "settings", "decides")
        assert decided.said == (Said("decides", "settings", "seed, temperature"),)
        assert agent.session.events[decided.subject].type == "step/start"
        assert_laws(agent.session)


async def test_a_listener_cannot_change_settings_in_place() -> None:
    """TL-17"""
    async with Agent(ScriptedModel(says("never")), settings={"temperature": 1}) as agent:

        @agent.on.request
        def meddles(asked: CallSettings) -> None:
            asked.settings["temperature"] = 0

        result = await agent.run("go")

        assert isinstance(result.reason, Failed)
        assert "frozen" in result.reason.message


async def test_what_is_handed_in_as_a_setting_is_copied() -> None:
    """D-7"""
    stop = ["END"]
    model = ScriptedModel(says("a"), says("b"))
    async with Agent(model, settings={"stop": stop}) as agent:
        agent.on.request(lambda asked: Settings(also=stop))
        await agent.run("one")
        stop.append("MORE")
        assert model.requests[0].settings == {"stop": ("END",), "also": ("END",)}


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": float("nan")},
        {"temperature": object},
        {"seed": 2**60},
        {"stop": {"END"}},
        {"user": "half of an emoji \ud83d"},
        {"messages": []},
        {"tools": []},
        {"system": "another prompt"},
    ],
    ids=repr,
)
def test_a_setting_is_a_json_value_and_never_a_part_of_the_conversation(wrong: dict[str, Any]) -> None:
    """TL-17: messages are not settings."""
    with pytest.raises(HookContractError, match="Settings"):
        Settings(**wrong)


async def test_a_listener_that_raises_ends_the_turn_before_anything_is_sent() -> None:
    """TL-17"""
    model = ScriptedModel(says("never"))
    async with Agent(model) as agent:
        agent.on.request(lambda asked: 1 / 0)
        result = await agent.run("go")

        assert result.reason == Failed("UNKNOWN", "ZeroDivisionError: division by zero")
        assert outline(
            agent.session, "step/start", "user/message", "request/header", "step/end", "turn/end"
        ) == [
            "step/start",
            "user/message go",
            "step/end error",
            "turn/end error UNKNOWN: ZeroDivisionError: division by zero",
        ]
        assert model.requests == []
        assert_laws(agent.session)


# Which model


@pytest.mark.parametrize(
    ("chosen", "missing"),
    [
        ({}, "provider and model"),
        ({"provider": "scripted"}, "model"),
        ({"model": "x"}, "provider"),
        ({"provider": "", "model": "x"}, "provider"),
        ({"provider": None, "model": None}, "provider and model"),
    ],
    ids=["neither", "no model", "no provider", "an empty provider", "both none"],
)
async def test_a_request_without_provider_or_model_names_what_is_missing(
    chosen: dict[str, Any], missing: str
) -> None:
    """TL-17: the prompt is kept, nothing is recovered from."""
    heard: list[str] = []
    async with Agent() as agent:
        agent.on.request_error(lambda failure, attempt: heard.append(failure.code))
        agent.on.request(lambda asked: Settings(**chosen))
        result = await agent.run("go")

        assert isinstance(result.reason, Failed)
        assert result.reason.code == "UNKNOWN"
        assert f"the request has no {missing}:" in result.reason.message
        assert outline(
            agent.session, "step/start", "user/message", "request/sent", "step/end", "turn/end"
        ) == [
            "step/start",
            "user/message go",
            "step/end error",
            f"turn/end error UNKNOWN: {result.reason.message}",
        ]
        assert heard == []
        assert_laws(agent.session)


async def test_an_unknown_provider_ends_the_turn_and_is_named() -> None:
    """TL-17"""
    async with Agent(ScriptedModel(says("never"))) as agent:
        agent.on.request(lambda asked: Settings(provider="opnai"))
        result = await agent.run("go")

        assert isinstance(result.reason, Failed)
        assert "opnai" in result.reason.message
        assert "openai" in result.reason.message  # the hint
        assert_laws(agent.session)


@pytest.mark.parametrize(
    "wrong", [42, object(), ScriptedModel, ["openai:x"]], ids=["42", "object", "class", "list"]
)
def test_what_is_no_model_is_refused_when_the_agent_is_made(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="a model is provider:name or an adapter, not"):
        Agent(wrong)


@pytest.mark.parametrize("wrong", ["gpt-5", "nobody:x", "openai:", ":x", ""])
def test_a_model_that_nobody_serves_is_refused_when_the_agent_is_made(wrong: str) -> None:
    with pytest.raises(UnknownModel):
        Agent(wrong)


async def test_another_model_of_the_same_provider_is_asked_through_the_same_adapter() -> None:
    """TL-17"""
    model = Named("scripted", says("ok"))
    async with Agent(model) as agent:
        agent.on.request(lambda asked: Settings(model="smaller"))
        await agent.run("go")

        assert model.requests[0].model == only(agent, RequestHeader).model == "smaller"


async def test_an_adapter_that_a_listener_chose_is_made_once_and_closed_with_the_agent() -> None:
    """Law 9: who makes an adapter closes it; who was handed one does not."""
    made: list[Named] = []

    def factory(name: str, *, base_url: str | None) -> Named:
        made.append(Named("other", says("from the other"), says("and again")))
        return made[-1]

    own = Named("own", says("from my own"))
    dispose = register_provider("other", factory)
    try:
        async with Agent(own) as agent:
            agent.on.request(lambda asked: Settings(provider="other", model="x") if asked.turn > 1 else None)
            texts = [(await agent.run(prompt)).text for prompt in ("one", "two", "three")]
            assert_laws(agent.session)
    finally:
        dispose()

    assert texts == ["from my own", "from the other", "and again"]
    assert [model.closed for model in made] == [1]
    assert own.closed == 0


async def test_an_adapter_that_the_agent_made_of_a_name_is_closed_with_it() -> None:
    """Law 9"""
    model = Named("named", says("ok"))
    dispose = register_provider("named", lambda name, *, base_url: model)
    try:
        async with Agent("named:x") as agent:
            assert (await agent.run("go")).text == "ok"
    finally:
        dispose()

    assert model.closed == 1


# Wrappers


async def test_a_wrapper_that_raises_is_not_the_models_failure() -> None:
    """ST-10, A-P37: no recovery, no message, the turn ends with an error."""
    heard: list[str] = []
    async with Agent(ScriptedModel(says("a b"), says("unused")), retry=AT_ONCE) as agent:
        agent.on.request_error(lambda failure, attempt: heard.append(failure.code))

        @agent.on.model_stream
        async def breaks(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
            async for chunk in following():
                yield chunk
                raise KeyError("in the wrapper")

        result = await agent.run("go")

        assert result.reason == Failed("UNKNOWN", "KeyError: 'in the wrapper'")
        assert heard == []
        assert len(agent.session.facts(RequestSent)) == len(agent.session.facts(AssistantChunk)) == 1
        assert not agent.session.facts(AssistantMessage)
        assert_laws(agent.session)


async def test_a_model_failure_that_a_wrapper_makes_up_is_not_recovered_from() -> None:
    """RE-01: only the adapter's own failures are."""
    heard: list[str] = []
    async with Agent(ScriptedModel(says("a"), says("b")), retry=AT_ONCE) as agent:
        agent.on.request_error(lambda failure, attempt: heard.append(failure.code))

        @agent.on.model_stream
        async def pretends(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
            raise ModelFailure("made up", code="SERVER")
            yield  # it is a generator

        result = await agent.run("go")

        assert result.reason == Failed("SERVER", "made up")
        assert heard == []
        assert_laws(agent.session)


async def test_a_wrapper_sees_the_adapters_failure_as_it_is_and_passing_it_on_recovers() -> None:
    """RE-01: a failure does not change its class or its owner on the way through."""
    caught: list[tuple[str, int | None]] = []
    model = ScriptedModel(fails("RATE_LIMIT", "slow down", status=429), says("better"))
    async with Agent(model, retry=AT_ONCE) as agent:

        @agent.on.model_stream
        async def watches(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
            try:
                async for chunk in following():
                    yield chunk
            except ModelFailure as failure:
                caught.append((failure.code, failure.status))
                raise

        result = await agent.run("go")

        assert caught == [("RATE_LIMIT", 429)]
        assert result.text == "better"
        assert_laws(agent.session)


async def test_wrappers_nest_outer_to_inner_and_may_change_what_is_shown() -> None:
    """D-7: the stream is an onion; what comes out of it is what is logged."""
    trace: list[str] = []

    def wrapper(name: str) -> Callable[..., AsyncIterator[Chunk]]:
        async def wrap(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
            trace.append(f"{name} in")
            async for chunk in following():
                yield TextDelta(f"{name}({chunk.text})") if isinstance(chunk, TextDelta) else chunk
            trace.append(f"{name} out")

        return wrap

    async with Agent(ScriptedModel(says("x"))) as agent:
        agent.on.model_stream(wrapper("outer"))
        agent.on.model_stream(wrapper("inner"))
        result = await agent.run("go")

        assert trace == ["outer in", "inner in", "inner out", "outer out"]
        assert result.text == "outer(inner(x))"
        assert_laws(agent.session)


async def test_a_wrapper_that_cancels_itself_has_failed_and_hangs_nothing() -> None:
    """ST-10, D-14"""
    async with Agent(ScriptedModel(says("x"), says("again")), retry=AT_ONCE) as agent:

        @agent.on.model_stream(name="the wrapper")
        async def awaits_what_was_cancelled(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
            inner = asyncio.create_task(asyncio.sleep(3600))
            async for chunk in following():
                inner.cancel()
                await inner
                yield chunk

        result = await asyncio.wait_for(agent.run("go"), 5)

        assert isinstance(result.reason, Failed)
        assert "the wrapper was cancelled from within" in result.reason.message
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_stop_cuts_a_wrapper_that_hangs() -> None:
    """CA-13"""
    async with Agent(ScriptedModel(says("shown but held back"))) as agent:

        @agent.on.model_stream
        async def holds_back(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
            async for chunk in following():
                yield chunk
                await asyncio.sleep(3600)

        running = asyncio.create_task(agent.run("go"))
        await asyncio.sleep(5)
        agent.cancel()
        result = await running

        assert isinstance(result.reason, Aborted)
        assert asyncio.get_running_loop().time() == 5
        assert outline(agent.session, "assistant/message") == ["assistant/message shown  (interrupted)"]
        assert_laws(agent.session)


@pytest.mark.virtual
async def test_a_silent_wrapper_is_a_silent_stream() -> None:
    """BU-05: the idle limit does not ask who is silent."""
    policy = RetryPolicy(retries=1, base=0, idle=3)
    async with Agent(ScriptedModel(says("a"), says("b")), retry=policy) as agent:

        @agent.on.model_stream
        async def slow(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
            async for chunk in following():
                if not agent.session.facts(RequestFailed):
                    await asyncio.sleep(60)
                yield chunk

        result = await agent.run("go")

        assert (result.text, asyncio.get_running_loop().time()) == ("b", 3)
        assert_laws(agent.session)


async def test_a_wrapper_may_answer_by_itself() -> None:
    model = ScriptedModel(says("never asked"))
    async with Agent(model) as agent:

        @agent.on.model_stream
        async def cached(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
            yield TextDelta("from the cache")
            yield Finish()

        result = await agent.run("go")

        assert (result.text, model.requests) == ("from the cache", [])
        assert_laws(agent.session)


def _twice(request: ModelRequest, following: Any) -> AsyncIterator[Chunk]:
    async def wrap() -> AsyncIterator[Chunk]:
        async for chunk in following():
            yield chunk
        async for chunk in following():
            yield chunk

    return wrap()


def _no_chunks(request: ModelRequest, following: Any) -> AsyncIterator[Any]:
    async def wrap() -> AsyncIterator[Any]:
        async for _ in following():
            yield {"text": "x"}

    return wrap()


@pytest.mark.parametrize(
    ("wrapper", "problem"),
    [
        pytest.param(lambda request, following: None, "answered NoneType", id="none"),
        pytest.param(lambda request, following: "stop", "answered str", id="a string"),
        pytest.param(lambda request, following: {"text": "x"}, "answered dict", id="a dict"),
        pytest.param(lambda request, following: [TextDelta("x")], "answered list", id="a list of chunks"),
        pytest.param(_twice, "next() was called twice", id="next twice"),
        pytest.param(_no_chunks, "gave dict, which is no chunk", id="yields no chunk"),
    ],
)
async def test_a_wrapper_that_breaks_the_contract_ends_the_turn_and_is_named(
    wrapper: Callable[..., Any], problem: str
) -> None:
    """D-14, D-18"""
    heard: list[str] = []
    async with Agent(ScriptedModel(says("a"), says("b")), retry=AT_ONCE) as agent:
        agent.on.request_error(lambda failure, attempt: heard.append(failure.code))
        agent.on.model_stream(wrapper, name="the wrapper")
        result = await agent.run("go")

        assert isinstance(result.reason, Failed)
        assert result.reason.code == "HOOK_CONTRACT_ERROR"
        assert "the wrapper" in result.reason.message
        assert problem in result.reason.message
        assert heard == []  # no recovery
        assert not agent.session.facts(AssistantMessage)
        assert only(agent, TurnEnd).reason == result.reason
        assert_laws(agent.session)
