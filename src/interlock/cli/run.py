"""`interlock run`: one task, from beginning to end."""

from __future__ import annotations

import sys
from pathlib import Path
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
    cwd: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="The folder to work in: this one, or that of the session which is resumed.",
            show_default=False,
        ),
    ] = None,
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
        Literal["plan", "ask", "accept-edits", "full"] | None,
        typer.Option(
            help="What happens to calls that do not only read, and that no rule is about: they are denied; a person "
            "is asked, and without one the answer is no; edits of the folder run; all of them run.",
            show_default="the folder's, or ask",
        ),
    ] = None,
    sandbox: Annotated[
        Literal["read-only", "workspace-write", "full"] | None,
        typer.Option(
            help="How commands are confined: they write nowhere; only in the folder; they are not confined.",
            show_default="the preset's",
        ),
    ] = None,
    rules: Annotated[
        list[Path] | None,
        typer.Option(
            "--rules",
            metavar="FILE",
            help="Permission rules from this file, instead of the folder's and yours.",
        ),
    ] = None,
    approvals: Annotated[
        Literal["terminal", "stdio", "wait", "none"] | None,
        typer.Option(
            help="Who is asked: a person at the terminal (the default where there is one); a program, by lines of "
            "JSON; whoever answers later with `interlock approvals answer`, for which the command leaves the session "
            "as it is and ends; nobody, which means no.",
            show_default=False,
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            help="Go on with a session: its id, the beginning or the end of it, or `last`. Without a task, with "
            "what waits in it.",
        ),
    ] = None,
    go_on: Annotated[
        bool,
        typer.Option("--continue", "-c", help="The same with the last session of this folder."),
    ] = False,
    resume_pending: Annotated[
        bool,
        typer.Option(
            "--resume-pending",
            help="Run the messages that were left pending in the session; without it they wait for a task.",
        ),
    ] = False,
    hooks: Annotated[
        bool,
        typer.Option(
            "--hooks/--no-hooks",
            help="Run the hooks that Claude Code, Codex and Gemini CLI have in this folder and for you.",
        ),
    ] = True,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact/--no-redact",
            help="Take what looks like a key, and the values of *_KEY, *_TOKEN, *_SECRET and *PASSWORD* in the "
            "environment, out of all that the model and the log get.",
        ),
    ] = True,
    trace: Annotated[
        bool,
        typer.Option(
            "--trace", help="Write hook events and permissions to standard error instead of a live view."
        ),
    ] = False,
) -> None:
    """Give an agent one task.

    It has tools to read, write, edit and search files in the folder, and bash, which starts in that folder and is
    confined to it only by a sandbox. Permission rules come from interlock.toml and from Claude Code's settings files:
    `interlock policy show --effective` prints them. The answer goes to standard output, everything else to standard error. The session is kept:
    `interlock log last` shows it. Ctrl-C stops and waits for what runs; twice gives that two seconds; a third time
    leaves at once.
    """
    import asyncio

    from interlock.cli.consent import ask_for_trust
    from interlock.cli.driving import Task, drive
    from interlock.cli.limits import budget_of
    from interlock.errors import ConfigError, UsageError

    if go_on and resume is not None:
        raise UsageError("--resume and --continue name two sessions: leave one of them out.")
    resumes = go_on or resume is not None
    if resume_pending and not resumes:
        raise UsageError("--resume-pending needs a session: give --resume or --continue as well.")
    ask = approvals or ("terminal" if sys.stdin.isatty() else "none")
    if ask == "stdio":
        if output_format != "stream-json":
            raise UsageError(
                "--approvals stdio speaks lines of JSON: give --output-format stream-json as well."
            )
        if "-" in (task, prompt) or (task is None and prompt is None and not resumes):
            raise UsageError("Standard input has the answers: give the task as an argument or as -p.")
    waits = resumes and task is None and prompt is None
    given = None if waits else _task(task, prompt, sys.stdin)
    if model is None:
        raise ConfigError("No model is named: give --model provider:name, or set INTERLOCK_MODEL.")
    if not resumes and sys.stdin.isatty():
        ask_for_trust(cwd or ".")
    code = asyncio.run(
        drive(
            Task(
                prompt=given,
                model=model,
                base_url=base_url,
                cwd=cwd,
                output=output_format,
                budget=budget_of(budget) if budget is not None else None,
                preset=preset,
                sandbox=sandbox,
                rules=tuple(rules) if rules else None,
                trace=trace,
                ask=ask,
                hooks=hooks,
                redact=redact,
                session=asyncio.run(_resumed(resume, cwd or ".")) if resumes else None,
                resume_pending=resume_pending,
            )
        )
    )
    raise typer.Exit(code)


async def _resumed(typed: str | None, folder: str) -> str:
    """The id of the session that is meant; of the last one in the folder, if nothing was typed."""
    from interlock.cli.reading import find, last_in, stored

    async with stored() as store:
        return await (find(store, typed) if typed is not None else last_in(store, folder))


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
