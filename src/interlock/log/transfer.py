"""A whole session as one file, to be carried from one store to another.

Lives here: `exported`, the lines of the file, `export_name`, its name among others, `is_export` /
`import_export`, and `is_imported`. A line is an event as JSON, with its big texts in it; what is exported again after an import is the
same to the byte. A file of `JSONLStore` can be imported as well: the texts that it keeps beside it are put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Literal

import msgspec

from interlock.errors import DuplicateSession, SessionError
from interlock.log.event import Event, encode_event
from interlock.log.facts import ContentErased, SessionCreated, SessionOpened, Stamp
from interlock.log.laws import check
from interlock.log.session import check_format
from interlock.log.stores.jsonl.file import SUFFIX, event_in, file_name
from interlock.log.stores.store import Journal, Store


class Transferred(msgspec.Struct, frozen=True):
    """What was imported."""

    session_id: str
    events: int


def exported(events: Iterable[Event]) -> Iterator[bytes]:
    """The lines of the file, each with its line feed.

    Raises:
        UnknownFact, UnreadableLog: a line that cannot be read here.
    """
    for event in events:
        yield encode_event(event) + b"\n"


def export_name(session_id: str) -> str:
    """What the file of a session is called where there are several: its id, as `JSONLStore` writes it.

    Raises:
        SessionError: no file can be named so.
    """
    name = file_name(session_id)
    if name is None:
        raise SessionError("no file can be named after it; export it by itself, with --output.")
    return name + SUFFIX


def is_export(file: IO[bytes]) -> bool:
    """Whether a file begins like the log of a session. Its position is left where it was."""
    at = file.tell()
    try:
        first = msgspec.json.decode(file.readline(1 << 20), type=_Beginning)
    except msgspec.MsgspecError:
        return False
    finally:
        file.seek(at)
    return first.type == SessionCreated.type and (first.data is not None or first.erased)


class _Beginning(msgspec.Struct):
    """What is looked at of a first line, which may be a tombstone."""

    seq: Literal[0]
    type: str
    time: int
    data: dict[str, object] | None = None
    erased: bool = False


async def import_export(file: IO[bytes], *, store: Store, path: Path) -> Transferred:
    """Make a session of what `exported` has written, under the id that it had.

    Args:
        path: where the file is: for messages, and for the texts beside it.

    Raises:
        UnknownFact, UnreadableLog, SessionError: there is something wrong in it, and where; nothing was imported.
        DuplicateSession: the store has a session of this id.
        StoreFailed: it could not be written.
    """
    events = _events_in(file, path)
    if not events:
        raise SessionError(f"There is no line in {path}. Nothing was imported.")
    for breach in check(events):
        where = f"Line {breach.seq + 1} of {path}"
        raise SessionError(f"{where} breaks the law [{breach.law}]: {breach.problem}. Nothing was imported.")
    named = events[-1].fact
    if not isinstance(named, ContentErased):  # else nothing but that line tells the id
        named = events[0].fact
        assert isinstance(named, SessionCreated)  # a law
        check_format(named)
    journal = await _empty(store, named.session_id)
    try:
        if taken := _letters_taken(events):  # first: a letter to the session must not get such a number again
            await journal.forget_letters(taken)
        journal.write(events)  # as one: a store with transactions has all of them or none
    finally:
        await journal.close()
    return Transferred(named.session_id, len(events))


async def is_imported(file: IO[bytes], *, session_id: str, store: Store, path: Path) -> bool:
    """Whether the session that the store has begins with the lines of the file: an earlier import has made it.

    Raises:
        UnknownFact, UnreadableLog, SessionError: one of the two cannot be read.
    """
    events = _events_in(file, path)
    journal = await store.open(session_id, readonly=True)
    try:
        return list(journal.read(0, len(events) - 1)) == events
    finally:
        await journal.close()


def _events_in(file: IO[bytes], path: Path) -> list[Event]:
    return [event_in(line.removesuffix(b"\n"), seq, path) for seq, line in enumerate(file)]


def _letters_taken(events: Iterable[Event]) -> int:
    """The number of the last letter that was taken; of those of a fork, not of its parent."""
    number = 0
    for event in events:
        if isinstance(event.fact, SessionOpened) and event.fact.how == "fork":
            number = 0
        elif isinstance(stamp := getattr(event.fact, "letter", None), Stamp):
            number = stamp.number
    return number


async def _empty(store: Store, session_id: str) -> Journal:
    """A journal without lines; also one that an earlier import has made, and not come to write."""
    try:
        return await store.create(session_id)
    except DuplicateSession:
        journal = await store.open(session_id)
        if journal.head >= 0:
            await journal.close()
            raise
        return journal
