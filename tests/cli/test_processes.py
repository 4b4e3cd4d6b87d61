"""The command line as a process: other people's servers, terminals, signals, pipes, and several at once."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import check
from interlock.log.event import decode_event
from interlock.log.facts import ApprovalDecided, CancelRequested, ToolResulted, TurnEnd
from interlock.log.reasons import Aborted, Cause
from servers import llmock_server, play

pytestmark = pytest.mark.slow

LIMIT = 60.0  # seconds that a process may say nothing


def model(name: str) -> tuple[str, str]:
    return "--model", f"openai:{name}"


def facts(program: Any, cls: type) -> list[Any]:
    """Those of the last session, which obeys the laws."""
    events = program.run("log", "last", "--json").events
    assert check(events) == []
    return [event.fact for event in events if isinstance(event.fact, cls)]


def read_until(descriptor: int, text: str, seen: str = "") -> str:
    """Read from a pipe or a terminal until this was in it."""
    while text not in seen:
        assert select.select([descriptor], [], [], LIMIT)[0], f"no {text!r} in {seen!r}"
        try:
            data = os.read(descriptor, 65_536)
        except OSError:  # how a pseudo-terminal says that the other side has gone
            data = b""
        assert data, f"ended without {text!r}: {seen!r}"
        seen += data.decode()
    return seen


class OnTerminal:
    """A command line on a pseudo-terminal of its own."""

    def __init__(self, program: Any, *arguments: str) -> None:
        self.terminal, slave = pty.openpty()
        self.process = subprocess.Popen(
            [*program.command, *arguments],
            cwd=program.work,
            env=program.environment,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            preexec_fn=lambda: os.login_tty(slave),
        )
        os.close(slave)
        self.seen = ""

    def expect(self, text: str) -> None:
        self.seen = read_until(self.terminal, text, self.seen)

    def type(self, text: str) -> None:
        os.write(self.terminal, text.encode())

    def end(self) -> int:
        """Read to the end; the exit code."""
        while select.select([self.terminal], [], [], LIMIT)[0]:
            try:
                data = os.read(self.terminal, 65_536)
            except OSError:
                break
            if not data:
                break
            self.seen += data.decode()
        return self.process.wait(LIMIT)


@contextmanager
def on_terminal(program: Any, *arguments: str) -> Iterator[OnTerminal]:
    running = OnTerminal(program, *arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()
        os.close(running.terminal)


@contextmanager
def started(program: Any, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The command line as a running process; it is gone after the block."""
    running = program.start(*arguments)
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


class Sleeper:
    """The command that the model `sleeper` runs: it tells its process id, and sleeps."""

    def __init__(self, work: Path) -> None:
        os.mkfifo(work / "pid")
        self._told = os.open(work / "pid", os.O_RDWR | os.O_NONBLOCK)

    def runs(self) -> int:
        """Wait until it runs; its process id."""
        return int(read_until(self._told, "\n"))

    def close(self) -> None:
        os.close(self._told)


@pytest.fixture
def sleeper(work: Path) -> Iterator[Sleeper]:
    sleeper = Sleeper(work)
    yield sleeper
    sleeper.close()


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


SLEEP = ("run", "Sleep", *model("sleeper"), "--preset", "full")


# Servers


def test_a_task_runs_on_a_server_and_its_session_can_be_looked_at(served: Any, home: Path) -> None:
    ended = served.run("run", "What does it say?", *model("reader"))
    assert (ended.code, ended.out) == (0, "It says hello.\n")
    assert stat.S_IMODE((home / "interlock.db").stat().st_mode) == 0o600
    assert "done after" in ended.err and "\x1b" not in ended.err
    shown = served.run("log", "last")
    assert "openai:reader  is sent 2 messages" in shown.out and "tokens in" in shown.out
    assert "every law holds" in served.run("check", "last").out
    assert "What does it say?" in served.run("sessions").out


def test_another_server_streams_its_answer_and_its_failures(program: Any) -> None:
    with llmock_server() as server:
        program.environment["INTERLOCK_BASE_URL"] = server.base_url
        answered = program.run("run", "Say hello", *model("gpt-4o-mini"), "--output-format", "json")
        assert (answered.code, json.loads(answered.out)["ok"]) == (0, True)
        assert json.loads(answered.out)["text"]
        play(server, {"type": "fail", "status": 401, "message": "who are you?"})
        refused = program.run("run", "Say hello", *model("gpt-4o-mini"))
        assert refused.code == 1
        assert "AUTH: who are you?" in refused.err


def test_without_any_standard_input_there_is_no_task(program: Any) -> None:
    program.command = ("sh", "-c", '"$0" run <&-', *program.command)
    ended = program.run()
    assert (ended.code, ended.err) == (2, "interlock: The task is empty.\n")


def test_a_server_that_is_not_there_is_told(program: Any) -> None:
    ended = program.run(
        "run", "Hi", *model("x"), "--base-url", "http://127.0.0.1:9/v1", "--budget", "requests=1"
    )
    assert ended.code == 5  # the first attempt failed, and a second is not in the budget
    assert "TRANSPORT" in ended.err and "Traceback" not in ended.err


def test_stream_json_parses_line_by_line_while_it_comes(served: Any, sleeper: Sleeper) -> None:
    with started(served, *SLEEP, "--output-format", "stream-json") as running:
        lines = iter(running.stdout)
        types = []
        for line in lines:
            types.append(decode_event(line).type)
            if types[-1] == "tool/started":
                break
        sleeper.runs()  # the command sleeps, and what has happened is here already
        running.send_signal(signal.SIGINT)
        types += [decode_event(line).type for line in lines]
        assert running.wait(LIMIT) == 130
    assert types[0] == "session/created" and types[-1] == "turn/end"


# Signals


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_during_a_slow_command_ends_it_and_closes_the_log(
    served: Any, sleeper: Sleeper, sent: signal.Signals, code: int
) -> None:
    with started(served, *SLEEP) as running:
        pid = sleeper.runs()
        running.send_signal(sent)
        _, said = running.communicate(timeout=LIMIT)
        assert running.returncode == code
    assert "stopping, waiting for bash (0 s)" in said
    assert not alive(pid)
    (end,) = facts(served, TurnEnd)
    assert end.reason == Aborted(Cause("user"))
    results = facts(served, ToolResulted)
    assert [result.error.code for result in results] == ["ABORTED", "ABORTED_BEFORE_DISPATCH"]


def test_the_log_can_be_followed_while_another_process_writes_it(served: Any, sleeper: Sleeper) -> None:
    with started(served, *SLEEP) as running:
        sleeper.runs()
        with started(served, "log", "last", "--follow") as follower:
            seen = read_until(follower.stdout.fileno(), "runs, allowed by preset full")
            assert "turn 1 ends" not in seen
            assert served.run("check", "last").code == 0
            assert "Sleep" in served.run("sessions").out
            running.send_signal(signal.SIGINT)
            seen = read_until(follower.stdout.fileno(), "turn 1 ends", seen)
            follower.send_signal(signal.SIGINT)
            _, error = follower.communicate(timeout=LIMIT)
            assert (follower.returncode, error) == (130, "")
        running.communicate(timeout=LIMIT)
    whole = served.run("log", "last").out
    assert seen.splitlines() == whole.splitlines()[: len(seen.splitlines())]


def test_a_reader_that_goes_away_stops_the_run(served: Any, sleeper: Sleeper) -> None:
    with started(served, *SLEEP, "--output-format", "stream-json") as running:
        pid = sleeper.runs()
        running.stdout.close()
        running.send_signal(signal.SIGINT)  # what it says of that is read by nobody
        error = running.stderr.read()
        assert running.wait(LIMIT) == 1
    assert "Traceback" not in error
    assert not alive(pid)
    (end,) = facts(served, TurnEnd)
    assert isinstance(end.reason, Aborted)


# Terminals


def question(running: OnTerminal) -> None:
    running.expect("say what to do instead] ")
    assert "write wants to run: write may change something" in running.seen
    assert "path: b.txt" in running.seen


@pytest.mark.parametrize(
    ("typed", "written", "outcome", "message"),
    [
        ("y\n", True, "allowed-once", None),
        ("no\n", False, "rejected", None),
        ("write c.txt instead\n", False, "rejected", "write c.txt instead"),
        ("\x04", False, "rejected", "nobody answered at the terminal"),
    ],
)
def test_a_person_at_the_terminal_is_asked(
    served: Any, work: Path, typed: str, written: bool, outcome: str, message: str | None
) -> None:
    with on_terminal(served, "run", "Write it", *model("writer")) as running:
        question(running)
        running.type(typed)
        assert running.end() == 0
    assert (work / "b.txt").exists() is written
    (answer,) = facts(served, ApprovalDecided)
    assert (answer.outcome, answer.message, answer.how, answer.channel) == (
        outcome,
        message,
        "tty",
        "terminal",
    )
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", running.seen)
    assert shown.count("Done, or not.") == 1  # streamed where it is seen, and not printed again
    if message is not None:
        assert f"Error [approval_rejected]: {message}" in shown


def test_ctrl_c_at_the_question_withdraws_it(served: Any, work: Path) -> None:
    with on_terminal(served, "run", "Write it", *model("writer")) as running:
        question(running)
        running.type("\x03")
        assert running.end() == 130
    assert not (work / "b.txt").exists()
    (answer,) = facts(served, ApprovalDecided)
    assert answer.outcome == "cancelled"
    (stop,) = facts(served, CancelRequested)
    assert stop.cause == Cause("user")


def test_ctrl_c_during_a_command_says_what_is_waited_for(served: Any, sleeper: Sleeper) -> None:
    with on_terminal(served, *SLEEP) as running:
        sleeper.runs()
        running.type("\x03")
        running.expect("stopping, waiting for bash (")
        assert running.end() == 130
    assert "Traceback" not in running.seen


def test_the_answer_alone_goes_to_a_file_while_a_person_watches(served: Any, work: Path) -> None:
    program = f'"{served.command[0]}" run "Read it" --model openai:reader > answer.txt'
    with on_terminal(_Shell(served), "-c", program) as running:
        assert running.end() == 0
    assert (work / "answer.txt").read_text() == "It says hello.\n"
    assert "It says hello." in running.seen


class _Shell:
    def __init__(self, served: Any) -> None:
        self.command, self.work, self.environment = ["sh"], served.work, served.environment


def test_a_reader_who_has_seen_enough_is_no_error(program: Any) -> None:
    program.run("demo")
    program.command = ("sh", "-c", '"$0" log last --json | head -n 1', *program.command)
    ended = program.run()
    assert (ended.code, ended.err) == (0, "")
    assert decode_event(ended.out).seq == 0


# The demo


def test_the_demo_works_twice_in_an_empty_home(program: Any, tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    del program.environment["INTERLOCK_HOME"]
    program.environment.pop("XDG_STATE_HOME", None)
    program.environment["HOME"] = str(tmp_path / "user")
    for n in (1, 2):
        ended = program.run("demo")
        assert (ended.code, ended.err) == (0, "")
        assert f"/.local/state/interlock/demo-{n}\n" in ended.out
        assert "\x1b" not in ended.out
        assert program.run("check", "last").code == 0
    database = tmp_path / "user/.local/state/interlock/interlock.db"
    assert stat.S_IMODE(database.stat().st_mode) == 0o600
    assert len(program.run("sessions", "--json").out.splitlines()) == 2


def test_the_demo_on_a_terminal_shows_the_limit_between_the_words(program: Any) -> None:
    with on_terminal(program, "demo") as running:
        assert running.end() == 0
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", running.seen).replace("\r", "")
    assert re.search(
        r"At 09:20 all four connections[^\n]*\n  » for the next step  person: Analysis only, for now: write no file\.\n",
        shown,
    )
    assert "stopping, waiting for watch (0 s)" in shown


def test_ctrl_c_stops_the_demo(program: Any) -> None:
    with on_terminal(program, "demo") as running:
        running.expect("side by side")
        running.type("\x03")
        assert running.end() == 130
    assert program.run("check", "last").code == 0
