"""`interlock hooks`: which hooks of other programs would run, what they would decide, and whose may."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

if TYPE_CHECKING:
    from interlock.bridges.hooks.event import EventName, Occurrence
    from interlock.bridges.hooks.fold import Folded
    from interlock.bridges.hooks.handler import Handler
    from interlock.bridges.hooks.run import Ran
    from interlock.bridges.hooks.verdict import Answer, Problem
    from interlock.bridges.hooks.watch import Watch

hooks = typer.Typer(
    name="hooks",
    help="Hooks of Claude Code, Codex and Gemini CLI: what would run, and what it would decide.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Cwd = Annotated[Path, typer.Option("--cwd", metavar="DIR", help="The project.")]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]
Folder = Annotated[Path, typer.Argument(metavar="[DIR]", help="The project.")]


@hooks.command("list")
def list_(cwd: Cwd = Path(), json: Json = False) -> None:
    """List every hook that is found for a project, in declared order, and what is wrong with the files.

    `held` ones wait for `interlock hooks trust`. Exit code 1 if a file or an entry cannot be used.
    """
    from interlock.cli import exit_codes
    from interlock.cli.oneline import count
    from interlock.policy.printable import one_line

    watch = _watch(cwd)
    loaded, held = watch.everything(), watch.held()
    if json:
        _print_json(
            {
                "hooks": [_described(one, held=one in held) for one in loaded.handlers],
                "problems": [_problem(one) for one in loaded.problems],
                "disabled": loaded.disabled,
            }
        )
    else:
        for one in loaded.handlers:
            print(one_line(line_of(one, held=one in held)))
        for problem in loaded.problems:
            print(one_line(f"! {_place(problem)}: {problem.what}"))
        if loaded.disabled is not None:
            print(one_line(f"All hooks are switched off in {loaded.disabled}."))
        waiting = f", {len(held)} held back until `interlock hooks trust`" if held else ""
        print(f"{count(len(loaded.handlers), 'hook')}{waiting}")
    if loaded.problems:
        raise typer.Exit(exit_codes.FAILED)


@hooks.command("test")
def try_(
    event: Annotated[str, typer.Argument(metavar="EVENT", help="PreToolUse, UserPromptSubmit, Stop, …")],
    given: Annotated[
        str,
        typer.Option(
            "--input",
            metavar="FILE",
            help='What happened, as JSON; `-` is standard input. A payload, or short: {"tool": "bash", "input": '
            '{"command": "git push"}}.',
        ),
    ],
    dialect: Annotated[
        Literal["claude", "codex", "gemini"], typer.Option(help="Whose words the input is in.")
    ] = "claude",
    cwd: Cwd = Path(),
    json: Json = False,
) -> None:
    """Run the hooks that such an event would run, without an agent, and say what they decide together.

    They are real: what they do, they do. Those that are held back run too, since you asked for it. Exit code 4 if
    the outcome is a no, 1 if a hook failed.
    """
    import asyncio

    from interlock.cli import exit_codes

    happened = _occurrence(event, _read(given), dialect, cwd.absolute())
    ran, folded = asyncio.run(_tried(happened, _watch(cwd)))
    if json:
        _print_json(
            {
                "event": happened.event,
                "hooks": [_result(one, won=i in folded.won) for i, one in enumerate(ran)],
                "outcome": _said(folded.answer),
                "refused": _refuses(happened.event, folded.answer),
            }
        )
    else:
        for line in _told(happened, ran, folded):
            print(line)
    if _refuses(happened.event, folded.answer):
        raise typer.Exit(exit_codes.BLOCKED)
    if any(one.answer.failure is not None for one in ran):
        raise typer.Exit(exit_codes.FAILED)


@hooks.command()
def trust(folder: Folder = Path()) -> None:
    """Let the hooks of a project's own files run, as they are now. They are programs that run as you.

    It holds for the folder and those below it, except that each of Codex's hooks is approved by itself: one that is
    edited is held back again.
    """
    from interlock.bridges.hooks.loading import trust_store
    from interlock.cli.oneline import count
    from interlock.policy.printable import one_line

    watch = _watch(folder)
    held = watch.held()
    for one in held:
        print(one_line(line_of(one, held=False)))
    trust_store().trust(folder.absolute(), watch.everything().handlers)
    print(one_line(f"Trusted: {folder.absolute()} ({count(len(held), 'hook')} more will run)"))


@hooks.command()
def untrust(folder: Folder = Path()) -> None:
    """Hold the hooks of a project's own files back again."""
    from interlock.bridges.hooks.loading import trust_store
    from interlock.errors import UsageError
    from interlock.policy.printable import one_line

    if not trust_store().distrust(folder.absolute()):
        raise UsageError(f"{folder.absolute()} was not trusted itself; a folder above it may be.")
    print(one_line(f"No longer trusted: {folder.absolute()}"))


# Trying


def _occurrence(
    name: str, payload: Mapping[str, Any], dialect: Literal["claude", "codex", "gemini"], root: Path
) -> Occurrence:
    """
    Raises:
        UsageError: no such event, or a payload that does not say what it needs.
    """
    from interlock.bridges.hooks.event import Occurrence
    from interlock.bridges.hooks.payload import event_named, happening_of

    return Occurrence(
        what=happening_of(event_named(name, dialect), payload, dialect, root),
        session_id=str(payload.get("session_id", "test")),
        cwd=root,
        project=root,
        turn_id="1",
        prompt_id="test",
        model=str(payload.get("model", "")),
    )


async def _tried(happened: Occurrence, watch: Watch) -> tuple[tuple[Ran, ...], Folded]:
    import tempfile

    from interlock.bridges.hooks.condition import met
    from interlock.bridges.hooks.fold import fold
    from interlock.bridges.hooks.run import Runner

    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(Path(folder), condition=met)
        try:
            ran = await runner.run(runner.select(watch.everything().handlers, happened), happened)
        finally:
            await runner.aclose()
    return ran, fold(happened, [one.answer for one in ran])


def _read(given: str) -> Mapping[str, Any]:
    """
    Raises:
        UsageError: it cannot be read, or is no JSON object.
    """
    import json

    from interlock.errors import UsageError, said_error

    try:
        text = sys.stdin.read() if given == "-" else Path(given).read_text(encoding="utf-8")
        payload = json.loads(text)
    except (OSError, ValueError) as error:
        raise UsageError(f"The input {given} cannot be read: {said_error(error)}") from None
    if not isinstance(payload, dict):
        raise UsageError(f"The input {given} is no JSON object.")
    return payload


def _refuses(event: EventName, answer: Answer) -> bool:
    """Whether what the event guards does not happen."""
    if answer.stop is not None:
        return True
    if answer.permission is not None and answer.permission.verdict == "deny":
        return True
    if answer.decision is not None and answer.decision.behavior == "deny":
        return True
    return answer.block is not None and event in ("UserPromptSubmit", "PostToolBatch", "PreCompact")


def _told(occurrence: Occurrence, ran: tuple[Ran, ...], folded: Folded) -> Iterator[str]:
    from interlock.policy.printable import one_line

    for i, one in enumerate(ran):
        how = "in the background" if not one.waits else f"exit {one.exit}, {one.ms} ms"
        mark = "+" if i in folded.won else "!" if one.answer.failure is not None else "-"
        yield one_line(f"{mark} {one.handler.place}  {_what(one.handler)}  ({how})")
        if one.answer.failure is not None:
            yield one_line(f"    failed: {one.answer.failure}")
        for key, value in _said(one.answer).items():
            yield one_line(f"    {key}: {value}")
        for problem in one.answer.problems:
            yield one_line(f"    ! {problem.what}")
    yield f"outcome: {_outcome(occurrence.event, folded.answer) if ran else 'no hook is meant by this'}"


def _outcome(event: EventName, answer: Answer) -> str:
    """In words, what a run would make of it."""
    from interlock.policy.printable import one_line

    if answer.stop is not None:
        words = f"everything stops: {answer.stop}" if answer.stop else "everything stops"
    elif answer.permission is not None:
        words = f"{answer.permission.verdict}{_because(answer.permission.reason)}"
    elif answer.decision is not None:
        words = f"{answer.decision.behavior}{_because(answer.decision.message)}"
    elif answer.block is not None:
        goes_on = event in ("Stop", "SubagentStop")
        beside = event in ("PostToolUse", "PostToolUseFailure")
        verb = "the work goes on" if goes_on else "the model is told" if beside else "blocked"
        words = f"{verb}{_because(answer.block)}"
    else:
        words = "nothing is refused"
    if answer.input is not None:
        words += ", with other arguments"
    if answer.output is not None:
        words += ", with another result"
    return one_line(words)


def _because(reason: str) -> str:
    return f": {reason}" if reason else ""


# Showing


def _watch(cwd: Path) -> Watch:
    from interlock.bridges.hooks.files import Layout
    from interlock.bridges.hooks.loading import trust_store
    from interlock.bridges.hooks.watch import Watch
    from interlock.errors import ConfigError

    root = cwd.absolute()
    if not root.is_dir():
        raise ConfigError(f"{str(root)!r} is no folder")
    return Watch(root, Layout.of(root), trust=trust_store())


def _what(handler: Handler) -> str:
    from interlock.bridges.hooks.handler import Command

    action = handler.action
    if not isinstance(action, Command):
        return action.url
    return " ".join((action.command, *(action.args or ())))


def line_of(handler: Handler, *, held: bool) -> str:
    matcher = f" {handler.matcher.text}" if handler.matcher.text else ""
    condition = f" if {handler.condition}" if handler.condition else ""
    mark = "held " if held else ""
    return (
        f"{mark}{handler.event}{matcher}{condition}  {_what(handler)}  ({handler.dialect}, {handler.place})"
    )


def _place(problem: Problem) -> str:
    return f"{problem.file or '-'}{f':{problem.line}' if problem.line is not None else ''}"


def _described(handler: Handler, *, held: bool) -> dict[str, Any]:
    return {
        "event": handler.event,
        "matcher": handler.matcher.text,
        "if": handler.condition,
        "runs": _what(handler),
        "dialect": handler.dialect,
        "file": str(handler.place.file),
        "line": handler.place.line,
        "origin": handler.place.origin,
        "timeout": handler.timeout,
        "on_failure": handler.on_failure,
        "background": handler.background,
        "digest": handler.digest,
        "held": held,
    }


def _result(ran: Ran, *, won: bool) -> dict[str, Any]:
    return {
        **_described(ran.handler, held=False),
        "exit": ran.exit,
        "ms": ran.ms,
        "said": _said(ran.answer),
        "failure": ran.answer.failure,
        "won": won,
        "problems": [_problem(one) for one in ran.answer.problems],
    }


def _problem(problem: Problem) -> dict[str, Any]:
    return {"what": problem.what, "file": problem.file, "line": problem.line}


def _said(answer: Answer) -> dict[str, Any]:
    from interlock.bridges.hooks.record import said

    return said(answer)


def _print_json(value: object) -> None:
    from interlock.log.event import encode_json

    sys.stdout.buffer.write(encode_json(value) + b"\n")
    sys.stdout.flush()
