"""Configuration where those programs keep it: all of it counts, and what is wrong is said with file and line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.bridges.hooks.files import ConfigFile, Layout, Loaded, load, read
from interlock.bridges.hooks.handler import Command, Handler, Http
from interlock.bridges.hooks.located import Unreadable, read_json, read_toml


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project").mkdir()
    return tmp_path / "project"


def put(folder: Path, name: str, content: object) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
    return path


def loaded(project: Path, home: Path) -> Loaded:
    return load(Layout.of(project, home=home, environ={}))


def commands(found: Loaded) -> list[str]:
    return [one.action.command for one in found.handlers if isinstance(one.action, Command)]


def hooks(event: str, *handlers: Any, matcher: str | None = None) -> dict[str, Any]:
    group = {"hooks": [{"type": "command", "command": h} if isinstance(h, str) else h for h in handlers]}
    return {"hooks": {event: [group if matcher is None else {"matcher": matcher, **group}]}}


def only(settings: object, project: Path, home: Path) -> Handler:
    put(project, ".claude/settings.json", settings)
    found = loaded(project, home)
    assert found.problems == ()
    (one,) = found.handlers
    return one


def said(found: Loaded) -> list[tuple[str, int | None]]:
    return [(problem.what, problem.line) for problem in found.problems]


def test_all_files_count_in_a_fixed_order(project: Path, home: Path) -> None:
    put(home, ".claude/settings.json", hooks("Stop", "user"))
    put(project, ".claude/settings.json", hooks("Stop", "project"))
    put(project, ".claude/settings.local.json", hooks("Stop", "local"))
    put(project, "interlock.toml", '[[hooks.Stop]]\ncommand = "ours"\n')
    put(home, ".config/interlock/config.toml", '[[hooks.Stop]]\ncommand = "mine"\n')
    put(home, ".codex/hooks.json", hooks("Stop", "codex user"))
    put(project, ".codex/hooks.json", hooks("Stop", "codex project"))
    put(
        project,
        ".codex/config.toml",
        '[[hooks.Stop]]\n[[hooks.Stop.hooks]]\ntype = "command"\ncommand = "codex toml"\n',
    )
    put(home, ".gemini/settings.json", "// mine\n" + json.dumps(hooks("AfterAgent", "gemini user")))
    put(project, ".gemini/settings.json", hooks("AfterAgent", "gemini project"))
    found = loaded(project, home)
    assert found.problems == ()
    assert commands(found) == [
        "mine", "ours", "user", "project", "local",
        "codex user", "codex project", "codex toml", "gemini user", "gemini project",
    ]  # fmt: skip
    assert {one.event for one in found.handlers} == {"Stop"}
    assert [one.place.origin for one in found.handlers[:5]] == ["user", "project", "user", "project", "local"]
    assert len(found.digests) == 10


def test_nothing_is_configured(project: Path, home: Path) -> None:
    assert loaded(project, home) == Loaded()


def test_identical_handlers_of_several_files_run_once(project: Path, home: Path) -> None:
    put(home, ".claude/settings.json", hooks("PreToolUse", "check", matcher="Bash"))
    put(project, ".claude/settings.json", hooks("PreToolUse", "check", matcher="Bash"))
    put(project, ".claude/settings.local.json", hooks("PreToolUse", "check", matcher="Edit"))
    put(project, ".codex/hooks.json", hooks("PreToolUse", "check", matcher="Bash"))
    found = loaded(project, home)
    assert [(one.dialect, one.matcher.text, one.place.origin) for one in found.handlers] == [
        ("claude", "Bash", "user"),
        ("claude", "Edit", "local"),
        ("codex", "Bash", "project"),
    ]


def test_the_project_may_be_the_home_folder(home: Path) -> None:
    put(home, ".claude/settings.json", hooks("Stop", "mine"))
    assert [one.place.origin for one in loaded(home, home).handlers] == ["user"]


def test_a_handler_with_all_its_fields(project: Path, home: Path) -> None:
    one = only(
        {
            "hooks": {
                "PreToolUse": [
                    {
                        "matcher": "Bash|Edit",
                        "hooks": [
                            {
                                "type": "command",
                                "command": "check",
                                "args": ["a", "b"],
                                "if": "Bash(git *)",
                                "timeout": 5,
                                "statusMessage": "Checking",
                                "once": True,
                                "asyncRewake": True,
                                "onFailure": "continue",
                            }
                        ],
                    }
                ]
            }
        },
        project,
        home,
    )
    assert one.action == Command("check", ("a", "b"))
    assert (one.condition, one.timeout, one.status, one.once) == ("Bash(git *)", 5.0, "Checking", True)
    assert (one.background, one.rewake, one.on_failure) == (True, True, "continue")
    assert one.matcher.names == {"Bash", "Edit"}
    assert (one.place.file, one.place.line) == (project / ".claude/settings.json", 7)
    assert one.who == "claude .claude/settings.json:7"


def test_a_service(project: Path, home: Path) -> None:
    one = only(
        hooks(
            "Stop", {"type": "http", "url": "https://h/x", "headers": {"A": "$B"}, "allowedEnvVars": ["B"]}
        ),
        project,
        home,
    )
    assert one.action == Http("https://h/x", (("A", "$B"),), ("B",))


def test_ours_may_be_flat_and_snake_case(project: Path, home: Path) -> None:
    put(
        project,
        "interlock.toml",
        """# hooks
[[hooks.PreToolUse]]
matcher = "Bash"
command = "one"
on_failure = "continue"

[[hooks.PreToolUse]]
matcher = "Edit"
[[hooks.PreToolUse.hooks]]
command = "two"
[[hooks.PreToolUse.hooks]]
url = "http://localhost/three"
allowed_env_vars = ["A"]

[[hooks.PreToolUse]]
[[hooks.PreToolUse.hooks]]
command = "four"
""",
    )
    found = loaded(project, home)
    assert found.problems == ()
    assert [(one.matcher.text, one.place.line) for one in found.handlers] == [
        ("Bash", 2), ("Edit", 9), ("Edit", 11), ("", 16),
    ]  # fmt: skip
    assert found.handlers[0].on_failure == "continue"


@pytest.mark.parametrize(
    ("event", "given", "seconds"),
    [
        ("PreToolUse", None, 600),
        ("UserPromptSubmit", None, 30),
        ("SessionEnd", None, 1.5),
        ("SessionEnd", 10, 10),
        ("SessionEnd", 600, 60),
        ("PreToolUse", 0.5, 0.5),
        ("PreToolUse", 100_000, 3600),
    ],
)
def test_the_time_of_claude_is_in_seconds(
    event: str, given: float | None, seconds: float, project: Path, home: Path
) -> None:
    entry: dict[str, Any] = {"type": "command", "command": "x"}
    if given is not None:
        entry["timeout"] = given
    assert only(hooks(event, entry), project, home).timeout == seconds


def test_the_time_of_gemini_is_in_milliseconds(project: Path, home: Path) -> None:
    put(
        project,
        ".gemini/settings.json",
        hooks("BeforeTool", "x", {"type": "command", "command": "y", "timeout": 1500}),
    )
    assert [one.timeout for one in loaded(project, home).handlers] == [60.0, 1.5]


def test_one_name_of_gemini_stands_for_success_and_failure(project: Path, home: Path) -> None:
    put(project, ".gemini/settings.json", hooks("AfterTool", "x", {"type": "command"}))
    found = loaded(project, home)
    assert [one.event for one in found.handlers] == ["PostToolUse", "PostToolUseFailure"]
    assert said(found) == [("AfterTool: a handler has no 'command'", 10)]


def test_gemini_s_handlers_may_be_in_turn_and_switched_off_by_name(project: Path, home: Path) -> None:
    settings = {
        "hooks": {
            "disabled": ["off"],
            "BeforeTool": [
                {
                    "sequential": True,
                    "hooks": [
                        {"type": "command", "command": "x", "name": "on"},
                        {"type": "command", "command": "y", "name": "off"},
                    ],
                }
            ],
        }
    }
    put(project, ".gemini/settings.json", settings)
    found = loaded(project, home)
    assert said(found) == []
    assert [(one.name, one.sequential) for one in found.handlers] == [("on", True)]


# What is wrong


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("x", "Stop: a handler is not an object"),
        ({"type": "command"}, "Stop: a handler has no 'command'"),
        ({"type": "command", "command": " "}, "Stop: a handler has no 'command'"),
        ({"type": "command", "command": 3}, "Stop: 'command' is a string, not 3"),
        ({"type": "prompt", "prompt": "?"}, "Stop: handlers of type 'prompt' are not supported; use 'command' or 'http'"),
        ({"type": "shell", "command": "x"}, "Stop: 'type' is 'command' or http, not 'shell'"),
        ({"type": "http", "url": "ftp://h"}, "Stop: 'url' is an http or https address, not 'ftp://h'"),
        ({"type": "http", "url": "http://h", "headers": {"A": 1}}, "Stop: 'headers' is an object of strings"),
        ({"command": "x", "timeout": "5"}, "Stop: 'timeout' is a number above 0, not '5'"),
        ({"command": "x", "timeout": -1}, "Stop: 'timeout' is a number above 0, not -1"),
        ({"command": "x", "timeout": True}, "Stop: 'timeout' is a number above 0, not True"),
        ({"command": "x", "args": ["a", 1]}, "Stop: 'args' is a list of strings"),
        ({"command": "x", "async": "yes"}, "Stop: 'async' is true or false, not 'yes'"),
        ({"command": "x", "onFailure": "deny"}, "Stop: onFailure is 'block' or 'continue', not 'deny'"),
        ({"command": "x", "shell": "fish"}, "Stop: 'shell' is 'bash' or 'powershell', not 'fish'"),
        ({"command": "x", "if": "Bash(ls)"}, "Stop: a handler with 'if' runs on tool events only: this one would never run"),
    ],
)  # fmt: skip
def test_a_malformed_entry_is_left_out_alone(entry: object, problem: str, project: Path, home: Path) -> None:
    put(project, ".claude/settings.json", {"hooks": {"Stop": [{"hooks": [{"command": "good"}, entry]}]}})
    found = loaded(project, home)
    assert commands(found) == ["good"]
    assert [what for what, _ in said(found)] == [problem]
    assert found.problems[0].file == str(project / ".claude/settings.json")
    assert found.problems[0].line is not None


@pytest.mark.parametrize(
    ("settings", "problems"),
    [
        ({"hooks": []}, [("'hooks' is not an object of events", 2)]),
        ({"hooks": {"PreTooluse": []}}, [("'PreTooluse' is no event: did you mean 'PreToolUse'?", 3)]),
        ({"hooks": {"Stop": {}}}, [("Stop is not a list of matcher groups", 3)]),
        ({"hooks": {"Stop": ["x"]}}, [("an entry of Stop is not an object", 4)]),
        ({"hooks": {"Stop": [{"matcher": "x"}]}}, [("Stop: a group has no list 'hooks'", 4)]),
        (
            {"hooks": {"PreToolUse": [{"matcher": 3, "hooks": []}]}},
            [("PreToolUse: a matcher is not a string", 4)],
        ),
        (
            {"hooks": {"Stop": [{"hooks": [{"command": "x", "timeut": 5}]}]}},
            [("Stop: a handler has no field 'timeut': did you mean 'timeout'?", 6)],
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    settings: object, problems: list[tuple[str, int]], project: Path, home: Path
) -> None:
    put(project, ".claude/settings.json", settings)
    assert said(loaded(project, home)) == problems


def test_a_bad_matcher_takes_its_group_and_no_other(project: Path, home: Path) -> None:
    put(
        project,
        ".claude/settings.json",
        {
            "hooks": {
                "PreToolUse": [
                    {"matcher": "Bash(", "hooks": [{"command": "lost"}]},
                    {"matcher": "Edit", "hooks": [{"command": "kept"}]},
                ]
            }
        },
    )
    found = loaded(project, home)
    assert commands(found) == ["kept"]
    ((what, line),) = said(found)
    assert what.startswith("PreToolUse: matcher 'Bash(' is not a regular expression: ")
    assert line == 4


def test_an_event_of_that_program_that_has_no_place_here_is_nothing_wrong(project: Path, home: Path) -> None:
    put(project, ".claude/settings.json", hooks("WorktreeCreate", "x"))
    assert loaded(project, home) == Loaded(digests=loaded(project, home).digests)


@pytest.mark.parametrize(
    ("name", "content", "what", "line"),
    [
        (".claude/settings.json", '{\n "hooks": {,}}', "the file is not valid JSON: Expecting property name enclosed in double quotes; none of its hooks run", 2),
        (".claude/settings.json", "[]", "the file is not a JSON object; none of its hooks run", 1),
        (".claude/settings.json", "", "the file is not valid JSON: Expecting value; none of its hooks run", 1),
        ("interlock.toml", "a = 1\n[[hooks.Stop]\n", "the file is not valid TOML: Expected ']]' at the end of an array declaration (at line 2, column 13); none of its hooks run", 2),
    ],
)  # fmt: skip
def test_a_file_that_is_broken_takes_no_other(
    name: str, content: str, what: str, line: int, project: Path, home: Path
) -> None:
    put(home, ".claude/settings.json", hooks("Stop", "mine"))
    path = put(project, name, content)
    found = loaded(project, home)
    assert commands(found) == ["mine"]
    assert said(found) == [(what, line)]
    assert found.broken == (path,)


def test_a_file_that_cannot_be_read_is_broken(project: Path, home: Path) -> None:
    (project / ".claude" / "settings.json").mkdir(parents=True)
    found = loaded(project, home)
    assert found.broken == (project / ".claude" / "settings.json",)
    assert "cannot be read" in found.problems[0].what


def test_codex_refuses_unknown_keys_and_so_it_is_said(project: Path, home: Path) -> None:
    put(project, ".codex/hooks.json", {"$schema": "x", **hooks("Stop", "x")})
    found = loaded(project, home)
    assert said(found) == [("'$schema' does not belong here: Codex refuses a file that has it", 2)]
    assert commands(found) == ["x"]


# Switches


def test_a_person_switches_all_hooks_off(project: Path, home: Path) -> None:
    put(home, ".claude/settings.json", {"disableAllHooks": True, **hooks("Stop", "mine")})
    put(project, ".claude/settings.json", hooks("Stop", "theirs"))
    put(project, ".codex/hooks.json", hooks("Stop", "theirs"))
    found = loaded(project, home)
    assert (found.handlers, found.disabled) == ((), str(home / ".claude/settings.json"))


def test_a_repository_switches_off_only_its_own(project: Path, home: Path) -> None:
    put(home, ".claude/settings.json", hooks("Stop", "mine"))
    put(project, ".claude/settings.json", {"disableAllHooks": True, **hooks("Stop", "theirs")})
    put(project, "interlock.toml", '[[hooks.Stop]]\ncommand = "theirs"\n')
    found = loaded(project, home)
    assert (commands(found), found.disabled) == (["mine"], None)


@pytest.mark.parametrize(
    ("name", "content", "event"),
    [
        (".codex/config.toml", "[features]\nhooks = false\n", "Stop"),
        (".gemini/settings.json", '{"hooksConfig": {"enabled": false}}', "AfterAgent"),
    ],
)
def test_the_switches_of_the_others(name: str, content: str, event: str, project: Path, home: Path) -> None:
    put(home, name, content)
    put(home, ".claude/settings.json", hooks("Stop", "claude"))
    put(project, name.replace("config.toml", "hooks.json"), hooks(event, "theirs"))
    assert commands(loaded(project, home)) == ["claude"]


def test_lists_of_addresses_and_variables_hold_for_all_files(project: Path, home: Path) -> None:
    put(
        home,
        ".claude/settings.json",
        {"allowedHttpHookUrls": ["https://ok.example/*"], "httpHookAllowedEnvVars": ["A"]},
    )
    service = {"type": "http", "url": "https://ok.example/x", "allowedEnvVars": ["A", "B"]}
    put(
        project,
        ".claude/settings.json",
        hooks("Stop", service, {"type": "http", "url": "https://bad.example/x"}),
    )
    found = loaded(project, home)
    assert [one.action for one in found.handlers] == [Http("https://ok.example/x", (), ("A",))]
    assert "is not among allowedHttpHookUrls" in found.problems[0].what


# Lines


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
                    max_leaves=15))  # fmt: skip
def test_json_is_read_as_json_reads_it(value: object) -> None:
    document = read_json(json.dumps({"a": value}, indent=1))
    assert document.value == {"a": value}


def test_comments_are_no_part_of_strings() -> None:
    document = read_json('{ // one\n "a": "http://x/*y*/", /* two\n */ "b": {"c": 1}}')
    assert document.value == {"a": "http://x/*y*/", "b": {"c": 1}}
    assert (document.line_of("a"), document.line_of("b", "c"), document.line_of("b", "x")) == (2, 3, 3)
    assert document.line_of("nowhere") is None


def test_a_key_that_is_there_twice_would_lose_hooks() -> None:
    with pytest.raises(Unreadable, match="'Stop' is there twice"):
        read_json('{"hooks": {"Stop": [], "Stop": []}}')


@pytest.mark.parametrize("text", ["{" * 100_000, '{"a": ' + "[" * 100_000, '{"a": 1' + "0" * 5000 + "}"])
def test_hostile_json_is_unreadable(text: str) -> None:
    with pytest.raises(Unreadable):
        read_json(text)


def test_keys_of_toml_have_lines() -> None:
    document = read_toml("[hooks]\nStop = 3\n")
    assert document.line_of("hooks", "Stop") == 2


def test_reading_a_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "settings.json"
    path.write_bytes(b'{"a": "\xff"}')
    parsed = read(ConfigFile(path, "claude", "user", "json"))
    assert parsed is not None and parsed.broken
