"""What a body may use while it runs.

Lives here: `ToolContext`. A tool gets one by declaring a parameter of this type.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from interlock.intercept.decisions import as_contexts
from interlock.intercept.signal import Signal
from interlock.log.messages import Message, Source
from interlock.tools.call import ToolCall, ToolOutput
from interlock.tools.confinement import Confinement


class ToolContext:
    """A running call: its signal, its folder, and what it may say and do.

    `defer`, `conclude` and `progress` may be called from the thread of a sync tool; `call_tool` is for async tools.
    """

    __slots__ = ("_call_tool", "_conclude", "_deferred", "_progress", "call", "signal")

    def __init__(
        self,
        call: ToolCall,
        signal: Signal,
        progress: Callable[[str], None],
        call_tool: Callable[[str, dict[str, Any]], Awaitable[ToolOutput]],
    ) -> None:
        self.call = call
        self.signal = signal
        self._progress = progress
        self._call_tool = call_tool
        self._deferred: list[Message] = []
        self._conclude = False

    @property
    def cwd(self) -> Path | None:
        """The agent's working folder, if it has one."""
        return self.call.cwd

    @property
    def agent(self) -> Any:
        return self.call.agent

    @property
    def confinement(self) -> Confinement | None:
        """How the processes of this tool are to be confined, if it says `sandbox=True` and anything is asked for."""
        return self.call.confinement if self.call.tool.sandbox else None

    def defer(self, context: Message | str) -> None:
        """Say something to the model with the next step, after all results of this one.

        Raises:
            HookContractError: it is no message of role user or system.
        """
        self._deferred += as_contexts(context, self.call.name, Source("tool", self.call.name))

    def conclude(self) -> None:
        """Let the turn end after this batch, if this call succeeds and nothing else is pending."""
        self._conclude = True

    def progress(self, text: str) -> None:
        """Show how far it is. Live only: it is not logged, and the model does not see it."""
        self._progress(text)

    async def call_tool(self, name: str, /, **arguments: Any) -> ToolOutput:
        """Call another tool, through the whole pipeline: rules, guards, approval and result hooks of its own.

        Raises:
            ToolError: it failed or was refused; the code says how.
            UnknownTool: there is no such tool.
        """
        return await self._call_tool(name, arguments)
