"""What rules say of a call: which they are about, and who wins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from interlock.intercept.signal import Signal
from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import Effect
from interlock.policy.rules.ruling import Ruling
from interlock.toolkit import workspace
from interlock.tools.call import ToolCall, arguments_of
from interlock.tools.subject import SubjectKind
from policy.rules.written import rules


def ruling(cwd: Path, tool: str, arguments: Any, *lines: str) -> Ruling:
    return rules(cwd, *lines).decide(Action.named(tool, arguments, cwd))


def effect(cwd: Path, tool: str, arguments: Any, *lines: str) -> Effect | None:
    return ruling(cwd, tool, arguments, *lines).effect


def own(cwd: Path, tool: str, kind: SubjectKind | None, subject: str | None, **more: Any) -> Action:
    """A call of somebody's own tool."""
    harmless = more.pop("harmless", False)
    arguments = more if subject is None else {"it": subject, **more}
    return Action(tool, arguments, kind, subject, cwd, harmless, "it")


# Who wins


def test_deny_beats_ask_beats_allow_and_the_first_of_them_is_named(tmp_path: Path) -> None:
    lines = [
        "allow Read",
        "ask Read(docs/**)",
        "allow Read(docs/**)",
        "deny Read(docs/secret)",
        "deny Read(secret)",
    ]
    denied = ruling(tmp_path, "read", "docs/secret", *lines)
    assert (denied.effect, denied.rule and denied.rule.line) == ("deny", 4)
    assert denied.reason == "the read `docs/secret` is denied by Read(docs/secret) (interlock.toml:4)"
    assert [rule.line for rule in denied.matched] == [4, 5, 2, 1, 3]
    asked = ruling(tmp_path, "read", "docs/x", *lines)
    assert (asked.effect, asked.rule and asked.rule.line) == ("ask", 2)
    allowed = ruling(tmp_path, "read", "src/x", *lines)
    assert (allowed.effect, allowed.rule and allowed.rule.line) == ("allow", 1)


def test_where_no_rule_speaks_nothing_is_said(tmp_path: Path) -> None:
    silent = ruling(tmp_path, "write", "a", "allow Read")
    assert (silent.effect, silent.rule, silent.matched) == (None, None, ())
    assert silent.reason == "no rule speaks of write a"


def test_a_part_says_which_rule_decided_it(tmp_path: Path) -> None:
    said = ruling(tmp_path, "read", "a", "allow Read")
    assert [(part.kind, part.text, part.effect) for part in said.parts] == [("read", "a", "allow")]
    assert said.parts[0].why == "allowed by Read (interlock.toml:1)"


# Tools


@pytest.mark.parametrize(
    ("line", "denied", "not_denied"),
    [
        ("deny Edit", ["edit", "write"], ["read", "bash", "grep"]),
        ("deny Read", ["read", "grep", "glob"], ["edit", "write"]),
        ("deny Write", ["write"], ["edit"]),
        ("deny Grep", ["grep"], ["read", "glob"]),
        ("deny read", ["read"], ["grep", "glob"]),
        ("deny READ", ["read", "grep", "glob"], ["edit"]),
        ("deny *", ["read", "edit", "bash", "pay", "mcp__a__b"], []),
        ("deny mcp__*", ["mcp__a__b", "mcp__c__d"], ["read", "pay"]),
        ("deny mcp__a", ["mcp__a__b", "mcp__a__c"], ["mcp__ab__c", "mcp__b__a"]),
        ("deny mcp__a__*", ["mcp__a__b"], ["mcp__b__a"]),
        ("deny mcp__a__b", ["mcp__a__b"], ["mcp__a__bc"]),
        ("deny pay", ["pay", "Pay"], ["payout"]),
        ("deny p*", ["pay", "payout"], ["read"]),
    ],
)
def test_a_denied_tool_is_denied_and_hidden(
    tmp_path: Path, line: str, denied: list[str], not_denied: list[str]
) -> None:
    made = rules(tmp_path, line)
    for tool in denied:
        found = made.hidden(tool)
        assert found is not None and found.line == 1, tool
        assert made.decide(Action.named(tool, "x", tmp_path)).effect == "deny", tool
    for tool in not_denied:
        assert made.hidden(tool) is None, tool
        assert made.decide(Action.named(tool, "x", tmp_path)).effect != "deny", tool


@pytest.mark.parametrize("line", ["deny Bash", "deny Bash(*)", "deny bash", "deny BASH"])
def test_a_tool_that_is_denied_in_part_stays_visible(tmp_path: Path, line: str) -> None:
    assert rules(tmp_path, line).hidden("bash")
    assert rules(tmp_path, "deny Bash(rm:*)", "ask Bash", "allow Bash").hidden("bash") is None


@pytest.mark.parametrize(
    ("line", "allowed", "not_allowed"),
    [
        ("allow mcp__a__get_*", ["mcp__a__get_x"], ["mcp__a__set_x", "mcp__b__get_x"]),
        ("allow mcp__a", ["mcp__a__x"], ["mcp__b__x"]),
        ("allow mcp__a__*", ["mcp__a__x"], ["mcp__b__x"]),
        ("allow mcp__*", [], ["mcp__a__x"]),
        ("allow *", [], ["pay", "read", "mcp__a__x"]),
        ("allow p*", [], ["pay"]),
        ("allow pay", ["pay"], ["Pay", "payout"]),
        ("allow READ", [], ["read"]),
        ("allow read", ["read"], ["grep"]),
        ("allow Read", ["read", "grep", "glob"], ["edit"]),
        ("allow Edit", ["edit", "write"], ["read"]),
        ("allow Write", ["write"], ["edit"]),
        ("allow Write(x)", [], ["write", "edit"]),
        ("allow Glob(x)", [], ["glob", "grep", "read"]),
        ("allow write(x)", ["write"], ["edit"]),
    ],
)
def test_a_tool_is_allowed_by_its_exact_name(
    tmp_path: Path, line: str, allowed: list[str], not_allowed: list[str]
) -> None:
    for tool in allowed:
        assert effect(tmp_path, tool, "x", line) == "allow", tool
    for tool in not_allowed:
        assert effect(tmp_path, tool, "x", line) is None, tool


def test_a_denied_path_may_not_be_written_either(tmp_path: Path) -> None:
    for tool in ("edit", "write", "read", "grep", "glob"):
        assert effect(tmp_path, tool, "a/.env", "deny Read(.env)", "allow Edit", "allow Read") == "deny", tool
    assert effect(tmp_path, "read", ".env", "deny Edit(.env)", "allow Read") == "allow"


def test_a_search_that_is_narrowed_to_a_denied_file_reads_it(tmp_path: Path) -> None:
    lines = ["deny Read(.env)", "allow Read"]
    for names in (".env", "**/.env", "src/.ENV"):
        assert effect(tmp_path, "grep", {"pattern": "x", "glob": names}, *lines) == "deny", names
    assert effect(tmp_path, "grep", {"pattern": "x", "glob": "*.py"}, *lines) == "allow"


def test_paths_that_are_never_consulted(tmp_path: Path) -> None:
    for line in ("deny Write(x)", "deny Glob(x)", "deny NotebookEdit(x)"):
        for tool in ("write", "glob", "edit"):
            assert effect(tmp_path, tool, "x", line) is None, (line, tool)


# Parameters


@pytest.mark.parametrize(
    ("line", "arguments", "expected"),
    [
        ("deny deploy(env:prod)", {"env": "prod"}, "deny"),
        ("deny deploy(env:prod)", {"env": "PROD"}, "deny"),
        ("deny deploy(env: prod )", {"env": "prod"}, "deny"),
        ("ask deploy(env:pr*)", {"env": "preview"}, "ask"),
        ("deny deploy(env:*)", {"env": ""}, "deny"),
        ("deny deploy(force:true)", {"force": True}, "deny"),
        ("deny deploy(count:3)", {"count": 3}, "deny"),
        ("deny deploy(tag:null)", {"tag": None}, "deny"),
        ("deny deploy(env:prod)", {"env": "production"}, None),
        ("deny deploy(env:prod)", {"env": ["prod"]}, None),
        ("deny deploy(env:prod)", {"nested": {"env": "prod"}}, None),
        ("deny deploy(env:*)", {}, None),
        ("allow deploy(env:test)", {"env": "test"}, None),
        ("allow deploy", {"env": "prod"}, "allow"),
    ],
)
def test_a_parameter_is_forbidden_or_asked_about(
    tmp_path: Path, line: str, arguments: dict[str, Any], expected: Effect | None
) -> None:
    assert effect(tmp_path, "deploy", arguments, line) == expected


def test_the_parameter_that_a_call_is_about_has_rules_of_its_own(tmp_path: Path) -> None:
    assert effect(tmp_path, "read", {"path": "x"}, "deny Read(path:x)") is None
    assert effect(tmp_path, "read", {"path": "x", "limit": 9}, "deny Read(limit:9)") == "deny"


@pytest.mark.parametrize(
    ("line", "expected"),
    [("deny Agent(Explore)", "deny"), ("allow Agent(Explore)", "allow"), ("allow Agent(explore)", None),
     ("deny Agent(explore)", "deny"), ("deny Agent(Plan)", None), ("allow Agent", "allow")],
)  # fmt: skip
def test_an_agent_is_named(tmp_path: Path, line: str, expected: Effect | None) -> None:
    assert effect(tmp_path, "Agent", {"subagent_type": "Explore", "prompt": "go"}, line) == expected


# Addresses


@pytest.mark.parametrize(
    ("domain", "url", "covered"),
    [
        ("example.com", "https://example.com/x", True),
        ("example.com", "https://EXAMPLE.com./x", True),
        ("example.com", "http://user@example.com:8080", True),
        ("example.com", "https://a.example.com", False),
        ("example.com", "https://example.com.evil.org", False),
        ("example.com", "https://example.com@evil.org", False),
        ("*.example.com", "https://a.b.example.com", True),
        ("*.example.com", "https://example.com", False),
        ("*.example.com", "https://badexample.com", False),
        ("api.*.example.com", "https://api.eu.example.com", True),
        ("api.*.example.com", "https://api.eu.west.example.com", False),
        ("*", "https://anything.org", True),
        ("b\u00fccher.de", "https://xn--bcher-kva.de", True),
        ("127.0.0.1", "http://0x7f000001/", True),
        ("127.0.0.1", "http://2130706433/", True),
        ("127.0.0.1", "http://[::ffff:7f00:1]/", True),
    ],
)
def test_an_address_is_covered_by_its_host(tmp_path: Path, domain: str, url: str, covered: bool) -> None:
    assert effect(tmp_path, "WebFetch", url, f"allow WebFetch(domain:{domain})") == (
        "allow" if covered else None
    )
    assert effect(tmp_path, "WebFetch", url, f"deny WebFetch(domain:{domain})") == (
        "deny" if covered else None
    )


@pytest.mark.parametrize(
    "url",
    [
        "https://good.com\\@evil.org",
        "https://good.com /",
        "//good.com",
        "file:///etc/passwd",
        "https://good.com:x",
    ],
)
def test_an_address_that_programs_read_differently_asks(tmp_path: Path, url: str) -> None:
    assert effect(tmp_path, "WebFetch", url, "deny WebFetch(domain:evil.org)") == "ask"
    assert effect(tmp_path, "WebFetch", url, "allow WebFetch(domain:*)") is None
    assert effect(tmp_path, "WebFetch", url, "allow WebFetch") == "ask"


# Tools of somebody's own


def test_a_tool_with_a_path_is_held_to_the_rules_for_paths(tmp_path: Path) -> None:
    reads = own(tmp_path, "show", "read", "a/.env", harmless=True)
    assert rules(tmp_path, "deny Read(.env)").decide(reads).effect == "deny"
    assert rules(tmp_path, "allow Read(a/**)").decide(reads).effect == "allow"
    assert rules(tmp_path, "allow show(a/**)").decide(reads).effect == "allow"
    assert rules(tmp_path, "deny show(a/**)").decide(reads).effect == "deny"
    assert rules(tmp_path, "deny Read").hidden("show", "read")


def test_a_tool_that_reads_and_does_more_is_not_allowed_by_a_rule_for_reading(tmp_path: Path) -> None:
    """`upload` reads a file, and then something else happens to it."""
    uploads = own(tmp_path, "upload", "read", "a/x")
    assert rules(tmp_path, "allow Read").decide(uploads).effect is None
    assert rules(tmp_path, "allow upload(a/**)").decide(uploads).effect == "allow"
    posts = own(tmp_path, "post", "url", "https://a.org/")
    assert rules(tmp_path, "allow WebFetch(domain:a.org)").decide(posts).effect is None
    assert rules(tmp_path, "deny WebFetch(domain:a.org)").decide(posts).effect == "deny"


def test_a_tool_with_a_command_is_held_to_the_rules_for_commands(tmp_path: Path) -> None:
    runs = own(tmp_path, "remote", "command", "git push")
    assert rules(tmp_path, "deny Bash(git push:*)").decide(runs).effect == "deny"
    assert rules(tmp_path, "allow remote(git push)").decide(runs).effect == "allow"
    assert rules(tmp_path, "deny bash(git push:*)").decide(runs).effect is None  # the tool bash alone


def test_a_call_that_leaves_out_what_it_is_about_is_held_to_rules_for_the_whole_tool(tmp_path: Path) -> None:
    without = own(tmp_path, "show", "read", None, harmless=True)
    assert rules(tmp_path, "deny Read(**)").decide(without).effect is None
    assert rules(tmp_path, "allow Read(**)").decide(without).effect is None
    assert rules(tmp_path, "deny Read").decide(without).effect == "deny"
    assert rules(tmp_path, "allow show").decide(without).effect == "allow"


# Folders


def test_a_path_begins_where_its_rule_says(tmp_path: Path) -> None:
    home = "/home/ada"
    for line, path in [
        ("allow Read(//srv/data/**)", "/srv/data/x"),
        ("allow Read(~/notes/**)", f"{home}/notes/x"),
        ("allow Read(/src/**)", "src/x"),
        ("allow Read(src/**)", "src/x"),
        ("allow Read(./src/**)", f"{tmp_path}/src/x"),
    ]:
        assert effect(tmp_path, "read", path, line) == "allow", line
    assert effect(tmp_path, "read", "lib/src/x", "allow Read(src/**)") is None
    assert effect(tmp_path, "read", "lib/src/x", "deny Read(src/**)") == "deny"


def test_what_tools_come_upon_can_be_asked_for(tmp_path: Path) -> None:
    made = rules(tmp_path, "deny Read(.env)", "deny Read(secret/**)")
    found = made.unreadable("a/.env", tmp_path)
    assert found is not None and found.line == 1
    assert made.unreadable("secret/x", tmp_path)
    assert made.unreadable("src/a.py", tmp_path) is None


def test_tools_of_another_folder_are_held_to_where_they_work(tmp_path: Path) -> None:
    """`workspace(folder)` gives tools that work there, whatever folder the agent has: rules look there as well."""
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
    made = rules(
        here, "allow Edit(src/**)", "allow Bash(ls:*)", "deny Read(./a/secret)", f"deny Read(/{there}/key)"
    )
    tools = {tool.name: tool for tool in workspace(there)}

    def said(cwd: Path | None, tool: str, **arguments: str) -> Effect | None:
        call = ToolCall(
            key=1, id="c", name=tool, tool=tools[tool], arguments=arguments_of(arguments), text="", turn=1, step=1, index=0,
            signal=Signal(), cwd=cwd,
        )  # fmt: skip
        return made.decide(Action.of(call)).effect

    assert said(here, "edit", path="src/a", old="", new="") is None
    assert said(None, "edit", path="src/a", old="", new="") == "allow"
    assert said(here, "edit", path=f"{here}/src/a", old="", new="") == "allow"
    assert said(here, "read", path="a/secret") is None
    assert said(here, "read", path="key") == "deny"
    assert said(here, "grep", pattern="x", glob="key") == "deny"
    assert said(here, "bash", command="cat key") == "deny"
    assert said(here, "bash", command="ls > src/x") is None
    assert said(None, "bash", command="ls > src/x") == "allow"
