"""The exact form of letters: what is read is what was written, and whatever else there is, is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import MessageTooLarge
from interlock.log.mail import MAX_LETTER, Answer, Cancel, Content, Send, read, written
from interlock.log.messages import Message, Source, Text
from interlock.log.reasons import Cause
from interlock.log.strictjson import MAX_INTEGER, FrozenDict, NotJSON

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
maybe = st.one_of(st.none(), texts)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-MAX_INTEGER, MAX_INTEGER), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(texts, inner, max_size=3)),
    max_leaves=8,
)
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "system"]),
    content=st.lists(st.builds(Text, texts), min_size=1, max_size=3).map(tuple),
    id=texts,
    source=st.builds(Source, st.sampled_from(["person", "tool", "agent"]), texts),
)
sends = st.builds(Send, st.sampled_from(["next-turn", "next-step"]), messages, st.booleans())
cancels = st.builds(
    Cancel,
    st.builds(Cause, st.sampled_from(["user", "parent", "caller"]), maybe, maybe),
    st.one_of(st.none(), st.integers(1, 99)),
    st.booleans(),
    st.one_of(st.none(), st.integers(0, MAX_INTEGER)),
)
answers = st.builds(
    Answer,
    texts,
    st.sampled_from(["allowed-once", "rejected"]),
    maybe,
    maybe,
    st.sampled_from([None, "tty", "api"]),
    maybe,
    st.one_of(st.none(), st.dictionaries(texts, json_values, max_size=3)),
    st.sampled_from([None, "session", "always"]),
    maybe,
)
contents = st.builds(Content, st.one_of(sends, cancels, answers), maybe)


@given(contents)
def test_what_is_read_is_what_was_written(content: Content) -> None:
    data = written(content)
    assert read(data) == content
    assert written(read(data)) == data
    assert b"\n" not in data, "it stands on one line of a file"


@given(contents, st.data())
def test_a_letter_that_was_damaged_is_refused_or_is_another_letter(
    content: Content, data: st.DataObject
) -> None:
    """Nothing but `ValueError` ever comes of reading."""
    good = written(content)
    at = data.draw(st.integers(0, len(good) - 1))
    bad = data.draw(
        st.sampled_from([good[:at], good[:at] + b"\0" + good[at + 1 :], good[:at] + good[at + 1 :]])
    )
    try:
        made = read(bad)
    except ValueError:
        return
    assert read(written(made)) == made


@given(st.binary(max_size=200))
def test_any_bytes_are_a_letter_or_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        read(data)


def test_edited_arguments_are_frozen() -> None:
    what = read(written(Content(Answer("a", "allowed-once", edited={"x": [1]})))).what
    assert isinstance(what, Answer) and type(what.edited) is FrozenDict and what.edited["x"] == (1,)


@pytest.mark.parametrize(
    "what",
    [
        Send("next-turn", Message.user("\ud800"), wake=True),
        Send("elsewhere", Message.user("x"), wake=True),  # type: ignore[arg-type]
        Cancel(Cause("boredom")),  # type: ignore[arg-type]
        Answer("a", "cancelled"),  # type: ignore[arg-type]
    ],
)
def test_what_could_not_be_read_back_is_not_written(what: Any) -> None:
    with pytest.raises(NotJSON):
        written(Content(what))


def test_a_letter_has_a_bound() -> None:
    with pytest.raises(MessageTooLarge):
        written(Content(Answer("a", "rejected", message="x" * MAX_LETTER)))
    with pytest.raises(ValueError, match="the bound is"):
        read(b" " * MAX_LETTER + b"{}")
