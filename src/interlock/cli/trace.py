"""The four hook events and the permissions between them, as lines, read from the log.

Lives here: `Trace`. A call's `[Hook] PreToolUse` is said when the log first tells that the call was valid: an unknown
tool and invalid arguments meet no hook.
"""

from __future__ import annotations

from interlock.cli.calls import Calls, SeenCall, answered
from interlock.cli.oneline import arguments, short
from interlock.log.event import Event
from interlock.log.facts import (
    ApprovalAsked,
    ApprovalDecided,
    CallError,
    Fact,
    HookInvoked,
    HookProblem,
    HookResulted,
    InboxClaimed,
    InboxReturned,
    InboxSpliced,
    PolicyChanged,
    SessionOpened,
    StepEnd,
    SubcallEnd,
    ToolCalled,
    ToolDecided,
    ToolPrepared,
    ToolResulted,
    ToolSettled,
    ToolStarted,
    UserMessage,
)
from interlock.log.messages import Text
from interlock.log.reasons import DENIED, INVALID_ARGS, TOOL_OUTCOME_UNKNOWN, UNKNOWN_TOOL, error_text

_SHOWN = 200  # characters of a reason


class Trace:
    """Feed it the events of one log, in order: all of them, or those from the beginning of a life or a step."""

    def __init__(self) -> None:
        self._calls = Calls()
        self._pending = 0  # messages for the next step
        self._valid: set[int] = set()  # calls whose PreToolUse was said
        self._judged: set[int] = set()  # calls whose permission was said
        self._rest = "nobody objected"
        self._outside: dict[str, HookInvoked] = {}  # programs that have not answered, by id

    def lines(self, event: Event) -> list[str]:
        """The lines that this event gives, if any."""
        self._count(event.fact)
        call = self._calls.see(event)
        match event.fact:
            case PolicyChanged(preset=preset):
                self._rest = f"preset {preset}"
            case HookInvoked(hook_id=hook_id, dialect=str()) as invoked:
                self._outside[hook_id] = invoked
                return []
            case HookResulted(hook_id=hook_id) as answer if hook_id in self._outside:
                return [_of_program(self._outside.pop(hook_id), answer)]
            case HookProblem(file=file, line=number, what=what):
                return [f"[Hook] {file}{f':{number}' if number else ''}: {short(what, _SHOWN)}"]
            case UserMessage(source=source, place="prompt") if source.kind == "person":
                return ["[Hook] UserPromptSubmit"]
            case StepEnd(reason="completed" | "max-tokens") if not self._pending:
                return [
                    "[Hook] Stop"
                ]  # the model answered without calls, and nothing else keeps the turn open
            case _:
                pass
        return self._of_call(event, call) if call is not None else []

    def _count(self, fact: Fact) -> None:
        """Follow the queue. What was in it when the lines begin in the middle of a log is claimed by the next step."""
        match fact:
            case InboxSpliced(list="next-step", inserted=inserted, removed=removed):
                self._pending = max(self._pending + len(inserted) - removed, 0)
            case InboxReturned(next_step=returned):
                self._pending += len(returned)
            case InboxClaimed(next_step=claimed):
                self._pending = max(self._pending - len(claimed), 0)
            case SessionOpened(how="fork"):
                self._pending = 0  # it is its parent's
            case _:
                pass

    def _of_call(self, event: Event, call: SeenCall) -> list[str]:
        match event.fact:
            case ToolCalled(synthetic=True):
                self._valid.add(call.key)  # written only to be answered: nobody looks at it
                self._judged.add(call.key)
                return []
            case ToolPrepared():
                return self._pre(call)
            case ToolDecided(verdict=verdict, stage=stage, by=by, reason=reason):
                source = f"guard {by}" if stage == "guard" else by
                return [*self._pre(call), self._permission(call, verdict, source, reason)]
            case ApprovalAsked(question=question):
                if call.key in self._judged:
                    return []
                return [
                    *self._pre(call),
                    self._permission(call, "ask", "default", f"{self._rest}: {question}"),
                ]
            case ApprovalDecided(outcome=outcome) as answer:
                verdict = "allow" if outcome == "allowed-once" else "deny"
                return [self._permission(call, verdict, "approval", answered(answer))]
            case ToolStarted(run=1):
                if call.key in self._judged:
                    return self._pre(call)
                return [*self._pre(call), self._permission(call, "allow", "default", self._rest)]
            case ToolSettled(error=error, content=content):
                return self._refused(call, error, content)
            case ToolResulted(error=error, content=content) | SubcallEnd(error=error, content=content):
                return [*self._refused(call, error, content), *_post(call, error)]
            case _:
                return []

    def _pre(self, call: SeenCall) -> list[str]:
        if call.key in self._valid:
            return []
        self._valid.add(call.key)
        return [f"[Hook] PreToolUse: {call.name}"]

    def _refused(self, call: SeenCall, error: CallError | None, content: tuple[Text, ...]) -> list[str]:
        """For a call that ends without having started and without a line of its own that says why."""
        if error is None or call.started is not None or error.code in (UNKNOWN_TOOL, INVALID_ARGS):
            return []
        lines = self._pre(call)
        if error.code == DENIED and call.key not in self._judged:
            said = "\n".join([block.text for block in content]).removeprefix(error_text(DENIED, ""))
            lines.append(self._permission(call, "deny", "default", said))
        return lines

    def _permission(self, call: SeenCall, verdict: str, source: str, reason: str | None) -> str:
        self._judged.add(call.key)
        because = f" - {short(reason, _SHOWN)}" if reason else ""
        return f"[Permission] {call.name}: {verdict} ({source}){because}"


def _of_program(invoked: HookInvoked, answer: HookResulted) -> str:
    if answer.error is not None:
        said = f"failed: {short(answer.error, _SHOWN)}"
    else:
        said = arguments(answer.said) if answer.said else "nothing to say"
    unused = f" (not used: {answer.unused})" if answer.unused else ""
    return f"[Hook] {invoked.event} {invoked.who} ({answer.ms} ms) -> {said}{unused}"


def _post(call: SeenCall, error: CallError | None) -> list[str]:
    """PostToolUse runs where the body did, unless nobody knows how it ended."""
    if call.started is None or (error is not None and error.code == TOOL_OUTCOME_UNKNOWN):
        return []
    how = "ok" if error is None else f"error [{error.code.lower()}]"
    return [f"[Hook] PostToolUse: {call.name} -> {how}"]
