"""A process that works on one session until its jobs are done, and says what was acknowledged to it.

It is started to be killed. Arguments: the store's address, the working folder, the session (`-`: a new one), a seed,
how many jobs there are. On stdout, one line for each acknowledgement, written at once:

    ready                   it is about to open the session
    session ID LIFE         the session is open
    sent MESSAGE            `await receipt` came back
    disk SEQ DIGEST         `await barrier()` came back; this is what line SEQ was before it
    idle TURNS              `await idle()` came back, after so many turns had ended
    done                    all jobs are finished, and the session is closed
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
from collections.abc import Iterable
from pathlib import Path
from random import Random

from crash.places import store_at
from crash.work import FINISHED, Continuing, asks, tools, twice
from interlock import Agent, ApprovalRequest, Approved, Message, Text
from interlock.log import session as sessions
from interlock.log.event import Event, encode_event
from interlock.log.facts import AssistantMessage


def checkpoint_often() -> None:
    """In this process, each life begins with a checkpoint of the one before."""
    sessions._LINES_BETWEEN = 40


def digest(event: Event) -> str:
    return hashlib.sha256(encode_event(event)).hexdigest()[:16]


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def finished(events: Iterable[Event]) -> set[int]:
    """Which jobs are done, by the log."""
    said = [event.fact.blocks for event in events if isinstance(event.fact, AssistantMessage)]
    texts = [block.text for blocks in said for block in blocks if isinstance(block, Text)]
    return {int(found.group(1)) for text in texts for found in FINISHED.finditer(text)}


class Work:
    """What goes on in one life."""

    def __init__(self, agent: Agent, rng: Random, jobs: int) -> None:
        self.agent, self.rng, self.jobs = agent, rng, jobs
        self.sent = 0

    def message(self, text: str) -> Message:
        """A message whose id no other life has used."""
        self.sent += 1
        name = f"l{self.agent.session.state.life}n{self.sent}"
        return Message.user(text.format(name), id=name)

    async def do_jobs(self) -> None:
        agent = self.agent
        while True:
            agent.wake()  # for what a stop has left
            await agent.idle()
            state = agent.session.state
            say("idle", state.turns - (state.turn is not None))  # somebody may have woken it again meanwhile
            left = set(range(self.jobs)) - finished(agent.session.events)
            if not left:
                return
            job = min(left)
            receipt = agent.followup(self.message(f"job {job} ({{}})"))
            await receipt
            say("sent", receipt.id)

    async def interfere(self) -> None:
        """Send something at any moment, and stop a turn now and then."""
        for _ in range(6):
            await asyncio.sleep(self.rng.uniform(0, 0.04))
            what = self.rng.choice(["followup", "steer", "steer", "inject", "stop"])
            if what == "stop":
                self.agent.cancel(keep_inbox=True)
            else:
                receipt = getattr(self.agent, what)(self.message("note {}"))
                await receipt
                say("sent", receipt.id)

    async def attest(self) -> None:
        """Ask for a barrier at any moment, and say what it has acknowledged."""
        session = self.agent.session
        while True:
            await asyncio.sleep(self.rng.uniform(0.005, 0.04))
            last = session.events[-1]
            await session.barrier()
            say("disk", last.seq, digest(last))


async def approver(request: ApprovalRequest) -> Approved:
    await asyncio.sleep(0.005)
    return Approved()


async def main(address: str, folder: str, session: str, seed: str, jobs: str) -> None:
    place = Path(folder)
    given, store = tools(place), store_at(address)
    say("ready")
    agent = Agent(
        Continuing(),
        tools=given,
        cwd=place,
        approver=approver,
        store=store,
        session=None if session == "-" else session,
        resume_pending=True,
    )
    agent.on.pre_execute(asks)
    agent.on.execute(twice)
    async with store, agent:
        await agent.session.barrier()
        say("session", agent.session.id, agent.session.state.life)
        work = Work(agent, Random(int(seed)), int(jobs))
        beside = [asyncio.create_task(work.interfere()), asyncio.create_task(work.attest())]
        await work.do_jobs()
        for task in beside:
            task.cancel()
        for outcome in await asyncio.gather(*beside, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome
        await agent.idle()
    say("done")


if __name__ == "__main__":
    checkpoint_often()
    asyncio.run(main(*sys.argv[1:]))
