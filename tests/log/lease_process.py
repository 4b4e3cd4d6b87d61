"""A process beside others at one session, run by tests; it says on stdout where it stands.

drives ADDRESS TERM         makes a session, says its id, and `deciding` when a tool is to run, which goes on with a
                            line on stdin; then what ended it, and what ran
writes ADDRESS LIVES        opens the session `s` so many times, and each time writes ten lines that bear its id
follows ADDRESS FIRST ENDS  says the lines from this one on, until so many times ten have come
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from crash.places import store_at
from interlock import Agent, Event, InterlockError, SessionBusy, ToolCall, tool
from interlock.log.facts import TurnStart
from interlock.testing import ScriptedModel, calls


async def drives(address: str, term: str) -> None:
    ran: list[str] = []

    @tool
    def delete(name: str) -> str:
        ran.append(name)
        return "deleted"

    store = store_at(address, **({} if address.startswith("jsonl") else {"term": float(term)}))
    agent = Agent(ScriptedModel(calls("delete", name="a")), tools=[delete], store=store)

    @agent.on.pre_execute
    async def wait(call: ToolCall) -> None:
        await agent.session.barrier()
        print("deciding", flush=True)
        await asyncio.to_thread(sys.stdin.readline)

    await agent.open()
    await agent.session.barrier()
    print(agent.session.id, flush=True)
    try:
        await agent.run("Delete a")
    except InterlockError as error:
        print(f"{type(error).__name__}: {error}")
    print(f"ran: {' '.join(ran)}")


async def writes(address: str, lives: str) -> None:
    done = 0
    async with store_at(address) as store:
        while done < int(lives):
            try:
                journal = await store.open("s")
            except SessionBusy:
                await asyncio.sleep(0)
                continue
            for seq in range(journal.head + 1, journal.head + 11):
                journal.write([Event(seq, os.getpid(), done + 1, TurnStart(seq))])
                if seq % 4 == 0:
                    await journal.barrier()
            await journal.close()
            done += 1


async def follows(address: str, first: str, ends: str) -> None:
    seq = int(first)
    async with store_at(address) as store:
        journal = await store.open("s", readonly=True)
        print("follows", flush=True)
        while seq < int(ends) * 10:
            if await journal.refresh() < seq:
                await journal.news(0.05)
            for event in journal.read(seq):
                print(event.seq, event.time, event.life)
                seq = event.seq + 1


if __name__ == "__main__":
    roles: dict[str, Callable[..., Coroutine[Any, Any, None]]]
    roles = {"drives": drives, "writes": writes, "follows": follows}
    asyncio.run(roles[sys.argv[1]](*sys.argv[2:]))
