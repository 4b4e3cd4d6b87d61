"""What chat completions servers answer, and how they differ."""

from __future__ import annotations

import json
from typing import Any

import pytest

from interlock.errors import ModelFailure
from interlock.log.facts import Usage
from interlock.models.chat_stream import AnswerReader
from interlock.models.protocol import CallDelta, Chunk, Finish, ReasoningDelta, TextDelta, UsageReport


def chunk(finish: str | None = None, **delta: Any) -> bytes:
    return json.dumps({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}).encode()


def piece(arguments: Any = None, **fields: Any) -> dict[str, Any]:
    """A piece of a tool call: `index`, `id` and `name` only where they are given."""
    function = {
        key: value
        for key, value in (("name", fields.pop("name", None)), ("arguments", arguments))
        if value is not None
    }
    return {**fields, "function": function}


def call(*pieces: dict[str, Any]) -> bytes:
    return chunk(tool_calls=list(pieces))


def read(*events: bytes) -> list[Chunk]:
    reader = AnswerReader()
    return [made for event in events for made in reader.read(event)] + reader.end()


def whole_calls(*events: bytes) -> list[tuple[str | None, str | None, str]]:
    """(id, name, arguments) of each call of an answer, as an assembly would see them."""
    calls: dict[int, tuple[str | None, str | None, str]] = {}
    for made in read(*events, chunk("tool_calls")):
        if isinstance(made, CallDelta):
            id_, name, arguments = calls.get(made.block, (made.id, made.name, ""))
            calls[made.block] = (id_, name, arguments + made.arguments)
    return list(calls.values())


# An ordinary answer


def test_text_then_the_reason_then_the_usage_is_told_as_usage_then_finish() -> None:
    usage = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }
    assert read(
        chunk(role="assistant", content=""),
        chunk(content="Hel"),
        chunk(content="lo"),
        chunk("stop"),
        json.dumps({"choices": [], "usage": usage}).encode(),
    ) == [TextDelta("Hel"), TextDelta("lo"), UsageReport(Usage(10, 5, 4, 3)), Finish("stop")]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("stop", "stop"),
        ("length", "max-tokens"),
        ("tool_calls", "calls"),
        ("function_call", "calls"),
        ("content_filter", "filtered"),
        ("eos_token", "stop"),
    ],
)
def test_the_reasons_for_an_end(said: str, told: Any) -> None:
    assert read(chunk(said)) == [Finish(told)]


def test_without_a_reason_there_is_no_finish() -> None:
    reader = AnswerReader()
    assert reader.read(chunk(content="half")) == [TextDelta("half")]
    assert not reader.finished
    assert reader.end() == []


@pytest.mark.parametrize("reason", ["error", "insufficient_system_resource"])
def test_a_reason_by_which_a_server_says_that_it_failed(reason: str) -> None:
    with pytest.raises(ModelFailure, match=reason) as caught:
        read(chunk(content="half"), chunk(reason))
    assert caught.value.code == "SERVER"


@pytest.mark.parametrize(
    "usage", [None, 5, {}, {"prompt_tokens": None, "completion_tokens": 1.5}, {"prompt_tokens": -1}]
)
def test_an_odd_usage_costs_no_answer(usage: Any) -> None:
    end = read(json.dumps({"choices": [], "usage": usage}).encode(), chunk("stop"))
    assert end[-1] == Finish("stop")
    assert end[:-1] in ([], [UsageReport(Usage())])


def test_a_usage_that_is_told_all_along_is_told_once() -> None:
    events = [
        json.dumps({"choices": [{"delta": {"content": "x"}}], "usage": {"prompt_tokens": n}}).encode()
        for n in (1, 2)
    ]
    assert read(*events, chunk("stop")) == [TextDelta("x"), TextDelta("x"), UsageReport(Usage(2)), Finish()]


def test_events_that_say_nothing_are_nothing() -> None:
    assert (
        read(b"{}", b'{"choices": null}', b'{"choices": []}', b'{"choices": [{}]}', b'{"type": "ping"}') == []
    )


def test_only_the_first_choice_counts() -> None:
    other = b'{"choices": [{"index": 1, "delta": {"content": "other"}, "finish_reason": "stop"}]}'
    assert read(other, chunk(content="mine"), chunk("stop")) == [TextDelta("mine"), Finish()]


# Reasoning, refusals, blocks


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_under_either_name(name: str) -> None:
    assert read(chunk(**{name: "Hm. "}), chunk(**{name: "So."}), chunk(content="Yes"), chunk("stop")) == [
        ReasoningDelta("Hm. ", 0),
        ReasoningDelta("So.", 0),
        TextDelta("Yes", 1),
        Finish(),
    ]


def test_reasoning_under_both_names_is_said_once() -> None:
    assert read(chunk(reasoning_content="Hm", reasoning="Hm")) == [ReasoningDelta("Hm")]
    assert read(chunk(reasoning={"summary": "?"})) == []


def test_a_refusal_is_text() -> None:
    assert read(chunk(refusal="I cannot."), chunk("stop")) == [TextDelta("I cannot."), Finish()]


def test_a_new_kind_opens_a_new_block() -> None:
    assert read(
        chunk(content="a"), call(piece("{}", index=0, id="x", name="f")), chunk(content="b"), chunk("stop")
    ) == [TextDelta("a", 0), CallDelta(1, "x", "f", "{}"), TextDelta("b", 2), Finish()]


# Tool calls


def test_id_and_name_come_with_the_first_piece() -> None:
    assert read(
        call(piece("", index=0, id="x", name="get_weather")),
        call(piece('{"city', index=0)),
        call(piece('":"Bern"}', index=0)),
        call(piece("", index=1, id="y", name="ls")),
        chunk("tool_calls"),
    ) == [
        CallDelta(0, "x", "get_weather", '{"city'),
        CallDelta(0, None, None, '":"Bern"}'),
        CallDelta(1, "y", "ls", ""),
        Finish("calls"),
    ]


CITY = '{"city": "Bern"}'
HALVES = (CITY[:7], CITY[7:])
TWO = [("x", "f", CITY), ("y", "g", "{}")]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param(
            [call(piece(CITY, index=0, id="x", name="f"), piece("{}", index=1, id="y", name="g"))], id="whole"
        ),
        pytest.param([call(piece(CITY, id="x", name="f"), piece("{}", id="y", name="g"))], id="no index"),
        pytest.param(
            [call(piece(CITY, id="x", name="f")), call(piece("{}", id="y", name="g"))], id="no index, apart"
        ),
        pytest.param(
            [call(piece(CITY, index=0, id="x", name="f")), call(piece("{}", index=0, id="y", name="g"))],
            id="always 0",
        ),
        pytest.param(
            [
                call(piece(HALVES[0], id="x", name="f")),
                call(piece(HALVES[1])),
                call(piece("{", id="y", name="g")),
                call(piece("}")),
            ],
            id="no index, in pieces",
        ),
        pytest.param(
            [
                call(piece(HALVES[0], id="x", name="f")),
                call(piece("{", id="y", name="g")),
                call(piece(HALVES[1], id="x")),
                call(piece("}", id="y")),
            ],
            id="no index, mixed",
        ),
        pytest.param(
            [
                call(piece("", index=0, id="x", name="f"), piece("", index=1, id="y", name="g")),
                call(piece(HALVES[0], index=0)),
                call(piece("{", index=1)),
                call(piece(HALVES[1], index=0), piece("}", index=1)),
            ],
            id="mixed",
        ),
        pytest.param(
            [
                call(piece(HALVES[0], index=0, id="x", name="f")),
                call(piece(HALVES[1], index=0, id="x", name="f")),
                call(piece("{}", index=1, id="y", name="g")),
            ],
            id="repeated",
        ),
        pytest.param(
            [
                call(piece(HALVES[0], index=0, id="x", name="f")),
                call(piece(HALVES[1], index=0, id="new")),
                call(piece("{}", index=1, id="y", name="g")),
            ],
            id="a new id each time",
        ),
        pytest.param(
            [
                call(piece(HALVES[0], id="x", name="f")),
                call(piece(HALVES[1], id="new")),
                call(piece("{}", id="y", name="g")),
            ],
            id="a new id each time, no index",
        ),
        pytest.param(
            [
                call(piece(name="f", index=0)),
                call(piece(index=0, id="x")),
                call(piece(CITY, index=0)),
                call(piece("{}", index=1, id="y", name="g")),
            ],
            id="id after the name",
        ),
        pytest.param(
            [call(piece({"city": "Bern"}, id="x", name="f"), piece({}, id="y", name="g"))],
            id="arguments as an object",
        ),
    ],
)
def test_two_calls_however_they_are_told(events: list[bytes]) -> None:
    calls = [(id_, name, json.loads(arguments or "{}")) for id_, name, arguments in whole_calls(*events)]
    assert calls == [(id_, name, json.loads(arguments)) for id_, name, arguments in TWO]


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([call(piece(CITY, index=0, name="f"), piece("{}", index=1, name="f"))], id="whole"),
        pytest.param([call(piece(CITY, name="f"), piece("{}", name="f"))], id="no index"),
        pytest.param([call(piece(CITY, name="f")), call(piece("{}", name="f"))], id="no index, apart"),
        pytest.param(
            [call(piece(CITY, index=0, name="f")), call(piece("{}", index=0, name="f"))], id="always 0"
        ),
        pytest.param(
            [call(piece(HALVES[0], name="f")), call(piece(HALVES[1], name="f")), call(piece("{}", name="f"))],
            id="name repeated",
        ),
        pytest.param(
            [
                call(piece('{"city": "Be}', name="f")),
                call(piece('rn"}', name="f")),
                call(piece("{}", name="f")),
            ],
            id="name repeated within a text that ends like an object",
        ),
        pytest.param(
            [call(piece(CITY, index=0, id="", name="f")), call(piece("{}", index=1, id="", name="f"))],
            id="empty ids",
        ),
    ],
)
def test_two_calls_of_one_tool_without_ids(events: list[bytes]) -> None:
    first, second = whole_calls(*events)
    assert first in [(None, "f", CITY), (None, "f", '{"city": "Be}rn"}')]
    assert second == (None, "f", "{}")


def test_one_id_for_two_calls_is_passed_on_for_the_loop_to_rename() -> None:
    same = [
        call(piece(CITY, index=0, id="call_0", name="f")),
        call(piece("{}", index=0, id="call_0", name="g")),
    ]
    assert whole_calls(*same) == [("call_0", "f", CITY), ("call_0", "g", "{}")]


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_a_name_in_pieces_is_told_whole(index: dict[str, int]) -> None:
    assert whole_calls(
        call(piece(id="x", name="get_", **index)),
        call(piece(name="weather", **index)),
        call(piece(CITY, **index)),
    ) == [("x", "get_weather", CITY)]


def test_a_name_that_is_repeated_is_told_once() -> None:
    pieces = [call(piece(part, index=0, id="x", name="f")) for part in ("", HALVES[0], HALVES[1])]
    assert whole_calls(*pieces) == [("x", "f", CITY)]


def test_arguments_before_the_name_wait_for_it() -> None:
    assert read(
        call(piece(HALVES[0], index=0)), call(piece(HALVES[1], index=0, name="f")), chunk("tool_calls")
    ) == [
        CallDelta(0, None, "f", CITY),
        Finish("calls"),
    ]


def test_the_older_function_call() -> None:
    events = [chunk(function_call={"name": "f", "arguments": ""}), chunk(function_call={"arguments": CITY})]
    assert read(*events, chunk("function_call")) == [CallDelta(0, None, "f", CITY), Finish("calls")]


def test_calls_of_a_stream_that_was_cut_are_told_as_far_as_they_came() -> None:
    assert read(call(piece(HALVES[0], index=0, id="x", name="f"))) == [CallDelta(0, "x", "f", HALVES[0])]


# Errors, and what is not of the format


def test_an_error_inside_the_stream() -> None:
    error = {"error": {"message": "Rate limit reached for sk-secret", "code": "rate_limit_exceeded"}}
    reader = AnswerReader(request_id="req-1", secret="sk-secret")
    with pytest.raises(ModelFailure) as caught:
        reader.read(json.dumps(error).encode())
    failure = caught.value
    assert (failure.code, failure.message, failure.request_id) == (
        "RATE_LIMIT",
        "Rate limit reached for [api key]",
        "req-1",
    )


def test_an_error_that_is_the_event_itself() -> None:
    with pytest.raises(ModelFailure, match="engine died") as caught:
        read(b'{"object": "error", "message": "engine died", "code": 500}')
    assert caught.value.code == "SERVER"


@pytest.mark.parametrize(
    "event",
    [
        b'{"choices": [',
        b"not json",
        b"[1]",
        b"null",
        b'{"choices": {}}',
        b'{"choices": [{"delta": "text"}]}',
        b'{"choices": [{"delta": {"content": 5}}]}',
        b'{"choices": [{"delta": {"content": "\\ud83d"}}], "x": }',
        b'{"choices": [{"delta": {"content": 5, "refusal": "\\ud83d"}}]}',
        b'{"usage": ' + b"[" * 20_000 + b"]" * 20_000 + b"}",
    ],
)
def test_an_event_of_another_format_is_malformed(event: bytes) -> None:
    with pytest.raises(ModelFailure, match="not of the chat completions format") as caught:
        read(event)
    assert caught.value.code == "MALFORMED"
    assert len(caught.value.message) <= 1000


# Unicode


def raw(text: str) -> bytes:
    """An event whose content is this JSON text, escapes as they are."""
    return b'{"choices": [{"delta": {"content": "' + text.encode() + b'"}}]}'


def test_a_character_that_was_cut_in_two_is_mended() -> None:
    assert read(raw("a\\ud83d"), raw("\\ude00b"), chunk("stop")) == [
        TextDelta("a"),
        TextDelta("😀b"),
        Finish(),
    ]


def test_halves_of_different_kinds_are_not_mixed() -> None:
    reasoning = b'{"choices": [{"delta": {"reasoning": "\\ud83d"}}]}'
    rest = b'{"choices": [{"delta": {"reasoning": "\\ude01"}}]}'
    assert read(reasoning, raw("\\ud83d"), raw("\\ude00"), rest) == [
        TextDelta("😀", 0),
        ReasoningDelta("😁", 1),
    ]


@pytest.mark.parametrize("text", ["\\ude00", "a\\ude00b", "\\ud83dx"])
def test_a_half_without_its_other_half_is_replaced(text: str) -> None:
    (made,) = read(raw(text))
    assert isinstance(made, TextDelta)
    assert "\ufffd" in made.text
    made.text.encode()


def test_a_half_of_a_call_argument_is_mended_as_well() -> None:
    def half(text: bytes) -> bytes:
        return (
            b'{"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "'
            + text
            + b'"}}]}}]}'
        )

    first = call(piece("", index=0, id="x", name="f"))
    assert whole_calls(first, half(b'{\\"a\\":\\"\\ud83d'), half(b'\\ude00\\"}')) == [
        ("x", "f", '{"a":"😀"}')
    ]


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert read(b'{"choices": [{"delta": {"content": "a\xffb"}}]}') == [TextDelta("a\ufffdb")]


def test_names_ids_and_arguments_are_valid_unicode_too() -> None:
    event = b'{"choices": [{"delta": {"tool_calls": [{"id": "x\\ud83d", "function": {"name": "f\\ud83d", "arguments": {"a": "\\ud83d"}}}]}}]}'
    ((id_, name, arguments),) = whole_calls(event)
    assert (id_, name, arguments) == ("x\ufffd", "f\ufffd", '{"a": "\\ud83d"}')


def test_an_error_in_broken_unicode_is_still_an_error() -> None:
    with pytest.raises(ModelFailure) as caught:
        read(b'{"object": "error", "message": "bad \\ud83d", "type": "overloaded_error"}')
    assert (caught.value.code, caught.value.message) == ("SERVER", "bad ?")
