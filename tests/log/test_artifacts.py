"""Big texts beside the log: whatever is taken out comes back, and nothing else is touched."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.log.artifacts import LIMIT, PREVIEW, take_out
from interlock.log.artifacts import put_back as put_back_with
from interlock.log.event import decode_json, encode_json

from .fact_strategies import json_values

#: Small texts and texts on both sides of the limit, of one and of several bytes a character.
big = st.sampled_from(["x" * LIMIT, "x" * (LIMIT + 1), "ß" * (LIMIT // 2), "\U0001f600" * (LIMIT // 4 + 1)])
data = st.recursive(
    json_values | big,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


def put_back(taken: Any) -> bytes:
    return put_back_with(taken.data, taken.paths, taken.artifacts.__getitem__)


@settings(deadline=None)
@given(data)
def test_what_is_taken_out_comes_back(value: Any) -> None:
    before = encode_json(value)
    taken = take_out(before)
    if taken is None:
        assert not any(len(text.encode()) > LIMIT for text in _texts(value))
    else:
        assert put_back(taken) == before
        assert not any(len(text.encode()) > LIMIT for text in _texts(decode_json(taken.data)))


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for inner in value for text in _texts(inner)]
    return [value] if isinstance(value, str) else []


def test_a_reference_says_what_it_stands_for() -> None:
    text = "Größe: " + "x" * LIMIT
    taken = take_out(encode_json({"content": [{"type": "text", "text": text}]}))
    assert taken is not None
    digest = sha256(text.encode()).hexdigest()
    assert decode_json(taken.data) == {
        "content": [
            {
                "type": "text",
                "text": {
                    "artifact": digest,
                    "bytes": len(text.encode()),
                    "media_type": "text/plain",
                    "preview": text[:PREVIEW],
                },
            }
        ]
    }
    assert taken.paths == (("content", 0, "text"),)
    assert taken.artifacts == {digest: text.encode()}


def test_equal_texts_are_one_artifact() -> None:
    text = "x" * (LIMIT + 1)
    taken = take_out(encode_json({"a": text, "b": [text, text[1:]]}))
    assert taken is not None
    assert taken.paths == (("a",), ("b", 0))
    assert len(taken.artifacts) == 1


def test_a_value_that_looks_like_a_reference_is_left_alone() -> None:
    text = "x" * (LIMIT + 1)
    first = take_out(encode_json({"a": text}))
    assert first is not None
    lookalike = decode_json(first.data)["a"]
    before = encode_json({"a": lookalike, "b": text, "c": [lookalike]})
    taken = take_out(before)
    assert taken is not None
    assert taken.paths == (("b",),)
    assert put_back(taken) == before


def test_a_text_may_be_the_whole_of_the_data() -> None:
    before = encode_json("x" * (LIMIT + 1))
    taken = take_out(before)
    assert taken is not None
    assert taken.paths == ((),)
    assert put_back(taken) == before


@pytest.mark.parametrize(
    "value",
    [{"a": "x" * (LIMIT - 10)}, {"a": ["x" * 1000] * 100}, {"x" * (LIMIT + 1): 1}, [1] * LIMIT],
    ids=["short", "many short texts", "a long key", "no text"],
)
def test_data_without_a_big_text_stays_as_it_is(value: Any) -> None:
    assert take_out(json.dumps(value).encode()) is None
