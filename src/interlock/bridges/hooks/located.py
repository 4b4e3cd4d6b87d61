"""JSON and TOML with the lines on which things stand.

Lives here: `Document`, what a configuration file says and where. JSON may have comments, as some programs' settings do.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interlock.policy.rules.positions import json_lines, toml_lines

_COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|//[^\n]*|/\*.*?\*/', re.DOTALL)


class Unreadable(ValueError):
    """It is no such document. `line` says where, if that is known."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(problem)


@dataclass(frozen=True, slots=True)
class Document:
    """The value of a file."""

    value: Mapping[str, Any]
    lines: Mapping[tuple[str | int, ...], int]

    def line_of(self, *path: str | int) -> int | None:
        """The line of a value, or of the nearest one around it: `line_of("hooks", "Stop", 0)`."""
        for end in range(len(path), 0, -1):
            if (line := self.lines.get(path[:end])) is not None:
                return line
        return None


def read_json(text: str) -> Document:
    """
    Raises:
        Unreadable: not JSON, not an object, or one with a key that is there twice.
    """
    text = _COMMENT.sub(_blank, text.removeprefix("\ufeff"))
    try:
        value = json.loads(text, object_pairs_hook=_members)
    except json.JSONDecodeError as error:
        raise Unreadable(f"not valid JSON: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise Unreadable("not a JSON object", 1)
    return Document(value, json_lines(text))


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):  # one of them would count, and the other one's hooks would be gone
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"{twice!r} is there twice in one object")
    return made


def _blank(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])


def read_toml(text: str) -> Document:
    """
    Raises:
        Unreadable: not TOML.
    """
    text = text.removeprefix("\ufeff")
    try:
        value = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        at = re.search(r"at line (\d+)", str(error))
        raise Unreadable(f"not valid TOML: {error}", int(at[1]) if at else None) from None
    return Document(value, toml_lines(text))
