"""Sessions full of words that can be looked for afterwards, in everything that a store has on a disk."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

from interlock import Agent, Approved, Ask, ToolCall, ToolContext, tool
from interlock.log.mail import Content, Send, written
from interlock.log.messages import Message
from interlock.log.stores.store import Store
from interlock.testing import ScriptedModel, call, calls, says
from postgres_server import PostgresServer


def word() -> str:
    """A word that nothing else has."""
    return f"canary{secrets.token_hex(6)}"


@tool(effect="read")
async def look(at: str, times: int, context: ToolContext) -> str:
    """Looks."""
    return f"{at} was seen. " * times


async def sung(store: Store, folder: Path, canary: str, *, turns: int = 1, shared: str = "") -> str:
    """A session that has the word in all of its places; its id.

    Prompt and title, folder, answers, arguments, small results and big ones, reasons, and a letter that waits.

    shared: begins another big result, that another session may have as well.
    """
    cwd = folder / f"{canary}-cwd"
    cwd.mkdir(parents=True)
    answers = []
    for turn in range(turns):
        answers += [
            calls(
                call("look", at=f"{canary}-argument", times=1 + turn),
                call("look", at=f"{canary}-artifact-{turn}", times=3000),
                *([call("look", at=shared, times=3000)] if shared else []),
            ),
            says(f"I have seen the {canary}-answer."),
        ]
    async with Agent(
        ScriptedModel(*answers), tools=[look], store=store, cwd=cwd, name=f"{canary}-agent"
    ) as agent:
        for _ in range(turns):
            await agent.run(f"{canary}-prompt, please")
        session_id = agent.session.id
    sent = Send("next-turn", Message.user(f"{canary}-letter", id="l1"), True)
    await store.post(session_id, written(Content(sent, f"{canary}-sender")), time=5)
    return session_id


async def answered(store: Store, canary: str, by: str) -> str:
    """A session in which `by` has allowed a call, and been asked about the word; its id."""
    model = ScriptedModel(calls(call("look", at=canary, times=1)), says("done"))
    async with Agent(model, tools=[look], store=store) as agent:

        @agent.on.pre_execute
        async def ask(call: ToolCall) -> Ask:
            return Ask(f"is {canary} all right?")

        async def allow(request: object) -> Approved:
            return Approved(principal=by)

        agent.approvals.add(allow)
        await agent.run("Look")
        return agent.session.id


def raw_files(store: Store, postgres: PostgresServer | None = None) -> Iterator[tuple[str, bytes]]:
    """All that the store has on a disk, file by file."""
    for name in ("path", "folder"):
        place = getattr(store, name, None)
        if place is not None:
            for file in sorted(Path(place).parent.rglob("*") if name == "path" else Path(place).rglob("*")):
                if file.is_file():
                    yield str(file), file.read_bytes()
    if postgres is not None:
        postgres.query("CHECKPOINT")
        for file in sorted((postgres.data / "base").rglob("*")):
            if file.is_file():
                yield str(file), file.read_bytes()


def places_of(canary: str, store: Store, postgres: PostgresServer | None = None) -> list[str]:
    """The files that have the word."""
    return [name for name, data in raw_files(store, postgres) if canary.encode() in data.lower()]
