"""`interlock erase`: forgetting what sessions hold."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interlock.log.erasing import ErasurePlan, ErasureReceipt


def erase(
    sessions: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[SESSION...]",
            help="Ids, the beginning or the end of them, or `last`.",
            show_default=False,
        ),
    ] = None,
    principal: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Every session in which this one has sent, answered, stopped or granted.",
            show_default=False,
        ),
    ] = None,
    shared: Annotated[
        bool, typer.Option("--shared", help="Also those of its sessions in which others took part.")
    ] = False,
    reason: Annotated[
        str | None,
        typer.Option(
            metavar="TEXT", help="Why. It stays on record, so let it tell nothing.", show_default=False
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Who erases. It stays on record.", show_default="the user's name"),
    ] = None,
    receipt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file to be made, with the receipt as JSON.", show_default=False),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be erased.")] = False,
) -> None:
    """Take out all that sessions hold, so that no file of the store has it, and leave tombstones.

    What is left of a line is its number, type, time and causes: `interlock check` still checks them. Nobody can go on
    with such a session, fork it or send to it. Forks of it hold the same lines, and are erased with it. It cannot be
    undone. After a crash run it again. Exit code 1: something was left to do, or a log that cannot be read may be one of
    theirs.
    """
    import asyncio

    from interlock.cli import exit_codes
    from interlock.errors import UsageError

    if not sessions and principal is None:
        raise UsageError("Name the sessions that are to be erased, or give --principal.")
    if principal is not None and not principal.strip():
        raise UsageError("--principal is the id of somebody, and not empty.")
    done = asyncio.run(
        _erase(sessions or [], principal, reason, by, receipt, shared=shared, sure=yes, dry_run=dry_run)
    )
    if not done:
        raise typer.Exit(exit_codes.FAILED)


async def _erase(
    typed: list[str],
    principal: str | None,
    reason: str | None,
    by: str | None,
    file: Path | None,
    *,
    shared: bool,
    sure: bool,
    dry_run: bool,
) -> bool:
    """Whether nothing is left to do."""
    from interlock.bridges.hooks.kept import HookFiles
    from interlock.cli.person import name
    from interlock.cli.place import redactor
    from interlock.cli.reading import find, stored
    from interlock.log.erasing import erase_sessions, finish_erasing, plan_erasure
    from interlock.policy.printable import printable

    beside = [HookFiles()]
    async with stored() as store:
        named = [await find(store, one) for one in typed]
        plan = await plan_erasure(named, store=store, principal=principal, shared=shared)
        for line in _planned(plan, principal):
            print(line)
        if dry_run:
            return True
        if not plan.sessions:  # of somebody: perhaps a crash has cut what was to follow
            left = await finish_erasing(store=store, beside=beside)
            for one in left:
                print(printable(f"  left: {one.what}: {one.why}"))
            return not left and not plan.unread
        if not sure and not _agreed(len(plan.sessions)):
            print("Nothing was erased.")
            return True
        if reason is not None:
            reason = redactor().text(reason)  # it stays
        kept = _made(file)
        try:
            made = await erase_sessions(
                named,
                store=store,
                by=by if by is not None else name(),
                reason=reason,
                principal=principal,
                shared=shared,
                beside=beside,
            )
        except BaseException:
            if kept is not None:
                kept.unlink()
            raise
    for line in _told(made):
        print(line)
    if kept is not None:
        _keep(made, kept)
    return not plan.unread and not any(left.again for left in made.left)


def _planned(plan: ErasurePlan, principal: str | None) -> Iterator[str]:
    from interlock.cli.amounts import size
    from interlock.cli.oneline import count, moment
    from interlock.policy.printable import one_line, printable

    for one in plan.sessions:
        fork = f", a fork of {printable(one.parent or '')}" if one.id in plan.forks else ""
        done = ", erased already" if one.erased else ""
        yield (
            f"{printable(one.id)}  last used {moment(one.updated)}  {count(one.head + 1, 'event')}  "
            f"{size(one.bytes)}{fork}{done}"
        )
    for session_id, why in plan.unread.items():
        yield f"{printable(session_id)} cannot be read, and is left alone: {one_line(why)}"
    if not plan.sessions and principal is not None:
        yield f"{one_line(principal)} took part in no session."


def _agreed(count: int) -> bool:
    """
    Raises:
        UsageError: there is nobody to ask.
    """
    import sys

    from interlock.errors import UsageError

    if not sys.stdin.isatty():
        raise UsageError(
            "Erasing cannot be undone, and nobody is there to be asked: add --yes. Nothing was erased."
        )
    what = "this session" if count == 1 else f"these {count:,} sessions"
    print(
        f"Erase all that {what} hold{'s' if count == 1 else ''}? It cannot be undone. [y/N] ",
        end="",
        flush=True,
    )
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _made(file: Path | None) -> Path | None:
    """The file, which is there from now on: that it can be written is known before anything goes.

    Raises:
        UsageError: it cannot be made.
    """
    import os

    from interlock.errors import UsageError

    if file is None:
        return None
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileExistsError:
        raise UsageError(f"There is a file {file} already. Name another one. Nothing was erased.") from None
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}. Nothing was erased.") from None
    return file


def _keep(made: ErasureReceipt, file: Path) -> None:
    """
    Raises:
        SessionError: the file does not hold it.
    """
    import msgspec

    from interlock.errors import SessionError

    try:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(made)) + b"\n")
    except OSError as error:
        raise SessionError(
            f"All was done, but {file} could not be written: {error.strerror}. The receipt is what is printed above."
        ) from None


def _told(made: ErasureReceipt) -> Iterator[str]:
    from interlock.cli.amounts import size
    from interlock.cli.oneline import count, moment
    from interlock.policy.printable import one_line, printable

    yield f"receipt {made.id}, {moment(made.time)}, by {one_line(made.by)}"
    for gone in made.sessions:
        parts = [f"{count(gone.events, 'event')} ({size(gone.bytes)})"]
        for n, what in (
            (len(gone.artifacts), "artifact"),
            (gone.passages, "index row"),
            (gone.letters, "letter"),
            (gone.questions, "open question"),
            (int(gone.checkpoint), "checkpoint"),
        ):
            if n:
                parts.append(count(n, what))
        before = f" (erased before, receipt {gone.before})" if gone.before is not None else ""
        yield f"  {printable(gone.session)}: {', '.join(parts)}{before}"
        for path in gone.beside:
            yield printable(f"    and {path}")
    for left in made.left:
        yield printable(f"  left: {left.what}: {left.why}")
