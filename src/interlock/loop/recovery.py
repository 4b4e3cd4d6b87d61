"""What follows a failed request: another attempt, or the end of the turn.

Lives here: `recover`. Listeners are asked first, then the policy of the adapter or the agent; the wait is recorded
before it begins.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from interlock.errors import ModelFailure
from interlock.intercept.decisions import GiveUp, Retry
from interlock.intercept.point import hear
from interlock.intercept.scope import Scope
from interlock.log.facts import DecisionMade, RetryScheduled, RetryStarted, Said
from interlock.log.session import Session
from interlock.loop.points import REQUEST_ERROR, Attempt
from interlock.models.retry import RetryPolicy


class Recovery:
    """The retries of one step."""

    def __init__(self, session: Session, scope: Scope, policy: RetryPolicy, rng: Random) -> None:
        self._session = session
        self._scope = scope
        self._policy = policy
        self._rng = rng
        self._retried: dict[tuple[str, str], int] = {}  # by provider and policy

    async def again(self, failure: ModelFailure, attempt: Attempt, sent: int) -> bool:
        """Whether to send the request again; the wait is over when this returns True.

        Raises:
            Stopped: the turn was stopped.
            Exception: a listener failed: there is no recovery from that.
        """
        signal = attempt.signal
        delay, mode, key = await self._asked(failure, attempt, sent), "listener", "listener"
        if delay is None:
            mode, key = self._policy.mode, "policy"
            n = self._retried.get((attempt.provider, key), 0) + 1
            delay = self._policy.delay(failure, n, self._rng)
        if delay is None or delay < 0:
            return False
        signal.raise_if_set()
        n = self._retried[attempt.provider, key] = self._retried.get((attempt.provider, key), 0) + 1
        retry_id = f"r{sent}"
        limit = self._policy.retries if key == "policy" else None
        kind: Any = mode
        self._session.append(
            RetryScheduled(retry_id, sent, attempt.provider, kind, key, n, round(delay * 1000), limit)
        )
        with signal.cutting():
            await asyncio.sleep(delay)
        self._session.append(RetryStarted(retry_id))
        return True

    async def _asked(self, failure: ModelFailure, attempt: Attempt, sent: int) -> float | None:
        """Seconds that a listener wants to wait, -1 if one gives up, None if nobody owns it."""
        for listener in self._scope.listeners(REQUEST_ERROR):
            answer: Retry | GiveUp | None = await hear(listener, attempt.signal, failure, attempt)
            if answer is None:
                continue
            name = "retry" if isinstance(answer, Retry) else "give up"
            said = (Said(listener.who, name, failure.code),)
            self._session.append(DecisionMade(REQUEST_ERROR.name, sent, name, listener.who, said))
            return answer.after if isinstance(answer, Retry) else -1.0
        return None
