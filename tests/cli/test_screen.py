"""The screen: lines, words and the changing line, with and without a terminal."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
from rich.text import Text

from interlock.cli.screen import Screen


class Terminal(io.StringIO):
    """Says that it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "30")
    return Terminal()


ERASE = "\r\x1b[2K"


def write(screen: Screen) -> None:
    screen.words("Hel")
    screen.words("lo")
    screen.status("bash (1 s)")
    screen.line(Text("done"))
    screen.status("bash (2 s)")
    screen.line("and done")
    screen.status("")


def test_without_a_terminal_there_are_plain_lines() -> None:
    stream = io.StringIO()
    write(Screen(stream))
    assert stream.getvalue() == "Hello\ndone\nand done\n"


def test_on_a_terminal_the_status_stays_below(terminal: Terminal) -> None:
    write(Screen(terminal))
    assert terminal.getvalue() == (
        f"Hello\ndone\nbash (1 s){ERASE}bash (2 s){ERASE}and done\nbash (2 s){ERASE}"
    )


def test_a_terminal_that_cannot_move_its_cursor_gets_no_status(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    write(Screen(terminal))
    assert terminal.getvalue() == "Hello\ndone\nand done\n"


def test_a_status_fits_in_its_line_and_is_drawn_once(terminal: Terminal) -> None:
    screen = Screen(terminal)
    screen.status("x" * 100)
    screen.status("x" * 100)
    assert terminal.getvalue() == f"{'x' * 28}…"


def test_words_are_made_harmless_and_end_before_a_line(terminal: Terminal) -> None:
    screen = Screen(terminal)
    screen.words("")
    screen.words("a\x1b[2Jb\n")
    screen.line("next")
    assert terminal.getvalue() == "a\\x1b[2Jb\nnext\n"


@pytest.mark.parametrize("open_stream", [io.StringIO, Terminal])
def test_what_comes_while_it_stands_aside_is_written_afterwards(
    open_stream: Callable[[], io.StringIO], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    stream = open_stream()
    screen = Screen(stream)
    screen.status("bash (1 s)")
    screen.words("Hel")
    screen.step_aside(True)
    before = stream.getvalue()
    stream.write("May it? yes\n")
    screen.line("one")
    screen.words("two")
    screen.status("bash (2 s)")
    assert stream.getvalue() == f"{before}May it? yes\n"
    screen.step_aside(False)
    screen.end_words()
    screen.status("")
    lines = stream.getvalue().replace(ERASE, "\n").splitlines()
    assert [line for line in lines if line and not line.startswith("bash")] == [
        "Hel",
        "May it? yes",
        "one",
        "two",
    ]
