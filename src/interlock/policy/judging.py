"""What would be decided about a call, without an agent and without running anything.

Lives here: `judge` and its `Judgement`: the same rules, ceiling and preset as in an agent, and all they looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interlock.intercept.decisions import ALLOW, Allow, folded, verdict_name
from interlock.policy.policy import Policy
from interlock.policy.rules.action import Action
from interlock.policy.rules.rule import Effect, Rule
from interlock.policy.rules.ruling import Part
from interlock.tools.definition import Effect as ToolEffect
from interlock.tools.rules import Ruled, Word


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer for one call: allow, ask or deny; who decides, and why.

    rule: the one that decides, if a rule does. parts: what was looked at, each with what decides it. matched: every
    rule that matched.
    """

    verdict: Effect
    by: str
    reason: str
    rule: Rule | None
    parts: tuple[Part, ...]
    matched: tuple[Rule, ...]

    def plain(self) -> dict[str, Any]:
        """As JSON: `verdict`, `by`, `reason`, `rule`, `file`, `line`, `parts`, `matched`."""
        return {
            "verdict": self.verdict,
            "by": self.by,
            "reason": self.reason,
            **_plain(self.rule),
            "parts": [
                {
                    "kind": part.kind,
                    "text": part.text,
                    "verdict": part.effect,
                    "why": part.why,
                    **_plain(part.rule),
                }
                for part in self.parts
            ],
            "matched": [{"effect": rule.effect, **_plain(rule)} for rule in self.matched],
        }


def _plain(rule: Rule | None) -> dict[str, Any]:
    if rule is None:
        return {"rule": None, "file": None, "line": None}
    return {"rule": rule.text, "file": rule.file or rule.origin, "line": rule.line}


def decide(
    tool: str, arguments: Mapping[str, Any] | str, *, policy: Policy, cwd: str | Path = "."
) -> Judgement:
    """What would be decided about a call of a tool in the box, by any name that rules may use for it.

    Args:
        arguments: the arguments of the call, or just its command, path or address.
        cwd: the workspace.
    """
    return judge(Action.named(tool, arguments, Path(cwd).absolute()), policy)


def judge(action: Action, policy: Policy) -> Judgement:
    """What would be decided about this."""
    effect = ToolEffect.READ if action.harmless else ToolEffect.WRITE
    ruling = policy.rules.decide(action)
    words = policy.words(action, effect) or Ruled()
    default: Word = ALLOW, "default"
    if policy.preset is not None:
        said = policy.preset.default(action.tool, effect, action.kind, action.subject, action.cwd)
        default = said, policy.preset.by
    word = folded(words.spoken, words.held, default)
    verdict, by = word
    rule = None if word is default else next((r for r in ruling.matched if by == f"rule {r.text}"), None)
    reason = "nobody spoke about it" if isinstance(verdict, Allow) else verdict.reason
    if isinstance(verdict, Allow) and word is not default:
        reason = ruling.reason
    return Judgement(verdict_name(verdict), by, reason, rule, ruling.parts, ruling.matched)
