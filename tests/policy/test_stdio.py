"""Approvals as lines of JSON: any order, one answer each, and what is no answer changes nothing."""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import UsageError
from interlock.log.facts import Said
from interlock.policy.approval import Approved, Rejected
from interlock.policy.approvals.service import Approvals
from interlock.policy.stdio import StdioApprover
from interlock.tools.approval import Answered

from .asking import BASH, asked, call_of, request_of


class Program:
    """What speaks with the approver: it writes lines, and reads those that come."""

    def __init__(self, approver: StdioApprover, send: int, told: io.FileIO) -> None:
        self.approver = approver
        self._send = send
        self._told = told
        self._seen = b""

    def send(self, *lines: object) -> None:
        for line in lines:
            data = line if isinstance(line, bytes) else json.dumps(line).encode()
            os.write(self._send, data + b"\n")

    def answer(self, number: int, outcome: str = "allow", **more: Any) -> None:
        self.send(
            {"type": "approval/answer", "id": f"a{number}", "outcome": outcome, "digest": "digest", **more}
        )

    def hang_up(self) -> None:
        os.close(self._send)
        self._send = -1

    async def told(self) -> Any:
        """The next line that the approver writes."""
        loop = asyncio.get_running_loop()
        while b"\n" not in self._seen:
            self._seen += await loop.run_in_executor(None, os.read, self._told.fileno(), 65_536)
        line, _, self._seen = self._seen.partition(b"\n")
        return json.loads(line)

    def leave(self) -> None:
        if self._send >= 0:
            os.close(self._send)


@asynccontextmanager
async def speaking() -> AsyncIterator[Program]:
    heard, send = os.pipe()
    told, says = os.pipe()
    with os.fdopen(heard) as reading, os.fdopen(says, "wb") as writing, io.FileIO(told) as seen:
        async with StdioApprover(reading=reading, writing=writing) as approver:
            program = Program(approver, send, seen)
            try:
                yield program
            finally:
                program.leave()


def asking(program: Program, number: int = 1, **more: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(ask(program, number, **more))


async def ask(program: Program, number: int, **more: Any) -> Any:
    return await program.approver(request_of(call_of(key=number), **more))


async def test_what_is_asked_is_one_line_with_all_that_a_person_needs() -> None:
    said = (Said("rule Bash(rm:*)", "ask", "it removes", "Bash(rm:*)", "interlock.toml", 12),)
    call = call_of(BASH, said=said, command="rm x")
    async with speaking() as program:
        task = asyncio.create_task(
            program.approver(
                request_of(
                    call,
                    by="rule Bash(rm:*)",
                    options=("once", "session Bash(rm x)", "always Bash(rm x)"),
                    expires=5,
                    session="s",
                )
            )
        )
        assert await program.told() == {
            "type": "approval/ask",
            "id": "a1",
            "session": "s",
            "tool": "bash",
            "call": "c1",
            "arguments": {"command": "rm x"},
            "question": "bash may change something",
            "by": "rule Bash(rm:*)",
            "rule": {"rule": "Bash(rm:*)", "file": "interlock.toml", "line": 12},
            "digest": "digest",
            "options": [
                {"outcome": "allow"},
                {"outcome": "allow-session", "rule": "Bash(rm x)"},
                {"outcome": "allow-always", "rule": "Bash(rm x)"},
                {"outcome": "reject"},
            ],
            "expires": 5,
        }
        program.answer(1, "allow-always", principal="ada")
        assert await task == Approved("always", None, "digest", "ada")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ({"outcome": "allow"}, Approved(digest="digest")),
        (
            {"outcome": "allow", "arguments": {"path": "b"}},
            Approved(arguments={"path": "b"}, digest="digest"),
        ),
        ({"outcome": "reject"}, Rejected(digest="digest")),
        ({"outcome": "reject", "message": "use b"}, Rejected("use b", "digest")),
        ({"outcome": "reject", "principal": "bob"}, Rejected(None, "digest", "bob")),
    ],
)
async def test_what_may_be_answered(line: dict[str, Any], answer: object) -> None:
    async with speaking() as program:
        task = asking(program)
        await program.told()
        program.answer(1, **line)
        assert await task == answer


WRONG: list[tuple[object, str, str | None, str]] = [
    (b"no json", "malformed", None, "not a line of JSON"),
    (b"\xff", "malformed", None, "not a line of JSON"),
    (b'{"a":1,"a":2}', "malformed", None, "appears twice"),
    (b"[1]", "malformed", None, "not a JSON object"),
    ({}, "malformed", None, "no `id`"),
    ({"id": 1}, "malformed", None, "no `id`"),
    ({"id": "a1"}, "malformed", "a1", "its type is not"),
    ({"outcome": "yes"}, "malformed", "a1", "outcome is one of"),
    ({"outcome": ["allow"]}, "malformed", "a1", "outcome is one of"),
    ({"digest": None}, "malformed", "a1", "no `digest`"),
    ({"remember": True}, "malformed", "a1", "'remember' is not known here"),
    ({"id": "a2"}, "unknown", "a2", "no such question"),
    ({"digest": "another"}, "mismatch", "a1", "Look at it again"),
    ({"outcome": "allow-session"}, "refused", "a1", "was not offered"),
    ({"arguments": {"path": 1}}, "refused", "a1", "do not fit write"),
    ({"arguments": [1]}, "refused", "a1", "arguments"),
    ({"message": "well"}, "refused", "a1", "a yes has no message"),
    ({"outcome": "reject", "arguments": {}}, "refused", "a1", "a no has no arguments"),
    ({"outcome": "reject", "message": 5}, "refused", "a1", "message is text"),
    ({"principal": 5}, "refused", "a1", "principal is text"),
]


@pytest.mark.parametrize(("line", "code", "approval_id", "problem"), WRONG)
async def test_a_line_that_is_no_answer_gets_an_error_and_changes_nothing(
    line: Any, code: str, approval_id: str | None, problem: str
) -> None:
    whole = {"type": "approval/answer", "id": "a1", "outcome": "allow", "digest": "digest"}
    if isinstance(line, dict) and line and line != {"id": "a1"}:
        line = {**whole, **line}
    async with speaking() as program:
        task = asking(program)
        await program.told()
        program.send(b"", line)
        error = await program.told()
        assert (error["type"], error["id"], error["line"], error["code"]) == (
            "approval/error",
            approval_id,
            2,
            code,
        )
        assert problem in error["problem"]
        assert not task.done()
        program.answer(1)
        assert await task == Approved(digest="digest")


async def test_a_second_line_for_the_same_question_is_told_that_it_is_decided() -> None:
    async with speaking() as program:
        task = asking(program)
        await program.told()
        program.answer(1, "reject")
        program.answer(1, "allow")
        assert await task == Rejected(digest="digest")
        first = await program.told()
        program.answer(1, "allow")
        assert [first["code"], (await program.told())["code"]] == ["decided", "decided"]


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(1, 6)))
def test_several_are_open_at_once_and_answered_in_any_order(order: list[int]) -> None:
    async def run() -> None:
        async with speaking() as program:
            tasks = {number: asking(program, number) for number in range(1, 6)}
            assert [(await program.told())["id"] for _ in tasks] == ["a1", "a2", "a3", "a4", "a5"]
            for number in order:
                program.answer(number, "reject", message=f"no {number}")
            for number, task in tasks.items():
                assert await task == Rejected(f"no {number}", "digest")

    asyncio.run(run())


async def test_a_question_that_is_withdrawn_is_told_and_a_later_answer_is_late() -> None:
    async with speaking() as program:
        task = asking(program)
        await program.told()
        task.cancel("ada (web) said yes")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await program.told() == {
            "type": "approval/withdrawn",
            "id": "a1",
            "reason": "ada (web) said yes",
        }
        program.answer(1)
        assert (await program.told())["code"] == "decided"


async def test_the_end_of_the_input_is_nobody() -> None:
    async with speaking() as program:
        service = Approvals(program.approver)
        task = asyncio.create_task(service.ask(asked()))
        await program.told()
        program.hang_up()
        ended = Answered("unavailable", "nobody answered: stdio failed: InputEnded: the input has ended")
        assert await task == ended
        assert await service.ask(asked()) == ended, "also of what is asked later"


async def test_an_output_that_nobody_reads_is_nobody() -> None:
    heard, send = os.pipe()
    told, says = os.pipe()
    os.close(told)
    with os.fdopen(heard) as reading, os.fdopen(says, "wb", buffering=0) as writing:
        async with StdioApprover(reading=reading, writing=writing) as approver:
            answered = await Approvals(approver).ask(asked())
            assert answered.outcome == "unavailable"
            assert answered.message is not None and "the output cannot be written" in answered.message
        os.close(send)


async def test_a_line_that_is_too_long_is_skipped() -> None:
    async with speaking() as program:
        task = asking(program)
        await program.told()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, program.send, b"x" * (5 << 20))
        assert (await program.told())["problem"] == "the line is too long"
        program.answer(1)
        assert await task == Approved(digest="digest")


async def test_it_reads_all_the_while_or_not_at_all() -> None:
    with pytest.raises(UsageError, match="in `async with`"):
        await StdioApprover(reading=io.StringIO(), writing=io.BytesIO())(request_of())
