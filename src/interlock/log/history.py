"""What the model has been told: the surface of the log, kept incrementally.

Lives here: `History`. It appends, or replaces a range; both leave views taken earlier as they were. Each entry carries
a running digest of everything up to it, so that the digest of a request is constant work.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import overload

from interlock.log.event import encode_json
from interlock.log.messages import Message

_DIGEST_BYTES = 16


class Row(list[Message]):
    """The growing list behind views. Identity matters: an adapter may keep its rendering of it, message by message."""

    __slots__ = ("__weakref__",)

    __hash__ = object.__hash__  # type: ignore[assignment]  # by identity: two rows are never the same row


class Messages(Sequence[Message]):
    """An immutable view of the first `n` messages of a row: constant work to make, and never copied."""

    __slots__ = ("_n", "row")

    def __init__(self, row: Row, n: int) -> None:
        self.row = row
        self._n = n

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, index: int) -> Message: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Message, ...]: ...
    def __getitem__(self, index: int | slice) -> Message | tuple[Message, ...]:
        if isinstance(index, slice):
            return tuple(self.row[i] for i in range(*index.indices(self._n)))
        if not -self._n <= index < self._n:
            raise IndexError(f"message {index} of {self._n}")
        return self.row[index if index >= 0 else index + self._n]

    def __iter__(self) -> Iterator[Message]:
        row = self.row
        for i in range(self._n):
            yield row[i]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]  # compares as a sequence, so it has no hash

    def __repr__(self) -> str:
        return f"<Messages {self._n}>"


class History:
    """The model-visible messages, in order."""

    __slots__ = ("_digests", "_row", "_seqs")

    def __init__(self) -> None:
        self._row = Row()
        self._seqs: list[int] = []
        self._digests = bytearray()  # one after the other: as objects each would take four times as much

    @classmethod
    def restored(cls, messages: Iterable[Message], seqs: Iterable[int], digests: bytes) -> History:
        """The history that was taken apart by `parts`.

        Raises:
            ValueError: these are not the parts of one.
        """
        made = cls()
        made._row, made._seqs, made._digests = Row(messages), list(seqs), bytearray(digests)
        if not len(made._row) == len(made._seqs) == len(digests) / _DIGEST_BYTES:
            raise ValueError("a history has a line and a digest for each message")
        return made

    def parts(self) -> tuple[list[Message], list[int], bytes]:
        """The messages of now, with the line and the running digest of each: copies, which do not change."""
        return list(self._row), list(self._seqs), bytes(self._digests)

    def __len__(self) -> int:
        return len(self._row)

    @property
    def last(self) -> int:
        """The seq of the last surface line, -1 when there is none."""
        return self._seqs[-1] if self._seqs else -1

    @property
    def digest(self) -> bytes:
        """A digest of all messages, in order."""
        return bytes(self._digests[-_DIGEST_BYTES:])

    def view(self) -> Messages:
        """The messages of now. Later changes do not show in it."""
        return Messages(self._row, len(self._row))

    def append(self, seq: int, message: Message) -> None:
        self._digests += _chained(self._digests[-_DIGEST_BYTES:], message)
        self._row.append(message)
        self._seqs.append(seq)

    def covers(self, first: int, last: int) -> bool:
        """Whether any message lies between the lines `first` and `last`."""
        return bisect_left(self._seqs, first) < bisect_right(self._seqs, last)

    def replace(self, first: int, last: int, messages: Iterable[Message]) -> None:
        """Shadow the surface lines `first` to `last` by other messages. Linear in what follows, and rare.

        Raises:
            ValueError: the range holds no surface line.
        """
        start, stop = bisect_left(self._seqs, first), bisect_right(self._seqs, last)
        if start >= stop:
            raise ValueError(f"no message of the history lies in {first}..{last}")
        inserted = list(messages)
        # Entries that replace others keep the place, hence the key, of the first line that they shadow.
        key = self._seqs[start]
        self._seqs = self._seqs[:start] + [key] * len(inserted) + self._seqs[stop:]
        self._row = Row(self._row[:start] + inserted + self._row[stop:])
        del self._digests[start * _DIGEST_BYTES :]
        for message in self._row[start:]:
            self._digests += _chained(self._digests[-_DIGEST_BYTES:], message)


def _chained(before: bytes | bytearray, message: Message) -> bytes:
    # Field by field: whether a struct's default is written depends on which object it is, not on its value.
    said = encode_json((message.role, message.content, message.id, message.source))
    return blake2b(before + said, digest_size=_DIGEST_BYTES).digest()


def request_digest(header: bytes, history: bytes) -> str:
    """The digest of a request: its header's bytes and the running digest of its messages. Hexadecimal."""
    return blake2b(header + history, digest_size=_DIGEST_BYTES).hexdigest()
