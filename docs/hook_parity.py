"""How far the hook formats of other programs are honoured: a table that is made from what the tests prove.

Lives here: `hook_parity`. Each dialect declares by event what it makes of every field (`honoured`); the tests hold the
declarations to cases that they run, one for each field of an answer, and to the payloads that are really sent.
"""

from __future__ import annotations

from collections.abc import Iterator

from interlock.bridges.hooks.bridge import NOT_FIRED
from interlock.bridges.hooks.dialects import DIALECTS
from interlock.bridges.hooks.dialects.dialect import Dialect, Status
from interlock.bridges.hooks.event import EVENTS, EventName

COLUMNS = {"claude": "Claude Code", "codex": "Codex", "gemini": "Gemini CLI"}
_INPUT = "input:"
_SHORT = {"hookSpecificOutput.": "…", _INPUT: ""}


def hook_parity() -> tuple[list[str], list[list[str]]]:
    """Head and rows: what is treated alike everywhere is one row of its event."""
    dialects = [DIALECTS[name] for name in COLUMNS]  # type: ignore[index]  # the names of all of them
    rows: list[list[str]] = []
    for event in EVENTS:
        rows.append([f"**{event}**", "", *[_fired(dialect, event) for dialect in dialects]])
        for fields, cells in _alike(dialects, event):
            rows.append(["", fields, *cells])
    return ["event", "field", *COLUMNS.values()], rows


def _fired(dialect: Dialect, event: EventName) -> str:
    names = [f"`{name}`" for name, events in dialect.events.items() if event in events]
    if not names:
        return "not an event there"
    return f"{', '.join(names)}{': not fired yet' if event in NOT_FIRED else ''}"


def _alike(dialects: list[Dialect], event: EventName) -> Iterator[tuple[str, list[str]]]:
    """Fields of answers, then those of payloads; the ones with the same cells together."""
    fields = list(dict.fromkeys(name for dialect in dialects for name in dialect.honoured.get(event, {})))
    for sent in (False, True):
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in fields:
            if name.startswith(_INPUT) is sent:
                cells = tuple(_cell(dialect.honoured.get(event, {}).get(name)) for dialect in dialects)
                groups.setdefault(cells, []).append(name)
        for cells, names in groups.items():
            shown = ", ".join(_shown(name) for name in names)
            yield (f"told: {shown}" if sent else shown), list(cells)


def _cell(status: Status | None) -> str:
    if status is None:
        return ""
    word = {"honoured": "yes", "differs": "differs", "ignored": "no effect", "not yet": "not yet"}[status.how]
    return f"{word}: {status.note}" if status.note else word


def _shown(name: str) -> str:
    if " " in name:
        return name
    for long, short in _SHORT.items():
        if name.startswith(long):
            return f"`{short}{name.removeprefix(long)}`"
    return f"`{name}`"
