from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest

from interlock.context.workspace import LIMIT, WorkspaceContext


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


@pytest.fixture
def context(work: Path) -> WorkspaceContext:
    return WorkspaceContext(work, lambda: date(2026, 11, 30))


def age(path: Path, seconds: int) -> None:
    """Let a file look as if it had been written so long ago."""
    os.utime(path, (time.time() - seconds, time.time() - seconds))


def head(work: Path) -> str:
    return f"Working folder: {work}\nDate: 2026-11-30"


def test_the_folder_and_the_date(context: WorkspaceContext, work: Path) -> None:
    assert context.snapshot() == head(work)


def test_the_instructions_of_the_folder(context: WorkspaceContext, work: Path) -> None:
    (work / "AGENTS.md").write_text("Run make check.\n")
    assert context.snapshot() == (
        head(work) + "\n\nAGENTS.md, the instructions of this folder:\n\nRun make check."
    )
    (work / "AGENTS.md").write_text(" \n")
    assert context.snapshot() == head(work)


def test_every_change_is_told(context: WorkspaceContext, work: Path) -> None:
    file = work / "AGENTS.md"
    seen = []
    for change in [
        lambda: file.write_text("one"),
        lambda: file.write_text("two"),  # the same size, within one tick of the clock
        lambda: age(file, 60),
        lambda: (work / "new").write_text("six") and os.replace(work / "new", file),
        lambda: file.unlink(),
        lambda: file.write_text("ten"),
    ]:
        change()
        seen.append(context.snapshot().removeprefix(head(work))[-3:])
    assert seen == ["one", "two", "two", "six", "", "ten"]


def test_the_date_is_that_of_the_asking(work: Path) -> None:
    days = iter([date(2026, 11, 30), date(2026, 12, 1)])
    context = WorkspaceContext(work, lambda: next(days))
    assert [context.snapshot().split("\n")[1] for _ in range(2)] == ["Date: 2026-11-30", "Date: 2026-12-01"]


def test_a_long_file_is_cut_between_characters_and_says_so(context: WorkspaceContext, work: Path) -> None:
    (work / "AGENTS.md").write_text("x" + "é" * LIMIT)
    text = context.snapshot()
    assert text.endswith(
        f"éé\n[AGENTS.md goes on: it has {2 * LIMIT + 1:,} bytes, the first {LIMIT:,} are shown]"
    )
    assert "\ufffd" not in text
    assert text.count("é") == LIMIT // 2 - 1

    (work / "AGENTS.md").write_text("x" * LIMIT)
    assert context.snapshot().endswith("xxx")


def test_bytes_that_are_not_utf8_are_replaced_and_it_says_so(context: WorkspaceContext, work: Path) -> None:
    (work / "AGENTS.md").write_bytes(b"caf\xe9")
    assert context.snapshot().endswith("caf\ufffd\n[bytes that are not UTF-8 are shown as \ufffd]")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda file: file.mkdir(), "is not a regular file and was not read."),
        (os.mkfifo, "is not a regular file and was not read."),
        (lambda file: file.symlink_to(file), "cannot be read: Too many levels of symbolic links."),
        (lambda file: file.symlink_to("../secret.txt"), "leads out of the working folder and was not read."),
    ],
    ids=["folder", "pipe", "loop", "link out"],
)
def test_what_cannot_be_read_is_told(
    context: WorkspaceContext, work: Path, make: Callable[[Path], None], said: str
) -> None:
    (work.parent / "secret.txt").write_text("a secret")
    make(work / "AGENTS.md")
    assert context.snapshot() == f"{head(work)}\nAGENTS.md {said}"


def test_a_link_that_stays_inside_is_followed(context: WorkspaceContext, work: Path) -> None:
    (work / "CLAUDE.md").write_text("Be kind.")
    (work / "AGENTS.md").symlink_to("CLAUDE.md")
    assert context.snapshot().endswith("Be kind.")
    assert context.snapshot().endswith("Be kind.")


def test_a_folder_that_vanishes_and_comes_back(context: WorkspaceContext, work: Path) -> None:
    (work / "AGENTS.md").write_text("one")
    assert context.snapshot().endswith("one")
    os.rename(work, work.parent / "away")
    assert context.snapshot() == f"{head(work)}\nThe working folder does not exist any more."
    work.write_text("a file by now")
    assert context.snapshot() == f"{head(work)}\nThe working folder does not exist any more."
    work.unlink()
    os.rename(work.parent / "away", work)
    assert context.snapshot().endswith("one")


COUNTING = """
import os, sys
from datetime import date
from pathlib import Path
from interlock.context.workspace import WorkspaceContext

context = WorkspaceContext(Path(sys.argv[1]), lambda: date(2026, 11, 30))
opened = []
sys.addaudithook(lambda event, args: opened.append(args[0]) if event == "open" else None)
texts = {context.snapshot() for _ in range(100)}
print(len(texts), len(opened))
"""


@pytest.mark.parametrize(
    ("seconds", "opened"),
    [
        pytest.param(60, 1, id="settled"),
        pytest.param(-60, 100, id="new: a clock may be too coarse to show the next change"),
    ],
)
def test_while_nothing_changes_the_file_is_not_opened_again(work: Path, seconds: int, opened: int) -> None:
    (work / "AGENTS.md").write_text("one")
    age(work / "AGENTS.md", seconds)
    done = subprocess.run(
        [sys.executable, "-c", COUNTING, str(work)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["1", str(opened)]
