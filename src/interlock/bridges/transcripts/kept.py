"""What a transcript holds and a log has no line for.

Lives here: `Kept`, an ignorable fact with the original beside the line that it could not become.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from interlock.log.facts import Fact, register_fact
from interlock.log.strictjson import MAX_DEPTH, MAX_INTEGER, NotJSON, freeze


@register_fact
class Kept(Fact, frozen=True):
    """Something in another program's transcript that has no line of its own here."""

    type = "import/kept"
    ignorable = True
    line: int  # of the transcript, from 1
    kind: str
    data: Any

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "data", storable(self.data))


def storable(value: object) -> Any:
    """The value, frozen; what strict JSON cannot hold becomes text: huge integers, infinities, what is nested too deeply."""
    try:
        return freeze(value)
    except NotJSON:
        return freeze(_mended(value, 0))


def _mended(value: object, depth: int) -> Any:
    if isinstance(value, (str, bool)) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_INTEGER else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= MAX_DEPTH - 1:
        return "…"
    if isinstance(value, dict):
        return {str(key): _mended(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_mended(item, depth + 1) for item in value]
    return str(value)
