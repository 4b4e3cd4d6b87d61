"""`interlock run`: one task, from beginning to end."""

from __future__ import annotations

import sys
from typing import Annotated, Literal, TextIO

import typer

from interlock.cli.options import BaseUrl


def run(
    task: Annotated[
        str | None,
        typer.Argument(help="What to do. `-`, or nothing, reads it from standard input.", show_default=False),
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("-p", "--prompt", metavar="TASK", help="The same, as an option.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            envvar="INTERLOCK_MODEL", metavar="PROVIDER:NAME", help="Who answers: openai:gpt-5-mini."
        ),
    ] = None,
    base_url: BaseUrl = None,
    cwd: Annotated[str, typer.Option(metavar="DIR", help="The folder to work in.")] = ".",
    output_format: Annotated[
        Literal["text", "json", "stream-json"],
        typer.Option(
            help="On standard output: the answer; one JSON object at the end; or each line of the log as it comes."
        ),
    ] = "text",
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="LIMITS",
            help="As in steps=30,tokens=100000,wall=300 (seconds). Also requests, tool_calls, and tool_calls:NAME for "
            "one tool.",
        ),
    ] = None,
    preset: Annotated[
        Literal["ask", "plan", "full"],
        typer.Option(
            help="What happens to tools that do not only read: a person is asked, and without a terminal the answer "
            "is no; they are denied; they run."
        ),
    ] = "ask",
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Write hook events and permissions to standard error instead of a live view."
        ),
    ] = False,
) -> None:
    """Give an agent one task.

    It has tools to read, write, edit and search files in the folder, and bash, which only starts in that folder and is
    not confined to it. The answer goes to standard output, everything else to standard error. The session is kept:
    `interlock log last` shows it. Ctrl-C stops and waits for what runs; twice gives that two seconds; a third time
    leaves at once.
    """
    import asyncio

    from interlock.cli.driving import Task, drive
    from interlock.cli.limits import budget_of
    from interlock.errors import ConfigError

    prompt = _task(task, prompt, sys.stdin)
    if model is None:
        raise ConfigError("No model is named: give --model provider:name, or set INTERLOCK_MODEL.")
    code = asyncio.run(
        drive(
            Task(
                prompt=prompt,
                model=model,
                base_url=base_url,
                cwd=cwd,
                output=output_format,
                budget=budget_of(budget) if budget is not None else None,
                preset=preset,
                trace=trace,
            )
        )
    )
    raise typer.Exit(code)


def _task(argument: str | None, option: str | None, stdin: TextIO) -> str:
    """The task, from the one place where it was given.

    Raises:
        UsageError: it was given twice, nowhere, or is empty.
    """
    from interlock.errors import UsageError

    if argument is not None and option is not None:
        raise UsageError("The task is given twice: as an argument and as -p. Leave one of them out.")
    given = argument if argument is not None else option
    if given is None and stdin.isatty():
        raise UsageError("No task is given: write it after `interlock run`, in quotes, or pipe it in.")
    if given is None or given == "-":
        try:
            given = stdin.buffer.read().decode()
        except UnicodeDecodeError as error:
            raise UsageError(f"The task on standard input is not UTF-8: {error}") from None
    if not given.strip():
        raise UsageError("The task is empty.")
    return given
