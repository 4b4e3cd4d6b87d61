"""A log in one line of shorthand, in which messages are called by their words."""

from __future__ import annotations

from interlock.log.facts import InboxSpliced, UserMessage
from interlock.log.messages import Message, Text
from interlock.log.session import Session
from interlock.testing import shorthand

_REQUEST = ("RH", "RQ", "CH")


def story(session: Session, *, after: int = 1, request: bool = False) -> str:
    """The log from the line after `after`; the first two lines say only that the session began.

    Args:
        request: show header, request and chunks as well; a run of chunks is one `CH*`.
    """
    names: dict[str, str] = {}
    for fact in session.facts(InboxSpliced, UserMessage):
        if isinstance(fact, InboxSpliced):
            names.update({message.id: message.text for message in fact.inserted})
        elif isinstance(fact, UserMessage):
            names[fact.id] = " ".join([block.text for block in fact.content if isinstance(block, Text)])
    told: list[str] = []
    for token in shorthand(session, names)[after + 1 :]:
        if token == "CH":
            token = "CH*"
        if token.startswith(_REQUEST) and (not request or (token == "CH*" and told[-1:] == ["CH*"])):
            continue
        told.append(token)
    return " ".join(told)


def lines(text: str) -> str:
    """A story that is written over several lines."""
    return " ".join(text.split())


def person(name: str) -> Message:
    """A message of a person whose id is its text."""
    return Message.user(name, id=name)
