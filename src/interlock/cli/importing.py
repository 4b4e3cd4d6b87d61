"""`interlock import`: what was exported, and other tools' transcripts, become sessions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interlock.bridges.transcripts import Imported
    from interlock.log.stores.store import Store
    from interlock.log.transfer import Transferred

FORMATS = ("claude", "codex", "openai", "interlock")


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="The export or the transcript; `-`: an export on standard input; a folder: every export in it.",
            show_default=False,
        ),
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
    ours = format in (None, "interlock")
    if str(file) == "-":
        if not ours:
            raise UsageError("A transcript is imported from its file, not from standard input.")
        asyncio.run(_import_piped(json))
    elif ours and file.is_dir():
        raise typer.Exit(asyncio.run(_import_each(_exports_in(file.absolute()), json)))
    elif format == "interlock" or (format is None and _is_ours(file)):
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
    from interlock.cli.place import place

    async with place().store() as store:
        _tell(await _taken(file, store), as_json)


async def _taken(file: Path, store: Store) -> Transferred:
    """
    Raises:
        UsageError: the file cannot be read. As of `import_export`: nothing of it was imported.
    """
    from interlock.errors import UsageError
    from interlock.log.transfer import import_export

    try:
        opened = open(file, "rb")  # noqa: ASYNC230, SIM115  # nothing else runs here
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}.") from None
    with opened:
        return await import_export(opened, store=store, path=file)


async def _import_piped(as_json: bool) -> None:
    import sys

    from interlock.cli.place import place
    from interlock.log.transfer import import_export

    piped = sys.stdin.buffer
    async with place().store() as store:
        _tell(await import_export(piped, store=store, path=Path("/dev/stdin")), as_json)


async def _was_taken(file: Path, session_id: str, store: Store) -> bool:
    from interlock.errors import SessionError
    from interlock.log.transfer import is_imported

    with open(file, "rb") as opened:  # noqa: ASYNC230  # nothing else runs here
        try:
            return await is_imported(opened, session_id=session_id, store=store, path=file)
        except SessionError:  # then nobody can say so
            return False


def _exports_in(folder: Path) -> list[Path]:
    """
    Raises:
        UsageError: there is none.
    """
    from interlock.errors import UsageError

    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise UsageError(f"There is no export in {folder}: their names end with .jsonl.")
    return files


async def _import_each(files: list[Path], as_json: bool) -> int:
    """The exit code: what cannot be imported is told of, and holds back nothing else."""
    import sys

    from interlock.cli import exit_codes
    from interlock.cli.place import place
    from interlock.errors import DuplicateSession, SessionError, StoreFailed, UsageError
    from interlock.policy.printable import printable

    failed = 0
    async with place().store() as store:
        for file in files:
            try:
                if not _is_ours(file):
                    raise UsageError(
                        "it does not begin as an export does; a transcript is imported by itself"
                    )
                _tell(await _taken(file, store), as_json)
            except StoreFailed:
                raise
            except DuplicateSession as error:
                if await _was_taken(file, error.session_id, store):
                    print(
                        printable(f"{error.session_id} is there already, with these lines"), file=sys.stderr
                    )
                else:
                    failed += 1
                    print(printable(f"{file.name} was not imported: {error}"), file=sys.stderr)
            except (SessionError, UsageError) as error:
                failed += 1
                print(printable(f"{file.name} was not imported: {error}"), file=sys.stderr)
    return exit_codes.SESSION if failed else exit_codes.COMPLETED


def _tell(made: Transferred, as_json: bool) -> None:
    import sys

    from interlock.cli.oneline import count
    from interlock.log.event import encode_json
    from interlock.policy.printable import printable

    if as_json:
        sys.stdout.buffer.write(encode_json(made) + b"\n")
    else:
        print(printable(f"{made.session_id}: {count(made.events, 'event')}"))


async def _import(file: Path, chosen: str | None, redact: bool, as_json: bool) -> None:
    import sys

    import msgspec

    from interlock.bridges.transcripts import import_transcripts
    from interlock.cli.place import place, redactor
    from interlock.policy.printable import printable

    async with place().store() as store:
        made = await import_transcripts(
            file,
            store=store,
            format=chosen,  # type: ignore[arg-type]  # checked above
            redact=redactor() if redact else None,
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
