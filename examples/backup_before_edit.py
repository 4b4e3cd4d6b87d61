"""A backup before an edit: the file as it was, kept right before a tool changes it.

A backup is an effect, so it is not made at `PreToolUse`: the call may still be denied there, and nothing should have
happened then. It wraps the execution instead, after every decision. If the copy fails, the tool does not run.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from interlock import Agent, Deny, Harness, ToolCall, ToolContext, ToolResult, tool
from interlock.testing import ScriptedModel, calls, says


def backup_before_edit(agent: Agent | Harness, to: Path, tools: Iterable[str]) -> None:
    """Copy the file named by `path` to the folder `to` before one of these tools runs.

    A copy is named after the file and the call's key, which is unique in the session, so no copy replaces another.
    """
    editing = frozenset(tools)

    @agent.on.execute
    async def backup(call: ToolCall, run: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        if call.name in editing:
            file = (call.cwd or Path.cwd()) / call.arguments["path"]
            await asyncio.to_thread(_copy, file, to / f"{file.name}.{call.key}")
        return await run()


def _copy(file: Path, backup: Path) -> None:
    if file.exists():  # a new file has nothing to be kept
        backup.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, backup)


@tool
def edit_file(context: ToolContext, path: str, old: str, new: str) -> str:
    """Replace a text in a file."""
    file = (context.cwd or Path.cwd()) / path
    file.write_text(file.read_text().replace(old, new))
    return f"edited {path}"


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace, backups = Path(folder) / "workspace", Path(folder) / "backups"
        workspace.mkdir()
        notes, plan = workspace / "notes.txt", workspace / "plan.txt"
        notes.write_text("tea at four")
        plan.write_text("as it was")
        model = ScriptedModel(
            calls("edit_file", path="notes.txt", old="four", new="five"),
            calls("edit_file", path="plan.txt", old="was", new="is"),
            says("The notes, not the plan."),
        )
        async with Agent(model, tools=[edit_file], cwd=workspace) as agent:
            backup_before_edit(agent, backups, ["edit_file"])

            @agent.on.pre_execute
            def not_the_plan(call: ToolCall) -> Deny | None:
                return Deny("the plan stays") if call.arguments["path"] == "plan.txt" else None

            await agent.run("Update both")
        print(f"{notes.name}: {notes.read_text()}")
        for backup in sorted(backups.iterdir()):  # none of the plan: that edit was denied
            print(f"backup of {backup.stem}: {backup.read_text()}")


if __name__ == "__main__":
    asyncio.run(main())
