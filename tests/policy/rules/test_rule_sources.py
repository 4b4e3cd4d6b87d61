"""Where rules come from, and that a broken file stops the start with one clear line."""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from interlock.policy.rules.action import Action
from interlock.policy.rules.document import LARGEST
from interlock.policy.rules.rule import Effect, Rule, RuleError
from interlock.policy.rules.sources import Loaded, load, read_all, read_document, rules_of


class Folder:
    """A workspace and a home folder to put settings into."""

    def __init__(self, base: Path) -> None:
        self.cwd, self.home = base / "ws", base / "home"
        self.cwd.mkdir()
        self.home.mkdir()

    def put(self, path: str, content: str | dict[str, Any]) -> Path:
        base = self.home if path.startswith("~/") else self.cwd
        file = base / path.removeprefix("~/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content if isinstance(content, str) else json.dumps(content, indent=1))
        return file

    def read(self, *extra: Path, trusted: bool = True, **environ: str) -> Loaded:
        return read_all(self.cwd, home=self.home, extra=extra, trusted=trusted, environ=environ)

    def rules(self, *extra: Path, **more: Any) -> tuple[Rule, ...]:
        return self.read(*extra, **more).rules.rules

    def refused(self, *extra: Path) -> RuleError:
        with pytest.raises(RuleError) as raised:
            self.read(*extra)
        return raised.value


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def perms(**lists: Any) -> dict[str, Any]:
    return {"permissions": lists}


# Sources


def test_every_source_is_read_in_one_order(folder: Folder) -> None:
    folder.put("interlock.toml", '[permissions]\ndeny = ["Bash(a)"]\n')
    folder.put("interlock.local.toml", '[permissions]\ndeny = ["Bash(b)"]\n')
    folder.put(".claude/settings.json", perms(deny=["Bash(c)"]))
    folder.put(".claude/settings.local.json", perms(deny=["Bash(d)"]))
    folder.put("~/.config/interlock/config.toml", '[permissions]\ndeny = ["Bash(e)"]\n')
    folder.put("~/.claude/settings.json", perms(deny=["Bash(f)"]))
    named = folder.put("other/mine.json", perms(deny=["Bash(g)"]))
    assert [(rule.text, rule.origin, rule.where) for rule in folder.rules(named)] == [
        ("Bash(g)", "file", "other/mine.json:4"),
        ("Bash(a)", "project", "interlock.toml:2"),
        ("Bash(b)", "local", "interlock.local.toml:2"),
        ("Bash(c)", "project", ".claude/settings.json:4"),
        ("Bash(d)", "local", ".claude/settings.local.json:4"),
        ("Bash(e)", "user", "~/.config/interlock/config.toml:2"),
        ("Bash(f)", "user", "~/.claude/settings.json:4"),
    ]
    assert load(folder.cwd, home=folder.home, extra=[named]).rules == folder.rules(named)


def test_no_file_at_all_is_no_rule(folder: Folder) -> None:
    found = folder.read()
    assert (found.rules.rules, found.documents, found.findings, found.rules.sources) == ((), (), (), ())


def test_the_configuration_folder_may_be_elsewhere(folder: Folder, tmp_path: Path) -> None:
    (tmp_path / "xdg" / "interlock").mkdir(parents=True)
    (tmp_path / "xdg" / "interlock" / "config.toml").write_text('[permissions]\nask = ["WebFetch"]\n')
    assert [rule.text for rule in folder.rules(XDG_CONFIG_HOME=str(tmp_path / "xdg"))] == ["WebFetch"]
    assert folder.rules(XDG_CONFIG_HOME="relative") == ()


def test_a_settings_file_of_claude_code_is_taken_as_it_is(folder: Folder) -> None:
    folder.put(
        ".claude/settings.json",
        {
            "$schema": "https://json.schemastore.org/claude-code-settings.json",
            "model": "opus",
            "env": {"A": "1"},
            "hooks": {"PreToolUse": []},
            "permissions": {
                "allow": ["Bash(npm run test:*)", "Read(~/.zshrc)", "mcp__github__get_*"],
                "ask": ["Bash(git push:*)"],
                "deny": ["Read(./.env)", "Read(./secrets/**)", "WebFetch"],
                "additionalDirectories": ["../docs", "~/notes", "/srv"],
                "defaultMode": "acceptEdits",
                "disableBypassPermissionsMode": "disable",
            },
        },
    )
    found = folder.read()
    assert found.mode == "acceptEdits"
    assert found.rules.additional == (folder.cwd.parent / "docs", folder.home / "notes", Path("/srv"))
    assert {rule.effect for rule in found.rules.rules} == {"allow", "ask", "deny"}
    assert found.documents[0].data["hooks"] == {"PreToolUse": []}


def test_other_tables_are_given_back_and_belong_to_others(folder: Folder) -> None:
    folder.put(
        "interlock.toml", 'preset = "plan"\n[sandbox]\nnetwork = false\n[permissions]\nallow = ["Read"]\n'
    )
    [document] = folder.read().documents
    assert document.data["sandbox"] == {"network": False}
    assert document.line_of("preset") == 1
    assert document.line_of("sandbox", "network") == 3
    assert document.line_of("sandbox", "nothing") == 2
    assert document.line_of("nothing") is None


def test_a_source_has_the_digest_of_its_bytes(folder: Folder) -> None:
    file = folder.put("interlock.toml", '[permissions]\nallow = ["Read"]\n')
    assert folder.read().rules.sources == (("interlock.toml", sha256(file.read_bytes()).hexdigest()),)


def decided(folder: Folder, tool: str, subject: str) -> Effect | None:
    return folder.read().rules.decide(Action.named(tool, subject, folder.cwd)).effect


def test_a_slash_begins_in_the_folder_of_the_settings(folder: Folder) -> None:
    folder.put(".claude/settings.json", perms(allow=["Read(/src/**)"]))
    folder.put("~/.claude/settings.json", perms(allow=["Read(/cache/**)"]))
    folder.put(
        "~/.config/interlock/config.toml", '[permissions]\nallow = ["Read(/own/**)", "Read(~/notes/**)"]\n'
    )
    assert decided(folder, "read", "src/a") == "allow"
    assert decided(folder, "read", "cache/a") is None
    assert decided(folder, "read", f"{folder.home}/.claude/cache/a") == "allow"
    assert decided(folder, "read", f"{folder.home}/.config/interlock/own/a") == "allow"
    assert decided(folder, "read", f"{folder.home}/notes/a") == "allow"


def test_rules_that_forbid_reach_into_folders_beside_the_workspace(folder: Folder) -> None:
    folder.put(
        "interlock.toml", '[permissions]\nadditional_directories = ["../docs"]\ndeny = ["Read(secrets/**)"]\n'
    )
    assert decided(folder, "read", "../docs/a/secrets/x") == "deny"
    assert decided(folder, "read", "../other/secrets/x") is None


def test_a_folder_that_is_not_trusted_may_forbid_and_not_allow(folder: Folder) -> None:
    folder.put(
        ".claude/settings.json", perms(allow=["Bash"], deny=["Read(.env)"], additionalDirectories=["/"])
    )
    folder.put("interlock.local.toml", '[permissions]\nallow = ["Edit"]\nask = ["WebFetch"]\n')
    folder.put("~/.claude/settings.json", perms(allow=["Read"]))
    found = folder.read(trusted=False)
    assert sorted(rule.text for rule in found.rules.rules) == ["Read", "Read(.env)", "WebFetch"]
    assert found.rules.additional == ()
    assert [(one.rule, one.kind) for one in found.findings if one.kind == "held-back"] == [
        ("Edit", "held-back"),
        ("Bash", "held-back"),
    ]


def test_in_the_home_folder_the_users_settings_are_the_users(folder: Folder) -> None:
    folder.put("~/.claude/settings.json", perms(allow=["Read"]))
    found = read_all(folder.home, home=folder.home, trusted=False, environ={})
    assert [(rule.text, rule.origin) for rule in found.rules.rules] == [("Read", "user")]


# Mistakes


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("interlock.toml", "[permissions\n", "interlock.toml:1: not valid TOML"),
        ("interlock.toml", "[permissions]\nallow = [\n", "interlock.toml:3: not valid TOML"),
        ("interlock.toml", "a = 1\na = 2\n", "interlock.toml:2: not valid TOML"),
        ("interlock.toml", "permissions = 3\n", "interlock.toml:1: permissions holds lists of rules, not 3"),
        ("interlock.toml", "[permissions]\n\nallow = 'Read'\n", "interlock.toml:3: allow is a list of strings"),
        ("interlock.toml", "[permissions]\nallow = ['Read',\n 3]\n", "interlock.toml:3: allow is a list of strings; 3 is none"),
        ("interlock.toml", "[permissions]\nalow = []\n", "interlock.toml:2: 'alow' is not a key: did you mean 'allow'?"),
        ("interlock.toml", "[permissions]\nDeny = []\n", "interlock.toml:2: 'Deny' is not a key: did you mean 'deny'?"),
        ("interlock.toml", "[permissions]\nx = []\n", "interlock.toml:2: permissions has no 'x': it may have allow, ask"),
        ("interlock.toml", "x = 1\n[permisions]\ndeny = []\n", "interlock.toml:2: 'permisions' is not a key: did you mean"),
        ("interlock.toml", "deny = []\n", "interlock.toml:1: 'deny' belongs under 'permissions'"),
        ("interlock.toml", "[permissions]\ndeny = ['Read', 'Bash(']\n", "interlock.toml:2: 'Bash(' is not a rule"),
        ("interlock.toml", "[permissions]\ndeny = [\n'Read([a)',\n]\n", "interlock.toml:3: Read([a): "),
        ("interlock.toml", "[permissions]\nadditional_directories = ['']\n", "interlock.toml:2: '' is not a folder"),
        (".claude/settings.json", '{"permissions": {"deny": ["Read(.env)",]}}', ".claude/settings.json:1: not valid JSON"),
        (".claude/settings.json", "[]", ".claude/settings.json:1: it is not a JSON object"),
        (".claude/settings.json", '{"permissions": {\n"deny": [],\n"deny": []}}', ".claude/settings.json:3: 'deny' is there twice"),
        (".claude/settings.json", '{"permissions": {\n"denny": []}}', ".claude/settings.json:2: 'denny' is not a key: did you"),
        (".claude/settings.json", '{"Permissions": {}}', ".claude/settings.json:1: 'Permissions' is not a key: did you"),
        (".claude/settings.json", '{"permissions": {"defaultMode": 3}}', ".claude/settings.json:1: defaultMode is a name"),
    ],
)  # fmt: skip
def test_a_mistake_stops_the_start_and_says_where(folder: Folder, name: str, text: str, said: str) -> None:
    folder.put("interlock.local.toml", '[permissions]\nallow = ["Read"]\n')
    folder.put(name, text)
    error = folder.refused()
    assert str(error).startswith(said), error
    assert error.file == name


def test_a_key_that_another_program_may_have_by_now_is_said_and_left(folder: Folder) -> None:
    folder.put(".claude/settings.json", {"permissions": {"disableSomethingNew": True, "deny": ["Bash"]}})
    found = folder.read()
    assert [rule.text for rule in found.rules.rules] == ["Bash"]
    assert [(one.kind, one.line) for one in found.findings] == [("unknown-key", 3)]


def test_a_file_that_was_named_has_to_be_there(folder: Folder) -> None:
    assert "there is no such file" in str(folder.refused(folder.cwd / "none.toml"))
    assert "ends in .toml, .json, .rules" in str(folder.refused(folder.put("rules.txt", "")))


def test_a_link_is_refused(folder: Folder) -> None:
    real = folder.put("elsewhere.toml", '[permissions]\nallow = ["Bash"]\n')
    (folder.cwd / "interlock.toml").symlink_to(real)
    assert str(folder.refused()) == "interlock.toml: it is a link: put the file itself there, or remove it"


def test_a_dangling_link_is_refused_too(folder: Folder) -> None:
    (folder.cwd / "interlock.toml").symlink_to("nowhere")
    assert "it is a link" in str(folder.refused())


def test_a_pipe_or_a_folder_in_its_place_is_refused(folder: Folder) -> None:
    os.mkfifo(folder.cwd / "interlock.toml")
    assert "not a regular file" in str(folder.refused())
    os.unlink(folder.cwd / "interlock.toml")
    (folder.cwd / "interlock.toml").mkdir()
    assert "not a regular file" in str(folder.refused())


def test_a_file_that_may_not_be_read_is_refused(own_folder: Path) -> None:
    folder = Folder(own_folder)
    folder.put("interlock.toml", "").chmod(0)
    assert "it cannot be read: Permission denied" in str(folder.refused())


def test_whatever_keeps_a_file_from_being_read_is_said(folder: Folder) -> None:
    assert "it cannot be read: File name too long" in str(folder.refused(folder.cwd / f"{'x' * 300}.toml"))


def test_a_file_that_is_no_list_of_rules_any_more_is_refused(folder: Folder) -> None:
    folder.put("interlock.toml", "#" * (LARGEST + 1))
    assert "it is larger than" in str(folder.refused())


def test_what_is_not_text_is_refused(folder: Folder) -> None:
    (folder.cwd / "interlock.toml").write_bytes(b"# a\n# \xff\n")
    assert str(folder.refused()) == "interlock.toml:2: it is not UTF-8 text: save it as UTF-8"


def test_a_mark_at_the_beginning_is_no_mistake(folder: Folder) -> None:
    folder.put(".claude/settings.json", "\ufeff" + json.dumps(perms(allow=["Read"])))
    assert [rule.text for rule in folder.rules()] == ["Read"]


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000])
def test_a_file_that_is_nested_without_end_is_refused(folder: Folder, deep: str) -> None:
    folder.put(".claude/settings.json", deep)
    assert "not valid JSON" in str(folder.refused())


def test_one_document_alone(folder: Folder) -> None:
    file = folder.put("policy.toml", '[permissions]\ndeny = ["Edit(/a/**)"]\nask = ["Bash"]\n')
    document = read_document(file, origin="ceiling")
    assert document is not None
    assert [(rule.effect, rule.line, rule.origin, rule.anchor) for rule in rules_of(document)] == [
        ("deny", 2, "ceiling", folder.cwd),
        ("ask", 3, "ceiling", folder.cwd),
    ]
    assert read_document(folder.cwd / "none.toml") is None
