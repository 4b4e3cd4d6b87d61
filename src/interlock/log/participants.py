"""Who took part in a session: the principals that a log names.

Lives here: `participants`. Whoever sent, stopped, answered, granted, took back or chose a preset is one; what listeners,
rules and hooks have said is said by no person. Who gave no id is nobody that could be looked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from interlock.log.facts import (
    ApprovalDecided,
    ApprovalLate,
    CancelRequested,
    Fact,
    GrantRevoked,
    InboxDropped,
    InboxSpliced,
    MailTaken,
    PolicyChanged,
    TurnEnd,
    UserMessage,
)
from interlock.log.mail import Answer, Cancel, Content, Send
from interlock.log.messages import Source
from interlock.log.reasons import Aborted, Cause

_ITSELF = "agent"  # whose preset it is that nobody has chosen
_PEOPLE = ("user", "caller")  # the causes of a stop that somebody has asked for


def participants(facts: Iterable[Fact]) -> set[str]:
    """The ids of all that are named."""
    return {who for fact in facts for who in _named(fact) if who}


def senders(content: Content) -> set[str]:
    """The ids that a letter names, which nobody has taken yet."""
    found = {content.by}
    match content.what:
        case Send(message=message):
            found.add(_person(message.source))
        case Cancel(cause=cause):
            found.add(_of_cause(cause))
        case Answer():
            pass
    return {who for who in found if who}


def _named(fact: Fact) -> Iterator[str | None]:
    match fact:
        case InboxSpliced(by=by, inserted=messages):
            yield by
            yield from [_person(message.source) for message in messages]
        case InboxDropped(messages=messages):
            yield from [_person(message.source) for message in messages]
        case UserMessage(source=source):
            yield _person(source)
        case CancelRequested(cause=cause) | TurnEnd(reason=Aborted(cause=cause)):
            yield _of_cause(cause)
        case ApprovalDecided(by=by, how=how, outcome="allowed-once" | "rejected"):
            yield by if how != "hook" else None
        case ApprovalLate(by=by) | GrantRevoked(by=by) | MailTaken(by=by):
            yield by
        case PolicyChanged(by=by):
            yield by if by != _ITSELF else None
        case _:
            pass


def _person(source: Source) -> str | None:
    return source.name if source.kind == "person" else None


def _of_cause(cause: Cause) -> str | None:
    return cause.by if cause.kind in _PEOPLE else None
