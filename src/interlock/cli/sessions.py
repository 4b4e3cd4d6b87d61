"""`interlock sessions`: what is kept."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from interlock.cli.filters import EndedBy, Folder, Since, ToolName, Until

if TYPE_CHECKING:
    from interlock.log.stores.query import Where


def sessions(
    since: Since = None,
    until: Until = None,
    folder: Folder = None,
    tool: ToolName = None,
    reason: EndedBy = None,
    limit: Annotated[int, typer.Option(min=1, help="How many, the last used first.")] = 20,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """List the sessions that are kept, the last used first; with options, those in which something was so."""
    import asyncio

    from interlock.cli.filters import where_of

    where = where_of(since, until, folder, tool, reason)
    filtered = any(one is not None for one in (since, until, folder, tool, reason))
    asyncio.run(_list(limit, json, where, filtered=filtered))


async def _list(limit: int, as_json: bool, where: Where, *, filtered: bool) -> None:
    from interlock.cli.place import place
    from interlock.cli.reading import stored
    from interlock.log.event import encode_json

    async with stored() as store:
        found = (await store.list(limit=limit, where=where))[:limit]
    if as_json:
        for info in found:
            sys.stdout.buffer.write(encode_json(info) + b"\n")
        return
    if not found and filtered:
        print("No such sessions.")
        return
    if not found:
        print(f"No sessions yet in {place()}. `interlock demo` makes one.")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from interlock.cli.oneline import moment, short
    from interlock.policy.printable import printable

    # Without a terminal there is no width to fit into.
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 10_000)
    table = Table(box=None, pad_edge=False)
    table.add_column("session", no_wrap=True)
    table.add_column("last used", no_wrap=True)
    table.add_column("events", justify="right")
    table.add_column("folder", overflow="fold")
    table.add_column("title", overflow="fold")
    for info in found:
        table.add_row(
            info.id,
            moment(info.updated),
            str(info.events),
            Text(printable(info.cwd or "")),
            Text(short(info.title or "", 80) if info.erased is None else f"(erased {moment(info.erased)})"),
        )
    console.print(table)
