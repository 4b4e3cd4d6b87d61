"""Who may, for one agent: what its rules, its ceiling, its remembered grants and its preset say of a call.

Lives here: `Policy`. It speaks to the pipeline as its rules and as the preset's default. Both knobs of the preset can
be changed while the agent works, and never beyond the ceiling.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from interlock.errors import ConfigError
from interlock.intercept.decisions import ALLOW, Allow, Ask, Deny, Verdict
from interlock.log.facts import PolicyChanged, Said
from interlock.policy.ceiling import Ceiling
from interlock.policy.preset import MODES, PRESETS, RESTS, Preset
from interlock.policy.preset import preset as preset_named
from interlock.policy.rules.ruleset import RuleSet
from interlock.tools.call import ToolCall
from interlock.tools.confinement import SandboxMode
from interlock.tools.definition import Effect as ToolEffect
from interlock.tools.definition import Tool
from interlock.tools.rules import Ruled

if TYPE_CHECKING:
    from interlock.policy.rules.action import Action
    from interlock.policy.rules.rule import Effect, Rule
    from interlock.policy.rules.ruling import Ruling

#: Rules in code: lists by effect, `{"deny": ["Bash(git push:*)"]}`; or what `load_rules` gives.
GivenRules: TypeAlias = "RuleSet | Mapping[Effect, Sequence[str]]"

CAUTION = "caution"  # who asks where no rule does, because a call is not to be waved through


class Policy:
    """The rules, the ceiling and the preset of one agent."""

    def __init__(
        self,
        rules: RuleSet | None = None,
        ceiling: Ceiling | None = None,
        *,
        preset: Preset | str | None = None,
        sandbox: SandboxMode | None = None,
    ) -> None:
        """
        Args:
            sandbox: instead of the preset's.

        Raises:
            ConfigError: no such preset or mode, or the ceiling does not permit it.
        """
        self.ceiling = ceiling or Ceiling()
        self._given = rules or RuleSet()
        self._granted: tuple[str, ...] = ()
        self._put(self._given)
        self.preset: Preset | None = None
        self.sandbox: SandboxMode = "full"
        self._sandbox = sandbox
        self._hidden: dict[str, Rule | None] = {}
        self.choose(preset, sandbox)

    # The knobs

    def choose(self, preset: Preset | str | None, sandbox: SandboxMode | None = None) -> None:
        """Put a preset in force; what `sandbox` does not say, the preset does.

        Raises:
            ConfigError: no such preset or mode, or the ceiling does not permit it; nothing has changed.
        """
        chosen = preset_named(preset) if isinstance(preset, str) else preset
        if sandbox is not None and sandbox not in MODES:
            raise ConfigError(f"sandbox is one of {', '.join(MODES)}, not {sandbox!r}")
        self.ceiling.permit(chosen)
        self.sandbox = self.ceiling.mode(chosen, sandbox)
        self.preset = chosen

    def restore(self, logged: PolicyChanged) -> None:
        """Put in force what the log of a session says was in force last, but for a sandbox that was chosen.

        Raises:
            ConfigError: the ceiling does not permit it any more.
        """
        known = PRESETS.get(logged.preset)
        if known is None:
            rest = next((one for one in RESTS if one == logged.approval), RESTS[0])
            known = Preset(logged.preset, rest, "as it was chosen before")
        self.choose(known, self._sandbox or next((mode for mode in MODES if mode == logged.sandbox), None))

    def changed(self, by: str) -> PolicyChanged | None:
        """The line that says what is in force, if a preset is."""
        preset = self.preset
        if preset is None:
            return None
        return PolicyChanged(preset.name, self.sandbox, preset.rest, self.rules.sources, by)

    def grant(self, granted: Iterable[str], anchor: Path) -> None:
        """These rules are allowed for the session, and no others."""
        wanted = tuple(granted)
        if wanted != self._granted:
            from interlock.policy.rules.rule import Rule

            rules = [Rule.parse("allow", text, anchor=anchor, origin="session") for text in wanted]
            self._put(self._given.with_rules(rules))
            self._granted = wanted

    def remember(self, text: str, anchor: Path) -> None:
        """This rule was allowed for always, here and now."""
        from interlock.policy.rules.rule import Rule

        rule = Rule.parse("allow", text, anchor=anchor, origin="grant")
        self._given = self._given.with_rules([rule])
        granted, self._granted = self._granted, ()
        self._put(self._given)
        self.grant(granted, anchor)

    def _put(self, below: RuleSet) -> None:
        """These are the rules below the ceiling. `rules` are all in force, the ceiling's first."""
        self._below = below
        self.rules = self.ceiling.rules.and_(below) if self.ceiling.rules.rules else below

    # What it says of a call

    @property
    def speaks(self) -> bool:
        """Whether it may have something to say of a call."""
        return self.preset is not None or self.ceiling.guards or bool(self._below.rules)

    def rule(self, call: ToolCall) -> Ruled | None:
        """What the rules say of a call, the ceiling's among them."""
        if not self._below.rules and not self.ceiling.guards and call.tool.subject is None:
            return None  # nothing that anybody looks at
        from interlock.policy.rules.action import Action

        return self.words(Action.of(call), call.effect)

    def words(self, action: Action, effect: ToolEffect) -> Ruled | None:
        """What the rules say of this, those below the ceiling first. Its own denials are final like any; a question
        that it forces holds back what is allowed below, and takes no default's place."""
        below = ruled(self._below.decide(action))
        if not self.ceiling.guards:
            return below
        if self.ceiling.reads_only and effect is not ToolEffect.READ:
            reason = self.ceiling.refusal
            word = Deny(reason), self.ceiling.name
            return Ruled((word,), said=(Said(self.ceiling.name, "deny", reason),))
        above = ruled(self.ceiling.rules.decide(action))
        if above is None:
            return below
        below = below or Ruled()
        asks = tuple([word for word in above.spoken if isinstance(word[0], Ask)])
        denies = tuple([word for word in above.spoken if isinstance(word[0], Deny)])
        return Ruled((*denies, *below.spoken), (*above.held, *asks, *below.held), (*above.said, *below.said))

    def default(self, call: ToolCall) -> tuple[Verdict, str]:
        """What happens to a call that nobody spoke about, and who says so."""
        return self.preset.verdict(call) if self.preset is not None else (ALLOW, "default")

    def hides(self, tool: Tool) -> bool:
        """Whether every call of the tool is denied, so that the model need not see it."""
        if tool.name not in self._hidden:
            kind = tool.subject.kind if tool.subject is not None else None
            self._hidden[tool.name] = self.rules.hidden(tool.name, kind)
        return self._hidden[tool.name] is not None


def rules_given(rules: GivenRules, cwd: Path) -> RuleSet:
    """Rules as an agent takes them; relative paths in lists are anchored at `cwd`.

    Raises:
        RuleError: something in a list is no rule.
    """
    if isinstance(rules, RuleSet):
        return rules
    from interlock.policy.rules.rule import EFFECTS, RuleError

    given: object = rules
    if not isinstance(given, Mapping) or any(effect not in EFFECTS for effect in rules):
        raise RuleError(
            f"rules are given as lists by effect, such as {{'deny': ['Bash(git push:*)']}}, not {rules!r}"
        )
    return RuleSet.of(
        allow=rules.get("allow", ()), ask=rules.get("ask", ()), deny=rules.get("deny", ()), anchor=cwd
    )


def ruled(ruling: Ruling) -> Ruled | None:
    """What rules said, as the pipeline takes it."""
    if ruling.effect is None:
        return None
    by = f"rule {ruling.rule.text}" if ruling.rule is not None else CAUTION
    verdict: Verdict
    if ruling.effect == "allow":
        verdict = Allow()
    elif ruling.effect == "ask":
        verdict = Ask(ruling.reason)
    else:
        verdict = Deny(ruling.reason)
    said = [_said(rule, ruling.reason if rule is ruling.rule else None) for rule in ruling.matched]
    if ruling.cautious:
        said.insert(0, Said(CAUTION, "ask", ruling.reason))
    word = verdict, by
    return Ruled(held=(word,), said=tuple(said)) if ruling.cautious else Ruled((word,), said=tuple(said))


def _said(rule: Rule, reason: str | None) -> Said:
    file = rule.file if rule.file is not None else rule.origin
    return Said(f"rule {rule.text}", rule.effect, reason, rule.text, file, rule.line)
