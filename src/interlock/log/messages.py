"""What is said: messages and their blocks, neutral of any provider.

Lives here: `Message`, its blocks and its `Source`. A message is immutable; strings are accepted wherever a person's
message is. Imports `strictjson` only.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from interlock.log.strictjson import NotJSON, check_text


class Source(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """Who said it. Only `person` is drawn as a person's words; everything else is context."""

    kind: Literal["person", "hook", "tool", "plugin", "agent", "runtime"]
    name: str = ""


PERSON = Source("person")
MODEL = Source("agent", "model")


class Text(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="text", forbid_unknown_fields=True):
    """A piece of text."""

    text: str


class Reasoning(
    msgspec.Struct,
    frozen=True,
    tag_field="type",
    tag="reasoning",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """What the model thought before it answered, where its provider shows that."""

    text: str
    signature: str | None = None  # a provider's replay data, if it wants the block back


class ToolUse(
    msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="call", forbid_unknown_fields=True
):
    """The model asks for a tool. `arguments` is its own text, kept as it wrote it: it may be invalid."""

    id: str
    name: str
    arguments: str


class ToolOutcome(
    msgspec.Struct,
    frozen=True,
    gc=False,
    tag_field="type",
    tag="result",
    forbid_unknown_fields=True,
    omit_defaults=True,
):
    """What the model reads of one call's result."""

    call_id: str
    content: tuple[Text, ...]
    error: str | None = None  # the code, if it failed

    @property
    def text(self) -> str:
        return "\n".join([block.text for block in self.content])


Block: TypeAlias = Text | Reasoning | ToolUse | ToolOutcome
Role: TypeAlias = Literal["user", "system", "assistant", "tool"]


class Message(
    msgspec.Struct, frozen=True, gc=False, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One message. `id` is empty until a session accepts it."""

    role: Role
    content: tuple[Block, ...]
    id: str = ""
    source: Source = PERSON

    @classmethod
    def user(cls, text: str, *, id: str = "", source: Source = PERSON) -> Message:  # noqa: A002  # the field's name
        """A message of a person, or of whoever `source` names."""
        return cls(role="user", content=(Text(text),), id=id, source=source)

    @classmethod
    def context(
        cls, text: str, *, source: Source | None = None, role: Literal["user", "system"] = "system"
    ) -> Message:
        """Something the model should know that no person said."""
        return cls(role=role, content=(Text(text),), source=source or Source("plugin"))

    @property
    def text(self) -> str:
        """All that is readable in it: text and results, in order, one block a line."""
        return "\n".join([block.text for block in self.content if isinstance(block, (Text, ToolOutcome))])

    @property
    def calls(self) -> tuple[ToolUse, ...]:
        return tuple([block for block in self.content if isinstance(block, ToolUse)])

    @property
    def size(self) -> int:
        """Bytes of text, in UTF-8."""
        return sum(len(block.text.encode()) for block in self.content if isinstance(block, (Text, Reasoning)))


def as_message(message: str | Message, source: Source | None = None) -> Message:
    """A person's message from a string or a `Message`, checked: an immutable copy that the log can hold.

    Raises:
        NotJSON: it is not text of valid Unicode, has no content, or is not of role user or system.
    """
    if isinstance(message, str):
        message = Message(role="user", content=(Text(check_text(message)),), source=source or PERSON)
        return message if source is None else _copied(message)
    if type(message) is not Message:
        raise NotJSON(f"a message is a str or an interlock.Message, not {type(message).__name__}")
    if source is not None and message.source == PERSON:
        message = msgspec.structs.replace(message, source=source)
    message = _copied(message)
    if message.role not in ("user", "system"):
        raise NotJSON(f"only user and system messages can be sent, not {message.role!r}")
    if not message.content:
        raise NotJSON("a message needs at least one block of content")
    for i, block in enumerate(message.content):
        if type(block) is not Text:
            raise NotJSON(f"only text can be sent, not {type(block).__name__}", f"$.content[{i}]")
    return message


_decode = msgspec.json.Decoder(Message).decode


def _copied(message: Message) -> Message:
    """A copy as it would be read back. Structs do not check what they are made of; reading does."""
    try:
        return _decode(msgspec.json.encode(message))
    except UnicodeEncodeError:
        raise NotJSON("invalid Unicode: a lone surrogate") from None
    except (msgspec.MsgspecError, TypeError) as error:
        raise NotJSON(str(error)) from None
