"""What became of every message that was sent to a session."""

from __future__ import annotations

from collections.abc import Iterable

from interlock.log.event import Event
from interlock.log.facts import InboxDropped, InboxSpliced, UserMessage
from interlock.log.state import State


def fates(events: Iterable[Event]) -> dict[str, list[str]]:
    """The fates of each message, by id: one each, if all is well. Ids must not be sent twice.

    A fate is admitted, rejected, omitted, canceled, failed, replaced, or pending at the end of the log.
    """
    state = State()
    found: dict[str, list[str]] = {}
    for event in events:
        match event.fact:
            case InboxSpliced() as fact:
                gone = state.queues.of(fact.list)[fact.start : fact.start + fact.removed]
                for waiting in gone:
                    found[waiting.id].append(fact.outcome or "replaced")
                for message in fact.inserted:
                    found.setdefault(message.id, [])
            case UserMessage(claim=claim, id=message_id) if claim is not None:
                found[message_id].append("admitted")
            case InboxDropped(ids=ids, outcome=outcome):
                for message_id in ids:
                    found[message_id].append(outcome)
            case _:
                pass
        state.apply(event)
    queues = state.queues
    for waiting in (*queues.next_step, *queues.next_turn, *queues.reserved.values()):
        found[waiting.id].append("pending")
    return found
