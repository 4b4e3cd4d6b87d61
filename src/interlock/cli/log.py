"""`interlock log`: what happened in a session."""

from __future__ import annotations

from typing import Annotated

import typer


def log(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, the beginning or the end of it, or `last`.")
    ],
    json: Annotated[
        bool, typer.Option("--json", help="The stored lines instead, one JSON object each.")
    ] = False,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Go on with lines that are written meanwhile, until Ctrl-C."),
    ] = False,
) -> None:
    """Show a session as a timeline: turns, steps, calls, who decided what, and when.

    Each line begins with its number in the log and the time since the log began. Reading changes nothing, and works
    while another process drives the session.
    """
    import asyncio

    asyncio.run(_show(session, json, follow))


async def _show(typed: str, as_json: bool, follow: bool) -> None:
    import sys

    from rich.console import Console

    from interlock.cli.reading import find, open_log, stored
    from interlock.cli.timeline import Timeline, show
    from interlock.log.event import Event, encode_event

    console = Console(highlight=False, markup=False, emoji=False)
    timeline = Timeline()

    def tell(event: Event) -> None:
        if as_json:
            sys.stdout.buffer.write(encode_event(event) + b"\n")
        elif (line := timeline.line(event)) is not None:
            show(console, line)

    async with stored() as store:
        log = await open_log(store, await find(store, typed))
        at = -1
        for event in log.events:
            tell(event)
            at = event.seq
        sys.stdout.flush()
        if follow:
            async for event in log.follow(at):
                tell(event)
                sys.stdout.flush()
