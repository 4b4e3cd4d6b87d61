"""Where rules come from.

Lives here: `load`, which reads every file that holds rules for a folder, and `rules_of`, which takes them from one
parsed file. A file is used whole or not at all, and a mistake in one of them stops the start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from interlock.policy.rules.document import Document, read_document
from interlock.policy.rules.finding import Finding
from interlock.policy.rules.lint import lint
from interlock.policy.rules.rule import EFFECTS, Rule, RuleError
from interlock.policy.rules.ruleset import RuleSet

__all__ = ["Document", "Loaded", "load", "read_all", "read_document", "rules_of"]

PERMISSIONS = "permissions"
_OWN = ("allow", "ask", "deny", "additional_directories")
_THEIRS = (
    "allow", "ask", "deny", "additionalDirectories", "defaultMode", "disableBypassPermissionsMode", "disableAutoMode",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Loaded:
    """All that was read for one folder.

    documents: every file, whole: other tables than the rules belong to others. mode: the permission mode that a
    settings file of Claude Code asks for; nobody is held to it here. findings: what lint says of the rules.
    """

    rules: RuleSet
    documents: tuple[Document, ...] = ()
    findings: tuple[Finding, ...] = ()
    mode: str | None = None


@dataclass(frozen=True, slots=True)
class _Source:
    path: Path
    origin: str
    anchor: Path
    needed: bool = False


def load(cwd: Path, *, home: Path | None = None, extra: Sequence[Path] = (), trusted: bool = True) -> RuleSet:
    """The rules for a folder, from all its sources. `read_all` gives the files and findings as well.

    Raises:
        RuleError: a file cannot be used; nothing of any of them is in force.
    """
    return _read(cwd, home, extra, trusted, os.environ).rules


def read_all(
    cwd: Path,
    *,
    home: Path | None = None,
    extra: Sequence[Path] = (),
    trusted: bool = True,
    environ: Mapping[str, str] = os.environ,
    tools: Sequence[str] = (),
) -> Loaded:
    """Everything that is written for a folder.

    Args:
        cwd: the workspace.
        extra: files that were named, of either form; these have to be there.
        trusted: without it the files in the workspace may deny and ask, and what they allow is held back.
        tools: names of tools beside those in the box, for lint.

    Raises:
        RuleError: a file cannot be used; nothing of any of them is in force.
    """
    found = _read(cwd, home, extra, trusted, environ)
    return replace(found, findings=(*found.findings, *lint(found.rules, cwd.absolute(), tools=tools)))


def _read(
    cwd: Path, home: Path | None, extra: Sequence[Path], trusted: bool, environ: Mapping[str, str]
) -> Loaded:
    """Everything but lint, which an agent that is started by a program need not wait for."""
    cwd = cwd.absolute()
    home = (home or Path.home()).absolute()
    documents: list[Document] = []
    rules: list[Rule] = []
    additional: list[Path] = []
    findings: list[Finding] = []
    mode: str | None = None
    for source in _sources(cwd, home, extra, environ):
        document = read_document(source.path, origin=source.origin, shown=_shown(source.path, cwd, home))
        if document is None:
            if source.needed:
                raise RuleError("there is no such file: name one that is there", file=str(source.path))
            continue
        documents.append(document)
        found = list(rules_of(document, anchor=source.anchor, home=home))
        folders = _folders(document, cwd, home)
        findings += _strange_keys(document)
        if not trusted and source.origin in ("project", "local"):
            findings += [_held_back(rule) for rule in found if rule.effect == "allow"]
            found = [rule for rule in found if rule.effect != "allow"]
            folders = []
        rules += found
        additional += folders
        mode = mode or _mode(document)
    made = RuleSet(
        rules,
        additional=dict.fromkeys(additional),
        sources=[(document.shown, document.digest) for document in documents],
        home=home,
    )
    return Loaded(made, tuple(documents), tuple(findings), mode)


def rules_of(document: Document, *, anchor: Path | None = None, home: Path | None = None) -> tuple[Rule, ...]:
    """The rules of a file, in the order deny, ask, allow.

    Args:
        anchor: what `/path` is relative to; the folder of the file, if it is not given.

    Raises:
        RuleError: something under `permissions` is wrong; line and what to do.
    """
    table = _permissions(document)
    made = []
    for effect in reversed(EFFECTS):
        for index, text in enumerate(_strings(document, table, effect)):
            made.append(
                Rule.parse(
                    effect,
                    text,
                    anchor=anchor or _anchor(document.path),
                    home=home,
                    file=document.shown,
                    line=document.line_of(PERMISSIONS, effect, index),
                    origin=document.origin,
                )
            )
    return tuple(made)


def _sources(cwd: Path, home: Path, extra: Sequence[Path], environ: Mapping[str, str]) -> list[_Source]:
    configured = environ.get("XDG_CONFIG_HOME", "")
    config = Path(configured) if configured.startswith("/") else home / ".config"
    theirs = home / ".claude"
    named = [_Source(path.absolute(), "file", cwd, needed=True) for path in extra]
    users = [
        _Source(config / "interlock" / "config.toml", "user", config / "interlock"),
        _Source(theirs / "settings.json", "user", theirs),
    ]
    workspace = [
        _Source(cwd / "interlock.toml", "project", cwd),
        _Source(cwd / "interlock.local.toml", "local", cwd),
        _Source(cwd / ".claude" / "settings.json", "project", cwd),
        _Source(cwd / ".claude" / "settings.local.json", "local", cwd),
    ]
    known = {
        source.path for source in (*named, *users)
    }  # in the home folder, the user's file is also the folder's
    return [*named, *[source for source in workspace if source.path not in known], *users]


def _anchor(path: Path) -> Path:
    """The folder that a file's `/path` is relative to: that of the project, for a settings file in `.claude`."""
    folder = path.absolute().parent
    return folder.parent if folder.name == ".claude" else folder


def _shown(path: Path, cwd: Path, home: Path) -> str:
    if path.is_relative_to(cwd):
        return str(path.relative_to(cwd))
    if path.is_relative_to(home):
        return f"~/{path.relative_to(home)}"
    return str(path)


def _permissions(document: Document) -> Mapping[str, Any]:
    """The table of rules, with nothing in it that is not known.

    A key that is nearly one of ours is a mistake: taken for another program's, it would leave a rule out.
    """
    for key in document.data:
        if key in EFFECTS:
            raise _wrong(document, (key,), f"{key!r} belongs under {PERMISSIONS!r}")
        if key != PERMISSIONS and get_close_matches(key.lower(), [PERMISSIONS], cutoff=0.85):
            raise _wrong(document, (key,), f"{key!r} is not a key: did you mean {PERMISSIONS!r}?")
    table = document.data.get(PERMISSIONS, {})
    if not isinstance(table, Mapping):
        raise _wrong(document, (PERMISSIONS,), f"{PERMISSIONS} holds lists of rules, not {table!r}")
    known = _OWN if document.is_toml else _THEIRS
    for key in table:
        if key in known:
            continue
        lists = known[:4]  # others may be keys that their program has by now
        near = get_close_matches(key, lists, n=1) or get_close_matches(key.lower(), lists, n=1)
        if near:
            raise _wrong(document, (PERMISSIONS, key), f"{key!r} is not a key: did you mean {near[0]!r}?")
        if document.is_toml:
            raise _wrong(
                document, (PERMISSIONS, key), f"{PERMISSIONS} has no {key!r}: it may have {', '.join(known)}"
            )
    return table


def _strange_keys(document: Document) -> list[Finding]:
    table = _permissions(document)
    known = _OWN if document.is_toml else _THEIRS
    return [
        Finding(
            document.shown,
            document.line_of(PERMISSIONS, key),
            None,
            "unknown-key",
            f"{PERMISSIONS}.{key} is not known here and does nothing",
        )
        for key in table
        if key not in known
    ]


def _strings(document: Document, table: Mapping[str, Any], key: str) -> list[str]:
    given = table.get(key, [])
    if not isinstance(given, list):
        raise _wrong(document, (PERMISSIONS, key), f"{key} is a list of strings, not {given!r}")
    for index, text in enumerate(given):
        if not isinstance(text, str):
            raise _wrong(document, (PERMISSIONS, key, index), f"{key} is a list of strings; {text!r} is none")
    return given


def _folders(document: Document, cwd: Path, home: Path) -> list[Path]:
    """Folders that belong to the workspace beside it; relative ones are below the workspace."""
    key = "additional_directories" if document.is_toml else "additionalDirectories"
    made = []
    for text in _strings(document, _permissions(document), key):
        if "\0" in text or not text.strip():
            raise _wrong(document, (PERMISSIONS, key), f"{text!r} is not a folder")
        path = home / text[2:] if text.startswith("~/") else home if text == "~" else cwd / text
        made.append(Path(os.path.normpath(path)))
    return made


def _mode(document: Document) -> str | None:
    mode = None if document.is_toml else _permissions(document).get("defaultMode")
    if mode is not None and not isinstance(mode, str):
        raise _wrong(document, (PERMISSIONS, "defaultMode"), f"defaultMode is a name, not {mode!r}")
    return mode


def _held_back(rule: Rule) -> Finding:
    return Finding(
        rule.file,
        rule.line,
        rule.text,
        "held-back",
        "it allows nothing until this folder is trusted",
        "note",
    )


def _wrong(document: Document, path: tuple[str | int, ...], problem: str) -> RuleError:
    return RuleError(problem, file=document.shown, line=document.line_of(*path))
