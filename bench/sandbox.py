"""B11: what a sandbox adds to the start of a command."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from bench.measuring import Contestant, Figure, Goal, Spent, cost, interleaved, require, stopwatch, unmeasured
from bench.scale import Scale
from interlock.intercept.signal import Signal
from interlock.process import run as running
from interlock.process.sandbox import Sandbox

WHAT = "a command in a sandbox, from its start to its end"
SMALLEST = ("--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
GOAL = Goal("<=", 50)


def run(scale: Scale) -> list[Figure]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        modes = {mode: Sandbox(mode, root=root) for mode in ("workspace-write", "read-only")}
        problem = modes["read-only"].problem()
        if problem is not None:
            return [unmeasured("B11", WHAT, "ms", goal=GOAL, why=problem)]
        contestants: dict[str, Contestant] = {
            "bare": lambda: _timed(lambda: _command(root, None)),
            "bubblewrap": lambda: _timed(_bubblewrap),
        }
        for mode, sandbox in modes.items():
            contestants[mode] = lambda sandbox=sandbox: _timed(lambda: _command(root, sandbox))
        samples = interleaved(scale.rounds, contestants)
    note = f"bubblewrap alone, with next to nothing to mount: {_median_ms(samples['bubblewrap']):.1f} ms"
    return [
        cost(
            "B11",
            f"{WHAT}, {mode}",
            "ms",
            samples[mode],
            samples["bare"],
            scale=1e3,
            clock="wall",
            goal=GOAL,
            note=note,
        )
        for mode in modes
    ]


async def _timed(work: Callable[[], Coroutine[Any, Any, None]]) -> Spent:
    with stopwatch() as watch:
        await work()
    return watch.spent


async def _command(root: Path, sandbox: Sandbox | None) -> None:
    finished = await running.run("echo done", cwd=root, signal=Signal(), sandbox=sandbox)
    require(finished.output == "done\n", "running a command")


async def _bubblewrap() -> None:
    program = shutil.which("bwrap")
    assert program is not None
    process = await asyncio.create_subprocess_exec(program, *SMALLEST, "true")
    require(await process.wait() == 0, "running bubblewrap")


def _median_ms(samples: list[Spent]) -> float:
    return sorted(spent.wall for spent in samples)[len(samples) // 2] * 1e3
