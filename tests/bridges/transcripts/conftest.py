"""Importing, with every law held against what comes of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interlock import open_session
from interlock.bridges.transcripts import Format, import_transcript
from interlock.log.stores.memory.store import MemoryStore
from interlock.testing import assert_laws

from .imports import Import, Log, Written


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Import a transcript into a store of its own: `await imported(transcript)`, or the path of a file."""

    async def run(transcript: Written | Path, format: Format | None = None) -> Log:  # noqa: A002
        path = _file(transcript, tmp_path)
        store = MemoryStore()
        made = await import_transcript(path, store=store, format=format)
        session = await open_session(made.session_id, store=store, readonly=True)
        assert_laws(session)
        assert not session.open
        assert len(session.events) == made.events
        return Log(made, session, store)

    return run


def _file(transcript: Written | Path, folder: Path) -> Path:
    return transcript if isinstance(transcript, Path) else transcript.save(folder)
