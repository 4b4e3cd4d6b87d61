"""What was sent and no step has taken: two queues, each message with exactly one fate."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brittle_store import BrittleStore
from interlock import (
    Agent,
    DuplicateMessage,
    Enter,
    IllegalFact,
    InboxError,
    InputDropped,
    MemoryStore,
    Message,
    Proposal,
    Reject,
    Source,
    Status,
    StoreFailed,
    Text,
    ToolUse,
    UsageError,
    open_session,
    tool,
)
from interlock.errors import InboxFull, InvalidMessage, MessageTooLarge
from interlock.log.event import Event, decode_event, encode_event
from interlock.log.facts import (
    InboxClaimed,
    InboxDropped,
    InboxSpliced,
    SessionCreated,
    SessionOpened,
    TurnEnd,
    UserMessage,
)
from interlock.loop.inbox import MAX_BYTES, MAX_PENDING
from interlock.loop.points import InboxNotice
from interlock.testing import Gate, ScriptedModel, assert_laws, calls, gated, run_virtual, says

from .story import lines, person, story

pytestmark = pytest.mark.virtual


@tool(effect="read")
async def look() -> str:
    return "seen"


def words(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages]


# The queues and their verbs


async def test_an_injection_is_queued_and_wakes_nobody() -> None:
    """IN-01."""
    model = ScriptedModel()
    async with Agent(model) as agent:
        agent.inject("bg")
        assert agent.status is Status.IDLE
        await agent.idle()
        assert story(agent.session) == "~+S[bg]"
        assert words(agent.inbox.next_step) == ["bg"]
    assert model.requests == []


async def test_a_turn_message_that_does_not_wake_is_parked_until_one_does() -> None:
    """IN-02."""
    async with Agent(ScriptedModel(says("1"), says("2"))) as agent:
        agent.send("m", to="turn", wake=False)
        assert agent.status is Status.IDLE
        agent.followup("n")
        await agent.idle()
        assert story(agent.session) == lines("""
            ~+T[m] +T[n]
            TS 1 CL 1.1 T[m] SS 1.1 UM m AM"1" SE 1.1 completed TE 1 completed
            TS 2 CL 2.1 T[n] SS 2.1 UM n AM"2" SE 2.1 completed TE 2 completed
        """)


async def test_a_message_that_cannot_be_logged_is_not_taken() -> None:
    """IN-03."""
    store = BrittleStore()
    async with Agent(ScriptedModel(says("never")), store=store) as agent:
        before = agent.session.head
        store.break_at_write(InboxSpliced)
        with pytest.raises(StoreFailed):
            agent.followup("go")
        assert agent.inbox.next_turn == ()
        assert agent.session.head == before
        assert agent.status is Status.IDLE
        store.mend()


async def test_the_queue_is_changed_before_anybody_is_told() -> None:
    """D-21, IN-03: folds advance inside the append."""
    seen: list[list[str]] = []
    async with Agent(ScriptedModel()) as agent:
        agent.on.observe(InboxSpliced)(lambda event: seen.append(words(agent.inbox.next_step)))
        agent.inject("a")
        agent.inject("b")
        agent.inbox.clear()
    assert seen == [["a"], ["a", "b"], []]


async def test_a_splice_tells_its_place_and_only_discarding_has_an_outcome() -> None:
    """IN-04."""
    async with Agent(ScriptedModel()) as agent:
        inbox = agent.inbox
        for name in ("a", "b"):
            agent.inject(person(name))
        inbox.splice("next-step", -1, 1)
        inbox.splice("next-step", 99, 99, person("c"))
        inbox.splice("next-step", -99, 1, person("d"))
        inbox.splice("next-step", 1, 0)
        assert [
            (fact.start, fact.removed, words(fact.inserted), fact.outcome)
            for fact in agent.session.facts(InboxSpliced)
        ] == [
            (0, 0, ["a"], None),
            (1, 0, ["b"], None),
            (1, 1, [], "canceled"),
            (1, 0, ["c"], None),
            (0, 1, ["d"], None),
        ]
        assert words(inbox.next_step) == ["d", "c"]


async def test_clearing_what_is_empty_writes_no_line() -> None:
    """IN-04."""
    async with Agent(ScriptedModel()) as agent:
        before = agent.session.head
        agent.inbox.clear()
        assert agent.session.head == before


async def test_a_turn_takes_all_of_next_step_and_one_message_of_next_turn_in_one_line() -> None:
    """IN-05, D-3: one reservation; next-step first, the turn's own message last."""
    async with Agent(ScriptedModel(says("1"), says("2"))) as agent:
        agent.inject("bg1")
        agent.inject("bg2")
        agent.followup("go")
        agent.followup("later")
        await agent.idle()
        assert story(agent.session) == lines("""
            ~+S[bg1] ~+S[bg2] +T[go] +T[later]
            TS 1 CL 1.1 S[bg1,bg2] T[go] SS 1.1 UM bg1 UM bg2 UM go AM"1" SE 1.1 completed TE 1 completed
            TS 2 CL 2.1 T[later] SS 2.1 UM later AM"2" SE 2.1 completed TE 2 completed
        """)
        assert_laws(agent.session)


async def test_a_later_step_takes_only_next_step() -> None:
    """IN-05: a follow-up is never taken in the middle of a turn."""
    gate = Gate()
    model = ScriptedModel(gated(gate, calls("look")), says("done"), says("then"))
    async with Agent(model, tools=[look]) as agent:
        agent.followup("go")
        await gate.reached
        agent.followup("next")
        agent.steer("also")
        gate.open()
        await agent.idle()
        claims = [
            (fact.turn, fact.step, len(fact.next_step), len(fact.next_turn))
            for fact in agent.session.facts(InboxClaimed)
        ]
        assert claims == [(1, 1, 0, 1), (1, 2, 1, 0), (2, 1, 0, 1)]


async def test_a_burst_of_followups_gives_a_turn_each_in_the_order_of_sending() -> None:
    """IN-06."""
    feed: list[Status] = []
    async with Agent(ScriptedModel(says("1"), says("2"), says("3"))) as agent:
        agent.on.status(feed.append)
        for name in ("a", "b", "c"):
            agent.followup(name)
        await agent.idle()
        assert feed == [Status.RUNNING, Status.IDLE]
        assert [
            message.text for message in agent.session.history.view() if message.source.kind == "person"
        ] == ["a", "b", "c"]
        assert len(agent.session.facts(TurnEnd)) == 3


async def test_notices_come_one_a_message_and_a_claim_is_no_discard() -> None:
    """IN-07."""
    heard: list[tuple[str, str, int | None]] = []

    def note(notice: InboxNotice) -> None:
        heard.append((notice.kind, notice.message.text, notice.turn))

    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.on.inbox(note)
        x = agent.inject("x")
        agent.inbox.remove(x.id)
        p = agent.send("p", to="turn", wake=False)
        agent.inbox.replace(p.id, "q")
        agent.inject("bg")
        agent.wake()
        await agent.idle()
    assert heard == [
        ("inserted", "x", None),
        ("discarded", "x", None),
        ("inserted", "p", None),
        ("discarded", "p", None),
        ("inserted", "q", None),
        ("inserted", "bg", None),
        ("claimed", "bg", 1),
        ("claimed", "q", 1),
    ]


async def test_a_claim_is_told_after_the_turn_has_begun() -> None:
    """IN-07."""
    open_turns: list[bool] = []
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.on.inbox(lambda notice: open_turns.append(agent.session.open))
        await agent.run("go")
    assert open_turns == [False, True]


@pytest.mark.parametrize("first", ["turn", "step"])
@pytest.mark.parametrize("second", ["turn", "step"])
async def test_an_id_is_pending_once_over_both_queues(first: Any, second: Any) -> None:
    """IN-08."""
    async with Agent(ScriptedModel()) as agent:
        agent.send(person("m"), to=first, wake=False)
        before = agent.session.head
        with pytest.raises(DuplicateMessage) as caught:
            agent.send(person("m"), to=second, wake=False)
        assert caught.value.message_id == "m"
        assert agent.session.head == before


async def test_a_reserved_id_counts_as_pending_and_cannot_be_edited() -> None:
    """D-3, IN-08."""
    async with Agent(ScriptedModel(says("ok"))) as agent:

        @agent.on.pre_step
        def look_around(proposal: Proposal) -> None:
            assert words(agent.inbox.reserved) == ["m"]
            assert not agent.inbox.remove("m")
            assert not agent.inbox.replace("m", "other")
            with pytest.raises(DuplicateMessage):
                agent.inject(person("m"))

        result = await agent.run(person("m"))
        assert result.ok
        assert agent.inbox.reserved == ()


async def test_an_id_that_was_taken_may_be_sent_again() -> None:
    """IN-08."""
    async with Agent(ScriptedModel(says("1"), says("2"))) as agent:
        for _ in range(2):
            assert (await agent.run(person("m"))).ok
        assert_laws(agent.session)


async def test_given_ids_and_made_ids_never_meet() -> None:
    """IN-08: whatever ids a caller chooses, a message without one gets one that is free."""
    async with Agent(ScriptedModel()) as agent:
        for n in range(3, 9):
            agent.inject(person(f"m{n}"))
        made = [agent.inject("text").id for _ in range(5)]
        assert len({*made, *[f"m{n}" for n in range(3, 9)]}) == 11


async def test_an_edit_keeps_the_place_and_the_wake_and_says_whether_it_was_found() -> None:
    """IN-09."""
    async with Agent(ScriptedModel()) as agent:
        for name in ("a", "b", "c"):
            agent.send(person(name), to="turn", wake=False)
        assert agent.inbox.replace("b", "B")
        assert words(agent.inbox.next_turn) == ["a", "B", "c"]
        assert agent.inbox.replace("b", person("b2"))
        assert not agent.inbox.replace("b", "too late")
        assert agent.inbox.remove("a")
        assert not agent.inbox.remove("a")
        assert words(agent.inbox.next_turn) == ["b2", "c"]
        last = agent.session.facts(InboxSpliced)[3:5]
        assert [getattr(fact, "wake", None) for fact in last] == [False, False]


async def test_an_edit_cannot_take_the_id_of_another_message() -> None:
    """IN-08, IN-09."""
    async with Agent(ScriptedModel()) as agent:
        agent.inject(person("a"))
        agent.inject(person("b"))
        with pytest.raises(DuplicateMessage):
            agent.inbox.replace("a", person("b"))
        assert words(agent.inbox.next_step) == ["a", "b"]


async def test_a_splice_that_is_refused_changes_nothing() -> None:
    """IN-04, IN-08: a duplicate, or too many."""
    async with Agent(ScriptedModel()) as agent:
        agent.inject(person("a"))
        before = agent.session.head
        for names in (("a",), ("b", "b")):
            with pytest.raises(DuplicateMessage):
                agent.inbox.splice("next-turn", 0, 0, *[person(name) for name in names])
        with pytest.raises(InboxFull):
            agent.inbox.splice("next-step", 0, 0, *["x"] * MAX_PENDING)
        assert agent.session.head == before
        agent.inbox.splice("next-step", 0, 1, *["x"] * MAX_PENDING)
        assert len({message.id for message in agent.inbox.next_step}) == MAX_PENDING


async def test_clear_discards_next_step_before_next_turn() -> None:
    """IN-09."""
    async with Agent(ScriptedModel()) as agent:
        agent.send("t", to="turn", wake=False)
        agent.inject("s1")
        agent.inject("s2")
        agent.inbox.clear()
        assert story(agent.session) == "~+T[t] ~+S[s1] ~+S[s2] xS[s1,s2] xT[t]"
        assert len(agent.inbox) == 0


async def test_who_waits_for_an_edited_message_waits_for_the_edit() -> None:
    """IN-09, ER-05: a replacement is no drop; with a new id it is another message."""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        kept = agent.send(person("kept"), to="turn", wake=False)
        other = agent.send(person("other"), to="turn", wake=False)
        agent.inbox.replace("kept", "better")
        agent.inbox.replace("other", person("third"))
        agent.inbox.remove("third")
        agent.wake()
        assert (await kept.turn()).text == "ok"
        with pytest.raises(InputDropped) as caught:
            await other.turn()
        assert caught.value.outcome == "canceled"


# Over a restart


async def test_the_queues_are_rebuilt_from_the_log() -> None:
    """IN-10, IN-11: what was restored wakes nobody."""
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        agent.inject("m")
        agent.send("t", to="turn", wake=False)
        session_id = agent.session.id
    async with Agent(ScriptedModel(says("ok"), says("ok")), store=store, session=session_id) as agent:
        await agent.idle()
        assert (words(agent.inbox.next_step), words(agent.inbox.next_turn)) == (["m"], ["t"])
        agent.followup("p")
        await agent.idle()
        assert story(agent.session, after=3) == lines("""
            SO 2 resume +T[p]
            TS 1 CL 1.1 S[m] T[t] SS 1.1 UM m UM t AM"ok" SE 1.1 completed TE 1 completed
            TS 2 CL 2.1 T[p] SS 2.1 UM p AM"ok" SE 2.1 completed TE 2 completed
        """)
        assert_laws(agent.session)


async def test_restored_input_runs_at_the_wish_of_the_caller() -> None:
    """IN-11, UW-26: `wake` opens a turn with what was left."""
    store = MemoryStore()
    async with Agent(ScriptedModel(), store=store) as agent:
        agent.send("left", to="turn", wake=False)
        session_id = agent.session.id
    model = ScriptedModel(says("ok"))
    async with Agent(model, store=store, session=session_id) as agent:
        agent.wake()
        await agent.idle()
    assert words(tuple(model.requests[0].messages)) == ["left"]


async def test_a_wake_with_nothing_pending_does_nothing() -> None:
    async with Agent(ScriptedModel()) as agent:
        before = agent.session.head
        agent.wake()
        await agent.idle()
        assert (agent.session.head, agent.status) == (before, Status.IDLE)


async def test_a_bad_stored_splice_is_refused_with_its_seq() -> None:
    """IN-10."""
    store = MemoryStore()
    journal = await store.create("s")
    facts = (
        SessionCreated("1.0", "s"),
        SessionOpened(1, "new"),
        InboxSpliced("next-turn", 3, inserted=(person("m"),)),
    )
    journal.write([Event(seq, 0, 1, fact) for seq, fact in enumerate(facts)])
    await journal.close()
    with pytest.raises(IllegalFact) as caught:
        await open_session("s", store=store)
    assert (caught.value.seq, caught.value.law) == (2, "splice")


# When it is taken


async def test_what_is_injected_after_the_claim_joins_the_next_step() -> None:
    """IN-12: even before the request of this step is sent."""
    model = ScriptedModel(calls("look"), says("done"))
    async with Agent(model, tools=[look]) as agent:

        @agent.on.pre_step
        def inject(proposal: Proposal) -> None:
            if proposal.step == 1:
                agent.inject("late")

        await agent.run("go")
    assert "late" not in [message.text for message in model.requests[0].messages]
    assert [message.text for message in model.requests[1].messages][-1] == "late"


async def test_an_injection_at_a_would_be_stop_runs_another_step() -> None:
    """IN-13: that it wakes nobody counts only while idle."""
    async with Agent(ScriptedModel(says("1"), says("2"))) as agent:
        injected: list[Any] = []

        @agent.on.turn_stopping
        def inject(stopping: object) -> None:
            if not injected:
                injected.append(agent.inject("more"))

        await agent.run("go")
        assert story(agent.session) == lines("""
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go AM"1" SE 1.1 completed
            ~+S[more] CL 1.2 S[more] SS 1.2 UM more AM"2" SE 1.2 completed TE 1 completed
        """)


async def test_input_after_an_empty_last_claim_opens_the_next_turn() -> None:
    """IN-13, A-P18: inject-only input included."""
    async with Agent(ScriptedModel(says("1"), says("2"))) as agent:

        @agent.on.turn_stopping
        def steer(stopping: Any) -> None:
            if stopping.turn == 1:
                agent.steer("c")

        @agent.on.pre_step
        def empty(proposal: Proposal) -> Enter | None:
            if (proposal.turn, proposal.step) == (1, 2):
                agent.inject("late")
                return Enter(())
            return None

        agent.followup("go")
        await agent.idle()
        assert story(agent.session) == lines("""
            +T[go] TS 1 CL 1.1 T[go] SS 1.1 UM go AM"1" SE 1.1 completed
            +S[c] CL 1.2 S[c] ~+S[late] DM pre-step enter DROP[c] omitted TE 1 completed
            TS 2 CL 2.1 S[late] SS 2.1 UM late AM"2" SE 2.1 completed TE 2 completed
        """)
        assert_laws(agent.session)


async def test_an_injection_alone_does_not_follow_a_turn_that_was_entered_empty() -> None:
    """D-2: else a listener that empties and injects would turn for ever."""
    turns: list[int] = []
    async with Agent(ScriptedModel()) as agent:

        @agent.on.pre_step
        def empty(proposal: Proposal) -> Enter:
            turns.append(proposal.turn)
            agent.inject(f"again {proposal.turn}")
            return Enter(())

        agent.followup("go")
        await agent.idle()
        assert turns == [1]
        assert words(agent.inbox.next_step) == ["again 1"]


async def test_a_waking_verb_sets_running_and_the_claim_takes_what_is_there_when_the_drive_begins() -> None:
    """IN-14 as D-5 has it: two steers in one tick enter one step, and splices record `wake`."""
    model = ScriptedModel(says("ok"))
    async with Agent(model) as agent:
        agent.steer("a")
        assert agent.status is Status.RUNNING
        assert not agent.session.open
        agent.steer("b")
        await agent.idle()
        assert story(agent.session) == (
            '+S[a] +S[b] TS 1 CL 1.1 S[a,b] SS 1.1 UM a UM b AM"ok" SE 1.1 completed TE 1 completed'
        )
    assert len(model.requests) == 1


# Fates


async def test_what_a_pre_step_rejects_is_dropped_with_the_reason_and_the_words() -> None:
    """D-3, IN-15, UW-05."""
    async with Agent(ScriptedModel()) as agent:
        agent.on.pre_step(lambda proposal: Reject("not today"), name="doorman")
        receipt = agent.followup("go")
        with pytest.raises(InputDropped) as caught:
            await receipt.turn()
        assert (caught.value.outcome, caught.value.message_id) == ("rejected", receipt.id)
        (dropped,) = agent.session.facts(InboxDropped)
        assert (dropped.reason, dropped.by, words(dropped.messages)) == ("not today", "doorman", ["go"])
        assert len(agent.inbox) == 0


async def test_what_a_pre_step_leaves_out_is_dropped_and_the_rest_enters() -> None:
    """D-3, TL-05: an omitted message is gone, and says so."""
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.on.pre_step(lambda p: Enter(tuple(m for m in p.messages if m.text != "secret")))
        secret = agent.inject("secret")
        agent.followup("go")
        with pytest.raises(InputDropped) as caught:
            await secret.turn()
        assert caught.value.outcome == "omitted"
        assert story(agent.session) == lines("""
            ~+S[secret] +T[go] TS 1 CL 1.1 S[secret] T[go] DM pre-step enter DROP[secret] omitted
            SS 1.1 UM go AM"ok" SE 1.1 completed TE 1 completed
        """)
        assert_laws(agent.session)


async def test_after_a_pre_step_that_raises_the_message_is_back_at_the_head_of_its_queue() -> None:
    """D-3, UW-05: order and ids are kept, and a later wake takes it first."""
    async with Agent(ScriptedModel(says("1"), says("2"))) as agent:
        broken = True

        @agent.on.pre_step
        def check(proposal: Proposal) -> None:
            if broken:
                raise RuntimeError("no database")

        agent.followup(person("f1"))
        agent.followup(person("f2"))
        agent.inject(person("s1"))
        await agent.idle()
        assert words(agent.inbox.next_turn) == ["f1", "f2"]
        assert words(agent.inbox.next_step) == ["s1"]
        broken = False
        agent.wake()
        await agent.idle()
        assert story(agent.session) == lines("""
            +T[f1] +T[f2] ~+S[s1]
            TS 1 CL 1.1 S[s1] T[f1] RET 1 S[s1] T[f1] error times 1 TE 1 error{UNKNOWN}
            TS 2 CL 2.1 S[s1] T[f1] SS 2.1 UM s1 UM f1 AM"1" SE 2.1 completed TE 2 completed
            TS 3 CL 3.1 T[f2] SS 3.1 UM f2 AM"2" SE 3.1 completed TE 3 completed
        """)
        assert_laws(agent.session)


async def test_the_third_exception_on_a_message_drops_it() -> None:
    """D-3: else one bad message would stop the queue for ever."""
    async with Agent(ScriptedModel(says("ok"))) as agent:

        @agent.on.pre_step
        def check(proposal: Proposal) -> None:
            if "bad" in words(proposal.messages):
                raise RuntimeError("cannot read it")

        bad = agent.followup("bad")
        for _ in range(2):
            await agent.idle()
            assert words(agent.inbox.next_turn) == ["bad"]
            agent.wake()
        await agent.idle()
        with pytest.raises(InputDropped) as caught:
            await bad.turn()
        assert caught.value.outcome == "failed"
        assert "cannot read it" in str(caught.value)
        assert (await agent.run("good")).ok
        assert_laws(agent.session)


async def test_a_message_that_came_back_can_be_edited_and_taken_out() -> None:
    """D-3: returned is pending again, like any other."""
    async with Agent(ScriptedModel()) as agent:

        @agent.on.pre_step
        def fail(proposal: Proposal) -> None:
            raise RuntimeError("no")

        receipt = agent.followup(person("f"))
        await agent.idle()
        assert agent.inbox.replace("f", "g")
        assert agent.inbox.remove("f")
        with pytest.raises(InputDropped):
            await receipt.turn()


async def test_every_fate_is_told_to_who_waits_for_it() -> None:
    """D-3: admitted gives the turn's result, anything else says how it was dropped."""
    async with Agent(ScriptedModel(says("yes"))) as agent:
        admitted = agent.followup("a")
        assert (await admitted.turn()).text == "yes"
        canceled = agent.inject("c")
        agent.inbox.clear()
        with pytest.raises(InputDropped) as caught:
            await canceled.turn()
        assert caught.value.outcome == "canceled"


async def test_a_message_is_a_value_from_the_moment_it_is_accepted() -> None:
    """IN-15: what the caller changes afterwards changes nothing."""
    blocks: Any = [Text("as sent")]
    async with Agent(ScriptedModel(says("ok"))) as agent:
        agent.followup(Message(role="user", content=blocks, id="m"))
        blocks.append(Text("smuggled"))
        await agent.idle()
        told = agent.session.facts(UserMessage)[0]
        assert told.content == (Text("as sent"),)


# Bad input


class Odd:
    pass


BAD: dict[str, Any] = {
    "nothing": None,
    "a number": 5,
    "bytes": b"go",
    "a list": ["go"],
    "a dict that looks like one": {"role": "user", "content": "go"},
    "half a character": "\ud83d",
    "half a character in a message": Message.user("\udc00"),
    "half a character in an id": Message.user("go", id="\ud800"),
    "half a character in a source": Message.user("go", source=Source("plugin", "\ud800")),
    "an assistant's message": Message(role="assistant", content=(Text("I said"),)),
    "a tool's message": Message(role="tool", content=(Text("result"),)),
    "no content": Message(role="user", content=()),
    "a call as content": Message(role="user", content=(ToolUse("c1", "look", "{}"),)),
    "text that is no text": Message(role="user", content=(Text(5),)),  # type: ignore[arg-type]
    "an id that is no text": Message.user("go", id=7),  # type: ignore[arg-type]
    "a role that does not exist": Message(role="boss", content=(Text("go"),)),  # type: ignore[arg-type]
    "a source that does not exist": Message.user("go", source=Source("ghost")),  # type: ignore[arg-type]
    "content that is no block": Message(role="user", content=(Odd(),)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("given_", BAD.values(), ids=BAD.keys())
async def test_what_is_no_message_is_refused_and_nothing_is_changed(given_: Any) -> None:
    async with Agent(ScriptedModel()) as agent:
        before = agent.session.head
        for verb in (agent.followup, agent.steer, agent.inject):
            with pytest.raises(InvalidMessage):
                verb(given_)
        kept = agent.inject("kept")
        with pytest.raises(InvalidMessage):
            agent.inbox.replace(kept.id, given_)
        with pytest.raises(InvalidMessage):
            agent.inbox.splice("next-step", 0, 1, given_)
        assert words(agent.inbox.next_step) == ["kept"]
        assert (agent.session.head, agent.status) == (before + 1, Status.IDLE)


async def test_a_source_that_does_not_exist_is_refused() -> None:
    async with Agent(ScriptedModel()) as agent:
        for source in ("me", Source("ghost"), Source("plugin", 5)):  # type: ignore[arg-type]
            with pytest.raises(InvalidMessage):
                agent.inject("go", source=source)  # type: ignore[arg-type]
        assert len(agent.inbox) == 0


async def test_a_queue_that_does_not_exist_is_refused() -> None:
    async with Agent(ScriptedModel()) as agent:
        with pytest.raises(UsageError, match='"turn" or "step"'):
            agent.send("go", to="next", wake=True)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="next-turn"):
            agent.inbox.splice("turn", 0, 0, "go")  # type: ignore[arg-type]
        with pytest.raises(UsageError, match="wake"):
            agent.send("go", to="turn", wake="yes")  # type: ignore[arg-type]
        assert len(agent.inbox) == 0


async def test_a_message_of_ten_megabytes_is_refused_and_says_what_to_do() -> None:
    async with Agent(ScriptedModel()) as agent:
        for text in ("x" * 10_000_000, "é" * (MAX_BYTES // 2 + 1)):
            for message in (text, Message.user(text)):
                with pytest.raises(MessageTooLarge, match="file") as caught:
                    agent.followup(message)
                assert (caught.value.size, caught.value.limit) == (len(text.encode()), MAX_BYTES)
        assert len(agent.inbox) == 0


async def test_the_largest_message_is_taken() -> None:
    async with Agent(ScriptedModel(says("ok"))) as agent:
        assert (await agent.run("é" * (MAX_BYTES // 2))).ok


async def test_a_thousand_followups_fill_the_queue_and_the_rest_is_refused() -> None:
    """The queue is bounded; what was taken is run, and then there is room again."""
    async with Agent(ScriptedModel(*[says(str(n)) for n in range(MAX_PENDING + 1)], record=False)) as agent:
        taken = 0
        refused = 0
        for n in range(1000):
            try:
                agent.followup(f"{n}")
                taken += 1
            except InboxFull:
                refused += 1
        assert (taken, refused) == (MAX_PENDING, 1000 - MAX_PENDING)
        assert len(agent.inbox) == MAX_PENDING
        await agent.idle()
        assert len(agent.inbox) == 0
        assert (await agent.run("one more")).text == str(MAX_PENDING)
        assert_laws(agent.session)


# Laws


def naive_splice(queue: list[str], start: int, remove: int, new: list[str]) -> list[str]:
    at = max(len(queue) + start, 0) if start < 0 else min(start, len(queue))
    return queue[:at] + new + queue[at + max(remove, 0) :]


coordinates = st.integers(-6, 6)
edits = st.one_of(
    st.tuples(st.just("send"), st.sampled_from(["turn", "step"])),
    st.tuples(
        st.just("splice"),
        st.sampled_from(["next-turn", "next-step"]),
        coordinates,
        coordinates,
        st.integers(0, 2),
    ),
    st.tuples(st.just("remove"), st.integers(0, 12)),
    st.tuples(st.just("replace"), st.integers(0, 12)),
    st.tuples(st.just("clear")),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(edits, max_size=14))
def test_the_queues_behave_like_two_lists(program: list[tuple[Any, ...]]) -> None:
    """IN-04, IN-08, IN-09, IN-10: whatever is done while idle, live, and by replay."""

    async def main() -> None:
        store = MemoryStore()
        lists: dict[str, list[str]] = {"next-turn": [], "next-step": []}
        made = 0

        def new(n: int) -> list[str]:
            nonlocal made
            made += n
            return [f"m{i}" for i in range(made - n, made)]

        async with Agent(ScriptedModel(), store=store) as agent:
            inbox = agent.inbox
            for what, *arguments in program:
                pending = lists["next-step"] + lists["next-turn"]
                match what:
                    case "send":
                        (name,) = new(1)
                        agent.send(person(name), to=arguments[0], wake=False)
                        lists[f"next-{arguments[0]}"].append(name)
                    case "splice":
                        to, start, remove, n = arguments
                        names = new(n)
                        inbox.splice(to, start, remove, *[person(name) for name in names])
                        lists[to] = naive_splice(lists[to], start, remove, names)
                    case "remove" | "replace" if not pending:
                        assert not inbox.remove("m0")
                    case "remove":
                        name = pending[arguments[0] % len(pending)]
                        assert inbox.remove(name)
                        for queue in lists.values():
                            if name in queue:
                                queue.remove(name)
                    case "replace":
                        name = pending[arguments[0] % len(pending)]
                        (other,) = new(1)
                        assert inbox.replace(name, person(other))
                        for queue in lists.values():
                            if name in queue:
                                queue[queue.index(name)] = other
                    case _:
                        inbox.clear()
                        lists = {"next-turn": [], "next-step": []}
                assert words(inbox.next_turn) == lists["next-turn"]
                assert words(inbox.next_step) == lists["next-step"]
            assert_laws(agent.session)
            session_id = agent.session.id
        again = await open_session(session_id, store=store, readonly=True)
        assert [waiting.id for waiting in again.state.queues.next_turn] == lists["next-turn"]
        assert [waiting.id for waiting in again.state.queues.next_step] == lists["next-step"]

    run_virtual(main())


@given(st.text(max_size=200) | st.text(st.characters(), max_size=20))
@settings(deadline=None, max_examples=60)
def test_any_text_is_taken_as_it_is_or_refused(text: str) -> None:
    """A text is kept character by character; only what cannot be written as UTF-8 is refused."""

    async def main() -> None:
        async with Agent(ScriptedModel()) as agent:
            try:
                agent.inject(text)
            except InboxError:
                with pytest.raises(UnicodeEncodeError):
                    text.encode()
            else:
                assert words(agent.inbox.next_step) == [text]
                line = agent.session.events[-1]
                assert decode_event(encode_event(line)) == line

    run_virtual(main())
