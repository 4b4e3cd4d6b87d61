"""`interlock check`: whether logs obey the laws."""

from __future__ import annotations

from typing import Annotated

import typer


def check(
    sessions: Annotated[
        list[str],
        typer.Argument(metavar="SESSION...", help="Ids, the beginning or the end of them, or `last`."),
    ],
) -> None:
    """Check every law on the logs of sessions. Exit code 1: one is broken, and the first place is named."""
    import asyncio

    from interlock.cli import exit_codes

    if not asyncio.run(_check(sessions)):
        raise typer.Exit(exit_codes.FAILED)


async def _check(sessions: list[str]) -> bool:
    """Report on each; whether all of them are lawful."""
    from interlock.cli.oneline import count
    from interlock.cli.reading import find, open_log, stored
    from interlock.errors import UnknownFact, UnreadableLog
    from interlock.log.laws import check as breaches_of

    lawful = True
    async with stored() as store:
        for session_id in [await find(store, typed) for typed in sessions]:
            log = await open_log(store, session_id)
            try:
                breaches = breaches_of(log.events)
            except (UnknownFact, UnreadableLog) as error:
                print(f"{session_id}: {error}")
                lawful = False
                continue
            if not breaches:
                print(f"{session_id}: {count(len(log.events), 'event')}, every law holds")
                continue
            first = breaches[0]
            print(f"{session_id}: event {first.seq} breaks the law [{first.law}]: {first.problem}")
            lawful = False
    return lawful
