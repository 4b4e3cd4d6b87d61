"""Prefix rules of Codex become rules about commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import RuleError
from interlock.policy.rules.sources import Loaded, read_all

RULES = '''# What may leave this machine.
"""Written by hand."""

prefix_rule(
    pattern = ["git", ["push", "fetch"]],
    decision = "prompt",
    justification = "it talks to the server",
    match = ["git push origin", ["git", "fetch"]],
    not_match = ["git pushy", "git log"],
)
prefix_rule(pattern=["rm", "-rf"], decision="forbidden")
prefix_rule(pattern=["ls"])
prefix_rule(pattern=["echo", "two words"], decision="allow")
'''


def read(folder: Path, text: str) -> Loaded:
    file = folder / "default.rules"
    file.write_text(text)
    return read_all(folder, home=folder, extra=[file], environ={})


def test_a_file_is_read_as_rules_about_commands(tmp_path: Path) -> None:
    found = read(tmp_path, RULES).rules
    assert [(rule.effect, rule.text, rule.where) for rule in found.rules] == [
        ("deny", "Bash(rm -rf:*)", "default.rules:11"),
        ("ask", "Bash(git push:*)", "default.rules:4"),
        ("ask", "Bash(git fetch:*)", "default.rules:4"),
        ("allow", "Bash(ls:*)", "default.rules:12"),
        ("allow", "Bash(echo 'two words':*)", "default.rules:13"),
    ]
    decided = {
        command: found.decide(Action.named("Bash", command, tmp_path)).effect
        for command in (
            "git push x",
            "git log",
            "rm -rf x",
            "ls -l",
            "ls && git fetch",
            'echo "two words"',
            "echo two",
        )
    }
    assert decided == {
        "git push x": "ask", "git log": None, "rm -rf x": "deny", "ls -l": "allow", "ls && git fetch": "ask",
        'echo "two words"': "allow", "echo two": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "default.rules:1: only prefix_rule"),
        ("\nimport os\n", "default.rules:2: only prefix_rule"),
        ("prefix_rule(['ls'])", "default.rules:1: only prefix_rule"),
        ("prefix_rule(pattern=['ls']", "default.rules:1: not a file of prefix rules"),
        ("prefix_rule(pattern=[])", "default.rules:1: prefix_rule: pattern is a list of words"),
        ("prefix_rule(pattern=['git', []])", "default.rules:1: prefix_rule: pattern is a list of words"),
        ("prefix_rule(pattern=['git', 3])", "default.rules:1: prefix_rule: pattern is a list of words"),
        ("prefix_rule(pattern=['rm', '*'])", "default.rules:1: prefix_rule: a `*` in pattern"),
        ("prefix_rule(pattern=open('x'))", "default.rules:1: prefix_rule: pattern is not a literal"),
        ("prefix_rule(pattern=['ls'], decision='maybe')", "default.rules:1: prefix_rule: decision is one of allow"),
        ("prefix_rule(pattern=['ls'], when='now')", "default.rules:1: prefix_rule: it has no 'when'"),
        ("prefix_rule(pattern=['ls'], match=['lsof'])", "default.rules:1: prefix_rule: 'lsof' is in match and does not match"),
        ("prefix_rule(pattern=['ls'], not_match=['ls -l'])", "default.rules:1: prefix_rule: 'ls -l' is in not_match and does match"),
        ("prefix_rule(pattern=['ls'], match=[3])", "default.rules:1: prefix_rule: match holds commands"),
    ],
)  # fmt: skip
def test_what_is_not_understood_stops_the_start(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(RuleError) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(said), raised.value
