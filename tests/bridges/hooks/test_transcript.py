"""The file that hooks read the conversation from: Claude Code's lines, made from the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from interlock import Agent, tool
from interlock.bridges.hooks.transcript import Transcript
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
        again = Transcript(agent.session, tmp_path, tmp_path)
        await again.update()  # as in a new life: from the beginning, to the same end
        assert [line["message"] for line in lines(again.path)] == [
            line["message"] for line in lines(transcript.path)
        ]


async def test_arguments_that_cannot_be_written_as_text_do_not_hurt(tmp_path: Path) -> None:
    model = ScriptedModel(calls(call("bash", raw='{"command": "\\ud800"}')), says("Done."))
    async with Agent(model, tools=[bash]) as agent:
        transcript = Transcript(agent.session, tmp_path, tmp_path)
        await agent.run("go")
        await transcript.update()
        assert len(lines(transcript.path)) == 4
