"""Several processes want to drive one session at the same time: one writes at a time, and the others are told.

Lives here: `fight`, and `Fought`, what came of it. Whoever has opened the session keeps the others out until it is
closed, and they are told by whom.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from crash.matrix import PATIENCE, TESTS, Acknowledged, Found, compare_marks
from crash.places import store_at
from crash.work import Record, marks
from interlock import check
from interlock.log.session import create_session

RIVALS = ("a", "b")
#: What a loser may be told, and what has to be in it.
_CLEAR = {"SessionBusy": "is driven by process"}


@dataclass
class Fought(Found):
    """lives: how often each rival had the session; refusals: what the others were told, by the name of the error."""

    lives: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    events: int = 0


async def fight(address: str, folder: Path, *, seconds: float) -> Fought:
    """Let rivals drive one session for so long, each as often as it gets it."""
    place = folder / "fight"
    place.mkdir()
    async with store_at(address) as store:
        session = await create_session(store, cwd=str(place))
        await session.close()
    found = Fought(sessions=1)
    processes = {name: _rival(address, str(place), session.id, name, str(seconds)) for name in RIVALS}
    try:
        said = await asyncio.gather(
            *[asyncio.to_thread(one.communicate, timeout=seconds + PATIENCE) for one in processes.values()]
        )
    finally:
        for process in processes.values():
            process.kill()  # one that has ended is not touched
            process.wait()
    async with store_at(address) as store:
        events = list((await store.open(session.id, readonly=True)).read())
    for (name, process), (out, errors) in zip(processes.items(), said, strict=True):
        if process.returncode != 0:
            found.fault("stuck", f"rival {name} ended with code {process.returncode}: {errors[-3000:]}")
        heard = Acknowledged()
        for line in out.splitlines():
            if line.startswith("refused "):
                error, _, text = line.removeprefix("refused ").partition(": ")
                found.refusals[error] += 1
                if _CLEAR.get(error, "no such error") not in text:
                    found.fault("stuck", f"rival {name} was told {error}: {text}")
            else:
                found.lives[name] += line.startswith("session ")
                heard.hear(line)
        for what in heard.lost(events):
            found.fault("lost", f"rival {name}: {what}")
        found.acknowledged += heard.count
    for breach in check(events):
        found.fault("unlawful", str(breach))
    if [event.seq for event in events] != list(range(len(events))):
        found.fault("unlawful", "the lines have a gap, or one is there twice")
    done = marks(place)
    compare_marks(done, Record.of(events), found)
    found.bodies = sum(sum(counts.values()) for counts in done.values())
    found.events = len(events)
    return found


def _rival(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "crash.rival", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path[1:]])},
    )
