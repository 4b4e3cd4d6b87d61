"""What the model has been told: it grows, a range may be replaced, and what was shown stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.log.event import decode_json, encode_json
from interlock.log.history import History, Messages, request_digest
from interlock.log.messages import Message, Reasoning, Source, Text, ToolOutcome, ToolUse


def said(text: str) -> Message:
    return Message.user(text)


def texts(messages: Any) -> list[str]:
    return [message.text for message in messages]


def history(*names: str, step: int = 10) -> History:
    """One with a message at the lines 0, 10, 20, ..."""
    made = History()
    for i, name in enumerate(names):
        made.append(i * step, said(name))
    return made


def test_an_empty_history_has_nothing_last() -> None:
    empty = History()
    assert (len(empty), empty.last, empty.digest, list(empty.view())) == (0, -1, b"", [])
    assert not empty.covers(0, 1000)


def test_it_knows_its_last_line() -> None:
    made = history("a", "b")
    assert (len(made), made.last) == (2, 10)


def test_a_range_is_replaced_whether_or_not_its_bounds_are_lines_of_the_history() -> None:
    """EVENTS: `first` and `last` are lines of the log; those of the surface between them are shadowed."""
    for first, last in ((10, 20), (5, 25), (10, 29), (1, 20)):
        made = history("a", "b", "c", "d")
        made.replace(first, last, [said("summary")])
        assert texts(made.view()) == ["a", "summary", "d"]


def test_what_replaces_takes_the_place_of_the_first_line_it_shadows() -> None:
    made = history("a", "b", "c", "d")
    made.replace(10, 20, [said("x"), said("y"), said("z")])
    assert texts(made.view()) == ["a", "x", "y", "z", "d"]
    assert made.last == 30
    assert made.covers(10, 10)
    assert not made.covers(11, 29)
    made.replace(0, 10, [said("all")])  # a summary of a summary
    assert texts(made.view()) == ["all", "d"]


def test_a_range_may_be_replaced_by_nothing() -> None:
    made = history("a", "b", "c")
    made.replace(20, 20, [])
    assert (texts(made.view()), made.last) == (["a", "b"], 10)
    made.replace(0, 10, [])
    assert (len(made), made.last, made.digest) == (0, -1, b"")


@pytest.mark.parametrize(("first", "last"), [(1, 9), (21, 99), (20, 10), (-5, -1)])
def test_a_range_without_a_message_is_refused(first: int, last: int) -> None:
    made = history("a", "b", "c")
    assert not made.covers(first, last)
    with pytest.raises(ValueError, match=f"{first}..{last}"):
        made.replace(first, last, [said("x")])
    assert texts(made.view()) == ["a", "b", "c"]


# Views


def test_a_view_is_a_sequence_of_that_moment() -> None:
    made = history("a", "b", "c")
    view = made.view()
    made.append(30, said("d"))
    made.replace(0, 10, [said("x")])
    assert texts(view) == ["a", "b", "c"]
    assert texts(made.view()) == ["x", "c", "d"]
    assert (len(view), view[0].text, view[-1].text) == (3, "a", "c")
    assert texts(view[1:]) == ["b", "c"]
    assert texts(view[::-1]) == ["c", "b", "a"]
    assert texts(view[5:]) == []
    for i in (3, -4):
        with pytest.raises(IndexError):
            view[i]


def test_a_view_compares_as_a_sequence() -> None:
    view = history("a", "b").view()
    assert view == [said("a"), said("b")]
    assert view == (said("a"), said("b"))
    assert view == history("a", "b").view()
    assert view != [said("a")]
    assert view != [said("a"), said("c")]
    assert view != "ab"
    with pytest.raises(TypeError):
        hash(view)
    assert repr(view) == "<Messages 2>"


def test_views_of_a_growing_history_share_their_row() -> None:
    """An adapter may keep what it has rendered, message by message, for as long as the row is the same."""
    made = history("a")
    first = made.view()
    made.append(10, said("b"))
    second = made.view()
    assert isinstance(first, Messages)
    assert first.row is second.row
    made.replace(0, 0, [said("x")])
    assert made.view().row is not first.row
    assert hash(first.row) != hash(made.view().row)


# Digests


def test_the_digest_tells_every_difference() -> None:
    variants = [
        [],
        [said("a")],
        [said("a"), said("a")],
        [said("aa")],
        [Message.user("a", id="m1")],
        [Message.user("a", source=Source("plugin"))],
        [Message.user("a", source=Source("plugin", "p"))],
        [Message.context("a")],
        [Message(role="assistant", content=(Text("a"),))],
        [Message(role="assistant", content=(Reasoning("a"),))],
        [Message(role="assistant", content=(Reasoning("a", "signed"),))],
        [Message(role="assistant", content=(ToolUse("a", "", ""),))],
        [Message(role="tool", content=(ToolOutcome("a", ()),))],
        [Message(role="tool", content=(ToolOutcome("a", (), "DENIED"),))],
        [Message(role="user", content=(Text("a"), Text("")))],
    ]
    digests = []
    for messages in variants:
        made = History()
        for i, message in enumerate(messages):
            made.append(i, message)
        digests.append(made.digest)
    assert len(set(digests)) == len(variants)


def test_the_digest_is_of_what_is_said_and_not_of_where_it_was_read() -> None:
    """Law 3: a log that was read from a disk gives the digests that were written."""
    live, read = History(), History()
    for i, message in enumerate(
        [
            Message.user("go", id="m1"),
            Message.context("note", source=Source("tool", "look")),
            Message(role="assistant", content=(Reasoning("hm"), Text("ok")), source=Source("agent", "model")),
            Message(role="tool", content=(ToolOutcome("c1", (Text("seen"),)),), source=Source("tool")),
        ]
    ):
        live.append(i, message)
        stored = decode_json(encode_json(message))
        copy = Message(
            role=stored["role"],
            content=message.content,
            id=str(stored.get("id", "")),
            source=Source(message.source.kind, "".join(message.source.name)),
        )
        read.append(i + 100, copy)
    assert live.digest == read.digest


def test_the_digest_of_a_request_is_of_its_header_and_its_messages() -> None:
    digest = history("a").digest
    assert request_digest(b"header", digest) == request_digest(b"header", history("a").digest)
    assert request_digest(b"header", digest) != request_digest(b"other", digest)
    assert len(request_digest(b"", b"")) == 32


# Laws

changes = st.one_of(
    st.tuples(st.just("append"), st.integers(1, 5), st.text(max_size=3)),
    st.tuples(
        st.just("replace"), st.integers(-2, 60), st.integers(0, 30), st.lists(st.text(max_size=3), max_size=3)
    ),
)


class Naive:
    """A history as a list of (line, text)."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, str]] = []

    def replace(self, first: int, last: int, new: list[str]) -> bool:
        inside = [i for i, (seq, _) in enumerate(self.entries) if first <= seq <= last]
        if not inside:
            return False
        key = self.entries[inside[0]][0]
        self.entries[inside[0] : inside[-1] + 1] = [(key, text) for text in new]
        return True


@settings(deadline=None, max_examples=examples(200))
@given(st.lists(changes, max_size=20))
def test_a_history_is_a_list_whose_views_never_change(program: list[tuple[Any, ...]]) -> None:
    made, naive, seq = History(), Naive(), 0
    views: list[tuple[Messages, list[str]]] = []
    for change in program:
        if change[0] == "append":
            seq += change[1]
            made.append(seq, said(change[2]))
            naive.entries.append((seq, change[2]))
        else:
            _, first, width, new = change
            covered = made.covers(first, first + width)
            assert covered == naive.replace(first, first + width, new)
            if covered:
                made.replace(first, first + width, [said(text) for text in new])
            else:
                with pytest.raises(ValueError):
                    made.replace(first, first + width, [])
        expected = [text for _, text in naive.entries]
        assert texts(made.view()) == expected
        assert made.last == (naive.entries[-1][0] if naive.entries else -1)
        views.append((made.view(), expected))
    for view, then in views:
        assert texts(view) == then

    rebuilt = History()
    for key, text in naive.entries:
        rebuilt.append(key, said(text))
    assert rebuilt.digest == made.digest  # however it came about
