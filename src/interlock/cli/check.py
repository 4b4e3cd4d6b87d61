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
    """Check every law on the logs of sessions, and what is kept of where they stand against replaying them.

    Exit code 1: a law is broken, and the first place is named; or what is kept says something else than the log.
    """
    import asyncio

    from interlock.cli import exit_codes

    if not asyncio.run(_check(sessions)):
        raise typer.Exit(exit_codes.FAILED)


async def _check(sessions: list[str]) -> bool:
    """Report on each; whether all of them are lawful."""
    from interlock.cli.oneline import count
    from interlock.cli.reading import find, stored
    from interlock.errors import UnknownFact, UnreadableLog
    from interlock.log.checkpoint import doubt
    from interlock.log.laws import check as breaches_of
    from interlock.log.session import Session

    lawful = True
    async with stored() as store:
        for session_id in [await find(store, typed) for typed in sessions]:
            journal = await store.open(session_id, readonly=True, checkpoint=True)
            log, kept = Session(session_id, journal, readonly=True), journal.checkpoint
            try:
                breaches = breaches_of(log.events)
            except (UnknownFact, UnreadableLog) as error:
                print(f"{session_id}: {error}")
                lawful = False
                continue
            if not breaches:
                if kept is not None and (wrong := doubt(kept, session_id, log.events)) is not None:
                    print(f"{session_id}: its checkpoint at event {kept.seq} is wrong: {wrong}")
                    lawful = False
                    continue
                print(f"{session_id}: {count(len(log.events), 'event')}, every law holds")
                continue
            first = breaches[0]
            print(f"{session_id}: event {first.seq} breaks the law [{first.law}]: {first.problem}")
            lawful = False
    return lawful
