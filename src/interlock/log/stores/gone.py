"""Sessions that may go, and what went of one.

Lives here: `Standing`, by which is decided, and `Gone`, by which is told. Neither holds anything of what was said.
"""

from __future__ import annotations

import msgspec


class Standing(msgspec.Struct, frozen=True):
    """Where a session stands, found without reading its log."""

    id: str
    head: int  # seq of its last line
    updated: int  # epoch ms of its last line
    bytes: int  # about, with those of its artifacts
    open: bool = False  # a turn is
    asks: int = 0  # questions that nobody has answered
    letters: int = 0  # that wait in its mailbox
    above: tuple[
        str, ...
    ] = ()  # whose fork it is, and whose that is, the nearest first; unless it was erased
    erased: bool = False
    broken: bool = False  # a line of it cannot be read

    @property
    def parent(self) -> str | None:
        """Whose fork it is."""
        return self.above[0] if self.above else None


class Gone(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went of a session: of an erased one all that its lines held, of a removed one the lines as well."""

    session: str
    events: int = 0  # lines that held something
    bytes: int = 0  # of what they held, without artifacts
    artifacts: tuple[str, ...] = ()  # SHA-256 of the big texts that were deleted
    kept: tuple[str, ...] = ()  # and of those that other sessions hold as well
    passages: int = 0  # rows of the search index
    letters: int = 0
    questions: int = 0  # that were open
    checkpoint: bool = False


class _Created(msgspec.Struct):
    """What is looked at of a `session/created`, whatever version has written it."""

    parent: _Parent | None = None


class _Parent(msgspec.Struct):
    session: str
    above: tuple[str, ...] = ()


_decode = msgspec.json.Decoder(_Created).decode


def above_in(created: bytes | msgspec.Raw) -> tuple[str, ...]:
    """Whose fork a session is, by the data of its first line; nobody's where that cannot be read."""
    try:
        parent = _decode(created).parent
    except msgspec.MsgspecError:
        return ()
    return (parent.session, *parent.above) if parent is not None else ()
