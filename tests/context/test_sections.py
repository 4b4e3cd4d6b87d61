from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.context.sections import sections
from interlock.errors import ConfigError
from interlock.log.facts import Section

ROLE = Section("role", "You review code.")


@pytest.mark.parametrize("nothing", [None, "", " \n", [], ["", Section("empty", "\n")]])
def test_nothing_to_say_is_no_section(nothing: object) -> None:
    assert sections(nothing) == ()


def test_one_text_or_one_section() -> None:
    assert sections("Be brief.") == (Section("instructions", "Be brief."),)
    assert sections(ROLE) == (ROLE,)


def test_order_is_kept_and_texts_get_the_next_free_name() -> None:
    taken = Section("instructions-2", "Three.")
    assert sections(["One.", "", ROLE, "Two.", taken]) == (
        Section("instructions", "One."),
        ROLE,
        Section("instructions-3", "Two."),
        taken,
    )


def test_names_are_unique_and_present() -> None:
    with pytest.raises(ConfigError, match="two sections are named 'role'"):
        sections([ROLE, Section("role", "Something else.")])
    with pytest.raises(ConfigError, match="needs a name; its text begins 'Be brief"):
        sections(Section("", "Be brief."))


def test_what_is_neither_text_nor_section_is_refused() -> None:
    with pytest.raises(ConfigError, match="str or Section, or several of them, not int"):
        sections(["One.", 2])  # type: ignore[list-item]  # the point


@settings(deadline=None)
@given(
    st.lists(
        st.sampled_from(["", "a", "b"])
        | st.builds(Section, st.sampled_from(["x", "instructions"]), st.just("t"))
    )
)
def test_names_never_repeat_and_no_text_is_lost(given_: list[str | Section]) -> None:
    try:
        made = sections(given_)
    except ConfigError:
        named = [item.name for item in given_ if isinstance(item, Section)]
        assert len(set(named)) < len(named)
        return
    assert len({section.name for section in made}) == len(made)
    assert [section.text for section in made] == [
        text for item in given_ if (text := item if isinstance(item, str) else item.text)
    ]
