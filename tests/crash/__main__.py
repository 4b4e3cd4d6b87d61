"""`make crash ARGS="--kills 200 --seed 1 --store sqlite"`: kill processes, let them fight, and print the tables."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from crash.fight import RIVALS, Fought, fight
from crash.matrix import FAULTS, Found, kill_again_and_again
from crash.places import KINDS, address_of


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit code says whether all is well."""
    parser = argparse.ArgumentParser(
        prog="make crash", description="Kill processes at any moment, and look whether anything was lost."
    )
    parser.add_argument("--kills", type=int, default=200, metavar="N", help="of each store; 200 by default")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the moments; 1 by default")
    parser.add_argument(
        "--store", choices=KINDS, nargs="+", default=KINDS, help="which stores; all by default"
    )
    parser.add_argument(
        "--fight",
        type=float,
        default=30,
        metavar="SECONDS",
        help="how long two processes fight for one session; 30 by default",
    )
    given = parser.parse_args(arguments)
    killed: dict[str, Found] = {}
    fought: dict[str, Fought] = {}
    for kind in given.store:
        began = time.monotonic()
        try:
            with (
                TemporaryDirectory(prefix="interlock-crash-") as name,
                address_of(kind, Path(name)) as address,
            ):
                folder = Path(name)
                if given.kills > 0:
                    print(f"{kind}: {given.kills} kills ...", file=sys.stderr, flush=True)
                    killed[kind] = asyncio.run(
                        kill_again_and_again(address, folder, kills=given.kills, seed=given.seed)
                    )
                if given.fight > 0:
                    print(f"{kind}: a fight of {given.fight:g} s ...", file=sys.stderr, flush=True)
                    fought[kind] = asyncio.run(fight(address, folder, seconds=given.fight))
        except pytest.skip.Exception as skipped:
            print(f"{kind} is left out: {skipped}", file=sys.stderr)
            continue
        well = all(one[kind].well for one in (killed, fought) if kind in one)
        print(
            f"{kind}: {'well' if well else 'NOT well'}, {time.monotonic() - began:.0f} s",
            file=sys.stderr,
            flush=True,
        )
    print("\n".join([*table_of_kills(killed), "", *table_of_fights(fought)]).strip())
    return 0 if all(one.well for one in [*killed.values(), *fought.values()]) else 1


def table_of_kills(found: dict[str, Found]) -> list[str]:
    if not found:
        return []
    columns = ("kills", "sessions", "resumed", "repaired", "acknowledged", "bodies")
    rows = [("store", *columns, *FAULTS)]
    for kind, one in found.items():
        rows.append((kind, *[str(getattr(one, column)) for column in columns], *_faults(one)))
    lines = _aligned(rows)
    for kind, one in found.items():
        stages = ", ".join(f"{name} {count}" for name, count in one.stages.most_common())
        lines += ["", f"{kind}, killed at: {stages}", *_problems(one)]
    return lines


def table_of_fights(found: dict[str, Fought]) -> list[str]:
    if not found:
        return []
    columns = ("events", "acknowledged", "bodies")
    rows = [("store", *[f"lives of {name}" for name in RIVALS], *columns, *FAULTS, "refused")]
    for kind, one in found.items():
        lives = [str(one.lives[name]) for name in RIVALS]
        figures = [str(getattr(one, column)) for column in columns]
        refused = ", ".join(f"{name} {count}" for name, count in one.refusals.most_common())
        rows.append((kind, *lives, *figures, *_faults(one), refused))
    return [*_aligned(rows), *[line for one in found.values() for line in _problems(one)]]


def _faults(found: Found) -> list[str]:
    return [str(len(found.faults[fault])) for fault in FAULTS]


def _problems(found: Found) -> list[str]:
    return [f"{fault}, {what}" for fault in FAULTS for what in found.faults[fault]]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


if __name__ == "__main__":
    sys.exit(main())
