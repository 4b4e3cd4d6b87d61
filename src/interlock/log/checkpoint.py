"""Where a session stands, kept beside its log, so that opening it need not read all of it.

Lives here: `Snapshot` (the folds at one line), `Kept` (the same as a store keeps it), `restored`, and `doubt`,
which replays the log to see whether it says the same. A checkpoint is never truth: what has another form, does not
decode, or was not made of this very log is dropped, and the log is replayed. It has nothing that the lines do not have.

What ties it to its log is its last line: a life, a time and a place in it that no other log of this session can have.
"""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from inspect import get_annotations
from typing import NamedTuple

import msgspec

from interlock.log.artifacts import LIMIT, DataPath, put_back, take_out
from interlock.log.event import Event, encode_event, encode_json
from interlock.log.facts import (
    CancelRequested,
    Fact,
    PolicyChanged,
    RequestHeader,
    SessionCreated,
    known_facts,
)
from interlock.log.history import History
from interlock.log.messages import PERSON, Message
from interlock.log.state import Owed, State, Turn, Waiting
from interlock.log.tally import Tally
from interlock.version import VERSION

FOLDS = 1  # raised whenever a fold means something else, or there is another one
FORM = f"{FOLDS} {VERSION}"  # a log that another version has folded is folded again

_SLICE = 64  # messages that are encoded in one go
_BREATH = 0.0002  # seconds in which whoever waits for the interpreter gets it, after each of them


class Kept(msgspec.Struct, frozen=True):
    """A checkpoint as a store keeps it."""

    seq: int  # the last line that is folded
    form: str
    digest: bytes  # of the session's id, and of all of this with the big texts in it
    data: bytes  # JSON
    artifacts: bytes | None = None  # JSON: the paths in data where a reference stands for a text

    def references(self) -> list[str]:
        """The artifacts that stand for big texts in it."""
        found: list[str] = []

        def note(digest: str) -> bytes | None:
            found.append(digest)
            return b""

        self.whole(note)
        return found

    def whole(self, fetch: Callable[[str], bytes | None]) -> Kept:
        """With its big texts; as it is where one is missing, and then it is not sound."""
        if self.artifacts is None:
            return self

        def found(digest: str) -> bytes:
            if (text := fetch(digest)) is None:
                raise KeyError(digest)
            return text

        with suppress(KeyError, IndexError, TypeError, ValueError, msgspec.MsgspecError):
            data = put_back(self.data, _decode_paths(self.artifacts), found)
            return Kept(self.seq, self.form, self.digest, data)
        return self

    def sound(self, session_id: str, head: int) -> bool:
        """Whether it is what was once kept of this session, in a form that is read here, and no later than the log."""
        return (
            self.form == FORM
            and self.artifacts is None
            and 0 <= self.seq <= head
            and self.digest == _digest(session_id, self.seq, [self.data])
        )


class Restored(NamedTuple):
    """The folds of a checkpoint, and what its last line has to be."""

    state: State
    line: str

    def fits(self, event: Event) -> bool:
        """Whether this is the line that was folded last."""
        return _line(event) == self.line


# What is kept of each fold. Field by field, and without defaults: the same folds are the same bytes.


class _Tally(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    steps: int
    requests: int
    tool_calls: int
    tools: dict[str, int]
    tokens_in: int
    tokens_out: int
    wall_ms: int


class _Waiting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    message: Message
    seq: int
    wake: bool
    returned: int


class _Owed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    message: Message
    call: int
    result: int


class _Turn(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The open turn, between two steps."""

    seq: int
    number: int
    started: int
    before: int
    steps: int
    cancel: CancelRequested | None
    owed: list[_Owed]
    results: list[tuple[int, int]]
    rejected: list[str]
    tally: _Tally
    hook_forced: bool
    forced: int
    stopping: bool
    max_tokens: bool
    asking: int
    busy: int
    still_since: int | None
    waited_ms: int


class _Folds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    created: SessionCreated | None
    head: int
    time: int
    life: int
    opened_seq: int
    turns: int
    turn: _Turn | None
    next_turn: list[_Waiting]
    next_step: list[_Waiting]
    header: RequestHeader | None
    header_seq: int
    header_life: int
    preset: PolicyChanged | None
    preset_seq: int
    grants: dict[str, int]
    hooks: dict[str, int]
    mail: int
    tally: _Tally


class _State(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    folds: _Folds
    runtime: dict[str, str]
    seqs: list[int]
    digests: bytes
    messages: list[Message]


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    line: str
    facts: list[str]
    state: msgspec.Raw


_decode_document = msgspec.json.Decoder(_Document).decode
_decode_state = msgspec.json.Decoder(_State).decode
_decode_paths = msgspec.json.Decoder(tuple[DataPath, ...]).decode

#: Folds whose values stand in `_Folds` as they do in the state.
_PLAIN = (
    "created", "head", "time", "life", "opened_seq", "turns", "header", "header_seq", "header_life", "preset",
    "preset_seq", "mail",
)  # fmt: skip
_PLAIN_OF_TURN = (
    "seq", "number", "started", "before", "steps", "cancel", "hook_forced", "forced", "stopping", "max_tokens",
    "asking", "busy", "still_since", "waited_ms",
)  # fmt: skip
_PLAIN_OF_TALLY = tuple([name for name in Tally.__slots__ if name != "tools"])


def can_be_kept(state: State) -> bool:
    """Whether the session stands between two steps, with nothing reserved and nobody asked."""
    return (
        state.created is not None
        and state.step is None
        and state.claim is None
        and not state.queues.reserved
        and not state.approvals
    )


class Snapshot:
    """The folds of a session at one line, which can be kept: nothing in it changes any more.

    line: the last one, that the state has folded.
    """

    def __init__(self, session_id: str, state: State, line: Event) -> None:
        self.seq = line.seq
        self._session_id = session_id
        self._line = line
        self._facts = _foreign()
        self._folds = _taken(state)
        self._runtime = dict(state.runtime)
        self._messages, self._seqs, self._digests = state.history.parts()

    def kept(self, *, breath: float = _BREATH) -> Kept:
        """As a store keeps it: linear in the history. It may run in any thread.

        Args:
            breath: seconds to sleep now and then, so that an event loop need not wait for it.
        """
        big: list[DataPath] = []
        whole: list[bytes] = []
        small: list[bytes] = []
        head = b'{"line":%s,"facts":%s,"state":' % (encode_json(_line(self._line)), encode_json(self._facts))
        for piece, path in ((head, None), *self._pieces(breath), (b"}", None)):
            whole.append(piece)
            taken = take_out(piece) if path is not None and len(piece) > LIMIT else None
            small.append(piece if taken is None else taken.data)
            if taken is not None and path is not None:
                big += [("state", *path, *inner) for inner in taken.paths]
        return Kept(
            self.seq,
            FORM,
            _digest(self._session_id, self.seq, whole),
            b"".join(small),
            encode_json(big) if big else None,
        )

    def state(self) -> bytes:
        """The folds in their one and only form."""
        return b"".join([piece for piece, _ in self._pieces(0)])

    def _pieces(self, breath: float) -> Iterator[tuple[bytes, DataPath | None]]:
        """The folds as JSON, in pieces; with each whose big texts are artifacts of lines as well, its path."""
        yield b'{"folds":', None
        yield encode_json(self._folds), ("folds",)
        yield b',"runtime":', None
        yield encode_json(self._runtime), None
        yield b',"seqs":', None
        yield encode_json(self._seqs), None
        yield b',"digests":"%s","messages":[' % b64encode(self._digests), None
        for i, message in enumerate(self._messages):
            if i:
                yield b",", None
            if breath and i % _SLICE == _SLICE - 1:
                time.sleep(breath)
            yield encode_json(_alike(message)), ("messages", i)
        yield b"]}", None


def restored(kept: Kept, session_id: str, head: int) -> Restored | None:
    """The folds of a checkpoint of a session whose log has this head; None: it is dropped."""
    if not kept.sound(session_id, head):
        return None
    try:
        document = _decode_document(kept.data)
        if not set(document.facts) <= set(_foreign()):
            return None  # the log may have lines that cannot be read here, and whoever opens it has to hear of that
        state = _given_back(_decode_state(document.state))
    except (msgspec.MsgspecError, ValueError):
        return None
    return Restored(state, document.line) if state.head == kept.seq else None


def doubt(kept: Kept, session_id: str, events: Sequence[Event]) -> str | None:
    """What is wrong with a checkpoint of a lawful log, or None. It replays the log up to there."""
    if kept.form != FORM:
        return None  # nobody reads it here
    if not kept.sound(session_id, len(events) - 1):
        return "it is damaged, or of another log"
    try:
        document = _decode_document(kept.data)
    except msgspec.MsgspecError as error:
        return f"it cannot be read: {error}"
    state, last = State(), events[kept.seq]
    if _line(last) != document.line:
        return "it was made of another log"
    for event in events:
        state.apply(event)
        if event.seq == kept.seq:
            break
    if not can_be_kept(state) or Snapshot(session_id, state, last).state() != bytes(document.state):
        return "replaying the log says something else"
    return None


def _digest(session_id: str, seq: int, data: Iterable[bytes]) -> bytes:
    made = blake2b(encode_json((session_id, seq, FORM)), digest_size=16)
    for piece in data:
        made.update(piece)
    return made.digest()


def _line(event: Event) -> str:
    return blake2b(encode_event(event), digest_size=16).hexdigest()


def _foreign() -> list[str]:
    """The facts that plugins have registered, by type and fields: which of them the log holds is not known."""
    return sorted(
        [
            f"{type_} {_fields(cls)}"
            for type_, cls in known_facts().items()
            if cls.__module__ != Fact.__module__
        ]
    )


def _fields(cls: type[Fact]) -> str:
    kinds = get_annotations(cls)
    return ", ".join([f"{name}: {kinds.get(name)}" for name in cls.__struct_fields__])


def _alike(message: Message) -> Message:
    """Whether a default is written depends on which object it is: equal messages are made to be written alike."""
    if message.source == PERSON and message.source is not PERSON:
        return msgspec.structs.replace(message, source=PERSON)
    return message


# From the state, and back


def _taken(state: State) -> _Folds:
    queues, turn = state.queues, state.turn
    return _Folds(
        **{name: getattr(state, name) for name in _PLAIN},
        turn=_taken_turn(turn) if turn is not None else None,
        next_turn=[_taken_waiting(one) for one in queues.next_turn],
        next_step=[_taken_waiting(one) for one in queues.next_step],
        grants=dict(state.grants),
        hooks=dict(state.hooks),
        tally=_taken_tally(state.tally),
    )


def _taken_turn(turn: Turn) -> _Turn:
    return _Turn(
        **{name: getattr(turn, name) for name in _PLAIN_OF_TURN},
        owed=[_Owed(_alike(owed.message), owed.call, owed.result) for owed in turn.owed],
        results=list(turn.results.items()),
        rejected=list(turn.rejected),
        tally=_taken_tally(turn.tally),
    )


def _taken_waiting(waiting: Waiting) -> _Waiting:
    return _Waiting(_alike(waiting.message), waiting.seq, waiting.wake, waiting.returned)


def _taken_tally(tally: Tally) -> _Tally:
    return _Tally(**{name: getattr(tally, name) for name in _PLAIN_OF_TALLY}, tools=dict(tally.tools))


def _given_back(kept: _State) -> State:
    """
    Raises:
        ValueError: these are not the folds of a log.
    """
    state, folds = State(), kept.folds
    for name in _PLAIN:
        setattr(state, name, getattr(folds, name))
    state.history = History.restored(kept.messages, kept.seqs, kept.digests)
    state.queues.next_turn = [_waiting_again(one) for one in folds.next_turn]
    state.queues.next_step = [_waiting_again(one) for one in folds.next_step]
    state.grants, state.hooks, state.runtime = dict(folds.grants), dict(folds.hooks), dict(kept.runtime)
    state.tally = _tally_again(folds.tally)
    if folds.turn is not None:
        state.turn = _turn_again(folds.turn)
    return state


def _turn_again(kept: _Turn) -> Turn:
    turn = Turn(kept.seq, kept.number, kept.started, kept.before)
    for name in _PLAIN_OF_TURN:
        setattr(turn, name, getattr(kept, name))
    turn.owed = [Owed(owed.message, owed.call, owed.result) for owed in kept.owed]
    turn.results = dict(kept.results)
    turn.rejected = list(kept.rejected)
    turn.tally = _tally_again(kept.tally)
    return turn


def _waiting_again(kept: _Waiting) -> Waiting:
    waiting = Waiting(kept.message, kept.seq, kept.wake)
    waiting.returned = kept.returned
    return waiting


def _tally_again(kept: _Tally) -> Tally:
    tally = Tally()
    for name in _Tally.__struct_fields__:
        setattr(tally, name, getattr(kept, name))
    return tally
