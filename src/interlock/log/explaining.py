"""From the lines of a log to an explanation of every call.

Lives here: `explain` and `Reading`, the fold under it. It reads any log, also one that is still being written, one of an
earlier format and one that breaks a law, and knows nothing but its lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from interlock.log.event import Event, decode_json
from interlock.log.explanation import Difference, Explained, Fate, Link, Stage
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalLate,
    AssistantMessage,
    CallError,
    DecisionMade,
    Edit,
    HookInvoked,
    HookResulted,
    ObserverFailed,
    PolicyChanged,
    Said,
    SessionRepaired,
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
    UserMessage,
)
from interlock.log.last_word import last_word
from interlock.log.messages import Message, ToolUse
from interlock.log.reasons import (
    ABORTED_BEFORE_DISPATCH,
    BUDGET_EXHAUSTED,
    DENIED,
    HOOK_STOPPED_CONTINUATION,
    INVALID_ARGS,
    TOOL_NOT_STARTED,
    TOOL_OUTCOME_UNKNOWN,
    UNKNOWN_TOOL,
    EndReason,
)

_SKIPPED = (ABORTED_BEFORE_DISPATCH, BUDGET_EXHAUSTED, HOOK_STOPPED_CONTINUATION, TOOL_NOT_STARTED)
_INVALID = {UNKNOWN_TOOL: "unknown tool", INVALID_ARGS: "invalid arguments"}
_DEFAULTS: tuple[Stage, ...] = ("policy", "default")
_NO_PRESET = {"default": "no preset"}  # who decides, as it is on record, where no preset was chosen


def explain(events: Iterable[Event]) -> list[Explained]:
    """Every call of the model, in order, nested calls beneath their outer one.

    Args:
        events: the lines of one session from its first, since the preset in force is found on the way.
    """
    reading = Reading()
    for event in events:
        reading.see(event)
    return reading.calls()


class Reading:
    """The fold. `calls` may be asked for at any time."""

    def __init__(self) -> None:
        self._calls: list[Explained] = []  # the model's
        self._by_key: dict[int, Explained] = {}
        self._expected: list[Explained] = []  # calls of the last answer that nothing has looked at
        self._step = (0, 0)
        self._preset: PolicyChanged | None = None
        self._asked: dict[str, tuple[Explained, Link]] = {}  # by approval id
        self._hooks: dict[str, Link] = {}
        self._contexts: dict[str, Link] = {}  # by message id
        self._ends: dict[int, EndReason] = {}  # of turns
        self._crashed: set[int] = set()  # calls that a repair closed

    def calls(self) -> list[Explained]:
        """All so far, each with its last word."""
        for outer in self._calls:
            for call in outer.everyone():
                call.word = last_word(call, self._ends.get(call.turn), crashed=outer.call in self._crashed)
        return self._calls

    def see(self, event: Event) -> None:
        """Take in the next line."""
        fact = event.fact
        match fact:
            case PolicyChanged():
                self._preset = fact
            case StepStart(turn=turn, step=step):
                self._step = turn, step
                self._expected = []
            case TurnEnd(turn=turn, reason=reason):
                self._ends[turn] = reason
            case AssistantMessage(blocks=blocks):
                self._expect([block for block in blocks if isinstance(block, ToolUse)])
            case ToolCalled():
                self._called(event, fact)
            case SubcallStart():
                self._called_by_a_tool(event, fact)
            case UserMessage(id=id_) if id_ in self._contexts:
                self._contexts[id_].answer = f"told with step {self._step[0]}.{self._step[1]}"
            case DecisionMade(dropped=dropped, by=by):
                for id_ in dropped:
                    if id_ in self._contexts:
                        self._contexts[id_].answer = f"dropped by {by}"
            case HookResulted(hook_id=id_) if id_ in self._hooks:
                _hook_said(self._hooks[id_], fact)
            case ApprovalLate(approval_id=id_, answer=answer, by=by) if id_ in self._asked:
                self._asked[id_][0].chain.append(
                    _link(
                        "approval", event, by or "somebody", f"a late answer: {answer}", "it changed nothing"
                    )
                )
            case SessionRepaired(closed=closed):
                self._crashed.update(closed)
            case ObserverFailed(at=at, point=point, who=who, error=error) if at in self._by_key:
                self._by_key[at].chain.append(_link("note", event, who, f"failed at {point}", error))
            case _:
                key = fact.start if isinstance(fact, SubcallEnd) else getattr(fact, "call", None)
                if isinstance(key, int) and key in self._by_key:
                    self._of_call(event, self._by_key[key])

    # Calls that begin

    def _expect(self, uses: list[ToolUse]) -> None:
        turn, step = self._step
        self._expected = [
            Explained(
                id=use.id, name=use.name, turn=turn, step=step, index=index, asked=_object(use.arguments)
            )
            for index, use in enumerate(uses)
        ]
        self._calls += self._expected

    def _called(self, event: Event, fact: ToolCalled) -> None:
        call = next((one for one in self._expected if one.index == fact.index and one.call is None), None)
        if call is None:  # a log whose beginning is missing, or that breaks a law
            call = Explained(
                id=fact.call_id, name=fact.name, turn=fact.turn, step=fact.step, index=fact.index
            )
            self._calls.append(call)
        call.id, call.name, call.asked = fact.call_id, fact.name, _object(fact.arguments)
        self._begin(event, call, "the model")
        if fact.synthetic:
            call.chain[-1].answer = "asked; it was written down only to be answered, and nothing looked at it"
        elif fact.effect is not None:
            call.chain.append(_link("lookup", event, "", "known", detail={"effect": fact.effect}))

    def _called_by_a_tool(self, event: Event, fact: SubcallStart) -> None:
        outer = self._by_key.get(fact.outer)
        call = Explained(
            id=fact.id,
            name=fact.name,
            turn=outer.turn if outer is not None else self._step[0],
            step=outer.step if outer is not None else self._step[1],
            index=len(outer.nested) if outer is not None else 0,
            asked=fact.arguments,
        )
        (outer.nested if outer is not None else self._calls).append(call)
        self._begin(event, call, outer.name if outer is not None else "a tool")
        if fact.effect is not None:
            call.chain.append(_link("lookup", event, "", "known", detail={"effect": fact.effect}))

    def _begin(self, event: Event, call: Explained, who: str) -> None:
        call.call, call.fate = event.seq, "deciding"
        self._by_key[event.seq] = call
        call.chain.append(_link("call", event, who, "asked"))

    # What is said of them

    def _of_call(self, event: Event, call: Explained) -> None:
        fact = event.fact
        if self._preset is not None and not any(link.stage in _DEFAULTS for link in call.chain):
            call.preset, call.approval = self._preset.preset, self._preset.approval
        match fact:
            case HookInvoked(hook_id=id_, event=name, who=who):
                link = _link("hook", event, who, "has not answered", detail={"event": name})
                link.file = fact.file
                if fact.dialect is not None:
                    link.detail["dialect"] = fact.dialect
                self._hooks[id_] = link
                call.chain.append(link)
            case ToolPrepared():
                self._prepared(event, call, fact)
            case ToolDecided():
                self._decided(event, call, fact)
            case ApprovalAsked():
                self._asking(event, call, fact)
            case ApprovalDecided():
                self._answered(event, call, fact)
            case ToolStarted():
                self._default(event, call, "allow")
                call.fate, call.runs = "running", fact.run
                call.started = call.started or event.time
                detail: dict[str, Any] = {"run": fact.run}
                if fact.sandbox is not None:
                    detail["sandbox"] = fact.sandbox
                if fact.claims is not None:
                    detail["claims"] = {"reads": fact.claims.reads, "writes": fact.claims.writes}
                call.chain.append(_link("body", event, call.name, "started", detail=detail))
            case ToolSettled(ok=ok, ms=ms, error=error):
                call.fate, call.settled = "settled", event.time
                if call.runs:
                    call.chain.append(_link("body", event, call.name, _ended(ok, error), us=ms * 1000))
            case ToolResulted(contexts=contexts):
                self._resulted(event, call, fact, fact.started)
                self._say(event, call, contexts)
            case SubcallEnd(contexts=contexts):
                self._resulted(event, call, fact, None)
                self._say(event, call, contexts)
            case ToolAbandoned(after_ms=after, how=how):
                call.chain.append(_link("body", event, call.name, f"given up on ({how})", us=after * 1000))
            case ToolLate(ok=ok, summary=summary, ms=ms):
                answer = f"{'done' if ok else 'failed'} after all"
                call.chain.append(_link("note", event, call.name, answer, summary, us=ms * 1000))
            case _:
                pass

    def _prepared(self, event: Event, call: Explained, fact: ToolPrepared) -> None:
        if fact.effective != fact.original:
            call.effective = fact.effective
        changes = list(fact.changes)
        if not fact.said:  # before format 1.1 only these were on record
            for change in changes:
                link = _link("prepare", event, change.who, "rewrite")
                link.changes = differences(change.before, change.after)
                call.chain.append(link)
            for advice in fact.advice:
                call.chain.append(
                    _link("prepare", event, advice.who, f"advise {advice.verdict}", advice.reason)
                )
        for said in fact.said:
            link = _of_said("prepare", event, said)
            link.won = said.answer.startswith(("refuse", "error"))
            if said.answer.startswith("rewrite") and changes:
                change = changes.pop(0)
                link.changes = differences(change.before, change.after)
            call.chain.append(link)

    def _decided(self, event: Event, call: Explained, fact: ToolDecided) -> None:
        stage: Stage = fact.stage
        winner = None
        for said in fact.said:
            link = _of_said(stage, event, said)
            if winner is None and said.who == fact.by and _speaks(said.answer, fact.verdict):
                winner = link
            call.chain.append(link)
        if winner is None:  # advice to allow overrules nobody: the default has spoken
            nobody: Stage = "default" if stage == "policy" else stage
            winner = _link(nobody, event, _NO_PRESET.get(fact.by, fact.by), fact.verdict, fact.reason)
            call.chain.append(winner)
        winner.won = True
        if fact.code is not None:
            winner.detail = {"code": fact.code}

    def _default(
        self, event: Event, call: Explained, verdict: str, who: str = "", why: str | None = None
    ) -> None:
        """Nobody spoke: the preset in force did, or there was none."""
        if any(link.stage in _DEFAULTS for link in call.chain):
            return
        preset = self._preset
        named = f"preset {preset.preset}" if preset is not None else _NO_PRESET["default"]
        link = _link("default", event, who or named, verdict, why)
        if preset is not None and preset.sandbox is not None:
            link.detail = {"sandbox": preset.sandbox}
        link.won = True
        call.chain.append(link)

    def _asking(self, event: Event, call: Explained, fact: ApprovalAsked) -> None:
        self._default(event, call, "ask", fact.by, fact.question)
        detail: dict[str, Any] = {"options": fact.options, "digest": fact.digest}
        if fact.expires is not None:
            detail["expires"] = fact.expires
        link = _link("approval", event, fact.by, "a person is asked", fact.question, detail=detail)
        call.fate = "waiting"
        call.chain.append(link)
        self._asked[fact.approval_id] = call, link

    def _answered(self, event: Event, call: Explained, fact: ApprovalDecided) -> None:
        _, asked = self._asked.get(fact.approval_id, (call, None))
        detail: dict[str, Any] = {"digest": fact.digest}
        for name in ("how", "channel", "rule_written", "scope"):
            if (value := getattr(fact, name)) is not None:
                detail[name] = value
        link = _link("approval", event, fact.by or "", fact.outcome, fact.message, detail=detail)
        if asked is not None:
            link.us = 1000 * (event.time - asked.time)
        if fact.edited is not None:
            before = call.asked if call.effective is None else call.effective
            link.changes = differences(before, fact.edited)
            call.sealed, call.effective = before, fact.edited
        link.won = True
        call.fate = "deciding"
        call.chain.append(link)

    # How they end

    def _resulted(
        self, event: Event, call: Explained, fact: ToolResulted | SubcallEnd, started: int | None
    ) -> None:
        error = fact.error
        settled = fact.settled or call.settled
        call.code = error.code if error is not None else None
        call.text = "\n".join([block.text for block in fact.content])
        call.started = started or call.started
        if call.code in _INVALID and not call.runs and call.won("prepare", "policy", "guard") is None:
            call.chain = [link for link in call.chain if link.stage != "lookup"]
            # A review may have changed what the model reads; then the reason is not on record.
            why = _without_code(call.text, call.code) if not fact.edits else None
            call.chain.insert(1, _link("lookup", event, "", _INVALID[call.code], why))
            call.chain[1].won = True
        elif call.code == DENIED and call.won("prepare", "policy", "guard", "recheck", "approval") is None:
            self._default(event, call, "deny", why=_without_code(call.text, DENIED))
        if call.runs and settled is not None and call.settled is None:
            us = 1000 * (settled - call.started) if call.started is not None else None
            # It ended before anything that came after its last start.
            last = max(i for i, link in enumerate(call.chain) if link.stage == "body")
            call.chain.insert(last + 1, _link("body", event, call.name, _ended(error is None, error), us=us))
        call.settled = settled
        call.committed = event.time
        self._heard(event, call, fact.said, fact.edits)
        call.fate = _fate(call, error)
        link = _link("commit", event, "", "committed")
        if settled is not None:
            link.detail = {"waited_ms": max(0, event.time - settled)}
        if isinstance(fact, ToolResulted) and fact.stop is not None:
            link.who, link.answer = fact.stop, "committed, and the turn ends after this batch"
        call.chain.append(link)

    def _heard(self, event: Event, call: Explained, said: Iterable[Said], edits: Iterable[Edit]) -> None:
        """Wrappers, put around the body, then post listeners, then whoever else changed the result."""
        body = next((i for i, link in enumerate(call.chain) if link.stage == "body"), len(call.chain))
        blocked = False
        named = set()
        for one in said:
            named.add(one.who)
            around, _, did = one.answer.partition(" ")
            if around == "around":
                link = _of_said("around", event, one)
                link.answer, link.won = did, did in ("answered", "replaced", "error")
                call.chain.insert(body, link)
                body += 1
                continue
            link = _of_said("post", event, one)
            link.won = one.answer in ("error", "cut") or (one.answer == "block" and not blocked)
            blocked = blocked or one.answer == "block"
            call.chain.append(link)
        for edit in edits:
            if edit.who not in named:
                call.chain.append(_link("post", event, edit.who, edit.what))

    def _say(self, event: Event, call: Explained, contexts: Iterable[Message]) -> None:
        for message in contexts:
            source = f"{message.source.kind} {message.source.name}".rstrip()
            link = _link("context", event, source, "not told yet", message.text)
            call.chain.append(link)
            self._contexts.setdefault(message.id, link)


def differences(before: Any, after: Any) -> tuple[Difference, ...]:
    """What was changed, argument by argument, in the order of `before` and then of `after`."""
    if not isinstance(before, Mapping) or not isinstance(after, Mapping):
        return (Difference("", before, after),) if before != after else ()
    return tuple(
        [
            Difference(name, before.get(name, msgspec.UNSET), after.get(name, msgspec.UNSET))
            for name in dict.fromkeys([*before, *after])
            if name not in before or name not in after or before[name] != after[name]
        ]
    )


def _link(
    stage: Stage,
    event: Event,
    who: str,
    answer: str,
    reason: str | None = None,
    *,
    us: int | None = None,
    detail: dict[str, Any] | None = None,
) -> Link:
    return Link(
        stage=stage,
        seq=event.seq,
        time=event.time,
        who=who,
        answer=answer,
        reason=reason,
        us=us,
        detail=detail or {},
    )


def _of_said(stage: Stage, event: Event, said: Said) -> Link:
    link = _link(stage, event, said.who, said.answer, said.reason, us=said.us or None)
    link.rule, link.file, link.line = said.rule, said.file, said.line
    return link


def _speaks(answer: str, verdict: str) -> bool:
    """Whether this answer can be the one that gave the verdict."""
    return answer.removeprefix("advise ") == verdict or (answer == "error" and verdict == "deny")


def _hook_said(link: Link, fact: HookResulted) -> None:
    link.us = 1000 * fact.ms
    link.won = fact.won
    link.answer = "answered"
    link.reason = fact.error
    if fact.error is not None:
        link.answer = "failed"
    elif fact.unused is not None:
        link.answer, link.reason = "answered, not used", fact.unused
    if fact.said is not None:
        link.detail["said"] = fact.said
    if fact.exit is not None:
        link.detail["exit"] = fact.exit


def _ended(ok: bool, error: CallError | None) -> str:
    return "done" if ok else f"failed {error.code}" if error is not None else "failed"


def _fate(call: Explained, error: CallError | None) -> Fate:
    if error is None:
        return "ran"
    if error.code == TOOL_OUTCOME_UNKNOWN:
        return "unknown"
    if error.handler_executed:
        return "failed"
    return "skipped" if error.code in _SKIPPED else "refused"


def _without_code(text: str, code: str) -> str:
    return text.removeprefix(f"Error [{code.lower()}]: ")


def _object(text: str) -> Any:
    """Arguments as the model wrote them; its own text where that is no JSON object."""
    try:
        value = decode_json(text) if text.strip() else {}
    except ValueError:
        return text
    return value if isinstance(value, dict) else text
