"""A conversation that is written as another program writes it, and imported, says the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings

from interlock import MemoryStore, Text, ToolOutcome, open_session
from interlock.bridges.transcripts import import_transcript
from interlock.log.explaining import explain
from interlock.testing import assert_laws

from .conversations import Conversation, as_chat, as_claude, as_codex, conversations, expected

FORMS = [as_claude, as_codex, as_chat]


async def _imported(path: Path) -> tuple[list[tuple[object, ...]], list[str]]:
    """The messages that came of it, and what became of each call."""
    store = MemoryStore()
    made = await import_transcript(path, store=store)
    session = await open_session(made.session_id, store=store, readonly=True)
    assert_laws(session)
    assert made.lossy == {}
    told: list[tuple[object, ...]] = []
    for message in session.history.view():
        texts = tuple(block.text for block in message.content if isinstance(block, Text))
        if message.role == "tool":
            told += [
                ("tool", one.call_id, one.text) for one in message.content if isinstance(one, ToolOutcome)
            ]
        elif message.role == "assistant":
            calls = [(call.id, call.name, json.loads(call.arguments)) for call in message.calls]
            told.append(("assistant", texts, calls))
        else:
            told.append((message.role, *texts))
    return told, [call.fate for call in explain(session.events)]


@pytest.mark.parametrize("form", FORMS)
@settings(deadline=None)
@given(conversation=conversations)
def test_the_same_messages_and_calls(
    form: Callable[[Conversation, Path], Path], conversation: Conversation
) -> None:
    with TemporaryDirectory() as folder:
        told, fates = asyncio.run(_imported(form(conversation, Path(folder))))
    assert told == expected(conversation)
    assert set(fates) <= {"ran"}
