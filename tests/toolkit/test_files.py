from __future__ import annotations

import asyncio
import os
import resource
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock.errors import ToolError
from interlock.intercept.signal import Signal
from interlock.log.reasons import Cause
from interlock.toolkit import edit, read, write
from interlock.tools.definition import Tool

Use = Callable[..., str]


# read


def test_lines_come_with_their_numbers(use: Use, root: Path) -> None:
    (root / "a.txt").write_bytes(b"first\n\n\tthird\r\nlast without an end")
    assert use(read, path="a.txt") == "     1\tfirst\n     2\t\n     3\t\tthird\n     4\tlast without an end"


def test_a_part_is_read_and_told_where_to_read_on(use: Use, root: Path) -> None:
    (root / "a.txt").write_text("".join(f"line {n}\n" for n in range(1, 11)))
    text = use(read, path="a.txt", offset=3, limit=2)
    assert text == "     3\tline 3\n     4\tline 4\n[the file goes on: read it with offset=5]"
    assert use(read, path="a.txt", offset=9, limit=2) == "     9\tline 9\n    10\tline 10"


def test_reading_on_to_the_end_gives_every_line_once_whatever_the_size(use: Use, root: Path) -> None:
    lines = [f"{n} {'x' * 500}" for n in range(1, 401)]
    (root / "a.txt").write_text("\n".join(lines) + "\n")
    seen: list[str] = []
    offset = 1
    parts = 0
    while len(seen) < len(lines):
        parts += 1
        text = use(read, path="a.txt", offset=offset)
        assert len(text) < 70_000
        *shown, last = text.split("\n")
        seen += shown
        if not last.startswith("[the file goes on"):
            seen.append(last)
            break
        offset = int(last.rpartition("=")[2].rstrip("]"))
    assert parts > 1  # 200 KB do not fit into one result
    assert [line.partition("\t")[2] for line in seen] == lines


def test_a_long_line_is_cut_between_characters(use: Use, root: Path) -> None:
    (root / "a.txt").write_text("é" * 500_000 + "\nnext\n" + "y" * 2000 + "\r\n", newline="")
    first, second, third = use(read, path="a.txt").split("\n")
    assert first == "     1\t" + "é" * 1000 + " [the line is longer]"
    assert second == "     2\tnext"
    assert third == "     3\t" + "y" * 2000


def test_bytes_that_are_not_utf8_are_shown_as_such(use: Use, root: Path) -> None:
    (root / "latin.txt").write_bytes(b"caf\xe9\n")
    assert use(read, path="latin.txt") == "     1\tcaf\ufffd"


def test_empty_and_too_short_files_say_so(use: Use, root: Path) -> None:
    (root / "empty").touch()
    (root / "short").write_text("one\ntwo\n")
    assert use(read, path="empty") == "[the file is empty]"
    with pytest.raises(ToolError, match="short ends at line 2, before offset=3"):
        use(read, path="short", offset=3)


def test_a_binary_file_is_refused_with_its_size(use: Use, root: Path) -> None:
    (root / "image").write_bytes(b"\x89PNG\0" * 1000)
    with pytest.raises(ToolError, match="image is a binary file of 5,000 bytes"):
        use(read, path="image")


def test_a_folder_is_listed(use: Use, root: Path) -> None:
    (root / "sub" / "inner").mkdir(parents=True)
    (root / "sub" / "a.txt").touch()
    (root / "many").mkdir()
    for n in range(510):
        (root / "many" / f"{n:03}").touch()
    assert use(read, path="sub") == "sub/ has:\na.txt\ninner/"
    assert use(read, path=".").startswith("./ has:\nmany/\nsub/")
    assert use(read, path="sub/inner") == "[the folder sub/inner is empty]"
    assert use(read, path="many").endswith("\n499\n[10 more names]")


def test_a_missing_file_names_what_is_near(use: Use, root: Path) -> None:
    (root / "src").mkdir()
    (root / "src" / "reader.py").touch()
    with pytest.raises(ToolError, match=r"there is no src/raeder.py. Did you mean src/reader.py\?"):
        use(read, path="src/raeder.py")
    with pytest.raises(ToolError, match=r"there is no src/lib/x/a.py: there is no folder src/lib$"):
        use(read, path="src/lib/x/a.py")
    with pytest.raises(ToolError, match=r"there is no zzz$"):
        use(read, path="zzz")


def test_names_that_are_not_utf8_can_be_told(use: Use, root: Path) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.txt")).touch()
    assert use(read, path=".") == "./ has:\ncaf\ufffd.txt"
    with pytest.raises(ToolError, match=r"Did you mean caf\ufffd\.txt"):
        use(read, path="cafe.txt")


def test_what_is_no_file_is_not_waited_for(use: Use, root: Path) -> None:
    os.mkfifo(root / "pipe")
    with pytest.raises(ToolError, match="pipe is not a regular file"):
        use(read, path="pipe")
    with pytest.raises(ToolError, match="pipe is not a regular file"):
        use(edit, path="pipe", old="a", new="b")
    with pytest.raises(ToolError, match="cannot write pipe"):
        use(write, path="pipe", content="")
    assert stat.S_ISFIFO((root / "pipe").stat().st_mode)


def test_reading_stops_when_the_signal_is_set(root: Path, start: Callable[..., Any]) -> None:
    (root / "a.txt").write_text("line\n")
    stop = Signal()
    stop.set(Cause("user"))
    assert asyncio.run(start(read, root, stop, path="a.txt")) == "[stopped]"


# write


def test_a_file_is_created_with_its_folders_and_replaced_whole(use: Use, root: Path) -> None:
    assert use(write, path="a/b/c.txt", content="hé\n") == "created a/b/c.txt: 4 bytes"
    assert (root / "a/b/c.txt").read_text() == "hé\n"
    assert use(write, path="a/b/c.txt", content="") == "wrote a/b/c.txt: 0 bytes, was 4"
    assert (root / "a/b/c.txt").read_bytes() == b""
    assert os.listdir(root / "a/b") == ["c.txt"]


def test_a_new_file_gets_the_usual_mode_and_an_old_one_keeps_its_own(use: Use, root: Path) -> None:
    (root / "usual").touch()
    script = root / "script"
    script.touch()
    script.chmod(0o751)
    if os.geteuid() == 0:
        os.chown(script, 1234, 5678)
    owner = script.stat().st_uid, script.stat().st_gid

    use(write, path="new", content="x")
    use(write, path="script", content="x")
    assert (root / "new").stat().st_mode == (root / "usual").stat().st_mode
    assert stat.S_IMODE(script.stat().st_mode) == 0o751
    assert (script.stat().st_uid, script.stat().st_gid) == owner
    use(edit, path="script", old="x", new="y")
    assert stat.S_IMODE(script.stat().st_mode) == 0o751


def test_line_ends_are_written_as_given(use: Use, root: Path) -> None:
    use(write, path="a", content="one\r\ntwo\nthree")
    assert (root / "a").read_bytes() == b"one\r\ntwo\nthree"


def test_what_stands_in_the_way_is_told(use: Use, root: Path) -> None:
    (root / "file").touch()
    (root / "folder").mkdir()
    with pytest.raises(ToolError, match="cannot write file/a: Not a directory"):
        use(write, path="file/a", content="")
    with pytest.raises(ToolError, match="cannot write folder: Is a directory"):
        use(write, path="folder", content="")
    with pytest.raises(ToolError, match="is a folder: name a file"):
        use(write, path=".", content="")
    with pytest.raises(ToolError, match=r"cannot edit \.: Is a directory"):
        use(edit, path=".", old="a", new="b")


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """A disk that is full after `size` bytes, as far as this process can tell."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [100, 100_000])  # smaller and larger than a buffer
def test_when_the_disk_is_full_the_old_file_stays_and_nothing_is_left(
    use: Use, root: Path, size: int
) -> None:
    (root / "a.txt").write_text("old")
    with largest_file(size - 1), pytest.raises(ToolError, match=r"cannot write a\.txt: File too large"):
        use(write, path="a.txt", content="x" * size)
    with largest_file(size - 1), pytest.raises(ToolError, match=r"cannot edit a\.txt: File too large"):
        use(edit, path="a.txt", old="old", new="x" * size)
    assert os.listdir(root) == ["a.txt"]
    assert (root / "a.txt").read_text() == "old"


def test_what_is_not_permitted_is_told(own_folder: Path, start: Callable[..., Any]) -> None:
    def use(tool: Tool, **arguments: str) -> Any:
        return asyncio.run(start(tool, own_folder, Signal(), **arguments))

    use(write, path="sub/a.txt", content="mine")
    (own_folder / "sub/a.txt").chmod(0o000)
    with pytest.raises(ToolError, match=r"cannot read sub/a\.txt: Permission denied"):
        use(read, path="sub/a.txt")
    (own_folder / "sub/a.txt").chmod(0o444)
    with pytest.raises(ToolError, match=r"cannot write sub/a\.txt: Permission denied"):
        use(write, path="sub/a.txt", content="replaced")  # the folder would allow it, the file does not
    (own_folder / "sub").chmod(0o555)
    with pytest.raises(ToolError, match=r"cannot write sub/new\.txt: Permission denied"):
        use(write, path="sub/new.txt", content="")
    assert use(read, path="sub/a.txt") == "     1\tmine"


# edit


def test_an_edit_replaces_one_place_and_keeps_all_else(use: Use, root: Path) -> None:
    (root / "a.py").write_bytes(b"def f():\r\n    return 1\r\n\r\nlast \xe9 without an end")
    assert (
        use(edit, path="a.py", old="f():\n    return 1", new="g():\n    x = 2\n    return x")
        == "edited a.py: replaced once"
    )
    assert (root / "a.py").read_bytes() == (
        b"def g():\r\n    x = 2\r\n    return x\r\n\r\nlast \xe9 without an end"
    )


def test_an_edit_of_every_place(use: Use, root: Path) -> None:
    (root / "a").write_text("x y x y x")
    assert use(edit, path="a", old="x", new="z", replace_all=True) == "edited a: replaced 3 times"
    assert (root / "a").read_text() == "z y z y z"


def test_edits_that_are_refused_leave_the_file_alone(use: Use, root: Path) -> None:
    (root / "a").write_text("x\ny\nx\n")
    (root / "binary").write_bytes(b"x\0")
    with pytest.raises(ToolError, match="old occurs 2 times in a, at lines 1, 3"):
        use(edit, path="a", old="x", new="z")
    with pytest.raises(ToolError, match="old is empty"):
        use(edit, path="a", old="", new="z")
    with pytest.raises(ToolError, match="there is no b"):
        use(edit, path="b", old="x", new="z")
    with pytest.raises(ToolError, match="binary is a binary file"):
        use(edit, path="binary", old="x", new="z")
    assert (root / "a").read_text() == "x\ny\nx\n"


def test_a_file_too_large_to_edit_is_refused(use: Use, root: Path) -> None:
    with open(root / "large", "wb") as file:
        file.truncate((16 << 20) + 1)
    with pytest.raises(ToolError, match="large is larger than 16,777,216 bytes"):
        use(edit, path="large", old="x", new="y")
