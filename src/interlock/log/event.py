"""One line of the log: the envelope around a fact, and its exact form as JSON.

Lives here: `Event`, `encode_event` and `decode_event`. Position and time live here and not in facts, so that tests
compare bare facts. The stored keys are seq, type, time, life, causes, ignorable and data; a tombstone has `erased` in the
place of data.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from interlock.errors import UnknownFact, UnreadableLog
from interlock.log.facts import AssistantChunk, Erased, Fact, Span, Unknown, fact_class, plugin_of


class Event(msgspec.Struct, frozen=True, gc=False):
    """One line of the log."""

    seq: int  # contiguous from 0
    time: int  # Unix epoch, milliseconds
    life: int  # which opening of the session wrote it, from 1
    fact: Fact
    causes: tuple[Span, ...] = ()  # earlier seqs that this one rests on: single, or (first, last)
    ignorable: bool = False

    @property
    def type(self) -> str:
        fact = self.fact
        return fact.stored_type if type(fact) is Unknown or type(fact) is Erased else fact.type


class Envelope(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An event as it is stored: `data` is the fact's own JSON."""

    seq: int
    type: str
    time: int
    life: int
    data: msgspec.Raw
    causes: tuple[Span, ...] = ()
    ignorable: bool = False


class Tombstone(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """An event as it is stored when its content was erased."""

    seq: int
    type: str
    time: int
    life: int
    erased: Literal[True]
    causes: tuple[Span, ...] = ()
    ignorable: bool = False


_encoder = msgspec.json.Encoder()
_envelope_decoder = msgspec.json.Decoder(Envelope)
_tombstone_decoder = msgspec.json.Decoder(Tombstone)
_fact_decoders: dict[type[Fact], msgspec.json.Decoder[Any]] = {}

encode_json = _encoder.encode
decode_json = msgspec.json.Decoder().decode


def encode_fact(fact: Fact) -> bytes:
    """The fact's own JSON, the `data` of its line; nothing, of a tombstone."""
    if type(fact) is Erased:
        return b""
    return _encoder.encode(fact.data if type(fact) is Unknown else fact)


def decode_fact(type_: str, data: bytes | msgspec.Raw, *, seq: int, ignorable: bool = False) -> Fact:
    """The fact of a stored line.

    Raises:
        UnknownFact: the type is not registered and the line may not be skipped.
        UnreadableLog: the data does not fit the type: an unknown field, a wrong type, a missing one.
    """
    if not data:
        return Erased(type_)  # whatever it was, there is nothing of it to be misread
    cls = fact_class(type_)
    if cls is None:
        if not ignorable:
            raise UnknownFact(type_, seq, plugin_of(type_))
        return Unknown(type_, decode_json(data))
    decoder = _fact_decoders.get(cls)
    if decoder is None:
        decoder = _fact_decoders[cls] = msgspec.json.Decoder(cls)
    try:
        made: Fact = decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise UnreadableLog(seq, f"{type_}: {error}") from None
    return made


def encode_event(event: Event) -> bytes:
    """One line of JSON, without a newline."""
    if type(event.fact) is Erased:
        return _encoder.encode(
            Tombstone(event.seq, event.type, event.time, event.life, True, event.causes, event.ignorable)
        )
    try:
        data = encode_fact(event.fact)
    except UnicodeEncodeError:
        if type(event.fact) is not AssistantChunk:
            raise
        data = _with_half_a_pair(event.fact)
    return _encoder.encode(
        Envelope(
            event.seq,
            event.type,
            event.time,
            event.life,
            msgspec.Raw(data),
            event.causes,
            event.ignorable,
        )
    )


def decode_event(line: bytes | str) -> Event:
    """The event of one line.

    Raises:
        UnknownFact: a type that is not known and not ignorable.
        UnreadableLog: not an event.
    """
    try:
        stored = _envelope_decoder.decode(line)
    except msgspec.MsgspecError as error:
        if (made := _tombstone(line) or _half_a_pair(line)) is not None:
            return made
        raise UnreadableLog(-1, str(error)) from None
    fact = decode_fact(stored.type, stored.data, seq=stored.seq, ignorable=stored.ignorable)
    return Event(stored.seq, stored.time, stored.life, fact, stored.causes, stored.ignorable)


def _tombstone(line: bytes | str) -> Event | None:
    """The event of a line that was erased, None if it is none."""
    try:
        stored = _tombstone_decoder.decode(line)
    except msgspec.MsgspecError:
        return None
    return Event(stored.seq, stored.time, stored.life, Erased(stored.type), stored.causes, stored.ignorable)


# A model may stream half of a surrogate pair, and JSON can say so with an escape; msgspec neither writes nor reads it.


class _Chunk(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    seq: int
    type: Literal["assistant/chunk"]
    time: int
    life: int
    data: AssistantChunk
    causes: tuple[Span, ...] = ()
    ignorable: bool = False


def _with_half_a_pair(chunk: AssistantChunk) -> bytes:
    encode_fact(msgspec.structs.replace(chunk, text=""))  # what else it holds has to be JSON
    return json.dumps(msgspec.to_builtins(chunk), separators=(",", ":")).encode()


def _half_a_pair(line: bytes | str) -> Event | None:
    """The event of a line that only msgspec cannot read, None if it is none."""
    try:
        made = msgspec.convert(json.loads(line), _Chunk)
    except (ValueError, msgspec.MsgspecError):
        return None
    return Event(made.seq, made.time, made.life, made.data, made.causes, made.ignorable)
