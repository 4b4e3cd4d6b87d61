"""What went wrong with a request over HTTP, in the words the loop knows.

Lives here: from a status, an error object or a header to the code, the wait and the message of a `ModelFailure`.
Nothing here knows a provider's SDK.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

MAX_MESSAGE = 1000  # characters of a server's own words that are kept

_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|maximum context|(prompt|input) is too long|too many (input |prompt )?tokens",
    re.I,
)
#: For errors without a status, inside a stream: the first word found in its code or type says what it is.
_WORDS = (
    ("context_length", "CONTEXT_LENGTH"),
    ("rate_limit", "RATE_LIMIT"),
    ("too_many_requests", "RATE_LIMIT"),
    ("quota", "RATE_LIMIT"),
    ("api_key", "AUTH"),
    ("auth", "AUTH"),
    ("permission", "AUTH"),
    ("not_found", "NOT_FOUND"),
    ("timeout", "TIMEOUT"),
    ("invalid", "BAD_REQUEST"),
    ("bad_request", "BAD_REQUEST"),
)


def failure_code(status: int | None, error: object, message: str) -> str:
    """The code for a status and the error object that came with it; without a status the object alone decides."""
    words = ""
    if isinstance(error, Mapping):
        words = f"{error.get('code')} {error.get('type')}".lower()
        if status is None:
            status = _status_in(error.get("code"))
    if status in (None, 400, 413, 422) and ("context_length" in words or _TOO_LONG.search(message)):
        return "CONTEXT_LENGTH"
    if status is None:
        return next((code for word, code in _WORDS if word in words), "SERVER")
    if status in (401, 403):
        return "AUTH"
    if status == 404:
        return "NOT_FOUND"
    if status == 408:
        return "TIMEOUT"
    if status == 429:
        return "RATE_LIMIT"
    if (
        status == 409 or status >= 500
    ):  # 409: the server could not get a lock in time; it asks to be tried again
        return "SERVER"
    return "BAD_REQUEST" if status >= 400 else "UNKNOWN"


def _status_in(code: object) -> int | None:
    """Some servers put the status they would have sent into the error's code, as a number or its text."""
    text = str(code)
    return int(text) if re.fullmatch(r"[45]\d\d", text) else None


def said(error: object) -> str:
    """The server's own words in an error object, a bare string or a body such as `{"detail": ...}`; else nothing."""
    if isinstance(error, str):
        return error
    if isinstance(error, Mapping):
        for key in ("message", "detail", "error", "msg"):
            if error.get(key):
                return said(error[key]) or str(error[key])
    if isinstance(error, list) and error:
        return said(error[0])  # one server puts its error object into a list
    return ""


def bounded(text: str, secret: str | None = None) -> str:
    """One line of at most `MAX_MESSAGE` characters of valid Unicode that does not contain the secret."""
    if secret:
        text = text.replace(secret, "[api key]")
    text = " ".join(text.encode(errors="replace").decode().split())
    return text if len(text) <= MAX_MESSAGE else f"{text[: MAX_MESSAGE - 1]}…"


def retry_after(headers: Mapping[str, Any], now: datetime) -> float | None:
    """Seconds to wait, from `retry-after-ms`, or `retry-after` in seconds or as a date; never below 0."""
    for name, scale in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            seconds = float(value) / scale
        except ValueError:
            seconds = _until(value, now)
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def _until(date: str, now: datetime) -> float:
    try:
        when = parsedate_to_datetime(date)
    except ValueError:
        return math.nan
    return (when.replace(tzinfo=when.tzinfo or UTC) - now).total_seconds()
