"""What "for this session" and "always" stand for: a rule that covers the call, and nothing a person did not see."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import Signal, Tool, ToolCall, tool
from interlock.log.strictjson import freeze
from interlock.policy.proposing import propose
from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import Rule
from interlock.policy.rules.ruleset import RuleSet
from interlock.toolkit import bash, edit
from interlock.tools.subject import Subject

ROOT = Path("/usr")


@tool(effect="read", subject=Subject("url", "url"))
async def fetch(url: str) -> str:
    return url


@tool
async def pay(amount: int) -> str:
    return str(amount)


def called(made: Tool, **arguments: Any) -> ToolCall:
    return ToolCall(
        key=1, id="c1", name=made.name, tool=made, arguments=freeze(arguments), text="", turn=1, step=1, index=0,
        signal=Signal(), cwd=ROOT,
    )  # fmt: skip


def allowed(text: str, call: ToolCall) -> bool:
    rules = RuleSet([Rule.parse("allow", text, anchor=ROOT)])
    return rules.decide(Action.of(call)).effect == "allow"


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (called(bash, command="make deploy"), "Bash(make deploy)"),
        (called(bash, command="pytest -q tests/a.py"), "Bash(pytest:*)"),
        (called(bash, command="git commit -m 'a b'"), "Bash(git commit:*)"),
        (called(bash, command="git push --force"), "Bash(git push --force)"),
        (called(bash, command="rm *.pyc"), None),  # as a rule it would be wider than what was seen
        (called(bash, command="make a && make b"), None),  # two commands: no one rule covers both
        (called(bash, command="eval $X"), None),
        (called(bash, command="echo x > .git/config"), None),
        (called(edit, path="src/a.py", old="a", new="b"), "Edit(/src/a.py)"),
        (called(edit, path="src/../b.py", old="a", new="b"), "Edit(/b.py)"),
        (called(edit, path=".claude/settings.json", old="a", new="b"), None),
        (called(edit, path="a[1].py", old="a", new="b"), None),
        (called(edit, path="../a.py", old="a", new="b"), None),
        (called(fetch, url="https://docs.example.org/a?b"), "WebFetch(domain:docs.example.org)"),
        (called(fetch, url="nowhere"), None),
        (called(pay, amount=3), "pay"),
    ],
)
def test_what_is_offered(call: ToolCall, rule: str | None) -> None:
    assert propose(call) == rule
    if rule is not None:
        assert allowed(rule, call)


@given(st.text(alphabet="ab*?[]!\\ ./-&;|$'\"~", max_size=12))
def test_a_rule_for_a_file_covers_no_other_file(path: str) -> None:
    rule = propose(called(edit, path=path, old="a", new="b"))
    if rule is not None:
        assert allowed(rule, called(edit, path=path, old="a", new="b"))
        for other in (f"{os.path.normpath(path)}a", f"z/{path}", "zz"):
            same = (ROOT / other).resolve() == (ROOT / path).resolve()
            assert same or not allowed(rule, called(edit, path=other, old="a", new="b"))


@given(st.text(alphabet="ab*:\\ .-&;|$'\"~(){}<>\n", max_size=14))
def test_a_rule_for_a_command_that_is_no_family_covers_no_other_command(command: str) -> None:
    rule = propose(called(bash, command=command))
    if rule is not None:
        assert allowed(rule, called(bash, command=command))
        more = called(bash, command=f"{command} zzz")
        assert (
            not allowed(rule, more) or RuleSet().decide(Action.of(more)).effect == "allow"
        )  # it needs no rule
