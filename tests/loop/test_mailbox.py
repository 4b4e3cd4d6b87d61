"""Sending without driving: what each letter does, what is refused, and what waits for the next life."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from brittle_store import BrittleStore
from interlock import (
    Agent,
    AnswerLater,
    ApprovalRequest,
    Approved,
    Ask,
    DuplicateMessage,
    InvalidMessage,
    LetterRefused,
    Mailbox,
    MailboxFull,
    MemoryStore,
    Message,
    MessageTooLarge,
    Principal,
    Redactor,
    Rejected,
    Status,
    StoreFailed,
    UnknownSession,
    UsageError,
    fork_session,
    tool,
)
from interlock.errors import (
    AlreadyDecided,
    AnswerMismatch,
    ApprovalError,
    IllegalFact,
    InboxFull,
    MayNotApprove,
    NotTaken,
    UnknownApproval,
)
from interlock.log.facts import (
    ApprovalDecided,
    ApprovalLate,
    CancelRequested,
    InboxSpliced,
    MailTaken,
    Stamp,
    ToolResulted,
    TurnEnd,
    UserMessage,
)
from interlock.log.messages import Source
from interlock.log.reasons import Aborted, Cause, Completed
from interlock.log.session import open_session
from interlock.log.stores.store import MAX_LETTERS
from interlock.loop.inbox import MAX_PENDING
from interlock.loop.pending import answer_pending
from interlock.policy.approvals.grants import Grant, Grants, workspace_of
from interlock.testing import Gate, ScriptedModel, assert_laws, call, calls, gated, hangs, says
from interlock.tools.approval import Answered

from .test_waiting import World, waiting

pytestmark = pytest.mark.virtual


def box(agent: Agent, **more: Any) -> Mailbox:
    return Mailbox(agent.session.id, store=agent._store, **more)


def prompts(agent: Agent) -> list[str]:
    return [fact.content[0].text for fact in agent.session.facts(UserMessage)]  # type: ignore[union-attr]


async def refused(posted: Any) -> MailTaken:
    """What was put on record of a letter that was refused."""
    with pytest.raises(UsageError):
        await posted.taken()
    journal = await posted._store.open(posted.session_id, readonly=True)
    facts = [event.fact for event in journal.read()]
    (found,) = [fact for fact in facts if isinstance(fact, MailTaken) and fact.letter.number == posted.number]
    return found


# Messages


async def test_a_letter_is_the_verb_that_it_stands_for() -> None:
    """A follow-up gets a turn, a steer the next step of the turn that runs, an injection wakes nobody."""
    gate = Gate()
    model = ScriptedModel(gated(gate, says("I begin with the code"), after=1), says("Docs"), says("More"))
    async with Agent(model, store=MemoryStore()) as agent:
        mail = box(agent, by="ada")
        go = await mail.followup("Clean this up")
        await gate.reached
        steer = await mail.steer("Only the docs")
        event = await steer.taken()
        assert isinstance(event.fact, InboxSpliced)
        assert (event.fact.list, event.fact.by, event.fact.wake) == ("next-step", "ada", True)
        assert event.fact.letter is not None and event.fact.letter.number == 2
        gate.open()
        await agent.idle()
        injected = await mail.inject("By the way")
        assert agent.session.events[(await injected.taken()).seq].fact.wake is False  # type: ignore[attr-defined]
        assert agent.status is Status.IDLE
        await (await mail.followup("And now?")).taken()
        await agent.idle()
        assert prompts(agent) == ["Clean this up", "Only the docs", "By the way", "And now?"]
        assert (await go.taken()).fact.inserted[0].source == Source("person")  # type: ignore[attr-defined]
        assert [fact.turn for fact in agent.session.facts(TurnEnd)] == [1, 2]
        assert_laws(agent.session)


async def test_letters_and_verbs_mix_in_the_order_in_which_they_came() -> None:
    async with Agent(ScriptedModel(hangs("so far"), says("done"), says("done"))) as agent:
        mail = box(agent)
        agent.followup("go")
        for number in range(3):
            await (await mail.inject(f"letter {number}")).taken()
            agent.inject(f"verb {number}")
        assert [message.text for message in agent.inbox.next_step] == [
            f"{who} {number}" for number in range(3) for who in ("letter", "verb")
        ]
        assert agent.session.state.mail == 3
        agent.cancel()


async def test_the_words_of_a_tool_are_not_a_persons() -> None:
    """A letter that is sent from inside a tool has that tool as its source, as with the verb."""

    @tool
    async def note(session: str) -> str:
        await Mailbox(session, store=store).inject("noted")
        return "ok"

    store = MemoryStore()
    model = ScriptedModel(lambda request: calls(call("note", session=agent.session.id)), says("done"))
    agent = Agent(model, tools=[note], store=store)
    async with agent:
        await agent.run("go")
        assert [fact.source.kind for fact in agent.session.facts(UserMessage)] == ["person", "tool"]


async def test_what_the_verb_would_refuse_is_refused_before_it_is_posted() -> None:
    async with Agent(ScriptedModel()) as agent:
        mail = box(agent)
        with pytest.raises(MessageTooLarge):
            await mail.followup("x" * (1 << 20 | 1))
        for wrong in ("\ud800", Message(role="assistant", content=())):
            with pytest.raises(InvalidMessage):
                await mail.steer(wrong)
        with pytest.raises(InvalidMessage, match="given to contexts"):
            await mail.inject(Message.user("x", id="x1.1"))
        with pytest.raises(UsageError, match="is no cause"):
            await mail.cancel("boredom")  # type: ignore[arg-type]
        for grace in (-1, 1e300, float("nan")):
            with pytest.raises(UsageError, match="grace"):
                await mail.cancel(grace=grace)
            with pytest.raises(UsageError, match="grace"):
                agent.cancel(grace=grace)
        with pytest.raises(UsageError, match="turn"):
            await mail.cancel(turn=0)
        with pytest.raises(ApprovalError, match="an answer is"):
            await mail.answer("a1", "yes")  # type: ignore[arg-type]
        with pytest.raises(AnswerMismatch):
            await mail.answer("a1", Approved(digest="a"), digest="b")
        with pytest.raises(MayNotApprove):
            await box(agent, by=Principal("guest", may_approve=False)).answer("a1", Approved())
        with pytest.raises(MayNotApprove):
            await mail.answer("a1", Approved(principal=Principal("guest", may_approve=False)))
        with pytest.raises(UnknownSession):
            await Mailbox("nobody", store=agent._store).followup("hello")
        assert await agent.session.journal.letters(0) == []


async def test_what_cannot_be_taken_changes_nothing_and_is_on_record() -> None:
    async with Agent(ScriptedModel(hangs(), says("done"))) as agent:
        mail = box(agent, by="ada")
        agent.followup("go")
        await agent.session.changed(agent.session.head)
        agent.inject(Message.user("mine", id="one"))
        posted = await mail.inject(Message.user("other", id="one"))
        with pytest.raises(DuplicateMessage):
            await posted.taken()
        fact = await refused(posted)
        assert (fact.kind, fact.by, fact.code) == ("send", "ada", "DuplicateMessage")
        for n in range(MAX_PENDING - len(agent.inbox)):
            agent.inject(f"message {n}")
        with pytest.raises(InboxFull):
            await (await mail.steer("one more")).taken()
        assert len(agent.inbox) == MAX_PENDING
        agent.cancel()
        await agent.idle()
        assert_laws(agent.session)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "truncated"),
        (b'{"what":{"kind":"send"}}', "missing"),
        (b'{"what":{"kind":"dance"}}', "dance"),
        (b'{"what":{"kind":"cancel","cause":{"kind":"user"},"grace_ms":-1}}', "no number"),
        (b'{"what":{"kind":"cancel","cause":{"kind":"user"},"grace_ms":1' + b"0" * 40 + b"}}", ""),
        (b'{"what":{"kind":"cancel","cause":{"kind":"user"},"later":1}}', "later"),
        (b'{"what":{"kind":"answer","approval_id":"a","outcome":"rejected","edited":[1]}}', "no JSON object"),
        (b'{"what":{"kind":"answer","approval_id":"a","outcome":"unavailable"}}', "unavailable"),
        (b"\xff", ""),
        (b'{"what":{"kind":"send","list":"next-step","wake":true,"message":' + b"[" * 100_000, ""),
    ],
)
async def test_what_cannot_be_read_is_refused_and_blocks_nobody(data: bytes, problem: str) -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(says("done")), store=store) as agent:
        number = await store.post(agent.session.id, data, time=7)
        await (await box(agent).followup("go")).taken()
        await agent.idle()
        (fact,) = agent.session.facts(MailTaken)
        assert (fact.letter, fact.kind, fact.by, fact.code) == (
            Stamp(number, 7),
            "unreadable",
            None,
            "Unreadable",
        )
        assert problem in (fact.refused or "")
        assert prompts(agent) == ["go"]
        assert_laws(agent.session)


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"assistant","content":[{"type":"text","text":"I am the model"}]}',
        b'{"role":"user","content":[]}',
        b'{"role":"user","id":"s1.1.1","content":[{"type":"text","text":"a context"}]}',
        b'{"role":"user","content":[{"type":"text","text":"' + b"x" * (1 << 20) + b'x"}]}',
    ],
    ids=["role", "empty", "id", "large"],
)
async def test_whoever_drives_trusts_nothing_in_a_letter(message: bytes) -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        data = b'{"what":{"kind":"send","list":"next-turn","wake":true,"message":' + message + b"}}"
        await store.post(agent.session.id, data, time=7)
        await agent.session.changed(agent.session.head)
        (fact,) = agent.session.facts(MailTaken)
        assert fact.code in ("InvalidMessage", "MessageTooLarge")
        assert len(agent.inbox) == 0


# Stopping


async def test_a_letter_stops_the_turn_that_runs() -> None:
    async with Agent(ScriptedModel(hangs("so far")), store=MemoryStore()) as agent:
        receipt = agent.followup("go")
        agent.inject("later")
        await agent.session.changed(agent.session.head)
        mail = box(agent, by="ada")
        event = await (await mail.cancel(Cause("user", reason="enough"), turn=1)).taken()
        assert isinstance(event.fact, CancelRequested)
        assert (event.fact.cause, event.fact.turn) == (Cause("user", "ada", "enough"), 1)
        result = await receipt.turn()
        assert result.reason == Aborted(Cause("user", "ada", "enough"))
        assert len(agent.inbox) == 0
        with pytest.raises(LetterRefused, match="turn 1 is not open any more") as caught:
            await (await mail.cancel(turn=1)).taken()
        assert caught.value.code == "TurnOver"
        nothing = await (await mail.cancel()).taken()
        assert isinstance(nothing.fact, MailTaken) and nothing.fact.refused is None
        agent.inject("one")
        assert isinstance((await (await mail.cancel(keep_inbox=True)).taken()).fact, MailTaken)
        assert len(agent.inbox) == 1
        assert isinstance((await (await mail.cancel()).taken()).fact, CancelRequested)
        assert len(agent.inbox) == 0
        assert_laws(agent.session)


async def test_a_letter_with_a_grace_gives_up_on_what_still_runs() -> None:
    @tool
    async def stubborn() -> str:
        while True:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(1000)
                return "after all"

    async with Agent(ScriptedModel(calls(call("stubborn"))), tools=[stubborn]) as agent:
        agent.followup("go")
        await asyncio.sleep(1)
        await box(agent).cancel(grace=2.5)
        await agent.idle()
        (result,) = agent.session.facts(ToolResulted)
        assert result.error is not None and result.error.code == "TOOL_OUTCOME_UNKNOWN"
        await asyncio.sleep(2000)


async def test_a_steer_behind_a_stop_opens_a_turn_of_its_own() -> None:
    async with Agent(ScriptedModel(hangs(), says("new")), store=MemoryStore()) as agent:
        agent.followup("go")
        await agent.session.changed(agent.session.head)
        mail = box(agent)
        await mail.cancel()
        await (await mail.steer("this instead")).taken()
        await agent.idle()
        assert [fact.reason for fact in agent.session.facts(TurnEnd)] == [Aborted(Cause("user")), Completed()]
        assert prompts(agent) == ["go", "this instead"]


# Answers


class Asked:
    """An agent that waits for an answer, in this life."""

    def __init__(self, **more: Any) -> None:
        self.shown: list[ApprovalRequest] = []
        self.withdrawn: list[str] = []
        self.ran: list[str] = []

        @tool
        async def write(name: str) -> str:
            self.ran.append(name)
            return f"wrote {name}"

        model = ScriptedModel(calls(call("write", name="a")), says("done"))
        self.store = MemoryStore()
        self.agent = Agent(model, tools=[write], store=self.store, approver=self.approve, **more)
        self.agent.on.pre_execute(lambda call: Ask("sure?"))

    async def approve(self, request: ApprovalRequest) -> Approved:
        self.shown.append(request)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as error:
            self.withdrawn.append(str(error))
            raise
        return Approved()

    async def __aenter__(self) -> Asked:
        await self.agent.open()
        self.agent.followup("go")
        await waiting(self.agent)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert_laws(self.agent.session)
        await self.agent.aclose()

    @property
    def decided(self) -> ApprovalDecided:
        (fact,) = self.agent.session.facts(ApprovalDecided)
        return fact


async def test_an_answer_by_letter_is_the_one_answer() -> None:
    async with Asked() as asked:
        mail = box(asked.agent, by="ada")
        (request,) = asked.shown
        event = await (await mail.answer(request.id, Approved(), digest=request.digest)).taken()
        assert isinstance(event.fact, ApprovalDecided)
        assert (event.fact.outcome, event.fact.by, event.fact.how, event.fact.channel) == (
            *("allowed-once", "ada", "api"),
            "mailbox",
        )
        await asked.agent.idle()
        assert asked.ran == ["a"]
        assert asked.withdrawn == ["ada (mailbox) said yes"], "whoever was asked is told by whom"
        with pytest.raises(AlreadyDecided) as caught:
            await (await mail.answer(request.id, Rejected())).taken()
        assert (caught.value.by, caught.value.channel) == ("ada", "mailbox")
        assert [fact.answer for fact in asked.agent.session.facts(ApprovalLate)] == ["rejected"]


async def test_a_no_by_letter_is_told_to_the_model() -> None:
    async with Asked() as asked:
        await box(asked.agent).answer("a" + str(asked.shown[0].call.key), Rejected("use the other file"))
        await asked.agent.idle()
        (result,) = asked.agent.session.facts(ToolResulted)
        assert result.content[0].text.endswith("use the other file")
        assert asked.ran == [] and asked.decided.message == "use the other file"


async def test_arguments_that_are_edited_by_letter_run_if_they_fit() -> None:
    async with Asked() as asked:
        mail, (request,) = box(asked.agent), asked.shown
        with pytest.raises(LetterRefused, match="do not fit write"):
            await (await mail.answer(request.id, Approved(arguments={"nom": "b"}))).taken()
        await (await mail.answer(request.id, Approved(arguments={"name": "b"}))).taken()
        await asked.agent.idle()
        assert asked.ran == ["b"] and asked.decided.edited == {"name": "b"}


async def test_answers_that_do_not_count() -> None:
    async with Asked() as asked:
        mail, (request,) = box(asked.agent), asked.shown
        with pytest.raises(AnswerMismatch):
            await (await mail.answer(request.id, Approved(), digest="another")).taken()
        with pytest.raises(UnknownApproval):
            await (await mail.answer("a999", Approved())).taken()
        with pytest.raises(ApprovalError, match="was not offered"):
            await (await mail.answer(request.id, Approved(remember="always"))).taken()
        assert [fact.code for fact in asked.agent.session.facts(MailTaken)] == [
            *("AnswerMismatch", "UnknownApproval"),
            "ApprovalError",
        ]
        assert asked.agent.status is Status.WAITING
        await mail.cancel()
        await asked.agent.idle()
        assert asked.decided.outcome == "cancelled" and asked.ran == []


async def test_a_channel_that_may_not_approve_may_not_by_letter() -> None:
    async with Asked() as asked:

        class Watches:
            channel = "wall"
            may_approve = False

            async def __call__(self, request: ApprovalRequest) -> None: ...

        asked.agent.approvals.add(Watches())
        with pytest.raises(LetterRefused, match="wall may not approve"):
            await (await box(asked.agent).answer(asked.shown[0].id, Approved(), channel="wall")).taken()


async def test_a_rule_that_is_allowed_by_letter_spares_the_next_question() -> None:
    ran: list[str] = []
    shown: list[ApprovalRequest] = []

    @tool
    async def write(name: str) -> str:
        ran.append(name)
        return "ok"

    async def nobody(request: ApprovalRequest) -> Approved:
        shown.append(request)
        await asyncio.Event().wait()
        return Approved()

    model = ScriptedModel(calls(call("write", name="a")), calls(call("write", name="b")), says("done"))
    agent = Agent(model, tools=[write], store=MemoryStore(), approver=nobody, preset="ask")
    agent.approvals.propose = lambda call: "write"
    async with agent:
        agent.followup("go")
        await waiting(agent)
        assert shown[0].rule("session") == "write"
        event = await (await box(agent).answer(shown[0].id, Approved(remember="session"))).taken()
        assert isinstance(event.fact, ApprovalDecided)
        assert (event.fact.rule_written, event.fact.scope) == ("write", "session")
        await agent.idle()
        assert (ran, len(shown)) == (["a", "b"], 1)
        assert agent.session.state.grants == {"write": event.seq}
        assert_laws(agent.session)


@pytest.mark.parametrize("meanwhile", ["nothing", "kept", "answered", "kept and answered"])
async def test_a_rule_for_always_is_written_with_the_answer_that_counts(
    meanwhile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its sender may have written it already; if another answer was first, it is as if this one had not been."""
    grants = Grants(tmp_path / "grants.toml")
    rule = "write"
    if "kept" in meanwhile:
        grants.add(Grant(workspace_of(tmp_path), rule, "ada", "api", None, 1, None))

    @tool
    async def write(name: str) -> str:
        return "ok"

    model = ScriptedModel(calls(call("write", name="a")), says("done"))
    agent = Agent(
        model, tools=[write], store=MemoryStore(), approver=AnswerLater(), preset="ask", cwd=tmp_path
    )
    agent.approvals.propose = lambda call: rule
    agent.approvals.grants = grants
    async with agent:
        agent.followup("go")
        await waiting(agent)
        (request,) = agent.approvals.pending
        assert request.rule("always") == rule
        posted = await box(agent).answer(request.id, Approved(remember="always"))
        if "answered" in meanwhile:
            writes = grants.add

            def add(grant: Grant) -> None:
                writes(grant)
                agent.approvals.answer(request.id, Rejected())

            monkeypatch.setattr(grants, "add", add)
            with pytest.raises(AlreadyDecided):
                await posted.taken()
        else:
            event = await posted.taken()
            assert isinstance(event.fact, ApprovalDecided)
            assert (event.fact.rule_written, event.fact.scope) == (rule, "always")
        await agent.idle()
        assert (rule in agent.approvals.written) is (meanwhile != "answered")
        assert_laws(agent.session)
    kept = [one.rule for one in grants.load(tmp_path)]
    assert kept == ([] if meanwhile == "answered" else [rule])


async def test_a_question_of_a_nested_call_is_answered_by_letter() -> None:
    world = World()
    async with world.agent(calls(call("compose", name="b")), says("done"), approver=world.nobody) as agent:
        agent.followup("go")
        await waiting(agent)
        (request,) = world.shown
        yes = Answered("allowed-once", None, "ada", "token", "cli")
        assert await answer_pending(agent.session.id, request.id, yes, store=world.store) == "this process"
        await agent.idle()
        assert world.ran == ["ask b"]
        assert_laws(agent.session)


async def test_a_question_is_answered_by_letter_or_by_its_channel_whoever_is_first() -> None:
    """Both at the same moment: one counts, the other is late, and nothing runs twice."""
    for first in ("letter", "verb"):
        async with Asked() as asked:
            agent, (request,) = asked.agent, asked.shown
            mail = box(agent)
            if first == "letter":
                posted = await mail.answer(request.id, Approved())
                await posted.taken()
                with pytest.raises(AlreadyDecided):
                    agent.approvals.answer(request.id, Rejected())
            else:
                agent.approvals.answer(request.id, Approved())
                posted = await mail.answer(request.id, Rejected())
                with pytest.raises(AlreadyDecided):
                    await posted.taken()
            await agent.idle()
            assert asked.ran == ["a"]
            assert [fact.answer for fact in agent.session.facts(ApprovalLate)] == ["rejected"]


# Nobody drives


async def test_letters_that_came_while_nobody_drove_are_taken_in_order_before_anyone_is_told() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(says("one")), store=store) as agent:
        await agent.run("go")
    mail = Mailbox(agent.session.id, store=store, by="ada")
    posted = [await mail.followup("first"), await mail.steer("second"), await mail.cancel(turn=1)]
    assert [one.number for one in posted] == [1, 2, 3]
    told: list[list[str]] = []
    again = Agent(ScriptedModel(says("two"), says("three")), store=store, session=agent.session.id)
    again.on.session_start(lambda start: told.append([m.text for m in start.agent.inbox.next_turn]))
    async with again:
        assert told == [["first"]]
        assert [message.text for message in again.inbox.next_step] == ["second"]
        assert again.status is Status.IDLE, "what was pending is parked (IN-11)"
        assert again.session.state.mail == 3
        assert await again.session.journal.letters(0) == []
        again.wake()
        await again.idle()
        assert prompts(again) == ["go", "second", "first"]
        assert_laws(again.session)


async def test_they_run_at_once_where_pending_input_is_resumed() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(says("one")), store=store) as agent:
        await agent.run("go")
    await Mailbox(agent.session.id, store=store).followup("more")
    model = ScriptedModel(says("two"))
    async with Agent(model, store=store, session=agent.session.id, resume_pending=True) as again:
        await again.idle()
        assert prompts(again) == ["go", "more"]


async def test_an_answer_that_waits_in_the_mailbox_lets_the_next_life_go_on() -> None:
    world = World()
    await world.waits("ask me")
    mail = Mailbox(world.session, store=world.store, by="ada")
    (approval_id,) = (await open_session(world.session, store=world.store, readonly=True)).state.approvals
    posted = await mail.answer(approval_id, Approved())
    async with world.agent(says("done"), approver=world.nobody) as agent:
        await agent.idle()
        assert world.ran == ["ask me"] and len(world.shown) == 1, "nobody was asked again"
        assert isinstance((await posted.taken()).fact, ApprovalDecided)
        assert agent.session.facts(TurnEnd)[-1].reason == Completed()
        assert_laws(agent.session)


async def test_a_stop_that_waits_in_the_mailbox_ends_the_waiting_turn() -> None:
    world = World()
    await world.waits("ask me", "free")
    posted = await Mailbox(world.session, store=world.store, by="ada").cancel(turn=1)
    async with world.agent(approver=world.nobody) as agent:
        await agent.idle()
        assert world.ran == ["free"] and len(world.shown) == 1
        assert agent.session.facts(TurnEnd)[-1].reason == Aborted(Cause("user", "ada"))
        assert isinstance((await posted.taken()).fact, CancelRequested)
        assert_laws(agent.session)
        agent.followup("again")
    assert agent.session.facts(ApprovalDecided)[-1].outcome == "cancelled"


async def test_a_letter_that_comes_after_the_end_is_for_the_next_life() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        mail = box(agent)
        await mail.followup("just before")
        await agent.aclose()
        posted = await mail.followup("too late")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await posted.taken()
        head = agent.session.head
    session = await open_session(agent.session.id, store=store, readonly=True)
    assert (session.head, session.facts(InboxSpliced)) == (head, [])
    async with Agent(ScriptedModel(), store=store, session=agent.session.id) as again:
        assert [message.text for message in again.inbox.next_turn] == ["just before", "too late"]


async def test_a_mailbox_is_bounded() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        pass
    mail = box(agent)
    for _ in range(MAX_LETTERS):
        await mail.inject("x")
    with pytest.raises(MailboxFull, match="256 letters wait"):
        await mail.inject("x")
    async with Agent(ScriptedModel(), store=store, session=agent.session.id) as again:
        assert len(again.inbox) == MAX_PENDING
        assert (await mail.cancel()).number == MAX_LETTERS + 1


async def test_who_is_cancelled_while_letters_are_taken_has_let_go_of_the_session() -> None:
    """Nobody leaves what was not entered: the next one can open it, and takes what is there."""
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        pass
    await box(agent).inject("keep me")
    entering = asyncio.Event()

    async def never(start: object) -> None:
        entering.set()
        await asyncio.Event().wait()

    slow = Agent(ScriptedModel(), store=store, session=agent.session.id)
    slow.on.session_start(never)
    task = asyncio.create_task(slow.open())
    await entering.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert slow.status is Status.CLOSED
    async with Agent(ScriptedModel(), store=store, session=agent.session.id) as again:
        assert [message.text for message in again.inbox.next_step] == ["keep me"]
        assert_laws(again.session)


async def test_a_number_that_was_taken_already_blocks_nobody() -> None:
    """No store gives one twice; one that was mended by hand may."""
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        pass
    await box(agent).inject("one")
    lines = store._sessions[agent.session.id]
    lines.letters += lines.letters
    await box(agent).inject("two")
    async with Agent(ScriptedModel(), store=store, session=agent.session.id) as again:
        assert [message.text for message in again.inbox.next_step] == ["one", "two"]
        assert await again.session.journal.letters(0) == []


async def test_a_fork_has_a_mailbox_of_its_own() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(says("one")), store=store) as agent:
        await (await box(agent).followup("go")).taken()
        await agent.idle()
        await box(agent).inject("for the parent")
        fork = await fork_session(agent.session.id, store=store)
        await fork.close()
    async with Agent(ScriptedModel(says("two")), store=store, session=fork.id) as forked:
        assert forked.session.state.mail == 0
        posted = await box(forked).followup("for the fork")
        assert posted.number == 1
        await posted.taken()
        await forked.idle()
        assert prompts(forked) == ["go", "for the fork"]
        assert_laws(forked.session)


# A store that fails


async def test_a_letter_is_kept_until_what_it_did_is_on_disk() -> None:
    store = BrittleStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        pass
    await Mailbox(agent.session.id, store=store).inject("keep me")
    failing = Agent(ScriptedModel(), store=store, session=agent.session.id)
    store.break_at_barrier(store.barriers + 2)  # the one of the opening is passed
    await failing.open()
    assert [message.text for message in failing.inbox.next_step] == ["keep me"]
    assert len(await failing.session.journal.letters(0)) == 1
    with pytest.raises(StoreFailed):
        await failing.aclose()
    # What had not come to the disk is lost; the letter is not.
    lines = list(agent.session.events)
    store.mend()
    journal = store._sessions[agent.session.id]
    journal.rows, journal.head = lines[: agent.session.head + 1], agent.session.head
    async with Agent(ScriptedModel(), store=store, session=agent.session.id) as again:
        assert [message.text for message in again.inbox.next_step] == ["keep me"]
        assert await again.session.journal.letters(0) == []


async def test_a_letter_is_taken_once_when_it_was_not_forgotten_in_time() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        letters = await post_two(agent)
    store._sessions[agent.session.id].letters = letters  # the life was cut before it could forget them
    async with Agent(ScriptedModel(), store=store, session=agent.session.id) as again:
        assert [message.text for message in again.inbox.next_step] == ["one", "two"]
        assert await again.session.journal.letters(0) == []
        assert (await box(again).inject("three")).number == 3


async def post_two(agent: Agent) -> Any:
    mail = box(agent)
    posted = [await mail.inject("one"), await mail.inject("two")]
    kept = agent._store._sessions[agent.session.id].letters  # type: ignore[attr-defined]
    for one in posted:
        await one.taken()
    return kept


async def test_a_store_that_counts_from_nothing_goes_on_after_what_the_log_has() -> None:
    """A session that was copied has taken letters that this store has never seen."""
    store, other = MemoryStore(), MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        await post_two(agent)
    journal = await other.create(agent.session.id)
    journal.write(list(agent.session.events))
    await journal.close()
    async with Agent(ScriptedModel(), store=other, session=agent.session.id) as again:
        posted = await box(again).inject("three")
        assert posted.number == 3
        await posted.taken()
        assert_laws(again.session)


# Secrets


async def test_a_secret_in_a_letter_never_gets_into_the_mailbox() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        pass
    mail = box(agent, by="ada hunter2hunter2", redact=Redactor({"pass": "hunter2hunter2"}))
    await mail.inject("it is hunter2hunter2")
    await mail.cancel(Cause("user", reason="hunter2hunter2"))
    await mail.answer("a1", Rejected("hunter2hunter2"))
    letters = await (await store.open(agent.session.id, readonly=True)).letters(0)
    assert len(letters) == 3
    assert not [
        letter for letter in letters if b"hunter2" in letter.data or b"[redacted:pass]" not in letter.data
    ]


async def test_whoever_drives_takes_out_what_it_knows() -> None:
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store, redact=Redactor({"pass": "hunter2hunter2"})) as agent:
        await (await box(agent, by="hunter2hunter2").inject("it is hunter2hunter2")).taken()
        assert agent.inbox.next_step[0].text == "it is [redacted:pass]"
        assert "hunter2" not in repr(list(agent.session.events))


# Answers from outside, to a session that is driven


async def test_a_driven_session_is_answered_by_letter() -> None:
    async with Asked() as asked:
        (request,) = asked.shown
        yes = Answered("allowed-once", None, "ada", "token", "cli")
        driver = await answer_pending(asked.agent.session.id, request.id, yes, store=asked.store)
        assert driver == "this process"
        await asked.agent.idle()
        assert asked.ran == ["a"]
        assert (asked.decided.by, asked.decided.how, asked.decided.channel) == ("ada", "token", "cli")
        with pytest.raises(AlreadyDecided):
            await answer_pending(asked.agent.session.id, request.id, yes, store=asked.store)


async def test_an_answer_that_waits_in_the_mailbox_comes_first() -> None:
    """It was posted before, and its sender was told so: another one does not overtake it."""
    world = World()
    await world.waits("ask me")
    (approval_id,) = (await open_session(world.session, store=world.store, readonly=True)).state.approvals
    mail = Mailbox(world.session, store=world.store, by="ada")
    await mail.answer(approval_id, Approved(), digest="of something else")  # is going to be refused
    await mail.answer("a99", Rejected())
    await world.store.post(world.session, b"what is this", time=1)
    posted = await mail.answer(approval_id, Rejected())
    head = (await open_session(world.session, store=world.store, readonly=True)).head
    yes = Answered("allowed-once", None, "bob", "token", "cli")
    with pytest.raises(ApprovalError, match="letter 4, which comes first"):
        await answer_pending(world.session, approval_id, yes, store=world.store)
    assert (await open_session(world.session, store=world.store, readonly=True)).head == head
    # Whoever says the same is not in its way.
    no = Answered("rejected", None, "bob", "token", "cli")
    assert await answer_pending(world.session, approval_id, no, store=world.store) is None
    async with world.agent(says("done"), approver=world.nobody) as agent:
        await agent.idle()
        assert world.ran == []
        assert [(fact.outcome, fact.by) for fact in agent.session.facts(ApprovalDecided)] == [
            ("rejected", "bob")
        ]
        with pytest.raises(AlreadyDecided):
            await posted.taken()
        assert_laws(agent.session)


async def test_an_answer_that_nobody_takes_is_said_to_wait() -> None:
    async with Asked() as asked:
        asked.agent.session.journal.on_letter(None)  # it does not hear
        no = Answered("rejected", None, "ada", "token", "cli")
        with pytest.raises(NotTaken, match="has not taken letter 1 within 3 s"):
            await answer_pending(asked.agent.session.id, asked.shown[0].id, no, store=asked.store, patience=3)


async def test_a_letter_that_a_law_forbids_is_refused_and_blocks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """None is known. What comes after it is taken all the same."""
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        append = agent.session.append

        def forbids(*facts: Any, **more: Any) -> Any:
            if isinstance(facts[0], InboxSpliced) and facts[0].inserted[0].text == "odd":
                raise IllegalFact("splice", "it is odd")
            return append(*facts, **more)

        monkeypatch.setattr(agent.session, "append", forbids)
        await box(agent).inject("odd")
        await (await box(agent).inject("even")).taken()
        assert [message.text for message in agent.inbox.next_step] == ["even"]
        (fact,) = agent.session.facts(MailTaken)
        assert (fact.kind, fact.code) == ("send", "IllegalFact")
