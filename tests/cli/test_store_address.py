"""`--store` and INTERLOCK_STORE: every command is about the sessions that are kept there, and moving them all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.models.scripted import calls, says
from postgres_server import PostgresServer, new_schema

KINDS = ["sqlite", "jsonl", pytest.param("postgres", marks=pytest.mark.slow)]


@pytest.fixture(params=KINDS)
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where nothing is kept yet."""
    match request.param:
        case "sqlite":
            return str(tmp_path / "elsewhere" / "agents.db")
        case "jsonl":
            return f"jsonl:{tmp_path / 'elsewhere' / 'logs'}"
        case _:
            server: PostgresServer = request.getfixturevalue("postgres")
            return f"{server.url}&schema={new_schema()}"


def _ids(listed: str) -> list[str]:
    return [json.loads(line)["id"] for line in listed.splitlines()]


@pytest.mark.slow
def test_every_command_is_about_the_sessions_that_are_kept_there(
    interlock: Any, script: Any, home: Path, work: Path, address: str
) -> None:
    def there(*arguments: str, **more: Any) -> Any:
        return interlock("--store", address, *arguments, **more)

    script(calls("read", path="a.txt"), says("It says hello."), says("Once more: hello."))
    assert there("run", "What does it say?", "--cwd", str(work)).out == "It says hello.\n"
    [session] = _ids(there("sessions", "--json").out)
    assert there("run", "Again", "--cwd", str(work), "--continue").out == "Once more: hello.\n"
    fork = there("fork", session, "--turn", "1").out.strip()
    assert set(_ids(there("sessions", "--json").out)) == {session, fork}
    assert there("check", session, fork).code == 0
    assert there("search", "hello").out.count(session) > 0
    assert there("log", session).code == 0
    assert there("explain", session).code == 0
    assert there("export", fork).out == there("log", fork, "--json").out
    assert there("approvals", "list").code == 0
    assert there("policy", "test", "--on", session, "--cwd", str(work)).code in (0, 2)
    assert not (home / "interlock.db").exists()
    assert (
        interlock("sessions").out
        == f"No sessions yet in {home / 'interlock.db'}. `interlock demo` makes one.\n"
    )


@pytest.mark.slow
def test_a_question_is_answered_where_it_is_kept(
    interlock: Any, script: Any, work: Path, address: str
) -> None:
    script(calls("write", path="b.txt", content="x"), says("Done."))
    waits = interlock("--store", address, "run", "Write it", "--cwd", str(work), "--approvals", "wait")
    assert waits.code == 7
    [question] = [
        json.loads(line)["id"]
        for line in interlock("--store", address, "approvals", "list", "--json").out.splitlines()
    ]
    assert interlock("approvals", "answer", question, "yes").code != 0
    assert interlock("--store", address, "approvals", "answer", question, "yes").code == 0
    assert interlock("--store", address, "run", "--resume", "last", "--cwd", str(work)).out == "Done.\n"
    assert (work / "b.txt").read_text() == "x"


@pytest.mark.parametrize(
    "arguments", [("sessions",), ("search", "x"), ("log", "last"), ("fork", "last"), ("export", "last")]
)
def test_looking_makes_nothing_there(
    interlock: Any, tmp_path: Path, address: str, arguments: tuple[str, ...], request: pytest.FixtureRequest
) -> None:
    interlock("--store", address, *arguments)
    assert not (tmp_path / "elsewhere").exists()
    if address.startswith("postgresql:"):
        schema = address.rpartition("=")[2]
        server: PostgresServer = request.getfixturevalue("postgres")
        assert server.query(f"SELECT count(*) FROM pg_namespace WHERE nspname = '{schema}'") == [(0,)]


def test_the_option_is_heard_before_the_variable_and_an_empty_one_is_none(
    interlock: Any, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INTERLOCK_STORE", str(tmp_path / "variable.db"))
    assert "variable.db" in interlock("sessions").out
    assert "option.db" in interlock("--store", str(tmp_path / "option.db"), "sessions").out
    assert "variable.db" in interlock("sessions").out  # the option was for that command line only
    monkeypatch.setenv("INTERLOCK_STORE", "")
    assert str(home / "interlock.db") in interlock("sessions").out


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("mysql://u:CANARY@h/d", "No store is called mysql."),
        ("postgresql://u:CAN@CANARY@h/d", "This is no address of a PostgreSQL database."),
        ("jsonl:a.txt", "a.txt is no folder"),
        (".", "is a folder. A SQLite file is in one"),
        ("", "names no place"),
    ],
)
@pytest.mark.parametrize(
    "command", [("sessions",), ("run", "x"), ("import", "a.txt", "--format", "interlock")]
)
def test_an_address_that_cannot_be_used_is_a_wrong_setting(
    interlock: Any,
    script: Any,
    work: Path,
    command: tuple[str, ...],
    address: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    script(says("never"))
    monkeypatch.chdir(work)
    ended = interlock("--store", address, *command)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
    assert "CANARY" not in ended.err


COMMANDS = [
    ("sessions",), ("search", "x"), ("log", "last"), ("explain", "last"), ("check", "last"), ("fork", "last"), ("export", "last"),
    ("approvals", "list"), ("run", "x"), ("run", "--continue"), ("import", "a.txt", "--format", "interlock"),
]  # fmt: skip


@pytest.mark.slow
def test_no_command_shows_the_password_of_a_server_that_does_not_answer(
    interlock: Any, script: Any, work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script(says("never"))
    monkeypatch.chdir(work)
    monkeypatch.setenv("INTERLOCK_STORE", "postgresql://u:CANARY@127.0.0.1:1/d?connect_timeout=2")
    for command in COMMANDS:
        ended = interlock(*command)
        assert (command, ended.code, ended.out) == (command, 6, "")
        assert "CANARY" not in ended.err


@pytest.mark.slow
def test_the_password_of_the_store_is_in_no_log(
    interlock: Any, script: Any, work: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command of the agent finds the address in its environment."""
    address = f"{postgres.url}&schema={new_schema()}".replace("postgres@", "postgres:CANARY7@")
    monkeypatch.setenv("INTERLOCK_STORE", address)
    script(calls("bash", command="echo ${INTERLOCK_STORE#*:*:}; echo $INTERLOCK_STORE"), says("Seen."))
    assert interlock("run", "Look", "--cwd", str(work), "--preset", "full").code == 0
    log = interlock("log", "last", "--json").out
    assert "[redacted:INTERLOCK_STORE]" in log
    assert "CANARY" not in log


def test_a_session_is_piped_from_one_store_to_another(
    interlock: Any, script: Any, work: Path, tmp_path: Path, address: str
) -> None:
    script(calls("read", path="a.txt"), says("It says hello."))
    interlock("run", "What does it say?", "--cwd", str(work))
    file = interlock("export", "last").out
    [session] = _ids(interlock("sessions", "--json").out)
    events = len(file.splitlines())
    assert interlock("--store", address, "import", "-", stdin=file).out == f"{session}: {events} events\n"
    assert interlock("--store", address, "export", session).out == file
    assert interlock("--store", address, "import", "-", stdin="{}").code == 6
    assert interlock("--store", address, "import", "-", "--format", "claude", stdin="").code == 2


@pytest.mark.slow
def test_all_sessions_move_to_another_store_and_back(
    interlock: Any, script: Any, work: Path, tmp_path: Path, address: str
) -> None:
    """And what goes on there goes on where it was."""
    big = "x" * 40_000
    (work / "big.txt").write_text(big)
    script(says("One."), calls("read", path="big.txt"), says("Two."), says("Two, later."), says("Once more."))
    interlock("run", "First", "--cwd", str(work))
    interlock("run", "Second", "--cwd", str(work))
    first = interlock("fork", "last").out.strip()
    here = {one: interlock("export", one).out for one in _ids(interlock("sessions", "--json").out)}
    assert len(here) == 3
    out = tmp_path / "out"
    ended = interlock("export", "--all", str(out))
    assert (ended.code, ended.out, ended.err) == (0, "", f"3 sessions to {out}\n")
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.name: path.read_text() for path in out.iterdir()} == {
        f"{session}.jsonl": lines for session, lines in here.items()
    }

    moved = interlock("--store", address, "import", str(out))
    assert (moved.code, len(moved.out.splitlines()), moved.err) == (0, 3, "")
    assert {one: interlock("--store", address, "export", one).out for one in here} == here
    assert interlock("--store", address, "run", "Go on", "--resume", first, "--cwd", str(work)).code == 0

    back = tmp_path / "back"
    interlock("--store", address, "export", "--all", str(back))
    home = f"jsonl:{tmp_path / 'third'}"
    assert interlock("--store", home, "import", str(back)).code == 0
    assert interlock("--store", home, "check", *here).code == 0
    assert interlock("--store", home, "export", first).out.startswith(here[first])

    # A folder of a JSONL store is a folder of exports, too: big texts are put back.
    assert interlock("--store", str(tmp_path / "last.db"), "import", str(tmp_path / "third")).code == 0
    assert (
        interlock("--store", str(tmp_path / "last.db"), "export", first).out
        == interlock("--store", home, "export", first).out
    )


def test_what_cannot_be_moved_is_told_of_and_holds_back_nothing_else(
    interlock: Any, script: Any, work: Path, tmp_path: Path
) -> None:
    script(says("One."), says("Two."))
    interlock("run", "First", "--cwd", str(work))
    interlock("run", "Second", "--cwd", str(work))
    out = tmp_path / "out"
    interlock("export", "--all", str(out))
    second, first = _ids(interlock("sessions", "--json").out)
    (out / "a.jsonl").write_text('{"type":"user"}\n')
    (out / "b.jsonl").write_text((out / f"{first}.jsonl").read_text().replace("turn/start", "turn/begun", 1))
    (out / "notes.txt").write_text("not looked at")
    there = str(tmp_path / "there.db")
    (tmp_path / "other.jsonl").write_text((out / f"{second}.jsonl").read_text().replace("Second", "Another"))
    assert interlock("--store", there, "import", str(tmp_path / "other.jsonl")).code == 0
    ended = interlock("--store", there, "import", str(out))
    assert (ended.code, [line.split(":")[0] for line in ended.out.splitlines()]) == (6, [first])
    said = ended.err.splitlines()
    assert [line.split(" was not imported: ")[0] for line in said] == [
        f"{second}.jsonl",
        "a.jsonl",
        "b.jsonl",
    ]
    assert "There is a session" in said[0]
    assert "it does not begin as an export does" in said[1]
    assert "turn/begun" in said[2]
    assert interlock("--store", there, "import", str(work)).code == 2  # no export in it


def test_an_import_that_was_cut_off_is_run_again(
    interlock: Any, script: Any, work: Path, tmp_path: Path
) -> None:
    """Also when a session has gone on there meanwhile."""
    script(says("One."), says("Two."), says("Two, later."))
    interlock("run", "First", "--cwd", str(work))
    interlock("run", "Second", "--cwd", str(work))
    out = tmp_path / "out"
    interlock("export", "--all", str(out))
    second, first = _ids(interlock("sessions", "--json").out)
    there = str(tmp_path / "there.db")
    interlock("--store", there, "import", str(out / f"{second}.jsonl"))
    interlock("--store", there, "run", "Go on", "--resume", second, "--cwd", str(work))
    ended = interlock("--store", there, "import", str(out))
    assert (ended.code, [line.split(":")[0] for line in ended.out.splitlines()]) == (0, [first])
    assert ended.err == f"{second} is there already, with these lines\n"
    assert set(_ids(interlock("--store", there, "sessions", "--json").out)) == {first, second}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("export",), "Name a session, or give --all FOLDER"),
        (("export", "last", "--all", "out"), "Name a session, or give --all FOLDER"),
        (("export", "--all", "out", "-o", "file"), "with --all, leave it out"),
        (("export", "--all", "."), "There is something in . already"),
        (("export", "--all", "no/where"), "cannot be made a folder: No such file or directory"),
    ],
)
def test_where_all_sessions_go_is_a_new_folder(
    interlock: Any, work: Path, arguments: tuple[str, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(work)
    ended = interlock(*arguments)
    assert (ended.code, ended.out) == (2, "")
    assert said in ended.err
