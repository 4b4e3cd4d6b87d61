"""B8: how long it takes to go on with a very long session, from its checkpoint and by replaying all of it."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from bench.measuring import Figure, Goal, Spent, cost, interleaved, require, stopwatch
from bench.prepared import DONE, PreparedModel
from bench.scale import Scale
from interlock import Agent, Message, SQLiteStore, Text, ToolUse
from interlock.log.facts import (
    AssistantChunk,
    AssistantMessage,
    Fact,
    HistoryReplaced,
    RequestHeader,
    RequestSent,
    StepEnd,
    StepStart,
    ToolCalled,
    ToolResulted,
    ToolStarted,
    TurnEnd,
    TurnStart,
    UserMessage,
)
from interlock.log.messages import PERSON
from interlock.log.reasons import Completed
from interlock.log.session import Session, create_session
from interlock.models.protocol import Chunk

MESSAGES = 200  # of the history when the session is opened
_FILE = "\n".join(f"{n:>6}\tdef function_{n}(value: int) -> int: return value + {n}" for n in range(1, 9))
_COMPACTED = 1_000  # messages, of which a summary is made
_SPARE = 10 * MESSAGES  # events after the last compaction but one: enough for so many messages


class AskedModel(PreparedModel):
    """Notes when the request came."""

    def __init__(self) -> None:
        super().__init__([DONE])
        self.asked = asyncio.Event()

    async def stream(self, request: object, signal: object) -> AsyncIterator[Chunk]:
        self.asked.set()
        async for chunk in super().stream(request, signal):
            yield chunk


async def go_on(original: Path, session_id: str, *, checkpoint: bool) -> Spent:
    """From nothing to the next request."""
    file = original.with_name("copy.db")
    shutil.copyfile(original, file)
    if not checkpoint:
        with closing(sqlite3.connect(file)) as connection, connection:
            connection.execute("DELETE FROM checkpoint")
    model = AskedModel()
    with stopwatch() as watch:
        store = SQLiteStore(file)
        agent = Agent(model, store=store, session=session_id)
        await agent.open()
        kept = agent.session._kept
        agent.followup("Go on.")
        await model.asked.wait()
    await agent.idle()
    require((kept > 0) == checkpoint, "a checkpoint")
    require(agent.last_result is not None and agent.last_result.ok, "an answer")
    require(len(agent.session.history) == MESSAGES + 2, "the messages of the session")
    await agent.aclose()
    await store.close()
    for one in file.parent.glob(f"{file.name}*"):
        one.unlink()
    return watch.spent


def run(scale: Scale) -> list[Figure]:
    events = scale.old_events
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "interlock.db"
        session_id = asyncio.run(write(file, events))
        samples = interleaved(
            scale.starts,
            {
                "checkpoint": partial(go_on, file, session_id, checkpoint=True),
                "replay": partial(go_on, file, session_id, checkpoint=False),
            },
        )
        kept = _size(file)
    what = f"open a session of {events:,} events and {MESSAGES} messages, and send the next request"
    note = f"the checkpoint has {kept / 1e3:,.0f} KB"
    return [
        cost(
            "B8",
            f"{what}: from a checkpoint",
            "ms",
            samples["checkpoint"],
            scale=1e3,
            clock="wall",
            goal=Goal("<=", 300),
            note=note,
        ),
        cost("B8", f"{what}: full replay", "ms", samples["replay"], scale=1e3, clock="wall"),
    ]


def _size(file: Path) -> int:
    with closing(sqlite3.connect(file)) as connection:
        found: int = connection.execute("SELECT length(data) FROM checkpoint").fetchone()[0]
    return found


async def write(file: Path, events: int) -> str:
    """A session of so many events, of which this many messages are left; checkpoints come as they do in life."""
    async with SQLiteStore(file) as store:
        session = await create_session(store)
        session.append(TurnStart(1), StepStart(1, 1))
        session.append(UserMessage("m1", PERSON, "user", (Text("Find out where the values are computed."),)))
        session.append(RequestHeader("initial", "bench", "prepared", {}))
        number = 1
        for facts in _step(session, number):
            session.append(*facts)
        while session.head < events - _SPARE:
            number += 1
            session.append(StepStart(1, number))
            for facts in _step(session, number):
                session.append(*facts)
            if len(session.history) > _COMPACTED:
                _compact(session, keep=MESSAGES // 2)
            if number % 100 == 0:
                await session.barrier()
        _compact(session, keep=2)
        while session.head < events - 3:
            number += 1
            session.append(StepStart(1, number))
            for facts in _step(session, number):
                session.append(*facts)
        _compact(session, keep=MESSAGES - 1)
        session.append(TurnEnd(1, Completed(), number))
        await session.close()
        require(len(session.history) == MESSAGES and session.head >= events - 10, "a long session")
        return session.id


def _step(session: Session, number: int) -> Iterator[tuple[Fact, ...]]:
    """A request, its answer with one call, and its result. Each is appended before the next is made."""
    state = session.state
    assert state.step is not None
    step, history = state.step.seq, state.history
    yield (RequestSent(step, 1, state.header_seq, history.last, len(history), "0" * 32),)
    sent = session.head
    call = ToolUse(f"call_{number}", "read", f'{{"path": "src/module_{number}.py"}}')
    yield tuple([AssistantChunk(sent, "text", 0, word) for word in ("Now ", "I ", "look ", "at ", "it.")])
    yield (AssistantMessage(sent, (Text("Now I look at it."), call), "calls"),)
    yield (ToolCalled(1, number, 0, call.id, call.name, call.arguments, "read"),)
    called = session.head
    yield (ToolStarted(called, "0" * 32),)
    yield (ToolResulted(called, call.id, (Text(_FILE),)), StepEnd(1, number, "tools"))


def _compact(session: Session, keep: int) -> None:
    """Put a summary in the place of all messages but the last ones."""
    lines = session.history.parts()[1]
    if len(lines) > keep:
        summary = Message.context(f"So far {len(lines) - keep} messages were exchanged.")
        session.append(HistoryReplaced(lines[0], lines[-keep - 1], (summary,), "compaction", "bench"))
