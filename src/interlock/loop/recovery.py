"""What follows a failed request: another attempt, or the end of the turn.

Lives here: `Recovery`. Listeners are asked first, then the policy of the adapter or the agent; the wait is recorded
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
from interlock.intercept.signal import Signal
from interlock.log.facts import DecisionMade, RetryScheduled, RetryStarted, Said
from interlock.log.session import Session
from interlock.loop.points import REQUEST_ERROR, Attempt
from interlock.models.retry import RetryPolicy


class Recovery:
    """The retries of one step."""

    def __init__(self, session: Session, scope: Scope, rng: Random) -> None:
        self._session = session
        self._scope = scope
        self._rng = rng
        self._retried: dict[tuple[str, str], int] = {}  # by provider and policy

    async def wanted(
        self, failure: ModelFailure, attempt: Attempt, sent: int, policy: RetryPolicy
    ) -> RetryScheduled | None:
        """The retry that a listener or `policy`, that of the adapter that failed, wants; None: give up.

        Raises:
            Stopped: the turn was stopped.
            Exception: a listener failed: there is no recovery from that.
        """
        delay, mode, key = await self._asked(failure, attempt, sent), "listener", "listener"
        attempt.signal.raise_if_set()
        limit: int | None = None
        if delay is None:
            mode, key, limit = policy.mode, "policy", policy.retries
        n = self._retried.get((attempt.provider, key), 0) + 1
        if delay is None:
            delay = policy.delay(failure, n, self._rng)
        if delay is None or delay < 0:
            return None
        self._retried[attempt.provider, key] = n
        kind: Any = mode
        return RetryScheduled(f"r{sent}", sent, attempt.provider, kind, key, n, round(delay * 1000), limit)

    async def wait(self, retry: RetryScheduled, signal: Signal) -> None:
        """Wait as long as it says; that is on record before and after.

        Raises:
            Stopped: the turn was stopped.
        """
        self._session.append(retry)
        with signal.cutting():
            await asyncio.sleep(retry.delay_ms / 1000)
        self._session.append(RetryStarted(retry.retry_id))

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
