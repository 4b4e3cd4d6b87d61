"""`interlock fork`: go back to the end of a turn, and go on from there in a session of its own."""

from __future__ import annotations

from typing import Annotated

import typer


def fork(
    session: Annotated[str, typer.Argument(help="An id, the beginning or the end of one, or `last`.")],
    turn: Annotated[
        int | None,
        typer.Option(min=1, help="The turn at whose end it begins.", show_default="the last closed one"),
    ] = None,
) -> None:
    """Make a new session that begins as this one was at the end of a turn, and print its id.

    It has the history, preset and grants of that moment, not what was pending, and is kept by itself: the session that
    it comes from can go on or be deleted. Go on with `interlock run --resume`.
    """
    import asyncio

    print(asyncio.run(_fork(session, turn)))


async def _fork(typed: str, turn: int | None) -> str:
    from interlock.cli.reading import find, stored
    from interlock.log.forking import fork_session

    async with stored() as store:
        made = await fork_session(await find(store, typed), store=store, at=turn)
        await made.close()
        return made.id
