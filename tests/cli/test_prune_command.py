"""`interlock prune`, as a process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from time import time

import pytest

from interlock import SQLiteStore
from interlock.cli.amounts import age_of, size, size_of
from interlock.errors import UsageError
from interlock.log.event import Event
from interlock.log.facts import ApprovalAsked, ToolResulted, TurnEnd, TurnStart
from interlock.log.messages import Text
from interlock.log.reasons import Completed

from .conftest import Ended, Program

DAY = 86_400_000


@pytest.fixture
def sessions(home: Path) -> None:
    """Two that are old and over, one that waits, and one that is new."""

    async def made() -> None:
        now = int(time() * 1000)
        async with SQLiteStore(home / "interlock.db") as store:
            for name, age in (("old-1", 60), ("old-2", 40), ("waits", 50), ("new", 1)):
                journal = await store.create(name)
                when = now - age * DAY
                journal.write(
                    [
                        Event(0, when, 1, TurnStart(1)),
                        Event(1, when, 1, ToolResulted(0, "c", (Text(f"canary-{name} " * 5000),))),
                        Event(
                            2,
                            when,
                            1,
                            ApprovalAsked("a", 0, "sure?", {}, "d")
                            if name == "waits"
                            else TurnEnd(1, Completed(), 1),
                        ),
                    ]
                )
                await journal.close()

    asyncio.run(made())


def there(run: Callable[..., Ended]) -> set[str]:
    return {json.loads(line)["id"] for line in run("sessions", "--json").out.splitlines()}


@pytest.mark.slow
@pytest.mark.usefixtures("sessions")
def test_what_is_older_goes(program: Program, home: Path) -> None:
    planned = program.run("prune", "--older-than", "30d", "--dry-run")
    assert planned.code == 0
    assert "2 sessions would go." in planned.out
    assert "1 session stays, it waits for a person: waits" in planned.out
    assert there(program.run) == {"old-1", "old-2", "waits", "new"}
    before = (home / "interlock.db").stat().st_size
    done = program.run("prune", "--older-than", "30d")
    assert (done.code, done.err) == (0, "")
    assert [line.split()[0] for line in done.out.splitlines()[:2]] == ["old-1", "old-2"]
    assert "2 sessions went." in done.out
    assert "The files measured" in done.out
    assert there(program.run) == {"waits", "new"}
    assert (home / "interlock.db").stat().st_size < before
    raw = b"".join([file.read_bytes() for file in home.rglob("*") if file.is_file()])
    assert b"canary-old" not in raw
    assert b"canary-new" in raw
    assert "0 sessions went." in program.run("prune", "--older-than", "30d").out


@pytest.mark.usefixtures("sessions")
def test_a_size_is_reached_or_it_is_said_why_not(interlock: Callable[..., Ended]) -> None:
    small = interlock("prune", "--max-size", "1KB")
    assert small.code == 1
    assert "3 sessions went." in small.out
    assert "more than 1.0 KB: nothing else may go." in small.out
    assert there(interlock) == {"waits"}
    large = interlock("prune", "--max-size", "1GiB")
    assert (large.code, large.out.splitlines()[0]) == (0, "0 sessions went.")


@pytest.mark.usefixtures("sessions")
def test_what_hooks_were_given_goes_as_well(interlock: Callable[..., Ended], home: Path) -> None:
    for name in ("old-1", "waits", "new", "of another store"):
        (home / "hooks" / name).mkdir(parents=True)
    done = interlock("prune", "--older-than", "30d")
    assert done.code == 0
    assert "1 folder of what hooks were given of them went as well." in done.out
    assert {folder.name for folder in (home / "hooks").iterdir()} == {"waits", "new", "of another store"}


def test_where_nothing_is_kept_nothing_is_made(interlock: Callable[..., Ended], home: Path) -> None:
    assert interlock("prune", "--older-than", "30d").code == 0
    assert not home.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Say what may go: --older-than 30d, --max-size 2GB, or both."),
        (("--older-than", "30"), "--older-than '30' is no age"),
        (("--older-than", "-3d"), "is no age"),
        (("--older-than", "3y"), "is no age"),
        (("--max-size", "2"), "--max-size '2' is no size"),
        (("--max-size", "2XB"), "is no size"),
        (("--max-size", "2iB"), "is no size"),
    ],
)
def test_what_is_wrong_is_said(
    interlock: Callable[..., Ended], arguments: tuple[str, ...], said: str
) -> None:
    ended = interlock("prune", *arguments)
    assert ended.code == 2
    assert said in ended.err


def test_ages_and_sizes() -> None:
    assert age_of("--older-than", "90m") == 90 * 60_000
    assert age_of("--older-than", " 12h ") == 12 * 3_600_000
    assert age_of("--older-than", "30d") == 30 * DAY
    assert age_of("--older-than", "4w") == 28 * DAY
    typed = {"812B": 812, "1kb": 1000, "1.5KiB": 1536, "500 MB": 5 * 10**8, "2GB": 2 * 10**9, "1GiB": 2**30}
    assert {text: size_of("--max-size", text) for text in typed} == typed
    assert size_of("--max-size", "1TB") == 10**12
    with pytest.raises(UsageError):
        size_of("--max-size", "lots")
    assert [size(n) for n in (812, 1500, 2_000_000, 3 * 10**9, 5 * 10**12)] == [
        "812 B",
        "1.5 KB",
        "2.0 MB",
        "3.0 GB",
        "5.0 TB",
    ]
