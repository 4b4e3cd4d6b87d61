"""What a chat completions server is told: the body of a request, from the neutral one.

Lives here: `BodyWriter` and the rendering of one message. Rendered messages are kept as JSON bytes for as long as the
history lives, so that a request costs what is new in it; the rest is copied. No I/O, and no import of any SDK.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Any
from weakref import WeakKeyDictionary

import msgspec

from interlock.log.facts import Section, ToolSpec
from interlock.log.history import Messages, Row
from interlock.log.messages import Message, Reasoning, Source, Text, ToolOutcome, ToolUse
from interlock.models.protocol import ModelRequest

_END = re.compile("</(?=context)", re.IGNORECASE)
_encode = msgspec.json.encode
_object = msgspec.json.Decoder(dict[str, Any])


class BodyWriter:
    """Writes bodies; one an adapter.

    system_mid: the server takes the system role in mid-conversation.
    ceiling: its name for the output ceiling, `max_completion_tokens` or `max_tokens`.
    """

    def __init__(self, *, system_mid: bool, ceiling: str) -> None:
        self._system_mid = system_mid
        self._ceiling = ceiling
        # A row of a history only grows, and is another one when the history was rewritten.
        self._rendered: WeakKeyDictionary[Row, list[bytes]] = WeakKeyDictionary()
        self._tools: tuple[tuple[ToolSpec, ...], bytes] = ((), b"")

    def body(self, request: ModelRequest) -> bytes:
        """The JSON of a streaming request, usage included. Settings that are not known here pass through."""
        settings = {key: value for key, value in request.settings.items() if key not in ("messages", "tools")}
        if "max_output_tokens" in settings:
            settings[self._ceiling] = settings.pop("max_output_tokens")
        settings |= {"model": request.model, "stream": True, "stream_options": {"include_usage": True}}
        system = [_system(request.system)] if request.system else []
        messages = b",".join([*system, *filter(None, self._entries(request.messages))])
        tools = [b',"tools":', self._tool_list(request.tools)] if request.tools else []
        return b"".join([_encode(settings)[:-1], b',"messages":[', messages, b"]", *tools, b"}"])

    def _entries(self, messages: Sequence[Message]) -> list[bytes]:
        if not isinstance(messages, Messages):
            return [render(message, system_mid=self._system_mid) for message in messages]
        entries = self._rendered.setdefault(messages.row, [])
        for message in messages.row[len(entries) : len(messages)]:
            entries.append(render(message, system_mid=self._system_mid))
        return entries[: len(messages)]

    def _tool_list(self, tools: tuple[ToolSpec, ...]) -> bytes:
        if self._tools[0] != tools:
            rendered = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.schema,
                    },
                }
                for tool in tools
            ]
            self._tools = (tools, _encode(rendered))
        return self._tools[1]


def _system(sections: tuple[Section, ...]) -> bytes:
    return _encode({"role": "system", "content": "\n\n".join([section.text for section in sections])})


def render(message: Message, *, system_mid: bool) -> bytes:
    """One message as JSON; several objects with commas between for several results; empty if nothing is left of it."""
    match message.role:
        case "assistant":
            return _assistant(message)
        case "tool":
            return b",".join(
                [
                    _encode({"role": "tool", "tool_call_id": block.call_id, "content": block.text})
                    for block in message.content
                    if isinstance(block, ToolOutcome)
                ]
            )
        case "system" if system_mid:
            return _encode({"role": "system", "content": message.text})
        case "user" if message.source.kind == "person":
            return _encode({"role": "user", "content": message.text})
        case _:
            return _encode({"role": "user", "content": envelope(message.text, message.source)})


def envelope(text: str, source: Source) -> str:
    """Text that no person said, marked as such; what is in it cannot end the mark."""
    name = f"{source.kind}:{source.name}" if source.name else source.kind
    inside = _END.sub(r"<\\/", text)
    return f'<context source="{escape(name)}">\n{inside}\n</context>'


def _assistant(message: Message) -> bytes:
    texts = [block.text for block in message.content if isinstance(block, Text)]
    signed = [block.text for block in message.content if isinstance(block, Reasoning) and block.signature]
    calls = [
        {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": _arguments(block)}}
        for block in message.content
        if isinstance(block, ToolUse)
    ]
    if not texts and not calls:
        return b""
    entry: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) if texts else None}
    if signed:
        entry["reasoning_content"] = "\n".join(signed)
    if calls:
        entry["tool_calls"] = calls
    return _encode(entry)


def _arguments(use: ToolUse) -> str:
    """The model's own text if it is a JSON object.

    Servers that write the history through a chat template parse it, and would refuse this and every later request
    for one bad text; so that text is quoted inside an object. The result that follows says what was wrong with it.
    """
    if not use.arguments.strip():
        return "{}"
    try:
        _object.decode(use.arguments)
    except msgspec.DecodeError:
        return _encode({"invalid_arguments": use.arguments}).decode()
    return use.arguments
