"""A program: a chat completions server that reads each request to its end and always says "ok".

It prints its port, and ends when its input does.
"""

from __future__ import annotations

import asyncio
import sys

_EVENTS = (
    b'{"choices":[{"index":0,"delta":{"content":"ok"},"finish_reason":null}]}',
    b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}',
    b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":1}}',
    b"[DONE]",
)
_BODY = b"".join([b"data: %b\n\n" % event for event in _EVENTS])
_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b"%x\r\n%b\r\n0\r\n\r\n" % (len(_BODY), _BODY)
)
_LENGTH = b"content-length:"


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.lower().split(b"\r\n") if line.startswith(_LENGTH))
            await reader.readexactly(int(length.removeprefix(_LENGTH)))
            writer.write(_ANSWER)
    except asyncio.IncompleteReadError:
        return  # the client has left
    finally:
        writer.close()


async def main() -> None:
    async with await asyncio.start_server(_serve, "127.0.0.1", 0) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main())
