"""Ages and sizes as people type and read them.

Lives here: `age_of` and `size_of`, from `30d` and `2GB` to milliseconds and bytes, and `size`, the other way.
"""

from __future__ import annotations

import re

_AGE = re.compile(r"(\d{1,6})\s*([mhdw])")
_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)\s*([kmgt]?)(i?)b", re.IGNORECASE)
_POWERS = " kmgt"


def age_of(option: str, typed: str) -> int:
    """Milliseconds.

    Raises:
        UsageError: it is no age.
    """
    from interlock.errors import UsageError

    found = _AGE.fullmatch(typed.strip())
    if found is None:
        raise UsageError(
            f"{option} {typed!r} is no age. Give weeks, days, hours or minutes: 4w, 30d, 12h, 90m."
        )
    return int(found[1]) * _MS[found[2]]


def size_of(option: str, typed: str) -> int:
    """Bytes.

    Raises:
        UsageError: it is no size.
    """
    from interlock.errors import UsageError

    found = _SIZE.fullmatch(typed.strip())
    if found is None or (found[3] and not found[2]):
        raise UsageError(
            f"{option} {typed!r} is no size. Give a number with its unit: 500MB, 2GB (a thousand to a step), 1.5GiB (1,024)."
        )
    step = 1024 if found[3] else 1000
    return int(float(found[1]) * step ** _POWERS.index(found[2].lower() or " "))


def size(bytes_: int) -> str:
    """`812 B`, `1.5 MB`."""
    amount = float(bytes_)
    for unit in ("B", "KB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:,.1f} TB"
