"""What a chat completions server answers: its stream of JSON events, as neutral chunks.

Lives here: `AnswerReader`, and the shape of an event. It evens out how servers differ (reasoning under two names; ids,
indexes and names of calls left out, repeated or in pieces) and does no I/O.
"""

from __future__ import annotations

import json
from typing import Any, Final, Literal

import msgspec

from interlock.errors import ModelFailure
from interlock.log.facts import Usage
from interlock.models.http_failures import bounded, failure_code, said
from interlock.models.protocol import CallDelta, Chunk, Finish, ReasoningDelta, TextDelta, UsageReport

FINISH: Final[dict[str, Literal["stop", "calls", "max-tokens", "filtered"]]] = {
    "length": "max-tokens",
    "tool_calls": "calls",
    "function_call": "calls",
    "content_filter": "filtered",
}  # anything else that a server says is an ordinary end
BROKEN = ("error", "insufficient_system_resource")  # finish reasons by which servers say that they failed


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _CallPiece(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None


class _Delta(msgspec.Struct):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[_CallPiece] | None = None
    function_call: _Function | None = None


class _Choice(msgspec.Struct):
    index: int | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: Any = None
    error: Any = None
    object: Any = None  # "error": the event itself is the error object, with these three
    message: Any = None
    code: Any = None
    type: Any = None


_decode = msgspec.json.Decoder(_Event).decode


class _Call:
    """A call whose pieces arrive. It is told on when its name is known to be whole: when its arguments begin."""

    __slots__ = ("arguments", "block", "id", "name", "told")

    def __init__(self, block: int, id: str | None) -> None:  # noqa: A002  # the field's name
        self.block = block
        self.id = id
        self.name = ""
        self.arguments: list[str] = []
        self.told = False

    def whole(self) -> bool:
        """Whether its arguments are a complete JSON object, after which a piece can only be another call's."""
        if not self.arguments or not self.arguments[-1].rstrip().endswith("}"):
            return False
        try:
            msgspec.json.decode("".join(self.arguments))
        except msgspec.DecodeError:
            return False
        return True


class AnswerReader:
    """Reads one answer, event by event. `secret` never appears in an error's text."""

    def __init__(self, *, request_id: str | None = None, secret: str | None = None) -> None:
        self._request_id = request_id
        self._secret = secret
        self._blocks = 0
        self._open = ""  # the kind of the last block: text, reasoning or call
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._held: dict[str, str] = {}  # by kind: half of a character, whose other half is in a later event
        self._usage: Usage | None = None
        self._finish: str | None = None
        self.events = 0

    @property
    def finished(self) -> bool:
        """The server said why it ended."""
        return self._finish is not None

    def read(self, event: bytes) -> list[Chunk]:
        """The chunks of one event.

        Raises:
            ModelFailure: the event is an error of the server, or MALFORMED.
        """
        self.events += 1
        read = self._parse(event)
        if read.error:
            raise self._failed(read.error)
        if read.object == "error":
            raise self._failed({"message": read.message, "code": read.code, "type": read.type})
        if read.usage is not None:
            self._usage = _usage(read.usage) or self._usage
        out: list[Chunk] = []
        for choice in read.choices or ():
            if choice.index:
                continue  # one answer was asked for
            if choice.delta is not None:
                self._delta(choice.delta, out)
            if choice.finish_reason:
                if choice.finish_reason in BROKEN:
                    raise self._failed(f"the server ended its answer with {choice.finish_reason!r}")
                self._finish = choice.finish_reason
        return out

    def end(self) -> list[Chunk]:
        """What the end of the stream completes. Without a finish reason that is nothing: the answer is not whole."""
        if self._finish is None:
            return []
        out: list[Chunk] = []
        self._tell_all(out)
        if self._usage is not None:
            out.append(UsageReport(self._usage))
        out.append(Finish(FINISH.get(self._finish, "stop")))
        return out

    def _parse(self, event: bytes) -> _Event:
        try:
            return _decode(event)
        except (msgspec.ValidationError, RecursionError) as problem:
            raise self._malformed(str(problem), event) from None
        except msgspec.DecodeError:
            pass
        # Invalid Unicode is the one thing that msgspec refuses and that is no reason to lose an answer.
        try:
            return msgspec.convert(json.loads(event.decode(errors="replace")), _Event)
        except (ValueError, msgspec.ValidationError) as problem:
            raise self._malformed(str(problem), event) from None

    def _malformed(self, problem: str, event: bytes) -> ModelFailure:
        shown = event[:200].decode(errors="replace")
        return ModelFailure(
            bounded(
                f"The server sent an event that is not of the chat completions format: {problem}: {shown}",
                self._secret,
            ),
            code="MALFORMED",
            request_id=self._request_id,
        )

    def _failed(self, error: object) -> ModelFailure:
        message = said(error) or str(error)
        return ModelFailure(
            bounded(message, self._secret),
            code=failure_code(None, error, message),
            request_id=self._request_id,
        )

    def _delta(self, delta: _Delta, out: list[Chunk]) -> None:
        for reasoning in (delta.reasoning_content, delta.reasoning):
            if reasoning and isinstance(reasoning, str):
                if text := self._mended("reasoning", reasoning):
                    out.append(ReasoningDelta(text, self._block("reasoning", out)))
                break  # some servers send it under both names
        for shown in (delta.content, delta.refusal):
            if shown and (text := self._mended("text", shown)):
                out.append(TextDelta(text, self._block("text", out)))
        for position, piece in enumerate(delta.tool_calls or ()):
            self._piece(piece, position, out)
        if delta.function_call is not None:
            self._piece(_CallPiece(0, None, delta.function_call), 0, out)

    def _block(self, kind: str, out: list[Chunk]) -> int:
        if self._open != kind:
            self._tell_all(out)
            self._open = kind
            self._blocks += 1
        return self._blocks - 1

    def _piece(self, piece: _CallPiece, position: int, out: list[Chunk]) -> None:
        function = piece.function or _Function()
        given = function.arguments
        arguments = given if isinstance(given, str) else json.dumps(given) if given else ""
        call = self._call_of(piece, function.name or "", arguments, position)
        if call is None:
            self._tell_all(out)
            self._open = "call"
            call = _Call(self._blocks, piece.id or None)
            self._blocks += 1
            self._calls.append(call)
            if piece.index is not None:
                self._by_index[piece.index] = call
        if not call.told:
            call.id = call.id or piece.id or None
            if function.name and function.name != call.name:  # in pieces; or whole, and repeated
                call.name += function.name
        arguments = arguments and self._mended(f"call {call.block}", arguments)
        if not arguments:
            return
        call.arguments.append(arguments)
        if call.told:
            out.append(CallDelta(call.block, arguments=arguments))
        elif call.name:
            self._tell(call, out)

    def _call_of(self, piece: _CallPiece, name: str, arguments: str, position: int) -> _Call | None:
        """The call that a piece belongs to; None begins a new one.

        Only the first piece of a call has its id and name, by the protocol, and each has an index. Servers leave out
        any of them, give each of several whole calls the index 0, repeat id and name on each piece, or make a new id
        for each. A name is what tells a new call from a piece of an old one.
        """
        if piece.index is not None:
            call = self._by_index.get(piece.index)
        else:
            call = next((known for known in reversed(self._calls) if piece.id and known.id == piece.id), None)
            if call is None and not (name and (piece.id or position)) and self._calls:
                call = self._calls[-1]
        if call is None or not name:
            return call
        if piece.id and call.id and piece.id != call.id:
            return None
        if arguments.strip() and call.whole():
            return None
        return call

    def _tell(self, call: _Call, out: list[Chunk]) -> None:
        call.told = True
        call_id = None if call.id is None else _valid(call.id)
        out.append(CallDelta(call.block, call_id, _valid(call.name) or None, "".join(call.arguments)))

    def _tell_all(self, out: list[Chunk]) -> None:
        for call in self._calls:
            if not call.told:
                self._tell(call, out)

    def _mended(self, kind: str, text: str) -> str:
        """Valid Unicode: servers that count in UTF-16 may cut a character in two, over two events."""
        if not self._held and text.isascii():
            return text
        text = self._held.pop(kind, "") + text
        if "\ud800" <= text[-1] <= "\udbff":
            self._held[kind] = text[-1]
            text = text[:-1]
        return _valid(text)


def _valid(text: str) -> str:
    """The text with pairs of surrogates joined, and single ones replaced."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _usage(reported: Any) -> Usage | None:
    if not isinstance(reported, dict):
        return None

    def count(source: Any, key: str) -> int:
        value = source.get(key) if isinstance(source, dict) else None
        return value if type(value) is int and value >= 0 else 0

    return Usage(
        input=count(reported, "prompt_tokens"),
        output=count(reported, "completion_tokens"),
        cached=count(reported.get("prompt_tokens_details"), "cached_tokens"),
        reasoning=count(reported.get("completion_tokens_details"), "reasoning_tokens"),
    )
