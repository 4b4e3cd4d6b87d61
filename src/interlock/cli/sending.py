"""`interlock send` and `interlock stop`: speaking to a session that another process drives, or that nobody does.

Lives here: both commands. What they send is on disk before they say anything; they wait a moment for what becomes of it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from interlock.log.event import Event
    from interlock.log.stores.store import Store
    from interlock.loop.mailbox import Mailbox, Posted

_SESSION = Annotated[str, typer.Argument(help="An id, the beginning or the end of one, or `last`.")]
_BY = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Who sends, as it is put on record.", show_default="the user's name"),
]


def send(
    session: _SESSION,
    text: Annotated[str, typer.Argument(help="The message; `-`: standard input.")],
    steer: Annotated[
        bool,
        typer.Option("--steer", help="For the next step of the turn that runs, not for a turn of its own."),
    ] = False,
    inject: Annotated[
        bool, typer.Option("--inject", help="For the next step, whenever that is: it starts no work.")
    ] = False,
    by: _BY = None,
) -> None:
    """Send a message to a session, whoever drives it, and say what became of it.

    Where nobody drives it, the message waits in its mailbox until somebody does.
    """
    import asyncio

    asyncio.run(_send(session, text, by, steer=steer, inject=inject))


def stop(
    session: _SESSION,
    keep_inbox: Annotated[
        bool, typer.Option("--keep-inbox", help="What is pending stays so, and is parked.")
    ] = False,
    grace: Annotated[
        float | None,
        typer.Option(min=0, metavar="SECONDS", help="After that, what still runs is given up, on record."),
    ] = None,
    by: _BY = None,
) -> None:
    """Stop the turn that is open in a session, whoever drives it, and discard what is pending.

    A turn that begins meanwhile is not stopped. Bodies of tools that have started are waited for.
    """
    import asyncio

    asyncio.run(_stop(session, by, keep_inbox=keep_inbox, grace=grace))


async def _send(typed: str, text: str, by: str | None, *, steer: bool, inject: bool) -> None:
    from interlock.cli.reading import find, stored
    from interlock.errors import UsageError

    if steer and inject:
        raise UsageError("--steer starts work and --inject does not: give one of them.")
    if text == "-":
        try:
            text = sys.stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"The message on standard input is not UTF-8: {error}") from None
    if not text.strip():
        raise UsageError("There is nothing to send.")
    async with stored() as store:
        mailbox = _mailbox(await find(store, typed), store, by)
        verb = mailbox.steer if steer else mailbox.inject if inject else mailbox.followup
        posted = await verb(text)
        event = await _outcome(mailbox, posted)
    print(_WAITS if event is None else f"taken: event {event.seq}")


async def _stop(typed: str, by: str | None, *, keep_inbox: bool, grace: float | None) -> None:
    from interlock.cli.reading import find, stored
    from interlock.log.session import open_session

    async with stored() as store:
        session_id = await find(store, typed)
        session = await open_session(session_id, store=store, readonly=True)
        try:
            turn = session.state.turn.number if session.state.turn is not None else None
            pending = len(session.state.queues) or await session.journal.letters(session.state.mail)
        finally:
            await session.close()
        if turn is None and (keep_inbox or not pending):
            print(f"Nothing runs in session {session_id}.")
            return
        mailbox = _mailbox(session_id, store, by)
        posted = await mailbox.cancel(turn=turn, keep_inbox=keep_inbox, grace=grace)
        event = await _outcome(mailbox, posted)
    if event is None:
        print(_WAITS)
    elif turn is None:
        print(f"taken: event {event.seq}; nothing ran, and what was pending is discarded")
    else:
        print(f"taken: event {event.seq}; turn {turn} ends when what it has started does")


_WAITS = "nobody drives it: it waits in its mailbox, and is taken when the session is opened next"


def _mailbox(session_id: str, store: Store, by: str | None) -> Mailbox:
    from interlock.cli.person import name
    from interlock.cli.place import redactor
    from interlock.errors import UsageError
    from interlock.loop.mailbox import Mailbox

    if by is not None and not by.strip():
        raise UsageError("--by is empty: name who sends, or leave it out.")
    return Mailbox(session_id, store=store, by=by or name(), redact=redactor())


async def _outcome(mailbox: Mailbox, posted: Posted) -> Event | None:
    """The line that says what became of it; None: it waits, and nobody drives the session.

    Raises:
        UsageError: it was refused; or whoever drives the session does not take it.
    """
    import asyncio

    from interlock.errors import NotTaken
    from interlock.loop.pending import PATIENCE

    holder = await mailbox.driver()
    if holder is None:
        return None
    try:
        async with asyncio.timeout(PATIENCE):
            return await posted.taken()
    except TimeoutError:
        if await mailbox.driver() is None:  # it has gone meanwhile
            return None
        raise NotTaken(posted.session_id, posted.number, holder, PATIENCE) from None
