"""Posting a payload to a service.

Lives here: `post` and `PostFailed`. One request on a connection of its own, without redirects; nothing of it outlives
the call. `h11` speaks the protocol, asyncio moves the bytes.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import urlsplit

from interlock.bridges.hooks.handler import Http
from interlock.version import VERSION

LIMIT = 1 << 20  # bytes of an answer that are read
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


class PostFailed(Exception):
    """There is no answer to go by; the text says why."""


def expanded(value: str, allowed: tuple[str, ...], environ: Mapping[str, str]) -> str:
    """`$NAME` and `${NAME}` replaced where the name is allowed; another name is nothing."""

    def one(found: re.Match[str]) -> str:
        name = found[1] or found[2]
        return environ.get(name, "") if name in allowed else ""

    return _VARIABLE.sub(one, value).strip(" \t")  # blanks around a value are none of it


async def post(action: Http, body: bytes, *, environ: Mapping[str, str]) -> str:
    """The body of a 2xx answer, as text.

    The time it may take is the caller's to bound.

    Raises:
        PostFailed: not reachable, not HTTP, not 2xx, longer than `LIMIT`.
    """
    import h11

    parts = urlsplit(action.url)
    host = parts.hostname or ""
    headers = {
        "Host": parts.netloc.rpartition("@")[2],
        "User-Agent": f"interlock/{VERSION}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "Connection": "close",
    }
    headers |= {name: expanded(value, action.allowed_env, environ) for name, value in action.headers}
    headers["Content-Length"] = str(len(body))
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        request = h11.Request(method="POST", target=target, headers=list(headers.items()))
        tls = parts.scheme == "https"
        reader, writer = await asyncio.open_connection(
            host, parts.port or (443 if tls else 80), ssl=tls or None
        )
        try:
            connection = h11.Connection(h11.CLIENT)
            for event in (request, h11.Data(body), h11.EndOfMessage()):
                writer.write(connection.send(event) or b"")
            with suppress(ConnectionError):  # it may answer, and hang up, before it has read all
                await writer.drain()
            return await _answer(connection, reader)
        finally:
            writer.transport.abort()  # nothing is owed to it any more
            with suppress(OSError):
                await writer.wait_closed()
    except h11.ProtocolError as error:
        raise PostFailed(f"{action.url}: {error}") from error
    except (OSError, ValueError) as error:
        raise PostFailed(f"{action.url} cannot be reached: {error}") from error


async def _answer(connection: object, reader: asyncio.StreamReader) -> str:
    import h11

    assert isinstance(connection, h11.Connection)
    content = bytearray()
    while True:
        event = connection.next_event()
        match event:
            case h11.NEED_DATA:
                connection.receive_data(await reader.read(65_536))
            case h11.Response(status_code=status):
                if not 200 <= status < 300:
                    raise PostFailed(f"it answered with status {status}")
            case h11.Data(data=data):
                content += data
                if len(content) > LIMIT:
                    raise PostFailed(f"its answer is longer than {LIMIT:,} bytes")
            case h11.EndOfMessage() | h11.PAUSED | h11.ConnectionClosed():
                return content.decode(errors="replace")
            case _:  # 1xx: the answer is still to come
                pass
