from __future__ import annotations

import re

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from interlock.errors import ToolError
from interlock.toolkit.replace import replace_text

texts = st.text(alphabet="ab \t\n", max_size=30)
some = st.text(alphabet="ab \t\n", min_size=1, max_size=4)


def once(text: str, old: str, new: str) -> str:
    return replace_text(text, old, new, replace_all=False, name="a.txt")[0]


def places(text: str, old: str) -> int:
    return len(re.findall(f"(?={re.escape(old)})", text))


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


@settings(deadline=None)
@given(texts, some, texts, texts)
def test_a_unique_text_is_replaced_and_all_else_stays(before: str, old: str, after: str, new: str) -> None:
    text = before + old + after
    assume(places(text, old) == 1 and old != new)
    assert once(text, old, new) == before + new + after


@settings(deadline=None)
@given(texts, some, texts, some)
def test_an_edit_can_be_taken_back(before: str, old: str, after: str, new: str) -> None:
    text = before + old + after
    assume(places(text, old) == 1 and places(before + new + after, new) == 1 and old != new)
    assert once(once(text, old, new), new, old) == text


@settings(deadline=None)
@given(texts, some)
def test_what_is_not_unique_is_refused(text: str, old: str) -> None:
    assume(places(text, old) != 1)
    with pytest.raises(
        ToolError, match="does not occur" if places(text, old) == 0 else f"{places(text, old)} times"
    ):
        once(text, old, "something else")


@settings(deadline=None)
@given(texts, some, texts, st.booleans(), st.booleans())
def test_an_edit_of_a_crlf_file_is_the_edit_with_crlf(
    text: str, old: str, new: str, old_crlf: bool, all_of_them: bool
) -> None:
    assume("\n" in text)
    try:
        edited, count = replace_text(text, old, new, replace_all=all_of_them, name="a.txt")
    except ToolError as error:
        with pytest.raises(ToolError, match=re.escape(error.message[:15])):
            replace_text(crlf(text), old, new, replace_all=all_of_them, name="a.txt")
        return
    old = crlf(old) if old_crlf else old
    assert replace_text(crlf(text), old, new, replace_all=all_of_them, name="a.txt") == (crlf(edited), count)


@settings(deadline=None)
@given(texts, some, texts)
def test_replacing_all_is_what_str_replace_does(text: str, old: str, new: str) -> None:
    assume(old in text and text.replace(old, new) != text)
    edited = replace_text(text, old, new, replace_all=True, name="a.txt")
    assert edited == (text.replace(old, new), text.count(old))


def test_lines_of_a_file_that_mixes_endings_keep_their_own() -> None:
    text = "one\ntwo\r\nthree\nfour\r\n"
    assert once(text, "two\nthree", "2\n3") == "one\n2\r\n3\nfour\r\n"
    assert once(text, "three\nfour", "3\n4") == "one\ntwo\r\n3\n4\r\n"
    assert once(text, "four", "4\n5") == "one\ntwo\r\nthree\n4\n5\r\n"


def test_overlapping_places_are_not_unique() -> None:
    with pytest.raises(ToolError, match=r"old occurs 2 times in a\.txt, at lines 1, 1: add lines around it"):
        once("aaa", "aa", "b")


def test_many_places_are_counted_up_to_a_bound() -> None:
    with pytest.raises(
        ToolError, match=r"1,000 times or more in a\.txt, at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, \.\.\.:"
    ):
        once("x\n" * 5000, "x", "y")


def test_what_does_not_occur_is_looked_for_without_white_space() -> None:
    text = "def f():\n\treturn 1\n\ndef g():\n\treturn 1\n"
    with pytest.raises(
        ToolError, match=r"does not occur in a\.txt; its first line is at lines 2, 5: compare white space"
    ):
        once(text, "    return 1\n", "    return 2\n")
    with pytest.raises(ToolError, match=r"does not occur in a\.txt$"):
        once(text, "return 3", "return 2")
    with pytest.raises(ToolError, match=r"does not occur in a\.txt$"):
        once(text, " \n \n", "")


@pytest.mark.parametrize(("old", "new"), [("b", "b"), ("b\r\n", "b\n")])
def test_an_edit_that_changes_nothing_is_refused(old: str, new: str) -> None:
    with pytest.raises(ToolError, match="nothing would change"):
        once("a\nb\nc\n", old, new)


def test_nothing_in_the_new_text_is_special() -> None:
    assert once("a.b", ".", r"\1\g<0>$") == r"a\1\g<0>$b"
