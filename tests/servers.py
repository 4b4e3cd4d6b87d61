"""Model servers that are not ours, as processes of their own: for tests that need real HTTP.

Each is a context manager that gives a `Server` on a free port, ready to answer, and ends and reaps it on leaving.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

AIMOCK = (
    Path(__file__).parent / "servers" / "node_modules" / ".bin" / "llmock"
)  # its bin without a config file
START = 30.0  # seconds that a server may take to answer for the first time


@dataclass(frozen=True)
class Server:
    """A running server: `url` is its root, `base_url` what an OpenAI client wants."""

    url: str

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def get(self, path: str) -> Any:
        return _exchange(urllib.request.Request(self.url + path))

    def post(self, path: str, body: object) -> Any:
        return _exchange(
            urllib.request.Request(self.url + path, data=json.dumps(body).encode(), method="POST")
        )


@contextmanager
def llmock_server(*options: str) -> Iterator[Server]:
    """PyPI's llmock: faults are queued by `play`, and `/_llmock/verdict` grades the client."""
    command = [str(Path(sys.executable).with_name("llmock")), "serve", "--log-level", "warning", *options]
    with _running(command, ready="/health") as server:
        yield server


def play(server: Server, *behaviors: Mapping[str, Any]) -> None:
    """Queue behaviours of llmock, for the next requests."""
    server.post("/_llmock/scenario", {"behaviors": list(behaviors)})


@contextmanager
def aimock_server(fixtures: Sequence[Mapping[str, Any]], *options: str) -> Iterator[Server]:
    """npm's @copilotkit/aimock: answers by fixture. Skips the test where `npm ci` did not run in tests/servers."""
    if not AIMOCK.exists() or shutil.which("node") is None:
        pytest.skip("aimock is not installed: run `npm ci` in tests/servers, with Node 20 or newer")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "fixtures.json"
        file.write_text(json.dumps({"fixtures": list(fixtures)}))
        command = [str(AIMOCK), "--fixtures", str(file), "--log-level", "warn", *options]
        with _running(command, ready="/v1/models") as server:
            yield server


@contextmanager
def _running(command: list[str], *, ready: str) -> Iterator[Server]:
    port = _free_port()
    server = Server(f"http://127.0.0.1:{port}")
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [*command, "--port", str(port)], stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            _await_ready(process, server.url + ready, output)
            yield server
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_ready(process: subprocess.Popen[bytes], url: str, output: Any) -> None:
    deadline = time.monotonic() + START
    while True:
        try:
            with urllib.request.urlopen(url, timeout=1):
                return
        except urllib.error.HTTPError as answered:
            answered.close()
            return
        except OSError:
            gone = process.poll() is not None
            if gone or time.monotonic() > deadline:
                output.seek(0)
                said = output.read().decode(errors="replace")
                how = f"ended with {process.returncode}" if gone else f"did not answer within {START:g} s"
                raise RuntimeError(f"{os.path.basename(process.args[0])} {how}:\n{said}") from None
        time.sleep(0.05)  # between two knocks


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _exchange(request: urllib.request.Request) -> Any:
    request.add_header("content-type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)
