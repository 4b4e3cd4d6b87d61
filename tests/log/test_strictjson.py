"""JSON without surprises: what cannot be written and read again unchanged is refused at the edge, and said where."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.log.strictjson import (
    EMPTY,
    MAX_DEPTH,
    MAX_INTEGER,
    FrozenDict,
    NotJSON,
    check_text,
    freeze,
    parse,
    thaw,
)

from .fact_strategies import json_values


def _nested(levels: int, inner: str = "1") -> str:
    return "[" * levels + inner + "]" * levels


@settings(deadline=None)
@given(json_values)
def test_a_value_survives_text_and_freezing(value: Any) -> None:
    text = json.dumps(value)
    assert thaw(parse(text)) == value
    assert thaw(freeze(value)) == value
    assert parse(text) == freeze(value)
    # What the log writes of it is the same value to any other reader.
    assert json.loads(msgspec.json.encode(freeze(value))) == value


@given(json_values)
def test_what_is_frozen_is_frozen_all_through(value: Any) -> None:
    def check(frozen: Any) -> None:
        assert type(frozen) in (type(None), bool, int, float, str, FrozenDict, tuple)
        for inner in frozen.values() if isinstance(frozen, dict) else frozen if type(frozen) is tuple else ():
            check(inner)

    check(freeze(value))
    check(parse(json.dumps(value)))


@settings(deadline=None)
@given(st.text(max_size=60) | st.text(alphabet='[]{}",:0123456789.eE+-\\ut nrlfas', max_size=40))
def test_parsing_any_text_gives_a_value_or_says_why_not(text: str) -> None:
    """Nothing is accepted that a strict reader refuses, and nothing but `NotJSON` is raised."""
    try:
        value = parse(text)
    except NotJSON:
        return
    assert thaw(value) == json.loads(text)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", '{"a": NaN}', "[1, -Infinity]"])
def test_numbers_that_json_has_not_are_refused(text: str) -> None:
    with pytest.raises(NotJSON, match=r"is not JSON"):
        parse(text)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {"a": [1.0, float("-inf")]}])
def test_numbers_that_json_has_not_cannot_be_frozen(value: Any) -> None:
    with pytest.raises(NotJSON, match="is not a JSON number"):
        freeze(value)


@pytest.mark.parametrize("text", ["1e999", "-1e999", "[1e400]"])
def test_a_number_too_large_for_a_double_is_refused_and_not_made_infinite(text: str) -> None:
    with pytest.raises(NotJSON, match="too large"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "key"),
    [('{"a": 1, "a": 2}', "a"), ('{"x": {"b": 1, "c": 2, "b": 1}}', "b"), ('{"a": 1, "\\u0061": 1}', "a")],
)
def test_a_key_that_appears_twice_is_refused_by_name(text: str, key: str) -> None:
    with pytest.raises(NotJSON, match=f"the key '{key}' appears twice"):
        parse(text)


@pytest.mark.parametrize("integer", [MAX_INTEGER, -MAX_INTEGER, 0, 10**15])
def test_integers_within_two_to_the_53_are_exact(integer: int) -> None:
    assert parse(str(integer)) == freeze(integer) == integer


@pytest.mark.parametrize("integer", [MAX_INTEGER + 1, -MAX_INTEGER - 1, 10**17, 10**400])
def test_integers_that_a_double_cannot_hold_are_refused(integer: int) -> None:
    with pytest.raises(NotJSON, match="2\\^53"):
        parse(str(integer))
    with pytest.raises(NotJSON, match="2\\^53"):
        freeze([integer])


def test_an_integer_of_a_million_digits_is_refused_at_once() -> None:
    """`int()` of it would take seconds, or raise a ValueError that says nothing of JSON."""
    with pytest.raises(NotJSON, match="2\\^53"):
        parse("9" * 1_000_000)


@pytest.mark.parametrize(
    "text",
    [
        '"\\ud800"',
        '{"a": "\\udfff"}',
        '{"\\ud800": 1}',
        '"\\ud83d \\ude00"',
        '{"a": ["\\ud800"]}',
    ],
)
def test_half_a_surrogate_pair_is_refused(text: str) -> None:
    with pytest.raises(NotJSON, match="lone surrogate"):
        parse(text)
    with pytest.raises(NotJSON, match="lone surrogate"):
        freeze(json.loads(text))


def test_a_whole_surrogate_pair_is_one_character() -> None:
    assert parse('"\\ud83d\\ude00"') == "\U0001f600"


def test_a_text_says_at_which_character_it_is_broken() -> None:
    assert check_text("grüß dich") == "grüß dich"
    with pytest.raises(NotJSON, match=r"at character 3 \(at \$\.name\)"):
        check_text("abc\ud800", "$.name")


@pytest.mark.parametrize("text", ['"a\nb"', '"\x00"', '"\t"'])
def test_control_characters_must_be_escaped(text: str) -> None:
    with pytest.raises(NotJSON, match="control character"):
        parse(text)


def test_the_depth_is_bounded_for_text_and_for_values() -> None:
    assert thaw(parse(_nested(MAX_DEPTH))) == json.loads(_nested(MAX_DEPTH))
    for text in (_nested(MAX_DEPTH + 1), '{"a":' * (MAX_DEPTH + 1) + "1" + "}" * (MAX_DEPTH + 1)):
        with pytest.raises(NotJSON, match="deeper"):
            parse(text)
        with pytest.raises(NotJSON, match="deeper"):
            freeze(json.loads(text))


def test_a_depth_that_would_break_the_stack_is_refused_like_any_other() -> None:
    with pytest.raises(NotJSON, match="deeper"):
        parse(_nested(100_000))


def test_a_value_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(NotJSON, match="deeper"):
        freeze(endless)


def test_a_large_text_is_parsed_whole() -> None:
    """Parsing has no bound of its own: whoever parses on the event loop bounds what it takes."""
    text = json.dumps({"rows": [{"id": i, "name": "x" * 100} for i in range(10_000)]})
    assert len(text) > 1 << 20
    assert thaw(parse(text)) == json.loads(text)


@pytest.mark.parametrize("value", [b"bytes", {1, 2}, object(), 1j, {"a": {"b": [0, b"x"]}}])
def test_a_value_of_another_type_is_refused(value: Any) -> None:
    with pytest.raises(NotJSON, match="is not a JSON value"):
        freeze(value)


def test_a_key_must_be_a_text() -> None:
    with pytest.raises(NotJSON, match="the key 1 is int"):
        freeze({"a": [{1: "one"}]})


def test_an_error_says_where() -> None:
    with pytest.raises(NotJSON) as caught:
        freeze({"items": [{"ok": 1}, {"name": {"first": b""}}]})
    assert caught.value.path == "$.items[1].name.first"
    with pytest.raises(NotJSON, match="line 2 column 6"):
        parse('{"a": 1,\n "b" 2}')


@pytest.mark.parametrize("text", ["", " ", "{", "[1,]", "{'a': 1}", "nul", '{"a":1} x', "01", "\ufeff{}"])
def test_text_that_is_no_json_is_refused(text: str) -> None:
    with pytest.raises(NotJSON):
        parse(text)


def test_a_frozen_object_cannot_be_changed_and_says_how_to_copy() -> None:
    frozen = freeze({"a": {"b": [1, 2]}})
    changes: list[Any] = [
        lambda: frozen.update(a=1),
        lambda: frozen.__setitem__("a", 1),
        lambda: frozen.__delitem__("a"),
        lambda: frozen["a"].clear(),
        lambda: frozen.pop("a"),
        lambda: frozen.popitem(),
        lambda: frozen.setdefault("z", 1),
        lambda: frozen.__ior__({"z": 1}),
    ]
    for change in changes:
        with pytest.raises(TypeError, match="frozen: make a changed copy"):
            change()
    assert frozen == {"a": {"b": (1, 2)}}


def test_freezing_copies_and_thawing_copies_back() -> None:
    mine: dict[str, Any] = {"list": [1]}
    frozen = freeze(mine)
    mine["list"].append(2)
    assert frozen == {"list": (1,)}
    thawed = thaw(frozen)
    thawed["list"].append(3)
    assert frozen == {"list": (1,)}
    assert (type(thawed), type(thawed["list"])) == (dict, list)


def test_a_frozen_object_is_hashable_copyable_and_picklable() -> None:
    frozen = freeze({"a": (1, {"b": None})})
    assert hash(frozen) == hash(freeze({"a": (1, {"b": None})}))
    assert copy.copy(frozen) is frozen
    assert copy.deepcopy({"inner": frozen})["inner"] is frozen
    assert pickle.loads(pickle.dumps(frozen)) == frozen
    assert EMPTY == {}
