"""The command `interlock`.

Lives here: `main`, the console entry, and the list of commands. Nothing heavy is imported until a command runs.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from interlock import __version__
from interlock.cli import exit_codes
from interlock.cli.approvals import approvals
from interlock.cli.check import check
from interlock.cli.demo import demo
from interlock.cli.erase import erase
from interlock.cli.explain import explain
from interlock.cli.export import export
from interlock.cli.fork import fork
from interlock.cli.hooks import hooks
from interlock.cli.importing import import_
from interlock.cli.log import log
from interlock.cli.place import StoreAddress, meant_by_option
from interlock.cli.policy import policy
from interlock.cli.prune import prune
from interlock.cli.run import run
from interlock.cli.search import search
from interlock.cli.sending import send, stop
from interlock.cli.sessions import sessions
from interlock.errors import InterlockError

app = typer.Typer(
    name="interlock",
    help="An agent harness in which every decision is typed, ordered and on the record.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        print(f"interlock {__version__}")
        raise typer.Exit


@app.callback()
def _interlock(
    context: typer.Context,
    store: StoreAddress = None,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit."),
    ] = False,
) -> None:
    meant_by_option(context, store)


app.command()(demo)
app.command(epilog=exit_codes.HELP)(run)
app.command()(send)
app.command()(stop)
app.command()(sessions)
app.command()(search)
app.command()(fork)
app.command()(log)
app.command()(explain)
app.command()(check)
app.command()(export)
app.command()(prune)
app.command()(erase)
app.command("import")(import_)
app.add_typer(approvals, name="approvals")
app.add_typer(policy)
app.add_typer(hooks)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command line, by default the process's own; it always ends in `SystemExit`.

    Raises:
        SystemExit: with one of `exit_codes`.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(
                errors="backslashreplace"
            )  # a terminal of another encoding is no reason to fail
    if sys.stdin is None:  # closed by whoever started us; this one is open as long as the process runs
        sys.stdin = open(os.devnull)  # noqa: SIM115
    try:
        app(args=arguments, prog_name="interlock")
    except InterlockError as error:
        from interlock.policy.printable import printable

        print(f"interlock: {printable(str(error))}", file=sys.stderr)
        raise SystemExit(exit_codes.of_error(error)) from None
