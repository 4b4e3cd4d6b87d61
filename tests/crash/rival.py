"""A process that wants to drive a session, whoever else does; it says what was acknowledged to it, and what refused it.

Arguments: the store's address, the working folder, the session, a name that no rival has, and for how many seconds.
On stdout are the lines of `crash.worker`, and:

    refused ERROR: TEXT     opening the session, or going on with it, raised this
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from crash.places import store_at
from crash.work import Continuing, asks, tools, twice
from crash.worker import approver, checkpoint_often, digest, say
from interlock import Agent, InterlockError, Message


async def drive(address: str, place: Path, session: str, name: str) -> None:
    """Open it, do a job, and let go of it."""
    async with store_at(address) as store:
        agent = Agent(
            Continuing(), tools=tools(place), cwd=place, approver=approver, store=store, session=session
        )
        agent.on.pre_execute(asks)
        agent.on.execute(twice)
        async with agent:
            say("session", session, agent.session.state.life)
            receipt = agent.followup(Message.user(f"job 0 ({name})", id=name))
            await receipt
            say("sent", receipt.id)
            await agent.idle()
            last = agent.session.events[-1]
            say("disk", last.seq, digest(last))
            say("idle", agent.session.state.turns)


async def main(address: str, folder: str, session: str, name: str, seconds: str) -> None:
    loop = asyncio.get_running_loop()
    end, n = loop.time() + float(seconds), 0
    say("ready")
    while loop.time() < end:
        n += 1
        try:
            await drive(address, Path(folder), session, f"{name}{n}")
        except InterlockError as error:
            say("refused", f"{type(error).__name__}: {error}")
            await asyncio.sleep(0.01)
    say("done")


if __name__ == "__main__":
    checkpoint_often()
    asyncio.run(main(*sys.argv[1:]))
