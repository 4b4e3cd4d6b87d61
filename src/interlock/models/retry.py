"""How often a failed request is repeated, and after how long.

Lives here: `RetryPolicy`. It decides; the loop waits and records.
"""

from __future__ import annotations

from random import Random

import msgspec

from interlock.errors import ModelFailure

TRANSIENT = frozenset({"EMPTY_RESPONSE", "RATE_LIMIT", "SERVER", "TIMEOUT", "TRANSPORT", "STREAM_CLOSED"})


class RetryPolicy(msgspec.Struct, frozen=True):
    """Repeat a request in the same step.

    retries: how often after the first attempt; None is without end, inside `attempts_per_step` and the budget.
    base, cap: seconds. The delay is base x 2^(n-1), at most `cap`, then +- `jitter` of itself, at most `cap`.
    codes: the failures that are repeated; "all" repeats any.
    attempts_per_step: the bound over all participants that may ask for a retry.
    idle: seconds without a chunk after which a stream counts as TIMEOUT; None waits for ever.
    """

    retries: int | None = 5
    base: float = 0.5
    cap: float = 10.0
    jitter: float = 0.1
    codes: frozenset[str] | str = TRANSIENT
    attempts_per_step: int = 20
    idle: float | None = None

    def __post_init__(self) -> None:
        if self.retries is not None and self.retries < 0:
            raise ValueError(f"retries must be 0 or more, got {self.retries}")
        if self.attempts_per_step < 1:
            raise ValueError(f"attempts_per_step must be 1 or more, got {self.attempts_per_step}")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be from 0 to 1, got {self.jitter}")
        if self.idle is not None and self.idle <= 0:
            raise ValueError(f"idle must be above 0, or None to wait for ever, got {self.idle}")
        if self.base < 0 or self.cap < 0:
            raise ValueError(f"base and cap must be 0 or more, got {self.base} and {self.cap}")
        if isinstance(self.codes, str) and self.codes != "all":
            raise ValueError(f'codes must be a set of codes or "all", got {self.codes!r}')

    @property
    def mode(self) -> str:
        return "always" if self.codes == "all" and self.retries is None else "normal"

    def delay(self, failure: ModelFailure, n: int, rng: Random) -> float | None:
        """Seconds to wait before retry `n` (from 1), or None: give up.

        A delay that the provider asks for is used as it is when it is within `cap`. A longer one is beyond what this
        policy may wait: a normal policy gives up, an endless one falls back to its own delay.
        """
        if self.retries is not None and n > self.retries:
            return None
        if self.codes != "all" and failure.code not in self.codes:
            return None
        if failure.retry_after is not None:
            if 0 <= failure.retry_after <= self.cap:
                return failure.retry_after
            if failure.retry_after > self.cap and self.mode == "normal":
                return None
        doublings = min(n - 1, 60)  # 2**1024 is no longer a float
        delay = min(self.base * 2**doublings, self.cap)
        return float(min(delay * (1 + rng.uniform(-self.jitter, self.jitter)), self.cap))
