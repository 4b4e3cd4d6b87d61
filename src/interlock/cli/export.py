"""`interlock export`: a session as one file that `interlock import` takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable


def export(
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION", help="Its id, the beginning or the end of it, or `last`.", show_default=False
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A file to be made.", show_default="standard output"
        ),
    ] = None,
    every: Annotated[
        Path | None,
        typer.Option("--all", metavar="FOLDER", help="Every session, each as a file in this new folder."),
    ] = None,
) -> None:
    """Write a whole session as one JSON object a line; `interlock import` makes the same session of it elsewhere.

    It holds all that the session was told and has read. A file is made for you only, and never overwritten. To move
    all sessions: `interlock export --all FOLDER`, then `interlock --store ADDRESS import FOLDER`.
    """
    import asyncio

    from interlock.errors import UsageError

    if (session is None) == (every is None):
        raise UsageError("Name a session, or give --all FOLDER for every session.")
    if session is not None:
        asyncio.run(_export(session, output))
        return
    if output is not None:
        raise UsageError("--output names one file: with --all, leave it out.")
    assert every is not None
    raise typer.Exit(asyncio.run(_export_all(every)))


async def _export(typed: str, output: Path | None) -> None:
    import sys

    from interlock.cli.oneline import count
    from interlock.cli.reading import find, open_log, stored
    from interlock.log.transfer import exported

    async with stored() as store:
        log = await open_log(store, await find(store, typed))
        lines = exported(log.events)
        if output is None:
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.flush()
        else:
            _write(output, lines)
            print(f"{log.id}: {count(len(log.events), 'event')} to {output}", file=sys.stderr)


async def _export_all(folder: Path) -> int:
    """The exit code: what cannot be read is told of, and holds back nothing else."""
    import sys

    from interlock.cli import exit_codes
    from interlock.cli.oneline import count
    from interlock.cli.reading import every_session, open_log, stored
    from interlock.errors import SessionError
    from interlock.log.transfer import export_name, exported
    from interlock.policy.printable import printable

    _new_folder(folder)
    written, failed = 0, 0
    async with stored() as store:
        async for info in every_session(store):
            try:
                log = await open_log(store, info.id)
                _write(folder / export_name(info.id), exported(log.events))
                await log.close()
                written += 1
            except SessionError as error:
                failed += 1
                print(printable(f"{info.id} was not exported: {error}"), file=sys.stderr)
    print(f"{count(written, 'session')} to {folder}", file=sys.stderr)
    return exit_codes.SESSION if failed else exit_codes.COMPLETED


def _new_folder(folder: Path) -> None:
    """
    Raises:
        UsageError: something is in it, or it cannot be made.
    """
    from interlock.errors import UsageError

    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise UsageError(f"{folder} cannot be made a folder: {error.strerror}.") from None
    if taken:
        raise UsageError(f"There is something in {folder} already. Name a new folder.")


def _write(output: Path, lines: Iterable[bytes]) -> None:
    """Make the file, whole or not at all.

    Raises:
        UsageError: there is one, or none can be made there.
    """
    import os

    from interlock.errors import UsageError

    made = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with open(made, "xb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.writelines(lines)
        os.link(made, output)  # unlike a renaming, it does not replace a file
    except FileExistsError:
        raise UsageError(f"There is a file {output} already. Name another one.") from None
    except OSError as error:
        raise UsageError(f"{output} cannot be written: {error.strerror}.") from None
    finally:
        made.unlink(missing_ok=True)
