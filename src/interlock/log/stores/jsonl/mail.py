"""The mailbox of a session in a folder: a file that is there while letters wait, a line of JSON for each.

Lives here: what is done with these files. `mail/ID.jsonl` is locked while it is read or changed by those who write to
it, and is deleted when its letters have been taken; the log says how far that was. What comes after the last line feed
was cut by a crash, and was acknowledged to nobody. All of it waits for a disk or a lock, so it runs in threads.
"""

from __future__ import annotations

import fcntl
import os
import time as clock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from interlock.errors import MailboxFull
from interlock.log.stores.jsonl.artifacts import sync_folder
from interlock.log.stores.jsonl.file import SUFFIX, private
from interlock.log.stores.store import MAX_LETTERS, Letter

FOLDER = "mail"

_PATIENCE = 10.0  # seconds for which another process may keep the lock


class _Line(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A letter as it stands in the file: what it says can be read there, if it is JSON."""

    number: int
    time: int
    data: msgspec.Raw = msgspec.Raw()
    base64: bytes = b""  # instead


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode
_check = msgspec.json.Decoder().decode


def _line_of(letter: Letter) -> bytes:
    try:
        if b"\n" in letter.data or letter.data[:1] != b"{" or letter.data[-1:] != b"}":
            raise ValueError
        _check(letter.data)
        made = _Line(letter.number, letter.time, data=msgspec.Raw(letter.data))
    except (ValueError, RecursionError):
        made = _Line(letter.number, letter.time, base64=letter.data)
    return _encode(made)


def mail_path(session: Path) -> Path:
    """The mailbox of the session with this file."""
    return session.parent / FOLDER / session.name


def waiting(folder: Path) -> list[Path]:
    """The files of the sessions that have letters. It waits for nothing, and is cheap: most have none."""
    try:
        names = os.listdir(folder / FOLDER)
    except OSError:
        return []
    return [folder / name for name in names if name.endswith(SUFFIX)]


def letters(session: Path, after: int) -> list[Letter]:
    """Those that are on disk: one that is being written is not seen before.

    Raises:
        OSError: the file cannot be read. TimeoutError: another process keeps the lock.
    """
    path = mail_path(session)
    until = clock.monotonic() + _PATIENCE
    while True:
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        try:
            _lock(file, fcntl.LOCK_SH, until)
            if _is_there(file, path):
                lines, _ = _read(file)
                return _letters_in(lines, after)
        finally:
            os.close(file)


def post(
    session: Path,
    session_id: str,
    data: bytes,
    time: int,
    taken: Callable[[], int],
    refuse: Callable[[], None] = lambda: None,
) -> int:
    """The number of the letter, which is on disk.

    Args:
        refuse: raises what speaks against it. Called while nobody can erase or remove the session.
        taken: looks into the log for the number of the last letter that was taken. Called where the file does not tell.

    Raises:
        FileNotFoundError: there is no such session. OSError: it cannot be written. MailboxFull.
    """
    os.stat(session)
    with _locked(mail_path(session)) as file:
        refuse()
        lines, size = _read(file)
        if len(lines) >= MAX_LETTERS:
            raise MailboxFull(session_id, MAX_LETTERS)
        before = 0 if lines and _letter_in(lines[-1]) is not None else taken()
        found = _letters_in(lines, before)
        last = found[-1].number if found else before
        os.ftruncate(file, size)
        try:
            _write(file, [Letter(last + 1, time, data)])
        except BaseException:
            os.ftruncate(file, size)  # what of it there is was not acknowledged
            raise
        return last + 1


def forget(session: Path, last: int) -> None:
    """
    Raises:
        OSError: the file cannot be changed.
    """
    path = mail_path(session)
    if not path.exists():
        return
    with _locked(path) as file:
        lines, _ = _read(file)
        left = _letters_in(lines, last)
        if not left:
            path.unlink(missing_ok=True)
        elif len(left) < len(lines):
            made = path.with_name(f".{path.name}.{os.getpid()}")
            try:
                with open(made, "wb", opener=private) as new:
                    _write(new.fileno(), left)
                os.replace(made, path)
            except BaseException:
                made.unlink(missing_ok=True)
                raise
        sync_folder(path.parent)


class _Closed:
    """A mailbox into which nobody can post."""

    def __init__(self, path: Path, letters: int) -> None:
        self._path = path
        self.letters = letters

    def delete(self) -> None:
        self._path.unlink(missing_ok=True)


@contextmanager
def closed_mailbox(session: Path) -> Iterator[_Closed]:
    """The mailbox of a session while nobody posts, for whoever ends the session.

    Raises:
        OSError: it cannot be had.
    """
    path = mail_path(session)
    with _locked(path) as file:
        lines, _ = _read(file)
        closed = _Closed(path, len(lines))
        try:
            yield closed
        finally:
            if not lines:
                closed.delete()  # it was made only to be locked


def _write(file: int, letters: list[Letter]) -> None:
    left = memoryview(b"".join([_line_of(letter) + b"\n" for letter in letters]))
    while left:
        left = left[os.write(file, left) :]
    os.fsync(file)


def _read(file: int) -> tuple[list[bytes], int]:
    """The whole lines of an open file, and their size."""
    data = b""
    while block := os.pread(file, 1 << 20, len(data)):
        data += block
    *lines, cut = data.split(b"\n")
    return lines, len(data) - len(cut)


def _letter_in(line: bytes) -> Letter | None:
    """None: it is no letter as `_line_of` writes it."""
    try:
        made = _decode(line)
    except msgspec.MsgspecError:
        return None
    if made.number < 1:
        return None
    return Letter(made.number, made.time, bytes(made.data) or made.base64)


def _letters_in(lines: list[bytes], after: int) -> list[Letter]:
    """Those that come after this number, in order.

    Where a line is none, or one that comes too late for its number, it is given a number that no other has: whoever takes
    it says that it cannot be read. If there is none, nobody has sent it.
    """
    found: list[Letter] = []
    odd: list[bytes] = []
    last = after
    for line in lines:
        letter = _letter_in(line)
        if letter is not None and letter.number <= after and not found:
            odd.clear()  # what was in between has been taken, too
        elif letter is None or letter.number <= last:
            odd.append(line)
        else:
            found += _numbered(odd[: letter.number - last - 1], last)
            odd.clear()
            found.append(letter)
            last = letter.number
    return found + _numbered(odd, last)


def _numbered(lines: list[bytes], last: int) -> list[Letter]:
    return [Letter(number, 0, line) for number, line in enumerate(lines, last + 1)]


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """The open file, made where it is missing, while nobody else changes it.

    Raises:
        TimeoutError: another process keeps the lock.
    """
    path.parent.mkdir(mode=0o700, exist_ok=True)
    until = clock.monotonic() + _PATIENCE
    while True:
        file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            _lock(file, fcntl.LOCK_EX, until)
            # Whoever had it before may have put another in its place, or deleted it.
            if _is_there(file, path):
                sync_folder(path.parent)
                yield file
                return
        finally:
            os.close(file)


def _lock(file: int, how: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if clock.monotonic() > until:
                raise TimeoutError(
                    f"another process has kept the mailbox locked for {_PATIENCE:g} s"
                ) from None
            clock.sleep(0.005)


def _is_there(file: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False
