"""Lines to keep in stores, and a disk that is soon full."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from interlock.log.event import Event
from interlock.log.facts import Fact, StepStart, Unknown

T0 = 1_700_000_000_000  # the time of line 0; each later one is a millisecond later


def lines(*facts: Fact, first: int = 0) -> list[Event]:
    return [
        Event(seq, T0 + seq, 1, fact, ignorable=type(fact) is Unknown)
        for seq, fact in enumerate(facts, start=first)
    ]


def steps(n: int, first: int = 0) -> list[Event]:
    return lines(*[StepStart(1, i) for i in range(first, first + n)], first=first)


@contextmanager
def disk_of(size: str, folder: Path) -> Iterator[Path]:
    """A file system of its own, this large, as long as the block runs: `512k`. Skips the test without the right."""
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip("mounting a file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
