"""What can be sent to a session without driving it: letters, and their exact form in a mailbox.

Lives here: `Send`, `Cancel` and `Answer`, the `Content` of a letter, and how it is written and read. A store keeps
letters as bytes and knows nothing of what they say; whoever drives the session reads them, and trusts nothing in them.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias, assert_never

import msgspec

from interlock.errors import MessageTooLarge
from interlock.log.facts import ListName
from interlock.log.messages import Message
from interlock.log.reasons import Cause
from interlock.log.strictjson import MAX_INTEGER, NotJSON, freeze

MAX_LETTER = 8 << 20  # bytes: a message has 1 MiB of text at most, which JSON can make six times as long

Kind: TypeAlias = Literal["send", "cancel", "answer", "unreadable"]


class Send(msgspec.Struct, frozen=True, tag_field="kind", tag="send", forbid_unknown_fields=True):
    """A message for one of the queues."""

    list: ListName
    message: Message
    wake: bool


class Cancel(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="cancel",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """Stop. turn: this one, and none that comes later; None: whatever there is."""

    cause: Cause
    turn: int | None = None
    keep_inbox: bool = False
    grace_ms: int | None = None

    def __post_init__(self) -> None:
        if self.grace_ms is not None and not 0 <= self.grace_ms <= MAX_INTEGER:
            raise ValueError("grace_ms is no number of milliseconds from 0")


class Answer(
    msgspec.Struct,
    frozen=True,
    tag_field="kind",
    tag="answer",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """The answer to an approval. digest: of what the answerer saw. The others are as of `approval/decided`."""

    approval_id: str
    outcome: Literal["allowed-once", "rejected"]
    digest: str | None = None
    message: str | None = None
    how: Literal["tty", "token", "api", "acp", "hook"] | None = None
    channel: str | None = None
    edited: Any = None
    remember: Literal["session", "always"] | None = None
    rule: str | None = None

    def __post_init__(self) -> None:
        if self.edited is not None:
            if not isinstance(self.edited, dict):
                raise ValueError("edited is no JSON object")
            msgspec.structs.force_setattr(self, "edited", freeze(self.edited))


What: TypeAlias = Send | Cancel | Answer


def kind_of(what: What) -> Kind:
    match what:
        case Send():
            return "send"
        case Cancel():
            return "cancel"
        case Answer():
            return "answer"
        case _:
            assert_never(what)


class Content(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a letter says, and who sent it."""

    what: What
    by: str | None = None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Content).decode


def written(content: Content) -> bytes:
    """The bytes that a mailbox keeps.

    Raises:
        MessageTooLarge: more than a letter may have. NotJSON: something in it could not be read back.
    """
    try:
        data = _encode(content)
        _decode(data)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError) as error:
        raise NotJSON(str(error)) from None
    if len(data) > MAX_LETTER:
        raise MessageTooLarge(len(data), MAX_LETTER)
    return data


def read(data: bytes) -> Content:
    """
    Raises:
        ValueError: it is no letter that can be read here; the text says why.
    """
    if len(data) > MAX_LETTER:
        raise ValueError(f"it has {len(data):,} bytes, the bound is {MAX_LETTER:,}")
    try:
        return _decode(data)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
