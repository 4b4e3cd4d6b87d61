"""The two queues of an agent: what was sent and no step has taken.

Lives here: `Inbox`, its verbs over the log. The queues themselves are a fold of the log; a message is the model's only
once a step has admitted it. Both are bounded, and what is refused changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from interlock.errors import (
    DuplicateMessage,
    InboxFull,
    InvalidMessage,
    MessageTooLarge,
    UsageError,
)
from interlock.log.facts import Fact, InboxSpliced, ListName, Stamp
from interlock.log.messages import Message, Source, as_message
from interlock.log.session import Session
from interlock.log.strictjson import NotJSON

MAX_PENDING = 256  # messages in both queues
MAX_BYTES = 1 << 20  # text of one message, UTF-8
_CONTEXT_ID = re.compile(r"x\d+\.\d+|s\d+\.\d+\.\d+")  # given to contexts, which pass no queue


class Inbox:
    """What is pending, and its changes: `replace`, `remove`, `clear`. Sending is the agent's."""

    def __init__(
        self, session: Session, ready: Callable[[str], None], tell: Callable[[str, Message], None]
    ) -> None:
        """
        Args:
            ready: raises if the named verb cannot be used now. tell: hears of each message inserted or discarded.
        """
        self._session = session
        self._ready = ready
        self._tell = tell

    @property
    def next_turn(self) -> tuple[Message, ...]:
        return tuple([waiting.message for waiting in self._session.state.queues.next_turn])

    @property
    def next_step(self) -> tuple[Message, ...]:
        return tuple([waiting.message for waiting in self._session.state.queues.next_step])

    @property
    def reserved(self) -> tuple[Message, ...]:
        """Claimed by a proposal that has not been decided yet."""
        return tuple([waiting.message for waiting in self._session.state.queues.reserved.values()])

    def __len__(self) -> int:
        return len(self._session.state.queues)

    def insert(
        self,
        message: Message,
        to: ListName,
        *,
        wake: bool,
        by: str | None = None,
        letter: Stamp | None = None,
    ) -> Message:
        """Put a message at the end of a queue; the message with its id.

        Raises:
            DuplicateMessage, InboxFull: nothing was changed.
        """
        queues = self._session.state.queues
        if len(queues) >= MAX_PENDING:
            raise InboxFull(MAX_PENDING)
        message = self._identified(self._session.redacted(message))
        at = len(queues.of(to))
        self._session.append(InboxSpliced(to, at, inserted=(message,), wake=wake, by=by, letter=letter))
        self._tell("inserted", message)
        return message

    def _identified(self, message: Message) -> Message:
        queues = self._session.state.queues
        if message.id:
            if queues.holds(message.id):
                raise DuplicateMessage(message.id)
            return message
        made = f"m{self._session.head + 1}"
        while queues.holds(made):
            made += "x"
        return msgspec.structs.replace(message, id=made)

    def replace(self, message_id: str, message: str | Message) -> bool:
        """Put another message in its place; it keeps the id unless it has one of its own. False: not pending.

        Raises:
            InboxError: the new message is not valid, or its id is pending elsewhere.
        """
        self._ready("inbox.replace")
        queues = self._session.state.queues
        found = queues.find(message_id)
        if found is None:
            return False
        new = self._session.redacted(checked(message))
        if not new.id:
            new = msgspec.structs.replace(new, id=message_id)
        elif new.id != message_id and queues.holds(new.id):
            raise DuplicateMessage(new.id)
        name, at = found
        old = queues.of(name)[at]
        self._session.append(InboxSpliced(_list(name), at, removed=1, inserted=(new,), wake=old.wake))
        self._tell("discarded", old.message)
        self._tell("inserted", new)
        return True

    def remove(self, message_id: str) -> bool:
        """Take a pending message out. False: not pending, it may have been claimed."""
        self._ready("inbox.remove")
        found = self._session.state.queues.find(message_id)
        if found is None:
            return False
        name, at = found
        message = self._session.state.queues.of(name)[at].message
        self._session.append(InboxSpliced(_list(name), at, removed=1, outcome="canceled"))
        self._tell("discarded", message)
        return True

    def splice(self, to: ListName, start: int, remove: int = 0, *messages: str | Message) -> None:
        """Change a queue as an array: negative `start` counts from the end, both are clamped. No change, no line.

        Raises:
            InboxError: a message is not valid, pending already, or too many are pending.
            UsageError: no such queue.
        """
        self._ready("inbox.splice")
        if to not in ("next-turn", "next-step"):
            raise UsageError(f'the queues are "next-turn" and "next-step", not {to!r}')
        queue = self._session.state.queues.of(to)
        start = max(len(queue) + start, 0) if start < 0 else min(start, len(queue))
        remove = max(0, min(remove, len(queue) - start))
        made: list[Message] = []
        for message in messages:
            new = self._session.redacted(checked(message))
            if not new.id:
                new = msgspec.structs.replace(new, id=f"m{self._session.head + 1}.{len(made)}")
            if self._session.state.queues.holds(new.id) or any(new.id == other.id for other in made):
                raise DuplicateMessage(new.id)
            made.append(new)
        if len(self) - remove + len(made) > MAX_PENDING:
            raise InboxFull(MAX_PENDING)
        if not remove and not made:
            return
        removed = [waiting.message for waiting in queue[start : start + remove]]
        discarding = remove > 0 and not made
        self._session.append(InboxSpliced(to, start, remove, tuple(made), "canceled" if discarding else None))
        for message in removed:
            self._tell("discarded", message)
        for message in made:
            self._tell("inserted", message)

    def clear(self) -> None:
        """Discard everything that is pending, next-step before next-turn."""
        self._ready("inbox.clear")
        discarded = self.next_step + self.next_turn
        facts = self.clearing()
        if facts:
            self._session.append(*facts)
            for message in discarded:
                self._tell("discarded", message)

    def clearing(self) -> list[Fact]:
        """The splices that discard everything, next-step before next-turn."""
        queues = self._session.state.queues
        facts: list[Fact] = []
        if queues.next_step:
            facts.append(InboxSpliced("next-step", 0, removed=len(queues.next_step), outcome="canceled"))
        if queues.next_turn:
            facts.append(InboxSpliced("next-turn", 0, removed=len(queues.next_turn), outcome="canceled"))
        return facts


def _list(name: str) -> ListName:
    return "next-turn" if name == "next-turn" else "next-step"


def checked(message: str | Message, source: Source | None = None) -> Message:
    """A message that can be sent.

    Raises:
        InvalidMessage: not text of valid Unicode, or an id that is not the caller's to give. MessageTooLarge: more than 1 MiB of it.
    """
    try:
        made = as_message(message, source)
    except NotJSON as error:
        raise InvalidMessage(str(error)) from None
    if _CONTEXT_ID.fullmatch(made.id):
        raise InvalidMessage(f"ids like {made.id!r} are given to contexts: leave it out, or choose another")
    size = made.size
    if size > MAX_BYTES:
        raise MessageTooLarge(size, MAX_BYTES)
    return made
