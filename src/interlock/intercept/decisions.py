"""What a participant may answer: decisions as plain data, and how they are folded.

Lives here: the frozen answer classes of every decide point, and the one lattice of permission. An answer carries
exactly its own data; `None` abstains. A class outside a point's union is refused, never guessed at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, assert_never, final

import msgspec
from msgspec.structs import force_setattr

from interlock.errors import HookContractError, ToolError
from interlock.intercept.point import SPEAKER
from interlock.log.messages import Message, Source, Text, as_message
from interlock.log.strictjson import NotJSON, check_text, checked_text, freeze

if TYPE_CHECKING:
    from typing import Literal

Contexts: TypeAlias = tuple[Message, ...]
#: What a listener may hand in. The `__init__` that only type checkers see says so, since it is kept as `Contexts`.
GivenContexts: TypeAlias = "Iterable[Message | str] | Message"


def as_contexts(given: object, what: str, source: Source | None = None) -> Contexts:
    """Contexts, checked and copied. One that is nobody's, or a person's, becomes that of `source`: without it, of the
    listener that is being heard.

    Raises:
        HookContractError: they are no messages of role user or system.
    """
    if given == ():
        return ()
    mine = source or _speaker()
    return tuple([_owned(message, mine) for message in _messages(given, what)])


def _speaker() -> Source:
    return SPEAKER.get() or _NOBODY


def _owned(message: Message, mine: Source) -> Message:
    if message.source.kind == "person" or message.source == _NOBODY:
        return msgspec.structs.replace(message, source=mine)
    return message


_NOBODY = Source("plugin")


def _messages(given: object, what: str) -> Contexts:
    if isinstance(given, (str, Message)):
        given = (given,)
    if not isinstance(given, Iterable):
        raise HookContractError(f"{what}: contexts are messages or strings, not {type(given).__name__}")
    made = []
    for one in given:
        if isinstance(one, str):
            one = Message.context(one)
        try:
            made.append(as_message(one))
        except NotJSON as error:
            raise HookContractError(f"{what}: {error}") from None
    return tuple(made)


def _reason(reason: object, what: str) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise HookContractError(f"{what} needs a reason in words, not {reason!r}")
    try:
        return check_text(reason)
    except NotJSON as error:
        raise HookContractError(f"{what}: {error}") from None


class _WithContexts(msgspec.Struct, frozen=True):
    """Freezes what a listener handed in, so that changing it later has no effect."""

    def __post_init__(self) -> None:
        name = type(self).__name__
        force_setattr(self, "contexts", as_contexts(self.contexts, name))  # type: ignore[attr-defined]
        if hasattr(self, "reason"):
            force_setattr(self, "reason", _reason(self.reason, name))


# agent/pre-step


@final
class Enter(msgspec.Struct, frozen=True):
    """Enter the step with these messages, in this order; the ones left out are dropped.

    dropped: of those left out, by id, the reason that whoever sent them is told. Nobody later can bring them back.
    """

    messages: tuple[Message, ...]
    contexts: Contexts = ()
    dropped: Mapping[str, str] = msgspec.field(default_factory=dict)

    if TYPE_CHECKING:

        def __init__(
            self,
            messages: Iterable[Message | str],
            contexts: GivenContexts = (),
            dropped: Mapping[str, str] = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        force_setattr(self, "messages", _messages(self.messages, "Enter"))
        force_setattr(self, "contexts", as_contexts(self.contexts, "Enter"))
        force_setattr(self, "dropped", _dropped(self.dropped, self.messages))


def _dropped(given: object, kept: Contexts) -> dict[str, str]:
    if not isinstance(given, Mapping):
        raise HookContractError(f"Enter: dropped maps ids to reasons, not {type(given).__name__}")
    for message_id, reason in given.items():
        _reason(reason, f"Enter: dropped[{message_id!r}]")
    if both := [message.id for message in kept if message.id in given]:
        raise HookContractError(f"Enter: {', '.join(both)} cannot be entered and dropped")
    return dict(given)


@final
class Reject(_WithContexts, frozen=True):
    """Do not enter: the turn ends blocked, and the messages are dropped with the reason."""

    reason: str
    contexts: Contexts = ()

    if TYPE_CHECKING:

        def __init__(self, reason: str, contexts: GivenContexts = ()) -> None: ...


# agent/request


@final
@dataclass(frozen=True)
class Settings:
    """Change settings of the model call; never its messages."""

    changed: Mapping[str, Any]

    def __init__(self, **changed: Any) -> None:
        if spoken := sorted(changed.keys() & {"messages", "system", "tools"}):
            raise HookContractError(f"Settings cannot change what is said: {', '.join(spoken)}")
        try:
            object.__setattr__(self, "changed", freeze(changed))
        except NotJSON as error:
            raise HookContractError(f"Settings: {error}") from None


# agent/request-error


@final
class Retry(msgspec.Struct, frozen=True):
    """Send the request again, in the same step. `after`: seconds."""

    after: float = 0.0

    def __post_init__(self) -> None:
        _seconds(self.after)


def _seconds(after: object) -> None:
    if not isinstance(after, (int, float)) or not 0 <= after < float("inf"):
        raise HookContractError(f"Retry: after is a number of seconds from 0, not {after!r}")


@final
class GiveUp(msgspec.Struct, frozen=True):
    """Do not send it again, whatever the retry policy says."""


# tools/pre-execute, rules, advice, guards


@final
class Allow(_WithContexts, frozen=True):
    """Run it, unless somebody is stricter."""

    contexts: Contexts = ()

    if TYPE_CHECKING:

        def __init__(self, contexts: GivenContexts = ()) -> None: ...


@final
class Ask(_WithContexts, frozen=True):
    """Ask a person. `reason` is shown to them."""

    reason: str
    contexts: Contexts = ()

    if TYPE_CHECKING:

        def __init__(self, reason: str, contexts: GivenContexts = ()) -> None: ...


@final
class Deny(_WithContexts, frozen=True):
    """Do not run it. `reason` is what the model reads: say what it may do instead."""

    reason: str
    contexts: Contexts = ()

    if TYPE_CHECKING:

        def __init__(self, reason: str, contexts: GivenContexts = ()) -> None: ...


ALLOW = Allow()
Verdict: TypeAlias = Allow | Ask | Deny


def severity(verdict: Verdict) -> int:
    """0 allow, 1 ask, 2 deny."""
    match verdict:
        case Allow():
            return 0
        case Ask():
            return 1
        case Deny():
            return 2
        case _:
            assert_never(verdict)


def verdict_name(verdict: Verdict) -> Literal["allow", "ask", "deny"]:
    match verdict:
        case Allow():
            return "allow"
        case Ask():
            return "ask"
        case Deny():
            return "deny"
        case _:
            assert_never(verdict)


def strictest(verdicts: Iterable[Verdict], *, default: Verdict) -> Verdict:
    """The first of the strictest; `default` if nobody spoke. Adding a verdict never loosens the outcome."""
    return max(verdicts, key=severity, default=default)


def folded(
    spoken: Sequence[tuple[Verdict, str]], held: Sequence[tuple[Verdict, str]], default: tuple[Verdict, str]
) -> tuple[Verdict, str]:
    """The verdict on a call, and whose it is: the strictest that was spoken, or the default if nothing was.

    held: advice, and other verdicts that only hold back what is looser. They do not take the default's place, so that
    whoever advises to ask never loosens a default that denies.
    """
    heard: list[tuple[Verdict, str]] = [*(spoken or (default,)), *held]
    verdict = strictest([one for one, _ in heard], default=ALLOW)
    return next(one for one in heard if one[0] is verdict)


# tools/prepare


@final
class Rewrite(_WithContexts, frozen=True):
    """Run the same call with these arguments. They are validated again; later participants see them."""

    arguments: Mapping[str, Any]
    advise: Verdict | None = None
    contexts: Contexts = ()

    if TYPE_CHECKING:

        def __init__(
            self, arguments: Mapping[str, Any], advise: Verdict | None = None, contexts: GivenContexts = ()
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.arguments
        if not isinstance(given, Mapping):
            raise HookContractError(f"Rewrite: arguments are a mapping, not {type(self.arguments).__name__}")
        try:
            force_setattr(self, "arguments", freeze(self.arguments))
        except NotJSON as error:
            raise HookContractError(f"Rewrite: {error}") from None
        _advice(self.advise, "Rewrite")


@final
class Advise(_WithContexts, frozen=True):
    """Recommend a verdict. Advice to allow does not overrule anybody, nor the preset's default."""

    verdict: Verdict | None = None
    contexts: Contexts = ()

    if TYPE_CHECKING:

        def __init__(self, verdict: Verdict | None = None, contexts: GivenContexts = ()) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        _advice(self.verdict, "Advise")


def _advice(verdict: object, what: str) -> None:
    if verdict is not None and type(verdict) not in (Allow, Ask, Deny):
        raise HookContractError(f"{what}: advice is Allow, Ask or Deny, not {kind_of(verdict)}")


def kind_of(answer: object) -> str:
    """What somebody answered, for an error: the name of its class, or that it is a class itself."""
    return f"the class {answer.__name__}" if isinstance(answer, type) else type(answer).__name__


@final
class Refuse(_WithContexts, frozen=True):
    """Do not run it, and ask nobody: the model reads this error. It ends the point."""

    error: ToolError
    contexts: Contexts = ()
    stop: bool = False  # start nothing more, and end the turn after this batch

    if TYPE_CHECKING:

        def __init__(self, error: ToolError, contexts: GivenContexts = (), stop: bool = False) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        _flag(self.stop, "Refuse")
        if not isinstance(self.error, ToolError):
            raise HookContractError(f"Refuse: error is a ToolError, not {type(self.error).__name__}")


# tools/post-execute


@final
class Accept(_WithContexts, frozen=True):
    """Let the result stand."""

    contexts: Contexts = ()
    stop: bool = False  # end the turn after this batch

    if TYPE_CHECKING:

        def __init__(self, contexts: GivenContexts = (), stop: bool = False) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        _flag(self.stop, "Accept")


_UNSET: Any = type("Unset", (), {"__repr__": lambda _: "unset", "__slots__": ()})()


@final
class Replace(_WithContexts, frozen=True):
    """Give the model another result: `content` as text, or a `value` that is rendered as the tool renders.

    error: with `content`, the code of the failure that the result is now. A failure stays one in any case.
    """

    content: str | tuple[Text, ...] | None = None
    value: Any = _UNSET
    contexts: Contexts = ()
    stop: bool = False
    error: str | None = None

    if TYPE_CHECKING:

        def __init__(
            self,
            content: str | tuple[Text, ...] | None = None,
            value: Any = ...,
            contexts: GivenContexts = (),
            stop: bool = False,
            error: str | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        _flag(self.stop, "Replace")
        if (self.content is None) == (self.value is _UNSET):
            raise HookContractError("Replace takes content or value, exactly one of them")
        if self.error is not None and self.has_value:
            raise HookContractError("Replace: an error goes with content, not with a value")
        try:
            if self.error is not None:
                force_setattr(self, "error", checked_text(self.error).upper())
            if self.content is not None:
                force_setattr(self, "content", _text_blocks(self.content))
            else:
                force_setattr(self, "value", freeze(self.value))
        except NotJSON as error:
            raise HookContractError(f"Replace: {error}") from None

    @property
    def has_value(self) -> bool:
        return self.value is not _UNSET


def _text_blocks(content: object) -> tuple[Text, ...]:
    if isinstance(content, str):
        return (Text(checked_text(content)),)
    if not isinstance(content, (tuple, list)) or any(type(block) is not Text for block in content):
        raise HookContractError("Replace: content is a string or several of Text")
    return tuple([Text(checked_text(block.text)) for block in content])


@final
class Block(_WithContexts, frozen=True):
    """Withhold the result: the model reads the feedback as a failure. What the tool did is not undone."""

    feedback: str
    contexts: Contexts = ()
    stop: bool = False

    if TYPE_CHECKING:

        def __init__(self, feedback: str, contexts: GivenContexts = (), stop: bool = False) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        _flag(self.stop, "Block")
        try:
            checked_text(self.feedback)
        except NotJSON as error:
            raise HookContractError(f"Block: feedback: {error}") from None


def _flag(value: object, what: str) -> None:
    if not isinstance(value, bool):
        raise HookContractError(f"{what}: stop is True or False, not {value!r}")


# agent/turn-stopping


@final
class Continue(_WithContexts, frozen=True):
    """Go on with another step of the same turn, told so by this message."""

    message: Message
    contexts: Contexts = ()

    if TYPE_CHECKING:

        def __init__(self, message: Message | str, contexts: GivenContexts = ()) -> None: ...

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            force_setattr(self, "message", _owned(as_message(self.message), _speaker()))
        except NotJSON as error:
            raise HookContractError(f"Continue: {error}") from None
