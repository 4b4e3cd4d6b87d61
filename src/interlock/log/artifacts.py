"""Big texts, kept beside the log: a tool's output of a megabyte is one artifact, and its line stays small.

Lives here: `take_out`, which puts a reference in the place of each text over `LIMIT` bytes in a line's data, and
`put_back`, which undoes it. Artifacts are addressed by their content, so equal texts are stored once. Which values are
references is said by their paths and not by their looks: a value that merely resembles one is left alone.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any, TypeAlias

import msgspec

from interlock.log.event import decode_json, encode_json

LIMIT = 32 * 1024  # bytes of UTF-8 that a text inside a line may have
PREVIEW = 200  # characters

DataPath: TypeAlias = tuple[str | int, ...]  # keys and indices, from the root of the data


class Reference(msgspec.Struct, frozen=True):
    """What stands in the place of a text that was taken out."""

    artifact: str  # SHA-256 of the text in UTF-8, hexadecimal
    bytes: int
    media_type: str
    preview: str


class Taken(msgspec.Struct, frozen=True):
    """A line's data without its big texts."""

    data: bytes
    paths: tuple[DataPath, ...]
    artifacts: dict[str, bytes]  # by digest


def take_out(data: bytes) -> Taken | None:
    """The data without its texts over `LIMIT` bytes, or None when it has none."""
    if len(data) <= LIMIT:
        return None
    paths: list[DataPath] = []
    artifacts: dict[str, bytes] = {}

    def without(value: Any, path: DataPath) -> Any:
        if isinstance(value, str):
            # No character has more than four bytes, so that a short text is known to fit without being encoded.
            if len(value) <= LIMIT // 4 or len(text := value.encode()) <= LIMIT:
                return value
            digest = sha256(text).hexdigest()
            artifacts[digest] = text
            paths.append(path)
            return Reference(digest, len(text), "text/plain", value[:PREVIEW])
        if isinstance(value, dict):
            return {key: without(item, (*path, key)) for key, item in value.items()}
        if isinstance(value, list):
            return [without(item, (*path, i)) for i, item in enumerate(value)]
        return value

    small = without(decode_json(data), ())
    return Taken(encode_json(small), tuple(paths), artifacts) if paths else None


def put_back(data: bytes, paths: tuple[DataPath, ...], fetch: Callable[[str], bytes]) -> bytes:
    """The data as it was before `take_out`; `fetch` gives an artifact by its digest."""

    def with_text(value: Any, path: DataPath) -> Any:
        if not path:
            return fetch(value["artifact"]).decode()
        value[path[0]] = with_text(value[path[0]], path[1:])
        return value

    value = decode_json(data)
    for path in paths:
        value = with_text(value, path)
    return encode_json(value)
