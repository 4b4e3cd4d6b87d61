"""What a list of sessions shows of one, taken from its lines while they are written.

Lives here: `About`. Every store keeps one a session, so that listing reads no log.
"""

from __future__ import annotations

import msgspec

from interlock.log.facts import Fact, InboxSpliced, SessionCreated, UserMessage
from interlock.log.messages import Block, Source, Text

TITLE = 80  # characters


class About(msgspec.Struct, frozen=True):
    """Where a session works, for whom, and the first words of its first prompt."""

    format: str | None = None
    cwd: str | None = None
    agent: str | None = None
    title: str | None = None

    def learn(self, fact: Fact) -> About:
        """What is known after this line; the same object when it says nothing new."""
        if type(fact) is SessionCreated:
            return About(fact.format, fact.cwd, fact.agent, self.title)
        if self.title is None and (title := _title(fact)) is not None:
            return About(self.format, self.cwd, self.agent, title)
        return self


def _title(fact: Fact) -> str | None:
    if type(fact) is UserMessage:
        return _first_words(fact.source, fact.content)
    if type(fact) is InboxSpliced:
        for message in fact.inserted:
            title = _first_words(message.source, message.content)
            if title:
                return title
    return None


def _first_words(source: Source, content: tuple[Block, ...]) -> str | None:
    """The beginning of what a person said, in one line; None for anybody else's words."""
    if source.kind != "person":
        return None
    beginning = " ".join([block.text[: 4 * TITLE] for block in content if isinstance(block, Text)])
    return " ".join(beginning.split())[:TITLE].rstrip() or None
