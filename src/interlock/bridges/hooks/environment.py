"""The file into which a SessionStart hook writes variables for later shell commands.

Lives here: `exports`, which reads it without running it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

_NAME = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_MARK = re.compile("\ue000(\\d+)\ue001")
_USE = re.compile(r"(?<!\\)\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))", re.ASCII)
_UNREADABLE = re.compile(r"\$\(|`|\$\{[^}]*[^\w}]")  # what only a shell could work out


def exports(text: str, environ: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The variables that `export NAME=value` lines set, and the lines that could not be understood.

    Quotes, `$NAME` and `${NAME}` are; command substitution and everything else a shell does are not: the file is
    read, never run. Lines as `export -p` prints them (`declare -x`) are too.
    """
    found: dict[str, str] = {}
    unread: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped or stripped.startswith("#"):
            continue
        assignments = _assignments(stripped, {**environ, **found})
        if assignments is None:
            unread.append(stripped)
        else:
            found |= assignments
    return found, unread


def _assignments(line: str, known: Mapping[str, str]) -> dict[str, str] | None:
    keyword, _, rest = line.partition(" ")
    if keyword in ("declare", "typeset"):
        option, _, rest = rest.strip().partition(" ")
        if option != "-x":
            return None
    elif keyword != "export":
        return None
    if _UNREADABLE.search(re.sub(r"'[^']*'", "", rest)):
        return None
    values: list[str] = []

    def marked(found: re.Match[str]) -> str:
        # A mark, so that no character of the value is taken for one of the shell's.
        values.append(known.get(found[1] or found[2], ""))
        return f"\ue000{len(values) - 1}\ue001"

    parts = [
        part if part.startswith("'") else _USE.sub(marked, part) for part in re.split(r"('[^']*')", rest)
    ]
    try:
        words = shlex.split("".join(parts), comments=True)
    except ValueError:  # a quote that is not closed
        return None
    made: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not _NAME.fullmatch(name):
            return None
        if equals:
            made[name] = _MARK.sub(lambda found: values[int(found[1])], value)
    return made
