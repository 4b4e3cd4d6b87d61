"""A rule as it is written: `Tool` or `Tool(specifier)`, and what is none."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.errors import ConfigError
from interlock.policy.names import CLAUDE, SUBJECTS, our_name, rule_names
from interlock.policy.rules.rule import Rule, RuleError
from interlock.toolkit import workspace

HERE = Path("/work")


def parse(text: str) -> Rule:
    return Rule.parse("deny", text, anchor=HERE, file="interlock.toml", line=7)


@pytest.mark.parametrize(
    ("text", "tool", "specifier", "whole"),
    [
        ("Bash", "Bash", None, True),
        ("Bash(*)", "Bash", "*", True),
        ("Bash(git log:*)", "Bash", "git log:*", False),
        ("Bash(echo (a) b)", "Bash", "echo (a) b", False),
        ("  Read(.env) ", "Read", ".env", False),
        ("Read(*)", "Read", "*", False),
        ("mcp__srv__*", "mcp__srv__*", None, True),
        ("mcp__srv__t(*)", "mcp__srv__t", "*", True),
        ("deploy(env:prod)", "deploy", "env:prod", False),
        ("*", "*", None, True),
    ],
)
def test_a_rule_is_a_tool_and_what_it_is_about(
    text: str, tool: str, specifier: str | None, whole: bool
) -> None:
    made = parse(text)
    assert (made.tool, made.specifier, made.whole) == (tool, specifier, whole)
    assert made.text == text.strip()
    assert made.where == "interlock.toml:7"


@pytest.mark.parametrize(
    "text",
    ["", "  ", "Bash(", "Bash(git", "Bash)", "Bash()", "Bash( )", "(git)", "Bash (git)", "two words", "Bash(a)b",
     "Read(!x)", "Read(../x)", "Edit([a)", "WebFetch(domain:)", "WebFetch(domain:a b)", "WebFetch(domain:https://a)"],
)  # fmt: skip
def test_what_is_no_rule_says_where_it_stands_and_what_to_do(text: str) -> None:
    with pytest.raises(RuleError, match=r"^interlock\.toml:7: ") as raised:
        parse(text)
    assert isinstance(raised.value, ConfigError)
    assert (raised.value.file, raised.value.line) == ("interlock.toml", 7)


def test_an_effect_is_one_of_three() -> None:
    with pytest.raises(RuleError, match="'permit' is none of them"):
        Rule.parse("permit", "Bash", anchor=HERE)  # type: ignore[arg-type]  # a misspelt one


@given(st.text(max_size=30))
def test_every_text_is_a_rule_or_refused(text: str) -> None:
    try:
        made = parse(text)
    except RuleError:
        return
    assert parse(made.text) == made


# Names


def test_the_tools_in_the_box_have_the_subjects_that_their_rules_are_about() -> None:
    assert {tool.name: tool.subject for tool in workspace()} == {name: SUBJECTS[name] for name in CLAUDE}


def test_names_go_both_ways() -> None:
    for ours, theirs in CLAUDE.items():
        assert rule_names(ours) == (ours, theirs)
        assert our_name(theirs) == our_name(ours) == ours
    assert rule_names("pay") == ("pay",)
    assert our_name("pay") == "pay"
