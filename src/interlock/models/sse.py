"""Server-sent events: bytes as they arrive in, the data of whole events out.

Lives here: `EventDecoder`, in the manner of the WHATWG's "event stream interpretation". It knows nothing of models and
does no I/O. Fields other than `data` are read over: no chat server says anything in them.
"""

from __future__ import annotations


class EventDecoder:
    """Feed it any split of the stream; the events are the same. Lines and events may be of any length."""

    def __init__(self) -> None:
        self._line: list[bytes] = []  # pieces of a line whose end has not come yet
        self._data: list[bytes] = []
        self._after_cr = False  # the last byte was CR: an LF that follows belongs to it
        self._first = True

    def feed(self, received: bytes) -> list[bytes]:
        """The data of each event that is complete now, as UTF-8, in order. Events without data are none."""
        if self._after_cr and received:
            self._after_cr = False
            if received[:1] == b"\n":
                received = received[1:]
        if b"\n" not in received and b"\r" not in received:
            self._line.append(received)
            return []
        self._after_cr = received.endswith(b"\r")
        *whole, rest = b"".join(
            [*self._line, received, b"."]
        ).splitlines()  # the dot: a last line to leave open
        self._line = [rest[:-1]]
        events = []
        for line in whole:
            if line:
                self._field(line)
            elif self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events

    def close(self) -> list[bytes]:
        """What the end of the stream completes: an event whose last line was ended, though no blank line came."""
        events = [b"\n".join(self._data)] if self._data else []
        self._data = []
        return events

    def _field(self, line: bytes) -> None:
        if self._first:
            self._first = False
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark may stand before all
        name, _, value = line.partition(b":")
        if name == b"data":
            self._data.append(value.removeprefix(b" "))
