"""The command line in process, with a scripted model behind the provider `script`, and as a process of its own."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from interlock.cli.main import main
from interlock.log.event import Event, decode_event
from interlock.models.registry import register_provider
from interlock.models.scripted import Reply, ScriptedModel
from postgres_server import PostgresServer, postgres_server
from servers import Server, aimock_server

PROGRAM = str(Path(sys.executable).with_name("interlock"))


class Ended(NamedTuple):
    """What a command line came to."""

    code: int
    out: str
    err: str

    @property
    def events(self) -> list[Event]:
        """The lines of the log on its standard output."""
        return [decode_event(line) for line in self.out.splitlines()]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty INTERLOCK_HOME, no other setting, and nobody's hooks and rules."""
    for name in [name for name in os.environ if name.startswith(("INTERLOCK_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "person"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path / "home"


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    with postgres_server() as server:
        yield server


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder to work in."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("hello\n")
    return folder


@pytest.fixture
def interlock(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ended]:
    """Run a command line in this process: `interlock("run", "a task", stdin="")`."""

    def run(*arguments: str, stdin: str | bytes = "") -> Ended:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        with monkeypatch.context() as patched:
            patched.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))
            with pytest.raises(SystemExit) as ended:
                main(arguments)
        code = ended.value.code
        assert isinstance(code, int)
        return Ended(code, *capfd.readouterr())

    return run


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Callable[..., ScriptedModel]]:
    """Make a scripted model the one that answers: `script(says("yes"))`."""
    undo: list[Callable[[], None]] = []

    def install(*answers: Reply) -> ScriptedModel:
        model = ScriptedModel(*answers)
        undo.append(register_provider("script", lambda name, *, base_url: model))
        monkeypatch.setenv("INTERLOCK_MODEL", "script:model")
        return model

    yield install
    for one in undo:
        one()


# As processes, against a server


def _turns(model: str, *answers: dict[str, object]) -> list[dict[str, object]]:
    return [
        {"match": {"model": model, "turnIndex": i}, "response": answer} for i, answer in enumerate(answers)
    ]


def _calls(*wanted: tuple[str, dict[str, object]]) -> dict[str, object]:
    return {"toolCalls": [{"name": name, "arguments": arguments} for name, arguments in wanted]}


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A model server; the model's name says what it does."""
    fixtures = [
        *_turns("reader", _calls(("read", {"path": "a.txt"})), {"content": "It says hello."}),
        *_turns("writer", _calls(("write", {"path": "b.txt", "content": "x"})), {"content": "Done, or not."}),
        *_turns(
            "sleeper",
            _calls(("bash", {"command": "echo $$ > pid; exec sleep 600"}), ("read", {"path": "a.txt"})),
        ),
    ]
    with aimock_server(fixtures) as running:
        yield running


class Program:
    """`interlock` as a process of its own, in `work` and with the home of the test."""

    command = (PROGRAM,)

    def __init__(self, work: Path, home: Path, base_url: str | None) -> None:
        self.work = work
        self.environment = {**os.environ, "INTERLOCK_HOME": str(home), "TERM": "xterm"}
        self.environment.pop("NO_COLOR", None)
        if base_url is not None:
            self.environment["INTERLOCK_BASE_URL"] = base_url

    def run(self, *arguments: str, stdin: str = "") -> Ended:
        ended = subprocess.run(
            [*self.command, *arguments],
            cwd=self.work,
            env=self.environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.command, *arguments],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


@pytest.fixture
def program(work: Path, home: Path) -> Program:
    """`interlock` as a process, without a model."""
    return Program(work, home, None)


@pytest.fixture
def served(work: Path, home: Path, server: Server) -> Program:
    """`interlock` as a process, whose models are those of `server`."""
    return Program(work, home, server.base_url)
