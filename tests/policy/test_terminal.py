"""Asking on a terminal, through a pseudo-terminal; and through other streams."""

from __future__ import annotations

import asyncio
import io
import os
import pty
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from interlock.log.facts import Said
from interlock.policy.approval import ApprovalRequest, Approved, Rejected
from interlock.policy.printable import one_line, printable
from interlock.policy.terminal import TerminalApprover, question
from interlock.tools.call import ToolCall

from .asking import BASH, EDIT, EDITS, WRITE, call_of, request_of


def request(**arguments: Any) -> ApprovalRequest:
    return request_of(call_of(WRITE, **arguments))


YES = Approved(digest="digest")


class Person:
    """Sits before a pseudo-terminal: reads what is shown there, and types."""

    def __init__(self) -> None:
        self.descriptor, slave = pty.openpty()
        os.set_blocking(self.descriptor, False)
        self.reading = os.fdopen(slave, "r")
        self.writing = os.fdopen(os.dup(slave), "w")
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self.descriptor, text.encode())

    async def shown(self, text: str) -> str:
        """Wait until the terminal has shown this; all that it has shown."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self.descriptor, ready.set)
        try:
            while text not in self._shown:
                await ready.wait()
                ready.clear()
                with suppress(BlockingIOError):
                    self._shown += os.read(self.descriptor, 65_536).decode()
        finally:
            loop.remove_reader(self.descriptor)
        return self._shown

    async def shown_again(self, text: str) -> str:
        """The same, of what is shown from now on."""
        self._shown = ""
        return await self.shown(text)

    def leave(self) -> None:
        self.writing.close()
        self.reading.close()
        os.close(self.descriptor)


@pytest.fixture
def person() -> Iterator[Person]:
    person = Person()
    yield person
    person.leave()


def approver(person: Person, **options: Any) -> TerminalApprover:
    return TerminalApprover(reading=person.reading, writing=person.writing, **options)


END = "\x04"  # what Ctrl-D sends


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y\n", YES),
        ("YES \n", YES),
        ("n\n", Rejected()),
        ("No\n", Rejected()),
        ("\n", Rejected()),
        (" use b.txt instead \n", Rejected("use b.txt instead")),
        ("yes please\n", Rejected("yes please")),
        ("да\n", Rejected("да")),
        (END, Rejected("nobody answered at the terminal")),
    ],
)
async def test_only_a_clear_yes_is_a_yes(person: Person, typed: str, answer: Approved | Rejected) -> None:
    asking = asyncio.create_task(approver(person)(request()))
    shown = await person.shown("instead] ")
    assert "write wants to run: write may change something" in shown and "path: a.txt" in shown
    person.type(typed)
    assert await asking == answer


async def test_what_was_typed_before_the_question_is_no_answer(person: Person) -> None:
    ask = approver(person)
    person.type("y\ny\n")
    asking = asyncio.create_task(ask(request()))
    await person.shown("instead] ")
    person.type("n\n")
    assert await asking == Rejected()


async def test_one_question_is_asked_at_a_time(person: Person) -> None:
    ask = approver(person)
    first = asyncio.create_task(ask(request(path="first.txt")))
    second = asyncio.create_task(ask(request(path="second.txt")))
    assert "second.txt" not in await person.shown("instead] ")
    person.type("y\n")
    assert await first == YES
    await person.shown("second.txt\r\nAllow it once? [y/e/N, or say what to do instead] ")
    person.type("n\n")
    assert await second == Rejected()


async def test_a_question_that_is_cut_leaves_nothing_behind(person: Person) -> None:
    around: list[bool] = []
    ask = approver(person, around=around.append)
    asking = asyncio.create_task(ask(request()))
    await person.shown("instead] ")
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert around == [True, False]
    again = asyncio.create_task(ask(request(path="again.txt")))
    await person.shown("again.txt")
    person.type("y\n")
    assert await again == YES
    assert around == [True, False, True, False]


async def test_a_pipe_gives_its_lines_one_by_one() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream:
        ask = TerminalApprover(reading=stream, writing=io.StringIO())
        os.write(writing, b"y\nuse b\nyes")
        assert await ask(request()) == YES
        assert await ask(request()) == Rejected("use b")
        os.close(writing)
        assert await ask(request()) == YES
        assert await ask(request()) == Rejected("nobody answered at the terminal")


async def test_a_file_and_a_text_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("y\nn\n")
    with (tmp_path / "answers").open() as file:
        for stream in (file, io.StringIO("y\nn\n")):
            ask = TerminalApprover(reading=stream, writing=io.StringIO())
            answers = [await ask(request()) for _ in range(3)]
            assert answers == [YES, Rejected(), Rejected("nobody answered at the terminal")]


def test_the_question_shows_the_arguments_as_they_would_run() -> None:
    shown = question(request(path="a\x1b[2Kb", content="one\ntwo", n=[1, {"x": None}], big="x" * 3000))
    assert shown == (
        "\nwrite wants to run: write may change something\n"
        "  path: a\\x1b[2Kb\n"
        "  content: one\n      two\n"
        '  n: [1,{"x":null}]\n'
        f"  big: {'x' * 2000}… (3,000 characters)\n"
        "Allow it once? [y/e/N, or say what to do instead] "
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, 全角, é", "plain, 全角, é"),
        ("a\tb\nc", "a\tb\nc"),
        ("\x1b[31m\x00\x9b", "\\x1b[31m\\x00\\x9b"),
        ("cod.\u202etxt", "cod.\\u202etxt"),
        ("\u3000\xa0", "\u3000\xa0"),
        ("a\rb\u2028", "a\\x0db\\u2028"),
        ("a\u115f\u2800b", "a\\u115f\\u2800b"),
    ],
)
def test_printable_text_cannot_move_hide_or_reorder(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_on_one_line_nobody_adds_a_line_that_looks_like_one_of_ours() -> None:
    assert one_line("rm x\nby rule Bash(*)\t\x1b") == "rm x\\nby rule Bash(*)\\t\\x1b"


# What may be answered

OFFERED = ("once", "session Edit(/a.txt)", "always Edit(/a.txt)")


def file_in(folder: Path, text: str) -> Path:
    (folder / "a.txt").write_text(text)
    return folder


@pytest.mark.parametrize(
    ("typed", "answer"),
    [
        ("y\n", YES),
        ("s\n", Approved("session", digest="digest")),
        ("A\n", Approved("always", digest="digest")),
        ("n\n", Rejected()),
        ("session\n", Rejected("session")),
    ],
)
async def test_a_rule_is_shown_before_it_can_be_written(person: Person, typed: str, answer: object) -> None:
    asking = asyncio.create_task(approver(person)(request_of(options=OFFERED)))
    shown = await person.shown("instead] ")
    assert "s = yes, and not asked again in this session: Edit(/a.txt)" in shown
    assert "a = yes, and never asked again in this folder: Edit(/a.txt)" in shown
    assert "[y/s/a/e/N, or say what to do instead]" in shown
    person.type(typed)
    assert await asking == answer


@pytest.mark.parametrize("typed", ["s\n", "a\n"])
async def test_what_was_not_offered_is_words_like_any_others(person: Person, typed: str) -> None:
    asking = asyncio.create_task(approver(person)(request_of()))
    await person.shown("instead] ")
    person.type(typed)
    assert await asking == Rejected(typed.strip())


async def test_arguments_are_edited_on_a_line_shown_again_and_then_allowed(
    person: Person, tmp_path: Path
) -> None:
    call = call_of(EDITS, cwd=file_in(tmp_path, "old\n"), path="a.txt", content="new\n")
    asking = asyncio.create_task(approver(person, environ={})(request_of(call, options=OFFERED)))
    await person.shown("instead] ")
    for refused, why in (
        ("{", "Not taken"),
        ('{"path": 1}', "path: Input should be a valid string"),
        ("", ""),
    ):
        person.type("e\n")
        await person.shown_again("or nothing to leave them: ")
        person.type(f"{refused}\n")
        shown = await person.shown_again("instead] ")
        assert why in shown and "as you changed it" not in shown
    person.type("e\n")
    await person.shown_again("or nothing to leave them: ")
    person.type('{"path": "a.txt", "content": "newer\\n"}\n')
    shown = await person.shown_again("Allow it so, once? [y/e/N, or say what to do instead] ")
    assert "write, as you changed it:" in shown and "+newer" in shown and "s = yes" not in shown
    person.type("y\n")
    edited = {"path": "a.txt", "content": "newer\n"}
    assert await asking == Approved(arguments=edited, digest="digest")


async def test_arguments_are_edited_in_the_editor(person: Person, tmp_path: Path) -> None:
    """It has the terminal, and its file is for this user only."""
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nstat -c %a "$2"; cat "$2"; echo \'{"path": "b.txt"}\' > "$2"\n')
    editor.chmod(0o700)
    ask = approver(person, environ={"EDITOR": f"{editor} --wait", "VISUAL": ""})
    asking = asyncio.create_task(ask(request_of()))
    await person.shown("instead] ")
    person.type("e\n")
    shown = await person.shown_again("Allow it so, once? [y/e/N, or say what to do instead] ")
    assert "600" in shown and '"path": "a.txt"' in shown
    person.type("y\n")
    assert await asking == Approved(arguments={"path": "b.txt"}, digest="digest")


@pytest.mark.parametrize("editor", ["/nowhere/vi", "false", "'"])
async def test_an_editor_that_fails_changes_nothing(person: Person, editor: str) -> None:
    asking = asyncio.create_task(approver(person, environ={"VISUAL": editor})(request_of()))
    await person.shown("instead] ")
    person.type("e\n")
    shown = await person.shown_again("instead] ")
    assert "cannot be started" in shown or "ended with 1: nothing is changed" in shown
    person.type("y\n")
    assert await asking == YES


async def test_an_editor_is_ended_when_the_question_is_withdrawn(person: Person, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\necho started $$ is my number\nexec sleep 600\n")
    editor.chmod(0o700)
    asking = asyncio.create_task(approver(person, environ={"EDITOR": str(editor)})(request_of()))
    await person.shown("instead] ")
    person.type("e\n")
    shown = await person.shown(" is my number")
    asking.cancel("ada (web) said yes")
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert "(ada (web) said yes)" in await person.shown("said yes)")
    pid = re.search(r"started (\d+)", shown)
    assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid[1]), 0)


# What is shown


def lines_of(call: ToolCall, **more: Any) -> list[str]:
    return question(request_of(call, **more)).split("\n")[2:-1]


def test_an_edit_is_shown_as_a_difference(tmp_path: Path) -> None:
    text = "".join([f"line {n}\n" for n in range(1, 21)])
    call = call_of(EDIT, cwd=file_in(tmp_path, text), path="a.txt", old="line 10\n", new="LINE 10\nmore\n")
    assert lines_of(call) == [
        "  path: a.txt",
        "  @@ -7,7 +7,8 @@",
        "   line 7",
        "   line 8",
        "   line 9",
        "  -line 10",
        "  +LINE 10",
        "  +more",
        "   line 11",
        "   line 12",
        "   line 13",
    ]


@pytest.mark.parametrize(
    ("before", "content", "shown"),
    [
        (None, "x\n", ["  path: a.txt (new file)", "  @@ -0,0 +1,2 @@", "  +x", "  +"]),
        ("x\n", "x\n", ["  path: a.txt (unchanged)"]),
        (
            "a\x1b[2J\n",
            "b\u202e\n",
            ["  path: a.txt", "  @@ -1,2 +1,2 @@", "  -a\\x1b[2J", "  +b\\u202e", "   "],
        ),
    ],
)
def test_a_write_is_shown_as_a_difference(
    tmp_path: Path, before: str | None, content: str, shown: list[str]
) -> None:
    if before is not None:
        file_in(tmp_path, before)
    assert lines_of(call_of(EDITS, cwd=tmp_path, path="a.txt", content=content)) == shown


@pytest.mark.parametrize(
    ("before", "note"),
    [
        (None, "(there is no such file)"),
        ("other", "(the text is not in the file as it stands)"),
        ("old old", "(the text is there 2 times)"),
    ],
)
def test_an_edit_that_would_fail_says_so(tmp_path: Path, before: str | None, note: str) -> None:
    if before is not None:
        file_in(tmp_path, before)
    call = call_of(EDIT, cwd=tmp_path, path="a.txt", old="old", new="new")
    assert lines_of(call) == [f"  path: a.txt {note}", "  -old", "  +new"]


def test_every_place_is_shown_when_all_are_replaced(tmp_path: Path) -> None:
    call = call_of(
        EDIT, cwd=file_in(tmp_path, "old\nold"), path="a.txt", old="old", new="new", replace_all=True
    )
    assert lines_of(call) == [
        "  path: a.txt (2 places)",
        "  @@ -1,2 +1,2 @@",
        "  -old",
        "  -old",
        "  +new",
        "  +new",
    ]


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "link", "folder", "fifo", "big", "binary", "a\0b"]
)
def test_what_must_not_be_looked_at_is_not(tmp_path: Path, path: str) -> None:
    """Outside, through a link, no regular file, or too much: then only the arguments are shown."""
    (tmp_path / "secret").write_text("hidden")
    work = tmp_path / "work"
    (work / "folder").mkdir(parents=True)
    (work / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(work / "fifo")
    (work / "big").write_text("x" * (1 << 20) + "x")
    (work / "binary").write_bytes(b"\0")
    shown = "\n".join(lines_of(call_of(EDITS, cwd=work, path=path, content="new\n")))
    assert "hidden" not in shown and "content: new" in shown


def test_a_long_difference_says_how_much_of_it_is_not_shown(tmp_path: Path) -> None:
    content = "\n".join([f"{n} {'x' * 1000}" for n in range(500)])
    shown = lines_of(call_of(EDITS, cwd=tmp_path, path="a.txt", content=content))
    assert shown[-1] == "  … 301 more lines are not shown"
    assert all(len(line) < 450 for line in shown)


def test_a_command_is_shown_as_it_would_run() -> None:
    assert lines_of(call_of(BASH, command="make test\n\x1b[8mrm -rf /", timeout=5)) == [
        "  $ make test",
        "    \\x1b[8mrm -rf /",
        "  timeout: 5",
    ]


def test_the_rule_that_made_it_ask_is_shown_with_its_place() -> None:
    said = (
        Said("other", "allow"),
        Said("rule Bash(rm:*)", "ask", "it removes", "Bash(rm:*)", "interlock.toml", 12),
        Said("careful", "ask"),
    )
    call = call_of(BASH, said=said, command="rm x")
    assert lines_of(call)[0] == "  asked by rule Bash(rm:*) (interlock.toml:12), careful"
    assert lines_of(call_of(BASH, command="ls"), by="preset ask")[0] == "  asked by preset ask"


def test_when_it_expires_is_shown() -> None:
    assert lines_of(call_of(), expires=0)[-1].startswith("  without an answer by 19")


@pytest.mark.parametrize("terminal", ["dumb", "xterm-256color"])
async def test_any_terminal_will_do(
    person: Person, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, terminal: str
) -> None:
    """A dumb one gets no colours; a narrow one all of the text."""
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("NO_COLOR", raising=False)
    call = call_of(EDITS, cwd=file_in(tmp_path, "a\n"), path="a.txt", content="b " * 40)
    asking = asyncio.create_task(approver(person)(request_of(call)))
    shown = await person.shown("instead] ")
    assert ("\x1b[32m" in shown) is (terminal != "dumb")
    assert "b " * 40 in shown
    person.type("y\n")
    assert await asking == YES
