"""What is said about rules that do not do what they seem to."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.policy.rules.finding import Finding
from interlock.policy.rules.lint import lint
from interlock.policy.rules.probes import probes
from interlock.policy.rules.rule import Rule
from interlock.policy.rules.ruleset import RuleSet
from policy.rules.written import HOME, rules

CWD = Path("/work")


def findings(*lines: str, tools: tuple[str, ...] = ()) -> list[Finding]:
    return [one for one in lint(rules(CWD, *lines), CWD, tools=tools) if one.kind != "not-covered"]


def kinds(*lines: str, tools: tuple[str, ...] = ()) -> list[tuple[int | None, str]]:
    return [(one.line, one.kind) for one in findings(*lines, tools=tools)]


@pytest.mark.parametrize(
    ("line", "kind", "said"),
    [
        ("deny Bsh(rm:*)", "unknown-tool", "did you mean Bash?"),
        ("allow READ", "unknown-tool", "did you mean"),
        ("deny pay", "unknown-tool", "if it is a tool of your own"),
        ("deny WebSearch", "unknown-tool", "no tool here is called WebSearch"),
        ("allow mcp__*", "unanchored", "behind a server"),
        ("allow *", "unanchored", "behind a server"),
        ("deny Write(src/**)", "unconsulted", "Edit(src/**)"),
        ("allow Glob(src/**)", "unconsulted", "Read(src/**)"),
        ("deny NotebookEdit(x)", "unconsulted", "Edit(x)"),
        ("deny Bash(command:ls)", "never", "write its value alone"),
        ("deny Read(path:x)", "never", "write its value alone"),
        ("allow WebFetch(example.com)", "never", "WebFetch(domain:example.com)"),
        ("deny mcp__a__b(x)", "never", "mcp__a__b(parameter:value)"),
        ("allow mcp__a__b(x:y)", "never", "deny and ask only"),
        ("deny Bash(git:* push)", "star", "only at the end"),
        ("deny read(.env)", "narrow", "Read(.env) is about all"),
        ("ask edit(src/**)", "narrow", "Edit(src/**) is about all"),
    ],
)
def test_a_rule_alone(line: str, kind: str, said: str) -> None:
    found = findings(line)
    assert [one.kind for one in found] == [kind]
    assert said in found[0].what
    assert (found[0].file, found[0].line) == ("interlock.toml", 1)
    assert str(found[0]).startswith("interlock.toml:1: ")


@pytest.mark.parametrize(
    "line",
    [
        "allow Bash(npm run test:*)", "allow Bash", "deny Read(.env)", "ask Edit(src/**)", "allow WebFetch(domain:*.a.org)",
        "allow mcp__a__get_*", "deny mcp__*", "deny *", "deny Agent(Explore)", "allow bash(ls)", "allow read",
        "deny Bash(run_in_background:true)", "allow Write", "allow Read(//etc/hosts)",
    ],
)  # fmt: skip
def test_a_rule_that_says_what_it_means_is_left_alone(line: str) -> None:
    assert findings(line) == []


def test_tools_of_ones_own_are_known_if_they_are_named() -> None:
    assert kinds("deny pay", "deny payy", tools=("pay",)) == [(2, "unknown-tool")]


def test_a_slash_in_the_users_settings_begins_in_their_folder() -> None:
    made = Rule.parse("deny", "Read(/etc/passwd)", anchor=HOME / ".claude", home=HOME, origin="user")
    [found] = [one for one in lint(RuleSet([made]), CWD) if one.kind == "anchor"]
    assert "begins in /home/ada/.claude: write //etc/passwd" in found.what
    other = Rule.parse("deny", "Read(//etc/passwd)", anchor=HOME / ".claude", home=HOME, origin="user")
    assert not [one for one in lint(RuleSet([other]), CWD) if one.kind == "anchor"]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["allow Bash(git push:*)", "deny Bash(git:*)"], [(1, "shadowed")]),
        (["deny Bash(git:*)", "allow Bash(git push:*)"], [(2, "shadowed")]),
        (["allow Read(src/a.py)", "ask Read(src/**)"], [(1, "shadowed")]),
        (["allow Edit(.env)", "deny Read(.env)"], [(1, "shadowed")]),
        (["ask Bash(rm:*)", "deny Bash"], [(1, "shadowed")]),
        (["allow mcp__a__get_x", "deny mcp__*"], [(1, "shadowed")]),
        (["allow WebFetch(domain:a.org)", "deny WebFetch(domain:*)"], [(1, "shadowed")]),
        (["deny Bash(git push:*)", "deny Bash(git:*)"], [(1, "redundant")]),
        (["deny Read(a/b/**)", "deny Read(a/**)"], [(1, "redundant")]),
        (["deny deploy(env:prod)", "deny deploy"], [(1, "redundant")]),
        (["allow Read", "allow Read"], [(2, "duplicate")]),
        (["allow Bash(git log:*)", "allow Bash(git log *)"], [(2, "redundant")]),
        (["allow Bash(git:*)", "deny Bash(git push:*)"], []),
        (["allow Edit", "deny Edit(src/**)"], []),
        (["allow Read(src/**)", "deny Read(.env)"], []),
        (["allow Bash(ls:*)", "allow Bash(cat:*)"], []),
    ],
)
def test_rules_beside_each_other(lines: list[str], expected: list[tuple[int, str]]) -> None:
    assert kinds(*lines, tools=("deploy",)) == expected


def test_what_path_rules_do_not_see_is_said_once_for_each_kind() -> None:
    made = lint(rules(CWD, "deny Read(.env)", "deny Read(x)", "ask Edit(y)"), CWD)
    assert [(one.line, one.kind) for one in made] == [(1, "not-covered"), (3, "not-covered")]
    assert "Only the sandbox hides a file" in made[0].what
    assert not lint(rules(CWD, "deny Read(.env)", "deny Bash"), CWD)


TEXTS = [
    "Bash", "Bash(git log:*)", "Bash(git:*)", "Bash(ls)", "Read", "Read(src/**)", "Read(.env)", "Read(/a/*)", "Edit(src/a.py)",
    "Edit(~/x)", "Edit(//tmp/**)", "WebFetch(domain:*.a.org)", "mcp__a__b", "mcp__a", "deploy(env:prod)", "Agent(Explore)",
]  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from(TEXTS), st.sampled_from(["deny", "ask", "allow"]))
def test_a_made_up_call_is_one_that_the_rule_is_about(text: str, effect: str) -> None:
    made = rules(CWD, f"{effect} {text}")
    if effect == "allow" and text == "deploy(env:prod)":
        return  # parameters count in deny and ask only
    tried = probes(made.rules[0], CWD)
    assert len(tried) == 2
    for action in tried:
        assert made.rules[0] in made.decide(action).matched
