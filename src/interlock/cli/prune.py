"""`interlock prune`: keeping only so much."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interlock.log.retention import Pruning

_NAMED = 5  # sessions that stay, of each reason


def prune(
    older_than: Annotated[
        str | None,
        typer.Option(
            metavar="AGE",
            help="Sessions that nobody has used for so long: 30d, 12h, 90m.",
            show_default=False,
        ),
    ] = None,
    max_size: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="After them the longest unused ones, until all is no larger than this: 500MB, 2GB, 1GiB.",
            show_default=False,
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would go, and about how much that is.")
    ] = False,
) -> None:
    """Delete whole sessions that are over, with their artifacts and what is found of them, and make the files smaller.

    A session stays that somebody drives, in which a turn is open or a question waits for a person, or that has letters.
    Nothing asks before. Exit code 1: it is still larger than SIZE, or something was left to do.
    """
    import asyncio

    from interlock.cli import exit_codes
    from interlock.cli.amounts import age_of, size_of
    from interlock.errors import UsageError

    if older_than is None and max_size is None:
        raise UsageError("Say what may go: --older-than 30d, --max-size 2GB, or both.")
    age = age_of("--older-than", older_than) if older_than is not None else None
    limit = size_of("--max-size", max_size) if max_size is not None else None
    if not asyncio.run(_prune(age, limit, dry_run)):
        raise typer.Exit(exit_codes.FAILED)


async def _prune(age: int | None, limit: int | None, dry_run: bool) -> bool:
    """Whether all was done that was asked for."""
    from interlock.cli.reading import stored
    from interlock.log.retention import plan_pruning, prune_sessions

    async with stored() as store:
        if dry_run:
            done = await plan_pruning(store=store, older_than=age, max_size=limit)
        else:
            from interlock.bridges.hooks.kept import HookFiles

            done = await prune_sessions(store=store, older_than=age, max_size=limit, beside=[HookFiles()])
    for line in _told(done, limit, dry_run):
        print(line)
    return done.problem is None and (limit is None or done.after <= limit)


def _told(done: Pruning, limit: int | None, dry_run: bool) -> Iterator[str]:
    from interlock.cli.amounts import size
    from interlock.cli.oneline import count
    from interlock.policy.printable import printable

    verb = "would go" if dry_run else "went"
    for gone in done.gone:
        yield f"{printable(gone.session)}  {count(gone.events, 'event')}  {size(gone.bytes)}"
    yield f"{count(len(done.gone), 'session')} {verb}."
    reasons: dict[str, list[str]] = {}
    for kept in done.kept:
        reasons.setdefault(kept.why, []).append(printable(kept.session))
    for why, sessions in reasons.items():
        more = f" and {len(sessions) - _NAMED:,} more" if len(sessions) > _NAMED else ""
        yield f"{count(len(sessions), 'session')} stay{'s' if len(sessions) == 1 else ''}, {why}: {', '.join(sessions[:_NAMED])}{more}"
    if done.artifacts:
        yield f"{count(len(done.artifacts), 'artifact')} that nothing referred to went as well."
    if done.beside:
        yield f"{count(len(done.beside), 'folder')} of what hooks were given of them went as well."
    now = "would measure about" if dry_run else "measure now"
    yield f"The files measured {size(done.before)}, and {now} {size(done.after)}."
    if done.problem is not None:
        yield printable(f"Something is left: {done.problem}.")
    elif limit is not None and done.after > limit:
        yield f"That is more than {size(limit)}: nothing else may go."
