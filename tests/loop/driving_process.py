"""A process that drives one session, run by tests: it says on stdout where it stands, and ends when stdin does.

Arguments: the kind of store, where it is, the session (`-`: a new one), and what its model does: `hangs`, or `asks` for a
call that a person is asked about, and which writes its name to a file.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from interlock import Agent, AnswerLater, Ask, JSONLStore, PostgresStore, SQLiteStore, tool
from interlock.log.event import Event
from interlock.testing import ScriptedModel, call, calls, hangs, says


def store_at(kind: str, place: str) -> SQLiteStore | JSONLStore | PostgresStore:
    match kind:
        case "sqlite":
            return SQLiteStore(place)
        case "jsonl":
            return JSONLStore(place)
        case _:
            folder, schema = place.split(",")
            return PostgresStore(f"postgresql://postgres@/postgres?host={folder}", schema=schema)


async def main(kind: str, place: str, session: str, what: str, done: str) -> None:
    @tool(effect="write")
    def write(name: str) -> str:
        with Path(done).open("a") as file:
            file.write(f"{name}\n")
        return f"wrote {name}"

    first = hangs("so far") if what == "hangs" else calls(call("write", name="a"))
    model = ScriptedModel(*([first] if session == "-" else []), *[says(f"done {n}") for n in range(9)])
    store = store_at(kind, place)
    agent = Agent(
        model,
        tools=[write],
        approver=AnswerLater(),
        store=store,
        session=None if session == "-" else session,
    )
    agent.on.pre_execute(lambda call: Ask("sure?"))
    agent.on.observe()(lambda event: tell(event))
    lines: asyncio.Queue[str] = asyncio.Queue()

    def tell(event: Event) -> None:
        lines.put_nowait(event.type)

    async def say() -> None:
        while True:
            line = await lines.get()
            await agent.session.barrier()  # what is said here is on disk
            print(line, flush=True)

    async with store, agent:
        print(agent.session.id, flush=True)
        telling = asyncio.create_task(say())
        if session == "-":
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
