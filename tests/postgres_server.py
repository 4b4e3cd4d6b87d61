"""A real PostgreSQL server in a folder of its own, reached over a Unix socket.

The server refuses to run as root: then it runs as `postgres`, the user that Debian's package makes.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

_numbers = count(1)
_SETTINGS = (
    "listen_addresses=",
    "max_connections=200",
    "wal_level=minimal",
    "max_wal_senders=0",
    "autovacuum=off",
)


class PostgresServer:
    """Our own server. `url` reaches its database as a superuser; every test takes a schema of its own."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._programs = programs
        self.data = folder / "data"
        self.url = f"postgresql://postgres@/postgres?host={folder}"

    @cached_property
    def _user(self) -> dict[str, Any]:
        return {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}

    def own(self, folder: Path) -> None:
        """Give a folder to the server."""
        if self._user:
            found = pwd.getpwnam("postgres")
            os.chown(folder, found.pw_uid, found.pw_gid)
        folder.chmod(0o700)

    def _run(self, program: str, *arguments: str) -> None:
        with tempfile.TemporaryFile() as output:  # not a pipe: the server would keep it open
            ended = subprocess.run(
                [str(self._programs / program), *arguments],
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                **self._user,
            )
            if ended.returncode != 0:
                output.seek(0)
                log = self.folder / "log"
                said = log.read_text()[-2000:] if log.exists() else ""
                raise RuntimeError(f"{program} failed: {output.read().decode(errors='replace')}{said}")

    def make(self) -> None:
        self._run("initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C")

    def start(self) -> None:
        options = " ".join([f"-k {self.folder}", *[f"-c {setting}" for setting in _SETTINGS]])
        self._run(
            "pg_ctl", "-D", str(self.data), "-w", "-l", str(self.folder / "log"), "-o", options, "start"
        )

    def stop(self, mode: str = "fast") -> None:
        """`smart`, `fast`, or `immediate`: as when it crashes, without writing anything more."""
        self._run("pg_ctl", "-D", str(self.data), "-w", "-m", mode, "stop")

    def kill(self) -> None:
        """Every process of the server, at once, by SIGKILL."""
        postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
        processes = [postmaster, *_children(postmaster)]
        for pid in processes:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while any(map(_is_alive, processes)):
            time.sleep(0.01)  # until the system has taken them down
        # Where nobody reaps orphans, the dead process still has its number, and the files are taken for a live one's.
        for file in (self.data / "postmaster.pid", self.folder / ".s.PGSQL.5432.lock"):
            file.unlink(missing_ok=True)

    def connect(self, **options: Any) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, **options)

    def query(self, statement: str, *values: object) -> list[Any]:
        """The rows that a statement gives, if it gives any."""
        with self.connect() as connection:
            done = connection.execute(statement.encode(), values or None)
            return done.fetchall() if done.description else []


def _children(of: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == of:
                found.append(int(stat.parent.name))
    return found


def _is_alive(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def new_schema() -> str:
    return f"test_{next(_numbers)}"


@contextmanager
def postgres_server() -> Iterator[PostgresServer]:
    """A running server. Skips the test where there is none to run, but not in CI."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    on_path = shutil.which("postgres")
    programs = found[-1].parent if found else Path(on_path).resolve().parent if on_path else None
    if programs is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed: .ci/run installs the package postgresql")
        pytest.skip("PostgreSQL is not installed: the package postgresql of Debian and Ubuntu is enough")
    folder = Path(tempfile.mkdtemp(prefix="interlock-pg-"))
    server = PostgresServer(programs, folder)
    try:
        server.own(folder)
        server.make()
        server.start()
        try:
            yield server
        finally:
            if (server.data / "postmaster.pid").exists():
                server.stop("immediate")
    finally:
        shutil.rmtree(folder)
