"""Texts, arguments and times on one line."""

from __future__ import annotations

import pytest

from interlock.cli.oneline import arguments, count, offset, short, span


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "plain"),
        (" two\n  lines\t", "two lines"),
        ("ten chars!", "ten chars!"),
        ("eleven chars", "eleven ch…"),
        ("a" * 1_000_000, "aaaaaaaaa…"),
        ("a" + " " * 1000 + "b", "a…"),
        ("\x1b[2J", "\\x1b[2J"),
        ("全角　空白", "全角 空白"),
        ("", ""),
    ],
)
def test_a_text_is_one_line_of_ten_characters(text: str, shown: str) -> None:
    assert short(text, 10) == shown


def test_arguments_are_names_and_values() -> None:
    given = {"path": "a.txt", "text": "two words", "empty": "", "n": 3, "list": ["x"], "evil": "\u202e"}
    assert arguments(given) == 'path=a.txt text="two words" empty="" n=3 list=["x"] evil="\\u202e"'
    assert arguments({}) == ""


@pytest.mark.parametrize(
    ("ms", "spanned", "since"),
    [
        (0, "0 ms", "0.000"),
        (999, "999 ms", "0.999"),
        (1000, "1.0 s", "1.000"),
        (59_940, "59.9 s", "59.940"),
        (62_500, "1 min 2 s", "1:02.500"),
        (93_791_000, "1563 min 11 s", "26:03:11.000"),
    ],
)
def test_times(ms: int, spanned: str, since: str) -> None:
    assert (span(ms), offset(ms)) == (spanned, since)


def test_counts() -> None:
    assert [count(n, "step") for n in (0, 1, 2, 1200)] == ["0 steps", "1 step", "2 steps", "1,200 steps"]
