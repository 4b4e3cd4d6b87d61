"""Conversations in the form of OpenAI's chat completions.

Lives here: `ChatReader`, told one message after the other, and `conversations`, which finds them in a file: an array
of messages, an object with `messages` and `tools`, a line for each conversation (as fine-tuning has them), or a line
for each message. The form has no times and says of no call whether it succeeded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from interlock.bridges.transcripts.assembling import Assembler
from interlock.bridges.transcripts.kept import storable
from interlock.bridges.transcripts.lines import Line
from interlock.bridges.transcripts.outcomes import RAN
from interlock.bridges.transcripts.reading import About, Malformed, picture, required, words
from interlock.bridges.transcripts.tools import Asked, as_text
from interlock.log.facts import Section, ToolSpec
from interlock.log.messages import Reasoning, Source, Text

PROGRAM = "OpenAI chat"
_SELF = Source("plugin", "openai-chat")


class ChatReader:
    """One conversation. A line is a message, or an object that holds them."""

    program: ClassVar[str] = PROGRAM

    def __init__(self, to: Assembler, modified: int) -> None:
        self.about = About(started=modified)
        self._to = to
        self._now = modified
        self._said = 0  # messages
        self._loose: list[tuple[str, str]] = []  # calls without an id, and without a result: id, name

    def take(self, line: Line) -> None:
        value = line.value
        if isinstance(value, dict) and "messages" in value:
            self._whole(value)
        elif isinstance(value, list):
            self._messages(value)
        else:
            self._message(value)

    def over(self) -> None:
        self._to.over()

    def _whole(self, value: dict[str, Any]) -> None:
        messages = value["messages"]
        if not isinstance(messages, list):
            raise Malformed("'messages' is no array")
        self._to.model = words(value.get("model")) or self._to.model
        tools = value.get("tools") or value.get("functions")
        self._to.tools = tuple([self._tool(tool) for tool in tools]) if isinstance(tools, list) else ()
        for name in sorted(value.keys() - {"messages", "model", "tools", "functions"}):
            self._to.skip(f"field {name}")
        self._messages(messages)

    def _messages(self, messages: list[Any]) -> None:
        if not messages:
            raise Malformed("there is no message in it")
        for message in messages:
            self._message(message)

    def _tool(self, tool: object) -> ToolSpec:
        inside = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(inside, dict) or words(inside.get("name")) is None:
            raise Malformed("a tool has no name")
        schema = storable(inside.get("parameters") or {})
        description = self._to.text(inside.get("description") or "").text
        return ToolSpec(self._to.text(inside["name"]).text, description, schema)

    def _message(self, message: object) -> None:
        self._said += 1
        if not isinstance(message, dict):
            raise Malformed(f"message {self._said} is no JSON object")
        match message.get("role"):
            case "system" | "developer":
                self._instructions(message)
            case "user":
                self._to.prompt(self._texts(message.get("content")), self._now)
            case "assistant":
                self._answer(message)
            case "tool" | "function":
                self._result(message)
            case role:
                raise Malformed(f"message {self._said} has the role {role!r}")

    def _instructions(self, message: dict[str, Any]) -> None:
        texts = self._texts(message.get("content"))
        if self._said == len(self._to.system) + 1:  # nothing but instructions so far
            name = "system" if not self._to.system else f"system {self._said}"
            self._to.system += (Section(name, "".join([text.text for text in texts])),)
        else:
            self._to.prompt(texts, self._now, source=_SELF, role="system")

    def _answer(self, message: dict[str, Any]) -> None:
        key = str(self._said)
        self._to.answered(key, self._now)
        for name in ("reasoning_content", "reasoning"):
            if isinstance(message.get(name), str) and message[name]:
                self._to.said(key, Reasoning(self._to.text(message[name]).text), self._now)
                break
        for text in [*self._texts(message.get("content")), *self._texts(message.get("refusal"))]:
            self._to.said(key, text, self._now)
        calls = message.get("tool_calls") or []
        if not isinstance(calls, list):
            raise Malformed(f"'tool_calls' of message {self._said} is no array")
        if message.get("function_call") is not None:
            calls = [*calls, {"function": message["function_call"]}]
        self._loose = []
        for index, call in enumerate(calls):
            self._call(key, index, call)

    def _call(self, key: str, index: int, call: object) -> None:
        if not isinstance(call, dict):
            raise Malformed(f"a call of message {self._said} is no JSON object")
        inside = call.get("function") or call.get("custom")
        if not isinstance(inside, dict):
            raise Malformed(f"a call of message {self._said} has no 'function'")
        name = str(required(inside, "name", f"a call of message {self._said}"))
        given = inside.get("arguments", inside.get("input"))
        call_id = words(call.get("id"))
        if call_id is None:
            call_id = f"call-{key}-{index}"
            self._loose.append((call_id, name))
        asked = Asked(name, as_text("" if given is None else given))
        self._to.called(key, call_id, asked, self._now)

    def _result(self, message: dict[str, Any]) -> None:
        call_id = words(message.get("tool_call_id"))
        if call_id is None:  # the form of before: by name
            name = message.get("name")
            found = next((one for one in self._loose if name is None or one[1] == name), None)
            if found is not None:
                self._loose.remove(found)
                call_id = found[0]
        if not self._to.resulted(call_id or "", self._texts(message.get("content")), RAN, self._now):
            self._to.skip("result without a call (kept)")
            self._to.keep("result without a call", message)

    def _texts(self, content: object) -> list[Text]:
        if content is None:
            return []
        if isinstance(content, str):
            return [self._to.text(content)] if content else []
        if not isinstance(content, list):
            raise Malformed(f"the content of message {self._said} is neither text nor an array")
        made = []
        for part in content:
            inside = part if isinstance(part, dict) else {"type": "text", "text": str(part)}
            text = inside.get("text", inside.get("refusal"))
            if isinstance(text, str):
                made.append(self._to.text(text))
            else:
                kind = str(inside.get("type")).removesuffix("_url").removeprefix("input_")
                held = inside.get("image_url", inside.get("input_audio", inside.get("file")))
                url = held.get("url", held.get("data")) if isinstance(held, dict) else held
                made.append(Text(picture(self._to, kind, part, url)))
        return [text for text in made if text.text]


def is_message(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def is_conversation(value: object) -> bool:
    """A whole conversation in one value."""
    if isinstance(value, dict):
        return isinstance(value.get("messages"), list)
    return isinstance(value, list) and bool(value) and is_message(value[0])


def are_conversations(value: object) -> bool:
    """An array of whole conversations."""
    return isinstance(value, list) and bool(value) and all(is_conversation(one) for one in value)


def conversations(lines: Iterator[Line]) -> Iterator[Iterator[Line]]:
    """The conversations in the lines of a file; each is to be read to its end before the next."""
    for line in lines:
        yield iter((line,)) if is_conversation(line.value) else _rest(line, lines)


def _rest(first: Line, others: Iterator[Line]) -> Iterator[Line]:
    yield first
    yield from others
