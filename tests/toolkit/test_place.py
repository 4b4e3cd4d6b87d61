"""Nothing but `bash` gets out of the workspace: by `..`, an absolute path, a link, or a link swapped in later."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.errors import ToolError
from interlock.intercept.signal import Signal
from interlock.toolkit import edit, glob, grep, read, workspace, write
from interlock.toolkit.files import replace_file
from interlock.toolkit.place import Spot, folder
from interlock.toolkit.text import open_file
from interlock.tools.claims import Claims, Concurrency
from interlock.tools.definition import Effect, StopMode, Tool

Use = Callable[..., str]

WAYS = [
    pytest.param(read, {}, id="read"),
    pytest.param(write, {"content": "x"}, id="write"),
    pytest.param(edit, {"old": "secret", "new": "x"}, id="edit"),
    pytest.param(glob, {"pattern": "*"}, id="glob"),
    pytest.param(grep, {"pattern": "secret"}, id="grep"),
]


@pytest.mark.parametrize(("tool", "more"), WAYS)
@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..",
        "/etc/passwd",
        "sub/../../secret.txt",
        "missing/../../secret.txt",
        "to_file",
        "to_folder/secret.txt",
        "to_folder",
        "to_etc/passwd",
        "dangling",
        "dangling/new.txt",
        "link_to_link",
    ],
)
def test_every_way_out_is_refused_with_the_path_and_the_root(
    use: Use, root: Path, tool: Tool, more: dict[str, str], path: str
) -> None:
    (root / "sub").mkdir()
    (root / "to_file").symlink_to("../secret.txt")
    (root / "to_folder").symlink_to("..")
    (root / "to_etc").symlink_to("/etc")
    (root / "dangling").symlink_to("../not there yet")
    (root / "link_to_link").symlink_to("to_file")

    with pytest.raises(ToolError) as refused:
        use(tool, path=path, **more)
    assert refused.value.code == "OUTSIDE_WORKSPACE"
    assert path in refused.value.message
    assert str(root.resolve()) in refused.value.message
    assert sorted(entry.name for entry in root.parent.iterdir()) == ["secret.txt", "work"]
    assert (root.parent / "secret.txt").read_text() == "a secret\n"


def test_where_a_link_leads_is_told(use: Use, root: Path) -> None:
    (root / "to_file").symlink_to("../secret.txt")
    with pytest.raises(ToolError, match=r"to_file \(it leads to .*/secret\.txt\) is outside the workspace"):
        use(read, path="to_file")


def test_links_that_stay_inside_are_followed(use: Use, root: Path) -> None:
    (root / "real").mkdir()
    (root / "real" / "a.txt").write_text("inside\n")
    (root / "link").symlink_to("real")
    (root / "dangling").symlink_to("real/new.txt")
    assert use(read, path="link/a.txt") == "     1\tinside"
    assert use(read, path=str(root / "real" / ".." / "link" / "a.txt")) == "     1\tinside"
    assert use(write, path="dangling", content="made") == "created real/new.txt: 4 bytes"
    assert (root / "dangling").is_symlink()
    assert (root / "real" / "new.txt").read_text() == "made"


def test_the_workspace_itself_may_be_a_link(root: Path, start: Callable[..., Any]) -> None:
    (root / "a.txt").write_text("inside\n")
    (root.parent / "alias").symlink_to("work")
    read_it = start(read, root.parent / "alias", Signal(), path=str(root.parent / "alias" / "a.txt"))
    assert asyncio.run(read_it) == "     1\tinside"


@pytest.mark.parametrize("swapped", ["folder", "file"])
def test_a_link_that_is_swapped_in_after_the_check_leads_nowhere(root: Path, swapped: str) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "secret.txt").write_text("mine")
    checked = Spot(root, root / "sub" / "secret.txt")
    if swapped == "folder":
        shutil.rmtree(root / "sub")
        (root / "sub").symlink_to("..")
    else:
        (root / "sub" / "secret.txt").unlink()
        (root / "sub" / "secret.txt").symlink_to("../../secret.txt")

    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        open_file(checked.root, checked.parts)
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):  # noqa: SIM117
        with folder(checked.root, checked.parts[:-1], create=True) as parent:
            replace_file(parent, checked.parts[-1], b"overwritten")
    assert (root.parent / "secret.txt").read_text() == "a secret\n"


segments = st.sampled_from(
    ["..", ".", "", "a", "new", "up", "etc", "self", "loop", "gone", "file", "secret.txt"]
)


@pytest.mark.slow
@given(st.lists(segments, min_size=1, max_size=8), st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])  # `start` holds nothing
def test_no_path_reads_or_writes_outside(start: Callable[..., Any], parts: list[str], absolute: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        outside, root = Path(name), Path(name) / "work"
        (outside / "secret.txt").write_text("a secret")
        (root / "a" / "a").mkdir(parents=True)
        (root / "file").write_text("mine")
        for link, target in [
            ("up", ".."),
            ("etc", "/etc"),
            ("self", "."),
            ("loop", "loop"),
            ("gone", "../new"),
        ]:
            (root / link).symlink_to(target)
            (root / "a" / link).symlink_to(target)
        path = "/".join([str(root), *parts] if absolute else parts)

        tools = {tool.name: tool for tool in workspace(root)}
        for tool, more in [("read", {}), ("grep", {"pattern": "secret"}), ("write", {"content": "written"})]:
            try:
                said = asyncio.run(start(tools[tool], None, Signal(), path=path, **more))
            except ToolError:
                continue
            assert "a secret" not in said
        assert sorted(os.listdir(outside)) == ["secret.txt", "work"]
        assert (outside / "secret.txt").read_text() == "a secret"


def test_without_a_folder_the_tools_say_what_the_agent_needs(start: Callable[..., Any]) -> None:
    for tool in workspace():
        with pytest.raises(ToolError, match=r"needs a workspace.*Agent\(\.\.\., cwd=\.\.\.\)") as refused:
            asyncio.run(start(tool, None, Signal(), **ARGUMENTS[tool.name]))
        assert refused.value.code == "NO_WORKSPACE"


@pytest.mark.parametrize("how", ["gone", "a file", "a loop"])
def test_a_folder_that_cannot_be_used_any_more_is_told(
    root: Path, start: Callable[..., Any], how: str
) -> None:
    root.rmdir()
    if how == "a file":
        root.write_text("")
    elif how == "a loop":
        root.symlink_to(root)
    for tool in workspace():
        with pytest.raises(ToolError, match=r"the workspace .*/work ") as refused:
            asyncio.run(start(tool, root, Signal(), **ARGUMENTS[tool.name]))
        assert refused.value.code == "NO_WORKSPACE"


def test_what_cannot_be_a_path_is_told(use: Use) -> None:
    with pytest.raises(ToolError, match="is not a path"):
        use(read, path="a\0b")
    with pytest.raises(ToolError, match=r"cannot read .*: File name too long"):
        use(read, path="n" * 300)


def test_tools_of_a_fixed_folder_ignore_that_of_the_call(root: Path, start: Callable[..., Any]) -> None:
    (root / "a.txt").write_text("fixed\n")
    tools = {tool.name: tool for tool in workspace(root)}
    assert asyncio.run(start(tools["read"], None, Signal(), path="a.txt")) == "     1\tfixed"
    assert asyncio.run(start(tools["bash"], Path("/"), Signal(), command="ls")) == "a.txt"


def test_claims_are_resolved_paths(root: Path, mode: Callable[..., Any]) -> None:
    (root / "sub").mkdir()
    (root / "link").symlink_to("sub")
    real = root.resolve()
    assert mode(read, path="link/a.txt") == Claims(reads=[f"{real}/sub/a.txt"])
    assert mode(write, path="./sub/../b.txt", content="") == Claims(writes=[f"{real}/b.txt"])
    assert mode(edit, path="sub/a.txt", old="a", new="b") == Claims(writes=[f"{real}/sub/a.txt"])
    assert mode(glob, pattern="*") == Claims(reads=[str(real)])
    assert mode(grep, pattern="a", path="sub") == Claims(reads=[f"{real}/sub"])


def test_a_call_that_will_be_refused_overlaps_with_nothing(root: Path, mode: Callable[..., Any]) -> None:
    assert mode(read, path="../secret.txt") is Concurrency.EXCLUSIVE
    assert mode(write, cwd=None, path="a", content="") is Concurrency.EXCLUSIVE


def test_a_workspace_whose_name_is_not_utf8_can_be_told(
    root: Path, start: Callable[..., Any], mode: Any
) -> None:
    odd = Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9"))
    odd.mkdir()
    with pytest.raises(ToolError, match=r"is outside the workspace .*/caf\ufffd$"):
        asyncio.run(start(read, odd, Signal(), path="/etc"))
    assert mode(read, cwd=odd, path="a") == Claims(reads=[f"{root.resolve()}/caf\ufffd/a"])
    odd.rmdir()
    with pytest.raises(ToolError, match=r"the workspace .*/caf\ufffd cannot be used"):
        asyncio.run(start(read, odd, Signal(), path="a"))


def test_what_the_tools_declare() -> None:
    declared = {tool.name: (tool.effect, tool.stop) for tool in workspace()}
    assert declared == {
        "read": (Effect.READ, StopMode.COOPERATIVE),
        "write": (Effect.IDEMPOTENT, StopMode.COOPERATIVE),
        "edit": (Effect.WRITE, StopMode.COOPERATIVE),
        "glob": (Effect.READ, StopMode.COOPERATIVE),
        "grep": (Effect.READ, StopMode.COOPERATIVE),
        "bash": (Effect.WRITE, StopMode.PROCESS),
    }
    bash = workspace()[-1]
    assert bash.concurrency is Concurrency.EXCLUSIVE
    assert "not confined" in bash.description


@pytest.mark.parametrize("tool", workspace(), ids=lambda tool: tool.name)
def test_every_argument_is_described_and_nothing_else_is_shown(tool: Tool) -> None:
    assert tool.description
    assert tool.schema["properties"].keys() >= ARGUMENTS[tool.name].keys()
    assert "ctx" not in tool.schema["properties"]
    assert all(shown["description"] for shown in tool.schema["properties"].values())


ARGUMENTS: dict[str, dict[str, str]] = {
    "read": {"path": "a"},
    "write": {"path": "a", "content": ""},
    "edit": {"path": "a", "old": "a", "new": "b"},
    "glob": {"pattern": "*"},
    "grep": {"pattern": "a"},
    "bash": {"command": "true"},
}
