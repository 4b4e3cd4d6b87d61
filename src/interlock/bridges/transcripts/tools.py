"""Calls of other programs in our words.

Lives here: `Asked`, a call as it is imported, and how Claude Code's and Codex's calls become ones. A tool of the box
gets our name and our arguments, so that rules judge it; an argument that we have no word for stays as it is, and so
does every other tool.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from interlock.bridges.hooks.dialects.tools import CLAUDE, Form
from interlock.bridges.transcripts.kept import storable
from interlock.bridges.transcripts.patches import Change, changes_of
from interlock.log.facts import Effect
from interlock.log.strictjson import NotJSON, parse

_OURS = {name: ours for ours, form in CLAUDE.items() for name in (form.name, *form.also)}
_EFFECTS: Mapping[str, Effect] = {
    "bash": "write",
    "read": "read",
    "write": "idempotent",
    "edit": "write",
    "glob": "read",
    "grep": "read",
}
_SHELLS = ("bash", "sh", "zsh", "dash")
_RUN = ("-c", "-lc", "-cl")
_CODEX_SHELLS = {"shell", "shell_command", "exec_command", "container.exec", "local_shell", "unified_exec"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A call: `arguments` is the text that the model is taken to have written. `parts`: what it does, if that is several."""

    name: str
    arguments: str
    parts: tuple[Asked, ...] = ()

    @property
    def effect(self) -> Effect | None:
        return _EFFECTS.get(self.name)

    @property
    def value(self) -> Any:
        """The arguments as a frozen value; their text where that is no JSON."""
        try:
            return parse(self.arguments) if self.arguments.strip() else parse("{}")
        except NotJSON:
            pass
        try:
            return storable(json.loads(self.arguments))
        except (ValueError, RecursionError):
            return self.arguments


def as_text(arguments: Any) -> str:
    """Arguments that a transcript holds as a value, as a text: the same one each time."""
    if isinstance(arguments, str):
        return arguments
    return json.dumps(storable(arguments), ensure_ascii=False)


def of_claude(name: str, arguments: Any) -> Asked:
    ours = _OURS.get(name)
    if ours is None or not isinstance(arguments, dict):
        return Asked(name, as_text(arguments))
    return Asked(ours, as_text(_in_our_words(CLAUDE[ours], arguments)))


def _in_our_words(form: Form, theirs: Mapping[str, Any]) -> dict[str, Any]:
    fields = {field.theirs: field for field in form.fields}
    known = {field.ours for field in form.fields}
    made: dict[str, Any] = {}
    for name, value in theirs.items():
        field = fields.get(name)
        if field is not None:
            made[field.ours] = field.back(value)
        else:
            # An argument of theirs that is called like another one of ours would be taken for that.
            made[name if name not in known else f"{name}_"] = value
    return made


def of_codex(name: str, arguments: str) -> Asked:
    """A function call, whose arguments are a text."""
    if name in _CODEX_SHELLS or name == "apply_patch":
        try:
            value = json.loads(arguments)
        except (ValueError, RecursionError):
            return Asked(name, arguments)
        if isinstance(value, dict):
            made = codex_patch(value.get("input")) if name == "apply_patch" else codex_command(value)
            if made is not None:
                return made
    return Asked(name, arguments)


def codex_command(theirs: Mapping[str, Any]) -> Asked | None:
    """A call of one of its shells; None if it says no command."""
    rest = dict(theirs)
    given = rest.pop("command", None) or rest.pop("cmd", None)
    if isinstance(given, list) and given and all(isinstance(word, str) for word in given):
        if given[0].rpartition("/")[2] == "apply_patch" and len(given) == 2:
            patch = codex_patch(given[1])
            if patch is not None:
                return patch
        given = _script(given)
    if not isinstance(given, str):
        return None
    made: dict[str, Any] = {"command": given}
    for name in ("timeout_ms", "timeout"):
        timeout = rest.get(name)
        if isinstance(timeout, (int, float)) and not isinstance(timeout, bool):
            made["timeout"] = rest.pop(name) / 1000
            break
    return Asked("bash", as_text(made | {name: value for name, value in rest.items() if name not in made}))


def _script(words: list[str]) -> str:
    if len(words) == 3 and words[0].rpartition("/")[2] in _SHELLS and words[1] in _RUN:
        return words[2]
    return shlex.join(words)


def codex_patch(patch: object) -> Asked | None:
    """A patch: a `write` or an `edit` if it is one change, else itself, with its changes as parts."""
    changes = changes_of(patch) if isinstance(patch, str) else None
    if not changes:
        return None
    parts = tuple([_change(change) for change in changes])
    return parts[0] if len(parts) == 1 else Asked("apply_patch", as_text({"input": patch}), parts)


def _change(change: Change) -> Asked:
    if change.content is not None:
        return Asked("write", as_text({"path": change.path, "content": change.content}))
    made: dict[str, str | bool | None] = {"path": change.path, "old": change.old, "new": change.new}
    if change.deleted:
        made["deleted"] = True
    if change.moved is not None:
        made["moved"] = change.moved
    return Asked("edit", as_text({name: value for name, value in made.items() if value is not None}))


def asked_of_item(item: Mapping[str, Any]) -> list[Asked]:
    """What a completed item of a cell of code did: a command, changes of files, a call of a server's tool."""
    match item.get("type"):
        case "CommandExecution":
            made = codex_command({"command": item.get("command"), "workdir": item.get("cwd")})
            return [made] if made is not None else []
        case "FileChange":
            changes = item.get("changes")
            return [
                _changed(path, change)
                for path, change in (changes.items() if isinstance(changes, dict) else ())
                if isinstance(change, dict)
            ]
        case "McpToolCall":
            return [
                Asked(f"mcp__{item.get('server')}__{item.get('tool')}", as_text(item.get("arguments") or {}))
            ]
        case _:
            return []


def _changed(path: str, change: Mapping[str, Any]) -> Asked:
    if change.get("type") == "add":
        return Asked("write", as_text({"path": path, "content": change.get("content") or ""}))
    rest = {name: value for name, value in change.items() if name != "type"}
    return Asked(
        "edit",
        as_text({"path": path, **rest, **({"deleted": True} if change.get("type") == "delete" else {})}),
    )
