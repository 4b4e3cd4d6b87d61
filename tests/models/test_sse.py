"""Server-sent events: any split of the bytes gives the same events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.models.sse import EventDecoder


def decoded(*pieces: bytes) -> list[bytes]:
    decoder = EventDecoder()
    return [event for piece in pieces for event in decoder.feed(piece)] + decoder.close()


def test_an_event_is_complete_at_its_blank_line() -> None:
    decoder = EventDecoder()
    assert decoder.feed(b"data: a\n") == []
    assert decoder.feed(b"\ndata: b") == [b"a"]
    assert decoder.feed(b"\n\n") == [b"b"]


def test_lines_end_in_lf_crlf_or_cr() -> None:
    assert decoded(b"data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\r\n\n") == [b"a", b"b", b"c", b"d"]


def test_a_crlf_cut_in_two_is_one_line_end() -> None:
    assert decoded(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == [b"a\nb"]


def test_several_data_lines_are_one_event() -> None:
    assert decoded(b"data: a\ndata:\ndata: b\n\n") == [b"a\n\nb"]


def test_only_one_space_after_the_colon_is_dropped() -> None:
    assert decoded(b"data:a\n\ndata:  b\n\n") == [b"a", b" b"]


def test_comments_other_fields_and_events_without_data_are_nothing() -> None:
    wire = b": hello\n\nid: 1\nevent: x\nretry: 5\n\n\n\ndata: a\nid: 2\n: more\n\n: ping\n\nfoo\n\n"
    assert decoded(wire) == [b"a"]


def test_a_byte_order_mark_may_come_first() -> None:
    assert decoded(b"\xef\xbb", b"\xbfdata: a\n\ndata: \xef\xbb\xbfb\n\n") == [b"a", b"\xef\xbb\xbfb"]


def test_separators_that_only_unicode_knows_end_no_line() -> None:
    text = "a\u2028b\u0085c\x0bd\x0c\x1ce".encode()
    assert decoded(b"data: " + text + b"\n\n") == [text]


def test_the_end_completes_an_event_whose_line_was_ended_and_no_other() -> None:
    assert decoded(b"data: a\n") == [b"a"]
    assert decoded(b"data: a") == []
    assert decoded(b"data: a\n\n") == [b"a"]


def test_a_long_line_in_many_pieces() -> None:
    assert decoded(b"data: ", *([b"x" * 1000] * 5000), b"\n\n") == [b"x" * 5_000_000]


wires = st.lists(
    st.sampled_from([b"\r", b"\n", b"\r\n", b"data", b": ", b":", "é€😀".encode(), b"x", b"id: 1", b"\xff"]),
    max_size=30,
).map(b"".join)


@settings(deadline=None, max_examples=examples(300))
@given(wires, st.data())
def test_any_split_gives_the_same_events(wire: bytes, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    pieces = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    assert decoded(*pieces) == decoded(wire)
