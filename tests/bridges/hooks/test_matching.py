"""Which names a matcher meets."""

from __future__ import annotations

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from bridges.hooks.cases import HAPPENINGS, occurrence
from interlock.bridges.hooks.dialects import DIALECTS
from interlock.bridges.hooks.event import EVENTS
from interlock.bridges.hooks.matching import UNMATCHED, BadMatcher, Style, compile_matcher, subject


def meets(text: str | None, name: str, *others: str, style: Style = "claude") -> bool:
    return compile_matcher(text, style).meets(name, others)


@pytest.mark.parametrize("text", [None, "", "*"])
@pytest.mark.parametrize("style", ["claude", "narrow", "codex", "gemini", "literal"])
def test_nothing_and_a_star_meet_everything(text: str | None, style: Style) -> None:
    assert meets(text, "Bash", style=style)
    assert meets(text, "", style=style)


@pytest.mark.parametrize(
    ("style", "text", "name", "expected"),
    [
        ("claude", "Bash", "Bash", True),
        ("claude", "Bash", "BashOutput", False),
        ("claude", "bash", "Bash", False),
        ("claude", "Edit|Write", "Write", True),
        ("claude", "Edit, Write", "Write", True),
        ("claude", "Edit | Write,", "Edit", True),
        ("claude", "mcp__memory", "mcp__memory__read", False),
        ("claude", "mcp__memory__.*", "mcp__memory__read", True),
        ("claude", "mcp__my-server__read", "mcp__my-server__read", True),
        ("claude", "mcp__my-server__rea", "mcp__my-server__read", False),
        ("claude", "Notebook.*", "NotebookEdit", True),
        ("claude", "ash.", "BashOutput", True),
        ("claude", "^Bash$", "Bash", True),
        ("claude", "^Bash$", "Bash\n", False),
        ("claude", "^(?!Bash$)", "Bash", False),
        ("claude", "^(?!Bash$)", "Read", True),
        ("claude", r"^(?<kind>mcp)__(?:a|b)__\k<kind>$", "mcp__a__mcp", True),
        ("claude", r"(?<=a+)b", "aab", True),
        ("claude", "[^]z", "\nz", True),
        ("claude", "a[]", "a", False),
        ("claude", r"\u0042ash$", "Bash", True),
        ("claude", r"\u{42}ash.", "Bash", False),
        ("claude", r"^\Bash", "Bash", False),
        ("claude", r"^\Aash.?$", "Aash", True),
        ("claude", r"[\A\Z].", "Zb", True),
        ("claude", r"^\d+$", "1٣", False),
        ("claude", r"^[$]$", "$", True),
        ("narrow", "rate_limit|overloaded", "overloaded", True),
        ("narrow", "rate_limit, overloaded", "overloaded", False),
        ("codex", "Bash", "BashOutput", False),
        ("codex", "Bash|apply_patch", "apply_patch", True),
        ("codex", "my-tool", "my-tool-2", True),
        ("codex", "(?i)bash", "Bash", True),
        ("gemini", "shell", "run_shell_command", True),
        ("gemini", "write_.*|replace", "replace", True),
        ("gemini", "*bad(", "*bad(", True),
        ("gemini", "*bad(", "read_file", False),
        ("literal", "startup", "startup", True),
        ("literal", "start.*", "startup", False),
    ],
)  # fmt: skip
def test_what_a_matcher_meets(style: Style, text: str, name: str, expected: bool) -> None:
    assert meets(text, name, style=style) is expected


@pytest.mark.parametrize("text", ["Bash(", "[z-a]", "*a", "a{2,1}", "(?P<x", "\\", "(" * 3000])
def test_a_matcher_that_is_no_pattern_is_refused_when_it_is_read(text: str) -> None:
    with pytest.raises(BadMatcher, match="is not a regular expression"):
        compile_matcher(text, "claude")


@given(
    st.text(max_size=30),
    st.sampled_from(["claude", "narrow", "codex", "gemini", "literal"]),
    st.text(max_size=20),
)
def test_matching_never_raises(text: str, style: Style, name: str) -> None:
    try:
        matcher = compile_matcher(text, style)
    except BadMatcher:
        return
    assert isinstance(matcher.meets(name), bool)


names = st.text("ABCabc_09", min_size=1, max_size=6)


@given(st.lists(names, min_size=1, max_size=4), names, st.sampled_from([" | ", "|", ",", ", "]))
def test_a_list_of_names_meets_exactly_these(listed: list[str], name: str, separator: str) -> None:
    assert meets(separator.join(listed), name) is (name in listed)


@given(names, names)
def test_a_pattern_may_match_anywhere(part: str, around: str) -> None:
    assert meets(f"{part}.?", around + part + around)


def test_a_pattern_that_takes_for_ever_counts_as_met() -> None:
    assert compile_matcher(r"^(a|aa)+\d$|^(a|a?)+$(?!x)b", "claude").meets("a" * 3000)


@pytest.mark.parametrize(
    ("dialect", "matcher", "tool", "expected"),
    [
        ("claude", "Bash|Edit", "bash", True),
        ("claude", "Bash|Edit", "edit", True),
        ("claude", "Bash|Edit", "write", False),
        ("claude", "bash", "bash", True),
        ("claude", "^(?!Bash$).*", "bash", False),
        ("claude", "Grep|Glob|Read", "grep", True),
        ("claude", "deploy", "deploy", True),
        ("codex", "Bash", "bash", True),
        ("codex", "apply_patch", "edit", True),
        ("codex", "Write|Edit", "write", True),
        ("codex", "Bash", "read", False),
        ("gemini", "run_shell_command", "bash", True),
        ("gemini", "write_file|replace", "edit", True),
        ("gemini", "search_file_content", "grep", True),
        ("gemini", "grep", "grep", True),
    ],
)
def test_matchers_meet_our_tools_by_the_names_of_their_program(
    dialect: str, matcher: str, tool: str, expected: bool
) -> None:
    spoken = DIALECTS[dialect]  # type: ignore[index]
    first, *others = spoken.tool_names(tool)
    compiled = compile_matcher(matcher, spoken.style("PreToolUse"))
    assert compiled.meets(first, tuple(others)) is expected


def test_what_matchers_look_at() -> None:
    seen = {event: subject(occurrence(HAPPENINGS[event])) for event in EVENTS}
    assert seen == {
        "SessionStart": "startup", "UserPromptSubmit": None, "PreToolUse": "bash", "PermissionRequest": "bash",
        "PostToolUse": "bash", "PostToolUseFailure": "bash", "PostToolBatch": None, "Stop": None,
        "StopFailure": "rate_limit", "SessionEnd": "other", "Notification": "permission_prompt", "PreCompact": "auto",
        "SubagentStart": "Explore", "SubagentStop": "Explore",
    }  # fmt: skip
    assert {event for event, word in seen.items() if word is None} == UNMATCHED


def test_a_compiled_pattern_is_one_of_regex() -> None:
    assert isinstance(compile_matcher("a.b", "codex").pattern, regex.Pattern)
