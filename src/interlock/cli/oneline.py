"""How things are said on one line: texts, arguments, sizes and times.

Lives here: small functions from values to text that is safe to print. Nothing here knows a log or a screen.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from interlock.policy.printable import printable


def short(text: str, limit: int) -> str:
    """The text on one line, cut to `limit` characters."""
    # Not all of a long text has to be looked at to show its beginning.
    line = " ".join(text[: 4 * limit].split())
    if len(line) <= limit and len(text) <= 4 * limit:
        return printable(line)
    return f"{printable(line[: limit - 1].rstrip())}…"


def arguments(given: Mapping[str, Any], limit: int = 160) -> str:
    """Arguments of a call: `path=logs/app.log limit=20`."""
    parts = []
    for name, value in given.items():
        plain = isinstance(value, str) and value and value.isprintable() and " " not in value
        parts.append(f"{name}={value if plain else msgspec.json.encode(value).decode()}")
    return short(" ".join(parts), limit)


def count(n: int, what: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{n:,} {what}" if n == 1 else f"{n:,} {what}s"


def span(ms: int) -> str:
    """How long: `8 ms`, `1.3 s`, `4 min 2 s`."""
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    return f"{minutes} min {seconds} s"


def offset(ms: int) -> str:
    """When, from a beginning: `0.008`, `1:02.500`, `26:03:11.000`."""
    seconds, rest = divmod(max(ms, 0), 1000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02}:{seconds:02}.{rest:03}"
    return f"{minutes}:{seconds:02}.{rest:03}" if minutes else f"{seconds}.{rest:03}"


def moment(ms: int) -> str:
    """A point in time, in the local zone: `2026-11-30 08:15:00`."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(ms / 1000))
