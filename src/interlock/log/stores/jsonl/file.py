"""The file of one session: a line of JSON for each event, and an index beside it that can be made anew.

Lives here: `Known` (what is known of the beginning of a file, and how the rest is learnt), the index that keeps it,
and how lines are read. What comes after the last line feed was cut by a crash: readers leave it alone, the next
writer cuts it off.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

import msgspec

from interlock.errors import UnreadableLog
from interlock.log.artifacts import DataPath, put_back
from interlock.log.event import Envelope, Event, decode_event, decode_fact
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    CancelRequested,
    ContentErased,
    InboxSpliced,
    MailTaken,
    SessionCreated,
    SessionOpened,
    Stamp,
    UserMessage,
)
from interlock.log.stores.listing import About

SUFFIX = ".jsonl"
MARK = 128  # lines from one known place in a file to the next

_BLOCK = 1 << 18  # bytes read at once, at most
_LONGEST = 200  # bytes of a file's name; systems allow 255
_ASKS = (ApprovalAsked.type, ApprovalDecided.type)
_TAKES = (InboxSpliced.type, CancelRequested.type, MailTaken.type)
_WHOLE = (SessionOpened.type, ContentErased.type)  # they are about the session as a whole
_STAMP = b'"letter":'
_TELLS = (SessionCreated.type, UserMessage.type, InboxSpliced.type)


class StoredLine(Envelope, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A line as it stands in a file: an event as it is exported, unless big texts were taken out of it."""

    artifacts: tuple[DataPath, ...] = ()  # where in data a reference stands for a text


decode_line = msgspec.json.Decoder(StoredLine).decode
encode_line = msgspec.json.Encoder().encode


def file_name(session_id: str) -> str | None:
    """The name of a session's file without its suffix, None when there can be none of it."""
    try:
        name = quote(session_id, safe="")
    except UnicodeEncodeError:
        return None
    if name.startswith("."):
        name = "%2E" + name[1:]
    return name if 0 < len(name) <= _LONGEST else None


def session_of(name: str) -> str | None:
    """The session whose file has this name, None when it is no session's."""
    stem = name.removesuffix(SUFFIX)
    session_id = unquote(stem)
    return session_id if stem != name and file_name(session_id) == stem else None


def artifact_path(folder: Path, digest: str) -> Path:
    return folder / "artifacts" / digest


def event_in(line: bytes, seq: int, path: Path) -> Event:
    """The event of one line, with its big texts put back.

    Args:
        seq: what the line has to be numbered.
        path: the file, beside whose folder `artifacts` is looked for.

    Raises:
        UnknownFact: a type that is not known and not ignorable.
        UnreadableLog: it cannot be read; file and line are named.
    """
    try:
        stored = decode_line(line)
    except msgspec.MsgspecError:
        event = _other_event(line, seq, path)
    else:
        try:
            fact = decode_fact(stored.type, _data(stored, path), seq=seq, ignorable=stored.ignorable)
        except UnreadableLog as error:
            raise unreadable(seq, error.problem, path) from None
        event = Event(stored.seq, stored.time, stored.life, fact, stored.causes, stored.ignorable)
    if event.seq != seq:
        raise unreadable(seq, f"it is numbered {event.seq}", path)
    return event


def _other_event(line: bytes, seq: int, path: Path) -> Event:
    """The event of a line that is not as others are."""
    try:
        return decode_event(line)
    except UnreadableLog as error:
        raise unreadable(seq, error.problem, path) from None


def unreadable(seq: int, problem: str, path: Path) -> UnreadableLog:
    return UnreadableLog(seq, f"{problem} (line {seq + 1} of {path})")


def _data(line: StoredLine, path: Path) -> bytes | msgspec.Raw:
    if not line.artifacts:
        return line.data

    def fetch(digest: str) -> bytes:
        try:
            return artifact_path(path.parent, digest).read_bytes()
        except OSError as error:
            raise UnreadableLog(line.seq, f"its artifact {digest} is missing: {error.strerror}") from None

    try:
        return put_back(bytes(line.data), line.artifacts, fetch)
    except (KeyError, IndexError, TypeError, ValueError, msgspec.MsgspecError):
        raise UnreadableLog(line.seq, "its artifacts are not where it says") from None


class Known(msgspec.Struct):
    """What is known of the beginning of a file. It is also what an index holds."""

    size: int = 0  # bytes, up to a line feed
    lines: int = 0
    last: int = 0  # where the last of them begins
    created: int = 0  # epoch ms
    updated: int = 0  # epoch ms, of the last line
    about: About = msgspec.field(default_factory=About)
    asked: dict[str, int] = msgspec.field(default_factory=dict)  # open approvals: the seqs of the questions
    letter: int = 0  # the number of the last letter that was taken
    erased: int | None = None  # epoch ms: when the content of the lines was erased
    marks: list[int] = msgspec.field(default_factory=list)  # where every MARK-th line begins

    def learn(self, line: bytes, path: Path) -> None:
        """Take the next line, without its line feed.

        Raises:
            UnreadableLog: it is not the next line of a log, and was not taken.
        """
        seq = self.lines
        try:
            stored = decode_line(line)
        except msgspec.MsgspecError:
            time = event_in(line, seq, path).time
        else:
            if stored.seq != seq:
                raise unreadable(seq, f"it is numbered {stored.seq}", path)
            time = stored.time
            if (
                stored.type in _ASKS
                or (self.about.title is None and stored.type in _TELLS)
                or (stored.type in _TAKES and _STAMP in line)
                or stored.type in _WHOLE
            ):
                self._learn_fact(event_in(line, seq, path))
        if seq == 0:
            self.created = time
        if seq % MARK == 0:
            self.marks.append(self.size)
        self.updated, self.last = time, self.size
        self.size += len(line) + 1
        self.lines += 1

    def _learn_fact(self, event: Event) -> None:
        stamp = getattr(event.fact, "letter", None)
        if isinstance(stamp, Stamp):
            self.letter = stamp.number
        match event.fact:
            case ContentErased():
                self.erased = event.time
            case SessionOpened(how="fork"):
                self.letter = 0
            case ApprovalAsked(approval_id=id_):
                self.asked[id_] = event.seq
            case ApprovalDecided(approval_id=id_):
                self.asked.pop(id_, None)
            case fact:
                self.about = self.about.learn(fact)

    def learn_rest(self, file: int, path: Path) -> None:
        """Take all whole lines of an open file that are not known yet.

        Raises:
            UnreadableLog: one of them is broken; those before it were taken.
        """
        at, rest = self.size, b""
        while block := os.pread(file, _BLOCK, at):
            at += len(block)
            *lines, rest = (rest + block).split(b"\n")
            for line in lines:
                self.learn(line, path)


def read_lines(file: int, known: Known, first: int, last: int, path: Path) -> Iterator[bytes]:
    """Lines `first` to `last` (inclusive) of an open file, all of them known, without their line feeds."""
    seq, at = first - first % MARK, known.marks[first // MARK]
    rest, size = b"", 1 << 13
    while seq <= last:
        block = os.pread(file, size, at)
        if not block:
            raise unreadable(seq, "it is missing", path)
        at += len(block)
        size = min(2 * size, _BLOCK)
        *lines, rest = (rest + block).split(b"\n")
        yield from lines[max(first - seq, 0) : last + 1 - seq]
        seq += len(lines)


# The index


def index_path(path: Path) -> Path:
    return path.parent / "index" / f"{path.stem}.json"


_decode_index = msgspec.json.Decoder(Known).decode


def indexed(file: int, path: Path) -> Known:
    """What the index knows of an open file; nothing, when there is none that fits it."""
    try:
        known = _decode_index(index_path(path).read_bytes())
        end = os.pread(file, known.size - known.last, known.last)
        if end.endswith(b"\n") and end.count(b"\n") == 1 and len(known.marks) == -(-known.lines // MARK):
            event = event_in(end[:-1], known.lines - 1, path)
            if event.time == known.updated:
                return known
    except Exception:  # noqa: BLE001, S110  # whatever is wrong with it, it can be made anew from the file
        pass
    return Known()


def save_index(known: Known, path: Path) -> None:
    """Keep what is known for those who come later. That it cannot be kept does no harm."""
    put_beside(index_path(path), encode_line(known))


def put_beside(path: Path, data: bytes) -> None:
    """Put a file into the folder of the index, as a whole. That it cannot be done does no harm."""
    made = path.with_name(f".{path.name}.{os.getpid()}")
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        with open(made, "wb", opener=private) as file:
            file.write(data)
        os.replace(made, path)


def private(path: str, flags: int) -> int:
    """An opener of files that only their owner may read."""
    return os.open(path, flags, 0o600)
