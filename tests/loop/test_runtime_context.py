"""Runtime context: what the model is told of its folder, the day and AGENTS.md; only with `cwd=`, and only news."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from interlock import (
    Agent,
    ConfigError,
    Enter,
    HookResult,
    MemoryStore,
    Proposal,
    Reject,
    Source,
    ToolContext,
    tool,
)
from interlock.log.facts import SessionCreated, UserMessage
from interlock.testing import ScriptedModel, assert_laws, calls, fails, outline, says


class Calendar:
    """Today, as the test wants it."""

    def __init__(self) -> None:
        self.day = date(2026, 11, 30)

    def __call__(self) -> date:
        return self.day


def told(agent: Agent) -> list[str]:
    """The runtime contexts in the log, in order."""
    facts = [fact for fact in agent.session.facts(UserMessage) if fact.source.kind == "runtime"]
    return [fact.content[0].text for fact in facts]


def sources(model: ScriptedModel, request: int) -> list[str]:
    return [message.source.kind for message in model.requests[request].messages]


async def test_without_a_folder_the_model_is_told_nothing() -> None:
    model = ScriptedModel(says("ok"))
    async with Agent(model) as agent:
        await agent.run("go")

        assert told(agent) == []
        assert sources(model, 0) == ["person"]
        (created,) = agent.session.facts(SessionCreated)
        assert created.cwd is None


async def test_with_a_folder_the_model_is_told_after_the_batch_where_it_is_and_what_day(
    tmp_path: Path,
) -> None:
    """TL-04: the snapshot comes last, after what the person said and what listeners add to it."""
    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    model = ScriptedModel(says("ok"))
    async with Agent(model, cwd=tmp_path, today=Calendar()) as agent:
        agent.on.pre_step(lambda proposal: Enter(proposal.messages, contexts=["from a listener"]))
        agent.inject("by the way")
        await agent.run("go")

        messages = model.requests[0].messages
        assert [message.text for message in messages[:3]] == ["by the way", "go", "from a listener"]
        snapshot = messages[3]
        assert (snapshot.role, snapshot.source) == ("user", Source("runtime", "workspace"))
        assert snapshot.text == (
            f"Working folder: {tmp_path}\nDate: 2026-11-30\n\n"
            f"AGENTS.md, the instructions of this folder:\n\nUse tabs."
        )
        fact = agent.session.facts(UserMessage)[-1]
        assert (fact.place, fact.claim, fact.call) == ("context", None, None)
        (created,) = agent.session.facts(SessionCreated)
        assert created.cwd == str(tmp_path)
        assert_laws(agent.session)


async def test_what_has_not_changed_is_not_told_again(tmp_path: Path) -> None:
    """TL-04: neither in a later step, nor in a retry, nor in a later turn."""
    model = ScriptedModel(calls("look"), fails("SERVER"), says("a"), says("b"))

    @tool(effect="read")
    async def look() -> str:
        return "seen"

    async with Agent(model, tools=[look], cwd=tmp_path, today=Calendar()) as agent:
        await agent.run("one")
        await agent.run("two")

        assert len(told(agent)) == 1
        assert_laws(agent.session)


async def test_what_changed_is_told_with_the_next_step_after_the_results(tmp_path: Path) -> None:
    """TL-04, D-1: a tool that rewrites AGENTS.md is followed by the new text."""

    @tool(effect="write")
    async def rewrite(context: ToolContext) -> str:
        assert context.cwd is not None
        (context.cwd / "AGENTS.md").write_text("Use spaces.")
        context.defer("changed it")
        return "done"

    (tmp_path / "AGENTS.md").write_text("Use tabs.")
    model = ScriptedModel(calls("rewrite"), says("ok"))
    async with Agent(model, tools=[rewrite], cwd=tmp_path, today=Calendar()) as agent:
        await agent.run("go")

        assert ["Use tabs." in text for text in told(agent)] == [True, False]
        assert "Use spaces." in told(agent)[1]
        assert [message.role for message in model.requests[1].messages[-3:]] == ["tool", "system", "user"]
        assert sources(model, 1)[-3:] == ["tool", "tool", "runtime"]
        assert_laws(agent.session)


async def test_a_new_day_a_new_file_and_a_lost_one_are_news(tmp_path: Path) -> None:
    calendar = Calendar()
    model = ScriptedModel(*[says("ok")] * 5)
    async with Agent(model, cwd=tmp_path, today=calendar) as agent:
        await agent.run("one")
        calendar.day = date(2026, 12, 1)
        await agent.run("two")
        (tmp_path / "AGENTS.md").write_text("Be kind.")
        await agent.run("three")
        await agent.run("four")
        (tmp_path / "AGENTS.md").unlink()
        await agent.run("five")

        assert [text.removeprefix(f"Working folder: {tmp_path}\n") for text in told(agent)] == [
            "Date: 2026-11-30",
            "Date: 2026-12-01",
            "Date: 2026-12-01\n\nAGENTS.md, the instructions of this folder:\n\nBe kind.",
            "Date: 2026-12-01",
        ]
        assert_laws(agent.session)


async def test_a_later_life_says_only_what_is_news_since_the_earlier_one(tmp_path: Path) -> None:
    """What was told last is a fold of the log."""
    store, calendar = MemoryStore(), Calendar()
    session: str | None = None
    for day, expected in ((30, 1), (30, 1), (29, 2)):
        calendar.day = date(2026, 11, day)
        async with Agent(
            ScriptedModel(says("ok")), cwd=tmp_path, store=store, session=session, today=calendar
        ) as agent:
            session = agent.session.id
            await agent.run("go")
            assert len(told(agent)) == expected
            assert_laws(agent.session)


async def test_a_turn_without_a_step_tells_nothing(tmp_path: Path) -> None:
    """TL-06, TL-08: a rejected or emptied proposal adds nothing to the history."""
    answers: list[Any] = [Reject("closed"), Enter([])]
    async with Agent(ScriptedModel(says("ok")), cwd=tmp_path, today=Calendar()) as agent:

        @agent.on.pre_step
        def refuses(proposal: Proposal) -> Any:
            return answers.pop(0) if answers else None

        await agent.run("one")
        await agent.run("two")
        assert told(agent) == []
        await agent.run("three")
        assert len(told(agent)) == 1
        assert outline(agent.session, "turn/end")[1:] == ["turn/end completed"] * 2
        assert_laws(agent.session)


async def test_it_is_nobodys_prompt(tmp_path: Path) -> None:
    """D-4, D-1b: no hook is asked about it, and no pre-step can leave it out or pass for it."""
    submitted: list[str] = []
    proposed: list[list[str]] = []
    async with Agent(ScriptedModel(says("ok")), cwd=tmp_path, today=Calendar()) as agent:

        @agent.hooks("UserPromptSubmit")
        def note(context: Any) -> HookResult | None:
            submitted.append(context.message.text)
            return None

        @agent.on.pre_step
        def sees(proposal: Proposal) -> None:
            proposed.append([message.source.kind for message in proposal.messages])

        await agent.run("go")

        assert (submitted, proposed) == (["go"], [["person"]])
        assert len(told(agent)) == 1


@pytest.mark.parametrize("cwd", ["", ".", "sub", "sub/../sub"])
async def test_a_relative_folder_is_made_absolute(cwd: str, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    async with Agent(ScriptedModel(says("ok")), cwd=cwd) as agent:
        await agent.run("go")
        assert agent.cwd is not None
        assert agent.cwd.is_absolute()
        assert f"Working folder: {agent.cwd}\n" in told(agent)[0]


async def test_a_home_folder_is_expanded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    async with Agent(ScriptedModel(), cwd="~") as agent:
        assert agent.cwd == tmp_path


@pytest.mark.parametrize("what", ["missing", "file"])
def test_a_folder_that_is_none_is_refused_when_the_agent_is_made(what: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is no folder"):
        Agent(ScriptedModel(), cwd=tmp_path / what)


async def test_a_folder_that_disappears_is_said_to_have(tmp_path: Path) -> None:
    folder = tmp_path / "short-lived"
    folder.mkdir()
    async with Agent(ScriptedModel(says("ok"), says("ok")), cwd=folder, today=Calendar()) as agent:
        await agent.run("one")
        folder.rmdir()
        await agent.run("two")

        assert told(agent)[1].endswith("The working folder does not exist any more.")
        assert_laws(agent.session)
