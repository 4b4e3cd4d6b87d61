"""Who answers: the request a model gets, and the chunks it streams back.

Lives here: `Model`, the protocol every adapter meets, `ModelRequest`, and the `Chunk` union. Failures are raised as
`ModelFailure`; a stream that ends without `Finish` is treated as STREAM_CLOSED by the loop, whatever came before.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec

from interlock.intercept.signal import Signal
from interlock.log.facts import Section, ToolSpec, Usage
from interlock.log.messages import Message
from interlock.models.retry import RetryPolicy


class TextDelta(msgspec.Struct, frozen=True, gc=False):
    """Text that is shown. `block` tells blocks of one answer apart."""

    text: str
    block: int = 0


class ReasoningDelta(msgspec.Struct, frozen=True, gc=False):
    text: str
    block: int = 0
    signature: str | None = None


class CallDelta(msgspec.Struct, frozen=True, gc=False):
    """A piece of one tool call; `id` and `name` come with its first piece, if the server gives them."""

    block: int
    id: str | None = None
    name: str | None = None
    arguments: str = ""


class UsageReport(msgspec.Struct, frozen=True, gc=False):
    usage: Usage


class Finish(msgspec.Struct, frozen=True, gc=False):
    """The stream is complete. Whether tools run is decided by the call blocks, not by `reason`."""

    reason: Literal["stop", "calls", "max-tokens", "filtered"] = "stop"


Chunk: TypeAlias = TextDelta | ReasoningDelta | CallDelta | UsageReport | Finish


class ModelRequest(msgspec.Struct, frozen=True, eq=False):
    """One request, neutral of any provider. Everything in it can be rebuilt from the log."""

    provider: str
    model: str
    system: tuple[Section, ...]
    messages: Sequence[Message]  # an immutable view: it is not copied, and does not change
    tools: tuple[ToolSpec, ...]
    settings: Mapping[str, Any]  # temperature, max_output_tokens, ...; unknown ones pass through
    session: str = ""


@runtime_checkable
class Model(Protocol):
    """An adapter. It does not retry: the loop does."""

    @property
    def provider(self) -> str:
        """Whose model it is: `openai`, `scripted`."""

    @property
    def name(self) -> str:
        """The model's name, as the provider knows it."""

    @property
    def retry(self) -> RetryPolicy | None:
        """The policy that recovery uses for this adapter's failures; None leaves it to the agent."""

    def stream(self, request: ModelRequest, signal: Signal) -> AsyncIterator[Chunk]:
        """The answer, chunk by chunk.

        Raises:
            ModelFailure: while iterating: the request failed, with a normalised code.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections. Called by whoever made the adapter."""
