"""Asking a program: questions as lines of JSON on one stream, answers as lines of JSON on another.

Lives here: `StdioApprover`. Several questions may be open, and are answered in any order. A line that is no answer to an
open question, for what was shown, gets an error line and changes nothing. The end of the input is nobody.

    out  {"type":"approval/ask","id":…,"session":…,"tool":…,"call":…,"arguments":{…},"question":…,"by":…,
          "rule":{"rule":…,"file":…,"line":…}|null,"digest":…,"options":[{"outcome":…,"rule":…}…],"expires":ms|null}
    in   {"type":"approval/answer","id":…,"outcome":"allow"|"allow-session"|"allow-always"|"reject","digest":…,
          "message":…?,"arguments":{…}?,"principal":…?}
    out  {"type":"approval/withdrawn","id":…,"reason":…}      it is open no longer, for another reason
    out  {"type":"approval/error","id":…|null,"line":n,"code":…,"problem":…}
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from types import TracebackType
from typing import Any, BinaryIO, Literal, Self, TextIO, TypeAlias

from interlock.errors import AnswerMismatch, ApprovalError, UsageError
from interlock.log.event import encode_json
from interlock.log.strictjson import FrozenDict, NotJSON, parse
from interlock.policy.approval import ApprovalRequest, Approved, Rejected, offered
from interlock.policy.approvals.accepting import accepted
from interlock.policy.aside import aside
from interlock.policy.lines import Lines, LineTooLong
from interlock.tools.approval import Remember

Code: TypeAlias = Literal["malformed", "unknown", "decided", "mismatch", "refused"]

ENDED = "the input has ended"
_REMEMBER: dict[str, Remember | None] = {"allow": None, "allow-session": "session", "allow-always": "always"}
_OUTCOMES = (*_REMEMBER, "reject")
_KEYS = {"type", "id", "outcome", "digest", "message", "arguments", "principal"}


class InputEnded(Exception):
    """Nobody is there any more."""


class Refused(Exception):
    """A line that changes nothing: `code` and `problem` say why, `approval_id` to which question, if it says so."""

    def __init__(self, code: Code, problem: str, approval_id: str | None = None) -> None:
        self.code, self.problem, self.approval_id = code, problem, approval_id
        super().__init__(problem)


class StdioApprover:
    """A channel over two streams; by default the process's own. Use it in `async with`: it reads all the while."""

    how = "api"
    channel = "stdio"

    def __init__(self, *, reading: TextIO | None = None, writing: BinaryIO | None = None) -> None:
        self._lines = Lines(reading or sys.stdin)
        self._writing = writing or sys.stdout.buffer
        self._number = 0  # of the line that was read last
        self._open: dict[str, tuple[ApprovalRequest, asyncio.Future[Approved | Rejected]]] = {}
        self._known: set[str] = set()  # every question that was shown
        self._gone: str | None = None  # why nobody can answer any more
        self._out: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._reader = loop.create_task(self._read(), name="interlock-stdio-reader")
        self._writer = loop.create_task(self._write(), name="interlock-stdio-writer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._reader is not None and self._writer is not None
        self._reader.cancel()
        self._out.put_nowait(None)
        await asyncio.gather(self._reader, self._writer, return_exceptions=True)

    async def __call__(self, request: ApprovalRequest, /) -> Approved | Rejected:
        if self._reader is None:
            raise UsageError("a StdioApprover is used in `async with`: it reads all the while")
        if self._gone is not None:
            raise InputEnded(self._gone)
        answer: asyncio.Future[Approved | Rejected] = asyncio.get_running_loop().create_future()
        self._open[request.id] = request, answer
        self._known.add(request.id)
        self._say(_ask(request))
        try:
            return await answer
        except asyncio.CancelledError as withdrawn:
            reason = str(withdrawn.args[0]) if withdrawn.args else "the question was withdrawn"
            self._say({"type": "approval/withdrawn", "id": request.id, "reason": reason})
            raise
        finally:
            del self._open[request.id]

    # Out

    def _say(self, line: dict[str, Any]) -> None:
        self._out.put_nowait(encode_json(line) + b"\n")  # no more than are asked; errors are waited for

    async def _write(self) -> None:
        while (line := await self._out.get()) is not None:
            try:
                if not isinstance(self._gone, _Unread):
                    await aside(partial(_put, self._writing, line))
            except (OSError, ValueError) as error:  # nobody reads it, or it is closed
                self._end(_Unread(f"the output cannot be written: {error}"))
            finally:
                self._out.task_done()

    # In

    async def _read(self) -> None:
        while True:
            self._number += 1
            try:
                line = await self._lines.next()
                if not line:
                    break
                if line.strip():
                    self._take(line)
            except LineTooLong:
                await self._refuse(Refused("malformed", "the line is too long"))
            except Refused as refused:
                await self._refuse(refused)
        self._end(ENDED)

    async def _refuse(self, refused: Refused) -> None:
        self._say(
            {
                "type": "approval/error",
                "id": refused.approval_id,
                "line": self._number,
                "code": refused.code,
                "problem": refused.problem,
            }
        )
        await self._out.join()  # whoever sends nonsense waits until they were told

    def _end(self, why: str) -> None:
        self._gone = self._gone or why
        for _, answer in self._open.values():
            if not answer.done():
                answer.set_exception(InputEnded(why))

    def _take(self, line: bytes) -> None:
        """Make of a line the answer to its question.

        Raises:
            Refused: it is none.
        """
        approval_id, outcome, given = _parsed(line)
        if approval_id not in self._known:
            raise Refused("unknown", "no such question was asked here", approval_id)
        asked = self._open.get(approval_id)
        if asked is None or asked[1].done():
            raise Refused("decided", "it is decided already; nothing was changed", approval_id)
        request, future = asked
        try:
            answer = _answer(outcome, given)
            accepted(request, answer, by=None, how="api", channel=self.channel)
        except AnswerMismatch as error:
            raise Refused("mismatch", error.problem, approval_id) from None
        except (ApprovalError, ValueError) as error:
            problem = error.problem if isinstance(error, ApprovalError) else str(error)
            raise Refused("refused", problem, approval_id) from None
        future.set_result(answer)


class _Unread(str):
    """Why nothing more is written."""

    __slots__ = ()


def _put(out: BinaryIO, line: bytes) -> None:
    out.write(line)
    out.flush()


def _ask(request: ApprovalRequest) -> dict[str, Any]:
    rules = offered(request.options)
    remembered = [
        {"outcome": outcome, "rule": rules[scope]} for outcome, scope in _REMEMBER.items() if scope in rules
    ]
    asking = next((said for said in request.call.said if said.answer == "ask" and said.rule), None)
    return {
        "type": "approval/ask",
        "id": request.id,
        "session": request.session,
        "tool": request.call.name,
        "call": request.call.id,
        "arguments": request.arguments,
        "question": request.question,
        "by": request.by,
        "rule": {"rule": asking.rule, "file": asking.file, "line": asking.line} if asking else None,
        "digest": request.digest,
        "options": [{"outcome": "allow"}, *remembered, {"outcome": "reject"}],
        "expires": request.expires,
    }


def _parsed(line: bytes) -> tuple[str, str, FrozenDict]:
    """
    Raises:
        Refused: it is no answer at all.
    """
    try:
        value = parse(line.decode().strip())
    except (NotJSON, UnicodeDecodeError) as error:
        raise Refused("malformed", f"not a line of JSON: {error}") from None
    if type(value) is not FrozenDict:
        raise Refused("malformed", "not a JSON object")
    approval_id = value.get("id")
    if not isinstance(approval_id, str):
        raise Refused("malformed", "it has no `id` of a question")
    if value.get("type") != "approval/answer":
        raise Refused("malformed", "its type is not approval/answer", approval_id)
    unknown = value.keys() - _KEYS
    if unknown:
        raise Refused("malformed", f"{sorted(unknown)[0]!r} is not known here", approval_id)
    outcome = value.get("outcome")
    if not isinstance(outcome, str) or outcome not in _OUTCOMES:
        raise Refused("malformed", f"outcome is one of {', '.join(_OUTCOMES)}", approval_id)
    if not isinstance(value.get("digest"), str):
        raise Refused("malformed", "it has no `digest` of what was seen", approval_id)
    return approval_id, outcome, value


def _answer(outcome: str, given: FrozenDict) -> Approved | Rejected:
    """
    Raises:
        ValueError: a part of it cannot be meant.
    """
    digest, principal = given["digest"], given.get("principal")
    if outcome == "reject":
        if given.get("arguments") is not None:
            raise ValueError("a no has no arguments")
        return Rejected(given.get("message"), digest, principal)
    if given.get("message") is not None:
        raise ValueError("a yes has no message: the model does not read it")
    return Approved(_REMEMBER[outcome], given.get("arguments"), digest, principal)
