"""`interlock policy test`: what other rules would have decided about calls that are on record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from interlock.log.stores.store import Store
    from interlock.policy.replay import Replayed


def replay_rules(
    rules: Annotated[
        Path, typer.Argument(metavar="RULES", help="A file of rules: interlock.toml or settings.json.")
    ],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[SESSION]...", help="More sessions.", show_default=False)
    ] = None,
    on: Annotated[
        list[str] | None,
        typer.Option(
            "--on", metavar="SESSION", help="A session: its id, the beginning or the end of it, or `last`."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All sessions of the workspace.")] = False,
    cwd: Annotated[Path, typer.Option("--cwd", metavar="DIR", help="The workspace of --all.")] = Path(),
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="P", help="plan, ask, accept-edits or full.", show_default="the one at the time"
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a call that would change.")] = False,
) -> None:
    """Decide again, with other rules, about calls that were made, and print what would change. Nothing runs.

    Whoever else spoke at the time keeps their word. Exit code 1 if anything would change, 0 if nothing would.
    """
    import asyncio

    from interlock.errors import UsageError

    named = [*(on or ()), *(more or ())]
    if bool(named) == everything:
        raise UsageError("On which sessions? `--on SESSION...`, for example `--on last`; or `--all`.")
    if asyncio.run(_replay(rules, named, cwd.resolve(), preset, json)):
        from interlock.cli import exit_codes

        raise typer.Exit(exit_codes.FAILED)


async def _replay(rules: Path, named: list[str], cwd: Path, preset: str | None, as_json: bool) -> bool:
    """Whether anything would change."""
    import sys

    import msgspec

    from interlock.cli.oneline import count
    from interlock.cli.reading import open_log, stored
    from interlock.log.facts import SessionCreated
    from interlock.policy.preset import preset as preset_named
    from interlock.policy.printable import one_line
    from interlock.policy.replay import replay
    from interlock.policy.settings import Settings

    chosen = preset_named(preset) if preset is not None else None
    Settings.load(cwd, only=[rules])  # one that cannot be used is an error, whatever is looked at
    calls = changed = 0
    async with stored() as store:
        sessions = await _sessions(store, named, cwd)
        for session_id in sessions:
            events = list((await open_log(store, session_id)).events)
            created = next((event.fact for event in events if isinstance(event.fact, SessionCreated)), None)
            folder = Path(created.cwd) if created is not None and created.cwd is not None else cwd
            in_force = Settings.load(folder, only=[rules]).policy(preset)
            for one in replay(events, in_force.rules, cwd=folder, preset=chosen):
                calls += 1
                changed += one.changed
                if one.changed and as_json:
                    sys.stdout.buffer.write(msgspec.json.encode(_plain(one)) + b"\n")
                elif one.changed:
                    print("\n".join(map(one_line, _shown(one))))
    if not as_json:
        print(
            f"{count(calls, 'call')} of {count(len(sessions), 'session')}: {changed:,} would be decided otherwise"
        )
    return bool(changed)


async def _sessions(store: Store, named: list[str], workspace: Path) -> list[str]:
    """The sessions that are named; those of the workspace, the oldest first, if none is."""
    from interlock.cli.reading import find

    if named:
        return list(dict.fromkeys([await find(store, one) for one in named]))
    listed = await store.list(limit=1_000_000)
    return [info.id for info in reversed(listed) if _is_in(info.cwd, workspace)]


def _is_in(folder: str | None, workspace: Path) -> bool:
    return folder is not None and Path(folder).resolve() == workspace


def _shown(one: Replayed) -> Iterator[str]:
    from interlock.cli.calls import label
    from interlock.cli.oneline import arguments, short

    yield (
        f"{one.session} {label(one.tool, one.id)} ({one.place}): {one.was.verdict} → {one.would.verdict}  "
        f"{arguments(one.arguments)}"
    )
    yield f"  was       {one.was.verdict:<6} by {short(one.was.source, 300)}"
    because = f": {short(one.reason, 300)}" if one.reason else ""
    yield f"  would be  {one.would.verdict:<6} by {short(one.would.source, 300)}{because}"


def _plain(one: Replayed) -> dict[str, object]:
    from dataclasses import asdict

    return asdict(one)
