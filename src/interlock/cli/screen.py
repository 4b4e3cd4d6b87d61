"""One stream that a person watches: whole lines, words as they come, and on a terminal one changing line below.

Lives here: `Screen`. It knows nothing of agents. Without a terminal nothing but plain lines is written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TextIO

from rich.console import Console
from rich.text import Text

from interlock.cli.oneline import short
from interlock.policy.printable import printable

_START_OF_LINE = "\r\x1b[2K"  # to the first column, and erase


class Screen:
    """Writes to `stream`. `alive`: it is a terminal, on which the last line can be changed."""

    def __init__(self, stream: TextIO) -> None:
        self.console = Console(file=stream, highlight=False, markup=False, emoji=False)
        self.alive = stream.isatty() and not self.console.is_dumb_terminal
        self._stream = stream
        self._within_line = False  # words were written since the last line ended
        self._status = ""
        self._drawn = False
        self._later: list[Callable[[], None]] | None = None  # what came while somebody else had the stream

    def line(self, text: Text | str = "") -> None:
        """A whole line. Foreign text in it must be printable by itself."""
        self.draw(lambda console: console.print(text, soft_wrap=True))

    def draw(self, write: Callable[[Console], None]) -> None:
        """Whole lines, written by `write`."""
        if self._later is not None:
            self._later.append(partial(self.draw, write))
            return
        self.end_words()
        self._erase()
        write(self.console)
        self._draw()

    def words(self, text: str) -> None:
        """Some words, after those that were written before; they are made printable here."""
        if not text:
            return
        if self._later is not None:
            self._later.append(partial(self.words, text))
            return
        self._erase()
        self._stream.write(printable(text))
        self._stream.flush()
        self._within_line = not text.endswith("\n")

    def end_words(self) -> None:
        """What comes next begins a line."""
        if self._within_line:
            self._stream.write("\n")
            self._stream.flush()
            self._within_line = False

    def status(self, text: str) -> None:
        """On a terminal, the changing line below everything else; empty for none."""
        if self.alive and text != self._status:
            self._status = text
            if self._later is None:
                self._erase()
                self._draw()

    def step_aside(self, aside: bool) -> None:
        """Let somebody else have the stream, for a question; what comes meanwhile is written afterwards."""
        if aside:
            self.end_words()
            self._erase()
            self._later = []
            return
        later, self._later = self._later or [], None
        for write in later:
            write()
        self._erase()
        self._draw()

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(_START_OF_LINE)
            self._drawn = False

    def _draw(self) -> None:
        if self._status and not self._within_line:
            self._stream.write(short(self._status, self.console.width - 1))
            self._drawn = True
        if self.alive:
            self._stream.flush()
