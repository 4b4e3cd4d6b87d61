"""The approval service: everybody is asked at once, the first who may answer does, and nobody is left running."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.errors import (
    AlreadyDecided,
    AnswerMismatch,
    ApprovalError,
    ConfigError,
    MayNotApprove,
    UnknownApproval,
    UsageError,
)
from interlock.log.facts import Said
from interlock.policy.approval import AnswerLater, ApprovalRequest, Approved, Principal, Rejected
from interlock.policy.approvals.service import Approvals
from interlock.testing import run_virtual
from interlock.testing.clock import WALL_ORIGIN_MS
from interlock.tools.approval import Answered

from .asking import asked, call_of

# Any set of channels, with any fate


@dataclass(frozen=True)
class Fate:
    """What becomes of a channel that is asked, after `delay` seconds."""

    name: str
    delay: int
    first: bool = False
    added: int = 0  # seconds; 0: before the question
    removed: int | None = None
    may_approve: bool = True

    @property
    def answer(self) -> Any:
        return ANSWERS[self.name]


STALE = "digest of something else"
ANSWERS: dict[str, Any] = {
    "approves": Approved(),
    "approves what was shown": Approved(digest="digest"),
    "approves something else": Approved(digest=STALE),
    "approves a rule that was not offered": Approved("always"),
    "approves arguments that do not fit": Approved(arguments={"nonsense": 1}),
    "rejects": Rejected("no"),
    "abstains": None,
    "answers nonsense": "yes",
    "raises": ValueError("broken"),
    "cancels itself": asyncio.CancelledError(),
    "never answers": None,
    "is stubborn": Approved(),  # answers after it was cancelled
}
VALID_YES = {"approves", "approves what was shown", "is stubborn"}
fates = st.builds(
    Fate,
    st.sampled_from(sorted(ANSWERS)),
    st.integers(0, 6),
    st.booleans(),
    st.integers(0, 4),
    st.none() | st.integers(1, 6),
    st.sampled_from([True, True, True, False]),
)


class Fated:
    how = "token"

    def __init__(self, fate: Fate, number: int) -> None:
        self.fate = fate
        self.principal = f"{fate.name} {number}"
        self.channel = f"channel {number}"
        self.may_approve = fate.may_approve
        self.running = 0
        self.asked = 0
        self.said_at: float | None = None

    async def __call__(self, request: ApprovalRequest) -> Any:
        self.running += 1
        self.asked += 1
        try:
            match self.fate.name:
                case "never answers":
                    await asyncio.Event().wait()
                case "is stubborn":
                    try:
                        await asyncio.sleep(self.fate.delay)
                    except asyncio.CancelledError:
                        await asyncio.sleep(1)
                case _:
                    await asyncio.sleep(self.fate.delay)
            answer = self.fate.answer
            if isinstance(answer, BaseException):
                raise answer
            self.said_at = asyncio.get_running_loop().time()
            return answer
        finally:
            self.running -= 1


class Course(list[Fated]):
    """The channels of one question, and how it ended."""

    answered: Answered | None = None
    cancelled = False
    ended_at = 0.0


async def course(
    fates: list[Fate], *, expires: int | None = None, cancelled: int | None = None, api: int | None = None
) -> Course:
    """Ask over all of these channels; `expires`, `cancelled` and `api` (a yes from outside) in seconds."""
    loop = asyncio.get_running_loop()
    service, made = Approvals(), Course(Fated(fate, n) for n, fate in enumerate(fates))
    refused: list[ApprovalError] = []

    def add(channel: Fated) -> None:
        dispose = service.add(channel, first=channel.fate.first)
        if channel.fate.removed is not None:
            loop.call_at(max(channel.fate.removed, loop.time()), dispose)

    def answer() -> None:
        try:
            service.answer("a1", Approved(), principal="from outside")
        except ApprovalError as error:
            refused.append(error)

    for channel in made:
        if channel.fate.added:
            loop.call_at(channel.fate.added, add, channel)
        else:
            add(channel)
    limit = WALL_ORIGIN_MS + expires * 1000 if expires is not None else None
    asking = asyncio.create_task(service.ask(asked(expires=limit)))
    if api is not None:
        loop.call_at(api, answer)
    loop.call_at(cancelled if cancelled is not None else 50, asking.cancel)
    try:
        made.answered = await asking
    except asyncio.CancelledError:
        made.cancelled = True
    made.ended_at = loop.time()
    assert service.pending == ()
    assert not any(channel.running for channel in made), "whoever was asked was awaited"
    return made


times = st.none() | st.integers(0, 6)


@settings(deadline=None)
@given(st.lists(fates, max_size=6), times, times, times)
def test_one_outcome_and_a_yes_only_from_somebody_who_may(
    fates: list[Fate], expires: int | None, cancelled: int | None, api: int | None
) -> None:
    """Laws 7 and 8 over every fate. `run_virtual` fails if a task is left behind."""
    ended = run_virtual(course(fates, expires=expires, cancelled=cancelled, api=api))
    assert (ended.answered is None) is ended.cancelled
    for channel in ended:
        assert channel.asked <= 1
        if not channel.fate.may_approve:
            assert not channel.asked
    answered = ended.answered
    if answered is None:
        return
    assert answered.outcome in ("allowed-once", "rejected", "unavailable")
    givers = [channel for channel in ended if channel.principal == answered.by]
    if answered.outcome == "unavailable":
        assert answered.by is None and answered.message
    elif answered.by == "from outside":
        assert api is not None and answered.outcome == "allowed-once"
    else:
        (giver,) = givers
        yes = answered.outcome == "allowed-once"
        assert giver.fate.name in (VALID_YES if yes else {"rejects"})
        assert giver.fate.may_approve and giver.said_at is not None
        assert (answered.how, answered.channel) == ("token", giver.channel)
        if expires is not None:
            assert giver.said_at <= expires


@settings(deadline=None)
@given(
    st.lists(
        st.builds(Fate, st.sampled_from(sorted(ANSWERS)), st.integers(0, 6), may_approve=st.booleans()),
        max_size=6,
        unique_by=lambda fate: fate.delay,
    )
)
def test_the_first_valid_answer_wins(fates: list[Fate]) -> None:
    """With nobody who comes first, late, or goes: whoever is the quickest with an answer that counts."""
    valid = [
        fate for fate in fates if fate.may_approve and (fate.name in VALID_YES or fate.name == "rejects")
    ]
    ended = run_virtual(course(fates))
    hangs = any(fate.may_approve and fate.name == "never answers" for fate in fates)
    if valid:
        winner = min(valid, key=lambda fate: fate.delay)
        assert ended.answered is not None and ended.answered.by is not None
        assert ended.answered.by.rpartition(" ")[0] == winner.name
    elif hangs:
        assert ended.cancelled and ended.ended_at == 50
    else:
        assert ended.answered is not None and ended.answered.outcome == "unavailable"


# Who is asked


def says(answer: Any, after: float = 0.0, **attributes: Any) -> Callable[[ApprovalRequest], Awaitable[Any]]:
    class Says:
        async def __call__(self, request: ApprovalRequest) -> Any:
            await asyncio.sleep(after)
            if isinstance(answer, BaseException):
                raise answer
            return answer

    made = Says()
    made.__dict__.update(attributes)
    return made


async def ask(service: Approvals, **more: Any) -> Answered:
    return await service.ask(asked(**more))


@pytest.mark.virtual
async def test_those_who_come_first_are_asked_before_people_and_may_abstain() -> None:
    service, seen = Approvals(says(Approved(), channel="person")), list[str]()

    async def hook(request: ApprovalRequest) -> None:
        await asyncio.sleep(5)
        seen.append(request.id)

    service.add(hook, first=True)
    assert (await ask(service)).channel == "person"
    assert asyncio.get_running_loop().time() == 5 and seen == ["a1"]
    service.add(says(Rejected("not on Fridays"), channel="hook", how="hook"), first=True)
    assert await ask(service) == Answered("rejected", "not on Fridays", None, "hook", "hook")


@pytest.mark.virtual
async def test_a_channel_that_fails_leaves_the_others_and_the_reason_names_each_when_all_have() -> None:
    service = Approvals(says(OSError("line is dead"), channel="phone"))
    leave = service.add(says(Approved(), after=5, channel="web"))
    assert (await ask(service)).outcome == "allowed-once"
    leave()
    service.add(says("yes", channel="mail"))
    assert await ask(service) == Answered(
        "unavailable",
        "nobody answered: phone failed: OSError: line is dead; "
        "mail: an answer is Approved() or Rejected(), not str",
    )


@pytest.mark.virtual
async def test_without_a_channel_that_may_approve_nobody_is_there() -> None:
    service = Approvals()
    assert not service.available
    service.add(says(Approved(), may_approve=False))
    service.add(says(Approved(), principal=Principal("guest", may_approve=False)))
    assert not service.available
    assert await ask(service) == Answered("unavailable", "nobody is there to approve it")
    undo = service.add(AnswerLater())
    assert service.available
    undo()
    undo()
    assert not service.available


@pytest.mark.virtual
async def test_who_answers_later_is_told_of_each_question_and_may_answer_at_once() -> None:
    service = Approvals(AnswerLater(lambda request: service.answer(request.id, Rejected("at once"))))
    assert (await ask(service)).message == "at once"

    def fails(request: ApprovalRequest) -> None:
        raise OSError("the page is down")

    answered = await ask(Approvals(AnswerLater(fails)))
    assert answered.message == "nobody answered: api failed: OSError: the page is down"


@pytest.mark.virtual
async def test_a_channel_that_is_added_is_asked_what_is_open() -> None:
    service = Approvals(AnswerLater())
    asking = asyncio.create_task(ask(service))
    await asyncio.sleep(1)
    service.add(says(Rejected(), channel="late"))
    assert (await asking).channel == "late"


@pytest.mark.virtual
async def test_when_the_last_channel_goes_the_question_is_unavailable() -> None:
    service = Approvals()
    leave = service.add(AnswerLater())
    asking = asyncio.create_task(ask(service))
    await asyncio.sleep(1)
    leave()
    assert (await asking).outcome == "unavailable"


@pytest.mark.virtual
async def test_those_who_lose_are_told_why() -> None:
    told: list[str] = []

    async def loses(request: ApprovalRequest) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            told.extend(error.args)
            raise

    service = Approvals(loses)
    service.add(says(Approved(), after=1, principal="ada", channel="web"))
    await ask(service)
    assert told == ["ada (web) said yes"]


def test_what_is_no_channel_is_refused() -> None:
    with pytest.raises(UsageError, match="a channel is an async function"):
        Approvals().add("web")  # type: ignore[arg-type]  # a mistake


# From outside


@pytest.mark.virtual
async def test_a_question_is_answered_from_outside_and_the_second_is_told_who_was_first() -> None:
    service = Approvals(AnswerLater())
    asking = asyncio.create_task(ask(service))
    await asyncio.sleep(0)
    (request,) = service.pending
    service.answer(request.id, Approved(), principal="ada", digest=request.digest, channel="web", how="token")
    with pytest.raises(AlreadyDecided) as late:
        service.answer(request.id, Rejected(), principal="bob")
    assert (late.value.outcome, late.value.by, late.value.channel) == ("allowed-once", "ada", "web")
    assert late.value.time == WALL_ORIGIN_MS
    assert await asking == Answered("allowed-once", None, "ada", "token", "web")
    with pytest.raises(UnknownApproval, match="None is open"):
        service.answer(request.id, Approved())


@pytest.mark.virtual
async def test_an_answer_that_is_refused_changes_nothing() -> None:
    service = Approvals(AnswerLater())
    service.add(says(Approved(), channel="chat room", may_approve=False))
    asking = asyncio.create_task(ask(service))
    await asyncio.sleep(0)
    (request,) = service.pending
    with pytest.raises(AnswerMismatch) as mismatch:
        service.answer("a1", Approved(), digest="another")
    assert (mismatch.value.given, mismatch.value.shown) == ("another", "digest")
    refusals: list[tuple[type[Exception], str, Callable[[], None]]] = [
        (AnswerMismatch, "Look at it again", lambda: service.answer("a1", Rejected(digest="another"))),
        (AnswerMismatch, "Look at it again", lambda: service.answer("a1", Approved(digest=STALE), digest=request.digest)),
        (MayNotApprove, "guest", lambda: service.answer("a1", Approved(), principal=Principal("guest", may_approve=False))),
        (MayNotApprove, "chat room", lambda: service.answer("a1", Approved(), channel="chat room")),
        (UnknownApproval, "Open are: a1", lambda: service.answer("a2", Approved())),
        (ApprovalError, "was not offered", lambda: service.answer("a1", Approved("session"))),
        (ApprovalError, "do not fit write", lambda: service.answer("a1", Approved(arguments={"path": 1}))),
        (ApprovalError, "not bool", lambda: service.answer("a1", True)),  # type: ignore[arg-type]  # a mistake
    ]  # fmt: skip
    for error, text, answer in refusals:
        with pytest.raises(error, match=text):
            answer()
    assert service.pending == (request,)
    service.answer("a1", Approved())
    assert (await asking).outcome == "allowed-once"


@pytest.mark.virtual
async def test_edited_arguments_are_those_that_fit_and_differ() -> None:
    service = Approvals(says(Approved(arguments={"path": "b.txt"})))
    assert (await ask(service)).edited == {"path": "b.txt"}
    service = Approvals(says(Approved(arguments={"path": "a.txt"})))
    assert (await ask(service)).edited is None


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (lambda: Approved("forever"), "remember is session or always"),
        (lambda: Approved("session", {"path": "b"}), "not for edited arguments"),
        (lambda: Approved(arguments=[1]), "arguments"),
        (lambda: Approved(arguments={"x": float("nan")}), "arguments"),
        (lambda: Approved(digest=5), "digest is text"),
        (lambda: Rejected(5), "message is text"),
        (lambda: Principal(""), "the id is empty"),
        (lambda: Principal("x", "robot"), "kind is one of"),
    ],
)
def test_an_answer_that_cannot_be_meant_cannot_be_made(wrong: Callable[[], object], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        wrong()


# Time


@pytest.mark.virtual
async def test_a_question_expires_by_the_clock_of_the_loop() -> None:
    service = Approvals(AnswerLater(), lifetime=60)
    assert service.lifetime == 60
    answered = await ask(service, expires=WALL_ORIGIN_MS + 60_000)
    assert asyncio.get_running_loop().time() == 60
    assert answered == Answered("unavailable", "nobody answered in time: the question has expired")


@pytest.mark.virtual
async def test_a_question_that_had_expired_before_it_was_shown_again_is_a_no() -> None:
    service = Approvals(says(Approved(), after=1))
    assert (await ask(service, expires=WALL_ORIGIN_MS - 1)).outcome == "unavailable"


@pytest.mark.parametrize("lifetime", [0, -1, float("inf"), float("nan"), "60", True])
def test_a_lifetime_is_a_number_of_seconds(lifetime: Any) -> None:
    with pytest.raises(ConfigError, match="approval_timeout"):
        Approvals(lifetime=lifetime)


# What is offered


def test_a_rule_is_offered_only_where_it_would_spare_the_question(tmp_path: Any) -> None:
    service = Approvals(AnswerLater())
    assert service.options(call_of()) == ("once",)
    service.propose = lambda call: f"Edit({call.arguments['path']})"
    assert service.options(call_of()) == ("once", "session Edit(a.txt)")
    for asks in (Said("gate", "ask"), Said("hook", "advise ask")):
        assert service.options(call_of(said=(asks,))) == ("once",), "it would ask again all the same"
    assert service.options(call_of(said=(Said("gate", "allow"),))) == ("once", "session Edit(a.txt)")
    assert service.options(call_of(path="a\nb")) == ("once",), "a rule is one line that a person can read"


@pytest.mark.virtual
async def test_only_the_rule_that_was_shown_is_remembered() -> None:
    service = Approvals(says(Approved("session")))
    answered = await ask(service, options=("once", "session Edit(a.txt)"))
    assert (answered.outcome, answered.remember, answered.rule) == ("allowed-once", "session", "Edit(a.txt)")
    assert (await ask(service)).outcome == "unavailable", "it was not offered"
