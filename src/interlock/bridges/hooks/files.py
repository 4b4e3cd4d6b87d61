"""Where hooks are configured, and what is written there.

Lives here: `Layout`, the files of each program, `Parsed`, one of them, and `load`, all of them as `Loaded`. All files
count, none replaces another. An entry that cannot be understood is a problem with file and line, and never takes
others with it.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from interlock.bridges.hooks.definitions import define
from interlock.bridges.hooks.handler import DialectName, Handler, Http, Origin
from interlock.bridges.hooks.located import Document, Unreadable, read_json, read_toml
from interlock.bridges.hooks.verdict import Problem
from interlock.errors import said_error

LIMIT = 4 << 20  # bytes of a configuration file
NONE_RUN = "; none of its hooks run"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A file that may configure hooks."""

    path: Path
    dialect: DialectName
    origin: Origin
    format: Literal["json", "toml"]


@dataclass(frozen=True, slots=True)
class Layout:
    """Which files are looked at, in the order in which their handlers are declared."""

    files: tuple[ConfigFile, ...]

    @classmethod
    def of(
        cls,
        project: Path,
        *,
        home: Path | None = None,
        dialects: Sequence[DialectName] = ("claude", "codex", "gemini"),
        environ: Mapping[str, str] = os.environ,
    ) -> Layout:
        """The places where those programs, and this one, keep them: a person's before a repository's."""
        home = home or Path.home()
        configured = environ.get("XDG_CONFIG_HOME", "")
        config = Path(configured) if configured.startswith("/") else home / ".config"
        files = [
            ConfigFile(config / "interlock" / "config.toml", "claude", "user", "toml"),
            ConfigFile(project / "interlock.toml", "claude", "project", "toml"),
            ConfigFile(project / "interlock.local.toml", "claude", "local", "toml"),
            ConfigFile(home / ".claude" / "settings.json", "claude", "user", "json"),
            ConfigFile(project / ".claude" / "settings.json", "claude", "project", "json"),
            ConfigFile(project / ".claude" / "settings.local.json", "claude", "local", "json"),
            ConfigFile(home / ".codex" / "hooks.json", "codex", "user", "json"),
            ConfigFile(home / ".codex" / "config.toml", "codex", "user", "toml"),
            ConfigFile(project / ".codex" / "hooks.json", "codex", "project", "json"),
            ConfigFile(project / ".codex" / "config.toml", "codex", "project", "toml"),
            ConfigFile(home / ".gemini" / "settings.json", "gemini", "user", "json"),
            ConfigFile(project / ".gemini" / "settings.json", "gemini", "project", "json"),
        ]
        chosen: dict[Path, ConfigFile] = {}
        for file in files:  # where the project is the home folder, its files are the person's
            if file.dialect in dialects:
                chosen.setdefault(file.path, file)
        return cls(tuple(chosen.values()))


@dataclass(frozen=True, slots=True)
class Parsed:
    """One file, read. `broken`: nothing of it could be understood."""

    file: ConfigFile
    digest: str
    handlers: tuple[Handler, ...] = ()
    problems: tuple[Problem, ...] = ()
    broken: bool = False
    switches_off: bool = False  # hooks of this file's origin: all, where that is the person
    urls: tuple[str, ...] | None = None  # patterns of addresses that may be posted to
    variables: tuple[str, ...] | None = None  # that headers may use


@dataclass(frozen=True, slots=True)
class Loaded:
    """What the files say now."""

    handlers: tuple[Handler, ...] = ()  # in declared order; identical ones once
    problems: tuple[Problem, ...] = ()
    digests: Mapping[Path, str] = field(default_factory=dict)  # of the content of each file that is there
    disabled: str | None = None  # the person's file that switched all hooks off
    broken: tuple[Path, ...] = ()  # files of which nothing could be understood: their gates are missing


def read(file: ConfigFile) -> Parsed | None:
    """The file as it is now; None if there is none. It never raises."""
    try:
        with file.path.open("rb") as content:
            data = content.read(LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return _unreadable(file, "", f"cannot be read: {said_error(error)}")
    digest = hashlib.sha256(data).hexdigest()
    if len(data) > LIMIT:
        return _unreadable(file, digest, f"is larger than {LIMIT:,} bytes")
    try:
        text = data.decode()
        document = read_json(text) if file.format == "json" else read_toml(text)
    except UnicodeDecodeError as error:
        return _unreadable(file, digest, f"is not UTF-8: {error}")
    except Unreadable as error:
        return _unreadable(file, digest, f"is {error}", error.line)
    return _parsed(file, digest, document)


def _unreadable(file: ConfigFile, digest: str, what: str, line: int | None = None) -> Parsed:
    problem = Problem(f"the file {what}{NONE_RUN}", str(file.path), line)
    return Parsed(file, digest, problems=(problem,), broken=True)


def _parsed(file: ConfigFile, digest: str, document: Document) -> Parsed:
    value = document.value
    handlers: list[Handler] = []
    problems: list[Problem] = []
    if (hooks := value.get("hooks")) is not None:
        handlers, problems = define(file.path, file.origin, file.dialect, document, hooks)
    if file.dialect == "codex" and file.format == "json":
        problems += [
            Problem(
                f"{key!r} does not belong here: Codex refuses a file that has it",
                str(file.path),
                document.line_of(key),
            )
            for key in value
            if key not in ("description", "hooks")
        ]
    if file.dialect == "gemini":
        handlers = _gemini_enabled(value, handlers)
    return Parsed(
        file,
        digest,
        tuple(handlers),
        tuple(problems),
        switches_off=_switches_off(file, value),
        urls=_list(value, "allowedHttpHookUrls") if file.dialect == "claude" else None,
        variables=_list(value, "httpHookAllowedEnvVars") if file.dialect == "claude" else None,
    )


def _switches_off(file: ConfigFile, value: Mapping[str, Any]) -> bool:
    match file.dialect:
        case "claude":
            return value.get("disableAllHooks") is True or value.get("disable_all_hooks") is True
        case "codex":
            features = value.get("features")
            return isinstance(features, dict) and False in (
                features.get("hooks"),
                features.get("codex_hooks"),
            )
        case "gemini":
            settings = value.get("hooksConfig")
            return isinstance(settings, dict) and settings.get("enabled") is False


def _gemini_enabled(value: Mapping[str, Any], handlers: list[Handler]) -> list[Handler]:
    """Without those that are switched off by name or by command."""
    off: set[object] = set()
    for settings in (value.get("hooks"), value.get("hooksConfig")):
        names = settings.get("disabled") if isinstance(settings, dict) else None
        if isinstance(names, list):
            off |= {name for name in names if isinstance(name, str)}
    return [
        handler
        for handler in handlers
        if handler.name not in off and getattr(handler.action, "command", None) not in off
    ]


def _list(value: Mapping[str, Any], key: str) -> tuple[str, ...] | None:
    given = value.get(key)
    return tuple([one for one in given if isinstance(one, str)]) if isinstance(given, list) else None


def load(layout: Layout, reader: Callable[[ConfigFile], Parsed | None] = read) -> Loaded:
    """All files as they are now."""
    return combine([parsed for file in layout.files if (parsed := reader(file)) is not None])


def combine(files: Sequence[Parsed]) -> Loaded:
    """What several files say together. Where one switches hooks off, a repository's only reaches its own."""
    off = [parsed.file for parsed in files if parsed.switches_off]
    problems = [problem for parsed in files for problem in parsed.problems]
    digests = {parsed.file.path: parsed.digest for parsed in files if parsed.digest}
    broken = tuple([parsed.file.path for parsed in files if parsed.broken])
    by_person = next(
        (str(file.path) for file in off if file.origin == "user" and file.dialect == "claude"), None
    )
    if by_person is not None:
        return Loaded((), tuple(problems), digests, by_person, broken)
    once: dict[str, Handler] = {}
    for parsed in files:
        if any(_reaches(file, parsed.file) for file in off):
            continue
        for handler in parsed.handlers:
            allowed = _allowed(handler, files, problems)
            if allowed is not None:
                once.setdefault(allowed.digest, allowed)
    return Loaded(tuple(once.values()), tuple(dict.fromkeys(problems)), digests, None, broken)


def _reaches(switch: ConfigFile, file: ConfigFile) -> bool:
    if switch.dialect != file.dialect:
        return False
    return switch.origin == "user" or file.origin != "user"


def _allowed(handler: Handler, files: Sequence[Parsed], problems: list[Problem]) -> Handler | None:
    """The handler within the lists of addresses and variables of all files; None if its address is on none."""
    action = handler.action
    if not isinstance(action, Http):
        return handler
    for parsed in files:
        if parsed.urls is not None and not any(_matches(pattern, action.url) for pattern in parsed.urls):
            what = f"{action.url} is not among allowedHttpHookUrls of {parsed.file.path}; it is left out"
            problems.append(Problem(what, str(handler.place.file), handler.place.line))
            return None
        if parsed.variables is not None:
            kept = tuple([name for name in action.allowed_env if name in parsed.variables])
            action = replace(action, allowed_env=kept)
    return replace(handler, action=action)


def _matches(pattern: str, url: str) -> bool:
    return re.fullmatch(".*".join(re.escape(part) for part in pattern.split("*")), url) is not None
