"""What a transcript became, as tests look at it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from interlock import Event, Message
from interlock.bridges.transcripts import Imported
from interlock.bridges.transcripts.kept import Kept
from interlock.log.explaining import explain
from interlock.log.explanation import Explained
from interlock.log.facts import Fact
from interlock.log.session import Session
from interlock.log.stores.store import Store

F = TypeVar("F", bound=Fact)


class Written(Protocol):
    def save(self, folder: Path) -> Path: ...


@dataclass
class Log:
    """What a transcript became."""

    imported: Imported
    session: Session
    store: Store

    @property
    def events(self) -> list[Event]:
        return list(self.session.events)

    @property
    def history(self) -> list[Message]:
        return list(self.session.history.view())

    @property
    def told(self) -> list[str]:
        """The model's history, a line for each message: `user: words`."""
        return [f"{_who(one)}: {_words(one)}" for one in self.history]

    @property
    def calls(self) -> list[Explained]:
        return explain(self.events)

    @property
    def kept(self) -> list[tuple[str, Any]]:
        return [(fact.kind, fact.data) for fact in self.facts(Kept)]

    def facts(self, *types: type[F]) -> list[F]:
        return self.session.facts(*types)

    def first(self, type_: type[F]) -> F:
        return self.facts(type_)[0]


def _who(message: Message) -> str:
    return (
        message.role
        if message.source.kind in ("person", "agent", "tool")
        else f"{message.role} ({message.source.kind})"
    )


def _words(message: Message) -> str:
    calls = [f"{call.name}#{call.id}" for call in message.calls]
    return " ".join([*([message.text] if message.text else []), *calls])


Import = Callable[..., Awaitable[Log]]
