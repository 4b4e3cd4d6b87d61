"""The calls of the last answer, as hooks are told of them together.

Lives here: `LastBatch`, which follows the log. What it tells comes from there, so that a batch that a restart cut in two
is told whole.
"""

from __future__ import annotations

import json
from typing import Any

from interlock.bridges.hooks.event import BatchedCall
from interlock.log.event import Event
from interlock.log.facts import AssistantMessage, ToolCalled, ToolPrepared, ToolResulted, ToolStarted
from interlock.log.messages import ToolUse
from interlock.log.session import Session


class LastBatch:
    """Follows one session."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._since: int | None = self._open_batch()  # the seq of the answer whose calls were not told yet
        self._unobserve = session.observe(self._answered, AssistantMessage, who="hooks:batch")
        self._unstart = session.observe(self._started, ToolStarted, who="hooks:batch")
        self._starts: dict[int, int] = {}  # by call, epoch ms

    def _open_batch(self) -> int | None:
        """The batch that another life has begun, and that is not over."""
        step = self._session.state.step
        return step.message if step is not None and step.calls else None

    def _answered(self, event: Event) -> None:
        assert isinstance(event.fact, AssistantMessage)
        calls = any(isinstance(block, ToolUse) for block in event.fact.blocks)
        self._since = event.seq if calls else None
        self._starts.clear()

    def _started(self, event: Event) -> None:
        assert isinstance(event.fact, ToolStarted)
        self._starts.setdefault(event.fact.call, event.time)

    def duration(self, call: int) -> int | None:
        """Milliseconds since the body of this call was started."""
        began = self._starts.get(call)
        return max(self._session.now() - began, 0) if began is not None else None

    def take(self) -> tuple[BatchedCall, ...]:
        """The calls of the batch that is over and that nobody was told of yet; none, if there is no such batch."""
        since, self._since = self._since, None
        if since is None or self._session.state.step is not None:
            self._since = since
            return ()
        called: dict[int, tuple[ToolCalled, Any]] = {}
        batch: list[BatchedCall] = []
        for event in self._session.events[since + 1 :]:
            match event.fact:
                case ToolCalled() as fact if not fact.synthetic:
                    called[event.seq] = fact, _parsed(fact.arguments)
                case ToolPrepared(call=call, effective=effective) if call in called:
                    called[call] = called[call][0], effective
                case ToolResulted(call=call, content=content) if call in called:
                    fact, arguments = called[call]
                    if isinstance(arguments, dict):
                        response = "\n".join([block.text for block in content])
                        batch.append(
                            BatchedCall(
                                tool=fact.name, tool_use_id=fact.call_id, input=arguments, response=response
                            )
                        )
        return tuple(batch)

    def close(self) -> None:
        self._unobserve()
        self._unstart()


def _parsed(text: str) -> Any:
    """What the model wrote; None where it is no JSON: such a call has not run."""
    try:
        return json.loads(text) if text.strip() else {}
    except ValueError:
        return None
