"""What a command prints, within bounds.

Lives here: `BoundedOutput`, which keeps the beginning and the end of a stream and counts what lies between.
"""

from __future__ import annotations

import codecs


class BoundedOutput:
    """The first and the last bytes of a stream; memory is bounded by twice the limit."""

    __slots__ = ("_head", "_head_limit", "_tail", "_tail_limit", "total")

    def __init__(self, limit: int) -> None:
        """
        Raises:
            ValueError: a limit below 2 bytes, which leaves no room for both ends.
        """
        if limit < 2:
            raise ValueError(f"the limit of an output is 2 bytes or more, not {limit}")
        self.total = 0
        self._head_limit = limit // 2
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()

    def add(self, data: bytes) -> None:
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data[-self._tail_limit :]
        if len(self._tail) > 2 * self._tail_limit:  # cut seldom, so that small writes stay cheap
            del self._tail[: -self._tail_limit]

    def text(self) -> tuple[str, int]:
        """All of it, or both ends with a note between them; and the number of bytes left out.

        Bytes that are not UTF-8 become U+FFFD. A character that a cut would split is left out whole.
        """
        tail = bytes(self._tail[-self._tail_limit :])
        if self.total == len(self._head) + len(tail):
            return (self._head + tail).decode(errors="replace"), 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        first = decoder.decode(bytes(self._head))
        split = len(decoder.getstate()[0])
        while (
            tail[:1] and tail[0] & 0xC0 == 0x80 and len(tail) > self._tail_limit - 3
        ):  # the rest of a character
            tail = tail[1:]
        omitted = self.total - (len(self._head) - split) - len(tail)
        return f"{first}\n[... {omitted:,} bytes left out ...]\n{tail.decode(errors='replace')}", omitted
