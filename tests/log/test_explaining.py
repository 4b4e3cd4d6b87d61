"""Why a call did or did not run, read from nothing but its log."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import (
    Accept,
    Advise,
    Agent,
    Allow,
    ApprovalRequest,
    Approved,
    Ask,
    Block,
    Budget,
    Deny,
    HookResult,
    Refuse,
    Rejected,
    Replace,
    Rewrite,
    ToolCall,
    ToolContext,
    ToolError,
    ToolResult,
    tool,
    tool_error,
)
from interlock.log.event import Event
from interlock.log.explaining import differences, explain
from interlock.log.explanation import Difference, Explained, Link, Stage
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalLate,
    PolicyChanged,
    Said,
    ToolCalled,
    ToolDecided,
    ToolResulted,
    ToolStarted,
)
from interlock.testing import ScriptedModel, call, calls, says

from .fact_strategies import logs
from .lawful_logs import ANSWERED, CALLED, DONE, NESTED, STARTED, ask, called, result, written


@tool
async def send(to: str, text: str = "hi") -> str:
    return f"sent to {to}"


@tool(effect="read")
async def look(at: str = "") -> str:
    if at == "nothing":
        raise ToolError("there is nothing there", code="empty")
    return f"saw {at}"


@tool
async def both(ctx: ToolContext, to: str) -> str:
    seen = await ctx.call_tool("look", at=to)
    ctx.defer("it was looked at first")
    await ctx.call_tool("send", to=to)
    return seen.text


def agent_of(*wanted: Any, **more: Any) -> Agent:
    return Agent(ScriptedModel(calls(*wanted), says("done")), tools=[send, look, both], **more)


async def explained(agent: Agent) -> list[Explained]:
    async with agent:
        await agent.run("go")
    return explain(agent.session.events)


def chain(one: Explained) -> list[tuple[Stage, str, str]]:
    """The links in which somebody said something."""
    return [(link.stage, link.who, link.answer) for link in one.chain if link.who]


def won(one: Explained) -> Link:
    return next(link for link in reversed(one.chain) if link.won)


# The record of every participant


async def test_everybody_who_said_something_is_in_the_chain_in_order() -> None:
    async def ada(request: ApprovalRequest) -> Approved:
        return Approved()

    agent = agent_of(call("send", to="ada"), approver=ada)
    agent.on.prepare(lambda call: Rewrite(call.with_arguments(text="hello").arguments), name="polite")
    agent.on.prepare(lambda call: Advise(Allow()), name="adviser")
    agent.on.prepare(lambda call: Advise(contexts=["by the way"]), name="teller")
    agent.on.prepare(lambda call: None, name="silent")
    agent.on.pre_execute(lambda call: Ask("sure?"), name="careful")
    agent.on.execute(lambda call, following: following(), name="outer")
    agent.on.execute(lambda call, following: following(), name="inner")
    agent.on.post_execute(lambda call, result: Accept(), name="content")
    agent.on.post_execute(lambda call, result: Replace(content="sent"), name="short")
    (one,) = await explained(agent)
    assert chain(one) == [
        ("call", "the model", "asked"),
        ("prepare", "polite", "rewrite"),
        ("prepare", "adviser", "advise allow"),
        ("prepare", "teller", "context"),
        ("policy", "adviser", "advise allow"),
        ("policy", "careful", "ask"),
        ("approval", "careful", "a person is asked"),
        ("around", "outer", "passed"),
        ("around", "inner", "passed"),
        ("body", "send", "started"),
        ("body", "send", "done"),
        ("post", "content", "accept"),
        ("post", "short", "replace"),
        ("context", "plugin teller", "told with step 1.2"),
    ]
    assert (one.asked, one.effective) == ({"to": "ada"}, {"to": "ada", "text": "hello"})
    rewrite = one.chain[2]
    assert rewrite.changes == (Difference("text", msgspec.UNSET, "hello"),)
    assert (one.fate, one.code, one.runs, one.text) == ("ran", None, 1, "sent")
    assert one.started is not None and one.settled is not None and one.committed is not None


async def test_the_time_of_a_wrapper_is_without_what_it_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock moves by a millisecond in the body and by a microsecond or two in the wrappers."""
    clock = [0]
    monkeypatch.setattr("interlock.tools.execution.perf_counter_ns", lambda: clock[0])

    @tool
    async def slow() -> str:
        clock[0] += 1_000_000
        return "done"

    def spends(us: int) -> Callable[..., Any]:
        async def wrapper(call: ToolCall, following: Any) -> ToolResult:
            clock[0] += us * 1000
            made: ToolResult = await following()
            clock[0] += us * 1000
            return made

        return wrapper

    agent = Agent(ScriptedModel(calls("slow"), says("done")), tools=[slow])
    agent.on.execute(spends(1), name="outer")
    agent.on.execute(spends(2), name="inner")
    (one,) = await explained(agent)
    assert [(link.who, link.us) for link in one.chain if link.stage == "around"] == [
        ("outer", 2),
        ("inner", 4),
    ]


# The last word, one test a way to end


Setting = Callable[[Agent], object]


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        (lambda a: None, "It ran: nobody spoke about it, and no preset is chosen, which allows it."),
        (lambda a: a.on.pre_execute(lambda c: Allow(), name="boss"), "It ran: allowed by boss."),
        (
            lambda a: a.on.post_execute(lambda c, r: Replace(content="x"), name="censor"),
            "It ran: nobody spoke about it, and no preset is chosen, which allows it; "
            "censor changed what the model reads.",
        ),
        (
            lambda a: a.on.execute(_instead, name="cache"),
            "It ran: nobody spoke about it, and no preset is chosen, which allows it; cache answered in its place.",
        ),
        (
            lambda a: a.on.execute(_another, name="polish"),
            "It ran: nobody spoke about it, and no preset is chosen, which allows it; polish gave another result.",
        ),
        (
            lambda a: a.on.post_execute(lambda c, r: Block("secret"), name="censor"),
            "It ran and failed: censor withheld its result: secret.",
        ),
        (
            lambda a: a.on.post_execute(_raise, name="censor"),
            "It ran and failed: its result is withheld, because censor failed: a bug.",
        ),
        (
            lambda a: a.on.prepare(lambda c: Refuse(ToolError("not that", code="odd")), name="fixer"),
            "It did not run: refused by fixer: not that.",
        ),
        (
            lambda a: a.on.prepare(_raise, name="fixer"),
            "It did not run: fixer failed, and what fails means no: a bug.",
        ),
        (
            lambda a: a.on.prepare(lambda c: Rewrite({"to": 3}), name="fixer"),
            "It did not run: fixer failed, and what fails means no: rewrote the arguments of send",
        ),
        (
            lambda a: a.on.prepare(lambda c: Advise(Deny("no")), name="hint"),
            "It did not run: denied by hint: no.",
        ),
        (
            lambda a: a.on.pre_execute(lambda c: Deny("no mail"), name="boss"),
            "It did not run: denied by boss: no mail.",
        ),
        (
            lambda a: a.on.pre_execute(_raise, name="boss"),
            "It did not run: boss failed, and what fails means no: a bug.",
        ),
        (
            lambda a: a.guard(lambda c: Deny("locked"), name="lock"),
            "It did not run: denied by guard lock: locked.",
        ),
        (
            lambda a: a.guard(_raise, name="lock"),
            "It did not run: lock failed, and what fails means no: a bug.",
        ),
        (
            lambda a: a.on.pre_execute(lambda c: Ask("sure?"), name="boss"),
            "It did not run: boss had a person asked, and nobody answered.",
        ),
        (
            lambda a: a.hooks.register(
                "PreToolUse",
                lambda c: HookResult(blocking_error=tool_error("x", "generated")),
                name="managed",
            ),
            "It did not run: refused by hook managed: generated.",
        ),
        (
            lambda a: a.on.execute(_raise, name="wrap"),
            "It did not run: wrap failed, and what fails means no: a bug.",
        ),
    ],
)
async def test_the_last_word_says_whether_it_ran_and_because_of_whom(setting: Setting, word: str) -> None:
    agent = agent_of(call("send", to="ada"))
    setting(agent)
    (one,) = await explained(agent)
    assert one.word[: len(word)] == word
    assert one.word.startswith("It ran") == (one.fate in ("ran", "failed"))


def _raise(*_: object) -> None:
    raise ValueError("a bug")


async def _instead(call: ToolCall, following: Any) -> ToolResult:
    return ToolResult(call=call, content=(), value="from the cache")


async def _another(call: ToolCall, following: Any) -> ToolResult:
    await following()
    return ToolResult(call=call, content=(), value="better")


@pytest.mark.parametrize(
    ("preset", "approver", "word"),
    [
        ("full", None, "It ran: nobody spoke about it, and preset full allows it."),
        ("plan", None, "It did not run: denied by preset plan, since nobody else spoke about it."),
        ("ask", None, "It did not run: preset ask had a person asked, and nobody answered."),
        ("ask", Approved(), "It ran: allowed once by ada (api, mail); preset ask had it asked."),
        ("ask", Rejected("tomorrow"), "It did not run: ada (api, mail) said no: tomorrow."),
        ("ask", Rejected(), "It did not run: ada (api, mail) said no."),
    ],
)
async def test_the_default_of_the_preset_in_force_is_named(preset: str, approver: Any, word: str) -> None:
    class Ada:
        how, channel, principal = "api", "mail", "ada"

        async def __call__(self, request: ApprovalRequest, /) -> Any:
            return approver

    agent = agent_of(call("send", to="ada"), preset=preset, approver=Ada() if approver is not None else None)
    (one,) = await explained(agent)
    assert one.word == word
    assert [link.who for link in one.chain if link.stage == "default"] == [f"preset {preset}"]


async def test_what_a_person_edited_and_what_was_decided_about_are_both_there() -> None:
    async def edits(request: ApprovalRequest) -> Approved:
        return Approved(arguments={"to": "bob", "text": "hi"})

    agent = agent_of(call("send", to="ada"), preset="ask", approver=edits)
    (one,) = await explained(agent)
    assert (one.asked, one.sealed, one.effective) == (
        {"to": "ada"},
        {"to": "ada"},
        {"to": "bob", "text": "hi"},
    )
    (answer,) = [link for link in one.chain if link.stage == "approval" and link.won]
    assert answer.changes == (Difference("to", "ada", "bob"), Difference("text", msgspec.UNSET, "hi"))
    assert "with other arguments; preset ask had it asked" in one.word


def test_a_rule_that_came_with_a_yes_and_an_answer_that_came_too_late() -> None:
    yes = ApprovalDecided(
        "a", 9, "digest", "allowed-once", by="ada", rule_written="Read(/a)", scope="session"
    )
    one = explain(written((*CALLED, ask(9), yes, ApprovalLate("a", "rejected", "bob"))))[0]
    assert one.word.startswith("It has not run yet: allowed once by ada, and remembered as Read(/a)")
    assert one.chain[-2].detail["rule_written"] == "Read(/a)"
    late = one.chain[-1]
    assert (late.who, late.answer, late.reason, late.won) == (
        "bob", "a late answer: rejected", "it changed nothing", False,
    )  # fmt: skip


def test_a_start_says_which_run_it_is_and_in_which_sandbox() -> None:
    started = ToolStarted(9, "digest", 1, sandbox="read-only")
    one = explain(written((*CALLED, started, ToolStarted(9, "digest", 2))))[0]
    assert [link.detail for link in one.chain if link.stage == "body"] == [
        {"run": 1, "sandbox": "read-only"},
        {"run": 2},
    ]
    assert one.runs == 2


async def test_advice_to_allow_leaves_the_word_to_the_default() -> None:
    agent = agent_of(call("send", to="ada"), preset="plan")
    agent.on.prepare(lambda call: Advise(Allow()), name="hint")
    (one,) = await explained(agent)
    assert one.word == "It did not run: denied by preset plan, since nobody else spoke about it."
    assert [
        (link.who, link.answer, link.won) for link in one.chain if link.stage in ("policy", "default")
    ] == [
        ("hint", "advise allow", False),
        ("preset plan", "deny", True),
    ]


@pytest.mark.parametrize(
    ("wanted", "word"),
    [
        (call("phone"), "It did not run: there is no tool named 'phone'. Tools: both, look, send."),
        (call("send", to=1), "It did not run: to: "),
        (call("look", at="nothing"), "It ran and failed: EMPTY: there is nothing there."),
    ],
)
async def test_calls_that_fail_by_themselves(wanted: Any, word: str) -> None:
    (one,) = await explained(agent_of(wanted))
    assert one.word.startswith(word)
    assert one.chain[1].answer in ("unknown tool", "invalid arguments", "known")


async def test_nested_calls_are_beneath_their_outer_call() -> None:
    agent = agent_of(call("both", to="ada"))
    agent.guard(lambda call: Deny("locked") if call.name == "send" else None, name="lock")
    agent.on.execute(lambda call, following: following(), name="wrap")
    agent.on.post_execute(
        lambda call, result: Replace(content="…") if call.name == "look" else None, name="red"
    )
    (one,) = await explained(agent)
    looked, sent = one.nested
    assert [one.fate, looked.fate, sent.fate] == ["failed", "ran", "refused"]
    assert looked.word.endswith("; red changed what the model reads.")
    assert sent.word == "It did not run: denied by guard lock: locked."
    assert sent.chain[0].who == "both"
    assert ("around", "wrap", "passed") in chain(looked)
    assert [done.call for done in one.everyone()] == [one.call, looked.call, sent.call]


async def test_what_the_end_of_a_turn_left_unstarted() -> None:
    agent = agent_of(
        call("send", to="a"), call("send", to="b"), call("send", to="c"), budget=Budget(tool_calls=1)
    )
    ran, second, third = await explained(agent)
    assert ran.fate == "ran"
    assert second.word == third.word == "It did not run: the budget was spent before it could start."


async def test_a_turn_that_was_stopped_says_by_whom() -> None:
    agent = agent_of(call("send", to="a"), call("send", to="b"))
    agent.on.result(lambda call, result: agent.cancel("user") if call and call.id == "c1" else None)
    first, second = await explained(agent)
    assert first.fate == "ran"
    assert second.word == "It did not run: the turn was stopped before it could start (aborted (user))."
    assert second.chain[0].answer.startswith("asked; ")


async def test_a_hook_that_ends_the_turn_is_on_the_result_that_it_ended() -> None:
    agent = agent_of(call("send", to="a"), call("send", to="b"))
    agent.on.post_execute(lambda call, result: Accept(stop=True), name="enough")
    first, second = await explained(agent)
    assert [(link.who, link.answer) for link in first.chain if link.stage == "commit"] == [
        ("enough", "committed, and the turn ends after this batch")
    ]
    assert second.word == "It did not run: the review of an earlier call had ended the turn."


async def test_hooks_are_links_of_their_call() -> None:
    agent = agent_of(call("send", to="a"))
    agent.hooks.register(
        "PreToolUse", lambda c: HookResult(updated_input=c.call.with_arguments(to="b")), name="fix"
    )
    agent.hooks.register("PostToolUse", lambda c: HookResult(additional_context="ok"), name="note")
    (one,) = await explained(agent)
    hooks = [link for link in one.chain if link.stage == "hook"]
    assert [(link.who, link.detail["event"], link.answer) for link in hooks] == [
        ("fix", "PreToolUse", "answered"),
        ("note", "PostToolUse", "answered"),
    ]
    assert hooks[0].detail["said"] == {"updated_input": {"to": "b"}}


async def test_an_observer_that_failed_is_a_note() -> None:
    agent = agent_of(call("send", to="a"))
    agent.on.result(_raise, name="counter")
    (one,) = await explained(agent)
    assert [(link.who, link.answer, link.reason) for link in one.chain if link.stage == "note"] == [
        ("counter", "failed at tools/result", "a bug")
    ]


# Logs that were cut


RULE = Said("rules", "deny", None, "Bash(git push:*)", ".claude/settings.json", 7, 12)


@pytest.mark.parametrize(
    ("facts", "fates", "word"),
    [
        (ANSWERED, ["unreached", "unreached"], "It has not run: nothing has looked at it yet."),
        (CALLED, ["deciding", "unreached"], "It has not run: nobody has decided yet."),
        ((*CALLED, ask(9)), ["waiting", "unreached"], "It has not run: it waits for a person: may it?."),
        (STARTED, ["running", "unreached"], "It was started, and the log does not say yet how it ended: "),
        (DONE, ["refused", "refused"], "It did not run: "),
        (
            (*CALLED, ToolDecided(9, "policy", "deny", "rules", "DENIED", "no", (RULE,)), result(9, "c1")),
            ["refused", "unreached"],
            "It did not run: denied by rule Bash(git push:*) in .claude/settings.json:7.",
        ),
        (
            (*STARTED, result(9, "c1", "TOOL_OUTCOME_UNKNOWN")),
            ["unknown", "unreached"],
            "It was started, and whether it finished is not known: nobody waited any longer.",
        ),
    ],
)
def test_a_log_that_ends_anywhere_is_explained(facts: Any, fates: list[str], word: str) -> None:
    told = explain(written(facts))
    assert [one.fate for one in told] == fates
    assert told[0].word.startswith(word)


async def test_what_a_crash_cut_is_said_to_be_cut(crashed: Callable[[Any], Any]) -> None:
    started = explain((await crashed(STARTED)).events)
    assert [one.word for one in started] == [
        "It was started, and whether it finished is not known: a crash cut it.",
        "It did not run: the process ended before it could start.",
    ]
    nested = explain((await crashed(NESTED)).events)[0].nested[0]
    assert nested.word == "It did not run: the process ended before it could start."


@pytest.fixture
def crashed() -> Callable[[Any], Any]:
    """Opens a log that ends with these facts, as a new life does: what was open is repaired."""
    from interlock.log.session import open_session
    from interlock.log.stores.memory.store import MemoryStore

    async def opened(facts: Any) -> Any:
        store = MemoryStore()
        journal = await store.create("s")
        journal.write(written(facts))
        await journal.close()
        return await open_session("s", store=store)

    return opened


def test_the_preset_that_counts_is_the_one_in_force_at_that_moment() -> None:
    allowed = (PolicyChanged("full", "full"), called(0), *STARTED[-1:])
    facts = (*ANSWERED, *allowed[:1], called(0), msgspec.structs.replace(STARTED[-1], call=10))
    one = explain(written((*facts, PolicyChanged("plan", "read-only"))))[0]
    assert [(link.who, link.detail) for link in one.chain if link.stage == "default"] == [
        ("preset full", {"sandbox": "full"})
    ]


# Laws


@given(logs())
def test_no_log_is_too_strange(events: list[Event]) -> None:
    """Lines of any content in any order: every call has one explanation, with a word, that can be written down."""
    told = [one for outer in explain(events) for one in outer.everyone()]
    assert len({one.call for one in told if one.call is not None}) == sum(
        one.call is not None for one in told
    )
    for one in told:
        assert one.word.startswith("It ") and one.word.endswith(".") and "\n" not in one.word
        assert one.fate == "unreached" or one.chain
        stored = msgspec.json.encode(one)
        assert msgspec.json.encode(msgspec.json.decode(stored, type=Explained)) == stored


arguments = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 3) | st.text(max_size=2))


@given(arguments, arguments)
def test_the_differences_lead_from_one_to_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    made = dict(before)
    for change in differences(before, after):
        assert made.get(change.name, msgspec.UNSET) == change.before != change.after
        if change.after is msgspec.UNSET:
            del made[change.name]
        else:
            made[change.name] = change.after
    assert made == after


def test_a_log_of_an_earlier_format_has_what_it_recorded() -> None:
    from interlock.log.facts import Advice, Change, ToolPrepared

    prepared = ToolPrepared(
        9, {"a": 1}, {"a": 2}, (Change("x", {"a": 1}, {"a": 2}),), (Advice("ask", "y", "hm"),)
    )
    one = explain(written((*CALLED, prepared)))[0]
    assert [(link.who, link.answer) for link in one.chain if link.stage == "prepare"] == [
        ("x", "rewrite"),
        ("y", "advise ask"),
    ]
    assert one.effective == {"a": 2}


def test_every_result_of_a_run_is_explained_once() -> None:
    events = written(DONE)
    told = explain(events)
    assert [one.call for one in told] == [event.seq for event in events if isinstance(event.fact, ToolCalled)]
    assert [one.committed for one in told] == [e.time for e in events if isinstance(e.fact, ToolResulted)]
    assert not any(isinstance(event.fact, ApprovalAsked) for event in events)
