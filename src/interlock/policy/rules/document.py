"""A settings file, read once for all who have something in it.

Lives here: `Document` and `read_document`. A file that is a link, too large, unreadable, no text or broken is an error
that says where and what to do; one that is not there is none.
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeAlias

from interlock.policy.rules.positions import Path as ValuePath
from interlock.policy.rules.positions import json_lines, toml_lines
from interlock.policy.rules.prefixes import read_prefixes
from interlock.policy.rules.rule import RuleError

LARGEST = 1 << 20  # bytes
Parsed: TypeAlias = tuple[Mapping[str, Any], Mapping[ValuePath, int]]
_AT_LINE = re.compile(r"\(at line (?P<line>\d+)")


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file. digest: SHA-256 of its bytes, hexadecimal. shown: how it is called in messages."""

    path: Path
    origin: str
    data: Mapping[str, Any]
    digest: str
    shown: str
    lines: Mapping[ValuePath, int] = field(repr=False, default_factory=dict)

    def line_of(self, *path: str | int) -> int | None:
        """The line of a value, or of the nearest one around it: `line_of("permissions", "deny", 0)`."""
        for end in range(len(path), 0, -1):
            if (line := self.lines.get(path[:end])) is not None:
                return line
        return None

    @property
    def is_toml(self) -> bool:
        return self.path.suffix == ".toml"


def read_document(path: Path, *, origin: str = "given", shown: str | None = None) -> Document | None:
    """The file, parsed; None if there is none.

    Raises:
        RuleError: it is there and cannot be used.
    """
    shown = shown or str(path)
    if path.suffix not in _FORMS:
        raise RuleError(f"a file of rules ends in {', '.join(_FORMS)}", file=shown)
    data = _bytes(path, shown)
    if data is None:
        return None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RuleError("it is not UTF-8 text: save it as UTF-8", file=shown, line=line) from None
    parsed, lines = _FORMS[path.suffix](text, shown)
    return Document(path, origin, parsed, sha256(data).hexdigest(), shown, lines)


def _bytes(path: Path, shown: str) -> bytes | None:
    # Without O_NONBLOCK a pipe in place of the file would be waited for.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise RuleError("it is a link: put the file itself there, or remove it", file=shown)
        descriptor = os.open(path, flags)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise RuleError(f"it cannot be read: {error.strerror}", file=shown) from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise RuleError("it is not a regular file: put a file there, or remove it", file=shown)
        data = b""
        while len(data) <= LARGEST and (more := os.read(descriptor, LARGEST + 1 - len(data))):
            data += more
    except OSError as error:
        raise RuleError(f"it cannot be read: {error.strerror}", file=shown) from None
    finally:
        os.close(descriptor)
    if len(data) > LARGEST:
        raise RuleError(f"it is larger than {LARGEST:,} bytes: no list of rules is", file=shown)
    return data


def _toml(text: str, shown: str) -> Parsed:
    try:
        return tomllib.loads(text), toml_lines(text)
    except tomllib.TOMLDecodeError as error:
        said = str(error)
        found = _AT_LINE.search(said)
        line = int(found["line"]) if found else text.count("\n") + 1
        said = re.sub(r" \(at [^)]*\)$", "", said)
        raise RuleError(f"not valid TOML: {said}", file=shown, line=line) from None
    except RecursionError:
        raise RuleError("not valid TOML: it is nested too deeply", file=shown) from None


class _Twice(ValueError):
    def __init__(self, key: str) -> None:
        self.key = key


def _json(text: str, shown: str) -> Parsed:
    try:
        parsed = json.loads(text, object_pairs_hook=_members)
    except json.JSONDecodeError as error:
        raise RuleError(f"not valid JSON: {error.msg}", file=shown, line=error.lineno) from None
    except _Twice as error:
        found = list(re.finditer(re.escape(json.dumps(error.key)), text))
        line = text.count("\n", 0, found[-1].start()) + 1 if found else None
        raise RuleError(
            f"{error.key!r} is there twice in one object: keep one", file=shown, line=line
        ) from None
    except RecursionError:
        raise RuleError("not valid JSON: it is nested too deeply", file=shown) from None
    if not isinstance(parsed, dict):
        raise RuleError("it is not a JSON object: begin it with {", file=shown, line=1)
    return parsed, json_lines(text)


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _Twice(key)
        made[key] = value
    return made


_FORMS: Mapping[str, Callable[[str, str], Parsed]] = {
    ".toml": _toml,
    ".json": _json,
    ".rules": read_prefixes,  # of Codex
}
