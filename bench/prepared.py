"""A model whose answers are ready before the clock starts.

Lives here: `PreparedModel`, which harness and floor are given alike, so that neither is charged for the other's model,
and the answers that the benches use.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from typing import TypeAlias

from interlock.models.protocol import CallDelta, Chunk, Finish, TextDelta
from interlock.models.retry import RetryPolicy

Answer: TypeAlias = Sequence[Chunk]


class PreparedModel:
    """Gives its answers in order, one a request.

    burst: how many chunks come at once, as from one read of a socket; None: all of an answer.
    """

    provider = "bench"
    name = "prepared"
    retry: RetryPolicy | None = None

    def __init__(self, answers: Sequence[Answer], *, burst: int | None = None) -> None:
        self._answers = iter(answers)
        self._burst = burst

    async def stream(self, request: object, signal: object) -> AsyncIterator[Chunk]:
        answer = next(self._answers)
        if self._burst is None:
            for chunk in answer:
                yield chunk
            return
        for start in range(0, len(answer), self._burst):
            await asyncio.sleep(0)
            for chunk in answer[start : start + self._burst]:
                yield chunk

    async def aclose(self) -> None:
        """Nothing to let go of."""


DONE: Answer = (TextDelta("Done."), Finish("stop"))


def one_call_a_step(steps: int, name: str) -> list[Answer]:
    """So many answers with one call of `name(n)`, and a last one without."""
    called: list[Answer] = [
        (CallDelta(0, f"c{n}", name, json.dumps({"n": n})), Finish("calls")) for n in range(steps)
    ]
    return [*called, DONE]


def calls_in_turn(steps: int, name: str) -> list[Answer]:
    """So many answers with one call of `name()`, and a last one without."""
    called: list[Answer] = [(CallDelta(0, f"c{n}", name, "{}"), Finish("calls")) for n in range(steps)]
    return [*called, DONE]


def calls_at_once(count: int, name: str) -> list[Answer]:
    """One answer with so many calls of `name()`, and a last one without."""
    called = [CallDelta(n, f"c{n}", name, "{}") for n in range(count)]
    return [(*called, Finish("calls")), DONE]


def text(chunks: int) -> list[Answer]:
    """One answer of so many words."""
    return [(*[TextDelta(f"word{n % 100} ") for n in range(chunks)], Finish("stop"))]
