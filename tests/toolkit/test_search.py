from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import ToolError
from interlock.intercept.signal import Signal
from interlock.log.reasons import Cause
from interlock.toolkit import glob, grep
from interlock.toolkit.walk import Pattern

Use = Callable[..., str]


@pytest.fixture
def tree(root: Path) -> Path:
    for name in ["a.py", "a/x.py", "a-b/y.ts", "a/b/z.tsx", ".hidden/c.py", ".git/config.py", "a/.git/d.py"]:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"# {name}\nalpha\nBeta\n")
    return root


def accepts(pattern: str, path: str) -> bool:
    made = Pattern(pattern)
    state = made.start
    for name in path.split("/"):
        state = made.step(state, name)
    return made.matches(state)


# glob


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("*.py", ["a.py"]),
        ("**/*.py", [".hidden/c.py", "a.py", "a/x.py"]),
        ("**", [".hidden/c.py", "a-b/y.ts", "a.py", "a/b/z.tsx", "a/x.py"]),
        ("a/**", ["a/b/z.tsx", "a/x.py"]),
        ("./a/**/z.*", ["a/b/z.tsx"]),
        ("**/*.{ts,tsx}", ["a-b/y.ts", "a/b/z.tsx"]),
        ("a*/[xy].*", ["a-b/y.ts", "a/x.py"]),
        ("{a{,-b}/?.{py,ts},*.py}", ["a-b/y.ts", "a.py", "a/x.py"]),
        ("a.{py}", []),
        ("?.py", ["a.py"]),
        ("**/b/**/**/*", ["a/b/z.tsx"]),
    ],
)
def test_files_are_found_by_pattern_sorted_by_path(
    use: Use, tree: Path, pattern: str, found: list[str]
) -> None:
    text = "\n".join(found) or f"[no file below . matches {pattern}]"
    assert use(glob, pattern=pattern) == text
    assert found == sorted(found)


def test_a_pattern_is_for_the_path_below_path_and_the_answer_is_from_the_workspace(
    use: Use, tree: Path
) -> None:
    assert use(glob, pattern="*.py", path="a") == "a/x.py"
    assert use(glob, pattern="*.py", path=str(tree / "a")) == "a/x.py"
    assert use(glob, pattern="*.rs", path="a") == "[no file below a matches *.rs]"


def test_links_out_are_not_followed_and_links_in_are_listed(use: Use, root: Path) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "real.md").touch()
    (root / "in.md").symlink_to("sub/real.md")
    (root / "out.md").symlink_to("../secret.txt")
    (root / "gone.md").symlink_to("nowhere")
    (root / "up").symlink_to("..")
    (root / "round").symlink_to(".")
    assert use(glob, pattern="**").split("\n") == ["in.md", "sub/real.md"]


def test_a_long_answer_is_cut_and_says_how_much_is_missing(use: Use, root: Path) -> None:
    for n in range(1003):
        (root / f"{n:04}").touch()
    lines = use(glob, pattern="*").split("\n")
    assert lines[:-1] == [f"{n:04}" for n in range(1000)]
    assert lines[-1] == "[3 more files]"


def test_long_names_are_cut_by_size(use: Use, root: Path) -> None:
    for n in range(300):
        (root / f"{n:03}{'x' * 245}").touch()
    text = use(glob, pattern="*")
    shown = text.count("\n")
    assert len(text) < 66_000
    assert text.endswith(f"[{300 - shown} more files]")


@pytest.mark.parametrize("pattern", ["/etc/*", "../*", "a/../../*", "{a,..}/*"])
def test_a_pattern_may_not_lead_out(use: Use, tree: Path, pattern: str) -> None:
    with pytest.raises(ToolError, match="must stay below path"):
        use(glob, pattern=pattern)


def test_a_pattern_may_not_explode(use: Use, root: Path) -> None:
    with pytest.raises(ToolError, match="64 at most"):
        use(glob, pattern="{a,b}" * 3000)


def test_what_cannot_be_listed_is_told(use: Use, tree: Path) -> None:
    with pytest.raises(ToolError, match="cannot list gone: No such file"):
        use(glob, pattern="*", path="gone")
    with pytest.raises(ToolError, match=r"cannot list a\.py: Not a directory"):
        use(glob, pattern="*", path="a.py")


@pytest.mark.slow
def test_a_deep_tree_is_walked_to_the_end(use: Use, root: Path) -> None:
    here = os.open(root, os.O_RDONLY)
    for _ in range(1100):  # deeper than Python nests, and longer than a path may be
        os.mkdir("deeper", dir_fd=here)
        below = os.open("deeper", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("end", os.O_CREAT, dir_fd=here))
    os.close(here)
    try:
        assert use(glob, pattern="**/end") == "deeper/" * 1100 + "end"
    finally:
        subprocess.run(["rm", "-rf", str(root)], check=True)  # pytest's own clean-up would nest too deep


names = st.text(alphabet="ab.", min_size=1, max_size=3).filter(lambda name: set(name) != {"."})
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


@settings(deadline=None)
@given(paths, st.lists(st.sampled_from(["*", "a*", "?", "*.b", "[ab]", "[!a]b"]), min_size=1, max_size=4))
def test_without_folders_to_skip_it_matches_as_pathlib_does(path: str, segments: list[str]) -> None:
    pattern = "/".join(segments)
    pathlib_says = path.count("/") == pattern.count("/") and PurePosixPath(path).match(pattern)
    assert accepts(pattern, path) == pathlib_says


@settings(deadline=None)
@given(paths, paths)
def test_two_stars_stand_for_any_number_of_folders(path: str, end: str) -> None:
    assert accepts(f"**/{end}", f"{path}/{end}")
    assert accepts(f"**/{end}", end)
    assert accepts(f"{path}/**/{end}", f"{path}/{end}")
    assert accepts(f"{path}/**", f"{path}/{end}")
    assert accepts("**", path)


def test_folders_that_may_not_be_listed_are_counted(own_folder: Path, start: Callable[..., Any]) -> None:
    for name in ["a", "sub"]:
        (own_folder / name).mkdir()
        (own_folder / name / "file").write_text("x\n")
    (own_folder / "sub").chmod(0o000)
    assert asyncio.run(start(glob, own_folder, Signal(), pattern="**")) == "a/file\n[could not be read: 1]"
    (own_folder / "a" / "file").chmod(0o000)
    assert (
        asyncio.run(start(grep, own_folder, Signal(), pattern="x"))
        == "[no match in 0 files; could not be read: 2]"
    )


# grep


def test_matches_come_as_file_line_text(use: Use, tree: Path) -> None:
    assert use(grep, pattern="^al.ha$").split("\n") == [
        ".hidden/c.py:2:alpha",
        "a-b/y.ts:2:alpha",
        "a.py:2:alpha",
        "a/b/z.tsx:2:alpha",
        "a/x.py:2:alpha",
    ]
    assert use(grep, pattern="alpha", path="a.py") == "a.py:2:alpha"
    assert use(grep, pattern="alpha", path="a", glob="*.py") == "a/x.py:2:alpha"
    assert use(grep, pattern="alpha", glob="a/**/*.{tsx,py}") == "a/b/z.tsx:2:alpha\na/x.py:2:alpha"
    assert use(grep, pattern="beta") == "[no match in 5 files]"
    assert use(grep, pattern="beta", path="a.py", ignore_case=True) == "a.py:3:Beta"


def test_lines_around_a_match(use: Use, root: Path) -> None:
    (root / "a").write_text("".join(f"{n}\n" for n in range(1, 16)))
    (root / "b").write_text("x\n5\n")
    assert use(grep, pattern="^(3|5|12)$", context=1).split("\n") == [
        *["a-2-2", "a:3:3", "a-4-4", "a:5:5", "a-6-6", "--"],
        *["a-11-11", "a:12:12", "a-13-13", "--"],
        *["b-1-x", "b:2:5"],
    ]


def test_the_lines_of_a_crlf_file_end_before_their_ending(use: Use, root: Path) -> None:
    (root / "a").write_bytes(b"one\r\ntwo\r\n")
    assert use(grep, pattern="e$") == "a:1:one"


def test_binary_files_links_and_what_is_no_file_are_left_out(use: Use, root: Path) -> None:
    (root / "binary").write_bytes(b"secret\0")
    (root / "out").symlink_to("../secret.txt")
    (root / "up").symlink_to("..")
    os.mkfifo(root / "pipe")
    (root / "latin").write_bytes(b"caf\xe9 secret\n")
    assert use(grep, pattern="secret") == "latin:1:caf\ufffd secret"


def test_a_long_line_is_shown_around_its_match(use: Use, root: Path) -> None:
    (root / "a").write_text("x" * 5000 + "needle" + "y" * 5000 + "\n" + "needle" + "z" * 5000 + "\n")
    (root / "b").write_text("w" * 20_000 + "needle\n")
    first, second = use(grep, pattern="needle").split("\n")
    assert first == f"a:1:...{'x' * 100}needle{'y' * 394}..."
    assert second == f"a:2:needle{'z' * 494}..."


def test_many_matches_are_cut(use: Use, root: Path) -> None:
    (root / "a").write_text("x\n" * 150)
    (root / "b").write_text("x\n" * 150)
    lines = use(grep, pattern="x").split("\n")
    assert len(lines) == 201
    assert lines[-2:] == ["b:50:x", "[stopped after 200 matches: make the pattern or the path narrower]"]


def test_a_large_answer_is_cut(use: Use, root: Path) -> None:
    (root / "a").write_text(("x" * 600 + "\n") * 1000)
    text = use(grep, pattern="x$", context=20)
    assert len(text) < 66_000
    assert "make the pattern or the path narrower" in text.split("\n")[-1]


@pytest.mark.parametrize("pattern", ["(", "a**", "[z", "(?P<x", "\\", "(" * 5000])
def test_a_pattern_that_is_none_is_told(use: Use, tree: Path, pattern: str) -> None:
    with pytest.raises(ToolError, match="is not a regular expression"):
        use(grep, pattern=pattern)


def test_a_path_that_is_not_there_is_told(use: Use, root: Path) -> None:
    with pytest.raises(ToolError, match="cannot search gone: No such file"):
        use(grep, pattern="a", path="gone")


@pytest.mark.slow
async def test_a_pattern_that_explodes_is_given_up_and_stops_nobody_meanwhile(
    root: Path, start: Callable[..., Any]
) -> None:
    (root / "a").write_text("fine\n" + "x" * 3000 + "\n")
    turns = 0
    searching = asyncio.ensure_future(start(grep, root, Signal(), pattern="(x+x+)+y"))
    while not searching.done():
        await asyncio.sleep(0.001)
        turns += 1
    with pytest.raises(ToolError, match="too much time or memory on a:2"):
        await searching
    assert turns > 10  # the event loop went on while the pattern was matched


@pytest.mark.parametrize("tool", [glob, grep])
def test_searching_stops_when_the_signal_is_set(tree: Path, start: Callable[..., Any], tool: Any) -> None:
    stop = Signal()
    stop.set(Cause("user"))
    text = asyncio.run(start(tool, tree, stop, pattern="**" if tool is glob else "alpha"))
    assert text.endswith("; stopped]")
    assert "alpha" not in text
    one_file = asyncio.run(start(grep, tree, stop, pattern="alpha", path="a.py"))
    assert one_file == "[no match in 1 files; stopped]"
