"""The tools in the box, in the words of other programs, both ways.

Lives here: `Form`, how one program calls one of our tools and its arguments, and the codec of arguments. Tools that
are not in the box keep their names and arguments.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

How = Literal["same", "path", "milliseconds", "from zero"]


class Untranslatable(ValueError):
    """Arguments of another program that have no place here; the text says which, and what there is."""


@dataclass(frozen=True, slots=True)
class Field:
    """One argument. `how` it is written there: a path is absolute, a time in milliseconds, a line counted from 0."""

    ours: str
    theirs: str
    how: How = "same"

    def out(self, value: Any, cwd: Path) -> Any:
        match self.how:
            case "path":
                return absolute(value, cwd) if isinstance(value, str) else value
            case "milliseconds":
                return round(value * 1000) if _is_number(value) else value
            case "from zero":
                return value - 1 if _is_number(value) else value
            case "same":
                return value

    def back(self, value: Any) -> Any:
        match self.how:
            case "milliseconds":
                return value / 1000 if _is_number(value) else value
            case "from zero":
                return value + 1 if _is_number(value) else value
            case "path" | "same":
                return value


@dataclass(frozen=True, slots=True)
class Form:
    """A tool of ours as another program has it.

    also: further names that its matchers know. labels: arguments there that only describe the call to a person.
    """

    name: str
    fields: tuple[Field, ...]
    also: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def absolute(path: str, cwd: Path) -> str:
    """The path as hooks see it. `..` after a link is followed, not cut out: the text would name another file."""
    joined = os.path.join(cwd, path)
    try:
        return os.path.realpath(joined) if ".." in Path(path).parts else os.path.normpath(joined)
    except ValueError:  # a NUL: it is no path, and the tool will say so
        return joined


def encode_input(form: Form | None, arguments: Mapping[str, Any], cwd: Path) -> dict[str, Any]:
    """The arguments in their words. One that they have no word for keeps ours."""
    if form is None:
        return dict(arguments)
    fields = {field.ours: field for field in form.fields}
    given: dict[str, Any] = {}
    for name, value in arguments.items():
        field = fields.get(name)
        if field is None:
            given[name] = value
        else:
            given[field.theirs] = field.out(value, cwd)
    return given


def decode_input(
    form: Form | None, theirs: Mapping[str, Any], original: Mapping[str, Any], cwd: Path
) -> dict[str, Any]:
    """Their arguments in our words. A value that was only sent back is the one that was there, to the letter.

    Raises:
        Untranslatable: an argument that the tool does not have.
    """
    if form is None:
        return dict(theirs)
    sent = encode_input(form, original, cwd)
    fields = {field.theirs: field for field in form.fields}
    ours: dict[str, Any] = {}
    foreign = []
    for name, value in theirs.items():
        field = fields.get(name)
        ours_name = field.ours if field is not None else name
        if name in sent and sent[name] == value and type(sent[name]) is type(value):
            ours[ours_name] = original[ours_name]
        elif field is not None:
            ours[ours_name] = field.back(value)
        elif name not in form.labels:
            foreign.append(name)
    if foreign:
        known = ", ".join(fields)
        raise Untranslatable(
            f"{form.name} has no {', '.join(repr(name) for name in foreign)} here; it has {known}"
        )
    return ours


_SAME_SEARCH = (Field("ignore_case", "-i"), Field("context", "-C"))

CLAUDE: Mapping[str, Form] = {
    "bash": Form(
        "Bash",
        (Field("command", "command"), Field("timeout", "timeout", "milliseconds")),
        labels=("description",),
    ),
    "read": Form(
        "Read", (Field("path", "file_path", "path"), Field("offset", "offset"), Field("limit", "limit"))
    ),
    "write": Form("Write", (Field("path", "file_path", "path"), Field("content", "content"))),
    "edit": Form(
        "Edit",
        (
            Field("path", "file_path", "path"),
            Field("old", "old_string"),
            Field("new", "new_string"),
            Field("replace_all", "replace_all"),
        ),
    ),
    "glob": Form("Glob", (Field("pattern", "pattern"), Field("path", "path", "path"))),
    "grep": Form(
        "Grep",
        (Field("pattern", "pattern"), Field("path", "path", "path"), Field("glob", "glob"), *_SAME_SEARCH),
    ),
}

# Its shell is `Bash`; files are read through it, and changed by patches, which are made in `codex`.
CODEX: Mapping[str, Form] = {
    "bash": CLAUDE["bash"],
    "write": Form("apply_patch", (), also=("Write", "Edit")),
    "edit": Form("apply_patch", (), also=("Write", "Edit")),
}

GEMINI: Mapping[str, Form] = {
    "bash": Form(
        "run_shell_command",
        (Field("command", "command"), Field("timeout", "timeout", "milliseconds")),
        labels=("description",),
    ),
    "read": Form(
        "read_file",
        (
            Field("path", "file_path", "path"),
            Field("offset", "offset", "from zero"),
            Field("limit", "limit"),
        ),
    ),
    "write": Form("write_file", (Field("path", "file_path", "path"), Field("content", "content"))),
    "edit": Form(
        "replace",
        (
            Field("path", "file_path", "path"),
            Field("old", "old_string"),
            Field("new", "new_string"),
            Field("replace_all", "allow_multiple"),
        ),
    ),
    "glob": Form("glob", (Field("pattern", "pattern"), Field("path", "dir_path", "path"))),
    "grep": Form(
        "grep",
        (
            Field("pattern", "pattern"),
            Field("path", "dir_path", "path"),
            Field("glob", "include"),
            Field("ignore_case", "ignore_case"),
            Field("context", "context"),
        ),
        also=("grep_search", "search_file_content"),
    ),
}
