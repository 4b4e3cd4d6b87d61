"""What a stop is asked with.

Lives here: `cause_of` and `grace_ms`, which check it, for the agent that is stopped and for letters to it.
"""

from __future__ import annotations

from typing import get_args

import msgspec

from interlock.errors import UsageError
from interlock.log.reasons import Cause, CauseKind
from interlock.log.strictjson import MAX_INTEGER


def cause_of(given: CauseKind | Cause) -> Cause:
    """
    Raises:
        UsageError: it could not be read back from the log.
    """
    try:
        cause = Cause(given) if isinstance(given, str) else given
        return msgspec.json.decode(msgspec.json.encode(cause), type=Cause)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        kinds = ", ".join(get_args(CauseKind))
        raise UsageError(f"{given!r} is no cause: {error}. Name one of {kinds}, or give a Cause.") from None


def grace_ms(seconds: float | None) -> int | None:
    """
    Raises:
        UsageError: it is no number of seconds from 0, or more than the log can keep.
    """
    given: object = seconds
    if given is None:
        return None
    if not (isinstance(given, (int, float)) and 0 <= given <= MAX_INTEGER / 1000):
        raise UsageError(f"grace is a number of seconds from 0, not {seconds!r}")
    return round(given * 1000)
