"""What was said so far, as a file that hooks can read.

Lives here: `Transcript`: the session's messages as compact JSON lines in the form of Claude Code's transcripts. It is
written from the log before hooks are run, so that it is never ahead of it and misses nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from interlock.bridges.hooks.dialects.tools import CLAUDE, encode_input
from interlock.log.event import Event
from interlock.log.facts import AssistantMessage, ToolResulted, UserMessage
from interlock.log.messages import Block, Reasoning, Text, ToolUse
from interlock.log.session import Session

_AT_ONCE = 500  # events between two breaths
_BLOCK = 1 << 14  # bytes of the end of a file


class Transcript:
    """The file of one session, in `folder`, which is made when it is needed; readable by its owner only."""

    def __init__(self, session: Session, folder: Path, cwd: Path) -> None:
        self.path = folder / "transcript.jsonl"
        self._session = session
        self._cwd = cwd
        self._next = -1  # the first event that is not in the file; -1: nobody has looked at the file yet
        self._parent: str | None = None
        self._writing = asyncio.Lock()

    async def update(self) -> None:
        """Bring the file up to the log. A later life goes on with it, if its last line is one that the log gives.

        Raises:
            OSError: it cannot be written.
        """
        async with self._writing:
            if self._next < 0 or not self.path.exists():  # somebody may have deleted it
                self._next = self._go_on()
            while self._next <= self._session.head:
                events = self._session.events[self._next : self._next + _AT_ONCE]
                self._append([line for event in events for line in self._lines(event)])
                if len(events) == _AT_ONCE:
                    await asyncio.sleep(0)

    def _go_on(self) -> int:
        """The first event that the file of an earlier life has not; 0 if it is to be made anew."""
        try:
            with os.fdopen(os.open(self.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                last = _last_line(file)
            known = json.loads(last)
            _, _, seq = known["uuid"].rpartition(".")
            event = self._session.events[int(seq)]
            self._parent = known["parentUuid"]
            if [_encoded(line) for line in self._lines(event)] == [last]:
                return event.seq + 1
        except (OSError, ValueError, KeyError, IndexError, TypeError, AttributeError):
            pass  # there is none, or something else
        self._parent = None
        return 0

    def _append(self, lines: list[dict[str, Any]]) -> None:
        first = self._next == 0
        self._next = min(self._next + _AT_ONCE, self._session.head + 1)
        if first:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        how = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if first else os.O_APPEND)
        with os.fdopen(os.open(self.path, how | os.O_NOFOLLOW, 0o600), "wb") as file:
            for line in lines:
                file.write(_encoded(line))

    def _lines(self, event: Event) -> Iterator[dict[str, Any]]:
        fact = event.fact
        match fact:
            case UserMessage(content=content, source=source):
                words = "\n".join([block.text for block in content if isinstance(block, Text)])
                meta = {} if source.kind == "person" else {"isMeta": True}
                yield self._line(event, "user", {"role": "user", "content": words}) | meta
            case AssistantMessage(blocks=blocks) if blocks:
                said = {"role": "assistant", "content": [self._block(block) for block in blocks]}
                yield self._line(event, "assistant", said)
            case ToolResulted(call_id=call_id, content=blocks, error=error):
                result = {
                    "type": "tool_result",
                    "tool_use_id": call_id,
                    "content": "\n".join([block.text for block in blocks]),
                } | ({"is_error": True} if error is not None else {})
                yield self._line(event, "user", {"role": "user", "content": [result]})
            case _:
                pass

    def _line(self, event: Event, kind: str, message: dict[str, Any]) -> dict[str, Any]:
        parent, self._parent = self._parent, f"{self._session.id}.{event.seq}"
        when = datetime.fromtimestamp(event.time / 1000, UTC)
        return {
            "parentUuid": parent,
            "isSidechain": False,
            "sessionId": self._session.id,
            "cwd": str(self._cwd),
            "type": kind,
            "message": message,
            "uuid": self._parent,
            "timestamp": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }

    def _block(self, block: Block) -> dict[str, Any]:
        match block:
            case Text(text=text):
                return {"type": "text", "text": text}
            case Reasoning(text=text):
                return {"type": "thinking", "thinking": text}
            case ToolUse(id=call_id, name=name, arguments=arguments):
                form = CLAUDE.get(name)
                given = encode_input(form, _object(arguments), self._cwd)
                named = name if form is None else form.name
                return {"type": "tool_use", "id": call_id, "name": named, "input": given}
            case _:
                return {"type": "text", "text": block.text}


def _encoded(line: dict[str, Any]) -> bytes:
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":"))
    # A model's JSON may escape a lone surrogate, which is no text.
    return text.encode(errors="replace") + b"\n"


def _last_line(file: BinaryIO) -> bytes:
    """With its line feed, if it has one; of a very long file, only its end is read."""
    size, block = file.seek(0, os.SEEK_END), _BLOCK
    while True:
        file.seek(max(size - block, 0))
        end = file.read()
        before = end.rfind(b"\n", 0, -1)
        if before >= 0 or block >= size:
            return end[before + 1 :]
        block *= 4


def _object(text: str) -> dict[str, Any]:
    """The arguments as the model wrote them; nothing where that is no object."""
    try:
        value = json.loads(text) if text.strip() else {}
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
