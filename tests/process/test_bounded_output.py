from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.process.output import BoundedOutput


def filled(chunks: list[bytes], limit: int) -> BoundedOutput:
    output = BoundedOutput(limit)
    for chunk in chunks:
        output.add(chunk)
    return output


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50)), st.integers(2, 80))
def test_every_byte_is_counted_and_what_fits_is_kept_whole(chunks: list[bytes], limit: int) -> None:
    whole = b"".join(chunks)
    output = filled(chunks, limit)
    text, omitted = output.text()
    assert output.total == len(whole)
    if len(whole) <= limit:
        assert (text, omitted) == (whole.decode(errors="replace"), 0)
    else:
        assert omitted >= len(whole) - limit


@settings(deadline=None)
@given(st.lists(st.text(max_size=30).map(str.encode)), st.integers(2, 80))
def test_the_beginning_and_the_end_are_kept_without_splitting_a_character(
    chunks: list[bytes], limit: int
) -> None:
    whole = b"".join(chunks).decode()
    text, omitted = filled(chunks, limit).text()
    if omitted:
        note = f"\n[... {omitted:,} bytes left out ...]\n"
        head, _, tail = text.partition(note)
        assert whole.startswith(head)
        assert whole.endswith(tail)
        assert len(head.encode()) + omitted + len(tail.encode()) == len(whole.encode())
        assert limit - 6 <= len((head + tail).encode()) <= limit
    else:
        assert text == whole


@settings(deadline=None)
@given(st.lists(st.binary(max_size=50)), st.lists(st.binary(max_size=50)), st.integers(2, 80))
def test_how_the_bytes_were_cut_into_pieces_does_not_matter(
    chunks: list[bytes], more: list[bytes], limit: int
) -> None:
    assert filled(chunks + more, limit).text() == filled([b"".join(chunks + more)], limit).text()


def test_what_was_left_out_is_said_in_the_middle() -> None:
    text, omitted = filled([b"a" * 500, b"b" * 1_000_500], 1000).text()
    assert omitted == 1_000_000
    assert text == "a" * 500 + "\n[... 1,000,000 bytes left out ...]\n" + "b" * 500


def test_a_limit_without_room_for_both_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="2 bytes or more"):
        BoundedOutput(1)
