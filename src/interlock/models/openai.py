"""Models behind the chat completions protocol: OpenAI's, and every server that is compatible with it.

Lives here: `OpenAIModel`: the connection, its time limits and its failures. It stands on the official `openai` SDK for
credentials, headers, proxies and connections. Bodies are written by `chat_request` and given to the SDK as bytes, since
its typed path costs about 0.2 ms a message on the event loop; streams are read by `sse` and `chat_stream`, since the
SDK's reader fails on events without data and does not tell a whole answer from one that was cut.
"""

from __future__ import annotations

import asyncio
import importlib.util
import ipaddress
import json
import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from interlock.errors import ConfigError, MissingKey, ModelFailure
from interlock.intercept.signal import Signal
from interlock.models.chat_request import BodyWriter
from interlock.models.chat_stream import AnswerReader
from interlock.models.http_failures import bounded, failure_code, retry_after, said
from interlock.models.protocol import Chunk, ModelRequest
from interlock.models.retry import RetryPolicy
from interlock.models.sse import EventDecoder

if TYPE_CHECKING:
    import httpx2
    import openai

DEFAULT_URL = "https://api.openai.com/v1"
NO_KEY = "none"  # what a server on this machine gets: the SDK insists on something
CONNECT = 10.0  # seconds
DRAIN = 0.1  # seconds to wait for the end of a body after its last event, so that the connection can be used again


class OpenAIModel:
    """A model of a server that speaks chat completions.

    name: as the server knows it.
    base_url: up to and with `/v1`; without it `$OPENAI_BASE_URL` (provider openai only), else OpenAI's own.
    api_key: without it `$OPENAI_API_KEY`; for another provider its own, as in `$VLLM_API_KEY`, so that none is sent to
        a server that it is not for. A server on this machine needs none.
    retry: how its failures are repeated by the loop; None leaves it to the agent.
    timeout: seconds that the server may be silent, at any time; at most 10 of them for connecting.
    idle: seconds that it may be silent within an answer that has begun. Comments that keep a connection alive count.
    system_mid: the server takes the system role in mid-conversation; elsewhere such a message is a marked user one.
    client: an `openai.AsyncOpenAI` of one's own, with its URL, key and limits; it stays open.

    Settings of a request: `max_output_tokens` becomes `max_completion_tokens` for OpenAI and Azure and `max_tokens`
    for all others; `temperature`, `seed`, `stop`, `reasoning_effort` and everything else pass through as they are.

    Raises:
        ConfigError: the SDK is not installed, or `base_url` is not an http(s) URL.
        MissingKey: no key for a server that is not on this machine.
    """

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        provider: str = "openai",
        retry: RetryPolicy | None = None,
        timeout: float = 600.0,
        idle: float | None = None,
        system_mid: bool = False,
        client: openai.AsyncOpenAI | None = None,
    ) -> None:
        if importlib.util.find_spec("openai") is None:
            raise ConfigError("The openai SDK is not installed. Install it: pip install 'interlock[openai]'.")
        self.name = name
        self.provider = provider
        self.retry = retry
        if client is not None:
            base_url, api_key = str(client.base_url), client.api_key
        elif base_url is None:
            base_url = (provider == "openai" and os.environ.get("OPENAI_BASE_URL")) or DEFAULT_URL
        self.base_url = _checked(base_url)
        self._host = urlsplit(self.base_url).hostname or ""
        self._secret = api_key or None if client else _key(api_key, provider, self._host)
        self._timeout = timeout
        self._idle = idle
        self._client = client
        self._given = client is not None
        self._connecting = asyncio.Lock()
        own = self._host.endswith((".openai.com", ".openai.azure.com"))
        self._writer = BodyWriter(
            system_mid=system_mid, ceiling="max_completion_tokens" if own else "max_tokens"
        )

    def __repr__(self) -> str:
        return f"OpenAIModel({self.name!r}, provider={self.provider!r}, host={self._host!r})"

    async def stream(self, request: ModelRequest, signal: Signal) -> AsyncGenerator[Chunk, None]:
        response = await self._send(self._writer.body(request))
        reader = AnswerReader(request_id=response.headers.get("x-request-id"), secret=self._secret)
        try:
            async with aclosing(self._events(response)) as events:
                try:
                    async for event in events:
                        for chunk in reader.read(event):
                            yield chunk
                except ModelFailure:
                    if not reader.finished:
                        raise
                    # All but the usage was said before the stream broke.
            if not reader.events:
                raise self._failure(
                    f"{self._host} answered with an empty stream.", "EMPTY_RESPONSE", response
                )
            for chunk in reader.end():
                yield chunk
        finally:
            await response.aclose()

    async def aclose(self) -> None:
        """Close the connections, unless the client was given."""
        if self._client is not None and not self._given:
            client, self._client = self._client, None
            await client.close()

    async def _connect(self) -> openai.AsyncOpenAI:
        async with self._connecting:
            if self._client is None:
                # Importing the SDK takes most of a second, reading certificates some more: not on the event loop.
                self._client = await asyncio.to_thread(self._make_client)
            return self._client

    def _make_client(self) -> openai.AsyncOpenAI:
        import openai

        return openai.AsyncOpenAI(
            api_key=self._secret or NO_KEY,
            base_url=self.base_url,
            timeout=openai.Timeout(self._timeout, connect=min(self._timeout, CONNECT)),
            max_retries=0,
        )

    async def _send(self, body: bytes) -> httpx2.Response:
        client = self._client or await self._connect()
        import openai

        try:
            stream = await client.post(
                "/chat/completions",
                cast_to=object,
                content=body,
                options={"max_retries": 0},
                stream=True,
                stream_cls=openai.AsyncStream[object],
            )
        except Exception as error:  # noqa: BLE001  # foreign code: the SDK, and the HTTP client it was given
            # Not chained: the SDK's own text repeats what the server said, perhaps with the key in it.
            raise self._translated(error) from None
        return stream.response

    async def _events(self, response: httpx2.Response) -> AsyncGenerator[bytes, None]:
        """The data of each event, up to the end of the stream or `[DONE]`."""
        if response.headers.get("content-type", "").startswith(("application/json", "text/html")):
            raise await self._refused(response)
        decoder = EventDecoder()
        async with aclosing(response.aiter_bytes()) as body:
            while (received := await self._next(body, response)) is not None:
                for event in decoder.feed(received):
                    if event.startswith(b"[DONE]"):
                        await _drain(body)
                        return
                    yield event
        for event in decoder.close():
            if not event.startswith(b"[DONE]"):
                yield event

    async def _next(self, body: AsyncIterator[bytes], response: httpx2.Response) -> bytes | None:
        try:
            async with asyncio.timeout(self._idle):
                return await anext(body, None)
        except Exception as error:  # noqa: BLE001  # foreign code: the HTTP client
            raise self._translated(error, response) from None

    async def _refused(self, response: httpx2.Response) -> ModelFailure:
        """What a 200 that is no stream says: an error, or an answer of a server that does not stream."""
        try:
            text = (await response.aread()).decode(errors="replace")
        except Exception as error:  # noqa: BLE001  # foreign code: the HTTP client
            return self._translated(error, response)
        with suppress(ValueError, RecursionError):
            body = json.loads(text)
            if isinstance(body, dict) and body.get("error"):
                message = said(body)
                return self._failure(message, failure_code(None, body["error"], message), response)
        return self._failure(
            f"{self._host} answered without a stream of events: {text}", "MALFORMED", response
        )

    def _translated(self, error: Exception, response: httpx2.Response | None = None) -> ModelFailure:
        """The failure for what the SDK or its HTTP client raised; the latter may be of more than one library."""
        import openai

        if isinstance(error, openai.APIStatusError):
            message = said(error.body) or error.response.text or error.response.reason_phrase
            return self._failure(
                message, failure_code(error.status_code, error.body, message), error.response
            )
        kinds = {cls.__name__ for cls in type(error).__mro__}
        if kinds & {"APITimeoutError", "TimeoutException", "TimeoutError"}:
            limit = self._timeout if response is None or self._idle is None else self._idle
            return self._failure(f"{self._host} was silent for more than {limit:g} s.", "TIMEOUT", response)
        cause = error.__cause__ or error
        broken = kinds & {"APIConnectionError", "RequestError", "OSError", "EndOfStream"}
        message = f"{self._host}: {type(cause).__name__} {cause}"
        return self._failure(message, "TRANSPORT" if broken else "UNKNOWN", response)

    def _failure(self, message: str, code: str, response: httpx2.Response | None) -> ModelFailure:
        message = bounded(message, self._secret)
        if response is None:
            return ModelFailure(message, code=code)
        return ModelFailure(
            message,
            code=code,
            status=response.status_code,
            retry_after=retry_after(response.headers, datetime.now(UTC)),
            request_id=response.headers.get("x-request-id"),
        )


async def _drain(body: AsyncIterator[bytes]) -> None:
    """Read what follows the last event, which is no more than the end of the body: only then is the connection free."""
    with suppress(Exception):  # whatever happens now, the answer is whole
        async with asyncio.timeout(DRAIN):
            async for _ in body:
                pass


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"base_url is not an http(s) URL: {url!r}. Write it as in http://localhost:8000/v1."
        )
    return url


def _key(given: str | None, provider: str, host: str) -> str | None:
    variable = f"{provider.upper().replace('-', '_')}_API_KEY"
    key = given or os.environ.get(variable)
    if not key and not _here(host):
        raise MissingKey(provider, variable)
    return key or None


def _here(host: str) -> bool:
    """Whether the host is this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
