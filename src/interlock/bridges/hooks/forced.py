"""How often Stop hooks have continued a turn.

Lives here: `Forced`, a count by the log, so that it goes on after a restart, and `STOP`, by which it is counted.
"""

from __future__ import annotations

from interlock.log.facts import UserMessage
from interlock.log.messages import Source
from interlock.log.session import Session

STOP = Source("hook", "hooks:Stop")  # of the message that continues a turn


class Forced:
    """The count of the open turn of one session. It looks at each line once."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turn = -1  # the seq of the turn that is counted
        self._next = 0  # the first line that is not
        self._count = 0

    def count(self) -> int:
        """How often it was continued since a person last spoke."""
        turn = self._session.state.turn
        assert turn is not None
        if turn.seq != self._turn:
            self._turn, self._next, self._count = turn.seq, turn.seq, 0
        for event in self._session.events[self._next :]:
            if isinstance(event.fact, UserMessage):
                if event.fact.source == STOP:
                    self._count += 1
                elif event.fact.source.kind == "person":
                    self._count = 0
        self._next = self._session.head + 1
        return self._count
