"""The timeline: what each kind of line says."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from interlock.cli.timeline import Line, Timeline, show
from interlock.log.event import Event
from interlock.log.facts import (
    Advice,
    ApprovalAsked,
    ApprovalDecided,
    ApprovalLate,
    AssistantChunk,
    AssistantMessage,
    BudgetWarned,
    CallError,
    CancelRequested,
    Change,
    ContentErased,
    DecisionMade,
    Edit,
    Erased,
    Fact,
    Failure,
    GrantRevoked,
    HistoryReplaced,
    HookInvoked,
    HookProblem,
    HookResulted,
    InboxClaimed,
    InboxDropped,
    InboxReturned,
    InboxSpliced,
    MailTaken,
    ObserverFailed,
    Pending,
    PolicyChanged,
    RequestFailed,
    RequestHeader,
    RequestSent,
    RetryScheduled,
    RetryStarted,
    Said,
    SessionCreated,
    SessionOpened,
    SessionRepaired,
    Stamp,
    StepEnd,
    StepStart,
    SubcallEnd,
    SubcallStart,
    ToolAbandoned,
    ToolCalled,
    ToolDecided,
    ToolLate,
    ToolPrepared,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    TurnEnd,
    TurnStart,
    Unknown,
    Usage,
    UserMessage,
    known_facts,
)
from interlock.log.messages import PERSON, Message, Source, Text, ToolUse
from interlock.log.reasons import Aborted, Cause, Completed, Failed


def lines(*facts: Fact, step_ms: int = 10) -> list[Line]:
    """The lines for a log of these facts, one every `step_ms`, from seq 0."""
    timeline = Timeline()
    events = [Event(seq, 1_000_000 + step_ms * seq, 1, fact) for seq, fact in enumerate(facts)]
    return [line for event in events if (line := timeline.line(event)) is not None]


def said(*facts: Fact) -> list[str]:
    return [f"{line.mark} {line.subject}  {line.words}".rstrip() for line in lines(*facts)]


def ok(call: int, text: str = "fine", **more: object) -> ToolResulted:
    return ToolResulted(call, "c1", (Text(text),), **more)  # type: ignore[arg-type]  # what the test names


ASKED = ApprovalAsked("a0", 0, "read may change something", {}, "d")
READ = ToolCalled(1, 1, 0, "c1", "read", '{"path":"a.txt","limit":20}', "read")

ONE_LINE: list[tuple[Fact, list[str]]] = [
    # The session
    (SessionOpened(2, "resume", "host", 7), ["· life 2  resumed by process 7 on host"]),
    (SessionRepaired(4, "crash", (1, 2)), ["· repaired  after a crash: 2 open calls closed"]),
    (PolicyChanged("plan", approval="deny"), ["· preset  plan: tools that read run, the rest is denied"]),
    (PolicyChanged("mine"), ["· preset  mine"]),
    (GrantRevoked("Bash(make:*)", "ada"), ["· grant  Bash(make:*) is asked again, says ada"]),
    (GrantRevoked("Bash(make:*)"), ["· grant  Bash(make:*) is asked again"]),
    (
        ObserverFailed("session", "audit", "OSError: disk", 3),
        ["✗ observer  audit failed at session, line 3: OSError: disk"],
    ),
    (Erased("user/message"), ["· user/message  (erased)"]),
    (Unknown("plugin/thing", {}), ["· plugin/thing  of a kind that is not known here"]),
    # The inbox
    (
        InboxSpliced("next-step", 0, inserted=(Message.user("Stop\nthat", id="m"),)),
        ["» for the next step  person: Stop that"],
    ),
    (
        InboxSpliced("next-turn", 0, removed=2, outcome="canceled"),
        ["» for the next turn  2 messages taken back"],
    ),
    (
        InboxSpliced(
            "next-turn", 0, inserted=(Message.user("Go", id="m"),), by="ada\x1b[2J", letter=Stamp(3, 0)
        ),
        ["» for the next turn  person (ada\\x1b[2J, letter 3): Go"],
    ),
    (InboxClaimed(1, 1, (), ("m",)), []),
    (MailTaken(Stamp(4, 0), "cancel", "ada"), ["· letter 4  cancel of ada, there was nothing to do"]),
    (
        MailTaken(Stamp(5, 0), "unreadable", None, "Unreadable", "it is cut\nshort"),
        ["✗ letter 5  unreadable, refused: it is cut short"],
    ),
    (InboxReturned(1, ("a",), ("b",), "cancel"), ["» put back  2 messages (cancel)"]),
    (InboxDropped(1, ("a",), "rejected", "not now", "gate"), ["✗ dropped  1 message, rejected: not now"]),
    # The turn
    (TurnStart(3), ["─ turn 3"]),
    (TurnEnd(3, Completed(), 1), ["─ turn 3 ends  completed, 1 step"]),
    (
        TurnEnd(3, Failed("SERVER", "down"), 2, pending=Pending(1, 2)),
        ["■ turn 3 ends  error SERVER: down, 2 steps; 3 messages pending"],
    ),
    (CancelRequested(Cause("user"), grace_ms=2000), ["■ stop  by user, 2.0 s grace"]),
    (
        CancelRequested(Cause("user", "ada"), 1, letter=Stamp(6, 0)),
        ["■ stop  by ada, letter 6"],
    ),
    (CancelRequested(Cause("hook", "audit", "too far")), ["■ stop  by audit: too far"]),
    (StepStart(1, 2), ["─ step 1.2"]),
    (StepEnd(1, 2, "tools"), ["─ step 1.2 ends  tools"]),
    (
        UserMessage("m", Source("hook", "audit"), "system", (Text("Mind this."),), "context"),
        ["» hook audit  Mind this."],
    ),
    (
        DecisionMade("agent/pre-step", 0, "reject", "gate", (Said("gate", "reject", "not now"),)),
        ["· agent/pre-step  reject by gate [gate: reject: not now]"],
    ),
    (ApprovalLate("a9", "yes"), ["· approval  a later answer changed nothing: yes"]),
    (ApprovalLate("a9", "yes", "bob"), ["· approval  a later answer of bob changed nothing: yes"]),
    (BudgetWarned("turn", "steps", 8, 10), ["· budget  steps: 8 of 10 used"]),
    # The model
    (RequestHeader("initial", "openai", "gpt", {}), []),
    (RequestHeader("change", "openai", "gpt", {}), ["· request  changed: openai:gpt, 0 tools"]),
    (AssistantChunk(0, "text", text="Hel"), []),
    (
        AssistantMessage(0, (Text("Hello"), ToolUse("c1", "read", "{}")), usage=Usage(1200, 5)),
        ["◆ model  Hello → read#c1 (1,200 tokens in, 5 out)"],
    ),
    (
        AssistantMessage(0, (Text("Hel"),), interrupted=True, dropped_calls=1),
        ["◆ model  Hel (interrupted) (1 call cut off and dropped)"],
    ),
    (AssistantMessage(0, ()), ["◆ model  (no content)"]),
    (RetryScheduled("r", 0, "openai", "normal", "k", 1, 500, 5), ["· retry  1 of 5 in 500 ms"]),
    (RetryScheduled("r", 0, "openai", "always", "k", 2, 1500), ["· retry  2 in 1.5 s"]),
    (RetryStarted("r"), []),
    (
        HistoryReplaced(3, 9, (Message.user("all"),), "compaction"),
        ["· history  lines 3 to 9 replaced by 1 message: compaction"],
    ),
    # Hooks
    (HookProblem("h.json", "no such event", 3), ["✗ hook  h.json:3: no such event"]),
    (HookProblem("h.json", "no such event"), ["✗ hook  h.json: no such event"]),
    # A call that this reader has not seen
    (ToolStarted(99, "d"), []),
]


@pytest.mark.parametrize(("fact", "expected"), ONE_LINE, ids=lambda value: getattr(value, "type", ""))
def test_what_a_line_says(fact: Fact, expected: list[str]) -> None:
    assert said(fact) == expected


def test_the_session_line_says_where_and_when() -> None:
    (line,) = said(SessionCreated("1.0", "20261130-x", "/work", package="0.1.0"))
    assert line.startswith("─ session  20261130-x, 1970-01-01 ") and line.endswith(
        " in /work (interlock 0.1.0)"
    )


def test_an_erasure_says_when_and_by_whom() -> None:
    (line,) = said(ContentErased("s", "er-1", "ops", "request\n12"))
    assert line.startswith("─ erased  1970-01-01 ") and line.endswith(" by ops, receipt er-1: request 12")
    (line,) = said(ContentErased("s", "er-1", "ops"))
    assert line.endswith(" by ops, receipt er-1")


def test_a_request_is_told_with_its_model() -> None:
    header = RequestHeader("initial", "openai", "gpt", {})
    assert said(header, RequestSent(0, 1, 0, 0, 3, "d"), RequestSent(0, 2, 0, 0, 1, "d")) == [
        "· openai:gpt  is sent 3 messages",
        "· openai:gpt  is sent 1 message, attempt 2",
    ]
    assert said(header, RequestFailed(0, Failure("RATE_LIMIT", "slow\ndown"))) == [
        "✗ openai:gpt  RATE_LIMIT: slow down"
    ]


CALLS: list[tuple[list[Fact], list[str]]] = [
    (
        [READ, ToolStarted(0, "d"), ok(0)],
        ["→ read#c1  path=a.txt limit=20", "▸ read#c1  runs, allowed by default", "✓ read#c1  done: fine"],
    ),
    (
        [
            READ,
            ToolDecided(0, "policy", "allow", "rules", said=(Said("rules", "allow"),)),
            ToolStarted(0, "d"),
        ],
        [
            "→ read#c1  path=a.txt limit=20",
            "▸ read#c1  allowed by rules",
            "▸ read#c1  runs, allowed by rules",
        ],
    ),
    (
        [READ, ToolStarted(0, "d"), ToolStarted(0, "d", 2), ok(0, "a\nb\nc", settled=1_000_700)],
        [
            "→ read#c1  path=a.txt limit=20",
            "▸ read#c1  runs, allowed by default",
            "▸ read#c1  runs again (2), allowed by default",
            "✓ read#c1  done after 690 ms: 3 lines",
        ],
    ),
    (
        [
            READ,
            ToolDecided(
                0,
                "policy",
                "ask",
                "rules",
                reason="not sure",
                said=(Said("other", "allow"), Said("rules", "ask", "not sure")),
            ),
            ASKED,
            ApprovalDecided("a0", 0, "d", "allowed-once", by="ada", channel="terminal"),
            ToolDecided(0, "guard", "deny", "limit", "GUARD_DENIED", "analysis only"),
            ToolResulted(0, "c1", (Text("Error [guard_denied]: analysis only"),), CallError("GUARD_DENIED")),
        ],
        [
            "→ read#c1  path=a.txt limit=20",
            "▸ read#c1  asks a person, says rules: not sure [other: allow]",
            "? read#c1  a person is asked: read may change something",
            "? read#c1  ada (terminal) says yes, once",
            "✗ read#c1  denied by guard limit: analysis only",
            "✗ read#c1  never ran; the model reads: Error [guard_denied]: analysis only",
        ],
    ),
    (
        [READ, ASKED, ApprovalDecided("a0", 0, "d", "allowed-once", how="api"), ToolStarted(0, "d")],
        [
            "→ read#c1  path=a.txt limit=20",
            "? read#c1  a person is asked: read may change something",
            "? read#c1  a person says yes, once",
            "▸ read#c1  runs, allowed once by a person",
        ],
    ),
    (
        [READ, ApprovalDecided("a0", 0, "d", "rejected", channel="terminal", message="use b.txt")],
        ["→ read#c1  path=a.txt limit=20", "? read#c1  a person (terminal) says no: use b.txt"],
    ),
    (
        [
            READ,
            ApprovalAsked("a0", 0, "may it?", {}, "d", ("once",), 1_060_010, "preset ask"),
            ApprovalDecided("a0", 0, "d", "unavailable", message="the question has expired"),
        ],
        [
            "→ read#c1  path=a.txt limit=20",
            "? read#c1  a person is asked by preset ask: may it?; a no in 1 min 0 s",
            "? read#c1  nobody was there to answer: the question has expired",
        ],
    ),
    (
        [
            READ,
            ApprovalDecided("a0", 0, "d", "allowed-once", by="ada", edited={"path": "b.txt"}),
            ApprovalDecided("a0", 0, "d", "allowed-once", rule_written="Read(/a)", scope="session"),
            ApprovalDecided("a0", 0, "d", "allowed-once", rule_written="Read(/a)", scope="always"),
        ],
        [
            "→ read#c1  path=a.txt limit=20",
            "? read#c1  ada says yes, once, with path=b.txt",
            "? read#c1  a person says yes, for this session: Read(/a)",
            "? read#c1  a person says yes, always: Read(/a)",
        ],
    ),
    (
        [READ, ApprovalDecided("a0", 0, "d", "cancelled"), ApprovalDecided("a0", 0, "d", "unavailable")],
        [
            "→ read#c1  path=a.txt limit=20",
            "? read#c1  the question was withdrawn",
            "? read#c1  nobody was there to answer",
        ],
    ),
    (
        [
            READ,
            ToolPrepared(
                0,
                {"path": "a.txt"},
                {"path": "b.txt"},
                (Change("hooks", {"path": "a.txt"}, {"path": "b.txt"}),),
                (Advice("deny", "hooks", "odd"), Advice("allow", "other")),
            ),
        ],
        [
            "→ read#c1  path=a.txt limit=20",
            "· read#c1  rewritten by hooks: path=b.txt; hooks advises to deny: odd; other advises to allow",
        ],
    ),
    (
        [
            READ,
            ToolPrepared(0, {}, {}, said=(Said("hooks", "refuse HOOK_BLOCKED", "generated"),)),
            ToolPrepared(0, {}, {}, said=(Said("hooks", "error", "a bug"),)),
            ToolPrepared(0, {}, {}, said=(Said("hooks", "context"),)),
        ],
        [
            "→ read#c1  path=a.txt limit=20",
            "✗ read#c1  hooks refuses HOOK_BLOCKED: generated",
            "✗ read#c1  hooks failed: a bug",
        ],
    ),
    (
        [
            READ,
            ToolStarted(0, "d"),
            ToolCalled(1, 1, 1, "c2", "read", ""),
            ToolStarted(2, "d"),
            ToolSettled(2, True, ms=8),
            ToolCalled(1, 1, 2, "c3", "nope", "not json"),
            ToolSettled(5, False),
            ok(0),
            ToolSettled(2, False, ms=9),
        ],
        [
            "→ read#c1  path=a.txt limit=20",
            "▸ read#c1  runs, allowed by default",
            "→ read#c2",
            "▸ read#c2  runs, allowed by default",
            "↷ read#c2  done after 8 ms; its result waits for read#c1",
            "→ nope#c3  not json",
            "↷ nope#c3  failed; its result waits for read#c1",
            "✓ read#c1  done: fine",
            "↷ read#c2  failed after 9 ms",
        ],
    ),
    (
        [
            READ,
            ToolStarted(0, "d"),
            SubcallStart(0, "s1", "grep", {"pattern": "x y"}),
            ToolStarted(2, "d"),
            SubcallEnd(2, False, (Text("Error [denied]: no"),), CallError("DENIED", "", True)),
            SubcallStart(0, "s2", "grep", {}),
            ToolStarted(5, "d"),
            SubcallEnd(5, True, (Text("one"),)),
        ],
        [
            "→ read#c1  path=a.txt limit=20",
            "▸ read#c1  runs, allowed by default",
            '→ grep#s1  pattern="x y" (called by read#c1)',
            "▸ grep#s1  runs, allowed by default",
            "✗ grep#s1  failed after 10 ms; the model reads: Error [denied]: no",
            "→ grep#s2  (called by read#c1)",
            "▸ grep#s2  runs, allowed by default",
            "✓ grep#s2  done after 10 ms: one",
        ],
    ),
    (
        [READ, ToolStarted(0, "d"), ToolAbandoned(0, 2000, "SIGKILL"), ToolLate(0, False, "gone", 61_000)],
        [
            "→ read#c1  path=a.txt limit=20",
            "▸ read#c1  runs, allowed by default",
            "■ read#c1  given up after 2.0 s (SIGKILL)",
            "· read#c1  failed after all, after 1 min 1 s: gone",
        ],
    ),
    (
        [
            READ,
            HookInvoked("h1", "PreToolUse", "audit", 0),
            HookResulted("h1", 3, {"permission_behavior": "ask"}),
        ],
        ["→ read#c1  path=a.txt limit=20", "· hook  PreToolUse audit permission_behavior=ask"],
    ),
    (
        [
            HookInvoked("h1", "Stop", "audit"),
            HookResulted("h1", 3, {"force_continue": "go on"}, unused="once is enough"),
            HookResulted("h1", 3, error="boom"),
        ],
        [
            '· hook  Stop audit force_continue="go on" (not used: once is enough)',
            "· hook  Stop audit failed: boom",
        ],
    ),
    (
        [
            READ,
            ToolStarted(0, "d"),
            ok(
                0,
                contexts=(Message.context("x"),),
                edits=(Edit("audit", "replaced"), Edit("read", "finalised")),
                stop="audit",
            ),
        ],
        [
            "→ read#c1  path=a.txt limit=20",
            "▸ read#c1  runs, allowed by default",
            "✓ read#c1  done: fine (replaced by audit, finalised by read, with 1 note for the model, "
            "the turn is ended by audit)",
        ],
    ),
    (
        [
            ToolCalled(1, 1, 0, "c1", "read", "{}", synthetic=True),
            ToolResulted(0, "c1", (Text("Error [aborted]: x"),), CallError("ABORTED")),
        ],
        ["✗ read#c1  never ran; the model reads: Error [aborted]: x"],
    ),
]


@pytest.mark.parametrize(("facts", "expected"), CALLS)
def test_the_life_of_a_call(facts: list[Fact], expected: list[str]) -> None:
    assert said(*facts) == expected


def test_every_kind_of_fact_was_shown_here() -> None:
    tried = {type(fact) for fact, _ in ONE_LINE} | {type(fact) for facts, _ in CALLS for fact in facts}
    assert {cls for cls in known_facts().values() if cls.__module__ == "interlock.log.facts"} - tried == {
        SessionCreated, ContentErased, RequestSent, RequestFailed,
    }  # fmt: skip


def test_time_and_depth() -> None:
    made = lines(TurnStart(1), StepStart(1, 1), READ, StepEnd(1, 1, "tools"), TurnEnd(1, Completed(), 1))
    assert [(line.seq, line.ms, line.depth) for line in made] == [
        (0, 0, 0), (1, 10, 1), (2, 20, 2), (3, 30, 1), (4, 40, 0),
    ]  # fmt: skip


def test_a_long_id_is_shortened_and_a_foreign_name_made_harmless() -> None:
    (line,) = said(ToolCalled(1, 1, 0, "call_saBlw5b758KXj7MP", "re\x1bad", "{}"))
    assert line == "→ re\\x1bad#…j7MP"


def test_long_texts_are_cut() -> None:
    (message,) = lines(UserMessage("m", PERSON, "user", (Text("word " * 1000),)))
    assert len(message.words) == 400 and message.words.endswith("…")


def test_a_stopped_turn_is_marked() -> None:
    (line,) = said(TurnEnd(1, Aborted(Cause("user")), 1))
    assert line == "■ turn 1 ends  aborted (user), 1 step"


def test_without_a_terminal_a_line_is_a_line() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=40)
    show(console, lines(UserMessage("m", PERSON, "user", (Text("word " * 30),)))[0])
    assert stream.getvalue() == f"    0     0.000  » person  {'word ' * 29}word\n"


def test_on_a_terminal_long_words_are_folded_below_themselves() -> None:
    stream = io.StringIO()
    console = Console(file=stream, width=40, force_terminal=True, color_system=None)
    show(console, lines(TurnStart(1), UserMessage("m", PERSON, "user", (Text("word " * 8),)))[1])
    assert [line.rstrip() for line in stream.getvalue().splitlines()] == [
        "    1     0.010   » person  word word",
        "                  word word word word",
        "                  word word",
    ]
