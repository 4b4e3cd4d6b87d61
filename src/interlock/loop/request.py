"""What one request consists of: header, messages, digest.

Lives here: `Assembler`. The header is logged whole when it changes; messages are a view of the history, never a copy;
the digest of the neutral request is constant work.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from interlock.intercept.point import hear
from interlock.intercept.scope import Scope
from interlock.intercept.signal import Signal
from interlock.log.event import encode_json
from interlock.log.facts import DecisionMade, RequestHeader, RequestSent, Said, Section, ToolSpec
from interlock.log.history import request_digest
from interlock.log.session import Session
from interlock.log.strictjson import EMPTY, FrozenDict
from interlock.loop.points import REQUEST, CallSettings
from interlock.models.protocol import ModelRequest


def header_digest(header: RequestHeader) -> bytes:
    """A digest of all of a request but its messages; why it was written does not count."""
    return blake2b(encode_json(msgspec.structs.replace(header, why="initial")), digest_size=16).digest()


class Assembler:
    """Builds the requests of one session."""

    def __init__(self, session: Session, scope: Scope) -> None:
        self._session = session
        self._scope = scope
        self._digest: tuple[int, bytes] = (-1, b"")  # of the header at this seq
        self._without: tuple[object, tuple[Any, ...], tuple[Any, ...]] | None = (
            None  # known, given, made of it
        )
        self._split: tuple[Mapping[str, Any] | None, FrozenDict] = None, EMPTY  # settings without names

    async def settings(
        self, agent: Any, base: Mapping[str, Any], turn: int, step: int, attempt: int, signal: Signal
    ) -> Mapping[str, Any]:
        """The settings of this attempt, as listeners left them; `provider` and `model` among them.

        Raises:
            Stopped: the turn was stopped.
            Exception: a listener failed: the turn ends with an error, without recovery.
        """
        settings = base
        said: list[Said] = []
        for listener in self._scope.listeners(REQUEST):
            answer = await hear(listener, signal, CallSettings(agent, turn, step, attempt, settings))
            if answer is not None:
                settings = FrozenDict({**settings, **answer.changed})
                said.append(Said(listener.who, "settings", ", ".join(sorted(answer.changed)) or None))
        if said:
            step_start = self._session.state.step
            assert step_start is not None
            self._session.append(
                DecisionMade(REQUEST.name, step_start.seq, "settings", said[0].who, tuple(said))
            )
        return settings

    def send(
        self,
        settings: Mapping[str, Any],
        system: tuple[Section, ...],
        tools: tuple[ToolSpec, ...],
        attempt: int,
    ) -> tuple[ModelRequest, int]:
        """Log header (if it changed) and request; the request and the seq of its line."""
        session, state = self._session, self._session.state
        if session.redactor is not None:
            settings, system, tools = self._redacted(settings, system, tools)
        if self._split[0] is not settings:  # the same object as long as no listener changes anything
            rest = FrozenDict({k: v for k, v in settings.items() if k not in ("provider", "model")})
            self._split = settings, rest
        call_settings = self._split[1]
        provider, model = str(settings["provider"]), str(settings["model"])
        last = state.header
        if (
            last is None
            or state.header_life != state.life
            or last.provider != provider
            or last.model != model
            or last.settings != call_settings
            or last.system != system
            or last.tools != tools
        ):
            first = state.header_life != state.life
            why: Any = ("initial" if state.life <= 1 else "resume") if first else "change"
            session.append(RequestHeader(why, provider, model, call_settings, system, tools))
        if self._digest[0] != state.header_seq:
            assert state.header is not None
            self._digest = state.header_seq, header_digest(state.header)
        step = state.step
        assert step is not None
        messages = state.history.view()
        sent = session.append(
            RequestSent(
                step.seq,
                attempt,
                state.header_seq,
                state.history.last,
                len(messages),
                request_digest(self._digest[1], state.history.digest),
            )
        )[0].seq
        request = ModelRequest(provider, model, system, messages, tools, call_settings, session.id)
        return request, sent

    def _redacted(self, *header: Any) -> Any:
        """The parts of a header without secrets: looked through anew when one is another object, or there are more."""
        redactor = self._session.redactor
        known = redactor.known() if redactor is not None else None
        before = self._without
        same = before is not None and before[0] is known
        if before is None or not same or any(a is not b for a, b in zip(before[1], header, strict=True)):
            before = self._without = known, header, self._session.redacted(header)
        return before[2]
