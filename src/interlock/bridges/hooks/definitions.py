"""Handlers, as configuration files define them.

Lives here: `define`, which makes handlers of what stands under `hooks` in a file. What is wrong with an entry is a
problem with file and line; the entry is left out, or the field is, and the others stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from interlock.bridges.hooks.dialects import DIALECTS
from interlock.bridges.hooks.event import TOOL_EVENTS, EventName
from interlock.bridges.hooks.handler import Command, DialectName, Handler, Http, Origin, Place
from interlock.bridges.hooks.located import Document
from interlock.bridges.hooks.matching import BadMatcher, Matcher, compile_matcher
from interlock.bridges.hooks.verdict import Problem

_LONGEST = 3600.0  # seconds
_SESSION_END = 1.5  # seconds, where nothing else is said; the person is leaving
_SESSION_END_LONGEST = 60.0

# What a file may write with underscores, by the name that the formats have for it.
_CAMEL = {
    "on_failure": "onFailure",
    "status_message": "statusMessage",
    "allowed_env_vars": "allowedEnvVars",
    "async_rewake": "asyncRewake",
    "timeout_sec": "timeout",
    "timeoutSec": "timeout",
}
_FIELDS = frozenset(
    {
        "type",
        "if",
        "timeout",
        "statusMessage",
        "once",
        "command",
        "args",
        "shell",
        "async",
        "asyncRewake",
        "onFailure",
        "url",
        "headers",
        "allowedEnvVars",
        "name",
        "description",
        "rewakeMessage",
        "rewakeSummary",
        "commandWindows",
    }
)
_ABROAD = frozenset({"mcp_tool", "prompt", "agent"})
_GEMINI_SETTINGS = frozenset({"disabled", "enabled", "notifications"})


_Where: TypeAlias = tuple[str | int, ...]  # ("hooks", event, group, "hooks", handler)


class _Malformed(ValueError):
    """An entry cannot be used; the text says why."""


@dataclass(frozen=True, slots=True)
class _File:
    """What is being read, for places and problems."""

    path: Path
    origin: Origin
    dialect: DialectName
    document: Document
    problems: list[Problem]

    def problem(self, what: str, *where: str | int) -> None:
        """`where` it is: the keys that lead there from the top."""
        self.problems.append(Problem(what, str(self.path), self.document.line_of(*where)))


def define(
    path: Path, origin: Origin, dialect: DialectName, document: Document, hooks: object
) -> tuple[list[Handler], list[Problem]]:
    """The handlers under `hooks`, in the order in which they are written."""
    file = _File(path, origin, dialect, document, [])
    if not isinstance(hooks, dict):
        file.problem("'hooks' is not an object of events", "hooks")
        return [], file.problems
    return [handler for name in hooks for handler in _of_event(file, name, hooks[name])], file.problems


def _of_event(file: _File, name: str, groups: object) -> Iterator[Handler]:
    dialect = DIALECTS[file.dialect]
    events = dialect.events.get(name)
    if events is None:
        if name not in dialect.known and not (file.dialect == "gemini" and name in _GEMINI_SETTINGS):
            near = get_close_matches(name, [*dialect.events, *dialect.known], n=1)
            hint = f": did you mean {near[0]!r}?" if near else f"; events are {', '.join(dialect.events)}"
            file.problem(f"{name!r} is no event{hint}", "hooks", name)
        return
    if not isinstance(groups, list):
        file.problem(f"{name} is not a list of matcher groups", "hooks", name)
        return
    for i, group in enumerate(groups):
        if not isinstance(group, dict):
            file.problem(f"an entry of {name} is not an object", "hooks", name, i)
            continue
        for event in events:
            said = len(file.problems)
            yield from _of_group(file, event, group, ("hooks", name, i))
            if event != events[0]:  # where a name stands for several events, problems are said once
                del file.problems[said:]


def _of_group(file: _File, event: EventName, group: Mapping[str, Any], where: _Where) -> Iterator[Handler]:
    entries = group.get("hooks")
    flat = entries is None and ("command" in group or "url" in group)
    if flat:  # one handler, written into its group
        entries = [{key: value for key, value in group.items() if key not in ("matcher", "sequential")}]
    try:
        if not isinstance(entries, list):
            raise _Malformed("a group has no list 'hooks'")
        matcher = _matcher(file, event, group.get("matcher"))
    except _Malformed as problem:
        file.problem(f"{where[1]}: {problem}", *where)
        return
    for i, entry in enumerate(entries):
        at = where if flat else (*where, "hooks", i)
        try:
            if not isinstance(entry, dict):
                raise _Malformed("a handler is not an object")
            yield _handler(file, event, matcher, group.get("sequential") is True, entry, at)
        except _Malformed as problem:
            file.problem(f"{where[1]}: {problem}", *at)


def _matcher(file: _File, event: EventName, text: object) -> Matcher:
    if text is not None and not isinstance(text, str):
        raise _Malformed("a matcher is not a string")
    try:
        return compile_matcher(text, DIALECTS[file.dialect].style(event))
    except BadMatcher as bad:
        raise _Malformed(f"{bad}; its handlers are left out") from None


def _handler(
    file: _File,
    event: EventName,
    matcher: Matcher,
    sequential: bool,
    entry: Mapping[str, Any],
    where: _Where,
) -> Handler:
    given = {_CAMEL.get(key, key): value for key, value in entry.items()}
    action = _action(file.dialect, given)
    for key in given:
        if key not in _FIELDS:
            near = get_close_matches(key, _FIELDS, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            file.problem(f"{where[1]}: a handler has no field {key!r}{hint}", *where)
    condition = _typed(given, "if", str)
    if condition is not None and event not in TOOL_EVENTS:
        raise _Malformed("a handler with 'if' runs on tool events only: this one would never run")
    on_failure = given.get("onFailure")
    if on_failure not in (None, "block", "continue"):
        raise _Malformed(f"onFailure is 'block' or 'continue', not {on_failure!r}")
    rewake = _typed(given, "asyncRewake", bool) is True
    return Handler(
        dialect=file.dialect,
        event=event,
        matcher=matcher,
        action=action,
        place=Place(file.path, file.document.line_of(*where), file.origin),
        timeout=_timeout(file.dialect, event, given.get("timeout")),
        condition=condition,
        on_failure=on_failure,
        once=_typed(given, "once", bool) is True,
        background=rewake or _typed(given, "async", bool) is True,
        rewake=rewake,
        sequential=sequential,
        status=_typed(given, "statusMessage", str),
        name=_typed(given, "name", str),
    )


def _typed(given: Mapping[str, Any], key: str, kind: type) -> Any:
    value = given.get(key)
    if value is not None and not isinstance(value, kind):
        word = {str: "a string", bool: "true or false", dict: "an object", list: "a list"}[kind]
        raise _Malformed(f"{key!r} is {word}, not {value!r}")
    return value


def _strings(given: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    value = _typed(given, key, list)
    if value is None:
        return None
    if not all(isinstance(one, str) for one in value):
        raise _Malformed(f"{key!r} is a list of strings")
    return tuple(value)


def _action(dialect: DialectName, given: Mapping[str, Any]) -> Command | Http:
    kind = given.get("type", "http" if "url" in given and "command" not in given else "command")
    if kind in _ABROAD:
        raise _Malformed(f"handlers of type {kind!r} are not supported; use 'command' or 'http'")
    if kind == "http" and dialect == "claude":
        url = _typed(given, "url", str)
        parts = urlsplit(url or "")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise _Malformed(f"'url' is an http or https address, not {url!r}")
        headers = _typed(given, "headers", dict) or {}
        if not all(isinstance(value, str) for value in headers.values()):
            raise _Malformed("'headers' is an object of strings")
        return Http(url, tuple(headers.items()), _strings(given, "allowedEnvVars") or ())
    if kind != "command":
        raise _Malformed(f"'type' is 'command'{' or http' if dialect == 'claude' else ''}, not {kind!r}")
    command = _typed(given, "command", str)
    if not command or not command.strip():
        raise _Malformed("a handler has no 'command'")
    shell = given.get("shell")
    if shell not in (None, "sh", "bash", "powershell"):
        raise _Malformed(f"'shell' is 'bash' or 'powershell', not {shell!r}")
    if dialect == "codex":
        return Command(command, shell="login")
    if dialect == "gemini":
        return Command(command, shell="bash")
    return Command(command, _strings(given, "args"), shell or "sh")


def _timeout(dialect: DialectName, event: EventName, given: object) -> float:
    """Seconds."""
    if given is None:
        if dialect == "gemini":
            return 60.0
        if event == "SessionEnd":
            return _SESSION_END
        return 30.0 if event == "UserPromptSubmit" and dialect == "claude" else 600.0
    if (
        not isinstance(given, (int, float))
        or isinstance(given, bool)
        or not math.isfinite(given)
        or given <= 0
    ):
        raise _Malformed(f"'timeout' is a number above 0, not {given!r}")
    seconds = given / 1000 if dialect == "gemini" else float(given)
    return min(seconds, _SESSION_END_LONGEST if event == "SessionEnd" else _LONGEST)
