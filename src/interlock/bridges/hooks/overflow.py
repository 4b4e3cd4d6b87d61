"""Texts of hooks that are too long to be told whole.

Lives here: `Overflow`: what is over the limit goes into a file, and its beginning and the path are told instead.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

LIMIT = 10_000  # characters
_PREVIEW = 2_000


class Overflow:
    """Keeps long texts in `folder`, which is made when it is needed, readable by its owner only."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def told(self, text: str) -> str:
        """The text, or its beginning with the path of a file that holds all of it."""
        if len(text) <= LIMIT:
            return text
        data = text.encode(errors="replace")
        path = self._folder / f"hook-output-{hashlib.sha256(data).hexdigest()[:16]}.txt"
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.write_bytes(data)
            rest = f"all of it is in {path}"
        except OSError as error:
            rest = f"the rest could not be kept: {error}"
        return f"{text[:_PREVIEW]}\n[... {len(text):,} characters; {rest}]"
