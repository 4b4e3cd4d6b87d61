"""Chunks to a message: the fold of one attempt's stream.

Lives here: `Assembly`. The live loop and the repair after a crash use the same one, so that what was shown is what is
kept. Blocks come in order of first appearance; deltas of one block may be spread over the stream.
"""

from __future__ import annotations

from typing import Any

import msgspec

from interlock.log.facts import AssistantChunk, Usage
from interlock.log.messages import Block, Reasoning, Text, ToolUse


class _Open(msgspec.Struct):
    kind: str
    pieces: list[str] = msgspec.field(default_factory=list)
    id: str | None = None
    name: str = ""
    signature: str | None = None


class Assembly(msgspec.Struct):
    """The blocks of one attempt so far. `add` is constant work a chunk."""

    finish: str | None = None
    usage: Usage | None = None
    _blocks: dict[tuple[str, int], _Open] = msgspec.field(default_factory=dict)
    _last_key: tuple[str, int] | None = None
    _last: _Open | None = None

    def add(self, chunk: AssistantChunk) -> None:
        """Take one chunk. Whatever follows the finish is ignored, usage apart (some servers send it last)."""
        kind = chunk.kind
        if kind == "usage":
            self.usage = Usage(**chunk.value)
            return
        if self.finish is not None:
            return
        if kind == "finish":
            self.finish = chunk.value["reason"]
            return
        key = (kind, chunk.block)
        if key == self._last_key:
            block = self._last
            assert block is not None
        else:
            block = self._blocks.get(key) or self._blocks.setdefault(key, _Open(kind))
            self._last_key, self._last = key, block
        if chunk.text:
            block.pieces.append(chunk.text)
        if chunk.value is not None:
            self._note(block, chunk.value)

    @staticmethod
    def _note(block: _Open, value: dict[str, Any]) -> None:
        if value.get("id") and block.id is None:
            block.id = value["id"]
        if value.get("name") and not block.name:
            block.name = value["name"]
        if value.get("signature"):
            block.signature = value["signature"]

    def blocks(self) -> tuple[Block, ...]:
        """Everything, as the model gave it: ids may be missing (empty) or repeated."""
        made: list[Block] = []
        for block in self._blocks.values():
            text = "".join(block.pieces)
            if block.kind == "text":
                if text:
                    made.append(Text(text))
            elif block.kind == "reasoning":
                if text or block.signature:
                    made.append(Reasoning(text, block.signature))
            else:
                made.append(ToolUse(block.id or "", block.name, text))
        return tuple(made)

    def visible(self) -> tuple[Block, ...]:
        """The prefix that a person has seen: text and reasoning that is not only white space, without replay data."""
        made: list[Block] = []
        for block in self.blocks():
            if isinstance(block, Text) and not block.text.isspace():
                made.append(block)
            elif isinstance(block, Reasoning) and block.text and not block.text.isspace():
                made.append(Reasoning(block.text))
        return tuple(made)


def name_calls(blocks: tuple[Block, ...], turn: int, step: int) -> tuple[tuple[Block, ...], dict[str, str]]:
    """Give every call an id of its own within the message.

    A repeated id becomes `<id>-2` or the next free one, a missing one `call-<turn>-<step>-<index>`.

    Returns:
        The blocks, and the renames as {new id: the id the model gave}.
    """
    ids = [block.id for block in blocks if type(block) is ToolUse]
    taken = set(ids)
    if len(taken) == len(ids) and "" not in taken:
        return blocks, {}
    seen: set[str] = set()
    renamed: dict[str, str] = {}
    made: list[Block] = []
    index = 0
    for block in blocks:
        if isinstance(block, ToolUse):
            wanted = block.id or f"call-{turn}-{step}-{index}"
            given, n = wanted, 2
            while given in seen or (given in taken and given != block.id):
                given = f"{wanted}-{n}"
                n += 1
            seen.add(given)
            if given != block.id:
                renamed[given] = block.id
                block = ToolUse(given, block.name, block.arguments)
            index += 1
        made.append(block)
    return tuple(made), renamed
