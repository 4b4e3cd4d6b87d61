"""What other rules would have decided about calls that are on record.

Lives here: `replay`, and `Replayed`, one call with what was decided and what would be. Nothing runs. Whoever else spoke
at the time is taken by their word on record, so that the two differ by the rules alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.intercept.decisions import ALLOW, Ask, Deny, Verdict, folded, verdict_name
from interlock.log.event import Event
from interlock.log.explaining import explain
from interlock.log.explanation import Explained, Link
from interlock.log.facts import SessionCreated
from interlock.policy.policy import CAUTION, ruled
from interlock.policy.preset import PRESETS, RESTS, Preset
from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import Effect
from interlock.policy.rules.ruleset import RuleSet
from interlock.tools.definition import Effect as ToolEffect
from interlock.tools.subject import Subject

_SAID: Mapping[str, Verdict] = {"allow": ALLOW, "ask": Ask("as it was"), "deny": Deny("as it was")}


@dataclass(frozen=True, slots=True)
class Word:
    """A verdict and whose it is; `rule` with its file and line, if it is a rule's."""

    verdict: Effect
    by: str
    rule: str | None = None
    file: str | None = None
    line: int | None = None

    @property
    def source(self) -> str:
        """`rule Bash(git push:*) in interlock.toml:7`, or who it is."""
        if self.rule is None:
            return self.by
        return (
            f"rule {self.rule} in {self.file}:{self.line}" if self.line is not None else f"rule {self.rule}"
        )


@dataclass(frozen=True, slots=True)
class Replayed:
    """One call. `arguments` are those that were decided about. `was` is on record, `would` is what would be."""

    session: str
    call: int
    id: str
    place: str  # turn, step, and which call of the answer
    tool: str
    arguments: Mapping[str, Any]
    was: Word
    would: Word
    reason: str  # why it would be

    @property
    def changed(self) -> bool:
        return self.was.verdict != self.would.verdict


def replay(
    events: Iterable[Event],
    rules: RuleSet,
    *,
    cwd: Path | None = None,
    preset: Preset | None = None,
    subjects: Mapping[str, Subject] | None = None,
) -> list[Replayed]:
    """Decide again about every call of a session that was decided about, nested ones too.

    Paths are looked at as they are on this machine now, links among them.

    Args:
        events: the lines of one session from its first.
        cwd: the workspace; the session's own without it.
        preset: instead of the one in force at the time.
        subjects: what the calls of tools that are not in the box are about.

    Raises:
        ValueError: the log has no beginning.
    """
    lines = list(events)
    created = next((event.fact for event in lines if isinstance(event.fact, SessionCreated)), None)
    if created is None:
        raise ValueError("the log has no beginning: give all its lines")
    root = cwd or (Path(created.cwd) if created.cwd is not None else Path.cwd())
    made = []
    for one in _everyone(explain(lines)):
        decided = next((link for link in one.chain if link.won and link.stage in ("policy", "default")), None)
        if decided is None or one.call is None or not isinstance(_arguments(one), Mapping):
            continue  # it came to its end before anybody decided
        would, reason = _would(one, rules, root.absolute(), preset, subjects or {})
        made.append(
            Replayed(
                session=created.session_id,
                call=one.call,
                id=one.id,
                place=one.place,
                tool=one.name,
                arguments=_arguments(one),
                was=_was(decided),
                would=would,
                reason=reason,
            )
        )
    return made


def _everyone(calls: Iterable[Explained]) -> Iterator[Explained]:
    for outer in calls:
        yield from outer.everyone()


def _arguments(one: Explained) -> Any:
    if one.sealed is not None:
        return one.sealed
    return one.asked if one.effective is None else one.effective


def _was(link: Link) -> Word:
    said = _verdict(link.answer)
    assert said is not None
    return Word(verdict_name(said), link.who, link.rule, link.file, link.line)


def _verdict(answer: str) -> Verdict | None:
    """The verdict in an answer on record; None for advice to allow, which overrules nobody."""
    advised, _, verdict = answer.rpartition("advise ")
    if advised or answer.startswith("advise "):
        return _SAID[verdict] if verdict in ("ask", "deny") else None
    return _SAID.get(answer, _SAID["deny"])  # whoever failed said no


def _would(
    one: Explained, rules: RuleSet, cwd: Path, preset: Preset | None, subjects: Mapping[str, Subject]
) -> tuple[Word, str]:
    effect = next((link.detail["effect"] for link in one.chain if "effect" in link.detail), "write")
    action = _action(one, cwd, subjects, reads=effect == "read")
    spoken: list[tuple[Verdict, str]] = []
    held: list[tuple[Verdict, str]] = []
    ruling = rules.decide(action)
    said = ruled(ruling)
    if said is not None:
        spoken += said.spoken
        held += said.held
    for link in one.chain:
        # Of the rules of that time, and of their caution, nothing is left: these are others.
        if link.stage == "policy" and link.rule is None and link.who not in (CAUTION, "rules"):
            verdict = _verdict(link.answer)
            if verdict is not None:
                (held if link.answer.startswith("advise ") else spoken).append((verdict, link.who))
    verdict, by = folded(spoken, held, _default(one, action, preset, ToolEffect(effect)))
    rule = ruling.rule
    if rule is not None and by == f"rule {rule.text}":
        return Word(verdict_name(verdict), by, rule.text, rule.file, rule.line), ruling.reason
    reason = ruling.reason if by == CAUTION else getattr(verdict, "reason", "")
    return Word(verdict_name(verdict), by), reason


def _action(one: Explained, cwd: Path, subjects: Mapping[str, Subject], *, reads: bool) -> Action:
    arguments = _arguments(one)
    subject = subjects.get(one.name)
    if subject is None:
        known = Action.named(one.name, arguments, cwd)
        return Action(
            known.tool,
            known.arguments,
            known.kind,
            known.subject,
            cwd,
            known.harmless or reads,
            known.argument,
        )
    return Action(one.name, arguments, subject.kind, subject.of(arguments), cwd, reads, subject.argument)


def _default(
    one: Explained, action: Action, preset: Preset | None, effect: ToolEffect
) -> tuple[Verdict, str]:
    """What the preset in force says of a call that nobody spoke about."""
    if preset is None and one.preset is None:
        return ALLOW, "default"
    if preset is None:
        assert one.preset is not None
        rest = next((rest for rest in RESTS if rest == one.approval), RESTS[0])
        preset = PRESETS.get(one.preset) or Preset(one.preset, rest)
    return preset.default(one.name, effect, action.kind, action.subject, action.cwd), preset.by
