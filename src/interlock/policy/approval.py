"""A person's yes or no to one call: what is asked, and what may be answered.

Lives here: `ApprovalRequest`, its answers `Approved` and `Rejected`, who answers (`Principal`), the protocol of whoever
can ask a person (`Approver`), and `AnswerLater`, for agents whose questions are answered from outside. What becomes of
an answer is the service's (`policy/approvals`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal, Protocol, TypeAlias, final, get_args, runtime_checkable

import msgspec

from interlock.log.strictjson import FrozenDict, NotJSON, check_text
from interlock.tools.approval import Remember
from interlock.tools.call import ToolCall, arguments_of

PrincipalKind: TypeAlias = Literal["person", "service", "agent"]


class Principal(msgspec.Struct, frozen=True):
    """Who answers. `may_approve`: False for one who may send messages, but whose answers do not count."""

    id: str
    kind: PrincipalKind = "person"
    may_approve: bool = True

    def __post_init__(self) -> None:
        _check("Principal", id=self.id)
        if not self.id.strip():
            raise ValueError("Principal: the id is empty")
        if self.kind not in get_args(PrincipalKind):
            raise ValueError(
                f"Principal: kind is one of {', '.join(get_args(PrincipalKind))}, not {self.kind!r}"
            )


class ApprovalRequest(msgspec.Struct, frozen=True):
    """What a person is asked. `arguments` are the effective ones: what is seen is what runs."""

    id: str
    call: ToolCall  # `call.said`: what every rule and listener answered, with file and line
    question: str  # why it is asked
    arguments: Mapping[str, Any]
    digest: str  # of the tool's name and these arguments
    by: str = ""  # who made it ask
    options: tuple[str, ...] = ("once",)  # and "session RULE", "always RULE"
    expires: int | None = None  # epoch ms; without an answer by then it is a no
    session: str | None = None

    def rule(self, remember: Remember) -> str | None:
        """The rule that is written if the yes is remembered for so long; None: that is not offered."""
        return offered(self.options).get(remember)


def offered(options: tuple[str, ...]) -> dict[Remember, str]:
    """Of the options of a question, the rules that a yes may write, and for how long."""
    found: dict[Remember, str] = {}
    for option in options:
        name, _, rule = option.partition(" ")
        if rule and name == "session":
            found["session"] = rule
        elif rule and name == "always":
            found["always"] = rule
    return found


@final
class Approved(msgspec.Struct, frozen=True):
    """Run this call.

    remember: also write the rule that was shown, so that what it covers is not asked again: `"session"` or
    `"always"`. arguments: run it with these instead; they are checked by the tool, rules and guards like any others,
    and the model is told. digest: of what the answerer saw; another one than what is asked is refused. principal: who
    answers, where a channel has many of them.
    """

    remember: Remember | None = None
    arguments: Mapping[str, Any] | None = None
    digest: str | None = None
    principal: Principal | str | None = None

    def __post_init__(self) -> None:
        _check("Approved", digest=self.digest)
        _check_principal("Approved", self.principal)
        if self.remember is not None and self.remember not in get_args(Remember):
            raise ValueError(f"Approved: remember is session or always, not {self.remember!r}")
        if self.arguments is None:
            return
        if self.remember is not None:
            raise ValueError(
                "Approved: the rule that was shown is not for edited arguments; remember the one or edit"
            )
        try:
            msgspec.structs.force_setattr(self, "arguments", arguments_of(self.arguments))
        except (NotJSON, AssertionError) as error:
            raise ValueError(f"Approved: arguments: {error or 'not a JSON object'}") from None

    @property
    def edited(self) -> FrozenDict | None:
        """`arguments`, frozen."""
        return self.arguments  # type: ignore[return-value]  # frozen in __post_init__


@final
class Rejected(msgspec.Struct, frozen=True):
    """Do not run it. `message` is for the model: say what it may do instead. The others are as of `Approved`."""

    message: str | None = None
    digest: str | None = None
    principal: Principal | str | None = None

    def __post_init__(self) -> None:
        _check("Rejected", message=self.message, digest=self.digest)
        _check_principal("Rejected", self.principal)


Answer: TypeAlias = Approved | Rejected


def _check(what: str, **texts: object) -> None:
    for name, text in texts.items():
        if text is None:
            continue
        if not isinstance(text, str):
            raise ValueError(f"{what}: {name} is text, not {text!r}")
        try:
            check_text(text)
        except NotJSON as error:
            raise ValueError(f"{what}: {error}") from None


def _check_principal(what: str, principal: object) -> None:
    if not isinstance(principal, Principal):
        _check(what, principal=principal)


@runtime_checkable
class Approver(Protocol):
    """Whoever can ask a person.

    It may have attributes: `how` tells the record how the person is known (tty, token, api, acp or hook), `channel` and
    `principal` (text, or a `Principal`) where and who they are, and `may_approve = False` that they are not to be asked.
    """

    async def __call__(self, request: ApprovalRequest, /) -> Approved | Rejected | None:
        """The answer. Raising, or answering anything else, means no. Only a channel that is asked first may abstain
        with None. It is cancelled when somebody else was first, or the question is withdrawn."""
        ...


ApproverFunction: TypeAlias = Callable[[ApprovalRequest], Awaitable[Approved | Rejected | None]]


class AnswerLater:
    """Leaves the question open: somebody may come, and call `agent.approvals.answer`.

    tell: called with each question, for whoever brings it to a person.
    """

    how = "api"
    channel = "api"

    def __init__(self, tell: Callable[[ApprovalRequest], None] | None = None) -> None:
        self._tell = tell

    async def __call__(self, request: ApprovalRequest, /) -> Approved | Rejected | None:
        if self._tell is not None:
            self._tell(request)
        never: asyncio.Future[Approved | Rejected | None] = asyncio.get_running_loop().create_future()
        return await never
