"""Asking on a terminal, through a pseudo-terminal; and through other streams."""

from __future__ import annotations

import asyncio
import io
import os
import pty
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interlock.intercept.signal import Signal
from interlock.policy.approval import ApprovalRequest, Approved, Rejected
from interlock.policy.terminal import TerminalApprover, printable, question
from interlock.tools.call import ToolCall, arguments_of
from interlock.tools.definition import tool


@tool
def write(path: str, content: str = "") -> str:
    return path


def request(**arguments: Any) -> ApprovalRequest:
    given = arguments_of(arguments or {"path": "a.txt"})
    call = ToolCall(
        key=1,
        id="c1",
        name="write",
        tool=write,
        arguments=given,
        text="",
        turn=1,
        step=1,
        index=0,
        signal=Signal(),
    )
    return ApprovalRequest("a1", call, "write may change something", given, "digest")


class Person:
    """Sits before a pseudo-terminal: reads what is shown there, and types."""

    def __init__(self) -> None:
        self.descriptor, slave = pty.openpty()
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
                self._shown += os.read(self.descriptor, 65_536).decode()
                ready.clear()
        finally:
            loop.remove_reader(self.descriptor)
        return self._shown

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
        ("y\n", Approved()),
        ("YES \n", Approved()),
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
    assert await first == Approved()
    await person.shown("second.txt\r\nAllow it once? [y/N, or say what to do instead] ")
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
    assert await again == Approved()
    assert around == [True, False, True, False]


async def test_a_pipe_gives_its_lines_one_by_one() -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading) as stream:
        ask = TerminalApprover(reading=stream, writing=io.StringIO())
        os.write(writing, b"y\nuse b\nyes")
        assert await ask(request()) == Approved()
        assert await ask(request()) == Rejected("use b")
        os.close(writing)
        assert await ask(request()) == Approved()
        assert await ask(request()) == Rejected("nobody answered at the terminal")


async def test_a_file_and_a_text_are_read_as_they_are(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("y\nn\n")
    with (tmp_path / "answers").open() as file:
        for stream in (file, io.StringIO("y\nn\n")):
            ask = TerminalApprover(reading=stream, writing=io.StringIO())
            answers = [await ask(request()) for _ in range(3)]
            assert answers == [Approved(), Rejected(), Rejected("nobody answered at the terminal")]


def test_the_question_shows_the_arguments_as_they_would_run() -> None:
    shown = question(request(path="a\x1b[2Kb", content="one\ntwo", n=[1, {"x": None}], big="x" * 3000))
    assert shown == (
        "\nwrite wants to run: write may change something\n"
        "  path: a\\x1b[2Kb\n"
        "  content: one\n      two\n"
        '  n: [1,{"x":null}]\n'
        f"  big: {'x' * 2000}… (3,000 characters)\n"
        "Allow it once? [y/N, or say what to do instead] "
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
    ],
)
def test_printable_text_cannot_move_hide_or_reorder(text: str, shown: str) -> None:
    assert printable(text) == shown
