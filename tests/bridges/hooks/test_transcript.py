"""The file that hooks read the conversation from: Claude Code's lines, made from the log."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock import Agent, tool
from interlock.bridges.hooks.transcript import Transcript
from interlock.log.event import Event
from interlock.testing import ScriptedModel, call, calls, says


@tool
async def bash(command: str) -> str:
    "Run a command."
    return f"ran {command}"


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def test_a_conversation_in_lines(tmp_path: Path) -> None:
    model = ScriptedModel(calls("bash", command="ls"), says("Done."))
    async with Agent(model, tools=[bash]) as agent:
        transcript = Transcript(agent.session, tmp_path / "made" / "here", tmp_path)
        await agent.run("List it")
        await transcript.update()
        said = lines(transcript.path)
        assert [(line["type"], line["message"]) for line in said] == [
            ("user", {"role": "user", "content": "List it"}),
            (
                "assistant",
                {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}],
                },
            ),
            (
                "user",
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ran ls"}],
                },
            ),
            ("assistant", {"role": "assistant", "content": [{"type": "text", "text": "Done."}]}),
        ]
        assert {line["sessionId"] for line in said} == {agent.session.id}
        assert [line["parentUuid"] for line in said] == [None, *[line["uuid"] for line in said[:-1]]]
        assert transcript.path.stat().st_mode & 0o777 == 0o600


async def test_only_what_is_new_is_written(tmp_path: Path) -> None:
    async with Agent(ScriptedModel(says("one"), says("two"))) as agent:
        transcript = Transcript(agent.session, tmp_path, tmp_path)
        await agent.run("first")
        await transcript.update()
        before = transcript.path.read_bytes()
        await transcript.update()
        assert transcript.path.read_bytes() == before
        await agent.run("second")
        await transcript.update()
        assert transcript.path.read_bytes().startswith(before)
        assert [line["message"]["content"] for line in lines(transcript.path) if line["type"] == "user"] == [
            "first",
            "second",
        ]


async def test_a_file_that_was_deleted_is_made_anew(tmp_path: Path) -> None:
    """Whoever prunes may take it away from a session that is used at that very moment."""
    async with Agent(ScriptedModel(says("one"), says("two"))) as agent:
        transcript = Transcript(agent.session, tmp_path / "here", tmp_path)
        await agent.run("first")
        await transcript.update()
        shutil.rmtree(tmp_path / "here")
        await agent.run("second")
        await transcript.update()
        whole = Transcript(agent.session, tmp_path / "other", tmp_path)
        await whole.update()
        assert transcript.path.read_bytes() == whole.path.read_bytes()
        assert len(lines(whole.path)) == 4


async def test_a_later_life_goes_on_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not read the log again from its beginning."""
    model = ScriptedModel(calls("bash", command="ls"), says("one"), says("two " * 10_000), says("three"))
    async with Agent(model, tools=[bash]) as agent:
        for prompt in ("first", "second"):
            await agent.run(prompt)
            await Transcript(agent.session, tmp_path, tmp_path).update()
        written = agent.session.head
        await agent.run("third")
        read: list[int] = []
        inner = Transcript._lines

        def noted(self: Transcript, event: Event) -> Iterator[dict[str, Any]]:
            read.append(event.seq)
            return inner(self, event)

        monkeypatch.setattr(Transcript, "_lines", noted)
        again = Transcript(agent.session, tmp_path, tmp_path)
        await again.update()
        assert min(read) > written - 5
        whole = Transcript(agent.session, tmp_path / "other", tmp_path)
        await whole.update()
        assert again.path.read_bytes() == whole.path.read_bytes()
        assert len(lines(again.path)) == 8


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[:-1],
        lambda text: text[:-30],
        lambda text: text + b"{}\n",
        lambda text: text + b"[1]\n",
        lambda text: text + b'{"uuid":"s.9999","parentUuid":null}\n',
        lambda text: text.replace(b'"text":"one"', b'"text":"none"'),
        lambda text: b"",
        lambda text: b"\n",
    ],
)
async def test_a_file_of_something_else_is_made_anew(tmp_path: Path, spoil: Callable[[bytes], bytes]) -> None:
    async with Agent(ScriptedModel(says("one"), says("two"))) as agent:
        await agent.run("first")
        transcript = Transcript(agent.session, tmp_path, tmp_path)
        await transcript.update()
        transcript.path.write_bytes(spoil(transcript.path.read_bytes()))
        await agent.run("second")
        again = Transcript(agent.session, tmp_path, tmp_path)
        await again.update()
        whole = Transcript(agent.session, tmp_path / "other", tmp_path)
        await whole.update()
        assert again.path.read_bytes() == whole.path.read_bytes()


async def test_arguments_that_cannot_be_written_as_text_do_not_hurt(tmp_path: Path) -> None:
    model = ScriptedModel(calls(call("bash", raw='{"command": "\\ud800"}')), says("Done."))
    async with Agent(model, tools=[bash]) as agent:
        transcript = Transcript(agent.session, tmp_path, tmp_path)
        await agent.run("go")
        await transcript.update()
        assert len(lines(transcript.path)) == 4
