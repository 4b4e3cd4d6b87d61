"""The facts a session records: the vocabulary of the log.

Lives here: one frozen struct a fact, and the open registry that finds a struct by its stored type. `call` is always
the seq of the `tool/call` (or of the `subcall/start`) line, never the model's id, which a server may repeat.
May call: anyone reads; only `Session.append` writes. Plugins add their own with `register_fact`. The first line of a
docstring is the meaning shown in the event table of docs/architecture.md.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

import msgspec

from interlock.log.messages import Block, Message, Source, Text
from interlock.log.reasons import Cause, EndReason, StepReason
from interlock.log.strictjson import FrozenDict, freeze

FORMAT = "1.2"  # major.minor: a new field or type raises the minor, a changed meaning the major

Span: TypeAlias = int | tuple[int, int]
ListName: TypeAlias = Literal["next-turn", "next-step"]
Effect: TypeAlias = Literal["read", "idempotent", "write"]


class Fact(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """Base of all facts. `type` is the stored name; `ignorable` says that a reader may skip it unknown."""

    type: ClassVar[str] = ""
    ignorable: ClassVar[bool] = False
    surface: ClassVar[bool] = False  # part of the model's history
    barrier: ClassVar[str] = ""  # what must not happen before this line is on disk


F = TypeVar("F", bound=type[Fact])
_registry: dict[str, type[Fact]] = {}
#: What stands before the slash in the type of a fact of ours, also of one that is yet to come.
_OURS = {
    "agent", "approval", "assistant", "budget", "cancel", "decision", "grant", "history", "hook", "import", "mail",
    "observer", "policy", "request", "retry", "session", "step", "subcall", "tool", "turn", "user",
}  # fmt: skip


def register_fact(cls: F) -> F:
    """Make a fact known by its `type`, so that logs that hold it can be read. Usable as a decorator.

    The type is `PLUGIN/NAME`: whoever meets it without the plugin is told that name.

    Raises:
        ValueError: no type of that form, a name that is ours, or a type that another class has.
    """
    plugin, slash, name = cls.type.partition("/")
    if not (plugin and slash and name):
        raise ValueError(
            f"{cls.__name__} needs a class attribute `type` of the form PLUGIN/NAME, for example "
            f"type = 'myplugin/noted', not {cls.type!r}"
        )
    known = _registry.get(cls.type)
    if known is not None and known is not cls and known.__qualname__ != cls.__qualname__:
        raise ValueError(f"{cls.type!r} is registered by {known.__qualname__} already")
    if plugin in _OURS and cls.__module__.partition(".")[0] != "interlock":
        raise ValueError(
            f"{cls.type!r}: {plugin!r} names facts of interlock. Begin with the name of your plugin"
        )
    _registry[cls.type] = cls
    return cls


def known_facts() -> dict[str, type[Fact]]:
    """Every registered fact by its stored type, in order of registration."""
    return dict(_registry)


def fact_class(type_: str) -> type[Fact] | None:
    return _registry.get(type_)


def plugin_of(type_: str) -> str | None:
    """The name of the plugin that writes facts of this type; None: they are ours."""
    name = type_.partition("/")[0]
    return name if name not in _OURS else None


class Unknown(Fact, frozen=True):
    """An event of a type that is not known here and that was marked ignorable."""

    stored_type: str
    data: Any


class Erased(Fact, frozen=True):
    """A tombstone: what an event of this type held was erased. Only seq, type, time, life and causes are left of it."""

    stored_type: str


def _keep_frozen(made: msgspec.Struct, *names: str) -> None:
    """JSON values in facts are immutable, also after they were read back, where msgspec makes lists and dicts."""
    for name in names:
        value = getattr(made, name)
        if value is not None and type(value) not in (str, FrozenDict):
            msgspec.structs.force_setattr(made, name, freeze(value))


# Values inside facts


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A value inside a fact."""


class ParentSession(Record, frozen=True):
    session: str  # its id
    seq: int  # the fork boundary: pending input is folded from after it
    above: tuple[str, ...] = ()  # the sessions that it was a fork of itself, the nearest first


class Origin(Record, frozen=True):
    """Another program's transcript, of which a session was made."""

    program: str
    digest: str  # of what was read, BLAKE2b in hexadecimal
    version: str | None = None  # the program's
    session: str | None = None  # its own id there


class Pending(Record, frozen=True):
    next_turn: int = 0
    next_step: int = 0


class Said(Record, frozen=True):
    """What one participant answered at a point."""

    who: str  # the rule, listener, guard or preset
    answer: str  # allow, ask, deny, abstain, or what else the point takes
    reason: str | None = None
    rule: str | None = None
    file: str | None = None
    line: int | None = None
    us: int = 0  # microseconds it took


class Section(Record, frozen=True):
    """A named part of the system prompt."""

    name: str
    text: str


class ToolSpec(Record, frozen=True):
    """A tool as the model sees it. `schema` is a JSON schema of its arguments."""

    name: str
    description: str
    schema: Any

    def __post_init__(self) -> None:
        _keep_frozen(self, "schema")


class Usage(Record, frozen=True):
    """Tokens, as the provider counted them."""

    input: int = 0
    output: int = 0
    cached: int = 0  # of the input
    reasoning: int = 0  # of the output


class Failure(Record, frozen=True):
    code: str
    message: str
    status: int | None = None  # of HTTP
    retry_after_ms: int | None = None
    request_id: str | None = None  # the provider's


class CallError(Record, frozen=True):
    """Why a call did not succeed. `handler_executed`: its body was invoked."""

    code: str  # upper case
    name: str = ""  # the exception's class, if there was one
    handler_executed: bool = False


class Change(Record, frozen=True):
    who: str
    before: Any  # the arguments
    after: Any  # the arguments

    def __post_init__(self) -> None:
        _keep_frozen(self, "before", "after")


class Advice(Record, frozen=True):
    verdict: Literal["allow", "ask", "deny"]
    who: str
    reason: str | None = None


class Edit(Record, frozen=True):
    who: str
    what: Literal["replaced", "blocked", "finalised"]


class ClaimedKeys(Record, frozen=True):
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()


class Stamp(Record, frozen=True):
    """The letter of the session's mailbox of which a line was made."""

    number: int  # from 1; later letters have higher ones
    time: int  # epoch ms, when it was posted


# Session


@register_fact
class SessionCreated(Fact, frozen=True):
    """A session began: its format, folder and, for a fork, its parent; for an import, where it comes from."""

    type = "session/created"
    format: str  # of the log, major.minor
    session_id: str
    cwd: str | None = None  # the working folder
    agent: str | None = None  # its name
    parent: ParentSession | None = None
    package: str = ""  # the version that wrote it
    imported: Origin | None = None


@register_fact
class SessionOpened(Fact, frozen=True):
    """An opening of the session that writes: a new life."""

    type = "session/opened"
    life: int  # from 1
    how: Literal["new", "resume", "fork"]
    host: str = ""
    pid: int = 0  # of the process
    lease: int | None = None


@register_fact
class SessionRepaired(Fact, frozen=True):
    """What a crash had left open was closed before this line."""

    type = "session/repaired"
    barrier = "anything else of this life"
    from_seq: int  # the first line of the repair
    cause: Literal["crash", "store-lost"]
    closed: tuple[int, ...] = ()  # the calls that it ended


@register_fact
class PolicyChanged(Fact, frozen=True):
    """The preset in force from here on; the last one wins over configuration."""

    type = "policy/changed"
    preset: str  # its name
    sandbox: str | None = None  # the mode
    approval: str | None = None  # what happens to calls that nobody spoke about
    sources: tuple[tuple[str, str], ...] = ()  # file, digest
    by: str = ""


@register_fact
class GrantRevoked(Fact, frozen=True):
    """A rule that was allowed for this session is allowed no longer."""

    type = "grant/revoked"
    rule: str
    by: str | None = None


@register_fact
class ObserverFailed(Fact, frozen=True):
    """An observer raised; it was contained and changed nothing."""

    type = "observer/failed"
    ignorable = True
    point: str
    who: str
    error: str
    at: int  # the line that it was told of


@register_fact
class ContentErased(Fact, frozen=True):
    """What the lines before this one held was erased; nothing comes after it."""

    type = "session/erased"
    session_id: str
    receipt: str  # the id of what says what went
    by: str
    reason: str | None = None


# Inbox


@register_fact
class InboxSpliced(Fact, frozen=True):
    """Messages were put into a queue or taken from it, as an array splice."""

    type = "agent/inbox/spliced"
    list: ListName
    start: int  # the place in the list
    removed: int = 0  # how many, from there
    inserted: tuple[Message, ...] = ()  # in their place
    outcome: Literal["canceled"] | None = None  # only for discarding removals
    wake: bool = False  # a turn is wanted for it
    by: str | None = None  # the id of who sent it
    letter: Stamp | None = None


@register_fact
class InboxClaimed(Fact, frozen=True):
    """A proposal reserved pending messages; each will have exactly one fate."""

    type = "agent/inbox/claimed"
    turn: int
    step: int
    next_step: tuple[str, ...] = ()  # ids of messages
    next_turn: tuple[str, ...] = ()  # ids of messages


@register_fact
class InboxReturned(Fact, frozen=True):
    """Reserved messages went back to the heads of their queues."""

    type = "agent/inbox/returned"
    turn: int
    next_step: tuple[str, ...] = ()
    next_turn: tuple[str, ...] = ()
    why: Literal["error", "cancel", "crash", "blocked"] = "error"
    times: int = 1  # how often that has happened to one of them


@register_fact
class InboxDropped(Fact, frozen=True):
    """Reserved messages were dropped, with the reason."""

    type = "agent/inbox/dropped"
    turn: int
    ids: tuple[str, ...]  # of messages
    outcome: Literal["rejected", "omitted", "canceled", "failed"]
    reason: str | None = None
    by: str = ""
    messages: tuple[Message, ...] = ()  # what they said, if they were rejected


@register_fact
class MailTaken(Fact, frozen=True):
    """A letter of the mailbox was taken, and nothing else was put on record: it was refused, or had nothing to do."""

    type = "mail/taken"
    letter: Stamp
    kind: Literal["send", "cancel", "answer", "unreadable"]
    by: str | None = None
    code: str | None = None  # of a refusal: the error that the same verb raises in the process that drives
    refused: str | None = None  # and its text


# Turn and step


@register_fact
class TurnStart(Fact, frozen=True):
    """A turn was opened, before any claim."""

    type = "turn/start"
    turn: int  # from 1


@register_fact
class TurnEnd(Fact, frozen=True):
    """The turn is over, with its reason and what stayed pending."""

    type = "turn/end"
    barrier = "idle() returns"
    turn: int
    reason: EndReason
    steps: int
    rejected: tuple[str, ...] = ()  # ids of messages
    pending: Pending = Pending()  # how many wait for another turn


@register_fact
class CancelRequested(Fact, frozen=True):
    """Somebody pressed stop."""

    type = "cancel/requested"
    cause: Cause
    turn: int | None = None  # the one that was open
    keep_inbox: bool = False  # what is pending stays
    grace_ms: int | None = None  # after which what still runs is abandoned
    letter: Stamp | None = None


@register_fact
class StepStart(Fact, frozen=True):
    """A step was entered; its messages follow in the same append."""

    type = "step/start"
    turn: int
    step: int  # from 1 within the turn


@register_fact
class StepEnd(Fact, frozen=True):
    """The step is over: every call of it has its result."""

    type = "step/end"
    turn: int
    step: int
    reason: StepReason


@register_fact
class UserMessage(Fact, frozen=True):
    """A prompt or a context became part of the model's history."""

    type = "user/message"
    surface = True
    id: str
    source: Source
    role: Literal["user", "system"]
    content: tuple[Block, ...]
    place: Literal["prompt", "context"] = "prompt"
    claim: int | None = None  # the claim that reserved it
    call: int | None = None  # the call on whose result it rode


@register_fact
class DecisionMade(Fact, frozen=True):
    """What a point decided about a proposal, a request or a stop, and who said what."""

    type = "decision/made"
    point: str
    subject: int  # the line that it is about
    answer: str
    by: str = ""
    said: tuple[Said, ...] = ()
    dropped: tuple[str, ...] = ()  # contexts that a pre-step left out


@register_fact
class BudgetWarned(Fact, frozen=True):
    """A soft threshold was passed."""

    type = "budget/warned"
    scope: str
    kind: str
    used: float
    limit: float


# Model request


@register_fact
class RequestHeader(Fact, frozen=True):
    """All of a request but its messages: whole value, when it changed."""

    type = "request/header"
    why: Literal["initial", "resume", "change"]
    provider: str
    model: str
    settings: Any  # of the model call
    system: tuple[Section, ...] = ()
    tools: tuple[ToolSpec, ...] = ()

    def __post_init__(self) -> None:
        _keep_frozen(self, "settings")


@register_fact
class RequestSent(Fact, frozen=True):
    """A request is about to leave; its digest covers header and messages."""

    type = "request/sent"
    barrier = "the request leaves"
    step_start: int  # its seq
    attempt: int  # from 1 within the step
    header: int  # the seq of the last `request/header`
    last: int  # seq of the last surface line in it
    messages: int  # how many
    digest: str  # of the header and all messages, chained


ChunkKind: TypeAlias = Literal["text", "reasoning", "call", "usage", "finish"]


@register_fact
class AssistantChunk(Fact, frozen=True):
    """One chunk of the stream, as it arrived."""

    type = "assistant/chunk"
    sent: int  # the seq of its `request/sent`
    kind: ChunkKind
    block: int = 0  # the place in the answer
    text: str = ""
    value: Any = None  # call: {id?, name?}; usage: its numbers; finish: {reason}; reasoning: {signature}?


@register_fact
class AssistantMessage(Fact, frozen=True):
    """The model's answer, or the visible prefix of an interrupted one."""

    type = "assistant/message"
    surface = True
    sent: int  # the seq of its `request/sent`
    blocks: tuple[Block, ...]
    finish: str | None = None  # why the model stopped
    usage: Usage | None = None
    interrupted: bool = False  # cut off: the visible prefix
    renamed: dict[str, str] | None = None  # new id: the id the model gave
    dropped_calls: int = 0  # how many there were, of an answer that was cut off


@register_fact
class RequestFailed(Fact, frozen=True):
    """An attempt failed; its chunks are nobody's."""

    type = "request/failed"
    sent: int  # the seq of its `request/sent`
    failure: Failure


@register_fact
class RetryScheduled(Fact, frozen=True):
    """The request will be repeated after a wait."""

    type = "retry/scheduled"
    retry_id: str
    sent: int
    provider: str
    mode: Literal["normal", "always", "listener"]
    policy_key: str  # which policy
    n: int  # from 1
    delay_ms: int
    max: int | None = None  # none: without end


@register_fact
class RetryStarted(Fact, frozen=True):
    """The wait is over."""

    type = "retry/started"
    retry_id: str


@register_fact
class HistoryReplaced(Fact, frozen=True):
    """A range of the model's history is shadowed by other messages."""

    type = "history/replaced"
    surface = True
    first: int  # seq of a line of the history
    last: int  # seq of a line of the history
    messages: tuple[Message, ...]  # in their place
    why: Literal["compaction", "pruning", "repair"]
    by: str = ""


# Tool call


@register_fact
class ToolCalled(Fact, frozen=True):
    """The model asked for a tool; nothing has run yet."""

    type = "tool/call"
    turn: int
    step: int
    index: int  # in the message, from 0
    call_id: str  # the model's own; not unique
    name: str
    arguments: str  # the model's own text
    effect: Effect | None = None
    synthetic: bool = False  # written only to be answered: nothing looked at it


@register_fact
class ToolPrepared(Fact, frozen=True):
    """Somebody rewrote the arguments, advised or refused; later lines speak of `effective`."""

    type = "tool/prepared"
    call: int
    original: Any  # the arguments as the model meant them
    effective: Any  # the arguments that later lines speak of
    changes: tuple[Change, ...] = ()
    advice: tuple[Advice, ...] = ()
    said: tuple[Said, ...] = ()  # rewrite, advise, refuse CODE, context, error

    def __post_init__(self) -> None:
        _keep_frozen(self, "original", "effective")


@register_fact
class ToolDecided(Fact, frozen=True):
    """Who may: the verdict on a call and what each participant said."""

    type = "tool/decided"
    call: int
    stage: Literal["policy", "guard", "recheck"]
    verdict: Literal["allow", "ask", "deny"]
    by: str
    code: str | None = None
    reason: str | None = None
    said: tuple[Said, ...] = ()


@register_fact
class ApprovalAsked(Fact, frozen=True):
    """A person is asked; the digest binds the answer to what is shown."""

    type = "approval/asked"
    barrier = "any channel shows it"
    approval_id: str
    call: int
    question: str
    effective: Any  # the arguments
    digest: str  # of the tool's name and these arguments
    options: tuple[str, ...] = ("once",)  # and "session RULE", "always RULE": what else a yes may be
    expires: int | None = None  # epoch ms; without an answer by then it is a no
    by: str = ""  # who made it ask
    contexts: tuple[Message, ...] = ()  # what listeners have said about the call so far

    def __post_init__(self) -> None:
        _keep_frozen(self, "effective")


@register_fact
class ApprovalDecided(Fact, frozen=True):
    """The one answer to an approval."""

    type = "approval/decided"
    approval_id: str
    call: int
    digest: str
    outcome: Literal["allowed-once", "rejected", "cancelled", "unavailable"]
    by: str | None = None
    how: Literal["tty", "token", "api", "acp", "hook"] | None = None
    channel: str | None = None
    message: str | None = None
    edited: Any = None  # the arguments that run instead of those that were shown
    rule_written: str | None = None  # exactly the one that was offered
    scope: Literal["session", "always"] | None = None  # how long it is remembered
    letter: Stamp | None = None

    def __post_init__(self) -> None:
        _keep_frozen(self, "edited")


@register_fact
class ApprovalLate(Fact, frozen=True):
    """An answer came after the approval was decided, and changed nothing."""

    type = "approval/late"
    ignorable = True
    approval_id: str
    answer: str
    by: str | None = None


@register_fact
class ToolStarted(Fact, frozen=True):
    """The body is about to run, with these arguments."""

    type = "tool/started"
    barrier = "the body of an IDEMPOTENT or WRITE tool starts"
    call: int
    digest: str  # of the tool's name and the arguments
    run: int = 1  # from 1; more where a wrapper repeats it
    claims: ClaimedKeys | None = None
    sandbox: str | None = None  # how the tool's processes are confined, if anything asks for it


@register_fact
class ToolSettled(Fact, frozen=True):
    """An outcome is known before its turn to be committed."""

    type = "tool/settled"
    call: int
    ok: bool
    content: tuple[Text, ...] = ()
    error: CallError | None = None
    contexts: tuple[Message, ...] = ()
    conclude: bool = False
    ms: int = 0  # that it took
    review: bool = False  # a post listener or a finaliser had yet to see it


@register_fact
class ToolResulted(Fact, frozen=True):
    """The one result of a call, committed in the model's order."""

    type = "tool/result"
    surface = True
    call: int
    call_id: str
    content: tuple[Text, ...] = ()
    error: CallError | None = None
    meta: Any = None
    conclude: bool = False
    contexts: tuple[Message, ...] = ()
    stop: str | None = None  # who ended the turn after this batch
    edits: tuple[Edit, ...] = ()
    started: int | None = None  # epoch ms
    settled: int | None = None  # epoch ms
    said: tuple[
        Said, ...
    ] = ()  # wrappers, outermost first, with the time that was theirs; then post listeners

    def __post_init__(self) -> None:
        _keep_frozen(self, "meta")


@register_fact
class ToolAbandoned(Fact, frozen=True):
    """The grace was used up while the body still ran."""

    type = "tool/abandoned"
    call: int
    after_ms: int
    how: Literal["cooperative", "SIGTERM", "SIGKILL"]


@register_fact
class ToolLate(Fact, frozen=True):
    """An abandoned body ended after all."""

    type = "tool/late"
    ignorable = True
    call: int
    ok: bool
    summary: str
    ms: int  # that it took


@register_fact
class SubcallStart(Fact, frozen=True):
    """A tool called another tool: admission of a nested call."""

    type = "subcall/start"
    outer: int  # the seq of the call within which it is
    id: str  # unique within that call
    name: str
    arguments: Any
    effect: Effect | None = None

    def __post_init__(self) -> None:
        _keep_frozen(self, "arguments")


@register_fact
class SubcallEnd(Fact, frozen=True):
    """A nested call is over; its contexts ride on the outer result."""

    type = "subcall/end"
    start: int  # the seq of its `subcall/start`
    ok: bool
    content: tuple[Text, ...] = ()
    error: CallError | None = None
    contexts: tuple[Message, ...] = ()
    conclude: bool = False
    edits: tuple[Edit, ...] = ()
    settled: int | None = None  # epoch ms: when its body had ended
    said: tuple[Said, ...] = ()  # as of a `tool/result`


# Hooks


@register_fact
class HookInvoked(Fact, frozen=True):
    """A hook of the four-event surface said something, or a program is about to be started."""

    type = "hook/invoked"
    hook_id: str
    event: str  # of the hook surface
    who: str  # the callback or program
    call: int | None = None
    dialect: str | None = None
    file: str | None = None  # in which it is configured
    digest: str | None = None


@register_fact
class HookResulted(Fact, frozen=True):
    """What the hook answered: only the fields it set."""

    type = "hook/result"
    hook_id: str
    ms: int
    said: Any = None  # the fields that it set
    exit: int | None = None  # the exit code
    error: str | None = None
    won: bool = False  # it decided
    unused: str | None = None  # why it was not heard

    def __post_init__(self) -> None:
        _keep_frozen(self, "said")


@register_fact
class HookProblem(Fact, frozen=True):
    """Something is wrong with a hook's configuration."""

    type = "hook/problem"
    ignorable = True
    file: str
    what: str
    line: int | None = None
