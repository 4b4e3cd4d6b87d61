"""From HTTP to the words of the loop: codes, waits and messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from interlock.models.http_failures import MAX_MESSAGE, bounded, failure_code, retry_after, said

NOW = datetime(2026, 11, 30, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (400, "BAD_REQUEST"),
        (401, "AUTH"),
        (402, "BAD_REQUEST"),
        (403, "AUTH"),
        (404, "NOT_FOUND"),
        (408, "TIMEOUT"),
        (409, "SERVER"),
        (413, "BAD_REQUEST"),
        (418, "BAD_REQUEST"),
        (422, "BAD_REQUEST"),
        (429, "RATE_LIMIT"),
        (500, "SERVER"),
        (502, "SERVER"),
        (503, "SERVER"),
        (504, "SERVER"),
        (529, "SERVER"),
        (301, "UNKNOWN"),
    ],
)
def test_a_status_says_what_it_was(status: int, code: str) -> None:
    assert failure_code(status, {}, "no") == code


@pytest.mark.parametrize(
    ("status", "error", "message"),
    [
        (400, {"code": "context_length_exceeded"}, "no"),
        (400, {}, "This model's maximum context length is 2000 tokens."),
        (400, {"type": "exceed_context_size_error"}, "the request exceeds the available context size"),
        (413, {}, "prompt is too long: 9000 tokens > 2000 maximum"),
        (422, {}, "Too many input tokens"),
        (None, {"code": 400}, "exceeds the context window"),
    ],
)
def test_a_request_that_is_too_long_is_told_from_a_bad_one(
    status: int | None, error: Any, message: str
) -> None:
    assert failure_code(status, error, message) == "CONTEXT_LENGTH"


def test_a_rate_limit_that_speaks_of_tokens_stays_one() -> None:
    assert failure_code(429, {}, "Too many tokens per minute; your context window is fine") == "RATE_LIMIT"


@pytest.mark.parametrize(
    ("error", "code"),
    [
        ({"code": 429}, "RATE_LIMIT"),
        ({"code": "503"}, "SERVER"),
        ({"code": "rate_limit_exceeded"}, "RATE_LIMIT"),
        ({"type": "insufficient_quota"}, "RATE_LIMIT"),
        ({"code": "invalid_api_key", "type": "invalid_request_error"}, "AUTH"),
        ({"type": "authentication_error"}, "AUTH"),
        ({"type": "permission_error"}, "AUTH"),
        ({"code": "model_not_found", "type": "invalid_request_error"}, "NOT_FOUND"),
        ({"type": "timeout"}, "TIMEOUT"),
        ({"type": "invalid_request_error"}, "BAD_REQUEST"),
        ({"type": "overloaded_error"}, "SERVER"),
        ({"code": 1302}, "SERVER"),
        ("boom", "SERVER"),
    ],
)
def test_an_error_inside_a_stream_keeps_its_own_meaning(error: Any, code: str) -> None:
    assert failure_code(None, error, "no") == code


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ({"message": "a", "code": 1}, "a"),
        ({"error": {"message": "b"}}, "b"),
        ({"error": "c"}, "c"),
        ({"detail": "d"}, "d"),
        ({"detail": [{"loc": ["body"], "msg": "e"}]}, "e"),
        ([{"error": {"message": "f"}}], "f"),
        ({"message": 5}, "5"),
        ("g", "g"),
        ({"code": 1}, ""),
        ([], ""),
        (None, ""),
    ],
)
def test_a_servers_own_words_are_found(error: Any, message: str) -> None:
    assert said(error) == message


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "3", "retry-after-ms": "250"}, 0.25),
        ({"retry-after": "3", "retry-after-ms": "soon"}, 3.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:07 GMT"}, 7.0),
        ({"retry-after": "Mon, 30 Nov 2026 13:00:07 +0100"}, 7.0),
        ({"retry-after": "Mon, 30 Nov 2026 12:00:07 -0000"}, 7.0),
        ({"retry-after": "Mon, 30 Nov 2026 11:59:00 GMT"}, 0.0),
        ({"retry-after": "-2"}, 0.0),
        ({"retry-after": "later"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
    ],
)
def test_the_wait_that_a_server_asks_for(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def test_a_message_is_one_bounded_line_without_the_key() -> None:
    assert (
        bounded("Incorrect key sk-secret,\n  not sk-secret", "sk-secret")
        == "Incorrect key [api key], not [api key]"
    )
    assert bounded("as it is") == "as it is"
    long = bounded("x" * 5000)
    assert len(long) == MAX_MESSAGE
    assert long.endswith("x…")
