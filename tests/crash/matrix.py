"""A process is killed at moments that nobody chose, again and again, and what has to hold after each kill.

Lives here: `kill_again_and_again`, which works through sessions in processes that are killed, and `Found`, what came of
it. A kill is SIGKILL: what the process had in its memory is gone, what it gave to the system is not. So this proves in
which order things are given to the system, and not that the system has put them on its disk.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Timer

from crash.places import store_at
from crash.work import Continuing, Record, asks, marks, tools, twice
from crash.worker import approver, digest, finished
from fates import fates
from interlock import Agent, MemoryStore, SessionError, check
from interlock.log.event import Event
from interlock.log.facts import SessionRepaired, TurnEnd
from interlock.log.reasons import Completed
from interlock.log.state import State
from interlock.testing import assert_laws

TESTS = Path(__file__).parents[1]
JOBS = 3  # of one session
PATIENCE = 60.0  # seconds that any life may take

#: What must not be: something acknowledged is not in the log; the body of an effect ran, and no start of it is on
#: record; a body ran more often than it was started; a law is broken; a session does not go on.
FAULTS = ("lost", "ran without start", "ran twice", "unlawful", "stuck")


@dataclass
class Found:
    """What came of the kills of one store."""

    kills: int = 0
    sessions: int = 0
    repaired: int = 0
    resumed: int = 0
    stages: Counter[str] = field(default_factory=Counter)
    acknowledged: int = 0
    bodies: int = 0
    faults: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in FAULTS})

    @property
    def well(self) -> bool:
        return not any(self.faults.values())

    def fault(self, kind: str, what: str) -> None:
        """Something that must not be, once however often it is seen."""
        what = f"session {self.sessions}: {what}"
        if what not in self.faults[kind]:
            self.faults[kind].append(what)


@dataclass
class Acknowledged:
    """What a session's processes have said, in all of their lives."""

    session: str | None = None
    opened: bool = False  # the life that spoke last has opened it
    sent: set[str] = field(default_factory=set)
    lines: dict[int, str] = field(default_factory=dict)
    turns: int = 0
    done: bool = False
    count: int = 0

    def hear(self, line: str) -> None:
        match line.split():
            case ["session", session, _]:
                self.session, self.opened = session, True
            case ["sent", message]:
                self.sent.add(message)
            case ["disk", seq, said]:
                self.lines[int(seq)] = said
            case ["idle", turns]:
                self.turns = int(turns)
            case ["done"]:
                self.done = True
            case ["ready"]:
                self.opened = False
                return
            case words:
                raise ValueError(f"the process said {' '.join(words)!r}")
        self.count += 1

    def lost(self, events: Sequence[Event]) -> list[str]:
        """What of it is not in this log."""
        known = fates(events)
        turns = sum(isinstance(event.fact, TurnEnd) for event in events)
        lost = [f"message {one}" for one in sorted(self.sent - known.keys())]
        for seq, said in self.lines.items():
            if seq >= len(events):
                lost.append(f"line {seq} of {len(events)}")
            elif digest(events[seq]) != said:
                lost.append(f"line {seq}, which is another one now")
        if turns < self.turns:
            lost.append(f"turn {self.turns} of {turns}")
        return lost


class Life:
    """One process, from its start to its end."""

    def __init__(self, address: str, folder: Path, session: str | None, seed: int) -> None:
        arguments = [address, str(folder), session or "-", str(seed), str(JOBS)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "crash.worker", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path[1:]])},
        )
        assert self._process.stdout is not None
        self._out = self._process.stdout
        self._late = False
        self._timer = Timer(PATIENCE, self._give_up)
        self._timer.start()

    def _give_up(self) -> None:
        self._late = True
        self._process.kill()

    def hear(self, lines: int | None, heard: Acknowledged) -> bool:
        """Wait for so many lines, or for all there are; whether the process goes on."""
        left = lines
        while left is None or left > 0:
            line = self._out.readline()
            if not line.endswith(b"\n"):
                return False
            heard.hear(line.decode().rstrip())
            left = None if left is None else left - 1
        return True

    def kill(self, heard: Acknowledged) -> bool:
        """Kill it now, and hear what it had said before; whether it was still alive."""
        self._process.send_signal(signal.SIGKILL)
        self.hear(None, heard)
        return self.end() == -signal.SIGKILL

    def end(self) -> int:
        """Wait for its end: its code.

        Raises:
            RuntimeError: it has ended by itself, with an error, or had to be given up.
        """
        _, errors = self._process.communicate()
        self._timer.cancel()
        self._timer.join()
        code = self._process.returncode
        if self._late:
            raise RuntimeError(f"a life did not end within {PATIENCE:g} s:\n{errors.decode()[-3000:]}")
        if code not in (0, -signal.SIGKILL):
            raise RuntimeError(f"a life ended with code {code}:\n{errors.decode()[-3000:]}")
        return code


async def kill_again_and_again(address: str, folder: Path, *, kills: int, seed: int) -> Found:
    """Work on sessions until their processes were killed so often; every session is then worked on to its end."""
    rng, found = Random(seed), Found()
    while found.kills < kills:
        place = folder / f"work-{found.sessions}"
        place.mkdir()
        await _Course(address, place, rng, found, kills).run()
        found.sessions += 1
    return found


class _Course:
    """One session, over all the lives that it takes to do its jobs."""

    def __init__(self, address: str, place: Path, rng: Random, found: Found, kills: int) -> None:
        self._address, self._place, self._rng = address, place, rng
        self._found, self._kills = found, kills
        self._heard = Acknowledged()
        self._events: list[Event] = []

    async def run(self) -> None:
        found, heard = self._found, self._heard
        while not heard.done:
            try:
                killed = self._live()
            except RuntimeError as error:
                found.fault("stuck", str(error))
                break
            before, self._events = self._events, await self._read()
            if self._events[: len(before)] != before:
                found.fault("lost", "lines that the life before had left")
            self._compare()
            if killed:
                found.kills += 1
                found.stages[stage(self._events) if heard.opened else "opening"] += 1
                await self._resume()
        found.acknowledged += heard.count
        found.repaired += sum(isinstance(event.fact, SessionRepaired) for event in self._events)
        found.bodies += sum(sum(counts.values()) for counts in marks(self._place).values())
        for job in range(JOBS):
            if heard.done and job not in finished(self._events):
                found.fault("lost", f"job {job}, of a session that is done")

    def _live(self) -> bool:
        """One life; whether it was killed."""
        rng, heard = self._rng, self._heard
        life = Life(self._address, self._place, heard.session, rng.getrandbits(32))
        if self._found.kills >= self._kills:
            life.hear(None, heard)
            return life.end() != 0
        life.hear(rng.randint(1, 12), heard)
        time.sleep(rng.uniform(0, 0.04))
        return life.kill(heard)

    async def _read(self) -> list[Event]:
        """What is in the store, as any other process reads it."""
        if self._heard.session is None:
            return []
        async with store_at(self._address) as store:
            return list((await store.open(self._heard.session, readonly=True)).read())

    def _compare(self) -> None:
        """What the process said, what its bodies did, and what the log says of both."""
        found, events = self._found, self._events
        for what in self._heard.lost(events):
            found.fault("lost", what)
        for breach in check(events):
            found.fault("unlawful", str(breach))
        compare_marks(marks(self._place), Record.of(events), found)

    async def _resume(self) -> None:
        """The next life of a copy of this log: it is repaired, lawful, and its next turn runs."""
        if self._heard.session is None:
            return
        try:
            await assert_resumes(self._events)
        except (AssertionError, SessionError, TimeoutError) as error:
            self._found.fault("stuck", f"after line {len(self._events) - 1}: {error!r}")
        else:
            self._found.resumed += 1


def compare_marks(done: Mapping[str, Counter[str]], record: Record, found: Found) -> None:
    """Law 6: no effect without a start on record, no more of them than starts; and none lost that has a result."""
    effects = {name: tokens for name, tokens in done.items() if name != "peek"}
    for token, times in done.get("peek", {}).items():  # it only reads: its start need not be on record
        if times > 1:
            found.fault("ran twice", f"peek {token}, {times} times in one life")
    for name, tokens in effects.items():
        for token, times in tokens.items():
            starts = record.started[token]
            if not starts:
                found.fault("ran without start", f"{name} {token}")
            elif times > starts:
                found.fault("ran twice", f"{name} {token}, {times} times for {starts} starts")
    left = {token for tokens in effects.values() for token in tokens}
    for token in record.succeeded - left:
        if record.names[token] != "peek":
            found.fault("lost", f"what {record.names[token]} {token} has done, by its result")


def stage(events: Sequence[Event]) -> str:
    """Where a session stood when it was cut off, by what was on disk."""
    state = State()
    for event in events:
        state.apply(event)
    turn, step = state.turn, state.step
    if turn is None:
        return "between turns"
    if step is None:
        return "between steps"
    if step.message < 0:
        if step.request is None:
            return "entering"
        return "streaming" if step.request.assembly.visible() else "request"
    if state.waiting:
        return "asking"
    if any(call.running for call in step.by_seq.values()):
        return "bodies"
    if step.calls and step.next_result == len(step.calls):
        return "results"
    return "calls"


async def assert_resumes(events: Sequence[Event]) -> None:
    """A copy of this log has a next life: it is repaired, and lawful, and its next turn runs."""
    store = MemoryStore()
    journal = await store.create("copy")
    journal.write(events)
    await journal.close()
    with TemporaryDirectory() as folder:
        agent = Agent(
            Continuing(),
            tools=tools(Path(folder)),
            cwd=folder,
            approver=approver,
            store=store,
            session="copy",
        )
        agent.on.pre_execute(asks)
        agent.on.execute(twice)
        async with agent, asyncio.timeout(PATIENCE):
            await agent.idle()  # a turn that waits for a person goes on
            assert not agent.session.open
            result = await agent.run("job 99 (next)")
            assert (result.reason, result.text.split()[-3:]) == (Completed(), ["finished", "99", "next"])
            assert_laws(agent.session)
            assert Record.of(agent.session.events).succeeded >= {f"k99-next-2-{n}" for n in (1, 2, 3)}
