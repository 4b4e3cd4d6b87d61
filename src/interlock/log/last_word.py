"""The last word about a call, in one plain sentence: did it run, and because of whom.

Lives here: `last_word`, from what is explained of a call to the sentence, and `source`, how a rule or a participant is
named in it.
"""

from __future__ import annotations

from typing import assert_never

from interlock.log.explanation import Explained, Link
from interlock.log.reasons import (
    BUDGET_EXHAUSTED,
    HOOK_STOPPED_CONTINUATION,
    TOOL_NOT_STARTED,
    EndReason,
    describe,
)

_LENGTH = 200  # characters of a reason
_FAILED = "failed, and what fails means no"


def last_word(call: Explained, end: EndReason | None, *, crashed: bool) -> str:
    """One sentence.

    Args:
        end: of its turn, if that is over.
        crashed: what a crash had left open of it was closed by a repair.
    """
    match call.fate:
        case "unreached":
            over = f", and the turn is over ({describe(end)})" if end is not None else ""
            return f"It has not run: nothing has looked at it yet{over}."
        case "deciding":
            yes = call.won("approval")
            return (
                f"It has not run yet: {_permission(call)}."
                if yes
                else "It has not run: nobody has decided yet."
            )
        case "waiting":
            asked = next(link for link in reversed(call.chain) if link.stage == "approval")
            return f"It has not run: it waits for a person{_because(asked.reason)}."
        case "running":
            return f"It was started, and the log does not say yet how it ended: {_permission(call)}."
        case "settled":
            done = "It ran" if call.runs else "It did not run"
            return f"{done}, and its result waits for that of an earlier call."
        case "ran":
            return f"It ran: {_permission(call)}{_reviewed(call)}."
        case "failed":
            return f"It ran and failed: {_failure(call)}."
        case "refused":
            return f"It did not run: {_refusal(call)}."
        case "skipped":
            return f"It did not run: {_skipped(call, end, crashed)}."
        case "unknown":
            why = "a crash cut it" if crashed else "nobody waited any longer"
            return f"It was started, and whether it finished is not known: {why}."
        case _:
            assert_never(call.fate)


def source(link: Link, call: Explained | None = None) -> str:
    """`rule Bash(git push:*) in .claude/settings.json:7`; without a rule, who it was.

    call: whose chain the link is of: where several hooks have one listener, the hook is named.
    """
    if link.rule is None:
        hook = _hook_behind(link, call) if call is not None else None
        return f"hook {hook.who}" if hook is not None else link.who or "somebody"
    if link.line is None:  # given in code, or remembered: `file` says which
        return f"rule {link.rule} ({link.file})" if link.file else f"rule {link.rule}"
    return f"rule {link.rule} in {link.file}:{link.line}"


def _hook_behind(link: Link, call: Explained) -> Link | None:
    """The hook whose answer a listener like `agent:PreToolUse` has given."""
    event = link.who.rpartition(":")[2]
    heard = [one for one in call.chain if one.stage == "hook" and one.detail.get("event") == event]
    winners = [one for one in heard if one.won] or heard
    return winners[-1] if len(winners) == 1 else None


def person(link: Link) -> str:
    """`Ada (tty, terminal)`."""
    known = [str(link.detail[name]) for name in ("how", "channel") if link.detail.get(name)]
    who = link.who or "a person"
    return f"{who} ({', '.join(known)})" if known else who


def _permission(call: Explained) -> str:
    """Why it may run."""
    link = call.won("policy", "default", "approval")
    if link is None:
        return "nobody objected"
    if link.stage == "approval":
        edited = ", with other arguments" if link.changes else ""
        kept = f", and remembered as {link.detail['rule_written']}" if "rule_written" in link.detail else ""
        asks = next((one for one in call.chain if one.won and one.answer.endswith("ask")), None)
        asked = f"; {source(asks)} had it asked" if asks is not None else ""
        return f"allowed once by {person(link)}{edited}{kept}{asked}"
    if link.stage == "default" and link.reason:
        return f"allowed by {link.who}{_because(link.reason)}"
    if link.stage == "default" and link.who == "no preset":
        return "nobody spoke about it, and no preset is chosen, which allows it"
    if link.stage == "default":
        return f"nobody spoke about it, and {link.who} allows it"
    return f"allowed by {source(link)}"


def _reviewed(call: Explained) -> str:
    """Who made another result of it."""
    answered = next((link for link in call.chain if link.won and link.stage == "around"), None)
    edits = [
        link.who for link in call.chain if link.stage == "post" and link.answer in ("replace", "finalised")
    ]
    parts = []
    if answered is not None and answered.answer == "answered":
        parts.append(f"{answered.who} answered in its place")
    elif answered is not None:
        parts.append(f"{answered.who} gave another result")
    if edits:
        parts.append(f"{', '.join(edits)} changed what the model reads")
    return "".join([f"; {part}" for part in parts])


def _failure(call: Explained) -> str:
    link = call.won("post") or call.won("around")
    if link is not None and link.answer == "block":
        return f"{source(link, call)} withheld its result{_because(link.reason)}"
    if link is not None and link.answer == "cut":
        return f"its result is withheld, because {link.who} was stopped while it reviewed it"
    if link is not None and link.answer == "error":
        return f"its result is withheld, because {link.who} failed{_because(link.reason)}"
    return f"{call.code}{_because(_message(call))}"


def _refusal(call: Explained) -> str:
    lookup = call.won("lookup")
    if lookup is not None:
        return _short(lookup.reason or f"{lookup.answer}; the model reads something else")
    link = call.won("prepare", "policy", "default", "guard", "approval", "recheck", "around")
    if link is None:
        return f"{call.code}{_because(_message(call))}"
    if link.stage == "approval":
        return _answer(call, link)
    if link.answer == "error":
        return f"{source(link, call)} {_FAILED}{_because(link.reason)}"
    why = "" if link.rule is not None else _because(link.reason)
    match link.stage:
        case "prepare":
            return f"refused by {source(link, call)}{why}"
        case "guard":
            return f"denied by guard {link.who}{why}"
        case "default":
            return f"denied by {link.who}, since nobody else spoke about it"
        case "recheck":
            return f"a person had allowed it, and by then it was denied by {source(link)}{why}"
        case "around":
            return f"{link.who} answered in its place{_because(_message(call))}"
        case _:
            return f"denied by {source(link, call)}{why}"


def _answer(call: Explained, link: Link) -> str:
    if link.answer == "rejected":
        return f"{person(link)} said no{_because(link.reason)}"
    if link.answer == "cancelled":
        return "the question to a person was withdrawn"
    if link.answer == "unavailable":
        asks = next((one for one in call.chain if one.won and one.answer.endswith("ask")), None)
        asked = f"{source(asks)} had a person asked, and " if asks is not None else ""
        return f"{asked}nobody answered{_because(link.reason)}"
    return f"{call.code}{_because(_message(call))}"


def _skipped(call: Explained, end: EndReason | None, crashed: bool) -> str:
    if crashed:
        return "the process ended before it could start"
    if call.code == BUDGET_EXHAUSTED:
        return "the budget was spent before it could start"
    if call.code == HOOK_STOPPED_CONTINUATION:
        return "the review of an earlier call had ended the turn"
    ended = f" ({describe(end)})" if end is not None else ""
    if call.code == TOOL_NOT_STARTED:
        return f"the turn failed before it could start{ended}"
    return f"the turn was stopped before it could start{ended}"


def _message(call: Explained) -> str:
    return call.text.removeprefix(f"Error [{(call.code or '').lower()}]: ")


def _because(reason: str | None) -> str:
    return f": {_short(reason)}" if reason and reason.strip() else ""


def _short(text: str) -> str:
    """On one line, without the full stop that the sentence has anyway."""
    line = " ".join(text[: 4 * _LENGTH].split()).rstrip(".")
    return line if len(line) <= _LENGTH else f"{line[: _LENGTH - 1]}…"
