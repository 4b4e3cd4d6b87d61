"""`interlock explain`: why each call of a session did or did not run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from interlock.log.explanation import Explained


def explain(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, the beginning or the end of it, or `last`.")
    ],
    call: Annotated[
        str | None,
        typer.Argument(
            metavar="[CALL]",
            help="The model's id of the call, its line in the log, or its place: `2.1` is call 1 of step 2, `3.2.1` "
            "that of turn 3. All calls without it.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[
        bool,
        typer.Option("--json", help="One JSON object a call and line instead, as docs/explain.md has it."),
    ] = False,
) -> None:
    """Show who said what about each call, in order: rewrites, hooks, rules, guards, people, wrappers, reviews.

    Each line begins with its number in the log. `◂` marks what the outcome is due to; the last line says it in a
    sentence. Reading changes nothing, and works while another process drives the session.
    """
    import asyncio

    asyncio.run(_show(session, call, json))


async def _show(session: str, wanted: str | None, as_json: bool) -> None:
    import sys

    import msgspec
    from rich.console import Console

    from interlock.cli.chain import show
    from interlock.cli.reading import find, open_log, stored
    from interlock.log.explaining import explain as explained
    from interlock.log.tombstones import refusal

    async with stored() as store:
        id_ = await find(store, session)
        log = await open_log(store, id_)
        calls: Sequence[Explained] = explained(log.events)
        said = log.erasure
    if said is not None:
        print(refusal(id_, said), file=sys.stderr if as_json else sys.stdout)
        return
    if wanted is not None:
        calls = chosen(calls, wanted, id_)
    if as_json:
        for one in calls:
            sys.stdout.buffer.write(msgspec.json.encode(one) + b"\n")
        sys.stdout.flush()
        return
    console = Console(highlight=False, markup=False, emoji=False)
    if not calls:
        console.print(f"The model has called no tool in session {id_}.")
    for number, one in enumerate(calls):
        if number:
            console.print()
        show(console, one)


def chosen(calls: Sequence[Explained], wanted: str, session: str) -> list[Explained]:
    """The calls that are meant. A model's id may be that of several.

    Raises:
        UsageError: there is none.
    """
    from interlock.errors import UsageError

    everyone = [one for outer in calls for one in outer.everyone()]
    found = [one for one in everyone if one.id == wanted or str(one.call) == wanted]
    if not found:
        found = [one for one in calls if one.place == wanted or one.place.partition(".")[2] == wanted]
    if not found:
        known = ", ".join([f"{one.id} ({one.place})" for one in calls[:8]]) or "none at all"
        more = ", …" if len(calls) > 8 else ""
        raise UsageError(f"Session {session} has no call {wanted!r}. It has {known}{more}.")
    return found
