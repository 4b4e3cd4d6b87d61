"""Every name of a place: as it is written, along each link, and where it really is."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from effort import examples
from interlock.policy.paths.characters import hidden_character
from interlock.policy.paths.located import Root, folded, locate
from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import Effect
from policy.rules.written import rules


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A workspace with links out of it and into it, beside folders that are not in it."""
    workspace = tmp_path / "ws"
    for folder in ("src/deep", "docs", "../outside/sub"):
        (workspace / folder).mkdir(parents=True)
    (workspace / "src" / "a.py").write_text("")
    (workspace / "docs" / "secret").write_text("")
    (tmp_path / "outside" / "key").write_text("")
    (workspace / "link.py").symlink_to("src/a.py")
    (workspace / "src" / "alias").symlink_to("../docs/secret")
    (workspace / "src" / "again").symlink_to("alias")
    (workspace / "src" / "out").symlink_to(tmp_path / "outside")
    (workspace / "src" / "dangling").symlink_to("../docs/later")
    (workspace / "src" / "up").symlink_to("deep/../../..")
    (workspace / "loop").symlink_to("pool")
    (workspace / "pool").symlink_to("loop")
    (tmp_path / "entry").symlink_to("ws")
    return workspace


def decided(tree: Path, path: str, *lines: str, tool: str = "edit") -> Effect | None:
    return rules(tree, *lines).decide(Action.named(tool, path, tree)).effect


# What forbids needs one name, what allows needs all


@pytest.mark.parametrize(
    "path",
    [
        "docs/secret",
        "./docs//secret",
        "docs/../docs/secret",
        "src/alias",
        "src/again",
        "src/deep/../alias",
        "src/up/ws/docs/secret",
        "nowhere/../docs/secret",
        "DOCS/Secret",
        "src/dangling/../secret",
    ],
)
def test_a_denied_file_is_denied_under_each_of_its_names(tree: Path, path: str) -> None:
    assert decided(tree, path, "deny Edit(docs/**)", "allow Edit") == "deny"
    assert decided(tree, str(tree / path), "deny Edit(docs/**)", "allow Edit") == "deny"


@pytest.mark.parametrize("path", ["src/alias", "src/again"])
def test_a_denied_link_is_denied_though_its_target_is_not(tree: Path, path: str) -> None:
    assert decided(tree, path, f"deny Edit({path})", "allow Edit") == "deny"
    assert decided(tree, "docs/secret", f"deny Edit({path})", "allow Edit") == "allow"


@pytest.mark.parametrize(
    "path", ["src/alias", "src/again", "src/out/key", "src/dangling", "src/up/outside/key"]
)
def test_allowing_the_link_does_not_allow_its_target(tree: Path, path: str) -> None:
    assert decided(tree, path, "allow Edit(src/**)") is None
    assert (
        decided(tree, path, "allow Edit(src/**)", "allow Edit(docs/**)", f"allow Edit(/{tree.parent}/**)")
        == "allow"
    )


def test_a_link_on_the_way_counts_as_well(tree: Path) -> None:
    assert decided(tree, "src/again", "deny Edit(src/alias)", "allow Edit") == "deny"
    assert decided(tree, "src/again", "allow Edit(./src/again)", "allow Edit(docs/**)") is None


def test_allowing_the_target_does_not_allow_a_link_from_elsewhere(tree: Path) -> None:
    assert decided(tree, "link.py", "allow Edit(src/**)") is None
    assert decided(tree, "link.py", "allow Edit(src/**)", "allow Edit(./link.py)") == "allow"


def test_a_folder_that_is_a_link_counts_as_what_it_leads_to(tree: Path) -> None:
    outside = tree.parent / "outside"
    assert decided(tree, "src/out/sub/new", f"deny Edit(/{outside}/sub/**)", "allow Edit") == "deny"
    assert decided(tree, "src/out/new/file", f"deny Edit(/{outside}/**)", "allow Edit") == "deny"


def test_dots_after_a_link_mean_both_folders(tree: Path) -> None:
    """To the system `src/out/..` is the folder above `outside`; to a reader it is `src`."""
    above = tree.parent
    assert decided(tree, "src/out/../key", f"deny Edit(/{above}/key)", "allow Edit") == "deny"
    assert decided(tree, "src/out/../a.py", "deny Edit(src/a.py)", "allow Edit") == "deny"
    assert decided(tree, "src/out/../a.py", "allow Edit(src/**)") is None


def test_dots_without_links_are_plain(tree: Path) -> None:
    assert decided(tree, "src/deep/../a.py", "allow Edit(src/**)") == "allow"
    assert decided(tree, "src/nowhere/../a.py", "allow Edit(src/**)") == "allow"
    assert decided(tree, "src/../docs/x", "allow Edit(src/**)") is None
    assert decided(tree, "src/../../outside/key", "allow Edit(src/**)", "allow Edit(**)") is None


def test_what_does_not_exist_is_held_to_the_rules_as_well(tree: Path) -> None:
    assert decided(tree, "docs/new/file", "deny Edit(docs/**)") == "deny"
    assert decided(tree, "src/new/file", "allow Edit(src/**)") == "allow"


def test_a_loop_of_links_is_never_allowed(tree: Path) -> None:
    assert decided(tree, "loop/x", "allow Edit(**)") is None
    assert decided(tree, "loop/x", "allow Edit(**)", "deny Edit(docs/**)") == "ask"
    assert decided(tree, "loop/x", "deny Edit(loop/**)") == "deny"


def test_a_workspace_that_is_reached_by_a_link_is_the_same_workspace(tree: Path) -> None:
    called = tree.parent / "entry"
    for path in ("src/a.py", str(called / "src/a.py"), str(tree / "src/a.py")):
        action = Action.named("edit", path, called)
        assert rules(called, "allow Edit(src/**)").decide(action).effect == "allow", path
        assert rules(called, "deny Edit(src/a.py)").decide(action).effect == "deny", path


@pytest.mark.parametrize("path", ["/proc/self/cwd/docs/secret", "/proc/self/root{tree}/docs/secret"])
def test_the_ways_of_proc_lead_where_they_lead_for_the_tool(tree: Path, path: str) -> None:
    assert decided(tree, path.format(tree=tree), "deny Edit(docs/**)", "allow Edit") == "deny"


def test_an_open_file_of_a_process_may_be_any(tree: Path) -> None:
    assert decided(tree, "/proc/self/fd/7", "deny Read(docs/**)", "allow Read", tool="read") == "ask"


def test_a_tilde_is_the_home_folder_and_a_name(tree: Path) -> None:
    """A tool takes it as a name, what the tool calls may take it as the home folder: neither may be forbidden."""
    assert decided(tree, "~/.netrc", "deny Read(~/.netrc)", tool="read") == "deny"
    assert decided(tree, "~/.netrc", "deny Read(./~/.netrc)", tool="read") == "deny"
    assert decided(tree, "~/.netrc", "allow Read(~/**)", tool="read") is None
    assert decided(tree, "~/.netrc", "allow Read(~/**)", "allow Read(**)", tool="read") == "allow"


def test_a_nul_ends_a_path_for_some(tree: Path) -> None:
    assert decided(tree, "docs/secret\0.txt", "deny Edit(docs/secret)", "allow Edit") == "deny"
    assert decided(tree, "src/a\0.txt", "deny Edit(docs/secret)", "allow Edit") == "ask"


@pytest.mark.parametrize(
    "name",
    [
        "a\u200bb",
        "a\u202eb",
        "a\u2066b",
        "a\x07b",
        "a\nb",
        "a\u00a0b",
        "a\u3164b",
        "a\ufe0fb",
        "a\udc80b",
        "a\u00adb",
    ],
)
def test_what_cannot_be_seen_asks(tree: Path, name: str) -> None:
    assert hidden_character(name)
    assert decided(tree, name, "allow Edit") == "ask"
    assert decided(tree, name, "allow Edit", "deny Edit(**)") == "deny"


@pytest.mark.parametrize("name", ["a b", "\u0430bc", "caf\u00e9", "e\u0301", "\u65e5\u672c", "a-b_c.d"])
def test_other_letters_are_simply_other_letters(name: str) -> None:
    assert hidden_character(name) is None


# A reference model on a real tree

NAMES = ("a", "b", "c")


class Tree:
    """A small tree with links, made from a list of steps, on disk."""

    def __init__(self, base: Path, steps: list[tuple[str, str, str]]) -> None:
        self.root = base / "ws"
        self.root.mkdir()
        for kind, where, target in steps:
            place = self.root / where
            if os.path.lexists(place):
                continue
            if kind == "folder":
                try:
                    place.mkdir(parents=True)
                except OSError:
                    continue
            elif place.parent.is_dir():
                place.symlink_to(target)


relative = st.lists(st.sampled_from([*NAMES, "..", "."]), min_size=1, max_size=5).map("/".join)
places = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map("/".join)
steps = st.lists(st.tuples(st.sampled_from(["folder", "link"]), places, relative), max_size=8)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("trees")


@settings(max_examples=examples(200), deadline=None)
@given(steps, relative)
def test_the_real_path_is_what_the_system_says_and_the_written_one_is_there(
    scratch: Path, made: list[tuple[str, str, str]], path: str
) -> None:
    with TemporaryDirectory(dir=scratch) as base:
        tree = Tree(Path(base), made)
        located = locate(path, Root.at(tree.root), "/home/ada")
        assert located.paths[0] == os.path.normpath(tree.root / path)
        try:
            real = str((tree.root / path).resolve())
        except (RuntimeError, OSError):
            assert not located.certain
            return
        if located.certain:
            assert located.real == real
            last = tree.root / path
            if ".." not in path and not last.parent.is_symlink() and last.is_symlink():
                assert os.path.normpath(last.parent.resolve() / os.readlink(last)) in located.paths


@settings(max_examples=examples(200), deadline=None)
@given(steps, relative, places)
def test_a_denial_by_real_path_cannot_be_got_around(
    scratch: Path, made: list[tuple[str, str, str]], path: str, denied: str
) -> None:
    """Whatever a path looks like: if it ends in a denied folder it is denied, and only if each name is in an allowed
    folder is it allowed."""
    with TemporaryDirectory(dir=scratch) as base:
        tree = Tree(Path(base), made)
        try:
            real = (tree.root / path).resolve()
            target = (tree.root / denied).resolve()
        except (RuntimeError, OSError):
            return
        deny = rules(tree.root, f"deny Edit(/{target}/**)", "allow Edit")
        allow = rules(tree.root, f"allow Edit(./{denied}/**)")
        action = Action.named("edit", path, tree.root)
        if real.is_relative_to(target):
            assert deny.decide(action).effect == "deny"
        written = Path(os.path.normpath(tree.root / path))
        if allow.decide(action).effect == "allow":
            assert written.is_relative_to(tree.root / denied) and real.is_relative_to(tree.root / denied)


@given(st.text(max_size=12))
def test_folding_is_done_once(name: str) -> None:
    assert folded(folded(name)) == folded(name)
