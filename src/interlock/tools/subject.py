"""What of a call the permission rules are about.

Lives here: `Subject`. `Bash(...)` rules look at the command of a call, `Read` and `Edit` rules at its path,
`WebFetch(domain:...)` rules at its address; a tool says which of its arguments holds that.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec

SubjectKind: TypeAlias = Literal["command", "read", "edit", "url"]


class Subject(msgspec.Struct, frozen=True):
    """The argument of a tool that rules look at. `default`: its value where the call leaves it out. `base`: the folder
    that relative paths begin in, if that is not the agent's own."""

    kind: SubjectKind
    argument: str
    default: str | None = None
    base: Path | None = None

    def of(self, arguments: Mapping[str, Any]) -> str | None:
        """The command, path or address of a call with these arguments; None if it has none."""
        value = arguments.get(self.argument, self.default)
        if not isinstance(value, str):
            return None
        if self.base is not None and self.kind in ("read", "edit") and not value.startswith("/"):
            return f"{self.base}/{value}"
        return value
