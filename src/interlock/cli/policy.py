"""`interlock policy`: what the permission rules are, and what they would decide."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from interlock.cli.policy_test import replay_rules

if TYPE_CHECKING:
    from interlock.policy.judging import Judgement
    from interlock.policy.settings import Settings
    from interlock.tools.confinement import SandboxMode

policy = typer.Typer(
    name="policy",
    help="Permission rules: what they are, and what they would decide.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Rules = Annotated[
    list[Path] | None,
    typer.Option("--rules", metavar="FILE", help="Only the rules of this file. May be repeated."),
]
Cwd = Annotated[Path, typer.Option("--cwd", metavar="DIR", help="The workspace.")]
Json = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


@policy.command()
def decide(
    tool: Annotated[
        str | None,
        typer.Argument(
            metavar="TOOL",
            help="Bash, Edit, mcp__server__tool, … Nothing: calls come on standard input.",
            show_default=False,
        ),
    ] = None,
    given: Annotated[
        str | None,
        typer.Argument(
            metavar="INPUT",
            help="The arguments as JSON; or the command, path or address.",
            show_default=False,
        ),
    ] = None,
    rules: Rules = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="P", help="plan, ask, accept-edits or full.", show_default="the folder's, or ask"
        ),
    ] = None,
    cwd: Cwd = Path(),
    json: Json = False,
) -> None:
    """Say whether a call would be allowed, asked about or denied, by which rule, and why. Nothing runs.

    Without TOOL, each line of standard input is a call, {"tool": "Bash", "input": "git push"}, and each answer is a
    line of JSON.
    """
    from interlock.errors import UsageError
    from interlock.policy.judging import decide as judged

    settings = _settings(cwd, rules)
    in_force = settings.policy(preset)
    if tool is None:
        for name, arguments in _calls(sys.stdin.buffer):
            _print_json({"tool": name, **judged(name, arguments, policy=in_force, cwd=cwd).plain()})
        return
    if given is None:
        raise UsageError(
            "What is the call about? `interlock policy decide Bash 'git push'`, or its arguments as JSON."
        )
    arguments = _arguments(given)
    judgement = judged(tool, arguments, policy=in_force, cwd=cwd)
    if json:
        _print_json({"tool": tool, **judgement.plain()})
        return
    for line in _shown(tool, given, judgement):
        print(line)


@policy.command()
def lint(rules: Rules = None, cwd: Cwd = Path(), json: Json = False) -> None:
    """Look for mistakes in rules: exit code 1 if there are any. A file that cannot be used at all is an error.

    It also notes what a rule does not cover, since no rule could.
    """
    from interlock.cli import exit_codes
    from interlock.cli.oneline import count
    from interlock.policy.printable import one_line

    settings = _settings(cwd, rules)
    findings = settings.findings
    if json:
        for finding in findings:
            _print_json(asdict(finding))
    else:
        for finding in findings:
            print(one_line(str(finding)))
        print(f"{count(len(settings.rules.rules), 'rule')}, {count(len(findings), 'finding')}")
    if any(finding.severity == "warning" for finding in findings):
        raise typer.Exit(exit_codes.FAILED)


@policy.command()
def show(
    effective: Annotated[
        bool, typer.Option("--effective", help="Also what comes from above, and what was remembered.")
    ] = False,
    rules: Rules = None,
    cwd: Cwd = Path(),
    json: Json = False,
) -> None:
    """Print every rule with where it comes from, in the order in which they are named."""
    from interlock.policy.printable import one_line

    settings = _settings(cwd, rules)
    in_force = settings.policy(None)
    shown = in_force.rules.rules if effective else settings.rules.rules
    if json:
        _print_json(
            {
                "preset": in_force.preset.name if in_force.preset is not None else None,
                "sandbox": in_force.sandbox,
                "ceiling": list(in_force.ceiling.files),
                "rules": [
                    {
                        "effect": rule.effect,
                        "rule": rule.text,
                        "file": rule.file,
                        "line": rule.line,
                        "origin": rule.origin,
                    }
                    for rule in shown
                ],
            }
        )
        return
    if effective:
        preset = in_force.preset
        assert preset is not None
        print(one_line(f"preset {preset.name}: {preset.meaning}"))
        print(one_line(f"sandbox {in_force.sandbox}{_enforced(in_force.sandbox, cwd)}"))
        for file in in_force.ceiling.files:
            print(one_line(f"ceiling {file}"))
    for effect in ("deny", "ask", "allow"):
        for rule in shown:
            if rule.effect == effect:
                print(one_line(f"{effect:<6} {rule.text}  ({rule.origin}: {rule.where})"))
    if not shown:
        print("There are no rules.")


policy.command(name="test")(replay_rules)


@policy.command()
def bench(json: Json = False) -> None:
    """Measure the rules against a corpus: harmless commands that must not ask, and evasions that must not run.

    Exit code 1 if there is a miss; each is listed.
    """
    from interlock.cli import exit_codes
    from interlock.policy.corpus import measured as of_the_rules
    from interlock.policy.printable import one_line

    measured = of_the_rules()
    allowed, stopped = measured.rates
    if json:
        _print_json({**asdict(measured), "rates": {"harmless": allowed, "evasions": stopped}})
    else:
        print(f"harmless: {measured.allowed} of {measured.harmless} do not ask ({allowed:.1%})")
        print(
            f"evasions: {measured.stopped} of {measured.evasions} do not run ({stopped:.1%}); "
            f"{measured.denied} are denied, the others ask"
        )
        for miss in measured.misses:
            answer = miss.answer or "no rule speaks"
            print(one_line(f"  {miss.corpus}, {miss.kind}: {answer}: {miss.command}"))
    if measured.misses:
        raise typer.Exit(exit_codes.FAILED)


def _enforced(mode: SandboxMode, cwd: Path) -> str:
    """Whether a mode that confines anything can be had here."""
    if mode == "full":
        return ": commands are not confined"
    from interlock.process.sandbox import Sandbox

    problem = Sandbox.for_workspace(mode, cwd).problem()
    return f": cannot be enforced, and no command runs: {problem}" if problem else ": is enforced"


def _settings(cwd: Path, rules: Iterable[Path] | None) -> Settings:
    from interlock.errors import UsageError
    from interlock.policy.settings import Settings

    if not cwd.is_dir():
        raise UsageError(f"{cwd} is no folder")
    return Settings.load(cwd.absolute(), only=tuple(rules) if rules else None)


def _arguments(given: str) -> dict[str, Any] | str:
    """Arguments from JSON; anything that is no object is taken as it is."""
    from interlock.log.strictjson import FrozenDict, NotJSON, parse

    if given.lstrip().startswith("{"):
        try:
            parsed = parse(given)
        except NotJSON:
            return given  # `{ ls; }` is a command
        if type(parsed) is FrozenDict:
            return dict(parsed)
    return given


def _calls(lines: Iterable[bytes]) -> Iterator[tuple[str, dict[str, Any] | str]]:
    """The calls of an input.

    Raises:
        UsageError: a line is none, and which.
    """
    from interlock.errors import UsageError
    from interlock.log.strictjson import FrozenDict, NotJSON, parse

    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            call = parse(line.decode())
        except (NotJSON, UnicodeDecodeError) as error:
            raise UsageError(f"line {number} of standard input is not JSON: {error}") from None
        tool = call.get("tool") if type(call) is FrozenDict else None
        given = call.get("input") if type(call) is FrozenDict else None
        if not isinstance(tool, str) or not isinstance(given, (str, FrozenDict)):
            raise UsageError(
                f'line {number} of standard input is no call: write {{"tool": "Bash", "input": "git push"}}'
            )
        yield tool, given if isinstance(given, str) else dict(given)


def _print_json(value: dict[str, Any]) -> None:
    from interlock.log.event import encode_json

    sys.stdout.buffer.write(encode_json(value) + b"\n")
    sys.stdout.buffer.flush()


def _shown(tool: str, given: str, judgement: Judgement) -> Iterator[str]:
    """The answer for a person: the verdict first, then each part with what decides it."""
    from interlock.policy.printable import one_line

    yield one_line(f"{judgement.verdict}  {tool}  {given}")
    width = max([len(part.text) for part in judgement.parts] + [0])
    for part in judgement.parts:
        by = f"{part.rule.text}  {part.rule.where}" if part.rule is not None else part.why
        verdict = part.effect or "-"
        yield one_line(f"  {part.kind:<8} {part.text:<{min(width, 60)}}  {verdict:<5}  {by}").rstrip()
    where = f"  {judgement.rule.where}" if judgement.rule is not None else ""
    yield one_line(f"by {judgement.by}{where}: {judgement.reason}")
