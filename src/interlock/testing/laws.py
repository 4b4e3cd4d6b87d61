"""The laws of the log, as an assertion.

Lives here: `assert_laws`.
"""

from __future__ import annotations

from typing import Any

from interlock.log.event import decode_event, encode_event
from interlock.log.facts import RequestHeader, RequestSent
from interlock.log.history import request_digest
from interlock.log.laws import check
from interlock.log.state import State
from interlock.loop.request import header_digest


def assert_laws(session: Any) -> None:
    """Fail unless every law holds on the session's log, and replaying it gives the live state.

    Checked: the laws of `interlock.log.check`; that each line survives being stored; that each request's digest can be
    rebuilt from the lines before it; and that a fold of the log is the state that was lived through.
    """
    events = list(session.events)
    breaches = check(events)
    assert not breaches, "\n".join(str(breach) for breach in breaches)
    state = State()
    header: RequestHeader | None = None
    for event in events:
        assert decode_event(encode_event(event)) == event, f"event {event.seq} does not survive the store"
        if isinstance(event.fact, RequestHeader):
            header = event.fact
        if isinstance(event.fact, RequestSent):
            assert header is not None
            rebuilt = request_digest(header_digest(header), state.history.digest)
            assert rebuilt == event.fact.digest, f"the request at {event.seq} cannot be rebuilt"
        state.apply(event)
    live = session.state
    assert list(state.history.view()) == list(live.history.view()), "the history is not a fold of the log"
    for name in ("next_turn", "next_step"):
        replayed = [waiting.message for waiting in getattr(state.queues, name)]
        assert replayed == [waiting.message for waiting in getattr(live.queues, name)], (
            f"{name} is not a fold"
        )
    assert list(state.queues.reserved) == list(live.queues.reserved), "reserved is not a fold"
    assert (state.head, state.turns, state.life) == (live.head, live.turns, live.life)
    assert list(state.approvals) == list(live.approvals)
    assert _waiting(state) == _waiting(live), "what waits for a person is not a fold"


def _waiting(state: State) -> object:
    """Which calls wait for a person, and how long the open turn was driven."""
    turn, step = state.turn, state.step
    calls = sorted(step.waiting) if step is not None else []
    return state.waiting, calls, turn.driven_ms(state.time) if turn is not None else 0
