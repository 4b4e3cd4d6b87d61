"""The ways in which a declared secret may be written.

Lives here: `spellings`. A secret comes back from a tool as it is, inside JSON, in a URL, or in base64, and there at any
of three offsets; a key of several lines may come line by line.
"""

from __future__ import annotations

import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus

SHORTEST = 6  # characters: anything shorter is found in ordinary text
_LINE = 16  # characters: a line of a secret that is a secret by itself


def spellings(value: str) -> set[str]:
    """All texts that give the value away, itself among them; each has at least `SHORTEST` characters."""
    found: set[str] = set()
    lines = [line.strip() for line in value.splitlines()]
    for plain in (value, *([line for line in lines if len(line) >= _LINE] if len(lines) > 1 else ())):
        found |= {plain, *_escaped(plain), *_base64(plain.encode(errors="surrogatepass"))}
    return {text for text in found if len(text) >= SHORTEST}


def _escaped(value: str) -> set[str]:
    data = value.encode(errors="surrogatepass")
    once = {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}
    twice = {json.dumps(text)[1:-1] for text in once}  # JSON text inside JSON, as a model writes arguments
    quoted = {quote(data, safe=""), quote(data), quote_plus(data)}
    lower = {_lowered(text) for text in quoted}
    return {*once, *twice, *quoted, *lower}


def _lowered(text: str) -> str:
    head, *escapes = text.split("%")
    return "%".join([head, *(part[:2].lower() + part[2:] for part in escapes)])


def _base64(data: bytes) -> set[str]:
    """What is certain of its base64, wherever it stands in the bytes that were encoded."""
    found: set[str] = set()
    for offset in range(3):
        first = -(-offset * 8 // 6)  # characters that what stands before has a part in
        last = (offset + len(data)) * 8 // 6  # and from here on, what follows
        for encode in (b64encode, urlsafe_b64encode):
            found.add(encode(b"\0" * offset + data).decode()[first:last])
    return found
