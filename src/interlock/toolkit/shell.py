"""Running shell commands.

Lives here: the tool `bash`, and its maker for one `Place`. The place is where a command starts, not a fence around it:
that is the sandbox, where the call has one.
"""

from __future__ import annotations

import signal
from typing import Annotated

from annotated_types import Gt, Le

from interlock.errors import ToolError
from interlock.log.reasons import SANDBOX_UNAVAILABLE
from interlock.process.run import Finished, run
from interlock.process.sandbox import Sandbox
from interlock.toolkit.place import Place, reason
from interlock.tools.confinement import Confinement
from interlock.tools.context import ToolContext
from interlock.tools.definition import Tool, tool
from interlock.tools.subject import Subject

LONGEST = 3600  # seconds


def make_bash(place: Place) -> Tool:
    @tool(
        effect="write",
        concurrency="exclusive",
        stop="process",
        subject=Subject("command", "command", base=place.fixed),
        sandbox=True,
    )
    async def bash(
        ctx: ToolContext, command: str, timeout: Annotated[float, Gt(0), Le(LONGEST)] = 120
    ) -> str:
        """Run a shell command in the workspace.

        It gets no input and no terminal. The output is what it prints on both streams, then its exit code if that
        is not 0; of a long output the middle is left out. What the command leaves running in the background is
        ended. The command starts in the workspace. Where this session has a sandbox, it is confined by it: then it
        may see no network, no home folder and no secrets, and not write everywhere, and a note says so when it fails.
        Without a sandbox it is not confined.

        Args:
            command: The command line for bash.
            timeout: After so many seconds the command is ended.
        """
        sandbox = _sandbox(ctx.confinement)
        try:
            finished = await run(
                command, cwd=place.root(ctx.call), signal=ctx.signal, timeout=timeout, sandbox=sandbox
            )
        except (OSError, ValueError) as error:
            raise ToolError(f"the command could not be started: {reason(error)}") from error
        return describe(finished, timeout, sandbox)

    return bash


bash = make_bash(Place())


def _sandbox(confinement: Confinement | None) -> Sandbox | None:
    """
    Raises:
        ToolError: SANDBOX_UNAVAILABLE: a confinement is asked for that is not known here.
    """
    if confinement is None or confinement.mode == "full":
        return None
    if not isinstance(confinement, Sandbox):
        raise ToolError(
            f"bash cannot run in a confinement of the kind {type(confinement).__name__}",
            code=SANDBOX_UNAVAILABLE,
        )
    return confinement


def describe(finished: Finished, timeout: float, sandbox: Sandbox | None = None) -> str:
    """The output, and in brackets what is to be said of the end."""
    notes = []
    by = f", ended with {finished.needed.name}" if finished.needed else ""
    if finished.how == "timed-out":
        notes.append(f"timed out after {timeout:g} s{by}")
    elif finished.how == "stopped":
        notes.append(f"stopped{by}")
    elif finished.exceeded is not None:
        notes.append(f"ended by the sandbox: {finished.exceeded}")
    elif finished.killed_by is not None:
        notes.append(f"killed by {_name(finished.killed_by)}")
    elif finished.code:
        notes.append(f"exit code {finished.code}")
    if finished.how == "exited" and finished.needed and finished.exceeded is None:
        notes.append(f"processes left in the background were ended with {finished.needed.name}")
    if finished.undone:
        names = ", ".join(finished.undone)
        notes.append(f"the sandbox protects {names}: what the command did there was undone")
    if sandbox is not None and finished.code != 0:
        notes.append(f"the sandbox: {sandbox.summary}")
    if not finished.output and not notes:
        notes.append("no output")
    output = finished.output.removesuffix("\n")
    return "\n".join(([output] if output else []) + [f"[{note}]" for note in notes])


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal has no name of its own
        return f"signal {number}"
