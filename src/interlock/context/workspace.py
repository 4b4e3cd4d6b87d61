"""What the model is told of the folder it works in: where that is, the date, and the folder's AGENTS.md.

Lives here: `WorkspaceContext`. It builds text and knows nothing of logs: whoever asks compares the text with what was
said last.
"""

from __future__ import annotations

import codecs
import os
import stat
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path

NAME = "AGENTS.md"
LIMIT = 32 * 1024  # bytes of it that are told
_SETTLED = 1_000_000_000  # nanoseconds


class WorkspaceContext:
    """The text for one folder. Asking for it costs a `stat` while nothing changes."""

    def __init__(self, cwd: Path, today: Callable[[], date]) -> None:
        self._cwd = cwd
        self._today = today
        self._seen: tuple[int, ...] | None = None  # the file that `_told` is about
        self._told = ""

    def snapshot(self) -> str:
        """The text as of now. What cannot be read is said in it; nothing is raised."""
        cwd = os.fsencode(self._cwd).decode(errors="replace")  # a name need not be UTF-8, the log is
        return f"Working folder: {cwd}\nDate: {self._today().isoformat()}{self._agents()}"

    def _agents(self) -> str:
        try:
            seen = _identity(os.stat(self._cwd / NAME))
            if seen != self._seen:
                self._told = self._read()
                # Two changes within one tick of the clock look the same: a file that is new is read again.
                self._seen = seen if time.time_ns() - seen[-2] > _SETTLED else None
        except (FileNotFoundError, NotADirectoryError):
            self._seen = None
            return "" if self._cwd.is_dir() else "\nThe working folder does not exist any more."
        except OSError as error:
            self._seen = None
            return f"\n{NAME} cannot be read: {error.strerror or error}."
        return self._told

    def _read(self) -> str:
        # A link in a folder that came from elsewhere must not tell the model another file of this machine.
        path = Path(os.path.realpath(self._cwd / NAME))
        if not path.is_relative_to(os.path.realpath(self._cwd)):
            return f"\n{NAME} leads out of the working folder and was not read."
        # Without O_NONBLOCK, opening a named pipe would wait for its writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return f"\n{NAME} is not a regular file and was not read."
            data = os.read(descriptor, LIMIT)
        finally:
            os.close(descriptor)
        text = codecs.getincrementaldecoder("utf-8")("replace").decode(
            data, final=len(data) == status.st_size
        )
        if not text.strip():
            return ""
        notes = ""
        if "\ufffd" in text:
            notes += "\n[bytes that are not UTF-8 are shown as \ufffd]"
        if len(data) < status.st_size:
            notes += f"\n[{NAME} goes on: it has {status.st_size:,} bytes, the first {len(data):,} are shown]"
        return f"\n\n{NAME}, the instructions of this folder:\n\n{text.rstrip()}{notes}"


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
