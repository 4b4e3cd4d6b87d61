"""Every error this package raises on purpose, sorted by who must act.

    InterlockError
    ├── ConfigError      the operator fixes a setting; nothing has started
    ├── UsageError       the calling code is wrong; the session is untouched
    ├── SessionError     the log or its store refuses; what was acknowledged is safe
    ├── ModelFailure     the loop retries, or ends the turn with these facts
    ├── ToolError        the model reads it; the turn goes on
    └── InputDropped     a message was rejected or canceled before the model saw it

Anything else that escapes is a bug in this package. Values are kept as attributes: branch on the type and on
them, never on the text. Imports nothing of this package.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence


class InterlockError(Exception):
    """Base of all errors of this package."""


class ConfigError(InterlockError, ValueError):
    """The operator fixes a setting; the run never starts."""


def _hint(name: str, known: Sequence[str], kind: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, known, n=1)
    if near:
        return f" Did you mean {near[0]!r}?"
    return f" Known {kind}: {', '.join(known)}." if known else f" No {kind} are registered."


class UnknownTool(ConfigError):
    """No tool is called `name`; `known` are those that there are."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(f"No tool named {name!r}.{_hint(name, known, 'tools')}")


class UnknownModel(ConfigError):
    """`name` is not `provider:name` of a known provider; `known` are the providers."""

    def __init__(self, name: str, known: Sequence[str] = ()) -> None:
        self.name, self.known = name, tuple(known)
        super().__init__(
            f"No model provider for {name!r}: write provider:name, for example openai:gpt-5-mini."
            f"{_hint(name.partition(':')[0], known, 'providers')}"
        )


class MissingKey(ConfigError):
    """`variable` is the environment variable that would have been read."""

    def __init__(self, provider: str, variable: str) -> None:
        self.provider, self.variable = provider, variable
        super().__init__(
            f"No API key for {provider}: set {variable}, or pass api_key=. A server on this machine needs none."
        )


class DuplicateTool(ConfigError):
    """A tool called `name` is in this scope already."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"A tool named {name!r} is already registered in this scope. Give one of them another name."
        )


class UsageError(InterlockError):
    """The calling code is wrong; nothing was changed."""


class HookContractError(UsageError):
    """A listener, guard or hook answered something that its point does not allow.

    `who` is the listener, `point` where it listens, `problem` what was wrong.
    """

    def __init__(self, problem: str, *, who: str = "", point: str = "") -> None:
        self.problem, self.who, self.point = problem, who, point
        at = f" at {point}" if point else ""
        super().__init__(f"{who}{at}: {problem}" if who or point else problem)


class InboxError(UsageError):
    """The inbox refused a message; both queues are unchanged."""


class DuplicateMessage(InboxError):
    """A message with the id `message_id` is pending already."""

    def __init__(self, message_id: str) -> None:
        self.message_id = message_id
        super().__init__(
            f"A message with id {message_id!r} is already pending. Leave the id out, or use a new one."
        )


class InboxFull(InboxError):
    """Too many messages are pending. `limit` is the bound over both queues."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"The inbox holds {limit} messages, its bound. Wait for a turn, or clear some of them."
        )


class MailboxFull(InboxError):
    """Too many letters wait for whoever drives the session next. `limit` is the bound for one session."""

    def __init__(self, session_id: str, limit: int) -> None:
        self.session_id, self.limit = session_id, limit
        super().__init__(
            f"{limit} letters wait in the mailbox of session {session_id}, its bound. They are taken when the session is "
            f"driven: open it, and send again."
        )


class MessageTooLarge(InboxError):
    """More text than one message may have. `size` and `limit` in bytes."""

    def __init__(self, size: int, limit: int) -> None:
        self.size, self.limit = size, limit
        super().__init__(
            f"The message has {size:,} bytes of text, the bound is {limit:,}. Put the data into a file and name the file."
        )


class InvalidMessage(InboxError):
    """Not text of valid Unicode, no content, or a role that cannot be sent. `problem` says which."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"Not a valid message: {problem}")


class WrongThread(UsageError):
    """`what` was called from a thread that does not run the event loop of this agent."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(
            f"{what} was called from a thread that does not run this agent's event loop. "
            f"Use agent.threadsafe, which has the same verbs."
        )


class LetterRefused(UsageError):
    """Whoever drives the session took the letter, and it changed nothing.

    `number` is the letter's, `code` names the error that the same verb raises in that process, `problem` is its text.
    """

    def __init__(self, session_id: str, number: int, code: str, problem: str) -> None:
        self.session_id, self.number, self.code, self.problem = session_id, number, code, problem
        super().__init__(f"Letter {number} to session {session_id} was refused: {problem}")


class NotTaken(UsageError):
    """The letter `number` is in the mailbox, and `holder`, who drives the session, has not taken it in time."""

    def __init__(self, session_id: str, number: int, holder: str, seconds: float) -> None:
        self.session_id, self.number, self.holder = session_id, number, holder
        super().__init__(
            f"Session {session_id} is driven by {holder}, which has not taken letter {number} within {seconds:g} s. "
            f"It is not lost: it is taken before any letter that is sent later."
        )


class SharedSessions(UsageError):
    """Others than `principal` took part in sessions that were to be erased: `sessions`, each with who that is."""

    def __init__(self, principal: str, sessions: Mapping[str, Sequence[str]]) -> None:
        self.principal, self.sessions = principal, dict(sessions)
        named = "; ".join([f"{session_id}: {', '.join(who)}" for session_id, who in sessions.items()])
        super().__init__(
            f"Others took part in sessions of {principal} ({named}). Nothing was erased. "
            f"To erase what they said as well, say so: shared=True, or --shared."
        )


class ApprovalError(UsageError):
    """An answer to an approval was refused: it changed nothing. `approval_id` says to which."""

    def __init__(self, approval_id: str, problem: str) -> None:
        self.approval_id, self.problem = approval_id, problem
        super().__init__(f"Approval {approval_id}: {problem}")


class UnknownApproval(ApprovalError):
    """There is no such question; `known` are those that are open."""

    def __init__(self, approval_id: str, known: Sequence[str] = ()) -> None:
        self.known = tuple(known)
        open_ones = f"Open are: {', '.join(known)}." if known else "None is open."
        super().__init__(approval_id, f"no such question. {open_ones}")


class AlreadyDecided(ApprovalError):
    """Somebody was first, or the question was withdrawn. `time` is epoch ms."""

    def __init__(
        self, approval_id: str, outcome: str, *, by: str | None, channel: str | None, time: int, when: str
    ) -> None:
        self.outcome, self.by, self.channel, self.time = outcome, by, channel, time
        who = f" by {by}" if by else ""
        over = f" ({channel})" if channel else ""
        super().__init__(approval_id, f"it was decided at {when}: {outcome}{who}{over}. Nothing was changed.")


class AnswerMismatch(ApprovalError):
    """The answer is for other arguments: `given` is its digest, `shown` the one of what is asked."""

    def __init__(self, approval_id: str, given: str, shown: str) -> None:
        self.given, self.shown = given, shown
        super().__init__(
            approval_id, f"the answer is for digest {given}, but {shown} is asked. Look at it again."
        )


class MayNotApprove(ApprovalError):
    """`who` may send messages, but their answers to approvals do not count."""

    def __init__(self, approval_id: str, who: str) -> None:
        self.who = who
        super().__init__(approval_id, f"{who} may not approve. Let somebody answer who may.")


class SessionError(InterlockError):
    """The log or its store refuses. What was acknowledged is safe."""


class SessionClosed(UsageError):
    """The session `session_id` takes nothing more: it was closed."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"Session {session_id} is closed. Open it again with open_session or Agent(session=...)."
        )


class TurnWaits(SessionClosed):
    """The agent was left while its turn waits for an approval: nothing has ended. `approvals` are those that are open."""

    def __init__(self, session_id: str, turn: int, approvals: Sequence[str]) -> None:
        super().__init__(session_id)
        self.turn, self.approvals = turn, tuple(approvals)
        self.args = (
            f"Session {session_id} was closed while turn {turn} waits for an approval "
            f"({', '.join(approvals) or 'it is decided'}). It goes on where it was when the session is opened again.",
        )


class ReadOnlySession(UsageError):
    """Something was to be written to a session that was opened for reading."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"Session {session_id} was opened read-only. Open it without readonly=True to write to it."
        )


class StoreClosed(UsageError):
    def __init__(self) -> None:
        super().__init__("This store is closed. Make a new one of the same file.")


class UnknownSession(SessionError):
    """The store has no session of this id."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"No session {session_id!r} in this store. `interlock sessions` lists what is there."
        )


class DuplicateSession(SessionError):
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"There is a session {session_id!r} in this store already. Open it, or choose another id."
        )


class SessionErased(SessionError):
    """What the session `session_id` held was erased: at `time`, epoch ms, by whom, and the receipt that says what went."""

    def __init__(self, session_id: str, *, by: str, receipt: str, time: int, when: str) -> None:
        self.session_id, self.by, self.receipt, self.time = session_id, by, receipt, time
        super().__init__(
            f"Session {session_id} was erased at {when} by {by} (receipt {receipt}): what it held is gone. "
            f"It can be looked at and exported, and nothing else. Begin a new session."
        )


class NewerFormat(SessionError):
    """What is stored was written by a later version: `found` is its format, `known` the last one read here."""

    def __init__(self, where: str, found: int, known: int) -> None:
        self.where, self.found, self.known = where, found, known
        super().__init__(
            f"{where} has format {found}; this version reads formats up to {known}. Install a newer interlock."
        )


class StoreFailed(SessionError):
    """Writing failed: nothing runs past this. The queue is kept, and `cause` says what the store said."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(
            f"The store cannot write: {problem}. What was acknowledged is safe; reopen when this is mended."
        )

    def again(self) -> StoreFailed:
        """The same, to be raised once more."""
        return StoreFailed(self.problem)


class LeaseLost(StoreFailed):
    """`holder` has taken over the session `session_id`, which this process had not held on to: it writes no more."""

    def __init__(self, session_id: str, holder: str) -> None:
        super().__init__(f"{holder} has taken over session {session_id}")
        self.session_id, self.holder = session_id, holder
        self.args = (
            f"Session {session_id} was taken over by {holder}: nothing more is written to it from here. "
            f"What was acknowledged is safe; follow it, or open it again when it is released.",
        )

    def again(self) -> StoreFailed:
        return LeaseLost(self.session_id, self.holder)


class SessionBusy(SessionError):
    """The session `session_id` is driven by `holder` already."""

    def __init__(self, session_id: str, holder: str) -> None:
        self.session_id, self.holder = session_id, holder
        super().__init__(
            f"Session {session_id} is driven by {holder}. Send to it through its mailbox (`interlock send`), "
            "follow it, or wait until it is released."
        )


class UnknownFact(SessionError):
    """Line `seq` is of a `type` that nothing here knows, and may not be skipped.

    plugin: whose it is, by the name before the slash; None: a newer version's own.
    """

    def __init__(self, type_: str, seq: int, plugin: str | None = None) -> None:
        self.type, self.seq, self.plugin = type_, seq, plugin
        if plugin is None:
            whose, todo = "which a newer version of interlock writes", "Install that version"
        else:
            whose, todo = (
                f"which the plugin {plugin!r} writes",
                f"Install {plugin!r}, and import it before reading",
            )
        super().__init__(f"Event {seq} is of type {type_!r}, {whose} and which may not be skipped. {todo}.")


class UnreadableLog(SessionError):
    """A stored line does not decode: `seq` says which, `problem` why."""

    def __init__(self, seq: int, problem: str) -> None:
        self.seq, self.problem = seq, problem
        super().__init__(f"Event {seq} cannot be read: {problem}")


class IllegalFact(SessionError):
    """A law of the log forbids this line; nothing was appended."""

    def __init__(self, law: str, problem: str, *, seq: int = -1) -> None:
        self.law, self.problem, self.seq = law, problem, seq
        super().__init__(f"[{law}] {problem}")


class ModelFailure(InterlockError):
    """A model request failed.

    code: upper case: RATE_LIMIT, SERVER, TIMEOUT, TRANSPORT, EMPTY_RESPONSE, STREAM_CLOSED, AUTH, BAD_REQUEST,
        NOT_FOUND, CONTEXT_LENGTH, MALFORMED, NO_ADAPTER, ABORTED, SCRIPT_EXHAUSTED, UNKNOWN.
    status: HTTP status, if there was one. retry_after: seconds, if the provider said so.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str = "UNKNOWN",
        status: int | None = None,
        retry_after: float | None = None,
        request_id: str | None = None,
    ) -> None:
        self.message, self.code, self.status = message, code, status
        self.retry_after, self.request_id = retry_after, request_id
        super().__init__(message)


class ToolError(InterlockError):
    """Raise it in a tool: the model reads the message, the turn goes on. `code` is upper case, if any."""

    def __init__(self, message: str, *, code: str | None = None) -> None:
        self.message, self.code = message, code
        super().__init__(message)


class InputDropped(InterlockError):
    """The message never reached the model. `outcome`: rejected, omitted, canceled or failed."""

    def __init__(self, message_id: str, outcome: str, reason: str | None = None) -> None:
        self.message_id, self.outcome, self.reason = message_id, outcome, reason
        super().__init__(f"Message {message_id} was {outcome}{f': {reason}' if reason else ''}.")


def said_error(error: BaseException) -> str:
    """What an exception says, whatever it is: some cannot even be turned into text."""
    try:
        text = str(error)
        text.encode()
    except Exception:  # noqa: BLE001  # foreign __str__, or text that is not Unicode
        return f"{type(error).__name__} (its message cannot be shown)"
    return text or type(error).__name__
