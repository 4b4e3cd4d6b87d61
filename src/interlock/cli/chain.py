"""The explanation of a call as a person reads it: a line for each that had a part in it, and a last sentence.

Lives here: `show` and `lines`. Everything that a model, a tool or a hook may have written is made safe to print.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Styled

from interlock.cli.calls import label
from interlock.cli.oneline import arguments, moment, short, span
from interlock.log.event import encode_json
from interlock.log.explanation import Explained, Link
from interlock.log.last_word import person, source
from interlock.policy.printable import one_line, printable

_SHOWN = 400  # characters of a reason, an argument or a context
WON = "◂"
_STYLES = {
    "ran": "green",
    "failed": "red",
    "refused": "red",
    "unknown": "red",
    "skipped": "yellow",
    "waiting": "magenta",
}
_NOBODY = {"cancelled": "the question was withdrawn", "unavailable": "nobody was there to answer"}


class Row(NamedTuple):
    """One line of a chain. `below`: what was changed, as lines of their own."""

    seq: int
    stage: str
    words: str
    won: bool
    below: tuple[str, ...] = ()


def show(console: Console, call: Explained, depth: int = 0) -> None:
    """Print the whole chain of a call, and those of the calls beneath it."""
    indent = 2 * depth
    style = _STYLES.get(call.fate, "bold")
    line = f", line {call.call}" if call.call is not None else ""
    kind = f"step {call.turn}.{call.step}, call {call.index + 1}" if not depth else "called by it"
    head = Styled.assemble((label(call.name, call.id), f"bold {style}"), (f"  {kind}{line}", "dim"))
    _print(console, head, indent)
    previous = ""
    for row in rows(call):
        stage, previous = (row.stage if row.stage != previous else ""), row.stage
        _row(console, row, stage, indent + 2)
    _print(console, Styled(short(call.word, 4 * _SHOWN), f"bold {style}"), indent + 2)
    for nested in call.nested:
        show(console, nested, depth + 1)


def _row(console: Console, row: Row, stage: str, indent: int) -> None:
    mark = f" {WON}" if row.won else ""
    below = "".join([f"\n{line}" for line in row.below])
    if not console.is_terminal:
        below = below.replace("\n", f"\n{' ' * (indent + 17)}")
        console.print(
            f"{' ' * indent}{row.seq:>5} {stage:<10} {row.words}{mark}{below}".rstrip(), soft_wrap=True
        )
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", justify="right", width=5)
    grid.add_column(style="cyan", width=10)
    grid.add_column(overflow="fold")
    words = Styled.assemble((row.words, "bold" if row.won else ""), (mark, "bold"), (below, "dim"))
    grid.add_row(str(row.seq), stage, words)
    console.print(Padding(grid, (0, 0, 0, indent)))


def _print(console: Console, text: Styled, indent: int) -> None:
    if console.is_terminal:
        console.print(Padding(text, (0, 0, 0, indent)))
    else:
        console.print(Styled(" " * indent) + text, soft_wrap=True)


def rows(call: Explained) -> Iterator[Row]:
    """One row a link, in order."""
    for link in call.chain:
        words, below = _words(call, link)
        took = f" ({_took(link.us)})" if link.us else ""
        # Whoever wrote it: nothing of it is a command to the terminal.
        yield Row(link.seq, link.stage, one_line(f"{words}{took}"), link.won, tuple(map(printable, below)))


def _words(call: Explained, link: Link) -> tuple[str, tuple[str, ...]]:
    changes = tuple(_changes(link))
    match link.stage:
        case "call":
            return f"{link.answer} by {_name(link)}: {_value(call.asked)}", changes
        case "lookup":
            effect = link.detail.get("effect")
            return f"{link.answer}{f', its effect is {effect}' if effect else ''}{_because(link)}", changes
        case "hook":
            return _hook(link), changes
        case "default":
            sandbox = link.detail.get("sandbox")
            confined = f" (sandbox {short(str(sandbox), 40)})" if sandbox else ""
            return f"nobody spoke; {_name(link)}: {link.answer}{_because(link)}{confined}", changes
        case "approval":
            return _approval(link), changes
        case "around" | "post" | "prepare" | "policy" | "guard" | "recheck":
            return f"{short(source(link), _SHOWN)}: {short(link.answer, 80)}{_because(link)}", changes
        case "body":
            return _body(link), changes
        case "commit":
            by = f" by {_name(link)}" if link.who else ""
            waited = link.detail.get("waited_ms", 0)
            after = f", {span(waited)} after it was done" if waited else ""
            return f"{link.answer}{by}{after}", changes
        case "context":
            return f"{_name(link)} says to the model, {short(link.answer, 80)}{_because(link)}", changes
        case "note":
            return f"{_name(link)} {short(link.answer, 80)}{_because(link)}", changes


def _hook(link: Link) -> str:
    detail = link.detail
    said = f": {_value(detail['said'])}" if "said" in detail else ""
    exited = f", exit code {detail['exit']}" if "exit" in detail else ""
    named = link.file is None or link.file.endswith(
        link.who.rpartition(" ")[2]
    )  # its name may say where it is
    where = "" if named else f" in {short(link.file or '', 200)}"
    event = short(str(detail.get("event", "")), 40)
    return f"{event} {_name(link)}{where} {link.answer}{exited}{said}{_because(link)}"


def _approval(link: Link) -> str:
    detail = link.detail
    if "options" in detail:
        options = ", ".join([short(str(option), 80) for option in detail["options"]])
        by = f" by {_name(link)}" if link.who else ""
        until = f", until {moment(detail['expires'])}" if "expires" in detail else ""
        return f"asked{by}{_because(link)} [{options}{until}; digest {str(detail['digest'])[:8]}]"
    if "digest" not in detail:
        return f"{_name(link)}: {short(link.answer, 80)}{_because(link)}"
    if link.answer in _NOBODY:
        return f"{_NOBODY[link.answer]}{_because(link)}"
    said = "yes, once" if link.answer == "allowed-once" else "no"
    kept = ""
    if "rule_written" in detail:
        lasting = "for this session" if detail.get("scope") == "session" else "always"
        kept = f", and {lasting}: {short(str(detail['rule_written']), 200)}"
    return f"{short(person(link), 200)}: {said}{kept}{_because(link)} [digest {str(detail['digest'])[:8]}]"


def _body(link: Link) -> str:
    detail = link.detail
    if link.answer != "started":
        return short(link.answer, 80)
    again = f" again (run {detail['run']})" if detail.get("run", 1) > 1 else ""
    sandbox = f", sandbox {short(str(detail['sandbox']), 40)}" if "sandbox" in detail else ""
    return f"started{again}{sandbox}"


def _changes(link: Link) -> Iterator[str]:
    for change in link.changes:
        name = f"{short(change.name, 80)}=" if change.name else ""
        if change.before is not msgspec.UNSET:
            yield f"- {name}{_json(change.before)}"
        if change.after is not msgspec.UNSET:
            yield f"+ {name}{_json(change.after)}"


def _name(link: Link) -> str:
    return short(link.who, 200)


def _because(link: Link) -> str:
    return f": {short(link.reason, _SHOWN)}" if link.reason and link.reason.strip() else ""


def _value(value: Any) -> str:
    if isinstance(value, str):
        return short(value, _SHOWN)
    return arguments(value, _SHOWN) if isinstance(value, Mapping) else _json(value)


def _json(value: Any) -> str:
    return short(encode_json(value).decode(), _SHOWN)


def _took(us: int) -> str:
    return f"{us} µs" if us < 1000 else span(us // 1000)
