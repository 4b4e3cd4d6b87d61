"""Edits as Codex writes them.

Lives here: `as_patch`, which makes an `apply_patch` text of our arguments, and `unpatched`, its way back. A patch has
whole lines; text that begins or ends within a line is shown as a line of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from interlock.bridges.hooks.dialects.tools import Untranslatable, absolute


def as_patch(tool: str, arguments: Mapping[str, Any], cwd: Path) -> str | None:
    """The patch; None if the tool changes no file."""
    path = absolute(str(arguments.get("path", "")), cwd)
    if tool == "write":
        return _patch(f"*** Add File: {path}", _lines("+", arguments.get("content")))
    if tool == "edit":
        hunk = ["@@", *_lines("-", arguments.get("old")), *_lines("+", arguments.get("new"))]
        return _patch(f"*** Update File: {path}", hunk)
    return None


def _patch(head: str, lines: list[str]) -> str:
    return "\n".join(["*** Begin Patch", head, *lines, "*** End Patch"])


def _lines(sign: str, text: object) -> list[str]:
    if not isinstance(text, str) or not text:
        return []
    return [sign + line for line in text.removesuffix("\n").split("\n")]


def unpatched(theirs: Mapping[str, Any], sent: str, original: Mapping[str, Any]) -> Mapping[str, Any]:
    """The arguments that a patch stands for, if it is the one that was sent.

    Raises:
        Untranslatable: it is another one.
    """
    if dict(theirs) == {"command": sent}:
        return original
    raise Untranslatable("a changed patch cannot be made into the arguments of one edit")
