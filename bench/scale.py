"""How much each bench does: the sizes and repetitions of a run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Scale:
    """Sizes of the work and numbers of rounds. A round is one measurement of everything that is compared."""

    rounds: int
    starts: int  # rounds of B5, in which a round starts several processes, and of B8
    steps: int  # B1
    growth: tuple[int, ...]  # B1: numbers of steps, ascending, two or more
    calls: int  # B2 and B6: calls of one answer
    waits: int  # B2: calls that take `wait` seconds each
    wait: float
    agents: int  # B3
    agent_steps: int  # B3: with a call each
    agent_wait: float  # B3: seconds that a call takes
    chunks: int  # B4
    durable_steps: int  # B7
    old_events: int  # B8
    sessions: int  # B9
    bodies: tuple[int, ...]  # B10: numbers of messages
    requests: int  # B10: requests of one measurement


FULL = Scale(
    rounds=15,
    starts=10,
    steps=200,
    growth=(100, 200, 400, 800, 1_600),
    calls=1_000,
    waits=100,
    wait=0.01,
    agents=1_000,
    agent_steps=5,
    agent_wait=0.005,
    chunks=20_000,
    durable_steps=500,
    old_events=100_000,
    sessions=10_000,
    bodies=(200, 1_600),
    requests=10,
)
QUICK = Scale(
    rounds=3,
    starts=2,
    steps=200,
    growth=(100, 400, 1_600),
    calls=1_000,
    waits=100,
    wait=0.01,
    agents=1_000,
    agent_steps=5,
    agent_wait=0.005,
    chunks=20_000,
    durable_steps=500,
    old_events=100_000,
    sessions=2_000,
    bodies=(200, 1_600),
    requests=4,
)
