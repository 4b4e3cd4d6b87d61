"""Real hook programs in a real run: files where other programs keep them, the tools in the box, processes.

A `Project` is a folder with a person's home beside it; only the model is scripted.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interlock import Agent
from interlock.bridges.hooks.loading import load
from interlock.log.facts import HookInvoked, HookResulted, UserMessage
from interlock.log.messages import Text
from interlock.testing import ScriptedModel
from interlock.toolkit import workspace

PYTHON = shlex.quote(sys.executable)


class Project:
    """A repository, and a home folder."""

    def __init__(self, folder: Path, monkeypatch: Any) -> None:
        self.root = folder / "project"
        self.home = folder / "home"
        for one in (self.root, self.home):
            one.mkdir()
        monkeypatch.setenv("INTERLOCK_HOME", str(folder / "state"))
        monkeypatch.setenv("HOME", str(self.home))

    def write(self, path: str, text: str) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
        return file

    def script(self, name: str, source: str) -> str:
        """A Python program; the command line that runs it."""
        return f"{PYTHON} {shlex.quote(str(self.write(f'.hooks/{name}', source)))}"

    def claude(self, hooks: dict[str, Any], **more: Any) -> None:
        """`.claude/settings.json`: by event a command, several, or groups as they stand in the file."""
        self.write(
            ".claude/settings.json",
            json.dumps({"hooks": {event: _groups(given) for event, given in hooks.items()}, **more}),
        )

    def codex(self, hooks: dict[str, Any]) -> None:
        self.write(
            ".codex/hooks.json",
            json.dumps({"hooks": {event: _groups(given) for event, given in hooks.items()}}),
        )

    def gemini(self, hooks: dict[str, Any]) -> None:
        self.write(
            ".gemini/settings.json",
            json.dumps({"hooks": {event: _groups(given) for event, given in hooks.items()}}),
        )

    def agent(self, *script: Any, **settings: Any) -> Agent:
        """An agent in the project, with the tools in the box and the hooks that are found."""
        agent = Agent(ScriptedModel(*script), tools=workspace(), cwd=self.root, **settings)
        load(self.root, home=self.home).attach(agent)
        return agent


def _groups(given: Any) -> list[Any]:
    if isinstance(given, str):
        given = [given]
    return [
        {"hooks": [{"type": "command", "command": one}]} if isinstance(one, str) else one for one in given
    ]


def on(matcher: str, *commands: Any, **more: Any) -> dict[str, Any]:
    """A matcher group."""
    return {
        "matcher": matcher,
        "hooks": [
            one if isinstance(one, dict) else {"type": "command", "command": one, **more} for one in commands
        ],
    }


def hook_results(agent: Agent, event: str) -> list[HookResulted]:
    ids = {fact.hook_id for fact in agent.session.facts(HookInvoked) if fact.event == event}
    return [fact for fact in agent.session.facts(HookResulted) if fact.hook_id in ids]


def said_to_model(agent: Agent) -> list[str]:
    """What the model was told, without the folder and the day."""
    messages = [fact for fact in agent.session.facts(UserMessage) if fact.source.kind != "runtime"]
    return [block.text for fact in messages for block in fact.content if isinstance(block, Text)]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what a program does."""
    while not condition():  # noqa: ASYNC110  # what is waited for is another process's
        await asyncio.sleep(0.02)  # between two looks: nobody tells of it
