"""What was said in a log, line by line: what a search looks through.

Lives here: `Passage` and `passages`. It is what became part of the conversation: prompts and contexts, answers, calls
with their arguments, results, and the messages that stand for others. What a model thought and did not say, what was
never admitted, and the system prompt are no part of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from interlock.log.event import Event
from interlock.log.facts import (
    AssistantMessage,
    Fact,
    HistoryReplaced,
    SubcallEnd,
    SubcallStart,
    ToolCalled,
    ToolResulted,
    TurnStart,
    UserMessage,
)
from interlock.log.messages import Block, Text
from interlock.log.stores.query import Place

#: The facts that `passages` looks at.
SAYING: tuple[type[Fact], ...] = (
    TurnStart,
    UserMessage,
    AssistantMessage,
    ToolCalled,
    ToolResulted,
    SubcallStart,
    SubcallEnd,
    HistoryReplaced,
)


class Passage(NamedTuple):
    """One line that says something."""

    seq: int
    turn: int
    place: Place
    tool: str | None
    time: int  # epoch ms
    text: str


def passages(
    events: Iterable[Event], *, turn: int = 0, tools: dict[int, str] | None = None
) -> Iterator[Passage]:
    """What these lines say, in order.

    Args:
        turn: the one that was open, or the last one, before the first line.
        tools: the names of the tools of its calls, by call.
    """
    tools = tools if tools is not None else {}
    for event in events:
        fact = event.fact
        tool: str | None = None
        place: Place
        match fact:
            case UserMessage():
                person = fact.source.kind == "person" and fact.place == "prompt"
                place, text = "prompt" if person else "context", _text(fact.content)
            case AssistantMessage():
                place, text = "answer", _text(fact.blocks)
            case ToolCalled():
                place, text = "call", f"{fact.name}\n{_arguments(fact.arguments)}"
                tool = tools[event.seq] = fact.name
            case SubcallStart():
                place, text = "call", f"{fact.name}\n{_plain(fact.arguments)}"
                tool = tools[event.seq] = fact.name
            case ToolResulted():
                place, text, tool = "result", _text(fact.content), tools.get(fact.call)
            case SubcallEnd():
                place, text, tool = "result", _text(fact.content), tools.get(fact.start)
            case HistoryReplaced():
                place, text = "summary", "\n".join([message.text for message in fact.messages])
            case TurnStart():
                turn = fact.turn
                tools.clear()
                continue
            case _:
                continue
        yield Passage(event.seq, turn, place, tool, event.time, text)


def _text(content: Iterable[Block]) -> str:
    return "\n".join([block.text for block in content if isinstance(block, Text)])


def _arguments(text: str) -> str:
    """What the model's own text says; as it is, where it is no JSON."""
    try:
        return _plain(msgspec.json.decode(text))
    except (msgspec.MsgspecError, RecursionError):
        return text


def _plain(value: object) -> str:
    """All names and values in a JSON value, one a line."""
    match value:
        case dict():
            return "\n".join([f"{name}: {_plain(one)}" for name, one in value.items()])
        case list() | tuple():
            return "\n".join([_plain(one) for one in value])
        case str():
            return value
        case _:
            return str(value)
