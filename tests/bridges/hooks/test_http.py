"""Handlers that are services: a real server, and all the ways in which it may not answer."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bridges.hooks.cases import HAPPENINGS, inside, occurrence
from bridges.hooks.making import handler
from interlock.bridges.hooks.handler import Http
from interlock.bridges.hooks.http import expanded
from interlock.bridges.hooks.run import Ran, Runner
from interlock.bridges.hooks.verdict import Answer, Permission

ENVIRONMENT = {"TOKEN": "t0k", "SECRET": "s3cret"}


@dataclass
class Service:
    """What it answers, and what it was asked."""

    url: str = ""
    status: int = 200
    body: bytes = b""
    chunked: bool = False
    stall: threading.Event | None = None
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)


@pytest.fixture
def service() -> Iterator[Service]:
    state = Service()

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            state.asked.append((self.path, dict(self.headers), json.loads(content)))
            if state.stall is not None:
                state.stall.wait(30)
            self.send_response(state.status)
            if state.chunked:
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                for i in range(0, len(state.body), 7):
                    part = state.body[i : i + 7]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.send_header("Content-Length", str(len(state.body)))
                self.end_headers()
                self.wfile.write(state.body)

        def log_message(self, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        def handle_error(self, *args: object) -> None:
            """The other side hung up: some tests are about that."""

    server = Quiet(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}/hook?for=pre"
    yield state
    if state.stall is not None:
        state.stall.set()
    server.shutdown()
    server.server_close()
    thread.join()


async def post(tmp_path: Path, url: str, timeout: float = 30, **more: Any) -> Ran:
    runner = Runner(tmp_path, environ=ENVIRONMENT)
    (ran,) = await runner.run(
        [handler(Http(url, **more), timeout=timeout)], occurrence(HAPPENINGS["PreToolUse"])
    )
    return ran


async def test_the_payload_is_posted_and_the_answer_is_read_as_that_of_a_program(
    service: Service, tmp_path: Path
) -> None:
    service.body = json.dumps(
        inside("PreToolUse", permissionDecision="deny", permissionDecisionReason="no")
    ).encode()
    ran = await post(
        tmp_path, service.url, headers=(("Authorization", "Bearer $TOKEN ${SECRET}"),), allowed_env=("TOKEN",)
    )
    assert ran.answer == Answer(permission=Permission("deny", "no"))
    assert ran.exit is None
    ((path, headers, payload),) = service.asked
    assert path == "/hook?for=pre"
    assert (headers["Content-Type"], headers["Authorization"]) == ("application/json", "Bearer t0k")
    assert (payload["hook_event_name"], payload["tool_name"]) == ("PreToolUse", "Bash")


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_answer_may_come_in_pieces(service: Service, tmp_path: Path, chunked: bool) -> None:
    service.chunked, service.body = chunked, b'{"systemMessage": "hello there"}'
    assert (await post(tmp_path, service.url)).answer == Answer(messages=("hello there",))


async def test_an_empty_answer_is_no_answer(service: Service, tmp_path: Path) -> None:
    service.status = 204
    assert (await post(tmp_path, service.url)).answer == Answer()


@pytest.mark.parametrize(
    ("status", "body", "failure"),
    [
        (500, b"{}", "it answered with status 500"),
        (302, b"", "it answered with status 302"),
        (403, b'{"decision": "approve"}', "it answered with status 403"),
        (200, b"OK", "answered with something that is not a JSON object"),
        (200, b"[1]", "answered with something that is not a JSON object"),
        (200, b"{broken", "answered with something that is not a JSON object"),
        (200, b"{" + b" " * (1 << 20) + b"}", "its answer is longer than 1,048,576 bytes"),
    ],
)
async def test_another_answer_is_a_failure_and_a_gate_denies(
    service: Service, tmp_path: Path, status: int, body: bytes, failure: str
) -> None:
    service.status, service.body = status, body
    ran = await post(tmp_path, service.url)
    assert ran.answer.failure == failure
    assert ran.answer.permission is not None and ran.answer.permission.verdict == "deny"


async def test_a_service_that_does_not_answer_in_time(service: Service, tmp_path: Path) -> None:
    service.stall = threading.Event()
    ran = await post(tmp_path, service.url, timeout=0.2)
    assert ran.answer.failure == "did not answer within 0.2 s"
    assert ran.answer.permission is not None and ran.answer.permission.verdict == "deny"


async def test_nobody_is_there(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/"
        ran = await post(tmp_path, url)
    assert ran.answer.failure is not None
    assert ran.answer.failure.startswith(f"{url} cannot be reached: ")


async def test_a_server_that_does_not_speak_http(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65_536)
                connection.sendall(b"SSH-2.0-nonsense\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        ran = await post(tmp_path, f"http://127.0.0.1:{server.getsockname()[1]}/")
        thread.join()
    assert ran.answer.failure is not None
    assert ran.answer.permission is not None and ran.answer.permission.verdict == "deny"


async def test_a_header_that_would_be_two_is_refused(service: Service, tmp_path: Path) -> None:
    ran = await post(tmp_path, service.url, headers=(("X", "a\r\nY: b"),))
    assert ran.answer.failure is not None
    assert service.asked == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("$TOKEN", "t0k"),
        ("${TOKEN}x", "t0kx"),
        ("$SECRET.", "."),
        ("$TOKENS", ""),
        ("a$", "a$"),
        ("$$TOKEN", "$t0k"),
    ],
)
def test_only_allowed_variables_are_put_in(value: str, expected: str) -> None:
    assert expanded(value, ("TOKEN",), ENVIRONMENT) == expected
