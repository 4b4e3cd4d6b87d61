"""An agent with a redactor: what the model is told, what runs, and what is on disk."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import (
    Agent,
    ApprovalRequest,
    Approved,
    Enter,
    Harness,
    HookResult,
    Message,
    PostToolContext,
    Redactor,
    Rewrite,
    SQLiteStore,
    ToolContext,
    ToolError,
    tool,
)
from interlock.log.facts import AssistantChunk, AssistantMessage, RequestHeader, ToolCalled, ToolResulted
from interlock.log.messages import Reasoning, ToolUse
from interlock.models.protocol import CallDelta, Finish, ReasoningDelta, TextDelta
from interlock.testing import ScriptedModel, assert_laws, call, calls, chunks, hangs, run_virtual, says

SECRET = 'can"ary/of the+mine'
MARK = "[redacted:bird]"


def spellings(secret: str = SECRET) -> list[str]:
    """The secret in every way in which it must not be found."""
    return [
        *(secret, json.dumps(secret)[1:-1], json.dumps(json.dumps(secret))[1:-1]),
        *(quote(secret), quote(secret, safe="")),
        *(b64encode(b"\0" * offset + secret.encode()).decode()[4:-4] for offset in range(3)),
    ]


def redacting() -> Redactor:
    return Redactor({"bird": SECRET})


def seen_by(model: ScriptedModel) -> str:
    """All that the model was told, in all requests."""
    return "\n".join(
        [f"{r.system} {r.tools} {r.settings} {[m.content for m in r.messages]}" for r in model.requests]
    )


def hidden(text: str) -> bool:
    return not any(spelled in text for spelled in (*spellings(), repr(SECRET)[1:-1]))


async def test_what_the_model_is_told_is_what_the_log_has() -> None:
    @tool(effect="read", description=f"reads {SECRET}")
    def read(path: str) -> str:
        return f"{path} holds {SECRET} and {b64encode(SECRET.encode()).decode()}"

    model = ScriptedModel(calls("read", path="a"), says("Done."), says("Again."))
    agent = Agent(
        model,
        tools=[read],
        instructions=f"You know {SECRET}.",
        settings={"note": SECRET},
        redact=redacting(),
    )
    async with agent:
        await agent.run(f"the bird is {SECRET}")
        await agent.run(Message.user(f"once more {SECRET}"))

        assert hidden(seen_by(model))
        assert seen_by(model).count(MARK) > 5
        assert [len(agent.session.facts(t)) for t in (RequestHeader, ToolResulted)] == [1, 1]
        assert_laws(agent.session)  # the digest of each request among them


pieces = st.lists(
    st.sampled_from([SECRET, "say ", "[", "can", "ghp_", "x" * 36, "\n"]), min_size=1, max_size=5
)


@given(pieces.map("".join), st.lists(st.integers(0, 200), max_size=8))
def test_a_secret_that_the_model_spells_is_found_however_it_is_cut(text: str, cuts: list[int]) -> None:
    ends = sorted({*(cut for cut in cuts if cut < len(text)), len(text)})
    deltas = [TextDelta(text[a:b]) for a, b in zip([0, *ends], ends, strict=False) if a < b]

    async def main() -> None:
        async with Agent(ScriptedModel(chunks(*deltas, Finish())), redact=redacting()) as agent:
            result = await agent.run("go")
            given_on = "".join(fact.text for fact in agent.session.facts(AssistantChunk))
            assert result.text == given_on == redacting().text(text)
            assert len(agent.session.facts(AssistantChunk)) <= len(deltas) + 2
            assert_laws(agent.session)

    run_virtual(main())


async def test_blocks_are_looked_through_each_for_itself() -> None:
    half = len(SECRET) // 2
    first, second = SECRET[:half], SECRET[half:]
    arguments = json.dumps({"q": f"x {SECRET}"})
    answer = chunks(
        ReasoningDelta(f"I think {first}", 0),
        TextDelta(f"I say {first}", 1),
        ReasoningDelta(f"{second}!", 0, signature=SECRET),
        CallDelta(2, "c1", "look", arguments[:9]),
        TextDelta(f"{second}?", 1),
        CallDelta(2, arguments=arguments[9:]),
        Finish("calls"),
    )

    @tool(effect="read")
    def look(q: str) -> str:
        return q

    async with Agent(ScriptedModel(answer, says("Ok.")), tools=[look], redact=redacting()) as agent:
        await agent.run("go")
        reasoning, text, use = agent.session.facts(AssistantMessage)[0].blocks
        assert reasoning == Reasoning(f"I think {MARK}!", MARK)
        assert text.text == f"I say {MARK}?"  # type: ignore[union-attr]
        assert isinstance(use, ToolUse) and json.loads(use.arguments) == {"q": f"x {MARK}"}
        assert agent.session.facts(ToolResulted)[0].content[0].text == f"x {MARK}"


async def test_what_was_held_back_when_a_stream_is_stopped_is_dropped() -> None:
    model = ScriptedModel(chunks(TextDelta("I say "), TextDelta(SECRET[:8]), hangs()))
    async with Agent(model, redact=redacting()) as agent:
        agent.session.observe(lambda event: agent.cancel(), AssistantChunk)
        result = await agent.run("go")
        assert SECRET[:8] not in result.messages[-1].text
        assert result.messages[-1].text == "I say "


def put(ran: list[Any]) -> Any:
    @tool(effect="write")
    def put(text: str) -> str:
        ran.append(text)
        return "written"

    return put


@pytest.mark.parametrize("text", [f"key={SECRET}", f"key={MARK}"])
async def test_a_call_that_may_have_an_effect_does_not_run_with_a_mark_in_it(text: str) -> None:
    ran: list[Any] = []
    async with Agent(
        ScriptedModel(calls("put", text=text), says("I see.")), tools=[put(ran)], redact=redacting()
    ) as agent:
        await agent.run("go")
        result = agent.session.facts(ToolResulted)[0]
        assert ran == [] and result.error is not None and result.error.code == "SECRET_REDACTED"
        assert result.content[0].text.startswith(
            f"Error [secret_redacted]: nothing ran: the arguments hold {MARK}"
        )
        assert_laws(agent.session)


async def test_a_call_that_only_reads_runs_with_what_the_log_has() -> None:
    ran: list[Any] = []

    @tool(effect="read")
    def find(text: str) -> str:
        ran.append(text)
        return "nothing"

    async with Agent(
        ScriptedModel(calls("find", text=SECRET), says("I see.")), tools=[find], redact=redacting()
    ) as agent:
        await agent.run("go")
        assert ran == [MARK]
        assert json.loads(agent.session.facts(ToolCalled)[0].arguments) == {"text": MARK}


async def test_arguments_that_a_listener_or_a_person_writes_are_no_exception() -> None:
    ran: list[Any] = []
    rewritten = Agent(
        ScriptedModel(calls("put", text="x"), says("I see.")), tools=[put(ran)], redact=redacting()
    )
    async with rewritten as agent:
        agent.on.prepare(lambda call: Rewrite({"text": SECRET}))
        await agent.run("go")
        assert agent.session.facts(ToolResulted)[0].error.code == "SECRET_REDACTED"  # type: ignore[union-attr]
        assert_laws(agent.session)

    async def edit(request: ApprovalRequest) -> Approved:
        return Approved(arguments={"text": SECRET})

    edited = Agent(
        ScriptedModel(calls("put", text="x"), says("I see.")),
        tools=[put(ran)],
        preset="ask",
        approver=edit,
        redact=redacting(),
    )
    async with edited as agent:
        await agent.run("go")
        assert agent.session.facts(ToolResulted)[0].error.code == "SECRET_REDACTED"  # type: ignore[union-attr]
        assert_laws(agent.session)
    assert ran == []


async def test_a_call_that_a_tool_makes_is_no_exception() -> None:
    ran: list[Any] = []

    @tool(effect="write")
    async def outer(context: ToolContext) -> str:
        with pytest.raises(ToolError, match="nothing ran"):
            await context.call_tool("put", text=SECRET)
        return "tried"

    model = ScriptedModel(calls("outer"), says("I see."))
    async with Agent(model, tools=[outer, put(ran)], redact=redacting()) as agent:
        await agent.run("go")
        assert ran == [] and agent.session.facts(ToolResulted)[0].content[0].text == "tried"


async def test_a_secret_can_be_declared_while_the_agent_works() -> None:
    @tool(effect="read")
    def login() -> str:
        agent.redact.add("session-token", "tok-of-this-run")  # type: ignore[union-attr]
        return "logged in with tok-of-this-run"

    model = ScriptedModel(
        calls("login"), chunks(TextDelta("I have tok-of-"), TextDelta("this-run."), Finish())
    )
    async with Agent(model, tools=[login], redact=Redactor()) as agent:
        result = await agent.run("go")
        assert "tok-of-this-run" not in seen_by(model)
        assert result.text == "I have [redacted:session-token]."


async def test_an_agent_has_the_redactor_of_its_harness_or_its_own() -> None:
    shared, own = Redactor(), Redactor()
    async with Harness(redact=shared) as harness:
        assert harness.agent(ScriptedModel()).redact is shared
        assert harness.agent(ScriptedModel(), redact=own).redact is own
        assert Agent(ScriptedModel()).redact is None


async def test_a_failure_that_tells_a_secret_ends_the_turn_without_it() -> None:
    def broken(proposal: Any) -> Enter:
        raise RuntimeError(f"cannot reach {SECRET}")

    async with Agent(ScriptedModel(says("never")), redact=redacting()) as agent:
        agent.on.pre_step(broken)
        result = await agent.run("go")
        assert not result.ok and hidden(str(result.reason)) and MARK in str(result.reason)


async def test_no_file_of_the_state_folder_holds_a_secret(tmp_path: Path) -> None:
    """A run with everything in it, in a real store; then each raw file is searched, the write-ahead log among them."""
    work, state = tmp_path / "work", tmp_path / "state"
    work.mkdir()
    state.mkdir()
    key = "sk-ant-" + "a1B2c3D4" * 6

    @tool(effect="read")
    def leak(kind: str) -> str:
        match kind:
            case "big":
                return f"{SECRET} {key}\n" * 4000  # an artifact
            case "json":
                return json.dumps({"env": SECRET, "key": key})
            case "base64":
                return b64encode(f"x{SECRET}y".encode()).decode() + quote(SECRET)
            case _:
                raise ToolError(f"no {SECRET}", code="NO_SUCH_KIND")

    @tool(effect="write")
    def save(text: str) -> str:
        return text

    model = ScriptedModel(
        calls(
            call("leak", kind="big"),
            call("leak", kind="json"),
            call("leak", kind="base64"),
            call("leak", kind="x"),
        ),
        calls("save", text=SECRET),
        chunks(
            TextDelta(f"it is {SECRET[:7]}"),
            TextDelta(SECRET[7:]),
            TextDelta(f" {key[:20]}"),
            TextDelta(key[20:]),
            Finish(),
        ),
        hangs(),
    )

    def remember(context: PostToolContext) -> HookResult:
        return HookResult(additional_context=[f"the hook says {SECRET}"])

    wal: list[bytes] = []
    async with SQLiteStore(state / "log.db") as store:
        agent = Agent(
            model,
            tools=[leak, save],
            store=store,
            cwd=work,
            instructions=SECRET,
            name=SECRET,
            redact=redacting(),
        )
        async with agent:
            agent.on.pre_step(
                lambda proposal: Enter(proposal.messages, contexts=(Message.context(f"by the way {SECRET}"),))
            )
            agent.hooks("PostToolUse")(remember)
            agent.inject(f"first {SECRET}")
            result = await agent.run(f"title {SECRET} {key}")
            agent.followup(SECRET)
            agent.cancel(keep_inbox=True)
            await agent.idle()
            assert result.text == f"it is {MARK} [redacted:anthropic-key]"
            assert_laws(agent.session)
            wal = [path.read_bytes() for path in state.rglob("*") if path.is_file()]
    files = {path.name: path.read_bytes() for path in state.rglob("*") if path.is_file()}

    assert any(MARK.encode() in data for data in [*wal, *files.values()])
    for data in [*wal, *files.values()]:
        for spelled in [*spellings(), *spellings(key)]:
            assert spelled.encode() not in data
    assert hidden(seen_by(model)) and key not in seen_by(model)
