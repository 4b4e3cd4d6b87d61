"""`interlock export`: a session as one file that `interlock import` takes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable


def export(
    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="Its id, the beginning or the end of it, or `last`.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", help="A file to be made.", show_default="standard output"
        ),
    ] = None,
) -> None:
    """Write a whole session as one JSON object a line; `interlock import` makes the same session of it elsewhere.

    It holds all that the session was told and has read. A file is made for you only, and never overwritten.
    """
    import asyncio

    asyncio.run(_export(session, output))


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
