"""A process that drives one session, run by tests: it says on stdout where it stands, and ends when stdin does.

Arguments: the file of the store, a file to which bodies write their names, the session (`-`: a new one), and the names
of the calls to which a person says yes; others are left unanswered.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from interlock import Agent, ApprovalRequest, Approved, Ask, SQLiteStore, Status, tool
from interlock.testing import ScriptedModel, call, calls, says

NAMES = ("ask 1", "ask 2", "free", "ask 3")


async def main(path: str, done: str, session: str, *yes: str) -> None:
    @tool(concurrency="parallel")
    def write(name: str) -> str:
        with Path(done).open("a") as file:
            file.write(f"{name}\n")
        return f"wrote {name}"

    async def approver(request: ApprovalRequest) -> Approved:
        if request.arguments["name"] not in yes:
            await asyncio.Event().wait()
        return Approved()

    new = session == "-"
    script = calls(*[call("write", name=name) for name in NAMES])
    model = ScriptedModel(*([script] if new else []), says("done"))
    store = SQLiteStore(path)
    agent = Agent(model, tools=[write], approver=approver, store=store, session=None if new else session)
    agent.on.pre_execute(lambda call: Ask("sure?") if call.arguments["name"].startswith("ask") else None)
    changes: asyncio.Queue[Status] = asyncio.Queue()
    agent.on.status(changes.put_nowait)

    async def tell() -> None:
        while True:
            status = await changes.get()
            await agent.session.barrier()  # what is said here is on disk
            print(status.value, flush=True)

    async with store, agent:
        telling = asyncio.create_task(tell())
        print(agent.session.id, flush=True)
        if new:
            agent.followup("go")
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
        )
        await reader.read()
        telling.cancel()
        await asyncio.wait([telling])


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
