"""`interlock search`: where something was said."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli.filters import EndedBy, Folder, Since, ToolName, Until

if TYPE_CHECKING:
    from rich.text import Text

    from interlock.log.stores.query import Match


def search(
    text: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="Words, all of which a line has to have.")
    ],
    since: Since = None,
    until: Until = None,
    folder: Folder = None,
    tool: ToolName = None,
    reason: EndedBy = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, the best first.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Search in all that was said in the sessions that are kept: prompts, answers, calls and results.

    Case and accents do not count, a word may go on, and what is written together has to stand together: `src/app`
    finds "src/app.py". Exit code 1: nothing was found.
    """
    import asyncio

    from interlock.cli import exit_codes
    from interlock.cli.filters import where_of
    from interlock.cli.reading import stored
    from interlock.log.event import encode_json

    where = where_of(since, until, folder, tool, reason)

    async def sought() -> list[Match]:
        async with stored() as store:
            return await store.search(" ".join(text), where=where, limit=limit)

    found = asyncio.run(sought())
    if json:
        for match in found:
            sys.stdout.buffer.write(encode_json(match) + b"\n")
    else:
        _show(found)
    if not found:
        raise typer.Exit(exit_codes.FAILED)


def _show(found: list[Match]) -> None:
    from rich.console import Console

    from interlock.cli.oneline import moment

    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 10_000)
    for match in found:
        place = f"{match.place} of {match.tool}" if match.tool is not None else match.place
        console.print(
            f"{match.session}  {match.seq}  turn {match.turn}  {moment(match.time)}  {place}", style="dim"
        )
        console.print(_marked(match))


def _marked(match: Match) -> Text:
    from rich.text import Text

    from interlock.policy.printable import printable

    shown, at = Text("    "), 0
    for start, end in match.marks:
        if start >= at:  # where terms overlap, the first one is marked
            shown.append(printable(match.excerpt[at:start]))
            shown.append(printable(match.excerpt[start:end]), style="bold")
            at = end
    return shown.append(printable(match.excerpt[at:]))
