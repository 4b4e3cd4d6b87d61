"""Taking what a session holds out of its files, or deleting them, so that the folder has forgotten it.

Lives here: `erase` and `remove`, in the thread of whoever has the session's file locked; `standing`, by which it is
decided; `erased_as`, which line says that it was done; and `tidy`, which deletes what a crash has left. The file of an
erased session takes the place of the one before in one go: whoever crashes has erased it or has not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from interlock.errors import UnknownSession, UnreadableLog
from interlock.log.event import Event, Tombstone, encode_event
from interlock.log.facts import ContentErased, Erased, TurnEnd, TurnStart
from interlock.log.stores.gone import Gone, Standing, above_in
from interlock.log.stores.jsonl.artifacts import artifacts_of, collect, sync_folder
from interlock.log.stores.jsonl.checkpoint import checkpoint_path
from interlock.log.stores.jsonl.file import (
    MARK,
    SUFFIX,
    Known,
    decode_line,
    encode_line,
    event_in,
    index_path,
    indexed,
    private,
    read_lines,
)
from interlock.log.stores.jsonl.mail import FOLDER, closed_mailbox, letters
from interlock.log.stores.jsonl.writer import LineFile

_TAIL = 1 << 14  # bytes in which the line that says who erased a session has its place
_TURN = b'"turn/'
_PART = re.compile(r"\..+\.(\d+)")  # a file that was to get another name when it was whole, and whose it is


def erase(old: LineFile, erasure: ContentErased, now: int) -> tuple[LineFile, Gone]:
    """Put tombstones in the place of the lines; the file from now on. Of an erased one, only what lies beside it goes.

    Raises:
        UnknownSession: it has no line.
        OSError: it could not be done; erase again.
    """
    path, known = old.path, old.known
    if known.lines == 0:
        raise UnknownSession(erasure.session_id)
    new, gone, big = old, Gone(erasure.session_id), set[str]()
    checkpoint = checkpoint_path(path).exists()
    _drop_beside(path)
    if known.erased is None:
        big = artifacts_of(path)
        gone, left = _tombstones(old)
        new = _put_in_place(old, [*left, encode_event(Event(known.lines, now, _life(left), erasure))])
    with closed_mailbox(path) as mailbox:
        mailbox.delete()
    artifacts = collect(path.parent, big) if big else []
    return new, msgspec.structs.replace(
        gone,
        session=erasure.session_id,
        artifacts=tuple(artifacts),
        kept=tuple(sorted(big.difference(artifacts))),
        letters=mailbox.letters,
        questions=len(known.asked),
        checkpoint=checkpoint,
    )


def remove(old: LineFile, session_id: str, head: int) -> Gone | None:
    """Delete the file, if it still ends with this line and nobody has written to the session since.

    Raises:
        OSError: it could not be done; remove again.
    """
    path, known = old.path, old.known
    if known.lines - 1 != head:
        return None
    checkpoint = checkpoint_path(path).exists()
    big = artifacts_of(path)
    with closed_mailbox(path) as mailbox:  # nobody can post meanwhile
        if mailbox.letters:
            return None
        path.unlink()
        sync_folder(path.parent)
        mailbox.delete()
    _drop_beside(path)
    artifacts = collect(path.parent, big) if big else []
    return Gone(
        session_id,
        known.lines,
        known.size,
        tuple(artifacts),
        tuple(sorted(big.difference(artifacts))),
        questions=len(known.asked),
        checkpoint=checkpoint,
    )


def standing(session_id: str, path: Path) -> Standing | None:
    """Where a session stands; None when it has no line.

    Raises:
        FileNotFoundError: it has gone meanwhile.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        known, broken = indexed(file, path), False
        try:
            known.learn_rest(file, path)
        except UnreadableLog:
            broken = True
        if known.lines == 0:
            return None
        turn = _last_turn(file, known, path)
        (first,) = read_lines(file, known, 0, 0, path)
    finally:
        os.close(file)
    return Standing(
        session_id,
        known.lines - 1,
        known.updated,
        known.size,
        turn == TurnStart.type,
        len(known.asked),
        len(letters(path, 0)),
        _above(first),
        known.erased is not None,
        broken,
    )


def erased_as(path: Path) -> Event | None:
    """The line that says who erased a session, if that is the last one of its file. It reads only the end.

    Raises:
        FileNotFoundError: there is no such session.
    """
    with open(path, "rb") as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(end - _TAIL, 0))
        lines = file.read().rsplit(b"\n", 2)
    line = lines[-2] if len(lines) > 1 else b""
    with suppress(msgspec.MsgspecError):
        stored = decode_line(line)
        if stored.type == ContentErased.type:
            return event_in(line, stored.seq, path)
    return None


def tidy(folder: Path) -> list[str]:
    """Delete what nothing refers to, and what a crash has left; the digests of the artifacts among it.

    Raises:
        OSError: something cannot be deleted.
    """
    sessions = {name for name in os.listdir(folder) if name.endswith(SUFFIX) and not name.startswith(".")}
    for name in _names(folder / "index"):
        path = folder / "index" / name
        session = folder / f"{path.stem}{SUFFIX}"
        if session.name not in sessions or (path == index_path(session) and not _fits(session)):
            path.unlink(missing_ok=True)
    for name in _names(folder / FOLDER):
        if name.endswith(SUFFIX) and not name.startswith(".") and _is_gone(folder / name):
            (folder / FOLDER / name).unlink(missing_ok=True)
    for inner in (folder, folder / "index", folder / FOLDER, folder / "artifacts"):
        for name in _names(inner):
            if (part := _PART.fullmatch(name)) is not None and not _alive(int(part[1])):
                (inner / name).unlink(missing_ok=True)
    return collect(folder)


def size(folder: Path) -> int:
    """What all files of the store measure."""
    found = 0
    for inner in (folder, folder / "index", folder / FOLDER, folder / "artifacts"):
        for name in _names(inner):
            with suppress(FileNotFoundError):
                path = inner / name
                found += path.stat().st_size if path.is_file() else 0
    return found


def _tombstones(old: LineFile) -> tuple[Gone, list[bytes]]:
    """What goes, and what is left of each line."""
    left: list[bytes] = []
    events = size = 0
    for seq, line in enumerate(read_lines(old.descriptor, old.known, 0, old.known.lines - 1, old.path)):
        try:
            stored = decode_line(line)
        except msgspec.MsgspecError:  # a chunk with half a character, or a tombstone
            event = event_in(line, seq, old.path)
            held = type(event.fact) is not Erased
            left.append(encode_event(msgspec.structs.replace(event, fact=Erased(event.type))))
            events, size = events + held, size + held * len(line)
            continue
        tombstone = Tombstone(
            seq, stored.type, stored.time, stored.life, True, stored.causes, stored.ignorable
        )
        left.append(encode_line(tombstone))
        events, size = events + 1, size + len(bytes(stored.data))
    return Gone("", events, size), left


def _life(left: list[bytes]) -> int:
    return msgspec.json.decode(left[-1], type=Tombstone).life


def _put_in_place(old: LineFile, lines: list[bytes]) -> LineFile:
    """A file with these lines, locked, under the name of the old one, which is let go of."""
    path = old.path
    made = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with open(made, "wb", opener=private) as file:
            file.write(b"\n".join([*lines, b""]))
            file.flush()
            os.fsync(file.fileno())
        new = LineFile.open(made)
        try:
            os.replace(made, path)
        except BaseException:
            new.abandon()
            raise
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)
    old.abandon()
    new.path = path
    return new


def _drop_beside(path: Path) -> None:
    """Delete what can be made anew."""
    index_path(path).unlink(missing_ok=True)
    checkpoint_path(path).unlink(missing_ok=True)


def _last_turn(file: int, known: Known, path: Path) -> str | None:
    """The type of the last line that begins or ends a turn."""
    for last in range(known.lines - 1, -1, -MARK):
        first = max(last - MARK + 1, 0)
        found = [
            type_
            for seq, line in enumerate(read_lines(file, known, first, last, path), first)
            if _TURN in line and (type_ := _type(line, seq, path)) in (TurnStart.type, TurnEnd.type)
        ]
        if found:
            return found[-1]
    return None


def _type(line: bytes, seq: int, path: Path) -> str:
    try:
        return decode_line(line).type
    except msgspec.MsgspecError:  # half a character is in it
        return event_in(line, seq, path).type


def _above(first: bytes) -> tuple[str, ...]:
    try:
        return above_in(decode_line(first).data)
    except msgspec.MsgspecError:  # a tombstone
        return ()


def _is_gone(session: Path) -> bool:
    """Whether nobody will ever read what was sent to a session."""
    try:
        return erased_as(session) is not None
    except FileNotFoundError:
        return True


def _fits(session: Path) -> bool:
    """Whether the index of a session is that of its lines."""
    file = os.open(session, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return indexed(file, session).lines > 0
    finally:
        os.close(file)


def _names(folder: Path) -> Iterator[str]:
    with suppress(FileNotFoundError):
        yield from sorted(os.listdir(folder))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it is somebody else's, and there
    return True
