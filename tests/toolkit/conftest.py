from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from interlock.intercept.signal import Signal
from interlock.tools.call import ToolCall, arguments_of
from interlock.tools.context import ToolContext
from interlock.tools.definition import Tool


def call_of(tool: Tool, cwd: Path | None, signal: Signal, arguments: dict[str, Any]) -> ToolCall:
    return ToolCall(
        key=1,
        id="c1",
        name=tool.name,
        tool=tool,
        arguments=arguments_of(arguments),
        text="",
        turn=1,
        step=1,
        index=0,
        signal=signal,
        cwd=cwd,
    )


async def body(tool: Tool, cwd: Path | None, signal: Signal, arguments: dict[str, Any]) -> str:
    """The body of a tool, with arguments that its schema accepts."""

    async def nobody(name: str, arguments: dict[str, Any]) -> NoReturn:
        raise AssertionError("these tools call no other")

    call = call_of(tool, cwd, signal, arguments)
    assert tool.context_parameter is not None
    context = ToolContext(call, signal, lambda text: None, nobody)
    text = await tool.fn(**{tool.context_parameter: context}, **tool.arguments.validate(arguments))
    assert tool.output.validate(text) == text  # it is a text that a log can hold
    return text  # type: ignore[no-any-return]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A workspace that has something outside of it."""
    (tmp_path / "secret.txt").write_text("a secret\n")
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def use(root: Path) -> Callable[..., str]:
    """Run a tool in the workspace: `use(read, path="a.txt")`."""
    return lambda tool, **arguments: asyncio.run(body(tool, root, Signal(), arguments))


@pytest.fixture
def start() -> Callable[..., Awaitable[str]]:
    """Run a tool in a running event loop: `start(read, root, signal, path="a.txt")`."""
    return lambda tool, cwd, signal, **arguments: body(tool, cwd, signal, arguments)


@pytest.fixture
def mode(root: Path) -> Callable[..., Any]:
    """What a call says about its overlapping with others."""

    def ask(tool: Tool, cwd: Path | None = root, **arguments: Any) -> Any:
        assert callable(tool.concurrency)
        return tool.concurrency(call_of(tool, cwd, Signal(), arguments))

    return ask
