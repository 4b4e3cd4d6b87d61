"""A log as a person reads it: one line for each thing that happened, in the order in which it did.

Lives here: `Timeline`, from events to `Line`, and `show`. It reads forwards and looks at nothing but the events, so
that it serves a log that is still being written, and one that breaks a law, as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text as Styled

from interlock.bridges.transcripts.kept import Kept
from interlock.cli.calls import Calls, SeenCall, answered, label
from interlock.cli.oneline import arguments, count, moment, offset, short, span
from interlock.log.event import Event, encode_json
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    ApprovalLate,
    AssistantMessage,
    BudgetWarned,
    CancelRequested,
    ContentErased,
    DecisionMade,
    Erased,
    GrantRevoked,
    HistoryReplaced,
    HookInvoked,
    HookProblem,
    HookResulted,
    InboxDropped,
    InboxReturned,
    InboxSpliced,
    MailTaken,
    ObserverFailed,
    PolicyChanged,
    RequestFailed,
    RequestHeader,
    RequestSent,
    RetryScheduled,
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
    UserMessage,
)
from interlock.log.messages import Block, Source, Text, ToolUse
from interlock.log.reasons import Completed, describe
from interlock.policy.preset import PRESETS

_SHOWN = 400  # characters of a message or a result
_QUEUED = 80  # characters of a message that is queued: it is shown again when the model is told

# The marks, each with its style.
FRAME, IN, MODEL, CALL, GOES, EARLY, DONE, FAILED, PERSON, STOP, NOTE = "─»◆→▸↷✓✗?■·"
STYLES = {
    FRAME: "bold",
    IN: "bold",
    MODEL: "blue",
    CALL: "cyan",
    GOES: "cyan",
    EARLY: "yellow",
    DONE: "green",
    FAILED: "red",
    PERSON: "magenta",
    STOP: "bold red",
    NOTE: "dim",
}


class Line(NamedTuple):
    """One line: where in the log, when, and what it says."""

    seq: int
    ms: int  # since the first line of the log
    depth: int  # 0 outside a turn, 1 in a turn, 2 in a step
    mark: str
    subject: str  # whom it is about
    words: str


_Said: TypeAlias = tuple[str, str, str]  # mark, subject, words


class Timeline:
    """Feed it the events of one log, in order."""

    def __init__(self) -> None:
        self._calls = Calls()
        self._began: int | None = None
        self._depth = 0
        self._asks = ""  # the model in force
        self._hooks: dict[str, str] = {}  # those whose answers follow, by the id of their first line

    def line(self, event: Event) -> Line | None:
        """The line for this event; None for one that goes without saying."""
        fact = event.fact
        if self._began is None:
            self._began = event.time
        call = self._calls.see(event)
        inside = self._depth
        if isinstance(fact, (TurnStart, TurnEnd)):
            inside, self._depth = 0, int(isinstance(fact, TurnStart))
        elif isinstance(fact, (StepStart, StepEnd)):
            inside, self._depth = 1, 1 + isinstance(fact, StepStart)
        said = self._of_call(event, call) if call is not None else self._said(event)
        return Line(event.seq, event.time - self._began, inside, *said) if said is not None else None

    def _said(self, event: Event) -> _Said | None:
        fact = event.fact
        match fact:
            # The session
            case SessionCreated(session_id=id_, cwd=cwd, package=package, parent=parent, imported=origin):
                where = f" in {short(cwd, 200)}" if cwd else ""
                fork = f", a fork of {parent.session} from line {parent.seq} on" if parent is not None else ""
                made = f", imported from {short(origin.program, 80)}" if origin is not None else ""
                return (
                    FRAME,
                    "session",
                    f"{id_}, {moment(event.time)}{where} (interlock {package}){fork}{made}",
                )
            case SessionOpened(life=life, how=how, host=host, pid=pid):
                return (
                    NOTE,
                    f"life {life}",
                    f"{_HOW[how]} by {f'process {pid} on {host}' if host else 'an import'}",
                )
            case SessionRepaired(cause=cause, closed=closed):
                return NOTE, "repaired", f"after {_REPAIRED[cause]}: {count(len(closed), 'open call')} closed"
            case PolicyChanged(preset=preset):
                known = PRESETS.get(preset)
                return (
                    NOTE,
                    "preset",
                    f"{preset}: {known.meaning}" if known is not None else short(preset, 80),
                )
            case GrantRevoked(rule=rule, by=by):
                return (
                    NOTE,
                    "grant",
                    f"{short(rule, _SHOWN)} is asked again{f', says {short(by, 80)}' if by else ''}",
                )
            case ObserverFailed(who=name, point=point, error=error, at=at):
                return FAILED, "observer", f"{name} failed at {point}, line {at}: {short(error, _SHOWN)}"
            case Kept(line=number, kind=kind):
                return NOTE, "kept", f"{short(kind, 80)}, of line {number} of the transcript"
            case Erased(stored_type=type_):
                return NOTE, type_, "(erased)"
            case ContentErased(receipt=receipt, by=by, reason=why):
                because = f": {short(why, _SHOWN)}" if why else ""
                return FRAME, "erased", f"{moment(event.time)} by {short(by, 80)}, receipt {receipt}{because}"
            case Unknown(stored_type=type_):
                return NOTE, short(type_, 80), "of a kind that is not known here"

            # The inbox
            case InboxSpliced(list=queue, inserted=inserted, removed=removed):
                sent = _sent(fact.by, fact.letter)
                parts = [
                    f"{who(message.source)}{sent}: {_text(message.content, _QUEUED)}" for message in inserted
                ]
                parts += [f"{count(removed, 'message')} taken back"] if removed else []
                return IN, f"for the {queue.replace('-', ' ')}", "; ".join(parts)
            case InboxReturned(next_step=step, next_turn=turn, why=why):
                return IN, "put back", f"{count(len(step + turn), 'message')} ({why})"
            case InboxDropped(ids=ids, outcome=outcome, reason=reason):
                because = f": {short(reason, _SHOWN)}" if reason else ""
                return FAILED, "dropped", f"{count(len(ids), 'message')}, {outcome}{because}"

            # The turn
            case TurnStart(turn=turn):
                return FRAME, f"turn {turn}", ""
            case TurnEnd(turn=turn, reason=reason, steps=steps, pending=pending):
                left = pending.next_turn + pending.next_step
                parked = f"; {count(left, 'message')} pending" if left else ""
                mark = FRAME if isinstance(reason, Completed) else STOP
                return (
                    mark,
                    f"turn {turn} ends",
                    f"{short(describe(reason), _SHOWN)}, {count(steps, 'step')}{parked}",
                )
            case CancelRequested(cause=cause, grace_ms=grace):
                because = f": {short(cause.reason, _SHOWN)}" if cause.reason else ""
                soon = f", {span(grace)} grace" if grace is not None else ""
                letter = f", letter {fact.letter.number}" if fact.letter is not None else ""
                return STOP, "stop", f"by {short(cause.by or cause.kind, 80)}{because}{soon}{letter}"
            case MailTaken(letter=stamp, kind=kind, by=by, refused=refused):
                whose = f"{kind}{f' of {short(by, 80)}' if by else ''}"
                came = f"refused: {short(refused, _SHOWN)}" if refused else "there was nothing to do"
                return (FAILED if refused else NOTE), f"letter {stamp.number}", f"{whose}, {came}"
            case StepStart(turn=turn, step=step):
                return FRAME, f"step {turn}.{step}", ""
            case StepEnd(turn=turn, step=step, reason=reason):
                return FRAME, f"step {turn}.{step} ends", reason
            case UserMessage(source=source, content=content):
                return IN, who(source), _text(content)
            case DecisionMade(point=point, answer=answer, by=by, said=said):
                return NOTE, point, f"{answer} by {by}{_voices(said)}"
            case ApprovalLate(answer=answer, by=by):
                whose = f" of {short(by, 80)}" if by else ""
                return NOTE, "approval", f"a later answer{whose} changed nothing: {short(answer, _SHOWN)}"
            case BudgetWarned(kind=kind, used=used, limit=limit):
                return NOTE, "budget", f"{kind}: {used:g} of {limit:g} used"

            # The model
            case RequestHeader(provider=provider, model=model, tools=tools, why=why):
                self._asks = f"{provider}:{model}"
                return (
                    (NOTE, "request", f"changed: {self._asks}, {count(len(tools), 'tool')}")
                    if why == "change"
                    else None
                )
            case RequestSent(messages=messages, attempt=attempt):
                again = f", attempt {attempt}" if attempt > 1 else ""
                return NOTE, self._asks, f"is sent {count(messages, 'message')}{again}"
            case AssistantMessage():
                return MODEL, "model", _answer(fact)
            case RequestFailed(failure=failure):
                return FAILED, self._asks, f"{failure.code}: {short(failure.message, _SHOWN)}"
            case RetryScheduled(n=n, delay_ms=delay, max=most):
                of = f" of {most}" if most is not None else ""
                return NOTE, "retry", f"{n}{of} in {span(delay)}"
            case HistoryReplaced(first=first, last=last, messages=messages, why=why):
                return (
                    NOTE,
                    "history",
                    f"lines {first} to {last} replaced by {count(len(messages), 'message')}: {why}",
                )

            # Hooks
            case HookInvoked(hook_id=hook_id, event=hook, who=name):
                self._hooks[hook_id] = f"{hook} {name}"
                return None
            case HookResulted(hook_id=hook_id):
                return NOTE, "hook", f"{self._hooks.get(hook_id, hook_id)} {_hook_said(fact)}"
            case HookProblem(file=file, line=number, what=what):
                return FAILED, "hook", f"{file}{f':{number}' if number else ''}: {short(what, _SHOWN)}"
            case _:
                return None

    def _of_call(self, event: Event, call: SeenCall) -> _Said | None:
        fact, name = event.fact, call.label
        match fact:
            case ToolCalled(synthetic=synthetic):
                return None if synthetic else (CALL, name, call.arguments_text())
            case SubcallStart():
                outer = f" (called by {call.outer.label})" if call.outer is not None else ""
                return CALL, name, f"{call.arguments_text()}{outer}".lstrip()
            case ToolPrepared(changes=changes, advice=advice, said=said):
                parts = [f"rewritten by {change.who}: {_value(change.after)}" for change in changes]
                parts += [f"{one.who} advises to {one.verdict}{_because(one.reason)}" for one in advice]
                refused = [_refused(one) for one in said if one.answer.startswith(("refuse", "error"))]
                told = [*parts, *refused]
                mark = FAILED if refused else NOTE
                return (mark, name, "; ".join(told)) if told else None
            case ToolDecided(verdict=verdict, stage=stage, by=by, reason=reason, said=said):
                others = [one for one in said if one.who != by]
                voices = _voices(others)
                if verdict == "deny":
                    by = f"guard {by}" if stage == "guard" else by
                    return FAILED, name, f"denied by {by}{_because(reason)}{voices}"
                asks = "asks a person, says" if verdict == "ask" else "allowed by"
                return GOES, name, f"{asks} {by}{_because(reason)}{voices}"
            case ApprovalAsked(question=question, by=by, expires=expires):
                whom = f" by {short(by, 80)}" if by else ""
                soon = f"; a no in {span(expires - event.time)}" if expires is not None else ""
                return PERSON, name, f"a person is asked{whom}: {short(question, _SHOWN)}{soon}"
            case ApprovalDecided():
                return PERSON, name, answered(fact)
            case ToolStarted(run=run):
                return GOES, name, f"runs{f' again ({run})' if run > 1 else ''}, {call.allowed_by}"
            case ToolSettled(ok=ok, ms=ms):
                ahead = self._calls.ahead_of(call)
                how = "done" if ok else "failed"
                waits = f"; its result waits for {ahead.label}" if ahead is not None else ""
                took = f" after {span(ms)}" if call.started is not None else ""
                return EARLY, name, f"{how}{took}{waits}"
            case ToolResulted():
                return _result(fact, call)
            case ToolAbandoned(after_ms=after, how=how):
                return STOP, name, f"given up after {span(after)} ({how})"
            case ToolLate(ok=ok, summary=summary, ms=ms):
                how = "done" if ok else "failed"
                return NOTE, name, f"{how} after all, after {span(ms)}: {short(summary, _SHOWN)}"
            case SubcallEnd(ok=ok, content=content):
                return (DONE if ok else FAILED), name, _outcome(content, call, ok=ok)
            case _:
                return self._said(event)


_HOW = {"new": "begun", "resume": "resumed", "fork": "forked"}
_REPAIRED = {"crash": "a crash", "store-lost": "the store was lost"}


def who(source: Source) -> str:
    """`person`, `hook audit`, `runtime workspace`."""
    return f"{source.kind} {source.name}".rstrip()


def _sent(by: str | None, letter: Stamp | None) -> str:
    """Who has sent it, where that is on record: ` (ada, letter 3)`."""
    parts = [short(by, 80)] if by else []
    parts += [f"letter {letter.number}"] if letter is not None else []
    return f" ({', '.join(parts)})" if parts else ""


def _text(content: Iterable[Block], limit: int = _SHOWN) -> str:
    return short(" ".join([block.text for block in content if isinstance(block, Text)]), limit)


def _value(value: Any) -> str:
    return arguments(value) if isinstance(value, Mapping) else short(encode_json(value).decode(), _SHOWN)


def _because(reason: str | None) -> str:
    return f": {short(reason, _SHOWN)}" if reason else ""


def _refused(said: Said) -> str:
    """Who did not let a call be prepared: `hooks refuses HOOK_BLOCKED: generated`."""
    _, _, code = said.answer.partition(" ")
    return f"{said.who} {f'refuses {code}' if code else 'failed'}{_because(said.reason)}"


def _voices(said: Iterable[Said]) -> str:
    """What each participant answered, in brackets."""
    voices = [f"{one.who}: {one.answer}{_because(one.reason)}" for one in said]
    return f" [{'; '.join(voices)}]" if voices else ""


def _answer(message: AssistantMessage) -> str:
    parts = [_text(message.blocks)]
    parts += [f"→ {label(use.name, use.id)}" for use in message.blocks if isinstance(use, ToolUse)]
    if message.interrupted:
        parts.append("(interrupted)")
    if message.dropped_calls:
        parts.append(f"({count(message.dropped_calls, 'call')} cut off and dropped)")
    if message.usage is not None:
        parts.append(f"({message.usage.input:,} tokens in, {message.usage.output:,} out)")
    return " ".join([part for part in parts if part]) or "(no content)"


def _outcome(content: Iterable[Text], call: SeenCall, *, ok: bool) -> str:
    """How it ended, and what the model reads of it."""
    text = "\n".join([block.text for block in content])
    after = ""
    if call.started is not None and call.settled is not None:
        after = f" after {span(call.settled - call.started)}"
    if not ok:
        how = "never ran" if call.started is None else f"failed{after}"
        return f"{how}; the model reads: {short(text, _SHOWN)}"
    lines = text.count("\n") + 1
    return f"done{after}: {count(lines, 'line') if lines > 1 else short(text, _SHOWN)}"


def _result(fact: ToolResulted, call: SeenCall) -> _Said:
    ok = fact.error is None
    parts = [f"{edit.what} by {edit.who}" for edit in fact.edits]
    parts += [f"with {count(len(fact.contexts), 'note')} for the model"] if fact.contexts else []
    parts += [f"the turn is ended by {fact.stop}"] if fact.stop else []
    more = f" ({', '.join(parts)})" if parts else ""
    return (DONE if ok else FAILED), call.label, f"{_outcome(fact.content, call, ok=ok)}{more}"


def _hook_said(fact: HookResulted) -> str:
    if fact.error is not None:
        return f"failed: {short(fact.error, _SHOWN)}"
    unused = f" (not used: {fact.unused})" if fact.unused else ""
    said = _value(fact.said) if fact.said is not None else "said nothing"
    return f"{said}{unused}"


def plain(line: Line) -> Styled:
    """The line as text: seq, time, mark, and what it says."""
    when = f"{line.seq:>5} {offset(line.ms):>9}  "
    return Styled.assemble((when, "dim"), "  " * line.depth, *_words(line))


def _words(line: Line) -> list[Any]:
    style = STYLES[line.mark]
    subject = (line.subject, "bold" if line.mark in (FRAME, STOP) else style)
    return [(f"{line.mark} ", style), subject, f"  {line.words}" if line.words else ""]


def show(console: Console, line: Line) -> None:
    """Print the line; on a terminal, long words are folded below themselves."""
    if not console.is_terminal:
        console.print(plain(line), soft_wrap=True)
        return
    grid = Table.grid(padding=(0, 1))
    grid.add_column(style="dim", justify="right", width=5)
    grid.add_column(style="dim", justify="right", width=9)
    grid.add_column(overflow="fold")
    grid.add_row(
        str(line.seq), offset(line.ms), Padding(Styled.assemble(*_words(line)), (0, 0, 0, 2 * line.depth))
    )
    console.print(grid)
