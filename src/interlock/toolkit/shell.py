"""Running shell commands.

Lives here: the tool `bash`, and its maker for one `Place`. The place is where a command starts, not a fence around it.
"""

from __future__ import annotations

import signal
from typing import Annotated

from annotated_types import Gt, Le

from interlock.errors import ToolError
from interlock.process.run import Finished, run
from interlock.toolkit.place import Place, reason
from interlock.tools.context import ToolContext
from interlock.tools.definition import Tool, tool

LONGEST = 3600  # seconds


def make_bash(place: Place) -> Tool:
    @tool(effect="write", concurrency="exclusive", stop="process")
    async def bash(
        ctx: ToolContext, command: str, timeout: Annotated[float, Gt(0), Le(LONGEST)] = 120
    ) -> str:
        """Run a shell command in the workspace.

        It gets no input and no terminal. The output is what it prints on both streams, then its exit code if that
        is not 0; of a long output the middle is left out. What the command leaves running in the background is
        ended. The command starts in the workspace but is not confined to it until a sandbox runs it.

        Args:
            command: The command line for bash.
            timeout: After so many seconds the command is ended.
        """
        try:
            finished = await run(command, cwd=place.root(ctx.call), signal=ctx.signal, timeout=timeout)
        except (OSError, ValueError) as error:
            raise ToolError(f"the command could not be started: {reason(error)}") from error
        return describe(finished, timeout)

    return bash


bash = make_bash(Place())


def describe(finished: Finished, timeout: float) -> str:
    """The output, and in brackets what is to be said of the end."""
    notes = []
    by = f", ended with {finished.needed.name}" if finished.needed else ""
    if finished.how == "timed-out":
        notes.append(f"timed out after {timeout:g} s{by}")
    elif finished.how == "stopped":
        notes.append(f"stopped{by}")
    elif finished.killed_by is not None:
        notes.append(f"killed by {_name(finished.killed_by)}")
    elif finished.code:
        notes.append(f"exit code {finished.code}")
    if finished.how == "exited" and finished.needed:
        notes.append(f"processes left in the background were ended with {finished.needed.name}")
    if not finished.output and not notes:
        notes.append("no output")
    output = finished.output.removesuffix("\n")
    return "\n".join(([output] if output else []) + [f"[{note}]" for note in notes])


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name of its own
        return f"signal {number}"
