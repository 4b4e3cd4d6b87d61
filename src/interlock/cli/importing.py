"""`interlock import`: what was exported, and other tools' transcripts, become sessions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interlock.bridges.transcripts import Imported

FORMATS = ("claude", "codex", "openai", "interlock")


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The export or the transcript.", show_default=False)
    ],
    format: Annotated[  # noqa: A002  # the option's name
        str | None,
        typer.Option(metavar="|".join(FORMATS), help="What it is.", show_default="by its first lines"),
    ] = None,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact/--no-redact",
            help="Take what looks like a key, and the values of *_KEY, *_TOKEN, *_SECRET and *PASSWORD* in the "
            "environment, out of it.",
        ),
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a session.")] = False,
) -> None:
    """Make sessions of an export of ours, of a transcript of Claude Code or Codex, or of chats in OpenAI's form.

    Nothing runs, and nothing of a file that cannot be read whole is kept. Importing a transcript again changes
    nothing. An export is taken as it is: its secrets went when it was written.
    """
    import asyncio

    from interlock.errors import UsageError

    if format is not None and format not in FORMATS:
        raise UsageError(f"--format {format}: there are {', '.join(FORMATS)}.")
    if format == "interlock" or (format is None and _is_ours(file)):
        asyncio.run(_import_export(file.absolute(), json))
    else:
        asyncio.run(_import(file, format, redact, json))


def _is_ours(file: Path) -> bool:
    from interlock.log.transfer import is_export

    try:
        with open(file, "rb") as opened:
            return is_export(opened)
    except OSError:
        return False  # whoever reads it says what is wrong


async def _import_export(file: Path, as_json: bool) -> None:
    import sys

    from interlock.cli.oneline import count
    from interlock.errors import UsageError
    from interlock.log.event import encode_json
    from interlock.log.stores.sqlite import SQLiteStore
    from interlock.log.transfer import import_export
    from interlock.policy.printable import printable

    try:
        opened = open(file, "rb")  # noqa: ASYNC230, SIM115  # nothing else runs here
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
    with opened:
        async with SQLiteStore() as store:
            made = await import_export(opened, store=store, path=file)
    if as_json:
        sys.stdout.buffer.write(encode_json(made) + b"\n")
    else:
        print(printable(f"{made.session_id}: {count(made.events, 'event')}"))


async def _import(file: Path, chosen: str | None, redact: bool, as_json: bool) -> None:
    import os
    import sys

    import msgspec

    from interlock.bridges.transcripts import import_transcripts
    from interlock.log.redaction.redactor import Redactor
    from interlock.log.stores.sqlite import SQLiteStore
    from interlock.policy.printable import printable

    redactor = Redactor.of_environment(os.environ) if redact else None
    async with SQLiteStore() as store:
        made = await import_transcripts(
            file,
            store=store,
            format=chosen,  # type: ignore[arg-type]  # checked above
            redact=redactor,
        )
    for one in made:
        if as_json:
            sys.stdout.buffer.write(msgspec.json.encode(one) + b"\n")
        else:
            print("\n".join([printable(line) for line in _told(one)]))


def _told(one: Imported) -> Iterator[str]:
    from interlock.cli.oneline import count

    origin = one.origin
    program = f"{origin.program} {origin.version or ''}".rstrip() if origin is not None else one.format
    was = ", imported before" if one.existed else ""
    yield f"{one.session_id}: {program}, {count(one.events, 'event')}{was}"
    for what, kinds in (("left out", one.skipped), ("not exact", one.lossy)):
        if kinds:
            yield f"  {what}: " + ", ".join([f"{n:,} {kind}" for kind, n in kinds.items()])
