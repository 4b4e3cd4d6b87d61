"""What a developer needs still works in the sandbox, as root and as an ordinary user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from interlock.process.sandbox import Sandbox

from .boxing import Machine, machine, require_bubblewrap, whoever

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module", autouse=True)
def _bubblewrap() -> None:
    require_bubblewrap()


@pytest.fixture
def host(uid: int) -> Iterator[Machine]:
    yield from machine(uid)


PROGRAMS = [
    pytest.param("python3 -c 'print(6 * 7)'", "42\n", id="python"),
    pytest.param("python3 -m pip --version >/dev/null && echo fine", "fine\n", id="pip"),
    pytest.param("python3 -c 'import multiprocessing as m; m.Lock(); print(m.Pool(2).map(abs, [-1]))'", "[1]\n", id="processes"),
    pytest.param("echo one > a && mv a b && cat b && rm b", "one\n", id="files of the workspace"),
    pytest.param("printf 'b\\na\\n' | sort | tee /tmp/sorted | head -1; cat /tmp/sorted | wc -l", "a\n2\n", id="pipes and temporary files"),
    pytest.param("cat <<< here; diff <(echo 1) <(echo 2) >/dev/null || echo differ", "here\ndiffer\n", id="heredocs and substitutions"),
    pytest.param("touch ~/x /var/tmp/y && mkdir -p ~/.cache/z && echo fine", "fine\n", id="a home folder of its own"),
    pytest.param("git status --short; echo x > new; git add -A; git commit -qm one; git log --format='%an %s'; git status --short", "Ada one\n", id="git"),
    pytest.param("echo x > new; git add new; git commit -qm one; git branch other; git checkout -q other; git stash -q; git tag t; git branch", "  master\n* other\n", id="branches"),
    pytest.param("git init -q inner && cd inner && git status --short && echo fine", "fine\n", id="another repository below"),
    pytest.param("python3 -c 'import socket as s; a, b = s.socketpair(); a.send(b\"1\"); print(b.recv(1))'", "b'1'\n", id="sockets of its own"),
    pytest.param("python3 -c 'import socket as s; l = s.create_server((\"127.0.0.1\", 0)); s.create_connection(l.getsockname()); print(1)'", "1\n", id="a loopback of its own"),
    pytest.param("test \"$(nproc)\" -ge 1 && id -u >/dev/null && hostname && date >/dev/null", "sandbox\n", id="asking the system"),
    pytest.param("trap 'echo bye' EXIT; (exit 3); echo $?", "3\nbye\n", id="subshells"),
    pytest.param("tty; cat; echo $?", "not a tty\n0\n", id="no input"),
]  # fmt: skip


@pytest.mark.parametrize("uid", whoever())
@pytest.mark.parametrize(("command", "prints"), PROGRAMS)
def test_everyday_work(host: Machine, command: str, prints: str) -> None:
    (host.work / "socket").unlink()
    finished = host.run(
        f"git symbolic-ref HEAD refs/heads/master; {command}", Sandbox("workspace-write", root=host.work)
    )
    assert (finished.output, finished.code) == (prints, 0)


@pytest.mark.parametrize("uid", whoever())
def test_node(host: Machine) -> None:
    if shutil.which("node") is None:
        pytest.skip("there is no Node.js")
    finished = host.run("node -e 'console.log([1,2].length)'", Sandbox("read-only", root=host.work))
    assert (finished.output, finished.code) == ("2\n", 0)


@pytest.mark.parametrize("uid", whoever())
def test_a_test_suite_of_the_workspace(host: Machine) -> None:
    (host.work / "test_it.py").write_text(
        "import unittest\nclass T(unittest.TestCase):\n    def test_it(self): open('made', 'w')\n"
    )
    finished = host.run("python3 -m unittest -q test_it", Sandbox("workspace-write", root=host.work))
    assert finished.code == 0, finished.output
    assert (host.work / "made").exists()
    assert (host.work / "made").stat().st_uid == host.uid


@pytest.mark.parametrize("uid", whoever())
def test_a_virtual_environment_in_a_home_folder_that_is_on_the_path(
    host: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = host.home / "tools"
    for folder in (tools / "bin", tools / "lib", host.home / "private" / "bin"):
        folder.mkdir(parents=True)
    for name, folder in (("greet", tools / "bin"), ("alone", host.home / "private" / "bin")):
        (folder / name).write_text(f"#!/bin/sh\ncat {tools}/lib/text\n")
        (folder / name).chmod(0o755)
    (tools / "lib" / "text").write_text("hello\n")
    (host.home / "private" / "key").write_text("a key\n")
    monkeypatch.setenv("PATH", f"{tools}/bin:{host.home}/private/bin:{os.environ['PATH']}")
    finished = host.run("greet; alone; ls $REAL_HOME/private", Sandbox("read-only", root=host.work))
    assert finished.output == "hello\nhello\nbin\n"


@pytest.mark.parametrize("uid", whoever())
def test_folders_that_are_named_are_writable_and_no_others(host: Machine) -> None:
    (host.base / "cache").mkdir()
    (host.base / "other").mkdir()
    for folder in ("cache", "other"):
        (host.base / folder).chmod(0o777)
    command = f"echo x > {host.base}/cache/a; ls {host.base}/other; echo x > {host.outside}/new"
    finished = host.run(
        command, Sandbox("workspace-write", root=host.work, writable=[host.base / "cache", "../cache"])
    )
    assert (host.base / "cache" / "a").read_text() == "x\n"
    assert "Read-only file system" in finished.output
    assert "other': No such file" in finished.output
    assert host.changed == []


@pytest.mark.parametrize("uid", whoever())
def test_what_is_hidden_is_not_seen_and_what_is_not_readable_neither(host: Machine) -> None:
    (host.work / ".env").write_text("KEY=1\n")
    (host.work / "vault").mkdir()
    (host.work / "vault" / "x").touch()
    finished = host.run(
        "cat .env; ls -A vault", Sandbox("workspace-write", root=host.work, hidden=[".env", "vault"])
    )
    assert "KEY" not in finished.output
    assert "x" not in finished.output.split()

    look = "cat $OUTSIDE/file 2>/dev/null; ls -d /opt /srv 2>/dev/null; echo; ls >/dev/null && python3 -c 'print(1)'"
    everything = host.run(look, Sandbox("read-only", root=host.work))
    little = host.run(look, Sandbox("read-only", root=host.work, readable=[]))
    assert "/srv" in everything.output
    assert "/srv" not in little.output
    assert little.output.endswith("\n1\n")


@pytest.mark.parametrize("uid", whoever())
def test_variables_are_passed_when_they_are_named(host: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MY_ONE", "MY_TWO", "YOURS", "LC_TIME"):
        monkeypatch.setenv(name, "here")
    sandbox = Sandbox("read-only", root=host.work, passed=["MY_*"], environment={"ADDED": "1"})
    finished = host.run("echo $MY_ONE $MY_TWO $YOURS $LC_TIME $ADDED $TMPDIR", sandbox)
    assert finished.output == "here here here 1 /tmp\n"


SERVER = """
import http.server
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *said):
        pass
server = http.server.HTTPServer(("127.0.0.1", 0), Answers)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@pytest.mark.parametrize("uid", whoever())
def test_the_network_where_it_is_allowed(host: Machine) -> None:
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        ask = f"import urllib.request as r; print(r.build_opener(r.ProxyHandler({{}})).open('http://localhost:{port}').status)"
        command = f'cat /etc/resolv.conf >/dev/null && python3 -c "{ask}"'
        allowed = host.run(command, Sandbox("read-only", root=host.work, network=True))
        assert allowed.output == "200\n"
        assert host.run(command, Sandbox("read-only", root=host.work)).code == 1
    finally:
        server.kill()
        server.communicate()


@pytest.mark.parametrize("uid", whoever())
def test_read_only_writes_nowhere_but_in_folders_of_its_own(host: Machine) -> None:
    finished = host.run("echo x > new; echo x > /tmp/y && cat /tmp/y", Sandbox("read-only", root=host.work))
    assert finished.output.endswith("new: Read-only file system\nx\n")
    assert not (host.work / "new").exists()


@pytest.mark.parametrize("uid", whoever())
def test_full_confines_nothing(host: Machine) -> None:
    finished = host.run(f"echo x > {host.base}/new; pwd", Sandbox("full", root=host.work))
    assert finished.output == f"{host.work}\n"
    assert (host.base / "new").exists()
