"""A whole session as one file, to be carried from one store to another.

Lives here: `exported`, the lines of the file, and `is_export` / `import_export`. A line is an event as JSON, with its
big texts in it; what is exported again after an import is the same to the byte. A file of `JSONLStore` can be imported
as well: the texts that it keeps beside it are put back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

import msgspec

from interlock.errors import DuplicateSession, SessionError
from interlock.log.event import Envelope, Event, encode_event
from interlock.log.facts import SessionCreated
from interlock.log.laws import check
from interlock.log.session import check_format
from interlock.log.stores.jsonl_file import event_in
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


def is_export(file: IO[bytes]) -> bool:
    """Whether a file begins like the log of a session. Its position is left where it was."""
    at = file.tell()
    try:
        first = msgspec.json.decode(file.readline(1 << 20), type=Envelope)
    except msgspec.MsgspecError:
        return False
    finally:
        file.seek(at)
    return first.type == SessionCreated.type


async def import_export(file: IO[bytes], *, store: Store, path: Path) -> Transferred:
    """Make a session of what `exported` has written, under the id that it had.

    Args:
        path: where the file is: for messages, and for the texts beside it.

    Raises:
        UnknownFact, UnreadableLog, SessionError: there is something wrong in it, and where; nothing was imported.
        DuplicateSession: the store has a session of this id.
        StoreFailed: it could not be written.
    """
    events = [event_in(line.removesuffix(b"\n"), seq, path) for seq, line in enumerate(file)]
    if not events:
        raise SessionError(f"There is no line in {path}. Nothing was imported.")
    for breach in check(events):
        where = f"Line {breach.seq + 1} of {path}"
        raise SessionError(f"{where} breaks the law [{breach.law}]: {breach.problem}. Nothing was imported.")
    created = events[0].fact
    assert isinstance(created, SessionCreated)  # a law
    check_format(created)
    journal = await _empty(store, created.session_id)
    try:
        journal.write(events)  # as one: a store with transactions has all of them or none
    finally:
        await journal.close()
    return Transferred(created.session_id, len(events))


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
