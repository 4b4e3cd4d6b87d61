"""The verbs of an agent, for threads that do not run its event loop.

Lives here: `Threadsafe`.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import TYPE_CHECKING, Any

from interlock.errors import SessionClosed, UsageError
from interlock.log.messages import Message
from interlock.loop.result import Receipt

if TYPE_CHECKING:
    from interlock.loop.agent import Agent


class Threadsafe:
    """The agent's verbs for other threads. Each gives a future of that thread's kind: `.result()` waits."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def followup(self, message: str | Message, **options: Any) -> ThreadFuture[Receipt]:
        return self._call(self._agent.followup, message, **options)

    def steer(self, message: str | Message, **options: Any) -> ThreadFuture[Receipt]:
        return self._call(self._agent.steer, message, **options)

    def inject(self, message: str | Message, **options: Any) -> ThreadFuture[Receipt]:
        return self._call(self._agent.inject, message, **options)

    def send(self, message: str | Message, **options: Any) -> ThreadFuture[Receipt]:
        return self._call(self._agent.send, message, **options)

    def cancel(self, *arguments: Any, **options: Any) -> ThreadFuture[None]:
        return self._call(self._agent.cancel, *arguments, **options)

    def wake(self) -> ThreadFuture[None]:
        return self._call(self._agent.wake)

    def answer(self, *arguments: Any, **options: Any) -> ThreadFuture[None]:
        """Answer an approval, as `agent.approvals.answer` does."""
        return self._call(self._agent.approvals.answer, *arguments, **options)

    def _call(self, verb: Callable[..., Any], *arguments: Any, **options: Any) -> ThreadFuture[Any]:
        loop = self._agent._loop
        if loop is None:
            raise UsageError("the agent is not open")
        future: ThreadFuture[Any] = ThreadFuture()

        def call() -> None:
            if not future.set_running_or_notify_cancel():
                return  # taken back before the loop came to it
            try:
                future.set_result(verb(*arguments, **options))
            except Exception as error:  # noqa: BLE001  # handed to the thread that asked
                future.set_exception(error)

        try:
            loop.call_soon_threadsafe(call)
        except RuntimeError:  # the loop is closed, and with it the agent
            raise SessionClosed(self._agent.session.id) from None
        return future
