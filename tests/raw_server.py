"""A server that writes exactly the bytes it is told to, for shapes that other servers do not play."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
from dataclasses import dataclass, field
from enum import Enum
from types import TracebackType
from typing import Any


class Do(Enum):
    CLOSE = "close the connection in order"
    RESET = "break the connection"
    HANG = "say nothing more until the client goes"


Part = bytes | asyncio.Event | Do  # an event is waited for


def stream(*parts: Part, headers: str = "", kind: str = "text/event-stream") -> tuple[Part, ...]:
    """A response of which each part is written by itself; it ends when the connection does."""
    return (f"HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\n{headers}connection: close\r\n\r\n".encode(), *parts)


def chunked(*parts: Part, whole: bool = True) -> tuple[Part, ...]:
    """The same in chunked encoding, after which the connection can be used again; not `whole`: without its end."""
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    coded = [b"%x\r\n%b\r\n" % (len(part), part) if isinstance(part, bytes) else part for part in parts]
    return (head, *coded, b"0\r\n\r\n" if whole else Do.CLOSE)


def error(status: int, body: object, *, headers: str = "") -> tuple[Part, ...]:
    text = body if isinstance(body, str) else json.dumps(body)
    kind = "text/html" if isinstance(body, str) else "application/json"
    return (
        f"HTTP/1.1 {status} Whatever\r\ncontent-type: {kind}\r\n{headers}"
        f"content-length: {len(text.encode())}\r\n\r\n{text}".encode(),
    )


def event(**data: Any) -> bytes:
    return b"data: " + json.dumps(data).encode() + b"\n\n"


def delta(finish: str | None = None, **fields: Any) -> bytes:
    """A chunk of a chat completion."""
    return event(choices=[{"index": 0, "delta": fields, "finish_reason": finish}])


DONE = b"data: [DONE]\n\n"


@dataclass
class RawServer:
    """Plays one reply for each request, in order.

    `asked` is set when a request has come, `gone` when a client left a reply that hangs.
    """

    replies: list[tuple[Part, ...]]
    bodies: list[Any] = field(default_factory=list)
    heads: list[str] = field(default_factory=list)
    connections: int = 0
    asked: asyncio.Event = field(default_factory=asyncio.Event)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    base_url: str = ""

    async def __aenter__(self) -> RawServer:
        self._tasks: list[asyncio.Task[None]] = []
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.base_url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        for outcome in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(outcome, Exception) and error is None:
                raise outcome

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.append(asyncio.get_running_loop().create_task(self._serve(reader, writer)))

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await _head(reader):
                length = int(re.search(r"content-length: (\d+)", head, re.IGNORECASE)[1])  # type: ignore[index]
                self.heads.append(head)
                self.bodies.append(json.loads(await reader.readexactly(length)))
                self.asked.set()
                reply = self.replies[len(self.bodies) - 1]
                for part in reply:
                    await self._play(part, reader, writer)
                if not any(
                    isinstance(part, bytes) and b"transfer-encoding: chunked" in part for part in reply
                ):
                    return  # only such a body tells where it ends
                if Do.CLOSE in reply:
                    return
        except ConnectionError:
            self.gone.set()
        finally:
            writer.close()

    async def _play(self, part: Part, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match part:
            case bytes():
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(0)  # the client's turn, so that it reads this part by itself
            case asyncio.Event():
                await part.wait()
            case Do.RESET:
                linger = struct.pack("ii", 1, 0)  # closing sends a reset, not an orderly end
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            case Do.HANG:
                assert await reader.read() == b""
                self.gone.set()


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        return (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return ""  # the client closed the connection
