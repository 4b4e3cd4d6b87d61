"""`python -m bench [NAMES ...] [--json FILE] [--quick]`"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from bench import (
    agents,
    batches,
    bodies,
    chunks,
    durable,
    finding,
    listeners,
    machine,
    reopening,
    sandbox,
    startup,
    steps,
)
from bench.measuring import Figure
from bench.scale import FULL, QUICK, Scale

BENCHES: dict[str, Callable[[Scale], list[Figure]]] = {
    "B1": steps.run,
    "B2": batches.run,
    "B3": agents.run,
    "B4": chunks.run,
    "B5": startup.run,
    "B6": listeners.run,
    "B7": durable.run,
    "B8": reopening.run,
    "B9": finding.run,
    "B10": bodies.run,
    "B11": sandbox.run,
}
_COLUMNS = ("bench", "what", "figure", "unit", "goal", "", "floor", "ratio", "cpu", "wall", "spread")
_LEFT = {"bench", "what", "unit", "goal", ""}


def main(arguments: Sequence[str] | None = None, *, scale: Scale | None = None) -> None:
    """Measure, print the table, and write the JSON if it is wanted."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Measure Interlock against its floor."
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(BENCHES)}; all without any"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    parser.add_argument(
        "--quick", action="store_true", help="few rounds: a first look, not a figure to quote"
    )
    given = parser.parse_args(arguments)
    names = [name.upper() for name in given.names] or list(BENCHES)
    if unknown := [name for name in names if name not in BENCHES]:
        parser.error(f"no bench {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    chosen = scale or (QUICK if given.quick else FULL)
    facts = machine.facts()
    figures: list[Figure] = []
    for name in names:
        print(f"{name} ...", file=sys.stderr, flush=True)
        figures += BENCHES[name](chosen)
    print("\n".join(table(figures)))
    if given.json is not None:
        report = {"format": 1, "machine": facts, "scale": asdict(chosen), "figures": figures}
        given.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def table(figures: Sequence[Figure]) -> list[str]:
    """The figures as lines of text; notes follow."""
    rows = [_COLUMNS, *[_row(figure) for figure in figures]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(_COLUMNS))]
    lines = [
        "  ".join(
            cell.ljust(width) if name in _LEFT else cell.rjust(width)
            for cell, width, name in zip(row, widths, _COLUMNS, strict=True)
        ).rstrip()
        for row in rows
    ]
    return lines + [f"{figure.bench} {figure.what}: {figure.note}" for figure in figures if figure.note]


def _row(figure: Figure) -> tuple[str, ...]:
    return (
        figure.bench,
        figure.what,
        _number(figure.figure),
        figure.unit,
        figure.goal or "",
        "" if figure.met is None else "met" if figure.met else "MISSED",
        _number(figure.floor),
        f"x {figure.ratio:.2f}" if figure.ratio is not None else "",
        _number(figure.cpu),
        _number(figure.wall),
        f"{figure.spread:.0%}" if figure.spread is not None else "",
    )


def _number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}" if abs(value) < 100 else f"{value:.0f}"


if __name__ == "__main__":
    main()
