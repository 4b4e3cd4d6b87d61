"""B5: what it takes to begin: importing, the command line, the disk."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median

from packaging.requirements import Requirement

from bench.measuring import Figure, Goal, Spent, cost, plain, unmeasured
from bench.scale import Scale

HELP = "`interlock --help`"
BARE = [sys.executable, "-c", "pass"]
FIRST_AGENT = [sys.executable, "-c", "import interlock; interlock.Agent()"]
FIRST_TURN = [
    sys.executable,
    "-c",
    """
import asyncio
import interlock
from interlock.testing import ScriptedModel, calls, says

@interlock.tool
def area(width: float, height: float) -> float:
    return width * height

async def main():
    model = ScriptedModel(calls("area", width=3.0, height=4.0), says("12"))
    async with interlock.Agent(model, tools=[area]) as agent:
        assert (await agent.run("How large?")).ok

asyncio.run(main())
""",
]


def run(scale: Scale) -> list[Figure]:
    commands = {"bare": BARE, "agent": FIRST_AGENT, "turn": FIRST_TURN}
    program = Path(sys.executable).with_name("interlock")
    help_works = program.exists() and _exit_code([str(program), "--help"]) == 0
    if help_works:
        commands["help"] = [str(program), "--help"]
    samples = started(scale.starts, commands)
    over_bare = {
        name: [spent - bare for spent, bare in zip(samples[name], samples["bare"], strict=True)]
        for name in ("agent", "turn")
    }
    bare = f"bare Python takes {median([spent.wall for spent in samples['bare']]) * 1e3:.0f} ms"
    figures = [
        cost(
            "B5",
            "`import interlock` and the first `Agent()`",
            "ms over bare Python",
            over_bare["agent"],
            scale=1e3,
            clock="wall",
            goal=Goal("<=", 150),
            note=bare,
        ),
        cost(
            "B5",
            "the same, with a tool, and a first turn",
            "ms over bare Python",
            over_bare["turn"],
            scale=1e3,
            clock="wall",
        ),
    ]
    help_goal = Goal("<=", 150)
    if help_works:
        figures.append(
            cost("B5", HELP, "ms in all", samples["help"], scale=1e3, clock="wall", goal=help_goal, note=bare)
        )
    else:
        figures.append(
            unmeasured("B5", HELP, "ms in all", goal=help_goal, why="the command does not run here")
        )
    sizes = installed_sizes("interlock")
    largest = sorted(sizes.items(), key=lambda item: -item[1])[:5]
    figures.append(
        plain(
            "B5",
            "installed core with its dependencies, without bytecode",
            "MB",
            sum(sizes.values()) / 1e6,
            goal=Goal("<=", 25),
            note=f"{len(sizes)} packages; " + ", ".join(f"{name} {size / 1e6:.1f}" for name, size in largest),
        )
    )
    return figures


def started(rounds: int, commands: Mapping[str, list[str]]) -> dict[str, list[Spent]]:
    """What each command takes from its start to its end, once a round, in turn; one more round goes before.

    They find bytecode, as of a package that is installed: that round has made it, whatever the environment says.
    """
    samples: dict[str, list[Spent]] = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as bytecode:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number in range(rounds + 1):
            for name, command in commands.items():
                cpu, wall = _children(), time.perf_counter()
                subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
                spent = Spent(_children() - cpu, time.perf_counter() - wall)
                if number:
                    samples[name].append(spent)
    return samples


def _children() -> float:
    """CPU seconds of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _exit_code(command: list[str]) -> int:
    return subprocess.run(command, check=False, capture_output=True).returncode


def installed_sizes(name: str) -> dict[str, int]:
    """Bytes of a package and of all that it requires, extras left out, by distribution.

    They are the files that the installer recorded, bytecode left out. Of a package that is installed for editing,
    its source folder counts.
    """
    sizes: dict[str, int] = {}
    waiting = [name]
    while waiting:
        distribution = metadata.distribution(waiting.pop())
        found = distribution.metadata["Name"].lower().replace("_", "-")
        if found in sizes:
            continue
        sizes[found] = _size(distribution)
        for text in distribution.requires or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(requirement.name)
    return sizes


def _size(distribution: metadata.Distribution) -> int:
    files = [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]
    if any(file.suffix == ".pth" for file in files):
        spec = find_spec(distribution.metadata["Name"])
        assert spec is not None and spec.submodule_search_locations is not None
        files += [file for folder in spec.submodule_search_locations for file in Path(folder).rglob("*")]
    return sum(file.stat().st_size for file in set(files) if file.suffix != ".pyc" and file.is_file())
